"""A proxy on loopback that opens tunnels (`CONNECT`), and the certificates of servers and clients behind it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.paths import ROOT
from tests.support.servers.upstream import Handler, serve_upstream

FIXTURES = ROOT / "tests" / "fixtures"
AUTHORITY = FIXTURES / "tls" / "authority.pem"
CLIENT_CERT = FIXTURES / "tls" / "client.pem"
CLIENT_KEY = FIXTURES / "tls" / "client.key"


def server_context(*, requires_certificate: bool = False) -> ssl.SSLContext:
    """Return the context of a server at localhost, which may want a certificate of its client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(FIXTURES / "tls" / "server.pem", FIXTURES / "tls" / "server.key")
    if requires_certificate:
        context.load_verify_locations(AUTHORITY)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the authority lacks what Python 3.13 requires
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@asynccontextmanager
async def serve_tls(handler: Handler, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve over TLS, and yield the port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Proxy:
    """Opens tunnels to this machine, whatever host is requested, and records the heads of the requests."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.heads: list[str] = []
        self._answer = answer

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Serve, and yield the port."""
        async with serve_upstream(self._handle) as origin:
            yield origin.port

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(self._answer)
        if " 200 " not in self._answer.decode():
            return
        port = int(head.split(" ")[1].rpartition(":")[2])
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        copies = asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
        try:
            await copies
        finally:
            upstream_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
