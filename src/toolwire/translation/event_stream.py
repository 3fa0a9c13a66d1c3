"""Decode a stream to canonical events as it arrives, and follow how the response stands."""

from collections.abc import Callable, Iterable
from typing import Any

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    Notice,
    PartDelta,
    PartDeltas,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
    separate_deltas,
)
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.translation.pipeline import response_stages, run_stages
from toolwire.translation.stages.tool_call_parsers.text_recovery import TextRecoveryStage


class StreamProgress:
    """The state of a response while its stream is decoded by `reader`: outcome, usage, stop reasons and error."""

    def __init__(self, reader: Codec) -> None:
        self.error: ApiError | None = None
        self.broken = False  # the stream was cut or unreadable
        self.started = self.has_content = False  # something other than an error arrived; parts among it
        self.usage: Usage | None = None
        self._reader = reader
        self._failed: ResponseFailed | None = None
        self._start = ResponseStart(origin=reader.name)
        self._stops: dict[int, Stop | None] = {}
        self._finished = self._ended = False  # by any terminal event; by the one of a complete response

    @property
    def has_outcome(self) -> bool:
        """Return whether the stream has failed, or has begun a response with content.

        A stream that stopped without content, or whose protocol has no start event, is only known at its end.
        """
        promises_content = self.started and self._reader.has_start_event and not self._stops
        return promises_content or self.has_content or self.error is not None

    @property
    def response(self) -> Response | None:
        """Return the complete response, where it is collected; here it is not."""
        return None

    @property
    def summary(self) -> Response:
        """Return the response without its content: ids, stop reasons and usage."""
        start, stops = self._start, sorted(self._stops.items())
        candidates = tuple([Candidate(index=index, stop=stop) for index, stop in stops])
        return Response(origin=start.origin, id=start.id, model=start.model, candidates=candidates, usage=self.usage)

    def _observe_all(self, events: list[Event]) -> None:
        """Update the summary from events; deltas do not change it."""
        for event in events:
            if type(event) is not PartDelta and type(event) is not PartDeltas:
                self._observe(event)

    def _observe(self, event: Any) -> None:
        """Update the summary from an event."""
        kind = type(event)
        if kind is ResponseFailed:
            self._finished, self._failed = True, event
            self.error, self.broken = event.error, event.broken
        elif kind is UsageReport:
            self.usage = event.usage
        elif kind is not Notice:
            self.started = True
            if kind is PartStart:
                self.has_content = True
            elif kind is CandidateEnd:
                self._stops[event.candidate] = event.stop
            elif kind is ResponseStart:
                self._start, self.usage = event, event.usage or self.usage
            elif kind is ResponseEnd:
                self._finished = self._ended = True


class EventTranslator(StreamProgress):
    """Decodes one stream to canonical events, for the runtime: with its own tool names and an id for every call.

    It has the methods of `StreamTranslator`, which return events instead of frames.
    """

    def __init__(
        self, reader: Codec, context: ResponseContext, redact: Callable[[ResponseFailed], ResponseFailed]
    ) -> None:
        """Decode with `reader`; `redact` rewrites failures before they are passed on."""
        super().__init__(reader)
        self.losses: list[Loss] = []
        """Empty: canonical events lose nothing."""

        self._context = context
        self._redact = redact
        self._decoder = reader.stream_decoder(context)
        recovery = context.text_recovery
        self._recovery = None if recovery is None else TextRecoveryStage(context, recovery)
        self._stages = response_stages(reader, None, context)

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes to the events that they complete."""
        return [] if self._finished else self._process(self._decoder.feed(data))

    def continue_with_new_stream(self) -> None:
        """Expect the next bytes from another upstream stream, which continues the response."""
        self._decoder = self._reader.stream_decoder(self._context)

    def flush_decoder(self) -> list[Event]:
        """Decode what is buffered, at the end of a stream that another may continue."""
        return [] if self._finished else self._process(self._decoder.close())

    def inject(self, *events: Event) -> list[Event]:
        """Return events that the gateway adds to the stream."""
        return self._process(list(events))

    def translate_events(self, events: Iterable[Event]) -> list[Event]:
        """Return the events of a response that did not arrive as a stream."""
        return self._process(list(events))

    def fail(self, error: ApiError) -> list[Event]:
        """Return the event that ends the stream with this error, because the connection broke."""
        return [] if self._finished else self._process([ResponseFailed(error=error, broken=True)])

    def close(self) -> list[Event]:
        """Return the events of what is still buffered."""
        return self.flush_decoder()

    def end(self) -> list[Event]:
        """Return nothing: the stream ends with its last event."""
        return []

    def _process(self, events: list[Event]) -> list[Event]:
        """Return the events after all stages."""
        if events and type(last := events[-1]) is ResponseFailed:
            events[-1] = self._redact(last)
        if self._recovery is not None and not self._recovery.pass_unmarked(events):
            events = self._recovery.process(events)
        events = run_stages(self._stages, events)
        self._observe_all(events)
        return separate_deltas(events)
