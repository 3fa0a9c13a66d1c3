"""The WebSocket of the Responses API, as Codex uses it: a connection with history, in front of any upstream.

1. Each text message is an event. `response.create` starts a response, sent as the events of a stream, one per message.
2. Requests with the same `stream_id` form a channel and run in order. Channels run concurrently.
3. Each channel remembers its last response, with everything that led to it, while the connection is open, even if the
   response is not stored. The next request only sends new input.
4. `generate: false` warms up: the response is empty, and remembered like any other.
5. `response.steer` sends input to a response under way.
6. An error ends its request, not the connection.
"""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Route
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected, to_api_error
from toolwire.gateway.exchange.client_credentials import read_credentials
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.gateway.exchange.response import StreamingResponse
from toolwire.gateway.limits import Quota
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import Observability, RequestObserver
from toolwire.gateway.server.auth import Authenticator, Principal, key_rejection
from toolwire.gateway.state.conversations import ChannelState, ConnectionState, HistoryMemo
from toolwire.gateway.websocket.steering import NextTurn, Steer, SteeringQueue
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.asgi import JSON_HEADER, Receive

_RESPONSES = PROTOCOLS["openai-responses"]
_MAX_CHANNELS = 32
_MAX_REQUESTS = 16
_MAX_LONGEST_HISTORIES = 4  # histories of maximal size that fit in the cache
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_FRAME_FIELDS = ("type", "stream_id", "generate", "stream")
_DATA_PREFIX = b"data: "

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class ResponsesWebSocket:
    """Accepts WebSocket connections of the Responses API."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        limits: LimitsSection,
        *,
        stream_quota: Quota,
        connection_quota: Quota,
        observability: Observability,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._limits = limits
        self._stream_quota = stream_quota
        self._observability = observability
        self._connection_quota = connection_quota
        self._histories = HistoryMemo(_MAX_LONGEST_HISTORIES * limits.body, max_entry=limits.body)

    async def serve(self, scope: Any, receive: Receive, send: Callable[[Any], Any]) -> None:
        """Authenticate a handshake and run the connection."""
        await receive()
        principal = self._authenticate(scope)
        if isinstance(principal, ApiError):
            await _reject_handshake(scope, send, principal)
            return
        try:
            await send({"type": "websocket.accept"})
            model = parse_qs(scope["query_string"].decode("latin-1")).get("model", [None])[0]
            headers, names = dict(scope["headers"]), self._dispatcher.services.router.credential_headers
            credentials = read_credentials(headers, names, self._authenticator.is_gateway_key)
            handshake = _Handshake(principal, model, headers, credentials)
            session = _WebSocketSession(
                self._dispatcher,
                handshake,
                self._limits.body,
                stream_quota=self._stream_quota,
                connection_state=ConnectionState(self._histories),
                send=send,
                observability=self._observability,
            )
            await session.run(receive, self._limits.socket_time)
        finally:
            self._connection_quota.release(principal.tenant)

    def _authenticate(self, scope: Any) -> Principal | ApiError:
        """Return the caller, with its connection counted, or the error to reject the handshake with."""
        headers = dict(scope["headers"])
        if _RESPONSES.surface.match(scope["path"]) is None:
            return ApiError(kind="not_found", message=f"not found: {scope['path']}", status=404)
        if (reason := self._authenticator.rejection_reason(headers)) is not None:
            return ApiError(kind="permission", message=reason, status=403)
        try:
            principal = self._authenticator.authenticate(headers, scope["query_string"])
        except RequestRejected as rejection:
            return rejection.error
        if principal is None:
            return key_rejection(_RESPONSES, headers, scope["query_string"]).error
        if not self._limits.sockets:
            # Clients that get this status retry over HTTP.
            return ApiError(kind="invalid_request", message="WebSockets are disabled: use POST", status=426)
        try:
            self._connection_quota.acquire(principal.tenant)
        except RequestRejected as rejection:
            return rejection.error
        return principal


async def _reject_handshake(scope: Any, send: Callable[[Any], Any], error: ApiError) -> None:
    """Answer a handshake with an HTTP error, or a close frame if the server can't send one."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": [JSON_HEADER]}
    await send(start)
    body = _RESPONSES.encode_error(error).to_bytes()
    await send({"type": "websocket.http.response.body", "body": body})


class _ResponseId(Struct, frozen=True):
    """The `response` object of an event, reduced to its id."""

    id: str = ""


class _StartedResponse(Struct):
    """The first event of a response."""

    response: _ResponseId = _ResponseId()


class _Handshake(Struct, frozen=True):
    """The data of the opening handshake."""

    principal: Principal
    model: str | None
    headers: dict[bytes, bytes]
    credentials: dict[str, str] = {}
    """The client's own keys for providers, by header."""


