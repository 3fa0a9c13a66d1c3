"""A model's response, and arithmetic on token usage."""

from typing import Any, Literal

from msgspec.structs import replace

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
    """The reason why a candidate ended."""

    reason: StopReason
    raw: str | None = None  # the vendor's own word for `reason`
    sequence: str | None = None  # the stop sequence that was met


class Usage(Node, frozen=True):
    """Token counts; `None` means not reported."""

    input_tokens: int | None = None  # includes tokens read from and written to a cache
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    tool_use: int | None = None
    total: int | None = None
    searches: int | None = None  # web searches by the provider
    fetches: int | None = None  # page fetches by the provider
    estimated: bool = False  # counted by toolwire, since the provider reported nothing
    requests: int | None = None  # model requests of a run
    cost: float | None = None  # in US dollars, for a run with a limit on money


class Candidate(Node, frozen=True):
    """One of the alternative answers of a response."""

    index: int = 0
    messages: tuple[Message, ...] = ()
    stop: Stop | None = None


class Response(Node, frozen=True):
    """A complete response of a model, in any protocol."""

    origin: str
    id: str | None = None
    model: str | None = None
    candidates: tuple[Candidate, ...] = ()
    usage: Usage | None = None
    status: str | None = None
    error: ApiError | None = None
    continuation: Continuation | None = None
    created: int | float | None = None


_COUNT_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read",
    "cache_write",
    "reasoning",
    "tool_use",
    "total",
    "searches",
    "fetches",
    "requests",
    "cost",
)


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Sum two usages; fields that are not counts come from the second."""
    if first is None or second is None:
        return first or second
    counts: dict[str, Any] = {}
    for name in _COUNT_FIELDS:
        if (count := getattr(first, name)) is not None:
            counts[name] = count + (getattr(second, name) or 0)
    return replace(second, **counts, estimated=first.estimated or second.estimated)


def usage_counts(usage: Usage | None) -> Usage | None:
    """Return the token counts without extras and wire form."""
    return None if usage is None else replace(usage, extras=None, wire_form=(), at=None)


def tokens_used(usage: Usage | None) -> int:
    """Return input plus output tokens, or 0 if the provider reported none."""
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


INCOMPLETE_STOPS: frozenset[StopReason] = frozenset(
    {"max_tokens", "context_window", "filtered", "refusal", "malformed_call", "cancelled", "error"}
)
"""Stop reasons after which no tool call may run, since its arguments may be incomplete."""
FAILED_STOPS: frozenset[StopReason] = frozenset({"malformed_call", "error"})
"""Stop reasons of a failed response."""
