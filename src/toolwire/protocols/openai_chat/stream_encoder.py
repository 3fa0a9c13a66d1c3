"""Chunks without choices, in a stream that is passed on as it came.

OpenAI sends one only where `stream_options.include_usage` asks for it, so programs read `chunk.choices[0]` of every
chunk. Other servers send their usage unasked, and Azure begins with one that tells what its filter thinks.

Chunks as they are written. All of a stream begin and end alike: that is made once, and a delta fills in its text.

Canonical events, to Chat's chunks.

Clients add up what they read, so role, id and name are said once, call indices have no gaps, and usage is on the last
chunk. That one has no choices, and is sent only to clients that asked for it: others read `chunk.choices[0]` of all.
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
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Usage
from toolwire.codec.encoding.fallbacks import call_name
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.framing import FrameFilter, as_data_lines, encode_sse_frame, frame_data, unnamed_frame_data
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.openai_chat.errors import encode_error
from toolwire.protocols.openai_chat.parts.calls import (
    LEGACY_FORM,
    encode_server_call,
    encode_server_result,
    report_call,
)
from toolwire.protocols.openai_chat.parts.content import (
    DETAILS_FORM,
    REASONING_FORM,
    THINKING_FORM,
    encode_citation,
    encode_foreign_citation,
    encode_parts,
    report_reasoning,
)
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
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def frame_filter(context: ResponseContext) -> FrameFilter | None:
    if context.request is None or context.request.include_usage is True:
        return None
    return _fill_choices


def _fill_choices(chunk: bytes) -> bytes:
    """Give a chunk without choices an empty one, or drop it if it tells nothing else than usage."""
    if b'"delta"' in chunk or _NO_CHOICES.search(chunk) is None:
        return chunk
    try:
        members = _decode_members(frame_data(chunk) or b"")
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
    envelope: dict[str, Any]
    head: bytes
    tail: bytes
    logprobs: bytes

    def with_members(self, members: dict[str, Any]) -> "ChunkEncoder":
        """The same with more members beside the choices."""
        envelope = self.envelope | members
        return replace(self, envelope=envelope, head=_encode_head(envelope)) if members else self

    def head_and_tail(self, candidate: int) -> tuple[bytes, bytes]:
        """What stands before and after a delta."""
        before = self.head + b'{"index":%d,"delta":' % candidate
        return before, self.logprobs + b',"finish_reason":null}' + self.tail

    def encode(self, candidate: int, delta: dict[str, Any]) -> bytes:
        before, after = self.head_and_tail(candidate)
        return before + as_data_lines(encode_json(delta)) + after

    def encode_with_extras(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        """A chunk with fields that only this protocol has; their keys are pointers below the choice."""
        choice: dict[str, Any] = {"index": candidate, "delta": delta}
        restore_extras(choice, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        choice.setdefault("finish_reason", None)
        return self.head + as_data_lines(encode_json(choice)) + self.tail

    def encode_finish(self, candidate: int, reason: str | None) -> bytes:
        before = self.head + b'{"index":%d,"delta":{}' % candidate
        return before + self.logprobs + b',"finish_reason":' + encode_json(reason) + b"}" + self.tail


class _EncodedChoice(Struct):
    delta: dict[str, Raw]


class _EncodedChunk(Struct):
    choices: tuple[_EncodedChoice]


_decode_encoded_chunk = msgspec.json.Decoder(_EncodedChunk).decode


def decode_encoded_delta(chunk: bytes) -> dict[str, Any]:
    """The delta of a chunk that is already written."""
    (choice,) = _decode_encoded_chunk(unnamed_frame_data(chunk)).choices
    return dict(choice.delta)


def _encode_head(envelope: dict[str, Any]) -> bytes:
    return b"data: " + as_data_lines(encode_json(envelope))[:-1] + b',"choices":['


NO_CHUNK_ENCODER = ChunkEncoder({}, b"", b"", b"")


def chunk_encoder(
    event: ResponseStart, plan: EncodingPlan, context: ResponseContext, *, include_usage: bool
) -> ChunkEncoder:
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
    said = _NULL_USAGE in event.wire_form if plan.same_protocol else include_usage
    return ChunkEncoder(
        envelope=envelope,
        head=_encode_head(envelope),
        tail=b"]" + (b',"usage":null' if said else b"") + b"}\n\n",
        logprobs=b',"logprobs":null' if LOGPROBS_FORM in event.wire_form or not plan.same_protocol else b"",
    )


class _OpenPart(Struct):
    """An open part: what stands before and after the text of its deltas."""

    path: SourcePath
    kind: type
    head: bytes = b""
    tail: bytes = b""
    block: int = 0
    is_empty: bool = True
    start: int = 0
    length: int = 0
    citations: list[tuple[Citation, SourcePath]] = msgspec.field(default_factory=list)


_NO_OPEN_PART = _OpenPart((), type(None))


class Encoder:
    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._context = context
        self._include_usage = context.request is None or context.request.include_usage is True
        self._sequencer = PartSequencer()
        self._chunk_encoder = NO_CHUNK_ENCODER
        self._parts: dict[tuple[int, int], _OpenPart] = {}
        self._open_part, self._open_candidate, self._open_index = _NO_OPEN_PART, -1, -1
        self._started_candidates: set[int] = set()
        self._call_counts: dict[int, int] = {}
        self._part_counts: dict[tuple[int, int], int] = {}
        self._text_lengths: dict[int, int] = {}
        self._annotations: dict[int, list[Any]] = {}
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._refused: set[int] = set()
        self._sent_extras: set[tuple[int, str]] = set()
        self._usage: Usage | None = None
        self._ended = False

    @property
    def failure(self) -> ApiError | None:
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        part, index, candidate = self._open_part, self._open_index, self._open_candidate
        before, after, length = part.head, part.tail, 0
        for event in events:
            if type(event) is PartDelta and event.plain and event.index == index and event.candidate == candidate:
                if text := event.text:
                    length += len(text)
                    out += (before, encode_json(text), after)
                continue
            if length:
                self._count_text(part, length)
            out.append(self._encode(event))
            part, index, candidate = self._open_part, self._open_index, self._open_candidate
            before, after, length = part.head, part.tail, 0
        if length:
            self._count_text(part, length)
        return b"".join(out)

    @staticmethod
    def _count_text(part: _OpenPart, length: int) -> None:
        part.is_empty = False
        part.length += length

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if self._plan.same_protocol:
            return self._HANDLERS[type(event)](self, event)
        return b"".join([self._HANDLERS[type(one)](self, one) for one in self._sequencer.order(event)])

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = b"".join([self._HANDLERS[type(one)](self, one) for one in self._sequencer.close()])
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        plan = self._plan
        plan.same_protocol = event.origin == FAMILY
        self._usage = event.usage
        self._chunk_encoder = chunk_encoder(event, plan, self._context, include_usage=self._include_usage)
        return b"" if plan.same_protocol else self._start_candidate(0)

    def _encode_chunk_with_extras(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        self._sent_extras.update((candidate, name) for name in extras)
        return self._chunk_encoder.encode_with_extras(candidate, delta, extras)

    # ---- messages

    def _message_start(self, event: MessageStart) -> bytes:
        # A first chunk that has only choice 1 breaks clients: the choices below it are opened too.
        opened = b"".join([self._start_candidate(number) for number in range(event.candidate + 1)])
        kept = _protocol_extras(event.extras)
        if kept and self._plan.same_protocol:
            opened += self._encode_chunk_with_extras(
                event.candidate, {}, {f"delta/{name}": value for name, value in kept.items()}
            )
        return opened

    def _start_candidate(self, candidate: int) -> bytes:
        if candidate in self._started_candidates:
            return b""
        self._started_candidates.add(candidate)
        return self._chunk_encoder.encode(candidate, {"role": "assistant", "content": None})

    def _message_end(self, event: MessageEnd) -> bytes:
        return self._encode_unsent_extras(event.candidate, event.extras, "delta/") if self._plan.same_protocol else b""

    def _encode_unsent_extras(self, candidate: int, extras: Extras | None, prefix: str) -> bytes:
        """What was not told as it arrived."""
        kept = {prefix + name: value for name, value in _protocol_extras(extras).items()}
        untold = {name: value for name, value in kept.items() if (candidate, name) not in self._sent_extras}
        return self._encode_chunk_with_extras(candidate, {}, untold) if untold else b""

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        kept = _protocol_extras(event.extras)
        if not kept or not event.kind.startswith("choice:"):
            return b""
        return self._encode_chunk_with_extras(int(event.kind.removeprefix("choice:")), {}, kept)

    # ---- parts

    def _part_start(self, event: PartStart) -> bytes:
        part, candidate = event.part, event.candidate
        message = (candidate, event.message)
        position = self._part_counts[message] = self._part_counts.get(message, -1) + 1
        trail: SourcePath = ("candidates", candidate, "messages", event.message, "parts", position)
        opened = self._start_candidate(candidate)
        state = _OpenPart(trail, type(part))
        before, after = self._chunk_encoder.head_and_tail(candidate)
        said = ""
        match part:
            case Text():
                state.head, state.tail = before + b'{"content":', b"}" + after
                state.start = self._text_lengths.get(candidate, 0)
                said = part.text
                if part.signature is not None and not self._plan.same_protocol:
                    self.report.dropped((*trail, "signature"), "", "the target has no place for another issuer's proof")
            case Refusal():
                self._refused.add(candidate)
                state.head, state.tail = before + b'{"refusal":', b"}" + after
                said = part.text
            case Reasoning():
                self._open_reasoning(part, state, before, after)
                said = "".join(block.text for block in part.content if isinstance(block, ReasoningText))
            case ToolCall() if part.executor == "client":
                opened += self._open_call(part, state, candidate)
                said = part.arguments
            case _:
                return opened + self._encode_complete_part(event, trail)
        self._parts[candidate, event.index] = state
        self._open_part, self._open_candidate, self._open_index = state, candidate, event.index
        return opened + (self._encode_text(state, said) if said else b"")

    def _encode_text(self, state: _OpenPart, text: str) -> bytes:
        state.is_empty = False
        state.length += len(text)
        return state.head + encode_json(text) + state.tail if state.head else b""

    def _open_reasoning(self, part: Reasoning, state: _OpenPart, head: bytes, tail: bytes) -> None:
        if not self._plan.same_protocol:
            report_reasoning(part, LocatedPart(part, state.path), self._plan)
            state.head, state.tail = head + b'{"reasoning_content":', b"}" + tail
        elif THINKING_FORM in part.wire_form:
            state.head = head + b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":'
            state.tail = b"}]}]}" + tail
        elif DETAILS_FORM not in part.wire_form:
            found = (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM))
            name = next(found, "reasoning_content")
            state.head, state.tail = head + b"{" + encode_json(name) + b":", b"}" + tail
        else:
            state.block = -1

    def _open_call(self, part: ToolCall, state: _OpenPart, candidate: int) -> bytes:
        plan = self._plan
        before, after = self._chunk_encoder.head_and_tail(candidate)
        if plan.same_protocol and LEGACY_FORM in part.wire_form:
            state.head, state.tail = before + b'{"function_call":{"arguments":', b"}}" + after
            return self._chunk_encoder.encode(candidate, {"function_call": {"name": part.name, "arguments": ""}})
        placed = LocatedPart(part, state.path)
        if not plan.same_protocol:
            report_call(part, placed, plan)
        index = self._call_counts[candidate] = self._call_counts.get(candidate, -1) + 1
        kind, inner = ("custom", "input") if part.shape == "freeform" else ("function", "arguments")
        named = {"name": call_name(part, plan), inner: ""}
        call: dict[str, Any] = {
            "index": index,
            "id": part.id if plan.same_protocol else plan.id_of(placed),
            "type": kind,
        }
        if call["id"] is None:
            del call["id"]
        call[kind] = named
        restore_extras(call, part, FAMILY)
        state.head = before + b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), inner.encode())
        state.tail = b"}}]}" + after
        return self._chunk_encoder.encode(candidate, {"tool_calls": [call]})

    def _encode_complete_part(self, event: PartStart, path: SourcePath) -> bytes:
        """A part that has no deltas: only this protocol's own can be told."""
        placed = LocatedPart(event.part, path)
        match event.part:
            case ToolCall():
                encode_server_call(event.part, placed, self._plan)
            case ToolResult():
                encode_server_result(event.part, placed, self._plan)
            case OpaquePart() if event.part.protocol == FAMILY and self._plan.same_protocol:
                return self._chunk_encoder.encode(event.candidate, {"content": [event.part.body]})
            case _ if self._plan.same_protocol:
                return self._chunk_encoder.encode(event.candidate, {"content": encode_parts([placed], self._plan)})
            case _:
                self.report.dropped(path, "", "the target's answers have no place for it")
        return b""

    def _part_delta(self, event: PartDelta) -> bytes:
        part = self._parts.get((event.candidate, event.index))
        if part is None:
            return b""
        kept = _protocol_extras(event.extras)
        if kept:
            plain = self._encode_text(part, event.text) if event.text else b""
            delta = decode_encoded_delta(plain) if plain else {}
            return self._encode_chunk_with_extras(event.candidate, delta, kept)
        if event.annotation is not None:
            return self._encode_citation(part, event)
        if event.signature is not None and not self._plan.same_protocol:
            self.report.dropped((*part.path, "signature"), "", "the target has no place for another issuer's proof")
        if not event.text:
            return b""
        text = event.text
        if event.block != part.block and part.kind is Reasoning and part.head:
            # Several texts of one reasoning are told as paragraphs.
            part.block = event.block
            text = text if part.is_empty else "\n\n" + text
        return self._encode_text(part, text)

    def _encode_citation(self, part: _OpenPart, event: PartDelta) -> bytes:
        if event.annotation is None:
            return b""
        if self._plan.same_protocol:
            return self._chunk_encoder.encode(event.candidate, {"annotations": [encode_citation(event.annotation)]})
        trail = (*part.path, "annotations", len(part.citations))
        part.citations.append((event.annotation, trail))
        return b""

    def _part_end(self, event: PartEnd) -> bytes:
        part = self._parts.get((event.candidate, event.index))
        if self._open_part is part:
            self._open_part, self._open_candidate, self._open_index = _NO_OPEN_PART, -1, -1
        if part is None:
            return b""
        final = event.final
        if part.kind is Text:
            self._text_lengths[event.candidate] = part.start + part.length
            if self._plan.same_protocol and isinstance(final, Text) and final.annotations:
                # Of an answer that came whole.
                notes = [encode_citation(note) for note in final.annotations]
                return self._chunk_encoder.encode(event.candidate, {"annotations": notes})
            self._collect_citations(part, event)
        if isinstance(final, Reasoning) and not self._plan.same_protocol:
            report_reasoning(final, LocatedPart(final, part.path), self._plan)
        if part.kind is ToolCall and part.is_empty:
            if isinstance(final, ToolCall) and final.arguments:
                return self._encode_text(part, final.arguments)
            # Clients parse the arguments of every call.
            return b"" if self._plan.same_protocol or b'"custom"' in part.head[-20:] else self._encode_text(part, "{}")
        return b""

    def _collect_citations(self, part: _OpenPart, event: PartEnd) -> None:
        """The citations of a text, now that its end is known."""
        final = event.final
        if not part.citations and isinstance(final, Text) and not self._plan.same_protocol:
            notes = final.annotations or ()
            part.citations = [(note, (*part.path, "annotations", index)) for index, note in enumerate(notes)]
        for note, trail in part.citations:
            cited = encode_foreign_citation(note, trail, self._plan, part.start, part.start + part.length)
            if cited is not None:
                self._annotations.setdefault(event.candidate, []).append(cited)
        part.citations = []

    # ---- the end

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        self._candidate_ends[event.candidate] = event
        return b""

    def _encode_finish(self, candidate: int, chunk_encoder: ChunkEncoder) -> bytes:
        stopped = self._candidate_ends.get(candidate)
        finish = encode_stop(
            None if stopped is None else stopped.stop,
            ("candidates", candidate, "stop"),
            self._plan,
            has_calls=candidate in self._call_counts,
            has_refusal=candidate in self._refused,
        )
        return chunk_encoder.encode_finish(candidate, finish)

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        self._ended = True
        out = b"" if self._plan.same_protocol else self._start_candidate(0)
        finished = list(self._candidate_ends) if self._plan.same_protocol else sorted(self._started_candidates | {0})
        late = _protocol_extras(event.extras)
        chunks = self._chunk_encoder.with_members(late)
        for number in finished:
            out += self._finish_candidate(number, chunks if number == finished[-1] else self._chunk_encoder)
        if late and not finished:
            out += chunks.encode(0, {})
        if self._usage is not None and self._include_usage:
            usage = encode_usage(self._usage, self._plan)
            out += encode_sse_frame(encode_json({**chunks.envelope, "choices": [], "usage": usage}))
        return out + STREAM_END

    def _finish_candidate(self, candidate: int, chunk_encoder: ChunkEncoder) -> bytes:
        notes = self._annotations.get(candidate)
        cited = self._chunk_encoder.encode(candidate, {"annotations": notes}) if notes else b""
        stopped = self._candidate_ends.get(candidate)
        untold = b"" if stopped is None else self._encode_unsent_extras(candidate, stopped.extras, "")
        return cited + untold + self._encode_finish(candidate, chunk_encoder)

    def _fail_response(self, event: ResponseFailed) -> bytes:
        self._ended = True
        finished = list(self._candidate_ends) if self._plan.same_protocol else []
        told = [self._finish_candidate(number, self._chunk_encoder) for number in finished]
        return b"".join([*told, encode_sse_frame(encode_json(encode_error(event.error).body))])

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


def _protocol_extras(extras: Extras | None) -> dict[str, Any]:
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    return Encoder(context)
