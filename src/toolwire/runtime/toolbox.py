"""The tools of an agent, gathered from functions, toolsets and other agents.

Toolsets are listed again before every turn, because a server may add or remove tools.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import NativeTool
from toolwire.codec.options import require, require_choice
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.calls.executor import ResourceLocks
from toolwire.runtime.calls.validation import InvalidSchema, check_schema
from toolwire.runtime.function_tool import InvalidToolFunction, as_tool
from toolwire.runtime.hosted_tools import AnyHostedTool, CodeExecution, HostedTools, WebFetch, WebSearch
from toolwire.runtime.policy import Policy
from toolwire.runtime.rule_checks import check_arguments
from toolwire.runtime.tool import (
    SupportsAsTool,
    SupportsProviderTool,
    SupportsRunEnd,
    SupportsWarnings,
    Tool,
    ToolCatalog,
    Toolset,
    ToolSource,
)


class DuplicateToolName(ToolwireError):
    """Two tools of an agent share a name."""


def source_tool(source: SupportsAsTool | SupportsProviderTool | Callable[..., Any]) -> Tool:
    """Return the tool that a function, an agent or a hosted tool stands for."""
    match source:
        case SupportsProviderTool():
            return source.provider_tool()
        case SupportsAsTool():
            return source.as_tool()
        case _:
            return as_tool(source)


def check_native_tool(tool: NativeTool) -> None:
    """Raise `TypeError` or `ValueError` for a vendor's tool that no provider would get."""
    require_choice("NativeTool(protocol=...)", tool.protocol, tuple(PROTOCOLS))
    try:
        body = msgspec.json.decode(tool.body)
    except (msgspec.DecodeError, TypeError):
        body = None
    expected = """the tool's JSON object: msgspec.Raw('{"type": ...}')"""
    require("NativeTool(body=...)", tool.body, expected, valid=isinstance(body, dict))


class Toolbox:
    """All tools of an agent, shared by its runs.

    An invalid tool passed in code raises. An invalid tool of a toolset is skipped with a warning.
    """

    recent_calls: dict[str, deque[float]]
    """Start times of recent calls by tool name, for rate limits that hold across runs."""
    locks: ResourceLocks
    """Locks on the resources that running calls use, across runs."""
    warnings: list[str]
    """Problems that stop nothing, collected until `take_warnings` is called."""

    lists_all_tools: bool
    """Every toolset listed tools for the last catalog: none is disabled or down."""
    hosted: HostedTools
    """Tools that providers may run."""

    def __init__(self, sources: Iterable[ToolSource], policy: Policy | None = None) -> None:
        """Gather the tools; raise `PolicyError` for a rule of `policy` with an argument that its tool does not have."""
        self.recent_calls = {}
        self.locks = ResourceLocks()
        self.warnings = []
        self.lists_all_tools = False
        self._static_tools: dict[str, Tool] = {}
        self._native_tools: list[NativeTool] = []
        self._toolsets: list[Toolset] = []
        self._open_toolsets: list[Toolset] = []
        self._is_open = False
        self._open_lock = asyncio.Lock()
        hosted: list[AnyHostedTool] = []
        for source in sources:
            match source:
                case type():
                    raise InvalidToolFunction(f"{source.__name__} is a class: pass an instance, {source.__name__}(...)")
                case Tool():
                    self._add(source)
                case WebSearch() | WebFetch() | CodeExecution():
                    hosted.append(source)
                    self._add(source.provider_tool())
                case NativeTool():
                    check_native_tool(source)
                    self._native_tools.append(source)
                case Toolset():
                    self._toolsets.append(source)
                case _:
                    self._add(source_tool(source))
        self.hosted = HostedTools(hosted)
        check_arguments(policy or Policy(), self._static_tools)

    @property
    def static_names(self) -> list[str]:
        """Names of the tools that belong to no toolset."""
        return list(self._static_tools)

    @property
    def static_tools(self) -> Mapping[str, Tool]:
        """Tools that belong to no toolset, by name."""
        return self._static_tools

    def _add(self, tool: Tool) -> None:
        """Add a tool; raise `DuplicateToolName` or `InvalidSchema` if it is unusable."""
        if tool.name in self._static_tools:
            hint = ": pass Agent(name=...)" if tool.source == f"agent:{tool.name}" else ""
            raise DuplicateToolName(f"duplicate tool name {tool.name!r}{hint}")
        check_schema(tool)
        self._static_tools[tool.name] = tool

    async def open(self) -> None:
        """Open all toolsets. One that fails to open is skipped with a warning."""
        if self._is_open:
            return
        async with self._open_lock:
            if not self._is_open:
                await self._open_all()
                self._is_open = True

    async def _open_all(self) -> None:
        """Open all toolsets at the same time, with a warning for each one that fails."""
        errors = await asyncio.gather(*(toolset.open() for toolset in self._toolsets), return_exceptions=True)
        for toolset, error in zip(self._toolsets, errors, strict=True):
            if error is None:
                self._open_toolsets.append(toolset)
            elif isinstance(error, Exception):
                self.warnings.append(f"{toolset.name} failed to start: {error}")
            else:
                raise error

    async def catalog(self) -> ToolCatalog:
        """Return the tools available now, opening the toolsets if needed."""
        await self.open()
        tools = dict(self._static_tools)
        counts = [await self._add_toolset_tools(toolset, tools) for toolset in self._open_toolsets]
        self.lists_all_tools = all(counts) and len(counts) == len(self._toolsets)
        return ToolCatalog(tools, tuple(self._native_tools))

    async def _add_toolset_tools(self, toolset: Toolset, tools: dict[str, Tool]) -> int:
        """Add the valid tools of one toolset to `tools`, with a warning for each one skipped; return their number."""
        try:
            listed = await toolset.tools()
        except Exception as error:  # noqa: BLE001 - a broken toolset must not stop the others
            self.warnings.append(f"{toolset.name}: listing its tools failed: {error}")
            return 0
        if isinstance(toolset, SupportsWarnings):
            self.warnings += toolset.take_warnings()
        for tool in listed:
            if tool.name in tools:
                self.warnings.append(f"{toolset.name}: skipped {tool.name}: duplicate tool name")
                continue
            try:
                check_schema(tool)
            except InvalidSchema as error:
                self.warnings.append(f"{toolset.name}: {error}")
                continue
            tools[tool.name] = tool
        return len(listed)

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call and clear them."""
        warnings, self.warnings = self.warnings, []
        return warnings

    async def end_run(self, run: str) -> None:
        """Tell the toolsets to release their state for this run."""
        for toolset in self._open_toolsets:
            if isinstance(toolset, SupportsRunEnd):
                await toolset.end_run(run)

    async def close(self) -> None:
        """Close the open toolsets, last opened first."""
        for toolset in reversed(self._open_toolsets):
            await toolset.close()
        self._open_toolsets, self._is_open = [], False
        await self.hosted.close()
