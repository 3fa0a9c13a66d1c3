"""Encode canonical events as an Interactions stream (SSE).

`stream_decoder` describes the grammar; `stream_part_encoder` encodes the steps.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

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
from toolwire.codec.fast_path import encode_events, encode_frames
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import decode_members
from toolwire.protocols.gemini_interactions.errors import encode_event, is_event
from toolwire.protocols.gemini_interactions.response import (
    RUNNING_STATUSES,
    encode_errors,
    encode_start,
    encode_status,
    encode_usage,
    response_plan,
)
from toolwire.protocols.gemini_interactions.stream_decoder import NO_CREATED, encode_event_id
from toolwire.protocols.gemini_interactions.stream_part_encoder import DELTA_TAIL, StreamStepEncoder, encode_frame
from toolwire.protocols.gemini_interactions.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_STREAM_END = b"event: done\ndata: [DONE]\n\n"


class Encoder:
    """Stream encoder of the Interactions protocol."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self.report = LossReport()
        self._plan = response_plan("", self.report, context)
        self._sequencer = PartSequencer()
        self._start = ResponseStart(origin="")
        self._ended = False
        self._errors: list[Any] = []
        self._step_encoder = StreamStepEncoder(self._plan)
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._handlers: dict[type, Callable[[Any], bytes]] = {
            PartDelta: self._step_encoder.encode_part_delta,
            ResponseStart: self._start_response,
            MessageStart: self._step_encoder.start_message,
            PartStart: self._step_encoder.start_part,
            PartEnd: self._step_encoder.end_part,
            MessageEnd: self._step_encoder.end_message,
            CandidateEnd: self._end_candidate,
            UsageReport: self._store_usage,
            Notice: self._encode_notice,
            ResponseEnd: self._end_response,
            ResponseFailed: self._fail_response,
        }

    @property
    def failure(self) -> ApiError | None:
        """The error that ended encoding because too many interleaved events were buffered, or None."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as SSE frames."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode deltas of an open text or call on the fast path; None for others."""
        open_part = self._step_encoder.parts.get(event.index) if event.candidate == 0 else None
        if open_part is None or not open_part.head or open_part.is_wrapped:
            return None
        open_part.pieces.extend(event.texts)
        return encode_frames(open_part.head, event.texts, DELTA_TAIL)

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as frames.

        If the provider speaks another protocol, its parts may interleave. Their events are held back until the parts
        before them have ended.
        """
        if type(event) is ResponseStart:
            self._plan = response_plan(event.origin, self.report, self._context)
            self._step_encoder.plan = self._plan
        handlers = self._handlers
        if self._plan.same_protocol:
            return handlers[type(event)](event)
        return b"".join([handlers[type(ordered)](ordered) for ordered in self._sequencer.order(event)])

    def close(self) -> bytes:
        """Encode held-back events, and an error if the response is incomplete."""
        if self._ended:
            return b""
        buffered = b"".join([self._handlers[type(event)](event) for event in self._sequencer.close()])
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return buffered + self._fail_response(ResponseFailed(error=error))

    # ---- the interaction

    def _start_response(self, event: ResponseStart) -> bytes:
        """Encode `interaction.created`."""
        self._start, self._usage = event, None
        if self._plan.same_protocol and NO_CREATED in event.wire_form:
            return b""
        body = self._start_body(event)
        if event.usage is not None and self._plan.same_protocol:
            body["usage"] = encode_usage(event.usage, self._plan)
        status = event.status if self._plan.same_protocol else "in_progress"
        if status is not None:
            body["status"] = status
        restore_extras(body, event, FAMILY)
        errors = body.pop("errors", {})  # sent with `interaction.completed`
        self._errors = list(errors.values()) if isinstance(errors, dict) else errors
        if event.usage is not None and not self._plan.same_protocol:
            self._usage = event.usage
        return encode_frame("interaction.created", {"interaction": body, **encode_event_id(event.wire_form)})

    def _start_body(self, event: ResponseStart) -> dict[str, Any]:
        """Encode the fields of the interaction that stay the same until its end."""
        body = encode_start(event, self._plan, self._context)
        if not self._plan.same_protocol:
            body = {"id": event.id or "", **body}
        return body

    def _encode_notice(self, event: Notice) -> bytes:
        """Encode a ping as an SSE comment; return a frame of the Interactions API unchanged."""
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.same_protocol or not event.extras or "frame" not in event.extras.get(FAMILY, {}):
            return b""
        body = event.extras[FAMILY]["frame"]
        kind = msgspec.json.decode(decode_members(body)["event_type"], type=str)
        return encode_sse_frame(bytes(body), kind.encode())

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the stop reason of the only candidate; return no bytes."""
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store token counts for the last frame; return no bytes."""
        self._usage = event.usage
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode `interaction.completed` and the end of the stream."""
        self._ended = True
        body = self._end_body(event)
        if self._errors:
            body["errors"] = self._errors
        continuation = event.continuation
        if continuation is not None and continuation.id is not None and not self._plan.same_protocol:
            self.report.dropped(("continuation",), "id", "stored by another provider")
        return (
            encode_frame("interaction.completed", {"interaction": body, **encode_event_id(event.wire_form)})
            + _STREAM_END
        )

    def _end_body(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        """Encode the interaction of the last frame, without its steps."""
        body = self._start_body(self._start)
        stop = self._stop
        if stop is None and not self._plan.same_protocol and event.status not in RUNNING_STATUSES:
            stop = Stop(reason="tool_use" if self._step_encoder.has_calls else "end_turn")
        encode_status(event.status, stop, body, self._plan)
        if self._usage is not None:
            body["usage"] = encode_usage(self._usage, self._plan)
        if self._plan.same_protocol and event.extras:
            for name in event.extras.get(FAMILY, {}):
                body.pop(name, None)  # fields that the end changes
        return restore_extras(body, event, FAMILY)

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode an `error` event, or a failed interaction if the error was inside one."""
        self._ended = True
        if is_event(event.error) or not self._plan.same_protocol:
            return encode_sse_frame(encode_event(event.error), b"error")
        body = self._end_body(event)
        encode_errors(event.error, body, event, self._plan)
        body["errors"] += self._errors
        return (
            encode_frame("interaction.completed", {"interaction": body, **encode_event_id(event.wire_form)})
            + _STREAM_END
        )


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Create a stream encoder."""
    return Encoder(context)
