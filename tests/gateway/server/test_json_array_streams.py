"""Gemini streams without `alt=sse`: one JSON array, element by element."""

import asyncio
import json

import pytest

from tests.support.clock import Clock
from tests.support.gateway.in_process import NO_TIMEOUT, one_provider_config, question_request, run_async, run_gateway
from tests.support.servers.http_responses import SSE_HEAD, STREAM_START, chat_sse_event, transfer_chunk
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import PartDelta, PartDeltas, ResponseEnd, ResponseFailed
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

ENDED = chat_sse_event({}, "stop") + b"data: [DONE]\n\n"


class Slow:
    """An upstream that sends the rest of its response on demand."""

    def __init__(self, remainder: bytes) -> None:
        self.go_on = asyncio.Event()
        self._rest = remainder

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
        await self.go_on.wait()
        writer.write(transfer_chunk(self._rest) + b"0\r\n\r\n")
        await writer.drain()
        await reader.read()


def endpoint(*, events: bool) -> tuple[str, bytes]:
    path, body = question_request("gemini", stream=True)
    assert path.endswith("?alt=sse")
    return path if events else path.removesuffix("?alt=sse"), body


def decode_array(body: bytes) -> tuple[str, ApiError | None]:
    decoder = PROTOCOLS["gemini"].stream_decoder(ResponseContext())
    events = decoder.feed(body) + decoder.close()
    text = "".join(event.text for event in events if isinstance(event, PartDelta | PartDeltas))
    last = events[-1]
    assert isinstance(last, ResponseEnd | ResponseFailed)
    return text, last.error if isinstance(last, ResponseFailed) else None


@pytest.mark.parametrize("silent", [False, True])
def test_gemini_stream_without_alt_sse_is_a_json_array(silent: bool, clock: Clock) -> None:
    async def work() -> None:
        slow = Slow(ENDED)
        more = "[limits]\nheartbeat = 60"
        async with (
            serve_upstream(slow) as origin,
            run_gateway(one_provider_config(origin, extra_config=more, timeout=NO_TIMEOUT)) as gateway,
        ):
            response = await gateway.post(*endpoint(events=False))
            assert response.status == 200
            assert response.headers["content-type"] == "application/json"
            received = b""
            while b" sunny" not in received:
                received += await response.next()
            assert len(json.loads(received.rstrip() + b"]")) == 2
            for _ in range(3 * silent):
                received += await clock.advance_until_done(response.next())
            slow.go_on.set()
            body = received + await response.read(10_000)
            chunks = json.loads(body)
            assert [list(one["candidates"][0]["content"]["parts"][0]) for one in chunks[:2]] == [["text"], ["text"]]
            assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
            assert (b"\n\n\n" in body) == silent
            assert decode_array(body) == ("It is sunny", None)

    run_async(work())


def test_failed_json_array_ends_with_the_error() -> None:
    async def work() -> None:
        slow = Slow(b'data: {"error":{"message":"gone","type":"server_error"}}\n\n')
        slow.go_on.set()
        async with serve_upstream(slow) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.post(*endpoint(events=False))
            body = await response.read(10_000)
            assert json.loads(body)[-1] == {"error": {"code": 500, "message": "gone", "status": "INTERNAL"}}
            text, error = decode_array(body)
            assert (text, error and error.message) == ("It is sunny", "gone")

    run_async(work())


def test_gemini_stream_with_alt_sse_is_sse() -> None:
    async def work() -> None:
        slow = Slow(ENDED)
        slow.go_on.set()
        async with serve_upstream(slow) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.post(*endpoint(events=True))
            body = await response.read(10_000)
            assert response.headers["content-type"] == "text/event-stream"
            assert body.startswith(b"data: {")
            assert decode_array(body) == ("It is sunny", None)

    run_async(work())
