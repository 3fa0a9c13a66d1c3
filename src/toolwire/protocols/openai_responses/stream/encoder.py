"""Canonical events to the Responses API's event stream; `stream_decoder` has its grammar, `stream_items` its middle."""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, ClassVar

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
from toolwire.codec.interface import Context, StreamEncoder, Target
from toolwire.codec.losses import Report
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.request.body import RULES
from toolwire.protocols.openai_responses.response.body import (
    encode_counts,
    encode_held,
    encode_stop,
    encode_usage,
    is_cut,
    seed_of,
)
from toolwire.protocols.openai_responses.response.envelope import finish, start_body
from toolwire.protocols.openai_responses.response.errors import encode_error, encode_failure, is_event
from toolwire.protocols.openai_responses.wire import FAMILY

from .frames import Frames
from .items import ItemWriter

_TERMINALS = ("completed", "incomplete", "failed")
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_json = msgspec.json.Encoder().encode
# Every event has a number: most streams have no more than these, which are written once for all.
_COUNTED = 1024
_LOOSE = 300  # pieces of a text, before it is looked whether they are to be joined
_END = b"}\n\n"
_NUMBERED = [b'%d,"delta":' % number for number in range(_COUNTED)]


class Encoder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.report = Report()
        self._plan = ItemPlan(RULES, self.report, Target(), home=False, seed="")
        self._frames = Frames()
        self._items = ItemWriter(self._plan, self._frames)
        self._sequence = Sequence()
        self._start = ResponseStart(origin="")
        self._announced = False
        self._ended = False
        self._stop: Stop | None = None
        self._usage: Usage | None = None

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

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
                    out.append(self._say(speaking, said))
                    speaking, said = event.index, [event.text]
                    continue
            out.append(self._say(speaking, said))
            out.append(self._encode(event))
            parts, speaking, said = self._items.parts, -1, []
        out.append(self._say(speaking, said))
        return b"".join(out)

    def _say(self, index: int, texts: list[str]) -> bytes:
        """What one part says, a delta for each piece of it."""
        if not texts:
            return b""
        held, frames = self._items.parts[index], self._frames
        first, frames.number = frames.number, frames.number + len(texts)
        held.pieces += texts
        if len(held.pieces) > _LOOSE:
            held.pieces.settle()
        numbers = _NUMBERED[first : frames.number]
        if frames.number > _COUNTED:
            numbers = [b'%d,"delta":' % number for number in range(first, frames.number)]
        said = b"".join(chain.from_iterable(zip(repeat(_END + held.head), numbers, map(_json, texts))))
        return said[len(_END) :] + _END

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if type(event) is ResponseStart:
            self._plan.home = event.origin == FAMILY
        methods = self._METHODS
        if self._plan.home:
            return methods[type(event)](self, event)
        return b"".join([methods[type(one)](self, one) for one in self._sequence.order(event)])

    def close(self) -> bytes:
        if self._ended:
            return b""
        methods = self._METHODS
        waiting = b"".join([methods[type(event)](self, event) for event in self._sequence.close()])
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    # ---- the beginning

    def _begin(self, event: ResponseStart) -> bytes:
        self._plan.home = event.origin == FAMILY
        self._plan.seed = seed_of(event.id, self._context)
        self._start = event
        return b"" if self._plan.home else self._announce()

    def _announce(self) -> bytes:
        """The first events. At home those of the source, if it passes them on."""
        if self._announced:
            return b""
        self._announced = True
        start = self._start
        body = start_body(start, self._plan, self._context) | {"status": "in_progress", "output": []}
        finish(body, start, self._plan)
        told = Raw(_json(body))
        opened = self._frames.write("response.created", response=told)
        return opened + self._frames.write("response.in_progress", response=told)

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        if not self._plan.home or not event.extras or FAMILY not in event.extras:
            return b""
        before = b"" if event.kind == "created" else self._announce()
        self._announced = True
        body: dict[str, Any] = dict(_members(event.extras[FAMILY]["frame"]))
        kind = str(msgspec.json.decode(body.pop("type", b'""')))
        body.pop("sequence_number", None)
        if kind == "response.output_item.added" and "output_index" in body:
            self._items.shown.add(msgspec.json.decode(body["output_index"]))
        return before + self._frames.write(kind, **body)

    # ---- the middle

    def _message_start(self, event: MessageStart) -> bytes:
        if event.candidate == 0:
            self._items.message_start(event)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        return self._announce() + self._items.part_start(event)

    def _delta(self, event: PartDelta) -> bytes:
        return self._items.part_delta(event) if event.candidate == 0 else b""

    def _part_end(self, event: PartEnd) -> bytes:
        return self._items.part_end(event) if event.candidate == 0 else b""

    def _message_end(self, event: MessageEnd) -> bytes:
        return self._items.message_end(event) if event.candidate == 0 else b""

    def _stopped(self, event: Stopped) -> bytes:
        if event.candidate == 0:
            self._stop = event.stop
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    # ---- the end

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        opening = self._announce()
        cut = not self._plan.home and is_cut(self._stop, refused=self._items.refused)
        closing = opening + self._items.close(cut=cut)
        body = self._terminal(event)
        if self._plan.home and event.status is not None:
            body["status"] = event.status
        encode_held(event.continuation, body, self._plan)
        finish(body, event, self._plan)
        kind = body["status"] if body["status"] in _TERMINALS else "completed"
        return closing + self._frames.write(f"response.{kind}", response=body)

    def _terminal(self, event: ResponseEnd | ResponseFailed) -> dict[str, Any]:
        body = start_body(self._start, self._plan, self._context)
        output = self._items.output
        if event.extras is None:
            finish(body, self._start, self._plan)  # of an answer that came whole
        body |= {"status": "completed", "output": [output[index] for index in sorted(output)]}
        encode_stop(self._stop, body, self._plan)
        if self._usage is not None or not self._plan.home:
            body["usage"] = encode_usage(self._usage or Usage(), self._plan)
        encode_counts(self._usage, body, self._plan)
        return body

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        if self._plan.home and is_event(event.error):
            return frame(encode_error(event.error).to_bytes(), b"error")
        opening = self._announce() + self._items.close_whole()
        body = self._terminal(event)
        body |= {"status": event.status or "failed", "error": encode_failure(event.error, self._plan)}
        finish(body, event, self._plan)
        return opening + self._frames.write("response.failed", response=body)

    _METHODS: ClassVar[dict[type, Callable[..., bytes]]] = {
        PartDelta: _delta,
        ResponseStart: _begin,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        Stopped: _stopped,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end,
        ResponseFailed: _fail,
    }


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
