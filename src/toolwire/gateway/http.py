"""The server's side of a connection: uvicorn's, with less made for each request, and with bounds.

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
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .config import LimitsSection
from .cycle import Cycle
from .stalls import Stall
from .websocket import WebSocket, refusal

DRAIN_SECONDS = 30
LIMIT_WAITING = 8
LIMIT_REFUSED = 32
LINGER_SECONDS = 5.0
_VERSIONS = ("1.1", "1.0")
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}


class Connection(HttpToolsProtocol):
    """`_since` is when the head began, or else when the last answer was complete. `_asked` are requests that wait for
    their answers, in order; `_resting` waits for one. `_overhead` is how many bytes have come since the request or the
    last piece of its body began, `_packet` how many at once. When `_over`, no further request is read or answered."""

    limits = LimitsSection()
    cycle: Cycle | None  # type: ignore[assignment]

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._overhead = self._packet = 0
        self._heading = True
        self._over = False
        self._since = self.loop.time()
        self._stall = Stall(transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._look)
        self._lingering: asyncio.TimerHandle | None = None
        self._asked: deque[Cycle] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._resting: asyncio.Future[None] | None = None
        if self.limits.connections is not None and len(self.connections) > self.limits.connections:
            self._refuse_connection(len(self.connections) - self.limits.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._lingering is not None:
            self._lingering.cancel()
        self.connections.discard(self)
        self.flow.resume_writing()
        for cycle in self._asked:
            cycle.leave()
        self.transport.close()
        self.parser = None  # type: ignore[assignment]
        self._wake()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._packet = len(data)
        self._overhead += self._packet
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._parse_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(b"400 Bad Request", "Invalid HTTP request received.")
        if self._overhead > self.limits.head:
            why = f"More than {self.limits.head} bytes (limits.head) of headers, trailers or chunk extensions."
            self._refuse(b"431 Request Header Fields Too Large", why)

    def _look(self) -> None:
        """Whether it has been silent for too long. This is called within `receive` seconds of whatever it looks for."""
        now = self.loop.time()
        stalled_in = self._stall.left(now)
        if stalled_in <= 0:
            self.transport.abort()
            return
        limit = self.limits.receive if self._heading else self.timeout_keep_alive
        left = self._since + limit - now
        if self._heading and left <= 0:
            self._refuse(b"408 Request Timeout", f"No whole request came within {limit:g} seconds (limits.receive).")
        elif not self._asked and left <= 0:
            self.transport.close()
        soon = min(self.limits.receive, stalled_in)
        self._timer = self.loop.call_later(min(left, soon) if left > 0 else soon, self._look)

    # ---- refusing and closing

    def _refuse(self, status: bytes, why: str) -> None:
        """Answer the request that is being read, if a response to it can still be written, and read no more."""
        reading = None if self._heading else self.cycle
        if self._over:
            return
        if any(cycle is not reading or cycle.response_started for cycle in self._asked):
            self.transport.close()  # another response is under way
            return
        for cycle in self._asked:
            cycle.leave()
        answered = reading is not None and reading.response_complete
        self._end(b"" if answered else refusal(status, why), linger=True)

    def _refuse_connection(self, excess: int) -> None:
        if excess > LIMIT_REFUSED:
            self.transport.abort()
        else:
            self._refuse(b"503 Service Unavailable", "Too many connections at once (limits.connections): try again.")

    def _end(self, last: bytes = b"", *, linger: bool) -> None:
        """Read and answer nothing more; close once what is ready is written."""
        self._over = True
        self._wake()
        if linger:
            self.loop.call_soon(self._linger, last)
        else:
            self.loop.call_soon(self.transport.close)

    def _linger(self, last: bytes) -> None:
        """End the response, and discard what still comes until the client has closed, or for `LINGER_SECONDS`."""
        if self.transport.is_closing():
            return
        self.transport.write(last)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._lingering = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _stop_waiting_for(self, cycle: Cycle) -> None:
        """Close if the body of a request that is answered has not come to its end."""
        if cycle.more_body:
            self.transport.close()

    # ---- upgrades

    def _parse_upgrade(self, rest: memoryview) -> None:
        """Switch to a websocket; parse a request for any other protocol again, as if its `Upgrade` were not there.

        httptools takes the message for complete after its head: the body would become the next request.
        """
        while True:
            if self.scope["method"] == "CONNECT":
                self._refuse(b"501 Not Implemented", "CONNECT is not supported.")
                return
            if self._should_upgrade():
                self._switch_to_websocket(rest)
                return
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(self._head_without(b"upgrade"))
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            else:
                return

    def _switch_to_websocket(self, rest: memoryview) -> None:
        given = dict(self.headers)
        if self._asked or rest or b"transfer-encoding" in given or given.get(b"content-length", b"0") != b"0":
            self._refuse(b"400 Bad Request", "A websocket handshake has no body, and waits for its answer.")
            return
        self._over = True
        self._wake()
        self._timer.cancel()
        self.connections.discard(self)
        websocket = self.ws_protocol_class(  # type: ignore[call-arg, misc]
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        websocket.connection_made(self.transport)
        self.transport.set_protocol(websocket)
        websocket.data_received(self._head_without(b""))

    def _head_without(self, omitted: bytes) -> bytes:
        """Encode the head that was parsed last, but for one header."""
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != omitted]
        return b"\r\n".join([*lines, b"", b""])

    # ---- what the parser tells

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._overhead = self._packet
        self._heading = True
        self._since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._heading:
            return  # a trailer
        name = name.lower()
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError("another transfer coding")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._overhead = 0
        self._heading = False
        parser, version = self.parser, self.parser.get_http_version()
        if version not in _VERSIONS:
            raise ValueError("another version of HTTP")  # which httptools turns into an error of its own
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope = {
            "type": "http",
            "asgi": _ASGI,
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
        if len(self._asked) >= LIMIT_WAITING:
            self.flow.pause_reading()  # and then nobody hears that the client leaves
        self.cycle = Cycle(self, keep_alive=version != "1.0" and parser.should_keep_alive())
        self._asked.append(self.cycle)
        if self._answering is None:
            self._answering = self.loop.create_task(self._answer())
            self._answering.add_done_callback(self.tasks.discard)
            self.tasks.add(self._answering)
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if self.cycle is not None:
            self.cycle.take(body)

    def on_message_complete(self) -> None:
        self._overhead = self._packet = 0  # what else is in the packet belongs to the next request
        if self.cycle is not None:
            self.cycle.more_body = False
            self.cycle.tell()

    # ---- answering

    async def _answer(self) -> None:
        while not self._over and not self.transport.is_closing():
            if self._asked:
                await self._asked[0].run_asgi(self.app)
            else:
                self._resting = self.loop.create_future()
                await self._resting

    def _wake(self) -> None:
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    def on_response_complete(self) -> None:
        cycle = self._asked.popleft()
        if not self._heading:
            self._since = self.loop.time()
        if not cycle.keep_alive:
            self._end(linger=cycle.more_body)
        elif cycle.more_body:
            self._lingering = self.loop.call_later(LINGER_SECONDS, self._stop_waiting_for, cycle)
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """What is asked already is answered."""
        for cycle in self._asked:
            cycle.keep_alive = False
        if not self._asked:
            self._end(linger=False)


def bounded(limits: LimitsSection) -> type[Connection]:
    """The protocol of connections with these limits."""
    return type("Bounded", (Connection,), {"limits": limits})


def bounded_websocket(limits: LimitsSection) -> type[WebSocket]:
    """Return the protocol of websockets with these limits."""
    return type("BoundedWebSocket", (WebSocket,), {"limits": limits})


def options(limits: LimitsSection) -> dict[str, Any]:
    """How uvicorn serves it. A message of a websocket that is somewhat too long is still told so."""
    return {
        "log_config": None,
        "access_log": False,
        "http": bounded(limits),
        "ws": bounded_websocket(limits),
        "ws_max_size": limits.body + 1024 * 1024,
        "ws_per_message_deflate": False,
        "lifespan": "off",
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 75,
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
