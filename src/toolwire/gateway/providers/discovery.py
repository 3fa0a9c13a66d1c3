"""The providers to use: configured, found through environment variables, or the built-in simulator."""

import asyncio
import contextlib
import errno
import http.client
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from toolwire.gateway.config import Config, ConfigError, LimitsSection, SimulatorSection, build_providers
from toolwire.gateway.providers.known_providers import KNOWN_PROVIDERS
from toolwire.upstream.network import find_proxy
from toolwire.upstream.provider import Provider

if TYPE_CHECKING:
    from toolwire.upstream.simulator.script import Script


Listener = Literal["gateway", "simulator", "other", "none"]
"""The program at an address: a gateway with providers, a gateway with the simulator, another program, or none."""

_LIMIT_HEALTH = 64 * 1024
SIMULATOR_NOTE = "no provider is configured: using the built-in simulator, which answers to any model name"


def discover_providers(environment: Mapping[str, str]) -> dict[str, Provider]:
    """Return a provider for each API key in the environment, and Ollama if its host is set."""
    providers = {
        name: Provider(name=name, protocol=protocol, base_url=url, api_key=key, models=models, default_model=default)
        for variable, name, protocol, url, models, default in KNOWN_PROVIDERS
        if (key := environment.get(variable))
    }
    if host := environment.get("OLLAMA_HOST"):
        providers["ollama"] = Provider(name="ollama", protocol="ollama", base_url=_ollama_url(host), models=("*:*",))
    return providers


def _ollama_url(host: str) -> str:
    """Return the URL of `OLLAMA_HOST`, which may lack scheme and port."""
    url = host if "://" in host else f"http://{host}"
    authority = url.partition("://")[2]
    return url if ":" in authority.rpartition("]")[2] else f"{url.rstrip('/')}:11434"


def simulated_providers(base_url: str) -> dict[str, Provider]:
    """Return every known provider by name, with the simulator's URL as its base URL."""
    providers = {
        name: Provider(
            name=name,
            protocol=protocol,
            base_url=base_url,
            # A name like `opnai/gpt-5` is a mistake, not a model of OpenRouter.
            models=() if name == "openrouter" else models,
            default_model="simulated",
            is_simulated=True,
        )
        for _, name, protocol, _, models, _ in KNOWN_PROVIDERS
    }
    providers["ollama"] = Provider(
        name="ollama",
        protocol="ollama",
        base_url=base_url,
        models=("*:*",),
        default_model="simulated",
        is_simulated=True,
    )
    return providers


def are_simulated(providers: Iterable[Provider]) -> bool:
    """Return whether all providers are the built-in simulator."""
    return all(provider.is_simulated for provider in providers)


_DEFAULT_SIMULATOR = SimulatorSection()


def configured_providers(config: Config, environment: Mapping[str, str] = os.environ) -> dict[str, Provider]:
    """Return the configured providers; without any, those found in the environment."""
    return with_proxies(build_providers(config) or discover_providers(environment), environment)


def with_proxies(providers: Mapping[str, Provider], environment: Mapping[str, str]) -> dict[str, Provider]:
    """Return the providers with the proxies that the environment names; servers on this machine need none."""
    return {name: _with_proxy(provider, environment) for name, provider in providers.items()}


def _with_proxy(provider: Provider, environment: Mapping[str, str]) -> Provider:
    """Return a provider with the proxy that the environment names for its host, unless it has a setting for that."""
    if provider.proxy is not None or provider.is_local:
        return provider
    proxy = find_proxy(provider.origin.scheme, provider.origin.host, environment)
    return provider if proxy is None else replace(provider, proxy=proxy)


def resolve_providers(
    config: Config, environment: Mapping[str, str]
) -> tuple[dict[str, Provider], socket.socket | None]:
    """Return the providers to use, and the simulator's socket if it is needed."""
    return with_simulator_fallback(configured_providers(config, environment))


def with_simulator_fallback(providers: dict[str, Provider]) -> tuple[dict[str, Provider], socket.socket | None]:
    """Return the providers, or simulated ones and the simulator's socket if there are none."""
    if providers:
        return providers, None
    simulator_socket = open_listener("127.0.0.1", 0)
    return simulated_providers(f"http://127.0.0.1:{simulator_socket.getsockname()[1]}"), simulator_socket


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket; raises `ConfigError` if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, UnicodeError) as error:
        listener.close()
        raise ConfigError(_describe_listen_error(host, port, error)) from None
    return listener


def _describe_listen_error(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Return why the address can't be used, and what to do."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, UnicodeError | socket.gaierror):
        return f"can't listen on {address}: unknown host {host!r}; use an address of this machine with --host"
    if error.errno == errno.EADDRINUSE:
        user = "another program" if find_listener(host, port) == "other" else "another toolwire"
        return f"can't listen on {address}: port {port} is in use by {user}; stop it, or choose another with --port"
    if error.errno == errno.EACCES:
        return f"can't listen on {address}: port {port} needs privileges; choose one from 1024 on with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"can't listen on {address}: {host} is not an address of this machine; choose another with --host"
    return f"can't listen on {address}: {error.strerror}"


def find_listener(host: str, port: int) -> Listener:
    """Return the kind of program that listens at this address."""
    any_address = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - nothing is bound here
    connection = http.client.HTTPConnection(any_address.get(host, host), port, timeout=2)
    try:
        connection.connect()
    except OSError:
        return "none"
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        if response.getheader("toolwire-exchange") is None:
            return "other"
        health = json.loads(response.read(_LIMIT_HEALTH))
    except (OSError, http.client.HTTPException, ValueError):
        return "other"
    finally:
        connection.close()
    return "simulator" if isinstance(health, dict) and health.get("simulated") is True else "gateway"


@contextlib.asynccontextmanager
async def embedded_simulator(
    listener: socket.socket | None, section: SimulatorSection = _DEFAULT_SIMULATOR, protocols: Iterable[str] = ()
) -> AsyncIterator[None]:
    """Run the built-in simulator on this socket, if there is one; `protocols` limits those it serves."""
    if listener is None:
        yield
        return
    # Imported here so that clients of real providers need not load a server.
    import uvicorn  # noqa: PLC0415

    from toolwire.gateway.server.http import uvicorn_options  # noqa: PLC0415
    from toolwire.upstream.simulator.app import Simulator  # noqa: PLC0415

    app = Simulator(protocols, script=load_simulator_script(section), pace=section.pace)
    simulator = uvicorn.Server(uvicorn.Config(app, **uvicorn_options(LimitsSection())))
    serving_task = asyncio.ensure_future(simulator._serve([listener]))  # noqa: SLF001 - `serve` would capture signals
    try:
        yield
    finally:
        simulator.should_exit = True
        await serving_task


def load_simulator_script(section: SimulatorSection) -> "Script | None":
    """Load the configured script of the simulator, if any."""
    from toolwire.upstream.simulator.script import ScriptError, load_script  # noqa: PLC0415

    try:
        return None if section.script is None else load_script(Path(section.script).expanduser())
    except ScriptError as error:
        raise ConfigError(f"simulator.script: {error}") from None
