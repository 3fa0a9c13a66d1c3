"""A provider that speaks the client's own protocol gets the request as the client wrote it, but for the model's name.

It was decoded before, so that what nobody could read is refused here. Each member counts once: a second `model`, which
one reader would take and another would not, does not get through.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.codec.encoding.fallbacks import disable_storage
from toolwire.codec.host_profiles import HostProfile
from toolwire.codec.interface import Codec, Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.state.adapters import STATE_ADAPTERS

RequestRepair = Callable[[Request, Target, WireNames, LossReport], Request]


def apply_repairs(
    repair: RequestRepair, request: Request, target: Target, client: Codec, losses: list[Loss]
) -> tuple[Request, list[Loss]]:
    """The request without what the provider is known to refuse, and what became of it."""
    report = LossReport()
    repaired = repair(request, target, client.wire_names, report)
    return repaired, losses + report.resolve(request, client.wire_names) if report else losses


def prepare_cross_protocol(client: Codec, request: Request, restored_request: Request, host: HostProfile) -> Request:
    """Return the request as a provider of another protocol can be asked it; Refused if it can't be."""
    if (demanded := client.native_only_error(request)) is not None:
        raise RequestRejected(demanded)
    if not restored_request.messages and restored_request.continuation is None:
        # Each provider does something else with it: refuses it, answers nothing, or loads the model.
        raise RequestRejected(ApiError(kind="invalid_request", message="the request has no messages", status=400))
    return (
        disable_storage(restored_request)
        if host.stores_by_default and client.name not in STATE_ADAPTERS
        else restored_request
    )


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_TRUE, _FALSE = Raw(b"true"), Raw(b"false")


def passthrough_body(body: bytes, request: Request, codec: Codec, model: str | None, *, stream: bool) -> bytes | None:
    """The client's own bytes for this model; None if the protocol names the model in the address."""
    if "{model}" in codec.surface.endpoints[0].path:
        return None
    members = _decode_members(body)
    if model is not None:
        members["model"] = Raw(msgspec.json.encode(model))
    if request.stream is None:
        members["stream"] = _TRUE if stream else _FALSE
    return msgspec.json.encode(members)
