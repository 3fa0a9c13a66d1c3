"""Gemini's stream, to canonical events and back.

    chunk*, each a whole GenerateContentResponse with what is new in `parts`; the end is that of the connection

1. Texts of one kind (said, or thought) in a row are one part, while nothing else is said of them. A part with a
   signature is always one of its own: signatures prove the part that they stand on.
2. Calls arrive whole, or by their paths (`framing.Arguments`), one after the other; what is new is told at once.
3. Counts are cumulative; the last ones hold, and whatever a candidate says of itself likewise.
4. A stream is complete when each of its candidates said why it ended. Only then is that told.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.fields import BAD_JSON, Reader, check_candidate
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import joined, known, rest
from toolwire.protocols.gemini.parts.content import decode_part
from toolwire.protocols.gemini.parts.grounding import ground
from toolwire.protocols.gemini.parts.messages import NO_PARTS, decode_content
from toolwire.protocols.gemini.parts.signatures import decode_seal
from toolwire.protocols.gemini.parts.spelling import Spelling
from toolwire.protocols.gemini.response.body import (
    NO_CANDIDATES,
    decode_created,
    decode_feedback,
    decode_stop,
    decode_usage,
    read_response,
)
from toolwire.protocols.gemini.response.errors import decode_error
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CallShape,
    CandidateShape,
    ContentShape,
    MoreTextShape,
    PartialShape,
    PartShape,
    ResponseShape,
    UsageShape,
)

from .framing import Arguments, Splitter

_fast = msgspec.json.Decoder(ResponseShape).decode
_more_text = msgspec.json.Decoder(MoreTextShape).decode
_read_pieces = Reader[list[PartialShape]](list[PartialShape], FAMILY).read
_TRUE = b"true"


class Speaker:
    """One candidate while it speaks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = False
        self.calls = False
        self.reason: Any = UNSET
        self.kept: dict[str, Any] = {}
        self._texts: dict[int, TextPieces] = {}
        self._next = 0
        self._kind: str | None = None
        self._call: tuple[int, Arguments] | None = None
        self._proofs: list[Text] = []

    def take(self, shape: CandidateShape, events: list[Event]) -> None:
        spelling = Spelling(f"/candidates/{self.number}")
        spelling.read(shape)
        if shape.content is not UNSET:
            self._content(shape.content, events)
        if shape.finish_reason is not UNSET:
            self.reason = shape.finish_reason
        if found := spelling.kept("Candidate", (shape, "")):
            self.kept = _later(self.kept, found)

    def _content(self, shape: ContentShape, events: list[Event]) -> None:
        if not self.started:
            self.started = True
            bare = ContentShape(parts=[], role=shape.role, unknown=shape.unknown, nulls=shape.nulls)
            message: Message = decode_content(bare, "", "assistant")
            start = MessageStart(candidate=self.number, extras=message.extras, form=message.form, at="/content")
            events.append(start)
        for part in shape.parts if shape.parts is not UNSET else ():
            self._part(part, events)

    def _part(self, part: PartShape, events: list[Event]) -> None:
        if type(part.text) is str and part == PartShape(text=part.text, thought=part.thought):
            self.text(part.text, "thought" if part.thought is True else "text", events)
            return
        call = part.function_call
        if isinstance(call, CallShape) and (self._call is not None or _is_partial(call)):
            self._piece(part, call, events)
            return
        made = decode_part(part, f"/candidates/{self.number}/content/parts")
        if self._kind == "text" and isinstance(made, Text) and not made.text:
            # A proof behind the last word: what the word rests on may come with it, or later.
            self._proofs.append(made)
            return
        self._close(events)
        self._whole(made, events)

    def text(self, text: str, kind: str, events: list[Event]) -> None:
        if not text:
            return
        if self._kind != kind or self._proofs:
            self._close(events)
            self._kind = kind
            part: Part = Text(text="") if kind == "text" else Reasoning()
            events.append(PartStart(index=self._next, part=part, candidate=self.number))
        if kind == "text":
            self._texts.setdefault(self._next, TextPieces()).append(text)
            events.append(PartDelta(index=self._next, text=text, candidate=self.number, plain=True))
        else:
            events.append(PartDelta(index=self._next, text=text, candidate=self.number, kind="summary"))

    @property
    def open_text(self) -> tuple[int, list[str]] | None:
        """The part that grows by plain text, if one does, and what it has said."""
        return (self._next, self._texts[self._next]) if self._kind == "text" and not self._proofs else None

    def _whole(self, part: Part, events: list[Event]) -> None:
        index, number = self._next, self.number
        hollow: Part = part
        delta: PartDelta | None = None
        if isinstance(part, Text):
            hollow, delta = replace(part, text=""), PartDelta(index=index, text=part.text, candidate=number)
        elif isinstance(part, ToolCall):
            self.calls = self.calls or part.executor == "client"
            hollow = replace(part, arguments="")
            delta = PartDelta(index=index, text=part.arguments, candidate=number)
        elif isinstance(part, Reasoning) and part.content and isinstance(first := part.content[0], ReasoningText):
            hollow = replace(part, content=())
            delta = PartDelta(index=index, text=first.text, kind="summary", candidate=number)
        events.append(PartStart(index=index, part=hollow, candidate=number))
        if delta is not None and delta.text:
            events.append(delta)
        events.append(PartEnd(index=index, candidate=number))
        self._next += 1

    def _piece(self, part: PartShape, call: CallShape, events: list[Event]) -> None:
        """A call by its paths: the first piece names it, the last one does not promise another."""
        if call.name is not UNSET:
            self._close(events)
            self.calls = True
            started = ToolCall(id=known(call.id), name=call.name, arguments="", seal=decode_seal(part))
            events.append(PartStart(index=self._next, part=started, candidate=self.number))
            self._call = (self._next, Arguments())
        if self._call is None:
            return
        if call.partial_args is not UNSET:
            index, arguments = self._call
            for piece in _read_pieces(call.partial_args):
                Spelling().read(piece)
                if text := arguments.add(piece):
                    events.append(PartDelta(index=index, text=text, candidate=self.number, plain=True))
        if call.will_continue is UNSET or bytes(call.will_continue) != _TRUE:
            self._close(events)

    def _close(self, events: list[Event]) -> None:
        """End the part that grows."""
        if self._call is not None:
            index, arguments = self._call
            events.append(PartDelta(index=index, text=arguments.close(), candidate=self.number, plain=True))
            events.append(PartEnd(index=index, candidate=self.number))
            self._call = None
            self._next += 1
        if self._kind is not None:
            events.append(PartEnd(index=self._next, candidate=self.number))
            self._kind = None
            self._next += 1
        proofs, self._proofs = self._proofs, []
        for proof in proofs:
            self._whole(proof, events)

    def _cite(self, events: list[Event]) -> None:
        """What the text that is still open rests on. What others rest on came too late to be told, and is a loss."""
        texts = self._texts
        said = [Text(text="".join(texts[index])) if index in texts else Reasoning() for index in range(self._next + 1)]
        message = Message(role="assistant", parts=tuple(said))
        kept, (grounded,) = ground(self.kept, (message,), f"/candidates/{self.number}", only=self._next)
        last = grounded.parts[-1]
        if isinstance(last, Text) and last.annotations:
            self.kept = kept
            index, number = self._next, self.number
            events += [PartDelta(index=index, candidate=number, annotation=note) for note in last.annotations]

    def end(self, events: list[Event]) -> None:
        if self.kept and self._kind == "text":
            self._cite(events)
        self._close(events)
        if self.started:
            events.append(MessageEnd(candidate=self.number, form=() if self._next else (NO_PARTS,)))
        stop = decode_stop(self.reason, calls=self.calls)
        if stop is not None:
            events.append(Stopped(stop=stop, candidate=self.number, **self.kept))


