"""The Responses API's event stream, to canonical events. `stream_encoder` is the way back.

    created (queued)? in_progress  item*  (completed | incomplete | failed | error)
    item := output_item.added  (content_part.added  delta*  done  content_part.done)*  output_item.done

1. An item is a message, and its `output_index` the number of that message. Ids may change between events, or be
   missing: they are asked only where there is no index.
2. Messages, reasoning and calls with arguments open as they are announced. All other items come whole when they are
   done; what is told of them before is passed on as a `Notice`.
3. Every text is told once: what only `done`, or only the terminal event, brings is told then.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, Refusal, Text
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
from toolwire.codec.fields import Reader, well_formed
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import known
from toolwire.codec.sse import SseSplitter

from .errors import decode_error, decode_failure
from .frames import (
    AnyFrame,
    ArgumentsDelta,
    DeltaUnion,
    InputDelta,
    RefusalDelta,
    SummaryDelta,
    TextDelta,
    ThoughtDelta,
    hollow,
    kind_of,
    open_frame,
    passed_on,
    text_of,
    texts,
)
from .messages import ItemReader
from .parts import decode_annotation, decode_content
from .response import decode_held, decode_stop, decode_usage, envelope
from .wire import (
    FAMILY,
    ContentUnion,
    ErrorShape,
    ResponseShape,
    UsageShape,
)

_OPENED = ("message", "function_call", "custom_tool_call", "reasoning")
_WHOLE = -1
"""Where a part that is the item itself stands, beside the indices of content."""

_WORDS: dict[type, str] = {
    TextDelta: "output_text",
    RefusalDelta: "refusal",
    ThoughtDelta: "reasoning_text",
    SummaryDelta: "reasoning_summary_text",
    ArgumentsDelta: "arguments",
    InputDelta: "arguments",
}

_fast = msgspec.json.Decoder(DeltaUnion).decode
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read
_read_content = Reader[Any](ContentUnion, FAMILY).read


class _Item:
    """An item while it is told."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.parts: dict[int, int] = {}
        self.grown: set[tuple[int, str | None, int]] = set()
        self.ended: set[int] = set()
        self.said: dict[int, Part] = {}
        self.cited: set[int] = set()
        self.done = False


