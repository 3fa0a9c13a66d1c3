"""A client's head may be so long and take so long: uvicorn bounds neither."""

import asyncio

from .config import LimitsSection
from .http import Protocol

_ANSWER = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Bounded(Protocol):
    """One timer looks after a connection, however many requests come over it."""

    limits = LimitsSection()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_size = 0
        self._heading = True
        self._heads_since = self.loop.time()
        self._timer = self.loop.call_later(self.limits.receive, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._heading:
            self._head_size += len(data)
            if self._head_size > self.limits.head:
                self._turn_away(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0
        self._heading = True
        self._heads_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._heading = False
        super().on_headers_complete()

    def _look(self) -> None:
        left = self._heads_since + self.limits.receive - self.loop.time()
        if self._heading and left <= 0:
            self._turn_away(b"408 Request Timeout")
        else:
            self._timer = self.loop.call_later(left if self._heading else self.limits.receive, self._look)

    def _turn_away(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER % status)
            self.transport.close()


def bounded(limits: LimitsSection) -> type[Bounded]:
    """The protocol of connections with these limits."""
    return type("Connection", (Bounded,), {"limits": limits})
