"""The transport on real sockets: complete and streamed responses, reuse, and upstream faults."""

import asyncio
import socket

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import run_event_loop
from tests.support.gateway.in_process import NO_TIMEOUT, run_async
from tests.support.servers.upstream import OK_RESPONSE, read_http_request, reply_with, serve_upstream
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import LIMIT_HEAD, Transport, TransportError, UpstreamResponse, request_head
from toolwire.upstream.tunnel import describe_os_error


async def ask(
    transport: Transport, origin: Origin, body: bytes = b"{}", silence: float = NO_TIMEOUT
) -> UpstreamResponse:
    head = request_head(origin, "/x", [("x-api-key", "k")])
    return await transport.send(origin, head, body, read_timeout=silence, connect_timeout=NO_TIMEOUT)


def test_request_is_sent_as_given() -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_http_request(reader))
        writer.write(OK_RESPONSE)

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            answer = await ask(Transport(), origin, b'{"a":1}')
            assert (answer.status, await answer.read(10)) == (200, b"ok")
            lines = seen[0].split(b"\r\n")
            assert lines[0] == b"POST /x HTTP/1.1"
            assert f"host: {origin.authority}".encode() in lines
            assert b"x-api-key: k" in lines
            assert lines[-1] == b'{"a":1}'

    run_async(work())


def test_body_arrives_in_chunks_as_sent() -> None:
    async def work() -> None:
        taken = asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            await taken.wait()
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
            await reader.read()

        async with serve_upstream(handler) as origin:
            answer = await ask(Transport(), origin)
            assert await answer.next() == b"one"
            taken.set()
            assert [piece async for piece in answer.chunks()] == [b"two"]

    run_async(work())


def test_connection_is_reused_only_after_the_response_was_read() -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reply_with(OK_RESPONSE, OK_RESPONSE, OK_RESPONSE)(reader, writer)

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()
            await (await ask(transport, origin)).read(10)
            await (await ask(transport, origin)).read(10)
            assert connections == 1
            (await ask(transport, origin)).close()  # its body was not read
            await (await ask(transport, origin)).read(10)
            assert connections == 2
            transport.close()

    run_async(work())


def test_close_ends_every_connection_and_opens_no_more() -> None:
    async def work() -> None:
        answered, left = asyncio.Event(), asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
            answered.set()
            await reader.read()
            left.set()

        async with serve_upstream(handler) as origin:
            transport = Transport()
            response = await ask(transport, origin)
            await answered.wait()
            transport.close()
            await left.wait()
            with pytest.raises(TransportError, match="closed the connection"):
                await response.read(10)
            with pytest.raises(TransportError, match="stopping"):
                await ask(transport, origin)

    run_async(work())


def test_connection_released_after_close_is_closed() -> None:
    async def work() -> None:
        left = asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(OK_RESPONSE)
            await reader.read()
            left.set()

        async with serve_upstream(handler) as origin:
            transport = Transport()
            response = await ask(transport, origin)
            transport._closed = True  # as if the connection was opened while the transport was closing
            assert await response.read(10) == b"ok"
            await left.wait()

    run_async(work())


def test_closed_idle_connection_is_not_reused() -> None:
    """The close is detected before writing, even if the event loop has not read it yet."""

    async def work() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        origin, transport, loop = Origin("http", *listener.getsockname()), Transport(), asyncio.get_running_loop()

        def serve() -> socket.socket:
            peer, _ = listener.accept()
            while b"\r\n\r\n" not in peer.recv(65536, socket.MSG_PEEK):
                pass
            peer.recv(65536)
            peer.sendall(OK_RESPONSE)
            return peer

        with listener:
            for _ in range(3):
                serving = loop.run_in_executor(None, serve)
                assert await (await ask(transport, origin)).read(10) == b"ok"
                peer = await serving
                peer.close()  # the loop does not run between this and the next request

    run_async(work())


@pytest.mark.parametrize(("server", "connections"), [("nginx", 1), ("llama.cpp", 2)])
def test_connection_of_llama_cpp_is_not_reused_after_a_stream(server: str, connections: int) -> None:
    """It closes the connection after a stream, although it announces that it stays open."""
    opened = 0
    stream = f"HTTP/1.1 200 OK\r\nserver: {server}\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while await read_http_request(reader):
            writer.write(stream.encode())

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()
            for _ in range(2):
                assert await (await ask(transport, origin)).read(10) == b"ok"
            transport.close()
        assert opened == connections

    run_async(work())


