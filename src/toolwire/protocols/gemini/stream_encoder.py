"""Encode canonical events as a Gemini stream (SSE); `stream_decoder` describes its grammar."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Citation, Part, Reasoning, ReasoningText, Refusal, Signature, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
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
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart, derive_response_id
from toolwire.codec.fast_path import encode_events, encode_frames
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import none_to_unset, restore_extras
from toolwire.codec.wire.reader import decode_json
from toolwire.protocols.gemini.errors import encode_error
from toolwire.protocols.gemini.field_case import restore_case
from toolwire.protocols.gemini.parts.content import encode_parts, report_text
from toolwire.protocols.gemini.parts.grounding import encode_grounding
from toolwire.protocols.gemini.parts.messages import encode_content
from toolwire.protocols.gemini.parts.signatures import MOVED_SIGNATURE
from toolwire.protocols.gemini.request import ID_AND_NAME_RULES
from toolwire.protocols.gemini.response import BLOCKED_FORM, encode_created, encode_stop, encode_usage
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, FeedbackShape, PartShape

_encode_json = msgspec.json.Encoder().encode
_CHUNK_HEAD = b'data: {"candidates":[{"content":{"parts":[{"text":'
_CHUNK_TAIL = b'],"role":"model"},"index":%d}]%b}\n\n'


class OpenPart:
    """A part that is sent only when complete."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.pieces = TextPieces()

    def complete_part(self) -> Part:
        """Return the part with the text that its deltas added."""
        part, text = self.part, "".join(self.pieces)
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text)
        if isinstance(part, Text | Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning) and text:
            return replace(part, content=(*part.content, ReasoningText(kind="summary", text=text)))
        return part


