"""Requests to the console of a gateway in the test's event loop."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from tests.support.deadlines import wait_until_async
from tests.support.gateway.in_process import NO_TIMEOUT, RunningGateway, run_gateway, run_gateway_with
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.upstream.transport import UpstreamResponse, request_head

__all__ = ["ConsoleClient", "Reply", "open_console", "run_gateway"]


class Reply(Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleClient(Struct):
    gateway: RunningGateway
    headers: dict[str, str] = {}

    @property
    def buffer(self) -> ExchangeBuffer:
        console = self.gateway.gateway.app.console
        assert console is not None
        return console.buffer

    async def open(self, method: str, path: str, body: Any = None, **headers: str) -> UpstreamResponse:
        pairs = [*self.headers.items(), *((name.replace("_", "-"), value) for name, value in headers.items())]
        data = None if body is None else json.dumps(body).encode()
        head = request_head(self.gateway.origin, path, pairs, method)
        return await self.gateway.transport.send(self.gateway.origin, head, data, read_timeout=NO_TIMEOUT)

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        response = await self.open(method, path, body, **headers)
        return Reply(response.status, response.headers, await response.read(10_000_000))

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.send("GET", f"/console/api/{path}", **headers)

    async def act(self, path: str, body: Any, **headers: str) -> Reply:
        token = (await self.get("session")).json.get("token", "")
        return await self.send("POST", f"/console/api/{path}", body, **{"toolwire_console_token": token} | headers)

    @asynccontextmanager
    async def feed(self, **headers: str) -> AsyncIterator["FeedReader"]:
        response = await self.open("GET", "/console/api/feed", **headers)
        assert response.status == 200
        try:
            yield FeedReader(response.chunks())
        finally:
            response.close()


class FeedReader:
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._text = b""
        self.last_id = ""

    async def batch(self) -> Any:
        """Return the next batch."""
        while True:
            frame, separator, rest = self._text.partition(b"\n\n")
            if separator:
                self._text = rest
                fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
                if b"data" in fields:
                    self.last_id = fields[b"id"].decode()
                    return json.loads(fields[b"data"])
                continue
            self._text += await anext(self._chunks)

    async def rows(self, count: int) -> list[Any]:
        """Return the rows of batches until there are this many."""
        rows: dict[str, Any] = {}
        while len(rows) < count:
            rows |= {row["id"]: row for row in (await self.batch())["rows"] if not row.get("is_open")}
        return list(rows.values())


@asynccontextmanager
async def open_console(config: str = "", upstream: ScriptedUpstream | None = None) -> AsyncIterator[ConsoleClient]:
    """Run a gateway with a scripted Chat upstream, and yield a client of its console."""
    async with run_gateway_with(upstream or ScriptedUpstream(CHAT_RESPONSE), extra_config=config) as gateway:
        yield ConsoleClient(gateway)


async def settled(buffer: ExchangeBuffer, count: int) -> None:
    """Wait until the buffer has this many exchanges, which are added after the response."""
    await wait_until_async(lambda: len(buffer) >= count)
