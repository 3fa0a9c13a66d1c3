"""Providers found in the environment, for those who have no configuration file.

Who answers: the providers that are configured, or found, or else the embedded simulator.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.gateway.config import Config, ConfigError, LimitsSection, SimulatorSection, build_provider
from toolwire.upstream.provider import Provider

if TYPE_CHECKING:
    from toolwire.upstream.simulator.script import Script


_KNOWN_PROVIDERS = (
    # variable, name, protocol, base URL, names it knows, default model
    ("ANTHROPIC_API_KEY", "anthropic", "anthropic", "https://api.anthropic.com", ("claude-*",), "claude-sonnet-4-5"),
    (
        "OPENAI_API_KEY",
        "openai",
        "openai-responses",
        "https://api.openai.com",
        ("gpt-*", "o[1-9]*", "chatgpt-*", "codex-*"),
        "gpt-5.5",
    ),
    ("OPENAI_API_KEY", "openai-chat", "openai-chat", "https://api.openai.com", (), "gpt-5.5"),
    (
        "GEMINI_API_KEY",
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("gemini-*", "gemma-*"),
        "gemini-3.1-pro-preview",
    ),
    (
        "GEMINI_API_KEY",
        "gemini-interactions",
        "gemini-interactions",
        "https://generativelanguage.googleapis.com",
        (),
        "gemini-3.1-pro-preview",
    ),
    (
        "OPENROUTER_API_KEY",
        "openrouter",
        "openrouter",
        "https://openrouter.ai",
        ("*/*",),
        "openrouter/auto",
    ),
)

# Where each of them is found.
KEY_VARIABLES = {name: variable for variable, name, *_ in _KNOWN_PROVIDERS} | {"ollama": "OLLAMA_HOST"}


def discover_providers(environment: Mapping[str, str]) -> dict[str, Provider]:
    """A provider for each key there is, and for Ollama if its host is named."""
    found = {
        name: Provider(name=name, protocol=protocol, base_url=url, api_key=key, models=models, default_model=default)
        for variable, name, protocol, url, models, default in _KNOWN_PROVIDERS
        if (key := environment.get(variable))
    }
    if host := environment.get("OLLAMA_HOST"):
        found["ollama"] = Provider(name="ollama", protocol="ollama", base_url=_ollama_url(host), models=("*:*",))
    return found


def _ollama_url(host: str) -> str:
    """Ollama's own variable may lack scheme and port."""
    url = host if "://" in host else f"http://{host}"
    authority = url.partition("://")[2]
    return url if ":" in authority.rpartition("]")[2] else f"{url.rstrip('/')}:11434"


def simulated_providers(base_url: str) -> dict[str, Provider]:
    """Every provider there could be, answered by the embedded simulator."""
    found = {
        name: Provider(name=name, protocol=protocol, base_url=base_url, models=models, default_model="simulated")
        for _, name, protocol, _, models, _ in _KNOWN_PROVIDERS
    }
    found["ollama"] = Provider(
        name="ollama", protocol="ollama", base_url=base_url, models=("*:*",), default_model="simulated"
    )
    return found


_DEFAULT_SIMULATOR = SimulatorSection()


def configured_providers(config: Config, environment: Mapping[str, str] = os.environ) -> dict[str, Provider]:
    """The providers of the configuration; without any there, those of the environment."""
    return {name: build_provider(name, section) for name, section in config.providers.items()} or discover_providers(
        environment
    )


def resolve_providers(
    config: Config, environment: Mapping[str, str]
) -> tuple[dict[str, Provider], socket.socket | None]:
    """Those that are configured, or found, or simulated; and the socket that the simulator is to answer at."""
    return with_simulator_fallback(configured_providers(config, environment))


def with_simulator_fallback(providers: dict[str, Provider]) -> tuple[dict[str, Provider], socket.socket | None]:
    if providers:
        return providers, None
    embedded = open_listener("127.0.0.1", 0)
    return simulated_providers(f"http://127.0.0.1:{embedded.getsockname()[1]}"), embedded


def open_listener(host: str, port: int) -> socket.socket:
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
async def embedded_simulator(
    listener: socket.socket | None, section: SimulatorSection = _DEFAULT_SIMULATOR, protocols: Iterable[str] = ()
) -> AsyncIterator[None]:
    """The embedded model answers meanwhile, if it is needed: in these protocols, or else in all."""
    if listener is None:
        yield
        return
    # Whoever asks a provider need not wait until a server is loaded.
    import uvicorn  # noqa: PLC0415

    from toolwire.gateway.server.http import uvicorn_options  # noqa: PLC0415
    from toolwire.upstream.simulator.app import Simulator  # noqa: PLC0415

    app = Simulator(protocols, script=_load_simulator_script(section), pace=section.pace)
    simulator = uvicorn.Server(uvicorn.Config(app, **uvicorn_options(LimitsSection())))
    serving = asyncio.ensure_future(simulator._serve([listener]))  # noqa: SLF001 - signals are not its own
    try:
        yield
    finally:
        simulator.should_exit = True
        await serving


def _load_simulator_script(section: SimulatorSection) -> "Script | None":
    from toolwire.upstream.simulator.script import ScriptError, load_script  # noqa: PLC0415

    try:
        return None if section.script is None else load_script(Path(section.script).expanduser())
    except ScriptError as error:
        raise ConfigError(f"simulator.script: {error}") from None
