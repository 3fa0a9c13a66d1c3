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
from toolwire.codec.fields import Reader, well_formed
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import joined, rest
from toolwire.codec.ndjson import LineSplitter
from toolwire.protocols.ollama.parts.calls import decode_call
from toolwire.protocols.ollama.parts.content import decode_image
from toolwire.protocols.ollama.parts.messages import EMPTY, check_content
from toolwire.protocols.ollama.response.body import decode_created, decode_stop, decode_usage
from toolwire.protocols.ollama.response.errors import decode_error
from toolwire.protocols.ollama.wire import FAMILY, AnswerShape, MessageShape

ENDED = "ollama:ended:"

_reader = Reader[AnswerShape](AnswerShape, FAMILY)
_fast = msgspec.json.Decoder(AnswerShape).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_NULL = b"null"
_OPENED: dict[str, Part] = {
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
        self._spoke = False
        self._calls = 0
        self._images = 0
        self._seen: dict[str, bytes] = {}
        self._late: dict[str, Raw] = {}
        self._about_message: dict[str, Raw] = {}

    def feed(self, data: bytes) -> list[Event]:
        try:
            lines = self._splitter.feed(data)
        except ValueError as error:
            return [] if self._ended else self._broken(str(error))
        return self._read(lines)

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        return events if self._ended else events + self._broken("the stream ended before its answer did")

    def _read(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if self._ended:
                break
            try:
                if not line.isascii():
                    well_formed(line, FAMILY)  # raw values are not looked into otherwise
                try:
                    shape = _fast(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    shape = _reader.read(line)
                self._take(shape, line, events)
            except DecodeError as error:
                events += self._broken(str(error))
        return events

    def _broken(self, why: str) -> list[Event]:
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]

    def _take(self, shape: AnswerShape, line: bytes, events: list[Event]) -> None:
        if shape.error is not UNSET and bytes(shape.error) != _NULL:
            self._ended = True
            events.append(ResponseFailed(error=decode_error(line, None)))
            return
        if not self._started:
            self._start(shape, events)
        before = len(events)
        message = shape.message if isinstance(shape.message, MessageShape) else None
        if message is not None:
            self._say_all(message, events)
        if shape.done is not True:
            if shape.unknown is not UNSET or shape.logprobs is not UNSET or (message and message.unknown is not UNSET):
                self._keep(shape, message, events, before)
        else:
            self._finish(shape, message, events)

    def _start(self, shape: AnswerShape, events: list[Event]) -> None:
        self._started = True
        self._created = shape.created_at
        seconds, spelled = decode_created(shape)
        extras = {} if shape.done is True else dict(_extras(shape))
        extras.pop("logprobs", None)
        self._seen = {name: bytes(value) for name, value in extras.items()}
        model = shape.model if isinstance(shape.model, str) else None
        found = joined({"extras": {FAMILY: extras}} if extras else {}, spelled)
        events.append(ResponseStart(origin=FAMILY, model=model, created=seconds, **found))
        events.append(MessageStart(at="/message"))

    # ---- what is said

    def _say_all(self, message: MessageShape, events: list[Event]) -> None:
        check_content(message, "/message")
        if message.thinking:
            self._say("thinking", message.thinking, events)
        if message.content:
            self._spoke = True
            self._say("text", message.content, events)
        if message.images:
            for data in message.images:
                self._whole(decode_image(data, f"/images/{self._images}"), "", events)
                self._images += 1
        if message.tool_calls:
            for shape in message.tool_calls:
                call = decode_call(shape, self._calls, f"/message/tool_calls/{self._calls}")
                self._calls += 1
                if isinstance(call, ToolCall):
                    self._whole(msgspec.structs.replace(call, arguments=""), call.arguments, events)

    def _say(self, kind: str, text: str, events: list[Event]) -> None:
        if self._kind != kind:
            self._open(kind, _OPENED[kind], events)
        if kind == "text":
            events.append(PartDelta(index=self._index, text=text, plain=True))
        else:
            events.append(PartDelta(index=self._index, text=text, kind="full"))

    def _open(self, kind: str | None, part: Part, events: list[Event]) -> None:
        self._end_part(events)
        self._kind = kind
        self._index += 1
        events.append(PartStart(index=self._index, part=part))

    def _whole(self, part: Part, text: str, events: list[Event]) -> None:
        self._open(None, part, events)
        if text:
            events.append(PartDelta(index=self._index, text=text, plain=True))
        events.append(PartEnd(index=self._index))

    def _end_part(self, events: list[Event]) -> None:
        if self._kind is not None:
            events.append(PartEnd(index=self._index))
            self._kind = None

    # ---- what only this protocol has

    def _keep(self, shape: AnswerShape, message: MessageShape | None, events: list[Event], before: int) -> None:
        """Beside the first delta of the line, or alone."""
        news = {name: value for name, value in _extras(shape).items() if self._is_news(name, value)}
        for name, value in news.items():
            self._note(name, value)
        about = {} if message is None else _extras(message)
        for name, value in about.items():
            self._about_message[name] = value
            news[f"message/{name}"] = value
        if not news:
            return
        for place in range(before, len(events)):
            event = events[place]
            if type(event) is PartDelta:
                events[place] = msgspec.structs.replace(event, extras={FAMILY: news}, plain=False)
                return
        events.append(Notice(kind="line", extras={FAMILY: news}))

    def _is_news(self, name: str, value: Raw) -> bool:
        return name == "logprobs" or bytes(value) not in (_NULL, self._seen.get(name))

    def _note(self, name: str, value: Raw) -> None:
        self._seen[name] = bytes(value)
        if name == "logprobs" and name in self._late:
            with suppress(msgspec.DecodeError):  # where they are no lists, the last one holds
                value = Raw(msgspec.json.encode(_decode_array(self._late[name]) + _decode_array(value)))
        self._late[name] = value

    # ---- the end

    def _finish(self, shape: AnswerShape, message: MessageShape | None, events: list[Event]) -> None:
        self._end_part(events)
        self._ended = True
        extras = _extras(shape)
        again = {name: value for name, value in extras.items() if name in self._late and self._is_news(name, value)}
        if again:
            events.append(Notice(kind="line", extras={FAMILY: again}))
        for name, value in extras.items():
            if self._is_news(name, value):
                self._note(name, value)
        if message is not None:
            self._about_message.update(_extras(message))
        about = {FAMILY: self._about_message} if self._about_message else None
        # In a whole answer the server writes the content also where there is none.
        events.append(MessageEnd(extras=about, form=() if self._spoke else (EMPTY + "content",)))
        if (stop := decode_stop(shape, calls=self._calls > 0)) is not None:
            events.append(Stopped(stop=stop))
        if (usage := decode_usage(shape)) is not None:
            events.append(UsageReport(usage=usage))
        late = {FAMILY: self._late} if self._late else None
        form: tuple[str, ...] = ()
        if isinstance(shape.created_at, str) and shape.created_at != self._created:
            form = (ENDED + shape.created_at,)
        events.append(ResponseEnd(extras=late, form=form))


def _extras(wire: AnswerShape | MessageShape) -> dict[str, Raw]:
    found: dict[str, Raw] = (rest(wire, FAMILY).get("extras") or {}).get(FAMILY, {})
    return found


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()
