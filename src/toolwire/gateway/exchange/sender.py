"""Sending one request to a provider, with retries, and the rules for retry and failover.

1. A request is retried at the same provider only if that did not process it: status 429, 503 or 529, or no connection.
   A POST is not idempotent (RFC 9110, 9.2.2).
2. Another provider of the route may also be tried after a timeout, a 5xx or a broken response: at worst the response
   is paid for twice.
3. Neither happens if the request may have had a side effect: see `find_side_effect`.
"""

import asyncio
import random
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind, Loss
from toolwire.canonical.request import Continuation
from toolwire.canonical.tools import NativeTool
from toolwire.codec.encoding.tools import conversation_tools, is_tool_search
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import (
    STATUS_KINDS,
    Attempt,
    RequestRejected,
    provider_error,
    read_retry_after,
    transport_rejection,
    unavailable_error,
)
from toolwire.gateway.exchange.call_checks import CallChecker
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.limits import BodyExecutor, is_heavy_body
from toolwire.gateway.rounds.continuation import RoundMerger
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.translation.body import body_bytes
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.upstream.address import (
    UnaddressableRequest,
    address_request,
    convert_error,
    convert_response,
)
from toolwire.upstream.key_command import KeyCommandError
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import AnswerRecorder, Transport, TransportError, UpstreamResponse, request_head

WireHeaders = tuple[tuple[str, str], ...]


class UpstreamRequest(Struct):
    """A request as sent upstream, and what is needed to translate its response."""

    backend: Backend
    codec: Codec
    context: ResponseContext
    losses: list[Loss]
    route: Route
    body: bytes
    rounds: RoundMerger | None = None
    """Merges further rounds into one response; None if there is only one round."""
    dialect: Dialect | None = None
    """The dialect in which tools are prompted; None if the server takes them."""
    checker: CallChecker | None = None
    """Checks the calls of the response; None if there are no tools."""
    answers: AnswerRecorder | None = None
    """Records the provider's answers; None if bodies are not recorded."""


_BUSY_STATUSES = frozenset({429, 503, 529})
_BUSY_KINDS: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded"})
_BROKEN_KINDS: frozenset[ErrorKind] = frozenset({"server", "timeout", "other"})
_FAILOVER_KINDS: frozenset[ErrorKind] = frozenset(
    {"authentication", "billing", "permission", "not_found", "server", "context_length"}
)
_FIRST_DELAY = 0.5
_MAX_DELAY = 10.0
_JITTER = 0.25


def classify_status(status: int) -> Attempt:
    """Return whether a failed attempt was rejected, unprocessed or possibly processed, by its HTTP status."""
    if status in _BUSY_STATUSES:
        return "unprocessed"
    return "unknown" if status >= 500 or status == 408 else "rejected"


def classify_error(error: ApiError, *, started: bool = False) -> Attempt:
    """Return whether a failed attempt was rejected, unprocessed or possibly processed, by its error.

    For errors that came with status 200; `started` says that part of a response had come before.
    """
    if error.kind in _BUSY_KINDS:
        return "unknown" if started else "unprocessed"
    return "unknown" if error.kind in _BROKEN_KINDS else "rejected"


def retry_delay(rejection: RequestRejected, retries: int) -> float | None:
    """Return the seconds to wait before retrying at the same provider; None if it must not be retried."""
    if rejection.attempt != "unprocessed" or rejection.error.kind == "billing":  # OpenAI: 429, `insufficient_quota`
        return None
    retry_after = rejection.error.retry_after
    delay = min(_FIRST_DELAY * 2**retries, _MAX_DELAY) if retry_after is None else retry_after
    return None if delay > _MAX_DELAY else delay * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret


def can_fail_over(rejection: RequestRejected) -> bool:
    """Return whether another provider may succeed: not if the request itself was at fault."""
    return rejection.attempt != "rejected" or rejection.error.kind in _FAILOVER_KINDS


def find_side_effect(upstream: Codec, body: bytes) -> str | None:
    """Return a description of what a request changes at the provider beyond its response; None if nothing."""
    request = upstream.decode_request(body, Route())
    native_tools = [located.tool for located in conversation_tools(request) if isinstance(located.tool, NativeTool)]
    if any(tool.executor == "server" and not is_tool_search(tool) for tool in native_tools):
        return "the provider runs tools"
    continuation = request.continuation or Continuation()
    if continuation.background:
        return "the provider runs it in the background"
    stores = upstream.name in STATE_ADAPTERS if continuation.store is None else continuation.store
    return "the provider stores the conversation" if stores or continuation.kind in ("conversation", "thread") else None


async def _with_current_key(provider: Provider) -> Provider:
    """Return the provider with the key that its command prints; raise `RequestRejected` if that fails."""
    try:
        return await provider.with_current_key()
    except KeyCommandError as error:
        rejected = provider_error(provider, "server", f"can't be used: {error} (see `toolwire doctor`)")
        raise RequestRejected(rejected, attempt="unprocessed") from None


async def _with_other_key(provider: Provider) -> Provider | None:
    """Return the provider with a new key, to be tried once; None if the command prints only the rejected key."""
    if provider.key_command is None:
        return None
    with suppress(KeyCommandError):
        if (key := await provider.key_command.replace_key(provider.api_key)) is not None:
            return replace(provider, api_key=key, key_command=None)
    return None


