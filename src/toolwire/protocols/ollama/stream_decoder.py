"""Decode an Ollama stream (newline-delimited JSON) to canonical events.

  line(content | thinking | tool_calls)*  line(done)

1. A part ends when one of another kind starts, or with the response. Calls arrive complete.
2. Fields that only Ollama has are emitted twice: as they arrive, in the extras of a delta or notice, and together at
the end, so that a folded response has them.
3. A stream without a line that has `done: true` is incomplete.
"""

import re
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
    append_text,
)
from toolwire.codec.fast_path import KNOWN_TEXTS
from toolwire.codec.framing import LineSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import collect_extras, merge_extras
from toolwire.codec.wire.reader import Reader, decode_elements, validate_json
from toolwire.protocols.ollama.errors import decode_error
from toolwire.protocols.ollama.parts.calls import decode_call
from toolwire.protocols.ollama.parts.content import decode_image
from toolwire.protocols.ollama.parts.messages import EMPTY_FORM, check_content
from toolwire.protocols.ollama.response import decode_created, decode_stop, decode_usage
from toolwire.protocols.ollama.wire import FAMILY, MessageShape, ResponseShape

END_FORM = "ollama:ended:"

_line_reader = Reader[ResponseShape](ResponseShape, FAMILY)
_decode_typed = msgspec.json.Decoder(ResponseShape).decode
_NULL = b"null"
_decode_strings = msgspec.json.Decoder(str).decode_lines
# A line that only adds text to a part, with its members as Ollama orders them. Model and time are not needed.
_match_text_line = re.compile(
    rb'\{"model":"[ !#-\[\]-~]*+","created_at":"[ !#-\[\]-~]*+",'
    rb'"message":\{"role":"assistant","content":("(?:[ !#-\[\]-~]|\\["\\/bfnrt])++")\},"done":false\}'
).fullmatch
_EMPTY_PARTS: dict[str, Part] = {
    "text": Text(text="", at="/content"),
    "thinking": Reasoning(at="/thinking"),
}


