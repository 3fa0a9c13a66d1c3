"""The values of one exchange: client request, upstream request, and buffered or streaming response."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.events import Notice
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.gateway.errors import RequestRejected, transport_api_error
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.limits import StreamBudget
from toolwire.gateway.rounds.continuation import RoundMerger
from toolwire.gateway.state.background_jobs import BackgroundJob
from toolwire.gateway.state.conversations import ChannelState, PendingResponse
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import TransportError, UpstreamResponse

NextRound = Callable[[], Awaitable[UpstreamResponse | None]]


class BufferedResponse(Struct):
    """A complete response body."""

    body: bytes
    losses: list[Loss]
    summary: Response | None = None
    """Ids, stop reasons and usage, possibly without content."""
    job: BackgroundJob | None = None
    """Set while a background job is still producing the response."""


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request as received from the client."""

    codec: Codec
    body: bytes
    route: Route
    tenant: str
    strict: bool = False
    created: int = 0
    channel: ChannelState | None = None
    """History of the WebSocket channel that carried the request."""

    def is_streaming(self, request: Request) -> bool:
        """Return whether the client wants a stream: as requested, or by its protocol's default."""
        return self.codec.surface.streams_by_default if request.stream is None else request.stream


class UpstreamRequest(Struct):
    """A request as sent upstream, and what is needed to translate its response."""

    backend: Backend
    codec: Codec
    context: ResponseContext
    losses: list[Loss]
    route: Route
    body: bytes
    rounds: RoundMerger | None = None
    """Merges further rounds into one response; None if there is only one round."""
    pending_response: PendingResponse | None = None
    """Set if the response is stored under an id."""
    on_complete: Callable[[Response], None] | None = None
    """Called with the complete response, to store it."""


class StreamingResponse:
    """A streamed response: yields whole frames as they are ready, and always ends the stream properly."""

    def __init__(
        self,
        upstream_request: UpstreamRequest,
        upstream_response: UpstreamResponse | None,
        translator: StreamTranslator,
        first_chunk: bytes,
        *,
        next_round: NextRound | None = None,
        budget: StreamBudget | None = None,
    ) -> None:
        self.job: BackgroundJob | None = None
        self.upstream_request = upstream_request
        self.translator = translator
        self._upstream_response = upstream_response
        self._first_chunk = first_chunk
        self._next_round = next_round
        self._storage_losses: list[Loss] = []
        self._budget = budget or StreamBudget(upstream_request.backend.provider, 0)

    @property
    def request_losses(self) -> list[Loss]:
        """Return the losses of the request, which are known before the stream starts."""
        return self.upstream_request.losses

    @property
    def losses(self) -> list[Loss]:
        """Return all losses known so far."""
        return self.upstream_request.losses + self.translator.losses + self._storage_losses

    @property
    def usage(self) -> Usage | None:
        """Return the token usage reported so far."""
        return self.translator.usage

    @property
    def summary(self) -> Response:
        """Return the response so far without its content: ids, stop reasons and usage."""
        return self.translator.summary

    @property
    def error(self) -> ApiError | None:
        """Return the error that ended the stream early, if any."""
        return self.translator.error

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the client's frames; if the response is stored, the last frame waits for that."""
        return (
            self._translated_chunks()
            if self.upstream_request.pending_response is None
            else self._stored_chunks(self.upstream_request.pending_response)
        )

    async def _stored_chunks(self, pending_response: PendingResponse) -> AsyncGenerator[bytes, None]:
        """Yield the frames; the last one waits until the response is stored."""
        async with aclosing(self._translated_chunks()) as chunks:
            async for data in chunks:
                if (loss := await pending_response.flush()) is not None:
                    self._storage_losses.append(loss)
                yield data

    async def _translated_chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the frames of all rounds, and an error event if one fails."""
        if self._first_chunk:
            yield self._first_chunk
        if self._upstream_response is None:
            return
        try:
            while True:
                while self.error is None and (data := await self._upstream_response.next()):
                    self._budget.consume(data)
                    if frames := self.translator.feed(data):
                        yield frames
                yield self.translator.flush_decoder()
                self._upstream_response.close()
                next_response = None if self._next_round is None or self.error is not None else await self._next_round()
                if injected := self._inject_ready_events():
                    yield injected
                if next_response is None:
                    break
                self._upstream_response = next_response
                self.translator.continue_with_new_stream()
            if self.upstream_request.rounds is not None and self.upstream_request.rounds.paused:
                yield self.translator.inject(*self.upstream_request.rounds.stop())
            yield self.translator.end()
        except TransportError as error:
            yield self.translator.fail(transport_api_error(self.upstream_request.backend.provider, error))
        except RequestRejected as rejection:
            yield self.translator.fail(rejection.error)
        finally:
            self._upstream_response.close()

    def _inject_ready_events(self) -> bytes:
        """Return the frames of events that the gateway adds between two rounds."""
        rounds = self.upstream_request.rounds
        if rounds is None or not rounds.ready_events:
            return b""
        frames = self.translator.inject(*rounds.ready_events)
        rounds.ready_events = []
        return frames

    def close(self) -> None:
        """Close the upstream response; no more frames are read."""
        if self._upstream_response is not None:
            self._upstream_response.close()

    def ping_frame(self) -> bytes:
        """Encode a ping to send while the upstream is silent."""
        return self.translator.inject(Notice(kind="ping"))
