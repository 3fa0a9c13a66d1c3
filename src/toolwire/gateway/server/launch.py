"""Starting the gateway: file limits, the processes, and serving it."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType

import uvicorn
import uvloop
from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.gateway.config import (
    Config,
    ConfigError,
    LimitsSection,
    LoadedConfig,
    override_server,
)
from toolwire.gateway.keys.key_check import find_refused_keys
from toolwire.gateway.policy_check import find_unused_rules
from toolwire.gateway.providers.discovery import (
    SIMULATOR_NOTE,
    configured_providers,
    embedded_simulator,
    open_listener,
)
from toolwire.gateway.providers.models import with_ollama_models
from toolwire.gateway.providers.reachability import find_unreachable
from toolwire.gateway.server.gateway import Gateway, build_gateway, make_shared_resources
from toolwire.gateway.server.http import uvicorn_options
from toolwire.gateway.server.reloading import REFUSED_RELOAD, LiveGateway, Rebuild
from toolwire.gateway.server.workers import STOP_SIGNALS, Supervisor
from toolwire.gateway.signing_keys import load_signing_keys
from toolwire.gateway.start_checks import describe_broken_aliases, refuse_unusable
from toolwire.gateway.state.store_file import require_shared_file
from toolwire.translation.stages.tool_call_parsers.signs import compile_marks
from toolwire.upstream.provider import Provider, is_loopback

CLIENT_COMMANDS = "point a client at it:"
"""The line of the start-up message after which all lines are commands to copy."""
_RESERVED_FILES = 128  # for files, databases, processes, pooled connections, and clients being rejected
_STREAM_FRACTION = 0.8  # of all connections, so that a rejected stream still gets an error in its protocol
_MAX_FILES = 1 << 20  # if the system has no limit


def raise_file_limit() -> int:
    """Raise the soft limit of open files (RLIMIT_NOFILE) to the hard one, and return the limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower limit than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft


