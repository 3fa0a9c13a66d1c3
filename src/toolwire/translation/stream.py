"""Translate a stream between protocols as it arrives, with every loss reported."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, Loss, LossyTranslationError
from toolwire.canonical.events import (
    UNKNOWN_FRAME,
    Event,
    Notice,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    separate_deltas,
)
from toolwire.canonical.fold import ResponseAccumulator
from toolwire.canonical.response import Response
from toolwire.codec.framing import FrameSplitter, escape_line_separators, frame_data
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.codec.losses import NO_EQUIVALENT, LossReport, SourcePath, foreign_extras, holds_constraint
from toolwire.codec.wire.reader import decode_members, escape_pointer
from toolwire.translation.event_stream import StreamProgress
from toolwire.translation.pipeline import Stage, response_stages, run_stages
from toolwire.translation.stages.envelopes import EnvelopeStage
from toolwire.translation.stages.failures import without_error
from toolwire.translation.stages.tool_call_parsers.text_recovery import (
    LIMIT_UNREAD,
    TextRecoveryStage,
    report_recovered,
)

_UNNAMED_FRAME = Raw(b"frame")


class FrameFieldLosses:
    """Collects stream fields that would be lost unnoticed: those of single frames, and unknown frames.

    The response that all events amount to has no place for them.
    """

    def __init__(self, families: tuple[str, ...]) -> None:
        self._families = families
        self._paths: dict[tuple[int, int], SourcePath] = {}
        self._counts: dict[SourcePath, int] = {}
        self._fields: dict[tuple[SourcePath, str], None] = {}
        self._frames: dict[str, None] = {}

    def add_all(self, events: Iterable[Event]) -> None:
        """Collect the fields of events that belong to none of the target's protocol families."""
        for event in events:
            if isinstance(event, PartStart):
                message = ("candidates", event.candidate, "messages", event.message)
                position = self._counts.get(message, 0)
                self._counts[message] = position + 1
                self._paths[event.candidate, event.index] = (*message, "parts", position)
            if not event.extras:
                continue
            if isinstance(event, PartStart | PartDelta | PartEnd):
                path = self._paths.get((event.candidate, event.index), ())
                for family, fields in event.extras.items():
                    if family not in self._families:
                        self._fields.update(dict.fromkeys([(path, key) for key in fields]))
            elif isinstance(event, Notice) and event.kind == UNKNOWN_FRAME:
                self._add_frame(event)

    def _add_frame(self, event: Notice) -> None:
        """Collect the type of a frame that the decoder does not know."""
        for family, fields in (event.extras or {}).items():
            if family not in self._families:
                members = decode_members(fields["frame"])
                name = members.get("type", members.get("event_type", _UNNAMED_FRAME))
                self._frames[bytes(name).decode().strip('"')] = None

    def report(self, response: Response, report: LossReport) -> None:
        """Report everything collected that is not in `response` as well, which all events amount to."""
        for name in self._frames:
            report.dropped((), "//" + escape_pointer(name), "unknown stream event", severity="warning")
        if not self._fields:
            return
        foreign = foreign_extras(response, self._families)
        folded = {key.partition("/")[0] for _, _, fields in foreign for key in fields}
        for path, key in self._fields:
            if key.removeprefix("delta/") not in folded:
                report.dropped(path, "//" + key, NO_EQUIVALENT)


_DONE_MARKER = b"[DONE]"
_DELTA_TYPES = (PartDelta, PartDeltas)
_MAX_UNENCODED = 64
"""Limit of forwarded events that are not yet encoded; only a stream that breaks off needs them."""