class Encoder:
    """Stream encoder of the Gemini protocol."""

    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._context = context
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._sequencer = PartSequencer()
        self._ended = False
        self._first_chunk: dict[str, Any] = {}
        self._chunk_fields: dict[str, Any] = {}
        self._chunk_tail = b""
        self._open_texts: dict[tuple[int, int], tuple[bytes, TextPieces]] = {}
        self._open_parts: dict[tuple[int, int], OpenPart] = {}
        self._paths: dict[tuple[int, int], SourcePath] = {}
        self._source_counts: dict[tuple[int, int], int] = {}
        self._citations: dict[tuple[int, int], list[Citation]] = {}
        self._cited_texts: dict[int, list[tuple[int, Text]]] = {}
        self._part_counts: dict[int, int] = {}
        self._messages: dict[int, MessageStart] = {}
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._pending_signatures: dict[int, Signature] = {}
        self._usage: Usage | None = None

    @property
    def failure(self) -> ApiError | None:
        """The error that ended encoding because too many interleaved events were buffered, or None."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as chunks."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode text deltas of an open text on the fast path, or collect them; None for others."""
        # An open part of another protocol is the one whose turn it is, so it needs no sequencing.
        key = (event.candidate, event.index)
        if (open_part := self._open_parts.get(key)) is not None:
            open_part.pieces.extend(event.texts)
            return b""
        if (open_text := self._open_texts.get(key)) is None or self._first_chunk:
            return None
        tail, pieces = open_text
        pieces.extend(event.texts)
        return encode_frames(_CHUNK_HEAD, event.texts, tail)

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as chunks.

        If the provider speaks another protocol, its parts may interleave. Their events are held back until the parts
        before them have ended.
        """
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        return self._encode_events((event,) if self._plan.same_protocol else self._sequencer.order(event))

    def _encode_events(self, events: Iterable[Event]) -> bytes:
        """Encode each event with its handler; events without a handler add no bytes."""
        handlers = self._HANDLERS
        return b"".join([handlers[type(event)](self, event) for event in events if type(event) in handlers])

    def close(self) -> bytes:
        """Encode held-back events, and an error if the response is incomplete."""
        if self._ended:
            return b""
        buffered = self._encode_events(self._sequencer.close())
        if self._ended:
            return buffered
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return buffered + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        """Prepare the fields that every chunk repeats; return no bytes."""
        self._plan.same_protocol = event.origin == FAMILY
        self._usage = event.usage
        if event.model is not None:
            self._chunk_fields["modelVersion"] = event.model
        encode_created(event.created, event.wire_form, self._chunk_fields, self._plan)
        if event.id is not None or not self._plan.same_protocol:
            self._chunk_fields["responseId"] = (
                derive_response_id(self._context.request) if event.id is None else event.id
            )
        if self._plan.same_protocol:
            self._first_chunk = restore_extras(restore_case(dict(self._chunk_fields), event), event, FAMILY)
        elif event.extras:
            self.report.report_foreign_extras(event, (FAMILY,))
        self._chunk_tail = b"," + _encode_json(self._chunk_fields)[1:-1] if self._chunk_fields else b""
        return b""

    def _encode_notice(self, event: Notice) -> bytes:
        """Encode a ping as an empty line."""
        # google-genai treats an SSE comment as content, but skips empty lines.
        return b"\n\n" if event.kind == "ping" else b""

    def _encode_chunk(self, body: dict[str, Any]) -> bytes:
        """Encode one chunk; the first one carries all fields of the response."""
        head, self._first_chunk = self._first_chunk or self._chunk_fields, {}
        return encode_sse_frame(_encode_json({**body, **head}))

    def _start_message(self, event: MessageStart) -> bytes:
        """Store the start of a message, report its fields that Gemini lacks, and return no bytes."""
        self._messages.setdefault(event.candidate, event)
        if not self._plan.same_protocol:
            path = ("candidates", event.candidate, "messages", event.message)
            self._plan.report.dropped_fields(path, event, "id", "status", "phase", "name")
        return b""

    def _start_part(self, event: PartStart) -> bytes:
        """Open a part and encode its first text; parts other than text are collected until they end."""
        key, message = (event.candidate, event.index), (event.candidate, event.message)
        position = self._source_counts.get(message, 0)
        self._source_counts[message] = position + 1
        path = ("candidates", event.candidate, "messages", event.message, "parts", position)
        self._paths[key] = path
        part = event.part
        if not self._can_stream(part):
            self._open_parts[key] = OpenPart(part)
            return b""
        if isinstance(part, Refusal):
            self.report.approximated(path, "", "refusal sent as text")
        elif isinstance(part, Text) and not self._plan.same_protocol:
            report_text(part, path, self._plan)
        elif isinstance(part, Reasoning) and not self._plan.same_protocol:
            self._report_reasoning(part, path)
        ending = b',"thought":true}' if isinstance(part, Reasoning) else b"}"
        self._open_texts[key] = ending + _CHUNK_TAIL % (event.candidate, self._chunk_tail), TextPieces()
        text = part.text if isinstance(part, Text | Refusal) else _reasoning_text(part)
        return self._encode_text(key, text)

    def _can_stream(self, part: Part) -> bool:
        """Check whether a part can be sent piece by piece: text or thoughts without signature, extras and media."""
        if isinstance(part, Refusal):
            return True
        if not isinstance(part, Text | Reasoning):
            return False
        is_signed = part.signature is not None and part.signature.issuer == ISSUER
        has_extras = self._plan.same_protocol and (part.extras or part.wire_form)
        has_media = isinstance(part, Reasoning) and any(not isinstance(block, ReasoningText) for block in part.content)
        return not is_signed and not has_extras and not has_media

    def _report_reasoning(self, part: Reasoning, path: SourcePath) -> None:
        """Report as losses the fields of another protocol's thought that Gemini does not have."""
        if part.signature is not None:
            self.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
        if part.id is not None:
            self.report.dropped(path, "id")

    def _encode_text(self, key: tuple[int, int], text: str) -> bytes:
        """Encode text of an open part."""
        if not text:
            return b""
        tail, texts = self._open_texts[key]
        texts.append(text)
        if self._first_chunk:
            body = _CHUNK_HEAD[len(b"data: ") :] + _encode_json(text) + tail.rstrip(b"\n")
            return self._encode_chunk(decode_json(body))
        return _CHUNK_HEAD + _encode_json(text) + tail

    def _encode_part_delta(self, event: PartDelta) -> bytes:
        """Encode a text delta; anything else is collected until the part ends and returns no bytes."""
        key = (event.candidate, event.index)
        if (open_part := self._open_parts.get(key)) is not None:
            open_part.pieces.append(event.text)
            if event.signature is not None and isinstance(open_part.part, Text | Reasoning | ToolCall):
                open_part.part = replace(open_part.part, signature=event.signature)
            return b""
        if key not in self._open_texts:
            return b""
        encoded = self._encode_text(key, event.text)
        if event.signature is not None:
            encoded += self._encode_signature(event, key)
        if event.annotation is not None:
            self._citations.setdefault(key, []).append(event.annotation)
        return encoded

    def _encode_signature(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        """Hold Google's signature for a later part; report any other as a loss."""
        if event.signature is None:
            return b""
        if event.signature.issuer != ISSUER:
            self.report.dropped((*self._paths[key], "signature"), "", "signatures are only valid for their issuer")
            return b""
        return self._defer_signature(event.candidate, event.signature)

    def _defer_signature(self, candidate: int, signature: Signature) -> bytes:
        """Hold a signature for the next call; return the part of an earlier signature still held.

        Google's streams also put the signature of a text on the call that follows it.
        """
        pending = self._pending_signatures.get(candidate)
        self._pending_signatures[candidate] = signature
        if pending is None:
            return b""
        return self._encode_parts(candidate, [PartShape(text="", thought=True, thought_signature=pending.data)])

    def _end_part(self, event: PartEnd) -> bytes:
        """End a part; return its chunk if it was collected."""
        key = (event.candidate, event.index)
        _, texts = self._open_texts.pop(key, (b"", TextPieces()))
        if (open_part := self._open_parts.pop(key, None)) is None:
            if texts:
                self._collect_citations(event, "".join(texts))
            return b""
        part = open_part.complete_part() if event.final is None else event.final
        signature_chunk = b""
        if (
            not self._plan.same_protocol
            and isinstance(part, Reasoning)
            and part.signature is not None
            and part.signature.issuer == ISSUER
        ):
            signature_chunk = self._defer_signature(event.candidate, part.signature)
            part = replace(part, signature=None, wire_form=(*part.wire_form, MOVED_SIGNATURE))
        elif isinstance(part, ToolCall) and part.executor == "client" and part.signature is None:
            part = replace(part, signature=self._pending_signatures.pop(event.candidate, None))
        return signature_chunk + self._encode_parts(
            event.candidate, encode_parts([LocatedPart(part, self._paths[key])], self._plan)
        )

    def _collect_citations(self, event: PartEnd, text: str) -> None:
        """Collect the citations of a text; they are sent with the last chunk."""
        number = self._part_counts[event.candidate] = self._part_counts.get(event.candidate, -1) + 1
        citations = self._citations.pop((event.candidate, event.index), [])
        if isinstance(event.final, Text) and event.final.annotations:
            citations = list(event.final.annotations)
        if citations:
            cited_text = Text(text=text, annotations=tuple(citations))
            self._cited_texts.setdefault(event.candidate, []).append((number, cited_text))

    def _encode_parts(self, candidate: int, parts: list[Any]) -> bytes:
        """Encode complete parts of a candidate as one chunk."""
        if not parts:
            return b""
        self._part_counts[candidate] = self._part_counts.get(candidate, -1) + len(parts)
        content = {"parts": parts, "role": "model"}
        return self._encode_chunk({"candidates": [{"content": content, "index": candidate}]})

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the end of a candidate for the last chunk; return no bytes."""
        self._candidate_ends[event.candidate] = event
        return b""

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store token counts for the last chunk; return no bytes."""
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode the last chunk: finish reasons, citations, feedback and usage."""
        self._ended = True
        body: dict[str, Any] = {}
        plan = self._plan
        numbers = sorted({*self._messages, *self._candidate_ends}) or ([] if plan.same_protocol else [0])
        candidates = [candidate for number in numbers if (candidate := self._encode_last_candidate(number)) is not None]
        if candidates:
            body["candidates"] = candidates
        for candidate_end in self._candidate_ends.values():
            if BLOCKED_FORM in candidate_end.wire_form and candidate_end.stop is not None:
                body["promptFeedback"] = FeedbackShape(block_reason=none_to_unset(candidate_end.stop.raw))
                if isinstance(feedback := self._first_chunk.get("promptFeedback"), dict):
                    feedback.setdefault("blockReason", candidate_end.stop.raw)
        if self._usage is not None:
            body["usageMetadata"] = encode_usage(self._usage, plan)
        if plan.same_protocol:
            body = restore_extras(restore_case(body, event), event, FAMILY)
        return self._encode_chunk(body)

    def _encode_last_candidate(self, number: int) -> Any:
        """Encode a candidate for the last chunk, with finish reason and citations."""
        plan, candidate_end = self._plan, self._candidate_ends.get(number)
        if candidate_end is not None and BLOCKED_FORM in candidate_end.wire_form and plan.same_protocol:
            return None
        shape: dict[str, Any] = {}
        message_start = self._messages.get(number)
        if message_start is not None or not plan.same_protocol:
            shape["content"] = self._encode_last_content(message_start, number)
        stop = None if candidate_end is None else candidate_end.stop
        if stop is None and not plan.same_protocol:
            stop = Stop(reason="end_turn")
        if not plan.same_protocol and (metadata := encode_grounding(self._cited_texts.get(number, []))) is not None:
            shape["groundingMetadata"] = metadata
        if (finish_reason := encode_stop(stop, number, plan)) is not None:
            shape["finishReason"] = finish_reason
        shape["index"] = number
        return (
            shape
            if candidate_end is None or not plan.same_protocol
            else restore_extras(restore_case(shape, candidate_end), candidate_end, FAMILY)
        )

    def _encode_last_content(self, start: MessageStart | None, number: int) -> Any:
        """Encode the empty content of the last chunk, with a signature that is still held."""
        signature = self._pending_signatures.pop(number, None)
        parts = [PartShape(text="", thought_signature=UNSET if signature is None else signature.data)]
        if start is None or not self._plan.same_protocol or not (start.extras or start.wire_form):
            return {"parts": parts, "role": "model"}
        return encode_content(start, parts)

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode an error chunk, which ends the stream."""
        self._ended = True
        body = encode_error(event.error).body
        text = _encode_json(body[0] if isinstance(body, list) else body)
        # Both official SDKs recognize a bare object as an error; the Node SDK ignores one inside an SSE event.
        return encode_sse_frame(text) if self._plan.same_protocol and not event.broken else text + b"\n\n"

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _start_message,
        PartStart: _start_part,
        PartDelta: _encode_part_delta,
        PartEnd: _end_part,
        CandidateEnd: _end_candidate,
        UsageReport: _store_usage,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
        Notice: _encode_notice,
    }


def _reasoning_text(part: Part) -> str:
    """Join the texts of a thought."""
    if not isinstance(part, Reasoning):
        return ""
    return "\n\n".join([block.text for block in part.content if isinstance(block, ReasoningText)])


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Create a stream encoder."""
    return Encoder(context)
