"""HTTP/1.1 and WebSocket connections: uvicorn's protocols with bounds and less work per request.

1. Data that is ready in one turn of the event loop is written at once: a head with its body, and events that arrive
   together. Each write is a system call and a packet that wakes the client, half the cost of a small response.
2. Size and duration of a request head are bounded, and idle connections are closed. Each connection has one timer and
   one task, however many requests it carries.
3. Trailers are dropped. They, and chunk extensions, count towards the bound of a head.
4. `Upgrade` is honored for `websocket` only; RFC 9110 (7.8) lets a server ignore other protocols.
5. A client that accepts no data for `limits.send` seconds is aborted, which also closes its upstream connection.
6. After responding to a request that is not fully read, the connection lingers: closing at once would reset it, and the
   client might never see the response (RFC 9112, 9.6).
7. Every WebSocket handshake gets a response, even one that uvicorn would ignore, and slow ones are rejected. A client
   that only sends pings gets no backlog of pongs.
8. Shutdown never fails, whatever the state of a connection: the others have responses to finish.
"""

import asyncio
from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request
from websockets.protocol import State

from toolwire.gateway.config import LimitsSection


class StallTimer:
    """Detects a client that accepts none of the data buffered for it."""

    def __init__(self, transport: asyncio.Transport, limit: float) -> None:
        self._transport = transport
        self._limit = limit
        self._buffered_bytes = 0
        self._stalled_since = 0.0

    def seconds_left(self, now: float) -> float:
        """Return for how many more seconds the client may accept no data.

        Progress is measured between calls, so a stall may last up to twice the limit.
        """
        buffered = self._transport.get_write_buffer_size()
        if not buffered or buffered != self._buffered_bytes:
            self._buffered_bytes, self._stalled_since = buffered, now
        return self._stalled_since + self._limit - now


REJECTION_TEMPLATE = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
)


