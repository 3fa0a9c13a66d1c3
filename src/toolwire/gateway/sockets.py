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
from toolwire.protocols import PROTOCOLS

from .auth import Caller, Gate
from .config import LimitsSection
from .exchange import Exchanger
from .faults import told
from .lanes import Histories, Lane, Lanes
from .log import Line
from .passing import Asked, Streaming
from .quota import Quota
from .recording import Note, Recorder
from .refusal import Refused
from .steering import Steer, Steering, Turn
from .watch import Receive

_RESPONSES = PROTOCOLS["openai-responses"]
_MOST_LANES = 32
_MOST_REQUESTS = 16
_LONGEST_HISTORIES = 4  # so many of the longest fit in memory, of all websockets
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OUTSIDE = ("type", "stream_id", "generate", "stream")
_DATA = b"data: "

Noting = Callable[[Line, Caller, list[Loss]], None]

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Sockets:
    def __init__(
        self,
        exchanger: Exchanger,
        gate: Gate,
        limits: LimitsSection,
        streams: Quota,
        *,
        note: Noting,
        recorder: Recorder | None,
    ) -> None:
        self._exchanger = exchanger
        self._gate = gate
        self._limits = limits
        self._streams = streams
        self._note = note
        self._recorder = recorder
        self._sockets = Quota("websockets", limits.sockets, gate.share(limits.sockets))
        self._histories = Histories(limits.body, _LONGEST_HISTORIES * limits.body)

    async def serve(self, scope: Any, receive: Receive, send: Callable[[Any], Any]) -> None:
        await receive()
        caller = self._admitted(scope)
        if isinstance(caller, ApiError):
            await _refuse(scope, send, caller)
            return
        try:
            await send({"type": "websocket.accept"})
            model = parse_qs(scope["query_string"].decode("latin-1")).get("model", [None])[0]
            opening = _Opening(caller, model, dict(scope["headers"]))
            connection = _Connection(
                self._exchanger,
                opening,
                self._limits.body,
                streams=self._streams,
                lanes=Lanes(self._histories),
                send=send,
                note=self._note,
                recorder=self._recorder,
            )
            await connection.run(receive, self._limits.socket_time)
        finally:
            self._sockets.give_back(caller.tenant)

    def _admitted(self, scope: Any) -> Caller | ApiError:
        """Who it is, with a place taken; or why there is to be no connection."""
        headers = dict(scope["headers"])
        if _RESPONSES.surface.match(scope["path"]) is None:
            return ApiError(kind="not_found", message=f"there is no websocket at {scope['path']}", status=404)
        if (why := self._gate.stranger(headers)) is not None:
            return ApiError(kind="permission", message=why, status=403)
        if (caller := self._gate.admit(headers, scope["query_string"])) is None:
            return ApiError(kind="authentication", message="no valid key was given", status=401)
        if not self._limits.sockets:
            # At this status clients ask again without a websocket.
            return ApiError(kind="invalid_request", message="websockets are turned off: use POST", status=426)
        try:
            self._sockets.take(caller.tenant)
        except Refused as refused:
            return refused.error
        return caller


async def _refuse(scope: Any, send: Callable[[Any], Any], error: ApiError) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    headers = [(b"content-type", b"application/json")]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    body = _RESPONSES.encode_error(error).to_bytes()
    await send({"type": "websocket.http.response.body", "body": body})


class _Named(Struct, frozen=True):
    id: str = ""


class _Begun(Struct):
    """The first event of an answer."""

    response: _Named = _Named()


class _Opening(Struct, frozen=True):
    """What is said once, when the connection is opened."""

    caller: Caller
    model: str | None
    headers: dict[bytes, bytes]


