"""What a client asks, what goes upstream for it, and what comes back: whole, or as a stream."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Notice
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.gateway.errors import RequestRejected, transport_api_error
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.limits import StreamBudget
from toolwire.gateway.rounds.continuation import RoundMerger
from toolwire.gateway.state.background_jobs import BackgroundJob
from toolwire.gateway.state.connection_state import ChannelState
from toolwire.gateway.state.conversations import PendingResponse
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import TransportError, UpstreamResponse

NextRound = Callable[[], Awaitable[UpstreamResponse | None]]


class BufferedResponse(Struct):
    """`told` is what it says of itself, perhaps without its words. `work`: it is only being made."""

    body: bytes
    losses: list[Loss]
    summary: Response | None = None
    job: BackgroundJob | None = None


class ClientRequest(Struct, frozen=True, kw_only=True):
    """What a client asks. `lane`: what the connection that it came by remembers."""

    codec: Codec
    body: bytes
    route: Route
    tenant: str
    strict: bool = False
    created: int = 0
    channel: ChannelState | None = None

    def is_streaming(self, request: Request) -> bool:
        return self.codec.surface.streams_by_default if request.stream is None else request.stream


class UpstreamRequest(Struct):
    """What went upstream, and what its answer needs. `legs`, if the client can't ask it to go on after a pause;
    `keeping` and `finish`, if the answer is to be remembered."""

    backend: Backend
    codec: Codec
    context: ResponseContext
    losses: list[Loss]
    route: Route
    body: bytes
    rounds: RoundMerger | None = None
    pending_response: PendingResponse | None = None
    on_complete: Callable[[Response], None] | None = None


class StreamingResponse:
    """An answer that streams: bytes as they become ready, whole frames each time, always with a proper end."""

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
        """The losses that are known before it begins."""
        return self.upstream_request.losses

    @property
    def losses(self) -> list[Loss]:
        return self.upstream_request.losses + self.translator.losses + self._storage_losses

    @property
    def usage(self) -> Usage | None:
        return self.translator.usage

    @property
    def summary(self) -> Response:
        return self.translator.summary

    @property
    def error(self) -> ApiError | None:
        """What ended it early, if something did."""
        return self.translator.error

    def chunks(self) -> AsyncGenerator[bytes, None]:
        return (
            self._translated_chunks()
            if self.upstream_request.pending_response is None
            else self._stored_chunks(self.upstream_request.pending_response)
        )

    async def _stored_chunks(self, pending_response: PendingResponse) -> AsyncGenerator[bytes, None]:
        """The pieces, of which the one that completes the answer goes out once the answer is stored."""
        async with aclosing(self._translated_chunks()) as pieces:
            async for data in pieces:
                if (loss := await pending_response.flush()) is not None:
                    self._storage_losses.append(loss)
                yield data

    async def _translated_chunks(self) -> AsyncGenerator[bytes, None]:
        if self._first_chunk:
            yield self._first_chunk
        if self._upstream_response is None:
            return
        try:
            while True:
                while self.error is None and (data := await self._upstream_response.next()):
                    self._budget.consume(data)
                    if out := self.translator.feed(data):
                        yield out
                yield self.translator.flush_decoder()
                self._upstream_response.close()
                following = None if self._next_round is None or self.error is not None else await self._next_round()
                if self.upstream_request.rounds is not None and self.upstream_request.rounds.ready_events:
                    yield self.translator.inject(*self.upstream_request.rounds.ready_events)
                    self.upstream_request.rounds.ready_events = []
                if following is None:
                    break
                self._upstream_response = following
                self.translator.continue_with_new_stream()
            if self.upstream_request.rounds is not None and self.upstream_request.rounds.paused:
                yield self.translator.inject(*self.upstream_request.rounds.stop())
            yield self.translator.end()
        except TransportError as error:
            yield self.translator.fail(transport_api_error(self.upstream_request.backend.provider, error))
        except RequestRejected as refused:
            yield self.translator.fail(refused.error)
        finally:
            self._upstream_response.close()

    def close(self) -> None:
        """Nobody will read it."""
        if self._upstream_response is not None:
            self._upstream_response.close()

    def ping_frame(self) -> bytes:
        """What may be written while the upstream is silent."""
        return self.translator.inject(Notice(kind="ping"))
