"""Tools that a route adds to every request: those of MCP servers, run by the gateway under its policy.

1. There is no approver: calls that no `[policy]` rule allows are denied, and the model is told.
2. If there are many tools, the model gets a tool search instead, the provider's own if it has one. The search finds
   tools that a rule allows; those found by the gateway's search are declared from the next round on.
3. If a server fails, the others keep working, and the failure is logged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.encoding.tools import is_tool_search
from toolwire.gateway.config import RouteSection
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.rounds.continuation import RouteTool, RouteTools, client_tool_names
from toolwire.journal.redaction import Redactor
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.mcp.config import McpServerConfig, McpToolNames, may_be_tool_of
from toolwire.runtime.policy import Policy, is_denied
from toolwire.runtime.rule_checks import describe_unknown_argument, describe_unknown_tool, is_exact
from toolwire.runtime.search.deferred_tools import (
    SEARCH_TOOL_NAME,
    build_search_tool,
    native_search,
    tool_names_in,
)
from toolwire.runtime.search.index import IndexedTool, ToolIndex
from toolwire.runtime.tool import Tool, ToolCatalog, ToolOutput
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.mcp.toolset import McpToolset

_LIMIT_WARNINGS = 1_000


class RouteToolsets:
    """The MCP toolsets of all routes; servers are connected when first needed."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig] | None = None,
        policy: Policy | None = None,
        *,
        redactor: Redactor | None = None,
        directory: Path | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        # No person could approve sampling, and clients of a route should not cause its costs.
        self._servers = {name: replace(server, sampling=None) for name, server in (servers or {}).items()}
        self._policy = policy or Policy()
        self._redactor = redactor
        self._directory = directory
        self._log = log
        self._logged_warnings: set[str] = set()
        self._toolsets: dict[str, McpToolset] = {}
        self._toolboxes: dict[tuple[str, ...], tuple[Toolbox, ToolRunner]] = {}
        self._indexes: dict[tuple[str, ...], tuple[dict[str, Tool], ToolIndex]] = {}

    async def tools_for(self, options: RouteSection, request: Request, backend: Backend) -> RouteTools | None:
        """Return the tools for one request; None if no server offers any now."""
        toolbox, runner = self._toolbox_for(options.tools)
        catalog = await toolbox.catalog()
        self._log_warnings([*toolbox.take_warnings(), *self._unused_rules(options.tools, toolbox, catalog)])
        client_names = client_tool_names(request.tools or ())
        permitted = [tool for tool in catalog.tools.values() if not is_denied(self._policy, tool)]
        tools = {self._free_name(tool.name, client_names, catalog.tools): tool for tool in permitted}
        if not tools:
            return None

        async def run_tool(name: str, arguments: str) -> ToolOutput:
            """Run a tool by the name declared to the model, with arguments as JSON text."""
            return await runner(tools[name].name, arguments, approver=NoApprover(), on_progress=lambda _: None)

        definitions = {
            name: RouteTool(_tool_definition(name, tool), self._origin(tool.name)) for name, tool in tools.items()
        }
        declared = tools if len(tools) <= options.search_above else self._allowed_tools(tools)
        route_tools = RouteTools(
            definitions,
            tuple(definitions[name].definition for name in declared),
            run_tool,
            [],
            show_calls=options.tool_calls == "shown",
        )
        if len(declared) <= options.search_above:
            return route_tools
        native = native_search(backend.provider.protocol, backend.model or "")
        if native is not None:
            return _defer_to_native_search(native, route_tools, request)
        search = build_search_tool(self._index_for(options.tools, declared), declared)
        return _hide_behind_search(search, self._free_name(SEARCH_TOOL_NAME, client_names, tools), route_tools)

    def _unused_rules(self, servers: Sequence[str], toolbox: Toolbox, catalog: ToolCatalog) -> Iterator[str]:
        """Yield a warning for each rule that names a tool of these servers which they lack, or an unknown argument."""
        for rule in filter(is_exact, self._policy.rules):
            problem = describe_unknown_argument(rule, catalog.tools.values())
            if toolbox.lists_all_tools and any(may_be_tool_of(rule.tool, server) for server in servers):
                problem = problem or describe_unknown_tool(rule, catalog.tools)
            if problem is not None:
                yield f"policy.{rule.verdict} {str(rule)!r}: {problem}, so the rule applies to nothing"

    def _allowed_tools(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Return the tools that can be called without approval; the search leaves out the others."""
        rules = self._policy.rules
        ask_patterns = [rule.tool for rule in rules if rule.verdict == "ask" and not rule.arguments]
        allow_patterns = [rule.tool for rule in rules if rule.verdict == "allow"]
        return {
            name: tool
            for name, tool in tools.items()
            if any(fnmatchcase(tool.name, pattern) for pattern in allow_patterns)
            and not any(fnmatchcase(tool.name, pattern) for pattern in ask_patterns)
        }

    def _index_for(self, servers: tuple[str, ...], tools: dict[str, Tool]) -> ToolIndex:
        """Return the search index of these tools; it is cached, as servers rarely change their tools."""
        cached = self._indexes.get(servers)
        if cached is None or cached[0] != tools:
            index = ToolIndex(IndexedTool(name, tool.description, tool.parameters) for name, tool in tools.items())
            cached = self._indexes[servers] = (tools, index)
        return cached[1]

    def _free_name(self, name: str, client_names: set[str], other_tools: Mapping[str, Tool]) -> str:
        """Return the name, or one with a hash if the client has a tool of that name."""
        return (
            name
            if name not in client_names
            else McpToolNames(client_names | other_tools.keys()).name_for(*(self._origin(name) or ("toolwire", name)))
        )

    def _origin(self, name: str) -> tuple[str, str] | None:
        """Return the MCP server of a tool and the tool's name there; None if it comes from no server."""
        origins = (toolset.tool_names.origin(name) for toolset in self._toolsets.values())
        return next((origin for origin in origins if origin is not None), None)

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        """Log each warning once."""
        for text in warnings:
            if text not in self._logged_warnings and len(self._logged_warnings) < _LIMIT_WARNINGS:
                self._logged_warnings.add(text)
                self._log(text)

    def _toolbox_for(self, servers: Sequence[str]) -> "tuple[Toolbox, ToolRunner]":
        """Return the toolbox and the runner for these servers, creating them on first use."""
        key = tuple(servers)
        if (cached := self._toolboxes.get(key)) is None:
            from toolwire.runtime.mcp.tool_runner import ToolRunner  # noqa: PLC0415 - an extra, and slow to load
            from toolwire.runtime.mcp.toolset import build_toolsets  # noqa: PLC0415

            if not self._toolsets:
                self._toolsets = {
                    toolset.name: toolset for toolset in build_toolsets(self._servers, token_folder=self._directory)
                }
            toolbox = Toolbox([self._toolsets[name] for name in servers if name in self._toolsets])
            cached = self._toolboxes[key] = (toolbox, ToolRunner(toolbox, self._policy, redactor=self._redactor))
        return cached

    async def close(self) -> None:
        """Disconnect from all servers."""
        for toolset in self._toolsets.values():
            await toolset.close()


def _tool_definition(name: str, tool: Tool) -> FunctionTool:
    """Declare a tool under this name."""
    parameters = Raw(msgspec.json.encode(tool.parameters))
    return FunctionTool(name=name, description=tool.description or None, parameters=parameters, at="")


def _defer_to_native_search(search: NativeTool, route_tools: RouteTools, request: Request) -> RouteTools:
    """Return the route's tools declared as deferred, with the provider's own search unless the request has it."""
    deferred = tuple(replace(tool, defer=True) for tool in route_tools.declared_tools)
    has_search = any(is_tool_search(tool) for tool in request.tools or ())
    return replace(route_tools, declared_tools=deferred if has_search else (replace(search, at=""), *deferred))


def _hide_behind_search(search: Tool, name: str, route_tools: RouteTools) -> RouteTools:
    """Return the route's tools with only a search declared; tools that it finds are declared later.

    The model may call any of the tools, found or not.
    """
    from toolwire.runtime.mcp.tool_runner import ToolRunner  # noqa: PLC0415

    search_runner = ToolRunner(Toolbox([search]), Policy(allow=[SEARCH_TOOL_NAME]))
    hidden = dict(route_tools.tools)

    async def run_tool(tool_name: str, arguments: str) -> ToolOutput:
        """Run the search or any other tool, and declare the tools that a search finds."""
        if tool_name != name:
            return await route_tools.run_tool(tool_name, arguments)
        output = await search_runner(SEARCH_TOOL_NAME, arguments, approver=NoApprover(), on_progress=lambda _: None)
        found_tools = [hidden.pop(found_name, None) for found_name in tool_names_in(output.content)]
        route_tools.found_tools.extend(route_tool.definition for route_tool in found_tools if route_tool is not None)
        return output

    definition = _tool_definition(name, search)
    return replace(
        route_tools,
        tools={**route_tools.tools, name: RouteTool(definition)},
        declared_tools=(definition,),
        run_tool=run_tool,
    )
