"""Anthropic's event stream, to canonical events and back.

    message_start  (content_block_start content_block_delta* content_block_stop | ping)*  message_delta+  message_stop

1. One frame is one event or two, and home again one frame: `Stopped` and `UsageReport` are the two halves of
   `message_delta`, and `MessageEnd` and `ResponseEnd` those of `message_stop`.
2. Blocks follow one another; the wire index is the encoder's own count.
3. The input of a call arrives as text; no text at all means `{}`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Foreign, Reasoning, Seal, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
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
from toolwire.codec.fields import Other, Reader, as_object, joined, known, rest, restore, tag_of
from toolwire.codec.interface import Context, StreamDecoder, StreamEncoder, Target
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import SseSplitter, frame
from toolwire.codec.turns import Placed

from .calls import sealed_carry
from .parts import decode_blocks, decode_citation, encode_citation, encode_parts
from .request import RULES
from .response import (
    decode_error,
    decode_stop,
    decode_usage,
    encode_error,
    encode_stop,
    encode_usage,
    message_id,
)
from .wire import (
    FAMILY,
    BlockDeltaFrame,
    BlockStartFrame,
    BlockStopFrame,
    CitationsDelta,
    ErrorFrame,
    Frame,
    FrameUnion,
    InputDelta,
    MessageDeltaFrame,
    MessageStartFrame,
    MessageStopFrame,
    PingFrame,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UsageShape,
)

_reader = Reader[Any](FrameUnion, FAMILY)
_read_usage = Reader[UsageShape](UsageShape, FAMILY).read
_fast = msgspec.json.Decoder(FrameUnion).decode
_text = msgspec.json.Encoder().encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTAS: dict[type, bytes] = {
    Text: b'"text_delta","text":',
    ToolCall: b'"input_json_delta","partial_json":',
    Reasoning: b'"thinking_delta","thinking":',
}
_IN_DELTA = ("stop_details", "container")


# ---- decode


class Decoder:
    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._started = False
        self._ended = False
        self._open: dict[int, PartStart] = {}
        self._grown: set[int] = set()
        self._last = -1
        self._usage: dict[str, Any] = {}
        self._methods: dict[type, Callable[[Any], list[Event]]] = {
            BlockDeltaFrame: self._delta,
            BlockStartFrame: self._block_start,
            BlockStopFrame: self._block_stop,
            MessageStartFrame: self._message_start,
            MessageDeltaFrame: self._message_delta,
            MessageStopFrame: self._message_stop,
            PingFrame: lambda _: [Notice(kind="ping")],
            ErrorFrame: self._error,
        }

    def feed(self, data: bytes) -> list[Event]:
        return self._read(self._splitter.feed(data))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        if not self._ended:
            self._ended = True
            error = ApiError(kind="server", message="the stream ended before its message did")
            events.append(ResponseFailed(error=error))
        return events

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for data in frames:
            if self._ended:
                break
            try:
                shape = _fast(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                events += self._read_open(data)
                continue
            if type(shape) is BlockDeltaFrame and shape.index is not UNSET:
                delta = shape.delta
                if type(delta) is TextDelta:
                    events.append(PartDelta(index=shape.index, text=delta.text))
                    continue
                if type(delta) is InputDelta and delta.partial_json:
                    self._grown.add(shape.index)
                    events.append(PartDelta(index=shape.index, text=delta.partial_json))
                    continue
            events += self._methods[type(shape)](shape)
        return events

    def _read_open(self, data: bytes) -> list[Event]:
        """A frame with something in it that its shape does not know; an unknown frame says nothing to anybody."""
        try:
            shape = _reader.read(data)
        except DecodeError as error:
            self._ended = True
            return [ResponseFailed(error=ApiError(kind="server", message=str(error)))]
        if isinstance(shape, Other):
            return [Notice(kind="frame", extras={FAMILY: {"frame": shape.body}})]
        return self._methods[type(shape)](shape)

    def _message_start(self, shape: MessageStartFrame) -> list[Event]:
        message = shape.message
        self._started = True
        self._usage = _counts(message.usage)
        envelope = [f"anthropic:absent:{name}" for name in ("type", "role") if getattr(message, name) is UNSET]
        start = ResponseStart(
            origin=FAMILY,
            id=known(message.id),
            model=known(message.model),
            usage=None if message.usage is UNSET else decode_usage(message.usage),
            **rest(message, FAMILY, *envelope),
        )
        return [start, MessageStart()]

    def _begin(self) -> list[Event]:
        """A stream that starts in the middle still has a response."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY), MessageStart()]

    def _block_start(self, shape: BlockStartFrame) -> list[Event]:
        events = self._begin()
        index = self._last + 1 if shape.index is UNSET else shape.index
        self._last = index
        (part,) = decode_blocks([shape.content_block])
        if isinstance(part, ToolCall):
            form = part.form if part.arguments else (*part.form, "anthropic:absent:input")
            part = replace(part, arguments="" if part.arguments in ("{}", "") else part.arguments, form=form)
        start = PartStart(index=index, part=part, **rest(shape, FAMILY))
        self._open[index] = start
        events.append(start)
        return events

    def _delta(self, shape: BlockDeltaFrame) -> list[Event]:
        index = self._last if shape.index is UNSET else shape.index
        delta = shape.delta
        if getattr(delta, "partial_json", ""):
            self._grown.add(index)
        kept: dict[str, Any] = {}
        if shape.unknown is not UNSET or getattr(delta, "unknown", UNSET) is not UNSET:
            kept = joined(rest(shape, FAMILY), rest(delta, FAMILY, under="delta/"))
        if type(delta) is TextDelta:
            return [PartDelta(index=index, text=delta.text, **kept)]
        if type(delta) is InputDelta:
            return [PartDelta(index=index, text=delta.partial_json, **kept)]
        if type(delta) is ThinkingDelta:
            return [PartDelta(index=index, text=delta.thinking, kind="full", **kept)]
        if type(delta) is SignatureDelta:
            seal = Seal(issuer=FAMILY, data=delta.signature, kind="signature")
            return [PartDelta(index=index, seal=seal, **kept)]
        if type(delta) is CitationsDelta:
            return [PartDelta(index=index, annotation=decode_citation(delta.citation), **kept)]
        return self._compacted(index, shape)

    def _compacted(self, index: int, shape: BlockDeltaFrame) -> list[Event]:
        """A compaction arrives whole in one delta, and replaces what its block started with."""
        start = self._open.get(index)
        if start is not None and isinstance(start.part, Foreign):
            body = msgspec.json.decode(start.part.body, type=dict[str, Raw])
            body.update(msgspec.json.decode(msgspec.json.encode(shape.delta), type=dict[str, Raw]))
            body["type"] = Raw(b'"compaction"')
            part = replace(start.part, body=Raw(msgspec.json.encode(body)))
            self._open[index] = replace(start, part=part)
        return [Notice(kind="delta", **_whole(shape))]

    def _block_stop(self, shape: BlockStopFrame) -> list[Event]:
        index = self._last if shape.index is UNSET else shape.index
        start = self._open.pop(index, None)
        events: list[Event] = []
        part = None if start is None else start.part
        if isinstance(part, ToolCall) and not part.arguments and index not in self._grown:
            events.append(PartDelta(index=index, text="{}", form=("anthropic:implied",)))
        final = part if isinstance(part, Foreign) else None
        events.append(PartEnd(index=index, final=final, **rest(shape, FAMILY)))
        return events

    def _message_delta(self, shape: MessageDeltaFrame) -> list[Event]:
        events: list[Event] = []
        kept = joined(rest(shape, FAMILY), rest(shape.delta, FAMILY))
        stop = decode_stop(shape.delta.stop_reason, shape.delta.stop_sequence)
        if stop is not None:
            events.append(Stopped(stop=stop, **kept))
        if shape.usage is not UNSET:
            # Cumulative; only the counts that are there overwrite.
            said = _counts(shape.usage)
            self._usage.update((name, value) for name, value in said.items() if value is not None)
            usage = decode_usage(_read_usage(msgspec.json.encode(self._usage)))
            usage = replace(usage, form=(*usage.form, "anthropic:said:" + ",".join(said)))
            events.append(UsageReport(usage=usage, **({} if stop is not None else kept)))
        return events

    def _message_stop(self, shape: MessageStopFrame) -> list[Event]:
        self._ended = True
        return [MessageEnd(), ResponseEnd(**rest(shape, FAMILY))]

    def _error(self, shape: ErrorFrame) -> list[Event]:
        self._ended = True
        body = {"type": "error", "error": shape.error, **(shape.unknown or {})}
        try:
            error = decode_error(msgspec.json.encode(body), None)
        except DecodeError:
            error = ApiError(kind="server", message=bytes(shape.error).decode(errors="replace"))
        return [ResponseFailed(error=error)]


