"""The tools of one MCP server, as any other tools: validated, authorised, bounded and journalled by whoever runs them.

1. What the server says went wrong with its tool (`isError`) is an output, for the model. What went wrong between us and
   the server (a JSON-RPC error, a broken line, an answer that is none) is a `ToolFault` of another kind.
2. What a server says of its tools are hints from outside: they are kept, and no rule believes them.
3. A server that fails offers nothing, is told of once each time, and is tried again later.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import mcp_types as types
import msgspec
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolwire.runtime.calls.validation import nesting_depth, validation_cost
from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.client_call import OutputSchema, call_tool
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.connection import ServerConnection, ServerUnavailable, describe_error
from toolwire.runtime.mcp.elicitation import elicit
from toolwire.runtime.mcp.oauth import BrowserLauncher
from toolwire.runtime.mcp.tool_names import McpToolNames
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput

_DEFAULT_TTL = 300.0
"""Seconds that a list of the older version counts, which has no word for it."""

_MAX_WARNINGS = 100

_RELIST_DELAY = 30.0

ServerState = Literal["off", "up", "down"]
_Result = TypeVar("_Result")


class McpToolset:
    """`names` is shared between servers, so that no two tools get one name; `folder` is where tokens are kept, and
    `browse` how a person is asked to sign in, if that can be."""

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        *,
        tool_names: McpToolNames | None = None,
        token_folder: Path | None = None,
        open_browser: BrowserLauncher | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self.tool_names = tool_names or McpToolNames()
        self._warnings: list[str] = []
        self._last_failure = ""
        self._connection = ServerConnection(
            name,
            config,
            elicit=self._elicit,
            on_change=self._mark_stale,
            token_folder=token_folder,
            open_browser=open_browser,
        )
        self._tools: tuple[Tool, ...] = ()
        self._fresh_until = 0.0
        self._change_count = 0
        self._list_lock = asyncio.Lock()
        self._active_contexts: list[ToolContext] = []
        self._question_count = 0

    @property
    def state(self) -> ServerState:
        if not self.config.enabled:
            return "off"
        return "up" if self._connection.is_alive else "down"

    @property
    def error(self) -> str:
        """What is wrong, if it is down."""
        return "" if self.state == "up" else self._connection.error

    async def protocol_version(self) -> str:
        """The version of the protocol that was negotiated."""
        return (await self._connection.client()).protocol_version

    async def open(self) -> None:
        await self.tools()

    async def close(self) -> None:
        await self._connection.close()

    async def tools(self) -> Sequence[Tool]:
        if not self.config.enabled:
            return ()
        async with self._list_lock:
            if self._connection.is_alive and time.monotonic() < self._fresh_until:
                return self._tools
            if self._connection.is_failing:
                self._connection.reconnect_in_background()
                self._report_failure(f"the MCP server {self.name} is not there: {self._connection.error}")
                return ()
            try:
                self._tools = await self._with_resend(self._list_tools)
            except ServerUnavailable as error:
                self._report_failure(f"the MCP server {self.name} is not there: {error}")
                return ()
            except (MCPError, ValidationError, TimeoutError) as error:
                self._report_failure(f"the MCP server {self.name} does not list its tools: {describe_error(error)}")
                self._tools, self._fresh_until = (), time.monotonic() + _RELIST_DELAY
                return ()
            self._last_failure = ""
            return self._tools

    def take_warnings(self) -> list[str]:
        """What went wrong since the last time."""
        said, self._warnings = self._warnings, []
        return said

    def _warn(self, text: str) -> None:
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(text)

    def _report_failure(self, text: str) -> None:
        # The wait that is part of it changes: the same failure is told once.
        if (failure := text.partition(" (tried again")[0]) != self._last_failure:
            self._last_failure = failure
            self._warn(text)

    def _mark_stale(self) -> None:
        self._fresh_until = 0.0
        self._change_count += 1
        self.on_change()

    def _can_resend(self, client: Client, error: Exception) -> bool:
        """Whether the same can be asked anew: the server has lost the session, and has not looked at it."""
        forgotten = self._connection.is_session_lost(client)
        if forgotten or (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
            self._connection.mark_broken(describe_error(error))
        return forgotten

    async def _with_resend(self, send: Callable[[Client], Awaitable[_Result]]) -> _Result:
        client = await self._connection.client()
        try:
            return await send(client)
        except MCPError as error:
            if not self._can_resend(client, error):
                raise
        return await send(await self._connection.client())

    async def _list_tools(self, client: Client) -> tuple[Tool, ...]:
        found, seen, cursor, lives = list[types.Tool](), set[str](), None, list[float]()
        until, changes = time.monotonic() + self.config.connect_timeout, self._change_count
        for _ in range(limits.MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            async with asyncio.timeout(until - time.monotonic()):
                page = await client.session.list_tools(params=params)
            found += page.tools
            lives.append((page.ttl_ms or 0) / 1000)
            cursor = page.next_cursor
            if cursor is None or cursor in seen or len(found) > limits.MAX_TOOLS:
                break
            seen.add(cursor)
        if cursor is not None:
            self._warn(f"the MCP server {self.name} has no end of tools: the first {limits.MAX_TOOLS} are used at most")
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        # What changed while it was being told may not be in it.
        lasts = 0 if changes != self._change_count else min(lives) if modern else _DEFAULT_TTL
        self._fresh_until = time.monotonic() + lasts
        made: dict[str, Tool] = {}
        for one in found[: limits.MAX_TOOLS]:
            if not self.config.offers_tool(one.name):
                continue
            if (wrong := "its name is there twice" if one.name in made else _rejection_reason(one)) is not None:
                self._warn(f"the tool {one.name[:100]!r} of the MCP server {self.name} is left out: {wrong}")
                continue
            made[one.name] = self._build_tool(one)
        return tuple(made.values())

    def _build_tool(self, listed: types.Tool) -> Tool:
        hints = listed.annotations or types.ToolAnnotations()
        reads = bool(hints.read_only_hint)
        again = reads or bool(hints.idempotent_hint)
        checked = OutputSchema(listed.output_schema)

        async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
            return await self._run_tool(listed.name, checked, arguments, calling)

        return Tool(
            name=self.tool_names.name_for(self.name, listed.name),
            run=run,
            description=limits.sanitize_text(listed.description or listed.title or "", limits.MAX_DESCRIPTION_LENGTH),
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
            stoppable=False,
            # What is not said is what the specification takes it for, which is the worse.
            annotations=Annotations(
                read_only=reads,
                destructive=not reads and hints.destructive_hint is not False,
                idempotent=bool(hints.idempotent_hint),
                open_world=hints.open_world_hint is not False,
            ),
            locus="mcp",
            source=self.name,
            timeout=self.config.timeout,
            retries=2 if again else 0,
            resources=lambda _: frozenset() if reads else frozenset({f"mcp:{self.name}"}),
        )

    async def _run_tool(
        self, tool: str, output_schema: OutputSchema, arguments: Arguments, context: ToolContext
    ) -> ToolOutput:
        self._active_contexts.append(context)
        try:
            result = await self._with_resend(lambda client: call_tool(client, self.name, tool, arguments, context))
            return output_schema.checked_output(result, self.name)
        except ServerUnavailable as error:
            raise ToolError(f"the MCP server {self.name} is not there: {error}", "unavailable") from None
        except MCPError as error:
            raise _tool_error(self.name, error) from None
        except ValidationError as error:
            why = f"{error.error_count()} places of its answer are not what the protocol has"
            raise ToolError(f"the MCP server {self.name} can't be understood: {why}", "protocol") from None
        finally:
            self._active_contexts.remove(context)
            if not self._active_contexts:
                self._question_count = 0

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The older version does not say which call a question belongs to: it is one of those that wait."""
        self._question_count += 1
        if not self._active_contexts or self._question_count > limits.MAX_INPUT_ROUNDS * len(self._active_contexts):
            return types.ElicitResult(action="decline")
        return await elicit(self._active_contexts[-1].approver, self.name, params)


