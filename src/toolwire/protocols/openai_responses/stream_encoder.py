"""Canonical events to the Responses API's event stream; `stream_decoder` has its grammar, `stream_items` its middle."""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

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
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols.openai_responses.errors import encode_error, encode_failure, is_event
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.request import ID_AND_NAME_RULES
from toolwire.protocols.openai_responses.response import (
    encode_counts,
    encode_response_state,
    encode_start,
    encode_stop,
    encode_usage,
    id_seed,
    is_incomplete,
    restore_response,
)
from toolwire.protocols.openai_responses.stream_part_encoder import FrameEncoder, StreamItemEncoder
from toolwire.protocols.openai_responses.wire import FAMILY

_TERMINAL_STATUSES = ("completed", "incomplete", "failed")
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode_json = msgspec.json.Encoder().encode
# Every event has a number: most streams have no more than these, which are written once for all.
_COUNTED = 1024
_LOOSE = 300  # pieces of a text, before it is looked whether they are to be joined
_END = b"}\n\n"
_NUMBERED = [b'%d,"delta":' % number for number in range(_COUNTED)]


class Encoder:
    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self.report = LossReport()
        self._plan = ItemPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=False, seed="")
        self._frame_encoder = FrameEncoder()
        self._items = StreamItemEncoder(self._plan, self._frame_encoder)
        self._sequencer = PartSequencer()
        self._start = ResponseStart(origin="")
        self._has_started = False
        self._ended = False
        self._stop: Stop | None = None
        self._usage: Usage | None = None

    @property
    def failure(self) -> ApiError | None:
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        parts, speaking = self._items.parts, -1
        said: list[str] = []  # by the part that speaks, and not written yet
        for event in events:
            if type(event) is PartDelta and event.plain and event.candidate == 0:
                if event.index == speaking:
                    said.append(event.text)
                    continue
                if (held := parts.get(event.index)) is not None and held.head:
                    # A part of another protocol that is open here is the one that may speak.
                    out.append(self._encode_texts(speaking, said))
                    speaking, said = event.index, [event.text]
                    continue
            out.append(self._encode_texts(speaking, said))
            out.append(self._encode(event))
            parts, speaking, said = self._items.parts, -1, []
        out.append(self._encode_texts(speaking, said))
        return b"".join(out)

    def _encode_texts(self, index: int, texts: list[str]) -> bytes:
        """What one part says, a delta for each piece of it."""
        if not texts:
            return b""
        held, frames = self._items.parts[index], self._frame_encoder
        first, frames.sequence_number = frames.sequence_number, frames.sequence_number + len(texts)
        held.pieces += texts
        if len(held.pieces) > _LOOSE:
            held.pieces.compact()
        numbers = _NUMBERED[first : frames.sequence_number]
        if frames.sequence_number > _COUNTED:
            numbers = [b'%d,"delta":' % number for number in range(first, frames.sequence_number)]
        said = b"".join(chain.from_iterable(zip(repeat(_END + held.head), numbers, map(_encode_json, texts))))
        return said[len(_END) :] + _END

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        methods = self._HANDLERS
        if self._plan.same_protocol:
            return methods[type(event)](self, event)
        return b"".join([methods[type(one)](self, one) for one in self._sequencer.order(event)])

    def close(self) -> bytes:
        if self._ended:
            return b""
        methods = self._HANDLERS
        waiting = b"".join([methods[type(event)](self, event) for event in self._sequencer.close()])
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail_response(ResponseFailed(error=error))

    # ---- the beginning

    def _start_response(self, event: ResponseStart) -> bytes:
        self._plan.same_protocol = event.origin == FAMILY
        self._plan.seed = id_seed(event.id, self._context)
        self._start = event
        return b"" if self._plan.same_protocol else self._encode_start()

    def _encode_start(self) -> bytes:
        """The first events. At home those of the source, if it passes them on."""
        if self._has_started:
            return b""
        self._has_started = True
        start = self._start
        body = encode_start(start, self._plan, self._context) | {"status": "in_progress", "output": []}
        restore_response(body, start, self._plan)
        told = Raw(_encode_json(body))
        opened = self._frame_encoder.encode("response.created", response=told)
        return opened + self._frame_encoder.encode("response.in_progress", response=told)

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.same_protocol or not event.extras or FAMILY not in event.extras:
            return b""
        before = b"" if event.kind == "created" else self._encode_start()
        self._has_started = True
        body: dict[str, Any] = dict(_decode_members(event.extras[FAMILY]["frame"]))
        kind = str(msgspec.json.decode(body.pop("type", b'""')))
        body.pop("sequence_number", None)
        if kind == "response.output_item.added" and "output_index" in body:
            self._items.announced_items.add(msgspec.json.decode(body["output_index"]))
        return before + self._frame_encoder.encode(kind, **body)

    # ---- the middle

    def _message_start(self, event: MessageStart) -> bytes:
        if event.candidate == 0:
            self._items.message_start(event)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        return self._encode_start() + self._items.part_start(event)

    def _part_delta(self, event: PartDelta) -> bytes:
        return self._items.part_delta(event) if event.candidate == 0 else b""

    def _part_end(self, event: PartEnd) -> bytes:
        return self._items.part_end(event) if event.candidate == 0 else b""

    def _message_end(self, event: MessageEnd) -> bytes:
        return self._items.message_end(event) if event.candidate == 0 else b""

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    # ---- the end

    def _end_response(self, event: ResponseEnd) -> bytes:
        self._ended = True
        opening = self._encode_start()
        cut = not self._plan.same_protocol and is_incomplete(self._stop, has_refusal=self._items.has_refusal)
        closing = opening + self._items.close(is_truncated=cut)
        body = self._terminal_body(event)
        if self._plan.same_protocol and event.status is not None:
            body["status"] = event.status
        encode_response_state(event.continuation, body, self._plan)
        restore_response(body, event, self._plan)
        kind = body["status"] if body["status"] in _TERMINAL_STATUSES else "completed"
        return closing + self._frame_encoder.encode(f"response.{kind}", response=body)

    def _terminal_body(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        body = encode_start(self._start, self._plan, self._context)
        output = self._items.output
        if event.extras is None:
            restore_response(body, self._start, self._plan)  # of an answer that came whole
        body |= {"status": "completed", "output": [output[index] for index in sorted(output)]}
        encode_stop(self._stop, body, self._plan)
        if self._usage is not None or not self._plan.same_protocol:
            body["usage"] = encode_usage(self._usage or Usage(), self._plan)
        encode_counts(self._usage, body, self._plan)
        return body

    def _fail_response(self, event: ResponseFailed) -> bytes:
        self._ended = True
        if self._plan.same_protocol and is_event(event.error):
            return encode_sse_frame(encode_error(event.error).to_bytes(), b"error")
        opening = self._encode_start() + self._items.close_waiting()
        body = self._terminal_body(event)
        body |= {"status": event.status or "failed", "error": encode_failure(event.error, self._plan)}
        restore_response(body, event, self._plan)
        return opening + self._frame_encoder.encode("response.failed", response=body)

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        PartDelta: _part_delta,
        ResponseStart: _start_response,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        CandidateEnd: _end_candidate,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    return Encoder(context)
