"""One request and its response on a connection, as an ASGI application sees them."""

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from .http import Connection

LIMIT_BUFFERED = 256 * 1024


class Cycle(RequestResponseCycle):
    """One request and its answer, as the application sees them.

    `_news`: there is something to receive. `_left` is how much of the announced body is still to come, if it was.
    """

    disconnected = response_started = response_complete = False
    more_body = True
    _size = 0
    _news = _encouraged = False
    _waiter: "asyncio.Future[None] | None" = None
    _left: int | None = None

    def __init__(self, connection: "Connection", *, keep_alive: bool) -> None:
        self.scope = connection.scope
        self.logger = connection.logger
        self.transport = connection.transport
        self.flow = connection.flow
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self._loop = connection.loop
        self._received: list[bytes] = []
        self._ready: list[bytes] = []

    # ---- what the connection tells

    def take(self, body: bytes) -> None:
        """A piece of the request's body. What comes after the answer is nobody's."""
        if self.response_complete:
            return
        self._received.append(body)
        self._size += len(body)
        if self._size > LIMIT_BUFFERED:
            self.flow.pause_reading()
        self.tell()

    def tell(self) -> None:
        self._news = True
        self._wake()

    def leave(self) -> None:
        """The client did."""
        self.disconnected = not self.response_complete
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- what the application asks

    async def receive(self) -> Any:
        while not (self._news or self.disconnected or self.response_complete):
            self._encourage()
            self.flow.resume_reading()
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        pieces, self._received = self._received, []
        self._size = 0
        self._news = False
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _encourage(self) -> None:
        """A client may wait to be told that its body is wanted."""
        if self._encouraged or self.response_started or not self.more_body:
            return
        self._encouraged = True
        if (b"expect", b"100-continue") in [(name, value.lower()) for name, value in self.scope["headers"]]:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not expected here")

    def _begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The head: it waits for the first piece of its body."""
        given = dict(headers)
        lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers]]
        if given.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if (length := given.get(b"content-length")) is not None:
            self._left = int(length)
        elif self.scope["http_version"] != "1.0":
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header has a line break")
        self.response_started = True
        self._ready.append(head)

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._left = 0
        elif self._left is not None:
            self._left -= len(body)
            self._ready.append(body)
        elif self.scope["http_version"] == "1.0":
            self._ready.append(body)
        else:
            if body:
                self._ready += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                self._ready.append(b"0\r\n\r\n")
        self._loop.call_soon(self._flush)
        if more:
            return
        if self._left:
            raise RuntimeError("the body is not as long as it was said to be")
        self.response_complete = True
        self._wake()
        self.on_response()

    def _flush(self) -> None:
        if self._ready and not self.transport.is_closing():
            self.transport.write(b"".join(self._ready))
        self._ready.clear()
