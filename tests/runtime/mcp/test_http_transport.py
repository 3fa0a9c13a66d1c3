"""MCP over HTTP: unreachable servers, lost sessions and oversized responses."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from tests.support.deadlines import DEADLINE
from tests.support.mcp.tool_server import ADD_TOOL, build_tool_server, serve_tools
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    NEW_VERSION,
    OLD_VERSION,
    call_tool,
    open_toolset,
    server_at,
    text_of_output,
)
from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.tool import ToolError

both = pytest.mark.parametrize("version", MCP_VERSIONS)
HINTS = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}
Answer = Callable[[str, Any], tuple[int, str, bytes]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server of the newer version with given responses to calls."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = json.loads(body)
        found: dict[str, Any] = {
            "server/discover": {"supportedVersions": [NEW_VERSION], "capabilities": {"tools": {}}, **HINTS},
            "tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}], **HINTS},
        }
        if (result := found.get(asked["method"])) is not None:
            text = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
            status, kind = 200, "application/json"
        else:
            status, kind, text = answer(asked["method"], asked["id"])
        headers = [(b"content-type", kind.encode()), (b"location", b"http://127.0.0.1:9/elsewhere")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

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


def faulted(answer: Answer) -> ToolError:
    async def work() -> ToolError:
        async with answering(answer) as url, open_toolset(server_at(url, NEW_VERSION), "far") as toolset:
            with pytest.raises(ToolError) as error_info:
                await call_tool(toolset, "go")
            return error_info.value

    return asyncio.run(work())


def test_unreachable_url_is_reported() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def work() -> None:
        async with open_toolset(
            McpServerConfig(url=f"http://127.0.0.1:{port}/mcp?key=secret", connect_timeout=DEADLINE), "far"
        ) as toolset:
            assert await toolset.tools() == ()
            assert toolset.state == "down"
            problem = f"can't connect to http://127.0.0.1:{port}/"
            assert toolset.take_warnings()[0].startswith(f"MCP server 'far' is unavailable: {problem}")
            assert toolset.error == problem

    asyncio.run(work())


def test_overlong_response_is_aborted() -> None:
    def answer(method: str, id: Any) -> tuple[int, str, bytes]:
        held = {
            "content": [{"type": "text", "text": "x" * (limits.MAX_MESSAGE_BYTES + 1000)}],
            "resultType": "complete",
        }
        return 200, "application/json", json.dumps({"jsonrpc": "2.0", "id": id, "result": held}).encode()

    assert faulted(answer).kind == "unavailable"


def test_overlong_event_is_aborted() -> None:
    def answer(method: str, id: Any) -> tuple[int, str, bytes]:
        return 200, "text/event-stream", b"data: " + b"x" * (limits.MAX_MESSAGE_BYTES + 1000) + b"\n\n"

    assert faulted(answer).kind == "unavailable"


@pytest.mark.parametrize("status", [500, 403, 404])
def test_error_status_without_body_is_a_protocol_error(status: int) -> None:
    assert faulted(lambda method, id: (status, "text/html", b"<h1>no</h1>")).kind == "protocol"


def test_redirect_to_another_host_is_not_followed() -> None:
    error_info = faulted(lambda method, id: (307, "text/plain", b""))
    assert error_info.kind == "protocol"
    assert "not followed" in str(error_info)


def test_invalid_json_is_a_protocol_error() -> None:
    assert faulted(lambda method, id: (200, "application/json", b"{")).kind == "protocol"


def test_lost_session_is_reopened_and_the_call_resent() -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            open_toolset(server_at(offered.url, OLD_VERSION), "far") as toolset,
        ):
            assert text_of_output(await call_tool(toolset, "add", {"a": 1, "b": 2})) == "3"
            await _forget(offered.server.server.session_manager)
            sums = await asyncio.gather(*(call_tool(toolset, "add", {"a": n, "b": 2}) for n in range(5)))
            assert [text_of_output(one) for one in sums] == ["2", "3", "4", "5", "6"]
            assert len(offered.messages_with("initialize")) == 2

    asyncio.run(work())


async def _forget(manager: Any) -> None:
    for transport in list(manager._server_instances.values()):
        await transport.terminate()
    manager._server_instances.clear()


@both
def test_calls_run_concurrently_over_one_connection(version: str) -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            open_toolset(server_at(offered.url, version), "far") as toolset,
        ):
            await toolset.tools()
            sums = await asyncio.gather(*(call_tool(toolset, "add", {"a": n, "b": n}) for n in range(30)))
            assert [text_of_output(one) for one in sums] == [str(2 * n) for n in range(30)]

    asyncio.run(work())


@asynccontextmanager
async def hanging_up(methods: list[str], hang_up_on: str) -> AsyncIterator[str]:
    """A server that closes the connection instead of its first response to a method, as if it had been idle."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                message = json.loads(await reader.readexactly(int(head.split("content-length: ")[1].split("\r")[0])))
                methods.append(message["method"])
                if methods.count(hang_up_on) == 1 and methods[-1] == hang_up_on:
                    break
                result: Any = {"supportedVersions": [NEW_VERSION], "capabilities": {"tools": {}}, **HINTS}
                if methods[-1] == "tools/list":
                    result = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}], **HINTS}
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(f"content-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def test_request_without_effect_is_sent_again_if_an_idle_connection_was_closed() -> None:
    async def work() -> None:
        methods: list[str] = []
        async with (
            hanging_up(methods, "server/discover") as url,
            open_toolset(server_at(url, NEW_VERSION), "me") as toolset,
        ):
            assert [tool.name for tool in await toolset.tools()] == ["me__go"]
        assert methods == ["server/discover", "server/discover", "tools/list"]

    asyncio.run(work())


def test_call_is_not_sent_again() -> None:
    async def work() -> None:
        methods: list[str] = []
        async with (
            hanging_up(methods, "tools/call") as url,
            open_toolset(server_at(url, NEW_VERSION), "me") as toolset,
        ):
            with pytest.raises(ToolError):
                await call_tool(toolset, "go")
        assert methods == ["server/discover", "tools/list", "tools/call"]

    asyncio.run(work())
