"""The tools of an agent, from wherever they come: gathered before every turn, since servers' tools come and go."""

import asyncio
from collections import deque
from collections.abc import Iterable

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import NativeTool
from toolwire.runtime.calls.resource_locks import ResourceLocks
from toolwire.runtime.calls.validation import InvalidSchema, check_schema
from toolwire.runtime.function_tool import as_tool
from toolwire.runtime.tool import SupportsRunEnd, SupportsWarnings, Tool, ToolCatalog, Toolset, ToolSource


class DuplicateToolName(ToolwireError):
    """Two tools of an agent have one name."""


class Toolbox:
    """What is given in code must be right; of a toolset, what is wrong is left out, and `warnings` says so. `recent` is
    when tools were run, by any run, and `apart` what runs now."""

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        self.recent_calls: dict[str, deque[float]] = {}
        self.locks = ResourceLocks()
        self.warnings: list[str] = []
        self._static_tools: dict[str, Tool] = {}
        self._native_tools: list[NativeTool] = []
        self._toolsets: list[Toolset] = []
        self._open_toolsets: list[Toolset] = []
        self._is_open = False
        self._open_lock = asyncio.Lock()
        for one in sources:
            match one:
                case Tool():
                    self._add(one)
                case NativeTool():
                    self._native_tools.append(one)
                case Toolset():
                    self._toolsets.append(one)
                case _:
                    self._add(one.as_tool() if hasattr(one, "as_tool") else as_tool(one))

    def _add(self, tool: Tool) -> None:
        if tool.name in self._static_tools:
            raise DuplicateToolName(f"there are two tools named {tool.name!r}")
        check_schema(tool)
        self._static_tools[tool.name] = tool

    async def open(self) -> None:
        """A set that can't be opened leaves the others working."""
        if self._is_open:
            return
        async with self._open_lock:
            if not self._is_open:
                await self._open_all()
                self._is_open = True

    async def _open_all(self) -> None:
        opened = await asyncio.gather(*(one.open() for one in self._toolsets), return_exceptions=True)
        for one, error in zip(self._toolsets, opened, strict=True):
            if error is None:
                self._open_toolsets.append(one)
            elif isinstance(error, Exception):
                self.warnings.append(f"{one.name} is not there: {error}")
            else:
                raise error

    async def catalog(self) -> ToolCatalog:
        await self.open()
        found = dict(self._static_tools)
        for one in self._open_toolsets:
            try:
                listed = await one.tools()
            except Exception as error:  # noqa: BLE001 - as above
                self.warnings.append(f"{one.name} does not say what it has: {error}")
                continue
            if isinstance(one, SupportsWarnings):
                self.warnings += one.take_warnings()
            for tool in listed:
                if tool.name in found:
                    self.warnings.append(f"{one.name}: {tool.name} is left out: there is another tool of that name")
                    continue
                try:
                    check_schema(tool)
                except InvalidSchema as error:
                    self.warnings.append(f"{one.name}: {error}")
                    continue
                found[tool.name] = tool
        return ToolCatalog(found, tuple(self._native_tools))

    def take_warnings(self) -> list[str]:
        """What there is to say since the last time."""
        said, self.warnings = self.warnings, []
        return said

    async def end_run(self, run: str) -> None:
        for one in self._open_toolsets:
            if isinstance(one, SupportsRunEnd):
                await one.end_run(run)

    async def close(self) -> None:
        for one in reversed(self._open_toolsets):
            await one.close()
        self._open_toolsets, self._is_open = [], False
