"""The websocket of the Responses API, as Codex uses it: a connection that remembers, in front of any upstream.

1. Each text is an event. `response.create` asks, and is answered with the events that a stream would have, one a text.
2. Requests of one `stream_id` make a lane: one after the other, in order. Lanes run at the same time.
3. The last answer of each lane is remembered with all that led to it for as long as the connection lives, also if it is
   not stored: the next request says only what is new.
4. `generate: false` is a warm-up: answered at once with nothing, and remembered like any other.
5. `response.steer` says something to an answer that is under way.
6. An error ends its request, not the connection.
"""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.codec.interface import Route
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected, to_api_error
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.types import ClientRequest, StreamingResponse
from toolwire.gateway.limits import Quota
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import ExchangeCapture, Recorder
from toolwire.gateway.server.auth import Authenticator, Principal
from toolwire.gateway.server.request import Receive
from toolwire.gateway.state.connection_state import ChannelState, ConnectionState, HistoryCache
from toolwire.gateway.websocket.steering import NextTurn, Steer, SteeringQueue
from toolwire.protocols import PROTOCOLS

_RESPONSES = PROTOCOLS["openai-responses"]
_MAX_CHANNELS = 32
_MAX_REQUESTS = 16
_MAX_LONGEST_HISTORIES = 4  # so many of the longest fit in memory, of all websockets
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_FRAME_FIELDS = ("type", "stream_id", "generate", "stream")
_DATA_PREFIX = b"data: "

ExchangeEndCallback = Callable[[RequestRecord, Principal, list[Loss]], None]

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class ResponsesWebSocket:
    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        limits: LimitsSection,
        stream_quota: Quota,
        *,
        on_exchange_end: ExchangeEndCallback,
        recorder: Recorder | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._limits = limits
        self._stream_quota = stream_quota
        self._on_exchange_end = on_exchange_end
        self._recorder = recorder
        self._connection_quota = Quota("websockets", limits.sockets, authenticator.key_quota(limits.sockets))
        self._history_cache = HistoryCache(limits.body, _MAX_LONGEST_HISTORIES * limits.body)

    async def serve(self, scope: Any, receive: Receive, send: Callable[[Any], Any]) -> None:
        await receive()
        caller = self._authenticate(scope)
        if isinstance(caller, ApiError):
            await _reject_handshake(scope, send, caller)
            return
        try:
            await send({"type": "websocket.accept"})
            model = parse_qs(scope["query_string"].decode("latin-1")).get("model", [None])[0]
            opening = _Handshake(caller, model, dict(scope["headers"]))
            connection = _WebSocketSession(
                self._dispatcher,
                opening,
                self._limits.body,
                stream_quota=self._stream_quota,
                connection_state=ConnectionState(self._history_cache),
                send=send,
                on_exchange_end=self._on_exchange_end,
                recorder=self._recorder,
            )
            await connection.run(receive, self._limits.socket_time)
        finally:
            self._connection_quota.release(caller.tenant)

    def _authenticate(self, scope: Any) -> Principal | ApiError:
        """Who it is, with a place taken; or why there is to be no connection."""
        headers = dict(scope["headers"])
        if _RESPONSES.surface.match(scope["path"]) is None:
            return ApiError(kind="not_found", message=f"there is no websocket at {scope['path']}", status=404)
        if (why := self._authenticator.rejection_reason(headers)) is not None:
            return ApiError(kind="permission", message=why, status=403)
        if (caller := self._authenticator.authenticate(headers, scope["query_string"])) is None:
            return ApiError(kind="authentication", message="no valid key was given", status=401)
        if not self._limits.sockets:
            # At this status clients ask again without a websocket.
            return ApiError(kind="invalid_request", message="websockets are turned off: use POST", status=426)
        try:
            self._connection_quota.acquire(caller.tenant)
        except RequestRejected as refused:
            return refused.error
        return caller


async def _reject_handshake(scope: Any, send: Callable[[Any], Any], error: ApiError) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    headers = [(b"content-type", b"application/json")]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    body = _RESPONSES.encode_error(error).to_bytes()
    await send({"type": "websocket.http.response.body", "body": body})


class _ResponseId(Struct, frozen=True):
    id: str = ""


class _StartedResponse(Struct):
    """The first event of an answer."""

    response: _ResponseId = _ResponseId()


class _Handshake(Struct, frozen=True):
    """What is said once, when the connection is opened."""

    principal: Principal
    model: str | None
    headers: dict[bytes, bytes]


