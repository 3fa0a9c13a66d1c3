"""Token counts of requests: the provider's count, or an estimate of the translated request."""

import asyncio

import msgspec
from msgspec import Struct

from toolwire.codec.token_count import TokenCountApi, estimate_tokens
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import ClientRequest, ExchangeObserver
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.limits import is_heavy_body
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.address import UnaddressableRequest, address_count
from toolwire.upstream.key_command import KeyCommandError
from toolwire.upstream.transport import Transport, TransportError, request_head

# Agents count tokens before each request: they should not wait long for a number that can be estimated.
COUNT_TIMEOUT = 10.0
_LIMIT_RESPONSE = 1024 * 1024


class TokenCount(Struct, frozen=True):
    """A number of tokens, counted by the provider or estimated."""

    tokens: int
    is_estimate: bool


def _count_request(upstream_request: UpstreamRequest, api: TokenCountApi) -> tuple[str, bytes] | None:
    """Return path and body of a request for the count; None if the provider has no endpoint for it."""
    provider, route, body = upstream_request.backend.provider, upstream_request.route, upstream_request.body
    path = route.path or ""
    if (address := provider.address) is None:
        return api.count_path(path), api.wrap_request(body, path)
    try:
        addressed = address_count(provider, address, route, api.unwrap_request(api.wrap_request(body, path)))
    except UnaddressableRequest:
        return None
    return None if addressed is None else (addressed.path, addressed.body)


class TokenCounter:
    """Counts tokens; never fails, as an estimate is always possible."""

    def __init__(self, dispatcher: Dispatcher, transport: Transport) -> None:
        self._dispatcher = dispatcher
        self._transport = transport
        self._body_executor = dispatcher.services.body_executor

    async def count_tokens(self, client_request: ClientRequest, observer: ExchangeObserver) -> TokenCount:
        """Count the tokens of a request as its first backend would receive it."""
        try:
            upstream_request = await self._dispatcher.translate(client_request)
        except RouteNotFound:
            return TokenCount(await self._estimate(client_request.body), is_estimate=True)
        observer.on_backend(upstream_request.backend)
        tokens = await self._provider_count(upstream_request)
        return TokenCount(
            await self._estimate(upstream_request.body) if tokens is None else tokens, is_estimate=tokens is None
        )

    async def _provider_count(self, upstream_request: UpstreamRequest) -> int | None:
        """Return the provider's count; None if it has no endpoint for that, or fails."""
        provider, codec = (
            upstream_request.backend.provider,
            PROTOCOLS[upstream_request.backend.provider.protocol].token_count,
        )
        if (
            codec is None
            or provider.unavailable_reason is not None
            or provider.path is not None
            or upstream_request.route.path is None
        ):
            return None
        counted = await self._body_executor.run(
            _count_request, upstream_request, codec, heavy=is_heavy_body(upstream_request.body)
        )
        if counted is None:
            return None
        path, body = counted
        surface = upstream_request.codec.surface
        try:
            async with asyncio.timeout(COUNT_TIMEOUT):
                headers = (await provider.with_current_key()).request_headers(surface)
                headers = {"content-type": "application/json"} | headers
                head = request_head(provider.origin, provider.request_target(path), headers.items())
                response = await self._transport.send(
                    provider.origin, head, body, connect_timeout=provider.connect_timeout
                )
                response_body = await response.read(_LIMIT_RESPONSE)
            return codec.decode_count(response_body) if response.status == 200 else None
        except (TransportError, KeyCommandError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    async def _estimate(self, body: bytes) -> int:
        """Estimate the number of tokens of a request body, in a thread if it is heavy."""
        return await self._body_executor.run(estimate_tokens, body, heavy=is_heavy_body(body))
