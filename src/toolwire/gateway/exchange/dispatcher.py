"""Dispatching of client requests: each becomes an `Exchange` that is decoded, routed, prepared, sent and answered.

A request is retried or failed over only while the client has received no byte, and only if that is safe: see
`exchange.sender`. Errors that the request itself causes are returned at once.
"""

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from toolwire.canonical.errors import LossyTranslationError
from toolwire.canonical.request import Request
from toolwire.codec.interface import ResponseContext
from toolwire.codec.memo import BoundedMemo
from toolwire.codec.models.info import ModelInfo
from toolwire.codec.wire.surrogates import decode_repaired
from toolwire.gateway.config import CompactionSection, LimitsSection
from toolwire.gateway.emulation.plan import Emulator
from toolwire.gateway.emulation.prompted_tools import RefusedTools, refuses_tools
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.breakers import Breakers
from toolwire.gateway.exchange.client_credentials import use_client_credentials
from toolwire.gateway.exchange.context_management import (
    ManagedContext,
    manage_context,
    prepare_delegation,
    refuses_management,
    report_management,
)
from toolwire.gateway.exchange.conversation_memo import Conversation, ConversationMemo
from toolwire.gateway.exchange.exchange import (
    BufferedResponse,
    ClientRequest,
    Exchange,
    ExchangeObserver,
    ExchangeServices,
)
from toolwire.gateway.exchange.failover import BackendAttempt, order_backends, try_backends
from toolwire.gateway.exchange.preparation import build_upstream_request, find_signatures, prepare_upstream_request
from toolwire.gateway.exchange.refused_settings import RefusedSettings
from toolwire.gateway.exchange.response import (
    StreamingResponse,
    request_raw_response,
    request_response,
    respond_locally,
)
from toolwire.gateway.exchange.routing import Backend, Router
from toolwire.gateway.exchange.sender import UpstreamRequest, UpstreamSender
from toolwire.gateway.limits import (
    SMALL_BODY,
    check_body_counts,
    check_request_counts,
    is_heavy_body,
    uncounted_size,
)
from toolwire.gateway.providers.context_size import ContextSizes
from toolwire.gateway.providers.price_book import PriceBook
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.background_jobs import FrameLogReader
from toolwire.gateway.state.conversations import ConversationState, PendingResponse
from toolwire.journal.redaction import Redactor
from toolwire.translation.body import body_bytes
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.transport import Transport

_UNOBSERVED = ExchangeObserver()


