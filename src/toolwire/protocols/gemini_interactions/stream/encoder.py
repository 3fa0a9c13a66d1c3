"""Canonical events to the event stream; `stream_decoder` has its grammar, `stream_steps` its middle."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
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
    Stopped,
    UsageReport,
)
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.interface import Context, StreamEncoder
from toolwire.codec.kept import restore
from toolwire.codec.losses import Report
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.protocols.gemini_interactions.response.body import (
    answer_plan,
    encode_errors,
    encode_status,
    encode_usage,
    start_body,
)
from toolwire.protocols.gemini_interactions.response.errors import encode_event, is_event
from toolwire.protocols.gemini_interactions.wire import FAMILY

from .frames import UNSTARTED, event_id
from .steps import StepWriter, write

_text = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_DONE = b"event: done\ndata: [DONE]\n\n"


class Encoder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.report = Report()
        self._plan = answer_plan("", self.report, context)
        self._sequence = Sequence()
        self._start = ResponseStart(origin="")
        self._ended = False
        self._remarks: list[Any] = []
        self._steps = StepWriter(self._plan)
        self._stop: Stop | None = None
        self._usage: Usage | None = None
        self._methods: dict[type, Callable[[Any], bytes]] = {
            PartDelta: self._steps.part_delta,
            ResponseStart: self._begin,
            MessageStart: self._steps.message_start,
            PartStart: self._steps.part_start,
            PartEnd: self._steps.part_end,
            MessageEnd: self._steps.message_end,
            Stopped: self._stopped,
            UsageReport: self._report_usage,
            Notice: self._notice,
            ResponseEnd: self._end,
            ResponseFailed: self._fail,
        }

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        parts = self._steps.parts
        for event in events:
            if type(event) is PartDelta and event.plain and event.candidate == 0:
                held = parts.get(event.index)
                if held is not None and held.head and not held.lowered:
                    held.pieces.append(event.text)
                    out.append(b"%b%b}}\n\n" % (held.head, _text(event.text)))
                    continue
            out.append(self._encode(event))
        return b"".join(out)

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if type(event) is ResponseStart:
            self._plan = answer_plan(event.origin, self.report, self._context)
            self._steps.plan = self._plan
        methods = self._methods
        if self._plan.home:
            return methods[type(event)](event)
        return b"".join([methods[type(one)](one) for one in self._sequence.order(event)])

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = b"".join([self._methods[type(event)](event) for event in self._sequence.close()])
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    # ---- the envelope

    def _begin(self, event: ResponseStart) -> bytes:
        self._start, self._usage = event, None
        if self._plan.home and UNSTARTED in event.form:
            return b""
        body = self._interaction(event)
        if event.usage is not None and self._plan.home:
            body["usage"] = encode_usage(event.usage, self._plan)
        status = event.status if self._plan.home else "in_progress"
        if status is not None:
            body["status"] = status
        restore(body, event, FAMILY)
        errors = body.pop("errors", {})  # they come at the end
        self._remarks = list(errors.values()) if isinstance(errors, dict) else errors
        if event.usage is not None and not self._plan.home:
            self._usage = event.usage
        return write("interaction.created", {"interaction": body, **event_id(event.form)})

    def _interaction(self, event: ResponseStart) -> dict[str, Any]:
        body = start_body(event, self._plan, self._context)
        if not self._plan.home:
            body = {"id": event.id or "", **body}
        return body

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.home or not event.extras or "frame" not in event.extras.get(FAMILY, {}):
            return b""
        body = event.extras[FAMILY]["frame"]
        kind = msgspec.json.decode(_members(body)["event_type"], type=str)
        return frame(bytes(body), kind.encode())

    def _stopped(self, event: Stopped) -> bytes:
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        body = self._closing(event)
        if self._remarks:
            body["errors"] = self._remarks
        held = event.continuation
        if held is not None and held.id is not None and not self._plan.home:
            self.report.dropped(("continuation",), "id", "what another provider holds")
        return write("interaction.completed", {"interaction": body, **event_id(event.form)}) + _DONE

    def _closing(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        body = self._interaction(self._start)
        stop = self._stop
        if stop is None and not self._plan.home:
            stop = Stop(reason="tool_use" if self._steps.calls else "end_turn")
        encode_status(event.status, stop, body, self._plan)
        if self._usage is not None:
            body["usage"] = encode_usage(self._usage, self._plan)
        if self._plan.home and event.extras:
            for name in event.extras.get(FAMILY, {}):
                body.pop(name, None)  # what the end says otherwise than the start
        return restore(body, event, FAMILY)

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        if is_event(event.error) or not self._plan.home:
            return frame(encode_event(event.error), b"error")
        body = self._closing(event)
        encode_errors(event.error, body, event, self._plan)
        body["errors"] += self._remarks
        return write("interaction.completed", {"interaction": body, **event_id(event.form)}) + _DONE


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