class Decoder:
    def __init__(self, context: Context) -> None:
        self._splitter = SseSplitter()
        self._reader = ItemReader(None if context.request is None else context.request.tools, answer=True)
        self._started = False
        self._ended = False
        self._items: dict[int, _Item] = {}
        self._places: dict[int, int] = {}
        self._heard: dict[tuple[int, int], int] = {}
        self._ids: dict[str, int] = {}
        self._early: dict[int, str] = {}
        self._finals: dict[int, Message] = {}
        self._last = -1
        self._count = 0
        self._methods: dict[str, Callable[[AnyFrame, bytes], list[Event]]] = {
            "response.created": self._created,
            "response.in_progress": self._lifecycle,
            "response.queued": self._lifecycle,
            "response.completed": self._terminal,
            "response.incomplete": self._terminal,
            "response.failed": self._terminal,
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.content_part.added": self._part_added,
            "response.content_part.done": self._part_done,
            "response.output_text.delta": self._odd_delta,
            "response.refusal.delta": self._odd_delta,
            "response.reasoning_text.delta": self._odd_delta,
            "response.reasoning_summary_text.delta": self._odd_delta,
            "response.function_call_arguments.delta": self._odd_delta,
            "response.custom_tool_call_input.delta": self._odd_delta,
            "response.output_text.done": self._text_done,
            "response.refusal.done": self._text_done,
            "response.reasoning_text.done": self._text_done,
            "response.reasoning_summary_text.done": self._text_done,
            "response.output_text.annotation.added": self._annotation,
            "response.reasoning_summary_part.added": _nothing,
            "response.reasoning_summary_part.done": _nothing,
            "response.function_call_arguments.done": self._arguments_done,
            "response.custom_tool_call_input.done": self._arguments_done,
            "error": self._error,
        }

    def feed(self, data: bytes) -> list[Event]:
        return self._read(self._splitter.feed(data))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        if not self._ended:
            self._ended = True
            events += self._begin()
            error = ApiError(kind="server", message="the stream ended before its answer did")
            events.append(ResponseFailed(error=error))
        return events

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        heard = self._heard
        for data in frames:
            if self._ended:
                break
            try:
                shape = _fast(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                events += self._read_open(data)
                continue
            kind = type(shape)
            if kind is TextDelta:
                index = heard.get((shape.output_index, shape.content_index))
            elif kind is ArgumentsDelta or kind is InputDelta:
                index = heard.get((shape.output_index, _WHOLE))
            else:
                index = None
            if index is not None:
                events.append(PartDelta(index=index, text=shape.delta, plain=True))
            else:
                events += self._delta(shape, _WORDS[kind], shape.delta)
        return events

    def _read_open(self, data: bytes) -> list[Event]:
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            frame = open_frame(well_formed(data, FAMILY))
            if not frame.type and frame.error is not UNSET:
                return self._error(frame, data)
            if (method := self._methods.get(frame.type)) is not None:
                return method(frame, data)
            return [*self._begin(), passed_on(data)]
        except (DecodeError, msgspec.DecodeError) as error:
            if b'"response.created"' in data[:200] or b'"response.in_progress"' in data[:200]:
                return []  # some proxies cut these long frames, and they say nothing that comes later would not
            self._ended = True
            return [*self._begin(), ResponseFailed(error=ApiError(kind="server", message=str(error)))]

    # ---- the envelope

    def _begin(self) -> list[Event]:
        """A stream that starts in the middle still has a response."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY)]

    def _created(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if self._started or frame.response is UNSET:
            return []
        self._started = True
        shape = _read_response(frame.response, "/response")
        own = (envelope(shape)["extras"] or {}).get(FAMILY)
        start = ResponseStart(
            origin=FAMILY,
            id=known(shape.id),
            model=known(shape.model),
            created=known(shape.created_at),
            status=known(shape.status),
            extras={FAMILY: own} if own else None,
        )
        return [start, passed_on(data, "created")]

    def _lifecycle(self, frame: AnyFrame, data: bytes) -> list[Event]:
        return self._created(frame, data) if not self._started else [passed_on(data)]

    def _terminal(self, frame: AnyFrame, data: bytes) -> list[Event]:
        raw = Raw(b"{}") if frame.response is UNSET else frame.response
        shape = _read_response(raw, "/response")
        events = self._begin() if self._started else self._created(frame, data)
        for number, item in enumerate(shape.output or []):
            if (held := self._items.get(number)) is None or not held.done:
                events += self._finish(number, item, f"/response/output/{number}")
        events += self._abandon()
        self._ended = True
        if self._finals and not shape.output:
            shape.output = []  # null says only that the items were told already
        stop = decode_stop(shape, tuple(message for _, message in sorted(self._finals.items())))
        if stop is not None:
            events.append(Stopped(stop=stop))
        if isinstance(shape.usage, UsageShape):
            events.append(UsageReport(usage=decode_usage(shape.usage)))
        kept = envelope(shape)
        if isinstance(shape.error, ErrorShape):
            events.append(ResponseFailed(error=decode_failure(shape.error), status=known(shape.status), **kept))
        else:
            events.append(ResponseEnd(status=known(shape.status), continuation=decode_held(shape), **kept))
        return events

    def _abandon(self) -> list[Event]:
        """Close what the stream forgot to. A call is left open: nobody may run what was not said to be complete."""
        events: list[Event] = []
        for item in self._items.values():
            if item.done or item.kind not in ("message", "reasoning"):
                continue
            for place, part in item.parts.items():
                if part not in item.ended:
                    events.append(PartEnd(index=part, final=item.said.get(place)))
            events.append(MessageEnd(message=item.number))
        return events

    def _error(self, frame: AnyFrame, data: bytes) -> list[Event]:
        events = self._begin()
        self._ended = True
        try:
            error = decode_error(data, None)
        except DecodeError:
            error = ApiError(kind="server", message=data.decode(errors="replace"))
        return [*events, ResponseFailed(error=error)]

    # ---- items

    def _number(self, frame: Any) -> int:
        """The message that an event is about."""
        index = frame.output_index
        if isinstance(index, int):
            return self._places.get(index, index)
        if isinstance(frame.item_id, str) and frame.item_id in self._ids:
            return self._ids[frame.item_id]
        return max(self._last, 0)

    def _added(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        events = self._begin()
        number = self._number(frame) if isinstance(frame.output_index, int) else self._last + 1
        if (held := self._items.get(number)) is not None:
            if not held.done:
                return events
            number = max(self._items) + 1
        if isinstance(frame.output_index, int) and frame.output_index != number:
            self._places[frame.output_index] = number
            self._heard.clear()
        message = self._reader.read(frame.item, "/item")
        kind = kind_of(frame.item)
        self._last = number
        if message.id is not None:
            self._ids[message.id] = number
        if kind not in _OPENED:
            return [*events, passed_on(data)]
        self._items[number] = _Item(number, kind)
        return events + self._announce(self._items[number], message)

    def _announce(self, item: _Item, message: Message) -> list[Event]:
        # Its status is only known when it is done: until then it is in progress, which says nothing.
        start = MessageStart(message=item.number, role=message.role, id=message.id, phase=message.phase)
        if item.kind == "message":
            return [start]
        events: list[Event] = [start, self._start(item, _WHOLE, hollow(message.parts[0]))]
        if text := self._early.pop(item.number, ""):
            events.append(self._grow(item, _WHOLE, text))
        return events

    def _start(self, item: _Item, place: int, part: Part) -> PartStart:
        index = item.parts[place] = self._count
        self._count += 1
        return PartStart(index=index, part=part, message=item.number)

    def _grow(self, item: _Item, place: int, text: str, kind: Any = None, block: int = 0) -> PartDelta:
        item.grown.add((place, kind, block))
        if kind is None and item.number not in self._places:
            self._heard[item.number, place] = item.parts[place]
        return PartDelta(index=item.parts[place], text=text, kind=kind, block=block)

    def _item_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        number = self._number(frame)
        if (held := self._items.get(number)) is not None and held.done:
            return []
        self._last = max(self._last, number)
        return self._begin() + self._finish(number, frame.item, "/item")

    def _finish(self, number: int, raw: Raw, path: str) -> list[Event]:
        """All of an item that was not told yet, and its end."""
        message = self._reader.read(raw, path)
        events: list[Event] = []
        item = self._items.get(number)
        if item is None:
            item = self._items[number] = _Item(number, kind_of(raw))
            events += self._announce(item, message)
        if item.kind == "message":
            for place, part in enumerate(message.parts):
                if place not in item.parts:
                    events.append(self._start(item, place, hollow(part)))
                events += self._end(item, place, part)
        elif message.parts:
            events += self._end(item, _WHOLE, message.parts[0])
        item.done = True
        self._finals[number] = message
        end = MessageEnd(message=number, id=message.id, status=message.status, phase=message.phase)
        return [*events, replace(end, extras=message.extras, form=message.form)]

    def _end(self, item: _Item, place: int, final: Part) -> list[Event]:
        index = item.parts[place]
        if index in item.ended:
            return []
        item.ended.add(index)
        self._heard.pop((item.number, place), None)
        events: list[Event] = []
        for text, kind, block in texts(final):
            if (place, kind, block) not in item.grown and text:
                events.append(self._grow(item, place, text, kind, block))
        if isinstance(final, Reasoning) and final.seal is not None:
            events.append(PartDelta(index=index, seal=final.seal))
        if isinstance(final, Text) and place not in item.cited:
            events += [PartDelta(index=index, annotation=note) for note in final.annotations or ()]
        return [*events, PartEnd(index=index, final=final)]

    # ---- what items grow by

    def _delta(self, frame: Any, word: str, text: str) -> list[Event]:
        match word:
            case "output_text" | "refusal":
                return self._say(frame, text, refusal=word == "refusal")
            case "reasoning_text":
                return self._think(frame, text, "full", frame.content_index or 0)
            case "reasoning_summary_text":
                return self._think(frame, text, "summary", frame.summary_index or 0)
            case _:
                return self._argue(frame, text)

    def _argue(self, frame: Any, text: str) -> list[Event]:
        number = self._number(frame)
        item = self._items.get(number)
        if item is None or _WHOLE not in item.parts:
            self._early[number] = self._early.get(number, "") + text
            return []
        return [self._grow(item, _WHOLE, text)]

    def _odd_delta(self, frame: AnyFrame, data: bytes) -> list[Event]:
        """A delta with something in it that its shape does not know."""
        return self._delta(frame, frame.type.split(".")[1], text_of(frame.delta))

    def _say(self, frame: Any, text: str, *, refusal: bool) -> list[Event]:
        number, place = self._number(frame), frame.content_index or 0
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _Item(number, "message")
            events += [*self._begin(), MessageStart(message=number, id=known(frame.item_id))]
        if place not in item.parts:
            events.append(self._start(item, place, Refusal(text="") if refusal else Text(text="", annotations=())))
        return [*events, self._grow(item, place, text)]

    def _think(self, frame: Any, text: str, kind: str, block: int) -> list[Event]:
        number = self._number(frame)
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _Item(number, "reasoning")
            events += [*self._begin(), MessageStart(message=number, id=known(frame.item_id))]
        if _WHOLE not in item.parts:
            events.append(self._start(item, _WHOLE, Reasoning(at="")))
        return [*events, self._grow(item, _WHOLE, text, kind, block)]

    def _text_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        text = frame.refusal if frame.type == "response.refusal.done" else frame.text
        if not isinstance(text, str) or not text:
            return []
        match frame.type.split(".")[1]:
            case "reasoning_text":
                kind, block = "full", frame.content_index or 0
            case "reasoning_summary_text":
                kind, block = "summary", frame.summary_index or 0
            case word:
                place = frame.content_index or 0
                said = item is not None and (place, None, 0) in item.grown
                return [] if said else self._say(frame, text, refusal=word == "refusal")
        if item is not None and (_WHOLE, kind, block) in item.grown:
            return []
        return self._think(frame, text, kind, block)

    def _arguments_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        if item is None or item.done or _WHOLE not in item.parts or (_WHOLE, None, 0) in item.grown:
            return []
        text = text_of(frame.arguments if frame.arguments is not UNSET else frame.input)
        return [self._grow(item, _WHOLE, text)] if text else []

    def _part_added(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is None or item.kind != "message" or place in item.parts or frame.part is UNSET:
            return []
        (part,) = decode_content([_read_content(frame.part, "/part")], "", spoken=True)
        events: list[Event] = []
        for earlier, final in item.said.items():
            events += self._end(item, earlier, final)
        return [*events, self._start(item, place, part)]

    def _part_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        """What a part is in the end. It waits as long as it can: its item will say more of it (log probabilities)."""
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is not None and item.kind == "message" and place in item.parts and frame.part is not UNSET:
            (item.said[place],) = decode_content([_read_content(frame.part, "/part")], "", spoken=True)
        return []

    def _annotation(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is None or place not in item.parts or frame.annotation is UNSET:
            return []
        item.cited.add(place)
        return [PartDelta(index=item.parts[place], annotation=decode_annotation(frame.annotation))]


def _nothing(frame: AnyFrame, data: bytes) -> list[Event]:
    """For events that say what others say too."""
    return []


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder(context)
