"""The live feed of exchanges: server-sent events, in batches of bounded size.

A page has a position in the buffer of each worker, so a slow page delays only itself: it skips exchanges that have
left the buffer meanwhile. `Last-Event-ID` holds all positions, and lets a page continue after a reconnect.
"""

import time
from collections import Counter

import msgspec
from msgspec import Struct

from toolwire.codec.framing import encode_sse_frame
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.gateway.console.exchange_rows import RowBuilder
from toolwire.gateway.console.peers import Peers
from toolwire.gateway.console.session import Viewer
from toolwire.journal.redaction import Redactor
from toolwire.upstream.asgi import AsgiRequest

INTERVAL = 0.25
MAX_ROWS = 125
"""Rows in one batch. Once a page has the exchanges from before it was opened, it gets one batch per interval."""

PING_INTERVAL = 15.0
MAX_PAGES = 32
MAX_PAGES_OF_A_KEY = 8
_MAX_POSITIONS = 4096  # characters


class FeedPosition(Struct):
    """The position of a page in one buffer."""

    buffer_id: str
    number: int = 0
    under_way: dict[str, bool] = {}
    """Exchanges that were sent while under way, and whether their response had begun."""

    def encode(self) -> str:
        """Return the position as a part of an event id."""
        return f"{self.buffer_id}:{self.number}"


def read_positions(event_id: str) -> dict[int, str]:
    """Return the positions in an event id, by worker; invalid ones are left out."""
    pairs = [part.partition("=") for part in event_id[:_MAX_POSITIONS].split(",")]
    return {int(worker): position for worker, _, position in pairs if worker.isdecimal() and len(worker) < 5}


def read_position(text: str, buffer_id: str) -> FeedPosition:
    """Parse a position in this buffer; return the beginning if the text is invalid or from another buffer."""
    last_id, _, number = text.partition(":")
    is_valid = last_id == buffer_id and number.isdecimal() and len(number) < 16
    return FeedPosition(buffer_id, int(number) if is_valid else 0)


class ExchangeFeed:
    """Sends the exchanges that a viewer may see to its pages: those of this worker and of all others."""

    def __init__(
        self, buffer: ExchangeBuffer, rows: RowBuilder, redactor: Redactor, *, peers: Peers, worker: int
    ) -> None:
        self._buffer = buffer
        self._rows = rows
        self._redactor = redactor
        self._peers = peers
        self._worker = worker
        self._pages = Counter[str]()
        """Open pages by the key of the viewer."""
        self.is_closed = False
        """Whether the server is stopping, so that open feeds must end."""

    def open_page_problem(self, viewer: Viewer) -> str | None:
        """Return why the viewer may not open another page; None if nothing prevents it."""
        tenant = viewer.principal.tenant
        if tenant and self._pages[tenant] >= MAX_PAGES_OF_A_KEY:
            return f"{MAX_PAGES_OF_A_KEY} pages are open with this key: close one of them"
        return "too many pages are open" if self._pages.total() >= MAX_PAGES else None

    async def send(self, request: AsgiRequest, viewer: Viewer) -> None:
        """Send batches until the page is closed or the server stops."""
        positions = read_positions(request.header("last-event-id"))
        position = read_position(positions.get(self._worker, ""), self._buffer.id)
        self._pages[viewer.principal.tenant] += 1
        self._buffer.watch()
        try:
            await request.write_body(b"retry: 1000\n\n", more_body=True)
            async with self._peers.follow(request) as peer_batches:
                sent_at, opened_at = 0.0, self._buffer.last_number
                while not self.is_closed and not viewer.is_expired():
                    events = []
                    if (own := await self.next_batch(viewer, position, is_first=sent_at == 0)) is not None:
                        positions[self._worker] = position.encode()
                        events.append(_encode_event(positions, own))
                    while not peer_batches.empty():
                        batch = peer_batches.get_nowait()
                        positions[batch.worker] = batch.position
                        events.append(_encode_event(positions, batch.data))
                    if events or time.monotonic() - sent_at >= PING_INTERVAL:
                        sent_at = time.monotonic()
                        await request.write_body(b"".join(events) or b": ping\n\n", more_body=True)
                    if position.number >= opened_at or own is None:
                        await request.pause(INTERVAL)
            await request.write_body(b"")
        finally:
            self._pages[viewer.principal.tenant] -= 1
            self._buffer.unwatch()

    async def next_batch(self, viewer: Viewer, position: FeedPosition, *, is_first: bool) -> bytes | None:
        """Return the next batch as JSON, and advance the position; None if nothing changed."""
        is_reset = is_first and position.number == 0
        finished = self._buffer.after(position.number, MAX_ROWS)
        if finished:
            position.number = finished[-1].number
        exchanges = [*finished, *self._buffer.under_way(INTERVAL, position.under_way)]
        visible = [exchange for exchange in exchanges if viewer.may_see(exchange.tenant)]
        if not visible and not is_first:
            return None
        batch = {
            "worker": self._worker,
            "workers": len(self._peers) + 1,
            "position": position.encode(),
            "reset": is_reset,
            "rows": await self._rows.build(visible),
            "capture": self._buffer.capture_seconds,
            "complete": position.number == self._buffer.last_number,
        }
        return self._redactor.redact_bytes(msgspec.json.encode(batch))


def _encode_event(positions: dict[int, str], batch: bytes) -> bytes:
    """Return a batch as an event, whose id holds the position of the page in each worker."""
    id = ",".join(f"{worker}={position}" for worker, position in positions.items())
    return b"id: %b\n%b" % (id.encode(), encode_sse_frame(batch))
