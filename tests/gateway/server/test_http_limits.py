"""HTTP connections: hostile and stalled clients are bounded, and get a response where possible."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import websockets.asyncio.client
import websockets.version
from msgspec import Struct

from tests.support.gateway.in_process import SERVER_KEY_CONFIG, one_provider_config, question_request, run_gateway
from tests.support.gateway.process import MESSAGES_REQUEST, serve_process
from tests.support.servers.asgi import QuickServer, echo_app, read_request_body, send_response
from tests.support.servers.http_responses import SSE_HEAD, transfer_chunk
from tests.support.servers.upstream import OK_RESPONSE, read_http_request, reply_with, serve_upstream
from toolwire.gateway.config import LimitsSection, parse_config
from toolwire.gateway.providers.discovery import open_listener
from toolwire.gateway.server import http as server_side
from toolwire.gateway.server.gateway import build_gateway
from toolwire.gateway.server.http import StallTimer, uvicorn_options
from toolwire.gateway.server.launch import serve_gateway

Application = Callable[[Any, Any, Any], Awaitable[None]]
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]

UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
CHUNKED = b"POST /x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def run(work: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(120):
            await work

    asyncio.run(whole())


class Listener(Struct):
    server: uvicorn.Server
    address: tuple[str, int]

    async def connect(self, room: int | None = None) -> Wire:
        """Open a connection; `room` is the size of the client's receive buffer."""
        client = socket.socket()
        if room is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, self.address)
        return await asyncio.open_connection(sock=client, limit=2**16)

    async def respond_to(self, *packets: bytes) -> bytes:
        """Send each packet after the previous one was read, and return everything until the server closes."""
        reader, writer = await self.connect()
        for packet in packets:
            writer.write(packet)
            await writer.drain()
            await asyncio.sleep(0.01)  # so that packets mostly stay separate
        received = await reader.read()
        writer.close()
        return received


@asynccontextmanager
async def serve(application: Application, limits: LimitsSection | None = None) -> AsyncIterator[Listener]:
    listener = open_listener("127.0.0.1", 0)
    server = QuickServer(uvicorn.Config(application, **uvicorn_options(limits or LimitsSection())))
    serving_task = asyncio.create_task(server._serve([listener]))
    try:
        yield Listener(server, listener.getsockname())
    finally:
        server.should_exit = True
        await serving_task


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody is notified
        await asyncio.sleep(0.01)


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    await send_response(send, b"no", 401)


