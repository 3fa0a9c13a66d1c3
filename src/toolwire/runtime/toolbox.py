"""The tools of an agent, from wherever they come: gathered before every turn, since servers' tools come and go."""

import asyncio
from collections import deque
from collections.abc import Iterable

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import NativeTool

from .apart import Apart
from .functions import as_tool
from .toolset import Catalog, EndsRuns, Offered, Tool, Toolset, Warns
from .validate import BadSchema, check_schema


class SameName(ToolwireError):
    """Two tools of an agent have one name."""


class Toolbox:
    """What is given in code must be right; of a toolset, what is wrong is left out, and `warnings` says so. `recent` is
    when tools were run, by any run, and `apart` what runs now."""

    def __init__(self, offered: Iterable[Offered]) -> None:
        self.recent: dict[str, deque[float]] = {}
        self.apart = Apart()
        self.warnings: list[str] = []
        self._fixed: dict[str, Tool] = {}
        self._natives: list[NativeTool] = []
        self._sets: list[Toolset] = []
        self._open: list[Toolset] = []
        self._opened = False
        self._opening = asyncio.Lock()
        for one in offered:
            match one:
                case Tool():
                    self._add(one)
                case NativeTool():
                    self._natives.append(one)
                case Toolset():
                    self._sets.append(one)
                case _:
                    self._add(one.as_tool() if hasattr(one, "as_tool") else as_tool(one))

    def _add(self, tool: Tool) -> None:
        if tool.name in self._fixed:
            raise SameName(f"there are two tools named {tool.name!r}")
        check_schema(tool)
        self._fixed[tool.name] = tool

    async def open(self) -> None:
        """A set that can't be opened leaves the others working."""
        if self._opened:
            return
        async with self._opening:
            if not self._opened:
                await self._open_all()
                self._opened = True

    async def _open_all(self) -> None:
        opened = await asyncio.gather(*(one.open() for one in self._sets), return_exceptions=True)
        for one, error in zip(self._sets, opened, strict=True):
            if error is None:
                self._open.append(one)
            elif isinstance(error, Exception):
                self.warnings.append(f"{one.name} is not there: {error}")
            else:
                raise error

    async def catalog(self) -> Catalog:
        await self.open()
        found = dict(self._fixed)
        for one in self._open:
            try:
                listed = await one.tools()
            except Exception as error:  # noqa: BLE001 - as above
                self.warnings.append(f"{one.name} does not say what it has: {error}")
                continue
            if isinstance(one, Warns):
                self.warnings += one.warned()
            for tool in listed:
                if tool.name in found:
                    self.warnings.append(f"{one.name}: {tool.name} is left out: there is another tool of that name")
                    continue
                try:
                    check_schema(tool)
                except BadSchema as error:
                    self.warnings.append(f"{one.name}: {error}")
                    continue
                found[tool.name] = tool
        return Catalog(found, tuple(self._natives))

    def warned(self) -> list[str]:
        """What there is to say since the last time."""
        said, self.warnings = self.warnings, []
        return said

    async def end_run(self, run: str) -> None:
        for one in self._open:
            if isinstance(one, EndsRuns):
                await one.end_run(run)

    async def close(self) -> None:
        for one in reversed(self._open):
            await one.close()
        self._open, self._opened = [], False
