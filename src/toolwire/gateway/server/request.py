"""A request as received: its body, timeouts and disconnects, and the route its headers and path name.

Most requests finish quickly, so they only join a set that one timer checks. Requests that take longer than
`CHECK_INTERVAL` get a task that waits for the client to disconnect.
"""

import asyncio
import re
import time
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

from toolwire.canonical.errors import ApiError, Strictness
from toolwire.codec.interface import Codec, Route
from toolwire.codec.surface import EndpointMatch
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.limits import UNCOUNTED_BODY, BodyBudget
from toolwire.gateway.observability.access_log import encode_model_header
from toolwire.gateway.observability.recorder import RequestObserver
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.asgi import AsgiRequest, BodyTooLarge, Header, Receive, Scope
from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError, DecodedBodyTooLarge

CHECK_INTERVAL = 0.05


class RequestWatch:
    """Watches one request; cancels its handler if the client disconnects or the body takes too long."""

    def __init__(
        self, receive: Receive, started_at: float, task: "asyncio.Task[Any] | None", watches: "set[RequestWatch]"
    ) -> None:
        self.disconnected = self.timed_out = False
        self.receiving_body = True
        self.response_complete = False
        self.started_at = started_at
        self._receive = receive
        self._handler_task = task
        self._watches = watches
        self._watch_task: asyncio.Task[None] | None = None
        watches.add(self)

    def mark_body_received(self) -> None:
        """Stop the body timeout; from now on a disconnect cancels the handler."""
        self.receiving_body = False

    def close(self) -> None:
        """Stop watching."""
        self._watches.discard(self)
        if self._watch_task is not None:
            self._watch_task.cancel()
            self._watch_task = None  # break the cycle: its exception refers to this frame

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task that waits for a disconnect."""
        self._watch_task = loop.create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        """Cancel the handler when the client disconnects before the response is complete."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.response_complete:
            self.disconnected = True
            self.cancel_handler()

    def cancel_handler(self) -> None:
        """Cancel the task that serves the request."""
        if self._handler_task is not None:
            self._handler_task.cancel()


