"""Interrupted streams of MCP's Streamable HTTP resume by `Last-Event-ID`, and the call runs once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import uvicorn

from tests.support.mcp.toolsets import OLD_VERSION, call_tool, open_toolset, server_at, text_of_output
from toolwire.runtime.tool import ToolError

Cut = Literal["ended", "dropped"]


class Cutting:
    """A server of 2025-11-25 whose streams are cut before the result: `ended`, or the connection is `dropped`. After as
    many cuts as given, a stream that is resumed has the rest. Without `ids` nothing can be resumed."""

    def __init__(self, cut: Cut, cuts: int = 1, *, ids: bool = True) -> None:
        self._cut, self._cuts, self._ids = cut, cuts, ids
        self.calls = 0
        self.resumed: list[str] = []
        self._call: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "DELETE":
            await _answer(send, 200, "text/plain", b"")
            return
        if scope["method"] == "GET":
            if "last-event-id" not in headers:
                await _answer(send, 405, "text/plain", b"")
                return
            assert headers["mcp-session-id"] == "s1"
            self.resumed.append(headers["last-event-id"])
            await self._stream(send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = json.loads(body)
        match asked.get("method"):
            case "initialize":
                server = {"name": "cutting", "version": "1"}
                result = {"protocolVersion": OLD_VERSION, "capabilities": {"tools": {}}, "serverInfo": server}
                await _answer(send, 200, "application/json", _result(asked["id"], result), session=True)
            case "tools/list":
                listed = [{"name": "go", "inputSchema": {"type": "object"}}]
                await _answer(send, 200, "application/json", _result(asked["id"], {"tools": listed}))
            case "tools/call":
                self.calls += 1
                self._call = asked["id"]
                await self._stream(send)
            case _:
                await _answer(send, 202, "application/json", b"")

    async def _stream(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        number = len(self.resumed)
        if number < self._cuts:
            event = f"id: event-{number}\nretry: 1\ndata: \n\n" if self._ids else ": nothing yet\n\n"
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
            if self._cut == "dropped":
                raise ConnectionResetError("the test cuts the connection here")
            await send({"type": "http.response.body", "body": b""})
            return
        result = _result(self._call, {"content": [{"type": "text", "text": "done"}]})
        await send({"type": "http.response.body", "body": b"id: last\ndata: " + result + b"\n\n"})


def _result(id: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


async def _answer(send: Any, status: int, kind: str, body: bytes, *, session: bool = False) -> None:
    headers = [(b"content-type", kind.encode()), *([(b"mcp-session-id", b"s1")] if session else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(app: Cutting) -> AsyncIterator[str]:
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize(("cut", "cuts"), [("ended", 1), ("ended", 3), ("dropped", 1)])
def test_interrupted_stream_resumes_after_its_last_event(cut: Cut, cuts: int) -> None:
    async def work() -> None:
        app = Cutting(cut, cuts)
        async with serving(app) as url, open_toolset(server_at(url, OLD_VERSION), "far") as toolset:
            assert text_of_output(await call_tool(toolset, "go")) == "done"
        assert app.resumed == [f"event-{number}" for number in range(cuts)]
        assert app.calls == 1

    asyncio.run(work())


@pytest.mark.parametrize("cut", ["ended", "dropped"])
def test_stream_without_event_ids_is_neither_resumed_nor_repeated(cut: Cut) -> None:
    async def work() -> None:
        app = Cutting(cut, ids=False)
        async with serving(app) as url, open_toolset(server_at(url, OLD_VERSION), "far") as toolset:
            with pytest.raises(ToolError) as error_info:
                await call_tool(toolset, "go")
        assert (app.calls, app.resumed) == (1, [])
        assert "may have taken effect" in str(error_info.value)

    asyncio.run(work())