class _WebSocketSession:
    """One open connection."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        handshake: _Handshake,
        message_limit: int,
        *,
        stream_quota: Quota,
        connection_state: ConnectionState,
        send: Callable[[Any], Any],
        observability: Observability,
    ) -> None:
        self._dispatcher = dispatcher
        self._handshake = handshake
        self._message_limit = message_limit
        self._send = send
        self._observability = observability
        self._steering = SteeringQueue()
        self._stream_quota = stream_quota
        self._connection_state = connection_state
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, receive: Receive, max_seconds: float) -> None:
        """Handle messages until the client disconnects or the time limit is reached."""
        try:
            async with asyncio.timeout(max_seconds):
                while (message := await receive())["type"] != "websocket.disconnect":
                    text = message.get("text")
                    await self._handle_message((message.get("bytes") or b"") if text is None else text.encode())
        except TimeoutError:
            reason = "the connection reached its time limit (limits.socket_time): open a new one"
            await self._send_error("", _invalid_request(reason, "websocket_connection_limit_reached"))
            await self._send({"type": "websocket.close", "code": 1000})
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._connection_state.close()

    async def _handle_message(self, text: bytes) -> None:
        """Handle one event: queue input, or start a response in its channel."""
        stream_id = ""
        try:
            frame = self._decode_frame(text)
            kind = _decode(frame.get("type", b"null"))
            if kind == "response.steer":
                stream_id, event = self._steering.accept_steer(frame, self._connection_state.last_response_ids)
                await self._send_event(stream_id, _encode(event))
                return
            stream_id = _decode_stream_id(frame)
            if kind != "response.create":
                message = "unknown event type; expected response.create or response.steer"
                raise RequestRejected(_invalid_request(message, None))  # noqa: TRY301 - handled like all other errors
            if stream_id not in self._locks and len(self._locks) >= _MAX_CHANNELS:
                message = f"more than {_MAX_CHANNELS} streams on one connection"
                raise RequestRejected(_invalid_request(message, "websocket_stream_limit_reached"))  # noqa: TRY301
            if len(self._tasks) >= _MAX_REQUESTS:
                message = f"more than {_MAX_REQUESTS} concurrent requests on one connection"
                raise RequestRejected(_invalid_request(message, "websocket_stream_limit_reached"))  # noqa: TRY301
        except RequestRejected as rejection:
            await self._send_error(stream_id, rejection.error)
            return
        lock = self._locks.setdefault(stream_id, asyncio.Lock())
        self._tasks.add(task := asyncio.ensure_future(self._serve_request(stream_id, lock, frame)))
        task.add_done_callback(self._tasks.discard)

    def _decode_frame(self, text: bytes) -> dict[str, Raw]:
        """Decode a text message as a JSON object."""
        if len(text) > self._message_limit:
            message = f"the message is larger than {self._message_limit} bytes"
            raise RequestRejected(ApiError(kind="too_large", message=message, status=413, code="message_too_big"))
        try:
            return _decode(text, type=dict[str, Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise RequestRejected(_invalid_request("invalid JSON: expected a JSON object", None)) from None

    async def _serve_request(self, stream_id: str, lock: asyncio.Lock, frame: dict[str, Raw]) -> None:
        """Run a response, and follow-ups for queued input, one at a time per channel."""
        async with lock:
            turn = self._steering.merge_pending(stream_id, frame)
            await self._send_events(stream_id, turn.events)
            next_turn = await self._serve_response(stream_id, turn.request or frame, turn.steers, client_initiated=True)
            while next_turn.request is not None:
                next_turn = await self._serve_response(
                    stream_id, next_turn.request, next_turn.steers, client_initiated=False
                )

    async def _serve_response(
        self, stream_id: str, frame: dict[str, Raw], steers: list[Steer], *, client_initiated: bool
    ) -> NextTurn:
        """Run one response, and return the events and the request to follow it.

        `steers` are the queued inputs that its request contains; a follow-up, not `client_initiated`, has no other
        input.
        """
        record = RequestRecord(
            id=f"ex_{secrets.token_hex(8)}", method="WS", path="/v1/responses", started_at=time.monotonic()
        )
        record.client, record.status, record.streamed = _RESPONSES.name, 499, True
        observer = RequestObserver(self._observability, record, self._handshake.principal)
        id, last_event, has_slot = "", b"", False
        try:
            client_request = self._client_request(stream_id, frame)
            if _decode(frame.get("generate", b"true")) is False:
                events = self._prewarm_frames(client_request)
            else:
                self._stream_quota.acquire(client_request.tenant)
                has_slot = True
                observer.start_capture(client_request, self._handshake.headers)
                events = self._response_frames(client_request, observer)
            # Closed at once if the client leaves, and with it the upstream response.
            async with aclosing(events):
                async for event in events:
                    if not last_event:
                        id = _decode(event, type=_StartedResponse).response.id
                        self._steering.start_response(id, stream_id, frame)
                    last_event = event
                    await self._send_event(stream_id, event)
            record.status = 200
        except Exception as error:  # noqa: BLE001 - the one place that converts exceptions to events
            api_error = _record_failure(record, error)
            if not last_event:
                await self._send_events(stream_id, self._steering.reject_steers(steers, api_error.message))
            if client_initiated or last_event:
                await self._send_error(stream_id, api_error)
            last_event = _encode({"type": "error"})
        finally:
            if has_slot:
                self._stream_quota.release(self._handshake.principal.tenant)
            observer.store_request_losses()
            observer.finish()
        next_turn = self._steering.end_response(id, last_event)
        await self._send_events(stream_id, next_turn.events)
        return next_turn

    def _client_request(self, stream_id: str, frame: dict[str, Raw]) -> ClientRequest:
        """Build the client request of a `response.create` event."""
        body = {name: value for name, value in frame.items() if name not in _FRAME_FIELDS}
        if _decode(body.pop("background", b"false")):
            raise RequestRejected(_invalid_request("background is not supported over WebSocket", None))
        return ClientRequest(
            codec=_RESPONSES,
            body=_encode(body | {"stream": True}),
            route=Route(model=self._handshake.model),
            tenant=self._handshake.principal.tenant,
            key=self._handshake.principal.key,
            created=int(time.time()),
            channel=ChannelState(stream_id, self._connection_state),
            credentials=self._handshake.credentials,
        )

    async def _prewarm_frames(self, client_request: ClientRequest) -> AsyncGenerator[bytes, None]:
        """Yield the events of a request that is stored but not sent (`generate: false`)."""
        for event in _split_events(await self._dispatcher.prewarm(client_request)):
            yield event

    async def _response_frames(
        self, client_request: ClientRequest, observer: RequestObserver
    ) -> AsyncGenerator[bytes, None]:
        """Dispatch a request and yield the events of its response."""
        capture, record = observer.capture, observer.record
        response = await self._dispatcher.dispatch(await self._dispatcher.open_exchange(client_request, observer))
        if not isinstance(response, StreamingResponse):
            raise AssertionError("a streaming request got a buffered response")  # noqa: TRY004 - never by what a client sends
        async with aclosing(response.chunks()) as chunks:
            async for data in chunks:
                if capture is not None:
                    capture.append_body(data)
                for event in _split_events(data):
                    if event.startswith(b'{"type":"error"') and (error := response.error) is not None:
                        raise RequestRejected(
                            replace(error, status=error.status or _RESPONSES.surface.status_of(error.kind))
                        )
                    yield event
        observer.store_losses(response.losses)
        record.usage = response.usage
        record.failed = response.error is not None

    async def _send_events(self, stream_id: str, events: list[dict[str, Any]]) -> None:
        """Send several events on a channel."""
        for event in events:
            await self._send_event(stream_id, _encode(event))

    async def _send_event(self, stream_id: str, text: bytes) -> None:
        """Send one event on a channel."""
        if stream_id:
            text = b'{"stream_id":"%b",%b' % (stream_id.encode(), text[1:])
        await self._send({"type": "websocket.send", "text": text.decode()})

    async def _send_error(self, stream_id: str, error: ApiError) -> None:
        """Send an error in the WebSocket's form, which differs from that of a stream."""
        status = error.status or _RESPONSES.surface.status_of(error.kind)
        body = _decode(_RESPONSES.encode_error(error).to_bytes())["error"]
        await self._send_event(stream_id, _encode({"type": "error", "status": status, "error": body}))