class _WebSocketSession:
    def __init__(
        self,
        dispatcher: Dispatcher,
        handshake: _Handshake,
        message_limit: int,
        *,
        stream_quota: Quota,
        connection_state: ConnectionState,
        send: Callable[[Any], Any],
        on_exchange_end: ExchangeEndCallback,
        recorder: Recorder | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._handshake = handshake
        self._message_limit = message_limit
        self._send = send
        self._on_exchange_end = on_exchange_end
        self._recorder = recorder
        self._steering = SteeringQueue()
        self._stream_quota = stream_quota
        self._connection_state = connection_state
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, receive: Receive, max_seconds: float) -> None:
        try:
            async with asyncio.timeout(max_seconds):
                while (message := await receive())["type"] != "websocket.disconnect":
                    text = message.get("text")
                    await self._handle_message((message.get("bytes") or b"") if text is None else text.encode())
        except TimeoutError:
            why = "the connection has reached its longest time: open another"
            await self._send_error("", _invalid_request(why, "websocket_connection_limit_reached"))
            await self._send({"type": "websocket.close", "code": 1000})
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._connection_state.close()

    async def _handle_message(self, text: bytes) -> None:
        lane = ""
        try:
            frame = self._decode_frame(text)
            kind = _decode(frame.get("type", b"null"))
            if kind == "response.steer":
                lane, event = self._steering.accept_steer(frame, self._connection_state.last_response_ids)
                await self._send_event(lane, _encode(event))
                return
            lane = _decode_stream_id(frame)
            if kind != "response.create":
                why = "only response.create and response.steer are known here"
                raise RequestRejected(_invalid_request(why, None))  # noqa: TRY301 - told as all others are
            if lane not in self._locks and len(self._locks) >= _MAX_CHANNELS:
                why = f"more than {_MAX_CHANNELS} lanes"
                raise RequestRejected(_invalid_request(why, "websocket_stream_limit_reached"))  # noqa: TRY301
            if len(self._tasks) >= _MAX_REQUESTS:
                why = f"more than {_MAX_REQUESTS} requests at once"
                raise RequestRejected(_invalid_request(why, "websocket_stream_limit_reached"))  # noqa: TRY301
        except RequestRejected as refused:
            await self._send_error(lane, refused.error)
            return
        lock = self._locks.setdefault(lane, asyncio.Lock())
        self._tasks.add(task := asyncio.ensure_future(self._serve_request(lane, lock, frame)))
        task.add_done_callback(self._tasks.discard)

    def _decode_frame(self, text: bytes) -> dict[str, Raw]:
        if len(text) > self._message_limit:
            why = f"the message is longer than {self._message_limit} bytes"
            raise RequestRejected(ApiError(kind="too_large", message=why, status=413, code="message_too_big"))
        try:
            return _decode(text, type=dict[str, Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise RequestRejected(_invalid_request("a JSON object is wanted", None)) from None

    async def _serve_request(self, stream_id: str, lock: asyncio.Lock, frame: dict[str, Raw]) -> None:
        async with lock:
            joined = self._steering.merge_pending(stream_id, frame)
            await self._send_events(stream_id, joined.events)
            ended = await self._serve_response(stream_id, joined.request or frame, joined.steers, client_initiated=True)
            while ended.request is not None:
                ended = await self._serve_response(stream_id, ended.request, ended.steers, client_initiated=False)

    async def _serve_response(
        self, stream_id: str, frame: dict[str, Raw], steers: list[Steer], *, client_initiated: bool
    ) -> NextTurn:
        """One answer. `steers` are part of what it is asked; if they are all of it, `asked` is false."""
        line = RequestRecord(
            id=f"ex_{secrets.token_hex(8)}", method="WS", path="/v1/responses", started_at=time.monotonic()
        )
        line.client, line.status, line.streamed = _RESPONSES.name, 499, True
        losses: list[Loss] = []
        id, last, note, streams = "", b"", None, False
        try:
            wanted = self._client_request(stream_id, frame)
            warm = _decode(frame.get("generate", b"true")) is False
            if not warm:
                self._stream_quota.acquire(wanted.tenant)
                streams = True
            if not warm and self._recorder is not None:
                note = self._recorder.start_capture(wanted, self._handshake.headers)
            frames = self._prewarm_frames(wanted) if warm else self._response_frames(wanted, line, losses, note)
            async for told_frame in frames:
                if not last:
                    id = _decode(told_frame, type=_StartedResponse).response.id
                    self._steering.start_response(id, stream_id, frame)
                last = told_frame
                await self._send_event(stream_id, told_frame)
            line.status = 200
        except Exception as error:  # noqa: BLE001 - the one place that turns whatever went wrong into an answer
            known = to_api_error(error)
            line.status, line.error = known.status or 500, known.message
            line.exception = error if known.status == 500 and not isinstance(error, RequestRejected) else None
            if not last:
                await self._send_events(stream_id, self._steering.reject_steers(steers, known.message))
            if client_initiated or last:
                await self._send_error(stream_id, known)
            last = _encode({"type": "error"})
        finally:
            if streams:
                self._stream_quota.release(self._handshake.principal.tenant)
            self._on_exchange_end(line, self._handshake.principal, losses)
            if self._recorder is not None and note is not None:
                note.losses = losses
                self._recorder.record_exchange(line, note)
        ended = self._steering.end_response(id, last)
        await self._send_events(stream_id, ended.events)
        return ended

    def _client_request(self, stream_id: str, frame: dict[str, Raw]) -> ClientRequest:
        body = {name: value for name, value in frame.items() if name not in _FRAME_FIELDS}
        if _decode(body.pop("background", b"false")):
            raise RequestRejected(_invalid_request("background is not for websockets", None))
        return ClientRequest(
            codec=_RESPONSES,
            body=_encode(body | {"stream": True}),
            route=Route(model=self._handshake.model),
            tenant=self._handshake.principal.tenant,
            created=int(time.time()),
            channel=ChannelState(stream_id, self._connection_state),
        )

    async def _prewarm_frames(self, client_request: ClientRequest) -> AsyncIterator[bytes]:
        for told_frame in _split_events(await self._dispatcher.prewarm(client_request)):
            yield told_frame

    async def _response_frames(
        self, client_request: ClientRequest, record: RequestRecord, losses: list[Loss], capture: ExchangeCapture | None
    ) -> AsyncIterator[bytes]:
        sends = None if capture is None else capture.on_request_sent
        answer = await self._dispatcher.dispatch(client_request, record.set_backend, lambda: None, sends)
        if not isinstance(answer, StreamingResponse):
            raise AssertionError("what is asked to stream does")  # noqa: TRY004 - never by what a client sends
        if capture is not None:
            capture.on_response(answer)
        async for data in answer.chunks():
            if capture is not None:
                capture.append_body(data)
            for told_frame in _split_events(data):
                if told_frame.startswith(b'{"type":"error"') and (error := answer.error) is not None:
                    raise RequestRejected(
                        replace(error, status=error.status or _RESPONSES.surface.status_of(error.kind))
                    )
                yield told_frame
        losses += answer.losses
        record.usage, record.losses = answer.usage, len(losses)
        record.failed = answer.error is not None

    async def _send_events(self, stream_id: str, events: list[dict[str, Any]]) -> None:
        for event in events:
            await self._send_event(stream_id, _encode(event))

    async def _send_event(self, stream_id: str, text: bytes) -> None:
        if stream_id:
            text = b'{"stream_id":"%b",%b' % (stream_id.encode(), text[1:])
        await self._send({"type": "websocket.send", "text": text.decode()})

    async def _send_error(self, stream_id: str, error: ApiError) -> None:
        """In the form of this transport, which is not that of a stream."""
        status = error.status or _RESPONSES.surface.status_of(error.kind)
        body = _decode(_RESPONSES.encode_error(error).to_bytes())["error"]
        await self._send_event(stream_id, _encode({"type": "error", "status": status, "error": body}))


def _decode_stream_id(frame: dict[str, Raw]) -> str:
    lane = _decode(frame.get("stream_id", b'""')) or ""
    if not isinstance(lane, str) or (lane and not _STREAM_ID.fullmatch(lane)):
        raise RequestRejected(_invalid_request("stream_id: 1 to 256 of A-Z, a-z, 0-9, _ . -", None))
    return lane


def _split_events(data: bytes) -> Iterator[bytes]:
    """The events in a piece of a stream, which is whole frames."""
    for text in data.split(b"\n"):
        if text.startswith(_DATA_PREFIX) and text != b"data: [DONE]":
            yield text[len(_DATA_PREFIX) :]


def _invalid_request(reason: str, code: str | None) -> ApiError:
    return ApiError(kind="invalid_request", message=reason, status=400, code=code)
