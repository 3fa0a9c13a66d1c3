"""Upstreams that refuse, reset, stall, cut, babble or never end, and clients that leave, in every client protocol.

The client gets an error of its own protocol, and a stream that began ends with that protocol's own error: never a
success that did not happen.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.clock import Clock
from tests.gateway.running import NEVER, PROTOCOL_NAMES, Running, in_front_of, question, run, running
from tests.patience import turn
from tests.upstream.sockets import Handler, answering, received, upstream
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, ResponseEnd, ResponseFailed
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


BEGUN = chunk({"role": "assistant", "content": "It is"}) + chunk({"content": " sunny"})
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def told(message: str, kind: str = "server_error") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


GOOD = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
    }
).encode()
HTML = b"<html><body>Bad gateway</body></html>"
MOVED = "location: http://127.0.0.1:9/\r\n"
BEFORE: dict[str, tuple[Handler, int, str]] = {
    "reset": (answering(b"", keep=False), 502, "closed the connection"),
    "garbage": (answering(b"\x00\x01\x02\r\n\r\n", keep=False), 502, "does not speak HTTP"),
    "stalled": (answering(b""), 504, "was silent"),
    "html for success": (answering(whole("200 OK", HTML, "text/html")), 502, ""),
    "empty success": (answering(whole("200 OK", b"")), 502, ""),
    "truncated": (
        answering(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", keep=False),
        502,
        "closed the connection",
    ),
    "cut json": (answering(whole("200 OK", b'{"id":"x","choices":[')), 502, ""),
    "html error": (answering(whole("502 Bad Gateway", HTML, "text/html")), 502, "answered 502"),
    "redirect": (answering(whole("307 Temporary Redirect", b"", more=MOVED)), 502, "redirect"),
    "server error": (answering(whole("500 Oh", told("went wrong"))), 500, "went wrong"),
    "bad request": (answering(whole("400 Bad", told("no good", "invalid_request_error"))), 400, "no good"),
    "status 600 (Q-13)": (answering(whole("600 What", told("walled off"))), 502, "walled off"),
    "status 999 (S-18)": (answering(whole("999 Request denied", HTML, "text/html")), 502, "answered 999"),
    "bad key": (answering(whole("401 No", told("bad key upstream-secret-key", "x"))), 401, "did not accept the key"),
}


def error_of(protocol: str, status: int, body: bytes) -> ApiError:
    return PROTOCOLS[protocol].decode_error(body, status)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", BEFORE)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_fault_before_the_first_byte_is_an_error_of_the_clients_protocol(
    protocol: str, fault: str, stream: bool, clock: Clock
) -> None:
    handler, status, why = BEFORE[fault]

    async def work() -> None:
        async with (
            upstream(handler) as origin,
            running(in_front_of(origin, more="[limits]\nretries = 0\nheartbeat = 3600")) as gateway,
        ):
            asking = gateway.ask(protocol, stream=stream)
            answer = await (clock.expire(asking) if fault == "stalled" else asking)
            body = await answer.read(100_000)
            assert answer.status == status, body
            error = error_of(protocol, status, body)
            assert why in error.message
            assert "upstream-secret-key" not in body.decode()
            assert answer.headers["toolwire-exchange"].startswith("ex_")

    run(work())


@pytest.mark.parametrize("status", ["200 OK", "299 Odd"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_q_13_an_error_with_a_status_of_success_is_one_of_the_upstream(protocol: str, status: str) -> None:
    async def work() -> None:
        async with (
            upstream(answering(whole(status, told("went wrong")))) as origin,
            running(in_front_of(origin, more="[limits]\nretries = 0")) as gateway,
        ):
            answer = await gateway.ask(protocol)
            assert answer.status == 502
            assert error_of(protocol, 502, await answer.read(10_000)).message == "went wrong"

    run(work())


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted", "299 Odd"])
def test_q_13_any_status_of_success_may_come_with_an_answer(status: str) -> None:
    async def work() -> None:
        async with upstream(answering(whole(status, GOOD))) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.ask("anthropic")
            assert answer.status == 200
            assert b"fine" in await answer.read(10_000)

    run(work())


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
def test_q_13_retry_after_is_a_whole_number(given: str, expected: str | None) -> None:
    async def work() -> None:
        busy = whole("429 Busy", told("busy"), more=f"retry-after: {given}\r\n")
        async with (
            upstream(answering(busy)) as origin,
            running(in_front_of(origin, more="[limits]\nretries = 0")) as gateway,
        ):
            answer = await gateway.ask("openai-chat")
            assert (answer.status, answer.headers.get("retry-after")) == (429, expected)

    run(work())


def cutting(*pieces: bytes, keep: bool = False) -> Handler:
    return answering(STREAM + b"".join(map(piece, pieces)), keep=keep)


DURING: dict[str, tuple[Handler, str]] = {
    "cut": (cutting(BEGUN), "closed the connection"),
    "ended without an end": (answering(STREAM + piece(BEGUN) + b"0\r\n\r\n"), "ended before"),
    "stalled": (cutting(BEGUN, keep=True), "was silent"),
    "garbage": (answering(STREAM + piece(BEGUN) + b"zz\r\n", keep=False), "does not speak HTTP"),
    "bad frame": (answering(STREAM + piece(BEGUN + b"data: {nonsense\n\n") + b"0\r\n\r\n"), ""),
    "error event": (
        answering(STREAM + piece(BEGUN + b"data: " + told("overheated") + b"\n\n") + b"0\r\n\r\n"),
        "overheated",
    ),
}


def events_of(protocol: str, wire: bytes) -> list[Event]:
    decoder = PROTOCOLS[protocol].stream_decoder(Context())
    return [*decoder.feed(wire), *decoder.close()]


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Slow, but alive: a byte or a few at a time."""
    asked = await received(reader)
    streamed = b'"stream":true' in asked.replace(b" ", b"")
    ended = BEGUN + chunk({}, "stop") + b"data: [DONE]\n\n"
    answer = STREAM + piece(ended) + b"0\r\n\r\n" if streamed else whole("200 OK", GOOD)
    for start in range(0, len(answer), 7):
        writer.write(answer[start : start + 7])
        await asyncio.sleep(0)
    writer.write(b"")
    await reader.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_slow_upstream_is_waited_for(protocol: str, stream: bool) -> None:
    async def work() -> None:
        async with upstream(dripping) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.ask(protocol, stream=stream)
            wire = await answer.read(100_000)
            assert answer.status == 200
            if stream:
                assert b"sunny" in wire
                assert isinstance(events_of(protocol, wire)[-1], ResponseEnd)
            else:
                assert b"fine" in wire

    run(work())


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received(reader)
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: " + b"x" * 10_000 + b"\r\n")
        await writer.drain()


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(piece(b" " * 10_000))
        await writer.drain()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("fault", "why"), [(endless_head, "of headers"), (endless_body, "longer than")])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_an_upstream_that_never_ends_is_given_up(protocol: str, fault: Handler, why: str, stream: bool) -> None:
    async def work() -> None:
        more = "[limits]\nretries = 0\nanswer = 100000"
        async with upstream(fault) as origin, running(in_front_of(origin, more=more)) as gateway:
            answer = await gateway.ask(protocol, stream=stream)
            assert answer.status == 502
            assert why in error_of(protocol, 502, await answer.read(10_000)).message

    run(work())


