"""Items and parts of a Responses stream while they are written.

Canonical parts, as they grow, to the items of a Responses stream.

1. At home an item is a message of the source. Of another protocol, texts in a row make one message item, and every call
   and every thought is an item of its own; these stand strictly one after the other.
2. An item is announced with the id that it is done with, and that the final output has.
3. What deltas told is told once more when it is done, and in the final output, but by no other delta.
4. Of another protocol, an item is done when the next one starts or the answer ends: only then it is known whether it
   was cut, and a client may run a call as soon as it is done.
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
from toolwire.codec.encoding.ids import derive_call_id
from toolwire.codec.encoding.turns import LocatedPart
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
    """Writes events under consecutive numbers."""

    def __init__(self) -> None:
        self.sequence_number = 0

    def encode(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self.sequence_number, **fields}
        self.sequence_number += 1
        return encode_sse_frame(_encode_json(body), kind.encode())

    def encode_delta(self, head: bytes, text: str) -> bytes:
        """A delta, of which `head` has all but its number and its text."""
        number = self.sequence_number
        self.sequence_number = number + 1
        return b'%b%d,"delta":%b}\n\n' % (head, number, _encode_json(text))


def encode_delta_head(kind: str, **fields: Any) -> bytes:
    body = _encode_json({"type": kind, **fields})
    return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), body[:-1])


class OpenItem:
    """An item that was announced. `places` are its parts as they ended."""

    def __init__(self, index: int, message: int, header: Message, kind: str) -> None:
        self.index = index
        self.message = message
        self.header = header
        self.kind = kind
        self.content_count = 0
        self.located_parts: list[LocatedPart] = []

    def event_fields(self, content: int | None = None) -> dict[str, Any]:
        """What every event about the item says."""
        about: dict[str, Any] = {"item_id": self.header.id, "output_index": self.index}
        return about if content is None else about | {"content_index": content}


class OpenPart:
    """A part while it grows. `head` is its delta up to the number, where all its deltas are alike."""

    def __init__(self, start: PartStart, path: SourcePath) -> None:
        self.start = start
        self.path = path
        self.item: OpenItem | None = None
        self.content_index = 0
        self.head = b""
        self.pieces = TextPieces()
        self.citations: list[Citation] = []
        self.signature: Signature | None = None
        self.call_id: str | None = None
        self.thoughts: dict[tuple[str, int], TextPieces] = {}
        self.open_thought: tuple[str, int] | None = None

    def final(self, end: PartEnd) -> Part:
        part = self._accumulated_part() if end.final is None else end.final
        if isinstance(part, ToolCall) and self.call_id is not None:
            return replace(part, id=self.call_id)
        return part

    def _accumulated_part(self) -> Part:
        part, text = self.start.part, "".join(self.pieces)
        match part:
            case Text():
                notes = (*(part.annotations or ()), *self.citations)
                return replace(
                    part, text=text, annotations=notes or part.annotations, signature=self.signature or part.signature
                )
            case Refusal():
                return replace(part, text=text)
            case ToolCall():
                return replace(part, arguments=text, signature=self.signature or part.signature)
            case Reasoning():
                said: list[Any] = [
                    ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
                    for (kind, _), pieces in self.thoughts.items()
                ]
                return replace(part, content=(*part.content, *said), signature=self.signature or part.signature)
            case _:
                return part


_ID_PREFIXES = {"message": "msg", "reasoning": "rs", "call": "fc"}
_EMPTY_MESSAGE = Message(role="assistant", parts=())


class StreamItemEncoder:
    def __init__(self, plan: ItemPlan, frame_encoder: FrameEncoder) -> None:
        self.output: dict[int, Any] = {}
        self.announced_items: set[int] = set()
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
        self._messages[event.message] = event

    def part_start(self, event: PartStart) -> bytes:
        number = self._part_counts[event.message] = self._part_counts.get(event.message, -1) + 1
        trail = ("candidates", 0, "messages", event.message, "parts", number)
        held = self.parts[event.index] = OpenPart(event, trail)
        part = event.part
        match part:
            case Text() | Refusal():
                return self._start_content(held, part) + self._encode_text(held, part.text)
            case OpaquePart() if self._plan.same_protocol and part.at is None:
                return self._start_content(held, part)
            case ToolCall() if part.executor == "client" and part.native not in NATIVE_CALLS:
                return self._start_call(held, part) + self._encode_text(held, part.arguments)
            case Reasoning() if self._plan.same_protocol:
                held.item, opened = self._start_item(event.message, "reasoning", part)
                return opened
            case _:
                return b""

    def part_delta(self, event: PartDelta) -> bytes:
        held = self.parts.get(event.index)
        if held is None:
            return b""
        if event.extras and (told := part_logprobs(event)) is not UNSET and held.item is not None:
            return self._encode_text_with_logprobs(held, held.item, event.text, told)
        if held.head and event.text:
            held.pieces.append(event.text)
            return self._frames.encode_delta(held.head, event.text)
        if event.signature is not None:
            held.signature = event.signature
        if event.annotation is not None:
            return self._add_citation(held, event.annotation)
        if isinstance(held.start.part, Reasoning):
            return self._encode_reasoning(held, event) if event.kind is not None else b""
        held.pieces.append(event.text)
        return b""

    def part_end(self, event: PartEnd) -> bytes:
        held = self.parts.pop(event.index, None)
        if held is None:
            return b""
        part = held.final(event)
        placed = LocatedPart(part, held.path)
        if held.item is None:
            return self._encode_complete_part(placed, held.start.message)
        held.item.located_parts.append(placed)
        match part:
            case Text() | Refusal() | OpaquePart():
                return self._end_content(held, held.item, part)
            case ToolCall():
                closing = self._end_arguments(held, held.item, part)
            case _:
                closing = self._end_thought(held, held.item)
        if not self._plan.same_protocol:
            self._open_item = held.item
        return closing

    def message_end(self, event: MessageEnd) -> bytes:
        if not self._plan.same_protocol:
            return b""
        item, opened = self._items.get(event.message), b""
        if item is None:
            item, opened = self._start_item(event.message, "message", Text(text=""))
        own = item.header
        item.header = replace(
            own,
            id=event.id or own.id,
            status=event.status or own.status,
            phase=event.phase or own.phase,
            extras=event.extras or own.extras,
            wire_form=own.wire_form + event.wire_form,
        )
        return opened + self._end_item(item)

    def close(self, *, is_truncated: bool) -> bytes:
        """End what is still open. `cut`: the answer ended before it was complete."""
        closing = self._end_open_item(is_truncated=is_truncated)
        for item in list(self._items.values()) if self._plan.same_protocol else ():
            closing += self._end_item(item)
        return closing + self._encode_items(encode_unanswered_calls(self._plan, len(self.output)))

    def close_waiting(self) -> bytes:
        """End the item that only waits, when the answer failed."""
        growing = any(held.item is self._open_item for held in self.parts.values())
        return b"" if growing else self._end_open_item()

    # ---- items

    def _start_item(self, message: int, kind: str, part: Part, path: SourcePath = ()) -> tuple[OpenItem, bytes]:
        """A new item, announced empty."""
        home = self._plan.same_protocol
        index = message if home else len(self.output)
        item = self._items[index] = OpenItem(index, message, self._item_header(message, kind, part), kind)
        body: Any
        if home or kind == "call":
            self._plan.announced_header = None if home else item.header
            places = [] if kind == "message" else [LocatedPart(empty_part(part), path)]
            (body,) = encode_items(places, self._plan, item.header)
            self._plan.announced_header = None
        elif kind == "message":
            body = {"type": "message", "id": item.header.id, "role": "assistant", "content": []}
        else:
            body = {"type": "reasoning", "id": item.header.id, "summary": []}
        begun = {"status": "in_progress"}
        if isinstance(part, ToolCall) and part.shape == "json" and not home:
            begun["arguments"] = ""  # clients add the deltas to it
        if isinstance(body, dict):
            body |= begun
        else:
            for name, value in begun.items():
                setattr(body, name, value)
        return item, self._frames.encode("response.output_item.added", output_index=index, item=body)

    def _item_header(self, message: int, kind: str, part: Part) -> Message:
        """The item's own id, and at home all that its message says of itself."""
        if not self._plan.same_protocol:
            freeform = isinstance(part, ToolCall) and part.shape == "freeform"
            minted = self._plan.item_header("ctc" if freeform else _ID_PREFIXES[kind])
            if isinstance(part, Reasoning) and part.id is not None and part.id.startswith("rs_"):
                return replace(minted, id=part.id)  # what is encrypted is only good under its own name
            return minted
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
        item, self._open_item = self._open_item, None
        return b"" if item is None else self._end_item(item, is_truncated=is_truncated)

    def _end_item(self, open_item: OpenItem, *, is_truncated: bool = False) -> bytes:
        """The item is done: all of it, once more."""
        self._items.pop(open_item.index, None)
        home = self._plan.same_protocol
        if not home:
            last = open_item.located_parts[-1].part if open_item.located_parts else None
            is_truncated = is_truncated or (isinstance(last, ToolCall) and not last.complete)
            self._plan.announced_header = replace(
                open_item.header, status="incomplete" if is_truncated else "completed"
            )
        bodies = encode_items(open_item.located_parts, self._plan, open_item.header if home else _EMPTY_MESSAGE)
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
        opened = b""
        if open_item.kind == "whole" and open_item.index not in self.announced_items:
            opened = self._frames.encode("response.output_item.added", output_index=open_item.index, item=bodies[0])
        return opened + self._frames.encode("response.output_item.done", output_index=open_item.index, item=bodies[0])

    def _encode_complete_part(self, located_part: LocatedPart, message: int) -> bytes:
        """A part that comes as an item at once."""
        if self._plan.same_protocol:
            own = self._item_header(message, "whole", located_part.part)
            self._items.setdefault(message, OpenItem(message, message, own, "whole")).located_parts.append(located_part)
            return b""
        closing = self._end_open_item()
        self._plan.output_index = len(self.output)
        return closing + self._encode_items(encode_items([located_part], self._plan, _EMPTY_MESSAGE))

    def _encode_items(self, bodies: list[Any]) -> bytes:
        written = b""
        for body in bodies:
            index = len(self.output)
            self.output[index] = body
            written += self._frames.encode("response.output_item.added", output_index=index, item=body)
            written += self._frames.encode("response.output_item.done", output_index=index, item=body)
        return written

    # ---- texts

    def _start_content(self, open_part: OpenPart, part: Text | Refusal | OpaquePart) -> bytes:
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
        return encode_content([LocatedPart(part, path)], self._plan, is_output=True)[0]

    def _encode_text(self, open_part: OpenPart, text: str) -> bytes:
        if not text:
            return b""
        open_part.pieces.append(text)
        return self._frames.encode_delta(open_part.head, text)

    def _encode_text_with_logprobs(self, open_part: OpenPart, open_item: OpenItem, text: str, logprobs: Raw) -> bytes:
        """A piece of a text with the probabilities of its tokens; those without a piece are told when it is done."""
        if not text:
            return b""
        open_part.pieces.append(text)
        kind = "response.output_text.delta"
        return self._frames.encode(
            kind, **open_item.event_fields(open_part.content_index), delta=text, logprobs=logprobs
        )

    def _add_citation(self, open_part: OpenPart, citation: Citation) -> bytes:
        open_part.citations.append(citation)
        if open_part.item is None or not self._plan.same_protocol:
            return b""
        return self._encode_annotation(
            open_part.item, open_part.content_index, len(open_part.citations) - 1, encode_annotation(citation)
        )

    def _encode_annotation(self, open_item: OpenItem, content: int, number: int, annotation: Any) -> bytes:
        fields = open_item.event_fields(content)
        kind = "response.output_text.annotation.added"
        return self._frames.encode(kind, **fields, annotation_index=number, annotation=annotation)

    def _end_content(self, open_part: OpenPart, open_item: OpenItem, part: Text | Refusal | OpaquePart) -> bytes:
        fields = open_item.event_fields(open_part.content_index)
        said = b""
        block = self._encode_block(part, open_part.path)
        if isinstance(part, Text):
            if not self._plan.same_protocol:
                for number, note in enumerate(block.annotations):
                    said += self._encode_annotation(open_item, open_part.content_index, number, note)
            told = part_logprobs(part)
            logprobs = [] if told is UNSET else told
            said += self._frames.encode("response.output_text.done", **fields, text=part.text, logprobs=logprobs)
        elif isinstance(part, Refusal):
            said = self._frames.encode("response.refusal.done", **fields, refusal=part.text)
        return said + self._frames.encode("response.content_part.done", **fields, part=block)

    # ---- calls

    def _start_call(self, open_part: OpenPart, part: ToolCall) -> bytes:
        opening = self._end_open_item()
        opening += self._encode_items(encode_unanswered_calls(self._plan, len(self.output)))
        if not part.id and not self._plan.same_protocol:
            # It keeps this id when its arguments are there.
            place = [step for step in open_part.path if isinstance(step, int)]
            open_part.call_id = derive_call_id(part.name, self._plan.seed or "", *place)
            part = replace(part, id=open_part.call_id)
        open_part.item, opened = self._start_item(open_part.start.message, "call", part, open_part.path)
        freeform = part.shape == "freeform"
        kind = "response.custom_tool_call_input.delta" if freeform else "response.function_call_arguments.delta"
        open_part.head = encode_delta_head(kind, **open_part.item.event_fields())
        return opening + opened

    def _end_arguments(self, open_part: OpenPart, open_item: OpenItem, part: ToolCall) -> bytes:
        if part.shape == "freeform":
            return self._frames.encode(
                "response.custom_tool_call_input.done", **open_item.event_fields(), input=part.arguments
            )
        text = part.arguments
        early = b""
        if not self._plan.same_protocol and not text.strip():
            text = "{}"
            early = self._encode_text(open_part, text) if not open_part.pieces else b""
        return early + self._frames.encode(
            "response.function_call_arguments.done", **open_item.event_fields(), arguments=text
        )

    # ---- thoughts

    def _encode_reasoning(self, open_part: OpenPart, event: PartDelta) -> bytes:
        """A thought grows: of another protocol always as a summary, since clients show only those."""
        opening = b""
        if (item := open_part.item) is None:
            opening = self._end_open_item()
            item, announced = self._start_item(open_part.start.message, "reasoning", open_part.start.part)
            open_part.item = item
            opening += announced
        key = (event.kind or "full", event.block)
        if open_part.open_thought != key:
            opening += self._end_thought(open_part, item)
            open_part.open_thought = key
            if key not in open_part.thoughts:
                open_part.thoughts[key] = TextPieces()
                opening += self._encode_thought_event(open_part, item, key, "added", "")
            open_part.head = b""
        if not event.text:
            return opening
        open_part.thoughts[key].append(event.text)
        return opening + self._encode_thought_event(open_part, item, key, "delta", event.text)

    def _end_thought(self, open_part: OpenPart, open_item: OpenItem) -> bytes:
        if (key := open_part.open_thought) is None:
            return b""
        open_part.open_thought = None
        return self._encode_thought_event(open_part, open_item, key, "done", "".join(open_part.thoughts[key]))

    def _encode_thought_event(
        self, open_part: OpenPart, open_item: OpenItem, key: tuple[str, int], step: str, text: str
    ) -> bytes:
        """One step of a thought, as events."""
        full = self._plan.same_protocol and key[0] == "full"
        fields = open_item.event_fields()
        place = key[1] if self._plan.same_protocol else list(open_part.thoughts).index(key)
        fields["content_index" if full else "summary_index"] = place
        part = {"type": "reasoning_text" if full else "summary_text", "text": text}
        around = "response.content_part" if full else "response.reasoning_summary_part"
        said = "response.reasoning_text" if full else "response.reasoning_summary_text"
        match step:
            case "added":
                return self._frames.encode(f"{around}.added", **fields, part=part)
            case "delta":
                return self._frames.encode(f"{said}.delta", **fields, delta=text)
            case _:
                told = self._frames.encode(f"{said}.done", **fields, text=text)
                return told + self._frames.encode(f"{around}.done", **fields, part=part)