class DisconnectMonitor:
    """All requests without a watch task; `limit` is the time in seconds that a body may take."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._interval = min(CHECK_INTERVAL, limit)
        self._watches: set[RequestWatch] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, receive: Receive, started_at: float) -> RequestWatch:
        """Watch a request that started at this time; called from the task that serves it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(self._interval, self._check_watches, self._loop)
        return RequestWatch(receive, started_at, asyncio.current_task(self._loop), self._watches)

    def _check_watches(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel requests whose body is late, and start tasks for those that take long."""
        now = time.monotonic()
        for watch in [watch for watch in self._watches if now - watch.started_at >= self._interval]:
            if not watch.receiving_body:
                self._watches.discard(watch)
                watch.start(loop)
            elif now - watch.started_at >= self._limit:
                self._watches.discard(watch)
                watch.timed_out = True
                watch.cancel_handler()
        if self._watches:
            loop.call_later(self._interval, self._check_watches, loop)
        else:
            self._loop = None  # until the next request


_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACE_PARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class HttpRequest(AsgiRequest):
    """One HTTP request to the gateway."""

    observer: RequestObserver
    watch: RequestWatch
    body_budget: BodyBudget
    reserved_bytes: int = 0
    """Bytes of the body counted in `body_budget`."""
    head_sent: bool = False
    """Whether status and headers of a streamed response have been sent."""

    def respond(self, status: int, body: bytes, headers: list[Header]) -> Coroutine[Any, Any, None]:
        """Send a complete response, with the id of the exchange."""
        record = self.observer.record
        record.status = status
        return AsgiRequest.respond(self, status, body, [*headers, *self.exchange_headers()])

    def read_trace_headers(self) -> None:
        """Note the client's ids of the request, if they are valid: `x-request-id` and `traceparent`."""
        record = self.observer.record
        if (request_id := self.headers.get(b"x-request-id")) is not None and _REQUEST_ID.fullmatch(request_id):
            record.request_id = request_id.decode()
        if (parent := self.headers.get(b"traceparent")) is not None and _TRACE_PARENT.fullmatch(parent):
            record.trace = parent[3:35].decode()

    def exchange_headers(self) -> list[Header]:
        """Return the headers with the ids of the exchange, and the model that answers if it is known."""
        record = self.observer.record
        id = record.id.encode()
        headers = [(b"toolwire-exchange", id), (b"x-request-id", record.request_id.encode() or id)]
        if record.trace:  # the exchange is the span
            headers.append((b"traceparent", f"00-{record.trace}-{record.id[3:]}-01".encode()))
        if record.model:
            headers.append(encode_model_header(record.provider, record.model))
        return headers

    async def read_body(self, limit: int) -> bytes:
        """Read the body, decompressed, up to `limit` bytes; the watch bounds the time."""
        try:
            body = await self.receive_body(limit)
        except BodyTooLarge:
            message = f"the request body is larger than {limit} bytes"
            raise RequestRejected(ApiError(kind="too_large", message=message, status=413)) from None
        self.watch.mark_body_received()
        if (encoding := self.headers.get(b"content-encoding")) is not None:
            body = await asyncio.to_thread(_decompress_body, body, encoding, limit)
            self.reserve_body(len(body))
        return body

    def reserve_body(self, size: int) -> None:
        """Reserve the bytes of a large body in the budget."""
        if size > UNCOUNTED_BODY:
            self.reserved_bytes = self.body_budget.reserve(self.reserved_bytes, size)

    def release_body(self) -> None:
        """Release the bytes that were reserved for the body in the budget."""
        self.body_budget.release(self.reserved_bytes)
        self.reserved_bytes = 0


def _decompress_body(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Return a body decoded by its `Content-Encoding`, of at most `limit` bytes."""
    try:
        decoder = ContentDecoder(encoding.decode("latin-1"))
    except ContentEncodingError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=f"request body: {error}", status=415)) from None
    try:
        decoded = decoder.feed(body, limit)
        decoder.close()
    except DecodedBodyTooLarge as error:
        raise RequestRejected(ApiError(kind="too_large", message=f"request body: {error}", status=413)) from None
    except ContentEncodingError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=f"request body: {error}", status=400)) from None
    return decoded


_HEADER_VALUE = re.compile(rb"[A-Za-z0-9_.,; =-]{1,4096}")
_LIMIT_CACHED = 4096
_ROUTE_HEADERS = {
    name: ((codec.surface.version_header or "").encode(), (codec.surface.passthrough_header or "").encode())
    for name, codec in PROTOCOLS.items()
}


def request_route(codec: Codec, endpoint: EndpointMatch, headers: dict[bytes, bytes]) -> Route:
    """Return the model, version and forwarded headers that a request has outside its body."""
    version_name, forwarded_name = _ROUTE_HEADERS[codec.name]
    version, forwarded = headers.get(version_name, b""), headers.get(forwarded_name, b"")
    size = len(version) + len(forwarded) + (0 if endpoint.model is None else len(endpoint.model))
    return (_cached_route if size <= _LIMIT_CACHED else _decode_route)(codec.name, endpoint, version, forwarded)


def _decode_route(protocol: str, endpoint: EndpointMatch, version: bytes, forwarded: bytes) -> Route:
    """Return the route that URL and headers determine, without values that have unusual characters."""
    surface = PROTOCOLS[protocol].surface
    forwarded_headers = {
        name: value.decode("ascii")
        for name, value in ((surface.version_header, version), (surface.passthrough_header, forwarded))
        if name is not None and value and _HEADER_VALUE.fullmatch(value)
    }
    version_value = forwarded_headers.get(surface.version_header or "")
    return Route(
        model=endpoint.model, stream=endpoint.stream, version=version_value, headers=tuple(forwarded_headers.items())
    )


_cached_route = lru_cache(maxsize=256)(_decode_route)


_STRICTNESS: dict[bytes | None, Strictness] = {None: False, b"refuse": True, b"error": "error"}


def requested_strictness(headers: dict[bytes, bytes]) -> Strictness:
    """Return the losses that the client wants to be refused (`toolwire-strict`)."""
    value = headers.get(b"toolwire-strict")
    if (strictness := _STRICTNESS.get(value)) is None:  # never ignore it: the client relies on it
        text = (value or b"").decode("latin-1")
        message = f"toolwire-strict: unknown value {text!r}; send 'refuse' or 'error', or omit the header"
        raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400))
    return strictness


def guess_protocol(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """Return the protocol to respond in when a path matches no endpoint, or several protocols."""
    path = scope["path"]
    if b"anthropic-version" in headers:
        return "anthropic"
    if path.startswith("/v1beta/interactions"):
        return "gemini-interactions"
    has_google_key = b"x-goog-api-key" in headers or b"key=" in scope["query_string"]
    if has_google_key or path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/api/v1/"):
        return "openrouter"
    if path.startswith("/api/"):
        return "ollama"
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "openai-responses" if path.startswith("/v1/responses") else "openai-chat"
