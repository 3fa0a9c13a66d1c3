"""HTTP connections: buffered writes arrive in order, and nothing is lost at the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from tests.support.clock import Clock
from tests.support.deadlines import run_event_loop
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.asgi import echo_app, read_request_body, send_response
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.providers.discovery import open_listener
from toolwire.gateway.server.http import LIMIT_BUFFERED_BODY, uvicorn_options
from toolwire.upstream.provider import Origin

Application = Callable[[Any, Any, Any], Awaitable[None]]
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected_to(application: Application, **more: Any) -> AsyncIterator[Wire]:
    """Connect to a server of this application; the server is stopped as by a signal."""
    listener = open_listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application, **uvicorn_options(LimitsSection()) | more))
    serving = asyncio.create_task(server._serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving


async def respond_in_chunks(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one ", b"two ", b"", b"three"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def exchange_bytes(wire: Wire, request_line: bytes) -> bytes:
    """Return everything received until the server closes."""
    wire[1].write(request_line)
    return await wire[0].read()


CLOSING = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def test_chunks_arrive_in_order_before_the_end() -> None:
    async def work() -> None:
        async with connected_to(respond_in_chunks) as wire:
            head, _, body = (await exchange_bytes(wire, CLOSING)).partition(b"\r\n\r\n")
        assert head.split(b"\r\n") == [b"HTTP/1.1 200 OK", b"connection: close", b"transfer-encoding: chunked"]
        assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"

    run_async(work())


def test_http_1_0_client_gets_an_unchunked_body() -> None:
    async def work() -> None:
        async with connected_to(respond_in_chunks) as wire:
            head, _, body = (await exchange_bytes(wire, b"GET / HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body == b"one two three"

    run_async(work())


def test_head_request_gets_no_body() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send_response(send, b"12345")

    async def work() -> None:
        async with connected_to(application) as wire:
            received = await exchange_bytes(wire, CLOSING.replace(b"GET", b"HEAD"))
        assert received == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"

    run_async(work())


def test_body_in_many_packets_is_received_completely() -> None:
    body_bytes = bytes(range(256)) * (LIMIT_BUFFERED_BODY // 64)

    async def work() -> None:
        async with connected_to(echo_app) as wire:
            head = b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body_bytes)
            received = await exchange_bytes(wire, head + body_bytes)
        assert received.partition(b"\r\n\r\n")[2] == body_bytes

    run_async(work())


def test_expect_100_continue_is_answered() -> None:
    async def work() -> None:
        async with connected_to(echo_app) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"ok")
            assert await reader.readuntil(b"\r\n\r\nok") == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    run_async(work())


def test_body_data_after_the_response_is_dropped() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send_response(send, scope["path"].encode())

    async def work() -> None:
        async with connected_to(application) as (reader, writer):
            writer.write(b"POST /a HTTP/1.1\r\ncontent-length: 6\r\n\r\nabc")
            await reader.readuntil(b"/a")
            writer.write(b"def" + b"GET /b HTTP/1.1\r\n\r\n")
            assert await reader.readuntil(b"/b") == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n/b"

    run_async(work())


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
def test_header_with_a_line_break_is_not_sent(value: bytes) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send_response(send, b"ok", 200, (b"x", value))

    async def work() -> None:
        async with connected_to(application) as wire:
            received = await exchange_bytes(wire, CLOSING)
        assert received.startswith(b"HTTP/1.1 500 ")
        assert value not in received

    run_async(work())


@pytest.mark.parametrize("body", [b"short", b"much too long"])
def test_content_length_mismatch_closes_the_connection(body: bytes) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": body})

    async def work() -> None:
        async with connected_to(application) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()  # it has an end

    run_async(work())


def test_idle_connection_is_closed_and_a_busy_one_is_not(clock: Clock) -> None:
    async def work() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            started.set()
            await go_on.wait()
            await send_response(send, b"done")

        async with connected_to(slow, timeout_keep_alive=100) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await started.wait()
            for _ in range(10):
                clock.advance(100)
                await run_event_loop()
            go_on.set()
            await reader.readuntil(b"done")
            reading = asyncio.create_task(reader.read())
            await run_event_loop()
            assert not reading.done()
            assert await clock.advance_until_done(reading) == b""

    run_async(work())


def test_disconnect_reaches_every_pipelined_request() -> None:
    async def work() -> None:
        disconnected_paths: list[str] = []
        started, noticed = asyncio.Event(), asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await read_request_body(receive)
            started.set()
            assert (await receive())["type"] == "http.disconnect"
            disconnected_paths.append(scope["path"])
            noticed.set()

        async with connected_to(application) as (_, writer):
            writer.write(b"GET /a HTTP/1.1\r\n\r\n")
            await started.wait()
            writer.write(b"GET /b HTTP/1.1\r\n\r\n")
            await run_event_loop()
            assert disconnected_paths == []
            writer.transport.abort()
            await noticed.wait()
            await run_event_loop()
            assert disconnected_paths == ["/a"]  # they do not wait for each other

    run_async(work())


def test_shutdown_serves_requests_already_received() -> None:
    async def work() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            started.set()
            await go_on.wait()
            await send_response(send, b"done")

        listener = open_listener("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(slow, **uvicorn_options(LimitsSection())))
        serving = asyncio.create_task(server._serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        idle, other = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await started.wait()
        server.should_exit = True
        assert await idle.read() == b""
        go_on.set()
        assert (await reader.read()).endswith(b"\r\n\r\ndone")
        await serving
        writer.close()
        other.close()

    run_async(work())


def test_connection_close_completes_earlier_responses() -> None:
    async def work() -> None:
        async with connected_to(echo_app) as wire:
            received = await exchange_bytes(wire, b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\none" + CLOSING)
        assert received.count(b"HTTP/1.1 200 OK") == 2
        assert b"\r\n\r\none" in received

    run_async(work())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def work() -> None:
        async with run_gateway(one_provider_config(Origin("http", "127.0.0.1", 9))) as gateway:
            reader, writer = await asyncio.open_connection(gateway.origin.host, gateway.origin.port)
            request_line = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
            writer.write(request_line % b"/healthz" + request_line % b"/nowhere" + request_line % b"/healthz")
            heads = [await reader.readuntil(b"\r\n\r\n")]
            for _ in range(2):
                length = int(heads[-1].partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(length)
                heads.append(await reader.readuntil(b"\r\n\r\n"))
            assert [head.split()[1] for head in heads] == [b"200", b"404", b"200"]
            writer.close()

    run_async(work())
