"""Dry runs: translate a request for its upstream, and return it without sending it."""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Route
from toolwire.codec.suggestions import unknown_name
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.limits import is_heavy_body
from toolwire.gateway.server.request import HttpRequest
from toolwire.protocols import PROTOCOLS
from toolwire.translation.cache_share import estimate_cache_share
from toolwire.upstream.asgi import JSON_HEADER


class DryRun(Struct, forbid_unknown_fields=True):
    """The body of a `/toolwire/translate` request."""

    protocol: str
    body: msgspec.Raw
    model: str | None = None
    stream: bool | None = None
    previous: msgspec.Raw = msgspec.Raw()  # the conversation's previous request, to estimate what the cache holds


async def serve_dry_run(http_request: HttpRequest, dispatcher: Dispatcher, limit: int) -> None:
    """Translate a request of at most `limit` bytes as it would be sent upstream, and return it without sending."""
    body, executor = await http_request.read_body(limit), dispatcher.services.body_executor
    dry_run, client_body = await executor.run(_read_dry_run, body, heavy=is_heavy_body(body))
    if dry_run.protocol not in PROTOCOLS:
        message = unknown_name("protocol", dry_run.protocol, PROTOCOLS)
        raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400))
    client_request = ClientRequest(
        codec=PROTOCOLS[dry_run.protocol],
        body=client_body,
        route=Route(model=dry_run.model, stream=dry_run.stream),
        tenant=http_request.observer.principal.tenant,
        key=http_request.observer.principal.key,
    )
    upstream_request = await dispatcher.translate(client_request)
    cache: dict[str, Any] = {}
    if previous := bytes(dry_run.previous):
        cache = await _estimate_cache(dispatcher, replace(client_request, body=previous), upstream_request)
    provider = upstream_request.backend.provider
    path, _, body_sent = await dispatcher.services.sender.address(upstream_request, upstream_request.body)
    translation = {
        "provider": provider.name,
        "protocol": provider.protocol,
        "address": replace(provider, query={}).request_target(path),  # `query` may contain keys
        "body": msgspec.Raw(body_sent),
        "losses": upstream_request.losses,
    } | cache
    encoded = await executor.run(msgspec.json.encode, translation, heavy=is_heavy_body(body))
    await http_request.respond(200, encoded, [JSON_HEADER])


async def _estimate_cache(
    dispatcher: Dispatcher, previous: ClientRequest, upstream_request: UpstreamRequest
) -> dict[str, Any]:
    """Return the field `cache` of a dry run: the share of the request that a prompt cache could hold."""
    earlier, executor = await dispatcher.translate(previous), dispatcher.services.body_executor
    body, codec = upstream_request.body, upstream_request.codec
    share = await executor.run(estimate_cache_share, body, [earlier.body], codec, heavy=is_heavy_body(body))
    return {"cache": {**msgspec.structs.asdict(share), "share": round(share.share, 3)}}


def _read_dry_run(body: bytes) -> tuple[DryRun, bytes]:
    """Decode a dry run; return it with the request body to translate."""
    try:
        dry_run = msgspec.json.decode(body, type=DryRun)
    except msgspec.MsgspecError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=str(error), status=400)) from None
    return dry_run, bytes(dry_run.body)
