"""A stream on its way from one protocol to another, with every loss named."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, LossRefused
from toolwire.canonical.events import (
    Event,
    Notice,
    PartDelta,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.fold import Folder
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.answers import CallNames, Failing, before_failure
from toolwire.codec.carrying import StreamCarrying
from toolwire.codec.frame_fields import FrameFields
from toolwire.codec.frames import FrameSplitter
from toolwire.codec.interface import Codec, Context
from toolwire.codec.kin import are_related, set_apart
from toolwire.codec.lines import in_one_line
from toolwire.codec.losses import Report, guards
from toolwire.codec.probabilities import handing_on
from toolwire.codec.raising import StreamRaiser
from toolwire.codec.sse import data_of, only_text

_MARK = b"[DONE]"
_UNENCODED = 1024
"""Events passed on that may wait to be encoded: only a stream that breaks off needs them."""


class Translation:
    """One stream on its way: bytes in, bytes out. `losses` and `error` are complete once it was closed; `begun`: it has
    said something that is no error; `has_content`: parts of an answer are among that. `change` sees all events first,
    and says what becomes of them; `finish` gets the answer as the client has it, once it is complete. After its
    terminal event a stream says nothing more, and no further input is decoded. The answer is folded as it comes, and
    only if something reads it: its losses, or `finish`. A stream of one protocol on both sides of which nothing is to
    be changed is passed on frame by frame; its failures are passed through `redact`."""

    def __init__(
        self,
        reader: Codec,
        writer: Codec,
        context: Context,
        *,
        change: Callable[[list[Event]], list[Event]] | None = None,
        finish: Callable[[Response], None] | None = None,
        redact: Callable[[ResponseFailed], ResponseFailed] | None = None,
    ) -> None:
        self.error: ApiError | None = None
        self.broken = False
        self.begun = self.has_content = False
        self.usage: Usage | None = None
        self._context = context
        self._reader = reader
        self._writer = writer
        self._decoder = reader.stream_decoder(context)
        self._encoder = writer.stream_encoder(context)
        self._home = reader is writer
        self._related = are_related(reader, writer)
        self._probable = handing_on(reader.probabilities, writer.probabilities)
        self._names = None if reader is writer else CallNames(context)
        self._failing = Failing(reader)
        self._raiser = StreamRaiser(context.undo, writer.screen, reader.names)
        self._change = change
        self._finish = finish
        self._redact = redact
        self._carrying = StreamCarrying(writer, reader.names, context)
        self._folder = Folder() if self._finish is not None or not self._home else None
        self._frame_fields = None if self._home else FrameFields(writer.families)
        self._failed: ResponseFailed | None = None
        self._start = ResponseStart(origin=reader.name)
        self._stops: dict[int, Stop | None] = {}
        self._over = False
        self._ended = False
        self._losses: list[Loss] | None = None
        self._frames: FrameSplitter | None = None
        if self._home and change is None and context.undo.is_empty:
            self._frames = FrameSplitter(lines=not writer.surface.stream_type.endswith("event-stream"))
        self._filter = None if self._frames is None else writer.frame_filter(context)
        self._framed = self._marked = False
        self._unencoded: list[Event] = []
        self._first = b""

    def feed(self, data: bytes) -> bytes:
        if self._frames is not None:
            return self._pass_frames(data, self._frames)
        return b"" if self._over else self._pass(self._decoder.feed(data))

    def go_on(self) -> None:
        """Another stream continues this one."""
        self._decoder = self._reader.stream_decoder(self._context)

    def drain(self) -> bytes:
        """What the decoder still held, at the end of a stream that another one may continue."""
        if self._frames is not None:
            return self._close_frames(self._frames)
        return b"" if self._over else self._pass(self._decoder.close())

    def tell(self, *events: Event) -> bytes:
        """Events that are not in the stream itself."""
        return self._pass(list(events))

    def whole(self, events: Iterable[Event]) -> bytes:
        """All of a stream that was none: an answer that came at once."""
        return self._pass(list(events)) + self.end()

    def fail(self, error: ApiError) -> bytes:
        """End the stream with an error: what carries it broke."""
        return self._fail(ResponseFailed(error=error, broken=True)) + self.end()

    def close(self) -> bytes:
        return self.drain() + self.end()

    def end(self) -> bytes:
        self._ended = True
        if self._over:
            return b""
        if self._writer.cumulative:
            self._catch_up()
        return in_one_line(self._encoder.close())

    @property
    def is_settled(self) -> bool:
        """Whether it is known to have failed, or to be an answer. If it stopped without content, only its end tells; so
        it is where content comes with the first frame, or not at all."""
        promising = self.begun and self._reader.announced and not self._stops
        return promising or self.has_content or self.error is not None

    @property
    def glance(self) -> Response:
        """The answer without its words: its names, its stops and its usage."""
        start, stops = self._start, sorted(self._stops.items())
        candidates = tuple([Candidate(index=index, stop=stop) for index, stop in stops])
        return Response(origin=start.origin, id=start.id, model=start.model, candidates=candidates, usage=self.usage)

    @property
    def losses(self) -> list[Loss]:
        """Those of the answer that the events told, as its body has them. They are worked out when somebody asks."""
        if self._losses is None:
            if not self._ended:
                return []
            self._losses = self._find_losses()
        return self._losses

    def _find_losses(self) -> list[Loss]:
        if self._folder is None or (self._home and not self._encoder.report):
            return []  # home is exact
        response, writer, failed = self._folder.response(), self._writer, self._failed
        if failed is not None and failed.status is None and failed.error.at is None:
            response = replace(response, error=replace(failed.error, at=""))  # it has a frame of its own
        if response.origin in writer.families:
            report = self._encoder.report
            report.unclaimed(response, writer.families)
        else:
            # An error ends the stream: it is told as one, not in an answer, nor by why that stopped.
            whole = response if response.error is None else before_failure(response)
            report = writer.encode_response(whole, self._context).report
            if response.error is not None:
                report.include(writer.encode_error(response.error).report, ("error",))
        for trail in self._carrying.unnamed:
            report.dropped(trail, "id")
        if self._frame_fields is not None:
            self._frame_fields.report(response, report)
        return report.resolve(response, self._reader.names)

    def _pass(self, events: list[Event]) -> bytes:
        if self._over:
            return b""
        if self._redact is not None and events and type(failed := events[-1]) is ResponseFailed:
            events[-1] = self._redact(failed)
        if self._change is not None:
            events = self._change(events)
        if self._related:
            events = [
                one if type(one) is PartDelta and one.plain else set_apart(one, self._reader, self._writer)
                for one in events
            ]
        if self._probable is not None:
            events = self._probable.hand_on(events)
        told = _more_than_growth(events)
        if told and self._names is not None and (named := self._names.name(told) | self._failing.fail(told)):
            events = [named.get(id(event), event) for event in events]
            told = _more_than_growth(events)
        ready = self._raiser.raise_events(events)
        if not self._home:
            ready = self._carrying.carry_events(ready)
        if ready is not events:
            events = ready if type(ready) is list else list(ready)
            told = _more_than_growth(events)
        for event in told:
            if not self._home and type(event) is not PartDelta and guards(event, self._writer.families):
                return self._refuse(events, events.index(event))
        self._fold(events, told)
        for event in told:
            if type(event) is not PartDelta:
                self._note(event)
        out = self._encoder.encode(events)
        if (failure := self._encoder.failure) is not None and self.error is None:
            out += self._give_up(ResponseFailed(error=failure, broken=True))
        return in_one_line(out)

    # ---- frame by frame

    def _pass_frames(self, data: bytes, frames: FrameSplitter) -> bytes:
        """Pass on whole frames as they came. They are decoded for what they say of the answer as a whole."""
        if not self._framed:
            if not data.strip():
                return b""
            self._framed = True
            if not self._reader.surface.is_framed(data):
                self._frames = None  # a JSON array, which is told in events
                return self.feed(data)
        try:
            found = frames.feed(data)
        except ValueError as error:
            return self._fail(ResponseFailed(error=ApiError(kind="server", message=str(error)), broken=True))
        return self._pass_each(found)

    def _pass_each(self, frames: list[bytes]) -> bytes:
        if self._over or not frames:
            return b"".join(map(self._pass_mark, frames))
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        events = self._decoder.feed(data)
        told = _more_than_growth(events)
        if told and type(failed := told[-1]) is ResponseFailed:
            passed = in_one_line(b"".join(self._before_failure(frames, failed.error)))
            self._take(events[:-1], told[:-1])
            return passed + self._fail(failed)
        if not data.isascii() and only_text(data) is not data:
            frames = [frame for frame in frames if only_text(frame) is frame]  # others have no data
            data = b"".join(frames)
        self._take(events, told)
        if self._over:
            frames = self._until(frames, lambda event: type(event) is ResponseEnd)
            data = b"".join(frames)
            self._marked = any(data_of(frame) == _MARK for frame in frames)
        elif not self._first:
            self._first = b"".join(frames[:2])
        if self._filter is not None:
            data = b"".join(map(self._filter, frames))
        return in_one_line(data)

    def _before_failure(self, frames: list[bytes], error: ApiError) -> list[bytes]:
        """The frames before the one that failed."""
        message = error.message
        upto = self._until(frames, lambda event: type(event) is ResponseFailed and event.error.message == message)
        return [frame for frame in upto[:-1] if only_text(frame) is frame]

    def _until(self, frames: list[bytes], is_last: Callable[[Event], bool]) -> list[bytes]:
        """The frames up to the one with the last event, and a mark behind it.

        Each is tried by a decoder that knows only how the stream began.
        """
        for number, frame in enumerate(frames[:-1], 1):
            probe = self._reader.stream_decoder(self._context)
            probe.feed(self._first)
            events = probe.feed(frame)
            if events and is_last(events[-1]):
                return frames[:number] + [frame for frame in frames[number : number + 1] if data_of(frame) == _MARK]
        return frames

    def _take(self, events: list[Event], told: list[Event]) -> None:
        """Note what events say that are passed on as they came."""
        if self._folder is not None:
            self._folder.buffer(events)
        if self._writer.cumulative:
            self._unencoded += events
            if len(self._unencoded) >= _UNENCODED:
                self._catch_up()
        elif told and type(told[0]) is ResponseStart:
            self._unencoded = told
        for event in told:
            if type(event) is not PartDelta:
                self._note(event)

    def _pass_mark(self, frame: bytes) -> bytes:
        """The mark that some streams end with, behind an answer that is complete; nothing else follows it."""
        if self._marked or self.error is not None or data_of(frame) != _MARK or only_text(frame) is not frame:
            return b""
        self._marked = True
        return frame

    def _close_frames(self, frames: FrameSplitter) -> bytes:
        out = self._pass_each(frames.close())
        if self._over:
            return out
        events = self._decoder.close()
        if events and type(failed := events[-1]) is ResponseFailed:
            return out + self._fail(failed)
        self._take(events, _more_than_growth(events))
        return out + self._writer.closing

    def _fail(self, failed: ResponseFailed) -> bytes:
        if self._over:
            return b""
        self._catch_up()
        return self._pass([failed])

    def _catch_up(self) -> None:
        """Encode events that the client has already, so that the encoder can end the answer."""
        if self._unencoded:
            self._encoder.encode(self._unencoded)
            self._unencoded = []

    # ---- what is known of it

    def _note(self, event: Any) -> None:
        """What an event says of the answer as a whole."""
        kind = type(event)
        if kind is ResponseFailed:
            self._over, self._failed = True, event
            self.error, self.broken = event.error, event.broken
        elif kind is UsageReport:
            self.usage = event.usage
        elif kind is not Notice:
            self.begun = True
            if kind is PartStart:
                self.has_content = True
            elif kind is Stopped:
                self._stops[event.candidate] = event.stop
            elif kind is ResponseStart:
                self._start, self.usage = event, event.usage or self.usage
            elif kind is ResponseEnd:
                self._over = True
                if self._finish is not None and self._folder is not None:
                    self._finish(self._folder.response())

    def _fold(self, events: list[Event], told: list[Event]) -> None:
        """Add events to what is known of the answer; `told` are those of them that do more than make a text grow."""
        if self._folder is not None:
            self._folder.buffer(events)
        if told and self._frame_fields is not None:
            self._frame_fields.add_all(told)

    def _refuse(self, events: list[Event], place: int) -> bytes:
        """End the stream before an event that may not be dropped: what it guards is not passed on without it."""
        before, upto = events[:place], events[: place + 1]
        self._fold(upto, _more_than_growth(upto))
        for event in _more_than_growth(before):
            if type(event) is not PartDelta:
                self._note(event)
        return self._encoder.encode(before) + self._give_up(ResponseFailed(error=self._refusal()))

    def _give_up(self, failed: ResponseFailed) -> bytes:
        """End the stream here: what still comes is not passed on."""
        self._fold([failed], [failed])
        self._note(failed)
        return self._encoder.encode([failed])

    def _refusal(self) -> ApiError:
        if self._folder is None:
            raise AssertionError("a stream to another protocol is folded")
        report, response = Report(), self._folder.response()
        report.unclaimed(response, self._writer.families)
        guarded = [loss for loss in report.resolve(response, self._reader.names) if loss.guarded]
        return ApiError(kind="invalid_request", message=str(LossRefused(guarded, self._writer.name)))


def _more_than_growth(events: list[Event]) -> list[Event]:
    """The few events that do more than make a text grow."""
    return [event for event in events if type(event) is not PartDelta or not event.plain]


class TranslatedStream:
    """The stream as bytes, as they become ready. Iterate it, or iterate it asynchronously; then see `losses`."""

    def __init__(self, translation: Translation, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        self._translation = translation
        self._chunks = chunks

    @property
    def losses(self) -> list[Loss]:
        return self._translation.losses

    @property
    def error(self) -> ApiError | None:
        """What ended the stream early, if something did."""
        return self._translation.error

    @property
    def broken(self) -> bool:
        """Whether it was the stream itself: cut, or not of its protocol."""
        return self._translation.broken

    def __iter__(self) -> Iterator[bytes]:
        if not isinstance(self._chunks, Iterable):
            raise TypeError("these chunks arrive asynchronously: use 'async for'")
        for chunk in self._chunks:
            if data := self._translation.feed(chunk):
                yield data
            if self._translation.error is not None:
                break  # a stream that failed is over
        if data := self._translation.close():
            yield data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._chunks, AsyncIterable):
            async for chunk in self._chunks:
                if data := self._translation.feed(chunk):
                    yield data
                if self._translation.error is not None:
                    break
            if data := self._translation.close():
                yield data
        else:
            for data in self:
                yield data
