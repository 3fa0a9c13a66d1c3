"""The events of a Responses stream, and what reading and writing them share.

The items of a Responses stream as they grow, one event at a time: what `stream_decoder` has between its ends.

The Responses API's event stream, to canonical events. `stream_encoder` is the way back.

    created (queued)? in_progress  item*  (completed | incomplete | failed | error)
    item := output_item.added  (content_part.added  delta*  done  content_part.done)*  output_item.done

1. An item is a message, and its `output_index` the number of that message. Ids may change between events, or be
   missing: they are asked only where there is no index.
2. Messages, reasoning and calls with arguments open as they are announced. All other items come whole when they are
   done; what is told of them before is passed on as a `Notice`.
3. Every text is told once: what only `done`, or only the terminal event, brings is told then.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN_FRAME,
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
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader
from toolwire.protocols.openai_responses.errors import decode_error, decode_failure
from toolwire.protocols.openai_responses.parts.content import decode_annotation, decode_content
from toolwire.protocols.openai_responses.parts.messages import ItemDecoder
from toolwire.protocols.openai_responses.response import (
    decode_response_state,
    decode_stop,
    decode_usage,
    response_extras,
)
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ArgumentsDelta,
    ContentUnion,
    DeltaUnion,
    ErrorShape,
    InputDelta,
    RefusalDelta,
    ResponseShape,
    SummaryDelta,
    TextDelta,
    ThoughtDelta,
    UntypedFrame,
    UsageShape,
)

decode_frame = msgspec.json.Decoder(UntypedFrame).decode


def item_kind(item: Raw) -> str:
    return decode_frame(item).type


def passthrough_notice(data: bytes, kind: str = "frame") -> Notice:
    return Notice(kind=kind, extras={FAMILY: {"frame": Raw(data)}})


def decode_text(raw: Raw | UnsetType) -> str:
    """A text; some servers send arguments as the object itself, which then is its source text."""
    if raw is UNSET or bytes(raw) == b"null":
        return ""
    return str(msgspec.json.decode(raw)) if bytes(raw)[:1] == b'"' else str(raw, "utf-8")


def empty_part(part: Part) -> Part:
    """The part before anything was said of it."""
    match part:
        case Text():
            return replace(part, text="", annotations=() if part.annotations else part.annotations)
        case Refusal():
            return replace(part, text="")
        case ToolCall():
            return replace(part, arguments="")
        case Reasoning():
            return replace(part, content=(), signature=None)
        case _:
            return part


def part_texts(part: Part) -> list[tuple[str, str | None, int]]:
    """The texts that deltas would have told: each with its kind and number."""
    match part:
        case Text() | Refusal():
            return [(part.text, None, 0)]
        case ToolCall():
            return [(part.arguments, None, 0)]
        case Reasoning():
            found: list[tuple[str, str | None, int]] = []
            counts = {"full": 0, "summary": 0}
            for block in part.content:
                if isinstance(block, ReasoningText):
                    found.append((block.text, block.kind, counts[block.kind]))
                    counts[block.kind] += 1
            return found
        case _:
            return []


_STREAMED_KINDS = ("message", "function_call", "custom_tool_call", "reasoning")
ITEM_PART = -1
"""Where a part that is the item itself stands, beside the indices of content."""

_read_content = Reader[Any](ContentUnion, FAMILY).read


class _OpenItem:
    """An item while it is told."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.part_indices: dict[int, int] = {}
        self.received: set[tuple[int, str | None, int]] = set()
        self.ended_parts: set[int] = set()
        self.final_parts: dict[int, Part] = {}
        self.cited_parts: set[int] = set()
        self.done = False


