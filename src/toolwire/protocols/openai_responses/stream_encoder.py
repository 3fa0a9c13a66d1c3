"""Canonical events to event streams of the Responses API (SSE); `stream_decoder` describes the grammar.

`stream_part_encoder` encodes the items between the start and the end of the response.
"""

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
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.fast_path import encode_events
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.reader import decode_json, decode_members
from toolwire.protocols.openai_responses.errors import encode_error, encode_failure, is_error_event
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
_encode_json = msgspec.json.Encoder().encode
# Every event has a sequence number: the prefixes of the first ones are formatted once.
_PREFIX_COUNT = 1024
_NUMBER_PREFIXES = [b'%d,"delta":' % number for number in range(_PREFIX_COUNT)]
_FRAME_END = b"}\n\n"


class Encoder:
    """The stream encoder of the Responses API."""

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
        """The error that ended the stream, if any."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as SSE events."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode text deltas of an open part on the fast path; None for others."""
        # For other protocols the sequencer opens one part at a time, so an open part needs no ordering.
        open_part = self._items.parts.get(event.index) if event.candidate == 0 else None
        if open_part is None or not open_part.head:
            return None
        texts, frames = event.texts, self._frame_encoder
        first, frames.sequence_number = frames.sequence_number, frames.sequence_number + len(texts)
        open_part.pieces.extend(texts)
        prefixes = _NUMBER_PREFIXES[first : frames.sequence_number]
        if frames.sequence_number > _PREFIX_COUNT:
            prefixes = [b'%d,"delta":' % number for number in range(first, frames.sequence_number)]
        head = _FRAME_END + open_part.head
        encoded = b"".join(chain.from_iterable(zip(repeat(head), prefixes, map(_encode_json, texts))))
        return encoded[len(_FRAME_END) :] + _FRAME_END

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as SSE events.

        If the provider speaks another protocol, its parts may interleave. Their events are held back until the parts
        before them have ended.
        """
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        handlers = self._HANDLERS
        if self._plan.same_protocol:
            return handlers[type(event)](self, event)
        return b"".join([handlers[type(ordered)](self, ordered) for ordered in self._sequencer.order(event)])

    def close(self) -> bytes:
        """End the stream; a failure is sent if the response is incomplete."""
        if self._ended:
            return b""
        handlers = self._HANDLERS
        pending = b"".join([handlers[type(event)](self, event) for event in self._sequencer.close()])
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return pending + self._fail_response(ResponseFailed(error=error))

    # ---- start of the response

    def _start_response(self, event: ResponseStart) -> bytes:
        """Store the start of the response; return its first events unless the provider speaks this protocol."""
        self._plan.same_protocol = event.origin == FAMILY
        self._plan.seed = id_seed(event.id, self._context)
        self._start = event
        if not self._plan.same_protocol:
            self._usage = event.usage  # so far; a stream that fails may report no other
        return b"" if self._plan.same_protocol else self._encode_start()

    def _encode_start(self) -> bytes:
        """Encode `response.created` and `response.in_progress`; no bytes if they were sent before."""
        if self._has_started:
            return b""
        self._has_started = True
        start = self._start
        body = encode_start(start, self._plan, self._context) | {"status": "in_progress", "output": []}
        restore_response(body, start, self._plan)
        response = Raw(_encode_json(body))
        created = self._frame_encoder.encode("response.created", response=response)
        return created + self._frame_encoder.encode("response.in_progress", response=response)

    def _notice(self, event: Notice) -> bytes:
        """Encode a ping, or return an event of this API unchanged."""
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.same_protocol or not event.extras or FAMILY not in event.extras:
            return b""
        opening = b"" if event.kind == "created" else self._encode_start()
        self._has_started = True
        body: dict[str, Any] = dict(decode_members(event.extras[FAMILY]["frame"]))
        kind = str(decode_json(body.pop("type", b'""')))
        body.pop("sequence_number", None)
        if kind == "response.output_item.added" and "output_index" in body:
            self._items.announced_items.add(decode_json(body["output_index"]))
        return opening + self._frame_encoder.encode(kind, **body)

    # ---- items

    def _message_start(self, event: MessageStart) -> bytes:
        """Store the start of a message; return no bytes."""
        if event.candidate == 0:
            self._items.message_start(event)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        """Encode the start of a part; parts of a second candidate are reported as losses."""
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target returns a single candidate")
            return b""
        return self._encode_start() + self._items.part_start(event)

    def _part_delta(self, event: PartDelta) -> bytes:
        """Encode a delta of the first candidate."""
        return self._items.part_delta(event) if event.candidate == 0 else b""

    def _part_end(self, event: PartEnd) -> bytes:
        """Encode the end of a part of the first candidate."""
        return self._items.part_end(event) if event.candidate == 0 else b""

    def _message_end(self, event: MessageEnd) -> bytes:
        """Encode the end of a message of the first candidate."""
        return self._items.message_end(event) if event.candidate == 0 else b""

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the stop reason for the terminal event; return no bytes."""
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store the usage for the terminal event; return no bytes."""
        self._usage = event.usage
        return b""

    # ---- end of the response

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode the items that are still open, and the terminal event."""
        self._ended = True
        opening = self._encode_start()
        is_truncated = not self._plan.same_protocol and is_incomplete(self._stop, has_refusal=self._items.has_refusal)
        closing = opening + self._items.close(is_truncated=is_truncated)
        body = self._terminal_body(event)
        if self._plan.same_protocol and event.status is not None:
            body["status"] = event.status
        encode_response_state(event.continuation, body, self._plan)
        restore_response(body, event, self._plan)
        kind = body["status"] if body["status"] in _TERMINAL_STATUSES else "completed"
        return closing + self._frame_encoder.encode(f"response.{kind}", response=body)

    def _terminal_body(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        """Build the complete response of the terminal event."""
        body = encode_start(self._start, self._plan, self._context)
        output = self._items.output
        if event.extras is None:
            restore_response(body, self._start, self._plan)  # the events come from a buffered response
        body |= {"status": "completed", "output": [output[index] for index in sorted(output)]}
        encode_stop(self._stop, body, self._plan)
        if self._usage is not None or not self._plan.same_protocol:
            body["usage"] = encode_usage(self._usage or Usage(), self._plan)
        encode_counts(self._usage, body, self._plan)
        return body

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode `response.failed`, or an `error` event if the provider of this API sent one."""
        self._ended = True
        if self._plan.same_protocol and is_error_event(event.error):
            return encode_sse_frame(encode_error(event.error).to_bytes(), b"error")
        opening = self._encode_start() + self._items.close_waiting()
        body = self._terminal_body(event)
        body |= {"status": event.status or "failed", "error": encode_failure(event.error, self._plan)}
        if self._usage is None and not self._plan.same_protocol:
            body["usage"] = None
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
        UsageReport: _store_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Return an encoder for one response stream."""
    return Encoder(context)
