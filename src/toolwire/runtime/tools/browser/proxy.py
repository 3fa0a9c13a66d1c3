"""The only way out of the browser: a proxy that looks up every name itself and connects to the address that it checked.

Chromium resolves nothing and connects to nothing else, so that a page, a redirect, a websocket or a name whose address
changes between two look-ups has no way around it. Encrypted connections and websockets are tunnels (CONNECT); a plain
request is passed on alone, on a connection of its own, so that no answer can get hold of the request after it.
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

# Chromium's own questions to its maker, asked on behalf of a page that knows nothing of them.
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
    """Serves on a port of loopback; `report` is told why something was refused."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a connection is served in a task
        serving.add(task)
        try:
            await _ProxyConnection(policy, report_refusal, reader, writer).serve()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one of the two went away, or the session ended
        finally:
            serving.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()


class _ProxyConnection:
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
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = head[:-4].split(b"\r\n")
        try:
            method, target, _ = line.decode("ascii").split(" ")
            host, port = parse_host_port(f"https://{target}" if method == "CONNECT" else target, ("http", "https"))
        except (ValueError, ActionRefused):
            await self._respond("400 Bad Request", "this proxy does not understand the request")
            return
        if host in CHROMIUM_SERVICE_HOSTS:
            await self._respond("403 Forbidden", "refused: no page asked for this")
            return
        try:
            streams = await self._connect(host, port)
        except ActionRefused as refused:
            self.report_refusal(f"A request to {host}:{port} was refused: {refused}.")
            await self._respond("403 Forbidden", f"refused: {refused}")
            return
        except OSError:
            await self._respond("502 Bad Gateway", f"{host}:{port} can't be reached")
            return
        with contextlib.closing(streams[1]):
            if method == "CONNECT":
                await self._tunnel(streams)
            else:
                await self._forward_request(method, target, fields, streams)

    async def _connect(self, host: str, port: int) -> Streams:
        """To an address that was checked, or not at all."""
        if why := self.policy.request_refusal(host, port):
            raise ActionRefused(why)
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await _resolve_addresses(host, port)
        reasons = {address: self.policy.address_refusal(host, port, address) for address in found}
        allowed = [address for address, why in reasons.items() if why is None]
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
            here = ipaddress.ip_address(writer.get_extra_info("sockname")[0].partition("%")[0])
            if here == address and not address.is_loopback and not self.policy.allows_private(host, port):
                writer.close()
                raise ActionRefused(f"{host} is this machine")
            return reader, writer
        raise failure

    async def _tunnel(self, streams: Streams) -> None:
        self.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _wait_for_first(_copy(self.reader, streams[1]), _copy(streams[0], self.writer))

    async def _forward_request(self, method: str, target: str, fields: list[bytes], streams: Streams) -> None:
        length = 0
        kept = []
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == b"transfer-encoding" or (
                name.lower() == b"content-length" and not value.strip().isdigit()
            ):
                await self._respond("501 Not Implemented", "this proxy takes bodies of a stated length only")
                return
            if name.lower() == b"content-length":
                length = int(value)
            if name.lower() not in HOP_BY_HOP:
                kept.append(field)
        authority, slash, path = target.partition("://")[2].partition("/")
        if not slash:
            authority, question, query = authority.partition("?")
            path = question + query
        head = [f"{method} /{path} HTTP/1.1".encode(), b"Host: " + authority.rpartition("@")[2].encode(), *kept]
        streams[1].write(b"\r\n".join([*head, b"Connection: close\r\n\r\n"]))
        upload = asyncio.create_task(_copy(self.reader, streams[1], length))
        try:
            await self._relay_response_head(streams[0])
            # The browser closes when it has what it needs; a server that stays open would keep both.
            await _wait_for_first(_copy(streams[0], self.writer), _wait_for_close(upload, self.reader))
        finally:
            upload.cancel()
            await asyncio.gather(upload, return_exceptions=True)

    async def _relay_response_head(self, reader: asyncio.StreamReader) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head[:-4].split(b"\r\n")
            status = line.split(b" ")[1:2]
            if not line.startswith(b"HTTP/1.") or not status or status[0] == b"101":
                await self._respond("502 Bad Gateway", "the server's answer is not one of HTTP/1.1")
                raise EOFError
            if not status[0].startswith(b"1"):
                break
        kept = [field for field in fields if field.partition(b":")[0].lower() not in HOP_BY_HOP]
        self.writer.write(b"\r\n".join([line, *kept, b"Connection: close\r\n\r\n"]))

    async def _respond(self, status: str, text: str) -> None:
        body = f"toolwire: {text}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await self.writer.drain()


async def _resolve_addresses(host: str, port: int) -> list[IPAddress]:
    address = parse_ip(host)
    if address is not None:
        return [address]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        return []
    texts = dict.fromkeys(str(address[0]).partition("%")[0] for _, _, _, _, address in found)
    return [ipaddress.ip_address(text) for text in texts]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None = None) -> None:
    while length is None or length > 0:
        piece = await reader.read(CHUNK_BYTES if length is None else min(CHUNK_BYTES, length))
        if not piece:
            return
        if length is not None:
            length -= len(piece)
        writer.write(piece)
        await writer.drain()


async def _wait_for_close(upload: asyncio.Task[None], reader: asyncio.StreamReader) -> None:
    await upload
    while await reader.read(CHUNK_BYTES):
        pass


async def _wait_for_first(*copies: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
