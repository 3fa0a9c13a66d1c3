"""Upstreams that refuse, reset, stall, cut, babble or never end, and clients that leave, in every client protocol.

The client gets an error of its own protocol, and a stream that began ends with that protocol's own error: never a
success that did not happen.
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
    "garbage": (reply_with(b"\x00\x01\x02\r\n\r\n", keep_open=False), 502, "does not speak HTTP"),
    "stalled": (reply_with(b""), 504, "was silent"),
    "html for success": (reply_with(http_response("200 OK", HTML, "text/html")), 502, ""),
    "empty success": (reply_with(http_response("200 OK", b"")), 502, ""),
    "truncated": (
        reply_with(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", keep_open=False),
        502,
        "closed the connection",
    ),
    "cut json": (reply_with(http_response("200 OK", b'{"id":"x","choices":[')), 502, ""),
    "html error": (reply_with(http_response("502 Bad Gateway", HTML, "text/html")), 502, "answered 502"),
    "redirect": (reply_with(http_response("307 Temporary Redirect", b"", headers=MOVED)), 502, "redirect"),
    "server error": (reply_with(http_response("500 Oh", openai_error_body("went wrong"))), 500, "went wrong"),
    "bad request": (
        reply_with(http_response("400 Bad", openai_error_body("no good", "invalid_request_error"))),
        400,
        "no good",
    ),
    "status 600": (reply_with(http_response("600 What", openai_error_body("walled off"))), 502, "walled off"),
    "status 999": (reply_with(http_response("999 Request denied", HTML, "text/html")), 502, "answered 999"),
    "bad key": (
        reply_with(http_response("401 No", openai_error_body("bad key upstream-secret-key", "x"))),
        401,
        "did not accept the key",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", BEFORE)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_fault_before_the_first_byte_is_an_error_of_the_clients_protocol(
    protocol: str, fault: str, stream: bool, clock: Clock
) -> None:
    handler, status, why = BEFORE[fault]

    async def work() -> None:
        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0\nheartbeat = 3600")) as gateway,
        ):
            asking = gateway.send_question(protocol, stream=stream)
            answer = await (clock.advance_until_done(asking) if fault == "stalled" else asking)
            body = await answer.read(100_000)
            assert answer.status == status, body
            error = decode_error(protocol, status, body)
            assert why in error.message
            assert "upstream-secret-key" not in body.decode()
            assert answer.headers["toolwire-exchange"].startswith("ex_")

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", ["200 OK", "299 Odd"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_error_body_with_a_success_status_is_an_upstream_error(protocol: str, status: str, *, stream: bool) -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response(status, openai_error_body("went wrong")))) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            answer = await gateway.send_question(protocol, stream=stream)
            assert answer.status == 502
            assert decode_error(protocol, 502, await answer.read(10_000)).message.startswith("went wrong")

    run_async(work())


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted", "299 Odd"])
def test_any_success_status_may_carry_a_response(status: str) -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response(status, CHAT_BODY_WITHOUT_USAGE))) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            answer = await gateway.send_question("anthropic")
            assert answer.status == 200
            assert b"fine" in await answer.read(10_000)

    run_async(work())


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_retry_after_is_an_integer(given: str, expected: str | None) -> None:
    async def work() -> None:
        busy = http_response("429 Busy", openai_error_body("busy"), headers=f"retry-after: {given}\r\n")
        async with (
            serve_upstream(reply_with(busy)) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            answer = await gateway.send_question("openai-chat")
            assert (answer.status, answer.headers.get("retry-after")) == (429, expected)

    run_async(work())


def cutting(*pieces: bytes, keep: bool = False) -> Handler:
    return reply_with(SSE_HEAD + b"".join(map(transfer_chunk, pieces)), keep_open=keep)


DURING: dict[str, tuple[Handler, str]] = {
    "cut": (cutting(STREAM_START), "closed the connection"),
    "ended without an end": (reply_with(SSE_HEAD + transfer_chunk(STREAM_START) + b"0\r\n\r\n"), "ended before"),
    "stalled": (cutting(STREAM_START, keep=True), "was silent"),
    "garbage": (
        reply_with(SSE_HEAD + transfer_chunk(STREAM_START) + b"zz\r\n", keep_open=False),
        "does not speak HTTP",
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


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Slow, but alive: a byte or a few at a time."""
    asked = await read_http_request(reader)
    streamed = b'"stream":true' in asked.replace(b" ", b"")
    ended = STREAM_START + chat_sse_event({}, "stop") + b"data: [DONE]\n\n"
    answer = (
        SSE_HEAD + transfer_chunk(ended) + b"0\r\n\r\n"
        if streamed
        else http_response("200 OK", CHAT_BODY_WITHOUT_USAGE)
    )
    for start in range(0, len(answer), 7):
        writer.write(answer[start : start + 7])
        await asyncio.sleep(0)
    writer.write(b"")
    await reader.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_slow_upstream_is_waited_for(protocol: str, stream: bool) -> None:
    async def work() -> None:
        async with serve_upstream(dripping) as origin, run_gateway(one_provider_config(origin)) as gateway:
            answer = await gateway.send_question(protocol, stream=stream)
            wire = await answer.read(100_000)
            assert answer.status == 200
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
@pytest.mark.parametrize(("fault", "why"), [(endless_head, "of headers"), (endless_body, "longer than")])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_an_upstream_that_never_ends_is_given_up(protocol: str, fault: Handler, why: str, stream: bool) -> None:
    async def work() -> None:
        more = "[limits]\nretries = 0\nanswer = 100000"
        async with (
            serve_upstream(fault) as origin,
            run_gateway(one_provider_config(origin, extra_config=more)) as gateway,
        ):
            answer = await gateway.send_question(protocol, stream=stream)
            assert answer.status == 502
            assert why in decode_error(protocol, 502, await answer.read(10_000)).message

    run_async(work())


