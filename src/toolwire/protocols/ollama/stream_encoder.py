"""Encode canonical events as an Ollama stream (newline-delimited JSON).

All lines start with the same fields, which are encoded once; a text delta is spliced into them. A call is one line,
sent when it is complete.
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
    PartDeltas,
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
from toolwire.codec.encoding.fallbacks import report_reasoning
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.fast_path import encode_events, encode_frames
from toolwire.codec.framing import encode_line
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import restore_extras
from toolwire.protocols.ollama.errors import encode_error
from toolwire.protocols.ollama.parts.calls import encode_call
from toolwire.protocols.ollama.parts.content import ImageData, encode_parts
from toolwire.protocols.ollama.request import ID_AND_NAME_RULES
from toolwire.protocols.ollama.response import encode_created, encode_stop, encode_usage
from toolwire.protocols.ollama.stream_decoder import END_FORM
from toolwire.protocols.ollama.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_TEXT_FIELDS = {Text: "content", Refusal: "content", Reasoning: "thinking"}


class _OpenPart(Struct):
    """The encoding state of one open part."""

    part: Part
    path: SourcePath
    head: bytes = b""  # the line before the text of a delta
    tail: bytes = b""  # the line after the text of a delta
    pieces: TextPieces = msgspec.field(default_factory=TextPieces)  # arguments of a call
    block: int = 0  # index of the reasoning block that was sent last
    is_empty: bool = True
    citation_count: int = 0


class Encoder:
    """Stream encoder of the Ollama protocol."""

    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._created = context.created
        self._sequencer = PartSequencer()
        self._line_fields: dict[str, Any] = {}
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
        """The error that ended encoding because too many interleaved events were buffered, or None."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as lines."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode text deltas of an open text on the fast path, or collect those of a call; None for others."""
        # An open part of another protocol is the one whose turn it is, so it needs no sequencing.
        state = None if self._ended or event.candidate else self._parts.get(event.index)
        if state is not None and isinstance(state.part, ToolCall):
            state.pieces.extend(event.texts)
            return b""
        if state is None or not state.head or event.block != state.block:
            return None
        state.is_empty = False
        return encode_frames(state.head, event.texts, state.tail)

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as lines; none after the end."""
        if self._ended:
            return b""
        if self._plan.same_protocol:
            return self._encode_event(event)
        return b"".join([self._encode_event(ordered) for ordered in self._sequencer.order(event)])

    def _encode_event(self, event: Event) -> bytes:
        """Encode one event as lines; events of a second candidate add no bytes and are reported as losses."""
        if candidate := getattr(event, "candidate", 0):
            if candidate not in self._candidates:
                self._candidates.add(candidate)
                self.report.dropped(("candidates", candidate), "", "the target returns a single candidate")
            return b""
        return self._HANDLERS[type(event)](self, event)

    def close(self) -> bytes:
        """Encode held-back events, and an error if the response is incomplete."""
        if self._ended:
            return b""
        buffered = b"".join([self._encode_event(event) for event in self._sequencer.close()])
        if self._ended:
            return buffered
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return buffered + self._fail_response(ResponseFailed(error=error))

    # ---- the response

    def _start_response(self, event: ResponseStart) -> bytes:
        """Prepare the fields that every line repeats; return no bytes."""
        plan = self._plan
        plan.same_protocol = event.origin == FAMILY
        line_fields: dict[str, Any] = {}
        if event.model is not None or not plan.same_protocol:
            line_fields["model"] = event.model or ""
        created = encode_created(event, self._created, same_protocol=plan.same_protocol)
        if created is not None:
            line_fields["created_at"] = created
        restore_extras(line_fields, event, FAMILY)
        for name in ("message", "done", "error"):
            line_fields.pop(name, None)
        self._last_line_fields = {name: line_fields.pop(name) for name in ("logprobs",) if name in line_fields}
        self._line_fields = line_fields
        self._usage = event.usage
        if not plan.same_protocol:
            if event.id is not None:
                self.report.dropped((), "id", "responses of the target have no id")
            if event.continuation is not None and event.continuation.id is not None:
                self.report.dropped(("continuation",), "id")
        return b""

    def _encode_line(self, message: dict[str, Any], extras: dict[str, Any] | None = None) -> bytes:
        """Encode one line with this message; `extras` are further fields by their pointer in the line."""
        full_message = {"role": "assistant", "content": "", **message}
        body: dict[str, Any] = {**self._line_fields, "message": full_message, "done": False}
        if extras:
            self._sent_extras.update(extras)
            for name in extras.keys() & self._line_fields.keys():
                del body[name]
            restore_extras(body, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        return encode_line(_encode_json(body))

    def _head_and_tail(self, field: str) -> tuple[bytes, bytes]:
        """Return the bytes of a line before and after the text of this message field."""
        head, _, tail = self._encode_line({field: "\0"}).partition(b'"\\u0000"')
        return head, tail

    # ---- messages

    def _start_message(self, event: MessageStart) -> bytes:
        """Encode the extras of an Ollama message; report as losses the fields that Ollama does not have."""
        if not self._plan.same_protocol:
            self.report.dropped_fields(("candidates", 0, "messages", event.message), event, "id", "name", "phase")
        extras = {f"message/{name}": value for name, value in _protocol_extras(event.extras).items()}
        return self._encode_line({}, extras) if extras else b""

    def _end_message(self, event: MessageEnd) -> bytes:
        """Encode extras of a message that no line has sent yet."""
        extras = {f"message/{name}": value for name, value in _protocol_extras(event.extras).items()}
        unsent = {name: value for name, value in extras.items() if name not in self._sent_extras}
        return self._encode_line({}, unsent) if unsent else b""

    def _encode_notice(self, event: Notice) -> bytes:
        """Encode a ping, or a notice that came from Ollama."""
        extras = _protocol_extras(event.extras)
        # The framing has no comments, so an empty line of content keeps the connection alive.
        return self._encode_line({}, extras) if extras or event.kind == "ping" else b""

    # ---- parts

    def _start_part(self, event: PartStart) -> bytes:
        """Open a part: text is streamed, calls are collected until they end, others are sent at once."""
        part = event.part
        position = self._part_counts[event.message] = self._part_counts.get(event.message, -1) + 1
        path: SourcePath = ("candidates", 0, "messages", event.message, "parts", position)
        state = _OpenPart(part, path)
        if isinstance(part, ToolCall) and part.executor == "client":
            self._parts[event.index] = state
            return b""
        if (field := _TEXT_FIELDS.get(type(part))) is None:
            return self._encode_complete_part(LocatedPart(part, path))
        self._parts[event.index] = state
        state.head, state.tail = self._head_and_tail(field)
        return _encode_text(state, self._opening_text(part, path))

    def _opening_text(self, part: Part, path: SourcePath) -> str:
        """Return the text that a part starts with; report as losses the fields that Ollama does not have."""
        located_part = LocatedPart(part, path)
        if isinstance(part, Reasoning):
            if not self._plan.same_protocol:
                report_reasoning(part, located_part, self._plan)
            return "".join(block.text for block in part.content if isinstance(block, ReasoningText))
        (piece,) = encode_parts([located_part], self._plan)
        return piece if isinstance(piece, str) else ""

    def _encode_complete_part(self, located_part: LocatedPart) -> bytes:
        """Encode a part that has no deltas."""
        out = b""
        for piece in encode_parts([located_part], self._plan):
            out += self._encode_line({"images": [piece.data]} if isinstance(piece, ImageData) else {"content": piece})
        return out

    def _encode_part_delta(self, event: PartDelta) -> bytes:
        """Encode a text delta; arguments of a call are collected and return no bytes."""
        state = self._parts.get(event.index)
        if state is None:
            return b""
        if event.annotation is not None and not self._plan.same_protocol:
            path = (*state.path, "annotations", state.citation_count)
            self.report.dropped(path, "", "the target has no citations")
            state.citation_count += 1
        if event.signature is not None:
            self.report.dropped((*state.path, "signature"), "", "signatures are only valid for their issuer")
        if isinstance(state.part, ToolCall):
            state.pieces.append(event.text)
            return b""
        extras = _protocol_extras(event.extras)
        if extras and self._plan.same_protocol:
            state.is_empty = False
            return self._encode_line({_TEXT_FIELDS[type(state.part)]: event.text}, extras)
        text = event.text
        if text and event.block != state.block and isinstance(state.part, Reasoning):
            # Blocks of one thought are sent as paragraphs.
            state.block = event.block
            text = text if state.is_empty else "\n\n" + text
        return _encode_text(state, text)

    def _end_part(self, event: PartEnd) -> bytes:
        """Return the line of a completed call; report as losses final fields that Ollama does not have."""
        state = self._parts.pop(event.index, None)
        if state is None:
            return b""
        if isinstance(state.part, ToolCall):
            return self._encode_call(state, state.part, event.final)
        final = event.final
        if isinstance(final, Text) and not state.citation_count and not self._plan.same_protocol:
            for number in range(len(final.annotations or ())):
                path = (*state.path, "annotations", number)
                self.report.dropped(path, "", "the target has no citations")
        if isinstance(final, Reasoning) and not self._plan.same_protocol:
            report_reasoning(final, LocatedPart(final, state.path), self._plan)
        return b""

    def _encode_call(self, state: _OpenPart, part: ToolCall, final: Part | None) -> bytes:
        """Encode a completed call as one line; `final` is the call as its end event gives it."""
        complete_call = replace(part, arguments=part.arguments + "".join(state.pieces))
        if isinstance(final, ToolCall):
            complete_call = final
        call = encode_call(complete_call, LocatedPart(complete_call, state.path), self._plan, self._call_count)
        self._call_count += 1
        return self._encode_line({"tool_calls": [call]})

    # ---- the end

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the end of the candidate for the last line; return no bytes."""
        self._candidate_end = event
        return b""

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store token counts for the last line; return no bytes."""
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode the last line, with `done: true`."""
        self._ended = True
        message = {"role": "assistant", "content": ""}
        body: dict[str, Any] = {**self._line_fields, "message": message, "done": True, **self._last_line_fields}
        for token in event.wire_form if self._plan.same_protocol else ():
            if token.startswith(END_FORM):
                body["created_at"] = token.removeprefix(END_FORM)
        reason = encode_stop(None if self._candidate_end is None else self._candidate_end.stop, self._plan)
        if reason is not None:
            body["done_reason"] = reason
        body.update(
            (name, value) for name, value in _protocol_extras(event.extras).items() if name not in self._sent_extras
        )
        encode_usage(self._usage, body, self._plan)
        return encode_line(_encode_json(body))

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode an error as the last line."""
        self._ended = True
        return encode_line(_encode_json(encode_error(event.error).body))

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _start_message,
        PartStart: _start_part,
        PartDelta: _encode_part_delta,
        PartEnd: _end_part,
        MessageEnd: _end_message,
        CandidateEnd: _end_candidate,
        UsageReport: _store_usage,
        Notice: _encode_notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def _encode_text(state: _OpenPart, text: str) -> bytes:
    """Encode text of an open part as one line."""
    if not text:
        return b""
    state.is_empty = False
    return state.head + _encode_json(text) + state.tail


def _protocol_extras(extras: Extras | None) -> dict[str, Any]:
    """Return the Ollama fields among the extras."""
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Create a stream encoder."""
    return Encoder(context)
