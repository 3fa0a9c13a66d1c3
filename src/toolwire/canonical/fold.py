"""Events into the response they tell, and a response into events."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from .content import (
    Citation,
    Media,
    Message,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Seal,
    Text,
    ToolCall,
)
from .errors import ApiError
from .events import (
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
    Stopped,
    UsageReport,
)
from .node import Extras, Node
from .request import Continuation
from .response import Candidate, Response, Usage
from .text_pieces import TextPieces


class PartGrowth:
    """The additions to one part, joined as they arrive: memory grows with their text, not with their number."""

    def __init__(self) -> None:
        self.text = TextPieces()
        self._blocks: dict[tuple[str, int], TextPieces] = {}
        self._citations: list[Citation] = []
        self._seal: Seal | None = None

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
        if delta.seal is not None:
            self._seal = delta.seal

    def apply(self, part: Part) -> Part:
        """The part with everything that was added to it."""
        text, seal = "".join(self.text), self._seal
        if not (text or seal or self._blocks or self._citations):
            return part
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text, seal=seal or part.seal)
        if isinstance(part, Text):
            cited = tuple(self._citations)
            notes = (part.annotations or ()) + cited if cited else part.annotations
            return replace(part, text=part.text + text, annotations=notes, seal=seal or part.seal)
        if isinstance(part, Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning):
            return replace(part, content=self._extend_reasoning(part), seal=seal or part.seal)
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


class _OpenPart(PartGrowth):
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
            extras=_joined(start, end),
            form=start.form + end.form,
            at=start.at,
        )


def _joined(*nodes: Node) -> Extras | None:
    joined: Extras = {}
    for node in nodes:
        for family, kept in (node.extras or {}).items():
            joined.setdefault(family, {}).update(kept)
    return joined or None


_BATCH = 1024


class Folder:
    """Takes events as they come; `response` is what they have told so far."""

    def __init__(self) -> None:
        self._buffered: list[Event] = []
        self._start: ResponseStart | None = None
        self._closing: list[Node] = []
        self._messages: dict[tuple[int, int], _OpenMessage] = {}
        self._parts: dict[tuple[int, int], _OpenPart] = {}
        self._stops: dict[int, Stopped] = {}
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
        index, candidate, append = -1, -1, list[str].append
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
            part.text.settle()

    def add(self, event: Event) -> None:
        match event:
            case PartDelta():
                self.add_all([event])
            case PartStart():
                opened = self._parts[event.candidate, event.index] = _OpenPart(event)
                self._message(event.candidate, event.message).parts.append(opened)
            case PartEnd():
                if (part := self._parts.get((event.candidate, event.index))) is not None:
                    part.end = event
            case MessageStart():
                self._messages[event.candidate, event.message] = _OpenMessage(event)
            case MessageEnd():
                self._message(event.candidate, event.message).end = event
            case ResponseStart():
                self._start, self._origin = event, event.origin
                self._usage, self._status, self._continuation = event.usage, event.status, event.continuation
            case Stopped():
                self._stops[event.candidate] = event
            case UsageReport():
                self._usage = event.usage
            case ResponseEnd():
                self._closing.append(event)
                self._status = event.status or self._status
                self._continuation = event.continuation or self._continuation
                self._model = event.model or self._model
            case ResponseFailed():
                self._closing.append(event)
                self._error, self._status = event.error, event.status or self._status
            case Notice():
                pass

    def _message(self, candidate: int, message: int) -> _OpenMessage:
        key = (candidate, message)
        if key not in self._messages:
            self._messages[key] = _OpenMessage(MessageStart(candidate=candidate, message=message))
        return self._messages[key]

    def response(self) -> Response:
        self._flush()
        start = self._start or ResponseStart(origin=self._origin)
        numbers = sorted({candidate for candidate, _ in self._messages} | set(self._stops))
        return Response(
            origin=self._origin,
            id=start.id,
            model=self._model or start.model,
            created=start.created,
            candidates=tuple(self._candidate(number) for number in numbers),
            usage=self._usage,
            status=self._status,
            error=self._error,
            continuation=self._continuation,
            extras=_joined(start, *self._closing),
            form=start.form + tuple(token for node in self._closing for token in node.form),
        )

    def _candidate(self, number: int) -> Candidate:
        messages = [message for (candidate, _), message in sorted(self._messages.items()) if candidate == number]
        folded = tuple(message.finish() for message in messages)
        if (stopped := self._stops.get(number)) is None:
            return Candidate(index=number, messages=folded)
        extras = _joined(stopped)
        form, at = stopped.form, stopped.at
        return Candidate(index=number, messages=folded, stop=stopped.stop, extras=extras, form=form, at=at)


def fold(events: Iterable[Event]) -> Response:
    folder = Folder()
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
        form=response.form,
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
                form=message.form,
                at=message.at,
            )
            for part in message.parts:
                yield from _unfold_part(part, index, number, candidate.index)
                index += 1
            yield MessageEnd(candidate=candidate.index, message=number)
        kept, form = candidate.extras, candidate.form
        if candidate.stop is not None or kept or form or not candidate.messages:
            yield Stopped(candidate=candidate.index, stop=candidate.stop, extras=kept, form=form, at=candidate.at)
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
        hollow = replace(part, content=pictures, seal=None if part.content else part.seal)
    yield PartStart(index=index, part=hollow, message=message, candidate=candidate)
    yield from _deltas(part, index, candidate)
    if not (isinstance(part, ToolCall) and not part.complete):
        yield PartEnd(index=index, candidate=candidate, final=part)


def _deltas(part: Part, index: int, candidate: int) -> Iterator[PartDelta]:
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
        if part.content and part.seal is not None:
            yield PartDelta(index=index, seal=part.seal, candidate=candidate)