@pytest.mark.parametrize("fault", DURING)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_fault_within_a_stream_ends_it_with_the_protocols_own_error(protocol: str, fault: str, clock: Clock) -> None:
    handler, why = DURING[fault]

    async def work() -> None:
        async with serve_upstream(handler) as origin, run_gateway(one_provider_config(origin)) as gateway:
            answer = await gateway.send_question(protocol, stream=True)
            assert answer.status == 200
            reading = answer.read(100_000)
            wire = await (clock.advance_until_done(reading) if fault == "stalled" else reading)
            events = decode_events(protocol, wire)
            assert b"sunny" in wire
            assert not any(isinstance(event, ResponseEnd) for event in events)
            (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
            assert not failed.broken, "the client's stream itself is whole"
            assert why in failed.error.message

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("when", ["before the answer", "within the stream", "not streaming"])
def test_an_upstream_is_let_go_when_the_client_leaves(protocol: str, when: str) -> None:
    async def work() -> None:
        begun, left = asyncio.Event(), asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            begun.set()
            if when == "within the stream":
                writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            await reader.read()
            left.set()

        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, timeout=NO_TIMEOUT)) as gateway,
        ):
            asking = asyncio.create_task(gateway.send_question(protocol, stream=when != "not streaming"))
            if when == "within the stream":
                answer = await asking
                assert await answer.next()
                answer.close()
            else:
                await begun.wait()
                asking.cancel()
            await left.wait()

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_slow_client_makes_an_endless_upstream_wait(protocol: str) -> None:
    async def work() -> None:
        sent = 0

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await read_http_request(reader)
            writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            while True:
                data = transfer_chunk(chat_sse_event({"content": "x" * 10_000}))
                writer.write(data)
                await writer.drain()
                sent += len(data)

        async with serve_upstream(endless) as origin, run_gateway(one_provider_config(origin)) as gateway:
            answer = await gateway.send_question(protocol, stream=True)
            assert await answer.next()
            before = -1
            while sent > before:  # until all that lies between is full
                before = sent
                await run_event_loop()
            assert sent < 50_000_000
            assert await answer.next()
            answer.close()

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_one_fault_does_not_spoil_the_next_request(protocol: str) -> None:
    async def work() -> None:
        answers = iter(
            [b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nab", http_response("200 OK", CHAT_BODY_WITHOUT_USAGE)]
        )

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(next(answers))

        async with (
            serve_upstream(handler) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway,
        ):
            assert (await gateway.send_question(protocol)).status == 502
            answer = await gateway.send_question(protocol)
            assert b"fine" in await answer.read(10_000)

    run_async(work())


# ---- clients


async def said_to(gateway: RunningGateway, request: bytes) -> bytes:
    """How the gateway answers these bytes; a client may still be sending."""
    reader, writer = await asyncio.open_connection(gateway.origin.host, gateway.origin.port)
    writer.write(request)
    found = await reader.read(65536)
    writer.close()
    return found


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
def test_a_hostile_client_is_turned_away_and_the_next_one_served(protocol: str, hostile: str, clock: Clock) -> None:
    sent, status = HOSTILE[hostile]
    path, body = question_request(protocol)

    async def work() -> None:
        async with serve_upstream(dripping) as origin:
            more = "[limits]\nreceive = 60\nbody = 100000"
            async with run_gateway(one_provider_config(origin, extra_config=more)) as gateway:
                saying = said_to(gateway, sent.replace(b"{path}", path.encode()))
                answer = await (clock.advance_until_done(saying) if status == 408 else saying)
                assert answer.startswith(b"HTTP/1.1 %d " % status), answer
                assert (await gateway.post(path, body)).status == 200

    run_async(work())


def test_a_conversation_in_which_nothing_is_said_is_refused() -> None:
    """Gemini refuses it; Ollama would load its model, and answer nothing."""

    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response("200 OK", CHAT_BODY_WITHOUT_USAGE))) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            answer = await gateway.post("/v1beta/models/m:generateContent", b"{}")
            failure = decode_error("gemini", answer.status, await answer.read(10_000))
            assert (answer.status, failure.message) == (400, "the request has no messages")

    run_async(work())
