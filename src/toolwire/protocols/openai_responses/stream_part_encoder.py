"""Canonical parts to the items of a Responses stream.

1. For the same protocol, an item is a message of the source. For other protocols, consecutive texts form one message
   item, each call and each reasoning is an item of its own, and items follow one another without overlap.
2. An item is announced with the id that its end and the final output have.
3. The text of deltas is repeated when a part is done and in the final output, but never in another delta.
4. For other protocols, an item is done when the next one starts or the response ends: only then is it known whether it
   was truncated, and a client may run a call as soon as it is done.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Signature,
    Text,
    ToolCall,
)
from toolwire.canonical.events import MessageEnd, MessageStart, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import TextPieces
from toolwire.codec.encoding.turns import LocatedPart, derive_call_id
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.losses import SourcePath
from toolwire.protocols.openai_responses.parts.content import encode_annotation, encode_content, part_logprobs
from toolwire.protocols.openai_responses.parts.hosted_calls import encode_unanswered_calls
from toolwire.protocols.openai_responses.parts.messages import encode_items
from toolwire.protocols.openai_responses.parts.native_calls import NATIVE_CALLS
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.stream_decoder import empty_part

_encode_json = msgspec.json.Encoder().encode


class FrameEncoder:
    """Encodes SSE events with consecutive sequence numbers."""

    def __init__(self) -> None:
        self.sequence_number = 0

    def encode(self, kind: str, **fields: Any) -> bytes:
        """Encode one SSE event of this type, with the next sequence number."""
        body = {"type": kind, "sequence_number": self.sequence_number, **fields}
        self.sequence_number += 1
        return encode_sse_frame(_encode_json(body), kind.encode())

    def encode_delta(self, head: bytes, text: str) -> bytes:
        """Encode a delta event; `head` holds its constant bytes up to the sequence number."""
        number = self.sequence_number
        self.sequence_number = number + 1
        return b'%b%d,"delta":%b}\n\n' % (head, number, _encode_json(text))


def encode_delta_head(kind: str, **fields: Any) -> bytes:
    """Return the constant bytes of a delta event up to its sequence number."""
    body = _encode_json({"type": kind, **fields})
    return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), body[:-1])


class OpenItem:
    """An item that was announced and is not done."""

    def __init__(self, index: int, message: int, header: Message, kind: str) -> None:
        self.index = index  # in the output
        self.message = message  # number in the source
        self.header = header  # id, status and extras of the item
        self.kind = kind  # message, reasoning, call or complete
        self.content_count = 0
        self.located_parts: list[LocatedPart] = []  # those that have ended

    def event_fields(self, content: int | None = None) -> dict[str, Any]:
        """Return the fields that every event about the item has."""
        fields: dict[str, Any] = {"item_id": self.header.id, "output_index": self.index}
        return fields if content is None else fields | {"content_index": content}


class OpenPart:
    """A part that has started and not ended."""

    def __init__(self, start: PartStart, path: SourcePath) -> None:
        self.start = start
        self.path = path
        self.item: OpenItem | None = None
        self.content_index = 0
        self.head = b""  # of every delta, up to its sequence number; empty if deltas differ
        self.pieces = TextPieces()
        self.citations: list[Citation] = []
        self.signature: Signature | None = None
        self.call_id: str | None = None
        self.reasoning_texts: dict[tuple[str, int], TextPieces] = {}
        self.open_text: tuple[str, int] | None = None

    def final(self, end: PartEnd) -> Part:
        """Return the complete part: the one in its end event, or else the one that its deltas built."""
        part = self._accumulated_part() if end.final is None else end.final
        if isinstance(part, ToolCall) and self.call_id is not None:
            return replace(part, id=self.call_id)
        return part

    def _accumulated_part(self) -> Part:
        """Build the part from the deltas received."""
        part, text = self.start.part, "".join(self.pieces)
        match part:
            case Text():
                annotations = (*(part.annotations or ()), *self.citations)
                return replace(
                    part,
                    text=text,
                    annotations=annotations or part.annotations,
                    signature=self.signature or part.signature,
                )
            case Refusal():
                return replace(part, text=text)
            case ToolCall():
                return replace(part, arguments=text, signature=self.signature or part.signature)
            case Reasoning():
                texts: list[Any] = [
                    ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
                    for (kind, _), pieces in self.reasoning_texts.items()
                ]
                return replace(part, content=(*part.content, *texts), signature=self.signature or part.signature)
            case _:
                return part


_ID_PREFIXES = {"message": "msg", "reasoning": "rs", "call": "fc"}
_EMPTY_MESSAGE = Message(role="assistant", parts=())


class StreamItemEncoder:
    """Encodes message and part events to the events of items."""

    def __init__(self, plan: ItemPlan, frame_encoder: FrameEncoder) -> None:
        self.output: dict[int, Any] = {}  # finished items
        self.announced_items: set[int] = set()  # output indices announced by events passed through
        self.has_refusal = False
        self._plan = plan
        self._frames = frame_encoder
        self._messages: dict[int, MessageStart] = {}
        self._part_counts: dict[int, int] = {}
        self.parts: dict[int, OpenPart] = {}
        self._items: dict[int, OpenItem] = {}
        self._open_item: OpenItem | None = None

    # ---- parts

    def message_start(self, event: MessageStart) -> None:
        """Store id, role and status of a message."""
        self._messages[event.message] = event

    def part_start(self, event: PartStart) -> bytes:
        """Encode the start of a part; a part that cannot have deltas returns no bytes until it ends."""
        number = self._part_counts[event.message] = self._part_counts.get(event.message, -1) + 1
        path = ("candidates", 0, "messages", event.message, "parts", number)
        open_part = self.parts[event.index] = OpenPart(event, path)
        part = event.part
        match part:
            case Text() | Refusal():
                return self._start_content(open_part, part) + self._encode_text(open_part, part.text)
            case OpaquePart() if self._plan.same_protocol and part.at is None:
                return self._start_content(open_part, part)
            case ToolCall() if part.executor == "client" and part.native not in NATIVE_CALLS:
                return self._start_call(open_part, part) + self._encode_text(open_part, part.arguments)
            case Reasoning() if self._plan.same_protocol:
                open_part.item, announced = self._start_item(event.message, "reasoning", part)
                return announced
            case _:
                return b""

    def part_delta(self, event: PartDelta) -> bytes:
        """Encode a delta of an open part."""
        open_part = self.parts.get(event.index)
        if open_part is None:
            return b""
        if event.extras and (logprobs := part_logprobs(event)) is not UNSET and open_part.item is not None:
            return self._encode_text_with_logprobs(open_part, open_part.item, event.text, logprobs)
        if open_part.head and event.text:
            open_part.pieces.append(event.text)
            return self._frames.encode_delta(open_part.head, event.text)
        if event.signature is not None:
            open_part.signature = event.signature
        if event.annotation is not None:
            return self._add_citation(open_part, event.annotation)
        if isinstance(open_part.start.part, Reasoning):
            return self._encode_reasoning(open_part, event) if event.kind is not None else b""
        open_part.pieces.append(event.text)
        return b""

    def part_end(self, event: PartEnd) -> bytes:
        """Encode the end of a part."""
        open_part = self.parts.pop(event.index, None)
        if open_part is None:
            return b""
        part = open_part.final(event)
        located_part = LocatedPart(part, open_part.path)
        if open_part.item is None:
            return self._encode_complete_part(located_part, open_part.start.message)
        open_part.item.located_parts.append(located_part)
        match part:
            case Text() | Refusal() | OpaquePart():
                return self._end_content(open_part, open_part.item, part)
            case ToolCall():
                closing = self._end_arguments(open_part, open_part.item, part)
            case _:
                closing = self._end_reasoning_text(open_part, open_part.item)
        if not self._plan.same_protocol:
            self._open_item = open_part.item
        return closing

    def message_end(self, event: MessageEnd) -> bytes:
        """Encode the end of the item of a message from a provider of this API."""
        if not self._plan.same_protocol:
            return b""
        item, opened = self._items.get(event.message), b""
        if item is None:
            item, opened = self._start_item(event.message, "message", Text(text=""))
        header = item.header
        item.header = replace(
            header,
            id=event.id or header.id,
            status=event.status or header.status,
            phase=event.phase or header.phase,
            extras=event.extras or header.extras,
            wire_form=header.wire_form + event.wire_form,
        )
        return opened + self._end_item(item)

    def close(self, *, is_truncated: bool) -> bytes:
        """Encode the end of all open items; `is_truncated`: the response ended before it was complete."""
        closing = self._end_open_item(is_truncated=is_truncated)
        for item in list(self._items.values()) if self._plan.same_protocol else ():
            closing += self._end_item(item)
        return closing + self._encode_items(encode_unanswered_calls(self._plan, len(self.output)))

    def close_waiting(self) -> bytes:
        """Encode the end of an item whose parts have all ended, when the response fails."""
        has_open_part = any(open_part.item is self._open_item for open_part in self.parts.values())
        return b"" if has_open_part else self._end_open_item()

    # ---- items

    def _start_item(self, message: int, kind: str, part: Part, path: SourcePath = ()) -> tuple[OpenItem, bytes]:
        """Open an item of the type `kind`; return it and the event that announces it without content."""
        same_protocol = self._plan.same_protocol
        index = message if same_protocol else len(self.output)
        item = self._items[index] = OpenItem(index, message, self._item_header(message, kind, part), kind)
        body: Any
        if same_protocol or kind == "call":
            self._plan.announced_header = None if same_protocol else item.header
            located_parts = [] if kind == "message" else [LocatedPart(empty_part(part), path)]
            (body,) = encode_items(located_parts, self._plan, item.header)
            self._plan.announced_header = None
        elif kind == "message":
            body = {"type": "message", "id": item.header.id, "role": "assistant", "content": []}
        else:
            body = {"type": "reasoning", "id": item.header.id, "summary": []}
        started = {"status": "in_progress"}
        if isinstance(part, ToolCall) and part.shape == "json" and not same_protocol:
            started["arguments"] = ""  # clients append the deltas to it
        if isinstance(body, dict):
            body |= started
        else:
            for name, value in started.items():
                setattr(body, name, value)
        return item, self._frames.encode("response.output_item.added", output_index=index, item=body)

    def _item_header(self, message: int, kind: str, part: Part) -> Message:
        """Return a message with id and status of an item.

        For a provider of this API, it has all fields of the item's message.
        """
        if not self._plan.same_protocol:
            freeform = isinstance(part, ToolCall) and part.shape == "freeform"
            header = self._plan.item_header("ctc" if freeform else _ID_PREFIXES[kind])
            if isinstance(part, Reasoning) and part.id is not None and part.id.startswith("rs_"):
                return replace(header, id=part.id)  # encrypted content is only valid with its own id
            return header
        start = self._messages.get(message) or MessageStart(message=message)
        return Message(
            role=start.role,
            parts=(),
            id=start.id,
            status=start.status,
            phase=start.phase,
            extras=start.extras,
            wire_form=start.wire_form,
        )

    def _end_open_item(self, *, is_truncated: bool = False) -> bytes:
        """Encode the end of the open item; no bytes if none is open."""
        item, self._open_item = self._open_item, None
        return b"" if item is None else self._end_item(item, is_truncated=is_truncated)

    def _end_item(self, open_item: OpenItem, *, is_truncated: bool = False) -> bytes:
        """Encode the end of an item, an event that repeats the complete item."""
        self._items.pop(open_item.index, None)
        same_protocol = self._plan.same_protocol
        if not same_protocol:
            last = open_item.located_parts[-1].part if open_item.located_parts else None
            is_truncated = is_truncated or (isinstance(last, ToolCall) and not last.complete)
            self._plan.announced_header = replace(
                open_item.header, status="incomplete" if is_truncated else "completed"
            )
        bodies = encode_items(
            open_item.located_parts, self._plan, open_item.header if same_protocol else _EMPTY_MESSAGE
        )
        self._plan.announced_header = None
        if not bodies:
            bodies = [
                {
                    "type": "message",
                    "id": open_item.header.id,
                    "role": "assistant",
                    "status": "completed",
                    "content": [],
                }
            ]
        self.output[open_item.index] = bodies[0]
        announced = b""
        if open_item.kind == "complete" and open_item.index not in self.announced_items:
            announced = self._frames.encode("response.output_item.added", output_index=open_item.index, item=bodies[0])
        return announced + self._frames.encode(
            "response.output_item.done", output_index=open_item.index, item=bodies[0]
        )

    def _encode_complete_part(self, located_part: LocatedPart, message: int) -> bytes:
        """Encode a part that becomes an item without deltas."""
        if self._plan.same_protocol:
            header = self._item_header(message, "complete", located_part.part)
            self._items.setdefault(message, OpenItem(message, message, header, "complete")).located_parts.append(
                located_part
            )
            return b""
        closing = self._end_open_item()
        self._plan.output_index = len(self.output)
        return closing + self._encode_items(encode_items([located_part], self._plan, _EMPTY_MESSAGE))

    def _encode_items(self, bodies: list[Any]) -> bytes:
        """Encode announcement and end of items that are complete."""
        encoded = b""
        for body in bodies:
            index = len(self.output)
            self.output[index] = body
            encoded += self._frames.encode("response.output_item.added", output_index=index, item=body)
            encoded += self._frames.encode("response.output_item.done", output_index=index, item=body)
        return encoded

    # ---- texts

    def _start_content(self, open_part: OpenPart, part: Text | Refusal | OpaquePart) -> bytes:
        """Encode the start of a content part, in the open message item or in a new one."""
        message = open_part.start.message
        opening = b""
        item = self._items.get(message) if self._plan.same_protocol else self._open_item
        if item is not None and (item.message != message or item.kind != "message"):
            opening, item = self._end_open_item(), None
        if item is None:
            item, announced = self._start_item(message, "message", part)
            opening += announced
            self._open_item = None if self._plan.same_protocol else item
        open_part.item, open_part.content_index = item, item.content_count
        item.content_count += 1
        fields = item.event_fields(open_part.content_index)
        if isinstance(part, Refusal):
            self.has_refusal = True
            open_part.head = encode_delta_head("response.refusal.delta", **fields)
        elif isinstance(part, Text):
            open_part.head = encode_delta_head("response.output_text.delta", **fields, logprobs=[])
        block = self._encode_block(empty_part(part), open_part.path)
        return opening + self._frames.encode("response.content_part.added", **fields, part=block)

    def _encode_block(self, part: Part, path: SourcePath) -> Any:
        """Encode one content part."""
        return encode_content([LocatedPart(part, path)], self._plan, is_output=True)[0]

    def _encode_text(self, open_part: OpenPart, text: str) -> bytes:
        """Encode a delta of the part's text."""
        if not text:
            return b""
        open_part.pieces.append(text)
        return self._frames.encode_delta(open_part.head, text)

    def _encode_text_with_logprobs(self, open_part: OpenPart, open_item: OpenItem, text: str, logprobs: Raw) -> bytes:
        """Encode a text delta with log probabilities.

        Log probabilities without text are sent when the text is done.
        """
        if not text:
            return b""
        open_part.pieces.append(text)
        kind = "response.output_text.delta"
        return self._frames.encode(
            kind, **open_item.event_fields(open_part.content_index), delta=text, logprobs=logprobs
        )

    def _add_citation(self, open_part: OpenPart, citation: Citation) -> bytes:
        """Add a citation to a text; return its event for a provider of this API, else no bytes until the text ends."""
        open_part.citations.append(citation)
        if open_part.item is None or not self._plan.same_protocol:
            return b""
        return self._encode_annotation(
            open_part.item, open_part.content_index, len(open_part.citations) - 1, encode_annotation(citation)
        )

    def _encode_annotation(self, open_item: OpenItem, content: int, number: int, annotation: Any) -> bytes:
        """Encode an annotation event."""
        fields = open_item.event_fields(content)
        kind = "response.output_text.annotation.added"
        return self._frames.encode(kind, **fields, annotation_index=number, annotation=annotation)

    def _end_content(self, open_part: OpenPart, open_item: OpenItem, part: Text | Refusal | OpaquePart) -> bytes:
        """Encode the end of a content part."""
        fields = open_item.event_fields(open_part.content_index)
        encoded = b""
        block = self._encode_block(part, open_part.path)
        if isinstance(part, Text):
            if not self._plan.same_protocol:
                for number, annotation in enumerate(block.annotations):
                    encoded += self._encode_annotation(open_item, open_part.content_index, number, annotation)
            streamed_logprobs = part_logprobs(part)
            logprobs = [] if streamed_logprobs is UNSET else streamed_logprobs
            encoded += self._frames.encode("response.output_text.done", **fields, text=part.text, logprobs=logprobs)
        elif isinstance(part, Refusal):
            encoded = self._frames.encode("response.refusal.done", **fields, refusal=part.text)
        return encoded + self._frames.encode("response.content_part.done", **fields, part=block)

    # ---- calls

    def _start_call(self, open_part: OpenPart, part: ToolCall) -> bytes:
        """Encode the start of the item of a function or custom tool call."""
        opening = self._end_open_item()
        opening += self._encode_items(encode_unanswered_calls(self._plan, len(self.output)))
        if not part.id and not self._plan.same_protocol:
            # The finished call has the same id.
            indices = [step for step in open_part.path if isinstance(step, int)]
            open_part.call_id = derive_call_id(part.name, self._plan.seed or "", *indices)
            part = replace(part, id=open_part.call_id)
        open_part.item, announced = self._start_item(open_part.start.message, "call", part, open_part.path)
        freeform = part.shape == "freeform"
        kind = "response.custom_tool_call_input.delta" if freeform else "response.function_call_arguments.delta"
        open_part.head = encode_delta_head(kind, **open_part.item.event_fields())
        return opening + announced

    def _end_arguments(self, open_part: OpenPart, open_item: OpenItem, part: ToolCall) -> bytes:
        """Encode the end of a call's arguments; empty arguments from other protocols become `{}`."""
        if part.shape == "freeform":
            return self._frames.encode(
                "response.custom_tool_call_input.done", **open_item.event_fields(), input=part.arguments
            )
        text = part.arguments
        delta = b""
        if not self._plan.same_protocol and not text.strip():
            text = "{}"
            delta = self._encode_text(open_part, text) if not open_part.pieces else b""
        return delta + self._frames.encode(
            "response.function_call_arguments.done", **open_item.event_fields(), arguments=text
        )

    # ---- reasoning

    def _encode_reasoning(self, open_part: OpenPart, event: PartDelta) -> bytes:
        """Encode a reasoning delta.

        Reasoning of other protocols is sent as a summary, since clients display only summaries.
        """
        opening = b""
        if (item := open_part.item) is None:
            opening = self._end_open_item()
            item, announced = self._start_item(open_part.start.message, "reasoning", open_part.start.part)
            open_part.item = item
            opening += announced
        key = (event.kind or "full", event.block)
        if open_part.open_text != key:
            opening += self._end_reasoning_text(open_part, item)
            open_part.open_text = key
            if key not in open_part.reasoning_texts:
                open_part.reasoning_texts[key] = TextPieces()
                opening += self._encode_reasoning_event(open_part, item, key, "added", "")
            open_part.head = b""
        if not event.text:
            return opening
        open_part.reasoning_texts[key].append(event.text)
        return opening + self._encode_reasoning_event(open_part, item, key, "delta", event.text)

    def _end_reasoning_text(self, open_part: OpenPart, open_item: OpenItem) -> bytes:
        """Encode the end of the open reasoning text; no bytes if none is open."""
        if (key := open_part.open_text) is None:
            return b""
        open_part.open_text = None
        return self._encode_reasoning_event(open_part, open_item, key, "done", "".join(open_part.reasoning_texts[key]))

    def _encode_reasoning_event(
        self, open_part: OpenPart, open_item: OpenItem, key: tuple[str, int], step: str, text: str
    ) -> bytes:
        """Encode the events for one step of a reasoning text; `step` is added, delta or done.

        `key` is the kind of text, summary or full, and its number.
        """
        is_full = self._plan.same_protocol and key[0] == "full"
        fields = open_item.event_fields()
        index = key[1] if self._plan.same_protocol else list(open_part.reasoning_texts).index(key)
        fields["content_index" if is_full else "summary_index"] = index
        part = {"type": "reasoning_text" if is_full else "summary_text", "text": text}
        part_event = "response.content_part" if is_full else "response.reasoning_summary_part"
        text_event = "response.reasoning_text" if is_full else "response.reasoning_summary_text"
        match step:
            case "added":
                return self._frames.encode(f"{part_event}.added", **fields, part=part)
            case "delta":
                return self._frames.encode(f"{text_event}.delta", **fields, delta=text)
            case _:
                done = self._frames.encode(f"{text_event}.done", **fields, text=text)
                return done + self._frames.encode(f"{part_event}.done", **fields, part=part)
