"""One HTTP request under ASGI: head, limited body, and response."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Codec
from toolwire.upstream.simulator.validation import ProviderRejection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON_TYPE = "application/json"


class ClientDisconnected(Exception):
    """The client closed the connection."""


class AsgiRequest:
    """An HTTP request, and the methods to respond to it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self._receive = receive
        self._send = send

    async def read_body(self, limit: int) -> bytes:
        """Read the body, or reject the request if it is longer than `limit` bytes."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                reason = f"Request exceeds the maximum size of {limit} bytes"
                raise ProviderRejection(ApiError(kind="too_large", message=reason))
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)

    async def pause(self, seconds: float) -> None:
        """Wait, and raise `ClientDisconnected` if the client leaves meanwhile. The body must have been read."""
        if seconds <= 0:
            return
        try:
            message = await asyncio.wait_for(self._receive(), seconds)
        except TimeoutError:
            return
        if message["type"] == "http.disconnect":
            raise ClientDisconnected

    async def start_response(self, status: int, content_type: str, *extra_headers: tuple[str, str]) -> None:
        """Send the status and headers of the response."""
        headers = [
            (name.encode(), value.encode("latin-1")) for name, value in (("content-type", content_type), *extra_headers)
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write_body(self, body: bytes, *, more_body: bool = False) -> None:
        """Send a part of the body; the last one unless `more_body` is set."""
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        except OSError:
            raise ClientDisconnected from None

    async def send(self, body: bytes, status: int = 200, *extra_headers: tuple[str, str]) -> None:
        """Send a complete JSON response."""
        await self.start_response(status, _JSON_TYPE, ("content-length", str(len(body))), *extra_headers)
        await self.write_body(body)

    async def send_truncated(self, body: bytes) -> None:
        """Send half of the body with the full `Content-Length`, so that the server closes the connection."""
        await self.start_response(200, _JSON_TYPE, ("content-length", str(len(body))))
        await self.write_body(body[: len(body) // 2], more_body=True)

    async def send_json(self, value: Any) -> None:
        """Send a value as a JSON response with status 200."""
        await self.send(msgspec.json.encode(value))

    async def send_error(self, error: ApiError, codec: Codec) -> None:
        """Send an error in the protocol's format."""
        status = error.status or codec.surface.status_of(error.kind)
        extra_headers = () if error.retry_after is None else (("retry-after", f"{error.retry_after:g}"),)
        await self.send(codec.encode_error(replace(error, status=status)).to_bytes(), status, *extra_headers)


async def run_lifespan(receive: Receive, send: Send) -> None:
    """Complete the ASGI lifespan events; there is nothing to set up."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
