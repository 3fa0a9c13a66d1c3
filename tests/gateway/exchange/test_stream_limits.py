"""Streams end: nothing is read or sent after a failure, and none is longer than `limits.stream`."""

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.support.codecs import decode_events
from tests.support.gateway.in_process import PROTOCOL_NAMES, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import (
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.canonical.content import Text
from toolwire.canonical.events import (
    Event,
    MessageStart,
    PartDelta,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
)
from toolwire.codec import framing
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import translate_stream
from toolwire.translation.stream import StreamTranslator

FAILED = b"data: " + openai_error_body("overheated") + b"\n\n"
DONE = chat_sse_event({}, "stop") + b"data: [DONE]\n\n"


class Endless:
    """An upstream that writes the same chunk until its connection is closed, which sets `closed`."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self.closed = asyncio.Event()
        self._first = SSE_HEAD + transfer_chunk(first)
        self._again = transfer_chunk(again)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(self._first)
        ended = asyncio.ensure_future(reader.read())
        try:
            while not ended.done():
                writer.write(self._again)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            ended.cancel()
            self.closed.set()


def failures(events: list[Event]) -> list[ResponseFailed]:
    return [event for event in events if isinstance(event, ResponseFailed)]


def count_errors(wire: bytes, words: bytes) -> int:
    """Count the frames that contain this error text."""
    return sum(words in frame for frame in wire.replace(b"\r\n", b"\n").split(b"\n\n" if b"\n\n" in wire else b"\n"))


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nothing_is_read_or_sent_after_an_error(protocol: str) -> None:
    async def work() -> None:
        model = Endless(STREAM_START + FAILED, chat_sse_event({"content": "more"}) + FAILED)
        async with serve_upstream(model) as origin, run_gateway(one_provider_config(origin)) as gateway:
            wire = await (await gateway.send_question(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        events = decode_events(protocol, wire)
        assert isinstance(events[-1], ResponseFailed)
        assert count_errors(wire, b"overheated") == 1
        assert b"more" not in wire

    run_async(work())


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic", "openai-responses"])
def test_overlong_frame_is_one_error(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "LIMIT_FRAME", 10_000)

    async def work() -> None:
        model = Endless(STREAM_START, b"data: " + b"x" * 6_000)
        async with serve_upstream(model) as origin, run_gateway(one_provider_config(origin)) as gateway:
            wire = await (await gateway.send_question(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        assert count_errors(wire, b"frame exceeds") == 1

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_cut_after_the_terminal_event_adds_no_error(protocol: str) -> None:
    """A connection cut after the complete response changes nothing."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(SSE_HEAD + transfer_chunk(STREAM_START + DONE))
        await writer.drain()

    async def work() -> None:
        async with serve_upstream(cut) as origin, run_gateway(one_provider_config(origin)) as gateway:
            wire = await (await gateway.send_question(protocol, stream=True)).read(1_000_000)
        events = decode_events(protocol, wire)
        assert isinstance(events[-1], ResponseEnd)
        assert b"closed the connection" not in wire

    run_async(work())


def test_translator_takes_no_chunks_after_an_error() -> None:
    consumed: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for data in itertools.chain([STREAM_START, FAILED], itertools.repeat(STREAM_START, 5)):
            consumed.append(data)
            yield data

    stream = translate_stream(chunks(), "openai-chat", "anthropic")
    wire = b"".join(stream)
    assert consumed == [STREAM_START, FAILED]
    assert len(failures(decode_events("anthropic", wire))) == 1


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_stream_is_bounded_in_bytes(protocol: str) -> None:
    async def work() -> None:
        model = Endless(STREAM_START, chat_sse_event({"content": "on and on "}))
        async with (
            serve_upstream(model) as origin,
            run_gateway(one_provider_config(origin, extra_config="[limits]\nstream = 50_000")) as gateway,
        ):
            wire = await (await gateway.send_question(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        assert isinstance(decode_events(protocol, wire)[-1], ResponseFailed)
        assert count_errors(wire, b"limits.stream") == 1

    run_async(work())


def test_stream_without_events_is_bounded_in_bytes() -> None:
    async def work() -> None:
        model = Endless(b": waiting\n\n", b": still waiting\n\n")
        async with serve_upstream(model) as origin:
            config = one_provider_config(origin, extra_config="[limits]\nstream = 50_000\nretries = 0")
            async with run_gateway(config) as gateway:
                response = await gateway.send_question("anthropic", stream=True)
                body = await response.read(1_000_000)
                await model.closed.wait()
        assert response.status == 502
        assert b"limits.stream" in body

    run_async(work())


DELTAS = 512
WAITING = 16 * 1024
"""Bytes of the events that wait to be folded together; a leak of 171 bytes per delta has five times as many."""
PAIRS = [(source, target) for source in PROTOCOL_NAMES for target in PROTOCOL_NAMES]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_memory_grows_with_text_not_with_deltas(source: str, target: str) -> None:
    """Each event used to be retained until the end: 171 bytes per delta of two letters."""
    encoder = PROTOCOLS[source].stream_encoder(ResponseContext())
    started: list[Event] = [
        ResponseStart(origin="other", id="r", model="m"),
        MessageStart(),
        PartStart(index=0, part=Text(text="")),
    ]
    translation = StreamTranslator(PROTOCOLS[source], PROTOCOLS[target], ResponseContext())
    translation.feed(encoder.encode([*started, PartDelta(index=0, text="ab")]))
    delta = encoder.encode([PartDelta(index=0, text="ab")])
    assert delta
    for _ in range(DELTAS // 2):
        translation.feed(delta)
    gc.collect()
    gc.freeze()  # what other tests loaded is not looked through again
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(DELTAS):
            translation.feed(delta)
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert retained < DELTAS * 2 * 10 + WAITING  # a few copies of the text at most


def test_passthrough_retains_nothing() -> None:
    translation = StreamTranslator(PROTOCOLS["openai-chat"], PROTOCOLS["openai-chat"], ResponseContext())
    translation.feed(STREAM_START)
    assert translation._accumulator is None
