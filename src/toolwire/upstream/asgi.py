"""One HTTP request under ASGI: head, bounded body, response, and a client that leaves.

The gateway's server and the simulator both build on it.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON_HEADER: Header = (b"content-type", b"application/json")
_SMALL_BODY = 64 * 1024  # bytes that need no reservation


class ClientDisconnected(Exception):
    """The client closed the connection."""


class BodyTooLarge(Exception):
    """The body is longer than the limit."""


class AsgiRequest(Struct):
    """An HTTP request, and the means to respond to it."""

    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    """Header values by lower-case name."""

    @property
    def method(self) -> str:
        """Return the method, in upper case."""
        method: str = self.scope["method"]
        return method

    @property
    def path(self) -> str:
        """Return the decoded path."""
        path: str = self.scope["path"]
        return path

    def header(self, name: str) -> str:
        """Return the value of a header; empty if it is missing."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    async def receive_body(self, limit: int) -> bytes:
        """Receive the body; raises `BodyTooLarge` over `limit` bytes, and `ClientDisconnected` if the client leaves."""
        content_length = self.headers.get(b"content-length", b"0")
        if content_length.isdigit() and int(content_length) > limit:
            raise BodyTooLarge
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            body = message.get("body", b"")
            size += len(body)
            if size > limit:
                raise BodyTooLarge
            if size > _SMALL_BODY:
                self.reserve_body(size)
            if not message.get("more_body", False):
                break
            chunks.append(body)
        return b"".join([*chunks, body]) if chunks else body

    def reserve_body(self, size: int) -> None:
        """Account for a large body of which `size` bytes were received so far; by default there is nothing to do."""

    async def pause(self, seconds: float) -> None:
        """Wait, and raise `ClientDisconnected` if the client leaves meanwhile. The body must have been received."""
        if seconds <= 0:
            return
        try:
            message = await asyncio.wait_for(self.receive(), seconds)
        except TimeoutError:
            return
        if message["type"] == "http.disconnect":
            raise ClientDisconnected

    async def start_response(self, status: int, headers: list[Header]) -> None:
        """Send the status and headers of the response."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write_body(self, body: bytes, *, more_body: bool = False) -> None:
        """Send a part of the body; the last one unless `more_body` is set."""
        try:
            await self.send({"type": "http.response.body", "body": body, "more_body": more_body})
        except OSError:
            raise ClientDisconnected from None

    async def respond(self, status: int, body: bytes, headers: list[Header]) -> None:
        """Send a complete response."""
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        try:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})
        except OSError:
            raise ClientDisconnected from None


async def run_lifespan(receive: Receive, send: Send, close: Callable[[], None] | None = None) -> None:
    """Complete the ASGI lifespan events, and call `close` on shutdown."""
    while True:
        message = await receive()
        is_shutdown = message["type"] == "lifespan.shutdown"
        if is_shutdown and close is not None:
            close()
        await send({"type": message["type"] + ".complete"})
        if is_shutdown:
            return
