"""Order stream events for targets that cannot interleave parts.

The first open part is passed on; events of other parts wait in order until it ends. The queue is bounded: a stream that
exceeds it fails.
"""

from collections import deque
from collections.abc import Iterator

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
)

LIMIT_WAITING = 100_000


class PartSequencer:
    """Reorders events so that parts, and the messages around them, follow one another."""

    def __init__(self) -> None:
        self.failure: ApiError | None = None  # the queue overflowed; only the error that ends the stream passes
        self._open: tuple[int, int] | None = None
        self._queue: deque[list[Event]] = deque()
        self._buffered_parts: dict[tuple[int, int], list[Event]] = {}
        self._queued_events = 0
        self._closed = False

    def order(self, event: Event) -> list[Event]:
        """Add an event and return the events that may be encoded now; events of a second open part wait."""
        if self.failure is not None and not isinstance(event, ResponseFailed):
            return []
        if self._open is None:
            if isinstance(event, PartStart) and not self._closed:
                self._open = (event.candidate, event.index)
            return [event]
        match event:
            case PartDelta() | PartEnd() if self._open == (event.candidate, event.index):
                if isinstance(event, PartDelta):
                    return [event]
                self._open = None
                return [event, *self._release()]
            case PartDelta() | PartStart() | PartEnd() | MessageStart() | MessageEnd():
                self._enqueue(event)
                return []
            case ResponseEnd() | ResponseFailed():
                return [*self.close(), event]
            case _:
                return [event]

    def _enqueue(self, event: Event) -> None:
        """Queue an event; the events of a part wait together, at the position of its start."""
        if self._queued_events >= LIMIT_WAITING:
            message = f"more than {LIMIT_WAITING} events wait for an open part to end"
            self.failure = ApiError(kind="server", message=message)
            return
        self._queued_events += 1
        if isinstance(event, PartDelta | PartEnd):
            key = (event.candidate, event.index)
            if (part := self._buffered_parts.get(key)) is not None:
                part.append(event)
                if isinstance(event, PartEnd):
                    del self._buffered_parts[key]
                return
        group = [event]
        self._queue.append(group)
        if isinstance(event, PartStart):
            self._buffered_parts[event.candidate, event.index] = group

    def _release(self) -> Iterator[Event]:
        """Yield queued events up to the first part that has not ended, which becomes the open one."""
        while self._queue and self._open is None:
            events = self._queue.popleft()
            self._queued_events -= len(events)
            first = events[0]
            if isinstance(first, PartStart) and not isinstance(events[-1], PartEnd):
                self._open = (first.candidate, first.index)
                self._buffered_parts.pop(self._open, None)
            yield from events

    def close(self) -> Iterator[Event]:
        """Yield all queued events at the end of the stream; later events pass unchanged."""
        self._closed = True
        while self._open is not None:
            self._open = None
            yield from self._release()
