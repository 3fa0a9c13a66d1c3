"""Sending a streamed response to the client.

1. While the upstream is silent, a protocol-level ping is sent between events, also before the first one, so that
   proxies do not time out.
2. A ping before the first event sends the response head. Failover is still possible then, as the client has seen no
   part of a response; a final error is sent as an event of the stream.
3. Losses of the response are known at its end. They are sent as an SSE comment, if the protocol's clients skip those.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.events import Notice
from toolwire.codec.framing import JSON_MEDIA_TYPE, JsonArrayFramer
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.gateway.exchange.native_endpoints import NativeStream
from toolwire.gateway.exchange.response import StreamingResponse
from toolwire.gateway.limits import Quota
from toolwire.gateway.observability.access_log import encode_losses_header
from toolwire.gateway.server.request import HttpRequest
from toolwire.gateway.state.background_jobs import FrameLogReader
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.asgi import Header

StreamedResponse = StreamingResponse[bytes] | FrameLogReader | NativeStream


class StreamSender:
    """Sends one stream: head, pings, frames, and losses or an error at the end."""

    def __init__(self, http_request: HttpRequest, codec: Codec, stream_quota: Quota, heartbeat_interval: float) -> None:
        self._http_request = http_request
        self._codec = codec
        self._stream_quota = stream_quota
        self._heartbeat_interval = heartbeat_interval
        self._array_framer = (
            JsonArrayFramer() if codec.surface.is_json_array(http_request.scope["query_string"]) else None
        )
        self._is_started = False
        self._last_sent_at = 0.0  # on the monotonic clock
        self._response: StreamedResponse | None = None
        self._ping_translator: StreamTranslator | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None

    @property
    def losses(self) -> list[Loss]:
        """Return the losses known so far."""
        return [] if self._response is None else self._response.losses

    def start(self) -> None:
        """Take a stream slot and start the heartbeat; called once the request is known to stream."""
        self._stream_quota.acquire(self._http_request.observer.principal.tenant)
        self._is_started = True
        self._heartbeat_timer = asyncio.get_running_loop().call_later(self._heartbeat_interval, self._heartbeat)

    def close(self) -> None:
        """Release the slot, stop the heartbeat and close the upstream response."""
        if not self._is_started:
            return
        observer, record = self._http_request.observer, self._http_request.observer.record
        self._stream_quota.release(observer.principal.tenant)
        self._http_request.watch.response_complete = True
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        if self._response is not None:
            self._response.close()
            record.usage, record.failed = self._response.usage, self._response.error is not None

    async def send_all(self, response: StreamedResponse) -> None:
        """Send a response to its end, frame by frame as it arrives."""
        self._response = response
        http_request, send = self._http_request, self._http_request.send
        request_losses = response.request_losses
        await self._finish_heartbeat()
        if not http_request.head_sent:
            await self._send_head(request_losses)
        capture = http_request.observer.capture
        append_body = None if capture is None or capture.body_chunks is None else capture.append_body
        async for frames in response.chunks():
            self._last_sent_at = time.monotonic()
            data = frames if self._array_framer is None else self._array_framer.add(frames)
            if append_body is not None:
                append_body(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        http_request.watch.response_complete = True
        if self._array_framer is not None:
            await send({"type": "http.response.body", "body": self._array_framer.close(), "more_body": True})
        response_losses = response.losses[len(request_losses) :]
        if self._codec.surface.allows_comments and (report := encode_losses_header(response_losses)):
            comment = b": toolwire-losses %b\n\n" % report
            await send({"type": "http.response.body", "body": comment, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def send_error(self, error: ApiError) -> None:
        """End the stream with an error event, after the head has been sent."""
        record = self._http_request.observer.record
        record.failed, record.error = True, error.message
        self._http_request.watch.response_complete = True
        await self._finish_heartbeat()
        plain_error = replace(error, wire_form=())  # the wire form of a body, not of an event
        data = StreamTranslator(self._codec, self._codec, ResponseContext()).fail(plain_error)
        await self._http_request.send({"type": "http.response.body", "body": data})

    async def _finish_heartbeat(self) -> None:
        """Wait for a ping that is being sent."""
        if self._heartbeat_task is not None:
            await self._heartbeat_task

    async def _send_head(self, losses: list[Loss]) -> None:
        """Send status 200 and the headers of a stream, with the losses known before it."""
        record = self._http_request.observer.record
        record.status, record.streamed, self._http_request.head_sent = 200, True, True
        headers: list[Header] = [
            (
                b"content-type",
                self._codec.surface.stream_type.encode() if self._array_framer is None else JSON_MEDIA_TYPE,
            ),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *self._http_request.exchange_headers(),
        ]
        if report := encode_losses_header(losses):
            headers.append((b"toolwire-losses", report))
        await self._http_request.start_response(200, headers)

    def _heartbeat(self) -> None:
        """Send a ping if nothing was sent for the heartbeat interval, and schedule the next check."""
        if self._http_request.watch.response_complete:
            return
        loop = asyncio.get_running_loop()
        self._heartbeat_timer = loop.call_later(self._heartbeat_interval, self._heartbeat)
        is_sending = self._heartbeat_task is not None and not self._heartbeat_task.done()
        if not is_sending and time.monotonic() - self._last_sent_at >= self._heartbeat_interval:
            self._heartbeat_task = loop.create_task(_ignore_errors(self._send_ping()))

    async def _send_ping(self) -> None:
        """Send one ping, preceded by the head if that is still to come."""
        if self._response is not None:
            data = self._response.ping_frame()
        else:
            if self._ping_translator is None:
                self._ping_translator = StreamTranslator(self._codec, self._codec, ResponseContext())
            data = self._ping_translator.inject(Notice(kind="ping"))
            if not self._http_request.head_sent:
                await self._send_head([])
        if self._array_framer is not None:
            data = self._array_framer.add(data)
        if data:
            await self._http_request.send({"type": "http.response.body", "body": data, "more_body": True})


async def _ignore_errors(awaitable: Awaitable[None]) -> None:
    """Await a ping, and drop any exception: a failed ping shows in the next write."""
    with contextlib.suppress(Exception):
        await awaitable
