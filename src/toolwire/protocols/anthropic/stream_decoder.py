"""Decode Anthropic's SSE stream into canonical events.

    message_start  (content_block_start content_block_delta* content_block_stop | ping)*  message_delta+  message_stop

1. A frame becomes one or two events, which encode back into one frame: `CandidateEnd` and `UsageReport` are the two
   halves of `message_delta`, and `MessageEnd` and `ResponseEnd` those of `message_stop`.
2. Blocks do not interleave. The encoder numbers them itself.
3. The input of a tool call arrives as text; no text at all means `{}`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, Signature, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN_FRAME,
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
from toolwire.codec.fast_path import FrameDecoder, TextMember
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import as_dict, collect_extras, merge_extras, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, UnknownVariant, decode_json
from toolwire.protocols.anthropic.errors import decode_error
from toolwire.protocols.anthropic.parts.content import decode_blocks, decode_citation
from toolwire.protocols.anthropic.response import decode_stop, decode_usage
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    BlockDeltaFrame,
    BlockStartFrame,
    BlockStopFrame,
    CitationsDelta,
    ErrorFrame,
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

_frame_reader = Reader[Any](FrameUnion, FAMILY)
_read_usage = Reader[UsageShape](UsageShape, FAMILY).read
_decode_typed = msgspec.json.Decoder(FrameUnion).decode
_TEXT_MEMBERS: dict[type, TextMember] = {
    TextDelta: TextMember("text"),
    InputDelta: TextMember("partial_json"),
    ThinkingDelta: TextMember("thinking"),
}


class Decoder(FrameDecoder):
    """Decode one response; bytes may be split anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._splitter = SseSplitter()
        self._started = False
        self._open_parts: dict[int, PartStart] = {}
        self._received_input: set[int] = set()  # blocks with input deltas
        self._last_index = -1  # of the last block, for frames without an index
        self._usage: UsageShape | UnsetType = UNSET  # merged over all frames
        self._fallback_model: str | None = None  # set if another model took over

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events; an invalid stream yields `ResponseFailed`."""
        try:
            return self._read(self._splitter.complete_frames(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def close(self) -> list[Event]:
        """Decode the buffered bytes; return a failure event if `message_stop` has not arrived."""
        events = self._read(self._splitter.complete_frames(self._splitter.take_rest()))
        if self._ended:
            return events
        return events + self._fail_stream("the stream ended before the response was complete")

    def _read_frame(self, frame: bytes, data: bytes, events: list[Event]) -> None:
        """Append the events of one frame with this data to `events`; set the template if it gives one."""
        try:
            shape = _decode_typed(data)
        except JSON_ERRORS:
            events += self._decode_untyped(data)
            return
        decoded = self._decode_frame(shape)
        events += decoded
        if decoded and type(event := decoded[0]) is PartDelta and type(shape) is BlockDeltaFrame:
            member = _TEXT_MEMBERS.get(type(shape.delta))
            self._template = None if member is None else member.template(frame, event)

    def _decode_frame(self, shape: Any) -> list[Event]:
        """Decode one frame by its type."""
        try:
            return self._HANDLERS[type(shape)](self, shape)
        except (DecodeError, UnicodeDecodeError) as error:
            return self._fail_stream(str(error))

    def _decode_untyped(self, data: bytes) -> list[Event]:
        """Decode a frame with fields that its wire object lacks; frames of unknown type become notices."""
        try:
            shape = _frame_reader.read(data)
        except DecodeError as error:
            return self._fail_stream(str(error))
        if isinstance(shape, UnknownVariant):
            return [Notice(kind=UNKNOWN_FRAME, extras={FAMILY: {"frame": shape.body}})]
        return self._decode_frame(shape)

    def _message_start(self, shape: MessageStartFrame) -> list[Event]:
        """Decode `message_start`."""
        message = shape.message
        self._started = True
        self._usage = message.usage
        wire_form = [f"anthropic:absent:{name}" for name in ("type", "role") if getattr(message, name) is UNSET]
        start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(message.id),
            model=unset_to_none(message.model),
            usage=None if message.usage is UNSET else decode_usage(message.usage),
            **collect_extras(message, FAMILY, *wire_form),
        )
        return [start, MessageStart()]

    def _ensure_started(self) -> list[Event]:
        """Return start events if the stream begins without `message_start`."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY), MessageStart()]

    def _block_start(self, shape: BlockStartFrame) -> list[Event]:
        """Decode `content_block_start`."""
        events = self._ensure_started()
        index = self._last_index + 1 if shape.index is UNSET else shape.index
        self._last_index = index
        (part,) = decode_blocks([shape.content_block])
        if isinstance(part, OpaquePart) and part.kind == "fallback":
            self._fallback_model = _fallback_model(part)
        if isinstance(part, ToolCall):
            wire_form = part.wire_form if part.arguments else (*part.wire_form, "anthropic:absent:input")
            part = replace(part, arguments="" if part.arguments in ("{}", "") else part.arguments, wire_form=wire_form)
        start = PartStart(index=index, part=part, **collect_extras(shape, FAMILY))
        self._open_parts[index] = start
        events.append(start)
        return events

    def _delta(self, shape: BlockDeltaFrame) -> list[Event]:
        """Decode a `content_block_delta`."""
        index = self._last_index if shape.index is UNSET else shape.index
        delta: Any = shape.delta
        if isinstance(delta, UnknownVariant):
            return [Notice(kind="delta", **_frame_extras(shape, delta.body))]
        if getattr(delta, "partial_json", ""):
            self._received_input.add(index)
        extras: dict[str, Any] = {}
        if shape.unknown is not UNSET or getattr(delta, "unknown", UNSET) is not UNSET:
            extras = merge_extras(collect_extras(shape, FAMILY), collect_extras(delta, FAMILY, prefix="delta/"))
        if type(delta) is TextDelta:
            return [PartDelta(index=index, text=delta.text, **extras)]
        if type(delta) is InputDelta:
            return [PartDelta(index=index, text=delta.partial_json, **extras)]
        if type(delta) is ThinkingDelta:
            return [PartDelta(index=index, text=delta.thinking, kind="full", **extras)]
        if type(delta) is SignatureDelta:
            signature = Signature(issuer=FAMILY, data=delta.signature, kind="signature")
            return [PartDelta(index=index, signature=signature, **extras)]
        if type(delta) is CitationsDelta:
            return [PartDelta(index=index, annotation=decode_citation(delta.citation), **extras)]
        return self._compaction_delta(index, shape)

    def _compaction_delta(self, index: int, shape: BlockDeltaFrame) -> list[Event]:
        """Merge a `compaction_delta`, which holds the complete compaction, into its open block."""
        start = self._open_parts.get(index)
        if start is not None and isinstance(start.part, OpaquePart):
            body = msgspec.json.decode(start.part.body, type=dict[str, Raw])
            body.update(msgspec.json.decode(msgspec.json.encode(shape.delta), type=dict[str, Raw]))
            body["type"] = Raw(b'"compaction"')
            part = replace(start.part, body=Raw(msgspec.json.encode(body)))
            self._open_parts[index] = replace(start, part=part)
        delta = {**as_dict(shape.delta), **(shape.delta.unknown or {})}
        return [Notice(kind="delta", **_frame_extras(shape, delta))]

    def _block_stop(self, shape: BlockStopFrame) -> list[Event]:
        """Decode `content_block_stop`; a call without input gets `{}`."""
        index = self._last_index if shape.index is UNSET else shape.index
        start = self._open_parts.pop(index, None)
        events: list[Event] = []
        part = None if start is None else start.part
        if isinstance(part, ToolCall) and not part.arguments and index not in self._received_input:
            events.append(PartDelta(index=index, text="{}", wire_form=("anthropic:implied",)))
        final = part if isinstance(part, OpaquePart) else None
        events.append(PartEnd(index=index, final=final, **collect_extras(shape, FAMILY)))
        return events

    def _message_delta(self, shape: MessageDeltaFrame) -> list[Event]:
        """Decode `message_delta` into stop reason and usage."""
        events: list[Event] = []
        extras = merge_extras(collect_extras(shape, FAMILY), collect_extras(shape.delta, FAMILY))
        stop = decode_stop(shape.delta.stop_reason, shape.delta.stop_sequence)
        if stop is not None:
            events.append(CandidateEnd(stop=stop, **extras))
        if shape.usage is not UNSET:
            counts = _usage_counts(shape.usage)
            self._usage = _merge_usage(self._usage, shape.usage, counts)
            usage = decode_usage(self._usage, "anthropic:explicit:" + ",".join(counts))
            events.append(UsageReport(usage=usage, **({} if stop is not None else extras)))
        return events

    def _message_stop(self, shape: MessageStopFrame) -> list[Event]:
        """Decode `message_stop`."""
        self._ended = True
        return [MessageEnd(), ResponseEnd(model=self._fallback_model, **collect_extras(shape, FAMILY))]

    def _error(self, shape: ErrorFrame) -> list[Event]:
        """Decode an `error` frame, which ends the stream."""
        self._ended = True
        body = {"type": "error", "error": shape.error, **(shape.unknown or {})}
        try:
            error = decode_error(msgspec.json.encode(body), None)
        except DecodeError:
            error = ApiError(kind="server", message=bytes(shape.error).decode(errors="replace"))
        return [ResponseFailed(error=error)]

    _HANDLERS: ClassVar[dict[type, Callable[..., list[Event]]]] = {
        BlockDeltaFrame: _delta,
        BlockStartFrame: _block_start,
        BlockStopFrame: _block_stop,
        MessageStartFrame: _message_start,
        MessageDeltaFrame: _message_delta,
        MessageStopFrame: _message_stop,
        PingFrame: lambda _self, _shape: [Notice(kind="ping")],
        ErrorFrame: _error,
    }


