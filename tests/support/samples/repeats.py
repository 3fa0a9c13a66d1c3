"""Recordings that repeat earlier ones: each of their values is at a position where an earlier one has a value, too.

Most recordings do. A law that translates each recording to every target then tests the same few lines again.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from tests.support.samples import corpus

# Members whose text decides what the other members of an object mean.
_DISCRIMINATORS = ("type", "role", "object", "status", "finish_reason", "stop_reason", "finishReason", "event_type")


@cache
def repeated_recordings() -> frozenset[str]:
    """Return the names of the recordings that repeat earlier ones."""
    return find_repeats(corpus.all_recordings())


def find_repeats(recordings: Iterable[corpus.Recording]) -> frozenset[str]:
    """Return the names of those whose request, response and stream have no position of their own."""
    seen: dict[str, set[tuple[Any, ...]]] = {}
    repeats = set()
    for exchange in recordings:
        positions = set(_exchange_positions(exchange))
        known = seen.setdefault(exchange.protocol, set())
        if positions <= known:
            repeats.add(exchange.id)
        known |= positions
    return frozenset(repeats)


def _exchange_positions(exchange: corpus.Recording) -> Iterator[tuple[Any, ...]]:
    yield from _positions(exchange.request, ("request",))
    yield from _positions(exchange.response, ("response",))
    for frame in _frames(exchange.wire):
        yield from _positions(frame, ("stream",))


def _frames(wire: bytes) -> Iterable[Any]:
    for line in wire.splitlines():
        data = line.removeprefix(b"data:").strip()
        if data.startswith(b"{"):
            try:
                yield msgspec.json.decode(data)
            except msgspec.DecodeError:
                yield None  # a frame of several lines, or a broken one


def _positions(value: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the position of each value: keys and discriminators all the way up, and its type."""
    if isinstance(value, dict):
        kinds = tuple(text for name in _DISCRIMINATORS if isinstance(text := value.get(name), str))
        yield (*above, kinds, dict)
        for key, inner in value.items():
            yield from _positions(inner, (*above, kinds, key))
    elif isinstance(value, list):
        yield (*above, list, min(len(value), 2))
        for inner in value:
            yield from _positions(inner, (*above, list))
    else:
        yield (*above, type(value), not value)