@pytest.mark.parametrize(("idle", "connections"), [(1, 1), (24, 2)])
def test_connection_is_not_reused_after_the_idle_time_of_the_server(
    clock: Clock, idle: float, connections: int
) -> None:
    """In the last second that the server announced, it may close the connection while a request arrives."""
    opened = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while await read_http_request(reader):
            writer.write(OK_RESPONSE.replace(b"\r\n", b"\r\nkeep-alive: timeout=25, max=100\r\n", 1))

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()
            for _ in range(2):
                assert await (await ask(transport, origin)).read(10) == b"ok"
                clock.advance(idle)
            transport.close()
        assert opened == connections

    run_async(work())


def test_written_request_is_not_sent_again() -> None:
    """A request on a reused connection that is closed may have had its effect."""
    requests = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_http_request(reader)
        requests += 1
        writer.write(OK_RESPONSE)
        await read_http_request(reader)  # the second request on this connection gets no byte
        requests += 1

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()
            await (await ask(transport, origin)).read(10)
            with pytest.raises(TransportError, match="closed the connection") as failed:
                await ask(transport, origin)
            assert (failed.value.sent, requests) == (True, 2)

    run_async(work())


def test_redirects_are_not_followed() -> None:
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"

    async def work() -> None:
        async with serve_upstream(reply_with(moved)) as origin:
            answer = await ask(Transport(), origin)
            assert (answer.status, answer.headers["location"]) == (307, "http://127.0.0.1:1/")

    run_async(work())


def test_informational_responses_are_skipped() -> None:
    async def work() -> None:
        async with serve_upstream(reply_with(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK_RESPONSE)) as origin:
            answer = await ask(Transport(), origin)
            assert (answer.status, "link" in answer.headers, await answer.read(10)) == (200, False, b"ok")

    run_async(work())


