"""A request as it came, and the answer to it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.upstream.encodings import EncodingError, TooLarge, Unpacker

from .auth import Caller
from .log import Line
from .offload import BodyRoom
from .recording import Note
from .refusal import Refused
from .watch import Receive, Watch

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]


class Gone(Exception):
    """The client left."""


class Incoming(Struct):
    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    line: Line
    watch: Watch
    room: BodyRoom
    held: int = 0
    caller: Caller = Caller("")
    note: Note | None = None

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    async def answer(self, status: int, body: bytes, headers: list[Header]) -> None:
        self.line.status = status
        length = (b"content-length", str(len(body)).encode())
        exchange = (b"toolwire-exchange", self.line.id.encode())
        await self.send(
            {"type": "http.response.start", "status": status, "headers": [*headers, length, exchange]},
        )
        await self.send({"type": "http.response.body", "body": body})

    async def body(self, limit: int) -> bytes:
        """The whole body, within the limit of its size; how long it may take is the watch's to know."""
        announced = self.headers.get(b"content-length", b"0")
        size = 0 if not announced.isdigit() or int(announced) <= limit else limit + 1
        pieces: list[bytes] = []
        while size <= limit:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self.held = self.room.take(self.held, size)
            if not message.get("more_body", False):
                break
        if size > limit:
            raise Refused(ApiError(kind="too_large", message=f"the body is longer than {limit} bytes", status=413))
        self.watch.received()
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if (packed := self.headers.get(b"content-encoding")) is not None:
            body = await asyncio.to_thread(_unpacked, body, packed, limit)
            self.held = self.room.take(self.held, len(body))
        return body

    def let_go(self) -> None:
        """The body is needed no more."""
        self.room.taken -= self.held
        self.held = 0


def _unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    try:
        unpacker = Unpacker(encoding.decode("latin-1"))
    except EncodingError as error:
        raise Refused(ApiError(kind="invalid_request", message=f"the body: {error}", status=415)) from None
    try:
        found = unpacker.feed(body, limit)
        unpacker.close()
    except TooLarge as error:
        raise Refused(ApiError(kind="too_large", message=f"the body: {error}", status=413)) from None
    except EncodingError as error:
        raise Refused(ApiError(kind="invalid_request", message=f"the body: {error}", status=400)) from None
    return found
