"""Decode a Gemini stream, as SSE events or as one growing JSON array, to canonical events.

  chunk*   each a complete GenerateContentResponse whose parts are new; the stream ends with the connection

1. Consecutive texts of one kind (output or thought) form one part. A part with a signature stays separate, because
the signature covers exactly that part.
2. Calls arrive complete or as partial arguments with JSON paths (`PartialArguments`), one after the other.
3. Token counts are cumulative. The last value of a candidate's metadata wins.
4. A stream is complete when every candidate has a finish reason. Stops are emitted only then.
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
    append_text,
)
from toolwire.canonical.fold import TextPieces
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
    """Splitter of a byte stream into chunks of either framing, chosen by the first non-space byte."""

    def __init__(self) -> None:
        self._inner: SseSplitter | JsonObjectSplitter | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Return the JSON chunks that these bytes complete."""
        if self._inner is None:
            data = data.lstrip()
            if not data:
                return []
            self._inner = JsonObjectSplitter() if data[:1] in b"[{" else SseSplitter()
        return self._inner.feed(data)

    def close(self) -> list[bytes]:
        """Return the incomplete chunk that remains in the buffer, if any."""
        return [] if self._inner is None else self._inner.close()


class JsonObjectSplitter:
    """Splitter of a stream of JSON into its objects; anything between them is skipped.

    An error body, which is one object or an array, arrives the same way.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the JSON objects that these bytes complete."""
        objects: list[bytes] = []
        start = 0
        position = 0
        if self._escaped and data:
            self._escaped, position = False, 1
        while (mark := _JSON_MARKS.search(data, position)) is not None:
            position = mark.end()
            character = mark[0]
            if self._quoted:
                if character == b"\\":
                    self._escaped = position == len(data)
                    position += 1
                elif character == b'"':
                    self._quoted = False
            elif character == b'"':
                self._quoted = True
            elif character == b"{":
                if self._depth == 0:
                    start = mark.start()
                self._depth += 1
            elif character == b"}" and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    objects.append(truncate_at_invalid_utf8(b"".join((*self._pieces, data[start:position]))))
                    self._pieces, self._size = [], 0
                    start = position
        if self._depth:
            self._buffer(data[start:])
        return objects

    def _buffer(self, data: bytes) -> None:
        """Buffer the bytes of an incomplete object; raise an error beyond the frame limit."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"stream frame exceeds {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """Return an incomplete object, which the decoder reports as an error."""
        remainder = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return [remainder] if remainder else []


class PartialArguments:
    """The JSON text of arguments that arrive value by value, each with its path.

    Paths follow the order in which the model writes, so an object is closed as soon as a path leaves it. A path that
    returns to a closed object is an error, because its text has already been sent.
    """

    def __init__(self) -> None:
        self._containers: list[_Container] = []
        self._path: list[str | int] = []
        self._written_paths: set[str] = set()
        self._in_string = False

    def add(self, piece: PartialArgumentShape) -> str:
        """Add a value or a piece of a string; return the JSON text that this adds to the arguments."""
        path = "" if piece.json_path is UNSET else piece.json_path
        steps = _parse_path(path)
        if not steps:
            return ""
        if piece.string_value is not UNSET:
            text = _to_json_text(piece.string_value)[1:-1]
            if self._in_string and steps == self._path:
                return text
            if not text and path in self._written_paths:
                return ""  # an empty piece only marks the end of the string
            added = self._enter(steps) + '"' + text
            self._in_string = True
        elif piece.number_value is not UNSET:
            added = self._enter(steps) + str(piece.number_value, "utf-8")
        elif piece.bool_value is not UNSET:
            added = self._enter(steps) + _to_json_text(piece.bool_value)
        elif piece.null_value is not UNSET:
            added = self._enter(steps) + "null"
        else:
            return ""
        self._written_paths.add(path)
        return added

    def close(self) -> str:
        """Return the JSON text that closes all open strings, arrays and objects."""
        return self._close_to(0) if self._containers else "{}"

    def _enter(self, steps: list[str | int]) -> str:
        """Move to the value at a path; return the JSON text that closes and opens containers on the way."""
        shared = 0
        while shared < min(len(steps), len(self._path)) - 1 and steps[shared] == self._path[shared]:
            shared += 1
        out = [self._close_to(shared + 1)]
        for depth in range(max(len(self._containers) - 1, 0), len(steps)):
            if depth == len(self._containers):
                self._containers.append(_Container(array=isinstance(steps[depth], int) and depth > 0))
                out.append("[" if self._containers[-1].array else "{")
            out.append(self._containers[depth].enter(steps[depth]))
        self._path = steps
        return "".join(out)

    def _close_to(self, depth: int) -> str:
        """Close containers down to this depth; return the closing JSON text."""
        closing = '"' if self._in_string else ""
        self._in_string = False
        while len(self._containers) > depth:
            closing += "]" if self._containers.pop().array else "}"
        return closing


class _Container:
    """An open object or array, with the keys or elements written so far."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self._keys: set[str] = set()
        self._count = 0

    def enter(self, step: str | int) -> str:
        """Return the JSON text before the next value: a comma, a key, or nulls for skipped elements."""
        comma = "," if self._count else ""
        if not self.array:
            key = str(step)
            if key in self._keys:
                raise ValueError(f"partial arguments return to completed key {key!r}")
            self._keys.add(key)
            self._count += 1
            return f"{comma}{_to_json_text(key)}:"
        if not isinstance(step, int) or step < self._count:
            raise ValueError(f"partial arguments return to index {step!r} of an array with {self._count} elements")
        skipped, self._count = step - self._count, step + 1
        if skipped > _MAX_ELEMENTS:
            raise ValueError(f"partial arguments skip more than {_MAX_ELEMENTS} array elements")
        return comma + "null," * skipped