class StreamTranslator(StreamProgress):
    """Translates one stream: bytes in, bytes out.

    After its terminal event a stream produces nothing more, and further input is not decoded. `losses` and `error` are
    complete once it is closed. A stream between equal protocols without any mapping is forwarded frame by frame.

    Args:
        reader: The codec of the incoming stream.
        writer: The codec of the outgoing stream.
        context: The client's request and the mapping of its tools.
        transform: Receives all events first, and returns those to continue with.
        collects_response: Makes `response` available, also between equal protocols.
        redact: Rewrites failures before they are passed on.
        observe: These receive all events as the client gets them.

    """

    def __init__(
        self,
        reader: Codec,
        writer: Codec,
        context: ResponseContext,
        *,
        transform: Callable[[list[Event]], list[Event]] | None = None,
        collects_response: bool = False,
        redact: Callable[[ResponseFailed], ResponseFailed] | None = None,
        observe: Sequence[Callable[[list[Event]], None]] = (),
    ) -> None:
        super().__init__(reader)
        self._observe_events = observe
        self._context = context
        self._writer = writer
        self._decoder = reader.stream_decoder(context)
        self._encoder = writer.stream_encoder(context)
        self._same_protocol = reader is writer
        recovery = context.text_recovery
        self._recovery = None if recovery is None else TextRecoveryStage(context, recovery)
        self._transform = transform
        self._redact = redact
        self._accumulator = ResponseAccumulator() if collects_response or not self._same_protocol else None
        self._frame_fields = None if self._same_protocol else FrameFieldLosses(writer.families)
        self._closed = False
        self._losses: list[Loss] | None = None
        self._frames: FrameSplitter | None = None
        if self._same_protocol and transform is None and context.mapping.is_empty:
            self._frames = FrameSplitter(lines=not writer.surface.stream_type.endswith("event-stream"))
        # Whether nothing here depends on the text of forwarded frames.
        self._ignores_deltas = not observe and self._accumulator is None and not writer.end_event_repeats_response
        self._filter = None if self._frames is None else writer.frame_filter(context)
        self._received_data = self._done_marker_sent = False
        self._unencoded: list[Event] = []
        self._first_frames = b""
        self._held_frames = b""  # whose text may turn out to hold a call
        self._held_events: list[Event] = []  # of these frames
        self._recovered_events: list[Event] = []  # the same, as they go out if it does
        self._encodes_frames = False  # the stream has changed, so that frames are no longer forwarded

    @cached_property
    def _stages(self) -> list[Stage]:
        """Return the stages of the response, created on first use: most forwarded streams need none."""
        return response_stages(self._reader, self._writer, self._context)

    def feed(self, data: bytes) -> bytes:
        """Translate the next bytes to the frames that they complete."""
        if self._frames is not None:
            return self._forward_data(data, self._frames)
        return b"" if self._finished else self._process(self._decoder.feed(data))

    def continue_with_new_stream(self) -> None:
        """Expect the next bytes from another upstream stream, which continues the response."""
        self._decoder = self._reader.stream_decoder(self._context)

    def flush_decoder(self) -> bytes:
        """Translate what the decoder buffered, at the end of a stream that another may continue."""
        if self._frames is not None:
            return self._close_frames(self._frames)
        return b"" if self._finished else self._process(self._decoder.close())

    def inject(self, *events: Event) -> bytes:
        """Translate events that the gateway adds to the stream."""
        return self._process(list(events))

    def translate_events(self, events: Iterable[Event]) -> bytes:
        """Translate a response that did not arrive as a stream."""
        return self._process(list(events)) + self.end()

    def fail(self, error: ApiError) -> bytes:
        """Return the frames that end the stream with this error, because the connection broke."""
        return self._end_with_failure(ResponseFailed(error=error, broken=True)) + self.end()

    def close(self) -> bytes:
        """Return the frames of what is still buffered, and the end of the stream."""
        return self.flush_decoder() + self.end()

    def end(self) -> bytes:
        """Return the frames that end the outgoing stream."""
        self._closed = True
        if self._finished:
            return b""
        if self._writer.end_event_repeats_response:
            self._encode_forwarded()
        return escape_line_separators(self._encoder.close())

    @property
    def losses(self) -> list[Loss]:
        """Return the losses of the complete response; empty until the stream has ended."""
        if self._losses is None:
            if not self._closed:
                return []
            self._losses = self._find_losses()
        return self._losses

    def _find_losses(self) -> list[Loss]:
        """Compute the losses from the complete response that all events of the stream amount to."""
        has_recovered = self._recovery is not None and self._recovery.has_changed
        if self._accumulator is None or (self._same_protocol and not self._encoder.report and not has_recovered):
            return []  # same protocol: nothing is lost
        response, writer, failed = self._accumulator.response(), self._writer, self._failed
        if failed is not None and failed.status is None and failed.error.at is None:
            response = replace(response, error=replace(failed.error, at=""))  # the error has a frame of its own
        if response.origin in writer.families:
            report = self._encoder.report
            report.report_foreign_extras(response, writer.families)
        else:
            # A stream ends with an error event, not with a failed response or its stop reason.
            without_failure = response if response.error is None else without_error(response)
            report = writer.encode_response(without_failure, self._context).report
            if response.error is not None:
                report.include(writer.encode_error(response.error).report, ("error",))
        for stage in self._stages:
            if isinstance(stage, EnvelopeStage):
                for path in stage.messages_without_id:
                    report.dropped(path, "id")
        if self._frame_fields is not None:
            self._frame_fields.report(response, report)
        if has_recovered:
            report_recovered(response, report)
        return report.resolve(response, self._reader.wire_names)

    def _process(self, events: list[Event]) -> bytes:
        """Run decoded events through all stages, and return the frames that encode them."""
        if self._finished:
            return b""
        if self._redact is not None and events and type(last := events[-1]) is ResponseFailed:
            events[-1] = self._redact(last)
        if (recovery := self._recovery) is not None:
            if len(events) == 1 and type(deltas := events[0]) is PartDeltas:
                if deltas.known and (passed := recovery.passed_texts) is not None and len(passed) < LIMIT_UNREAD:
                    passed += deltas.texts
                elif not recovery.pass_deltas(deltas):
                    events = recovery.process(events)
            elif not recovery.pass_unmarked(events):
                events = recovery.process(events)
        return self._process_recovered(events)

    def _process_recovered(self, events: list[Event]) -> bytes:
        """Run events through all other stages, and return the frames that encode them."""
        if self._transform is not None:
            events = self._transform(separate_deltas(events))
        events = run_stages(self._stages, events)
        if not self._same_protocol:
            for event in events:
                if type(event) not in _DELTA_TYPES and holds_constraint(event, self._writer.families):
                    return self._refuse_constraint(events, events.index(event))
        self._accumulate(events)
        self._observe_all(events)
        for observe in self._observe_events:
            observe(events)
        out = self._encoder.encode(events)
        if (failure := self._encoder.failure) is not None and self.error is None:
            out += self._abort(ResponseFailed(error=failure, broken=True))
        return escape_line_separators(out)

    # ---- forwarding frames

    def _forward_data(self, data: bytes, frames: FrameSplitter) -> bytes:
        """Return the complete frames of a stream in the client's own protocol unchanged.

        They are also decoded, for the summary.
        """
        if not self._received_data:
            if not data.strip():
                return b""
            self._received_data = True
            if not self._reader.surface.is_framed(data):
                self._frames = None  # a JSON array, which the client gets as events
                return self.feed(data)
        try:
            complete = frames.feed(data)
        except ValueError as error:
            return self._end_with_failure(
                ResponseFailed(error=ApiError(kind="server", message=str(error)), broken=True)
            )
        return self._forward_batches(complete, frames)

    def _forward_batches(self, batches: list[bytes], frames: FrameSplitter) -> bytes:
        """Forward batches of frames up to the end of the response, or to a failure."""
        if len(batches) == 1:
            return self._forward_batch(batches[0], frames)
        return b"".join([self._forward_batch(batch, frames) for batch in batches])

    def _forward_batch(self, data: bytes, frames: FrameSplitter) -> bytes:
        """Forward one batch, separating its frames only where the response ends or fails."""
        if self._encodes_frames or self._finished:
            return self._forward_rest(data, frames)
        events = self._decoder.feed(data)
        deltas = event if len(events) == 1 and type(event := events[0]) is PartDeltas else None
        if (recovery := self._recovery) is None:
            pass
        elif (
            deltas is not None
            and deltas.known
            and (passed := recovery.passed_texts) is not None
            and len(passed) < LIMIT_UNREAD
        ):
            passed += deltas.texts
        elif not (recovery.pass_unmarked(events) if deltas is None else recovery.pass_deltas(deltas)):
            recovered = recovery.process(events)
            if recovered is not events or self._held_frames:
                if (encoded := self._hold_frames(data, events, recovered, recovery)) is not None:
                    return encoded
                data, events = self._release_frames()
                deltas = None
        if deltas is None and events and type(failure := events[-1]) is ResponseFailed:
            valid_frames = self._frames_before_failure(frames.split(data), failure.error)
            self._observe_forwarded(events[:-1])
            return escape_line_separators(b"".join(valid_frames)) + self._end_with_failure(failure)
        if deltas is None or not self._ignores_deltas:
            self._observe_forwarded(events)
        return self._write_batch(data, frames)

    def _forward_rest(self, data: bytes, frames: FrameSplitter) -> bytes:
        """Return what the client gets of a batch after frames are encoded anew, or after the end of the response."""
        if self._encodes_frames:
            return b"" if self._finished else self._process(self._decoder.feed(data))
        return b"".join(map(self._forward_done_marker, frames.split(data)))

    def _write_batch(self, data: bytes, frames: FrameSplitter) -> bytes:
        """Return a batch as the client gets it: valid, filtered, and up to the end of the response."""
        if not data.isascii() and not _is_utf8(data):
            data = b"".join(map(_without_invalid_lines, frames.split(data)))
        if self._finished:
            data = self._forward_end(frames.split(data))
        elif not self._first_frames:
            self._first_frames = frames.first_two(data)
        if self._filter is not None:
            data = b"".join(map(self._filter, frames.split(data)))
        return escape_line_separators(data)

    def _hold_frames(
        self, data: bytes, events: list[Event], recovered: list[Event], recovery: TextRecoveryStage
    ) -> bytes | None:
        """Hold frames while their text may be part of a call; return None once they can be forwarded unchanged.

        Return `b""` while holding. After a recovery, return newly encoded frames, and switch the stream to encoding.
        """
        self._held_frames += data
        self._held_events += events
        self._recovered_events += recovered
        failed = bool(events) and type(events[-1]) is ResponseFailed
        if not recovery.has_changed and not failed:
            return b"" if recovery.is_holding else None
        if failed and self._redact is not None and type(last := self._recovered_events[-1]) is ResponseFailed:
            self._recovered_events[-1] = self._redact(last)
        return self._encode_held()

    def _encode_held(self) -> bytes:
        """Return the frames that encode held events, and encode all further ones."""
        self._encodes_frames = True
        if self._accumulator is None:
            self._accumulator = ResponseAccumulator()
            self._accumulator.add_all(self._unencoded)
        self._unencoded = run_stages(self._stages, self._unencoded)
        self._encode_forwarded()
        events = self._recovered_events
        self._release_frames()
        return self._process_recovered(events)

    def _release_frames(self) -> tuple[bytes, list[Event]]:
        """Return the held frames and their events, which are no longer held."""
        data, events = self._held_frames, self._held_events
        self._held_frames, self._held_events, self._recovered_events = b"", [], []
        return data, events

    def _forward_end(self, frames: list[bytes]) -> bytes:
        """Forward the frames up to the terminal event, and a `[DONE]` marker after it."""
        # A probe that lacks the start of the stream may fail at a marker that ends it.
        upto = self._frames_until(
            frames, lambda event, frame: type(event) is ResponseEnd or frame_data(frame) == _DONE_MARKER
        )
        self._done_marker_sent = any(frame_data(frame) == _DONE_MARKER for frame in upto)
        return b"".join([*upto, *map(self._forward_done_marker, frames[len(upto) :])])

    def _frames_before_failure(self, frames: list[bytes], error: ApiError) -> list[bytes]:
        """Return the valid frames before the one that failed."""
        message = error.message
        until_failure = self._frames_until(
            frames, lambda event, _: type(event) is ResponseFailed and event.error.message == message
        )
        return [frame for frame in until_failure[:-1] if _is_utf8(frame)]

    def _frames_until(self, frames: list[bytes], is_last: Callable[[Event, bytes], bool]) -> list[bytes]:
        """Return the frames up to the one with the last event.

        A new decoder reads them again. If the stream began in an earlier batch, each frame gets its own decoder, which
        knows only the first frames.
        """
        probe = self._reader.stream_decoder(self._context)
        for number, frame in enumerate(frames[:-1], 1):
            if self._first_frames:
                probe = self._reader.stream_decoder(self._context)
                probe.feed(self._first_frames)
            events = probe.feed(frame)
            if events and is_last(events[-1], frame):
                return frames[:number]
        return frames

    def _observe_forwarded(self, events: list[Event]) -> None:
        """Record forwarded events for the summary, the losses, and an end that the gateway may have to encode."""
        for observe in self._observe_events:
            observe(events)
        if self._accumulator is not None:
            self._accumulator.add_all(events)
        if self._writer.end_event_repeats_response:
            self._unencoded += events
            if len(self._unencoded) >= _MAX_UNENCODED:
                self._encode_forwarded()
        elif self._recovery is not None:
            self._unencoded += [event for event in events if type(event) not in _DELTA_TYPES]
        elif events and type(events[0]) is ResponseStart:
            self._unencoded = [event for event in events if type(event) is not PartDeltas]
        self._observe_all(events)

    def _forward_done_marker(self, frame: bytes) -> bytes:
        """Return a `[DONE]` marker after a complete response, and drop all other frames."""
        if self._done_marker_sent or self.error is not None or frame_data(frame) != _DONE_MARKER or not _is_utf8(frame):
            return b""
        self._done_marker_sent = True
        return frame

    def _close_frames(self, frames: FrameSplitter) -> bytes:
        """Forward the buffered frames, and complete the stream if its end is missing."""
        out = self._forward_batches(frames.close(), frames)
        if self._finished:
            return out
        events = self._decoder.close()
        if self._encodes_frames:
            return out + self._process(events)
        if self._recovery is not None and not self._recovery.pass_unmarked(events):
            recovered = self._recovery.process(events)
            if recovered is not events or self._held_frames:
                if (encoded := self._hold_frames(b"", events, recovered, self._recovery)) is not None:
                    return out + encoded
                data, events = self._release_frames()
                out += escape_line_separators(data)
        if events and type(failure := events[-1]) is ResponseFailed:
            return out + self._end_with_failure(failure)
        self._observe_forwarded(events)
        return out + self._writer.stream_end

    def _end_with_failure(self, failure: ResponseFailed) -> bytes:
        """Return the frames that report a failure after forwarded frames."""
        if self._finished:
            return b""
        held = self._encode_held() if self._held_events else b""
        self._encode_forwarded()
        return held + self._process([failure])

    def _encode_forwarded(self) -> None:
        """Feed already forwarded events to the encoder, so that it can end the response."""
        if self._unencoded:
            self._encoder.encode(self._unencoded)
            self._unencoded = []

    # ---- state of the response

    @property
    def response(self) -> Response | None:
        """Return the response as the client has it, once it is complete; None before that, and if it failed."""
        return self._accumulator.response() if self._ended and self._accumulator is not None else None

    def _accumulate(self, events: list[Event]) -> None:
        """Add events to the response that is being collected."""
        if self._accumulator is not None:
            self._accumulator.add_all(events)
        if self._frame_fields is not None:
            self._frame_fields.add_all(events)

    def _refuse_constraint(self, events: list[Event], index: int) -> bytes:
        """End the stream before the event at `index`, whose constraint (safety limit) the target can't express."""
        before, including = events[:index], events[: index + 1]
        self._accumulate(including)
        self._observe_all(before)
        return self._encoder.encode(before) + self._abort(ResponseFailed(error=self._constraint_error()))

    def _abort(self, failure: ResponseFailed) -> bytes:
        """Return the frames that end the stream with a failure, and ignore all further input."""
        self._accumulate([failure])
        self._observe(failure)
        return self._encoder.encode([failure])

    def _constraint_error(self) -> ApiError:
        """Return an error that names the constraints (safety limits) that the target can't express."""
        if self._accumulator is None:
            raise AssertionError("streams to another protocol are always folded")
        report, response = LossReport(), self._accumulator.response()
        report.report_foreign_extras(response, self._writer.families)
        constraints = [loss for loss in report.resolve(response, self._reader.wire_names) if loss.constraint]
        return ApiError(kind="invalid_request", message=str(LossyTranslationError(constraints, self._writer.name)))


