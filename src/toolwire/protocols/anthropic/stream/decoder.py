"""Anthropic's event stream, to canonical events and back.

    message_start  (content_block_start content_block_delta* content_block_stop | ping)*  message_delta+  message_stop

1. One frame is one event or two, and home again one frame: `Stopped` and `UsageReport` are the two halves of
   `message_delta`, and `MessageEnd` and `ResponseEnd` those of `message_stop`.
2. Blocks follow one another; the wire index is the encoder's own count.
3. The input of a call arrives as text; no text at all means `{}`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Foreign, Seal, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN,
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
from toolwire.codec.fields import BAD_JSON, Other, Reader
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import as_object, joined, known, rest
from toolwire.codec.sse import SseSplitter, data_of
from toolwire.protocols.anthropic.parts.citations import decode_citation
from toolwire.protocols.anthropic.parts.content import decode_blocks
from toolwire.protocols.anthropic.response.body import (
    decode_stop,
    decode_usage,
)
from toolwire.protocols.anthropic.response.errors import decode_error
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

_reader = Reader[Any](FrameUnion, FAMILY)
_read_usage = Reader[UsageShape](UsageShape, FAMILY).read
_fast = msgspec.json.Decoder(FrameUnion).decode
_string = msgspec.json.Decoder(str).decode
_ENDS = b"}}"
_NOTHING = b"\n\n"  # no frame begins with it


def _head(data: bytes, text: str) -> bytes:
    """What stands before the text of a delta that ends with it: the next deltas mostly begin alike, and then only their
    text is read. Something that no frame begins with, if this one is not like that."""
    for key in (b'"text":', b'"partial_json":'):
        before, found, literal = data.partition(key)
        if found and literal[-2:] == _ENDS:
            try:
                if _string(literal[:-2]) == text:
                    return before + found
            except BAD_JSON:
                pass
    return _NOTHING


class Decoder:
    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._started = False
        self._ended = False
        self._open: dict[int, PartStart] = {}
        self._alike = _NOTHING
        self._growing = 0
        self._grown: set[int] = set()
        self._last = -1
        self._usage: UsageShape | UnsetType = UNSET
        self._model: str | None = None

    def feed(self, data: bytes) -> list[Event]:
        try:
            return self._read(self._splitter.ended(data, _ENDS))
        except ValueError as error:
            return self._fail(str(error))

    def _fail(self, why: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close_ended(_ENDS))
        return events if self._ended else events + self._fail("the stream ended before its message did")

    def _read(self, pieces: list[bytes]) -> list[Event]:
        events: list[Event] = []
        if self._ended:
            return events
        alike, size, grown = self._alike, len(self._alike), self._growing
        last = pieces.pop()
        for piece in pieces:
            if piece.startswith(alike):
                try:  # no text goes on over the end of a line, so that this is all of one frame
                    events.append(PartDelta(index=grown, text=_string(piece[size:]), plain=True))
                    continue
                except BAD_JSON:
                    pass
            self._read_frames(piece + _ENDS, events)
            if self._ended:
                return events
            alike, size, grown = self._alike, len(self._alike), self._growing
        if last:
            self._read_frames(last, events)
        return events

    def _read_frames(self, frames: bytes, events: list[Event]) -> None:
        for frame in frames.split(b"\n\n"):
            if self._ended:
                return
            if (data := data_of(frame)) is None:
                continue
            try:
                shape = _fast(data)
            except BAD_JSON:
                events += self._read_open(data)
                continue
            if type(shape) is BlockDeltaFrame and (index := shape.index) is not UNSET:
                delta = shape.delta
                text = None
                if type(delta) is TextDelta:
                    text = delta.text
                elif type(delta) is InputDelta and delta.partial_json:
                    text = delta.partial_json
                    self._grown.add(index)
                if text is not None:
                    events.append(PartDelta(index=index, text=text, plain=True))
                    self._alike, self._growing = _head(frame, text), index
                    continue
            events += self._told(shape)

    def _told(self, shape: Any) -> list[Event]:
        try:
            return self._METHODS[type(shape)](self, shape)
        except (DecodeError, UnicodeDecodeError) as error:
            return self._fail(str(error))

    def _read_open(self, data: bytes) -> list[Event]:
        """A frame with something in it that its shape does not know; an unknown frame says nothing to anybody."""
        try:
            shape = _reader.read(data)
        except DecodeError as error:
            return self._fail(str(error))
        if isinstance(shape, Other):
            return [Notice(kind=UNKNOWN, extras={FAMILY: {"frame": shape.body}})]
        return self._told(shape)

    def _message_start(self, shape: MessageStartFrame) -> list[Event]:
        message = shape.message
        self._started = True
        self._usage = message.usage
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
        if isinstance(part, Foreign) and part.kind == "fallback":
            self._model = _model_after(part)
        if isinstance(part, ToolCall):
            form = part.form if part.arguments else (*part.form, "anthropic:absent:input")
            part = replace(part, arguments="" if part.arguments in ("{}", "") else part.arguments, form=form)
        start = PartStart(index=index, part=part, **rest(shape, FAMILY))
        self._open[index] = start
        events.append(start)
        return events

    def _delta(self, shape: BlockDeltaFrame) -> list[Event]:
        index = self._last if shape.index is UNSET else shape.index
        delta: Any = shape.delta
        if isinstance(delta, Other):
            return [Notice(kind="delta", **_whole(shape, delta.body))]
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
        delta = {**as_object(shape.delta), **(shape.delta.unknown or {})}
        return [Notice(kind="delta", **_whole(shape, delta))]

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
            said = _counts(shape.usage)
            self._usage = _overwritten(self._usage, shape.usage, said)
            usage = decode_usage(self._usage, "anthropic:said:" + ",".join(said))
            events.append(UsageReport(usage=usage, **({} if stop is not None else kept)))
        return events

    def _message_stop(self, shape: MessageStopFrame) -> list[Event]:
        self._ended = True
        return [MessageEnd(), ResponseEnd(model=self._model, **rest(shape, FAMILY))]

    def _error(self, shape: ErrorFrame) -> list[Event]:
        self._ended = True
        body = {"type": "error", "error": shape.error, **(shape.unknown or {})}
        try:
            error = decode_error(msgspec.json.encode(body), None)
        except DecodeError:
            error = ApiError(kind="server", message=bytes(shape.error).decode(errors="replace"))
        return [ResponseFailed(error=error)]

    _METHODS: ClassVar[dict[type, Callable[..., list[Event]]]] = {
        BlockDeltaFrame: _delta,
        BlockStartFrame: _block_start,
        BlockStopFrame: _block_stop,
        MessageStartFrame: _message_start,
        MessageDeltaFrame: _message_delta,
        MessageStopFrame: _message_stop,
        PingFrame: lambda _self, _shape: [Notice(kind="ping")],
        ErrorFrame: _error,
    }


def _whole(shape: BlockDeltaFrame, delta: Any) -> dict[str, Any]:
    body = {**as_object(shape), "delta": delta, **(shape.unknown or {})}
    return {"extras": {FAMILY: {"frame": Raw(msgspec.json.encode(body))}}}


def _model_after(fallback: Foreign) -> str | None:
    """The model that takes over: from here on it is the one that answers."""
    match msgspec.json.decode(fallback.body):
        case {"to": {"model": str(model)}}:
            return model
        case _:
            return None


def _overwritten(before: UsageShape | UnsetType, shape: UsageShape, said: dict[str, Any]) -> UsageShape:
    """Counts are cumulative; only those that are there overwrite."""
    told = {name: value for name, value in said.items() if value is not None}
    if before is not UNSET and before.unknown is UNSET and before.nulls is UNSET and shape.unknown is UNSET:
        return replace(before, **told)
    return _read_usage(msgspec.json.encode(_counts(before) | told))


def _counts(shape: UsageShape | UnsetType) -> dict[str, Any]:
    """The counts that a frame has, by wire name."""
    if shape is UNSET:
        return {}
    return {**as_object(shape), **(shape.unknown or {})}


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()
