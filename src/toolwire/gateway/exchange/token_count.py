"""How many tokens a request takes: what the provider says, or else an estimate of what it would be sent."""

import asyncio

import msgspec
from msgspec import Struct

from toolwire.codec.token_count import estimate_tokens
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.types import ClientRequest, UpstreamRequest
from toolwire.gateway.limits import is_heavy_body, run_in_thread_if
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.transport import Transport, TransportError, request_head

# Agents count before they ask: they should not wait long for a figure that can be estimated.
COUNT_TIMEOUT = 10.0
_LIMIT_RESPONSE = 1024 * 1024


class TokenCount(Struct, frozen=True):
    tokens: int
    is_estimate: bool


class TokenCounter:
    """A count is never worth an error: whatever keeps the provider from counting, there is an estimate."""

    def __init__(self, dispatcher: Dispatcher, transport: Transport) -> None:
        self._dispatcher = dispatcher
        self._transport = transport

    async def count_tokens(self, client_request: ClientRequest, record: RequestRecord) -> TokenCount:
        try:
            sent = await self._dispatcher.translate(client_request)
        except RouteNotFound:
            return TokenCount(await _estimate(client_request.body), is_estimate=True)
        record.set_backend(sent.backend.provider.name, sent.backend.model)
        tokens = await self._provider_count(sent)
        return TokenCount(await _estimate(sent.body) if tokens is None else tokens, is_estimate=tokens is None)

    async def _provider_count(self, upstream_request: UpstreamRequest) -> int | None:
        """What the provider says, if it has an address for that."""
        provider, counting = (
            upstream_request.backend.provider,
            PROTOCOLS[upstream_request.backend.provider.protocol].token_count,
        )
        if counting is None or provider.path is not None or upstream_request.route.path is None:
            return None
        path = counting.count_path(upstream_request.route.path)
        headers = {"content-type": "application/json"} | provider.request_headers(upstream_request.codec.surface)
        head = request_head(provider.origin, provider.request_target(path), headers.items())
        body = await run_in_thread_if(
            counting.wrap_request,
            upstream_request.body,
            upstream_request.route.path,
            heavy=is_heavy_body(upstream_request.body),
        )
        try:
            async with asyncio.timeout(COUNT_TIMEOUT):
                answer = await self._transport.send(
                    provider.origin, head, body, connect_timeout=provider.connect_timeout
                )
                told = await answer.read(_LIMIT_RESPONSE)
            return counting.decode_count(told) if answer.status == 200 else None
        except (TransportError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None


async def _estimate(body: bytes) -> int:
    return await run_in_thread_if(estimate_tokens, body, heavy=is_heavy_body(body))
