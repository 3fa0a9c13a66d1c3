"""Preparing a request for one backend, in six steps.

    restore -> adapt settings -> emulate -> repair -> pass through or encode -> check losses

A passed-through body is decoded first, so an invalid request is rejected here. Members are deduplicated: a second
`model`, which another parser might prefer, does not get through.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.request import Request
from toolwire.codec.encoding.fallbacks import disable_storage
from toolwire.codec.encoding.hosts import fit_betas
from toolwire.codec.envelope import EnvelopeKey, is_envelope
from toolwire.codec.interface import Codec, EncodedBody, ResponseContext, Route, Target, TextRecovery
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.wire.reader import decode_members
from toolwire.gateway.emulation.plan import EmulationPlan, plan_emulation, request_losses
from toolwire.gateway.emulation.prompted_tools import prompting_dialect, text_recovery
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.backend_facts import BackendFacts, known_backend, look_up_backend
from toolwire.gateway.exchange.call_checks import DeclaredTools
from toolwire.gateway.exchange.conversation_memo import CompleteEncodingRequired
from toolwire.gateway.exchange.exchange import Exchange
from toolwire.gateway.exchange.refusals import omit_settings
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.limits import check_loss_count, is_heavy_body
from toolwire.gateway.rounds.call_retry import CallRetryRounds
from toolwire.gateway.rounds.continuation import ProtocolPair, RoundMerger, RouteTools
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.signatures import DROPPING_CLIENTS
from toolwire.gateway.state.withheld_turns import WITHHELD_FOR
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import raise_for_losses
from toolwire.translation.caching import with_caching
from toolwire.translation.history import restore_envelopes, signatures_in
from toolwire.translation.prompted_tools import prompt_tools, prompting_codec
from toolwire.translation.request import adapt_request
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.withheld import WithheldSignatures

RequestRepair = Callable[[Request, Target, WireNames, LossReport], Request]


class SignedRequest(Struct, frozen=True):
    """A request with its reasoning and signatures restored."""

    request: Request
    foreign: frozenset[str] = frozenset()
    """Signatures that another backend issued."""
    has_envelopes: bool = False


class Draft(Struct):
    """A request that is being prepared for one backend."""

    exchange: Exchange
    backend: Backend
    client: Codec
    upstream: Codec
    envelope_key: EnvelopeKey | None
    target: Target
    request: Request
    """The request as the steps so far left it."""
    losses: list[Loss]
    signed: SignedRequest
    plan: EmulationPlan | None = None
    """The features that the gateway emulates."""
    dialect: Dialect | None = None
    """The dialect in which tools are prompted; None if the server takes them."""


async def prepare_upstream_request(exchange: Exchange, backend: Backend) -> UpstreamRequest:
    """Load what the backend's request needs, and build the request, in a thread if it is heavy."""
    services, request, protocol = exchange.services, exchange.request, backend.provider.protocol
    options, client = exchange.route_match.options, exchange.client_request.codec
    signed_request, route_tools = request, None
    if client.name in WITHHELD_FOR and client.name != protocol:
        withheld_turns = services.conversation_state.withheld_turns
        signed_request = await withheld_turns.restore(request, client, exchange.turn_key(backend))
    signed = await find_signatures(exchange, backend, signed_request)
    if options.tools:
        route_tools = await services.route_toolsets.tools_for(options, request, backend)
    # With a stored history, the request is larger than the client's body.
    body_size = len(exchange.client_request.body) if exchange.pending_response is None else None
    facts = await look_up_backend(services, backend, options, request, body_size=body_size, heavy=exchange.is_heavy)
    build = partial(build_upstream_request, exchange, backend, signed, route_tools, facts)
    heavy = exchange.is_heavy
    if heavy and exchange.conversation.is_light(exchange.client_request.body):
        with suppress(CompleteEncodingRequired):
            return build(complete=False)
        pending = exchange.pending_response
        heavy = is_heavy_body(exchange.client_request.body) or (pending is not None and pending.has_heavy_history)
    return await services.body_executor.run_in_thread(build) if heavy else build()


