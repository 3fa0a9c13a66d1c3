"""What a model answers.

What several answers cost together.
"""

from typing import Any, Literal

from msgspec.structs import asdict, replace

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ApiError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "refusal",
    "filtered",
    "paused",
    "continuation",
    "context_window",
    "malformed_call",
    "cancelled",
    "error",
    "other",
]


class Stop(Node, frozen=True):
    """Why the answer ended: the common word, and the vendor's own. `sequence` is the stop sequence that was met."""

    reason: StopReason
    raw: str | None = None
    sequence: str | None = None


class Usage(Node, frozen=True):
    """Tokens; `None` is "not said". `input_tokens` includes what came from or went to a cache. `searches` and `fetches`
    are how often the provider looked something up itself. `estimated`: the provider reported none of it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    tool_use: int | None = None
    total: int | None = None
    searches: int | None = None
    fetches: int | None = None
    estimated: bool = False


class Candidate(Node, frozen=True):
    """`plain` as in `Request`."""

    index: int = 0
    messages: tuple[Message, ...] = ()
    stop: Stop | None = None
    plain: bool = False


class Response(Node, frozen=True):
    """`plain` as in `Request`."""

    origin: str
    id: str | None = None
    model: str | None = None
    candidates: tuple[Candidate, ...] = ()
    usage: Usage | None = None
    status: str | None = None
    error: ApiError | None = None
    continuation: Continuation | None = None
    created: int | float | None = None
    plain: bool = False


_COUNT_FIELDS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning", "tool_use", "total")


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """The sums; whatever else is told is the second one's."""
    if first is None or second is None:
        return first or second
    counts: dict[str, Any] = {}
    for name in _COUNT_FIELDS:
        said = [one for one in (getattr(first, name), getattr(second, name)) if one is not None]
        counts[name] = sum(said) if said else None
    return Usage(**(asdict(second) | counts | {"estimated": first.estimated or second.estimated}))


def usage_counts(usage: Usage | None) -> Usage | None:
    """The counts, and nothing of how they were told."""
    return None if usage is None else replace(usage, extras=None, wire_form=(), at=None)


def tokens_used(usage: Usage | None) -> int:
    """Tokens in and out."""
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


INCOMPLETE_STOPS: frozenset[StopReason] = frozenset(
    {"max_tokens", "context_window", "filtered", "refusal", "malformed_call", "cancelled", "error"}
)
"""Stop reasons after which no call of the response may be run: its arguments may be incomplete."""
FAILED_STOPS: frozenset[StopReason] = frozenset({"malformed_call", "error"})
"""Stop reasons of an answer that failed."""
