"""MCP servers as toolsets, with tool names that every provider accepts (`server__tool`).

1. Names are unique. A table maps them back to server and tool, because either may contain `__` itself.
2. A name that had to be changed or shortened, or is already in use, ends with a hash of both names.
3. A tool keeps its name for the lifetime of the table, even if other tools appear or disappear.

The tools of one MCP server as a toolset.

1. A tool failure that the server reports (`isError`) is an output for the model. A failure of the connection or the
   protocol is a `ToolError` of another kind.
2. Annotations of a server are untrusted hints: they are passed on, but the policy ignores them.
3. A server that fails has no tools. Each failure is reported once, and the connection is retried later.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput

MAX_NAME_LENGTH = 63
"""Providers reject names longer than 64 characters."""

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8


class McpToolNames:
    """The names of all MCP tools of an agent. `reserved` names belong to its other tools."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = set(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._origins: dict[str, tuple[str, str]] = {}

    def name_for(self, server: str, tool: str) -> str:
        """Return the name that models see for a server's tool."""
        origin = (server, tool)
        if (known := self._names.get(origin)) is not None:
            return known
        name = next(
            candidate
            for candidate in _candidate_names(origin)
            if candidate not in self._reserved and candidate not in self._origins
        )
        self._names[origin] = name
        self._origins[name] = origin
        return name

    def origin(self, name: str) -> tuple[str, str] | None:
        """Return the server's name and the server's own name for a tool; None if the name is unknown."""
        return self._origins.get(name)


def _candidate_names(origin: tuple[str, str]) -> Iterable[str]:
    """Yield possible names in order of preference: the plain name if valid, then names with a hash."""
    joined = "__".join(origin)
    valid = _INVALID_CHARACTERS.sub("_", joined)
    if not (valid[0].isalpha() or valid[0] == "_"):  # Gemini requires a letter or underscore first
        valid = f"_{valid}"
    if valid == joined and len(valid) <= MAX_NAME_LENGTH:
        yield valid
    # As a JSON list, no two pairs of names can encode to the same text.
    digest = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
    for start in range(len(digest)):
        suffix = (digest[start:] + digest)[:_HASH_LENGTH]
        yield f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"
    yield from (
        f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 9]}_{digest[:_HASH_LENGTH]}{count:08x}" for count in range(2**32)
    )


_DEFAULT_TTL = 300.0
"""Seconds until tools are listed again, for protocol versions without `ttlMs`."""

_MAX_WARNINGS = 100

_RELIST_DELAY = 30.0

ServerState = Literal["off", "up", "down"]
_Result = TypeVar("_Result")


class McpToolset:
    """The tools of one MCP server.

    `tool_names` is shared between servers, so that names are unique. OAuth tokens are stored in `token_folder`;
    `open_browser` lets the user sign in.
    """

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
        return (await self._connection.client()).protocol_version

    async def open(self) -> None:
        """Connect to the server and list its tools; a failure becomes a warning."""
        await self.tools()

    async def close(self) -> None:
        """Close the connection to the server."""
        await self._connection.close()

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

    def _can_resend(self, client: Client, error: Exception) -> bool:
        """Return True if the request can be sent again: the server lost the session and did not process it."""
        session_lost = self._connection.is_session_lost(client)
        if session_lost or (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
            self._connection.mark_broken(describe_error(error))
        return session_lost

    async def _with_resend(self, send: Callable[[Client], Awaitable[_Result]]) -> _Result:
        """Send a request and return its result; send it once more on a new connection if the session was lost."""
        client = await self._connection.client()
        try:
            return await send(client)
        except MCPError as error:
            if not self._can_resend(client, error):
                raise
        return await send(await self._connection.client())

    async def _list_tools(self, client: Client) -> tuple[Tool, ...]:
        """List all pages of the server's tools, and skip unusable tools with a warning."""
        listed, seen_cursors, cursor, ttls = list[types.Tool](), set[str](), None, list[float]()
        deadline, change_count = time.monotonic() + self.config.connect_timeout, self._change_count
        for _ in range(limits.MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            async with asyncio.timeout(deadline - time.monotonic()):
                page = await client.session.list_tools(params=params)
            listed += page.tools
            ttls.append((page.ttl_ms or 0) / 1000)
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors or len(listed) > limits.MAX_TOOLS:
                break
            seen_cursors.add(cursor)
        if cursor is not None:
            self._warn(f"MCP server {self.name!r} lists too many tools: using at most {limits.MAX_TOOLS}")
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        # A list that changed while it was being read may be incomplete: it expires at once.
        ttl = 0 if change_count != self._change_count else min(ttls) if modern else _DEFAULT_TTL
        self._fresh_until = time.monotonic() + ttl
        return self._build_tools(listed[: limits.MAX_TOOLS])

    def _build_tools(self, listed: Sequence[types.Tool]) -> tuple[Tool, ...]:
        """Build the configured tools, and warn about those that are unusable."""
        tools: dict[str, Tool] = {}
        for tool in listed:
            if not self.config.offers_tool(tool.name):
                continue
            rejection = "duplicate tool name" if tool.name in tools else _rejection_reason(tool)
            if rejection is not None:
                self._warn(f"MCP server {self.name!r}: skipped tool {tool.name[:100]!r}: {rejection}")
                continue
            tools[tool.name] = self._build_tool(tool)
        return tuple(tools.values())

    def _build_tool(self, listed: types.Tool) -> Tool:
        """Build a tool that calls the server."""
        hints = listed.annotations or types.ToolAnnotations()
        read_only = bool(hints.read_only_hint)
        repeatable = read_only or bool(hints.idempotent_hint)
        output_schema = OutputSchema(listed.output_schema)

        async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
            """Call the server's tool with this name."""
            return await self._run_tool(listed.name, output_schema, arguments, context)

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
            timeout=self.config.timeout,
            retries=2 if repeatable else 0,
            resources=lambda _: frozenset() if read_only else frozenset({f"mcp:{self.name}"}),
        )

    async def _run_tool(
        self, tool: str, output_schema: OutputSchema, arguments: Arguments, context: ToolContext
    ) -> ToolOutput:
        """Call the server's tool, and convert failures to `ToolError`."""
        self._active_contexts.append(context)
        try:
            result = await self._with_resend(lambda client: call_tool(client, self.name, tool, arguments, context))
            return output_schema.checked_output(result, self.name)
        except ServerUnavailable as error:
            raise ToolError(f"MCP server {self.name!r} is unavailable: {error}", "unavailable") from None
        except MCPError as error:
            raise _tool_error(self.name, error) from None
        except ValidationError as error:
            count = error.error_count()
            raise ToolError(
                f"MCP server {self.name!r} sent an invalid response ({count} validation errors)", "protocol"
            ) from None
        finally:
            self._active_contexts.remove(context)
            if not self._active_contexts:
                self._question_count = 0

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question of the older protocol version, which does not name the call that it belongs to.

        It goes to the approver of the latest call in progress.
        """
        self._question_count += 1
        if not self._active_contexts or self._question_count > limits.MAX_INPUT_ROUNDS * len(self._active_contexts):
            return types.ElicitResult(action="decline")
        return await elicit(self._active_contexts[-1].approver, self.name, params)


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
) -> list[McpToolset]:
    """Build a toolset for each enabled server, with unique tool names. `reserved` names belong to other tools."""
    names = McpToolNames(reserved)
    return [
        McpToolset(name, server, tool_names=names, token_folder=token_folder, open_browser=open_browser)
        for name, server in servers.items()
        if server.enabled
    ]
