"""Stream events: a response as it arrives.

    response := ResponseStart (message | CandidateEnd | UsageReport | Notice)* (ResponseEnd | ResponseFailed)
    message  := MessageStart (PartStart PartDelta* PartEnd)* MessageEnd

1. `index` numbers the parts of a candidate across the response, from 0, and `message` its messages. Parts may
   interleave, also those of different messages.
2. `PartStart.part` is the part as known at its start, without the text that deltas bring.
3. A delta appends to the text of a Text, Refusal or Reasoning, or to the arguments of a ToolCall.
4. `PartEnd.final` overrides the start and the deltas.
5. `UsageReport` is a complete snapshot; the last one wins.
"""

from typing import Literal

from toolwire.canonical.content import Citation, Part, Role, Signature
from toolwire.canonical.errors import ApiError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation
from toolwire.canonical.response import Stop, Usage


class ResponseStart(Node, frozen=True):
    """The first event of a response."""

    origin: str
    id: str | None = None
    model: str | None = None
    created: int | float | None = None
    usage: Usage | None = None
    status: str | None = None
    continuation: Continuation | None = None


class MessageStart(Node, frozen=True):
    """The beginning of a message."""

    message: int = 0  # index within the candidate
    candidate: int = 0
    role: Role = "assistant"
    id: str | None = None
    name: str | None = None
    status: str | None = None
    phase: str | None = None


class PartStart(Node, frozen=True):
    """The beginning of a part."""

    index: int  # of the part within its candidate
    part: Part
    message: int = 0  # index of its message
    candidate: int = 0


class PartDelta(Node, frozen=True):
    """An addition to an open part."""

    index: int
    text: str = ""
    candidate: int = 0
    kind: Literal["full", "summary"] | None = None  # for Reasoning: which kind of text grows
    block: int = 0  # for Reasoning: which of its texts of that kind
    signature: Signature | None = None
    annotation: Citation | None = None
    plain: bool = False  # only `text` is set, so that readers can skip the other fields


class PartEnd(Node, frozen=True):
    """The end of a part."""

    index: int
    candidate: int = 0
    final: Part | None = None  # the complete part; overrides the start and the deltas


class MessageEnd(Node, frozen=True):
    """The end of a message; its fields override those of the start."""

    message: int = 0
    candidate: int = 0
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class UsageReport(Node, frozen=True):
    """A complete snapshot of the token usage so far."""

    usage: Usage


class CandidateEnd(Node, frozen=True):
    """The end of a candidate."""

    stop: Stop | None  # None if the event only carries extras of the candidate
    candidate: int = 0


UNKNOWN_FRAME = "unknown frame"
"""The `Notice.kind` of a frame that the decoder does not know; other protocols lose its content."""


class Notice(Node, frozen=True):
    """A ping or progress report, to be forwarded or ignored; it is not part of the folded response."""

    kind: str


class ResponseEnd(Node, frozen=True):
    """The regular end of a response."""

    model: str | None = None  # overrides the start, since another model may have taken over
    status: str | None = None
    continuation: Continuation | None = None


class ResponseFailed(Node, frozen=True):
    """The end of a response that failed."""

    error: ApiError
    status: str | None = None
    broken: bool = False  # the stream was cut or unreadable, rather than the response reporting a failure


Event = (
    ResponseStart
    | MessageStart
    | PartStart
    | PartDelta
    | PartEnd
    | MessageEnd
    | UsageReport
    | CandidateEnd
    | Notice
    | ResponseEnd
    | ResponseFailed
)