def _without_invalid_lines(frame: bytes) -> bytes:
    """Return the frame without lines that are not UTF-8.

    No data is lost with them: the decoder fails where a `data` line is invalid.
    """
    if _is_utf8(frame):
        return frame
    lines = [line for line in frame.splitlines() if line and _is_utf8(line)]
    return b"\n".join(lines) + b"\n\n" if lines else b""


def _is_utf8(data: bytes) -> bool:
    """Return whether data is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class TranslatedStream:
    """The translated stream as an iterator of bytes, synchronous or asynchronous."""

    def __init__(self, translator: StreamTranslator, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        self._translator = translator
        self._chunks = chunks

    @property
    def losses(self) -> list[Loss]:
        """Return the losses; complete once the stream is exhausted."""
        return self._translator.losses

    @property
    def error(self) -> ApiError | None:
        """Return the error that ended the stream, if any."""
        return self._translator.error

    @property
    def broken(self) -> bool:
        """Return whether the stream was cut or violated its protocol."""
        return self._translator.broken

    def __iter__(self) -> Iterator[bytes]:
        if not isinstance(self._chunks, Iterable):
            raise TypeError("the chunks are asynchronous: use 'async for'")
        for chunk in self._chunks:
            if data := self._translator.feed(chunk):
                yield data
            if self._translator.error is not None:
                break  # a failed stream has ended
        if data := self._translator.close():
            yield data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._chunks, AsyncIterable):
            async for chunk in self._chunks:
                if data := self._translator.feed(chunk):
                    yield data
                if self._translator.error is not None:
                    break
            if data := self._translator.close():
                yield data
        else:
            for data in self:
                yield data
