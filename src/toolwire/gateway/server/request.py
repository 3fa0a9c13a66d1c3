"""Over requests: a body takes so long and no longer, and the work is given up as soon as the client leaves.

Most requests need neither, so that nothing more than a place in a list is made for them: one timer looks at all of
them. What takes longer than `PAUSE` is watched by a task that hears from the server when the client is gone.

A request as it came, and the answer to it.

What the headers and the path of a request say: the route of its codec, strictness, and its protocol.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Codec, Route
from toolwire.codec.surface import EndpointMatch
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.limits import BodyBudget
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import ExchangeCapture
from toolwire.gateway.server.auth import Principal
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError, DecodedBodyTooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

CHECK_INTERVAL = 0.05


class RequestWatch:
    """One request. `left`: the client did; `late`: the body was. Either cancels the task that made this."""

    def __init__(
        self, receive: Receive, record: RequestRecord, task: "asyncio.Task[Any] | None", watches: "set[RequestWatch]"
    ) -> None:
        self.disconnected = self.timed_out = False
        self.receiving_body = True
        self.record = record
        self._receive = receive
        self._handler_task = task
        self._watches = watches
        self._watch_task: asyncio.Task[None] | None = None
        watches.add(self)

    def mark_body_received(self) -> None:
        """The body is here: from now on the client is watched."""
        self.receiving_body = False

    def close(self) -> None:
        self._watches.discard(self)
        if self._watch_task is not None:
            self._watch_task.cancel()
            self._watch_task = None  # which remembers how it was cancelled, and so this

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watch_task = loop.create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.record.finished:
            self.disconnected = True
            self.cancel_handler()

    def cancel_handler(self) -> None:
        if self._handler_task is not None:
            self._handler_task.cancel()


class DisconnectMonitor:
    """All requests that are not watched by a task yet. `limit`: how many seconds a body may take."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._interval = min(CHECK_INTERVAL, limit)
        self._watches: set[RequestWatch] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, receive: Receive, record: RequestRecord) -> RequestWatch:
        """Watch a request, in the task that answers it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(self._interval, self._check_watches, self._loop)
        return RequestWatch(receive, record, asyncio.current_task(self._loop), self._watches)

    def _check_watches(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for watch in [one for one in self._watches if now - one.record.started_at >= self._interval]:
            if not watch.receiving_body:
                self._watches.discard(watch)
                watch.start(loop)
            elif now - watch.record.started_at >= self._limit:
                self._watches.discard(watch)
                watch.timed_out = True
                watch.cancel_handler()
        if self._watches:
            loop.call_later(self._interval, self._check_watches, loop)
        else:
            self._loop = None  # until somebody asks again


Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]


class ClientDisconnected(Exception):
    """The client left."""


class HttpRequest(Struct):
    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    record: RequestRecord
    watch: RequestWatch
    body_budget: BodyBudget
    reserved_bytes: int = 0
    principal: Principal = Principal("")
    capture: ExchangeCapture | None = None

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    async def respond(self, status: int, body: bytes, headers: list[Header]) -> None:
        self.record.status = status
        length = (b"content-length", str(len(body)).encode())
        exchange = (b"toolwire-exchange", self.record.id.encode())
        await self.send(
            {"type": "http.response.start", "status": status, "headers": [*headers, length, exchange]},
        )
        await self.send({"type": "http.response.body", "body": body})

    async def read_body(self, limit: int) -> bytes:
        """The whole body, within the limit of its size; how long it may take is the watch's to know."""
        announced = self.headers.get(b"content-length", b"0")
        size = 0 if not announced.isdigit() or int(announced) <= limit else limit + 1
        pieces: list[bytes] = []
        while size <= limit:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self.reserved_bytes = self.body_budget.reserve(self.reserved_bytes, size)
            if not message.get("more_body", False):
                break
        if size > limit:
            raise RequestRejected(
                ApiError(kind="too_large", message=f"the body is longer than {limit} bytes", status=413)
            )
        self.watch.mark_body_received()
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if (packed := self.headers.get(b"content-encoding")) is not None:
            body = await asyncio.to_thread(_decompress_body, body, packed, limit)
            self.reserved_bytes = self.body_budget.reserve(self.reserved_bytes, len(body))
        return body

    def release_body(self) -> None:
        """The body is needed no more."""
        self.body_budget.used -= self.reserved_bytes
        self.reserved_bytes = 0


def _decompress_body(body: bytes, encoding: bytes, limit: int) -> bytes:
    try:
        unpacker = ContentDecoder(encoding.decode("latin-1"))
    except ContentEncodingError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=f"the body: {error}", status=415)) from None
    try:
        found = unpacker.feed(body, limit)
        unpacker.close()
    except DecodedBodyTooLarge as error:
        raise RequestRejected(ApiError(kind="too_large", message=f"the body: {error}", status=413)) from None
    except ContentEncodingError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=f"the body: {error}", status=400)) from None
    return found


_HEADER_VALUE = re.compile(rb"[A-Za-z0-9_.,; =-]{1,4096}")
_LIMIT_CACHED = 4096
_ROUTE_HEADERS = {
    name: ((codec.surface.version_header or "").encode(), (codec.surface.passthrough_header or "").encode())
    for name, codec in PROTOCOLS.items()
}


def request_route(codec: Codec, address: EndpointMatch, headers: dict[bytes, bytes]) -> Route:
    """Return the model and the version that a request names outside its body, and the headers that are passed on."""
    version_name, passed_name = _ROUTE_HEADERS[codec.name]
    version, passed = headers.get(version_name, b""), headers.get(passed_name, b"")
    size = len(version) + len(passed) + (0 if address.model is None else len(address.model))
    return (_cached_route if size <= _LIMIT_CACHED else _decode_route)(codec.name, address, version, passed)


def _decode_route(protocol: str, address: EndpointMatch, version: bytes, forwarded: bytes) -> Route:
    surface = PROTOCOLS[protocol].surface
    told = {
        name: words.decode("ascii")
        for name, words in ((surface.version_header, version), (surface.passthrough_header, forwarded))
        if name is not None and words and _HEADER_VALUE.fullmatch(words)
    }
    version_told = told.get(surface.version_header or "")
    return Route(model=address.model, stream=address.stream, version=version_told, headers=tuple(told.items()))


_cached_route = lru_cache(maxsize=256)(_decode_route)


def is_strict(headers: dict[bytes, bytes]) -> bool:
    """Return whether the client wants a refusal where anything would be lost."""
    wanted = headers.get(b"toolwire-strict")
    if wanted is None:
        return False
    if wanted != b"refuse":  # whoever asks for it relies on it
        why = f"toolwire-strict: {wanted.decode('latin-1')!r} is not known: it is 'refuse' or not sent"
        raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400))
    return True


def guess_protocol(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """Return the protocol in which a request to an address that several share, or none has, is answered."""
    path = scope["path"]
    if b"anthropic-version" in headers:
        return "anthropic"
    if path.startswith("/v1beta/interactions"):
        return "gemini-interactions"
    google = b"x-goog-api-key" in headers or b"key=" in scope["query_string"]
    if google or path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/api/v1/"):
        return "openrouter"
    if path.startswith("/api/"):
        return "ollama"
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "openai-responses" if path.startswith("/v1/responses") else "openai-chat"