def _frame_extras(shape: BlockDeltaFrame, delta: Any) -> dict[str, Any]:
    """Return an `extras` argument that holds the complete delta frame, to be restored for Anthropic clients."""
    body = {**as_dict(shape), "delta": delta, **(shape.unknown or {})}
    return {"extras": {FAMILY: {"frame": Raw(msgspec.json.encode(body))}}}


def _fallback_model(fallback: OpaquePart) -> str | None:
    """Return the name of the model that takes over after a `fallback` block, None if it is not given."""
    match decode_json(fallback.body):
        case {"to": {"model": str(model)}}:
            return model
        case _:
            return None


def _merge_usage(previous: UsageShape | UnsetType, shape: UsageShape, counts: dict[str, Any]) -> UsageShape:
    """Merge counts into earlier ones: they are cumulative, and absent ones keep their value."""
    present = {name: value for name, value in counts.items() if value is not None}
    if previous is not UNSET and previous.unknown is UNSET and previous.nulls is UNSET and shape.unknown is UNSET:
        return replace(previous, **present)
    return _read_usage(msgspec.json.encode(_usage_counts(previous) | present))


def _usage_counts(shape: UsageShape | UnsetType) -> dict[str, Any]:
    """Return the counts of a frame by wire name."""
    if shape is UNSET:
        return {}
    return {**as_dict(shape), **(shape.unknown or {})}


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Return a decoder for one response."""
    return Decoder()
