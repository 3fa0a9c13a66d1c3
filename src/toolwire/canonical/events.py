"""Stream events: a response as it arrives.

    response := ResponseStart (message | CandidateEnd | UsageReport | Notice)* (ResponseEnd | ResponseFailed)
    message  := MessageStart (PartStart (PartDelta | PartDeltas)* PartEnd)* MessageEnd

1. `index` numbers the parts of a candidate across the response, from 0, and `message` its messages. Parts may
   interleave, also those of different messages.
2. `PartStart.part` is the part as known at its start, without the text that deltas bring.
3. A delta appends to the text of a Text, Refusal or Reasoning, or to the arguments of a ToolCall. `PartDeltas` are
   several that arrived together, as one event. Encoders send as many to the client; the runtime gets them one by one.
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


class PartDeltas(Node, frozen=True):
    """Additions of text to an open part that arrived together."""

    index: int
    texts: list[str]  # at least one, none empty; each stands for a `PartDelta` with the other fields
    candidate: int = 0
    kind: Literal["full", "summary"] | None = None
    block: int = 0
    wire: bytes = b""  # JSON that holds all texts, if it is at hand; searching it is faster than searching them
    known: bool = False  # the only text is one of `KNOWN_TEXTS`

    @property
    def text(self) -> str:
        """The texts of all deltas, joined."""
        return self.texts[0] if len(self.texts) == 1 else "".join(self.texts)

    def single_deltas(self) -> list[PartDelta]:
        """Return the deltas as one event each."""
        index, candidate, kind, block = self.index, self.candidate, self.kind, self.block
        return [PartDelta(index=index, text=text, candidate=candidate, kind=kind, block=block) for text in self.texts]


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
    | PartDeltas
    | PartEnd
    | MessageEnd
    | UsageReport
    | CandidateEnd
    | Notice
    | ResponseEnd
    | ResponseFailed
)


def append_text(events: list[Event], index: int, text: str, candidate: int = 0) -> None:
    """Append the delta of a text to events that arrive together."""
    if not text:
        events.append(PartDelta(index=index, candidate=candidate))
    elif events and type(last := events[-1]) is PartDeltas and last.index == index and last.candidate == candidate:
        last.texts.append(text)
    else:
        events.append(PartDeltas(index=index, texts=[text], candidate=candidate))


def separate_deltas(events: list[Event]) -> list[Event]:
    """Return the events with each delta as an event of its own; the same list if they are already."""
    if not any(type(event) is PartDeltas for event in events):
        return events
    separate: list[Event] = []
    for event in events:
        if type(event) is PartDeltas:
            separate += event.single_deltas()
        else:
            separate.append(event)
    return separate
