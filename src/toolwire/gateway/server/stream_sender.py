"""A stream on its way to a client, from the moment it is asked for.

1. While nothing comes, the client is told that it lives, at a boundary between events: before the first one, too, so
   that nobody on the way gives up a model that thinks for long.
2. Then the head is out. The upstream may still be given up for another one, for the client has seen nothing of an
   answer; what goes wrong in the end is told in the stream.
3. What the answer lost is known when it is over: a comment says so, where the protocol's clients read on over it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Notice
from toolwire.canonical.loss import Loss
from toolwire.codec.framing import JSON_MEDIA_TYPE, JsonArrayFramer
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.gateway.exchange.types import StreamingResponse
from toolwire.gateway.limits import Quota
from toolwire.gateway.observability.loss_report import encode_losses, encode_losses_header
from toolwire.gateway.server.request import Header, HttpRequest
from toolwire.gateway.state.background_jobs import FrameLogReader
from toolwire.translation.stream import StreamTranslator


class StreamSender:
    def __init__(self, http_request: HttpRequest, codec: Codec, stream_quota: Quota, heartbeat_interval: float) -> None:
        self._http_request = http_request
        self._codec = codec
        self._stream_quota = stream_quota
        self._heartbeat_interval = heartbeat_interval
        self._array_framer = (
            JsonArrayFramer() if codec.surface.is_json_array(http_request.scope["query_string"]) else None
        )
        self._is_started = False
        self._response: StreamingResponse | FrameLogReader | None = None
        self._ping_translator: StreamTranslator | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None

    @property
    def losses(self) -> list[Loss]:
        return [] if self._response is None else self._response.losses

    def start(self) -> None:
        """The client wants a stream."""
        self._stream_quota.acquire(self._http_request.principal.tenant)
        self._is_started = True
        self._heartbeat_timer = asyncio.get_running_loop().call_later(self._heartbeat_interval, self._heartbeat)

    def close(self) -> None:
        if not self._is_started:
            return
        self._stream_quota.release(self._http_request.principal.tenant)
        line = self._http_request.record
        line.finished = True
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        if self._response is not None:
            self._response.close()
            line.usage, line.failed = self._response.usage, self._response.error is not None

    async def send_all(self, response: StreamingResponse | FrameLogReader) -> None:
        """All of an answer, as it comes."""
        self._response = response
        line, send = self._http_request.record, self._http_request.send
        before = response.request_losses
        await self._finish_heartbeat()
        if not line.head_sent:
            await self._send_head(before)
        note = self._http_request.capture
        keep = None if note is None or note.body_chunks is None else note.append_body
        async for frames in response.chunks():
            line.last_sent_at = time.monotonic()
            data = frames if self._array_framer is None else self._array_framer.add(frames)
            if keep is not None:
                keep(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        line.finished = True
        if self._array_framer is not None:
            await send({"type": "http.response.body", "body": self._array_framer.close(), "more_body": True})
        if self._codec.surface.allows_comments and (lost := response.losses[len(before) :]):
            comment = b": toolwire-losses %b\n\n" % encode_losses_header(lost, encode_losses(lost))
            await send({"type": "http.response.body", "body": comment, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def send_error(self, error: ApiError) -> None:
        """There will be no answer, and the head is out."""
        line = self._http_request.record
        line.finished, line.failed, line.error = True, True, error.message
        await self._finish_heartbeat()
        told = replace(error, wire_form=())  # which is how a body spelt it
        data = StreamTranslator(self._codec, self._codec, ResponseContext()).fail(told)
        await self._http_request.send({"type": "http.response.body", "body": data})

    async def _finish_heartbeat(self) -> None:
        """What was being said to keep the client waiting is said first."""
        if self._heartbeat_task is not None:
            await self._heartbeat_task

    async def _send_head(self, losses: Sequence[Loss]) -> None:
        line = self._http_request.record
        line.status, line.head_sent, line.streamed = 200, True, True
        headers: list[Header] = [
            (
                b"content-type",
                self._codec.surface.stream_type.encode() if self._array_framer is None else JSON_MEDIA_TYPE,
            ),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"toolwire-exchange", line.id.encode()),
        ]
        if losses:
            headers.append((b"toolwire-losses", encode_losses_header(losses, encode_losses(losses))))
        await self._http_request.send({"type": "http.response.start", "status": 200, "headers": headers})

    def _heartbeat(self) -> None:
        """Say something harmless while the upstream is silent."""
        line = self._http_request.record
        if line.finished:
            return
        loop = asyncio.get_running_loop()
        self._heartbeat_timer = loop.call_later(self._heartbeat_interval, self._heartbeat)
        busy = self._heartbeat_task is not None and not self._heartbeat_task.done()
        if not busy and time.monotonic() - line.last_sent_at >= self._heartbeat_interval:
            self._heartbeat_task = loop.create_task(_ignore_errors(self._send_ping()))

    async def _send_ping(self) -> None:
        if self._response is not None:
            data = self._response.ping_frame()
        else:
            if self._ping_translator is None:
                self._ping_translator = StreamTranslator(self._codec, self._codec, ResponseContext())
            data = self._ping_translator.inject(Notice(kind="ping"))
            if not self._http_request.record.head_sent:
                await self._send_head(())
        if self._array_framer is not None:
            data = self._array_framer.add(data)
        if data:
            await self._http_request.send({"type": "http.response.body", "body": data, "more_body": True})


async def _ignore_errors(awaitable: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):
        await awaitable
