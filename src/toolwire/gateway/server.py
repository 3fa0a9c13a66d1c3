"""Starting the gateway: the application from its configuration, the server around it, and what is said at the start."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping

import uvicorn
import uvloop
from msgspec import Struct

from toolwire.journal.secrets import Redactor
from toolwire.runtime.policy import Policy
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport

from .app import App
from .auth import Gate, is_loopback
from .config import Config, ConfigError, with_server
from .counting import Counter
from .exchange import Exchanger
from .http import options
from .log import Log
from .models import Catalogue
from .offering import Offers
from .providing import configured, listening, or_simulated, providers_of, simulating
from .recording import recorder_of, secrets_of
from .routing import Router
from .seals import seal_keys, state_folder
from .state.memory import Memory
from .state.opening import opened
from .state.resources import Resources
from .tags import with_tags


class Gateway(Struct):
    """All of it, ready to listen. `simulator` is the socket of the embedded model, if it is needed."""

    app: App
    config: Config
    router: Router
    log: Log
    offers: Offers
    simulator: socket.socket | None = None


def build(
    config: Config,
    catch_all: str | None = None,
    environment: Mapping[str, str] = os.environ,
    providers: dict[str, Provider] | None = None,
) -> Gateway:
    if not config.server.keys and not is_loopback(config.server.host):
        raise ConfigError(f"{config.server.host} can be reached from outside: set server.keys, or listen on 127.0.0.1")
    found, embedded = providers_of(config, environment) if providers is None else or_simulated(providers)
    router = Router(found, config.routes, catch_all)
    log = Log()
    transport = Transport()
    memory = Memory(opened(config.state, environment), config.limits.streams, config.limits.answer)
    redactor = Redactor(secrets_of(config, found.values()))
    offers = Offers(
        config.mcp.servers,
        Policy(allow=config.policy.allow, ask=config.policy.ask, deny=config.policy.deny),
        redactor=redactor,
        folder=state_folder(environment) / "mcp",
        say=log.say,
    )
    exchanger = Exchanger(
        router,
        transport,
        config.limits,
        seal_keys(config.server, environment),
        memory,
        redactor=redactor,
        offers=offers,
    )
    app = App(
        exchanger,
        Gate(config.server.keys, config.server.hosts, config.server.origins),
        Catalogue(router),
        config.limits,
        log=log.add,
        resources=Resources(memory),
        counter=Counter(exchanger, transport),
        recorder=recorder_of(config, found.values(), environment, log.say),
    )
    return Gateway(app, config, router, log, offers, embedded)


def greeting(gateway: Gateway) -> str:
    """What was found, where it listens, and one line for each client."""
    server = gateway.config.server
    host = server.host if is_loopback(server.host) else socket.gethostname()
    root = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
    key = "$TOOLWIRE_KEY" if server.keys else "none"
    lines = [f"toolwire listens on {root}"]
    if gateway.simulator is not None:
        lines.append("no provider is configured: the embedded simulator answers, in every protocol")
    lines += [f"  {_told(provider)}" for provider in gateway.router.providers.values() if gateway.simulator is None]
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


def _told(provider: Provider) -> str:
    default = f", default {provider.default_model}" if provider.default_model else ""
    return f"{provider.name}/MODEL -> {provider.base_url} ({provider.protocol}{default})"


def run(config: Config, catch_all: str | None, workers: int, say: Callable[[str], None]) -> None:
    """Serve until told to stop."""
    listener = listening(config.server.host, config.server.port)
    config = with_server(config, None, listener.getsockname()[1])
    providers = asyncio.run(with_tags(configured(config)))
    gateway = build(config, catch_all, providers=providers)
    say(greeting(gateway))
    if workers == 1:
        _run(gateway, listener)
        return
    children = [_fork(config, catch_all, providers, listener) for _ in range(workers)]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(children))
    for child in children:
        os.waitpid(child, 0)


def _stop(children: list[int]) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


def _fork(config: Config, catch_all: str | None, providers: dict[str, Provider], listener: socket.socket) -> int:
    child = os.fork()
    if child == 0:
        _run(build(config, catch_all, providers=providers), listener)
        os._exit(0)
    return child


def _run(gateway: Gateway, listener: socket.socket) -> None:
    uvloop.run(serve(gateway, listener))


class _Server(uvicorn.Server):
    """Stops on a signal and returns, where uvicorn's would raise the signal again after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def spare_the_collector() -> None:
    """What is there at the start stays, and a request leaves no cycles: both need not be looked for all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 5)


async def serve(gateway: Gateway, listener: socket.socket) -> None:
    """Serve until a signal says stop; streams that are under way are finished first."""
    async with simulating(gateway.simulator, gateway.config.simulator), contextlib.AsyncExitStack() as closing:
        closing.callback(gateway.log.flush)
        closing.push_async_callback(gateway.offers.close)
        closing.callback(gateway.app.close)
        spare_the_collector()
        await _Server(uvicorn.Config(gateway.app, **options(gateway.config.limits))).serve(sockets=[listener])