class Dispatcher:
    """Dispatches client requests to upstream providers; holds what outlives them."""

    def __init__(
        self,
        router: Router,
        transport: Transport,
        limits: LimitsSection,
        signing_keys: list[bytes],
        conversation_state: ConversationState,
        *,
        redactor: Redactor,
        route_toolsets: RouteToolsets | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        compaction: CompactionSection | None = None,
    ) -> None:
        self.transport = transport
        catalog = ModelCatalog(transport, models)
        self.services = ExchangeServices(
            router=router,
            sender=UpstreamSender(transport, limits, conversation_state.body_executor),
            catalog=catalog,
            prices=PriceBook(catalog, router.providers),
            context_sizes=ContextSizes(),
            limits=limits,
            uncounted_size=uncounted_size(limits),
            signing_keys=signing_keys,
            conversation_state=conversation_state,
            redactor=redactor,
            route_toolsets=route_toolsets or RouteToolsets(),
            breakers=Breakers(limits),
            emulator=Emulator(conversation_state.store, signing_keys),
            refused_tools=RefusedTools(),
            body_executor=conversation_state.body_executor,
            envelope_keys=BoundedMemo(),
            conversation_memo=ConversationMemo(limits.history),
            refused_settings=RefusedSettings(),
            compaction=compaction or CompactionSection(),
            unmanaged_models=BoundedMemo(),
        )

    def close(self) -> None:
        """Close connections, emulation, worker threads and state."""
        self.transport.close()
        self.services.emulator.close()
        self.services.conversation_state.close()

    async def open_exchange(self, client_request: ClientRequest, observer: ExchangeObserver = _UNOBSERVED) -> Exchange:
        """Decode a client's request, find the backends for its model, and load the history that it continues."""
        exchange = await self._decode_and_route(
            client_request, observer, self.services.conversation_memo.find(client_request)
        )
        client_request = exchange.client_request
        if client_request.codec.name in STATE_ADAPTERS:
            pending_response = await self.services.conversation_state.resolve(
                client_request.codec,
                client_request.tenant,
                client_request.body,
                exchange.request,
                client_request.channel,
            )
            if pending_response is not None:
                exchange.request, exchange.pending_response = pending_response.request, pending_response
                exchange.is_heavy = exchange.is_heavy or pending_response.has_heavy_history
        exchange.compacts_only = client_request.compacts
        manage_context(exchange)
        if client_request.key is not None:
            await observer.reserve(exchange.request, exchange.route_match.backends, client_request.body)
        return exchange

    async def compact(self, exchange: Exchange) -> BufferedResponse:
        """Return the compacted conversation of a request to an endpoint that only compacts."""
        exchange.is_streaming, exchange.pending_response = False, None
        response = await _try_backends(exchange)
        exchange.observer.on_response(response)
        if isinstance(response, BufferedResponse):
            return response
        raise AssertionError("a request to compact got a stream")

    async def dispatch(self, exchange: Exchange) -> BufferedResponse | StreamingResponse[bytes] | FrameLogReader:
        """Send the request to the backends of its route, and return the response."""
        pending_response = exchange.pending_response
        response: BufferedResponse | StreamingResponse[bytes] | FrameLogReader
        if pending_response is not None and pending_response.is_background:
            response = await self._start_background_job(exchange, pending_response)
        else:
            response = await _try_backends(exchange)
            if isinstance(response, BufferedResponse):
                loss = None if pending_response is None else await pending_response.flush()
                response.losses = response.losses if loss is None else [*response.losses, loss]
                await exchange.flush_state()
        exchange.observer.on_response(response)
        return response

    async def translate(self, client_request: ClientRequest) -> UpstreamRequest:
        """Translate a request for its first backend, without sending it or the request for a summary."""
        # Not the conversation of the request that may follow, as its body differs.
        conversation = Conversation(self.services.conversation_memo)
        exchange = await self._decode_and_route(client_request, _UNOBSERVED, conversation)
        manage_context(exchange)
        backend, *_ = order_backends(exchange.route_match, exchange.request, client_request.tenant)
        executor = self.services.body_executor
        if exchange.managed is not None:
            await executor.run(exchange.managed.prepare, exchange, backend, heavy=exchange.is_heavy)
        signed = await find_signatures(exchange, backend, exchange.request)
        build = partial(build_upstream_request, exchange, backend, signed)
        exchange.upstream_request = await executor.run(build, heavy=exchange.is_heavy)
        report_management(exchange)
        return exchange.upstream_request

    async def prewarm(self, client_request: ClientRequest) -> bytes:
        """Store a request without sending it (`generate: false`), and return the stream of its empty response."""
        pending_response = (await self.open_exchange(client_request)).pending_response
        if pending_response is None:
            return b""
        return await pending_response.store_prewarm(client_request.codec, client_request.created)

    async def _start_background_job(
        self, exchange: Exchange, pending_response: PendingResponse
    ) -> BufferedResponse | FrameLogReader:
        """Start a job that sends the request and stores its streamed response; return its start."""
        client_request, wants_stream = exchange.client_request, exchange.is_streaming
        context = ResponseContext(request=exchange.request, created=client_request.created)
        exchange.request, exchange.is_streaming = replace(exchange.request, stream=True), True
        jobs = self.services.conversation_state.background_jobs
        job = await jobs.start(pending_response, client_request.codec, context, partial(_open_stream, exchange))
        if wants_stream:
            return FrameLogReader(job.frame_log.read_frames(-1), job)
        return BufferedResponse(job.queued_body, [], None, job)

    async def _decode_and_route(
        self, client_request: ClientRequest, observer: ExchangeObserver, conversation: Conversation
    ) -> Exchange:
        """Return an exchange with the decoded request, and the backends for its model."""
        services, body = self.services, client_request.body
        heavy = len(body) > SMALL_BODY
        request = conversation.decode_light(client_request, services.limits)
        if request is None:
            decode = partial(_decode_repaired, client_request, services, conversation)
            heavy = heavy and is_heavy_body(body)
            decoded = await services.body_executor.run_in_thread(decode) if heavy else decode()
            request, client_request = decoded
        observer.on_model(request.model or "")
        route_match = client_request.restrict(request.model, services.router.route(request.model))
        if route_match.is_default:
            observer.on_default_model(request.model or "")
        if services.router.credential_headers:
            route_match = use_client_credentials(
                route_match, client_request.credentials, client_request.codec, services.redactor
            )
        return Exchange(
            services, client_request, request, route_match, observer, conversation=conversation, is_heavy=heavy
        )


def _decode_repaired(
    client_request: ClientRequest, services: ExchangeServices, conversation: Conversation
) -> tuple[Request, ClientRequest]:
    """Decode the client's request; return it with the request as received, without lone surrogates."""

    def decode(body: bytes) -> Request:
        """Decode a body in place of the one received."""
        received = client_request if body is client_request.body else replace(client_request, body=body)
        return _decode_request(received, services, conversation)

    request, body, losses = decode_repaired(decode, client_request.body, "request")
    return request, replace(client_request, body=body, losses=losses) if losses else client_request


