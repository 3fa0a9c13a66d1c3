"""A text that grows by small pieces.

Events into the response they tell, and a response into events.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Media,
    Message,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Signature,
    Text,
    ToolCall,
)
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.node import Extras, Node
from toolwire.canonical.request import Continuation
from toolwire.canonical.response import Candidate, Response, Usage

MAX_LOOSE_PIECES = 256
append_piece = list[str].append
"""Append without a look at the number of pieces: `compact` follows after a batch of them."""


class TextPieces(list[str]):
    """The pieces of one text, for `"".join`. The loose ones at the end are joined as they become many: memory grows
    with the text, not with the number of pieces, and each character is copied once."""

    __slots__ = ("_chunks", "_joined")

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        super().__init__(pieces)
        self._chunks = 0
        self._joined = 0

    @property
    def append_count(self) -> int:
        """How many pieces were added, joined ones included."""
        return len(self) + self._joined

    def append(self, text: str) -> None:
        super().append(text)
        self.compact()

    def extend(self, texts: Iterable[str]) -> None:
        super().extend(texts)
        self.compact()

    def compact(self) -> None:
        """Join the loose pieces if there are many, after some were added by `+=` or `append_piece`."""
        if len(self) - self._chunks >= MAX_LOOSE_PIECES:
            self._joined += len(self) - self._chunks - 1
            self[self._chunks :] = ["".join(self[self._chunks :])]
            self._chunks += 1

    def text_after(self, count: int, length: int) -> list[str]:
        """The text behind the first `count` pieces that were added, which have `length` characters."""
        place = count - self._joined
        return self[place:] if place >= self._chunks else ["".join(self)[length:]]


class PartAccumulator:
    """The additions to one part, joined as they arrive: memory grows with their text, not with their number."""

    def __init__(self) -> None:
        self.text = TextPieces()
        self._blocks: dict[tuple[str, int], TextPieces] = {}
        self._citations: list[Citation] = []
        self._signature: Signature | None = None

    def add(self, delta: PartDelta) -> None:
        if delta.kind is None:
            self.text.append(delta.text)
        elif (block := self._blocks.get((delta.kind, delta.block))) is not None:
            block.append(delta.text)
        else:
            block = self._blocks[delta.kind, delta.block] = TextPieces()
            block.append(delta.text)
        if delta.annotation is not None:
            self._citations.append(delta.annotation)
        if delta.signature is not None:
            self._signature = delta.signature

    def apply(self, part: Part) -> Part:
        """The part with everything that was added to it."""
        text, seal = "".join(self.text), self._signature
        if not (text or seal or self._blocks or self._citations):
            return part
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text, signature=seal or part.signature)
        if isinstance(part, Text):
            cited = tuple(self._citations)
            notes = (part.annotations or ()) + cited if cited else part.annotations
            return replace(part, text=part.text + text, annotations=notes, signature=seal or part.signature)
        if isinstance(part, Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning):
            return replace(part, content=self._extend_reasoning(part), signature=seal or part.signature)
        return part

    def _extend_reasoning(self, part: Reasoning) -> tuple[ReasoningText | Media, ...]:
        content: list[ReasoningText | Media] = list(part.content)
        counts = {"full": 0, "summary": 0}
        places: dict[tuple[str, int], int] = {}
        for position, block in enumerate(content):
            if isinstance(block, ReasoningText):
                places[block.kind, counts[block.kind]] = position
                counts[block.kind] += 1
        for (kind, number), pieces in self._blocks.items():
            added = "".join(pieces)
            position = places.get((kind, number), -1)
            if position < 0:
                content.append(ReasoningText(kind="summary" if kind == "summary" else "full", text=added))
            elif isinstance(block := content[position], ReasoningText):
                content[position] = replace(block, text=block.text + added)
        return tuple(content)


class _OpenPart(PartAccumulator):
    """A part while it grows."""

    def __init__(self, start: PartStart) -> None:
        super().__init__()
        self.start = start
        self.end: PartEnd | None = None

    def finish(self) -> Part:
        if self.end is not None and self.end.final is not None:
            return self.end.final
        part = self.apply(self.start.part)
        if self.end is None and isinstance(part, ToolCall):
            part = replace(part, complete=False)
        return part


class _OpenMessage:
    def __init__(self, start: MessageStart) -> None:
        self.start = start
        self.end: MessageEnd | None = None
        self.parts: list[_OpenPart] = []

    def finish(self) -> Message:
        start, end = self.start, self.end or MessageEnd()
        return Message(
            role=start.role,
            parts=tuple(part.finish() for part in self.parts),
            id=end.id or start.id,
            name=start.name,
            status=end.status or start.status,
            phase=end.phase or start.phase,
            extras=_merge_extras(start, end),
            wire_form=start.wire_form + end.wire_form,
            at=start.at,
        )


def _merge_extras(*nodes: Node) -> Extras | None:
    joined: Extras = {}
    for node in nodes:
        for family, kept in (node.extras or {}).items():
            joined.setdefault(family, {}).update(kept)
    return joined or None


_BATCH = 1024


class ResponseAccumulator:
    """Takes events as they come; `response` is what they have told so far."""

    def __init__(self) -> None:
        self._buffered: list[Event] = []
        self._start: ResponseStart | None = None
        self._end_events: list[Node] = []
        self._messages: dict[tuple[int, int], _OpenMessage] = {}
        self._parts: dict[tuple[int, int], _OpenPart] = {}
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._usage: Usage | None = None
        self._status: str | None = None
        self._error: ApiError | None = None
        self._continuation: Continuation | None = None
        self._origin = ""
        self._model: str | None = None

    def buffer(self, events: list[Event]) -> None:
        """Take events in, and add them later, a few dozen at once."""
        self._buffered += events
        if len(self._buffered) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        buffered, self._buffered = self._buffered, []
        self.add_all(buffered)

    def add_all(self, events: Iterable[Event]) -> None:
        part: _OpenPart | None = None
        index, candidate, append = -1, -1, append_piece
        for event in events:
            if type(event) is not PartDelta:
                self.add(event)
                index = -1
            elif event.index != index or event.candidate != candidate or not event.plain:
                if (part := self._parts.get((event.candidate, event.index))) is not None:
                    part.add(event)
                    index, candidate = event.index, event.candidate
            elif part is not None:
                append(part.text, event.text)
        if part is not None:
            part.text.compact()

    def add(self, event: Event) -> None:
        match event:
            case PartDelta():
                self.add_all([event])
            case PartStart():
                opened = self._parts[event.candidate, event.index] = _OpenPart(event)
                self._open_message(event.candidate, event.message).parts.append(opened)
            case PartEnd():
                if (part := self._parts.get((event.candidate, event.index))) is not None:
                    part.end = event
            case MessageStart():
                self._messages[event.candidate, event.message] = _OpenMessage(event)
            case MessageEnd():
                self._open_message(event.candidate, event.message).end = event
            case ResponseStart():
                self._start, self._origin = event, event.origin
                self._usage, self._status, self._continuation = event.usage, event.status, event.continuation
            case CandidateEnd():
                self._candidate_ends[event.candidate] = event
            case UsageReport():
                self._usage = event.usage
            case ResponseEnd():
                self._end_events.append(event)
                self._status = event.status or self._status
                self._continuation = event.continuation or self._continuation
                self._model = event.model or self._model
            case ResponseFailed():
                self._end_events.append(event)
                self._error, self._status = event.error, event.status or self._status
            case Notice():
                pass

    def _open_message(self, candidate: int, message: int) -> _OpenMessage:
        key = (candidate, message)
        if key not in self._messages:
            self._messages[key] = _OpenMessage(MessageStart(candidate=candidate, message=message))
        return self._messages[key]

    def response(self) -> Response:
        self._flush()
        start = self._start or ResponseStart(origin=self._origin)
        numbers = sorted({candidate for candidate, _ in self._messages} | set(self._candidate_ends))
        return Response(
            origin=self._origin,
            id=start.id,
            model=self._model or start.model,
            created=start.created,
            candidates=tuple(self._fold_candidate(number) for number in numbers),
            usage=self._usage,
            status=self._status,
            error=self._error,
            continuation=self._continuation,
            extras=_merge_extras(start, *self._end_events),
            wire_form=start.wire_form + tuple(token for node in self._end_events for token in node.wire_form),
        )

    def _fold_candidate(self, number: int) -> Candidate:
        messages = [message for (candidate, _), message in sorted(self._messages.items()) if candidate == number]
        folded = tuple(message.finish() for message in messages)
        if (stopped := self._candidate_ends.get(number)) is None:
            return Candidate(index=number, messages=folded)
        extras = _merge_extras(stopped)
        form, at = stopped.wire_form, stopped.at
        return Candidate(index=number, messages=folded, stop=stopped.stop, extras=extras, wire_form=form, at=at)


def fold(events: Iterable[Event]) -> Response:
    folder = ResponseAccumulator()
    folder.add_all(events)
    return folder.response()


def unfold(response: Response) -> Iterator[Event]:
    """The events that would have told this response, in one delta per text."""
    yield ResponseStart(
        origin=response.origin,
        id=response.id,
        model=response.model,
        created=response.created,
        usage=response.usage,
        status=response.status,
        continuation=response.continuation,
        extras=response.extras,
        wire_form=response.wire_form,
    )
    for candidate in response.candidates:
        index = 0
        for number, message in enumerate(candidate.messages):
            yield MessageStart(
                candidate=candidate.index,
                message=number,
                role=message.role,
                id=message.id,
                name=message.name,
                status=message.status,
                phase=message.phase,
                extras=message.extras,
                wire_form=message.wire_form,
                at=message.at,
            )
            for part in message.parts:
                yield from _unfold_part(part, index, number, candidate.index)
                index += 1
            yield MessageEnd(candidate=candidate.index, message=number)
        kept, form = candidate.extras, candidate.wire_form
        if candidate.stop is not None or kept or form or not candidate.messages:
            yield CandidateEnd(
                candidate=candidate.index, stop=candidate.stop, extras=kept, wire_form=form, at=candidate.at
            )
    if response.error is not None:
        yield ResponseFailed(error=response.error, status=response.status)
        return
    if response.usage is not None:
        yield UsageReport(usage=response.usage)
    yield ResponseEnd(status=response.status, continuation=response.continuation)


def _unfold_part(part: Part, index: int, message: int, candidate: int) -> Iterator[Event]:
    hollow = part
    if isinstance(part, Text | Refusal):
        hollow = replace(part, text="")
    elif isinstance(part, ToolCall):
        hollow = replace(part, arguments="")
    elif isinstance(part, Reasoning):
        pictures = tuple(block for block in part.content if isinstance(block, Media))
        hollow = replace(part, content=pictures, signature=None if part.content else part.signature)
    yield PartStart(index=index, part=hollow, message=message, candidate=candidate)
    yield from _unfold_deltas(part, index, candidate)
    if not (isinstance(part, ToolCall) and not part.complete):
        yield PartEnd(index=index, candidate=candidate, final=part)


def _unfold_deltas(part: Part, index: int, candidate: int) -> Iterator[PartDelta]:
    if isinstance(part, Text | Refusal) and part.text:
        yield PartDelta(index=index, text=part.text, candidate=candidate)
    elif isinstance(part, ToolCall) and part.arguments:
        yield PartDelta(index=index, text=part.arguments, candidate=candidate)
    elif isinstance(part, Reasoning):
        counts = {"full": 0, "summary": 0}
        for block in part.content:
            if isinstance(block, ReasoningText):
                number = counts[block.kind]
                counts[block.kind] += 1
                yield PartDelta(index=index, text=block.text, kind=block.kind, block=number, candidate=candidate)
        if part.content and part.signature is not None:
            yield PartDelta(index=index, signature=part.signature, candidate=candidate)
