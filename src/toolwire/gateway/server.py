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
from msgspec.structs import replace

from toolwire.journal.secrets import Redactor
from toolwire.runtime.policy import Policy
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport

from .app import App
from .auth import Gate, is_loopback
from .config import Config, ConfigError, with_server
from .counting import Counter
from .descriptors import fit, raise_limit
from .exchange import Exchanger
from .http import options
from .log import Log
from .models import Catalogue
from .offering import Offers
from .providing import configured, listening, or_simulated, providers_of, simulating
from .recording import recorder_of, secrets_of
from .routing import Router
from .scoreboard import Scoreboard
from .seals import seal_keys, state_folder
from .state.memory import Memory
from .state.opening import opened, require_file
from .state.resources import Resources
from .tags import with_tags
from .workers import Supervisor, ending_signals


class Gateway(Struct):
    """All of it, ready to listen. `simulator` is the socket of the embedded model, if it is needed; `trouble` is why
    there is no state, if there is none."""

    app: App
    config: Config
    router: Router
    log: Log
    offers: Offers
    simulator: socket.socket | None = None
    trouble: str | None = None


class Crew(Struct, frozen=True):
    """What all workers of a gateway share. It is made before they are."""

    scoreboard: Scoreboard
    seal_keys: list[bytes]


def build(
    config: Config,
    catch_all: str | None = None,
    environment: Mapping[str, str] = os.environ,
    providers: dict[str, Provider] | None = None,
    *,
    crew: Crew | None = None,
    worker: int = 0,
) -> Gateway:
    if not config.server.keys and not is_loopback(config.server.host):
        raise ConfigError(f"{config.server.host} can be reached from outside: set server.keys, or listen on 127.0.0.1")
    found, embedded = providers_of(config, environment) if providers is None else or_simulated(providers)
    router = Router(found, config.routes, catch_all)
    crew = crew or make_crew(config, environment)
    log = Log()
    transport = Transport(config.limits.connections)
    store = opened(config.state, environment)
    server, streams = config.server, config.limits.streams
    gate = Gate(server.keys, server.hosts, server.origins, config.limits.key_share)
    memory = Memory(store, streams, config.limits.answer, gate.share(streams))
    redactor = Redactor(secrets_of(config, found.values()))
    offers = Offers(
        config.mcp.servers,
        Policy(allow=config.policy.allow, ask=config.policy.ask, deny=config.policy.deny),
        redactor=redactor,
        folder=state_folder(environment) / "mcp",
        say=log.say,
    )
    exchanger = Exchanger(router, transport, config.limits, crew.seal_keys, memory, redactor=redactor, offers=offers)
    app = App(
        exchanger,
        gate,
        Catalogue(router),
        config.limits,
        log=log.add,
        resources=Resources(memory, config.limits),
        counter=Counter(exchanger, transport),
        recorder=recorder_of(config, found.values(), environment, log.say),
        scoreboard=crew.scoreboard,
        worker=worker,
    )
    return Gateway(app, config, router, log, offers, embedded, store.trouble)


def make_crew(config: Config, environment: Mapping[str, str], workers: int = 1) -> Crew:
    return Crew(Scoreboard(workers, config.limits.exchanges), seal_keys(config.server, environment))


def greeting(gateway: Gateway) -> str:
    """What was found, where it listens, and one line for each client."""
    server = gateway.config.server
    host = server.host if is_loopback(server.host) else socket.gethostname()
    root = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
    key = "$TOOLWIRE_KEY" if server.keys else "none"
    lines = [f"toolwire listens on {root}"]
    if gateway.trouble is not None:
        lines.append(f"state is unavailable, and what needs none is served: {gateway.trouble} (see toolwire doctor)")
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


def run(config: Config, catch_all: str | None, workers: int, say: Callable[[str], None]) -> int:
    """Serve until a signal ends it. Return the exit code."""
    if workers > 1:
        require_file(config.state, os.environ)
    limits, lowered = fit(config.limits, raise_limit())
    config = replace(config, limits=limits)
    listener = listening(config.server.host, config.server.port)
    config = with_server(config, None, listener.getsockname()[1])
    providers = asyncio.run(with_tags(configured(config)))
    crew = make_crew(config, os.environ, workers)
    gateway = build(config, catch_all, providers=providers, crew=crew)
    say(greeting(gateway))
    if lowered is not None:
        gateway.log.say(lowered)
    if workers == 1:
        uvloop.run(serve(gateway, listener))
        return 0

    def work(number: int, parent: int) -> None:
        mine = build(config, catch_all, providers=providers, crew=crew, worker=number)
        uvloop.run(serve(mine, listener, parent))

    return Supervisor(work, workers, close=listener.close, say=gateway.log.say).run()


class _Server(uvicorn.Server):
    """Stops on a signal and returns, where uvicorn's would raise the signal again after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _end_orphan(server: _Server, parent: int) -> None:
    asyncio.get_running_loop().remove_reader(parent)
    server.handle_exit(signal.SIGTERM, None)


def spare_the_collector() -> None:
    """What is there at the start stays, and a request leaves no cycles: both need not be looked for all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 5)


async def serve(gateway: Gateway, listener: socket.socket, parent: int | None = None) -> None:
    """Serve until a signal says stop; streams that are under way are finished first.

    `parent` is a descriptor at whose end the supervisor of this worker is gone: then the worker ends, too.
    """
    async with simulating(gateway.simulator, gateway.config.simulator), contextlib.AsyncExitStack() as closing:
        closing.callback(gateway.log.flush)
        closing.push_async_callback(gateway.offers.close)
        closing.callback(gateway.app.close)
        spare_the_collector()
        server = _Server(uvicorn.Config(gateway.app, **options(gateway.config.limits)))
        if parent is not None:
            asyncio.get_running_loop().add_reader(parent, _end_orphan, server, parent)
        await server.serve(sockets=[listener])