def test_body_without_length_ends_with_the_connection() -> None:
    async def work() -> None:
        async with serve_upstream(reply_with(b"HTTP/1.1 200 OK\r\n\r\nall of it", keep_open=False)) as origin:
            assert await (await ask(Transport(), origin)).read(100) == b"all of it"

    run_async(work())


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FAULTS = {
    "closed at once": (reply_with(b"", keep_open=False), "closed the connection", True),
    "cut in the head": (reply_with(b"HTTP/1.1 200 OK\r\ncont", keep_open=False), "closed the connection", True),
    "cut in the body": (reply_with(OK_RESPONSE[:-1], keep_open=False), "closed the connection", True),
    "cut in a chunk": (
        reply_with(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", keep_open=False),
        "closed the connection",
        True,
    ),
    "garbage": (reply_with(b"\x00\xff nonsense\r\n\r\n"), "sent invalid HTTP", True),
    "two lengths": (
        reply_with(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok"),
        "sent invalid HTTP",
        True,
    ),
    "endless head": (reply_with(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * LIMIT_HEAD), "of headers", True),
    "endless trailers": (reply_with(CHUNKED + b"0\r\n" + b"a: \r\n" * LIMIT_HEAD), "of headers", True),
    "one endless trailer": (reply_with(CHUNKED + b"0\r\na: " + b"x" * 2 * 1024 * 1024), "of headers", True),
    "another transfer coding": (
        reply_with(CHUNKED.replace(b"transfer", b"transfer-encoding: gzip\r\ntransfer") + b"2\r\nok\r\n0\r\n\r\n"),
        "a transfer-encoding other than chunked",
        True,
    ),
    "an answer behind a refused one": (
        reply_with(CHUNKED.replace(b"chunked", b"gzip, chunked") + b"2\r\nno\r\n0\r\n\r\n" + OK_RESPONSE),
        "a transfer-encoding other than chunked",
        True,
    ),
    "switching protocols": (
        reply_with(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc"),
        "status 101",
        True,
    ),
    "switching to nothing": (reply_with(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), "status 101", True),
    "status 000": (reply_with(b"HTTP/1.1 000 Nothing\r\ncontent-length: 2\r\n\r\nok"), "status 000", True),
    "silent": (reply_with(b"HTTP/1.1 200 OK\r\n"), "sent nothing for 60 seconds", True),
    "silent in the body": (reply_with(OK_RESPONSE[:-1]), "sent nothing for 60 seconds", True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_upstream_faults_raise_transport_error(name: str, clock: Clock) -> None:
    handler, message, sent = FAULTS[name]

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()

            async def read() -> bytes:
                return await (await ask(transport, origin, silence=60)).read(100)

            with pytest.raises(TransportError, match=message) as failed:
                await (clock.advance_until_done(read()) if name.startswith("silent") else read())
            assert failed.value.sent is sent
            assert failed.value.timed_out is name.startswith("silent")

    run_async(work())


def test_repeated_headers_are_joined() -> None:
    async def work() -> None:
        async with serve_upstream(
            reply_with(OK_RESPONSE.replace(b"\r\n\r\n", b"\r\nx: a\r\nX: b\r\nx: c\r\n\r\n"))
        ) as origin:
            assert (await ask(Transport(), origin)).headers["x"] == "a, b, c"

    run_async(work())


def test_trailers_are_dropped() -> None:
    async def work() -> None:
        trailed = CHUNKED + b"2\r\nok\r\n0\r\ncontent-encoding: gzip\r\nx-more: 1\r\n\r\n"
        async with serve_upstream(reply_with(trailed)) as origin:
            answer = await ask(Transport(), origin)
            assert await answer.read(10) == b"ok"
            assert answer.headers == {"transfer-encoding": "chunked"}

    run_async(work())


@pytest.mark.parametrize("more", [b"HTTP/1.", OK_RESPONSE, OK_RESPONSE.replace(b"200", b"500") * 2, b"x"])
def test_connection_with_extra_bytes_is_not_reused(more: bytes) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reply_with(OK_RESPONSE + more, OK_RESPONSE)(reader, writer)

    async def work() -> None:
        async with serve_upstream(handler) as origin:
            transport = Transport()
            for _ in range(2):
                answer = await ask(transport, origin)
                assert (answer.status, await answer.read(10)) == (200, b"ok")
            assert connections == 2

    run_async(work())


def test_any_three_digit_status_is_accepted() -> None:
    async def work() -> None:
        async with serve_upstream(reply_with(OK_RESPONSE.replace(b"200", b"999"))) as origin:
            assert (await ask(Transport(), origin)).status == 999

    run_async(work())


def test_connection_refused_is_reported_as_not_sent() -> None:
    async def work() -> None:
        async with serve_upstream(reply_with(OK_RESPONSE)) as origin:
            pass
        with pytest.raises(TransportError, match=r"can't connect to .*: connection refused$") as failed:
            await ask(Transport(), origin)
        assert failed.value.sent is False

    run_async(work())


def test_refusal_of_every_address_of_a_name_is_described_once() -> None:
    refused = "[Errno 111] Connect call failed ('{}', 9)"
    both = OSError(f"Multiple exceptions: {refused.format('::1')}, {refused.format('127.0.0.1')}")
    assert describe_os_error(both) == "connection refused"
    assert describe_os_error(OSError("something else")) == "something else"


def test_response_over_the_limit_is_not_read_to_the_end() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def work() -> None:
        async with serve_upstream(endless) as origin:
            with pytest.raises(TransportError, match="longer than 1000000 bytes"):
                await (await ask(Transport(), origin)).read(1_000_000)

    run_async(work())


def test_slow_reader_causes_backpressure() -> None:
    sent = 0

    async def fast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_http_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def work() -> None:
        async with serve_upstream(fast) as origin:
            answer = await ask(Transport(), origin)
            before = -1
            while sent > before:  # until all buffers in between are full
                before = sent
                await run_event_loop()
            assert sent < 30_000_000  # after socket buffers and ours are full, it has to wait
            assert await answer.next()
            answer.close()

    run_async(work())


def test_cancellation_closes_the_connection() -> None:
    async def work() -> None:
        begun, left = asyncio.Event(), asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            begun.set()
            await reader.read()
            left.set()

        async with serve_upstream(handler) as origin:
            task = asyncio.create_task(ask(Transport(), origin))
            await begun.wait()
            task.cancel()
            await left.wait()
            with pytest.raises(asyncio.CancelledError):
                await task

    run_async(work())


def test_broken_connection_does_not_affect_the_next_request() -> None:
    async def work() -> None:
        broken = iter([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", OK_RESPONSE])

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(next(broken))

        async with serve_upstream(handler) as origin:
            transport = Transport()
            with pytest.raises(TransportError):
                await (await ask(transport, origin)).read(10)
            assert await (await ask(transport, origin)).read(10) == b"ok"

    run_async(work())


@pytest.mark.parametrize("header", [("x", "a\r\nb: c"), ("x\n", "a")])
def test_header_with_line_break_is_never_sent(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        request_head(Origin("http", "127.0.0.1", 1), "/x", [header])