def encode_rejection(status: bytes, reason: str) -> bytes:
    """Return the HTTP response to a request that never reaches the application."""
    body = f"{reason}\n".encode()
    return REJECTION_TEMPLATE % (status, len(body), body)


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A server-side WebSocket with a handshake timeout and a stall timeout."""

    limits = LimitsSection()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake and stall timers."""
        super().connection_made(transport)
        self._started_at = self.loop.time()
        self._stall_timer = StallTimer(self.transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._check_timeouts)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; a failed handshake always gets a response."""
        try:
            super().data_received(data)
        except InvalidState:  # uvicorn rejects a message after websockets has already answered the close frame
            self.transport.close()
        if self.conn.handshake_exc is not None:
            # websockets has queued its own response, except for a request with a body.
            response = b"".join(self.conn.data_to_send())
            self._reject(response or encode_rejection(b"400 Bad Request", "Not a WebSocket handshake."))

    def handle_connect(self, event: Request) -> None:
        """Pause reading until the application accepts the connection."""
        super().handle_connect(event)
        if not self.close_sent:  # parse no frames of a client until the application has admitted it
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # RFC 6455 (5.5.3): answering a later ping is enough

    def shutdown(self) -> None:
        """Close with 1012 (service restart) if open; reject a handshake that is under way."""
        if self.conn.state is State.OPEN or self.close_sent:
            super().shutdown()
        else:
            self._reject(encode_rejection(b"503 Service Unavailable", "The gateway is shutting down."))

    def _check_timeouts(self) -> None:
        """Abort a stalled connection, reject a slow handshake, and schedule the next check."""
        now = self.loop.time()
        seconds_left = self._stall_timer.seconds_left(now)
        if seconds_left <= 0:
            self.transport.abort()
            return
        if not self.handshake_complete:
            handshake_left = self._started_at + self.limits.receive - now
            if handshake_left <= 0:
                self._reject(encode_rejection(b"408 Request Timeout", "The handshake took too long."))
            seconds_left = min(seconds_left, max(handshake_left, 0.01))
        self._timer = self.loop.call_later(seconds_left, self._check_timeouts)

    def _reject(self, response: bytes) -> None:
        """Answer the handshake with an HTTP response, if it is still open, and close."""
        if self.transport.is_closing():
            return
        if not self.handshake_complete:
            self.transport.write(response)
        self.handshake_complete = self.close_sent = self.disconnected = True
        self.transport.close()


LIMIT_BUFFERED_BODY = 256 * 1024


class Cycle(RequestResponseCycle):
    """One request and its response, as the ASGI application sees them."""

    disconnected = response_started = response_complete = False
    more_body = True
    chunked = False
    _buffered_bytes = 0
    _has_data = _continue_sent = False  # `_has_data`: there is something to receive
    _waiter: "asyncio.Future[None] | None" = None
    _remaining_bytes: int | None = None  # of the announced body; None without a Content-Length

    def __init__(self, connection: "HttpConnection", *, keep_alive: bool) -> None:
        self.scope = connection.scope
        self.logger = connection.logger
        self.transport = connection.transport
        self.flow = connection.flow
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self._loop = connection.loop
        self._body_chunks: list[bytes] = []
        self._write_buffer: list[bytes] = []

    # ---- called by the connection

    def append_body(self, body: bytes) -> None:
        """Buffer a piece of the request body; data after the response is dropped."""
        if self.response_complete:
            return
        self._body_chunks.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > LIMIT_BUFFERED_BODY:
            self.flow.pause_reading()
        self.notify()

    def notify(self) -> None:
        """Wake the application: there is data, or the body is complete."""
        self._has_data = True
        self._wake_receiver()

    def disconnect(self) -> None:
        """Record that the client disconnected."""
        self.disconnected = not self.response_complete
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        """Wake a pending `receive`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- called by the application

    async def receive(self) -> Any:
        """Return the next ASGI message: body data, or `http.disconnect`."""
        while not (self._has_data or self.disconnected or self.response_complete):
            self._send_continue()
            self.flow.resume_reading()
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        chunks, self._body_chunks = self._body_chunks, []
        self._buffered_bytes = 0
        self._has_data = False
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _send_continue(self) -> None:
        """Send `100 Continue` to a client that waits for it before sending its body."""
        if self._continue_sent or self.response_started or not self.more_body:
            return
        self._continue_sent = True
        if (b"expect", b"100-continue") in [(name, value.lower()) for name, value in self.scope["headers"]]:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        """Handle an ASGI response message."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start_response(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")

    def _start_response(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Buffer the response head until the first piece of the body."""
        header_values = dict(headers)
        lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers]]
        if header_values.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if (length := header_values.get(b"content-length")) is not None:
            self._remaining_bytes = int(length)
        elif self.scope["http_version"] != "1.0":
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        # Counted by `replace`, which finds line ends by memchr, while `count` looks at each byte.
        feeds, returns = len(head) - len(head.replace(b"\n", b"")), len(head) - len(head.replace(b"\r", b""))
        if not feeds == returns == len(lines):
            raise RuntimeError("a response header contains a line break")
        self.response_started = True
        self._write_buffer.append(head)

    def _write_body(self, body: bytes, *, more: bool) -> None:
        """Buffer a piece of the response body, framed as needed, and schedule a write."""
        if self.scope["method"] == "HEAD":
            self._remaining_bytes = 0
        elif self._remaining_bytes is not None:
            self._remaining_bytes -= len(body)
            self._write_buffer.append(body)
        elif self.scope["http_version"] == "1.0":
            self._write_buffer.append(body)
        else:
            if body:
                self._write_buffer += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                self._write_buffer.append(b"0\r\n\r\n")
        self._loop.call_soon(self._flush)
        if more:
            return
        if self._remaining_bytes:
            raise RuntimeError("the response body does not match its content-length")
        self.response_complete = True
        self._wake_receiver()
        self.on_response()

    def _flush(self) -> None:
        """Write everything buffered in this turn of the event loop."""
        if self._write_buffer and not self.transport.is_closing():
            self.transport.write(b"".join(self._write_buffer))
        self._write_buffer.clear()


DRAIN_SECONDS = 30
LIMIT_PIPELINED = 8
LIMIT_EXCESS_CONNECTIONS = 32
LINGER_SECONDS = 5.0
_HTTP_VERSIONS = ("1.1", "1.0")
_ASGI_VERSION: Any = {"version": "3.0", "spec_version": "2.3"}


