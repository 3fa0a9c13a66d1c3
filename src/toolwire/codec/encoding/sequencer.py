"""Parts one after the other, for targets whose streams can't interleave them.

The first open part speaks; what belongs to others waits, in order, until it ends. What waits is bounded: a stream that
goes beyond that has failed.
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
    """Takes events one by one, gives them with parts (and the messages around them) strictly one after the other.

    `failure`: too much waits. From then on only the error that ends the stream is heard.
    """

    def __init__(self) -> None:
        self.failure: ApiError | None = None
        self._open: tuple[int, int] | None = None
        self._queue: deque[list[Event]] = deque()
        self._buffered_parts: dict[tuple[int, int], list[Event]] = {}
        self._queued_events = 0
        self._closed = False

    def order(self, event: Event) -> list[Event]:
        """What may be told now that this event is here."""
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
        """A part's events wait together, in the place of its start."""
        if self._queued_events >= LIMIT_WAITING:
            why = f"more than {LIMIT_WAITING} events wait for an open part to end"
            self.failure = ApiError(kind="server", message=why)
            return
        self._queued_events += 1
        if isinstance(event, PartDelta | PartEnd):
            key = (event.candidate, event.index)
            if (part := self._buffered_parts.get(key)) is not None:
                part.append(event)
                if isinstance(event, PartEnd):
                    del self._buffered_parts[key]
                return
        alone = [event]
        self._queue.append(alone)
        if isinstance(event, PartStart):
            self._buffered_parts[event.candidate, event.index] = alone

    def _release(self) -> Iterator[Event]:
        """What waited, up to and with the first part that has not ended yet: that one is open then."""
        while self._queue and self._open is None:
            events = self._queue.popleft()
            self._queued_events -= len(events)
            first = events[0]
            if isinstance(first, PartStart) and not isinstance(events[-1], PartEnd):
                self._open = (first.candidate, first.index)
                self._buffered_parts.pop(self._open, None)
            yield from events

    def close(self) -> Iterator[Event]:
        """At the end of the stream: what still waits. From then on all events pass as they come."""
        self._closed = True
        while self._open is not None:
            self._open = None
            yield from self._release()
