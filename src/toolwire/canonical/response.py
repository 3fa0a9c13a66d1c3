"""What a model answers."""

from typing import Literal

from .content import Message
from .errors import ApiError
from .node import Node
from .request import Continuation

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