def _is_partial(call: CallShape) -> bool:
    return call.will_continue is not UNSET or call.partial_args is not UNSET or call.name is UNSET


def _later(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was kept of several chunks: a later value replaces an earlier one."""
    both = joined(before, after)
    return {**both, "form": tuple(dict.fromkeys(both["form"]))}


class Decoder:
    def __init__(self) -> None:
        self._splitter = Splitter()
        self._started = False
        self._ended = False
        self._speakers: dict[int, Speaker] = {}
        self._talking: dict[int, tuple[int, list[str]]] = {}
        self._blocked: Stopped | None = None
        self._usage: UsageShape | None = None
        self._kept: dict[str, Any] = {}

    def feed(self, data: bytes) -> list[Event]:
        if self._ended:
            return []
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail(str(error))

    def _fail(self, why: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]

    def close(self) -> list[Event]:
        if self._ended:
            return []
        try:
            events = self._read(self._splitter.close())
        except ValueError as error:
            return self._fail(str(error))
        if self._ended:
            return events
        speakers = self._speakers.values()
        if self._blocked is None and (not speakers or any(one.reason is UNSET for one in speakers)):
            return events + self._fail("the stream ended before its answer did")
        self._ended = True
        for speaker in speakers:
            speaker.end(events)
        if self._blocked is not None:
            events.append(self._blocked)
        if self._usage is not None:
            events.append(UsageReport(usage=decode_usage(self._usage)))
        return [*events, ResponseEnd(**self._kept)]

    def _read(self, chunks: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for data in chunks:
            if self._ended:
                break
            if self._talking and self._talk(data, events):
                continue
            try:
                try:
                    shape = _fast(data)
                except BAD_JSON:
                    shape = read_response(data)
                self._chunk(shape, events)
            except (DecodeError, ValueError, *BAD_JSON) as error:
                events += self._fail(str(error))
        return events

    def _talk(self, data: bytes, events: list[Event]) -> bool:
        """Whether this chunk was only more of the text that grows."""
        try:
            shape = _more_text(data)
        except BAD_JSON:
            return False
        (candidate,) = shape.candidates
        (part,) = candidate.content.parts
        if (talking := self._talking.get(candidate.index)) is None or not part.text:
            return False
        index, texts = talking
        texts.append(part.text)
        events.append(PartDelta(index=index, text=part.text, candidate=candidate.index, plain=True))
        if shape.usage_metadata is not UNSET:
            self._count(shape.usage_metadata)
        return True

    def _chunk(self, shape: ResponseShape, events: list[Event]) -> None:
        if shape.unknown is not UNSET and (error := shape.unknown.get("error")) is not None:
            self._error(error, events)
            return
        if shape.usage_metadata is not UNSET:
            self._count(shape.usage_metadata)
        if not self._started:
            self._start(shape, events)
        elif shape.unknown is not UNSET or shape.model_status is not UNSET or shape.nulls is not UNSET:
            self._kept = _later(self._kept, rest(shape, FAMILY))
        if shape.prompt_feedback is not UNSET and self._started and shape.candidates is UNSET:
            self._feedback(shape)
        for place, candidate in enumerate(shape.candidates if shape.candidates is not UNSET else ()):
            number = place if candidate.index is UNSET else candidate.index
            if (speaker := self._speakers.get(number)) is None:
                check_candidate(number, FAMILY, f"/candidates/{place}/index")
                speaker = self._speakers[number] = Speaker(number)
            speaker.take(candidate, events)
            if (talking := speaker.open_text) is not None:
                self._talking[number] = talking
            else:
                self._talking.pop(number, None)

    def _start(self, shape: ResponseShape, events: list[Event]) -> None:
        self._started = True
        spelling = Spelling()
        spelling.read(shape)
        created, more = decode_created(shape)
        start = ResponseStart(
            origin=FAMILY,
            id=known(shape.response_id),
            model=known(shape.model_version),
            created=created,
            usage=None if shape.usage_metadata is UNSET else decode_usage(shape.usage_metadata),
            **joined(spelling.kept("Response", (shape, "")), more),
        )
        events.append(start)

    def _feedback(self, shape: ResponseShape) -> None:
        if shape.prompt_feedback is UNSET:
            return
        blocked, more = decode_feedback(shape.prompt_feedback, Spelling(), alone=not self._speakers)
        if blocked is not None and blocked.stop is not None:
            self._blocked = Stopped(stop=blocked.stop, form=blocked.form, at=blocked.at)
            more = joined(more, {"form": (NO_CANDIDATES,)})
        self._kept = _later(self._kept, more)

    def _count(self, usage: UsageShape) -> None:
        """Some chunks in the middle count nothing."""
        if self._usage is None or usage.prompt_token_count is not UNSET or usage.total_token_count is not UNSET:
            self._usage = usage

    def _error(self, error: Raw, events: list[Event]) -> None:
        self._ended = True
        try:
            told = decode_error(msgspec.json.encode({"error": error}), None)
        except DecodeError:
            told = ApiError(kind="server", message=bytes(error).decode(errors="replace"))
        if not self._started:
            events.append(ResponseStart(origin=FAMILY))
        events.append(ResponseFailed(error=told))


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()
