"""Ollama's lines, to canonical events.

    line(content | thinking | tool_calls)*  line(done)

1. A part ends when one of another kind starts, or with the answer. Calls come whole.
2. What only this protocol has is told twice: as it arrives, in the extras of a delta or a notice, for home; and all of
   it together at the end, so that it is in the folded response.
3. Without the line that says `done` the stream was cut.
"""

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
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.codec.framing import LineSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import collect_extras, merge_extras
from toolwire.codec.wire.reader import Reader, validate_json
from toolwire.protocols.ollama.errors import decode_error
from toolwire.protocols.ollama.parts.calls import decode_call
from toolwire.protocols.ollama.parts.content import decode_image
from toolwire.protocols.ollama.parts.messages import EMPTY_FORM, check_content
from toolwire.protocols.ollama.response import decode_created, decode_stop, decode_usage
from toolwire.protocols.ollama.wire import FAMILY, MessageShape, ResponseShape

END_FORM = "ollama:ended:"

_line_reader = Reader[ResponseShape](ResponseShape, FAMILY)
_decode_typed = msgspec.json.Decoder(ResponseShape).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_NULL = b"null"
_EMPTY_PARTS: dict[str, Part] = {
    "text": Text(text="", at="/content"),
    "thinking": Reasoning(at="/thinking"),
}


class Decoder:
    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._started = False
        self._ended = False
        self._created: Any = UNSET
        self._kind: str | None = None
        self._index = -1
        self._has_content = False
        self._call_count = 0
        self._image_count = 0
        self._seen_extras: dict[str, bytes] = {}
        self._late_extras: dict[str, Raw] = {}
        self._message_extras: dict[str, Raw] = {}

    def feed(self, data: bytes) -> list[Event]:
        try:
            lines = self._splitter.feed(data)
        except ValueError as error:
            return [] if self._ended else self._fail_stream(str(error))
        return self._read(lines)

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        return events if self._ended else events + self._fail_stream("the stream ended before the response was complete")

    def _read(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if self._ended:
                break
            try:
                if not line.isascii():
                    validate_json(line, FAMILY)  # raw values are not looked into otherwise
                try:
                    shape = _decode_typed(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    shape = _line_reader.read(line)
                self._decode_line(shape, line, events)
            except DecodeError as error:
                events += self._fail_stream(str(error))
        return events

    def _fail_stream(self, reason: str) -> list[Event]:
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def _decode_line(self, shape: ResponseShape, line: bytes, events: list[Event]) -> None:
        if shape.error is not UNSET and bytes(shape.error) != _NULL:
            self._ended = True
            events.append(ResponseFailed(error=decode_error(line, None)))
            return
        if not self._started:
            self._start(shape, events)
        before = len(events)
        message = shape.message if isinstance(shape.message, MessageShape) else None
        if message is not None:
            self._decode_message(message, events)
        if shape.done is not True:
            if shape.unknown is not UNSET or shape.logprobs is not UNSET or (message and message.unknown is not UNSET):
                self._attach_extras(shape, message, events, before)
        else:
            self._finish(shape, message, events)

    def _start(self, shape: ResponseShape, events: list[Event]) -> None:
        self._started = True
        self._created = shape.created_at
        seconds, spelled = decode_created(shape)
        extras = {} if shape.done is True else dict(_wire_extras(shape))
        extras.pop("logprobs", None)
        self._seen_extras = {name: bytes(value) for name, value in extras.items()}
        model = shape.model if isinstance(shape.model, str) else None
        found = merge_extras({"extras": {FAMILY: extras}} if extras else {}, spelled)
        events.append(ResponseStart(origin=FAMILY, model=model, created=seconds, **found))
        events.append(MessageStart(at="/message"))

    # ---- what is said

    def _decode_message(self, message: MessageShape, events: list[Event]) -> None:
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
        if self._kind != kind:
            self._open_part(kind, _EMPTY_PARTS[kind], events)
        if kind == "text":
            events.append(PartDelta(index=self._index, text=text, plain=True))
        else:
            events.append(PartDelta(index=self._index, text=text, kind="full"))

    def _open_part(self, kind: str | None, part: Part, events: list[Event]) -> None:
        self._end_part(events)
        self._kind = kind
        self._index += 1
        events.append(PartStart(index=self._index, part=part))

    def _emit_part(self, part: Part, text: str, events: list[Event]) -> None:
        self._open_part(None, part, events)
        if text:
            events.append(PartDelta(index=self._index, text=text, plain=True))
        events.append(PartEnd(index=self._index))

    def _end_part(self, events: list[Event]) -> None:
        if self._kind is not None:
            events.append(PartEnd(index=self._index))
            self._kind = None

    # ---- what only this protocol has

    def _attach_extras(
        self, shape: ResponseShape, message: MessageShape | None, events: list[Event], start: int
    ) -> None:
        """Beside the first delta of the line, or alone."""
        news = {name: value for name, value in _wire_extras(shape).items() if self._is_new_extra(name, value)}
        for name, value in news.items():
            self._collect_extra(name, value)
        about = {} if message is None else _wire_extras(message)
        for name, value in about.items():
            self._message_extras[name] = value
            news[f"message/{name}"] = value
        if not news:
            return
        for place in range(start, len(events)):
            event = events[place]
            if type(event) is PartDelta:
                events[place] = msgspec.structs.replace(event, extras={FAMILY: news}, plain=False)
                return
        events.append(Notice(kind="line", extras={FAMILY: news}))

    def _is_new_extra(self, name: str, value: Raw) -> bool:
        return name == "logprobs" or bytes(value) not in (_NULL, self._seen_extras.get(name))

    def _collect_extra(self, name: str, value: Raw) -> None:
        self._seen_extras[name] = bytes(value)
        if name == "logprobs" and name in self._late_extras:
            with suppress(msgspec.DecodeError):  # where they are no lists, the last one holds
                value = Raw(msgspec.json.encode(_decode_array(self._late_extras[name]) + _decode_array(value)))
        self._late_extras[name] = value

    # ---- the end

    def _finish(self, shape: ResponseShape, message: MessageShape | None, events: list[Event]) -> None:
        self._end_part(events)
        self._ended = True
        extras = _wire_extras(shape)
        again = {
            name: value
            for name, value in extras.items()
            if name in self._late_extras and self._is_new_extra(name, value)
        }
        if again:
            events.append(Notice(kind="line", extras={FAMILY: again}))
        for name, value in extras.items():
            if self._is_new_extra(name, value):
                self._collect_extra(name, value)
        if message is not None:
            self._message_extras.update(_wire_extras(message))
        about = {FAMILY: self._message_extras} if self._message_extras else None
        # In a whole answer the server writes the content also where there is none.
        events.append(MessageEnd(extras=about, wire_form=() if self._has_content else (EMPTY_FORM + "content",)))
        if (stop := decode_stop(shape, has_calls=self._call_count > 0)) is not None:
            events.append(CandidateEnd(stop=stop))
        if (usage := decode_usage(shape)) is not None:
            events.append(UsageReport(usage=usage))
        late = {FAMILY: self._late_extras} if self._late_extras else None
        form: tuple[str, ...] = ()
        if isinstance(shape.created_at, str) and shape.created_at != self._created:
            form = (END_FORM + shape.created_at,)
        events.append(ResponseEnd(extras=late, wire_form=form))


def _wire_extras(wire: ResponseShape | MessageShape) -> dict[str, Raw]:
    found: dict[str, Raw] = (collect_extras(wire, FAMILY).get("extras") or {}).get(FAMILY, {})
    return found


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    return Decoder()
