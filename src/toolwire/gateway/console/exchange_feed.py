"""The live feed of exchanges: server-sent events, in batches of bounded size.

A page has a position in the buffer, so a slow page delays only itself: it skips exchanges that have left the buffer
meanwhile. `Last-Event-ID` lets a page continue after a reconnect.
"""

import time

import msgspec
from msgspec import Struct

from toolwire.codec.framing import encode_sse_frame
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.gateway.console.exchange_rows import RowBuilder
from toolwire.gateway.console.session import Viewer
from toolwire.journal.redaction import Redactor
from toolwire.upstream.asgi import AsgiRequest

INTERVAL = 0.25
MAX_ROWS = 250
"""Rows in one batch. Once a page has the exchanges from before it was opened, it gets one batch per interval."""

PING_INTERVAL = 15.0
MAX_WATCHERS = 32


class FeedPosition(Struct):
    """The position of a page in the feed of one process."""

    boot: str
    """Id of the process. Each process numbers its exchanges separately."""
    number: int = 0
    under_way: dict[str, bool] = {}
    """Exchanges that were sent while under way, and whether their response had begun."""

    def encode(self) -> bytes:
        """Return the position as an event id."""
        return f"{self.boot}:{self.number}".encode()


def read_position(text: str, boot: str) -> FeedPosition:
    """Return the position in an event id; the beginning if it is of another process or invalid."""
    last_boot, _, number = text.partition(":")
    return FeedPosition(boot, int(number) if last_boot == boot and number.isdecimal() and len(number) < 16 else 0)


class ExchangeFeed:
    """Sends the exchanges that a viewer may see to its pages."""

    def __init__(self, buffer: ExchangeBuffer, rows: RowBuilder, redactor: Redactor, boot: str) -> None:
        self._buffer = buffer
        self._rows = rows
        self._redactor = redactor
        self.boot = boot
        self._watchers = 0
        self.is_closed = False
        """Whether the server is stopping, so that open feeds must end."""

    @property
    def is_full(self) -> bool:
        """Return whether no further page may be open."""
        return self._watchers >= MAX_WATCHERS

    async def send(self, request: AsgiRequest, viewer: Viewer, position: FeedPosition) -> None:
        """Send batches until the page is closed or the server stops."""
        self._watchers += 1
        self._buffer.watch()
        try:
            await request.write_body(b"retry: 1000\n\n", more_body=True)
            sent_at, opened_at = 0.0, self._buffer.last_number
            while not self.is_closed and not viewer.is_expired():
                event = await self._next_event(viewer, position, is_first=sent_at == 0)
                if event or time.monotonic() - sent_at >= PING_INTERVAL:
                    sent_at = time.monotonic()
                    await request.write_body(event or b": ping\n\n", more_body=True)
                if position.number >= opened_at or not event:
                    await request.pause(INTERVAL)
            await request.write_body(b"")
        finally:
            self._watchers -= 1
            self._buffer.unwatch()

    async def _next_event(self, viewer: Viewer, position: FeedPosition, *, is_first: bool) -> bytes:
        """Return the next batch as an event, and advance the position; empty if nothing changed."""
        is_reset = is_first and position.number == 0
        finished = self._buffer.after(position.number, MAX_ROWS)
        if finished:
            position.number = finished[-1].number
        exchanges = [*finished, *self._buffer.under_way(INTERVAL, position.under_way)]
        visible = [exchange for exchange in exchanges if viewer.may_see(exchange.tenant)]
        if not visible and not is_first:
            return b""
        batch = {
            "reset": is_reset,
            "rows": await self._rows.build(visible),
            "capture": self._buffer.capture_seconds,
            "complete": position.number == self._buffer.last_number,
        }
        data = self._redactor.redact_bytes(msgspec.json.encode(batch))
        return b"id: %b\n%b" % (position.encode(), encode_sse_frame(data))