class HttpConnection(HttpToolsProtocol):
    """A server-side HTTP/1.1 connection, with pipelining, limits and a lingering close."""

    limits = LimitsSection()
    cycle: Cycle | None  # type: ignore[assignment]

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timers, and reject a connection over the limit."""
        super().connection_made(transport)
        self._overhead_bytes = 0  # received since the request, or the last piece of its body, began
        self._packet_size = 0
        self._reading_head = True
        self._is_closing = False  # no further request is read or served
        self._waiting_since = self.loop.time()  # start of the head, or end of the last response
        self._stall_timer = StallTimer(transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._check_timeouts)
        self._linger_timer: asyncio.TimerHandle | None = None
        self._pending_cycles: deque[Cycle] = deque()  # requests without a complete response, in order
        self._serving_task: asyncio.Task[None] | None = None
        self._idle_waiter: asyncio.Future[None] | None = None  # the serving task waits for a request
        if self.limits.connections is not None and len(self.connections) > self.limits.connections:
            self._reject_connection(len(self.connections) - self.limits.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and tell all pending requests that the client disconnected."""
        self._timer.cancel()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self.connections.discard(self)
        self.flow.resume_writing()
        for cycle in self._pending_cycles:
            cycle.disconnect()
        self.transport.close()
        self.parser = None  # type: ignore[assignment]
        self._wake_server()

    def data_received(self, data: bytes) -> None:
        """Parse data; reject invalid requests and overlong heads."""
        if self._is_closing:
            return
        self._packet_size = len(data)
        self._overhead_bytes += self._packet_size
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._handle_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._reject(b"400 Bad Request", "Invalid HTTP request received.")
        if self._overhead_bytes > self.limits.head:
            reason = f"More than {self.limits.head} bytes (limits.head) of headers, trailers or chunk extensions."
            self._reject(b"431 Request Header Fields Too Large", reason)

    def _check_timeouts(self) -> None:
        """Reject a slow request, close an idle connection, abort a stalled one, and schedule the next check."""
        now = self.loop.time()
        stalled_in = self._stall_timer.seconds_left(now)
        if stalled_in <= 0:
            self.transport.abort()
            return
        limit = self.limits.receive if self._reading_head else self.timeout_keep_alive
        seconds_left = self._waiting_since + limit - now
        if self._reading_head and seconds_left <= 0:
            self._reject(b"408 Request Timeout", f"Request not received within {limit:g} seconds (limits.receive).")
        elif not self._pending_cycles and seconds_left <= 0:
            self.transport.close()
        next_check = min(self.limits.receive, stalled_in)
        self._timer = self.loop.call_later(
            min(seconds_left, next_check) if seconds_left > 0 else next_check, self._check_timeouts
        )

    # ---- rejecting and closing

    def _reject(self, status: bytes, reason: str) -> None:
        """Respond with an error to the request being read, if that is still possible, and read no more."""
        current = None if self._reading_head else self.cycle
        if self._is_closing:
            return
        if any(cycle is not current or cycle.response_started for cycle in self._pending_cycles):
            self.transport.close()  # another response is under way
            return
        for cycle in self._pending_cycles:
            cycle.disconnect()
        is_answered = current is not None and current.response_complete
        self._finish(b"" if is_answered else encode_rejection(status, reason), linger=True)

    def _reject_connection(self, excess: int) -> None:
        """Reject a connection over `limits.connections`; beyond a margin, abort it without a response."""
        if excess > LIMIT_EXCESS_CONNECTIONS:
            self.transport.abort()
        else:
            self._reject(b"503 Service Unavailable", "Too many connections (limits.connections): try again later.")

    def _finish(self, data: bytes = b"", *, linger: bool) -> None:
        """Read and serve nothing more; close once buffered data is written."""
        self._is_closing = True
        self._wake_server()
        if linger:
            self.loop.call_soon(self._linger, data)
        else:
            self.loop.call_soon(self.transport.close)

    def _linger(self, data: bytes) -> None:
        """Write the end of the response, then discard input until the client closes, for at most `LINGER_SECONDS`."""
        if self.transport.is_closing():
            return
        self.transport.write(data)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _close_if_incomplete(self, cycle: Cycle) -> None:
        """Close if the body of a request that has its response is still incomplete."""
        if cycle.more_body:
            self.transport.close()

    # ---- upgrades

    def _handle_upgrade(self, remainder: memoryview) -> None:
        """Switch to a WebSocket, or parse the request again without its `Upgrade` header.

        httptools takes the message as complete after its head: the body would be parsed as the next request.
        """
        while True:
            if self.scope["method"] == "CONNECT":
                self._reject(b"501 Not Implemented", "CONNECT is not supported.")
                return
            if self._should_upgrade():
                self._switch_to_websocket(remainder)
                return
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(self._encode_head(b"upgrade"))
            try:
                self.parser.feed_data(remainder)
            except httptools.HttpParserUpgrade as upgrade:
                remainder = remainder[upgrade.args[0] :]
            else:
                return

    def _switch_to_websocket(self, remainder: memoryview) -> None:
        """Hand the connection over to the WebSocket protocol, replaying the head."""
        header_values = dict(self.headers)
        if (
            self._pending_cycles
            or remainder
            or b"transfer-encoding" in header_values
            or header_values.get(b"content-length", b"0") != b"0"
        ):
            self._reject(b"400 Bad Request", "A WebSocket handshake must have no body, and can't be pipelined.")
            return
        self._is_closing = True
        self._wake_server()
        self._timer.cancel()
        self.connections.discard(self)
        websocket = self.ws_protocol_class(  # type: ignore[call-arg, misc]
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        websocket.connection_made(self.transport)
        self.transport.set_protocol(websocket)
        websocket.data_received(self._encode_head(b""))

    def _encode_head(self, omitted_header: bytes) -> bytes:
        """Return the HTTP head that was parsed last, without one header."""
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != omitted_header]
        return b"\r\n".join([*lines, b"", b""])

    # ---- called by the parser

    def on_message_begin(self) -> None:
        """Start reading a request head."""
        self.url = b""
        self.headers = []
        self._overhead_bytes = self._packet_size
        self._reading_head = True
        self._waiting_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers are dropped."""
        if self._reading_head:  # else a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Build the ASGI scope and queue the request for the serving task."""
        self._overhead_bytes = 0
        self._reading_head = False
        parser, version = self.parser, self.parser.get_http_version()
        if version not in _HTTP_VERSIONS:
            raise ValueError("unsupported HTTP version")  # httptools turns it into an error of its own
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope = {
            "type": "http",
            "asgi": _ASGI_VERSION,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme or "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state.copy(),
        }
        if parser.should_upgrade():
            self.cycle = None
            return
        if len(self._pending_cycles) >= LIMIT_PIPELINED:
            self.flow.pause_reading()  # a disconnect then goes unnoticed
        self.cycle = Cycle(self, keep_alive=version != "1.0" and parser.should_keep_alive())
        self._pending_cycles.append(self.cycle)
        if self._serving_task is None:
            self._serving_task = self.loop.create_task(self._serve_requests())
            self._serving_task.add_done_callback(self.tasks.discard)
            self.tasks.add(self._serving_task)
        self._wake_server()

    def on_chunk_header(self) -> None:
        """Reject transfer codings other than `chunked`; httptools only checks the last one."""
        if self.cycle is not None and not self.cycle.chunked:
            self.cycle.chunked = True
            if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
                raise ValueError("unsupported transfer coding")

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body to the current request."""
        self._overhead_bytes = 0
        if self.cycle is not None:
            self.cycle.append_body(body)

    def on_message_complete(self) -> None:
        """Mark the body of the current request as complete."""
        self._overhead_bytes = self._packet_size = 0  # the rest of the packet belongs to the next request
        if self.cycle is not None:
            self.cycle.more_body = False
            self.cycle.notify()

    # ---- serving

    async def _serve_requests(self) -> None:
        """Run the application for each request in order, until the connection closes."""
        while not self._is_closing and not self.transport.is_closing():
            if self._pending_cycles:
                await self._pending_cycles[0].run_asgi(self.app)
            else:
                self._idle_waiter = self.loop.create_future()
                await self._idle_waiter

    def _wake_server(self) -> None:
        """Wake the serving task: there is a request, or the connection is closing."""
        if self._idle_waiter is not None and not self._idle_waiter.done():
            self._idle_waiter.set_result(None)

    def on_response_complete(self) -> None:
        """Keep the connection for the next request, or finish it."""
        cycle = self._pending_cycles.popleft()
        if not self._reading_head:
            self._waiting_since = self.loop.time()
        if not cycle.keep_alive:
            self._finish(linger=cycle.more_body)
        elif cycle.more_body:
            self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._close_if_incomplete, cycle)
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """Serve the requests already received, then close."""
        for cycle in self._pending_cycles:
            cycle.keep_alive = False
        if not self._pending_cycles:
            self._finish(linger=False)


def http_connection_class(limits: LimitsSection) -> type[HttpConnection]:
    """Return an `HttpConnection` class with these limits."""
    return type("Bounded", (HttpConnection,), {"limits": limits})


def websocket_connection_class(limits: LimitsSection) -> type[WebSocketConnection]:
    """Return a `WebSocketConnection` class with these limits."""
    return type("BoundedWebSocket", (WebSocketConnection,), {"limits": limits})


def uvicorn_options(limits: LimitsSection) -> dict[str, Any]:
    """Return the options for `uvicorn.Config`.

    WebSocket messages may exceed `limits.body` a little, so that the application can answer with an error.
    """
    return {
        "log_config": None,
        "access_log": False,
        "http": http_connection_class(limits),
        "ws": websocket_connection_class(limits),
        "ws_max_size": limits.body + 1024 * 1024,
        "ws_per_message_deflate": False,
        "lifespan": "off",
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 75,
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
