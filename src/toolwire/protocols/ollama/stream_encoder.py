"""Canonical events, to Ollama's lines.

All lines of a stream begin alike: that is made once, and a delta only fills in its text. A call has one line, once it
is whole.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, ReasoningText, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
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
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Usage
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.framing import encode_line
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import restore_extras
from toolwire.protocols.ollama.errors import encode_error
from toolwire.protocols.ollama.parts.calls import encode_call
from toolwire.protocols.ollama.parts.content import ImageData, encode_parts
from toolwire.protocols.ollama.parts.messages import report_reasoning
from toolwire.protocols.ollama.request import ID_AND_NAME_RULES
from toolwire.protocols.ollama.response import encode_created, encode_stop, encode_usage
from toolwire.protocols.ollama.stream_decoder import END_FORM
from toolwire.protocols.ollama.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_TEXT_FIELDS = {Text: "content", Refusal: "content", Reasoning: "thinking"}


class _OpenPart(Struct):
    """An open part: what stands before and after the text of its deltas, or what its deltas have brought."""

    part: Part
    path: SourcePath
    head: bytes = b""
    tail: bytes = b""
    pieces: TextPieces = msgspec.field(default_factory=TextPieces)
    block: int = 0
    is_empty: bool = True
    citation_count: int = 0


class Encoder:
    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._created = context.created
        self._sequencer = PartSequencer()
        self._envelope: dict[str, Any] = {}
        self._last_line_fields: dict[str, Any] = {}
        self._parts: dict[int, _OpenPart] = {}
        self._part_counts: dict[int, int] = {}
        self._candidates: set[int] = set()
        self._call_count = 0
        self._candidate_end: CandidateEnd | None = None
        self._usage: Usage | None = None
        self._sent_extras: set[str] = set()
        self._ended = False

    @property
    def failure(self) -> ApiError | None:
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._ended:
                break
            if type(event) is PartDelta and event.plain and event.candidate == 0:
                # A part of another protocol that is open here is the one that may speak.
                state = self._parts.get(event.index)
                if state is None or not event.text:
                    pass
                elif state.head:
                    state.is_empty = False
                    out += (state.head, _encode_json(event.text), state.tail)
                    continue
                elif isinstance(state.part, ToolCall):
                    state.pieces.append(event.text)
                    continue
            if self._plan.same_protocol:
                out.append(self._encode_event(event))
            else:
                out += [self._encode_event(one) for one in self._sequencer.order(event)]
        return b"".join(out)

    def _encode_event(self, event: Event) -> bytes:
        if candidate := getattr(event, "candidate", 0):
            if candidate not in self._candidates:
                self._candidates.add(candidate)
                self.report.dropped(("candidates", candidate), "", "the target returns a single candidate")
            return b""
        return self._HANDLERS[type(event)](self, event)

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = b"".join([self._encode_event(one) for one in self._sequencer.close()])
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return waiting + self._fail_response(ResponseFailed(error=error))

    # ---- the envelope

    def _start_response(self, event: ResponseStart) -> bytes:
        plan = self._plan
        plan.same_protocol = event.origin == FAMILY
        envelope: dict[str, Any] = {}
        if event.model is not None or not plan.same_protocol:
            envelope["model"] = event.model or ""
        created = encode_created(event, self._created, same_protocol=plan.same_protocol)
        if created is not None:
            envelope["created_at"] = created
        restore_extras(envelope, event, FAMILY)
        for name in ("message", "done", "error"):
            envelope.pop(name, None)
        self._last_line_fields = {name: envelope.pop(name) for name in ("logprobs",) if name in envelope}
        self._envelope = envelope
        self._usage = event.usage
        if not plan.same_protocol:
            if event.id is not None:
                self.report.dropped((), "id", "responses of the target have no id")
            if event.continuation is not None and event.continuation.id is not None:
                self.report.dropped(("continuation",), "id")
        return b""

    def _encode_line(self, message: dict[str, Any], extras: dict[str, Any] | None = None) -> bytes:
        """A line; the keys of extras are pointers below it."""
        said = {"role": "assistant", "content": "", **message}
        body: dict[str, Any] = {**self._envelope, "message": said, "done": False}
        if extras:
            self._sent_extras.update(extras)
            for name in extras.keys() & self._envelope.keys():
                del body[name]
            restore_extras(body, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        return encode_line(_encode_json(body))

    def _head_and_tail(self, field: str) -> tuple[bytes, bytes]:
        """What stands before and after a text in this field."""
        before, _, after = self._encode_line({field: "\0"}).partition(b'"\\u0000"')
        return before, after

    # ---- messages

    def _message_start(self, event: MessageStart) -> bytes:
        if not self._plan.same_protocol:
            for field in ("id", "name", "phase"):
                if getattr(event, field) is not None:
                    self.report.dropped(("candidates", 0, "messages", event.message), field)
        kept = {f"message/{name}": value for name, value in _protocol_extras(event.extras).items()}
        return self._encode_line({}, kept) if kept else b""

    def _message_end(self, event: MessageEnd) -> bytes:
        kept = {f"message/{name}": value for name, value in _protocol_extras(event.extras).items()}
        untold = {name: value for name, value in kept.items() if name not in self._sent_extras}
        return self._encode_line({}, untold) if untold else b""

    def _notice(self, event: Notice) -> bytes:
        kept = _protocol_extras(event.extras)
        # There are no comments in this framing: a line that says nothing keeps a connection awake.
        return self._encode_line({}, kept) if kept or event.kind == "ping" else b""

    # ---- parts

    def _part_start(self, event: PartStart) -> bytes:
        part = event.part
        position = self._part_counts[event.message] = self._part_counts.get(event.message, -1) + 1
        trail: SourcePath = ("candidates", 0, "messages", event.message, "parts", position)
        state = _OpenPart(part, trail)
        if isinstance(part, ToolCall) and part.executor == "client":
            self._parts[event.index] = state
            return b""
        if (field := _TEXT_FIELDS.get(type(part))) is None:
            return self._encode_complete_part(LocatedPart(part, trail))
        self._parts[event.index] = state
        state.head, state.tail = self._head_and_tail(field)
        return _encode_text(state, self._opening_text(part, trail))

    def _opening_text(self, part: Part, path: SourcePath) -> str:
        """The text that a part starts with. What can't be said of it is reported."""
        placed = LocatedPart(part, path)
        if isinstance(part, Reasoning):
            if not self._plan.same_protocol:
                report_reasoning(part, placed, self._plan)
            return "".join(block.text for block in part.content if isinstance(block, ReasoningText))
        (said,) = encode_parts([placed], self._plan)
        return said if isinstance(said, str) else ""

    def _encode_complete_part(self, located_part: LocatedPart) -> bytes:
        """A part that has no deltas."""
        out = b""
        for piece in encode_parts([located_part], self._plan):
            out += self._encode_line({"images": [piece.data]} if isinstance(piece, ImageData) else {"content": piece})
        return out

    def _part_delta(self, event: PartDelta) -> bytes:
        state = self._parts.get(event.index)
        if state is None:
            return b""
        if event.annotation is not None and not self._plan.same_protocol:
            trail = (*state.path, "annotations", state.citation_count)
            self.report.dropped(trail, "", "the target has no citations")
            state.citation_count += 1
        if event.signature is not None:
            self.report.dropped((*state.path, "signature"), "", "signatures are only valid for their issuer")
        if isinstance(state.part, ToolCall):
            state.pieces.append(event.text)
            return b""
        kept = _protocol_extras(event.extras)
        if kept and self._plan.same_protocol:
            state.is_empty = False
            return self._encode_line({_TEXT_FIELDS[type(state.part)]: event.text}, kept)
        text = event.text
        if text and event.block != state.block and isinstance(state.part, Reasoning):
            # Several texts of one reasoning are told as paragraphs.
            state.block = event.block
            text = text if state.is_empty else "\n\n" + text
        return _encode_text(state, text)

    def _part_end(self, event: PartEnd) -> bytes:
        state = self._parts.pop(event.index, None)
        if state is None:
            return b""
        if isinstance(state.part, ToolCall):
            return self._encode_call(state, state.part, event.final)
        final = event.final
        if isinstance(final, Text) and not state.citation_count and not self._plan.same_protocol:
            for number in range(len(final.annotations or ())):
                trail = (*state.path, "annotations", number)
                self.report.dropped(trail, "", "the target has no citations")
        if isinstance(final, Reasoning) and not self._plan.same_protocol:
            report_reasoning(final, LocatedPart(final, state.path), self._plan)
        return b""

    def _encode_call(self, state: _OpenPart, part: ToolCall, final: Part | None) -> bytes:
        whole = replace(part, arguments=part.arguments + "".join(state.pieces))
        if isinstance(final, ToolCall):
            whole = final
        call = encode_call(whole, LocatedPart(whole, state.path), self._plan, self._call_count)
        self._call_count += 1
        return self._encode_line({"tool_calls": [call]})

    # ---- the end

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        self._candidate_end = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        self._ended = True
        said = {"role": "assistant", "content": ""}
        last: dict[str, Any] = {**self._envelope, "message": said, "done": True, **self._last_line_fields}
        for token in event.wire_form if self._plan.same_protocol else ():
            if token.startswith(END_FORM):
                last["created_at"] = token.removeprefix(END_FORM)
        reason = encode_stop(None if self._candidate_end is None else self._candidate_end.stop, self._plan)
        if reason is not None:
            last["done_reason"] = reason
        last.update(
            (name, value) for name, value in _protocol_extras(event.extras).items() if name not in self._sent_extras
        )
        encode_usage(self._usage, last, self._plan)
        return encode_line(_encode_json(last))

    def _fail_response(self, event: ResponseFailed) -> bytes:
        self._ended = True
        return encode_line(_encode_json(encode_error(event.error).body))

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _part_delta,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        CandidateEnd: _end_candidate,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def _encode_text(state: _OpenPart, text: str) -> bytes:
    if not text:
        return b""
    state.is_empty = False
    return state.head + _encode_json(text) + state.tail


def _protocol_extras(extras: Extras | None) -> dict[str, Any]:
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    return Encoder(context)
