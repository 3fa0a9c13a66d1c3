"""Canonical parts, as they grow, to the items of a Responses stream.

1. At home an item is a message of the source. Of another protocol, texts in a row make one message item, and every call
   and every thought is an item of its own; these stand strictly one after the other.
2. An item is announced with the id that it is done with, and that the final output has.
3. What deltas told is told once more when it is done, and in the final output, but by no other delta.
4. Of another protocol, an item is done when the next one starts or the answer ends: only then it is known whether it
   was cut, and a client may run a call as soon as it is done.
"""

from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Foreign,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from toolwire.canonical.events import MessageEnd, MessageStart, PartDelta, PartEnd, PartStart
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.ids import made_id
from toolwire.codec.losses import Trail
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_responses.parts.content import encode_annotation, encode_content, probabilities_of
from toolwire.protocols.openai_responses.parts.messages import encode_items
from toolwire.protocols.openai_responses.parts.natives import CALLS
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.parts.uses import unanswered

from .frames import Frames, delta_head, hollow
from .opened import OpenItem, OpenPart

_PREFIXES = {"message": "msg", "reasoning": "rs", "call": "fc"}
_NOBODY = Message(role="assistant", parts=())


class ItemWriter:
    def __init__(self, plan: ItemPlan, frames: Frames) -> None:
        self.output: dict[int, Any] = {}
        self.shown: set[int] = set()
        self.refused = False
        self._plan = plan
        self._frames = frames
        self._messages: dict[int, MessageStart] = {}
        self._counts: dict[int, int] = {}
        self.parts: dict[int, OpenPart] = {}
        self._items: dict[int, OpenItem] = {}
        self._last: OpenItem | None = None

    # ---- parts

    def message_start(self, event: MessageStart) -> None:
        self._messages[event.message] = event

    def part_start(self, event: PartStart) -> bytes:
        number = self._counts[event.message] = self._counts.get(event.message, -1) + 1
        trail = ("candidates", 0, "messages", event.message, "parts", number)
        held = self.parts[event.index] = OpenPart(event, trail)
        part = event.part
        match part:
            case Text() | Refusal():
                return self._open_content(held, part) + self._told(held, part.text)
            case Foreign() if self._plan.home and part.at is None:
                return self._open_content(held, part)
            case ToolCall() if part.executor == "client" and part.native not in CALLS:
                return self._open_call(held, part) + self._told(held, part.arguments)
            case Reasoning() if self._plan.home:
                held.item, opened = self._open(event.message, "reasoning", part)
                return opened
            case _:
                return b""

    def part_delta(self, event: PartDelta) -> bytes:
        held = self.parts.get(event.index)
        if held is None:
            return b""
        if event.extras and (told := probabilities_of(event)) is not UNSET and held.item is not None:
            return self._say_probably(held, held.item, event.text, told)
        if held.head and event.text:
            held.pieces.append(event.text)
            return self._frames.delta(held.head, event.text)
        if event.seal is not None:
            held.seal = event.seal
        if event.annotation is not None:
            return self._cite(held, event.annotation)
        if isinstance(held.start.part, Reasoning):
            return self._think(held, event) if event.kind is not None else b""
        held.pieces.append(event.text)
        return b""

    def part_end(self, event: PartEnd) -> bytes:
        held = self.parts.pop(event.index, None)
        if held is None:
            return b""
        part = held.final(event)
        placed = Placed(part, held.trail)
        if held.item is None:
            return self._whole(placed, held.start.message)
        held.item.places.append(placed)
        match part:
            case Text() | Refusal() | Foreign():
                return self._content_done(held, held.item, part)
            case ToolCall():
                closing = self._arguments_done(held, held.item, part)
            case _:
                closing = self._thought_done(held, held.item)
        if not self._plan.home:
            self._last = held.item
        return closing

    def message_end(self, event: MessageEnd) -> bytes:
        if not self._plan.home:
            return b""
        item, opened = self._items.get(event.message), b""
        if item is None:
            item, opened = self._open(event.message, "message", Text(text=""))
        own = item.own
        item.own = replace(
            own,
            id=event.id or own.id,
            status=event.status or own.status,
            phase=event.phase or own.phase,
            extras=event.extras or own.extras,
            form=own.form + event.form,
        )
        return opened + self._close(item)

    def close(self, *, cut: bool) -> bytes:
        """End what is still open. `cut`: the answer ended before it was complete."""
        closing = self._close_last(cut=cut)
        for item in list(self._items.values()) if self._plan.home else ():
            closing += self._close(item)
        return closing + self._write(unanswered(self._plan, len(self.output)))

    def close_whole(self) -> bytes:
        """End the item that only waits, when the answer failed."""
        growing = any(held.item is self._last for held in self.parts.values())
        return b"" if growing else self._close_last()

    # ---- items

    def _open(self, message: int, kind: str, part: Part, trail: Trail = ()) -> tuple[OpenItem, bytes]:
        """A new item, announced empty."""
        home = self._plan.home
        index = message if home else len(self.output)
        item = self._items[index] = OpenItem(index, message, self._own(message, kind, part), kind)
        body: Any
        if home or kind == "call":
            self._plan.held = None if home else item.own
            places = [] if kind == "message" else [Placed(hollow(part), trail)]
            (body,) = encode_items(places, self._plan, item.own)
            self._plan.held = None
        elif kind == "message":
            body = {"type": "message", "id": item.own.id, "role": "assistant", "content": []}
        else:
            body = {"type": "reasoning", "id": item.own.id, "summary": []}
        begun = {"status": "in_progress"}
        if isinstance(part, ToolCall) and part.shape == "json" and not home:
            begun["arguments"] = ""  # clients add the deltas to it
        if isinstance(body, dict):
            body |= begun
        else:
            for name, value in begun.items():
                setattr(body, name, value)
        return item, self._frames.write("response.output_item.added", output_index=index, item=body)

    def _own(self, message: int, kind: str, part: Part) -> Message:
        """The item's own id, and at home all that its message says of itself."""
        if not self._plan.home:
            freeform = isinstance(part, ToolCall) and part.shape == "freeform"
            minted = self._plan.envelope("ctc" if freeform else _PREFIXES[kind])
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
            form=start.form,
        )

    def _close_last(self, *, cut: bool = False) -> bytes:
        item, self._last = self._last, None
        return b"" if item is None else self._close(item, cut=cut)

    def _close(self, item: OpenItem, *, cut: bool = False) -> bytes:
        """The item is done: all of it, once more."""
        self._items.pop(item.index, None)
        home = self._plan.home
        if not home:
            last = item.places[-1].part if item.places else None
            cut = cut or (isinstance(last, ToolCall) and not last.complete)
            self._plan.held = replace(item.own, status="incomplete" if cut else "completed")
        bodies = encode_items(item.places, self._plan, item.own if home else _NOBODY)
        self._plan.held = None
        if not bodies:
            bodies = [{"type": "message", "id": item.own.id, "role": "assistant", "status": "completed", "content": []}]
        self.output[item.index] = bodies[0]
        opened = b""
        if item.kind == "whole" and item.index not in self.shown:
            opened = self._frames.write("response.output_item.added", output_index=item.index, item=bodies[0])
        return opened + self._frames.write("response.output_item.done", output_index=item.index, item=bodies[0])

    def _whole(self, placed: Placed, message: int) -> bytes:
        """A part that comes as an item at once."""
        if self._plan.home:
            own = self._own(message, "whole", placed.part)
            self._items.setdefault(message, OpenItem(message, message, own, "whole")).places.append(placed)
            return b""
        closing = self._close_last()
        self._plan.count = len(self.output)
        return closing + self._write(encode_items([placed], self._plan, _NOBODY))

    def _write(self, bodies: list[Any]) -> bytes:
        written = b""
        for body in bodies:
            index = len(self.output)
            self.output[index] = body
            written += self._frames.write("response.output_item.added", output_index=index, item=body)
            written += self._frames.write("response.output_item.done", output_index=index, item=body)
        return written

    # ---- texts

    def _open_content(self, held: OpenPart, part: Text | Refusal | Foreign) -> bytes:
        message = held.start.message
        opening = b""
        item = self._items.get(message) if self._plan.home else self._last
        if item is not None and (item.message != message or item.kind != "message"):
            opening, item = self._close_last(), None
        if item is None:
            item, announced = self._open(message, "message", part)
            opening += announced
            self._last = None if self._plan.home else item
        held.item, held.content = item, item.contents
        item.contents += 1
        fields = item.fields(held.content)
        if isinstance(part, Refusal):
            self.refused = True
            held.head = delta_head("response.refusal.delta", **fields)
        elif isinstance(part, Text):
            held.head = delta_head("response.output_text.delta", **fields, logprobs=[])
        block = self._block(hollow(part), held.trail)
        return opening + self._frames.write("response.content_part.added", **fields, part=block)

    def _block(self, part: Part, trail: Trail) -> Any:
        return encode_content([Placed(part, trail)], self._plan, spoken=True)[0]

    def _told(self, held: OpenPart, text: str) -> bytes:
        if not text:
            return b""
        held.pieces.append(text)
        return self._frames.delta(held.head, text)

    def _say_probably(self, held: OpenPart, item: OpenItem, text: str, told: Raw) -> bytes:
        """A piece of a text with the probabilities of its tokens; those without a piece are told when it is done."""
        if not text:
            return b""
        held.pieces.append(text)
        kind = "response.output_text.delta"
        return self._frames.write(kind, **item.fields(held.content), delta=text, logprobs=told)

    def _cite(self, held: OpenPart, note: Citation) -> bytes:
        held.notes.append(note)
        if held.item is None or not self._plan.home:
            return b""
        return self._noted(held.item, held.content, len(held.notes) - 1, encode_annotation(note))

    def _noted(self, item: OpenItem, content: int, number: int, note: Any) -> bytes:
        fields = item.fields(content)
        kind = "response.output_text.annotation.added"
        return self._frames.write(kind, **fields, annotation_index=number, annotation=note)

    def _content_done(self, held: OpenPart, item: OpenItem, part: Text | Refusal | Foreign) -> bytes:
        fields = item.fields(held.content)
        said = b""
        block = self._block(part, held.trail)
        if isinstance(part, Text):
            if not self._plan.home:
                for number, note in enumerate(block.annotations):
                    said += self._noted(item, held.content, number, note)
            told = probabilities_of(part)
            logprobs = [] if told is UNSET else told
            said += self._frames.write("response.output_text.done", **fields, text=part.text, logprobs=logprobs)
        elif isinstance(part, Refusal):
            said = self._frames.write("response.refusal.done", **fields, refusal=part.text)
        return said + self._frames.write("response.content_part.done", **fields, part=block)

    # ---- calls

    def _open_call(self, held: OpenPart, part: ToolCall) -> bytes:
        opening = self._close_last()
        opening += self._write(unanswered(self._plan, len(self.output)))
        if not part.id and not self._plan.home:
            # It keeps this id when its arguments are there.
            place = [step for step in held.trail if isinstance(step, int)]
            held.call_id = made_id(part.name, self._plan.seed or "", *place)
            part = replace(part, id=held.call_id)
        held.item, opened = self._open(held.start.message, "call", part, held.trail)
        freeform = part.shape == "freeform"
        kind = "response.custom_tool_call_input.delta" if freeform else "response.function_call_arguments.delta"
        held.head = delta_head(kind, **held.item.fields())
        return opening + opened

    def _arguments_done(self, held: OpenPart, item: OpenItem, part: ToolCall) -> bytes:
        if part.shape == "freeform":
            return self._frames.write("response.custom_tool_call_input.done", **item.fields(), input=part.arguments)
        text = part.arguments
        early = b""
        if not self._plan.home and not text.strip():
            text = "{}"
            early = self._told(held, text) if not held.pieces else b""
        return early + self._frames.write("response.function_call_arguments.done", **item.fields(), arguments=text)

    # ---- thoughts

    def _think(self, held: OpenPart, event: PartDelta) -> bytes:
        """A thought grows: of another protocol always as a summary, since clients show only those."""
        opening = b""
        if (item := held.item) is None:
            opening = self._close_last()
            item, announced = self._open(held.start.message, "reasoning", held.start.part)
            held.item = item
            opening += announced
        key = (event.kind or "full", event.block)
        if held.speaking != key:
            opening += self._thought_done(held, item)
            held.speaking = key
            if key not in held.thoughts:
                held.thoughts[key] = TextPieces()
                opening += self._thought(held, item, key, "added", "")
            held.head = b""
        if not event.text:
            return opening
        held.thoughts[key].append(event.text)
        return opening + self._thought(held, item, key, "delta", event.text)

    def _thought_done(self, held: OpenPart, item: OpenItem) -> bytes:
        if (key := held.speaking) is None:
            return b""
        held.speaking = None
        return self._thought(held, item, key, "done", "".join(held.thoughts[key]))

    def _thought(self, held: OpenPart, item: OpenItem, key: tuple[str, int], step: str, text: str) -> bytes:
        """One step of a thought, as events."""
        full = self._plan.home and key[0] == "full"
        fields = item.fields()
        place = key[1] if self._plan.home else list(held.thoughts).index(key)
        fields["content_index" if full else "summary_index"] = place
        part = {"type": "reasoning_text" if full else "summary_text", "text": text}
        around = "response.content_part" if full else "response.reasoning_summary_part"
        said = "response.reasoning_text" if full else "response.reasoning_summary_text"
        match step:
            case "added":
                return self._frames.write(f"{around}.added", **fields, part=part)
            case "delta":
                return self._frames.write(f"{said}.delta", **fields, delta=text)
            case _:
                told = self._frames.write(f"{said}.done", **fields, text=text)
                return told + self._frames.write(f"{around}.done", **fields, part=part)
