"""Failover: a request goes to the backends of its route in turn, until one responds or failover is ruled out.

1. Backends are tried in the route's order, or by weight. By weight, each conversation has an order that depends only on
   the client's key and its first message (rendezvous hashing): it stays on one backend, where caches are valid, without
   any stored state.
2. Backends whose circuit breaker is open are skipped.
3. A request that exceeds the context of a model goes on only to backends whose context is known to be larger.
4. `exchange.sender` decides which failures may be failed over.
"""

import hashlib
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from toolwire.canonical.errors import ApiError, LossyTranslationError
from toolwire.canonical.request import Request
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.backend_facts import estimate_prompt
from toolwire.gateway.exchange.breakers import Breakers
from toolwire.gateway.exchange.exchange import ExchangeServices
from toolwire.gateway.exchange.response import StreamingResponse
from toolwire.gateway.exchange.routing import Backend, RouteMatch
from toolwire.translation.caching import derive_cache_key
from toolwire.upstream.models.price_data import packaged_model

AnyResponse = TypeVar("AnyResponse")
_HASH_RANGE = 2**64


class BackendAttempt(Struct, Generic[AnyResponse], frozen=True, kw_only=True):
    """The steps of sending a request to one backend."""

    prepare: Callable[[Backend], Awaitable[None]]
    """Builds the request; raises `RequestRejected` or `LossyTranslationError` if the backend can't express it."""
    send: Callable[[Backend], Awaitable[AnyResponse]]
    """Sends the request; raises `RequestRejected` if that fails before the first byte."""
    on_failover: Callable[[Backend, ApiError], None]
    """Learns of a failure after which the next backend is tried."""


def order_backends(route_match: RouteMatch, request: Request, tenant: str) -> tuple[Backend, ...]:
    """Return the backends of a route in the order in which a request tries them."""
    backends = route_match.backends
    if len(backends) == 1 or route_match.options.balance == "order":
        return backends
    conversation = derive_cache_key(request) or random.randbytes(8).hex()  # noqa: S311 - no secret
    scores = [(_score(backend, tenant, conversation), backend) for backend in backends if backend.weight]
    balanced = [backend for _, backend in sorted(scores, key=lambda score: score[0], reverse=True)]
    return (*balanced, *[backend for backend in backends if not backend.weight])


def _score(backend: Backend, tenant: str, conversation: str) -> float:
    """Return a pseudorandom number; the backend with the greatest one of all gets the conversation."""
    key = "\0".join((tenant, conversation, backend.provider.name, backend.model or ""))
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest()
    return -backend.weight / math.log((int.from_bytes(digest) + 1) / (_HASH_RANGE + 1))


async def try_backends(
    services: ExchangeServices, backends: Sequence[Backend], request: Request, attempt: BackendAttempt[AnyResponse]
) -> AnyResponse:
    """Send a request to these backends in turn, and return the first response."""
    breakers, failure, context = services.breakers, None, 0
    for backend in breakers.admitted(backends):
        if context and (await find_context(services, backend, request) or 0) <= context:
            continue
        try:
            await attempt.prepare(backend)
        except (RequestRejected, LossyTranslationError):
            if failure is None:
                raise
            continue  # that a fallback can't express the request does not explain why it failed
        try:
            response = await attempt.send(backend)
        except RequestRejected as rejection:
            breakers.record_rejection(backend, rejection)
            # A fallback without such a model does not explain why the request failed.
            if failure is None or rejection.error.kind != "not_found":
                failure = rejection
            if not rejection.failover:
                break
            attempt.on_failover(backend, rejection.error)
            if rejection.error.kind == "context_length":
                context = max(context, await _exceeded_context(services, backend, request))
        else:
            _watch_response(breakers, backend, response)
            return response
    raise failure or AssertionError("a route has at least one backend")


def _watch_response(breakers: Breakers, backend: Backend, response: AnyResponse) -> None:
    """Record the success of a backend; that of a stream is known at its end."""
    if isinstance(response, StreamingResponse) and not response.is_complete:
        breakers.record_start(backend)
        response.on_end = partial(breakers.record_end, backend)
    else:
        breakers.record_success(backend)


async def find_context(
    services: ExchangeServices, backend: Backend, request: Request, *, asks: bool = True
) -> int | None:
    """Return the context of a backend's model in tokens: configured, as the provider states, or from packaged data.

    With `asks`, the provider's list of models may be requested.
    """
    provider, model = backend.provider, backend.model or request.model or ""
    if backend.context is not None:
        return backend.context
    context = services.catalog.look_up(provider, model).info.context
    if context is None and asks:
        context = (await services.catalog.ask(provider, model)).info.context
    if context is None:
        packaged = await services.body_executor.run_in_thread(packaged_model, model, provider.name, provider.base_url)
        context = packaged.context
    return context


async def _exceeded_context(services: ExchangeServices, backend: Backend, request: Request) -> int:
    """Return the tokens that a larger context must exceed: the backend's context, or else about those of the prompt."""
    known = await find_context(services, backend, request)
    return await services.body_executor.run_in_thread(estimate_prompt, request) if known is None else known
