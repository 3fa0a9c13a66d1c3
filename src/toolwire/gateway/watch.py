"""Over requests: a body takes so long and no longer, and the work is given up as soon as the client leaves.

Most requests need neither, so that nothing more than a place in a list is made for them: one timer looks at all of
them. What takes longer than `PAUSE` is watched by a task that hears from the server when the client is gone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .log import Line

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PAUSE = 0.05


class Watch:
    """One request. `left`: the client did; `late`: the body was. Either cancels the task that made this."""

    def __init__(self, receive: Receive, line: Line, task: "asyncio.Task[Any] | None", others: "set[Watch]") -> None:
        self.left = self.late = False
        self.receiving = True
        self.line = line
        self._receive = receive
        self._task = task
        self._others = others
        self._watcher: asyncio.Task[None] | None = None
        others.add(self)

    def received(self) -> None:
        """The body is here: from now on the client is watched."""
        self.receiving = False

    def close(self) -> None:
        self._others.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None  # which remembers how it was cancelled, and so this

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.line.over:
            self.left = True
            self.give_up()

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Watching:
    """All requests that are not watched by a task yet. `limit`: how many seconds a body may take."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._pause = min(PAUSE, limit)
        self._open: set[Watch] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def over(self, receive: Receive, line: Line) -> Watch:
        """Watch a request, in the task that answers it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(self._pause, self._look, self._loop)
        return Watch(receive, line, asyncio.current_task(self._loop), self._open)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for watch in [one for one in self._open if now - one.line.began >= self._pause]:
            if not watch.receiving:
                self._open.discard(watch)
                watch.start(loop)
            elif now - watch.line.began >= self._limit:
                self._open.discard(watch)
                watch.late = True
                watch.give_up()
        if self._open:
            loop.call_later(self._pause, self._look, loop)
        else:
            self._loop = None  # until somebody asks again
