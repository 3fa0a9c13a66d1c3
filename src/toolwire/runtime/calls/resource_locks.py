"""Calls that touch the same thing, one after the other: whoever made them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwire.runtime.run.state import PendingCall


def has_conflict(second: PendingCall, first: PendingCall) -> bool:
    """Whether two calls touch the same thing."""
    if second.tool is None or first.tool is None or second.refusal or first.refusal:
        return False
    one, other = second.tool.resources(second.arguments), first.tool.resources(first.arguments)
    return one is None or other is None or bool(one & other)


class _RunningCall:
    def __init__(self, pending: PendingCall) -> None:
        self.pending = pending
        self.finished = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.has_nested_calls = False


class ResourceLocks:
    """What runs now. Who calls others is not waited for: it may itself wait for what is to begin."""

    def __init__(self) -> None:
        self._running: dict[int, _RunningCall] = {}

    @asynccontextmanager
    async def hold(self, pending: PendingCall) -> AsyncIterator[None]:
        running = _RunningCall(pending)
        while (other := self._conflicting_call(running)) is not None:
            await other.finished.wait()
        self._running[id(pending)] = running
        try:
            yield
        finally:
            del self._running[id(pending)]
            running.finished.set()

    def _conflicting_call(self, candidate: _RunningCall) -> _RunningCall | None:
        for one in list(self._running.values()):
            if not one.has_nested_calls and one.loop is candidate.loop and has_conflict(candidate.pending, one.pending):
                return one
        return None

    def mark_nested_call(self, pending: PendingCall) -> None:
        """It calls another tool."""
        self._running[id(pending)].has_nested_calls = True