_LIMIT_ERROR_BODY = 1024 * 1024
"""Bytes of an error body that are read at most."""


class UpstreamSender:
    """Sends requests to providers, with retries and cached request heads."""

    def __init__(self, transport: Transport, limits: LimitsSection, body_executor: BodyExecutor) -> None:
        self._transport = transport
        self._limits = limits
        self._body_executor = body_executor
        self._request_heads: BoundedMemo[tuple[str, str | None, str, WireHeaders], tuple[Origin, bytes]] = BoundedMemo()

    async def send(self, upstream_request: UpstreamRequest, body: bytes) -> UpstreamResponse:
        """Send one request, retrying while the provider does not process it."""
        backend, retries, codec = upstream_request.backend, 0, upstream_request.codec
        provider = backend.provider
        if provider.unavailable_reason is not None:
            raise RequestRejected(unavailable_error(provider, provider.unavailable_reason))
        path, headers, body = await self.address(upstream_request, body)
        if provider.key_command is not None:
            provider = await _with_current_key(provider)
        origin, head = self._request_head(provider, codec, path, headers)
        while True:
            try:
                response = await self._transport.send(
                    origin,
                    head,
                    body,
                    read_timeout=provider.timeout,
                    connect_timeout=provider.connect_timeout,
                    first_byte_timeout=backend.timeout or provider.first_byte_timeout,
                )
                if response.status < 300:
                    response = convert_response(response, provider.address)
                if upstream_request.answers is not None:
                    response.record(upstream_request.answers)
                if response.status < 300:
                    return response
                rejection = RequestRejected(
                    await self._decode_error(upstream_request, response), attempt=classify_status(response.status)
                )
            except TransportError as error:
                rejection = transport_rejection(provider, error)
            if rejection.error.status == 401 and (renewed := await _with_other_key(provider)) is not None:
                provider = renewed
                origin, head = self._request_head(provider, codec, path, headers)
                continue
            delay = retry_delay(rejection, retries)
            if delay is None or retries == self._limits.retries:
                raise rejection
            retries += 1
            await asyncio.sleep(delay)

    async def address(self, upstream_request: UpstreamRequest, body: bytes) -> tuple[str, WireHeaders, bytes]:
        """Return path, headers and body of a request, in the form of the provider's platform."""
        provider, route = upstream_request.backend.provider, upstream_request.route
        if (address := provider.address) is None:
            return route.path or "/", route.headers, body
        try:
            addressed = await self._body_executor.run(
                address_request, provider, address, route, body, heavy=is_heavy_body(body)
            )
        except UnaddressableRequest as error:
            message = f"{provider.name} has {error}"
            raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400)) from None
        return addressed.path, addressed.headers, addressed.body

    def _request_head(
        self, provider: Provider, upstream: Codec, path: str, route_headers: WireHeaders
    ) -> tuple[Origin, bytes]:
        """Return the origin to connect to and the encoded HTTP head of a request, from a cache if possible."""
        key = (provider.name, provider.api_key, path, route_headers)
        if (cached := self._request_heads.get(key)) is not None:
            return cached
        headers = {"content-type": "application/json"} | provider.request_headers(upstream.surface)
        for name, value in route_headers:
            is_list = name == upstream.surface.passthrough_header and name in headers
            headers[name] = f"{headers[name]},{value}" if is_list else value
        request = provider.origin, request_head(provider.origin, provider.request_target(path), headers.items())
        self._request_heads.put(key, request, estimate_entry_size(path, *(value for _, value in route_headers)))
        return request

    async def _decode_error(self, upstream_request: UpstreamRequest, upstream_response: UpstreamResponse) -> ApiError:
        """Return the error of an unsuccessful response, naming the provider where that explains it."""
        provider = upstream_request.backend.provider
        if upstream_response.status < 400:
            upstream_response.close()
            return provider_error(
                provider, "server", f"responded with a redirect ({upstream_response.status}), which is not followed"
            )
        try:
            body = await upstream_response.read(min(_LIMIT_ERROR_BODY, self._limits.answer))
            if provider.address is not None and provider.protocol == "anthropic":
                body = convert_error(body, upstream_response.status, upstream_response.headers)
            error = upstream_request.codec.decode_error(
                body_bytes(body, upstream_request.codec.name), upstream_response.status
            )
        except (DecodeError, TransportError):
            kind = STATUS_KINDS.get(upstream_response.status) or (
                "server" if upstream_response.status >= 500 else "invalid_request"
            )
            kind = "rate_limit" if upstream_response.status == 429 else kind
            error = provider_error(
                provider, kind, f"responded with status {upstream_response.status} and no valid error body"
            )
        else:
            if error.kind == "authentication":
                owner = "configured" if provider.client_credential is None else "client's"
                # Claude Code hides a message that contains "x-api-key", and asks the user to log in.
                reason = error.message.replace("x-api-key", "API key")
                message = f"{provider.name} rejected the {owner} API key: {reason}"
                error = replace(error, message=message, wire_form=())
        retry_after = read_retry_after(upstream_response.headers)
        return replace(error, status=upstream_response.status, retry_after=retry_after or error.retry_after)
