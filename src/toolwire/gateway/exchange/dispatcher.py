"""One exchange, from the client's bytes to the provider and back.

    decode -> route -> restore envelopes -> encode -> check losses -> send -> decode -> encode

A request is retried or failed over only while the client has received no byte, and only if that is safe: see
`exchange.sender`. Errors that the request itself causes are returned at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError, Loss
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.encoding.fallbacks import apply_setting_changes
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.host_profiles import HostProfile
from toolwire.codec.interface import ResponseContext, Target
from toolwire.codec.wire.extras import BoundedMemo
from toolwire.gateway.config import LimitsSection, RouteSection
from toolwire.gateway.emulation.plan import Emulator, plan_emulation, request_losses
from toolwire.gateway.errors import (
    RequestRejected,
    invalid_response_error,
    redact_error,
    redact_extras,
    transport_rejection,
    with_default_status,
)
from toolwire.gateway.exchange.preparation import (
    apply_repairs,
    new_withheld_signatures,
    passthrough_request,
    prepare_cross_protocol,
    upstream_route,
)
from toolwire.gateway.exchange.response import encode_client_response, read_first_chunk, response_translator
from toolwire.gateway.exchange.routing import Backend, RouteMatch, Router, estimate_entry_size
from toolwire.gateway.exchange.sender import UpstreamSender, can_fail_over, classify_error, find_side_effect
from toolwire.gateway.exchange.types import (
    BufferedResponse,
    ClientRequest,
    NextRound,
    StreamingResponse,
    UpstreamRequest,
)
from toolwire.gateway.limits import (
    SMALL_BODY,
    BodyExecutor,
    StreamBudget,
    check_body_counts,
    check_loss_count,
    check_request_counts,
    is_heavy_body,
    uncounted_size,
)
from toolwire.gateway.providers.models import OllamaCapabilities
from toolwire.gateway.rounds.continuation import (
    GatewayToolLoop,
    ProtocolPair,
    RouteTools,
    continuation_request,
    is_paused,
    merge_responses,
)
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.background_jobs import BackgroundJob, FrameLogReader
from toolwire.gateway.state.conversations import ConversationState, PendingResponse
from toolwire.gateway.state.withheld_turns import WITHHELD_FOR, TurnKey
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import body_bytes, raise_for_losses
from toolwire.translation.history import has_envelopes, restore_envelopes
from toolwire.translation.stages.failures import find_defect, response_error
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import Transport, TransportError, UpstreamResponse

BackendCallback = Callable[[str, str | None], None]
RequestSentCallback = Callable[[UpstreamRequest], None]


class Dispatcher:
    """Dispatches client requests to upstream providers."""

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
    ) -> None:
        self._router = router
        self._transport = transport
        self.capabilities = OllamaCapabilities(transport)
        self._sender = UpstreamSender(transport, limits)
        self._limits = limits
        self._uncounted_size = uncounted_size(limits)
        self._signing_keys = signing_keys
        self._conversation_state = conversation_state
        self._redactor = redactor
        self._route_toolsets = route_toolsets or RouteToolsets()
        self._emulator = Emulator(conversation_state.store, signing_keys)
        self._body_executor = BodyExecutor()
        self._envelope_keys: BoundedMemo[tuple[str, str, str | None], EnvelopeKey] = BoundedMemo()

    def close(self) -> None:
        """Close connections, worker threads, emulation and state."""
        self._body_executor.close()
        self._transport.close()
        self._emulator.close()
        self._conversation_state.close()

    async def translate(self, client_request: ClientRequest) -> UpstreamRequest:
        """Translate a request for its first backend, without sending it."""
        request, route_match, heavy = await self._decode_and_route(client_request)
        prepare = partial(self._prepare_upstream_request, client_request, request, route_match, route_match.backends[0])
        return await self._body_executor.run_in_thread(prepare) if heavy else prepare()

    async def dispatch(
        self,
        client_request: ClientRequest,
        on_backend: BackendCallback,
        on_stream_start: Callable[[], None],
        on_request_sent: RequestSentCallback | None = None,
    ) -> BufferedResponse | StreamingResponse | FrameLogReader:
        """Send a request to the backends of its route and return the response.

        `on_stream_start` is called before anything is sent, if the response will be streamed. `on_backend` and
        `on_request_sent` are called for each backend tried.
        """
        request, route_match, heavy = await self._decode_and_route(client_request)
        pending_response = None
        if client_request.codec.name in STATE_ADAPTERS:
            pending_response = await self._conversation_state.resolve(
                client_request.codec, client_request.tenant, client_request.body, request, client_request.channel
            )
        if client_request.is_streaming(request):
            on_stream_start()
        send = partial(
            self._try_backends,
            client_request,
            route_match=route_match,
            on_backend=on_backend,
            on_request_sent=on_request_sent,
            pending_response=pending_response,
            heavy=heavy,
        )
        if pending_response is None:
            return await send(request)
        if pending_response.is_background:
            streaming_request = replace(pending_response.request, stream=True)
            job = await self._start_background_job(client_request, pending_response, lambda: send(streaming_request))
            if client_request.is_streaming(request):
                return FrameLogReader(job.frame_log.read_frames(-1), job)
            return BufferedResponse(job.queued_body, [], None, job)
        response = await send(pending_response.request)
        if isinstance(response, BufferedResponse) and (loss := await pending_response.flush()) is not None:
            response.losses = [*response.losses, loss]
        return response

    async def _start_background_job(
        self,
        client_request: ClientRequest,
        pending_response: PendingResponse,
        send: Callable[[], Awaitable[BufferedResponse | StreamingResponse]],
    ) -> BackgroundJob:
        """Start a job that sends the request and stores its streamed response."""

        async def open_stream() -> StreamingResponse:
            """Send the request, and return its response, which must be a stream."""
            return _require_streaming(await send())

        context = ResponseContext(request=pending_response.request, created=client_request.created)
        return await self._conversation_state.background_jobs.start(
            pending_response, client_request.codec, context, open_stream
        )

    async def prewarm(self, client_request: ClientRequest) -> bytes:
        """Store a request without sending it (`generate: false`), and return the stream of its empty response."""
        request, _, _ = await self._decode_and_route(client_request)
        pending_response = await self._conversation_state.resolve(
            client_request.codec, client_request.tenant, client_request.body, request, client_request.channel
        )
        if pending_response is None:
            return b""
        return await pending_response.store_prewarm(client_request.codec, client_request.created)

    async def _try_backends(
        self,
        client_request: ClientRequest,
        request: Request,
        route_match: RouteMatch,
        on_backend: BackendCallback,
        on_request_sent: RequestSentCallback | None,
        *,
        pending_response: PendingResponse | None,
        heavy: bool,
    ) -> BufferedResponse | StreamingResponse:
        """Send a request to each backend in order, until one responds or failover is ruled out."""
        failure: RequestRejected | None = None
        for backend in route_match.backends:
            on_backend(backend.provider.name, backend.model)
            signed_request = request
            if client_request.codec.name in WITHHELD_FOR and client_request.codec.name != backend.provider.protocol:
                signed_request = await self._conversation_state.withheld_turns.restore(
                    request, client_request.codec, _turn_key(client_request, backend)
                )
            route_tools = (
                await self._route_toolsets.tools_for(route_match.options, request, backend)
                if route_match.options.tools
                else None
            )
            host = None
            if backend.provider.protocol == "ollama":
                host = await self.capabilities.profile_for(backend.provider, backend.model or request.model, request)
            prepare = partial(
                self._prepare_upstream_request,
                client_request,
                request,
                route_match,
                backend,
                signed_request=signed_request,
                pending_response=pending_response,
                route_tools=route_tools,
                host=host,
            )
            upstream_request = await self._body_executor.run_in_thread(prepare) if heavy else prepare()
            if on_request_sent is not None:
                on_request_sent(upstream_request)
            try:
                return await self.send_to_backend(client_request, request, upstream_request)
            except RequestRejected as rejection:
                # A fallback without such a model does not explain why the request failed.
                if failure is None or rejection.error.kind != "not_found":
                    failure = RequestRejected(
                        isolate_foreign_extras(rejection.error, upstream_request.codec, client_request.codec)
                    )
                if not rejection.failover:
                    break
        raise failure or AssertionError("a route has at least one backend")

    async def _decode_and_route(self, client_request: ClientRequest) -> tuple[Request, RouteMatch, bool]:
        """Return the decoded client request, the backends for its model, and whether its body is heavy to process."""
        if heavy := len(client_request.body) > SMALL_BODY and is_heavy_body(client_request.body):
            request = await self._body_executor.run_in_thread(self._decode_request, client_request)
        else:
            request = self._decode_request(client_request)
        return request, self._router.route(request.model), heavy

    def _decode_request(self, client_request: ClientRequest) -> Request:
        """Decode the client's request within the limits on its size."""
        if counted := len(client_request.body) > self._uncounted_size:
            check_body_counts(client_request.body, self._limits, client_request.codec.name)
        request = client_request.codec.decode_request(
            body_bytes(client_request.body, client_request.codec.name), client_request.route
        )
        if counted:
            check_request_counts(request, self._limits, client_request.body)
        return request

    def _prepare_upstream_request(
        self,
        client_request: ClientRequest,
        request: Request,
        route_match: RouteMatch,
        backend: Backend,
        *,
        signed_request: Request | None = None,
        pending_response: PendingResponse | None = None,
        route_tools: RouteTools | None = None,
        host: HostProfile | None = None,
    ) -> UpstreamRequest:
        """Translate a request for one backend, or pass it through if the protocols match.

        `signed_request` is the request with withheld signatures restored.
        """
        client, upstream, options = client_request.codec, PROTOCOLS[backend.provider.protocol], route_match.options
        envelope_key = self._envelope_key(client_request.tenant, backend)
        prepared, losses = signed_request or request, list[Loss]()
        if has_envelopes(request):
            same_origin = request.origin == upstream.name
            prepared, missing = restore_envelopes(request, client, envelope_key, same_protocol=same_origin)
            losses = missing.resolve(request, client.wire_names)
        if pending_response is not None:
            prepared = pending_response.upstream_request(prepared, same_protocol=client is upstream)
        target = self._backend_target(client_request, request, options, backend, host)
        prepared = apply_setting_changes(isolate_foreign_extras(prepared, client, upstream), client, upstream)
        if (plan := plan_emulation(prepared, client, upstream, backend.model, route_tools)) is not None:
            prepared, losses = plan.request, losses + plan.losses
        if options.repair and upstream.repair_request is not None:
            prepared, losses = apply_repairs(upstream.repair_request, prepared, target, client, losses)
        if client is upstream and prepared is request:
            passthrough = passthrough_request(client_request, request, backend, losses, envelope_key)
            if passthrough is not None:
                return passthrough
        if client is not upstream:
            prepared = prepare_cross_protocol(client, request, prepared, target.host)
        encoding = upstream.encode_request(prepared, target)
        if client is not upstream:
            encoding.mapping.integer_schemas = request
        pair = ProtocolPair(client, upstream, target)
        losses += request_losses(plan, encoding, prepared, pair)
        if losses:
            if len(losses) > self._limits.losses:
                check_loss_count(losses, self._limits, upstream.name)
            raise_for_losses(losses, upstream.name, strict=client_request.strict or options.strict)
        context = ResponseContext(
            request=request,
            mapping=encoding.mapping,
            created=client_request.created,
            envelope_key=envelope_key,
            withheld=new_withheld_signatures(client, upstream),
        )
        return UpstreamRequest(
            backend=backend,
            codec=upstream,
            context=context,
            losses=losses,
            route=upstream_route(client_request, upstream, encoding.route),
            body=encoding.to_bytes(),
            rounds=self._emulator.rounds_for(plan, prepared, pair, encoding.mapping, client_request.tenant),
            pending_response=pending_response,
            on_complete=self._completion_callback(client_request, backend, context, pending_response),
        )

    def _backend_target(
        self,
        client_request: ClientRequest,
        request: Request,
        options: RouteSection,
        backend: Backend,
        host: HostProfile | None,
    ) -> Target:
        """Describe the backend to the encoder; without a `host` profile, the cached one of the provider is used."""
        return Target(
            model=backend.model,
            stream=client_request.is_streaming(request),
            realm=backend.provider.name,
            hosted_tools=options.hosted_tools,
            binary_results=options.binary_results,
            host=host or self.capabilities.cached_profile(backend.provider, backend.model or request.model),
        )

    def _completion_callback(
        self,
        client_request: ClientRequest,
        backend: Backend,
        context: ResponseContext,
        pending_response: PendingResponse | None,
    ) -> Callable[[Response], None] | None:
        """Return the callback that stores a complete response; None if nothing of it is stored."""
        if pending_response is None and context.withheld is None:
            return None
        turn_key = _turn_key(client_request, backend)
        return self._conversation_state.completion_callback(client_request.codec, context, pending_response, turn_key)

    def _envelope_key(self, tenant: str, backend: Backend) -> EnvelopeKey | None:
        """Return the cached key that signs envelopes for this tenant and backend; None if envelopes are off."""
        key = (tenant, backend.provider.name, backend.model)
        if not self._signing_keys:
            return None
        if (cached := self._envelope_keys.get(key)) is not None:
            return cached
        envelope_key = EnvelopeKey(self._signing_keys, tenant, realm=backend.provider.name, model=backend.model or "")
        self._envelope_keys.put(key, envelope_key, estimate_entry_size(*key))
        return envelope_key

    async def send_to_backend(
        self, client_request: ClientRequest, request: Request, upstream_request: UpstreamRequest
    ) -> BufferedResponse | StreamingResponse:
        """Send a request to one backend and return its response.

        `RequestRejected.failover` says whether the next backend may be tried.
        """
        first_round = None if upstream_request.rounds is None else await upstream_request.rounds.prepare_first_round()
        if isinstance(first_round, Response):
            return await self._local_response(client_request, request, upstream_request, first_round)
        upstream_request.body = upstream_request.body if first_round is None else first_round
        try:
            upstream_response = await self._sender.send(upstream_request, upstream_request.body)
            if client_request.is_streaming(request):
                return await self._streaming_response(client_request, upstream_request, upstream_response)
            return await self._buffered_response(client_request, upstream_request, upstream_response)
        except RequestRejected as rejection:
            raise await self._finalize_rejection(upstream_request, rejection) from None

    async def _finalize_rejection(
        self, upstream_request: UpstreamRequest, rejection: RequestRejected
    ) -> RequestRejected:
        """Return the rejection, redacted and with failover decided; side effects are added to its message."""
        error, effect = redact_error(rejection.error, self._redactor), None
        if upstream_request.rounds is not None and upstream_request.rounds.has_effects:
            effect = "tools were run or part of the response was produced"
        elif rejection.attempt == "unknown":
            effect = await asyncio.to_thread(find_side_effect, upstream_request.codec, upstream_request.body)
        if effect is None:
            return RequestRejected(error, failover=can_fail_over(rejection))
        message = f"{error.message}; the request may have taken effect: {effect}"
        return RequestRejected(replace(error, message=message, wire_form=()))

    async def _buffered_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse
    ) -> BufferedResponse:
        """Read a complete upstream response, continue paused rounds, and encode it for the client."""
        body = await self._read_body(upstream_request, upstream_response)
        is_same_protocol = client_request.codec is upstream_request.codec and upstream_request.rounds is None
        heavy = len(body) > SMALL_BODY and is_heavy_body(body)
        if is_same_protocol:
            peek = upstream_request.codec.peek
            if (summary := await self._body_executor.run_in_thread(peek, body) if heavy else peek(body)) is not None:
                return BufferedResponse(body, upstream_request.losses, summary)
        if heavy:
            decoded = await self._body_executor.run_in_thread(self._decode_response, upstream_request, body)
        else:
            decoded = self._decode_response(upstream_request, body)
        if isinstance(upstream_request.rounds, GatewayToolLoop):
            decoded = await upstream_request.rounds.complete_response(
                decoded, lambda body: self._request_round(upstream_request, body), self._max_rounds(upstream_request)
            )
        for _ in range(self._limits.pauses):
            if (
                upstream_request.rounds is None
                or isinstance(upstream_request.rounds, GatewayToolLoop)
                or not is_paused(decoded)
            ):
                break
            upstream_request.rounds.has_effects = True
            next_body = continuation_request(
                upstream_request.codec, upstream_request.body, decoded.candidates[0].messages
            )
            decoded = merge_responses(decoded, await self._request_round(upstream_request, next_body))
        return await self._client_response(client_request, upstream_request, decoded, body)

    async def _local_response(
        self, client_request: ClientRequest, request: Request, upstream_request: UpstreamRequest, response: Response
    ) -> BufferedResponse | StreamingResponse:
        """Encode a response that the gateway produced without an upstream."""
        if not client_request.is_streaming(request):
            return await self._client_response(client_request, upstream_request, response, b"")
        translator = response_translator(client_request, upstream_request, self._redactor)
        return StreamingResponse(upstream_request, None, translator, translator.translate_events(unfold(response)))

    async def _client_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, decoded_response: Response, body: bytes
    ) -> BufferedResponse:
        """Encode a complete response for the client and store it if requested; raise if it failed."""
        pending_response = upstream_request.pending_response
        is_same_protocol = client_request.codec is upstream_request.codec
        if decoded_response.error is not None:
            decoded_response = replace(
                decoded_response,
                error=redact_error(decoded_response.error, self._redactor),
                extras=redact_extras(decoded_response.extras, self._redactor),
            )
        if not is_same_protocol and (defect := find_defect(decoded_response, upstream_request.codec)) is not None:
            raise RequestRejected(with_default_status(defect), attempt="unknown")
        allows_error = is_same_protocol or client_request.codec.errors_in_body
        error = decoded_response.error if allows_error else response_error(decoded_response)
        if error is not None and not (allows_error and decoded_response.candidates):
            raise RequestRejected(error, attempt=classify_error(error, started=bool(decoded_response.candidates)))
        client_response = decoded_response
        if pending_response is not None and not is_same_protocol:
            client_response = replace(decoded_response, id=pending_response.id)
        encode = partial(encode_client_response, client_request, upstream_request, client_response)
        small = len(body) <= SMALL_BODY
        response, data, losses = encode() if small else await self._body_executor.run(body, encode)
        if data is None:
            if pending_response is not None:
                pending_response.complete(body)
            return BufferedResponse(body, upstream_request.losses, decoded_response)
        if upstream_request.on_complete is not None:
            upstream_request.on_complete(response)
        return BufferedResponse(data, upstream_request.losses + losses, decoded_response)

    async def _request_round(self, upstream_request: UpstreamRequest, body: bytes) -> Response:
        """Send the body of a further round (upstream request of the same response), and decode its response."""
        response_body = await self._read_body(upstream_request, await self._sender.send(upstream_request, body))
        return await self._body_executor.run(response_body, self._decode_response, upstream_request, response_body)

    async def _read_body(self, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse) -> bytes:
        """Read a complete upstream body, within `limits.answer`."""
        try:
            return body_bytes(await upstream_response.read(self._limits.answer), upstream_request.codec.name)
        except TransportError as error:
            raise transport_rejection(upstream_request.backend.provider, error) from None
        except DecodeError as error:
            raise RequestRejected(
                invalid_response_error(upstream_request.backend.provider, error), attempt="unknown"
            ) from None

    def _decode_response(self, upstream_request: UpstreamRequest, body: bytes) -> Response:
        """Decode an upstream body; an invalid one rejects the request."""
        try:
            return upstream_request.codec.decode_response(body, upstream_request.context)
        except DecodeError as error:
            raise RequestRejected(
                invalid_response_error(upstream_request.backend.provider, error), attempt="unknown"
            ) from None

    async def _streaming_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse
    ) -> StreamingResponse:
        """Read an upstream stream up to its first content or error, and return it; until then it may fail over."""
        translator = response_translator(client_request, upstream_request, self._redactor)
        content_type = upstream_response.headers.get("content-type", "")
        if content_type.startswith("application/json") and upstream_request.codec.name != "gemini":
            return await self._stream_from_body(client_request, upstream_request, upstream_response, translator)
        budget = StreamBudget(upstream_request.backend.provider, self._limits.stream)
        first_chunk, is_complete = await read_first_chunk(upstream_request, upstream_response, translator, budget)
        if translator.error is not None and not translator.has_content:
            upstream_response.close()
            attempt = "unknown" if translator.started else classify_error(translator.error)
            raise RequestRejected(with_default_status(translator.error), attempt=attempt)
        return StreamingResponse(
            upstream_request,
            None if is_complete else upstream_response,
            translator,
            first_chunk,
            next_round=self._round_continuation(upstream_request),
            budget=budget,
        )

    async def _stream_from_body(
        self,
        client_request: ClientRequest,
        upstream_request: UpstreamRequest,
        upstream_response: UpstreamResponse,
        translator: StreamTranslator,
    ) -> StreamingResponse:
        """Stream the JSON body that a provider sent although a stream was requested."""
        body = await self._read_body(upstream_request, upstream_response)
        response = await self._body_executor.run(body, self._decode_response, upstream_request, body)
        if response.error is not None and not response.candidates:
            raise RequestRejected(response.error, attempt=classify_error(response.error))
        if isinstance(upstream_request.rounds, GatewayToolLoop):
            response = await upstream_request.rounds.complete_response(
                response, lambda body: self._request_round(upstream_request, body), self._max_rounds(upstream_request)
            )
        events = unfold(isolate_foreign_extras(response, upstream_request.codec, client_request.codec))
        return StreamingResponse(upstream_request, None, translator, translator.translate_events(events))

    def _max_rounds(self, upstream_request: UpstreamRequest) -> int:
        """Return how many further upstream requests (rounds) one response may take."""
        runs_tools = isinstance(upstream_request.rounds, GatewayToolLoop) and upstream_request.rounds.runs_tools
        return self._limits.rounds if runs_tools else self._limits.pauses

    def _round_continuation(self, upstream_request: UpstreamRequest) -> NextRound | None:
        """Return the function that sends the next round of a stream; None if one upstream request is enough."""
        rounds, last_body, rounds_left = (
            upstream_request.rounds,
            upstream_request.body,
            self._max_rounds(upstream_request),
        )
        if rounds is None:
            return None

        async def next_round() -> UpstreamResponse | None:
            """Send the next round and return its response; None if the client's response is complete."""
            nonlocal last_body, rounds_left
            if rounds.paused and rounds_left > 0:
                rounds.ready_events = await rounds.finish_round()
            if not rounds.paused or rounds_left == 0:
                return None
            rounds_left -= 1
            last_body = rounds.next_request(upstream_request.codec, last_body)
            try:
                return await self._sender.send(upstream_request, last_body)
            except RequestRejected as rejection:
                raise await self._finalize_rejection(upstream_request, rejection) from None

        return next_round


def _turn_key(client_request: ClientRequest, backend: Backend) -> TurnKey:
    """Return the key for storing turns whose signatures are withheld from this client, by backend."""
    return TurnKey(client_request.tenant, client_request.codec.name, backend.provider.name, backend.model or "")


def _require_streaming(response: BufferedResponse | StreamingResponse) -> StreamingResponse:
    """Return the response, which must be a stream."""
    if isinstance(response, StreamingResponse):
        return response
    raise AssertionError("a streaming request got a buffered response")