def _whole(shape: Frame) -> dict[str, Any]:
    return {"extras": {FAMILY: {"frame": Raw(msgspec.json.encode(shape))}}}


def _counts(shape: UsageShape | UnsetType) -> dict[str, Any]:
    """The counts that a frame has, by wire name."""
    if shape is UNSET:
        return {}
    return {**as_object(shape), **(shape.unknown or {})}


# ---- encode


class Encoder:
    def __init__(self, context: Context) -> None:
        self.report = Report()
        self._plan = Plan(RULES, self.report, Target(), home=True, answering=True, carrier=context.carrier)
        self._sequence = Sequence()
        self._index = -1
        self._parts: dict[tuple[int, int], int] = {}
        self._heads: dict[int, bytes] = {}
        self._ended = False
        self._stopped: Stopped | None = None
        self._usage: Usage | None = None
        self._calls = False
        self._thoughts: dict[tuple[int, int], Reasoning] = {}
        self._methods: dict[type, Callable[[Any], bytes]] = {
            ResponseStart: self._start,
            PartStart: self._part_start,
            PartDelta: self._delta,
            PartEnd: self._part_end,
            Stopped: self._stop,
            UsageReport: self._report_usage,
            Notice: self._notice,
            ResponseEnd: self._end,
            ResponseFailed: self._fail,
        }

    def encode(self, events: Iterable[Event]) -> bytes:
        if not self._plan.home:
            events = self._sequence.order(events)
        methods = self._methods
        return b"".join([methods[type(event)](event) for event in events if type(event) in methods])

    def close(self) -> bytes:
        return b"" if self._ended else self._cut()

    def _cut(self) -> bytes:
        waiting = self.encode(list(self._sequence.close()))
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    def _start(self, event: ResponseStart) -> bytes:
        self._plan.home = event.origin == FAMILY
        plan = self._plan
        message: dict[str, Any] = {}
        if event.id is not None or not plan.home:
            message["id"] = message_id(event.id, plan)
        if "anthropic:absent:type" not in event.form:
            message["type"] = "message"
        if "anthropic:absent:role" not in event.form:
            message["role"] = "assistant"
        if event.model is not None or not plan.home:
            message["model"] = event.model or ""
        message["content"] = []
        encode_stop(None, message, plan)
        if event.usage is not None or not plan.home:
            message["usage"] = encode_usage(event.usage or Usage(), plan)
        self._usage = event.usage
        restore(message, event, FAMILY)
        if not plan.home and event.extras:
            self.report.unclaimed(event, (FAMILY,))
        return _frame(b"message_start", {"message": message})

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        part = event.part
        block = self._block(event)
        if block is None:
            return b""
        self._index += 1
        self._parts[event.candidate, event.index] = self._index
        self._heads[self._index] = _DELTA % self._index + _DELTAS.get(type(part), _DELTAS[Text])
        self._calls |= isinstance(part, ToolCall) and part.executor == "client"
        body = restore({"index": self._index, "content_block": block}, event, FAMILY)
        return _frame(b"content_block_start", body)

    def _block(self, event: PartStart) -> Any:
        """The block as it starts: empty where deltas will fill it."""
        part = event.part
        trail = ("candidates", 0, "messages", event.message, "parts", event.index)
        if isinstance(part, Text) and not self._plan.home:
            return {"type": "text", "text": part.text}
        if isinstance(part, Reasoning) and not self._plan.home and (part.seal is None or part.seal.issuer != FAMILY):
            self._thoughts[event.candidate, event.index] = part
            return {"type": "thinking", "thinking": "", "signature": ""}
        if isinstance(part, ToolCall):
            whole = replace(part, arguments=part.arguments or "{}")
            block = encode_parts([Placed(whole, trail)], self._plan)[0]
            if self._plan.home and "anthropic:absent:input" in part.form:
                block.input = UNSET
            return block
        blocks = encode_parts([Placed(part, trail)], self._plan)
        return blocks[0] if blocks else None

    def _delta(self, event: PartDelta) -> bytes:
        index = self._parts.get((event.candidate, event.index))
        if index is None:
            return b""
        if event.extras or event.form or event.seal is not None or event.annotation is not None:
            return self._rare_delta(event, index)
        return b"%b%b}}\n\n" % (self._heads[index], _text(event.text))

    def _rare_delta(self, event: PartDelta, index: int) -> bytes:
        if event.extras and self._plan.home:
            return self._delta_with_extras(event, index)
        if event.form:
            return b""
        head = _DELTA % index
        if event.seal is not None:
            if event.seal.issuer != FAMILY:
                self._sealed(event)
                return b""
            return b'%b"signature_delta","signature":%b}}\n\n' % (head, _text(event.seal.data))
        if event.annotation is not None:
            if not self._plan.home:
                return b""
            return b'%b"citations_delta","citation":%b}}\n\n' % (
                head,
                _text(encode_citation(event.annotation)),
            )
        return b"%b%b}}\n\n" % (self._heads[index], _text(event.text))

    def _delta_with_extras(self, event: PartDelta, index: int) -> bytes:
        plain = self._delta(replace(event, extras=None))
        body = msgspec.json.decode(plain.partition(b"\ndata: ")[2], type=dict[str, Any])
        del body["type"]
        return _frame(b"content_block_delta", restore(body, event, FAMILY))

    def _sealed(self, event: PartDelta) -> None:
        key = (event.candidate, event.index)
        if key in self._thoughts:
            self._thoughts[key] = replace(self._thoughts[key], seal=event.seal)

    def _signature(self, event: PartEnd, index: int) -> bytes:
        """The proof of another issuer's reasoning, as the signature of the block that shows it."""
        part = self._thoughts.pop((event.candidate, event.index), None)
        if isinstance(event.final, Reasoning):
            part = event.final
        if part is None or self._plan.home or part.seal is None or part.seal.issuer == FAMILY:
            return b""
        trail = ("candidates", 0, "messages", 0, "parts", 0)
        signature = sealed_carry(part, trail, self._plan)
        body = {"index": index, "delta": {"type": "signature_delta", "signature": signature}}
        return _frame(b"content_block_delta", body) if signature else b""

    def _part_end(self, event: PartEnd) -> bytes:
        index = self._parts.pop((event.candidate, event.index), None)
        if index is None:
            return b""
        return self._signature(event, index) + _frame(b"content_block_stop", restore({"index": index}, event, FAMILY))

    def _stop(self, event: Stopped) -> bytes:
        if event.candidate == 0:
            self._stopped = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return self._message_delta(event) if self._plan.home else b""

    def _message_delta(self, event: UsageReport | None) -> bytes:
        delta: dict[str, Any] = {}
        body: dict[str, Any] = {"delta": delta}
        stop = None if self._stopped is None else self._stopped.stop
        if stop is None and not self._plan.home:
            stop = Stop(reason="tool_use" if self._calls else "end_turn")
        encode_stop(stop, delta, self._plan)
        usage = self._usage if event is None else event.usage
        if usage is not None or not self._plan.home:
            body["usage"] = self._said(encode_usage(usage or Usage(), self._plan), usage)
        for node in (self._stopped, event):
            if node is not None and node.extras:
                for name, value in node.extras.get(FAMILY, {}).items():
                    (delta if name in _IN_DELTA else body).setdefault(name, value)
            for token in node.form if node is not None else ():
                if token.startswith("anthropic:null:"):
                    name = token.removeprefix("anthropic:null:")
                    (body if name == "context_management" else delta).setdefault(name, None)
        self._stopped = None
        return _frame(b"message_delta", body)

    def _said(self, whole: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
        """At home only the counts that the frame had."""
        for token in usage.form if usage is not None else ():
            if token.startswith("anthropic:said:"):
                names = token.removeprefix("anthropic:said:").split(",")
                return {name: whole.get(name) for name in names if name}
        return whole

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return _frame(b"ping", {})
        if self._plan.home and event.extras and (body := event.extras.get(FAMILY, {}).get("frame")) is not None:
            return frame(bytes(body), (tag_of(body) or "").encode())
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        closing = self._message_delta(None) if self._stopped is not None or not self._plan.home else b""
        return closing + _frame(b"message_stop", restore({}, event, FAMILY))

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        body = encode_error(event.error).body
        return frame(msgspec.json.encode(body), b"error")


def _frame(kind: bytes, body: dict[str, Any]) -> bytes:
    return frame(msgspec.json.encode({"type": kind.decode(), **body}), kind)


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
