"""The middle of an Interactions stream: the steps that canonical messages and parts make.

At home a message is a step, and stops with it. Of another protocol each part is a step of its own, one after the other:
deltas have no index within a step, so that two texts in one would run together.
"""

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import (
    Foreign,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.events import MessageEnd, MessageStart, PartDelta, PartEnd, PartStart
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.kept import as_object, restore
from toolwire.codec.losses import Trail
from toolwire.codec.sse import frame
from toolwire.codec.tools import LOWERED_END, lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.parts.calls import home_arguments
from toolwire.protocols.gemini_interactions.parts.content import encode_annotation, encode_content
from toolwire.protocols.gemini_interactions.parts.messages import encode_parts, encode_step
from toolwire.protocols.gemini_interactions.parts.plan import StepPlan
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, ServerCall, ServerResult, Thought

from .frames import INDEX, event_id

_text = msgspec.json.Encoder().encode
_HEAD = b'event: step.delta\ndata: {"event_type":"step.delta","index":%d,"delta":{"type":'
_TEXT = b'"text","text":'
_ARGUMENTS = b'"arguments_delta","arguments":'
_HOLLOW: dict[bytes, Any] = {b"{": {}, b"[": [], b'"': ""}


class OpenPart:
    """A part while it is told: its step, and how its text starts a frame."""

    def __init__(self, step: int, part: Part, trail: Trail, head: bytes = b"") -> None:
        self.step = step
        self.part = part
        self.trail = trail
        self.head = head
        self.pieces = TextPieces()
        self.notes = 0
        self.lowered = False
        self.proven = False


class StepWriter:
    def __init__(self, plan: StepPlan) -> None:
        self.parts: dict[int, OpenPart] = {}
        self.calls = False
        self.plan = plan
        self._steps = 0
        self._messages: dict[int, MessageStart] = {}
        self._shown: dict[int, int] = {}
        self._ends: dict[int, PartEnd] = {}
        self._counts: dict[int, int] = {}

    def message_start(self, event: MessageStart) -> bytes:
        if event.candidate != 0:
            return b""
        self._messages[event.message] = event
        if not self.plan.home:
            trail = ("candidates", 0, "messages", event.message)
            for field in ("id", "name", "status", "phase"):
                if getattr(event, field) is not None:
                    self.plan.report.dropped(trail, field)
        return b""

    def message_end(self, event: MessageEnd) -> bytes:
        """At home the step stops with its message."""
        if not self.plan.home or event.candidate != 0:
            return b""
        number = event.message
        opening = b""
        if number not in self._shown:
            opening = self._open_step(number, self._said(number))
        stop = restore({"index": self._shown[number]}, self._ends.get(number), FAMILY)
        return opening + write("step.stop", stop)

    def _said(self, number: int) -> Any:
        start = self._messages.get(number) or MessageStart(message=number)
        message = Message(role=start.role, parts=(), extras=start.extras, form=start.form)
        return encode_step(message, [], self.plan)

    def _open_step(self, number: int, step: Any, node: PartStart | None = None) -> bytes:
        """The start of a step, numbered as its source did."""
        index = self._steps
        start = self._messages.get(number)
        for token in start.form if start is not None and self.plan.home else ():
            if token.startswith(INDEX):
                index = int(token[len(INDEX) :])
        self._steps = index + 1
        self._shown[number] = index
        resume = {} if start is None else event_id(start.form)
        return write("step.start", restore({"index": index, "step": step, **resume}, node, FAMILY))

    def part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.plan.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        number = event.message
        position = self._counts.get(number, 0)
        self._counts[number] = position + 1
        trail: Trail = ("candidates", 0, "messages", number, "parts", position)
        return self._own_part(event, trail) if self.plan.home else self._foreign_part(event, trail)

    def _own_part(self, event: PartStart, trail: Trail) -> bytes:
        part, number = event.part, event.message
        opening = b""
        if part.at == "" and not isinstance(part, Text | Media):
            step = encode_step(Message(role="assistant", parts=(part,)), [Placed(part, trail)], self.plan)
            opening = self._open_step(number, step, event)
        elif number not in self._shown:
            opening = self._open_step(number, self._said(number))
        index = self._shown[number]
        held = self.parts[event.index] = OpenPart(index, part, trail)
        if isinstance(part, Text):
            held.head = _HEAD % index + _TEXT
            return opening + (self._say(held, part.text) if part.text else b"")
        if isinstance(part, ToolCall) and part.executor == "client":
            held.head = _HEAD % index + _ARGUMENTS
        elif isinstance(part, Media):
            (block,) = encode_content([Placed(part, trail)], self.plan, spoken=True)
            return opening + write("step.delta", {"index": index, "delta": block})
        return opening

    def _foreign_part(self, event: PartStart, trail: Trail) -> bytes:
        part = event.part
        held = self.parts[event.index] = OpenPart(-1, part, trail)
        match part:
            case Text() | Refusal():
                if isinstance(part, Refusal):
                    self.plan.report.approximated(trail, "", "a refusal is told as text")
                return self._say(held, part.text) if part.text else b""
            case Reasoning():
                return b""
            case ToolCall() if part.executor == "client":
                return self._call(held, part, event.message)
            case ToolCall() | ToolResult() | Foreign():
                return b""  # what a provider ran is only known at its end
            case _:
                del self.parts[event.index]
                return self._steps_of(part, trail)

    def _steps_of(self, part: Part, trail: Trail) -> bytes:
        steps = encode_parts([Placed(part, trail)], self.plan, spoken=True)
        return b"".join([self._whole(step, int(trail[3])) for step in steps])

    def _whole(self, step: Any, number: int) -> bytes:
        """A step of another protocol's part that comes at once."""
        if isinstance(step, Thought):
            return self._proof(str(step.signature), number)
        if isinstance(step, ServerCall | ServerResult):
            return self._ran(as_object(step), number)
        opened = self._open_step(number, {"type": "model_output"})
        index = self._shown[number]
        deltas = [write("step.delta", {"index": index, "delta": block}) for block in step.content]
        return b"".join((opened, *deltas, write("step.stop", {"index": index})))

    def _ran(self, step: dict[str, Any], number: int) -> bytes:
        """What a provider ran: the step starts hollow, and one delta of its own type fills it."""
        about = {name: value for name, value in step.items() if name in ("type", "id", "call_id")}
        hollow = {name: _HOLLOW[bytes(step[name])[:1]] for name in ("arguments", "result") if name in step}
        opened = self._open_step(number, {**about, **hollow})
        index = self._shown[number]
        delta = {name: value for name, value in step.items() if name not in ("id", "call_id")}
        return b"".join(
            (
                opened,
                write("step.delta", {"index": index, "delta": delta}),
                write("step.stop", {"index": index}),
            )
        )

    def _call(self, held: OpenPart, part: ToolCall, number: int) -> bytes:
        self.calls = True
        proof = b""
        hollow = replace(part, arguments="", shape="json")
        steps = encode_parts([Placed(hollow, held.trail)], self.plan, spoken=True)
        if isinstance(steps[0], Thought):
            proof = self._proof(str(steps[0].signature), number)
            held.proven = True
        opened = proof + self._open_step(number, steps[-1])
        held.step = self._shown[number]
        held.head = _HEAD % held.step + _ARGUMENTS
        if part.shape == "freeform":
            held.lowered = True
            return opened + self._frame_text(held, lower_input(part.arguments)[: -len(LOWERED_END)])
        return opened + (self._frame_text(held, part.arguments) if part.arguments else b"")

    def _proof(self, signature: str, number: int) -> bytes:
        opened = self._open_step(number, {"type": "thought"})
        index = self._shown[number]
        delta = {"index": index, "delta": {"type": "thought_signature", "signature": signature}}
        return opened + write("step.delta", delta) + write("step.stop", {"index": index})

    # ---- deltas

    def _frame_text(self, held: OpenPart, text: str) -> bytes:
        held.pieces.append(text)
        return b"%b%b}}\n\n" % (held.head, _text(text))

    def _say(self, held: OpenPart, text: str) -> bytes:
        """Text, in a step that opens with its first word."""
        opened = b""
        if not held.head:
            number = int(held.trail[3])
            opened = self._open_step(number, {"type": "model_output"})
            held.step = self._shown[number]
            held.head = _HEAD % held.step + _TEXT
        return opened + self._frame_text(held, text)

    def part_delta(self, event: PartDelta) -> bytes:
        held = self.parts.get(event.index) if event.candidate == 0 else None
        if held is None:
            return b""
        if event.seal is not None:
            return self._sealed(event, held)
        if event.annotation is not None:
            return self._cited(event, held)
        if isinstance(held.part, Reasoning):
            return self._thought(event, held)
        if not self.plan.home:
            text = _text(event.text)[1:-1].decode() if held.lowered else event.text
            if not text:
                return b""
            if _is_run(held.part):
                held.pieces.append(text)
                return b""
            return self._frame_text(held, text) if isinstance(held.part, ToolCall) else self._say(held, text)
        if not held.head:
            held.pieces.append(event.text)
            return b""
        if not event.extras:
            return self._frame_text(held, event.text)
        held.pieces.append(event.text)
        call = isinstance(held.part, ToolCall)
        delta = {"type": "arguments_delta", "arguments": event.text} if call else {"type": "text", "text": event.text}
        return write("step.delta", restore({"index": held.step, "delta": delta}, event, FAMILY))

    def _thought(self, event: PartDelta, held: OpenPart) -> bytes:
        if not event.text and not self.plan.home:
            return b""
        delta = {"type": "thought_summary", "content": {"type": "text", "text": event.text}}
        opened = self._open_thought(held)
        return opened + write("step.delta", restore({"index": held.step, "delta": delta}, event, FAMILY))

    def _open_thought(self, held: OpenPart) -> bytes:
        """A thought of another protocol opens once there is something to show."""
        if held.step >= 0:
            return b""
        number = int(held.trail[3])
        opened = self._open_step(number, {"type": "thought"})
        held.step = self._shown[number]
        return opened

    def _sealed(self, event: PartDelta, held: OpenPart) -> bytes:
        if not self.plan.home:
            if isinstance(held.part, Reasoning | ToolCall | Text):
                held.part = replace(held.part, seal=event.seal)
            return b""
        if event.seal is None:
            return b""
        delta = {"type": "thought_signature", "signature": event.seal.data}
        return write("step.delta", restore({"index": held.step, "delta": delta}, event, FAMILY))

    def _cited(self, event: PartDelta, held: OpenPart) -> bytes:
        note, held.notes = event.annotation, held.notes + 1
        if note is None:
            return b""
        if self.plan.home:
            delta = {"type": "text_annotation_delta", "annotations": [encode_annotation(note)]}
            return write("step.delta", restore({"index": held.step, "delta": delta}, event, FAMILY))
        if isinstance(held.part, Text):
            held.part = replace(held.part, annotations=(*(held.part.annotations or ()), note))
        return b""

    # ---- the end of a part

    def part_end(self, event: PartEnd) -> bytes:
        held = self.parts.pop(event.index, None) if event.candidate == 0 else None
        if held is None:
            return b""
        part = held.part if event.final is None else event.final
        if self.plan.home:
            self._ends[int(held.trail[3])] = event
            if isinstance(part, ToolCall) and not held.head and (asked := "".join(held.pieces)):
                own = {"type": part.native, "arguments": home_arguments(replace(part, arguments=asked))}
                return write("step.delta", {"index": held.step, "delta": own})  # of an answer that came whole
            left = (part.annotations or ())[held.notes :] if isinstance(part, Text) else ()
            if not left:
                return b""
            delta = {"type": "text_annotation_delta", "annotations": [encode_annotation(note) for note in left]}
            return write("step.delta", {"index": held.step, "delta": delta})
        if _is_run(part):
            if event.final is None and isinstance(part, ToolCall):
                part = replace(part, arguments=part.arguments + "".join(held.pieces))
            return self._steps_of(part, held.trail)
        closing = b""
        if isinstance(part, Reasoning):
            closing = self._proven(part, held)
        elif isinstance(part, ToolCall) and held.lowered:
            closing = self._frame_text(held, LOWERED_END)
        elif isinstance(part, ToolCall) and not "".join(held.pieces):
            closing = self._frame_text(held, "{}")
        elif isinstance(part, Text):
            closing = self._notes(part, held)
        if held.step >= 0:
            closing += write("step.stop", {"index": held.step})
        return closing + self._late_proof(part, held)

    def _late_proof(self, part: Part, held: OpenPart) -> bytes:
        """A proof that came with what it proves, or after it, is a thought behind it."""
        seal = (part.seal or getattr(held.part, "seal", None)) if isinstance(part, ToolCall | Text) else None
        if seal is None or held.proven:
            return b""
        if seal.issuer != ISSUER:
            self.plan.report.dropped((*held.trail, "seal"), "", "a seal goes only to its issuer")
            return b""
        return self._proof(seal.data, int(held.trail[3]))

    def _proven(self, part: Reasoning, held: OpenPart) -> bytes:
        """The proof of a thought, if it is Google's own."""
        if part.seal is None:
            return b""
        if part.seal.issuer != ISSUER:
            self.plan.unproved(part, held.trail)
            return b""
        delta = {"type": "thought_signature", "signature": part.seal.data}
        return self._open_thought(held) + write("step.delta", {"index": held.step, "delta": delta})

    def _notes(self, part: Text, held: OpenPart) -> bytes:
        if not part.annotations or held.step < 0:
            return b""
        whole = replace(part, text="".join(held.pieces), seal=None, cache=None, id=None)
        (block,) = encode_content([Placed(whole, held.trail)], self.plan, spoken=True)
        if block.annotations is UNSET:
            return b""
        delta = {"type": "text_annotation_delta", "annotations": block.annotations}
        return write("step.delta", {"index": held.step, "delta": delta})


def _is_run(part: Part) -> bool:
    """Whether it tells what a provider ran, or is of one protocol only."""
    return isinstance(part, ToolResult | Foreign) or (isinstance(part, ToolCall) and part.executor == "server")


def write(kind: str, body: dict[str, Any]) -> bytes:
    return frame(msgspec.json.encode({"event_type": kind, **body}), kind.encode())
