"""A clock that the test advances, to test timeouts without waiting.

Timeouts can be far longer than the slowest machine needs, and still be reached at once.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

import pytest

T = TypeVar("T")
_STEP = 5.0


class Clock:
    """A patch that moves `time.monotonic`, `time.time` and asyncio's event loops ahead by `offset` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = 0.0
        monotonic, wall = time.monotonic, time.time
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + self.offset)
        monkeypatch.setattr(time, "time", lambda: wall() + self.offset)

    def advance(self, seconds: float) -> None:
        self.offset += seconds

    async def advance_until_done(self, work: Awaitable[T], step: float = _STEP) -> T:
        """Advance step by step until the awaitable is done.

        A single leap would miss a timer that is set only after it.
        """
        task = asyncio.ensure_future(work)
        while not task.done():
            self.advance(step)
            await asyncio.wait([task], timeout=0.001)
        return task.result()
