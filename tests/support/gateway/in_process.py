"""A gateway on loopback in the test's event loop, and a request for every protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

import toolwire as tw
from tests.support.servers.asgi import QuickServer
from tests.support.servers.upstream import ScriptedUpstream, StalledUpstream, serve_upstream
from toolwire.gateway.config import Config, StateSection, parse_config
from toolwire.gateway.observability.access_log import SilentLog
from toolwire.gateway.providers.discovery import open_listener
from toolwire.gateway.server.app import App
from toolwire.gateway.server.gateway import Gateway, build_gateway
from toolwire.gateway.server.http import uvicorn_options
from toolwire.journal.records import Record
from toolwire.journal.store import open_existing_store
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport, UpstreamResponse, request_head

# The client never times out first: the timeouts under test are the gateway's. `tests/support/watchdog.py` ends
# a test that hangs.
NO_TIMEOUT = 1e9
QUESTION_FIELDS: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
}


class RunningGateway(Struct):
    gateway: Gateway
    origin: Origin
    transport: Transport

    @property
    def root(self) -> str:
        return f"http://{self.origin.authority}"

    async def post(self, path: str, body: bytes, **headers: str) -> UpstreamResponse:
        return await self.transport.send(self.origin, self._head(path, headers, "POST"), body, read_timeout=NO_TIMEOUT)

    async def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        answer = await self.transport.send(self.origin, self._head(path, headers, "GET"), None, read_timeout=NO_TIMEOUT)
        return answer.status, await answer.read(1_000_000)

    def _head(self, path: str, headers: dict[str, str], method: str) -> bytes:
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return request_head(self.origin, path, pairs, method)

    async def send_question(self, protocol: str, *, stream: bool = False, **headers: str) -> UpstreamResponse:
        path, body = question_request(protocol, stream=stream)
        return await self.post(path, body, **headers)


def question_request(
    protocol: str, *, stream: bool = False, model: str = "m", text: str = "What is the weather in Paris?"
) -> tuple[str, bytes]:
    """Return path and body of the same question in any protocol."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"stream": False}
    chat_body = QUESTION_FIELDS | {"model": model, "messages": [{"role": "user", "content": text}]} | options
    translation = tw.translate(chat_body, "openai-chat", protocol, model=model, stream=stream)
    assert translation.route.path is not None
    return translation.route.path, translation.to_bytes()


def with_memory_state(config: Config) -> Config:
    """Keep state in memory unless the configuration names a file."""
    return (
        config
        if config.state.path is not None or config.state.url is not None
        else replace(config, state=StateSection(path=":memory:"))
    )


def build_silent_app(config: Config | str, providers: dict[str, Provider] | None = None) -> App:
    """Build a gateway for a server in another thread, whose log lines would appear in any test."""
    parsed = parse_config(config, {}) if isinstance(config, str) else config
    return build_gateway(with_memory_state(parsed), None, {"HOME": "/nonexistent"}, providers, log=SilentLog()).app


@asynccontextmanager
async def run_gateway(
    config: str, catch_all: str | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[RunningGateway]:
    listener = open_listener("127.0.0.1", 0)
    gateway = build_gateway(
        with_memory_state(parse_config(config, {})), catch_all, {"HOME": "/nonexistent"} | dict(environment or {})
    )
    server = QuickServer(uvicorn.Config(gateway.app, **uvicorn_options(gateway.config.limits)))
    serving = asyncio.create_task(server._serve([listener]))
    transport = Transport()
    try:
        yield RunningGateway(gateway, Origin("http", "127.0.0.1", listener.getsockname()[1]), transport)
    finally:
        transport.close()
        server.should_exit = server.force_exit = True
        await serving
        gateway.app.close()


def one_provider_config(
    origin: Origin, protocol: str = "openai-chat", extra_config: str = "", timeout: float = 120
) -> str:
    """Return a configuration with one upstream."""
    return f"""
{extra_config}
[providers.up]
protocol = "{protocol}"
base_url = "http://{origin.authority}"
api_key = "upstream-secret-key"
timeout = {timeout}
[[routes]]
provider = "up"
"""


def run_async(work: Awaitable[None]) -> None:
    async def run_work() -> None:
        await work

    asyncio.run(run_work())


PROTOCOL_NAMES = list(PROTOCOLS)


@asynccontextmanager
async def run_gateway_with(
    *upstreams: ScriptedUpstream, extra_config: str = "", route_options: str = ""
) -> AsyncIterator[RunningGateway]:
    """Run a gateway with these upstreams, each the fallback of the one before."""
    origins: list[Origin] = []
    async with _serve_all(list(upstreams), origins):
        providers = "\n".join(
            f'[providers.p{number}]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
            f'api_key = "secret-of-p{number}"'
            for number, origin in enumerate(origins)
        )
        names = ", ".join(f'"p{number}"' for number in range(len(origins)))
        async with run_gateway(
            f"{extra_config}\n{providers}\n[[routes]]\nproviders = [{names}]\n{route_options}"
        ) as gateway:
            yield gateway


@asynccontextmanager
async def _serve_all(upstreams: list[ScriptedUpstream], origins: list[Origin]) -> AsyncIterator[None]:
    if not upstreams:
        yield
        return
    async with serve_upstream(upstreams[0]) as origin:
        origins.append(origin)
        async with _serve_all(upstreams[1:], origins):
            yield


# ---- losses


LOSSY_REQUEST = {
    "model": "m",
    "max_tokens": 100,
    "top_k": 4,
    "container": "c_1",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "citations": None, "wählt": "ü"}]}],
}
SERVER_KEY_CONFIG = '[server]\nkeys = ["the-server-key-1"]'


@asynccontextmanager
async def run_stalled_gateway(stalled_upstream: StalledUpstream, extra_config: str) -> AsyncIterator[RunningGateway]:
    async with (
        serve_upstream(stalled_upstream) as origin,
        run_gateway(one_provider_config(origin, extra_config=extra_config, timeout=600)) as gateway,
    ):
        try:
            yield gateway
        finally:
            stalled_upstream.released.set()


def journal_config(folder: Path, options: str = "bodies = true") -> str:
    return f'[journal]\nenabled = true\npath = "{folder}/journal.db"\n{options}\n'


def read_journal(folder: Path) -> list[Record]:
    store = open_existing_store(folder / "journal.db")
    try:
        return [record for _, record in store.latest(1000)]
    finally:
        store.close()
