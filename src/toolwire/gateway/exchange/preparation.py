"""Preparing a request for the upstream: repairs, checks before translation, and pass-through of the client's body.

A passed-through body is decoded first, so an invalid request is rejected here. Members are deduplicated: a second
`model`, which another parser might prefer, does not get through.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.request import Request
from toolwire.codec.encoding.fallbacks import disable_storage
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.host_profiles import HostProfile
from toolwire.codec.interface import Codec, ResponseContext, Route, Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.exchange.types import ClientRequest, UpstreamRequest
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.withheld_turns import WITHHELD_FOR
from toolwire.translation.stages.withheld import WithheldSignatures

RequestRepair = Callable[[Request, Target, WireNames, LossReport], Request]


def apply_repairs(
    repair: RequestRepair, request: Request, target: Target, client: Codec, losses: list[Loss]
) -> tuple[Request, list[Loss]]:
    """Repair what the provider is known to reject; return the new request, and `losses` with those of the repairs."""
    report = LossReport()
    repaired = repair(request, target, client.wire_names, report)
    return repaired, losses + report.resolve(request, client.wire_names) if report else losses


def prepare_cross_protocol(client: Codec, request: Request, restored_request: Request, host: HostProfile) -> Request:
    """Check that a provider of another protocol can serve the request, and turn off storage there.

    Raises `RequestRejected` if only the client's own provider can serve it.
    """
    if (error := client.native_only_error(request)) is not None:
        raise RequestRejected(error)
    if not restored_request.messages and restored_request.continuation is None:
        # Providers differ on an empty request: they reject it, respond with nothing, or load the model.
        raise RequestRejected(ApiError(kind="invalid_request", message="the request has no messages", status=400))
    return (
        disable_storage(restored_request)
        if host.stores_by_default and client.name not in STATE_ADAPTERS
        else restored_request
    )


def new_withheld_signatures(client: Codec, upstream: Codec) -> WithheldSignatures | None:
    """Return a collector for signatures that the client's protocol can't carry; None if there is nothing to collect."""
    return WithheldSignatures() if client.name in WITHHELD_FOR and upstream.envelope_field is not None else None


def upstream_route(client_request: ClientRequest, upstream: Codec, route: Route) -> Route:
    """Return the route, with the client's forwarded headers if the upstream speaks the client's protocol."""
    return replace(route, headers=client_request.route.headers) if client_request.codec is upstream else route


def passthrough_request(
    client_request: ClientRequest,
    request: Request,
    backend: Backend,
    losses: list[Loss],
    envelope_key: EnvelopeKey | None,
) -> UpstreamRequest | None:
    """Build a request with the client's own body; None if the body has to be encoded anew."""
    codec = client_request.codec
    is_renamed = backend.model not in (None, request.model)
    if is_renamed and request.thinking is not None:  # valid thinking settings depend on the model
        return None
    is_streaming = client_request.is_streaming(request)
    body = _passthrough_body(client_request.body, request, codec, backend.model, stream=is_streaming)
    if body is None:
        return None
    context = ResponseContext(request=request, created=client_request.created, envelope_key=envelope_key)
    route = Route(path=codec.surface.endpoints[0].path, headers=client_request.route.headers)
    return UpstreamRequest(backend, codec, context, losses, route, body)


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_TRUE, _FALSE = Raw(b"true"), Raw(b"false")


def _passthrough_body(body: bytes, request: Request, codec: Codec, model: str | None, *, stream: bool) -> bytes | None:
    """Return the client's body with the model replaced; None if the body has to be encoded anew."""
    if "{model}" in codec.surface.endpoints[0].path:
        return None
    members = _decode_members(body)
    if model is not None:
        members["model"] = Raw(msgspec.json.encode(model))
    if request.stream is None:
        members["stream"] = _TRUE if stream else _FALSE
    return msgspec.json.encode(members)
