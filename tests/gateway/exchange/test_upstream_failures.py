"""Upstreams that refuse, reset, stall, cut or never end, and clients that disconnect, in every client protocol.

The client gets an error in its protocol, and a stream that has started ends with that protocol's error event: never a
false success.
"""

import asyncio

import pytest

from tests.support.clock import Clock
from tests.support.codecs import decode_error, decode_events
from tests.support.deadlines import run_event_loop
from tests.support.gateway.in_process import (
    NO_TIMEOUT,
    PROTOCOL_NAMES,
    RunningGateway,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.servers.http_responses import (
    CHAT_BODY_WITHOUT_USAGE,
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import Handler, read_http_request, reply_with, serve_upstream
from toolwire.canonical.events import ResponseEnd, ResponseFailed

HTML = b"<html><body>Bad gateway</body></html>"
MOVED = "location: http://127.0.0.1:9/\r\n"
BEFORE: dict[str, tuple[Handler, int, str]] = {
    "reset": (reply_with(b"", keep_open=False), 502, "closed the connection"),
    "garbage": (reply_with(b"\x00\x01\x02\r\n\r\n", keep_open=False), 502, "sent invalid HTTP"),
    "stalled": (reply_with(b""), 504, "sent nothing"),
    "html for success": (reply_with(http_response("200 OK", HTML, "text/html")), 502, ""),
    "empty success": (reply_with(http_response("200 OK", b"")), 502, ""),
    "truncated": (
        reply_with(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", keep_open=False),
        502,
        "closed the connection",
    ),
    "cut json": (reply_with(http_response("200 OK", b'{"id":"x","choices":[')), 502, ""),
    "html error": (reply_with(http_response("502 Bad Gateway", HTML, "text/html")), 502, "responded with status 502"),
    "redirect": (reply_with(http_response("307 Temporary Redirect", b"", headers=MOVED)), 502, "redirect"),
    "server error": (reply_with(http_response("500 Oh", openai_error_body("went wrong"))), 500, "went wrong"),
    "bad request": (
        reply_with(http_response("400 Bad", openai_error_body("no good", "invalid_request_error"))),
        400,
        "no good",
    ),
    "status 600": (reply_with(http_response("600 What", openai_error_body("walled off"))), 502, "walled off"),
    "status 999": (
        reply_with(http_response("999 Request denied", HTML, "text/html")),
        502,
        "responded with status 999",
    ),
    "bad key": (
        reply_with(http_response("401 No", openai_error_body("invalid x-api-key upstream-secret-key", "x"))),
        401,
        "rejected the configured API key: invalid API key",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", BEFORE)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_early_failure_is_an_error_in_the_clients_protocol(
    protocol: str, fault: str, stream: bool, clock: Clock
) -> None:
    handler, status, message = BEFORE[fault]

    async def work() -> None:
        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0\nheartbeat = 3600")) as gateway,
        ):
            asking = gateway.send_question(protocol, stream=stream)
            response = await (clock.advance_until_done(asking) if fault == "stalled" else asking)
            body = await response.read(100_000)
            assert response.status == status, body
            error = decode_error(protocol, status, body)
            assert message in error.message
            assert "upstream-secret-key" not in body.decode()
            assert (response.headers.get("x-should-retry") == "false") == (status == 401)
            assert response.headers["toolwire-exchange"].startswith("ex_")

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", ["200 OK", "299 Odd"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_error_with_a_success_status_becomes_502(protocol: str, status: str, *, stream: bool) -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response(status, openai_error_body("went wrong")))) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            response = await gateway.send_question(protocol, stream=stream)
            assert response.status == 502
            assert decode_error(protocol, 502, await response.read(10_000)).message.startswith("went wrong")

    run_async(work())


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted", "299 Odd"])
def test_any_success_status_may_carry_a_response(status: str) -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response(status, CHAT_BODY_WITHOUT_USAGE))) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            response = await gateway.send_question("anthropic")
            assert response.status == 200
            assert b"fine" in await response.read(10_000)

    run_async(work())


@pytest.mark.parametrize(
    ("upstream_bytes", "expected"),
    [
        ("12345678", "12345678"),
        ("12345678.2", "12345679"),
        ("0.2", "1"),
        ("1e300", "2147483647"),
        ("inf", None),
        ("nan", None),
        ("soon", None),
    ],
)
def test_retry_after_is_an_integer(upstream_bytes: str, expected: str | None) -> None:
    async def work() -> None:
        busy = http_response("429 Busy", openai_error_body("busy"), headers=f"retry-after: {upstream_bytes}\r\n")
        async with (
            serve_upstream(reply_with(busy)) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            response = await gateway.send_question("openai-chat")
            assert (response.status, response.headers.get("retry-after")) == (429, expected)

    run_async(work())


def cut_after(*pieces: bytes, keep: bool = False) -> Handler:
    return reply_with(SSE_HEAD + b"".join(map(transfer_chunk, pieces)), keep_open=keep)


DURING: dict[str, tuple[Handler, str]] = {
    "cut": (cut_after(STREAM_START), "closed the connection"),
    "ended without an end": (reply_with(SSE_HEAD + transfer_chunk(STREAM_START) + b"0\r\n\r\n"), "ended before"),
    "stalled": (cut_after(STREAM_START, keep=True), "sent nothing"),
    "garbage": (
        reply_with(SSE_HEAD + transfer_chunk(STREAM_START) + b"zz\r\n", keep_open=False),
        "sent invalid HTTP",
    ),
    "bad frame": (reply_with(SSE_HEAD + transfer_chunk(STREAM_START + b"data: {nonsense\n\n") + b"0\r\n\r\n"), ""),
    "error event": (
        reply_with(
            SSE_HEAD
            + transfer_chunk(STREAM_START + b"data: " + openai_error_body("overheated") + b"\n\n")
            + b"0\r\n\r\n"
        ),
        "overheated",
    ),
}


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a response slowly, a few bytes at a time."""
    request_body = await read_http_request(reader)
    streamed = b'"stream":true' in request_body.replace(b" ", b"")
    ended = STREAM_START + chat_sse_event({}, "stop") + b"data: [DONE]\n\n"
    response = (
        SSE_HEAD + transfer_chunk(ended) + b"0\r\n\r\n"
        if streamed
        else http_response("200 OK", CHAT_BODY_WITHOUT_USAGE)
    )
    for start in range(0, len(response), 7):
        writer.write(response[start : start + 7])
        await asyncio.sleep(0)
    writer.write(b"")
    await reader.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_slow_upstream_is_awaited(protocol: str, stream: bool) -> None:
    async def work() -> None:
        async with serve_upstream(drip) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.send_question(protocol, stream=stream)
            wire = await response.read(100_000)
            assert response.status == 200
            if stream:
                assert b"sunny" in wire
                assert isinstance(decode_events(protocol, wire)[-1], ResponseEnd)
            else:
                assert b"fine" in wire

    run_async(work())


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: " + b"x" * 10_000 + b"\r\n")
        await writer.drain()


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(transfer_chunk(b" " * 10_000))
        await writer.drain()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("fault", "message"), [(endless_head, "of headers"), (endless_body, "longer than")])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_endless_upstream_is_given_up(protocol: str, fault: Handler, message: str, stream: bool) -> None:
    async def work() -> None:
        more = "[limits]\nretries = 0\nanswer = 100000"
        async with (
            serve_upstream(fault) as origin,
            run_gateway(one_provider_config(origin, extra_config=more)) as gateway,
        ):
            response = await gateway.send_question(protocol, stream=stream)
            assert response.status == 502
            assert message in decode_error(protocol, 502, await response.read(10_000)).message

    run_async(work())


@pytest.mark.parametrize("fault", DURING)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_failure_within_a_stream_ends_with_the_protocols_error(protocol: str, fault: str, clock: Clock) -> None:
    handler, message = DURING[fault]

    async def work() -> None:
        async with serve_upstream(handler) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.send_question(protocol, stream=True)
            assert response.status == 200
            reading = response.read(100_000)
            wire = await (clock.advance_until_done(reading) if fault == "stalled" else reading)
            events = decode_events(protocol, wire)
            assert b"sunny" in wire
            assert not any(isinstance(event, ResponseEnd) for event in events)
            (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
            assert not failed.broken, "the client's stream itself is whole"
            assert message in failed.error.message

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("when", ["before the answer", "within the stream", "not streaming"])
def test_upstream_is_closed_when_the_client_disconnects(protocol: str, when: str) -> None:
    async def work() -> None:
        started, disconnected = asyncio.Event(), asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            started.set()
            if when == "within the stream":
                writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            await reader.read()
            disconnected.set()

        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, timeout=NO_TIMEOUT)) as gateway,
        ):
            asking = asyncio.create_task(gateway.send_question(protocol, stream=when != "not streaming"))
            if when == "within the stream":
                response = await asking
                assert await response.next()
                response.close()
            else:
                await started.wait()
                asking.cancel()
            await disconnected.wait()

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_slow_client_applies_backpressure(protocol: str) -> None:
    async def work() -> None:
        received = 0

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received
            await read_http_request(reader)
            writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            while True:
                data = transfer_chunk(chat_sse_event({"content": "x" * 10_000}))
                writer.write(data)
                await writer.drain()
                received += len(data)

        async with serve_upstream(endless) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.send_question(protocol, stream=True)
            assert await response.next()
            before = -1
            while received > before:  # until all buffers in between are full
                before = received
                await run_event_loop()
            assert received < 50_000_000
            assert await response.next()
            response.close()

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_failure_does_not_affect_the_next_request(protocol: str) -> None:
    async def work() -> None:
        responses = iter(
            [b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nab", http_response("200 OK", CHAT_BODY_WITHOUT_USAGE)]
        )

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(next(responses))

        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            assert (await gateway.send_question(protocol)).status == 502
            response = await gateway.send_question(protocol)
            assert b"fine" in await response.read(10_000)

    run_async(work())


# ---- clients


async def send_raw(gateway: RunningGateway, request: bytes) -> bytes:
    """Send these bytes and return the gateway's response, even while the client is still sending."""
    reader, writer = await asyncio.open_connection(gateway.origin.host, gateway.origin.port)
    writer.write(request)
    decoded = await reader.read(65536)
    writer.close()
    return decoded


HOSTILE: dict[str, tuple[bytes, int]] = {
    "a head that never ends": (b"POST {path} HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 70_000, 431),
    "a slow head": (b"POST {path} HTTP/1.1\r\nhost: loc", 408),
    "nothing at all": (b"", 408),
    "a slow body": (b"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{", 408),
    "a long body": (b"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999\r\n\r\n{", 413),
    "a length that is none": (b"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n{", 400),
    "two lengths": (
        b"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        400,
    ),
    "no http": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03{path}\r\n\r\n", 400),
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_hostile_client_is_rejected_and_the_next_one_served(protocol: str, hostile: str, clock: Clock) -> None:
    received, status = HOSTILE[hostile]
    path, body = question_request(protocol)

    async def work() -> None:
        async with serve_upstream(drip) as origin:
            more = "[limits]\nreceive = 60\nbody = 100000"
            async with run_gateway(one_provider_config(origin, extra_config=more)) as gateway:
                saying = send_raw(gateway, received.replace(b"{path}", path.encode()))
                response = await (clock.advance_until_done(saying) if status == 408 else saying)
                assert response.startswith(b"HTTP/1.1 %d " % status), response
                assert (await gateway.post(path, body)).status == 200

    run_async(work())


def test_request_without_messages_is_refused() -> None:
    """Gemini rejects it; Ollama would load its model and respond with nothing."""

    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response("200 OK", CHAT_BODY_WITHOUT_USAGE))) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            response = await gateway.post("/v1beta/models/m:generateContent", b"{}")
            failure = decode_error("gemini", response.status, await response.read(10_000))
            assert (response.status, failure.message) == (400, "the request has no messages")

    run_async(work())
