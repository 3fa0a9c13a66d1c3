"""Encode canonical events as Chat's stream of chunks.

Clients concatenate what they read, so role, id and name are sent once, call indices have no gaps, and usage is in the
last chunk. That chunk has no choices, and programs read `chunk.choices[0]` of every chunk. So it is sent only to
clients that set `stream_options.include_usage`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    OpaquePart,
    Reasoning,
    ReasoningText,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
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
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Usage
from toolwire.codec.encoding.fallbacks import call_name, report_reasoning
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.fast_path import encode_events, encode_frames
from toolwire.codec.framing import FrameFilter, as_data_lines, encode_sse_frame, frame_data, unnamed_frame_data
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import JSON_ERRORS, decode_members
from toolwire.protocols.openai_chat.errors import encode_error
from toolwire.protocols.openai_chat.parts.calls import (
    LEGACY_FORM,
    encode_server_call,
    encode_server_result,
    report_call,
)
from toolwire.protocols.openai_chat.parts.citations import encode_citation, encode_foreign_citation
from toolwire.protocols.openai_chat.parts.content import THINKING_FORM, encode_parts
from toolwire.protocols.openai_chat.parts.details import DETAILS_FORM, REASONING_FORM, is_in_extras
from toolwire.protocols.openai_chat.request import ID_AND_NAME_RULES
from toolwire.protocols.openai_chat.response import completion_id, encode_stop, encode_usage
from toolwire.protocols.openai_chat.stream_decoder import LOGPROBS_FORM
from toolwire.protocols.openai_chat.wire import FAMILY

STREAM_END = b"data: [DONE]\n\n"

_NO_CHOICES = re.compile(rb'"choices"\s*:\s*(?:\[\s*\]|null)')
_ENVELOPE_FIELDS = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"}
)
_EMPTY_CHOICE = Raw(b'[{"index":0,"delta":{},"finish_reason":null}]')


def frame_filter(context: ResponseContext) -> FrameFilter | None:
    """Return a filter for a stream that is passed through; None if the client accepts chunks without choices.

    Other servers send usage without being asked, and Azure starts with content filter results.
    """
    if context.request is None or context.request.include_usage is True:
        return None
    return _fill_choices


def _fill_choices(chunk: bytes) -> bytes:
    """Return a chunk without choices with an empty choice added, or no bytes if it holds only usage."""
    if b'"delta"' in chunk or _NO_CHOICES.search(chunk) is None:
        return chunk
    try:
        members = decode_members(frame_data(chunk) or b"")
    except JSON_ERRORS:
        return chunk
    if "choices" not in members or "error" in members:
        return chunk
    if _ENVELOPE_FIELDS.issuperset(members):
        return b""
    members.pop("usage", None)
    return encode_sse_frame(msgspec.json.encode(members | {"choices": _EMPTY_CHOICE}))


encode_json = msgspec.json.Encoder().encode
_NULL_USAGE = f"{FAMILY}:null:usage"


class ChunkEncoder(Struct):
    """Encode chunks around bytes that are the same in the complete stream."""

    envelope: dict[str, Any]  # members beside the choices
    head: bytes  # bytes before the choice
    tail: bytes  # bytes after the choice
    logprobs: bytes  # `logprobs` of each choice, or empty

    def with_members(self, members: dict[str, Any]) -> "ChunkEncoder":
        """Return an encoder whose chunks have more top-level fields."""
        envelope = self.envelope | members
        return replace(self, envelope=envelope, head=_encode_head(envelope)) if members else self

    def head_and_tail(self, candidate: int) -> tuple[bytes, bytes]:
        """Return the bytes of a chunk before and after the delta of this candidate."""
        head = self.head + b'{"index":%d,"delta":' % candidate
        return head, self.logprobs + b',"finish_reason":null}' + self.tail

    def encode(self, candidate: int, delta: dict[str, Any]) -> bytes:
        """Encode a chunk with this delta."""
        head, tail = self.head_and_tail(candidate)
        return head + as_data_lines(encode_json(delta)) + tail

    def encode_with_extras(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        """Encode a chunk with extras, given by their pointer in the choice."""
        choice: dict[str, Any] = {"index": candidate, "delta": delta}
        restore_extras(choice, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        choice.setdefault("finish_reason", None)
        return self.head + as_data_lines(encode_json(choice)) + self.tail

    def encode_finish(self, candidate: int, reason: str | None) -> bytes:
        """Encode the chunk with the finish reason."""
        head = self.head + b'{"index":%d,"delta":{}' % candidate
        return head + self.logprobs + b',"finish_reason":' + encode_json(reason) + b"}" + self.tail


class _EncodedChoice(Struct):
    """A choice of an encoded chunk."""

    delta: dict[str, Raw]


class _EncodedChunk(Struct):
    """An encoded chunk with a single choice."""

    choices: tuple[_EncodedChoice]


_decode_encoded_chunk = msgspec.json.Decoder(_EncodedChunk).decode


def decode_encoded_delta(chunk: bytes) -> dict[str, Any]:
    """Return the delta of an encoded chunk."""
    (choice,) = _decode_encoded_chunk(unnamed_frame_data(chunk)).choices
    return dict(choice.delta)


def _encode_head(envelope: dict[str, Any]) -> bytes:
    """Encode the start of a chunk up to its first choice; `envelope` holds its top-level fields."""
    return b"data: " + as_data_lines(encode_json(envelope))[:-1] + b',"choices":['


NO_CHUNK_ENCODER = ChunkEncoder({}, b"", b"", b"")


def chunk_encoder(
    event: ResponseStart, plan: EncodingPlan, context: ResponseContext, *, include_usage: bool
) -> ChunkEncoder:
    """Return the encoder for all chunks of one response."""
    envelope: dict[str, Any] = {}
    if event.id is not None or not plan.same_protocol:
        envelope["id"] = completion_id(event.id, plan, context)
    envelope["object"] = "chat.completion.chunk"
    if event.created is not None or not plan.same_protocol:
        envelope["created"] = event.created if plan.same_protocol else int(event.created or context.created)
    if event.model is not None or not plan.same_protocol:
        envelope["model"] = event.model or ""
    restore_extras(envelope, event, FAMILY)
    for name in ("usage", "choices", "error"):
        envelope.pop(name, None)
    has_null_usage = _NULL_USAGE in event.wire_form if plan.same_protocol else include_usage
    return ChunkEncoder(
        envelope=envelope,
        head=_encode_head(envelope),
        tail=b"]" + (b',"usage":null' if has_null_usage else b"") + b"}\n\n",
        logprobs=b',"logprobs":null' if LOGPROBS_FORM in event.wire_form or not plan.same_protocol else b"",
    )


class _OpenPart(Struct):
    """A part that is being streamed."""

    path: SourcePath
    kind: type
    head: bytes = b""  # bytes before the text of each delta; empty if the part has no deltas
    tail: bytes = b""  # bytes after it
    block: int = 0  # reasoning block that the last delta belongs to
    is_empty: bool = True
    start: int = 0  # offset in the text of the candidate
    length: int = 0
    citations: list[tuple[Citation, SourcePath]] = msgspec.field(default_factory=list)


_NO_OPEN_PART = _OpenPart((), type(None))


class Encoder:
    """Encode the events of one response for a Chat client."""

    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._context = context
        self._include_usage = context.request is None or context.request.include_usage is True
        self._sequencer = PartSequencer()
        self._chunk_encoder = NO_CHUNK_ENCODER
        self._parts: dict[tuple[int, int], _OpenPart] = {}
        self._open_part = _NO_OPEN_PART
        self._started_candidates: set[int] = set()
        self._call_counts: dict[int, int] = {}  # index of the last call, by candidate
        self._part_counts: dict[tuple[int, int], int] = {}  # index of the last part, by candidate and message
        self._text_lengths: dict[int, int] = {}  # by candidate, for citation offsets
        self._annotations: dict[int, list[Any]] = {}  # citations for the last chunk, by candidate
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._refused: set[int] = set()  # candidates with a refusal
        self._sent_extras: set[tuple[int, str]] = set()  # candidate and pointer
        self._usage: Usage | None = None
        self._ended = False

    @property
    def failure(self) -> ApiError | None:
        """The error by which the reordering of interleaved parts failed, if any."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as chunks."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode text deltas of the open part on the fast path; None for others."""
        part = self._open_part
        if self._parts.get((event.candidate, event.index)) is not part or event.block != part.block:
            return None
        part.is_empty = False
        part.length += len(event.text)
        return encode_frames(part.head, event.texts, part.tail) if part.head else b""

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as chunks.

        If the provider speaks another protocol, its parts may interleave. Their events are held back until the parts
        before them have ended.
        """
        if self._plan.same_protocol:
            return self._HANDLERS[type(event)](self, event)
        return b"".join([self._HANDLERS[type(ready)](self, ready) for ready in self._sequencer.order(event)])

    def close(self) -> bytes:
        """End the stream, with an error if the response is incomplete."""
        if self._ended:
            return b""
        buffered = b"".join([self._HANDLERS[type(ready)](self, ready) for ready in self._sequencer.close()])
        if self._ended:
            return buffered
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return buffered + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        """Prepare the chunk encoder; return no bytes, since the first chunk comes with the first message."""
        plan = self._plan
        plan.same_protocol = event.origin == FAMILY
        self._usage = event.usage
        self._chunk_encoder = chunk_encoder(event, plan, self._context, include_usage=self._include_usage)
        return b"" if plan.same_protocol else self._start_candidate(0)

    def _encode_chunk_with_extras(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        """Encode a chunk with extras and record them as sent."""
        self._sent_extras.update((candidate, name) for name in extras)
        return self._chunk_encoder.encode_with_extras(candidate, delta, extras)

    # ---- messages

    def _message_start(self, event: MessageStart) -> bytes:
        """Encode the first chunk of a candidate."""
        # Clients break if the first chunk has only choice 1, so all choices below it start as well.
        chunks = b"".join([self._start_candidate(candidate) for candidate in range(event.candidate + 1)])
        extras = _protocol_extras(event.extras)
        if extras and self._plan.same_protocol:
            chunks += self._encode_chunk_with_extras(
                event.candidate, {}, {f"delta/{name}": value for name, value in extras.items()}
            )
        return chunks

    def _start_candidate(self, candidate: int) -> bytes:
        """Return the chunk with the role of a candidate, no bytes if it was sent before."""
        if candidate in self._started_candidates:
            return b""
        self._started_candidates.add(candidate)
        return self._chunk_encoder.encode(candidate, {"role": "assistant", "content": None})

    def _message_end(self, event: MessageEnd) -> bytes:
        """Encode the extras of a Chat message that no chunk has sent before."""
        return self._encode_unsent_extras(event.candidate, event.extras, "delta/") if self._plan.same_protocol else b""

    def _encode_unsent_extras(self, candidate: int, extras: Extras | None, prefix: str) -> bytes:
        """Encode a chunk with the extras that were not sent before; no bytes if there are none."""
        prefixed = {prefix + name: value for name, value in _protocol_extras(extras).items()}
        unsent = {name: value for name, value in prefixed.items() if (candidate, name) not in self._sent_extras}
        return self._encode_chunk_with_extras(candidate, {}, unsent) if unsent else b""

    def _notice(self, event: Notice) -> bytes:
        """Encode a ping as an SSE comment, or the extras of a choice as a chunk."""
        if event.kind == "ping":
            return b": ping\n\n"
        extras = _protocol_extras(event.extras)
        if not extras or not event.kind.startswith("choice:"):
            return b""
        return self._encode_chunk_with_extras(int(event.kind.removeprefix("choice:")), {}, extras)

    # ---- parts

    def _part_start(self, event: PartStart) -> bytes:
        """Encode the start of a part and prepare the constant bytes of its deltas."""
        part, candidate = event.part, event.candidate
        message = (candidate, event.message)
        position = self._part_counts[message] = self._part_counts.get(message, -1) + 1
        path: SourcePath = ("candidates", candidate, "messages", event.message, "parts", position)
        chunks = self._start_candidate(candidate)
        state = _OpenPart(path, type(part))
        head, tail = self._chunk_encoder.head_and_tail(candidate)
        text = ""
        match part:
            case Text():
                state.head, state.tail = head + b'{"content":', b"}" + tail
                state.start = self._text_lengths.get(candidate, 0)
                text = part.text
                if part.signature is not None and not self._plan.same_protocol:
                    self.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
            case Refusal():
                self._refused.add(candidate)
                state.head, state.tail = head + b'{"refusal":', b"}" + tail
                text = part.text
            case Reasoning():
                self._open_reasoning(part, state, head, tail)
                text = "".join(block.text for block in part.content if isinstance(block, ReasoningText))
            case ToolCall() if part.executor == "client":
                chunks += self._open_call(part, state, candidate)
                text = part.arguments
            case _ if self._plan.same_protocol and is_in_extras(part):
                return chunks
            case _:
                return chunks + self._encode_complete_part(event, path)
        self._parts[candidate, event.index] = state
        self._open_part = state
        return chunks + (self._encode_text(state, text) if text else b"")

    def _encode_text(self, state: _OpenPart, text: str) -> bytes:
        """Encode a delta with this text."""
        state.is_empty = False
        state.length += len(text)
        return state.head + encode_json(text) + state.tail if state.head else b""

    def _open_reasoning(self, part: Reasoning, state: _OpenPart, head: bytes, tail: bytes) -> None:
        """Prepare reasoning deltas in the field that the server used, or in `reasoning_content`."""
        if not self._plan.same_protocol:
            report_reasoning(part, LocatedPart(part, state.path), self._plan)
            state.head, state.tail = head + b'{"reasoning_content":', b"}" + tail
        elif THINKING_FORM in part.wire_form:
            state.head = head + b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":'
            state.tail = b"}]}]}" + tail
        elif DETAILS_FORM not in part.wire_form:
            names = (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM))
            name = next(names, "reasoning_content")
            state.head, state.tail = head + b"{" + encode_json(name) + b":", b"}" + tail
        else:
            state.block = -1

    def _open_call(self, part: ToolCall, state: _OpenPart, candidate: int) -> bytes:
        """Encode the start of a call and prepare its argument deltas."""
        plan = self._plan
        head, tail = self._chunk_encoder.head_and_tail(candidate)
        if plan.same_protocol and LEGACY_FORM in part.wire_form:
            state.head, state.tail = head + b'{"function_call":{"arguments":', b"}}" + tail
            return self._chunk_encoder.encode(candidate, {"function_call": {"name": part.name, "arguments": ""}})
        located_part = LocatedPart(part, state.path)
        if not plan.same_protocol:
            report_call(part, located_part, plan)
        index = self._call_counts[candidate] = self._call_counts.get(candidate, -1) + 1
        kind, field = ("custom", "input") if part.shape == "freeform" else ("function", "arguments")
        members = {"name": call_name(part, plan), field: ""}
        call: dict[str, Any] = {
            "index": index,
            "id": part.id if plan.same_protocol else plan.id_of(located_part),
            "type": kind,
        }
        if call["id"] is None:
            del call["id"]
        call[kind] = members
        restore_extras(call, part, FAMILY)
        state.head = head + b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), field.encode())
        state.tail = b"}}]}" + tail
        return self._chunk_encoder.encode(candidate, {"tool_calls": [call]})

    def _encode_complete_part(self, event: PartStart, path: SourcePath) -> bytes:
        """Encode a part without deltas; only parts of Chat itself have an equivalent."""
        located_part = LocatedPart(event.part, path)
        match event.part:
            case ToolCall():
                encode_server_call(event.part, located_part, self._plan)
            case ToolResult():
                encode_server_result(event.part, located_part, self._plan)
            case OpaquePart() if event.part.protocol == FAMILY and self._plan.same_protocol:
                return self._chunk_encoder.encode(event.candidate, {"content": [event.part.body]})
            case _ if self._plan.same_protocol:
                return self._chunk_encoder.encode(
                    event.candidate, {"content": encode_parts([located_part], self._plan)}
                )
            case _:
                self.report.dropped(path, "", "responses of the target cannot contain it")
        return b""

    def _part_delta(self, event: PartDelta) -> bytes:
        """Encode one delta."""
        part = self._parts.get((event.candidate, event.index))
        if part is None:
            return b""
        extras = _protocol_extras(event.extras)
        if extras:
            chunk = self._encode_text(part, event.text) if event.text else b""
            delta = decode_encoded_delta(chunk) if chunk else {}
            return self._encode_chunk_with_extras(event.candidate, delta, extras)
        if event.annotation is not None:
            return self._encode_citation(part, event)
        if event.signature is not None and not self._plan.same_protocol:
            self.report.dropped((*part.path, "signature"), "", "signatures are only valid for their issuer")
        if not event.text:
            return b""
        text = event.text
        if event.block != part.block and part.kind is Reasoning and part.head:
            # Several texts of one reasoning become paragraphs.
            part.block = event.block
            text = text if part.is_empty else "\n\n" + text
        return self._encode_text(part, text)

    def _encode_citation(self, part: _OpenPart, event: PartDelta) -> bytes:
        """Encode a citation; another protocol's is stored until its text is complete."""
        if event.annotation is None:
            return b""
        if self._plan.same_protocol:
            return self._chunk_encoder.encode(event.candidate, {"annotations": [encode_citation(event.annotation)]})
        path = (*part.path, "annotations", len(part.citations))
        part.citations.append((event.annotation, path))
        return b""

    def _part_end(self, event: PartEnd) -> bytes:
        """Encode what remains of a part: citations, or arguments that had no delta."""
        part = self._parts.get((event.candidate, event.index))
        if self._open_part is part:
            self._open_part = _NO_OPEN_PART
        if part is None:
            return b""
        final = event.final
        if part.kind is Text:
            return self._end_text(part, event)
        if isinstance(final, Reasoning) and not self._plan.same_protocol:
            report_reasoning(final, LocatedPart(final, part.path), self._plan)
        if part.kind is ToolCall and part.is_empty:
            if isinstance(final, ToolCall) and final.arguments:
                return self._encode_text(part, final.arguments)
            # Clients parse the arguments of every call.
            return b"" if self._plan.same_protocol or b'"custom"' in part.head[-20:] else self._encode_text(part, "{}")
        return b""

    def _end_text(self, part: _OpenPart, event: PartEnd) -> bytes:
        """Record the length of a text; return the citations of a Chat response."""
        final = event.final
        self._text_lengths[event.candidate] = part.start + part.length
        if self._plan.same_protocol and isinstance(final, Text) and final.annotations:
            # A buffered response, whose citations are not streamed.
            citations = [encode_citation(citation) for citation in final.annotations]
            return self._chunk_encoder.encode(event.candidate, {"annotations": citations})
        self._collect_citations(part, event)
        return b""

    def _collect_citations(self, part: _OpenPart, event: PartEnd) -> None:
        """Encode the citations of a completed text and store them for the last chunk."""
        final = event.final
        if not part.citations and isinstance(final, Text) and not self._plan.same_protocol:
            annotations = final.annotations or ()
            part.citations = [
                (citation, (*part.path, "annotations", index)) for index, citation in enumerate(annotations)
            ]
        for citation, path in part.citations:
            encoded = encode_foreign_citation(citation, path, self._plan, part.start, part.start + part.length)
            if encoded is not None:
                self._annotations.setdefault(event.candidate, []).append(encoded)
        part.citations = []

    # ---- the end

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the stop reason for the last chunk; return no bytes."""
        self._candidate_ends[event.candidate] = event
        return b""

    def _encode_finish(self, candidate: int, chunk_encoder: ChunkEncoder) -> bytes:
        """Encode the finish reason of a candidate."""
        candidate_end = self._candidate_ends.get(candidate)
        reason = encode_stop(
            None if candidate_end is None else candidate_end.stop,
            ("candidates", candidate, "stop"),
            self._plan,
            has_calls=candidate in self._call_counts,
            has_refusal=candidate in self._refused,
        )
        return chunk_encoder.encode_finish(candidate, reason)

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store the usage for the last chunk; return no bytes."""
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode finish reasons, usage and `[DONE]`."""
        self._ended = True
        chunks = b"" if self._plan.same_protocol else self._start_candidate(0)
        candidates = list(self._candidate_ends) if self._plan.same_protocol else sorted(self._started_candidates | {0})
        late_extras = _protocol_extras(event.extras)
        final_encoder = self._chunk_encoder.with_members(late_extras)
        for candidate in candidates:
            chunks += self._finish_candidate(
                candidate, final_encoder if candidate == candidates[-1] else self._chunk_encoder
            )
        if late_extras and not candidates:
            chunks += final_encoder.encode(0, {})
        if self._usage is not None and self._include_usage:
            usage = encode_usage(self._usage, self._plan)
            chunks += encode_sse_frame(encode_json({**final_encoder.envelope, "choices": [], "usage": usage}))
        return chunks + STREAM_END

    def _finish_candidate(self, candidate: int, chunk_encoder: ChunkEncoder) -> bytes:
        """Encode the last chunks of a candidate: citations, extras and finish reason."""
        annotations = self._annotations.get(candidate)
        citation_chunk = self._chunk_encoder.encode(candidate, {"annotations": annotations}) if annotations else b""
        candidate_end = self._candidate_ends.get(candidate)
        extras_chunk = b"" if candidate_end is None else self._encode_unsent_extras(candidate, candidate_end.extras, "")
        return citation_chunk + extras_chunk + self._encode_finish(candidate, chunk_encoder)

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode the error, after the candidates that had finished."""
        self._ended = True
        candidates = list(self._candidate_ends) if self._plan.same_protocol else []
        chunks = [self._finish_candidate(candidate, self._chunk_encoder) for candidate in candidates]
        return b"".join([*chunks, encode_sse_frame(encode_json(encode_error(event.error).body))])

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _part_delta,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        CandidateEnd: _end_candidate,
        UsageReport: _store_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def _protocol_extras(extras: Extras | None) -> dict[str, Any]:
    """Return the Chat fields among the extras."""
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Return an encoder for one response."""
    return Encoder(context)
