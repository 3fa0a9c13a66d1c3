"""Endpoints that are passed through to providers that have them: embeddings, and completions of a plain prompt.

Nothing is translated: a request goes to a backend of its route whose protocol has the endpoint, and the response comes
back byte for byte. Routing, keys, limits, retries and failover are those of other requests. Only the model's name is
replaced in the body.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.gateway.errors import (
    RequestRejected,
    provider_error,
    redact_error,
    transport_api_error,
    transport_rejection,
)
from toolwire.gateway.exchange.client_credentials import use_client_credentials
from toolwire.gateway.exchange.exchange import BufferedResponse, ExchangeObserver, ExchangeServices
from toolwire.gateway.exchange.failover import BackendAttempt, order_backends, try_backends
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.exchange.sender import UpstreamRequest, can_fail_over
from toolwire.gateway.keys.client_key import ClientKey
from toolwire.gateway.limits import StreamBudget, is_heavy_body
from toolwire.protocols import PROTOCOLS
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.upstream.transport import TransportError, UpstreamResponse

JsonFields = dict[str, Raw]


class NativeEndpoint(Struct, frozen=True, kw_only=True):
    """An endpoint that is passed through."""

    feature: str
    protocol: str
    """The protocol of its clients, for errors and pings."""
    paths: dict[str, str]
    """Its path at providers, by their protocol; others don't have it."""
    streams_by_default: bool = False
    can_stream: bool = True
    can_load: bool = False
    """Whether a request without a prompt only loads the model."""


def _openai_paths(path: str) -> dict[str, str]:
    """Return the paths of one of OpenAI's endpoints at all providers that may have it."""
    return {
        "openai-chat": f"/v1{path}",
        "openai-responses": f"/v1{path}",
        "openrouter": f"/api/v1{path}",
        "ollama": f"/v1{path}",
    }


_EMBEDDINGS = NativeEndpoint(
    feature="embeddings", protocol="openai-chat", paths=_openai_paths("/embeddings"), can_stream=False
)
_COMPLETIONS = NativeEndpoint(feature="prompt completions", protocol="openai-chat", paths=_openai_paths("/completions"))
NATIVE_ENDPOINTS = {
    "/v1/embeddings": _EMBEDDINGS,
    "/v1/completions": _COMPLETIONS,
    "/api/v1/embeddings": replace(_EMBEDDINGS, protocol="openrouter"),
    "/api/v1/completions": replace(_COMPLETIONS, protocol="openrouter"),
    "/api/generate": NativeEndpoint(
        feature="prompt completions (/api/generate)",
        protocol="ollama",
        paths={"ollama": "/api/generate"},
        streams_by_default=True,
        can_load=True,
    ),
    "/api/embed": NativeEndpoint(
        feature="embeddings (/api/embed)", protocol="ollama", paths={"ollama": "/api/embed"}, can_stream=False
    ),
    "/api/embeddings": NativeEndpoint(
        feature="embeddings (/api/embeddings)", protocol="ollama", paths={"ollama": "/api/embeddings"}, can_stream=False
    ),
}


class NativeRequest(Struct, frozen=True, kw_only=True):
    """A client's request to such an endpoint."""

    endpoint: NativeEndpoint
    body: bytes
    fields: JsonFields
    tenant: str
    key: ClientKey | None = None
    """The client's key, with its permissions and limits; None if it has none."""
    credentials: dict[str, str] = {}
    """The client's own keys for providers, by header."""

    @property
    def model(self) -> str | None:
        """Return the model's name; None if there is none."""
        name = _decode_field(self.fields, "model")
        return name if isinstance(name, str) and name else None

    @property
    def is_streaming(self) -> bool:
        """Return whether the client wants a stream."""
        if not self.endpoint.can_stream:
            return False
        stream = _decode_field(self.fields, "stream")
        return stream if isinstance(stream, bool) else self.endpoint.streams_by_default

    @property
    def only_loads(self) -> bool:
        """Return whether the request has no prompt, with which Ollama's clients load and unload a model."""
        return self.endpoint.can_load and not _decode_field(self.fields, "prompt")

    def encode_for(self, model: str | None) -> bytes:
        """Return the body with the model's name at a backend; unchanged if that is the client's."""
        if model is None or model == self.model:
            return self.body
        return msgspec.json.encode(self.fields | {"model": Raw(msgspec.json.encode(model))})


