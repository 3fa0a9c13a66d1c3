"""The proxy through which the browser reaches the network.

It resolves every name itself and connects to the address that it checked. Chromium resolves nothing and connects to
nothing else, so a page, redirect, WebSocket or DNS rebinding can't bypass the policy. TLS connections and WebSockets
are tunnels (CONNECT). A plain HTTP request gets its own connection, so that no response can affect a later request.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Coroutine

from toolwire.runtime.tools.browser.network_policy import (
    ActionRefused,
    IPAddress,
    NetworkPolicy,
    parse_host_port,
    parse_ip,
)

MAX_HEAD_BYTES = 256 * 1024
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 15
HOP_BY_HOP = frozenset(
    {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"upgrade", b"host"}
)

# Chromium's own background services, which no page requests.
CHROMIUM_SERVICE_HOSTS = frozenset(
    {
        "content-autofill.googleapis.com",
        "android.clients.google.com",
        "clients2.google.com",
        "clientservices.googleapis.com",
        "optimizationguide-pa.googleapis.com",
        "safebrowsing.googleapis.com",
        "update.googleapis.com",
    }
)

ReportRefusal = Callable[[str], None]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def run_proxy(policy: NetworkPolicy, report_refusal: ReportRefusal) -> AsyncIterator[int]:
    """Serve the proxy on a loopback port, and yield the port. `report_refusal` receives the reason of each refusal."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the browser, and close it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  each connection is served in a task
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):  # one side disconnected
                await _ProxyConnection(policy, report_refusal, reader, writer).serve()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        except asyncio.CancelledError:
            writer.transport.abort()  # the session ended; closing would wait until the browser reads
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _ProxyConnection:
    """One connection from the browser."""

    def __init__(
        self,
        policy: NetworkPolicy,
        report_refusal: ReportRefusal,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.policy = policy
        self.report_refusal = report_refusal
        self.reader = reader
        self.writer = writer

    async def serve(self) -> None:
        """Read a request, check it, and tunnel or forward it."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = head[:-4].split(b"\r\n")
        try:
            method, target, _ = line.decode("ascii").split(" ")
            host, port = parse_host_port(f"https://{target}" if method == "CONNECT" else target, ("http", "https"))
        except (ValueError, ActionRefused):
            await self._respond("400 Bad Request", "invalid proxy request")
            return
        if host in CHROMIUM_SERVICE_HOSTS:
            await self._respond("403 Forbidden", "refused: not requested by a page")
            return
        try:
            streams = await self._connect(host, port)
        except ActionRefused as refusal:
            self.report_refusal(f"A request to {host}:{port} was refused: {refusal}.")
            await self._respond("403 Forbidden", f"refused: {refusal}")
            return
        except OSError:
            await self._respond("502 Bad Gateway", f"can't connect to {host}:{port}")
            return
        with contextlib.closing(streams[1]):
            if method == "CONNECT":
                await self._tunnel(streams)
            else:
                await self._forward_request(method, target, fields, streams)

    async def _connect(self, host: str, port: int) -> Streams:
        """Connect to an address of the host that the policy allows, or raise `ActionRefused`."""
        if reason := self.policy.request_refusal(host, port):
            raise ActionRefused(reason)
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = await _resolve_addresses(host, port)
        reasons = {address: self.policy.address_refusal(host, port, address) for address in addresses}
        allowed = [address for address, reason in reasons.items() if reason is None]
        if not allowed:
            raise ActionRefused(next(filter(None, reasons.values()), f"{host} has no address"))
        failure = OSError()
        for address in allowed:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(str(address), port, limit=MAX_HEAD_BYTES)
            except OSError as error:
                failure = error
                continue
            local_address = ipaddress.ip_address(writer.get_extra_info("sockname")[0].partition("%")[0])
            if local_address == address and not address.is_loopback and not self.policy.allows_private(host, port):
                writer.close()
                raise ActionRefused(f"{host} is this machine")
            return reader, writer
        raise failure

    async def _tunnel(self, streams: Streams) -> None:
        """Copy bytes between the browser and the host in both directions, for HTTPS."""
        self.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _wait_for_first(_copy(self.reader, streams[1]), _copy(streams[0], self.writer))

    async def _forward_request(self, method: str, target: str, fields: list[bytes], streams: Streams) -> None:
        """Forward a plain HTTP request and its response."""
        length = 0
        forwarded = []
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == b"transfer-encoding" or (
                name.lower() == b"content-length" and not value.strip().isdigit()
            ):
                await self._respond("501 Not Implemented", "request bodies need a Content-Length")
                return
            if name.lower() == b"content-length":
                length = int(value)
            if name.lower() not in HOP_BY_HOP:
                forwarded.append(field)
        authority, slash, path = target.partition("://")[2].partition("/")
        if not slash:
            authority, separator, query = authority.partition("?")
            path = separator + query
        head = [f"{method} /{path} HTTP/1.1".encode(), b"Host: " + authority.rpartition("@")[2].encode(), *forwarded]
        streams[1].write(b"\r\n".join([*head, b"Connection: close\r\n\r\n"]))
        upload = asyncio.create_task(_copy(self.reader, streams[1], length))
        try:
            await self._relay_response_head(streams[0])
            # The browser closes when it is done; a server that keeps the connection open must not block us.
            await _wait_for_first(_copy(streams[0], self.writer), _wait_for_close(upload, self.reader))
        finally:
            upload.cancel()
            await asyncio.gather(upload, return_exceptions=True)

    async def _relay_response_head(self, reader: asyncio.StreamReader) -> None:
        """Forward the head of the response, without hop-by-hop headers."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head[:-4].split(b"\r\n")
            status = line.split(b" ")[1:2]
            if not line.startswith(b"HTTP/1.") or not status or status[0] == b"101":
                await self._respond("502 Bad Gateway", "the server's response is not HTTP/1.1")
                raise EOFError
            if not status[0].startswith(b"1"):
                break
        forwarded = [field for field in fields if field.partition(b":")[0].lower() not in HOP_BY_HOP]
        self.writer.write(b"\r\n".join([line, *forwarded, b"Connection: close\r\n\r\n"]))

    async def _respond(self, status: str, text: str) -> None:
        """Send a short text response."""
        body = f"toolwire: {text}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await self.writer.drain()


async def _resolve_addresses(host: str, port: int) -> list[IPAddress]:
    """Resolve a host to its addresses."""
    address = parse_ip(host)
    if address is not None:
        return [address]
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        return []
    texts = dict.fromkeys(str(address[0]).partition("%")[0] for _, _, _, _, address in infos)
    return [ipaddress.ip_address(text) for text in texts]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None = None) -> None:
    """Copy a stream to its end, or `length` bytes of it."""
    while length is None or length > 0:
        chunk = await reader.read(CHUNK_BYTES if length is None else min(CHUNK_BYTES, length))
        if not chunk:
            return
        if length is not None:
            length -= len(chunk)
        writer.write(chunk)
        await writer.drain()


async def _wait_for_close(upload: asyncio.Task[None], reader: asyncio.StreamReader) -> None:
    """Wait for the upload to finish and for the browser to close the connection."""
    await upload
    while await reader.read(CHUNK_BYTES):
        pass


async def _wait_for_first(*copies: Coroutine[None, None, None]) -> None:
    """Run the copies until the first one ends, then cancel the others."""
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
