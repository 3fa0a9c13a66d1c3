"""Streams end: after a failure nothing more is read or sent, and none is longer than `limits.stream`."""

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.gateway.running import PROTOCOL_NAMES, in_front_of, run, running
from tests.gateway.test_faults import BEGUN, STREAM, chunk, events_of, piece, told
from tests.upstream.sockets import received, upstream
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
from toolwire.codec import sse
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS
from toolwire.streaming import Translation
from toolwire.translation import translate_stream

FAILED = b"data: " + told("overheated") + b"\n\n"
DONE = chunk({}, "stop") + b"data: [DONE]\n\n"


class Endless:
    """An upstream that writes the same piece until its connection is closed; `closed` is then set."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self.closed = asyncio.Event()
        self._first = STREAM + piece(first)
        self._again = piece(again)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
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
    """How many frames hold these words of an error."""
    return sum(words in frame for frame in wire.replace(b"\r\n", b"\n").split(b"\n\n" if b"\n\n" in wire else b"\n"))


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_s_11_after_an_error_nothing_more_is_read_or_sent(protocol: str) -> None:
    async def work() -> None:
        model = Endless(BEGUN + FAILED, chunk({"content": "more"}) + FAILED)
        async with upstream(model) as origin, running(in_front_of(origin)) as gateway:
            wire = await (await gateway.ask(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        events = events_of(protocol, wire)
        assert isinstance(events[-1], ResponseFailed)
        assert count_errors(wire, b"overheated") == 1
        assert b"more" not in wire

    run(work())


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic", "openai-responses"])
def test_s_11_a_frame_that_is_too_long_is_one_error(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LIMIT_FRAME", 10_000)

    async def work() -> None:
        model = Endless(BEGUN, b"data: " + b"x" * 6_000)
        async with upstream(model) as origin, running(in_front_of(origin)) as gateway:
            wire = await (await gateway.ask(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        assert count_errors(wire, b"a frame of more than") == 1

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_s_11_a_connection_cut_after_the_terminal_event_is_no_second_one(protocol: str) -> None:
    """A cut connection after the answer is complete changes nothing."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
        writer.write(STREAM + piece(BEGUN + DONE))
        await writer.drain()

    async def work() -> None:
        async with upstream(cut) as origin, running(in_front_of(origin)) as gateway:
            wire = await (await gateway.ask(protocol, stream=True)).read(1_000_000)
        events = events_of(protocol, wire)
        assert isinstance(events[-1], ResponseEnd)
        assert b"closed the connection" not in wire

    run(work())


def test_s_11_a_translated_stream_takes_no_more_chunks_after_an_error() -> None:
    taken: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for data in itertools.chain([BEGUN, FAILED], itertools.repeat(BEGUN, 5)):
            taken.append(data)
            yield data

    stream = translate_stream(chunks(), "openai-chat", "anthropic")
    wire = b"".join(stream)
    assert taken == [BEGUN, FAILED]
    assert len(failures(events_of("anthropic", wire))) == 1


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_q_11_a_stream_has_a_bound_in_bytes(protocol: str) -> None:
    async def work() -> None:
        model = Endless(BEGUN, chunk({"content": "on and on "}))
        async with upstream(model) as origin, running(in_front_of(origin, more="[limits]\nstream = 50_000")) as gateway:
            wire = await (await gateway.ask(protocol, stream=True)).read(1_000_000)
            await model.closed.wait()
        assert isinstance(events_of(protocol, wire)[-1], ResponseFailed)
        assert count_errors(wire, b"limits.stream") == 1

    run(work())


def test_q_11_a_stream_that_never_begins_has_the_same_bound() -> None:
    async def work() -> None:
        model = Endless(b": waiting\n\n", b": still waiting\n\n")
        async with upstream(model) as origin:
            config = in_front_of(origin, more="[limits]\nstream = 50_000\nretries = 0")
            async with running(config) as gateway:
                answer = await gateway.ask("anthropic", stream=True)
                body = await answer.read(1_000_000)
                await model.closed.wait()
        assert answer.status == 502
        assert b"limits.stream" in body

    run(work())


BATCH = 1024
"""Events may wait to be folded or encoded: so many at most."""
PAIRS = [(source, target) for source in PROTOCOL_NAMES for target in PROTOCOL_NAMES]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_q_11_what_is_retained_grows_with_the_text_and_not_with_the_deltas(source: str, target: str) -> None:
    """Each event of a stream used to be retained until its end: 171 bytes for each delta of two letters."""
    encoder = PROTOCOLS[source].stream_encoder(Context())
    started: list[Event] = [
        ResponseStart(origin="other", id="r", model="m"),
        MessageStart(),
        PartStart(index=0, part=Text(text="")),
    ]
    translation = Translation(PROTOCOLS[source], PROTOCOLS[target], Context())
    translation.feed(encoder.encode([*started, PartDelta(index=0, text="ab", plain=True)]))
    delta = encoder.encode([PartDelta(index=0, text="ab", plain=True)])
    assert delta
    for _ in range(BATCH):
        translation.feed(delta)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(2 * BATCH):
            translation.feed(delta)
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert retained < 2 * BATCH * 2 * 10  # at most the text itself, a few times


def test_q_11_a_pass_through_retains_nothing() -> None:
    translation = Translation(PROTOCOLS["openai-chat"], PROTOCOLS["openai-chat"], Context())
    translation.feed(BEGUN)
    assert translation._folder is None
