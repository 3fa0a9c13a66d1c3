"""Locks that serialize calls which use the same resource."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwire.runtime.run.state import PendingCall


def has_conflict(second: PendingCall, first: PendingCall) -> bool:
    """Return True if two calls use a common resource."""
    if second.tool is None or first.tool is None or second.refusal or first.refusal:
        return False
    second_uses, first_uses = second.tool.resources(second.arguments), first.tool.resources(first.arguments)
    return second_uses is None or first_uses is None or bool(second_uses & first_uses)


class _RunningCall:
    """A call that holds its resources, or waits for them."""

    def __init__(self, pending: PendingCall) -> None:
        self.pending = pending
        self.finished = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.has_nested_calls = False


class ResourceLocks:
    """Serializes calls that use the same resource, across the runs of an agent.

    A call that is calling other tools holds no lock, since its nested calls may need the same resource.
    """

    def __init__(self) -> None:
        self._running: dict[int, _RunningCall] = {}

    @asynccontextmanager
    async def hold(self, pending: PendingCall) -> AsyncIterator[None]:
        """Wait until no running call conflicts, then hold the call's resources."""
        running = _RunningCall(pending)
        while (conflict := self._conflicting_call(running)) is not None:
            await conflict.finished.wait()
        self._running[id(pending)] = running
        try:
            yield
        finally:
            del self._running[id(pending)]
            running.finished.set()

    def _conflicting_call(self, candidate: _RunningCall) -> _RunningCall | None:
        """Return a running call on the same event loop that uses a common resource."""
        for running in list(self._running.values()):
            if running.has_nested_calls or running.loop is not candidate.loop:
                continue
            if has_conflict(candidate.pending, running.pending):
                return running
        return None

    def mark_nested_call(self, pending: PendingCall) -> None:
        """Note that a running call is calling another tool, so that later calls do not wait for it."""
        self._running[id(pending)].has_nested_calls = True
