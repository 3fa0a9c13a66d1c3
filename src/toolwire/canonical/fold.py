"""Fold stream events into a response, and unfold a response into events."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

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
    PartDelta,
    PartDeltas,
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


class TextPieces(list[str]):
    """A growing list of text pieces for `"".join`, compacted from time to time.

    Memory grows with the text rather than with the number of pieces, and each character is copied once.
    """

    __slots__ = ("_chunks", "_joined")

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        super().__init__(pieces)
        self._chunks = 0
        self._joined = 0

    @property
    def append_count(self) -> int:
        """Return the number of pieces added so far, including joined ones."""
        return len(self) + self._joined

    def append(self, text: str) -> None:
        """Append a piece, and join the loose pieces once there are many."""
        super().append(text)
        self.compact()

    def extend(self, texts: Iterable[str]) -> None:
        """Append several pieces, then join the loose ones if there are many."""
        super().extend(texts)
        self.compact()

    def compact(self) -> None:
        """Join the loose pieces if there are many, after `+=` added some."""
        if len(self) - self._chunks >= MAX_LOOSE_PIECES:
            self._joined += len(self) - self._chunks - 1
            self[self._chunks :] = ["".join(self[self._chunks :])]
            self._chunks += 1

    def text_after(self, count: int, length: int) -> list[str]:
        """Return the pieces after the first `count` ones, which have `length` characters together."""
        start = count - self._joined
        return self[start:] if start >= self._chunks else ["".join(self)[length:]]


class PartAccumulator:
    """The deltas of one part, joined as they arrive."""

    def __init__(self) -> None:
        self.text = TextPieces()
        self._blocks: dict[tuple[str, int], TextPieces] = {}
        self._citations: list[Citation] = []
        self._signature: Signature | None = None

    def add(self, delta: PartDelta | PartDeltas) -> None:
        """Add the text, arguments or signature of a delta, or the texts of several."""
        pieces = self._pieces(delta.kind, delta.block)
        if isinstance(delta, PartDeltas):
            pieces.extend(delta.texts)
            return
        pieces.append(delta.text)
        if delta.annotation is not None:
            self._citations.append(delta.annotation)
        if delta.signature is not None:
            self._signature = delta.signature

    def _pieces(self, kind: str | None, block: int) -> TextPieces:
        """Return the text that deltas of this kind extend."""
        if kind is None:
            return self.text
        if (pieces := self._blocks.get((kind, block))) is None:
            pieces = self._blocks[kind, block] = TextPieces()
        return pieces

    def apply(self, part: Part) -> Part:
        """Return the part with all deltas applied."""
        text, signature = "".join(self.text), self._signature
        if not (text or signature or self._blocks or self._citations):
            return part
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text, signature=signature or part.signature)
        if isinstance(part, Text):
            citations = tuple(self._citations)
            annotations = (part.annotations or ()) + citations if citations else part.annotations
            return replace(part, text=part.text + text, annotations=annotations, signature=signature or part.signature)
        if isinstance(part, Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning):
            return replace(part, content=self._extend_reasoning(part), signature=signature or part.signature)
        return part

    def _extend_reasoning(self, part: Reasoning) -> tuple[ReasoningText | Media, ...]:
        """Return the blocks of a reasoning part, each with the texts that arrived for it."""
        content: list[ReasoningText | Media] = list(part.content)
        counts = {"full": 0, "summary": 0}
        positions: dict[tuple[str, int], int] = {}
        for position, block in enumerate(content):
            if isinstance(block, ReasoningText):
                positions[block.kind, counts[block.kind]] = position
                counts[block.kind] += 1
        for (kind, number), pieces in self._blocks.items():
            added = "".join(pieces)
            position = positions.get((kind, number), -1)
            if position < 0:
                content.append(ReasoningText(kind="summary" if kind == "summary" else "full", text=added))
            elif isinstance(block := content[position], ReasoningText):
                content[position] = replace(block, text=block.text + added)
        return tuple(content)


class _OpenPart(PartAccumulator):
    """A part that has started and may still grow."""

    def __init__(self, start: PartStart) -> None:
        super().__init__()
        self.start = start
        self.end: PartEnd | None = None

    def finish(self) -> Part:
        """Return the final part; a tool call that never ended is marked incomplete."""
        if self.end is not None and self.end.final is not None:
            return self.end.final
        part = self.apply(self.start.part)
        if self.end is None and isinstance(part, ToolCall):
            part = replace(part, complete=False)
        return part


class _OpenMessage:
    """A message that has started and may still grow."""

    def __init__(self, start: MessageStart) -> None:
        self.start = start
        self.end: MessageEnd | None = None
        self.parts: list[_OpenPart] = []

    def finish(self) -> Message:
        """Return the message with its finished parts."""
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
    """Merge the extras (wire fields without a canonical counterpart) of several nodes; later nodes win."""
    merged: Extras = {}
    for node in nodes:
        for family, fields in (node.extras or {}).items():
            merged.setdefault(family, {}).update(fields)
    return merged or None


class ResponseAccumulator:
    """Accumulates events; `response()` returns what has arrived so far."""

    def __init__(self) -> None:
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

    def add_all(self, events: Iterable[Event]) -> None:
        """Add events."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Add one event to the candidate, message or part that it belongs to."""
        if (handler := self._HANDLERS.get(type(event))) is not None:
            handler(self, event)

    def _add_delta(self, event: PartDelta | PartDeltas) -> None:
        """Add to the text of an open part."""
        if (part := self._parts.get((event.candidate, event.index))) is not None:
            part.add(event)

    def _start_part(self, event: PartStart) -> None:
        """Open a part."""
        part = self._parts[event.candidate, event.index] = _OpenPart(event)
        self._open_message(event.candidate, event.message).parts.append(part)

    def _end_part(self, event: PartEnd) -> None:
        """End an open part."""
        if (part := self._parts.get((event.candidate, event.index))) is not None:
            part.end = event

    def _start_message(self, event: MessageStart) -> None:
        """Open a message."""
        self._messages[event.candidate, event.message] = _OpenMessage(event)

    def _end_message(self, event: MessageEnd) -> None:
        """End a message."""
        self._open_message(event.candidate, event.message).end = event

    def _start_response(self, event: ResponseStart) -> None:
        """Set the fields that are known at the start."""
        self._start, self._origin = event, event.origin
        self._usage, self._status, self._continuation = event.usage, event.status, event.continuation

    def _end_candidate(self, event: CandidateEnd) -> None:
        """End a candidate."""
        self._candidate_ends[event.candidate] = event

    def _set_usage(self, event: UsageReport) -> None:
        """Set the token usage."""
        self._usage = event.usage

    def _end_response(self, event: ResponseEnd) -> None:
        """Set the fields that the end overrides."""
        self._end_events.append(event)
        self._status = event.status or self._status
        self._continuation = event.continuation or self._continuation
        self._model = event.model or self._model

    def _fail_response(self, event: ResponseFailed) -> None:
        """Set the error."""
        self._end_events.append(event)
        self._error, self._status = event.error, event.status or self._status

    _HANDLERS: ClassVar[dict[type, Callable[["ResponseAccumulator", Any], None]]] = {
        PartDelta: _add_delta,
        PartDeltas: _add_delta,
        PartStart: _start_part,
        PartEnd: _end_part,
        MessageStart: _start_message,
        MessageEnd: _end_message,
        ResponseStart: _start_response,
        CandidateEnd: _end_candidate,
        UsageReport: _set_usage,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }

    def _open_message(self, candidate: int, message: int) -> _OpenMessage:
        """Return the message with this index, creating it if its start event is missing."""
        key = (candidate, message)
        if key not in self._messages:
            self._messages[key] = _OpenMessage(MessageStart(candidate=candidate, message=message))
        return self._messages[key]

    def response(self) -> Response:
        """Build the response from all events so far."""
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
        """Build one candidate from its messages and its end event."""
        messages = [message for (candidate, _), message in sorted(self._messages.items()) if candidate == number]
        folded = tuple(message.finish() for message in messages)
        if (end := self._candidate_ends.get(number)) is None:
            return Candidate(index=number, messages=folded)
        extras = _merge_extras(end)
        wire_form, at = end.wire_form, end.at
        return Candidate(index=number, messages=folded, stop=end.stop, extras=extras, wire_form=wire_form, at=at)


