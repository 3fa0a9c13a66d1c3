"""Canonical events to the Responses API's event stream; `stream_decoder` has its grammar.

1. At home an item is a message of the source. Of another protocol, texts in a row make one message item, and every call
   and every thought is an item of its own; these stand strictly one after the other.
2. An item is announced with the id that it is done with, and that the final output has.
3. What deltas told is told once more by `done`, in the item, and in the terminal event, and by no delta.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Foreign,
    Message,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Seal,
    Text,
    ToolCall,
)
from toolwire.canonical.errors import ApiError
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
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.fields import as_object
from toolwire.codec.ids import made_id
from toolwire.codec.interface import Context, StreamEncoder
from toolwire.codec.losses import Trail
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.codec.turns import Placed

from .errors import encode_error, encode_failure, is_event
from .items import encode_items
from .natives import CALLS
from .parts import encode_annotation, encode_content
from .response import answer_plan, encode_held, encode_stop, encode_usage, finish, start_body
from .wire import FAMILY, Item

_json = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_TERMINALS = ("completed", "incomplete", "failed")


class _OpenItem:
    """An item that was announced. `places` are its parts as they ended."""

    def __init__(self, index: int, message: int, own: Message, kind: str) -> None:
        self.index = index
        self.message = message
        self.own = own
        self.kind = kind
        self.contents = 0
        self.places: list[Placed] = []


class _OpenPart:
    """A part while it grows; `head` is a delta up to its number, for all but thoughts."""

    def __init__(self, start: PartStart, trail: Trail) -> None:
        self.start = start
        self.trail = trail
        self.item: _OpenItem | None = None
        self.content = 0
        self.head = b""
        self.pieces: list[str] = []
        self.notes: list[Citation] = []
        self.seal: Seal | None = None
        self.call_id: str | None = None
        self.thoughts: dict[tuple[str, int], list[str]] = {}
        self.speaking: tuple[str, int] | None = None

    def final(self, end: PartEnd) -> Part:
        part = self.start.part if end.final is None else end.final
        if end.final is not None:
            return part
        text = "".join(self.pieces)
        match part:
            case Text():
                notes = (*(part.annotations or ()), *self.notes)
                return replace(part, text=text, annotations=notes or part.annotations, seal=self.seal or part.seal)
            case Refusal():
                return replace(part, text=text)
            case ToolCall():
                return replace(part, arguments=text, seal=self.seal or part.seal)
            case Reasoning():
                said = [ReasoningText(kind=kind, text="".join(pieces)) for (kind, _), pieces in self.thoughts.items()]  # type: ignore[arg-type]
                return replace(part, content=(*part.content, *said), seal=self.seal or part.seal)
            case _:
                return part


class Encoder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._plan = answer_plan("", None, context)
        self.report = self._plan.report
        self._sequence = Sequence()
        self._number = 0
        self._started: ResponseStart | None = None
        self._announced = False
        self._ended = False
        self._messages: dict[int, MessageStart] = {}
        self._counts: dict[int, int] = {}
        self._parts: dict[tuple[int, int], _OpenPart] = {}
        self._items: dict[int, _OpenItem] = {}
        self._speaking: _OpenItem | None = None
        self._shown: set[int] = set()
        self._output: dict[int, Any] = {}
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._methods: dict[type, Callable[[Any], bytes]] = {
            PartDelta: self._delta,
            ResponseStart: self._start,
            MessageStart: self._message_start,
            PartStart: self._part_start,
            PartEnd: self._part_end,
            MessageEnd: self._message_end,
            Stopped: self._stopped,
            UsageReport: self._report_usage,
            Notice: self._notice,
            ResponseEnd: self._end,
            ResponseFailed: self._fail,
        }

    def encode(self, events: Iterable[Event]) -> bytes:
        if not self._plan.home:
            events = self._ordered(events)
        methods = self._methods
        return b"".join([methods[type(event)](event) for event in events])

    def _ordered(self, events: Iterable[Event]) -> Iterable[Event]:
        """In sequence, unless the first of them says that this is home."""
        for event in events:
            if isinstance(event, ResponseStart):
                self._plan.home = event.origin == FAMILY
            if self._plan.home:
                yield event
            else:
                yield from self._sequence.order((event,))

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = self.encode(list(self._sequence.close()))
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + (b"" if self._ended else self._fail(ResponseFailed(error=error)))

    def _frame(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return frame(_json(body), kind.encode())

    # ---- the envelope

    def _start(self, event: ResponseStart) -> bytes:
        report = self._plan.report
        self._plan = answer_plan(event.origin, event.id, self._context)
        self._plan.report = report
        self._started = event
        return b"" if self._plan.home else self._announce()

    def _announce(self) -> bytes:
        """The first events. At home those of the source, if it passes them on."""
        if self._announced:
            return b""
        self._announced = True
        body = self._body("in_progress")
        return self._frame("response.created", response=body) + self._frame("response.in_progress", response=body)

    def _body(self, status: str) -> dict[str, Any]:
        start = self._started or ResponseStart(origin="")
        body = start_body(start.id, start.model, start.created, start.form, self._plan, self._context)
        body |= {"status": status, "output": []}
        return finish(body, start, self._plan)

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.home or not event.extras or FAMILY not in event.extras:
            return b""
        before = b"" if event.kind == "created" else self._announce()
        self._announced = True
        body: dict[str, Any] = dict(_members(event.extras[FAMILY]["frame"]))
        kind = str(msgspec.json.decode(body.pop("type", b'""')))
        body.pop("sequence_number", None)
        if kind == "response.output_item.added" and "output_index" in body:
            self._shown.add(msgspec.json.decode(body["output_index"]))
        return before + self._frame(kind, **body)

    def _stopped(self, event: Stopped) -> bytes:
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        closing = self._announce() + self._close_items()
        self._ended = True
        body = self._terminal(event)
        if self._plan.home and event.status is not None:
            body["status"] = event.status
        encode_held(event.continuation, body, self._plan)
        finish(body, event, self._plan)
        status = body["status"]
        return closing + self._frame(f"response.{status if status in _TERMINALS else 'completed'}", response=body)

    def _terminal(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        start = self._started or ResponseStart(origin="")
        body = start_body(start.id, start.model, start.created, event.form, self._plan, self._context)
        body |= {"status": "completed", "output": [self._output[index] for index in sorted(self._output)]}
        encode_stop(self._stop, body, self._plan)
        if self._usage is not None or not self._plan.home:
            body["usage"] = encode_usage(self._usage or Usage(), self._plan)
        return body

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        if self._plan.home and is_event(event.error):
            body = encode_error(event.error).body
            return frame(_json(body), b"error")
        opening = self._announce()
        body = self._terminal(event)
        body |= {"status": event.status or "failed", "error": encode_failure(event.error, self._plan)}
        finish(body, event, self._plan)
        return opening + self._frame("response.failed", response=body)

    # ---- items

    def _message_start(self, event: MessageStart) -> bytes:
        if event.candidate == 0:
            self._messages[event.message] = event
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        part = event.part
        opening = self._announce()
        self._counts[event.message] = self._counts.get(event.message, -1) + 1
        trail = ("candidates", 0, "messages", event.message, "parts", self._counts[event.message])
        held = self._parts[0, event.index] = _OpenPart(event, trail)
        match part:
            case Text() | Refusal():
                return opening + self._open_content(held, part)
            case ToolCall() if part.executor == "client" and part.native not in CALLS:
                opening += self._close_speaking()
                part = self._identified(part, held)
                held.item, opened = self._open(event.message, "call", part)
                held.head = _call_head(part, held.item)
                return opening + opened + self._told(held, part.arguments)
            case Reasoning() if self._plan.home:
                held.item, opened = self._open(event.message, "reasoning", part)
                return opening + opened
            case Foreign() if self._plan.home and part.at is None:
                return opening + self._open_content(held, part)
        return opening

    def _identified(self, part: ToolCall, held: _OpenPart) -> ToolCall:
        """A call that came without an id gets one now, and keeps it when its arguments are there."""
        if part.id or self._plan.home:
            return part
        held.call_id = made_id(part.name, self._plan.seed or "", *(step for step in held.trail if isinstance(step, int)))
        return replace(part, id=held.call_id)

    def _open(self, message: int, kind: str, part: Part) -> tuple[_OpenItem, bytes]:
        """A new item, announced empty."""
        index = message if self._plan.home else len(self._output)
        item = _OpenItem(index, message, self._own(message, kind, part), kind)
        self._items[index] = item
        self._plan.held = None if self._plan.home else item.own
        places = [] if kind == "message" else [Placed(_hollow(part), ())]
        if kind == "message" and not self._plan.home:
            body: Any = {"type": "message", "id": item.own.id, "role": "assistant", "content": []}
        elif self._plan.home or kind != "reasoning":
            (body,) = encode_items(places, self._plan, item.own)
        else:
            body = {"type": "reasoning", "id": item.own.id, "summary": []}
        self._plan.held = None
        body = body if isinstance(body, dict) else as_object(body)
        if not self._plan.home or item.own.status is not None:
            body["status"] = "in_progress"
        return item, self._frame("response.output_item.added", output_index=index, item=body)

    def _own(self, message: int, kind: str, part: Part) -> Message:
        """The item's own id, and the rest of what its message says."""
        if not self._plan.home:
            prefixes = {"message": "msg", "reasoning": "rs", "call": "fc"}
            freeform = isinstance(part, ToolCall) and part.shape == "freeform"
            return self._plan.envelope("ctc" if freeform else prefixes[kind])
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

    def _open_content(self, held: _OpenPart, part: Text | Refusal | Foreign) -> bytes:
        message = held.start.message
        opening = b""
        item = self._items.get(message) if self._plan.home else self._speaking
        if item is not None and item.message != message:
            opening, item = self._close_speaking(), None
        if item is None:
            item, announced = self._open(message, "message", part)
            opening += announced
            self._speaking = None if self._plan.home else item
        held.item, held.content = item, item.contents
        item.contents += 1
        block = self._block(_hollow(part), held.trail)
        kind = "refusal" if isinstance(part, Refusal) else "output_text"
        held.head = _head(f"response.{kind}.delta", item, held.content, logprobs=kind == "output_text")
        fields = {"item_id": item.own.id, "output_index": item.index, "content_index": held.content}
        opening += self._frame("response.content_part.added", **fields, part=block)
        return opening + (b"" if isinstance(part, Foreign) else self._told(held, part.text))

    def _block(self, part: Part, trail: Trail) -> Any:
        blocks = encode_content([Placed(part, trail)], self._plan, spoken=True)
        return blocks[0] if blocks else {"type": "output_text", "text": "", "annotations": []}

    def _told(self, held: _OpenPart, text: str) -> bytes:
        if not text:
            return b""
        held.pieces.append(text)
        self._number += 1
        return b'%b%d,"delta":%b}\n\n' % (held.head, self._number - 1, _json(text))

    def _delta(self, event: PartDelta) -> bytes:
        held = self._parts.get((event.candidate, event.index))
        if held is None:
            return b""
        if held.head and event.text:
            held.pieces.append(event.text)
            self._number += 1
            return b'%b%d,"delta":%b}\n\n' % (held.head, self._number - 1, _json(event.text))
        if event.seal is not None:
            held.seal = event.seal
        if event.annotation is not None:
            return self._cite(held, event.annotation)
        if isinstance(held.start.part, Reasoning):
            return self._think(held, event) if event.kind is not None else b""
        held.pieces.append(event.text)
        return b""

    def _cite(self, held: _OpenPart, note: Citation) -> bytes:
        held.notes.append(note)
        if held.item is None or not self._plan.home:
            return b""
        return self._frame(
            "response.output_text.annotation.added",
            item_id=held.item.own.id,
            output_index=held.item.index,
            content_index=held.content,
            annotation_index=len(held.notes) - 1,
            annotation=encode_annotation(note),
        )

    def _think(self, held: _OpenPart, event: PartDelta) -> bytes:
        """A thought grows: of another protocol always as a summary, since only summaries are shown."""
        opening = b""
        if held.item is None:
            opening = self._close_speaking()
            held.item, announced = self._open(held.start.message, "reasoning", held.start.part)
            opening += announced
        key = (event.kind or "full", event.block)
        if held.speaking != key:
            opening += self._thought_done(held)
            held.speaking = key
            if key not in held.thoughts:
                held.thoughts[key] = []
                opening += self._thought_frame(held, "added", "")
        if not event.text:
            return opening
        held.thoughts[key].append(event.text)
        return opening + self._thought_frame(held, "delta", event.text)

    def _thought_frame(self, held: _OpenPart, step: str, text: str) -> bytes:
        """One event about the thought that speaks."""
        assert held.item is not None
        assert held.speaking is not None
        full = self._plan.home and held.speaking[0] == "full"
        place = held.speaking[1] if self._plan.home else list(held.thoughts).index(held.speaking)
        fields: dict[str, Any] = {"item_id": held.item.own.id, "output_index": held.item.index}
        fields["content_index" if full else "summary_index"] = place
        part = {"type": "reasoning_text" if full else "summary_text", "text": text}
        around = "response.content_part" if full else "response.reasoning_summary_part"
        said = "response.reasoning_text" if full else "response.reasoning_summary_text"
        match step:
            case "added":
                return self._frame(f"{around}.added", **fields, part=part)
            case "delta":
                return self._frame(f"{said}.delta", **fields, delta=text)
            case _:
                return self._frame(f"{said}.done", **fields, text=text) + self._frame(
                    f"{around}.done", **fields, part=part
                )

    def _thought_done(self, held: _OpenPart) -> bytes:
        if held.speaking is None:
            return b""
        closing = self._thought_frame(held, "done", "".join(held.thoughts[held.speaking]))
        held.speaking = None
        return closing

    def _part_end(self, event: PartEnd) -> bytes:
        held = self._parts.pop((event.candidate, event.index), None)
        if held is None:
            return b""
        part = held.final(event)
        if isinstance(part, ToolCall) and held.call_id is not None:
            part = replace(part, id=held.call_id)
        message = held.start.message
        placed = Placed(part, held.trail)
        if held.item is None:
            return self._whole(placed, message)
        held.item.places.append(placed)
        match part:
            case Text() | Refusal() | Foreign():
                return self._content_done(held, part)
            case ToolCall():
                closing = self._arguments_done(held, part)
            case _:
                closing = self._thought_done(held)
        return closing if self._plan.home else closing + self._close(held.item)

    def _content_done(self, held: _OpenPart, part: Text | Refusal | Foreign) -> bytes:
        assert held.item is not None
        block = self._block(part, held.trail)
        fields = {"item_id": held.item.own.id, "output_index": held.item.index, "content_index": held.content}
        said = b""
        if isinstance(part, Text):
            logprobs = (part.extras or {}).get(FAMILY, {}).get("logprobs", [])
            said = self._frame("response.output_text.done", **fields, text=part.text, logprobs=logprobs)
        elif isinstance(part, Refusal):
            said = self._frame("response.refusal.done", **fields, refusal=part.text)
        return said + self._frame("response.content_part.done", **fields, part=block)

    def _arguments_done(self, held: _OpenPart, part: ToolCall) -> bytes:
        assert held.item is not None
        fields = {"item_id": held.item.own.id, "output_index": held.item.index}
        if part.shape == "freeform":
            return self._frame("response.custom_tool_call_input.done", **fields, input=part.arguments)
        early = self._told(held, "{}") if not self._plan.home and not held.pieces else b""
        text = part.arguments or ("" if self._plan.home else "{}")
        return early + self._frame("response.function_call_arguments.done", **fields, arguments=text)

    def _whole(self, placed: Placed, message: int) -> bytes:
        """A part that comes as an item at once, or is told as text."""
        if self._plan.home:
            index = message
            item = self._items.setdefault(index, _OpenItem(index, message, self._own(message, "", placed.part), "whole"))
            item.places.append(placed)
            return b""
        closing = self._close_speaking()
        for body in encode_items([placed], self._plan, Message(role="assistant", parts=())):
            index = len(self._output)
            self._output[index] = body
            closing += self._frame("response.output_item.added", output_index=index, item=body)
            closing += self._frame("response.output_item.done", output_index=index, item=body)
        return closing

    def _message_end(self, event: MessageEnd) -> bytes:
        if not self._plan.home:
            return self._close_speaking()
        item = self._items.pop(event.message, None)
        if item is None:
            part = Text(text="")
            item, opened = self._open(event.message, "message", part)
            self._items.pop(event.message)
        else:
            opened = b""
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

    def _close_speaking(self) -> bytes:
        item, self._speaking = self._speaking, None
        return b"" if item is None else self._close(item)

    def _close_items(self) -> bytes:
        closing = self._close_speaking()
        for item in list(self._items.values()) if self._plan.home else ():
            closing += self._close(item)
        return closing

    def _close(self, item: _OpenItem) -> bytes:
        """The item is done: all of it, once more."""
        self._items.pop(item.index, None)
        self._plan.held = None
        if not self._plan.home:
            last = item.places[-1].part if item.places else None
            cut = isinstance(last, ToolCall) and not last.complete
            self._plan.held = replace(item.own, status="incomplete" if cut else "completed")
        message = item.own if self._plan.home else Message(role="assistant", parts=())
        bodies = encode_items(item.places, self._plan, message)
        self._plan.held = None
        if not bodies:
            bodies = [{"type": "message", "id": item.own.id, "role": "assistant", "status": "completed", "content": []}]
        self._output[item.index] = bodies[0]
        opened = b""
        if item.kind == "whole" and item.index not in self._shown:
            opened = self._frame("response.output_item.added", output_index=item.index, item=bodies[0])
        return opened + self._frame("response.output_item.done", output_index=item.index, item=bodies[0])


def _hollow(part: Part) -> Part:
    match part:
        case Text():
            return replace(part, text="", annotations=() if part.annotations else part.annotations)
        case Refusal():
            return replace(part, text="")
        case ToolCall():
            return replace(part, arguments="")
        case Reasoning():
            return replace(part, content=(), seal=None)
        case _:
            return part


def _head(kind: str, item: _OpenItem, content: int | None, *, logprobs: bool = False) -> bytes:
    """A delta up to the number of its event."""
    fields: dict[str, Any] = {"type": kind, "item_id": item.own.id, "output_index": item.index}
    if content is not None:
        fields["content_index"] = content
    if logprobs:
        fields["logprobs"] = []
    return b"event: %b\ndata: %b" % (kind.encode(), _json(fields)[:-1]) + b',"sequence_number":'


def _call_head(part: ToolCall, item: _OpenItem) -> bytes:
    freeform = part.shape == "freeform"
    return _head(f"response.{'custom_tool_call_input' if freeform else 'function_call_arguments'}.delta", item, None)


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
