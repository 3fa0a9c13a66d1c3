"""A gateway on loopback in the test's own event loop, and bodies to ask it in every protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

import toolwire as tw
from tests.upstream.serving import Server
from toolwire.gateway.config import Config, StateSection, parse_config
from toolwire.gateway.http import options
from toolwire.gateway.providing import listening
from toolwire.gateway.server import Gateway, build
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import Answer, Transport, head_of

# The client of a test never gives up first: what is tested is the gateway's patience. A test that hangs is ended by
# `faulthandler_timeout` in pyproject.toml.
NEVER = 1e9
QUESTION: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
}


class Running(Struct):
    gateway: Gateway
    origin: Origin
    transport: Transport

    @property
    def root(self) -> str:
        return f"http://{self.origin.authority}"

    async def post(self, path: str, body: bytes, **headers: str) -> Answer:
        return await self.transport.send(self.origin, self._head(path, headers, "POST"), body, silence=NEVER)

    async def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        answer = await self.transport.send(self.origin, self._head(path, headers, "GET"), None, silence=NEVER)
        return answer.status, await answer.read(1_000_000)

    def _head(self, path: str, headers: dict[str, str], method: str) -> bytes:
        given = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return head_of(self.origin, path, given, method)

    async def ask(self, protocol: str, *, stream: bool = False, **headers: str) -> Answer:
        path, body = question(protocol, stream=stream)
        return await self.post(path, body, **headers)


def question(
    protocol: str, *, stream: bool = False, model: str = "m", text: str = "What is the weather in Paris?"
) -> tuple[str, bytes]:
    """The same question in any protocol, and where it goes."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"stream": False}
    said = QUESTION | {"model": model, "messages": [{"role": "user", "content": text}]} | options
    asked = tw.translate(said, "openai-chat", protocol, model=model, stream=stream)
    assert asked.route.path is not None
    return asked.route.path, asked.to_bytes()


def forgetful(config: Config) -> Config:
    """It remembers nothing for longer than it runs, unless it says where."""
    return config if config.state.path is not None else replace(config, state=StateSection(path=":memory:"))


@asynccontextmanager
async def running(
    config: str, catch_all: str | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    listener = listening("127.0.0.1", 0)
    gateway = build(forgetful(parse_config(config, {})), catch_all, {"HOME": "/nonexistent"} | dict(environment or {}))
    server = Server(uvicorn.Config(gateway.app, **options(gateway.config.limits)))
    serving = asyncio.create_task(server._serve([listener]))
    transport = Transport()
    try:
        yield Running(gateway, Origin("http", "127.0.0.1", listener.getsockname()[1]), transport)
    finally:
        transport.close()
        server.should_exit = server.force_exit = True
        await serving
        gateway.app.close()


def in_front_of(origin: Origin, protocol: str = "openai-chat", more: str = "", timeout: float = 120) -> str:
    """A configuration with one upstream."""
    return f"""
{more}
[providers.up]
protocol = "{protocol}"
base_url = "http://{origin.authority}"
api_key = "upstream-secret-key"
timeout = {timeout}
[[routes]]
provider = "up"
"""


def run(work: Awaitable[None]) -> None:
    async def whole() -> None:
        await work

    asyncio.run(whole())


PROTOCOL_NAMES = list(PROTOCOLS)