async def find_signatures(exchange: Exchange, backend: Backend, request: Request) -> SignedRequest:
    """Return the request with dropped reasoning restored, and its signatures that another backend issued."""
    signatures, client_request = exchange.services.conversation_state.signatures, exchange.client_request
    calls, sent_back = exchange.conversation.scan_messages(request.messages)
    if calls and client_request.codec.name in DROPPING_CLIENTS:
        restored = await signatures.restore_reasoning(
            client_request.tenant, request, calls, client_request.codec.wire_names
        )
        if restored is not request:
            request, sent_back = restored, signatures_in(restored.messages)
    if not sent_back:
        return SignedRequest(request)
    foreign = await signatures.find_foreign(client_request.tenant, sent_back, backend.issuer)
    return SignedRequest(request, foreign, any(map(is_envelope, sent_back)))


def build_upstream_request(
    exchange: Exchange,
    backend: Backend,
    signed: SignedRequest,
    route_tools: RouteTools | None = None,
    facts: BackendFacts | None = None,
    *,
    complete: bool = True,
) -> UpstreamRequest:
    """Translate a request for one backend, or pass it through if the protocols match; leave refused settings out.

    `facts` default to those known without a request to the provider. With `complete` false, raise
    `CompleteEncodingRequired` if messages sent earlier have to be encoded.
    """
    draft = Draft(
        exchange,
        backend,
        exchange.client_request.codec,
        PROTOCOLS[backend.provider.protocol],
        exchange.services.envelope_key(exchange.client_request.tenant, backend),
        _backend_target(exchange, backend, facts or known_backend(exchange.services, backend, exchange.request)),
        signed.request,
        list(exchange.client_request.losses),
        signed,
    )
    upstream_request = _translate_draft(draft, route_tools, complete=complete)
    _fit_headers(draft, upstream_request)
    if refusals := exchange.services.refused_settings.find(backend, exchange.request.model):
        omit_settings(exchange, upstream_request, refusals)
        raise_for_losses(upstream_request.losses, draft.upstream.name, strict=exchange.strict)
    if exchange.route_match.options.retry_invalid_calls:
        _retry_calls(exchange, upstream_request)
    return upstream_request


def _retry_calls(exchange: Exchange, upstream_request: UpstreamRequest) -> None:
    """Let invalid calls of the response be requested again, unless the gateway runs tools for it."""
    sampling = exchange.request.sampling
    is_single = sampling is None or sampling.n in (None, 1)
    if exchange.request.tools and is_single and type(upstream_request.rounds) in (type(None), RoundMerger):
        upstream_request.rounds = CallRetryRounds(
            DeclaredTools(exchange.request),
            upstream_request.context.mapping,
            exchange.route_match.options.retry_invalid_calls,
            partial(exchange.observer.on_call, upstream_request.backend),
        )


def _translate_draft(draft: Draft, route_tools: RouteTools | None, *, complete: bool) -> UpstreamRequest:
    """Take the steps from the client's request to the upstream's, or pass it through."""
    exchange = draft.exchange
    _restore_state(draft)
    _adapt_settings(draft)
    _plan_emulation(draft, route_tools)
    if exchange.route_match.options.repair and draft.upstream.repair_request is not None:
        _repair_request(draft, draft.upstream.repair_request)
    draft.dialect = prompting_dialect(
        draft.request,
        draft.backend,
        exchange.route_match.options,
        draft.target.model_info,
        exchange.services.refused_tools,
    )
    is_received = draft.request is exchange.request and not exchange.is_rewritten
    is_unchanged = draft.client is draft.upstream and is_received and draft.dialect is None
    adapts = not draft.target.host.pass_through  # the host may reject what its client sends
    if is_unchanged and not adapts and (upstream_request := _pass_through(draft)) is not None:
        return upstream_request
    if draft.dialect is not None and not complete:
        raise CompleteEncodingRequired
    encoding = _encode_request(draft, complete=complete)
    if is_unchanged and not encoding.report and (upstream_request := _pass_through(draft)) is not None:
        return upstream_request
    if draft.dialect is not None:
        encoding = prompt_tools(encoding, draft.upstream, draft.target, draft.dialect)
    _check_losses(draft, encoding)
    return _upstream_request(draft, encoding)


