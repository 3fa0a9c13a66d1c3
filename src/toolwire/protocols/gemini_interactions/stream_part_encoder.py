"""The middle of an Interactions stream: the steps that canonical messages and parts make.

At home a message is a step, and stops with it. Of another protocol each part is a step of its own, one after the other:
deltas have no index within a step, so that two texts in one would run together.
"""

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, OpaquePart, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.events import MessageEnd, MessageStart, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import TextPieces
from toolwire.codec.encoding.tools import WRAPPED_INPUT_END, wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import as_dict, restore_extras
from toolwire.protocols.gemini_interactions.parts.calls import same_protocol_arguments
from toolwire.protocols.gemini_interactions.parts.content import encode_annotation, encode_content
from toolwire.protocols.gemini_interactions.parts.messages import encode_parts, encode_step
from toolwire.protocols.gemini_interactions.parts.plan import StepPlan
from toolwire.protocols.gemini_interactions.stream_decoder import INDEX_FORM, encode_event_id
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, ServerCall, ServerResult, Thought

_encode_json = msgspec.json.Encoder().encode
_DELTA_HEAD = b'event: step.delta\ndata: {"event_type":"step.delta","index":%d,"delta":{"type":'
_TEXT_DELTA = b'"text","text":'
_ARGUMENTS_DELTA = b'"arguments_delta","arguments":'
_EMPTY_VALUES: dict[bytes, Any] = {b"{": {}, b"[": [], b'"': ""}


class OpenPart:
    """A part while it is told: its step, and how its text starts a frame."""

    def __init__(self, step_index: int, part: Part, path: SourcePath, head: bytes = b"") -> None:
        self.step_index = step_index
        self.part = part
        self.path = path
        self.head = head
        self.pieces = TextPieces()
        self.citation_count = 0
        self.is_wrapped = False
        self.has_signature = False