class StreamItemDecoder:
    """`heard` is the index of each part that nothing but text is left to be said of, by output and content index;
    `finals` are the items that are done."""

    def __init__(self, item_decoder: ItemDecoder) -> None:
        self.text_indices: dict[tuple[int, int], int] = {}
        self.final_messages: dict[int, Message] = {}
        self._item_decoder = item_decoder
        self._items: dict[int, _OpenItem] = {}
        self._message_numbers: dict[int, int] = {}
        self._numbers_by_id: dict[str, int] = {}
        self._early_arguments: dict[int, str] = {}
        self._last_number = -1
        self._part_count = 0

    def is_done(self, number: int) -> bool:
        return number in self._items and self._items[number].done

    def close_open_items(self) -> list[Event]:
        """Close what the stream forgot to. A call is left open: nobody may run what was not said to be complete."""
        events: list[Event] = []
        for item in self._items.values():
            if item.done or item.kind not in ("message", "reasoning"):
                continue
            for place, part in item.part_indices.items():
                if part not in item.ended_parts:
                    events.append(PartEnd(index=part, final=item.final_parts.get(place)))
            events.append(MessageEnd(message=item.number))
        return events

    def _message_number(self, frame: Any) -> int:
        """The message that an event is about."""
        index = frame.output_index
        if isinstance(index, int):
            return self._message_numbers.get(index, index)
        if isinstance(frame.item_id, str) and frame.item_id in self._numbers_by_id:
            return self._numbers_by_id[frame.item_id]
        return max(self._last_number, 0)

    def item_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        events: list[Event] = []
        number = self._message_number(frame) if isinstance(frame.output_index, int) else self._last_number + 1
        if (held := self._items.get(number)) is not None:
            if not held.done:
                return events
            number = max(self._items) + 1
        if isinstance(frame.output_index, int) and frame.output_index != number:
            self._message_numbers[frame.output_index] = number
            self.text_indices.clear()
        message = self._item_decoder.decode(frame.item, "/item")
        kind = item_kind(frame.item)
        self._last_number = number
        if message.id is not None:
            self._numbers_by_id[message.id] = number
        if kind not in _STREAMED_KINDS:
            return [*events, passthrough_notice(data)]
        self._items[number] = _OpenItem(number, kind)
        return events + self._start_item(self._items[number], message)

    def _start_item(self, item: _OpenItem, message: Message) -> list[Event]:
        # Its status is only known when it is done: until then it is in progress, which says nothing.
        start = MessageStart(message=item.number, role=message.role, id=message.id, phase=message.phase)
        if item.kind == "message":
            return [start]
        events: list[Event] = [start, self._start_part(item, ITEM_PART, empty_part(message.parts[0]))]
        if text := self._early_arguments.pop(item.number, ""):
            events.append(self._append(item, ITEM_PART, text))
        return events

    def _start_part(self, item: _OpenItem, position: int, part: Part) -> PartStart:
        index = item.part_indices[position] = self._part_count
        self._part_count += 1
        return PartStart(index=index, part=part, message=item.number)

    def _append(self, item: _OpenItem, index: int, text: str, kind: Any = None, block: int = 0) -> PartDelta:
        item.received.add((index, kind, block))
        if kind is None and item.number not in self._message_numbers:
            self.text_indices[item.number, index] = item.part_indices[index]
        return PartDelta(index=item.part_indices[index], text=text, kind=kind, block=block)

    def item_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        if frame.item is UNSET:
            return []
        number = self._message_number(frame)
        if (held := self._items.get(number)) is not None and held.done:
            return []
        self._last_number = max(self._last_number, number)
        return self.finish_item(number, frame.item, "/item")

    def finish_item(self, number: int, raw: Raw, path: str) -> list[Event]:
        """All of an item that was not told yet, and its end."""
        message = self._item_decoder.decode(raw, path)
        events: list[Event] = []
        item = self._items.get(number)
        if item is None:
            item = self._items[number] = _OpenItem(number, item_kind(raw))
            events += self._start_item(item, message)
        if item.kind == "message":
            for place, part in enumerate(message.parts):
                if place not in item.part_indices:
                    events.append(self._start_part(item, place, empty_part(part)))
                events += self._end_part(item, place, part)
        elif message.parts:
            events += self._end_part(item, ITEM_PART, message.parts[0])
        item.done = True
        self.final_messages[number] = message
        end = MessageEnd(message=number, id=message.id, status=message.status, phase=message.phase)
        return [*events, replace(end, extras=message.extras, wire_form=message.wire_form)]

    def _end_part(self, item: _OpenItem, position: int, final: Part) -> list[Event]:
        index = item.part_indices[position]
        if index in item.ended_parts:
            return []
        item.ended_parts.add(index)
        self.text_indices.pop((item.number, position), None)
        events: list[Event] = []
        for text, kind, block in part_texts(final):
            if (position, kind, block) not in item.received and text:
                events.append(self._append(item, position, text, kind, block))
        if isinstance(final, Reasoning) and final.signature is not None:
            events.append(PartDelta(index=index, signature=final.signature))
        if isinstance(final, Text) and position not in item.cited_parts:
            events += [PartDelta(index=index, annotation=note) for note in final.annotations or ()]
        return [*events, PartEnd(index=index, final=final)]

    # ---- what items grow by

    def decode_delta(self, frame: Any, kind: str, text: str) -> list[Event]:
        match kind:
            case "output_text" | "refusal":
                return self._append_text(frame, text, refusal=kind == "refusal")
            case "reasoning_text":
                return self._append_reasoning(frame, text, "full", frame.content_index or 0)
            case "reasoning_summary_text":
                return self._append_reasoning(frame, text, "summary", frame.summary_index or 0)
            case _:
                return self._append_arguments(frame, text)

    def _append_arguments(self, frame: Any, text: str) -> list[Event]:
        number = self._message_number(frame)
        item = self._items.get(number)
        if item is None or ITEM_PART not in item.part_indices:
            self._early_arguments[number] = self._early_arguments.get(number, "") + text
            return []
        return [self._append(item, ITEM_PART, text)]

    def untyped_delta(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """A delta with something in it that its shape does not know."""
        return self.decode_delta(frame, frame.type.split(".")[1], decode_text(frame.delta))

    def _append_text(self, frame: Any, text: str, *, refusal: bool) -> list[Event]:
        number, place = self._message_number(frame), frame.content_index or 0
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _OpenItem(number, "message")
            events += [MessageStart(message=number, id=unset_to_none(frame.item_id))]
        if place not in item.part_indices:
            events.append(self._start_part(item, place, Refusal(text="") if refusal else Text(text="", annotations=())))
        return [*events, self._append(item, place, text)]

    def _append_reasoning(self, frame: Any, text: str, kind: str, block: int) -> list[Event]:
        number = self._message_number(frame)
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _OpenItem(number, "reasoning")
            events += [MessageStart(message=number, id=unset_to_none(frame.item_id))]
        if ITEM_PART not in item.part_indices:
            events.append(self._start_part(item, ITEM_PART, Reasoning(at="")))
        return [*events, self._append(item, ITEM_PART, text, kind, block)]

    def text_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._message_number(frame))
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
                said = item is not None and (place, None, 0) in item.received
                return [] if said else self._append_text(frame, text, refusal=word == "refusal")
        if item is not None and (ITEM_PART, kind, block) in item.received:
            return []
        return self._append_reasoning(frame, text, kind, block)

    def arguments_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._message_number(frame))
        if item is None or item.done or ITEM_PART not in item.part_indices or (ITEM_PART, None, 0) in item.received:
            return []
        text = decode_text(frame.arguments if frame.arguments is not UNSET else frame.input)
        return [self._append(item, ITEM_PART, text)] if text else []

    def part_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._message_number(frame))
        place = frame.content_index or 0
        if item is None or item.kind != "message" or place in item.part_indices or frame.part is UNSET:
            return []
        (part,) = decode_content([_read_content(frame.part, "/part")], "", is_output=True)
        events: list[Event] = []
        for earlier, final in item.final_parts.items():
            events += self._end_part(item, earlier, final)
        return [*events, self._start_part(item, place, part)]

    def part_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """What a part is in the end. It waits as long as it can: its item will say more of it (log probabilities)."""
        item = self._items.get(self._message_number(frame))
        place = frame.content_index or 0
        if item is not None and item.kind == "message" and place in item.part_indices and frame.part is not UNSET:
            (item.final_parts[place],) = decode_content([_read_content(frame.part, "/part")], "", is_output=True)
        return []

    def annotation_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        item = self._items.get(self._message_number(frame))
        place = frame.content_index or 0
        if item is None or place not in item.part_indices or frame.annotation is UNSET:
            return []
        item.cited_parts.add(place)
        return [PartDelta(index=item.part_indices[place], annotation=decode_annotation(frame.annotation))]