def _fit_headers(draft: Draft, upstream_request: UpstreamRequest) -> None:
    """Leave out of the headers, and report, what the host rejects."""
    report, name = LossReport(), draft.upstream.surface.passthrough_header
    headers = [
        (header, fit_betas(value, draft.target.host, report) if header == name else value)
        for header, value in upstream_request.route.headers
    ]
    if not report and headers == list(upstream_request.route.headers):
        return
    upstream_request.route = replace(upstream_request.route, headers=tuple(item for item in headers if item[1]))
    losses = report.resolve(draft.exchange.request, draft.client.wire_names)
    upstream_request.losses = upstream_request.losses + losses
    raise_for_losses(losses, draft.upstream.name, strict=draft.exchange.strict)


def _backend_target(exchange: Exchange, backend: Backend, facts: BackendFacts) -> Target:
    """Describe the backend to the encoder."""
    options = exchange.route_match.options
    target = Target(
        model=backend.model,
        stream=exchange.is_streaming,
        realm=backend.provider.name,
        hosted_tools=options.hosted_tools,
        binary_results=options.binary_results,
        **facts,
    )
    if options.cache == "off":
        return target
    client, upstream = exchange.client_request.codec, PROTOCOLS[backend.provider.protocol]
    return with_caching(target, exchange.request, client, upstream)


def _restore_state(draft: Draft) -> None:
    """Restore what envelopes hold, and remove references to state that the gateway itself stores."""
    exchange, request, signed = draft.exchange, draft.request, draft.signed
    if signed.foreign or signed.has_envelopes:
        draft.request, missing = restore_envelopes(
            request,
            draft.client,
            draft.envelope_key,
            same_protocol=request.origin == draft.upstream.name,
            foreign=signed.foreign,
            accepts_unsigned=not draft.target.host.reasoning.signatures,
        )
        draft.losses = draft.losses + missing.resolve(request, draft.client.wire_names)
    if exchange.pending_response is not None:
        same_protocol = draft.client is draft.upstream
        draft.request = exchange.pending_response.upstream_request(draft.request, same_protocol=same_protocol)


def _adapt_settings(draft: Draft) -> None:
    """Adapt extras, client metadata and settings to another protocol."""
    report, request, client = LossReport(), draft.request, draft.client
    draft.request = adapt_request(request, client, draft.upstream, draft.target.host, report)
    if report:
        draft.losses = draft.losses + report.resolve(request, client.wire_names)


def _plan_emulation(draft: Draft, route_tools: RouteTools | None) -> None:
    """Plan the features that the gateway emulates, and add the route's tools."""
    draft.plan = plan = plan_emulation(draft.request, draft.client, draft.upstream, draft.backend.model, route_tools)
    if plan is not None:
        draft.request, draft.losses = plan.request, draft.losses + plan.losses


def _repair_request(draft: Draft, repair: RequestRepair) -> None:
    """Repair what the provider is known to reject."""
    report, request, wire_names = LossReport(), draft.request, draft.client.wire_names
    draft.request = repair(request, draft.target, wire_names, report)
    if report:
        draft.losses = draft.losses + report.resolve(request, wire_names)


def _pass_through(draft: Draft) -> UpstreamRequest | None:
    """Build a request with the client's own body; None if the body has to be encoded anew."""
    exchange, backend, request = draft.exchange, draft.backend, draft.request
    is_renamed = backend.model not in (None, request.model)
    if is_renamed and request.thinking is not None:  # valid thinking settings depend on the model
        return None
    client_request, codec = exchange.client_request, draft.upstream
    body = _passthrough_body(client_request.body, request, codec, backend.model, stream=exchange.is_streaming)
    if body is None:
        return None
    context = ResponseContext(
        request=request,
        created=client_request.created,
        envelope_key=draft.envelope_key,
        text_recovery=_text_recovery(draft),
    )
    route = Route(path=codec.surface.endpoints[0].path, headers=client_request.route.headers)
    return UpstreamRequest(backend, codec, context, draft.losses, route, body)


