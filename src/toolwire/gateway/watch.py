"""Over one request: its body takes so long and no longer, and the work is given up as soon as the client leaves.

Most requests need neither, so that nothing more than a timer is started for them. What takes longer than `PAUSE` is
watched by a task that hears from the server when the client is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .log import Line

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PAUSE = 0.05


class Watch:
    """`left`: the client did; `late`: the body was. Either cancels the task that made this."""

    def __init__(self, receive: Receive, line: Line, limit: float) -> None:
        self.left = self.late = False
        self._receive = receive
        self._line = line
        self._limit = limit
        self._receiving = True
        self._slow = False
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(PAUSE, limit), self._look)

    def received(self) -> None:
        """The body is here: from now on the client is watched."""
        self._receiving = False
        if self._slow:
            self._timer.cancel()
            self._timer = self._loop.call_later(PAUSE, self._look)

    def close(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _look(self) -> None:
        if not self._receiving:
            self._watcher = self._loop.create_task(self._watch())
        elif not self._slow and self._limit > PAUSE:
            self._slow = True
            self._timer = self._loop.call_later(self._limit - PAUSE, self._look)
        else:
            self.late = True
            self._give_up()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._line.over:
            self.left = True
            self._give_up()

    def _give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()