_DELTA_KINDS: dict[type, str] = {
    TextDelta: "output_text",
    RefusalDelta: "refusal",
    ThoughtDelta: "reasoning_text",
    SummaryDelta: "reasoning_summary_text",
    ArgumentsDelta: "arguments",
    InputDelta: "arguments",
}

# These open and close a response themselves; all others need it open.
_ITEM_DELTAS = frozenset({ArgumentsDelta, InputDelta})
_OTHER = -2
# How an item grows that is told whole when it is done.
_ITEM_EVENTS = re.compile(
    r"response\.(web_search_call|file_search_call|code_interpreter_call|image_generation_call|mcp_call|mcp_list_tools"
    r"|shell_call|local_shell_call|apply_patch_call|computer_call|compaction|tool_search|program|reasoning|output)"
)
_STATES = ("created", "in_progress", "queued", "completed", "incomplete", "failed")
_ENVELOPE_TYPES = frozenset(["error", *(f"response.{state}" for state in _STATES)])

_decode_typed = msgspec.json.Decoder(DeltaUnion).decode
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


class Decoder:
    def __init__(self, context: ResponseContext) -> None:
        self._splitter = SseSplitter()
        tools = None if context.request is None else context.request.tools
        self._items = growth = StreamItemDecoder(ItemDecoder(tools, is_response=True))
        self._started = False
        self._ended = False
        self._handlers: dict[str, Callable[[UntypedFrame, bytes], list[Event]]] = {
            "response.created": self._created,
            "response.in_progress": self._lifecycle,
            "response.queued": self._lifecycle,
            "response.completed": self._terminal,
            "response.incomplete": self._terminal,
            "response.failed": self._terminal,
            "response.output_item.added": growth.item_added,
            "response.output_item.done": growth.item_done,
            "response.content_part.added": growth.part_added,
            "response.content_part.done": growth.part_done,
            "response.output_text.delta": growth.untyped_delta,
            "response.refusal.delta": growth.untyped_delta,
            "response.reasoning_text.delta": growth.untyped_delta,
            "response.reasoning_summary_text.delta": growth.untyped_delta,
            "response.function_call_arguments.delta": growth.untyped_delta,
            "response.custom_tool_call_input.delta": growth.untyped_delta,
            "response.output_text.done": growth.text_done,
            "response.refusal.done": growth.text_done,
            "response.reasoning_text.done": growth.text_done,
            "response.reasoning_summary_text.done": growth.text_done,
            "response.output_text.annotation.added": growth.annotation_added,
            "response.reasoning_summary_part.added": _ignore,
            "response.reasoning_summary_part.done": _ignore,
            "response.function_call_arguments.done": growth.arguments_done,
            "response.custom_tool_call_input.done": growth.arguments_done,
            "error": self._error,
        }

    def feed(self, data: bytes) -> list[Event]:
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        return events if self._ended else events + self._fail_stream("the stream ended before its answer did")

    def _fail_stream(self, reason: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [*self._ensure_started(), ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        if self._ended:
            return events
        heard = self._items.text_indices
        grown: int | None = None  # the part that the last delta made grow, and where it was told
        output = content = None
        for data in frames:
            try:
                shape = _decode_typed(data)
            except JSON_ERRORS:
                events += self._decode_untyped(data)
                if self._ended:
                    break
                grown = None
                continue
            kind = type(shape)
            place = shape.content_index if kind is TextDelta else ITEM_PART if kind in _ITEM_DELTAS else _OTHER
            if grown is None or shape.output_index != output or place != content:
                output, content = shape.output_index, place
                grown = heard.get((output, content))
            if grown is not None:
                events.append(PartDelta(index=grown, text=shape.delta, plain=True))
            else:
                events += self._ensure_started() + self._items.decode_delta(shape, _DELTA_KINDS[kind], shape.delta)
        return events

    def _decode_untyped(self, data: bytes) -> list[Event]:
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            if not data.isascii():
                data.decode()  # what stays raw is not looked into otherwise
            frame = decode_frame(data)
            if not frame.type and frame.error is not UNSET:
                return self._error(frame, data)
            if frame.type in _ENVELOPE_TYPES:
                return self._handlers[frame.type](frame, data)
            method = self._handlers.get(frame.type)
            if method is None:
                return [
                    *self._ensure_started(),
                    passthrough_notice(data, "frame" if _ITEM_EVENTS.match(frame.type) else UNKNOWN_FRAME),
                ]
            return self._ensure_started() + method(frame, data)
        except (DecodeError, *JSON_ERRORS) as error:
            if b'"response.created"' in data[:200] or b'"response.in_progress"' in data[:200]:
                return []  # some proxies cut these long frames, and they say nothing that comes later would not
            return self._fail_stream(str(error))

    # ---- the envelope

    def _ensure_started(self) -> list[Event]:
        """A stream that starts in the middle still has a response."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY)]

    def _created(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        if self._started or frame.response is UNSET:
            return []
        self._started = True
        shape = _read_response(frame.response, "/response")
        kept = response_extras(shape, is_start=True)
        own = (kept["extras"] or {}).get(FAMILY)
        start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(shape.id),
            model=unset_to_none(shape.model),
            created=unset_to_none(shape.created_at),
            status=unset_to_none(shape.status),
            extras={FAMILY: own} if own else None,
            wire_form=tuple([token for token in kept["wire_form"] if ":canonical:" in token]),
        )
        return [start, passthrough_notice(data, "created")]

    def _lifecycle(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        return self._created(frame, data) if not self._started else [passthrough_notice(data)]

    def _terminal(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        raw = Raw(b"{}") if frame.response is UNSET else frame.response
        shape = _read_response(raw, "/response")
        events = self._ensure_started() if self._started else self._created(frame, data)
        for number, item in enumerate(shape.output or []):
            if not self._items.is_done(number):
                events += self._items.finish_item(number, item, f"/response/output/{number}")
        events += self._items.close_open_items()
        self._ended = True
        if self._items.final_messages and not shape.output:
            shape.output = []  # null says only that the items were told already
        stop = decode_stop(shape, tuple(message for _, message in sorted(self._items.final_messages.items())))
        if stop is not None:
            events.append(CandidateEnd(stop=stop))
        if isinstance(shape.usage, UsageShape):
            events.append(UsageReport(usage=decode_usage(shape.usage, shape.tool_usage)))
        kept = response_extras(shape)
        if isinstance(shape.error, ErrorShape):
            events.append(ResponseFailed(error=decode_failure(shape.error), status=unset_to_none(shape.status), **kept))
        else:
            events.append(
                ResponseEnd(status=unset_to_none(shape.status), continuation=decode_response_state(shape), **kept)
            )
        return events

    def _error(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        events = self._ensure_started()
        self._ended = True
        try:
            error = decode_error(data, None)
        except DecodeError:
            error = ApiError(kind="server", message=data.decode(errors="replace"))
        return [*events, ResponseFailed(error=error)]


def _ignore(frame: UntypedFrame, data: bytes) -> list[Event]:
    """For events that say what others say too."""
    return []


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    return Decoder(context)