def _decode_field(fields: JsonFields, name: str) -> Any:
    """Return the value of a field; None if it is absent or not valid JSON."""
    try:
        return msgspec.json.decode(fields.get(name, Raw(b"null")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


async def read_native_request(
    services: ExchangeServices, endpoint: NativeEndpoint, body: bytes, tenant: str, key: ClientKey | None = None
) -> NativeRequest:
    """Decode the top level of a request."""
    fields = await services.body_executor.run(_read_fields, endpoint.protocol, body, heavy=is_heavy_body(body))
    return NativeRequest(endpoint=endpoint, body=body, fields=fields, tenant=tenant, key=key)


def _read_fields(protocol: str, body: bytes) -> JsonFields:
    """Return the fields of a body without decoding their values."""
    try:
        return msgspec.json.decode(body, type=JsonFields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(protocol, "", "a JSON object", str(error)) from None


class NativeStream:
    """A stream of the provider, passed through line by line."""

    def __init__(self, codec: Codec, backend: Backend, response: UpstreamResponse, limit: int) -> None:
        self.request_losses: list[Loss] = []
        self.losses: list[Loss] = []
        self.usage: Usage | None = None
        self.summary: Response | None = None
        self.error: ApiError | None = None
        self.job = None
        self._is_sse = codec.surface.allows_comments
        self._backend = backend
        self._response = response
        self._budget = StreamBudget(backend.provider, limit)
        self._between_frames = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield complete lines as they arrive, so that pings and errors come between them."""
        rest = b""
        try:
            while data := await self._response.next():
                self._budget.consume(data)
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    self._between_frames = lines.endswith((b"\n", b"\n\r"))
                    yield lines + newline
        except TransportError as error:
            self.error = transport_api_error(self._backend.provider, error)
            raise RequestRejected(self.error) from None
        if rest:
            yield rest

    def ping_frame(self) -> bytes:
        """Return an SSE comment between two frames; nothing within one, or if the stream is not SSE."""
        return b": ping\n\n" if self._is_sse and self._between_frames else b""

    def close(self) -> None:
        """Close the response of the provider."""
        self._response.close()


NativeResponse = BufferedResponse | NativeStream


async def dispatch_native(
    services: ExchangeServices, native_request: NativeRequest, observer: ExchangeObserver
) -> NativeResponse:
    """Send a request to the backends of its route that have the endpoint, and return the response."""
    endpoint, model = native_request.endpoint, native_request.model
    observer.on_model(model or "")
    route_match = services.router.route(model)
    if native_request.key is not None:
        route_match = native_request.key.restrict(model, route_match)
    if route_match.is_default:
        observer.on_default_model(model or "")
    client = PROTOCOLS[endpoint.protocol]
    route_match = use_client_credentials(route_match, native_request.credentials, client, services.redactor)
    backends = [backend for backend in route_match.backends if _has_endpoint(backend, endpoint)]
    if not backends:
        backend = route_match.backends[0]
        observer.on_backend(backend)
        if native_request.only_loads:
            return BufferedResponse(_encode_loaded(model or backend.model or ""), [])
        raise RequestRejected(_missing_endpoint_error(backend, endpoint))
    request = Request(origin=endpoint.protocol, model=model)
    ordered = order_backends(replace(route_match, backends=tuple(backends)), request, native_request.tenant)
    if native_request.key is not None:
        await observer.reserve(request, ordered, native_request.body)

    async def prepare(backend: Backend) -> None:
        """Note the backend; there is nothing to prepare."""
        observer.on_backend(backend)

    attempt = BackendAttempt(
        prepare=prepare,
        send=partial(_send, services, native_request),
        on_failover=observer.on_failover,
    )
    return await try_backends(services, ordered, request, attempt)


def _has_endpoint(backend: Backend, endpoint: NativeEndpoint) -> bool:
    """Return whether a backend's protocol has the endpoint; cloud platforms have other paths."""
    return backend.provider.protocol in endpoint.paths and backend.provider.address is None


def _missing_endpoint_error(backend: Backend, endpoint: NativeEndpoint) -> ApiError:
    """Return the error for a provider without the endpoint."""
    names = [name for name in endpoint.paths if name != "openai-responses"]
    protocols = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    message = f"provider {backend.provider.name!r} has no {endpoint.feature}; configure one that speaks {protocols}"
    return ApiError(kind="invalid_request", message=message, status=400)


def _encode_loaded(model: str) -> bytes:
    """Return the response to a request that only loads a model, which needs no loading at other providers."""
    loaded = {"model": model, "created_at": "1970-01-01T00:00:00Z", "response": "", "done": True, "done_reason": "load"}
    return msgspec.json.encode(loaded)


async def _send(services: ExchangeServices, native_request: NativeRequest, backend: Backend) -> NativeResponse:
    """Send a request to one backend, and return its response; for a stream, before the stream is read."""
    provider, endpoint = backend.provider, native_request.endpoint
    codec, client = PROTOCOLS[provider.protocol], PROTOCOLS[endpoint.protocol]
    body = await services.body_executor.run(
        native_request.encode_for, backend.model, heavy=is_heavy_body(native_request.body)
    )
    upstream_request = UpstreamRequest(
        # A configured path is that of the provider's own protocol.
        backend=replace(backend, provider=replace(provider, path=None)),
        codec=codec,
        context=ResponseContext(),
        losses=[],
        route=Route(path=endpoint.paths[provider.protocol]),
        body=body,
    )
    try:
        response = await services.sender.send(upstream_request, body)
        if native_request.is_streaming:
            return NativeStream(client, backend, response, services.limits.stream)
        return await _read_response(services, backend, response)
    except RequestRejected as rejection:
        error = isolate_foreign_extras(redact_error(rejection.error, services.redactor), codec, client)
        raise RequestRejected(error, attempt=rejection.attempt, failover=can_fail_over(rejection)) from None


async def _read_response(services: ExchangeServices, backend: Backend, response: UpstreamResponse) -> BufferedResponse:
    """Read a complete response, and the number of tokens in it."""
    try:
        body = await response.read(services.limits.answer)
    except TransportError as error:
        raise transport_rejection(backend.provider, error) from None
    if not body.lstrip()[:1] == b"{":
        raise RequestRejected(provider_error(backend.provider, "server", "sent no JSON object"), attempt="unknown")
    usage = await services.body_executor.run(_read_usage, body, heavy=is_heavy_body(body))
    return BufferedResponse(body, [], Response(origin=backend.provider.protocol, usage=usage))


class _ReportedUsage(Struct):
    """The token counts of OpenAI."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _ReportedCounts(Struct):
    """The token counts in a response of OpenAI or Ollama."""

    usage: _ReportedUsage | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None


def _read_usage(body: bytes) -> Usage | None:
    """Return the token counts of a response; None if it reports none."""
    try:
        reported = msgspec.json.decode(body, type=_ReportedCounts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if reported.usage is not None:
        return Usage(input_tokens=reported.usage.prompt_tokens, output_tokens=reported.usage.completion_tokens)
    if reported.prompt_eval_count is None and reported.eval_count is None:
        return None
    return Usage(input_tokens=reported.prompt_eval_count, output_tokens=reported.eval_count)
