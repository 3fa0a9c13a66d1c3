"""One request, from the client's bytes to the provider and back: a straight line.

    decode -> route -> restore carries -> encode -> check losses -> send -> decode -> encode

A request is sent again only while the client has seen no byte, and only if that can do no harm: see `retries`. What the
request itself is at fault for is told at once.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import Event, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.encoding.fallbacks import apply_setting_changes
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.host_profiles import HostProfile
from toolwire.codec.interface import ResponseContext, Route, Target
from toolwire.codec.wire.memo import BoundedMemo
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.emulation.plan import Emulator, plan_emulation, request_losses
from toolwire.gateway.errors import (
    RequestRejected,
    invalid_response_error,
    redact_error,
    redact_extras,
    redact_failed_event,
    transport_rejection,
    with_default_status,
)
from toolwire.gateway.exchange.preparation import apply_repairs, passthrough_body, prepare_cross_protocol
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
from toolwire.gateway.providers.ollama_models import OllamaCapabilities
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
from toolwire.gateway.state.background_jobs import FrameLogReader
from toolwire.gateway.state.conversations import ConversationState, PendingResponse
from toolwire.gateway.state.withheld_turns import WITHHELD_FOR, TurnKey
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import adapt_response, body_bytes, raise_for_losses
from toolwire.translation.history import has_envelopes, restore_envelopes
from toolwire.translation.stages.failures import find_defect, response_error
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stages.withheld import WithheldSignatures
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import Transport, TransportError, UpstreamResponse


def response_translator(
    client_request: ClientRequest, upstream_request: UpstreamRequest, redactor: Redactor
) -> StreamTranslator:
    """The translation of a streamed answer, with no secret in its errors."""
    return StreamTranslator(
        upstream_request.codec,
        client_request.codec,
        upstream_request.context,
        transform=upstream_event_filter(client_request, upstream_request),
        on_response=upstream_request.on_complete,
        redact=lambda failed: redact_failed_event(failed, redactor),
    )


def upstream_event_filter(
    client_request: ClientRequest, upstream_request: UpstreamRequest
) -> Callable[[list[Event]], list[Event]] | None:
    """What is done to all events of an upstream: its legs as one, and the name of an answer that is kept."""
    name = (
        None
        if upstream_request.pending_response is None or client_request.codec is upstream_request.codec
        else upstream_request.pending_response.id
    )
    if name is None and upstream_request.rounds is None:
        return None

    def change(events: list[Event]) -> list[Event]:
        if name is not None and events and type(start := events[0]) is ResponseStart:
            events[0] = replace(start, id=name)
        return events if upstream_request.rounds is None else upstream_request.rounds.process(events)

    return change


BackendCallback = Callable[[str, str | None], None]
RequestSentCallback = Callable[[UpstreamRequest], None]


class Dispatcher:
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
        self._body_executor.close()
        self._transport.close()
        self._emulator.close()
        self._conversation_state.close()

    async def translate(self, client_request: ClientRequest) -> UpstreamRequest:
        """What would be sent to the first upstream, and its losses."""
        request, routed, heavy = await self._decode_and_route(client_request)
        prepare = partial(self._prepare_upstream_request, client_request, request, routed, routed.backends[0])
        return await self._body_executor.run_in_thread(prepare) if heavy else prepare()

    async def dispatch(
        self,
        client_request: ClientRequest,
        on_backend: BackendCallback,
        on_stream_start: Callable[[], None],
        on_request_sent: RequestSentCallback | None = None,
    ) -> BufferedResponse | StreamingResponse | FrameLogReader:
        """Ask. Told are which upstream it goes to and what is sent there, and before that whether it is to stream."""
        request, routed, heavy = await self._decode_and_route(client_request)
        keeping = None
        if client_request.codec.name in STATE_ADAPTERS:
            keeping = await self._conversation_state.resolve(
                client_request.codec, client_request.tenant, client_request.body, request, client_request.channel
            )
        if client_request.is_streaming(request):
            on_stream_start()
        if keeping is None or not keeping.is_background:
            meant = request if keeping is None else keeping.request
            answer = await self._try_backends(
                client_request, meant, routed, on_backend, on_request_sent, pending_response=keeping, heavy=heavy
            )
            if (
                keeping is not None
                and isinstance(answer, BufferedResponse)
                and (loss := await keeping.flush()) is not None
            ):
                answer.losses = [*answer.losses, loss]
            return answer
        watched = replace(keeping.request, stream=True)

        async def answer_stream() -> StreamingResponse:
            return _require_streaming(
                await self._try_backends(
                    client_request, watched, routed, on_backend, on_request_sent, pending_response=keeping, heavy=heavy
                )
            )

        context = ResponseContext(request=keeping.request, created=client_request.created)
        work = await self._conversation_state.background_jobs.start(
            keeping, client_request.codec, context, answer_stream
        )
        return (
            FrameLogReader(work.frame_log.read_frames(-1), work)
            if client_request.is_streaming(request)
            else BufferedResponse(work.queued_body, [], None, work)
        )

    async def prewarm(self, client_request: ClientRequest) -> bytes:
        """The stream of an answer that says nothing, to a request from which the next one goes on."""
        request, _, _ = await self._decode_and_route(client_request)
        keeping = await self._conversation_state.resolve(
            client_request.codec, client_request.tenant, client_request.body, request, client_request.channel
        )
        return b"" if keeping is None else await keeping.store_prewarm(client_request.codec, client_request.created)

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
        failure: RequestRejected | None = None
        for way in route_match.backends:
            on_backend(way.provider.name, way.model)
            proven = request
            if client_request.codec.name in WITHHELD_FOR and client_request.codec.name != way.provider.protocol:
                proven = await self._conversation_state.withheld_turns.restore(
                    request, client_request.codec, _turn_key(client_request, way)
                )
            offer = (
                await self._route_toolsets.tools_for(route_match.options, request, way)
                if route_match.options.tools
                else None
            )
            host = None
            if way.provider.protocol == "ollama":
                host = await self.capabilities.profile_for(way.provider, way.model or request.model, request)
            encode = partial(
                self._prepare_upstream_request,
                client_request,
                request,
                route_match,
                way,
                signed_request=proven,
                pending_response=pending_response,
                route_tools=offer,
                host=host,
            )
            sent = await self._body_executor.run_in_thread(encode) if heavy else encode()
            if on_request_sent is not None:
                on_request_sent(sent)
            try:
                return await self.send_to_backend(client_request, request, sent)
            except RequestRejected as refused:
                # A fallback that has no such model does not explain why the request failed.
                if failure is None or refused.error.kind != "not_found":
                    failure = RequestRejected(isolate_foreign_extras(refused.error, sent.codec, client_request.codec))
                if not refused.failover:
                    break
        raise failure or AssertionError("a route has at least one way")

    async def _decode_and_route(self, client_request: ClientRequest) -> tuple[Request, RouteMatch, bool]:
        """The request, its route, and whether its body is heavy."""
        if heavy := is_heavy_body(client_request.body):
            request = await self._body_executor.run_in_thread(self._decode_request, client_request)
        else:
            request = self._decode_request(client_request)
        return request, self._router.route(request.model), heavy

    def _decode_request(self, client_request: ClientRequest) -> Request:
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
        client, upstream, provider = client_request.codec, PROTOCOLS[backend.provider.protocol], backend.provider
        carrier = self._envelope_key(client_request.tenant, backend)
        restored, losses = signed_request or request, list[Loss]()
        if has_envelopes(request):
            home = request.origin == upstream.name
            restored, missing = restore_envelopes(request, client, carrier, same_protocol=home)
            losses = missing.resolve(request, client.wire_names)
        if pending_response is not None:
            restored = pending_response.upstream_request(restored, same_protocol=client is upstream)
        target = Target(
            model=backend.model,
            stream=client_request.is_streaming(request),
            realm=provider.name,
            hosted_tools=route_match.options.hosted_tools,
            binary_results=route_match.options.binary_results,
            host=host or self.capabilities.cached_profile(provider, backend.model or request.model),
        )
        restored = apply_setting_changes(isolate_foreign_extras(restored, client, upstream), client, upstream)
        if (emulating := plan_emulation(restored, client, upstream, backend.model, route_tools)) is not None:
            restored, losses = emulating.request, losses + emulating.losses
        if route_match.options.repair and upstream.repair_request is not None:
            restored, losses = apply_repairs(upstream.repair_request, restored, target, client, losses)
        renamed = backend.model not in (None, request.model)
        if client is upstream and restored is request and not (renamed and request.thinking is not None):
            body = passthrough_body(
                client_request.body, request, client, backend.model, stream=client_request.is_streaming(request)
            )
            if body is not None:
                context = ResponseContext(request=request, created=client_request.created, envelope_key=carrier)
                route = Route(path=client.surface.endpoints[0].path, headers=client_request.route.headers)
                return UpstreamRequest(backend, upstream, context, losses, route, body)
        if client is not upstream:
            restored = prepare_cross_protocol(client, request, restored, target.host)
        encoding = upstream.encode_request(restored, target)
        if client is not upstream:
            encoding.mapping.integer_schemas = request
        crossing = ProtocolPair(client, upstream, target)
        losses += request_losses(emulating, encoding, restored, crossing)
        check_loss_count(losses, self._limits, upstream.name)
        raise_for_losses(losses, upstream.name, strict=client_request.strict or route_match.options.strict)
        context = ResponseContext(
            request=request,
            mapping=encoding.mapping,
            created=client_request.created,
            envelope_key=carrier,
            withheld=WithheldSignatures()
            if client.name in WITHHELD_FOR and upstream.envelope_field is not None
            else None,
        )
        legs = self._emulator.rounds_for(emulating, restored, crossing, encoding.mapping, client_request.tenant)
        finish = None
        if pending_response is not None or context.withheld is not None:
            finish = self._conversation_state.completion_callback(
                client, context, pending_response, _turn_key(client_request, backend)
            )
        route = replace(encoding.route, headers=client_request.route.headers) if client is upstream else encoding.route
        return UpstreamRequest(
            backend, upstream, context, losses, route, encoding.to_bytes(), legs, pending_response, finish
        )

    def _envelope_key(self, tenant: str, backend: Backend) -> EnvelopeKey | None:
        key = (tenant, backend.provider.name, backend.model)
        if not self._signing_keys:
            return None
        if (known := self._envelope_keys.get(key)) is not None:
            return known
        made = EnvelopeKey(self._signing_keys, tenant, realm=backend.provider.name, model=backend.model or "")
        self._envelope_keys.put(key, made, estimate_entry_size(*key))
        return made

    async def send_to_backend(
        self, client_request: ClientRequest, request: Request, upstream_request: UpstreamRequest
    ) -> BufferedResponse | StreamingResponse:
        """Ask one upstream. `Refused.failover` says whether another one may be asked instead."""
        opened = None if upstream_request.rounds is None else await upstream_request.rounds.prepare_first_round()
        if isinstance(opened, Response):
            return await self._local_response(client_request, request, upstream_request, opened)
        upstream_request.body = upstream_request.body if opened is None else opened
        try:
            answer = await self._sender.send(upstream_request, upstream_request.body)
            if client_request.is_streaming(request):
                return await self._streaming_response(client_request, upstream_request, answer)
            return await self._buffered_response(client_request, upstream_request, answer)
        except RequestRejected as refused:
            raise await self._finalize_rejection(upstream_request, refused) from None

    async def _finalize_rejection(
        self, upstream_request: UpstreamRequest, rejection: RequestRejected
    ) -> RequestRejected:
        """Decide about failover, and name the effects that a failed request may have had."""
        error, effect = redact_error(rejection.error, self._redactor), None
        if upstream_request.rounds is not None and upstream_request.rounds.has_effects:
            effect = "tools were run or part of the answer was produced"
        elif rejection.attempt == "unknown":
            effect = await asyncio.to_thread(find_side_effect, upstream_request.codec, upstream_request.body)
        if effect is None:
            return RequestRejected(error, failover=can_fail_over(rejection))
        message = f"{error.message}; the request may have taken effect: {effect}"
        return RequestRejected(replace(error, message=message, wire_form=()))

    async def _buffered_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse
    ) -> BufferedResponse:
        body = await self._read_body(upstream_request, upstream_response)
        home = client_request.codec is upstream_request.codec and upstream_request.rounds is None
        heavy = is_heavy_body(body)
        if home:
            peek = upstream_request.codec.peek
            if (seen := await self._body_executor.run_in_thread(peek, body) if heavy else peek(body)) is not None:
                return BufferedResponse(body, upstream_request.losses, seen)
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
            further = continuation_request(
                upstream_request.codec, upstream_request.body, decoded.candidates[0].messages
            )
            decoded = merge_responses(decoded, await self._request_round(upstream_request, further))
        return await self._client_response(client_request, upstream_request, decoded, body)

    async def _local_response(
        self, client_request: ClientRequest, request: Request, upstream_request: UpstreamRequest, response: Response
    ) -> BufferedResponse | StreamingResponse:
        """An answer that no upstream was asked for."""
        if not client_request.is_streaming(request):
            return await self._client_response(client_request, upstream_request, response, b"")
        translation = response_translator(client_request, upstream_request, self._redactor)
        return StreamingResponse(upstream_request, None, translation, translation.translate_events(unfold(response)))

    async def _client_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, decoded_response: Response, body: bytes
    ) -> BufferedResponse:
        """A whole answer, for the client."""
        keeping, home = upstream_request.pending_response, client_request.codec is upstream_request.codec
        if decoded_response.error is not None:
            error, extras = (
                redact_error(decoded_response.error, self._redactor),
                redact_extras(decoded_response.extras, self._redactor),
            )
            decoded_response = replace(decoded_response, error=error, extras=extras)
        if not home and (defect := find_defect(decoded_response, upstream_request.codec)) is not None:
            raise RequestRejected(with_default_status(defect), attempt="unknown")
        whole = home or client_request.codec.errors_in_body
        failed = decoded_response.error if whole else response_error(decoded_response)
        if failed is not None and not (whole and decoded_response.candidates):
            raise RequestRejected(failed, attempt=classify_error(failed, started=bool(decoded_response.candidates)))
        named = decoded_response if keeping is None or home else replace(decoded_response, id=keeping.id)
        encode = partial(_encode_client_response, client_request, upstream_request, named)
        small = len(body) <= SMALL_BODY
        response, data, losses = encode() if small else await self._body_executor.run(body, encode)
        if data is None:
            if keeping is not None:
                keeping.complete(body)
            return BufferedResponse(body, upstream_request.losses, decoded_response)
        if upstream_request.on_complete is not None:
            upstream_request.on_complete(response)
        return BufferedResponse(data, upstream_request.losses + losses, decoded_response)

    async def _request_round(self, upstream_request: UpstreamRequest, body: bytes) -> Response:
        """One more leg of an answer."""
        answered = await self._read_body(upstream_request, await self._sender.send(upstream_request, body))
        return await self._body_executor.run(answered, self._decode_response, upstream_request, answered)

    async def _read_body(self, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse) -> bytes:
        """A whole answer, as it came."""
        try:
            return body_bytes(await upstream_response.read(self._limits.answer), upstream_request.codec.name)
        except TransportError as error:
            raise transport_rejection(upstream_request.backend.provider, error) from None
        except DecodeError as error:
            raise RequestRejected(
                invalid_response_error(upstream_request.backend.provider, error), attempt="unknown"
            ) from None

    def _decode_response(self, upstream_request: UpstreamRequest, body: bytes) -> Response:
        """What it means."""
        try:
            return upstream_request.codec.decode_response(body, upstream_request.context)
        except DecodeError as error:
            raise RequestRejected(
                invalid_response_error(upstream_request.backend.provider, error), attempt="unknown"
            ) from None

    async def _streaming_response(
        self, client_request: ClientRequest, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse
    ) -> StreamingResponse:
        """The stream from its first event on: until then it may still be given up."""
        translation = response_translator(client_request, upstream_request, self._redactor)
        kind = upstream_response.headers.get("content-type", "")
        if kind.startswith("application/json") and upstream_request.codec.name != "gemini":
            body = await self._read_body(upstream_request, upstream_response)
            response = await self._body_executor.run(body, self._decode_response, upstream_request, body)
            if response.error is not None and not response.candidates:
                raise RequestRejected(response.error, attempt=classify_error(response.error))
            if isinstance(upstream_request.rounds, GatewayToolLoop):
                response = await upstream_request.rounds.complete_response(
                    response,
                    lambda body: self._request_round(upstream_request, body),
                    self._max_rounds(upstream_request),
                )
            whole = unfold(isolate_foreign_extras(response, upstream_request.codec, client_request.codec))
            return StreamingResponse(upstream_request, None, translation, translation.translate_events(whole))
        first, data, room = b"", b"", StreamBudget(upstream_request.backend.provider, self._limits.stream)
        try:
            # Of an answer in several rounds the gateway's own calls are no content, and its end is not the stream's.
            while not (translation.has_outcome or (translation.started and upstream_request.rounds is not None)):
                data = await upstream_response.next()
                room.consume(data)
                first += translation.feed(data) if data else translation.close()
                if not data:
                    upstream_response.close()
                    break
        except TransportError as error:
            raise transport_rejection(upstream_request.backend.provider, error) from None
        except BaseException:
            upstream_response.close()
            raise
        if translation.error is not None and not translation.has_content:
            upstream_response.close()
            attempt = "unknown" if translation.started else classify_error(translation.error)
            raise RequestRejected(with_default_status(translation.error), attempt=attempt)
        rest = upstream_response if data else None
        return StreamingResponse(
            upstream_request,
            rest,
            translation,
            first,
            next_round=self._round_continuation(upstream_request),
            budget=room,
        )

    def _max_rounds(self, upstream_request: UpstreamRequest) -> int:
        """How many more legs an answer may have."""
        runs_tools = isinstance(upstream_request.rounds, GatewayToolLoop) and upstream_request.rounds.runs_tools
        return self._limits.rounds if runs_tools else self._limits.pauses

    def _round_continuation(self, upstream_request: UpstreamRequest) -> NextRound | None:
        """How a stream that paused goes on, if it is for us to ask."""
        legs, asked_before, left = upstream_request.rounds, upstream_request.body, self._max_rounds(upstream_request)
        if legs is None:
            return None

        async def go_on() -> UpstreamResponse | None:
            nonlocal asked_before, left
            if legs.paused and left > 0:
                legs.ready_events = await legs.finish_round()
            if not legs.paused or left == 0:
                return None
            left -= 1
            asked_before = legs.next_request(upstream_request.codec, asked_before)
            try:
                return await self._sender.send(upstream_request, asked_before)
            except RequestRejected as refused:
                raise await self._finalize_rejection(upstream_request, refused) from None

        return go_on


def _encode_client_response(
    client_request: ClientRequest, upstream_request: UpstreamRequest, decoded_response: Response
) -> tuple[Response, bytes | None, list[Loss]]:
    """The answer as the client gets it, its bytes and its losses; no bytes if it is passed on as it came."""
    response = adapt_response(decoded_response, upstream_request.codec, client_request.codec, upstream_request.context)
    if (
        client_request.codec is upstream_request.codec
        and upstream_request.rounds is None
        and response is decoded_response
        and decoded_response.error is None
    ):
        return response, None, []
    encoding = client_request.codec.encode_response(response, upstream_request.context)
    losses = encoding.report.resolve(response, upstream_request.codec.wire_names) if encoding.report else []
    raise_for_losses(losses, client_request.codec.name, strict=False)
    return response, encoding.to_bytes(), losses


def _turn_key(client_request: ClientRequest, backend: Backend) -> TurnKey:
    return TurnKey(client_request.tenant, client_request.codec.name, backend.provider.name, backend.model or "")


def _require_streaming(response: BufferedResponse | StreamingResponse) -> StreamingResponse:
    if isinstance(response, StreamingResponse):
        return response
    raise AssertionError("what is asked to stream does")
