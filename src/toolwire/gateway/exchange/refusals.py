"""Retry without refused settings: a request refused because of an optional setting is sent again without it.

A refusal (400 or 422) has no effect, so this is as safe as a retry. It happens once per exchange, and never if the
client or the route is strict. Later requests for the same provider and model leave the setting out at once. Every
setting left out is a loss.
"""

from toolwire.canonical.request import Request
from toolwire.codec.hosts.refusals import LOCATIONS, Omission, RefusedSetting, find_refusals, omit_refused
from toolwire.codec.losses import LossReport
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.context_management import refuses_management
from toolwire.gateway.exchange.exchange import Exchange
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.limits import is_heavy_body
from toolwire.upstream.transport import UpstreamResponse


async def send_request(exchange: Exchange) -> UpstreamResponse:
    """Send the prepared request; if the provider refuses an optional setting, send it once more without."""
    services, upstream_request = exchange.services, exchange.upstream_request
    try:
        return await services.sender.send(upstream_request, upstream_request.body)
    except RequestRejected as rejection:
        # What the provider lacks of context management, the gateway does instead.
        is_final = exchange.strict or refuses_management(exchange, rejection)
        refusals = () if is_final else await _find_refusals(exchange, rejection)
        if not refusals:
            raise
    heavy = is_heavy_body(upstream_request.body)
    await services.body_executor.run(omit_settings, exchange, upstream_request, refusals, heavy=heavy)
    backend, model = upstream_request.backend, exchange.request.model
    settings = [refusal.setting for refusal in refusals]
    exchange.observer.on_settings_refused(backend, backend.model or model or "", settings)
    exchange.observer.on_request_sent(upstream_request)
    try:
        response = await services.sender.send(upstream_request, upstream_request.body)
    except RequestRejected as rejection:
        # If the provider now refuses another setting, it accepted the omission of the first.
        if await _find_refusals(exchange, rejection):
            services.refused_settings.learn(backend, model, refusals)
        raise
    services.refused_settings.learn(backend, model, refusals)
    return response


async def _find_refusals(exchange: Exchange, rejection: RequestRejected) -> tuple[RefusedSetting, ...]:
    """Return the optional settings that a rejection of the prepared request names."""
    upstream_request = exchange.upstream_request
    body, protocol = upstream_request.body, upstream_request.codec.name
    run = exchange.services.body_executor.run
    return await run(find_refusals, protocol, body, rejection.error, heavy=is_heavy_body(body))


def omit_settings(exchange: Exchange, upstream_request: UpstreamRequest, refusals: tuple[RefusedSetting, ...]) -> None:
    """Leave refused settings out of a prepared request, and add each as a loss."""
    upstream_request.body, omissions = omit_refused(upstream_request.body, refusals)
    if not omissions:
        return
    client, report = exchange.client_request.codec, LossReport()
    is_same = client is upstream_request.codec
    for omission in omissions:
        _report_omission(omission, exchange.request, report, upstream_request.backend.provider.name, is_same=is_same)
    upstream_request.losses = upstream_request.losses + report.resolve(exchange.request, client.wire_names)


def _report_omission(omission: Omission, request: Request, report: LossReport, provider: str, *, is_same: bool) -> None:
    """Report a setting that is left out, at its position in the client's request."""
    refusal, pointer = omission.refusal, omission.pointer
    if refusal.replacement is not None:
        reason = f"{provider} refuses {refusal.member}; sent as {refusal.replacement}"
        report.approximated(("sampling",), "max_tokens", reason)
        return
    reason = f"{provider} refuses {pointer.replace('/', '.')}"
    if is_same:
        report.dropped((), f"//{pointer}", reason)
        return
    if refusal.setting == "strict":
        for index, tool in enumerate(request.tools or ()):
            if getattr(tool, "strict", None):
                report.dropped(("tools", index), "strict", reason)
        return
    path, field = LOCATIONS.get(refusal.member, ((), f"//{pointer}"))
    holder = request if not path else getattr(request, str(path[0]))
    is_extra = field.startswith("//")
    if holder is not None and (not is_extra or _has_extra(request, field[2:])):  # otherwise the encoder added it
        report.dropped(path, field, reason)


def _has_extra(request: Request, name: str) -> bool:
    """Return whether the client's request has a member without canonical counterpart."""
    return any(name in members for members in (request.extras or {}).values())
