"""The server's side of a connection: uvicorn's, with one write where it makes several.

A head and its body, or events that became ready together, are written apart. Each write is a call of the kernel, and a
packet that wakes the client: half of what serving a small answer costs.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Joining:
    """A transport that writes at the end of the loop's turn all that was written in it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info
        self._transport = transport
        self._later = loop.call_soon
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._later(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.writelines(pieces)


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        joining: Any = Joining(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", joining))
