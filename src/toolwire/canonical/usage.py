"""What several answers cost together."""

from typing import Any

from msgspec.structs import asdict, replace

from .response import Usage

_COUNTED = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning", "tool_use", "total")


def added(first: Usage | None, second: Usage | None) -> Usage | None:
    """The sums; whatever else is told is the second one's."""
    if first is None or second is None:
        return first or second
    counts: dict[str, Any] = {}
    for name in _COUNTED:
        said = [one for one in (getattr(first, name), getattr(second, name)) if one is not None]
        counts[name] = sum(said) if said else None
    return Usage(**(asdict(second) | counts | {"estimated": first.estimated or second.estimated}))


def plain(usage: Usage | None) -> Usage | None:
    """The counts, and nothing of how they were told."""
    return None if usage is None else replace(usage, extras=None, form=(), at=None)


def spent(usage: Usage | None) -> int:
    """Tokens in and out."""
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)