_IN_DOUBT = "The call may have taken effect: find out before you repeat it."


def _tool_error(server: str, error: MCPError) -> ToolError:
    if error.code == types.CONNECTION_CLOSED:
        return ToolError(f"the MCP server {server} went away: {describe_error(error)}. {_IN_DOUBT}", "unavailable")
    if error.code == types.REQUEST_TIMEOUT:
        return ToolError(f"the MCP server {server} did not answer in time. {_IN_DOUBT}", "timeout")
    return ToolError(
        f"the MCP server {server} refused the call: {limits.sanitize_text(describe_error(error), 1000)}", "protocol"
    )


def _rejection_reason(tool: types.Tool) -> str | None:
    schemas: list[Any] = [tool.input_schema, *([] if tool.output_schema is None else [tool.output_schema])]
    if not 0 < len(tool.name) <= 256:
        return "it has no name, or one without end"
    if len(msgspec.json.encode(schemas)) > limits.MAX_SCHEMA_BYTES:
        return f"its schemas have more than {limits.MAX_SCHEMA_BYTES} bytes"
    if nesting_depth(schemas) > limits.MAX_SCHEMA_DEPTH:
        return f"its schemas are nested more than {limits.MAX_SCHEMA_DEPTH} levels deep"
    if max(validation_cost(one)[0] for one in schemas) > limits.MAX_SCHEMA_COST:
        return "its schemas unfold without end"
    return None


def build_toolsets(
    servers: dict[str, McpServerConfig],
    *,
    reserved: Sequence[str] = (),
    token_folder: Path | None = None,
    open_browser: BrowserLauncher | None = None,
) -> list[McpToolset]:
    """One for each server that is switched on, with names that differ; `taken` are names that are not theirs to use."""
    names = McpToolNames(reserved)
    return [
        McpToolset(name, server, tool_names=names, token_folder=token_folder, open_browser=open_browser)
        for name, server in servers.items()
        if server.enabled
    ]
