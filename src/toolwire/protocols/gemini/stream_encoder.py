"""Gemini's stream from canonical events. The grammar is told in stream_decoder."""

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
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.ids import derive_response_id
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import none_to_unset, restore_extras
from toolwire.protocols.gemini.errors import encode_error
from toolwire.protocols.gemini.field_case import restore_case
from toolwire.protocols.gemini.parts.content import encode_parts, report_text
from toolwire.protocols.gemini.parts.grounding import encode_grounding
from toolwire.protocols.gemini.parts.messages import encode_content
from toolwire.protocols.gemini.parts.signatures import MOVED_SIGNATURE
from toolwire.protocols.gemini.request import ID_AND_NAME_RULES
from toolwire.protocols.gemini.response import BLOCKED_FORM, encode_created, encode_stop, encode_usage, report_message
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, FeedbackShape, PartShape

_encode_json = msgspec.json.Encoder().encode
_CHUNK_HEAD = b'data: {"candidates":[{"content":{"parts":[{"text":'
_CHUNK_TAIL = b'],"role":"model"},"index":%d}]%b}\n\n'


class OpenPart:
    """A part that is not told before it is complete."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.pieces = TextPieces()

    def complete_part(self) -> Part:
        part, text = self.part, "".join(self.pieces)
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text)
        if isinstance(part, Text | Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning) and text:
            return replace(part, content=(*part.content, ReasoningText(kind="summary", text=text)))
        return part


class Encoder:
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
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        said: list[str] = []
        speaker = TextPieces()
        for event in events:
            if type(event) is PartDelta and event.plain:
                # A part of another protocol that is open here is the one that may speak.
                key = (event.candidate, event.index)
                if (speaking := self._open_texts.get(key)) is not None and event.text and not self._first_chunk:
                    tail, texts = speaking
                    if texts is not speaker:
                        speaker.extend(said)
                        speaker, said = texts, []
                    said.append(event.text)
                    out += (_CHUNK_HEAD, _encode_json(event.text), tail)
                    continue
                if (growing := self._open_parts.get(key)) is not None:
                    if growing.pieces is not speaker:
                        speaker.extend(said)
                        speaker, said = growing.pieces, []
                    said.append(event.text)
                    continue
            speaker.extend(said)
            said = []
            out.append(self._encode(event))
        speaker.extend(said)
        return b"".join(out)

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        return self._encode_events((event,) if self._plan.same_protocol else self._sequencer.order(event))

    def _encode_events(self, events: Iterable[Event]) -> bytes:
        methods = self._HANDLERS
        return b"".join([methods[type(event)](self, event) for event in events if type(event) in methods])

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = self._encode_events(self._sequencer.close())
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        self._plan.same_protocol = event.origin == FAMILY
        self._usage = event.usage
        if event.model is not None:
            self._chunk_fields["modelVersion"] = event.model
        encode_created(event.created, event.wire_form, self._chunk_fields, self._plan)
        if event.id is not None or not self._plan.same_protocol:
            made = derive_response_id(self._context.request) if event.id is None else event.id
            self._chunk_fields["responseId"] = made
        if self._plan.same_protocol:
            self._first_chunk = restore_extras(restore_case(dict(self._chunk_fields), event), event, FAMILY)
        elif event.extras:
            self.report.report_foreign_extras(event, (FAMILY,))
        self._chunk_tail = b"," + _encode_json(self._chunk_fields)[1:-1] if self._chunk_fields else b""
        return b""

    def _notice(self, event: Notice) -> bytes:
        # google-genai takes a comment for a part of the answer, and passes over an empty line.
        return b"\n\n" if event.kind == "ping" else b""

    def _encode_chunk(self, body: dict[str, Any]) -> bytes:
        """The first one has all that is known of the response."""
        head, self._first_chunk = self._first_chunk or self._chunk_fields, {}
        return encode_sse_frame(_encode_json({**body, **head}))

    def _message_start(self, event: MessageStart) -> bytes:
        self._messages.setdefault(event.candidate, event)
        if not self._plan.same_protocol:
            trail = ("candidates", event.candidate, "messages", event.message)
            report_message(event, trail, self._plan)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        key, message = (event.candidate, event.index), (event.candidate, event.message)
        position = self._source_counts.get(message, 0)
        self._source_counts[message] = position + 1
        trail = ("candidates", event.candidate, "messages", event.message, "parts", position)
        self._paths[key] = trail
        part = event.part
        if not self._can_stream(part):
            self._open_parts[key] = OpenPart(part)
            return b""
        if isinstance(part, Refusal):
            self.report.approximated(trail, "", "a refusal is told as text")
        elif isinstance(part, Text) and not self._plan.same_protocol:
            report_text(part, trail, self._plan)
        elif isinstance(part, Reasoning) and not self._plan.same_protocol:
            self._report_reasoning(part, trail)
        ending = b',"thought":true}' if isinstance(part, Reasoning) else b"}"
        self._open_texts[key] = ending + _CHUNK_TAIL % (event.candidate, self._chunk_tail), TextPieces()
        text = part.text if isinstance(part, Text | Refusal) else _reasoning_text(part)
        return self._encode_text(key, text)

    def _can_stream(self, part: Part) -> bool:
        """Whether it can be told as it grows."""
        if isinstance(part, Refusal):
            return True
        if not isinstance(part, Text | Reasoning):
            return False
        own = part.signature is not None and part.signature.issuer == ISSUER
        kept = self._plan.same_protocol and (part.extras or part.wire_form)
        media = isinstance(part, Reasoning) and any(not isinstance(one, ReasoningText) for one in part.content)
        return not own and not kept and not media

    def _report_reasoning(self, part: Reasoning, path: SourcePath) -> None:
        if part.signature is not None:
            self.report.dropped((*path, "signature"), "", "the target has no place for another issuer's proof")
        if part.id is not None:
            self.report.dropped(path, "id")

    def _encode_text(self, key: tuple[int, int], text: str) -> bytes:
        if not text:
            return b""
        tail, texts = self._open_texts[key]
        texts.append(text)
        if self._first_chunk:
            body = _CHUNK_HEAD[len(b"data: ") :] + _encode_json(text) + tail.rstrip(b"\n")
            return self._encode_chunk(msgspec.json.decode(body))
        return _CHUNK_HEAD + _encode_json(text) + tail

    def _part_delta(self, event: PartDelta) -> bytes:
        key = (event.candidate, event.index)
        if (growing := self._open_parts.get(key)) is not None:
            growing.pieces.append(event.text)
            if event.signature is not None and isinstance(growing.part, Text | Reasoning | ToolCall):
                growing.part = replace(growing.part, signature=event.signature)
            return b""
        if key not in self._open_texts:
            return b""
        said = self._encode_text(key, event.text)
        if event.signature is not None:
            said += self._encode_signature(event, key)
        if event.annotation is not None:
            self._citations.setdefault(key, []).append(event.annotation)
        return said

    def _encode_signature(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        if event.signature is None:
            return b""
        if event.signature.issuer != ISSUER:
            self.report.dropped(
                (*self._paths[key], "signature"), "", "the target has no place for another issuer's proof"
            )
            return b""
        return self._defer_signature(event.candidate, event.signature)

    def _defer_signature(self, candidate: int, signature: Signature) -> bytes:
        """A proof that comes after the words stands on the call that comes next, or on a part of its own, as Google's
        own do. Before another one, it stands there at once."""
        before = self._pending_signatures.get(candidate)
        self._pending_signatures[candidate] = signature
        if before is None:
            return b""
        return self._encode_parts(candidate, [PartShape(text="", thought=True, thought_signature=before.data)])

    def _part_end(self, event: PartEnd) -> bytes:
        key = (event.candidate, event.index)
        _, texts = self._open_texts.pop(key, (b"", TextPieces()))
        if (growing := self._open_parts.pop(key, None)) is None:
            if texts:
                self._collect_citations(event, "".join(texts))
            return b""
        part = growing.complete_part() if event.final is None else event.final
        handed = b""
        if (
            not self._plan.same_protocol
            and isinstance(part, Reasoning)
            and part.signature is not None
            and part.signature.issuer == ISSUER
        ):
            handed = self._defer_signature(event.candidate, part.signature)
            part = replace(part, signature=None, wire_form=(*part.wire_form, MOVED_SIGNATURE))
        elif isinstance(part, ToolCall) and part.executor == "client" and part.signature is None:
            part = replace(part, signature=self._pending_signatures.pop(event.candidate, None))
        return handed + self._encode_parts(
            event.candidate, encode_parts([LocatedPart(part, self._paths[key])], self._plan)
        )

    def _collect_citations(self, event: PartEnd, text: str) -> None:
        """What a text rests on is told at the end, beside all parts."""
        number = self._part_counts[event.candidate] = self._part_counts.get(event.candidate, -1) + 1
        notes = self._citations.pop((event.candidate, event.index), [])
        if isinstance(event.final, Text) and event.final.annotations:
            notes = list(event.final.annotations)
        if notes:
            cited = Text(text=text, annotations=tuple(notes))
            self._cited_texts.setdefault(event.candidate, []).append((number, cited))

    def _encode_parts(self, candidate: int, parts: list[Any]) -> bytes:
        if not parts:
            return b""
        self._part_counts[candidate] = self._part_counts.get(candidate, -1) + len(parts)
        content = {"parts": parts, "role": "model"}
        return self._encode_chunk({"candidates": [{"content": content, "index": candidate}]})

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        self._candidate_ends[event.candidate] = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        self._ended = True
        body: dict[str, Any] = {}
        plan = self._plan
        numbers = sorted({*self._messages, *self._candidate_ends}) or ([] if plan.same_protocol else [0])
        candidates = [one for number in numbers if (one := self._encode_last_candidate(number)) is not None]
        if candidates:
            body["candidates"] = candidates
        for stopped in self._candidate_ends.values():
            if BLOCKED_FORM in stopped.wire_form and stopped.stop is not None:
                body["promptFeedback"] = FeedbackShape(block_reason=none_to_unset(stopped.stop.raw))
                if isinstance(more := self._first_chunk.get("promptFeedback"), dict):
                    more.setdefault("blockReason", stopped.stop.raw)
        if self._usage is not None:
            body["usageMetadata"] = encode_usage(self._usage, plan)
        if plan.same_protocol:
            body = restore_extras(restore_case(body, event), event, FAMILY)
        return self._encode_chunk(body)

    def _encode_last_candidate(self, number: int) -> Any:
        """The last that is said of a candidate."""
        plan, stopped = self._plan, self._candidate_ends.get(number)
        if stopped is not None and BLOCKED_FORM in stopped.wire_form and plan.same_protocol:
            return None
        shape: dict[str, Any] = {}
        started = self._messages.get(number)
        if started is not None or not plan.same_protocol:
            shape["content"] = self._encode_last_content(started, number)
        stop = None if stopped is None else stopped.stop
        if stop is None and not plan.same_protocol:
            stop = Stop(reason="end_turn")
        if not plan.same_protocol and (found := encode_grounding(self._cited_texts.get(number, []))) is not None:
            shape["groundingMetadata"] = found
        if (word := encode_stop(stop, number, plan)) is not None:
            shape["finishReason"] = word
        shape["index"] = number
        return (
            shape
            if stopped is None or not plan.same_protocol
            else restore_extras(restore_case(shape, stopped), stopped, FAMILY)
        )

    def _encode_last_content(self, start: MessageStart | None, number: int) -> Any:
        proof = self._pending_signatures.pop(number, None)
        parts = [PartShape(text="", thought_signature=UNSET if proof is None else proof.data)]
        if start is None or not self._plan.same_protocol or not (start.extras or start.wire_form):
            return {"parts": parts, "role": "model"}
        return encode_content(start, parts)

    def _fail_response(self, event: ResponseFailed) -> bytes:
        self._ended = True
        body = encode_error(event.error).body
        text = _encode_json(body[0] if isinstance(body, list) else body)
        # Both official SDKs know a bare object for an error that ends a stream; Node's reads over one in an event.
        return encode_sse_frame(text) if self._plan.same_protocol and not event.broken else text + b"\n\n"

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _part_delta,
        PartEnd: _part_end,
        CandidateEnd: _end_candidate,
        UsageReport: _report_usage,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
        Notice: _notice,
    }


def _reasoning_text(part: Part) -> str:
    if not isinstance(part, Reasoning):
        return ""
    return "\n\n".join([one.text for one in part.content if isinstance(one, ReasoningText)])


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    return Encoder(context)
