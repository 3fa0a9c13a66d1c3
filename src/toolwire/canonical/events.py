"""An answer as it arrives.

    response := ResponseStart (message | Stopped | UsageReport | Notice)* (ResponseEnd | ResponseFailed)
    message  := MessageStart (PartStart PartDelta* PartEnd)* MessageEnd

1. `index` numbers the parts of a candidate over the whole response, from 0, and `message` its messages; parts may
   interleave, also those of different messages.
2. `PartStart.part` is the part as known at its start: what deltas bring is still missing from it.
3. A delta appends to the part's own text: the text of a Text, Refusal or Reasoning, the arguments of a ToolCall.
4. `PartEnd.final` overrides what start and deltas said.
5. `UsageReport` is a complete snapshot: the last one holds.
"""

from typing import Literal

from toolwire.canonical.content import Citation, Part, Role, Signature
from toolwire.canonical.errors import ApiError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation
from toolwire.canonical.response import Stop, Usage


class ResponseStart(Node, frozen=True):
    origin: str
    id: str | None = None
    model: str | None = None
    created: int | float | None = None
    usage: Usage | None = None
    status: str | None = None
    continuation: Continuation | None = None


class MessageStart(Node, frozen=True):
    message: int = 0
    candidate: int = 0
    role: Role = "assistant"
    id: str | None = None
    name: str | None = None
    status: str | None = None
    phase: str | None = None


class PartStart(Node, frozen=True):
    index: int
    part: Part
    message: int = 0
    candidate: int = 0


class PartDelta(Node, frozen=True):
    """`kind` says which text of a Reasoning grows, `block` which of its texts. `plain`: a text or the arguments of a
    call grow, and nothing else is said, as in nearly all; so whoever sees it need not look further."""

    index: int
    text: str = ""
    candidate: int = 0
    kind: Literal["full", "summary"] | None = None
    block: int = 0
    signature: Signature | None = None
    annotation: Citation | None = None
    plain: bool = False


class PartEnd(Node, frozen=True):
    index: int
    candidate: int = 0
    final: Part | None = None


class MessageEnd(Node, frozen=True):
    """`status`, `id` and `phase` override what the start of the message said."""

    message: int = 0
    candidate: int = 0
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class UsageReport(Node, frozen=True):
    usage: Usage


class CandidateEnd(Node, frozen=True):
    """Why a candidate ended, where the protocol says it; `stop` absent: only what was kept of the candidate."""

    stop: Stop | None
    candidate: int = 0


UNKNOWN_FRAME = "unknown frame"
"""The kind of a notice that is a frame nobody here knows: what it says is lost to other protocols."""


class Notice(Node, frozen=True):
    """Something to pass on or ignore: a ping, a progress report. It has no place in the folded response."""

    kind: str


class ResponseEnd(Node, frozen=True):
    """`model` overrides what the start said: another one may have taken over."""

    model: str | None = None
    status: str | None = None
    continuation: Continuation | None = None


class ResponseFailed(Node, frozen=True):
    """`broken`: the stream itself is at fault, cut or unreadable, not the answer that it told."""

    error: ApiError
    status: str | None = None
    broken: bool = False


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
