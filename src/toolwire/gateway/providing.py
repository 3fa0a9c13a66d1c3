"""Who answers: the providers that are configured, or found, or else the embedded simulator."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.upstream.provider import Provider

from .config import Config, ConfigError, LimitsSection, SimulatorSection, provider_of
from .discovery import discover, simulated

if TYPE_CHECKING:
    from toolwire.upstream.simulator.script import Script

_AS_IT_IS = SimulatorSection()


def configured(config: Config, environment: Mapping[str, str] = os.environ) -> dict[str, Provider]:
    """The providers of the configuration; without any there, those of the environment."""
    return {name: provider_of(name, section) for name, section in config.providers.items()} or discover(environment)


def providers_of(config: Config, environment: Mapping[str, str]) -> tuple[dict[str, Provider], socket.socket | None]:
    """Those that are configured, or found, or simulated; and the socket that the simulator is to answer at."""
    return or_simulated(configured(config, environment))


def or_simulated(found: dict[str, Provider]) -> tuple[dict[str, Provider], socket.socket | None]:
    if found:
        return found, None
    embedded = listening("127.0.0.1", 0)
    return simulated(f"http://127.0.0.1:{embedded.getsockname()[1]}"), embedded


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound: a ConfigError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"can't listen on {host}:{port}: {error.strerror}") from None
    found.listen(2048)
    return found


@contextlib.asynccontextmanager
async def simulating(
    embedded: socket.socket | None, section: SimulatorSection = _AS_IT_IS, protocols: Iterable[str] = ()
) -> AsyncIterator[None]:
    """The embedded model answers meanwhile, if it is needed: in these protocols, or else in all."""
    if embedded is None:
        yield
        return
    # Whoever asks a provider need not wait until a server is loaded.
    import uvicorn  # noqa: PLC0415

    from toolwire.upstream.simulator.app import Simulator  # noqa: PLC0415

    from .http import options  # noqa: PLC0415

    app = Simulator(protocols, script=_script(section), pace=section.pace)
    simulator = uvicorn.Server(uvicorn.Config(app, **options(LimitsSection())))
    serving = asyncio.ensure_future(simulator._serve([embedded]))  # noqa: SLF001 - signals are not its own
    try:
        yield
    finally:
        simulator.should_exit = True
        await serving


def _script(section: SimulatorSection) -> "Script | None":
    from toolwire.upstream.simulator.script import ScriptError, load_script  # noqa: PLC0415

    try:
        return None if section.script is None else load_script(Path(section.script).expanduser())
    except ScriptError as error:
        raise ConfigError(f"simulator.script: {error}") from None