class StreamStepEncoder:
    def __init__(self, plan: StepPlan) -> None:
        self.parts: dict[int, OpenPart] = {}
        self.has_calls = False
        self.plan = plan
        self._next_index = 0
        self._messages: dict[int, MessageStart] = {}
        self._step_indices: dict[int, int] = {}
        self._part_ends: dict[int, PartEnd] = {}
        self._part_counts: dict[int, int] = {}

    def message_start(self, event: MessageStart) -> bytes:
        if event.candidate != 0:
            return b""
        self._messages[event.message] = event
        if not self.plan.same_protocol:
            trail = ("candidates", 0, "messages", event.message)
            for field in ("id", "name", "status", "phase"):
                if getattr(event, field) is not None:
                    self.plan.report.dropped(trail, field)
        return b""

    def message_end(self, event: MessageEnd) -> bytes:
        """At home the step stops with its message."""
        if not self.plan.same_protocol or event.candidate != 0:
            return b""
        number = event.message
        opening = b""
        if number not in self._step_indices:
            opening = self._open_step(number, self._encode_empty_step(number))
        stop = restore_extras({"index": self._step_indices[number]}, self._part_ends.get(number), FAMILY)
        return opening + encode_frame("step.stop", stop)

    def _encode_empty_step(self, number: int) -> Any:
        start = self._messages.get(number) or MessageStart(message=number)
        message = Message(role=start.role, parts=(), extras=start.extras, wire_form=start.wire_form)
        return encode_step(message, [], self.plan)

    def _open_step(self, number: int, step: Any, node: PartStart | None = None) -> bytes:
        """The start of a step, numbered as its source did."""
        index = self._next_index
        start = self._messages.get(number)
        for token in start.wire_form if start is not None and self.plan.same_protocol else ():
            if token.startswith(INDEX_FORM):
                index = int(token[len(INDEX_FORM) :])
        self._next_index = index + 1
        self._step_indices[number] = index
        resume = {} if start is None else encode_event_id(start.wire_form)
        return encode_frame("step.start", restore_extras({"index": index, "step": step, **resume}, node, FAMILY))

    def part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.plan.report.dropped(("candidates", event.candidate), "", "the target returns a single candidate")
            return b""
        number = event.message
        position = self._part_counts.get(number, 0)
        self._part_counts[number] = position + 1
        trail: SourcePath = ("candidates", 0, "messages", number, "parts", position)
        return (
            self._encode_same_protocol_part(event, trail)
            if self.plan.same_protocol
            else self._encode_foreign_part(event, trail)
        )

    def _encode_same_protocol_part(self, event: PartStart, path: SourcePath) -> bytes:
        part, number = event.part, event.message
        opening = b""
        if part.at == "" and not isinstance(part, Text | Media):
            step = encode_step(Message(role="assistant", parts=(part,)), [LocatedPart(part, path)], self.plan)
            opening = self._open_step(number, step, event)
        elif number not in self._step_indices:
            opening = self._open_step(number, self._encode_empty_step(number))
        index = self._step_indices[number]
        held = self.parts[event.index] = OpenPart(index, part, path)
        if isinstance(part, Text):
            held.head = _DELTA_HEAD % index + _TEXT_DELTA
            return opening + (self._encode_text(held, part.text) if part.text else b"")
        if isinstance(part, ToolCall) and part.executor == "client":
            held.head = _DELTA_HEAD % index + _ARGUMENTS_DELTA
        elif isinstance(part, Media):
            (block,) = encode_content([LocatedPart(part, path)], self.plan, is_output=True)
            return opening + encode_frame("step.delta", {"index": index, "delta": block})
        return opening

    def _encode_foreign_part(self, event: PartStart, path: SourcePath) -> bytes:
        part = event.part
        held = self.parts[event.index] = OpenPart(-1, part, path)
        match part:
            case Text() | Refusal():
                if isinstance(part, Refusal):
                    self.plan.report.approximated(path, "", "refusal sent as text")
                return self._encode_text(held, part.text) if part.text else b""
            case Reasoning():
                return b""
            case ToolCall() if part.executor == "client":
                return self._open_call(held, part, event.message)
            case ToolCall() | ToolResult() | OpaquePart():
                return b""  # what a provider ran is only known at its end
            case _:
                del self.parts[event.index]
                return self._encode_part_steps(part, path)

    def _encode_part_steps(self, part: Part, path: SourcePath) -> bytes:
        steps = encode_parts([LocatedPart(part, path)], self.plan, is_output=True)
        return b"".join([self._encode_complete_step(step, int(path[3])) for step in steps])

    def _encode_complete_step(self, step: Any, number: int) -> bytes:
        """A step of another protocol's part that comes at once."""
        if isinstance(step, Thought):
            return self._encode_signature_step(str(step.signature), number)
        if isinstance(step, ServerCall | ServerResult):
            return self._encode_hosted_step(as_dict(step), number)
        opened = self._open_step(number, {"type": "model_output"})
        index = self._step_indices[number]
        deltas = [encode_frame("step.delta", {"index": index, "delta": block}) for block in step.content]
        return b"".join((opened, *deltas, encode_frame("step.stop", {"index": index})))

    def _encode_hosted_step(self, step: dict[str, Any], number: int) -> bytes:
        """What a provider ran: the step starts hollow, and one delta of its own type fills it."""
        about = {name: value for name, value in step.items() if name in ("type", "id", "call_id")}
        hollow = {name: _EMPTY_VALUES[bytes(step[name])[:1]] for name in ("arguments", "result") if name in step}
        opened = self._open_step(number, {**about, **hollow})
        index = self._step_indices[number]
        delta = {name: value for name, value in step.items() if name not in ("id", "call_id")}
        return b"".join(
            (
                opened,
                encode_frame("step.delta", {"index": index, "delta": delta}),
                encode_frame("step.stop", {"index": index}),
            )
        )

    def _open_call(self, open_part: OpenPart, part: ToolCall, number: int) -> bytes:
        self.has_calls = True
        proof = b""
        hollow = replace(part, arguments="", shape="json")
        steps = encode_parts([LocatedPart(hollow, open_part.path)], self.plan, is_output=True)
        if isinstance(steps[0], Thought):
            proof = self._encode_signature_step(str(steps[0].signature), number)
            open_part.has_signature = True
        opened = proof + self._open_step(number, steps[-1])
        open_part.step_index = self._step_indices[number]
        open_part.head = _DELTA_HEAD % open_part.step_index + _ARGUMENTS_DELTA
        if part.shape == "freeform":
            open_part.is_wrapped = True
            return opened + self._encode_delta(
                open_part, wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)]
            )
        return opened + (self._encode_delta(open_part, part.arguments) if part.arguments else b"")

    def _encode_signature_step(self, signature: str, number: int) -> bytes:
        opened = self._open_step(number, {"type": "thought"})
        index = self._step_indices[number]
        delta = {"index": index, "delta": {"type": "thought_signature", "signature": signature}}
        return opened + encode_frame("step.delta", delta) + encode_frame("step.stop", {"index": index})

    # ---- deltas

    def _encode_delta(self, open_part: OpenPart, text: str) -> bytes:
        open_part.pieces.append(text)
        return b"%b%b}}\n\n" % (open_part.head, _encode_json(text))

    def _encode_text(self, open_part: OpenPart, text: str) -> bytes:
        """Text, in a step that opens with its first word."""
        opened = b""
        if not open_part.head:
            number = int(open_part.path[3])
            opened = self._open_step(number, {"type": "model_output"})
            open_part.step_index = self._step_indices[number]
            open_part.head = _DELTA_HEAD % open_part.step_index + _TEXT_DELTA
        return opened + self._encode_delta(open_part, text)

    def part_delta(self, event: PartDelta) -> bytes:
        held = self.parts.get(event.index) if event.candidate == 0 else None
        if held is None:
            return b""
        if event.signature is not None:
            return self._encode_signature(event, held)
        if event.annotation is not None:
            return self._encode_citation(event, held)
        if isinstance(held.part, Reasoning):
            return self._encode_reasoning(event, held)
        if not self.plan.same_protocol:
            text = _encode_json(event.text)[1:-1].decode() if held.is_wrapped else event.text
            if not text:
                return b""
            if _is_hosted(held.part):
                held.pieces.append(text)
                return b""
            return self._encode_delta(held, text) if isinstance(held.part, ToolCall) else self._encode_text(held, text)
        if not held.head:
            held.pieces.append(event.text)
            return b""
        if not event.extras:
            return self._encode_delta(held, event.text)
        held.pieces.append(event.text)
        call = isinstance(held.part, ToolCall)
        delta = {"type": "arguments_delta", "arguments": event.text} if call else {"type": "text", "text": event.text}
        return encode_frame("step.delta", restore_extras({"index": held.step_index, "delta": delta}, event, FAMILY))

    def _encode_reasoning(self, event: PartDelta, open_part: OpenPart) -> bytes:
        if not event.text and not self.plan.same_protocol:
            return b""
        delta = {"type": "thought_summary", "content": {"type": "text", "text": event.text}}
        opened = self._open_thought(open_part)
        return opened + encode_frame(
            "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
        )

    def _open_thought(self, open_part: OpenPart) -> bytes:
        """A thought of another protocol opens once there is something to show."""
        if open_part.step_index >= 0:
            return b""
        number = int(open_part.path[3])
        opened = self._open_step(number, {"type": "thought"})
        open_part.step_index = self._step_indices[number]
        return opened

    def _encode_signature(self, event: PartDelta, open_part: OpenPart) -> bytes:
        if not self.plan.same_protocol:
            if isinstance(open_part.part, Reasoning | ToolCall | Text):
                open_part.part = replace(open_part.part, signature=event.signature)
            return b""
        if event.signature is None:
            return b""
        delta = {"type": "thought_signature", "signature": event.signature.data}
        return encode_frame(
            "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
        )

    def _encode_citation(self, event: PartDelta, open_part: OpenPart) -> bytes:
        note, open_part.citation_count = event.annotation, open_part.citation_count + 1
        if note is None:
            return b""
        if self.plan.same_protocol:
            delta = {"type": "text_annotation_delta", "annotations": [encode_annotation(note)]}
            return encode_frame(
                "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
            )
        if isinstance(open_part.part, Text):
            open_part.part = replace(open_part.part, annotations=(*(open_part.part.annotations or ()), note))
        return b""

    # ---- the end of a part

    def part_end(self, event: PartEnd) -> bytes:
        held = self.parts.pop(event.index, None) if event.candidate == 0 else None
        if held is None:
            return b""
        part = held.part if event.final is None else event.final
        if self.plan.same_protocol:
            self._part_ends[int(held.path[3])] = event
            if isinstance(part, ToolCall) and not held.head and (asked := "".join(held.pieces)):
                own = {"type": part.native, "arguments": same_protocol_arguments(replace(part, arguments=asked))}
                return encode_frame(
                    "step.delta", {"index": held.step_index, "delta": own}
                )  # of an answer that came whole
            left = (part.annotations or ())[held.citation_count :] if isinstance(part, Text) else ()
            if not left:
                return b""
            delta = {"type": "text_annotation_delta", "annotations": [encode_annotation(note) for note in left]}
            return encode_frame("step.delta", {"index": held.step_index, "delta": delta})
        if _is_hosted(part):
            if event.final is None and isinstance(part, ToolCall):
                part = replace(part, arguments=part.arguments + "".join(held.pieces))
            return self._encode_part_steps(part, held.path)
        closing = b""
        if isinstance(part, Reasoning):
            closing = self._encode_thought_signature(part, held)
        elif isinstance(part, ToolCall) and held.is_wrapped:
            closing = self._encode_delta(held, WRAPPED_INPUT_END)
        elif isinstance(part, ToolCall) and not "".join(held.pieces):
            closing = self._encode_delta(held, "{}")
        elif isinstance(part, Text):
            closing = self._encode_citations(part, held)
        if held.step_index >= 0:
            closing += encode_frame("step.stop", {"index": held.step_index})
        return closing + self._encode_late_signature(part, held)

    def _encode_late_signature(self, part: Part, open_part: OpenPart) -> bytes:
        """A proof that came with what it proves, or after it, is a thought behind it."""
        seal = (
            (part.signature or getattr(open_part.part, "signature", None))
            if isinstance(part, ToolCall | Text)
            else None
        )
        if seal is None or open_part.has_signature:
            return b""
        if seal.issuer != ISSUER:
            self.plan.report.dropped((*open_part.path, "signature"), "", "signatures are only valid for their issuer")
            return b""
        return self._encode_signature_step(seal.data, int(open_part.path[3]))

    def _encode_thought_signature(self, part: Reasoning, open_part: OpenPart) -> bytes:
        """The proof of a thought, if it is Google's own."""
        if part.signature is None:
            return b""
        if part.signature.issuer != ISSUER:
            self.plan.report_unsealed_signature(part, open_part.path)
            return b""
        delta = {"type": "thought_signature", "signature": part.signature.data}
        return self._open_thought(open_part) + encode_frame(
            "step.delta", {"index": open_part.step_index, "delta": delta}
        )

    def _encode_citations(self, part: Text, open_part: OpenPart) -> bytes:
        if not part.annotations or open_part.step_index < 0:
            return b""
        whole = replace(part, text="".join(open_part.pieces), signature=None, cache=None, id=None)
        (block,) = encode_content([LocatedPart(whole, open_part.path)], self.plan, is_output=True)
        if block.annotations is UNSET:
            return b""
        delta = {"type": "text_annotation_delta", "annotations": block.annotations}
        return encode_frame("step.delta", {"index": open_part.step_index, "delta": delta})


def _is_hosted(part: Part) -> bool:
    """Whether it tells what a provider ran, or is of one protocol only."""
    return isinstance(part, ToolResult | OpaquePart) or (isinstance(part, ToolCall) and part.executor == "server")


def encode_frame(kind: str, body: dict[str, Any]) -> bytes:
    return encode_sse_frame(msgspec.json.encode({"event_type": kind, **body}), kind.encode())