class Decoder:
    """Stream decoder of the Ollama protocol."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._started = False
        self._ended = False
        self._created: Any = UNSET
        self._kind: str | None = None
        self._index = -1
        self._has_content = False
        self._has_extras = False  # the current line
        self._call_count = 0
        self._image_count = 0
        self._seen_extras: dict[str, bytes] = {}
        self._late_extras: dict[str, Raw] = {}
        self._message_extras: dict[str, Raw] = {}

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events."""
        try:
            lines = self._splitter.feed(data)
        except ValueError as error:
            return [] if self._ended else self._fail_stream(str(error))
        return self._read(lines)

    def close(self) -> list[Event]:
        """Return the remaining events, and a failure event if the stream is incomplete."""
        events = self._read(self._splitter.close())
        return (
            events if self._ended else events + self._fail_stream("the stream ended before the response was complete")
        )

    def _read(self, lines: list[bytes]) -> list[Event]:
        """Decode complete lines into events."""
        events: list[Event] = []
        strings: list[bytes] = []  # of the lines that only add text
        for line in lines:
            if self._ended:
                break
            if self._kind == "text" and (match := _match_text_line(line)) is not None:
                strings.append(match[1])
                continue
            if strings:
                events.append(self._decode_strings(strings))
                strings = []
            try:
                if not line.isascii():
                    validate_json(line, FAMILY)  # msgspec does not validate UTF-8 inside raw values
                try:
                    shape = _decode_typed(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    shape = _line_reader.read(line)
                self._decode_line(shape, line, events)
            except DecodeError as error:
                events += self._fail_stream(str(error))
        if strings:
            events.append(self._decode_strings(strings))
        return events

    def _decode_strings(self, strings: list[bytes]) -> PartDeltas:
        """Return the deltas of lines that add these JSON strings to the open text."""
        wire = strings[0] if len(strings) == 1 else b"\n".join(strings)
        if (text := KNOWN_TEXTS.get(wire)) is not None:
            return PartDeltas(index=self._index, texts=[text], known=True)
        return PartDeltas(index=self._index, texts=_decode_strings(wire), wire=wire)

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def _decode_line(self, shape: ResponseShape, line: bytes, events: list[Event]) -> None:
        """Append the events of one line to `events`."""
        if shape.error is not UNSET and bytes(shape.error) != _NULL:
            self._ended = True
            events.append(ResponseFailed(error=decode_error(line, None)))
            return
        if not self._started:
            self._start(shape, events)
        event_count = len(events)
        message = shape.message if isinstance(shape.message, MessageShape) else None
        self._has_extras = bool(
            shape.unknown is not UNSET or shape.logprobs is not UNSET or (message and message.unknown is not UNSET)
        )
        if message is not None:
            self._decode_message(message, events)
        if shape.done is not True:
            if self._has_extras:
                self._attach_extras(shape, message, events, event_count)
        else:
            self._finish(shape, message, events)

    def _start(self, shape: ResponseShape, events: list[Event]) -> None:
        """Append the start of the response and of its only message to `events`."""
        self._started = True
        self._created = shape.created_at
        seconds, created_form = decode_created(shape)
        extras = {} if shape.done is True else dict(_wire_extras(shape))
        extras.pop("logprobs", None)
        self._seen_extras = {name: bytes(value) for name, value in extras.items()}
        model = shape.model if isinstance(shape.model, str) else None
        extras_and_form = merge_extras({"extras": {FAMILY: extras}} if extras else {}, created_form)
        events.append(ResponseStart(origin=FAMILY, model=model, created=seconds, **extras_and_form))
        events.append(MessageStart(at="/message"))

    # ---- content

    def _decode_message(self, message: MessageShape, events: list[Event]) -> None:
        """Append the events of thinking, text, images and calls in one line to `events`."""
        check_content(message, "/message")
        if message.thinking:
            self._append("thinking", message.thinking, events)
        if message.content:
            self._has_content = True
            self._append("text", message.content, events)
        if message.images:
            for data in message.images:
                self._emit_part(decode_image(data, f"/images/{self._image_count}"), "", events)
                self._image_count += 1
        if message.tool_calls:
            for shape in message.tool_calls:
                call = decode_call(shape, self._call_count, f"/message/tool_calls/{self._call_count}")
                self._call_count += 1
                if isinstance(call, ToolCall):
                    self._emit_part(msgspec.structs.replace(call, arguments=""), call.arguments, events)

    def _append(self, kind: str, text: str, events: list[Event]) -> None:
        """Append a delta of text or thinking to `events`, opening a part if needed."""
        if self._kind != kind:
            self._open_part(kind, _EMPTY_PARTS[kind], events)
        if kind == "text" and not self._has_extras:
            append_text(events, self._index, text)
        else:
            events.append(PartDelta(index=self._index, text=text, kind=None if kind == "text" else "full"))

    def _open_part(self, kind: str | None, part: Part, events: list[Event]) -> None:
        """Append the end of the open part and the start of another to `events`."""
        self._end_part(events)
        self._kind = kind
        self._index += 1
        events.append(PartStart(index=self._index, part=part))

    def _emit_part(self, part: Part, text: str, events: list[Event]) -> None:
        """Append start, delta and end of a complete part to `events`."""
        self._open_part(None, part, events)
        if text:
            events.append(PartDelta(index=self._index, text=text))
        events.append(PartEnd(index=self._index))

    def _end_part(self, events: list[Event]) -> None:
        """Append the end of the open part, if any, to `events`."""
        if self._kind is not None:
            events.append(PartEnd(index=self._index))
            self._kind = None

    # ---- extras

    def _attach_extras(
        self, shape: ResponseShape, message: MessageShape | None, events: list[Event], start: int
    ) -> None:
        """Attach new extras to the first delta of the line, or append them as a notice.

        `start` is the index of the line's first event in `events`.
        """
        new_extras = {name: value for name, value in _wire_extras(shape).items() if self._is_new_extra(name, value)}
        for name, value in new_extras.items():
            self._collect_extra(name, value)
        message_extras = {} if message is None else _wire_extras(message)
        for name, value in message_extras.items():
            self._message_extras[name] = value
            new_extras[f"message/{name}"] = value
        if not new_extras:
            return
        for position in range(start, len(events)):
            event = events[position]
            if type(event) is PartDelta:
                events[position] = msgspec.structs.replace(event, extras={FAMILY: new_extras})
                return
        events.append(Notice(kind="line", extras={FAMILY: new_extras}))

    def _is_new_extra(self, name: str, value: Raw) -> bool:
        """Check whether an extra was not yet emitted with this value."""
        return name == "logprobs" or bytes(value) not in (_NULL, self._seen_extras.get(name))

    def _collect_extra(self, name: str, value: Raw) -> None:
        """Collect an extra for the end; `logprobs` of several lines are concatenated."""
        self._seen_extras[name] = bytes(value)
        if name == "logprobs" and name in self._late_extras:
            with suppress(msgspec.DecodeError):  # if they are no lists, the last value wins
                value = Raw(msgspec.json.encode(decode_elements(self._late_extras[name]) + decode_elements(value)))
        self._late_extras[name] = value

    # ---- the end

    def _finish(self, shape: ResponseShape, message: MessageShape | None, events: list[Event]) -> None:
        """Append the end of the response, with stop reason, usage and collected extras, to `events`."""
        self._end_part(events)
        self._ended = True
        extras = _wire_extras(shape)
        repeated = {
            name: value
            for name, value in extras.items()
            if name in self._late_extras and self._is_new_extra(name, value)
        }
        if repeated:
            events.append(Notice(kind="line", extras={FAMILY: repeated}))
        for name, value in extras.items():
            if self._is_new_extra(name, value):
                self._collect_extra(name, value)
        if message is not None:
            self._message_extras.update(_wire_extras(message))
        message_extras = {FAMILY: self._message_extras} if self._message_extras else None
        # In a complete response the server writes `content` even if it is empty.
        events.append(
            MessageEnd(extras=message_extras, wire_form=() if self._has_content else (EMPTY_FORM + "content",))
        )
        if (stop := decode_stop(shape, has_calls=self._call_count > 0)) is not None:
            events.append(CandidateEnd(stop=stop))
        if (usage := decode_usage(shape)) is not None:
            events.append(UsageReport(usage=usage))
        late_extras = {FAMILY: self._late_extras} if self._late_extras else None
        form: tuple[str, ...] = ()
        if isinstance(shape.created_at, str) and shape.created_at != self._created:
            form = (END_FORM + shape.created_at,)
        events.append(ResponseEnd(extras=late_extras, wire_form=form))


def _wire_extras(wire: ResponseShape | MessageShape) -> dict[str, Raw]:
    """Return the extras of a wire object: its fields without canonical counterpart."""
    extras: dict[str, Raw] = (collect_extras(wire, FAMILY).get("extras") or {}).get(FAMILY, {})
    return extras


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Create a stream decoder."""
    return Decoder()
