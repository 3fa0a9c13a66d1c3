"""Parts one after the other, for targets whose streams can't interleave them.

The first open part speaks; what belongs to others waits, in order, until it ends. What waits is bounded.
"""

from collections.abc import Iterable, Iterator

from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseFailed,
)

LIMIT_WAITING = 100_000


class Sequence:
    """Feed events, get them with parts (and the messages around them) strictly one after the other."""

    def __init__(self) -> None:
        self._open: tuple[int, int] | None = None
        self._waiting: list[Event] = []

    def order(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            yield from self._take(event)

    def _take(self, event: Event) -> Iterator[Event]:
        if isinstance(event, PartDelta):
            if self._open == (event.candidate, event.index) or self._open is None:
                yield event
            else:
                self._wait(event)
        elif self._open is None:
            if isinstance(event, PartStart):
                self._open = (event.candidate, event.index)
            yield event
        elif isinstance(event, PartEnd) and self._open == (event.candidate, event.index):
            yield event
            self._open = None
            yield from self._release()
        elif isinstance(event, PartStart | PartEnd | MessageStart | MessageEnd):
            self._wait(event)
        elif isinstance(event, ResponseFailed):
            waiting, self._waiting, self._open = self._waiting, [], None
            yield from waiting
            yield event
        else:
            yield event

    def _wait(self, event: Event) -> None:
        if len(self._waiting) >= LIMIT_WAITING:
            raise ValueError(f"more than {LIMIT_WAITING} events wait for an open part to end")
        self._waiting.append(event)

    def _release(self) -> Iterator[Event]:
        """What waited, until a part is open again that has not ended among it."""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            yield from self._take(event)

    def close(self) -> Iterator[Event]:
        """At the end of the stream: what still waits."""
        while self._open is not None:
            self._open = None
            yield from self._release()