class _Connection:
    def __init__(
        self,
        exchanger: Exchanger,
        opening: _Opening,
        limit: int,
        *,
        streams: Quota,
        lanes: Lanes,
        send: Callable[[Any], Any],
        note: Noting,
        recorder: Recorder | None,
    ) -> None:
        self._exchanger = exchanger
        self._opening = opening
        self._limit = limit
        self._send = send
        self._note = note
        self._recorder = recorder
        self._steering = Steering()
        self._streams = streams
        self._lanes = lanes
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, receive: Receive, longest: float) -> None:
        try:
            async with asyncio.timeout(longest):
                while (message := await receive())["type"] != "websocket.disconnect":
                    text = message.get("text")
                    await self._take((message.get("bytes") or b"") if text is None else text.encode())
        except TimeoutError:
            why = "the connection has reached its longest time: open another"
            await self._tell_error("", _error(why, "websocket_connection_limit_reached"))
            await self._send({"type": "websocket.close", "code": 1000})
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._lanes.close()

    async def _take(self, text: bytes) -> None:
        lane = ""
        try:
            frame = self._read(text)
            kind = _decode(frame.get("type", b"null"))
            if kind == "response.steer":
                lane, event = self._steering.take(frame, self._lanes.ids)
                await self._tell(lane, _encode(event))
                return
            lane = _lane_of(frame)
            if kind != "response.create":
                why = "only response.create and response.steer are known here"
                raise Refused(_error(why, None))  # noqa: TRY301 - told as all others are
            if lane not in self._locks and len(self._locks) >= _MOST_LANES:
                raise Refused(_error(f"more than {_MOST_LANES} lanes", "websocket_stream_limit_reached"))  # noqa: TRY301
            if len(self._tasks) >= _MOST_REQUESTS:
                why = f"more than {_MOST_REQUESTS} requests at once"
                raise Refused(_error(why, "websocket_stream_limit_reached"))  # noqa: TRY301
        except Refused as refused:
            await self._tell_error(lane, refused.error)
            return
        lock = self._locks.setdefault(lane, asyncio.Lock())
        self._tasks.add(task := asyncio.ensure_future(self._answer(lane, lock, frame)))
        task.add_done_callback(self._tasks.discard)

    def _read(self, text: bytes) -> dict[str, Raw]:
        if len(text) > self._limit:
            why = f"the message is longer than {self._limit} bytes"
            raise Refused(ApiError(kind="too_large", message=why, status=413, code="message_too_big"))
        try:
            return _decode(text, type=dict[str, Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Refused(_error("a JSON object is wanted", None)) from None

    async def _answer(self, lane: str, lock: asyncio.Lock, frame: dict[str, Raw]) -> None:
        async with lock:
            joined = self._steering.joined(lane, frame)
            await self._tell_all(lane, joined.events)
            ended = await self._respond(lane, joined.request or frame, joined.steers, asked=True)
            while ended.request is not None:
                ended = await self._respond(lane, ended.request, ended.steers, asked=False)

    async def _respond(self, lane: str, frame: dict[str, Raw], steers: list[Steer], *, asked: bool) -> Turn:
        """One answer. `steers` are part of what it is asked; if they are all of it, `asked` is false."""
        line = Line(id=f"ex_{secrets.token_hex(8)}", method="WS", path="/v1/responses", began=time.monotonic())
        line.client, line.status, line.streamed = _RESPONSES.name, 499, True
        losses: list[Loss] = []
        id, last, note, streams = "", b"", None, False
        try:
            wanted = self._wanted(lane, frame)
            warm = _decode(frame.get("generate", b"true")) is False
            if not warm:
                self._streams.take(wanted.tenant)
                streams = True
            if not warm and self._recorder is not None:
                note = self._recorder.note(wanted, self._opening.headers)
            frames = self._warmed(wanted) if warm else self._frames(wanted, line, losses, note)
            async for told_frame in frames:
                if not last:
                    id = _decode(told_frame, type=_Begun).response.id
                    self._steering.begin(id, lane, frame)
                last = told_frame
                await self._tell(lane, told_frame)
            line.status = 200
        except Exception as error:  # noqa: BLE001 - the one place that turns whatever went wrong into an answer
            known = told(error)
            line.status, line.why = known.status or 500, known.message
            line.crash = error if known.status == 500 and not isinstance(error, Refused) else None
            if not last:
                await self._tell_all(lane, self._steering.give_back(steers, known.message))
            if asked or last:
                await self._tell_error(lane, known)
            last = _encode({"type": "error"})
        finally:
            if streams:
                self._streams.give_back(self._opening.caller.tenant)
            self._note(line, self._opening.caller, losses)
            if self._recorder is not None and note is not None:
                note.losses = losses
                self._recorder.record(line, note)
        ended = self._steering.end(id, last)
        await self._tell_all(lane, ended.events)
        return ended

    def _wanted(self, lane: str, frame: dict[str, Raw]) -> Asked:
        body = {name: value for name, value in frame.items() if name not in _OUTSIDE}
        if _decode(body.pop("background", b"false")):
            raise Refused(_error("background is not for websockets", None))
        return Asked(
            client=_RESPONSES,
            body=_encode(body | {"stream": True}),
            route=Route(model=self._opening.model),
            tenant=self._opening.caller.tenant,
            created=int(time.time()),
            lane=Lane(lane, self._lanes),
        )

    async def _warmed(self, asked: Asked) -> AsyncIterator[bytes]:
        for told_frame in _texts(await self._exchanger.warm(asked)):
            yield told_frame

    async def _frames(self, asked: Asked, line: Line, losses: list[Loss], note: Note | None) -> AsyncIterator[bytes]:
        sends = None if note is None else note.sends
        answer = await self._exchanger.exchange(asked, line.goes_to, lambda: None, sends)
        if not isinstance(answer, Streaming):
            raise AssertionError("what is asked to stream does")  # noqa: TRY004 - never by what a client sends
        if note is not None:
            note.answers(answer)
        async for data in answer.chunks():
            if note is not None:
                note.keep(data)
            for told_frame in _texts(data):
                if told_frame.startswith(b'{"type":"error"') and (error := answer.error) is not None:
                    raise Refused(replace(error, status=error.status or _RESPONSES.surface.status_of(error.kind)))
                yield told_frame
        losses += answer.losses
        line.usage, line.losses = answer.usage, len(losses)
        line.failed = answer.error is not None

    async def _tell_all(self, lane: str, events: list[dict[str, Any]]) -> None:
        for event in events:
            await self._tell(lane, _encode(event))

    async def _tell(self, lane: str, text: bytes) -> None:
        if lane:
            text = b'{"stream_id":"%b",%b' % (lane.encode(), text[1:])
        await self._send({"type": "websocket.send", "text": text.decode()})

    async def _tell_error(self, lane: str, error: ApiError) -> None:
        """In the form of this transport, which is not that of a stream."""
        status = error.status or _RESPONSES.surface.status_of(error.kind)
        body = _decode(_RESPONSES.encode_error(error).to_bytes())["error"]
        await self._tell(lane, _encode({"type": "error", "status": status, "error": body}))


def _lane_of(frame: dict[str, Raw]) -> str:
    lane = _decode(frame.get("stream_id", b'""')) or ""
    if not isinstance(lane, str) or (lane and not _LANE.fullmatch(lane)):
        raise Refused(_error("stream_id: 1 to 256 of A-Z, a-z, 0-9, _ . -", None))
    return lane


def _texts(data: bytes) -> Iterator[bytes]:
    """The events in a piece of a stream, which is whole frames."""
    for text in data.split(b"\n"):
        if text.startswith(_DATA) and text != b"data: [DONE]":
            yield text[len(_DATA) :]


def _error(why: str, code: str | None) -> ApiError:
    return ApiError(kind="invalid_request", message=why, status=400, code=code)