def _record_failure(record: RequestRecord, error: Exception) -> ApiError:
    """Record a failed exchange, and return the error for the client."""
    api_error = to_api_error(error)
    record.status, record.error = api_error.status or 500, api_error.message
    is_internal = api_error.status == 500 and not isinstance(error, RequestRejected)
    record.exception = error if is_internal else None
    return api_error


def _decode_stream_id(frame: dict[str, Raw]) -> str:
    """Decode the `stream_id` of an event; empty if there is none."""
    stream_id = _decode(frame.get("stream_id", b'""')) or ""
    if not isinstance(stream_id, str) or (stream_id and not _STREAM_ID.fullmatch(stream_id)):
        raise RequestRejected(_invalid_request("stream_id: expected 1 to 256 characters of A-Z, a-z, 0-9, _ . -", None))
    return stream_id


def _split_events(data: bytes) -> Iterator[bytes]:
    """Yield the data of each event in complete SSE frames."""
    for text in data.split(b"\n"):
        if text.startswith(_DATA_PREFIX) and text != b"data: [DONE]":
            yield text[len(_DATA_PREFIX) :]


def _invalid_request(reason: str, code: str | None) -> ApiError:
    """Build an `invalid_request` error (400)."""
    return ApiError(kind="invalid_request", message=reason, status=400, code=code)
