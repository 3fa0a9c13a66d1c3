"""The items of a Responses stream as they grow, one event at a time: what `stream_decoder` has between its ends."""

from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, Refusal, Text
from toolwire.canonical.events import Event, MessageEnd, MessageStart, PartDelta, PartEnd, PartStart
from toolwire.codec.fields import Reader
from toolwire.codec.kept import known
from toolwire.protocols.openai_responses.parts.content import decode_annotation, decode_content
from toolwire.protocols.openai_responses.parts.messages import ItemReader
from toolwire.protocols.openai_responses.wire import FAMILY, ContentUnion

from .frames import AnyFrame, hollow, kind_of, passed_on, text_of, texts

_OPENED = ("message", "function_call", "custom_tool_call", "reasoning")
WHOLE = -1
"""Where a part that is the item itself stands, beside the indices of content."""

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


class Growth:
    """`heard` is the index of each part that nothing but text is left to be said of, by output and content index;
    `finals` are the items that are done."""

    def __init__(self, reader: ItemReader) -> None:
        self.heard: dict[tuple[int, int], int] = {}
        self.finals: dict[int, Message] = {}
        self._reader = reader
        self._items: dict[int, _Item] = {}
        self._places: dict[int, int] = {}
        self._ids: dict[str, int] = {}
        self._early: dict[int, str] = {}
        self._last = -1
        self._count = 0

    def is_done(self, number: int) -> bool:
        return number in self._items and self._items[number].done

    def abandon(self) -> list[Event]:
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

    def _number(self, frame: Any) -> int:
        """The message that an event is about."""
        index = frame.output_index
        if isinstance(index, int):
            return self._places.get(index, index)
        if isinstance(frame.item_id, str) and frame.item_id in self._ids:
            return self._ids[frame.item_id]
        return max(self._last, 0)

    def added(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        events: list[Event] = []
        number = self._number(frame) if isinstance(frame.output_index, int) else self._last + 1
        if (held := self._items.get(number)) is not None:
            if not held.done:
                return events
            number = max(self._items) + 1
        if isinstance(frame.output_index, int) and frame.output_index != number:
            self._places[frame.output_index] = number
            self.heard.clear()
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
        events: list[Event] = [start, self._start(item, WHOLE, hollow(message.parts[0]))]
        if text := self._early.pop(item.number, ""):
            events.append(self._grow(item, WHOLE, text))
        return events

    def _start(self, item: _Item, place: int, part: Part) -> PartStart:
        index = item.parts[place] = self._count
        self._count += 1
        return PartStart(index=index, part=part, message=item.number)

    def _grow(self, item: _Item, place: int, text: str, kind: Any = None, block: int = 0) -> PartDelta:
        item.grown.add((place, kind, block))
        if kind is None and item.number not in self._places:
            self.heard[item.number, place] = item.parts[place]
        return PartDelta(index=item.parts[place], text=text, kind=kind, block=block)

    def item_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        number = self._number(frame)
        if (held := self._items.get(number)) is not None and held.done:
            return []
        self._last = max(self._last, number)
        return self.finish(number, frame.item, "/item")

    def finish(self, number: int, raw: Raw, path: str) -> list[Event]:
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
            events += self._end(item, WHOLE, message.parts[0])
        item.done = True
        self.finals[number] = message
        end = MessageEnd(message=number, id=message.id, status=message.status, phase=message.phase)
        return [*events, replace(end, extras=message.extras, form=message.form)]

    def _end(self, item: _Item, place: int, final: Part) -> list[Event]:
        index = item.parts[place]
        if index in item.ended:
            return []
        item.ended.add(index)
        self.heard.pop((item.number, place), None)
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

    def delta(self, frame: Any, word: str, text: str) -> list[Event]:
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
        if item is None or WHOLE not in item.parts:
            self._early[number] = self._early.get(number, "") + text
            return []
        return [self._grow(item, WHOLE, text)]

    def odd_delta(self, frame: AnyFrame, data: bytes) -> list[Event]:
        """A delta with something in it that its shape does not know."""
        return self.delta(frame, frame.type.split(".")[1], text_of(frame.delta))

    def _say(self, frame: Any, text: str, *, refusal: bool) -> list[Event]:
        number, place = self._number(frame), frame.content_index or 0
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _Item(number, "message")
            events += [MessageStart(message=number, id=known(frame.item_id))]
        if place not in item.parts:
            events.append(self._start(item, place, Refusal(text="") if refusal else Text(text="", annotations=())))
        return [*events, self._grow(item, place, text)]

    def _think(self, frame: Any, text: str, kind: str, block: int) -> list[Event]:
        number = self._number(frame)
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _Item(number, "reasoning")
            events += [MessageStart(message=number, id=known(frame.item_id))]
        if WHOLE not in item.parts:
            events.append(self._start(item, WHOLE, Reasoning(at="")))
        return [*events, self._grow(item, WHOLE, text, kind, block)]

    def text_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
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
        if item is not None and (WHOLE, kind, block) in item.grown:
            return []
        return self._think(frame, text, kind, block)

    def arguments_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        if item is None or item.done or WHOLE not in item.parts or (WHOLE, None, 0) in item.grown:
            return []
        text = text_of(frame.arguments if frame.arguments is not UNSET else frame.input)
        return [self._grow(item, WHOLE, text)] if text else []

    def part_added(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is None or item.kind != "message" or place in item.parts or frame.part is UNSET:
            return []
        (part,) = decode_content([_read_content(frame.part, "/part")], "", spoken=True)
        events: list[Event] = []
        for earlier, final in item.said.items():
            events += self._end(item, earlier, final)
        return [*events, self._start(item, place, part)]

    def part_done(self, frame: AnyFrame, data: bytes) -> list[Event]:
        """What a part is in the end. It waits as long as it can: its item will say more of it (log probabilities)."""
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is not None and item.kind == "message" and place in item.parts and frame.part is not UNSET:
            (item.said[place],) = decode_content([_read_content(frame.part, "/part")], "", spoken=True)
        return []

    def annotation(self, frame: AnyFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._number(frame))
        place = frame.content_index or 0
        if item is None or place not in item.parts or frame.annotation is UNSET:
            return []
        item.cited.add(place)
        return [PartDelta(index=item.parts[place], annotation=decode_annotation(frame.annotation))]
