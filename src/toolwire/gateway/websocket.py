"""The server's side of a websocket: uvicorn's, with bounds.

1. Every handshake is answered, and those that take too long are refused: uvicorn is silent about what it can't parse.
2. A client that takes nothing for `limits.send` seconds is aborted. One that only sends pings gets no pile of pongs.
3. Shutting down never fails, whatever state the connection is in: the others have responses to finish.
"""

import asyncio

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request
from websockets.protocol import State

from .config import LimitsSection
from .stalls import Stall

REFUSAL = b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"


def refusal(status: bytes, why: str) -> bytes:
    """Encode the response to a request that never reaches the application."""
    body = f"{why}\n".encode()
    return REFUSAL % (status, len(body), body)


class WebSocket(WebSocketsSansIOProtocol):
    limits = LimitsSection()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        self._stall = Stall(self.transport, self.limits.send)
        self._timer = self.loop.call_later(min(self.limits.receive, self.limits.send), self._check_time)

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
            self._refuse(answer or refusal(b"400 Bad Request", "This is no websocket handshake."))

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
            self._refuse(refusal(b"503 Service Unavailable", "The gateway is shutting down."))

    def _check_time(self) -> None:
        now = self.loop.time()
        left = self._stall.left(now)
        if left <= 0:
            self.transport.abort()
            return
        if not self.handshake_complete:
            handshake_left = self._began + self.limits.receive - now
            if handshake_left <= 0:
                self._refuse(refusal(b"408 Request Timeout", "The handshake took too long."))
            left = min(left, max(handshake_left, 0.01))
        self._timer = self.loop.call_later(left, self._check_time)

    def _refuse(self, response: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.handshake_complete:
            self.transport.write(response)
        self.handshake_complete = self.close_sent = self.disconnected = True
        self.transport.close()
