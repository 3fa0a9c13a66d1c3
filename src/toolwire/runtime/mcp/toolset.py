"""MCP servers as toolsets.

1. A tool failure that the server reports (`isError`) is an output for the model. A failure of the connection or the
   protocol is a `ToolError` of another kind.
2. Annotations of a server are untrusted hints: they are passed on, but the policy ignores them.
3. A server that fails has no tools. Each failure is reported once, and the connection is retried later.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import mcp_types as types
import msgspec
from mcp import MCPError
from pydantic import ValidationError

from toolwire.canonical.content import Media
from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.calls.validation import nesting_depth, validation_cost
from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.client_call import OutputSchema, ServerTool
from toolwire.runtime.mcp.config import McpServerConfig, McpToolNames
from toolwire.runtime.mcp.connection import ServerConnection, ServerUnavailable, describe_error
from toolwire.runtime.mcp.oauth import BrowserLauncher
from toolwire.runtime.mcp.resources import Resource, list_resources, read_resource, resource_tools
from toolwire.runtime.mcp.sampling import ModelOpener
from toolwire.runtime.mcp.server_requests import TASKS_EXTENSION, ActiveCall, ServerRequests
from toolwire.runtime.mcp.session import Session
from toolwire.runtime.portal import has_running_loop, run_sync
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput

_DEFAULT_TTL = 300.0
"""Seconds until tools are listed again, for protocol versions without `ttlMs`."""

_MAX_WARNINGS = 100

_RELIST_DELAY = 30.0

ServerState = Literal["off", "up", "down"]
_Result = TypeVar("_Result")


class McpToolset:
    """The tools of one MCP server.

    `tool_names` is shared between servers, so that names are unique. OAuth tokens are stored in `token_folder`;
    `open_browser` lets the user sign in. `open_model` opens the model that `sampling.model` names.
    """

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        *,
        tool_names: McpToolNames | None = None,
        token_folder: Path | None = None,
        open_browser: BrowserLauncher | None = None,
        open_model: ModelOpener | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self.tool_names = tool_names or McpToolNames()
        self._warnings: list[str] = []
        self._last_failure = ""
        self._requests = ServerRequests(name, config, open_model=open_model, warn=self._warn)
        self._connection = ServerConnection(
            name,
            config,
            requests=self._requests,
            on_change=self._mark_stale,
            token_folder=token_folder,
            open_browser=open_browser,
        )
        self._tools: tuple[Tool, ...] = ()
        self._fresh_until = 0.0
        self._change_count = 0
        self._list_lock = asyncio.Lock()

    @property
    def state(self) -> ServerState:
        """Connection state: `off` if disabled, else `up` or `down`."""
        if not self.config.enabled:
            return "off"
        return "up" if self._connection.is_alive else "down"

    @property
    def error(self) -> str:
        """The last error; empty while the server is up."""
        return "" if self.state == "up" else self._connection.error

    async def protocol_version(self) -> str:
        """Return the negotiated protocol version, connecting if needed."""
        return (await self._connection.session()).version

    async def open(self) -> None:
        """Connect to the server and list its tools; a failure becomes a warning."""
        await self.tools()

    async def close(self) -> None:
        """Close the connection to the server."""
        await self._connection.close()
        await self._requests.close()

    async def list_resources(self) -> list[Resource]:
        """List the server's resources and URI templates."""
        return await self._request(list_resources)

    async def read_resource(self, uri: str) -> tuple[Media, ...]:
        """Read a resource of the server, as parts for a prompt."""
        return await self._request(lambda session: read_resource(session, uri, self._requests))

    def resource(self, uri: str) -> tuple[Media, ...]:
        """Read a resource from synchronous code, as parts for a prompt."""
        if has_running_loop():
            raise ToolwireError("an event loop is running: use `await toolset.read_resource(uri)`")
        return run_sync(self.read_resource(uri))

    async def _request(self, send: Callable[[Session], Awaitable[_Result]]) -> _Result:
        """Send a request outside a run, and convert its failures to `ToolwireError`."""
        try:
            return await self._with_resend(send)
        except (MCPError, ValidationError, ToolError) as error:
            raise ToolwireError(f"MCP server {self.name!r}: {describe_error(error)}") from None

    async def tools(self) -> Sequence[Tool]:
        """Return the server's tools, listed again when the list has expired; none while the server fails."""
        if not self.config.enabled:
            return ()
        async with self._list_lock:
            if self._connection.is_alive and time.monotonic() < self._fresh_until:
                return self._tools
            if self._connection.is_failing:
                self._connection.reconnect_in_background()
                self._report_failure(self._unavailable_message(self._connection.error))
                return ()
            try:
                self._tools = await self._with_resend(self._list_tools)
            except ServerUnavailable as error:
                self._report_failure(self._unavailable_message(str(error)))
                return ()
            except (MCPError, ValidationError, TimeoutError) as error:
                self._report_failure(f"MCP server {self.name!r}: listing its tools failed: {describe_error(error)}")
                self._tools, self._fresh_until = (), time.monotonic() + _RELIST_DELAY
                return ()
            self._last_failure = ""
            return self._tools

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call and clear them."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def _unavailable_message(self, error: str) -> str:
        """Build the warning for a server that could not be started or reached."""
        problem = "failed to start" if self.config.command is not None else "is unavailable"
        return f"MCP server {self.name!r} {problem}: {error}"

    def _warn(self, text: str) -> None:
        """Add a warning, unless there are too many."""
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(text)

    def _report_failure(self, text: str) -> None:
        """Warn about a failure, unless it is the same as the last one."""
        # The retry delay in the text changes, so it is not compared.
        if (failure := text.partition(" (retrying in")[0]) != self._last_failure:
            self._last_failure = failure
            self._warn(text)

    def _mark_stale(self) -> None:
        """Note that the server's tools changed, so that they are listed again."""
        self._fresh_until = 0.0
        self._change_count += 1
        self.on_change()

    def _can_resend(self, session: Session, error: Exception) -> bool:
        """Return True if the request can be sent again: the server lost the session and did not process it."""
        session_lost = self._connection.is_session_lost(session)
        if session_lost or (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
            self._connection.mark_broken(describe_error(error))
        return session_lost

    async def _with_resend(self, send: Callable[[Session], Awaitable[_Result]]) -> _Result:
        """Send a request and return its result; send it once more on a new connection if the session was lost."""
        session = await self._connection.session()
        try:
            return await send(session)
        except MCPError as error:
            if not self._can_resend(session, error):
                raise
        return await send(await self._connection.session())

    async def _list_tools(self, session: Session) -> tuple[Tool, ...]:
        """List all pages of the server's tools, and skip unusable tools with a warning."""
        listed, seen_cursors, cursor, ttls = list[types.Tool](), set[str](), None, list[float]()
        deadline, change_count = time.monotonic() + self.config.connect_timeout, self._change_count
        for _ in range(limits.MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            async with asyncio.timeout(deadline - time.monotonic()):
                page = await session.list_tools(params=params)
            listed += page.tools
            ttls.append((page.ttl_ms or 0) / 1000)
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors or len(listed) > limits.MAX_TOOLS:
                break
            seen_cursors.add(cursor)
        if cursor is not None:
            self._warn(f"MCP server {self.name!r} lists too many tools: using at most {limits.MAX_TOOLS}")
        # A list that changed while it was being read may be incomplete: it expires at once.
        ttl = 0 if change_count != self._change_count else min(ttls) if session.is_modern else _DEFAULT_TTL
        self._fresh_until = time.monotonic() + ttl
        return self._build_tools(listed[: limits.MAX_TOOLS], session)

    def _build_tools(self, listed: Sequence[types.Tool], session: Session) -> tuple[Tool, ...]:
        """Build the configured tools, and warn about those that are unusable."""
        tools: dict[str, Tool] = {}
        for tool in listed:
            if not self.config.offers_tool(tool.name):
                continue
            rejection = "duplicate tool name" if tool.name in tools else _rejection_reason(tool)
            if rejection is not None:
                self._warn(f"MCP server {self.name!r}: skipped tool {tool.name[:100]!r}: {rejection}")
                continue
            tools[tool.name] = self._build_tool(tool, session)
        return (*tools.values(), *self._resource_tools(tools, session))

    def _resource_tools(self, tools: Mapping[str, Tool], session: Session) -> Iterator[Tool]:
        """Yield the tools for resources, if they are configured and the server has resources."""
        capabilities = session.server_capabilities
        if not self.config.resources or capabilities is None or capabilities.resources is None:
            return
        taken = {tool.name for tool in tools.values()}
        named = partial(self.tool_names.name_for, self.name)
        for tool in resource_tools(self.name, self._during_call, self._requests, named):
            if tool.name in taken:
                self._warn(f"MCP server {self.name!r}: skipped {tool.name}: the server has a tool of that name")
            else:
                yield tool

    def _build_tool(self, listed: types.Tool, session: Session) -> Tool:
        """Build a tool that calls the server."""
        hints = listed.annotations or types.ToolAnnotations()
        read_only = bool(hints.read_only_hint)
        repeatable = read_only or bool(hints.idempotent_hint)
        output_schema = OutputSchema(listed.output_schema)
        may_be_task = _may_be_task(listed, session)
        server_tool = ServerTool(listed, self._requests, self.config.task_timeout)

        async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
            """Call the server's tool with this name."""

            async def call_tool(session: Session, call: ActiveCall) -> ToolOutput:
                """Call the tool, and check its output."""
                return output_schema.checked_output(await server_tool.call(session, arguments, call), self.name)

            output: ToolOutput = await self._during_call(context, call_tool)
            return output

        return Tool(
            name=self.tool_names.name_for(self.name, listed.name),
            run=run,
            description=limits.sanitize_text(listed.description or listed.title or "", limits.MAX_DESCRIPTION_LENGTH),
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
            stoppable=False,
            # The specification's defaults for missing hints are the unsafe values.
            annotations=Annotations(
                read_only=read_only,
                destructive=not read_only and hints.destructive_hint is not False,
                idempotent=bool(hints.idempotent_hint),
                open_world=hints.open_world_hint is not False,
            ),
            locus="mcp",
            source=self.name,
            timeout=max(self.config.timeout, self.config.task_timeout) if may_be_task else self.config.timeout,
            retries=2 if repeatable else 0,
            resources=lambda _: frozenset() if read_only else frozenset({f"mcp:{self.name}"}),
        )

    async def _during_call(
        self, context: ToolContext, send: Callable[[Session, ActiveCall], Awaitable[_Result]]
    ) -> _Result:
        """Send requests of a call, and convert their failures to `ToolError`."""
        with self._requests.during(context) as call:
            try:
                return await self._with_resend(lambda session: send(session, call))
            except ServerUnavailable as error:
                raise ToolError(f"MCP server {self.name!r} is unavailable: {error}", "unavailable") from None
            except MCPError as error:
                raise _tool_error(self.name, error) from None
            except ValidationError as error:
                count = error.error_count()
                raise ToolError(
                    f"MCP server {self.name!r} sent an invalid response ({count} validation errors)", "protocol"
                ) from None


def _may_be_task(listed: types.Tool, session: Session) -> bool:
    """Return True if the server may run a call of the tool as a task."""
    if not session.is_modern:
        return listed.execution is not None and listed.execution.task_support == "required"
    capabilities = session.server_capabilities
    return capabilities is not None and TASKS_EXTENSION in (capabilities.extensions or {})


_IN_DOUBT = "The call may have taken effect. Check its effect before repeating it."


def _tool_error(server: str, error: MCPError) -> ToolError:
    """Convert an error of the connection or the protocol to a message for the model."""
    if error.code == types.CONNECTION_CLOSED:
        return ToolError(
            f"MCP server {server!r} closed the connection: {describe_error(error)}. {_IN_DOUBT}", "unavailable"
        )
    if error.code == types.REQUEST_TIMEOUT:
        return ToolError(f"MCP server {server!r} timed out. {_IN_DOUBT}", "timeout")
    return ToolError(
        f"MCP server {server!r} rejected the call: {limits.sanitize_text(describe_error(error), 1000)}", "protocol"
    )


def _rejection_reason(tool: types.Tool) -> str | None:
    """Return why a server's tool is unusable; None if it is usable."""
    schemas: list[Any] = [tool.input_schema, *([] if tool.output_schema is None else [tool.output_schema])]
    if not 0 < len(tool.name) <= 256:
        return "its name is empty or too long"
    if len(msgspec.json.encode(schemas)) > limits.MAX_SCHEMA_BYTES:
        return f"its schemas are larger than {limits.MAX_SCHEMA_BYTES} bytes"
    if nesting_depth(schemas) > limits.MAX_SCHEMA_DEPTH:
        return f"its schemas are nested more than {limits.MAX_SCHEMA_DEPTH} levels deep"
    if max(validation_cost(schema)[0] for schema in schemas) > limits.MAX_SCHEMA_COST:
        return "its schemas are too large with references expanded"
    return None


def build_toolsets(
    servers: dict[str, McpServerConfig],
    *,
    reserved: Sequence[str] = (),
    token_folder: Path | None = None,
    open_browser: BrowserLauncher | None = None,
    open_model: ModelOpener | None = None,
) -> list[McpToolset]:
    """Build a toolset for each enabled server, with unique tool names.

    `reserved` names belong to other tools. `open_model` opens the models that servers may sample.
    """
    names = McpToolNames(reserved)
    return [
        McpToolset(
            name,
            server,
            tool_names=names,
            token_folder=token_folder,
            open_browser=open_browser,
            open_model=open_model,
        )
        for name, server in servers.items()
        if server.enabled
    ]
