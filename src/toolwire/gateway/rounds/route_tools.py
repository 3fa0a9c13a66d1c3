"""What routes offer to every client's model: the tools of MCP servers, run by the gateway under its rules.

1. Nobody is there to ask: what no rule of `[policy]` allows is denied, and the model is told so.
2. Of many tools the model is told a search, its provider's own where that has one. It finds what a rule allows; what
   ours finds is declared from the next leg of the answer on.
3. A server that fails leaves the others working, and the log says so.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.encoding.tools import is_tool_search
from toolwire.gateway.config import RouteSection
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.rounds.continuation import RouteTool, RouteTools, client_tool_names
from toolwire.journal.redaction import Redactor
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.tool_names import McpToolNames
from toolwire.runtime.policy import Policy
from toolwire.runtime.search.deferred_tools import (
    SEARCH_TOOL_NAME,
    build_search_tool,
    is_denied,
    native_search,
    tool_names_in,
)
from toolwire.runtime.search.index import IndexedTool, ToolIndex
from toolwire.runtime.tool import Tool, ToolOutput
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.mcp.toolset import McpToolset

_LIMIT_WARNINGS = 1_000


class RouteToolsets:
    """Servers are connected to when a route first needs them."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig] | None = None,
        policy: Policy | None = None,
        *,
        redactor: Redactor | None = None,
        directory: Path | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._servers = dict(servers or {})
        self._policy = policy or Policy()
        self._redactor = redactor
        self._directory = directory
        self._log = log
        self._logged_warnings: set[str] = set()
        self._toolsets: dict[str, McpToolset] = {}
        self._toolboxes: dict[tuple[str, ...], tuple[Toolbox, ToolRunner]] = {}
        self._indexes: dict[tuple[str, ...], tuple[dict[str, Tool], ToolIndex]] = {}

    async def tools_for(self, options: RouteSection, request: Request, backend: Backend) -> RouteTools | None:
        """What a request gets; None if no server has anything now."""
        box, carrying = self._toolbox_for(options.tools)
        catalog = await box.catalog()
        self._log_warnings(box.take_warnings())
        own = client_tool_names(request.tools or ())
        # What is denied in any case is not offered.
        usable = [tool for tool in catalog.tools.values() if not is_denied(self._policy, tool)]
        known = {self._free_name(tool.name, own, catalog.tools): tool for tool in usable}
        if not known:
            return None

        async def carry(name: str, arguments: str) -> ToolOutput:
            return await carrying(known[name].name, arguments, approver=NoApprover(), on_progress=lambda _: None)

        offered = {
            name: RouteTool(_tool_definition(name, tool), self._origin(tool.name)) for name, tool in known.items()
        }
        told = known if len(known) <= options.search_above else self._allowed_tools(known)
        declared = tuple(offered[name].definition for name in told)
        offer = RouteTools(offered, declared, carry, [], show_calls=options.tool_calls == "shown")
        if len(told) <= options.search_above:
            return offer
        native = native_search(backend.provider.protocol, backend.model or "")
        if native is None:
            search = build_search_tool(self._index_for(options.tools, told), told)
            return _hide_behind_search(search, self._free_name(SEARCH_TOOL_NAME, own, known), offer)
        later = tuple(replace(one, defer=True) for one in declared)
        searches = any(is_tool_search(tool) for tool in request.tools or ())
        return replace(offer, declared_tools=later if searches else (replace(native, at=""), *later))

    def _allowed_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Those of which some call is. With nobody to ask, whoever searches has no use for the others."""
        rules = self._policy.rules
        asked = [rule.tool for rule in rules if rule.verdict == "ask" and not rule.arguments]
        allowed = [rule.tool for rule in rules if rule.verdict == "allow"]
        return {
            name: tool
            for name, tool in tools.items()
            if any(fnmatchcase(tool.name, one) for one in allowed)
            and not any(fnmatchcase(tool.name, one) for one in asked)
        }

    def _index_for(self, servers: tuple[str, ...], tools: dict[str, Tool]) -> ToolIndex:
        """Servers have the same tools again and again, and clients seldom have one of that name."""
        kept = self._indexes.get(servers)
        if kept is None or kept[0] != tools:
            index = ToolIndex(IndexedTool(name, tool.description, tool.parameters) for name, tool in tools.items())
            kept = self._indexes[servers] = (tools, index)
        return kept[1]

    def _free_name(self, name: str, client_names: set[str], other_tools: Mapping[str, Tool]) -> str:
        """The name, or another one with a hash: a client's own tool keeps its."""
        return (
            name
            if name not in client_names
            else McpToolNames(client_names | other_tools.keys()).name_for(*(self._origin(name) or ("toolwire", name)))
        )

    def _origin(self, name: str) -> tuple[str, str] | None:
        origins = (toolset.tool_names.origin(name) for toolset in self._toolsets.values())
        return next((one for one in origins if one is not None), None)

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        for text in warnings:
            if text not in self._logged_warnings and len(self._logged_warnings) < _LIMIT_WARNINGS:
                self._logged_warnings.add(text)
                self._log(text)

    def _toolbox_for(self, servers: Sequence[str]) -> "tuple[Toolbox, ToolRunner]":
        key = tuple(servers)
        if (known := self._toolboxes.get(key)) is None:
            from toolwire.runtime.mcp.tool_runner import ToolRunner  # noqa: PLC0415 - an extra, and slow to load
            from toolwire.runtime.mcp.toolset import build_toolsets  # noqa: PLC0415

            if not self._toolsets:
                self._toolsets = {one.name: one for one in build_toolsets(self._servers, token_folder=self._directory)}
            box = Toolbox([self._toolsets[name] for name in servers if name in self._toolsets])
            known = self._toolboxes[key] = (box, ToolRunner(box, self._policy, redactor=self._redactor))
        return known

    async def close(self) -> None:
        for toolset in self._toolsets.values():
            await toolset.close()


def _tool_definition(name: str, tool: Tool) -> FunctionTool:
    parameters = Raw(msgspec.json.encode(tool.parameters))
    return FunctionTool(name=name, description=tool.description or None, parameters=parameters, at="")


def _hide_behind_search(search: Tool, name: str, route_tools: RouteTools) -> RouteTools:
    """The same tools, of which the model is told nothing but the search. A call of one that was never found is a call
    like any other."""
    from toolwire.runtime.mcp.tool_runner import ToolRunner  # noqa: PLC0415

    looking = ToolRunner(Toolbox([search]), Policy(allow=[SEARCH_TOOL_NAME]))
    left = dict(route_tools.tools)

    async def carry(called: str, arguments: str) -> ToolOutput:
        if called != name:
            return await route_tools.run_tool(called, arguments)
        output = await looking(SEARCH_TOOL_NAME, arguments, approver=NoApprover(), on_progress=lambda _: None)
        found = [left.pop(one, None) for one in tool_names_in(output.content)]
        route_tools.found_tools.extend(one.definition for one in found if one is not None)
        return output

    declared = _tool_definition(name, search)
    return replace(
        route_tools, tools={**route_tools.tools, name: RouteTool(declared)}, declared_tools=(declared,), run_tool=carry
    )