def fold(events: Iterable[Event]) -> Response:
    """Build the response that a complete sequence of stream events amounts to."""
    accumulator = ResponseAccumulator()
    accumulator.add_all(events)
    return accumulator.response()


def unfold(response: Response, *, deltas: bool = True) -> Iterator[Event]:
    """Yield the stream events that amount to a response, with one delta per text.

    Without `deltas`, each part is complete at its start.
    """
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
                if deltas:
                    yield from _unfold_part(part, index, number, candidate.index)
                else:
                    yield PartStart(index=index, part=part, message=number, candidate=candidate.index)
                    if type(part) is not ToolCall or part.complete:
                        yield PartEnd(index=index, candidate=candidate.index, final=part)
                index += 1
            yield MessageEnd(candidate=candidate.index, message=number)
        yield CandidateEnd(
            candidate=candidate.index,
            stop=candidate.stop,
            extras=candidate.extras,
            wire_form=candidate.wire_form,
            at=candidate.at,
        )
    if response.error is not None:
        yield ResponseFailed(error=response.error, status=response.status)
        return
    if response.usage is not None:
        yield UsageReport(usage=response.usage)
    yield ResponseEnd(status=response.status, continuation=response.continuation)


def _unfold_part(part: Part, index: int, message: int, candidate: int) -> Iterator[Event]:
    """Yield the start, deltas and end of one part."""
    initial = part
    if isinstance(part, Text | Refusal):
        initial = replace(part, text="")
    elif isinstance(part, ToolCall):
        initial = replace(part, arguments="")
    elif isinstance(part, Reasoning):
        media = tuple(block for block in part.content if isinstance(block, Media))
        initial = replace(part, content=media, signature=None if part.content else part.signature)
    yield PartStart(index=index, part=initial, message=message, candidate=candidate)
    yield from _unfold_deltas(part, index, candidate)
    if not (isinstance(part, ToolCall) and not part.complete):
        yield PartEnd(index=index, candidate=candidate, final=part)


def _unfold_deltas(part: Part, index: int, candidate: int) -> Iterator[PartDelta]:
    """Yield one delta for each text of a part, and one for the signature of reasoning."""
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
