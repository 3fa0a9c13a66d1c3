"""toolwire as an MCP server, of both versions: its tools, each call through one gate.

Whatever is called goes through `Carry`, which validates, asks the policy, runs and bounds: there is no other way to a
tool. A person whom the policy or a tool wants to ask is asked through the client, if it said that it can do that;
otherwise there is nobody, and what would be asked is denied.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from toolwire.runtime.approval import Nobody, Person
from toolwire.runtime.policy import INPUT
from toolwire.runtime.toolset import Arguments, Output, Tool

from . import content
from .eliciting import Eliciting, Form
from .identity import NAME, VERSION
from .suspended import Calls, Suspended

Context = ServerRequestContext[Any, Any]
_TTL = 60_000
_LISTENERS = 100
_PROGRESSED = 1000
_PROGRESS = re.compile(r"(?P<done>\d+(?:\.\d+)?)(?:/(?P<total>\d+(?:\.\d+)?))?(?:\s+(?P<message>.*))?", re.DOTALL)


class Carry(Protocol):
    """Carries out a call of a tool that was offered: validated, authorised, bounded. It raises nothing that is the
    caller's own fault or the tool's: that is an `Output` with `is_error`."""

    async def __call__(
        self, name: str, arguments: Arguments, /, *, person: Person, progress: Callable[[str], None]
    ) -> Output: ...


class _Server(Server[Any]):
    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The older version is told here, and nowhere else, that change notices come."""
        notices = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(notices, experimental_capabilities, extensions)


class Served:
    """`offered` gives the tools of the moment; `changed` tells clients that they are others."""

    def __init__(self, offered: Callable[[], Awaitable[Sequence[Tool]]], carry: Carry) -> None:
        self._offered = offered
        self._carry = carry
        self._calls = Calls()
        self._listeners: dict[ServerSession, None] = {}
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] = _Server(
            NAME,
            version=VERSION,
            cache_hints={"tools/list": CacheHint(ttl_ms=_TTL, scope="private")},
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def changed(self) -> None:
        await self.bus.publish(ToolsListChanged())
        # Each of them lists again, and is known again.
        told, self._listeners = self._listeners, {}
        for session in told:
            with contextlib.suppress(Exception):
                await session.send_tool_list_changed()

    def close(self) -> None:
        self._calls.close()

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._listeners[context.session] = None
            while len(self._listeners) > _LISTENERS:
                self._listeners.pop(next(iter(self._listeners)))
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return types.ListToolsResult(tools=[_encode_tool(tool, modern=modern) for tool in await self._offered()])

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = next((one for one in await self._offered() if one.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}")
        given: Arguments = params.arguments or {}
        if tool.grammar is not None:
            given = given.get(INPUT, "")
        capabilities = context.session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:

            async def start(call: Suspended) -> types.CallToolResult:
                person: Person = Eliciting(call.ask) if asks else Nobody()
                async with _telling(lambda: call.session) as progress:
                    output = await self._carry(tool.name, given, person=person, progress=progress)
                return content.encode(output)

            return await self._calls.turn(context, params, start)
        person: Person = Eliciting(_form(context)) if asks else Nobody()
        async with _telling(lambda: context.session) as progress:
            output = await self._carry(tool.name, given, person=person, progress=progress)
        # The older version has structured content only as an object.
        return content.encode(output if isinstance(output.structured, dict) else replace(output, structured=None))


def _form(context: Context) -> Form:
    async def form(key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        return await context.session.elicit_form(params.message, params.requested_schema, context.request_id)

    return form


@contextlib.asynccontextmanager
async def _telling(session: Callable[[], ServerSession]) -> AsyncGenerator[Callable[[str], None]]:
    """Progress, told in the order it came, and all of it before the result is."""
    queue: asyncio.Queue[str | None] = asyncio.Queue(_PROGRESSED)

    def progress(text: str) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait(text)

    async def tell() -> None:
        last = -1.0
        while (text := await queue.get()) is not None:
            said = _PROGRESS.fullmatch(text)
            done = last + 1 if said is None else float(said["done"])
            if done <= last:
                continue
            last = done
            total = None if said is None or said["total"] is None else float(said["total"])
            with contextlib.suppress(Exception):
                await session().report_progress(done, total, text if said is None else said["message"])

    task = asyncio.create_task(tell())
    try:
        yield progress
    except BaseException:
        task.cancel()
        raise
    await queue.put(None)
    await task


def _encode_tool(tool: Tool, *, modern: bool) -> types.Tool:
    says = tool.annotations
    schema = tool.output_schema
    text = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
    return types.Tool(
        name=tool.name,
        description=tool.description or None,
        input_schema=tool.parameters if tool.grammar is None else text,
        # The older version has objects only.
        output_schema=schema if modern or (schema is not None and schema.get("type") == "object") else None,
        annotations=types.ToolAnnotations(
            read_only_hint=says.read_only,
            destructive_hint=says.destructive,
            idempotent_hint=says.idempotent,
            open_world_hint=says.open_world,
        ),
    )


async def serve_stdio(served: Served) -> None:
    async with stdio_server() as (received, sent):
        await served.server.run(received, sent, served.server.create_initialization_options())


Refuse: TypeAlias = Callable[[dict[bytes, bytes], bytes], int | None]
"""The status that a request is turned away with, by its headers and its query; None lets it in."""


def http_app(served: Served, refuse: Refuse) -> ASGIApp:
    """Who may come in, by host, origin and key, is `refuse`'s to say, and nobody else's."""
    inner = served.server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.lower(): value for name, value in scope["headers"]}
            if (status := refuse(headers, scope["query_string"])) is not None:
                challenge = [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send({"type": "http.response.start", "status": status, "headers": challenge})
                await send({"type": "http.response.body", "body": b""})
                return
        await inner(scope, receive, send)

    return app
