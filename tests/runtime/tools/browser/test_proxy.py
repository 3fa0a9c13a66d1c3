"""The proxy on real sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.deadlines import run_event_loop, wait_until_async
from tests.support.servers.upstream import serve_upstream
from toolwire.runtime.tools.browser.network_policy import NetworkPolicy
from toolwire.runtime.tools.browser.proxy import run_proxy

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi"


class Server:
    """Records what it receives, and sends the same response to every request."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.received: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(b"")
        index = len(self.received) - 1
        try:
            self.received[index] += await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            while piece := await reader.read(1000):
                self.received[index] += piece
        except asyncio.IncompleteReadError:
            pass  # the proxy had connected before its client left
        finally:
            writer.close()


def exchange(
    server: Server, reach: Callable[[int], NetworkPolicy], send: Callable[[int], bytes]
) -> tuple[bytes, list[str]]:
    reports: list[str] = []

    async def whole() -> bytes:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            async with run_proxy(reach(port), reports.append) as proxy:
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
                writer.write(send(port))
                # A response with a length ends there, even if the connection stays open.
                got = await reader.readuntil(b"\r\n\r\n")
                while not got.endswith((b"hi", b"\n")) or got.endswith(b"\r\n\r\n"):
                    piece = await reader.read(1000)
                    if not piece:
                        break
                    got += piece
                writer.close()
                await run_event_loop()
                return got

    return asyncio.run(whole()), reports


def policy_for(port: int) -> NetworkPolicy:
    return NetworkPolicy(hosts=(f"127.0.0.1:{port}",))


def test_plain_request_is_forwarded_on_its_own_connection() -> None:
    server = Server()
    sent = b"POST http://127.0.0.1:%d/path?q=1 HTTP/1.1\r\nHost: other\r\nContent-Length: 3\r\nX-A: b\r\n"
    sent += b"Proxy-Connection: keep-alive\r\n\r\nabc"
    after = b"GET http://elsewhere.example/ HTTP/1.1\r\nCookie: of=elsewhere\r\n\r\n"
    got, reports = exchange(server, policy_for, lambda port: sent % port + after)
    assert got.endswith(b"\r\nConnection: close\r\n\r\nhi")
    assert b"keep-alive" not in got
    assert reports == []
    (received,) = server.received
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /path?q=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-A: b" in head
    assert b"other" not in head
    assert b"keep-alive" not in head
    assert body == b"abc"


def test_tunnel_copies_both_directions() -> None:
    server = Server()
    sent = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    got, _ = exchange(server, policy_for, lambda port: sent % port)
    assert got == b"HTTP/1.1 200 Connection established\r\n\r\n" + OK


@pytest.mark.parametrize(
    "sent",
    [
        b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n",
        # Names that resolve to loopback.
        b"GET http://localhost:%d/ HTTP/1.1\r\n\r\n",
        b"CONNECT localhost:%d HTTP/1.1\r\n\r\n",
        b"CONNECT [::ffff:127.0.0.1]:%d HTTP/1.1\r\n\r\n",
        # Notations of 127.0.0.1 that only a resolver understands.
        b"CONNECT 127.1:%d HTTP/1.1\r\n\r\n",
        b"CONNECT 2130706433:%d HTTP/1.1\r\n\r\n",
        b"CONNECT 0x7f000001:%d HTTP/1.1\r\n\r\n",
    ],
)
def test_private_address_is_not_reached(sent: bytes) -> None:
    server = Server()
    got, reports = exchange(server, lambda _: NetworkPolicy(hosts=("*",)), lambda port: sent % port)
    assert got.startswith(b"HTTP/1.1 403 ")
    assert server.received == []
    assert "not on the public internet" in reports[0]


def test_dns_rebinding_connects_to_the_checked_address(monkeypatch: Any) -> None:
    lookups: list[str] = []

    def hostile(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        """Each answer is good for one look."""
        lookups.append(host)
        address = "127.0.0.1" if len(lookups) == 1 else "127.0.0.99"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", hostile)
    server = Server()
    reach = NetworkPolicy(hosts=("rebinding.example",), private_hosts=("rebinding.example",))
    sent = b"GET http://rebinding.example:%d/ HTTP/1.1\r\n\r\n"
    got, _ = exchange(server, lambda _: reach, lambda port: sent % port)
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert lookups == ["rebinding.example"]


def test_explicitly_allowed_name_is_reached() -> None:
    server = Server()
    got, _ = exchange(
        server,
        lambda _: NetworkPolicy(hosts=("localhost",)),
        lambda port: b"GET http://localhost:%d HTTP/1.1\r\n\r\n" % port,
    )
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert server.received[0].startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://%s@127.0.0.1:bad/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://unlisted.example/ HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT content-autofill.googleapis.com:443 HTTP/1.1\r\n\r\n", b"403"),
    ],
)
def test_unsupported_requests_are_rejected(sent: bytes, status: bytes) -> None:
    got, _ = exchange(Server(), policy_for, lambda _: sent)
    assert got.split(b" ")[1] == status


def test_body_without_length_is_rejected() -> None:
    server = Server()
    sent = b"POST http://127.0.0.1:%d/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    got, _ = exchange(server, policy_for, lambda port: sent % port)
    assert got.startswith(b"HTTP/1.1 501 ")
    assert server.received in ([], [b""])


@pytest.mark.parametrize("answer", [b"220 mail.example ESMTP\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n"])
def test_invalid_response_is_not_forwarded(answer: bytes) -> None:
    got, _ = exchange(Server(answer), policy_for, lambda port: b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % port)
    assert got.startswith(b"HTTP/1.1 502 ")


def test_proxy_ends_while_a_client_does_not_read() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(64_000_000))
        writers.append(writer)
        await reader.read()

    async def whole(client: socket.socket) -> None:
        async with serve_upstream(flood) as origin:
            async with run_proxy(policy_for(origin.port), lambda _: None) as proxy:
                client.connect(("127.0.0.1", proxy))
                client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % origin.port)
                await wait_until_async(lambda: writers)
                pending = -1
                while pending != (size := writers[0].transport.get_write_buffer_size()):
                    pending = size
                    await run_event_loop()
                assert pending > 0
            assert client.recv(12) == b"HTTP/1.1 200"

    with socket.socket() as client:
        asyncio.run(whole(client))
