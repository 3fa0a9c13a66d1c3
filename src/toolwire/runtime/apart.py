"""Calls that touch the same thing, one after the other: whoever made them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .state import Pending


def must_wait(later: Pending, earlier: Pending) -> bool:
    """Whether two calls touch the same thing."""
    if later.tool is None or earlier.tool is None or later.refused or earlier.refused:
        return False
    one, other = later.tool.touches(later.arguments), earlier.tool.touches(earlier.arguments)
    return one is None or other is None or bool(one & other)


class _Running:
    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.ended = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.calls = False


class Apart:
    """What runs now. Who calls others is not waited for: it may itself wait for what is to begin."""

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}

    @asynccontextmanager
    async def kept(self, pending: Pending) -> AsyncIterator[None]:
        running = _Running(pending)
        while (other := self._in_the_way(running)) is not None:
            await other.ended.wait()
        self._running[id(pending)] = running
        try:
            yield
        finally:
            del self._running[id(pending)]
            running.ended.set()

    def _in_the_way(self, later: _Running) -> _Running | None:
        for one in list(self._running.values()):
            if not one.calls and one.loop is later.loop and must_wait(later.pending, one.pending):
                return one
        return None

    def calls(self, pending: Pending) -> None:
        """It calls another tool."""
        self._running[id(pending)].calls = True
