"""toolwire as an MCP server on loopback, with the messages it received."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from msgspec import Struct, field

from toolwire.canonical.content import Text
from toolwire.gateway.server.auth import Authenticator
from toolwire.runtime.mcp.server import ToolServer, http_app
from toolwire.runtime.mcp.tool_runner import ToolRunner
from toolwire.runtime.policy import Policy
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolOutput, ToolSource
from toolwire.runtime.toolbox import Toolbox


class ReceivedMessage(Struct):
    method: str
    headers: dict[str, str]
    body: Any


class RunningToolServer(Struct):
    url: str
    server: ToolServer
    messages: list[ReceivedMessage] = field(default_factory=list)

    def messages_with(self, method: str) -> list[ReceivedMessage]:
        return [
            message
            for message in self.messages
            if isinstance(message.body, dict) and message.body.get("method") == method
        ]


def build_tool_server(tools: Sequence[ToolSource], policy: Policy | None = None) -> ToolServer:
    toolbox = Toolbox(tools)

    async def list_tools() -> Sequence[Tool]:
        return list((await toolbox.catalog()).tools.values())

    return ToolServer(list_tools, ToolRunner(toolbox, policy or Policy(allow=["*"])))


@asynccontextmanager
async def serve_tools(tool_server: ToolServer, keys: Sequence[str] = ()) -> AsyncIterator[RunningToolServer]:
    gate = Authenticator(keys)

    def refuse(headers: dict[bytes, bytes], query: bytes) -> int | None:
        if gate.rejection_reason(headers) is not None:
            return 403
        return 401 if gate.authenticate(headers, b"") is None else None

    running = RunningToolServer("", tool_server)
    app = http_app(tool_server, refuse)

    async def recording_app(scope: Any, receive: Callable[[], Any], send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        parts: list[bytes] = []

        async def recorded_receive() -> Any:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body", False) and message["type"] == "http.request":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                text = b"".join(parts)
                running.messages.append(ReceivedMessage(scope["method"], headers, json.loads(text) if text else None))
            return message

        await app(scope, recorded_receive, send)

    config = uvicorn.Config(recording_app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    running.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    try:
        yield running
    finally:
        tool_server.close()
        server.should_exit = True
        await task


NUMBERS_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
executed_tools: list[str] = []


async def run_add(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    executed_tools.append("add")
    calling.report_progress("1/2 half")
    calling.report_progress("2/2")
    total = arguments["a"] + arguments["b"]
    return ToolOutput(content=(Text(text=str(total)),), structured={"sum": total})


ADD_TOOL = Tool(
    name="add",
    run=run_add,
    description="Adds",
    parameters=NUMBERS_SCHEMA,
    output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
    annotations=Annotations(read_only=True),
)