_TRUE, _FALSE = Raw(b"true"), Raw(b"false")


def _passthrough_body(body: bytes, request: Request, codec: Codec, model: str | None, *, stream: bool) -> bytes | None:
    """Return the client's body with the model replaced; None if the body has to be encoded anew."""
    if "{model}" in codec.surface.endpoints[0].path:
        return None
    members = decode_members(body)
    if model is not None:
        members["model"] = Raw(msgspec.json.encode(model))
    if request.stream is None:
        members["stream"] = _TRUE if stream else _FALSE
    return msgspec.json.encode(members)


def _encode_request(draft: Draft, *, complete: bool) -> EncodedBody:
    """Encode the request; between protocols, reject what only the client's provider can do, and disable storage."""
    if draft.client is draft.upstream:
        return draft.exchange.conversation.encode(
            draft.request, draft.client, draft.upstream, draft.target, complete=complete
        )
    client, request = draft.client, draft.exchange.request
    if (error := client.native_only_error(request)) is not None:
        raise RequestRejected(error)
    if not draft.request.messages and draft.request.continuation is None:
        # Providers differ on an empty request: they reject it, respond with nothing, or load the model.
        raise RequestRejected(ApiError(kind="invalid_request", message="the request has no messages", status=400))
    if draft.target.host.fields.stores_by_default and client.name not in STATE_ADAPTERS:
        draft.request = disable_storage(draft.request)
    encoding = draft.exchange.conversation.encode(
        draft.request, draft.client, draft.upstream, draft.target, complete=complete
    )
    encoding.mapping.integer_schemas = request
    return encoding


def _check_losses(draft: Draft, encoding: EncodedBody) -> None:
    """Add the losses of the encoded request, and reject it if they are too many or not accepted."""
    draft.losses += request_losses(draft.plan, encoding, draft.request, _protocol_pair(draft))
    if losses := draft.losses:
        exchange, upstream = draft.exchange, draft.upstream.name
        check_loss_count(losses, exchange.services.limits, upstream)
        raise_for_losses(losses, upstream, strict=exchange.strict)


def _upstream_request(draft: Draft, encoding: EncodedBody) -> UpstreamRequest:
    """Return the encoded request, with what is needed to translate its response."""
    exchange, client_request, upstream = draft.exchange, draft.exchange.client_request, draft.upstream
    route = encoding.route
    if draft.client is upstream:
        route = replace(route, headers=client_request.route.headers)
    is_withheld = draft.client.name in WITHHELD_FOR and upstream.envelope_field is not None
    context = ResponseContext(
        request=exchange.request,
        mapping=encoding.mapping,
        created=client_request.created,
        envelope_key=draft.envelope_key,
        withheld=WithheldSignatures() if is_withheld else None,
        text_recovery=_text_recovery(draft),
        digest_before=exchange.conversation.digest_before,
    )
    rounds = exchange.services.emulator.rounds_for(
        draft.plan, draft.request, _protocol_pair(draft), encoding.mapping, client_request.tenant
    )
    body = encoding.to_bytes()
    return UpstreamRequest(draft.backend, upstream, context, draft.losses, route, body, rounds, draft.dialect)


def _text_recovery(draft: Draft) -> TextRecovery | None:
    """Return what to recover from the text of the response, by the settings of route and provider."""
    recovery = text_recovery(draft.request, draft.backend, draft.exchange.route_match.options, draft.dialect)
    if recovery is None or draft.plan is None:
        return recovery
    return replace(recovery, added_tools=draft.plan.all_tools)


def _protocol_pair(draft: Draft) -> ProtocolPair:
    """Return the protocols of client and upstream, and the target; further rounds prompt tools as the first does."""
    upstream = draft.upstream if draft.dialect is None else prompting_codec(draft.upstream, draft.dialect)
    return ProtocolPair(draft.client, upstream, draft.target)