async def never_respond(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


# ---- trailers


def test_key_in_a_trailer_is_ignored() -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(OK_RESPONSE)) as origin,
            run_gateway(one_provider_config(origin, extra_config=SERVER_KEY_CONFIG)) as gateway,
        ):
            reader, writer = await asyncio.open_connection(gateway.origin.host, gateway.origin.port)
            head = CHUNKED.replace(b"/x", b"/v1/models").replace(b"POST", b"GET")
            writer.write(head + b"0\r\nx-api-key: the-server-key-1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
            writer.close()

    run(work())


def test_trailers_do_not_reach_the_application() -> None:
    scopes: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body = await read_request_body(receive)
        scopes.extend(scope["headers"])
        await send_response(send, body)

    async def work() -> None:
        async with serve(application) as server:
            trailed = CHUNKED + b"2\r\nok\r\n0\r\nx-api-key: k\r\nhost: evil.example\r\n\r\n"
            received = await server.respond_to(trailed, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert received.count(b"HTTP/1.1 200 OK") == 2
        assert scopes[:2] == [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
        assert (b"x-api-key", b"k") not in scopes

    run(work())


@pytest.mark.parametrize("line", [b"a: \r\n", b"x"], ids=["many", "one"])
@pytest.mark.parametrize("application", [refuse, echo_app], ids=["answered", "unanswered"])
def test_endless_trailers_close_the_connection(application: Application, line: bytes) -> None:
    async def work() -> None:
        async with serve(application) as server:
            reader, writer = await server.connect()
            writer.write(CHUNKED + b"0\r\n" + (b"" if line.endswith(b"\n") else b"a: "))
            if application is refuse:
                await reader.readuntil(b"no")
            writer.write(line * (2 * 1024 * 1024 // len(line)))
            received = await reader.read()
            expected = b"" if application is refuse else b"HTTP/1.1 431 "
            assert received[: len(b"HTTP/1.1 431 ")] == expected
            writer.close()

    run(work())


# ---- found by fuzzing


@pytest.mark.parametrize(
    "packet",
    [
        b"GET /x\r\n\r\n",
        b"GET /x HTTP/0.9\r\n\r\n",
        b"GET /x HTTP/2.0\r\n\r\n",
        CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
        CHUNKED.replace(b"transfer", b"transfer-encoding: gzip\r\ntransfer") + b"0\r\n\r\n",
    ],
)
def test_unsupported_versions_and_transfer_codings_are_refused(packet: bytes) -> None:
    async def work() -> None:
        async with serve(echo_app) as server:
            assert (await server.respond_to(packet)).startswith(b"HTTP/1.1 400 ")

    run(work())


def test_invalid_websocket_text_before_a_close_does_not_crash() -> None:
    """uvicorn tries to close with 1007 after websockets has already closed."""
    crashes: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: crashes.append(context))
        async with serve(application) as server:
            reader, writer = await server.connect()
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x81\x82abcd\x9e\x9c" + b"\x88\x80abcd")
            await reader.read()
            writer.close()

    run(work())
    assert crashes == []


# ---- upgrades


@pytest.mark.parametrize("split", [False, True], ids=["one packet", "two packets"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("protocol", [b"h2c", b"foo", b"websocket, h2c"])
def test_other_upgrades_are_ignored_and_the_body_is_kept(protocol: bytes, framing: str, *, split: bool) -> None:
    """Java's HttpClient sends `Upgrade: h2c` with every request; a body that looks like a request is not one."""
    smuggled = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
    length = b"content-length: %d" % len(smuggled)
    body = smuggled
    if framing == "chunks":
        length, body = b"transfer-encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(smuggled), smuggled)
    head = b"POST /a HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\n%b\r\n\r\n"
    head %= (protocol, length)
    last = b"POST /b HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n\r\nend"

    async def work() -> None:
        async with serve(echo_app) as server:
            packets = [head, body, last] if split else [head + body + last]
            received = await server.respond_to(*packets)
            assert received.count(b"HTTP/1.1 ") == 2
            assert received.partition(b"\r\n\r\n")[2].startswith(smuggled + b"HTTP/1.1 200 OK\r\n")
            assert received.endswith(b"\r\n\r\nend")

    run(work())


def test_upgrades_in_one_packet_are_separate_requests() -> None:
    upgrade_request = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"

    async def work() -> None:
        async with serve(echo_app) as server:
            received = await server.respond_to(upgrade_request * 3000 + b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert received.count(b"HTTP/1.1 200 OK") == 3001

    run(work())


def test_invalid_request_after_an_upgrade_is_refused() -> None:
    async def work() -> None:
        async with serve(echo_app) as server:
            bad = b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            assert (await server.respond_to(bad)).startswith(b"HTTP/1.1 400 ")

    run(work())


# ---- websocket handshakes

# Older versions of websockets answer every bad handshake with 400.
HAS_STATUSES = int(websockets.version.version.partition(".")[0]) >= 17
HANDSHAKES = {
    "a length": (UPGRADE + b"content-length: 40\r\n\r\n", b"400"),
    "a length and its body": (UPGRADE + b"content-length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"400"),
    "chunks": (UPGRADE + b"transfer-encoding: chunked\r\n\r\n", b"400"),
    "many headers": (UPGRADE + b"x: y\r\n" * 200 + b"\r\n", b"431" if HAS_STATUSES else b"400"),
    "a long header": (UPGRADE + b"x: " + b"y" * 9000 + b"\r\n\r\n", b"431" if HAS_STATUSES else b"400"),
    "a long address": (
        UPGRADE.replace(b"responses", b"responses?" + b"y" * 9000) + b"\r\n",
        b"414" if HAS_STATUSES else b"400",
    ),
    "another method": (UPGRADE.replace(b"GET", b"POST") + b"\r\n", b"405" if HAS_STATUSES else b"400"),
    "no key": (UPGRADE.replace(b"sec-websocket-key", b"x") + b"\r\n", b"400"),
    "a frame before the answer": (UPGRADE + b"\r\n\x81\x80abcd", b"400"),
    "another request before it": (b"GET /a HTTP/1.1\r\n\r\n" + UPGRADE + b"\r\n", b""),
    "a tunnel": (b"CONNECT /x HTTP/1.1\r\nhost: x\r\n\r\n", b"501"),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_every_bad_handshake_is_answered_and_closed(name: str) -> None:
    packet, status = HANDSHAKES[name]

    async def work() -> None:
        async with serve(never_respond) as server:
            received = await server.respond_to(packet)
            assert received.split(b" ")[1:2] == ([status] if status else [])
            assert received.count(b"HTTP/1.1 ") <= 1
            await wait_until(lambda: not server.server.server_state.connections)

    run(work())


def test_unanswered_handshake_times_out() -> None:
    async def work() -> None:
        async with serve(never_respond, LimitsSection(receive=0.2)) as server:
            assert (await server.respond_to(UPGRADE + b"\r\n")).startswith(b"HTTP/1.1 408 ")
            server.server.force_exit = True  # the application keeps waiting

    run(work())


def test_shutdown_during_a_handshake() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        started.set()
        if scope["type"] == "http":
            await release.wait()
            await send_response(send, b"done")
        else:
            await receive()

    async def work() -> None:
        async with serve(application) as server:
            reader, writer = await server.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await started.wait()
            started.clear()
            handshake, other = await server.connect()
            other.write(UPGRADE + b"\r\n")
            await started.wait()
            server.server.should_exit = True
            assert (await handshake.read()).startswith(b"HTTP/1.1 503 ")
            release.set()
            assert (await reader.read()).endswith(b"done")
            writer.close()
            other.close()

    run(work())


def test_shutdown_during_a_websocket_close() -> None:
    """The client has sent a close frame and reads nothing: websockets would raise InvalidState on another close."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(64):
            await send({"type": "websocket.send", "bytes": bytes(1_000_000)})

    async def work() -> None:
        async with serve(application, LimitsSection(send=2)) as server:
            reader, writer = await server.connect(room=4096)
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            (websocket,) = server.server.server_state.connections
            await wait_until(lambda: websocket.transport.get_write_buffer_size() > 0)
            writer.write(b"\x88\x80abcd")
            await wait_until(websocket.transport.is_closing)
            websocket.shutdown()
            writer.close()

    run(work())


def test_sigterm_drains_streams_despite_rejected_handshakes(tmp_path: Path) -> None:
    with serve_process(tmp_path) as (process, root):
        address = httpx.URL(root)
        connections = []
        for packet, _ in HANDSHAKES.values():
            connections.append(socket.create_connection((address.host, address.port or 0), timeout=60))
            connections[-1].sendall(packet)
        with httpx.stream(
            "POST", f"{root}/v1/messages", json={**MESSAGES_REQUEST, "stream": True}, timeout=60
        ) as streamed:
            lines = streamed.iter_lines()
            assert next(lines) == "event: message_start"
            process.send_signal(signal.SIGTERM)
            assert "event: message_stop" in list(lines)
        assert process.wait(60) == 0
        for one in connections:
            one.close()


def test_failing_server_still_closes_the_application(tmp_path: Path) -> None:
    config = parse_config(f'[journal]\nenabled = true\npath = "{tmp_path / "j.db"}"', {})
    gateway = build_gateway(config, environment={"HOME": str(tmp_path)})
    listener = open_listener("127.0.0.1", 0)
    listener.close()
    thresholds = gc.get_threshold()
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            asyncio.run(serve_gateway(gateway, [listener]))
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    recorder = gateway.app._recorder
    assert recorder is not None
    assert recorder.journal._closed


# ---- clients that do not read


class Endless:
    """An upstream that streams while it is read; `left` is set when the reader disconnects."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        text = "x" * 60_000
        delta = f'data: {{"id":"c","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'.encode()
        writer.write(SSE_HEAD)
        try:
            while True:
                writer.write(transfer_chunk(delta))
                await writer.drain()
        except ConnectionError:
            self.left.set()


SHORT_SEND = "[limits]\nsend = 0.3\nstreams = 1\nretries = 0"


def test_unread_stream_is_aborted() -> None:
    async def work() -> None:
        endless = Endless()
        async with (
            serve_upstream(endless) as origin,
            run_gateway(one_provider_config(origin, extra_config=SHORT_SEND)) as gateway,
        ):
            path, body = question_request("openai-chat", stream=True)
            client = Listener(None, (gateway.origin.host, gateway.origin.port))  # type: ignore[arg-type]
            reader, writer = await client.connect(room=4096)
            writer.write(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await endless.left.wait()
            await wait_until(lambda: gateway.gateway.app._stream_quota.used == 0)
            writer.close()

    run(work())


def test_unread_websocket_is_aborted() -> None:
    async def work() -> None:
        endless = Endless()
        async with (
            serve_upstream(endless) as origin,
            run_gateway(one_provider_config(origin, extra_config=SHORT_SEND)) as gateway,
        ):
            url = f"ws://{gateway.origin.authority}/v1/responses"
            async with websockets.asyncio.client.connect(url, max_queue=1, ping_interval=None, close_timeout=0.1) as ws:
                await ws.send('{"type":"response.create","model":"m","input":"x"}')
                await endless.left.wait()

    run(work())


def test_unread_buffered_response_is_aborted() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send_response(send, bytes(50_000_000))

    async def work() -> None:
        async with serve(application, LimitsSection(send=0.3)) as server:
            reader, writer = await server.connect(room=4096)
            writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            await reader.readline()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await wait_until(lambda: not server.server.server_state.connections)
            writer.close()

    run(work())


def test_pongs_do_not_accumulate() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(20_000_000)})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def work() -> None:
        async with serve(application) as server:
            reader, writer = await server.connect(room=4096)
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            (websocket,) = server.server.server_state.connections
            await wait_until(lambda: websocket.transport.get_write_buffer_size() > 0)
            before = websocket.transport.get_write_buffer_size()
            ping = b"\x89\xfd" + os.urandom(4) + bytes(125)
            for _ in range(100):
                writer.write(ping * 1000)
                await writer.drain()
            writer.write(b"\x88\x80abcd")
            await wait_until(websocket.transport.is_closing)
            assert websocket.transport.get_write_buffer_size() <= before + 1000
            websocket.transport.abort()
            writer.close()

    run(work())


class Buffer(asyncio.Transport):
    size = 0

    def get_write_buffer_size(self) -> int:
        return self.size


def test_slow_client_is_not_aborted() -> None:
    buffer = Buffer()
    stall = StallTimer(buffer, 60)
    assert stall.seconds_left(1000) == 60
    buffer.size = 500
    assert stall.seconds_left(1100) == 60
    assert stall.seconds_left(1150) == 10
    buffer.size = 499  # it accepted one byte
    assert stall.seconds_left(1159) == 60
    assert stall.seconds_left(1219) == 0
    buffer.size = 0
    assert stall.seconds_left(9999) == 60


# ---- unread bodies


def test_refused_request_without_its_body_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed open for 75 s."""
    assert server_side.LINGER_SECONDS <= 5
    monkeypatch.setattr(server_side, "LINGER_SECONDS", 0.2)

    async def work() -> None:
        async with serve(refuse) as server:
            received = await server.respond_to(b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\nabc")
            assert received.endswith(b"\r\n\r\nno")

    run(work())


def test_refused_request_with_its_body_keeps_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "LINGER_SECONDS", 0.05)

    async def work() -> None:
        async with serve(refuse) as server:
            reader, writer = await server.connect()
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\nabcdef")
            await reader.readuntil(b"no")
            await asyncio.sleep(0.2)  # longer than the linger
            writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
            writer.close()

    run(work())


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 99000000\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ],
    ids=["refused", "invalid"],
)
def test_response_is_not_reset_while_the_client_still_sends(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "LINGER_SECONDS", 60)

    async def work() -> None:
        async with serve(refuse) as server:
            reader, writer = await server.connect()
            writer.write(head + bytes(100_000))
            assert (await reader.read()).startswith(b"HTTP/1.1 40")  # the server has ended its side
            for _ in range(50):
                writer.write(bytes(100_000))
                await writer.drain()
            writer.close()
            await wait_until(lambda: not server.server.server_state.connections)

    run(work())
