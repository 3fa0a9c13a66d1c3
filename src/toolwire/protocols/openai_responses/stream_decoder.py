"""Event streams of the Responses API (SSE) to canonical events; `stream_encoder` is the reverse.

    created (queued)? in_progress  item*  (completed | incomplete | failed | error)
    item := output_item.added  (content_part.added  delta*  done  content_part.done)*  output_item.done

1. An item is a message; its `output_index` is the number of that message. Ids may change between events or be
   missing, so they are used only where there is no index.
2. Messages, reasoning and calls with arguments start when they are announced. Other items are decoded when they are
   done; events about them before that become a `Notice`.
3. Every text is emitted once. Text that only a `done` or the terminal event contains is emitted then.
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
    append_text,
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
    ReasoningTextDelta,
    RefusalDelta,
    ResponseShape,
    SummaryDelta,
    TextDelta,
    UntypedFrame,
    UsageShape,
)

decode_frame = msgspec.json.Decoder(UntypedFrame).decode


def item_kind(item: Raw) -> str:
    """Return the type of an item."""
    return decode_frame(item).type


def passthrough_notice(data: bytes, kind: str = "frame") -> Notice:
    """Return a notice that holds an event which only clients of this API can use."""
    return Notice(kind=kind, extras={FAMILY: {"frame": Raw(data)}})


def decode_text(raw: Raw | UnsetType) -> str:
    """Decode a string; a JSON object, which some servers send as arguments, becomes its text."""
    if raw is UNSET or bytes(raw) == b"null":
        return ""
    return str(msgspec.json.decode(raw)) if bytes(raw)[:1] == b'"' else str(raw, "utf-8")


def empty_part(part: Part) -> Part:
    """Return the part without the text that its deltas will add."""
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
    """Return (text, reasoning kind or None, block number) for each text of a part that is sent as deltas."""
    match part:
        case Text() | Refusal():
            return [(part.text, None, 0)]
        case ToolCall():
            return [(part.arguments, None, 0)]
        case Reasoning():
            texts: list[tuple[str, str | None, int]] = []
            counts = {"full": 0, "summary": 0}
            for block in part.content:
                if isinstance(block, ReasoningText):
                    texts.append((block.text, block.kind, counts[block.kind]))
                    counts[block.kind] += 1
            return texts
        case _:
            return []


_STREAMED_KINDS = ("message", "function_call", "custom_tool_call", "reasoning")
ITEM_PART = -1
"""Position of a part that is the item itself, beside the content indices of messages."""

_read_content = Reader[Any](ContentUnion, FAMILY).read


class _OpenItem:
    """An item that has been announced, and its parts."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number  # of the message
        self.kind = kind
        self.part_indices: dict[int, int] = {}  # by position
        self.received: set[tuple[int, str | None, int]] = set()  # position, kind and block of texts with deltas
        self.ended_parts: set[int] = set()  # part indices
        self.final_parts: dict[int, Part] = {}  # by position, until the part ends
        self.cited_parts: set[int] = set()  # positions whose annotations were streamed
        self.done = False


