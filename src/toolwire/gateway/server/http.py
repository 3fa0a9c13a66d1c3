"""Clients that stop reading: a connection with data to send makes progress, or it is aborted.

The server's side of a websocket: uvicorn's, with bounds.

1. Every handshake is answered, and those that take too long are refused: uvicorn is silent about what it can't parse.
2. A client that takes nothing for `limits.send` seconds is aborted. One that only sends pings gets no pile of pongs.
3. Shutting down never fails, whatever state the connection is in: the others have responses to finish.

One request and its response on a connection, as an ASGI application sees them.

The server's side of a connection: uvicorn's, with less made for each request, and with bounds.

1. What is ready in one turn of the loop is written at once: a head with its body, and events that came together. Each
   write is a call of the kernel, and a packet that wakes the client: half of what serving a small answer costs.
2. A head may be so long and take so long, and a silent connection is closed. One timer looks after that, and one task
   answers, however many requests come over a connection.
3. Trailers are dropped. They, and all else that comes between pieces of a body, are bounded like a head.
4. Of all that `Upgrade` can name only `websocket` is served; RFC 9110 (7.8) lets a server ignore the others.
5. A client that takes nothing of its response for `limits.send` seconds is aborted, which lets go of its upstream.
6. A response to a request that is not read to its end is followed by a short linger: closing at once would reset the
   connection, and the client might never see the response (RFC 9112, 9.6).
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
    """The time since which a client has taken nothing of the data that waits for it."""

    def __init__(self, transport: asyncio.Transport, limit: float) -> None:
        self._transport = transport
        self._limit = limit
        self._buffered_bytes = 0
        self._stalled_since = 0.0

    def seconds_left(self, now: float) -> float:
        """Return for how many seconds more the client may take nothing.

        Progress is seen from one call to the next, so a stall lasts for at most twice the limit.
        """
        waiting = self._transport.get_write_buffer_size()
        if not waiting or waiting != self._buffered_bytes:
            self._buffered_bytes, self._stalled_since = waiting, now
        return self._stalled_since + self._limit - now


REJECTION_TEMPLATE = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
)


def encode_rejection(status: bytes, reason: str) -> bytes:
    """Encode the response to a request that never reaches the application."""
    body = f"{reason}\n".encode()
    return REJECTION_TEMPLATE % (status, len(body), body)


class WebSocketConnection(WebSocketsSansIOProtocol):
    limits = LimitsSection()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._started_at = self.loop.time()
        self._stall_timer = StallTimer(self.transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._check_timeouts)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except InvalidState:  # uvicorn refuses a text, and websockets has already answered the close behind it
            self.transport.close()
        if self.conn.handshake_exc is not None:
            # What websockets itself answers waits to be sent; of a request with a body it says nothing.
            answer = b"".join(self.conn.data_to_send())
            self._reject(answer or encode_rejection(b"400 Bad Request", "This is no websocket handshake."))

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:  # until the application reads: frames of a client that is not admitted are not parsed
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # RFC 6455, 5.5.3: the pong to a later ping is enough

    def shutdown(self) -> None:
        """Close with 1012 (service restart) if it is open; end the handshake if there is none yet."""
        if self.conn.state is State.OPEN or self.close_sent:
            super().shutdown()
        else:
            self._reject(encode_rejection(b"503 Service Unavailable", "The gateway is shutting down."))

    def _check_timeouts(self) -> None:
        now = self.loop.time()
        left = self._stall_timer.seconds_left(now)
        if left <= 0:
            self.transport.abort()
            return
        if not self.handshake_complete:
            handshake_left = self._started_at + self.limits.receive - now
            if handshake_left <= 0:
                self._reject(encode_rejection(b"408 Request Timeout", "The handshake took too long."))
            left = min(left, max(handshake_left, 0.01))
        self._timer = self.loop.call_later(left, self._check_timeouts)

    def _reject(self, response: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.handshake_complete:
            self.transport.write(response)
        self.handshake_complete = self.close_sent = self.disconnected = True
        self.transport.close()


LIMIT_BUFFERED_BODY = 256 * 1024


class Cycle(RequestResponseCycle):
    """One request and its answer, as the application sees them.

    `_news`: there is something to receive. `_left` is how much of the announced body is still to come, if it was.
    """

    disconnected = response_started = response_complete = False
    more_body = True
    chunked = False
    _buffered_bytes = 0
    _has_data = _continue_sent = False
    _waiter: "asyncio.Future[None] | None" = None
    _remaining_bytes: int | None = None

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

    # ---- what the connection tells

    def append_body(self, body: bytes) -> None:
        """A piece of the request's body. What comes after the answer is nobody's."""
        if self.response_complete:
            return
        self._body_chunks.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > LIMIT_BUFFERED_BODY:
            self.flow.pause_reading()
        self.notify()

    def notify(self) -> None:
        self._has_data = True
        self._wake_receiver()

    def disconnect(self) -> None:
        """The client did."""
        self.disconnected = not self.response_complete
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- what the application asks

    async def receive(self) -> Any:
        while not (self._has_data or self.disconnected or self.response_complete):
            self._send_continue()
            self.flow.resume_reading()
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        pieces, self._body_chunks = self._body_chunks, []
        self._buffered_bytes = 0
        self._has_data = False
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _send_continue(self) -> None:
        """A client may wait to be told that its body is wanted."""
        if self._continue_sent or self.response_started or not self.more_body:
            return
        self._continue_sent = True
        if (b"expect", b"100-continue") in [(name, value.lower()) for name, value in self.scope["headers"]]:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start_response(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not expected here")

    def _start_response(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The head: it waits for the first piece of its body."""
        given = dict(headers)
        lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers]]
        if given.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if (length := given.get(b"content-length")) is not None:
            self._remaining_bytes = int(length)
        elif self.scope["http_version"] != "1.0":
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header has a line break")
        self.response_started = True
        self._write_buffer.append(head)

    def _write_body(self, body: bytes, *, more: bool) -> None:
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
            raise RuntimeError("the body is not as long as it was said to be")
        self.response_complete = True
        self._wake_receiver()
        self.on_response()

    def _flush(self) -> None:
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
    """`_since` is when the head began, or else when the last answer was complete. `_asked` are requests that wait for
    their answers, in order; `_resting` waits for one. `_overhead` is how many bytes have come since the request or the
    last piece of its body began, `_packet` how many at once. When `_over`, no further request is read or answered."""

    limits = LimitsSection()
    cycle: Cycle | None  # type: ignore[assignment]

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._overhead_bytes = self._packet_size = 0
        self._reading_head = True
        self._is_closing = False
        self._waiting_since = self.loop.time()
        self._stall_timer = StallTimer(transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._check_timeouts)
        self._linger_timer: asyncio.TimerHandle | None = None
        self._pending_cycles: deque[Cycle] = deque()
        self._serving_task: asyncio.Task[None] | None = None
        self._idle_waiter: asyncio.Future[None] | None = None
        if self.limits.connections is not None and len(self.connections) > self.limits.connections:
            self._reject_connection(len(self.connections) - self.limits.connections)

    def connection_lost(self, exc: Exception | None) -> None:
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
            why = f"More than {self.limits.head} bytes (limits.head) of headers, trailers or chunk extensions."
            self._reject(b"431 Request Header Fields Too Large", why)

    def _check_timeouts(self) -> None:
        """Whether it has been silent for too long. This is called within `receive` seconds of whatever it looks for."""
        now = self.loop.time()
        stalled_in = self._stall_timer.seconds_left(now)
        if stalled_in <= 0:
            self.transport.abort()
            return
        limit = self.limits.receive if self._reading_head else self.timeout_keep_alive
        left = self._waiting_since + limit - now
        if self._reading_head and left <= 0:
            self._reject(b"408 Request Timeout", f"No whole request came within {limit:g} seconds (limits.receive).")
        elif not self._pending_cycles and left <= 0:
            self.transport.close()
        soon = min(self.limits.receive, stalled_in)
        self._timer = self.loop.call_later(min(left, soon) if left > 0 else soon, self._check_timeouts)

    # ---- refusing and closing

    def _reject(self, status: bytes, reason: str) -> None:
        """Answer the request that is being read, if a response to it can still be written, and read no more."""
        reading = None if self._reading_head else self.cycle
        if self._is_closing:
            return
        if any(cycle is not reading or cycle.response_started for cycle in self._pending_cycles):
            self.transport.close()  # another response is under way
            return
        for cycle in self._pending_cycles:
            cycle.disconnect()
        answered = reading is not None and reading.response_complete
        self._finish(b"" if answered else encode_rejection(status, reason), linger=True)

    def _reject_connection(self, excess: int) -> None:
        if excess > LIMIT_EXCESS_CONNECTIONS:
            self.transport.abort()
        else:
            self._reject(b"503 Service Unavailable", "Too many connections at once (limits.connections): try again.")

    def _finish(self, data: bytes = b"", *, linger: bool) -> None:
        """Read and answer nothing more; close once what is ready is written."""
        self._is_closing = True
        self._wake_server()
        if linger:
            self.loop.call_soon(self._linger, data)
        else:
            self.loop.call_soon(self.transport.close)

    def _linger(self, data: bytes) -> None:
        """End the response, and discard what still comes until the client has closed, or for `LINGER_SECONDS`."""
        if self.transport.is_closing():
            return
        self.transport.write(data)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _close_if_incomplete(self, cycle: Cycle) -> None:
        """Close if the body of a request that is answered has not come to its end."""
        if cycle.more_body:
            self.transport.close()

    # ---- upgrades

    def _handle_upgrade(self, remainder: memoryview) -> None:
        """Switch to a websocket; parse a request for any other protocol again, as if its `Upgrade` were not there.

        httptools takes the message for complete after its head: the body would become the next request.
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
        given = dict(self.headers)
        if (
            self._pending_cycles
            or remainder
            or b"transfer-encoding" in given
            or given.get(b"content-length", b"0") != b"0"
        ):
            self._reject(b"400 Bad Request", "A websocket handshake has no body, and waits for its answer.")
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
        """Encode the head that was parsed last, but for one header."""
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != omitted_header]
        return b"\r\n".join([*lines, b"", b""])

    # ---- what the parser tells

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._overhead_bytes = self._packet_size
        self._reading_head = True
        self._waiting_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading_head:  # else a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._overhead_bytes = 0
        self._reading_head = False
        parser, version = self.parser, self.parser.get_http_version()
        if version not in _HTTP_VERSIONS:
            raise ValueError("another version of HTTP")  # which httptools turns into an error of its own
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
            self.flow.pause_reading()  # and then nobody hears that the client leaves
        self.cycle = Cycle(self, keep_alive=version != "1.0" and parser.should_keep_alive())
        self._pending_cycles.append(self.cycle)
        if self._serving_task is None:
            self._serving_task = self.loop.create_task(self._serve_requests())
            self._serving_task.add_done_callback(self.tasks.discard)
            self.tasks.add(self._serving_task)
        self._wake_server()

    def on_chunk_header(self) -> None:
        """Refuse codings that nobody would undo; httptools only looks at whether the last one is `chunked`."""
        if self.cycle is not None and not self.cycle.chunked:
            self.cycle.chunked = True
            if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
                raise ValueError("another transfer coding")

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        if self.cycle is not None:
            self.cycle.append_body(body)

    def on_message_complete(self) -> None:
        self._overhead_bytes = self._packet_size = 0  # what else is in the packet belongs to the next request
        if self.cycle is not None:
            self.cycle.more_body = False
            self.cycle.notify()

    # ---- answering

    async def _serve_requests(self) -> None:
        while not self._is_closing and not self.transport.is_closing():
            if self._pending_cycles:
                await self._pending_cycles[0].run_asgi(self.app)
            else:
                self._idle_waiter = self.loop.create_future()
                await self._idle_waiter

    def _wake_server(self) -> None:
        if self._idle_waiter is not None and not self._idle_waiter.done():
            self._idle_waiter.set_result(None)

    def on_response_complete(self) -> None:
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
        """What is asked already is answered."""
        for cycle in self._pending_cycles:
            cycle.keep_alive = False
        if not self._pending_cycles:
            self._finish(linger=False)


def http_connection_class(limits: LimitsSection) -> type[HttpConnection]:
    """The protocol of connections with these limits."""
    return type("Bounded", (HttpConnection,), {"limits": limits})


def websocket_connection_class(limits: LimitsSection) -> type[WebSocketConnection]:
    """Return the protocol of websockets with these limits."""
    return type("BoundedWebSocket", (WebSocketConnection,), {"limits": limits})


def uvicorn_options(limits: LimitsSection) -> dict[str, Any]:
    """How uvicorn serves it. A message of a websocket that is somewhat too long is still told so."""
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