def _parse_path(path: str) -> list[str | int]:
    """Split a JSON path such as `$.a[0]['b']` into its steps."""
    steps: list[str | int] = [
        int(index) if index else _ESCAPED.sub(r"\1", single_quoted or double_quoted) or name
        for name, index, single_quoted, double_quoted in _PATH_STEPS.findall(path.removeprefix("$"))
    ]
    if len(steps) > _MAX_DEPTH:
        raise ValueError(f"partial arguments nested deeper than {_MAX_DEPTH} levels")
    return steps


def _to_json_text(value: Any) -> str:
    """Encode a value as JSON text."""
    return msgspec.json.encode(value).decode()


_decode_typed = msgspec.json.Decoder(ResponseShape).decode
_decode_more_text = msgspec.json.Decoder(MoreTextShape).decode
_read_partial_arguments = Reader[list[PartialArgumentShape]](list[PartialArgumentShape], FAMILY).read
_TRUE = b"true"


class CandidateState:
    """The decoding state of one candidate."""

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
        """Append the events of one chunk of this candidate."""
        field_case = FieldCase(f"/candidates/{self.number}")
        field_case.normalize(shape)
        if shape.content is not UNSET:
            self._decode_content(shape.content, events)
        if shape.finish_reason is not UNSET:
            self.reason = shape.finish_reason
        if extras := field_case.extras_and_form("Candidate", (shape, "")):
            self.extras_and_form = _merge_chunk_extras(self.extras_and_form, extras)

    def _decode_content(self, shape: ContentShape, events: list[Event]) -> None:
        """Append the start of the message if it is the first content, and the events of its parts."""
        if not self.started:
            self.started = True
            without_parts = ContentShape(parts=[], role=shape.role, unknown=shape.unknown, nulls=shape.nulls)
            message: Message = decode_content(without_parts, "", "assistant")
            start = MessageStart(
                candidate=self.number, extras=message.extras, wire_form=message.wire_form, at="/content"
            )
            events.append(start)
        for part in shape.parts if shape.parts is not UNSET else ():
            self._decode_part(part, events)

    def _decode_part(self, part: PartShape, events: list[Event]) -> None:
        """Append the events of one part: more text, partial arguments, or a complete part."""
        if type(part.text) is str and part == PartShape(text=part.text, thought=part.thought):
            self.append_text(part.text, "thought" if part.thought is True else "text", events)
            return
        call = part.function_call
        if isinstance(call, CallShape) and (self._open_call is not None or _is_partial(call)):
            self._append_call(part, call, events)
            return
        decoded = decode_part(part, f"/candidates/{self.number}/content/parts")
        if self._kind == "text" and isinstance(decoded, Text) and not decoded.text:
            # A signature after the text: citations of the text may still follow, so its part stays open.
            self._signature_parts.append(decoded)
            return
        self._end_part(events)
        self._emit_part(decoded, events)

    def append_text(self, text: str, kind: str, events: list[Event]) -> None:
        """Append text to the open part of this kind, or open a part for it."""
        if not text:
            return
        if self._kind != kind or self._signature_parts:
            self._end_part(events)
            self._kind = kind
            part: Part = Text(text="") if kind == "text" else Reasoning()
            events.append(PartStart(index=self._next_index, part=part, candidate=self.number))
        if kind == "text":
            self._texts.setdefault(self._next_index, TextPieces()).append(text)
            events.append(PartDelta(index=self._next_index, text=text, candidate=self.number))
        else:
            events.append(PartDelta(index=self._next_index, text=text, candidate=self.number, kind="summary"))

    @property
    def open_text(self) -> tuple[int, TextPieces] | None:
        """The index and pieces of the open text part; None if another kind of part, or none, is open."""
        return (
            (self._next_index, self._texts[self._next_index])
            if self._kind == "text" and not self._signature_parts
            else None
        )

    def _emit_part(self, part: Part, events: list[Event]) -> None:
        """Append start, delta and end of a complete part to `events`."""
        index, number = self._next_index, self.number
        empty_part: Part = part
        delta: PartDelta | None = None
        if isinstance(part, Text):
            empty_part, delta = replace(part, text=""), PartDelta(index=index, text=part.text, candidate=number)
        elif isinstance(part, ToolCall):
            self.has_calls = self.has_calls or part.executor == "client"
            empty_part = replace(part, arguments="")
            delta = PartDelta(index=index, text=part.arguments, candidate=number)
        elif isinstance(part, Reasoning) and part.content and isinstance(first := part.content[0], ReasoningText):
            empty_part = replace(part, content=())
            delta = PartDelta(index=index, text=first.text, kind="summary", candidate=number)
        events.append(PartStart(index=index, part=empty_part, candidate=number))
        if delta is not None and delta.text:
            events.append(delta)
        events.append(PartEnd(index=index, candidate=number))
        self._next_index += 1

    def _append_call(self, part: PartShape, call: CallShape, events: list[Event]) -> None:
        """Append partial arguments to the call; the first chunk opens it, one without `willContinue` ends it."""
        if call.name is not UNSET:
            self._end_part(events)
            self.has_calls = True
            call_start = ToolCall(
                id=unset_to_none(call.id), name=call.name, arguments="", signature=decode_signature(part)
            )
            events.append(PartStart(index=self._next_index, part=call_start, candidate=self.number))
            self._open_call = (self._next_index, PartialArguments())
        if self._open_call is None:
            return
        if call.partial_args is not UNSET:
            index, arguments = self._open_call
            for piece in _read_partial_arguments(call.partial_args):
                FieldCase().normalize(piece)
                if text := arguments.add(piece):
                    events.append(PartDelta(index=index, text=text, candidate=self.number))
        if call.will_continue is UNSET or bytes(call.will_continue) != _TRUE:
            self._end_part(events)

    def _end_part(self, events: list[Event]) -> None:
        """Append the end of the open part to `events`, then signatures that arrived for it."""
        if self._open_call is not None:
            index, arguments = self._open_call
            events.append(PartDelta(index=index, text=arguments.close(), candidate=self.number))
            events.append(PartEnd(index=index, candidate=self.number))
            self._open_call = None
            self._next_index += 1
        if self._kind is not None:
            events.append(PartEnd(index=self._next_index, candidate=self.number))
            self._kind = None
            self._next_index += 1
        signature_parts, self._signature_parts = self._signature_parts, []
        for signature_part in signature_parts:
            self._emit_part(signature_part, events)

    def _emit_citations(self, events: list[Event]) -> None:
        """Append the citations of the open text to `events`.

        Grounding arrives with the last chunk, when earlier texts have ended; their citations stay in the extras.
        """
        texts = self._texts
        parts = [
            Text(text="".join(texts[index])) if index in texts else Reasoning() for index in range(self._next_index + 1)
        ]
        message = Message(role="assistant", parts=tuple(parts))
        extras, (grounded,) = decode_grounding(
            self.extras_and_form, (message,), f"/candidates/{self.number}", only_index=self._next_index
        )
        last = grounded.parts[-1]
        if isinstance(last, Text) and last.annotations:
            self.extras_and_form = extras
            index, number = self._next_index, self.number
            events += [PartDelta(index=index, candidate=number, annotation=citation) for citation in last.annotations]

    def finish(self, events: list[Event]) -> None:
        """Append citations, the end of the message and the stop reason to `events`."""
        if self.extras_and_form and self._kind == "text":
            self._emit_citations(events)
        self._end_part(events)
        if self.started:
            events.append(MessageEnd(candidate=self.number, wire_form=() if self._next_index else (NO_PARTS,)))
        stop = decode_stop(self.reason, has_calls=self.has_calls)
        if stop is not None:
            events.append(CandidateEnd(stop=stop, candidate=self.number, **self.extras_and_form))


