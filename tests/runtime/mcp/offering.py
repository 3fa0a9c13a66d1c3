"""toolwire as an MCP server on loopback, and what it was sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from msgspec import Struct, field

from toolwire.gateway.auth import Gate
from toolwire.runtime.mcp.carrying import Carrying
from toolwire.runtime.mcp.serving import Served, http_app
from toolwire.runtime.policy import Policy
from toolwire.runtime.toolbox import Toolbox
from toolwire.runtime.toolset import Offered, Tool


class Sent(Struct):
    method: str
    headers: dict[str, str]
    body: Any


class Offering(Struct):
    url: str
    served: Served
    sent: list[Sent] = field(default_factory=list)

    def asked(self, method: str) -> list[Sent]:
        return [one for one in self.sent if isinstance(one.body, dict) and one.body.get("method") == method]


def made(tools: Sequence[Offered], policy: Policy | None = None) -> Served:
    toolbox = Toolbox(tools)

    async def offered() -> Sequence[Tool]:
        return list((await toolbox.catalog()).tools.values())

    return Served(offered, Carrying(toolbox, policy or Policy(allow=["*"])))


@asynccontextmanager
async def offering(served: Served, keys: Sequence[str] = ()) -> AsyncIterator[Offering]:
    gate = Gate(keys)

    def refuse(headers: dict[bytes, bytes], query: bytes) -> int | None:
        if gate.stranger(headers) is not None:
            return 403
        return 401 if gate.admit(headers, b"") is None else None

    given = Offering("", served)
    app = http_app(served, refuse)

    async def recording(scope: Any, receive: Callable[[], Any], send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        parts: list[bytes] = []

        async def heard() -> Any:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body", False) and message["type"] == "http.request":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                text = b"".join(parts)
                given.sent.append(Sent(scope["method"], headers, json.loads(text) if text else None))
            return message

        await app(scope, heard, send)

    config = uvicorn.Config(recording, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    given.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    try:
        yield given
    finally:
        served.close()
        server.should_exit = True
        await task
