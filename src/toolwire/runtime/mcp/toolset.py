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

from toolwire.runtime.toolset import Annotations, Arguments, Calling, Output, Tool, ToolFault
from toolwire.runtime.weighing import depth, weigh

from . import bounds
from .asking import elicit
from .calls import called
from .connection import Connection, Unavailable, said
from .names import Names
from .oauth import Browse
from .output import Checked
from .settings import Server

_USUAL_TTL = 300.0
"""Seconds that a list of the older version counts, which has no word for it."""

_WARNINGS = 100

_LIST_AGAIN = 30.0

State = Literal["off", "up", "down"]
_Answer = TypeVar("_Answer")


class McpToolset:
    """`names` is shared between servers, so that no two tools get one name; `folder` is where tokens are kept, and
    `browse` how a person is asked to sign in, if that can be."""

    def __init__(
        self,
        name: str,
        settings: Server,
        *,
        names: Names | None = None,
        folder: Path | None = None,
        browse: Browse | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.on_change: Callable[[], None] = lambda: None
        self.names = names or Names()
        self._warnings: list[str] = []
        self._told = ""
        self._connection = Connection(
            name, settings, elicit=self._asked, changed=self._stale, folder=folder, browse=browse
        )
        self._tools: tuple[Tool, ...] = ()
        self._fresh_until = 0.0
        self._changes = 0
        self._listing = asyncio.Lock()
        self._callings: list[Calling] = []
        self._questions = 0

    @property
    def state(self) -> State:
        if not self.settings.enabled:
            return "off"
        return "up" if self._connection.alive else "down"

    @property
    def why(self) -> str:
        """What is wrong, if it is down."""
        return "" if self.state == "up" else self._connection.why

    async def version(self) -> str:
        """The version of the protocol that was negotiated."""
        return (await self._connection.client()).protocol_version

    async def open(self) -> None:
        await self.tools()

    async def close(self) -> None:
        await self._connection.close()

    async def tools(self) -> Sequence[Tool]:
        if not self.settings.enabled:
            return ()
        async with self._listing:
            if self._connection.alive and time.monotonic() < self._fresh_until:
                return self._tools
            if self._connection.failing:
                self._connection.try_again()
                self._tell(f"the MCP server {self.name} is not there: {self._connection.why}")
                return ()
            try:
                self._tools = await self._asked_twice(self._listed)
            except Unavailable as error:
                self._tell(f"the MCP server {self.name} is not there: {error}")
                return ()
            except (MCPError, ValidationError, TimeoutError) as error:
                self._tell(f"the MCP server {self.name} does not list its tools: {said(error)}")
                self._tools, self._fresh_until = (), time.monotonic() + _LIST_AGAIN
                return ()
            self._told = ""
            return self._tools

    def warned(self) -> list[str]:
        """What went wrong since the last time."""
        said, self._warnings = self._warnings, []
        return said

    def _warn(self, text: str) -> None:
        if len(self._warnings) < _WARNINGS:
            self._warnings.append(text)

    def _tell(self, text: str) -> None:
        # The wait that is part of it changes: the same failure is told once.
        if (failure := text.partition(" (tried again")[0]) != self._told:
            self._told = failure
            self._warn(text)

    def _stale(self) -> None:
        self._fresh_until = 0.0
        self._changes += 1
        self.on_change()

    def _broken(self, client: Client, error: Exception) -> bool:
        """Whether the same can be asked anew: the server has lost the session, and has not looked at it."""
        forgotten = self._connection.is_forgotten(client)
        if forgotten or (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
            self._connection.broke(said(error))
        return forgotten

    async def _asked_twice(self, ask: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        client = await self._connection.client()
        try:
            return await ask(client)
        except MCPError as error:
            if not self._broken(client, error):
                raise
        return await ask(await self._connection.client())

    async def _listed(self, client: Client) -> tuple[Tool, ...]:
        found, seen, cursor, lives = list[types.Tool](), set[str](), None, list[float]()
        until, changes = time.monotonic() + self.settings.connect_timeout, self._changes
        for _ in range(bounds.PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            async with asyncio.timeout(until - time.monotonic()):
                page = await client.session.list_tools(params=params)
            found += page.tools
            lives.append((page.ttl_ms or 0) / 1000)
            cursor = page.next_cursor
            if cursor is None or cursor in seen or len(found) > bounds.TOOLS:
                break
            seen.add(cursor)
        if cursor is not None:
            self._warn(f"the MCP server {self.name} has no end of tools: the first {bounds.TOOLS} are used at most")
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        # What changed while it was being told may not be in it.
        lasts = 0 if changes != self._changes else min(lives) if modern else _USUAL_TTL
        self._fresh_until = time.monotonic() + lasts
        made: dict[str, Tool] = {}
        for one in found[: bounds.TOOLS]:
            if not self.settings.offers(one.name):
                continue
            if (wrong := "its name is there twice" if one.name in made else _unusable(one)) is not None:
                self._warn(f"the tool {one.name[:100]!r} of the MCP server {self.name} is left out: {wrong}")
                continue
            made[one.name] = self._tool(one)
        return tuple(made.values())

    def _tool(self, one: types.Tool) -> Tool:
        hints = one.annotations or types.ToolAnnotations()
        reads = bool(hints.read_only_hint)
        again = reads or bool(hints.idempotent_hint)
        checked = Checked(one.output_schema)

        async def run(arguments: Arguments, calling: Calling) -> Output:
            return await self._run(one.name, checked, arguments, calling)

        return Tool(
            name=self.names.name(self.name, one.name),
            run=run,
            description=bounds.readable(one.description or one.title or "", bounds.DESCRIPTION),
            parameters=one.input_schema,
            output_schema=one.output_schema,
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
            timeout=self.settings.timeout,
            retries=2 if again else 0,
            touches=lambda _: frozenset() if reads else frozenset({f"mcp:{self.name}"}),
        )

    async def _run(self, tool: str, checked: Checked, arguments: Arguments, calling: Calling) -> Output:
        self._callings.append(calling)
        try:
            result = await self._asked_twice(lambda client: called(client, self.name, tool, arguments, calling))
            return checked.output(result, self.name)
        except Unavailable as error:
            raise ToolFault(f"the MCP server {self.name} is not there: {error}", "unavailable") from None
        except MCPError as error:
            raise _fault(self.name, error) from None
        except ValidationError as error:
            why = f"{error.error_count()} places of its answer are not what the protocol has"
            raise ToolFault(f"the MCP server {self.name} can't be understood: {why}", "protocol") from None
        finally:
            self._callings.remove(calling)
            if not self._callings:
                self._questions = 0

    async def _asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The older version does not say which call a question belongs to: it is one of those that wait."""
        self._questions += 1
        if not self._callings or self._questions > bounds.ROUNDS * len(self._callings):
            return types.ElicitResult(action="decline")
        return await elicit(self._callings[-1].person, self.name, params)


_IN_DOUBT = "The call may have taken effect: find out before you repeat it."


def _fault(server: str, error: MCPError) -> ToolFault:
    if error.code == types.CONNECTION_CLOSED:
        return ToolFault(f"the MCP server {server} went away: {said(error)}. {_IN_DOUBT}", "unavailable")
    if error.code == types.REQUEST_TIMEOUT:
        return ToolFault(f"the MCP server {server} did not answer in time. {_IN_DOUBT}", "timeout")
    return ToolFault(f"the MCP server {server} refused the call: {bounds.readable(said(error), 1000)}", "protocol")


def _unusable(tool: types.Tool) -> str | None:
    schemas: list[Any] = [tool.input_schema, *([] if tool.output_schema is None else [tool.output_schema])]
    if not 0 < len(tool.name) <= 256:
        return "it has no name, or one without end"
    if len(msgspec.json.encode(schemas)) > bounds.SCHEMA:
        return f"its schemas have more than {bounds.SCHEMA} bytes"
    if depth(schemas) > bounds.DEPTH:
        return f"its schemas are nested more than {bounds.DEPTH} levels deep"
    if max(weigh(one)[0] for one in schemas) > bounds.WEIGHT:
        return "its schemas unfold without end"
    return None


def toolsets(
    servers: dict[str, Server],
    *,
    taken: Sequence[str] = (),
    folder: Path | None = None,
    browse: Browse | None = None,
) -> list[McpToolset]:
    """One for each server that is switched on, with names that differ; `taken` are names that are not theirs to use."""
    names = Names(taken)
    return [
        McpToolset(name, server, names=names, folder=folder, browse=browse)
        for name, server in servers.items()
        if server.enabled
    ]
