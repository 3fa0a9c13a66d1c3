"""The two framings of a stream: events, or one JSON array that grows; and arguments that arrive by their paths.

Gemini's stream, to canonical events and back.

    chunk*, each a whole GenerateContentResponse with what is new in `parts`; the end is that of the connection

1. Texts of one kind (said, or thought) in a row are one part, while nothing else is said of them. A part with a
   signature is always one of its own: signatures prove the part that they stand on.
2. Calls arrive whole, or by their paths (`framing.Arguments`), one after the other; what is new is told at once.
3. Counts are cumulative; the last ones hold, and whatever a candidate says of itself likewise.
4. A stream is complete when each of its candidates said why it ended. Only then is that told.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import TextPieces, append_piece
from toolwire.codec.framing import LIMIT_FRAME, SseSplitter, truncate_at_invalid_utf8
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import collect_extras, merge_extras, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, check_candidate_index
from toolwire.protocols.gemini.errors import decode_error
from toolwire.protocols.gemini.field_case import FieldCase
from toolwire.protocols.gemini.parts.content import decode_part
from toolwire.protocols.gemini.parts.grounding import decode_grounding
from toolwire.protocols.gemini.parts.messages import NO_PARTS, decode_content
from toolwire.protocols.gemini.parts.signatures import decode_signature
from toolwire.protocols.gemini.response import (
    NO_CANDIDATES,
    decode_created,
    decode_feedback,
    decode_stop,
    decode_usage,
    read_response,
)
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CallShape,
    CandidateShape,
    ContentShape,
    MoreTextShape,
    PartialArgumentShape,
    PartShape,
    ResponseShape,
    UsageShape,
)

_JSON_MARKS = re.compile(rb'["\\{}]')
_PATH_STEPS = re.compile(r"""\.?([^.\[\]'"]+)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MAX_ELEMENTS = 100_000
_MAX_DEPTH = 200


class ChunkSplitter:
    """Takes bytes, gives each whole chunk of either framing; the first byte that is no space tells which it is."""

    def __init__(self) -> None:
        self._inner: SseSplitter | JsonObjectSplitter | None = None

    def feed(self, data: bytes) -> list[bytes]:
        if self._inner is None:
            data = data.lstrip()
            if not data:
                return []
            self._inner = JsonObjectSplitter() if data[:1] in b"[{" else SseSplitter()
        return self._inner.feed(data)

    def close(self) -> list[bytes]:
        return [] if self._inner is None else self._inner.close()


class JsonObjectSplitter:
    """The objects in a stream of JSON, whatever is between them. A body that is one error comes like that, too."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        start = 0
        place = 0
        if self._escaped and data:
            self._escaped, place = False, 1
        while (mark := _JSON_MARKS.search(data, place)) is not None:
            place = mark.end()
            sign = mark[0]
            if self._quoted:
                if sign == b"\\":
                    self._escaped = place == len(data)
                    place += 1
                elif sign == b'"':
                    self._quoted = False
            elif sign == b'"':
                self._quoted = True
            elif sign == b"{":
                if self._depth == 0:
                    start = mark.start()
                self._depth += 1
            elif sign == b"}" and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    found.append(truncate_at_invalid_utf8(b"".join((*self._pieces, data[start:place]))))
                    self._pieces, self._size = [], 0
                    start = place
        if self._depth:
            self._buffer(data[start:])
        return found

    def _buffer(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """What was left is no whole object, and whoever reads it will say so."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return [rest] if rest else []


class PartialArguments:
    """Arguments that arrive value by value, each with its path, and texts in pieces; written as they arrive.

    Paths come in the order of the text that the model writes, so that what one of them left is closed. One that goes
    back there could only be told by taking back what was told: that is an error of the stream.
    """

    def __init__(self) -> None:
        self._containers: list[_Container] = []
        self._path: list[str | int] = []
        self._written_paths: set[str] = set()
        self._in_string = False

    def add(self, piece: PartialArgumentShape) -> str:
        """What is new in the text."""
        path = "" if piece.json_path is UNSET else piece.json_path
        steps = _parse_path(path)
        if not steps:
            return ""
        if piece.string_value is not UNSET:
            text = _to_json_text(piece.string_value)[1:-1]
            if self._in_string and steps == self._path:
                return text
            if not text and path in self._written_paths:
                return ""  # it only says that the text there is complete
            opened = self._enter(steps) + '"' + text
            self._in_string = True
        elif piece.number_value is not UNSET:
            opened = self._enter(steps) + str(piece.number_value, "utf-8")
        elif piece.bool_value is not UNSET:
            opened = self._enter(steps) + _to_json_text(piece.bool_value)
        elif piece.null_value is not UNSET:
            opened = self._enter(steps) + "null"
        else:
            return ""
        self._written_paths.add(path)
        return opened

    def close(self) -> str:
        """The end of the text."""
        return self._close_to(0) if self._containers else "{}"

    def _enter(self, steps: list[str | int]) -> str:
        """Leave what the path is not in, and open what it leads through."""
        shared = 0
        while shared < min(len(steps), len(self._path)) - 1 and steps[shared] == self._path[shared]:
            shared += 1
        out = [self._close_to(shared + 1)]
        for place in range(max(len(self._containers) - 1, 0), len(steps)):
            if place == len(self._containers):
                self._containers.append(_Container(array=isinstance(steps[place], int) and place > 0))
                out.append("[" if self._containers[-1].array else "{")
            out.append(self._containers[place].enter(steps[place]))
        self._path = steps
        return "".join(out)

    def _close_to(self, depth: int) -> str:
        closing = '"' if self._in_string else ""
        self._in_string = False
        while len(self._containers) > depth:
            closing += "]" if self._containers.pop().array else "}"
        return closing


class _Container:
    """An object or array that is being written, and what it has so far."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self._keys: set[str] = set()
        self._count = 0

    def enter(self, step: str | int) -> str:
        comma = "," if self._count else ""
        if not self.array:
            key = str(step)
            if key in self._keys:
                raise ValueError(f"arguments that go back to {key!r}, which was complete")
            self._keys.add(key)
            self._count += 1
            return f"{comma}{_to_json_text(key)}:"
        if not isinstance(step, int) or step < self._count:
            raise ValueError(f"arguments that go back to {step!r} in an array of {self._count}")
        skipped, self._count = step - self._count, step + 1
        if skipped > _MAX_ELEMENTS:
            raise ValueError(f"an array of more than {_MAX_ELEMENTS} elements")
        return comma + "null," * skipped


def _parse_path(path: str) -> list[str | int]:
    steps: list[str | int] = [
        int(index) if index else _ESCAPED.sub(r"\1", one or two) or name
        for name, index, one, two in _PATH_STEPS.findall(path.removeprefix("$"))
    ]
    if len(steps) > _MAX_DEPTH:
        raise ValueError(f"arguments of more than {_MAX_DEPTH} levels")
    return steps


def _to_json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_decode_typed = msgspec.json.Decoder(ResponseShape).decode
_decode_more_text = msgspec.json.Decoder(MoreTextShape).decode
_read_partial_arguments = Reader[list[PartialArgumentShape]](list[PartialArgumentShape], FAMILY).read
_TRUE = b"true"


class CandidateState:
    """One candidate while it speaks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = False
        self.has_calls = False
        self.reason: Any = UNSET
        self.extras_and_form: dict[str, Any] = {}
        self._texts: dict[int, TextPieces] = {}
        self._next_index = 0
        self._kind: str | None = None
        self._open_call: tuple[int, PartialArguments] | None = None
        self._signature_parts: list[Text] = []

    def decode(self, shape: CandidateShape, events: list[Event]) -> None:
        spelling = FieldCase(f"/candidates/{self.number}")
        spelling.normalize(shape)
        if shape.content is not UNSET:
            self._decode_content(shape.content, events)
        if shape.finish_reason is not UNSET:
            self.reason = shape.finish_reason
        if found := spelling.extras_and_form("Candidate", (shape, "")):
            self.extras_and_form = _merge_chunk_extras(self.extras_and_form, found)

    def _decode_content(self, shape: ContentShape, events: list[Event]) -> None:
        if not self.started:
            self.started = True
            bare = ContentShape(parts=[], role=shape.role, unknown=shape.unknown, nulls=shape.nulls)
            message: Message = decode_content(bare, "", "assistant")
            start = MessageStart(
                candidate=self.number, extras=message.extras, wire_form=message.wire_form, at="/content"
            )
            events.append(start)
        for part in shape.parts if shape.parts is not UNSET else ():
            self._decode_part(part, events)

    def _decode_part(self, part: PartShape, events: list[Event]) -> None:
        if type(part.text) is str and part == PartShape(text=part.text, thought=part.thought):
            self.append_text(part.text, "thought" if part.thought is True else "text", events)
            return
        call = part.function_call
        if isinstance(call, CallShape) and (self._open_call is not None or _is_partial(call)):
            self._append_call(part, call, events)
            return
        made = decode_part(part, f"/candidates/{self.number}/content/parts")
        if self._kind == "text" and isinstance(made, Text) and not made.text:
            # A proof behind the last word: what the word rests on may come with it, or later.
            self._signature_parts.append(made)
            return
        self._end_part(events)
        self._emit_part(made, events)

    def append_text(self, text: str, kind: str, events: list[Event]) -> None:
        if not text:
            return
        if self._kind != kind or self._signature_parts:
            self._end_part(events)
            self._kind = kind
            part: Part = Text(text="") if kind == "text" else Reasoning()
            events.append(PartStart(index=self._next_index, part=part, candidate=self.number))
        if kind == "text":
            self._texts.setdefault(self._next_index, TextPieces()).append(text)
            events.append(PartDelta(index=self._next_index, text=text, candidate=self.number, plain=True))
        else:
            events.append(PartDelta(index=self._next_index, text=text, candidate=self.number, kind="summary"))

    @property
    def open_text(self) -> tuple[int, TextPieces] | None:
        """The part that grows by plain text, if one does, and what it has said."""
        return (
            (self._next_index, self._texts[self._next_index])
            if self._kind == "text" and not self._signature_parts
            else None
        )

    def _emit_part(self, part: Part, events: list[Event]) -> None:
        index, number = self._next_index, self.number
        hollow: Part = part
        delta: PartDelta | None = None
        if isinstance(part, Text):
            hollow, delta = replace(part, text=""), PartDelta(index=index, text=part.text, candidate=number)
        elif isinstance(part, ToolCall):
            self.has_calls = self.has_calls or part.executor == "client"
            hollow = replace(part, arguments="")
            delta = PartDelta(index=index, text=part.arguments, candidate=number)
        elif isinstance(part, Reasoning) and part.content and isinstance(first := part.content[0], ReasoningText):
            hollow = replace(part, content=())
            delta = PartDelta(index=index, text=first.text, kind="summary", candidate=number)
        events.append(PartStart(index=index, part=hollow, candidate=number))
        if delta is not None and delta.text:
            events.append(delta)
        events.append(PartEnd(index=index, candidate=number))
        self._next_index += 1

    def _append_call(self, part: PartShape, call: CallShape, events: list[Event]) -> None:
        """A call by its paths: the first piece names it, the last one does not promise another."""
        if call.name is not UNSET:
            self._end_part(events)
            self.has_calls = True
            started = ToolCall(
                id=unset_to_none(call.id), name=call.name, arguments="", signature=decode_signature(part)
            )
            events.append(PartStart(index=self._next_index, part=started, candidate=self.number))
            self._open_call = (self._next_index, PartialArguments())
        if self._open_call is None:
            return
        if call.partial_args is not UNSET:
            index, arguments = self._open_call
            for piece in _read_partial_arguments(call.partial_args):
                FieldCase().normalize(piece)
                if text := arguments.add(piece):
                    events.append(PartDelta(index=index, text=text, candidate=self.number, plain=True))
        if call.will_continue is UNSET or bytes(call.will_continue) != _TRUE:
            self._end_part(events)

    def _end_part(self, events: list[Event]) -> None:
        """End the part that grows."""
        if self._open_call is not None:
            index, arguments = self._open_call
            events.append(PartDelta(index=index, text=arguments.close(), candidate=self.number, plain=True))
            events.append(PartEnd(index=index, candidate=self.number))
            self._open_call = None
            self._next_index += 1
        if self._kind is not None:
            events.append(PartEnd(index=self._next_index, candidate=self.number))
            self._kind = None
            self._next_index += 1
        proofs, self._signature_parts = self._signature_parts, []
        for proof in proofs:
            self._emit_part(proof, events)

    def _emit_citations(self, events: list[Event]) -> None:
        """What the text that is still open rests on. What others rest on came too late to be told, and is a loss."""
        texts = self._texts
        said = [
            Text(text="".join(texts[index])) if index in texts else Reasoning() for index in range(self._next_index + 1)
        ]
        message = Message(role="assistant", parts=tuple(said))
        kept, (grounded,) = decode_grounding(
            self.extras_and_form, (message,), f"/candidates/{self.number}", only_index=self._next_index
        )
        last = grounded.parts[-1]
        if isinstance(last, Text) and last.annotations:
            self.extras_and_form = kept
            index, number = self._next_index, self.number
            events += [PartDelta(index=index, candidate=number, annotation=note) for note in last.annotations]

    def finish(self, events: list[Event]) -> None:
        if self.extras_and_form and self._kind == "text":
            self._emit_citations(events)
        self._end_part(events)
        if self.started:
            events.append(MessageEnd(candidate=self.number, wire_form=() if self._next_index else (NO_PARTS,)))
        stop = decode_stop(self.reason, has_calls=self.has_calls)
        if stop is not None:
            events.append(CandidateEnd(stop=stop, candidate=self.number, **self.extras_and_form))


def _is_partial(call: CallShape) -> bool:
    return call.will_continue is not UNSET or call.partial_args is not UNSET or call.name is UNSET


def _merge_chunk_extras(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """What was kept of several chunks: a later value replaces an earlier one."""
    both = merge_extras(earlier, later)
    return {**both, "wire_form": tuple(dict.fromkeys(both["wire_form"]))}


class Decoder:
    def __init__(self) -> None:
        self._splitter = ChunkSplitter()
        self._started = False
        self._ended = False
        self._candidates: dict[int, CandidateState] = {}
        self._open_texts: dict[int, tuple[int, TextPieces]] = {}
        self._blocked: CandidateEnd | None = None
        self._usage: UsageShape | None = None
        self._extras_and_form: dict[str, Any] = {}

    def feed(self, data: bytes) -> list[Event]:
        if self._ended:
            return []
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def _fail_stream(self, reason: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def close(self) -> list[Event]:
        if self._ended:
            return []
        try:
            events = self._read(self._splitter.close())
        except ValueError as error:
            return self._fail_stream(str(error))
        if self._ended:
            return events
        speakers = self._candidates.values()
        if self._blocked is None and (not speakers or any(one.reason is UNSET for one in speakers)):
            return events + self._fail_stream("the stream ended before its answer did")
        self._ended = True
        for speaker in speakers:
            speaker.finish(events)
        if self._blocked is not None:
            events.append(self._blocked)
        if self._usage is not None:
            events.append(UsageReport(usage=decode_usage(self._usage)))
        return [*events, ResponseEnd(**self._extras_and_form)]

    def _read(self, chunks: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for data in chunks:
            if self._ended:
                break
            if self._open_texts and self._decode_fast(data, events):
                continue
            try:
                try:
                    shape = _decode_typed(data)
                except JSON_ERRORS:
                    shape = read_response(data)
                self._decode_chunk(shape, events)
            except (DecodeError, ValueError, *JSON_ERRORS) as error:
                events += self._fail_stream(str(error))
        for _, texts in self._open_texts.values():
            texts.compact()
        return events

    def _decode_fast(self, data: bytes, events: list[Event]) -> bool:
        """Whether this chunk was only more of the text that grows."""
        try:
            shape = _decode_more_text(data)
        except JSON_ERRORS:
            return False
        (candidate,) = shape.candidates
        (part,) = candidate.content.parts
        if (talking := self._open_texts.get(candidate.index)) is None or not part.text:
            return False
        index, texts = talking
        append_piece(texts, part.text)
        events.append(PartDelta(index=index, text=part.text, candidate=candidate.index, plain=True))
        if shape.usage_metadata is not UNSET:
            self._update_usage(shape.usage_metadata)
        return True

    def _decode_chunk(self, shape: ResponseShape, events: list[Event]) -> None:
        if shape.unknown is not UNSET and (error := shape.unknown.get("error")) is not None:
            self._error(error, events)
            return
        if shape.usage_metadata is not UNSET:
            self._update_usage(shape.usage_metadata)
        if not self._started:
            self._start(shape, events)
        elif shape.unknown is not UNSET or shape.model_status is not UNSET or shape.nulls is not UNSET:
            self._extras_and_form = _merge_chunk_extras(self._extras_and_form, collect_extras(shape, FAMILY))
        if shape.prompt_feedback is not UNSET and self._started and shape.candidates is UNSET:
            self._decode_feedback(shape)
        for place, candidate in enumerate(shape.candidates if shape.candidates is not UNSET else ()):
            number = place if candidate.index is UNSET else candidate.index
            if (speaker := self._candidates.get(number)) is None:
                check_candidate_index(number, FAMILY, f"/candidates/{place}/index")
                speaker = self._candidates[number] = CandidateState(number)
            speaker.decode(candidate, events)
            if (talking := speaker.open_text) is not None:
                self._open_texts[number] = talking
            else:
                self._open_texts.pop(number, None)

    def _start(self, shape: ResponseShape, events: list[Event]) -> None:
        self._started = True
        spelling = FieldCase()
        spelling.normalize(shape)
        created, more = decode_created(shape)
        start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(shape.response_id),
            model=unset_to_none(shape.model_version),
            created=created,
            usage=None if shape.usage_metadata is UNSET else decode_usage(shape.usage_metadata),
            **merge_extras(spelling.extras_and_form("Response", (shape, "")), more),
        )
        events.append(start)

    def _decode_feedback(self, shape: ResponseShape) -> None:
        if shape.prompt_feedback is UNSET:
            return
        blocked, more = decode_feedback(shape.prompt_feedback, FieldCase(), without_candidates=not self._candidates)
        if blocked is not None and blocked.stop is not None:
            self._blocked = CandidateEnd(stop=blocked.stop, wire_form=blocked.wire_form, at=blocked.at)
            more = merge_extras(more, {"wire_form": (NO_CANDIDATES,)})
        self._extras_and_form = _merge_chunk_extras(self._extras_and_form, more)

    def _update_usage(self, usage: UsageShape) -> None:
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


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    return Decoder()