def _decode_request(client_request: ClientRequest, services: ExchangeServices, conversation: Conversation) -> Request:
    """Decode the client's request within the limits on its size."""
    if (known := conversation.decode_new_messages(client_request, services.limits)) is not None:
        return known
    codec, body = client_request.codec, client_request.body
    if counted := len(body) > services.uncounted_size:
        check_body_counts(body, services.limits, codec.name)
    request = codec.decode_request(body_bytes(body, codec.name), client_request.route)
    if counted:
        check_request_counts(request, services.limits, body)
    conversation.remember(client_request, request)
    return request


async def _try_backends(exchange: Exchange) -> BufferedResponse | StreamingResponse[bytes]:
    """Send a request to the backends of its route, until one responds or failover is ruled out."""
    backends = exchange.route_match.backends
    if len(backends) == 1:
        await _prepare_request(exchange, backends[0])
        return await _request_response(exchange, backends[0])
    return await try_backends(
        exchange.services,
        order_backends(exchange.route_match, exchange.request, exchange.client_request.tenant),
        exchange.request,
        BackendAttempt(
            prepare=partial(_prepare_request, exchange),
            send=partial(_request_response, exchange),
            on_failover=exchange.observer.on_failover,
        ),
    )


async def _prepare_request(exchange: Exchange, backend: Backend) -> None:
    """Prepare the request for a backend."""
    exchange.observer.on_backend(backend)
    if exchange.managed is not None:
        executor = exchange.services.body_executor
        await executor.run(exchange.managed.prepare, exchange, backend, heavy=exchange.is_heavy)
        if (summary_exchange := exchange.managed.summary_exchange) is not None:
            summary_exchange.upstream_request = await prepare_upstream_request(summary_exchange, backend)
            exchange.upstream_request = summary_exchange.upstream_request
            exchange.observer.on_request_sent(exchange.upstream_request)
            return
    await _prepare_answer(exchange, backend)


async def _prepare_answer(exchange: Exchange, backend: Backend) -> None:
    """Prepare the request for the answer itself, after any summary."""
    try:
        exchange.upstream_request = await prepare_upstream_request(exchange, backend)
        if exchange.managed is not None:
            prepare_delegation(exchange)
            report_management(exchange)
    except LossyTranslationError as refusal:
        exchange.observer.on_refusal(refusal.all_losses)
        raise
    exchange.observer.on_request_sent(exchange.upstream_request)


async def _request_response(exchange: Exchange, backend: Backend) -> BufferedResponse | StreamingResponse[bytes]:
    """Send the prepared request; if the gateway compacts the conversation, request the summary first.

    If the server refuses tools, the request is sent once more with prompted tools. If it refuses to manage the
    context, the request is sent once more, and the gateway manages it.
    """
    try:
        if exchange.managed is not None:
            if exchange.managed.summary_exchange is not None:
                await _request_summary(exchange, exchange.managed, exchange.managed.summary_exchange, backend)
            if exchange.managed.answers_with_summary and not exchange.managed.is_native:
                return await _respond_with_summary(exchange, exchange.managed)
            if exchange.compacts_only:
                return await request_raw_response(exchange)
        return await request_response(exchange)
    except RequestRejected as rejection:
        if refuses_management(exchange, rejection):
            await _prepare_request(exchange, backend)
            return await _request_response(exchange, backend)
        is_prompted = exchange.upstream_request.dialect is not None
        if is_prompted or not refuses_tools(rejection.error, backend, exchange.route_match.options):
            raise
    exchange.services.refused_tools.add(backend)
    await _prepare_request(exchange, backend)
    return await request_response(exchange)


async def _request_summary(
    exchange: Exchange, managed: ManagedContext, summary_exchange: Exchange, backend: Backend
) -> None:
    """Let the backend summarize the conversation, and prepare the request that continues from the summary."""
    response = await _request_response(summary_exchange, backend)
    if isinstance(response, BufferedResponse):  # a request for a summary is not streamed
        managed.read_response(exchange, response)
    if not managed.answers_with_summary:
        await _prepare_answer(exchange, backend)


async def _respond_with_summary(
    exchange: Exchange, managed: ManagedContext
) -> BufferedResponse | StreamingResponse[bytes]:
    """Return the response that holds only the compaction."""
    report_management(exchange)
    upstream_request, response = exchange.upstream_request, managed.local_response(exchange)
    if exchange.compacts_only:
        return BufferedResponse(managed.compacted_body(exchange), upstream_request.losses, response)
    upstream_request.context = replace(upstream_request.context, request=exchange.request)
    upstream_request.rounds = None
    return await respond_locally(exchange, response)


async def _open_stream(exchange: Exchange) -> StreamingResponse[bytes]:
    """Send the request of a background job, and return its response, which must be a stream."""
    if isinstance(response := await _try_backends(exchange), StreamingResponse):
        return response
    raise AssertionError("a streaming request got a buffered response")
