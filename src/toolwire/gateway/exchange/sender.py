"""Retry and failover, decided by what is known of the attempt that failed.

1. The same provider gets a request again only if it did no work on it: it answered 429, 503 or 529, or no connection
   was made. A POST is not idempotent (RFC 9110, section 9.2.2).
2. Another provider of the route may also be asked after a time-out, a 5xx or a broken response: at worst the answer is
   paid for twice.
3. Neither happens where answering may have effects beyond the answer: see `find_effect`.

One request to a provider: its head, its retries, and the error that a refusal stands for.
"""

import asyncio
import random

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.canonical.request import Continuation
from toolwire.canonical.tools import NativeTool
from toolwire.codec.encoding.tools import conversation_tools, is_tool_search
from toolwire.codec.interface import Codec, Route
from toolwire.codec.wire.memo import BoundedMemo
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import (
    STATUS_KINDS,
    Attempt,
    RequestRejected,
    parse_seconds,
    provider_error,
    transport_rejection,
)
from toolwire.gateway.exchange.routing import estimate_entry_size
from toolwire.gateway.exchange.types import UpstreamRequest
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.translation.body import body_bytes
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport, TransportError, UpstreamResponse, request_head

_BUSY_STATUSES = frozenset({429, 503, 529})
_BUSY_KINDS: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded"})
_BROKEN_KINDS: frozenset[ErrorKind] = frozenset({"server", "timeout", "other"})
_FAILOVER_KINDS: frozenset[ErrorKind] = frozenset({"authentication", "billing", "permission", "not_found", "server"})
_FIRST_DELAY = 0.5
_MAX_DELAY = 10.0
_JITTER = 0.25


def classify_status(status: int) -> Attempt:
    """Classify an attempt that ended with this HTTP status."""
    if status in _BUSY_STATUSES:
        return "unprocessed"
    return "unknown" if status >= 500 or status == 408 else "rejected"


def classify_error(error: ApiError, *, started: bool = False) -> Attempt:
    """Classify an attempt that ended with an error under a status of 200, in place of the answer or after it began."""
    if error.kind in _BUSY_KINDS:
        return "unknown" if started else "unprocessed"
    return "unknown" if error.kind in _BROKEN_KINDS else "rejected"


def retry_delay(rejection: RequestRejected, retries: int) -> float | None:
    """Return the seconds to wait before the same provider is asked again, after this many retries; None: it is not."""
    if rejection.attempt != "unprocessed" or rejection.error.kind == "billing":  # OpenAI: 429, `insufficient_quota`
        return None
    after = rejection.error.retry_after
    delay = min(_FIRST_DELAY * 2**retries, _MAX_DELAY) if after is None else after
    return None if delay > _MAX_DELAY else delay * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret


def can_fail_over(rejection: RequestRejected) -> bool:
    """Whether another provider may succeed: not where the request itself was at fault."""
    return rejection.attempt != "rejected" or rejection.error.kind in _FAILOVER_KINDS


def find_side_effect(upstream: Codec, body: bytes) -> str | None:
    """Find what answering this request body does beyond the answer; None if it is only an answer."""
    request = upstream.decode_request(body, Route())
    natives = [placed.tool for placed in conversation_tools(request) if isinstance(placed.tool, NativeTool)]
    if any(tool.executor == "server" and not is_tool_search(tool) for tool in natives):
        return "its provider runs tools"
    held = request.continuation or Continuation()
    if held.background:
        return "its provider works in the background"
    stores = upstream.name in STATE_ADAPTERS if held.store is None else held.store
    return "its provider stores the conversation" if stores or held.kind in ("conversation", "thread") else None


_LIMIT_ERROR_BODY = 1024 * 1024
"""The longest error body that is read, in bytes."""


class UpstreamSender:
    def __init__(self, transport: Transport, limits: LimitsSection) -> None:
        self._transport = transport
        self._limits = limits
        self._request_heads: BoundedMemo[tuple[str, str, tuple[tuple[str, str], ...]], tuple[Origin, bytes]] = (
            BoundedMemo()
        )

    async def send(self, upstream_request: UpstreamRequest, body: bytes) -> UpstreamResponse:
        """Send one request, again while the provider does no work on it."""
        provider, retries = upstream_request.backend.provider, 0
        origin, head = self._request_head(provider, upstream_request.codec, upstream_request.route)
        while True:
            try:
                answer = await self._transport.send(
                    origin, head, body, read_timeout=provider.timeout, connect_timeout=provider.connect_timeout
                )
                if answer.status < 300:
                    return answer
                refused = RequestRejected(
                    await self._decode_error(upstream_request, answer), attempt=classify_status(answer.status)
                )
            except TransportError as error:
                refused = transport_rejection(provider, error)
            delay = retry_delay(refused, retries)
            if delay is None or retries == self._limits.retries:
                raise refused
            retries += 1
            await asyncio.sleep(delay)

    def _request_head(self, provider: Provider, upstream: Codec, route: Route) -> tuple[Origin, bytes]:
        key = (provider.name, path := route.path or "/", route.headers)
        if (known := self._request_heads.get(key)) is not None:
            return known
        headers = {"content-type": "application/json"} | provider.request_headers(upstream.surface)
        for name, words in route.headers:
            joined_words = name == upstream.surface.passthrough_header and name in headers
            headers[name] = f"{headers[name]},{words}" if joined_words else words
        found = provider.origin, request_head(provider.origin, provider.request_target(path), headers.items())
        self._request_heads.put(key, found, estimate_entry_size(path, *(words for _, words in route.headers)))
        return found

    async def _decode_error(self, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse) -> ApiError:
        """Decode what a provider answered in place of success, as an error that names it."""
        provider = upstream_request.backend.provider
        if upstream_response.status < 400:
            upstream_response.close()
            return provider_error(
                provider, "server", f"answered with a redirect ({upstream_response.status}), which is not followed"
            )
        try:
            body = await upstream_response.read(min(_LIMIT_ERROR_BODY, self._limits.answer))
            error = upstream_request.codec.decode_error(
                body_bytes(body, upstream_request.codec.name), upstream_response.status
            )
        except (DecodeError, TransportError):
            kind = STATUS_KINDS.get(upstream_response.status) or (
                "server" if upstream_response.status >= 500 else "invalid_request"
            )
            kind = "rate_limit" if upstream_response.status == 429 else kind
            error = provider_error(provider, kind, f"answered {upstream_response.status} with no error of its protocol")
        else:
            if error.kind == "authentication":
                message = f"{provider.name} did not accept the key configured for it: {error.message}"
                error = replace(error, message=message, wire_form=())
        after = parse_seconds(upstream_response.headers.get("retry-after"))
        return replace(error, status=upstream_response.status, retry_after=after or error.retry_after)
