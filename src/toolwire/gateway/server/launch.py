"""File descriptors: as many as the system allows, and limits that fit into them.

Starting the gateway: the application from its configuration, the server around it, and what is said at the start.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, Mapping

import uvicorn
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from toolwire.gateway.config import (
    Config,
    ConfigError,
    LimitsSection,
    configured_secrets,
    override_server,
    state_directory,
)
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.exchange.token_count import TokenCounter
from toolwire.gateway.observability.access_log import AccessLog
from toolwire.gateway.observability.metrics import Scoreboard
from toolwire.gateway.observability.recorder import build_recorder
from toolwire.gateway.providers.catalog import ModelCatalog
from toolwire.gateway.providers.discovery import (
    configured_providers,
    embedded_simulator,
    open_listener,
    resolve_providers,
    with_simulator_fallback,
)
from toolwire.gateway.providers.ollama_models import with_ollama_models
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.gateway.server.app import App
from toolwire.gateway.server.auth import Authenticator, is_loopback
from toolwire.gateway.server.http import uvicorn_options
from toolwire.gateway.server.workers import Supervisor, stop_signals
from toolwire.gateway.signing_keys import load_signing_keys
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.resources import Resources
from toolwire.gateway.state.store import open_store, require_shared_file
from toolwire.journal.redaction import Redactor
from toolwire.runtime.policy import Policy
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport

_RESERVED_FILES = 128  # for files, databases, programs, pooled connections, and clients that are being refused
_STREAM_FRACTION = 0.8  # of all connections, so that a client whose stream is refused is told so in its own protocol
_MAX_FILES = 1 << 20  # where the system names no limit


def raise_file_limit() -> int:
    """Raise the soft limit of open files (RLIMIT_NOFILE) to the hard one. Return the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower limit that they do not name
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft


def fit_limits(limits: LimitsSection, file_limit: int) -> tuple[LimitsSection, str | None]:
    """Lower connections and streams to what the descriptors allow. Return the limits, and what to say about them."""
    room = file_limit - min(_RESERVED_FILES, file_limit // 4)
    connections = max(1, room // 2)  # as many of clients as to upstreams
    streams = max(1, int(connections * _STREAM_FRACTION))
    wanted = connections if limits.connections is None else limits.connections
    fitted = replace(limits, connections=min(connections, wanted), streams=min(streams, limits.streams))
    lowered = [
        f"limits.{name} is {most} instead of {before}"
        for name, before, most in (("connections", wanted, connections), ("streams", limits.streams, streams))
        if before > most
    ]
    why = f"this process may have {file_limit} open files; raise `ulimit -n`"
    return fitted, f"{' and '.join(lowered)}: {why}" if lowered else None


class Gateway(Struct):
    """All of it, ready to listen. `simulator` is the socket of the embedded model, if it is needed; `trouble` is why
    there is no state, if there is none."""

    app: App
    config: Config
    router: Router
    log: AccessLog
    route_toolsets: RouteToolsets
    simulator_socket: socket.socket | None = None
    state_error: str | None = None


class SharedResources(Struct, frozen=True):
    """What all workers of a gateway share. It is made before they are."""

    scoreboard: Scoreboard
    signing_keys: list[bytes]


def build_gateway(
    config: Config,
    catch_all: str | None = None,
    environment: Mapping[str, str] = os.environ,
    providers: dict[str, Provider] | None = None,
    *,
    shared_resources: SharedResources | None = None,
    worker: int = 0,
) -> Gateway:
    if not config.server.keys and not is_loopback(config.server.host):
        raise ConfigError(f"{config.server.host} can be reached from outside: set server.keys, or listen on 127.0.0.1")
    found, embedded = (
        resolve_providers(config, environment) if providers is None else with_simulator_fallback(providers)
    )
    router = Router(found, config.routes, catch_all)
    shared_resources = shared_resources or make_shared_resources(config, environment)
    log = AccessLog()
    transport = Transport(config.limits.connections)
    store = open_store(config.state, environment)
    server, streams = config.server, config.limits.streams
    gate = Authenticator(server.keys, server.hosts, server.origins, config.limits.key_share)
    memory = ConversationState(store, streams, config.limits.answer, gate.key_quota(streams))
    redactor = Redactor(configured_secrets(config, found.values()))
    offers = RouteToolsets(
        config.mcp.servers,
        Policy(allow=config.policy.allow, ask=config.policy.ask, deny=config.policy.deny),
        redactor=redactor,
        directory=state_directory(environment) / "mcp",
        log=log.write_line,
    )
    exchanger = Dispatcher(
        router,
        transport,
        config.limits,
        shared_resources.signing_keys,
        memory,
        redactor=redactor,
        route_toolsets=offers,
    )
    app = App(
        exchanger,
        gate,
        ModelCatalog(router),
        config.limits,
        log=log.add_record,
        resources=Resources(memory, config.limits),
        token_counter=TokenCounter(exchanger, transport),
        recorder=build_recorder(config, found.values(), environment, log.write_line),
        scoreboard=shared_resources.scoreboard,
        worker=worker,
    )
    return Gateway(app, config, router, log, offers, embedded, store.unavailable_reason)


def make_shared_resources(config: Config, environment: Mapping[str, str], workers: int = 1) -> SharedResources:
    return SharedResources(Scoreboard(workers, config.limits.exchanges), load_signing_keys(config.server, environment))


def startup_message(gateway: Gateway) -> str:
    """What was found, where it listens, and one line for each client."""
    server = gateway.config.server
    host = server.host if is_loopback(server.host) else socket.gethostname()
    root = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
    key = "$TOOLWIRE_KEY" if server.keys else "none"
    lines = [f"toolwire listens on {root}"]
    if gateway.state_error is not None:
        lines.append(
            f"state is unavailable, and what needs none is served: {gateway.state_error} (see toolwire doctor)"
        )
    if gateway.simulator_socket is not None:
        lines.append("no provider is configured: the embedded simulator answers, in every protocol")
    lines += [
        f"  {_describe_provider(provider)}"
        for provider in gateway.router.providers.values()
        if gateway.simulator_socket is None
    ]
    if gateway.router.catch_all is not None:
        lines.append(f"  any other name: {gateway.router.catch_all}")
    lines += [
        "point a client at it:",
        f"  ANTHROPIC_BASE_URL={root} ANTHROPIC_API_KEY={key} claude",
        f"  codex -c openai_base_url={root}/v1",
        f"  GOOGLE_GEMINI_BASE_URL={root} GEMINI_API_KEY={key} gemini",
        f"  OPENAI_BASE_URL={root}/v1 OPENAI_API_KEY={key} python your_agent.py",
        f"  OLLAMA_HOST={root} ollama run MODEL",
        "or let toolwire do it: toolwire launch claude | codex | gemini | opencode | qwen",
    ]
    return "\n".join(lines)


def _describe_provider(provider: Provider) -> str:
    default = f", default {provider.default_model}" if provider.default_model else ""
    return f"{provider.name}/MODEL -> {provider.base_url} ({provider.protocol}{default})"


def run_gateway(config: Config, catch_all: str | None, workers: int, echo: Callable[[str], None]) -> int:
    """Serve until a signal ends it. Return the exit code."""
    if workers > 1:
        require_shared_file(config.state, os.environ)
    limits, lowered = fit_limits(config.limits, raise_file_limit())
    config = replace(config, limits=limits)
    listener = open_listener(config.server.host, config.server.port)
    config = override_server(config, None, listener.getsockname()[1])
    providers = asyncio.run(with_ollama_models(configured_providers(config)))
    crew = make_shared_resources(config, os.environ, workers)
    gateway = build_gateway(config, catch_all, providers=providers, shared_resources=crew)
    echo(startup_message(gateway))
    if lowered is not None:
        gateway.log.write_line(lowered)
    if workers == 1:
        uvloop.run(serve_gateway(gateway, listener))
        return 0

    def work(number: int, parent: int) -> None:
        mine = build_gateway(config, catch_all, providers=providers, shared_resources=crew, worker=number)
        uvloop.run(serve_gateway(mine, listener, parent))

    return Supervisor(work, workers, close_listener=listener.close, log=gateway.log.write_line).run()


class _Server(uvicorn.Server):
    """Stops on a signal and returns, where uvicorn's would raise the signal again after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _stop_orphan(server: _Server, parent_fd: int) -> None:
    asyncio.get_running_loop().remove_reader(parent_fd)
    server.handle_exit(signal.SIGTERM, None)


def tune_garbage_collector() -> None:
    """What is there at the start stays, and a request leaves no cycles: both need not be looked for all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 5)


async def serve_gateway(gateway: Gateway, listener: socket.socket, parent_fd: int | None = None) -> None:
    """Serve until a signal says stop; streams that are under way are finished first.

    `parent` is a descriptor at whose end the supervisor of this worker is gone: then the worker ends, too.
    """
    async with (
        embedded_simulator(gateway.simulator_socket, gateway.config.simulator),
        contextlib.AsyncExitStack() as closing,
    ):
        closing.callback(gateway.log.flush)
        closing.push_async_callback(gateway.route_toolsets.close)
        closing.callback(gateway.app.close)
        tune_garbage_collector()
        server = _Server(uvicorn.Config(gateway.app, **uvicorn_options(gateway.config.limits)))
        if parent_fd is not None:
            asyncio.get_running_loop().add_reader(parent_fd, _stop_orphan, server, parent_fd)
        await server.serve(sockets=[listener])
