"""Encode the steps of an Interactions stream.

A message of the same protocol is one step. Of other protocols each part becomes a step of its own: deltas have no
index within a step, so two texts in one step would run together.
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
from toolwire.protocols.gemini_interactions.parts.content import StepPlan, encode_annotation, encode_content
from toolwire.protocols.gemini_interactions.parts.messages import encode_parts, encode_step
from toolwire.protocols.gemini_interactions.stream_decoder import INDEX_FORM, encode_event_id
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, ServerCall, ServerResult, Thought

_encode_json = msgspec.json.Encoder().encode
_DELTA_HEAD = b'event: step.delta\ndata: {"event_type":"step.delta","index":%d,"delta":{"type":'
DELTA_TAIL = b"}}\n\n"
_TEXT_DELTA = b'"text","text":'
_ARGUMENTS_DELTA = b'"arguments_delta","arguments":'
_EMPTY_VALUES: dict[bytes, Any] = {b"{": {}, b"[": [], b'"': ""}


class OpenPart:
    """The encoding state of one open part."""

    def __init__(self, step_index: int, part: Part, path: SourcePath, head: bytes = b"") -> None:
        self.step_index = step_index  # -1 while its step is not open
        self.part = part
        self.path = path
        self.head = head  # the start of a delta frame, up to its text
        self.pieces = TextPieces()
        self.citation_count = 0
        self.is_wrapped = False  # a freeform input, sent as a JSON string
        self.has_signature = False


class StreamStepEncoder:
    """Encoder of messages and parts as step frames."""

    def __init__(self, plan: StepPlan) -> None:
        self.parts: dict[int, OpenPart] = {}
        self.has_calls = False
        self.plan = plan
        self._next_index = 0
        self._messages: dict[int, MessageStart] = {}
        self._step_indices: dict[int, int] = {}
        self._part_ends: dict[int, PartEnd] = {}
        self._part_counts: dict[int, int] = {}

    def start_message(self, event: MessageStart) -> bytes:
        """Store the start of a message, report its fields that the API lacks, and return no bytes."""
        if event.candidate != 0:
            return b""
        self._messages[event.message] = event
        if not self.plan.same_protocol:
            path = ("candidates", 0, "messages", event.message)
            self.plan.report.dropped_fields(path, event, "id", "name", "status", "phase")
        return b""

    def end_message(self, event: MessageEnd) -> bytes:
        """Encode `step.stop` for a message of an Interactions provider; other protocols' steps end with their parts."""
        if not self.plan.same_protocol or event.candidate != 0:
            return b""
        number = event.message
        start = b""
        if number not in self._step_indices:
            start = self._open_step(number, self._encode_empty_step(number))
        stop = restore_extras({"index": self._step_indices[number]}, self._part_ends.get(number), FAMILY)
        return start + encode_frame("step.stop", stop)

    def _encode_empty_step(self, number: int) -> Any:
        """Encode the step of the message `number`, which has no parts."""
        start = self._messages.get(number) or MessageStart(message=number)
        message = Message(role=start.role, parts=(), extras=start.extras, wire_form=start.wire_form)
        return encode_step(message, [], self.plan)

    def _open_step(self, number: int, step: Any, node: PartStart | None = None) -> bytes:
        """Encode `step.start` for the message `number`; `node` may hold another index that the provider used."""
        index = self._next_index
        start = self._messages.get(number)
        for token in start.wire_form if start is not None and self.plan.same_protocol else ():
            if token.startswith(INDEX_FORM):
                index = int(token[len(INDEX_FORM) :])
        self._next_index = index + 1
        self._step_indices[number] = index
        event_id = {} if start is None else encode_event_id(start.wire_form)
        return encode_frame("step.start", restore_extras({"index": index, "step": step, **event_id}, node, FAMILY))

    def start_part(self, event: PartStart) -> bytes:
        """Encode the start of a part."""
        if event.candidate != 0:
            self.plan.report.dropped(("candidates", event.candidate), "", "the target returns a single candidate")
            return b""
        number = event.message
        position = self._part_counts.get(number, 0)
        self._part_counts[number] = position + 1
        path: SourcePath = ("candidates", 0, "messages", number, "parts", position)
        return (
            self._encode_same_protocol_part(event, path)
            if self.plan.same_protocol
            else self._encode_foreign_part(event, path)
        )

    def _encode_same_protocol_part(self, event: PartStart, path: SourcePath) -> bytes:
        """Open the step of a part that came from an Interactions provider."""
        part, number = event.part, event.message
        start = b""
        if part.at == "" and not isinstance(part, Text | Media):
            step = encode_step(Message(role="assistant", parts=(part,)), [LocatedPart(part, path)], self.plan)
            start = self._open_step(number, step, event)
        elif number not in self._step_indices:
            start = self._open_step(number, self._encode_empty_step(number))
        index = self._step_indices[number]
        open_part = self.parts[event.index] = OpenPart(index, part, path)
        if isinstance(part, Text):
            open_part.head = _DELTA_HEAD % index + _TEXT_DELTA
            return start + (self._encode_text(open_part, part.text) if part.text else b"")
        if isinstance(part, ToolCall) and part.executor == "client":
            open_part.head = _DELTA_HEAD % index + _ARGUMENTS_DELTA
        elif isinstance(part, Media):
            (block,) = encode_content([LocatedPart(part, path)], self.plan, is_output=True)
            return start + encode_frame("step.delta", {"index": index, "delta": block})
        return start

    def _encode_foreign_part(self, event: PartStart, path: SourcePath) -> bytes:
        """Open a step for another protocol's part; return no bytes if the part must be complete first."""
        part = event.part
        open_part = self.parts[event.index] = OpenPart(-1, part, path)
        match part:
            case Text() | Refusal():
                if isinstance(part, Refusal):
                    self.plan.report.approximated(path, "", "refusal sent as text")
                return self._encode_text(open_part, part.text) if part.text else b""
            case Reasoning():
                return b""
            case ToolCall() if part.executor == "client":
                return self._open_call(open_part, part, event.message)
            case ToolCall() | ToolResult() | OpaquePart():
                return b""  # a hosted call is complete only at its end
            case _:
                del self.parts[event.index]
                return self._encode_part_steps(part, path)

    def _encode_part_steps(self, part: Part, path: SourcePath) -> bytes:
        """Encode a complete part of another protocol as steps."""
        steps = encode_parts([LocatedPart(part, path)], self.plan, is_output=True)
        return b"".join([self._encode_complete_step(step, int(path[3])) for step in steps])

    def _encode_complete_step(self, step: Any, number: int) -> bytes:
        """Encode all frames of one complete step: start, deltas and stop."""
        if isinstance(step, Thought):
            return self._encode_signature_step(str(step.signature), number)
        if isinstance(step, ServerCall | ServerResult):
            return self._encode_hosted_step(as_dict(step), number)
        start = self._open_step(number, {"type": "model_output"})
        index = self._step_indices[number]
        deltas = [encode_frame("step.delta", {"index": index, "delta": block}) for block in step.content]
        return b"".join((start, *deltas, encode_frame("step.stop", {"index": index})))

    def _encode_hosted_step(self, step: dict[str, Any], number: int) -> bytes:
        """Encode a hosted call or result as an empty step that one delta of its type fills."""
        identity = {name: value for name, value in step.items() if name in ("type", "id", "call_id")}
        empty_fields = {
            name: _EMPTY_VALUES.get(bytes(step[name])[:1]) for name in ("arguments", "result") if name in step
        }
        start = self._open_step(number, {**identity, **empty_fields})
        index = self._step_indices[number]
        delta = {name: value for name, value in step.items() if name not in ("id", "call_id")}
        return b"".join(
            (
                start,
                encode_frame("step.delta", {"index": index, "delta": delta}),
                encode_frame("step.stop", {"index": index}),
            )
        )

    def _open_call(self, open_part: OpenPart, part: ToolCall, number: int) -> bytes:
        """Open the step of another protocol's call; a thought with its signature comes first."""
        self.has_calls = True
        signature_step = b""
        empty_call = replace(part, arguments="", shape="json")
        steps = encode_parts([LocatedPart(empty_call, open_part.path)], self.plan, is_output=True)
        if isinstance(steps[0], Thought):
            signature_step = self._encode_signature_step(str(steps[0].signature), number)
            open_part.has_signature = True
        start = signature_step + self._open_step(number, steps[-1])
        open_part.step_index = self._step_indices[number]
        open_part.head = _DELTA_HEAD % open_part.step_index + _ARGUMENTS_DELTA
        if part.shape == "freeform":
            open_part.is_wrapped = True
            return start + self._encode_delta(open_part, wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)])
        return start + (self._encode_delta(open_part, part.arguments) if part.arguments else b"")

    def _encode_signature_step(self, signature: str, number: int) -> bytes:
        """Encode a thought step that holds only a signature."""
        start = self._open_step(number, {"type": "thought"})
        index = self._step_indices[number]
        delta = {"index": index, "delta": {"type": "thought_signature", "signature": signature}}
        return start + encode_frame("step.delta", delta) + encode_frame("step.stop", {"index": index})

    # ---- deltas

    def _encode_delta(self, open_part: OpenPart, text: str) -> bytes:
        """Encode a text or arguments delta."""
        open_part.pieces.append(text)
        return b"%b%b%b" % (open_part.head, _encode_json(text), DELTA_TAIL)

    def _encode_text(self, open_part: OpenPart, text: str) -> bytes:
        """Encode text, opening its step first if needed."""
        start = b""
        if not open_part.head:
            number = int(open_part.path[3])
            start = self._open_step(number, {"type": "model_output"})
            open_part.step_index = self._step_indices[number]
            open_part.head = _DELTA_HEAD % open_part.step_index + _TEXT_DELTA
        return start + self._encode_delta(open_part, text)

    def encode_part_delta(self, event: PartDelta) -> bytes:
        """Encode a delta; one that must wait for the end of its part is stored and returns no bytes."""
        open_part = self.parts.get(event.index) if event.candidate == 0 else None
        if open_part is None:
            return b""
        if event.signature is not None:
            return self._encode_signature(event, open_part)
        if event.annotation is not None:
            return self._encode_citation(event, open_part)
        if isinstance(open_part.part, Reasoning):
            return self._encode_reasoning(event, open_part)
        if not self.plan.same_protocol:
            text = _encode_json(event.text)[1:-1].decode() if open_part.is_wrapped else event.text
            if not text:
                return b""
            if _is_hosted(open_part.part):
                open_part.pieces.append(text)
                return b""
            return (
                self._encode_delta(open_part, text)
                if isinstance(open_part.part, ToolCall)
                else self._encode_text(open_part, text)
            )
        if not open_part.head:
            open_part.pieces.append(event.text)
            return b""
        if not event.extras:
            return self._encode_delta(open_part, event.text)
        open_part.pieces.append(event.text)
        is_call = isinstance(open_part.part, ToolCall)
        delta = (
            {"type": "arguments_delta", "arguments": event.text} if is_call else {"type": "text", "text": event.text}
        )
        return encode_frame(
            "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
        )

    def _encode_reasoning(self, event: PartDelta, open_part: OpenPart) -> bytes:
        """Encode a piece of a thought's summary."""
        if not event.text and not self.plan.same_protocol:
            return b""
        delta = {"type": "thought_summary", "content": {"type": "text", "text": event.text}}
        start = self._open_thought(open_part)
        return start + encode_frame(
            "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
        )

    def _open_thought(self, open_part: OpenPart) -> bytes:
        """Open the step of another protocol's thought, unless it is open."""
        if open_part.step_index >= 0:
            return b""
        number = int(open_part.path[3])
        start = self._open_step(number, {"type": "thought"})
        open_part.step_index = self._step_indices[number]
        return start

    def _encode_signature(self, event: PartDelta, open_part: OpenPart) -> bytes:
        """Encode a signature; another protocol's is stored until its part ends."""
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
        """Encode a citation; another protocol's is stored until its text ends."""
        citation, open_part.citation_count = event.annotation, open_part.citation_count + 1
        if citation is None:
            return b""
        if self.plan.same_protocol:
            delta = {"type": "text_annotation_delta", "annotations": [encode_annotation(citation)]}
            return encode_frame(
                "step.delta", restore_extras({"index": open_part.step_index, "delta": delta}, event, FAMILY)
            )
        if isinstance(open_part.part, Text):
            open_part.part = replace(open_part.part, annotations=(*(open_part.part.annotations or ()), citation))
        return b""

    # ---- the end of a part

    def end_part(self, event: PartEnd) -> bytes:
        """Encode the end of a part."""
        open_part = self.parts.pop(event.index, None) if event.candidate == 0 else None
        if open_part is None:
            return b""
        part = open_part.part if event.final is None else event.final
        if self.plan.same_protocol:
            self._part_ends[int(open_part.path[3])] = event
            return self._end_same_protocol_part(part, open_part)
        if _is_hosted(part):
            if event.final is None and isinstance(part, ToolCall):
                part = replace(part, arguments=part.arguments + "".join(open_part.pieces))
            return self._encode_part_steps(part, open_part.path)
        closing = b""
        if isinstance(part, Reasoning):
            closing = self._encode_thought_signature(part, open_part)
        elif isinstance(part, ToolCall) and open_part.is_wrapped:
            closing = self._encode_delta(open_part, WRAPPED_INPUT_END)
        elif isinstance(part, ToolCall) and not "".join(open_part.pieces):
            closing = self._encode_delta(open_part, "{}")
        elif isinstance(part, Text):
            closing = self._encode_citations(part, open_part)
        if open_part.step_index >= 0:
            closing += encode_frame("step.stop", {"index": open_part.step_index})
        return closing + self._encode_late_signature(part, open_part)

    def _end_same_protocol_part(self, part: Part, open_part: OpenPart) -> bytes:
        """Encode the arguments of a hosted call, or citations, that no delta has sent yet."""
        if isinstance(part, ToolCall) and not open_part.head and (arguments := "".join(open_part.pieces)):
            # The call was decoded from a complete response.
            call = {"type": part.native, "arguments": same_protocol_arguments(replace(part, arguments=arguments))}
            return encode_frame("step.delta", {"index": open_part.step_index, "delta": call})
        citations = (part.annotations or ())[open_part.citation_count :] if isinstance(part, Text) else ()
        if not citations:
            return b""
        annotations = [encode_annotation(citation) for citation in citations]
        delta = {"type": "text_annotation_delta", "annotations": annotations}
        return encode_frame("step.delta", {"index": open_part.step_index, "delta": delta})

    def _encode_late_signature(self, part: Part, open_part: OpenPart) -> bytes:
        """Encode a thought step after the part, for a signature that the part's own step could not carry."""
        if not isinstance(part, ToolCall | Text):
            return b""
        signature = part.signature or getattr(open_part.part, "signature", None)
        if signature is None or open_part.has_signature:
            return b""
        if signature.issuer != ISSUER:
            self.plan.report.dropped((*open_part.path, "signature"), "", "signatures are only valid for their issuer")
            return b""
        return self._encode_signature_step(signature.data, int(open_part.path[3]))

    def _encode_thought_signature(self, part: Reasoning, open_part: OpenPart) -> bytes:
        """Encode the signature of a thought if Google issued it."""
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
        """Encode the citations of another protocol's complete text."""
        if not part.annotations or open_part.step_index < 0:
            return b""
        complete = replace(part, text="".join(open_part.pieces), signature=None, cache=None, id=None)
        (block,) = encode_content([LocatedPart(complete, open_part.path)], self.plan, is_output=True)
        if block.annotations is UNSET:
            return b""
        delta = {"type": "text_annotation_delta", "annotations": block.annotations}
        return encode_frame("step.delta", {"index": open_part.step_index, "delta": delta})


def _is_hosted(part: Part) -> bool:
    """Check for a hosted call, a result or an opaque part, none of which has deltas."""
    return isinstance(part, ToolResult | OpaquePart) or (isinstance(part, ToolCall) and part.executor == "server")


def encode_frame(kind: str, body: dict[str, Any]) -> bytes:
    """Encode one SSE event with its type."""
    return encode_sse_frame(msgspec.json.encode({"event_type": kind, **body}), kind.encode())
