"""Detection of a model that repeats its calls without getting further."""

import hashlib
from collections.abc import Iterable

import msgspec

from toolwire.canonical.content import ToolCall

_MAX_CYCLE_LENGTH = 8
"""Maximum turns in a cycle that is recognized."""


def add_digest(digests: tuple[bytes, ...], calls: Iterable[ToolCall], repeats: int) -> tuple[bytes, ...]:
    """Return the digests of recent turns with that of a turn's calls, as many as `describe_repetition` needs."""
    digest = hashlib.sha256(msgspec.json.encode(_distinct(calls))).digest()
    return (*digests, digest)[-_MAX_CYCLE_LENGTH * (repeats + 1) :]


def describe_repetition(recent: tuple[bytes, ...], calls: Iterable[ToolCall], repeats: int) -> str | None:
    """Describe the turn or cycle of turns that was repeated more than `repeats` times; None if there is none.

    `recent` are the digests of recent turns, and `calls` those of the last one.
    """
    times = repeats + 1
    for length in range(1, min(_MAX_CYCLE_LENGTH, len(recent) // times) + 1):
        if times > 1 and recent[-1] != recent[-1 - length]:
            continue
        latest = recent[-length * times :]
        if latest[length:] == latest[:-length]:
            names = ", ".join(sorted({name for name, _ in _distinct(calls)}))
            pattern = "was called with the same arguments" if length == 1 else f"repeated a cycle of {length} turns"
            return f"{names} {pattern} {times} times in a row"
    return None


def _distinct(calls: Iterable[ToolCall]) -> list[tuple[str, str]]:
    """Return names and arguments of the calls, without duplicates and in a fixed order."""
    return sorted({(call.name, call.arguments) for call in calls})