class StreamItemDecoder:
    """Decodes the events of items: everything between the start and the end of the response."""

    def __init__(self, item_decoder: ItemDecoder) -> None:
        # Part index by output and content index, for parts that can only grow by text: the decoder's fast path.
        self.text_indices: dict[tuple[int, int], int] = {}
        self.final_messages: dict[int, Message] = {}  # of items that are done, by number
        self._item_decoder = item_decoder
        self._items: dict[int, _OpenItem] = {}  # by number
        self._message_numbers: dict[int, int] = {}  # by output index, where they differ
        self._numbers_by_id: dict[str, int] = {}
        self._early_arguments: dict[int, str] = {}  # received before their item
        self._last_number = -1
        self._part_count = 0

    def is_done(self, number: int) -> bool:
        """Return whether the item of a message is done."""
        return number in self._items and self._items[number].done

    def close_open_items(self) -> list[Event]:
        """Return the end events of messages and reasoning that the stream left open.

        Calls stay open: a client must not run a call whose arguments may be incomplete.
        """
        events: list[Event] = []
        for item in self._items.values():
            if item.done or item.kind not in ("message", "reasoning"):
                continue
            for position, index in item.part_indices.items():
                if index not in item.ended_parts:
                    events.append(PartEnd(index=index, final=item.final_parts.get(position)))
            events.append(MessageEnd(message=item.number))
        return events

    def _message_number(self, frame: Any) -> int:
        """Return the number of the canonical message that an event belongs to, by output index or item id."""
        index = frame.output_index
        if isinstance(index, int):
            return self._message_numbers.get(index, index)
        if isinstance(frame.item_id, str) and frame.item_id in self._numbers_by_id:
            return self._numbers_by_id[frame.item_id]
        return max(self._last_number, 0)

    def item_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.output_item.added`."""
        if frame.item is UNSET:
            return []
        events: list[Event] = []
        number = self._message_number(frame) if isinstance(frame.output_index, int) else self._last_number + 1
        if (item := self._items.get(number)) is not None:
            if not item.done:
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
        """Return the start of an item's message and, unless the item holds content, of its only part."""
        # The status is omitted: until the item is done it is always "in_progress".
        start = MessageStart(message=item.number, role=message.role, id=message.id, phase=message.phase)
        if item.kind == "message":
            return [start]
        events: list[Event] = [start, self._start_part(item, ITEM_PART, empty_part(message.parts[0]))]
        if text := self._early_arguments.pop(item.number, ""):
            events.append(self._append(item, ITEM_PART, text))
        return events

    def _start_part(self, item: _OpenItem, position: int, part: Part) -> PartStart:
        """Return the start of a part under the next free index; `position` is its place in the item."""
        index = item.part_indices[position] = self._part_count
        self._part_count += 1
        return PartStart(index=index, part=part, message=item.number)

    def _append(self, item: _OpenItem, position: int, text: str, kind: Any = None, block: int = 0) -> PartDelta:
        """Return a text delta for the open part at `position` of the item."""
        item.received.add((position, kind, block))
        if kind is None and item.number not in self._message_numbers:
            self.text_indices[item.number, position] = item.part_indices[position]
        return PartDelta(index=item.part_indices[position], text=text, kind=kind, block=block)

    def item_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.output_item.done`."""
        if frame.item is UNSET:
            return []
        number = self._message_number(frame)
        if (item := self._items.get(number)) is not None and item.done:
            return []
        self._last_number = max(self._last_number, number)
        return self.finish_item(number, frame.item, "/item")

    def finish_item(self, number: int, raw: Raw, path: str) -> list[Event]:
        """Return the events of a completed item that were not emitted yet, and its end."""
        message = self._item_decoder.decode(raw, path)
        events: list[Event] = []
        item = self._items.get(number)
        if item is None:
            item = self._items[number] = _OpenItem(number, item_kind(raw))
            events += self._start_item(item, message)
        if item.kind == "message":
            for position, part in enumerate(message.parts):
                if position not in item.part_indices:
                    events.append(self._start_part(item, position, empty_part(part)))
                events += self._end_part(item, position, part)
        elif message.parts:
            events += self._end_part(item, ITEM_PART, message.parts[0])
        item.done = True
        self.final_messages[number] = message
        end = MessageEnd(message=number, id=message.id, status=message.status, phase=message.phase)
        return [*events, replace(end, extras=message.extras, wire_form=message.wire_form)]

    def _end_part(self, item: _OpenItem, position: int, final: Part) -> list[Event]:
        """Return the end of a part, after deltas for texts, signature and annotations that had no event."""
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
            events += [PartDelta(index=index, annotation=annotation) for annotation in final.annotations or ()]
        return [*events, PartEnd(index=index, final=final)]

    # ---- deltas and their ends

    def decode_delta(self, frame: Any, kind: str, text: str) -> list[Event]:
        """Decode the text of a delta of this kind into events."""
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
        """Return a delta of a call's arguments; they are buffered until the call is announced."""
        number = self._message_number(frame)
        item = self._items.get(number)
        if item is None or ITEM_PART not in item.part_indices:
            self._early_arguments[number] = self._early_arguments.get(number, "") + text
            return []
        return [self._append(item, ITEM_PART, text)]

    def untyped_delta(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Decode a delta that has fields which its wire class lacks."""
        return self.decode_delta(frame, frame.type.split(".")[1], decode_text(frame.delta))

    def _append_text(self, frame: Any, text: str, *, refusal: bool) -> list[Event]:
        """Return a delta of a text or refusal, after starts of its message and part if needed."""
        number, position = self._message_number(frame), frame.content_index or 0
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _OpenItem(number, "message")
            events += [MessageStart(message=number, id=unset_to_none(frame.item_id))]
        if position not in item.part_indices:
            events.append(
                self._start_part(item, position, Refusal(text="") if refusal else Text(text="", annotations=()))
            )
        return [*events, self._append(item, position, text)]

    def _append_reasoning(self, frame: Any, text: str, kind: str, block: int) -> list[Event]:
        """Return a delta of reasoning, after starts of its message and part if needed."""
        number = self._message_number(frame)
        events: list[Event] = []
        if (item := self._items.get(number)) is None:
            item = self._items[number] = _OpenItem(number, "reasoning")
            events += [MessageStart(message=number, id=unset_to_none(frame.item_id))]
        if ITEM_PART not in item.part_indices:
            events.append(self._start_part(item, ITEM_PART, Reasoning(at="")))
        return [*events, self._append(item, ITEM_PART, text, kind, block)]

    def text_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle the end of a text; return it as a delta if it had none."""
        item = self._items.get(self._message_number(frame))
        text = frame.refusal if frame.type == "response.refusal.done" else frame.text
        if not isinstance(text, str) or not text:
            return []
        match frame.type.split(".")[1]:
            case "reasoning_text":
                kind, block = "full", frame.content_index or 0
            case "reasoning_summary_text":
                kind, block = "summary", frame.summary_index or 0
            case text_kind:
                is_received = item is not None and (frame.content_index or 0, None, 0) in item.received
                return [] if is_received else self._append_text(frame, text, refusal=text_kind == "refusal")
        if item is not None and (ITEM_PART, kind, block) in item.received:
            return []
        return self._append_reasoning(frame, text, kind, block)

    def arguments_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle the end of arguments; return them as a delta if they had none."""
        item = self._items.get(self._message_number(frame))
        if item is None or item.done or ITEM_PART not in item.part_indices or (ITEM_PART, None, 0) in item.received:
            return []
        text = decode_text(frame.arguments if frame.arguments is not UNSET else frame.input)
        return [self._append(item, ITEM_PART, text)] if text else []

    def part_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.content_part.added`."""
        item = self._items.get(self._message_number(frame))
        position = frame.content_index or 0
        if item is None or item.kind != "message" or position in item.part_indices or frame.part is UNSET:
            return []
        (part,) = decode_content([_read_content(frame.part, "/part")], "", is_output=True)
        events: list[Event] = []
        for earlier_position, final in item.final_parts.items():
            events += self._end_part(item, earlier_position, final)
        return [*events, self._start_part(item, position, part)]

    def part_done(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Store a finished part; its end comes with its item, which may add log probabilities."""
        item = self._items.get(self._message_number(frame))
        position = frame.content_index or 0
        if item is not None and item.kind == "message" and position in item.part_indices and frame.part is not UNSET:
            (item.final_parts[position],) = decode_content([_read_content(frame.part, "/part")], "", is_output=True)
        return []

    def annotation_added(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.output_text.annotation.added`."""
        item = self._items.get(self._message_number(frame))
        position = frame.content_index or 0
        if item is None or position not in item.part_indices or frame.annotation is UNSET:
            return []
        item.cited_parts.add(position)
        return [PartDelta(index=item.part_indices[position], annotation=decode_annotation(frame.annotation))]


_DELTA_KINDS: dict[type, str] = {
    TextDelta: "output_text",
    RefusalDelta: "refusal",
    ReasoningTextDelta: "reasoning_text",
    SummaryDelta: "reasoning_summary_text",
    ArgumentsDelta: "arguments",
    InputDelta: "arguments",
}

_ITEM_DELTAS = frozenset({ArgumentsDelta, InputDelta})
_OTHER = -2
# Progress events of items that are decoded when they are done.
_ITEM_EVENTS = re.compile(
    r"response\.(web_search_call|file_search_call|code_interpreter_call|image_generation_call|mcp_call|mcp_list_tools"
    r"|shell_call|local_shell_call|apply_patch_call|computer_call|compaction|tool_search|program|reasoning|output)"
)
_STATES = ("created", "in_progress", "queued", "completed", "incomplete", "failed")
# These events open or close the response; all others require it to be open.
_ENVELOPE_TYPES = frozenset(["error", *(f"response.{state}" for state in _STATES)])

_decode_typed = msgspec.json.Decoder(DeltaUnion).decode
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


class Decoder:
    """The stream decoder of the Responses API."""

    def __init__(self, context: ResponseContext) -> None:
        self._splitter = SseSplitter()
        tools = None if context.request is None else context.request.tools
        self._items = items = StreamItemDecoder(ItemDecoder(tools, is_response=True))
        self._started = False
        self._ended = False
        self._handlers: dict[str, Callable[[UntypedFrame, bytes], list[Event]]] = {
            "response.created": self._created,
            "response.in_progress": self._lifecycle,
            "response.queued": self._lifecycle,
            "response.completed": self._terminal,
            "response.incomplete": self._terminal,
            "response.failed": self._terminal,
            "response.output_item.added": items.item_added,
            "response.output_item.done": items.item_done,
            "response.content_part.added": items.part_added,
            "response.content_part.done": items.part_done,
            "response.output_text.delta": items.untyped_delta,
            "response.refusal.delta": items.untyped_delta,
            "response.reasoning_text.delta": items.untyped_delta,
            "response.reasoning_summary_text.delta": items.untyped_delta,
            "response.function_call_arguments.delta": items.untyped_delta,
            "response.custom_tool_call_input.delta": items.untyped_delta,
            "response.output_text.done": items.text_done,
            "response.refusal.done": items.text_done,
            "response.reasoning_text.done": items.text_done,
            "response.reasoning_summary_text.done": items.text_done,
            "response.output_text.annotation.added": items.annotation_added,
            "response.reasoning_summary_part.added": _ignore,
            "response.reasoning_summary_part.done": _ignore,
            "response.function_call_arguments.done": items.arguments_done,
            "response.custom_tool_call_input.done": items.arguments_done,
            "error": self._error,
        }

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events."""
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def close(self) -> list[Event]:
        """Decode the buffered bytes; return a failure event if the response is incomplete."""
        events = self._read(self._splitter.close())
        return (
            events if self._ended else events + self._fail_stream("the stream ended before the response was complete")
        )

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [*self._ensure_started(), ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def _read(self, frames: list[bytes]) -> list[Event]:
        """Decode frames; consecutive text deltas of one part take the fast path."""
        events: list[Event] = []
        if self._ended:
            return events
        text_indices = self._items.text_indices
        part_index: int | None = None  # of the last delta, whose output and content index follow
        output = content = None
        for data in frames:
            try:
                shape = _decode_typed(data)
            except JSON_ERRORS:
                events += self._decode_untyped(data)
                if self._ended:
                    break
                part_index = None
                continue
            kind = type(shape)
            position = shape.content_index if kind is TextDelta else ITEM_PART if kind in _ITEM_DELTAS else _OTHER
            if part_index is None or shape.output_index != output or position != content:
                output, content = shape.output_index, position
                part_index = text_indices.get((output, content))
            if part_index is not None:
                append_text(events, part_index, shape.delta)
            else:
                events += self._ensure_started() + self._items.decode_delta(shape, _DELTA_KINDS[kind], shape.delta)
        return events

    def _decode_untyped(self, data: bytes) -> list[Event]:
        """Decode an event that is not a delta of text only."""
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            if not data.isascii():
                data.decode()  # raw objects are not validated otherwise
            frame = decode_frame(data)
            if not frame.type and frame.error is not UNSET:
                return self._error(frame, data)
            if frame.type in _ENVELOPE_TYPES:
                return self._handlers[frame.type](frame, data)
            handler = self._handlers.get(frame.type)
            if handler is None:
                return [
                    *self._ensure_started(),
                    passthrough_notice(data, "frame" if _ITEM_EVENTS.match(frame.type) else UNKNOWN_FRAME),
                ]
            return self._ensure_started() + handler(frame, data)
        except (DecodeError, *JSON_ERRORS) as error:
            if b'"response.created"' in data[:200] or b'"response.in_progress"' in data[:200]:
                return []  # some proxies truncate these long frames; later events repeat their content
            return self._fail_stream(str(error))

    # ---- start and end of the response

    def _ensure_started(self) -> list[Event]:
        """Return start events if the stream began without `response.created`, else an empty list."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY)]

    def _created(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Start the response from `response.created`, or from the first event that contains one."""
        if self._started or frame.response is UNSET:
            return []
        self._started = True
        shape = _read_response(frame.response, "/response")
        extras_and_form = response_extras(shape, is_start=True)
        extras = (extras_and_form["extras"] or {}).get(FAMILY)
        start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(shape.id),
            model=unset_to_none(shape.model),
            created=unset_to_none(shape.created_at),
            status=unset_to_none(shape.status),
            extras={FAMILY: extras} if extras else None,
            wire_form=tuple([token for token in extras_and_form["wire_form"] if ":canonical:" in token]),
        )
        return [start, passthrough_notice(data, "created")]

    def _lifecycle(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.in_progress` and `response.queued`."""
        return self._created(frame, data) if not self._started else [passthrough_notice(data)]

    def _terminal(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle `response.completed`, `response.incomplete` and `response.failed`."""
        raw = Raw(b"{}") if frame.response is UNSET else frame.response
        shape = _read_response(raw, "/response")
        events = self._ensure_started() if self._started else self._created(frame, data)
        for number, item in enumerate(shape.output or []):
            if not self._items.is_done(number):
                events += self._items.finish_item(number, item, f"/response/output/{number}")
        events += self._items.close_open_items()
        self._ended = True
        if self._items.final_messages and not shape.output:
            shape.output = []  # null: the items were streamed before
        stop = decode_stop(shape, tuple(message for _, message in sorted(self._items.final_messages.items())))
        if stop is not None:
            events.append(CandidateEnd(stop=stop))
        if isinstance(shape.usage, UsageShape):
            events.append(UsageReport(usage=decode_usage(shape.usage, shape.tool_usage)))
        extras_and_form = response_extras(shape)
        if isinstance(shape.error, ErrorShape):
            events.append(
                ResponseFailed(error=decode_failure(shape.error), status=unset_to_none(shape.status), **extras_and_form)
            )
        else:
            events.append(
                ResponseEnd(
                    status=unset_to_none(shape.status), continuation=decode_response_state(shape), **extras_and_form
                )
            )
        return events

    def _error(self, frame: UntypedFrame, data: bytes) -> list[Event]:
        """Handle an `error` event, which ends the stream."""
        events = self._ensure_started()
        self._ended = True
        try:
            error = decode_error(data, None)
        except DecodeError:
            error = ApiError(kind="server", message=data.decode(errors="replace"))
        return [*events, ResponseFailed(error=error)]


def _ignore(frame: UntypedFrame, data: bytes) -> list[Event]:
    """Return no events for an event that only repeats others."""
    return []


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Return a decoder for one response stream."""
    return Decoder(context)