def _is_partial(call: CallShape) -> bool:
    """Check for a call whose arguments arrive in pieces."""
    return call.will_continue is not UNSET or call.partial_args is not UNSET or call.name is UNSET


def _merge_chunk_extras(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Merge the `extras` and `wire_form` arguments of several chunks; a later value replaces an earlier one."""
    merged = merge_extras(earlier, later)
    return {**merged, "wire_form": tuple(dict.fromkeys(merged["wire_form"]))}


class Decoder:
    """Stream decoder of the Gemini protocol."""

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
        """Decode the next bytes into events."""
        if self._ended:
            return []
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def close(self) -> list[Event]:
        """Return the end of the response, or a failure event if the stream is incomplete."""
        if self._ended:
            return []
        try:
            events = self._read(self._splitter.close())
        except ValueError as error:
            return self._fail_stream(str(error))
        if self._ended:
            return events
        candidates = self._candidates.values()
        if self._blocked is None and (not candidates or any(candidate.reason is UNSET for candidate in candidates)):
            return events + self._fail_stream("the stream ended before the response was complete")
        self._ended = True
        for candidate in candidates:
            candidate.finish(events)
        if self._blocked is not None:
            events.append(self._blocked)
        if self._usage is not None:
            events.append(UsageReport(usage=decode_usage(self._usage)))
        return [*events, ResponseEnd(**self._extras_and_form)]

    def _read(self, chunks: list[bytes]) -> list[Event]:
        """Decode chunks, trying the fast path for more text first."""
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
        """Decode a chunk that only continues an open text; return False for any other."""
        try:
            shape = _decode_more_text(data)
        except JSON_ERRORS:
            return False
        (candidate,) = shape.candidates
        (part,) = candidate.content.parts
        if (open_text := self._open_texts.get(candidate.index)) is None or not part.text:
            return False
        index, texts = open_text
        texts += (part.text,)  # faster than `append`, which joins pieces if they are many
        append_text(events, index, part.text, candidate.index)
        if shape.usage_metadata is not UNSET:
            self._update_usage(shape.usage_metadata)
        return True

    def _decode_chunk(self, shape: ResponseShape, events: list[Event]) -> None:
        """Append the events of any chunk to `events`."""
        if shape.unknown is not UNSET and (error := shape.unknown.get("error")) is not None:
            self._decode_error_chunk(error, events)
            return
        if shape.usage_metadata is not UNSET:
            self._update_usage(shape.usage_metadata)
        if not self._started:
            self._start(shape, events)
        elif shape.unknown is not UNSET or shape.model_status is not UNSET or shape.nulls is not UNSET:
            self._extras_and_form = _merge_chunk_extras(self._extras_and_form, collect_extras(shape, FAMILY))
        if shape.prompt_feedback is not UNSET and shape.candidates is UNSET:
            self._decode_feedback(shape)
        for position, candidate in enumerate(shape.candidates or ()):
            number = position if candidate.index is UNSET else candidate.index
            if (state := self._candidates.get(number)) is None:
                check_candidate_index(number, FAMILY, f"/candidates/{position}/index")
                state = self._candidates[number] = CandidateState(number)
            state.decode(candidate, events)
            if (open_text := state.open_text) is not None:
                self._open_texts[number] = open_text
            else:
                self._open_texts.pop(number, None)

    def _start(self, shape: ResponseShape, events: list[Event]) -> None:
        """Append the start of the response, from its first chunk, to `events`."""
        self._started = True
        field_case = FieldCase()
        field_case.normalize(shape)
        created, created_extras = decode_created(shape)
        start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(shape.response_id),
            model=unset_to_none(shape.model_version),
            created=created,
            usage=None if shape.usage_metadata is UNSET else decode_usage(shape.usage_metadata),
            **merge_extras(field_case.extras_and_form("Response", (shape, "")), created_extras),
        )
        events.append(start)

    def _decode_feedback(self, shape: ResponseShape) -> None:
        """Store a blocked prompt as a candidate, whose events come at the end."""
        if shape.prompt_feedback is UNSET:
            return
        blocked, extras = decode_feedback(shape.prompt_feedback, FieldCase(), without_candidates=not self._candidates)
        if blocked is not None and blocked.stop is not None:
            self._blocked = CandidateEnd(stop=blocked.stop, wire_form=blocked.wire_form, at=blocked.at)
            extras = merge_extras(extras, {"wire_form": (NO_CANDIDATES,)})
        self._extras_and_form = _merge_chunk_extras(self._extras_and_form, extras)

    def _update_usage(self, usage: UsageShape) -> None:
        """Store the latest counts; chunks in the middle may have none."""
        if self._usage is None or usage.prompt_token_count is not UNSET or usage.total_token_count is not UNSET:
            self._usage = usage

    def _decode_error_chunk(self, error: Raw, events: list[Event]) -> None:
        """Append the failure event of an error chunk, which ends the stream, to `events`."""
        self._ended = True
        try:
            decoded = decode_error(msgspec.json.encode({"error": error}), None)
        except DecodeError:
            decoded = ApiError(kind="server", message=bytes(error).decode(errors="replace"))
        if not self._started:
            events.append(ResponseStart(origin=FAMILY))
        events.append(ResponseFailed(error=decoded))


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Create a stream decoder."""
    return Decoder()