@pytest.mark.parametrize("fault", DURING)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_fault_within_a_stream_ends_it_with_the_protocols_own_error(protocol: str, fault: str, clock: Clock) -> None:
    handler, why = DURING[fault]

    async def work() -> None:
        async with upstream(handler) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.ask(protocol, stream=True)
            assert answer.status == 200
            reading = answer.read(100_000)
            wire = await (clock.expire(reading) if fault == "stalled" else reading)
            events = events_of(protocol, wire)
            assert b"sunny" in wire
            assert not any(isinstance(event, ResponseEnd) for event in events)
            (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
            assert not failed.broken, "the client's stream itself is whole"
            assert why in failed.error.message

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("when", ["before the answer", "within the stream", "not streaming"])
def test_an_upstream_is_let_go_when_the_client_leaves(protocol: str, when: str) -> None:
    async def work() -> None:
        begun, left = asyncio.Event(), asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await received(reader)
            begun.set()
            if when == "within the stream":
                writer.write(STREAM + piece(BEGUN))
            await reader.read()
            left.set()

        async with upstream(handler) as origin, running(in_front_of(origin, timeout=NEVER)) as gateway:
            asking = asyncio.create_task(gateway.ask(protocol, stream=when != "not streaming"))
            if when == "within the stream":
                answer = await asking
                assert await answer.next()
                answer.close()
            else:
                await begun.wait()
                asking.cancel()
            await left.wait()

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_slow_client_makes_an_endless_upstream_wait(protocol: str) -> None:
    async def work() -> None:
        sent = 0

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await received(reader)
            writer.write(STREAM + piece(BEGUN))
            while True:
                data = piece(chunk({"content": "x" * 10_000}))
                writer.write(data)
                await writer.drain()
                sent += len(data)

        async with upstream(endless) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.ask(protocol, stream=True)
            assert await answer.next()
            before = -1
            while sent > before:  # until all that lies between is full
                before = sent
                await turn()
            assert sent < 50_000_000
            assert await answer.next()
            answer.close()

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_one_fault_does_not_spoil_the_next_request(protocol: str) -> None:
    async def work() -> None:
        answers = iter([b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nab", whole("200 OK", GOOD)])

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await received(reader)
            writer.write(next(answers))

        async with (
            upstream(handler) as origin,
            running(in_front_of(origin, more="[limits]\nretries = 0")) as gateway,
        ):
            assert (await gateway.ask(protocol)).status == 502
            answer = await gateway.ask(protocol)
            assert b"fine" in await answer.read(10_000)

    run(work())


# ---- clients


async def said_to(gateway: Running, request: bytes) -> bytes:
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
    path, body = question(protocol)

    async def work() -> None:
        async with upstream(dripping) as origin:
            more = "[limits]\nreceive = 60\nbody = 100000"
            async with running(in_front_of(origin, more=more)) as gateway:
                saying = said_to(gateway, sent.replace(b"{path}", path.encode()))
                answer = await (clock.expire(saying) if status == 408 else saying)
                assert answer.startswith(b"HTTP/1.1 %d " % status), answer
                assert (await gateway.post(path, body)).status == 200

    run(work())


def test_a_conversation_in_which_nothing_is_said_is_refused() -> None:
    """Gemini refuses it; Ollama would load its model, and answer nothing."""

    async def work() -> None:
        async with upstream(answering(whole("200 OK", GOOD))) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.post("/v1beta/models/m:generateContent", b"{}")
            failure = error_of("gemini", answer.status, await answer.read(10_000))
            assert (answer.status, failure.message) == (400, "the request has no messages")

    run(work())
