"""The other workers of a gateway: each holds the exchanges that it served.

Every worker has an address on loopback. A worker asks the others with the cookie and the token of the viewer, so that
an answer holds nothing but what the viewer may see.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from urllib.parse import quote

import msgspec
from msgspec import Struct

from toolwire.codec.framing import SseSplitter
from toolwire.gateway.console.session import TOKEN_HEADER
from toolwire.upstream.asgi import AsgiRequest, Header
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import Transport, TransportError, UpstreamResponse, request_head

PEER_HEADER = "toolwire-console-peer"
"""Marks a request from another worker, so that this worker asks no others."""

_FORWARDED_HEADERS = ("cookie", TOKEN_HEADER)
_REPLY_HEADERS = ("content-type", "content-disposition")
_TIMEOUT = 5.0
_FEED_TIMEOUT = 45.0  # three pings
_RETRY_DELAY = 1.0
_MAX_REPLY = 128 * 1024 * 1024
_MAX_WAITING = 4  # batches for a slow page


class PeerBatch(Struct):
    """A batch of another worker's feed."""

    worker: int
    position: str
    data: bytes = b""
    """The batch as JSON."""


class PeerReply(Struct, frozen=True):
    """A successful answer of another worker."""

    body: bytes
    headers: list[Header]


class Peers:
    """Asks the other workers for data."""

    def __init__(self, origins: Sequence[Origin] = ()) -> None:
        self._origins = origins
        self._transport = Transport()

    def __len__(self) -> int:
        return len(self._origins)

    def close(self) -> None:
        """Close the connections to other workers."""
        self._transport.close()

    async def find(self, request: AsgiRequest) -> PeerReply | None:
        """Forward a request, and return the first successful answer; None if there is none."""
        tasks = [asyncio.ensure_future(self._ask(origin, request)) for origin in self._asked_origins(request)]
        try:
            for task in asyncio.as_completed(tasks):
                if (reply := await task) is not None:
                    return reply
        finally:
            for pending in tasks:
                pending.cancel()
        return None

    async def ask_all(self, request: AsgiRequest, body: bytes | None = None) -> list[PeerReply]:
        """Forward a request, and return all successful answers."""
        asked = [self._ask(origin, request, body) for origin in self._asked_origins(request)]
        return [reply for reply in await asyncio.gather(*asked) if reply is not None]

    @asynccontextmanager
    async def follow(self, request: AsgiRequest) -> AsyncIterator["asyncio.Queue[PeerBatch]"]:
        """Follow the feeds of the other workers from the position of a page; yield the queue of their batches."""
        batches: asyncio.Queue[PeerBatch] = asyncio.Queue(_MAX_WAITING)
        tasks = [
            asyncio.ensure_future(self._follow(origin, request, batches)) for origin in self._asked_origins(request)
        ]
        try:
            yield batches
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _asked_origins(self, request: AsgiRequest) -> Sequence[Origin]:
        """Return the workers to ask; none if the request comes from another worker."""
        return () if PEER_HEADER.encode() in request.headers else self._origins

    async def _ask(self, origin: Origin, request: AsgiRequest, body: bytes | None = None) -> PeerReply | None:
        """Return the answer of one worker; None if it fails."""
        try:
            response = await self._send(origin, request, [], body, _TIMEOUT)
            if response.status != 200:
                response.close()
                return None
            headers = [(name, response.headers[name]) for name in _REPLY_HEADERS if name in response.headers]
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
            return PeerReply(await response.read(_MAX_REPLY), encoded)
        except TransportError:
            return None

    async def _follow(self, origin: Origin, request: AsgiRequest, batches: "asyncio.Queue[PeerBatch]") -> None:
        """Queue the batches of one worker until cancelled. Reconnect when the worker is replaced."""
        position = request.header("last-event-id")
        while True:
            try:
                headers = [("last-event-id", position)]
                response = await self._send(origin, request, headers, None, _FEED_TIMEOUT)
                splitter = SseSplitter()
                with closing(response):
                    while chunk := await response.next():
                        for data in splitter.feed(chunk):
                            batch = msgspec.json.decode(data, type=PeerBatch)
                            batch.data, position = data, f"{batch.worker}={batch.position}"
                            await batches.put(batch)
            except (TransportError, msgspec.MsgspecError):
                pass  # the worker stops, or starts
            await asyncio.sleep(_RETRY_DELAY)

    async def _send(
        self,
        origin: Origin,
        request: AsgiRequest,
        headers: list[tuple[str, str]],
        body: bytes | None,
        timeout: float,
    ) -> UpstreamResponse:
        """Send a request of a page to another worker."""
        forwarded = [(name, value) for name in _FORWARDED_HEADERS if (value := request.header(name))]
        head = request_head(
            origin, quote(request.path), [*forwarded, *headers, (PEER_HEADER, "1")], method=request.method
        )
        return await self._transport.send(origin, head, body, read_timeout=timeout, connect_timeout=timeout)