def fit_limits(limits: LimitsSection, file_limit: int, workers: int = 1) -> tuple[LimitsSection, str | None]:
    """Return the limits with connections and streams lowered to the file limit, and a warning if they were.

    Each worker has its own connections, and all share the streams.
    """
    available = file_limit - min(_RESERVED_FILES, file_limit // 4)
    connections = max(1, available // 2)  # as many of clients as to upstreams
    streams = max(1, int(connections * _STREAM_FRACTION)) * workers
    requested = connections if limits.connections is None else limits.connections
    fitted = replace(limits, connections=min(connections, requested), streams=min(streams, limits.streams))
    lowered = [
        f"limits.{name} is {maximum} instead of {configured}"
        for name, configured, maximum in (("connections", requested, connections), ("streams", limits.streams, streams))
        if configured > maximum
    ]
    cause = f"this process may open only {file_limit} files; raise `ulimit -n`"
    return fitted, f"{' and '.join(lowered)}: {cause}" if lowered else None


def startup_message(gateway: Gateway) -> str:
    """Return the text printed at start-up: address, providers, and how to point clients at it."""
    server = gateway.config.server
    host = server.host if is_loopback(server.host) else socket.gethostname()
    root = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
    key = "$TOOLWIRE_KEY" if gateway.config.requires_key else "none"
    lines = [f"toolwire listens on {root}"]
    if gateway.config.console.enabled:
        lines.append(f"see every exchange in a browser: {root}/")
    if gateway.state_error is not None:
        lines.append(
            f"state is unavailable, only stateless requests are served: {gateway.state_error} (run `toolwire doctor`)"
        )
    if gateway.simulator_socket is not None:
        lines.append(SIMULATOR_NOTE)
    lines += [
        f"  {_describe_provider(provider)}"
        for provider in gateway.router.providers.values()
        if gateway.simulator_socket is None
    ]
    if gateway.router.catch_all is not None:
        lines.append(f"  any other model -> {gateway.router.catch_all}")
    if (journal := gateway.config.journal).enabled:
        contents = "exchanges with their bodies" if journal.bodies else "exchanges without bodies"
        lines.append(f"recording {contents}; see them with: toolwire journal tail -f")
    lines += [
        CLIENT_COMMANDS,
        f"  ANTHROPIC_BASE_URL={root} ANTHROPIC_AUTH_TOKEN={key} claude",
        f"  codex -c openai_base_url={root}/v1",
        f"  GOOGLE_GEMINI_BASE_URL={root} GEMINI_API_KEY={key} gemini",
        f"  OPENAI_BASE_URL={root}/v1 OPENAI_API_KEY={key} python agent.py",
        f"  OLLAMA_HOST={root} ollama run MODEL",
        "or let toolwire configure it: toolwire launch claude|codex|gemini|opencode|qwen",
    ]
    return "\n".join(lines)


def _describe_provider(provider: Provider) -> str:
    """Return one line about a provider, for the start-up message."""
    if provider.unavailable_reason is not None:
        return f"{provider.name}/MODEL can't be used: {provider.unavailable_reason}"
    default = f", default {provider.default_model}" if provider.default_model else ""
    return f"{provider.name}/MODEL -> {provider.base_url} ({provider.protocol}{default})"


async def prepare_providers(config: Config) -> tuple[dict[str, Provider], Iterable[str]]:
    """Return the providers with the models of each Ollama, and a note on each Ollama that does not answer."""
    providers = configured_providers(config)
    listed, unreachable = await asyncio.gather(with_ollama_models(providers), find_unreachable(providers))
    return listed, unreachable.values()


def run_gateway(
    load: Callable[[], LoadedConfig], catch_all: str | None, workers: int, echo: Callable[[str], None]
) -> int:
    """Serve until a signal arrives, and return the exit code. SIGHUP calls `load` again."""
    loaded = load()
    config = loaded.config
    if workers > 1:
        require_shared_file(config.state, os.environ)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(open_listener(config.server.host, config.server.port))
        count = workers if workers > 1 else 0
        worker_listeners = [stack.enter_context(open_listener("127.0.0.1", 0)) for _ in range(count)]
        return _Service(listener, worker_listeners, loaded, load, catch_all).run(echo)


class _Service:
    """A gateway in one process, or in several that share a listener and each have one for the other workers."""

    def __init__(
        self,
        listener: socket.socket,
        worker_listeners: list[socket.socket],
        loaded: LoadedConfig,
        load: Callable[[], LoadedConfig],
        catch_all: str | None,
    ) -> None:
        self._listener = listener
        self._load = load
        self._catch_all = catch_all
        self._workers = max(1, len(worker_listeners))
        self._config, self._warning = self._adapt(loaded.config, loaded.config.server.host)
        self._providers, self._notes = asyncio.run(prepare_providers(self._config))
        refuse_unusable(loaded, self._providers, catch_all)
        shared = make_shared_resources(self._config, os.environ, self._workers)
        self._resources = replace(shared, worker_listeners=tuple(worker_listeners))
        self._gateway = self._build(self._config, self._providers)

    def run(self, echo: Callable[[str], None]) -> int:
        """Serve until a signal arrives, and return the exit code."""
        log = self._gateway.log
        compile_marks()
        echo(startup_message(self._gateway))
        refused_keys = find_refused_keys(self._config, self._gateway.router.providers)
        problems = [str(problem) for problem in (*find_unused_rules(self._config), *refused_keys)]
        problems += describe_broken_aliases(self._gateway.router)
        for note in (*self._notes, *([] if self._warning is None else [self._warning]), *problems):
            log.write_line(note)
        if self._workers == 1:
            uvloop.run(serve_gateway(self._gateway, [self._listener], rebuild=self._rebuild))
            return 0
        supervisor = Supervisor(
            self._work,
            self._workers,
            close_listener=self._listener.close,
            log=log.write_line,
            check_reload=self._check_reload,
        )
        return supervisor.run()

    def _adapt(self, config: Config, host: str) -> tuple[Config, str | None]:
        """Return the configuration with the address and the limits of this process, and a warning about limits."""
        limits, warning = fit_limits(config.limits, raise_file_limit(), self._workers)
        return override_server(replace(config, limits=limits), host, self._listener.getsockname()[1]), warning

    def _build(self, config: Config, providers: dict[str, Provider], worker: int = 0) -> Gateway:
        """Build the gateway of a worker."""
        return build_gateway(
            config, self._catch_all, providers=providers, shared_resources=self._resources, worker=worker
        )

    def _work(self, worker: int, parent_fd: int) -> None:
        """Serve as one worker process until it is stopped."""
        self._resources.scoreboard.uses.clear(worker)
        gateway = self._build(self._config, self._providers, worker)
        listeners = [self._listener, self._resources.worker_listeners[worker]]
        uvloop.run(serve_gateway(gateway, listeners, parent_fd, rebuild=partial(self._rebuild, worker=worker)))

    async def _load_again(self) -> tuple[Config, dict[str, Provider]]:
        """Read the configuration anew; a gateway without providers stays with the simulator."""
        loaded = self._load()
        config, _ = self._adapt(loaded.config, self._config.server.host)
        providers, _ = await prepare_providers(config)
        if not providers and self._gateway.simulator_socket is None:
            raise ConfigError("no provider is configured")
        refuse_unusable(loaded, providers, self._catch_all)
        return config, providers or self._gateway.router.providers

    async def _rebuild(self, previous: Gateway, worker: int = 0) -> Gateway:
        """Build the gateway that follows another one."""
        config, providers = await self._load_again()
        return build_gateway(
            config,
            self._catch_all,
            providers=providers,
            shared_resources=replace(self._resources, signing_keys=load_signing_keys(config.server, os.environ)),
            worker=worker,
            log=previous.log,
            predecessor=previous,
        )

    def _check_reload(self) -> bool:
        """Read the configuration anew, for workers that start later; return False if it is broken."""
        log = self._gateway.log
        try:
            config, providers = asyncio.run(self._load_again())
            checked = build_gateway(config, self._catch_all, providers=providers, log=log, predecessor=self._gateway)
        except (ToolwireError, OSError) as error:
            log.write_line(f"{REFUSED_RELOAD}: {error}")
            return False
        checked.app.retire()
        self._config, self._providers = config, providers
        return True


class _Server(uvicorn.Server):
    """A uvicorn server that returns after a stop signal, instead of raising the signal again."""

    def __init__(self, config: uvicorn.Config, begin_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._begin_stop = begin_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server; streams without an end are ended."""
        self._begin_stop()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle stop signals on the event loop, without restoring handlers."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _stop_orphan(server: _Server, parent_fd: int) -> None:
    """Stop a worker whose supervisor has exited."""
    asyncio.get_running_loop().remove_reader(parent_fd)
    server.handle_exit(signal.SIGTERM, None)


_SWITCH_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Exempt start-up objects from garbage collection, and collect less often: requests leave few cycles.

    Let worker threads yield more often: each time that the event loop wakes up, it waits for one that runs Python.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 5)
    sys.setswitchinterval(_SWITCH_SECONDS)


async def serve_gateway(
    gateway: Gateway, listeners: list[socket.socket], parent_fd: int | None = None, *, rebuild: Rebuild | None = None
) -> None:
    """Serve until a stop signal; streams that are under way are finished first.

    `parent_fd` is a pipe that reaches end of file when the supervisor exits; the worker then stops, too. `rebuild`
    reloads the configuration at SIGHUP.
    """
    live = LiveGateway(gateway, rebuild)
    async with (
        embedded_simulator(gateway.simulator_socket, gateway.config.simulator),
        contextlib.AsyncExitStack() as exit_stack,
    ):
        exit_stack.callback(gateway.log.flush)
        exit_stack.push_async_callback(live.close)
        tune_interpreter()
        server = _Server(uvicorn.Config(live, **uvicorn_options(gateway.config.limits)), live.begin_stop)
        exit_stack.callback(gateway.app.start_lag_probe().cancel)
        if gateway.config.state.url is not None:
            gateway.app.conversation_state.store.schedule_check()
        if rebuild is not None:
            live.watch_signal(lambda: server.handle_exit(signal.SIGTERM, None))
        if parent_fd is not None:
            asyncio.get_running_loop().add_reader(parent_fd, _stop_orphan, server, parent_fd)
        await server.serve(sockets=listeners)
