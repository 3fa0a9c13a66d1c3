"""Streams of one protocol on both sides are passed on frame by frame, and end with their terminal frame."""

import pytest

from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from toolwire.canonical.events import ResponseEnd
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.stream import StreamTranslator

DONE_MARKER = b"data: [DONE]\n\n"
FOLLOWERS = (b"", b": ping\n\n", b": ping\n\n: ping\n\n: ping\n\n", b'data: {"unknown": true}\n\n' * 4)


def forward(protocol: str, batches: list[bytes]) -> bytes:
    codec = PROTOCOLS[protocol]
    translator = StreamTranslator(codec, codec, ResponseContext())
    return b"".join([*map(translator.feed, batches), translator.close()])


def complete_streams(protocol: str) -> dict[str, list[bytes]]:
    """The frames of recorded streams that end with a terminal frame, without a marker behind it."""
    found = {}
    for name, wire in recorded_bodies.fixture_streams(protocol).items():
        lines = wire.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        frames = [frame + b"\n\n" for frame in lines.split(b"\n\n") if frame.strip()]
        decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
        for count, frame in enumerate(frames, 1):
            events = decoder.feed(frame)
            if events and isinstance(events[-1], ResponseEnd):
                found[name] = frames[:count]
                break
    return found


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses", "openai-chat", "openrouter"])
def test_the_end_is_found_in_any_split_of_batches(protocol: str) -> None:
    for name, frames in non_empty(complete_streams(protocol).items()):
        wire = b"".join(frames)
        for followers in FOLLOWERS:
            sent = frames + [frame + b"\n\n" for frame in followers.split(b"\n\n")[:-1]]
            for cut in range(max(0, len(frames) - 4), len(sent) + 1):
                batches = [b"".join(sent[:cut]), b"".join(sent[cut:])]
                assert forward(protocol, batches) == wire, (name, followers, cut)
            assert forward(protocol, sent) == wire, name


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses"])
def test_one_marker_passes_behind_the_end_in_any_split_of_batches(protocol: str) -> None:
    for name, frames in non_empty(complete_streams(protocol).items()):
        sent = [*frames, b": ping\n\n", DONE_MARKER, DONE_MARKER, b": ping\n\n"]
        for cut in range(max(0, len(frames) - 4), len(sent) + 1):
            batches = [b"".join(sent[:cut]), b"".join(sent[cut:])]
            assert forward(protocol, batches) == b"".join(frames) + DONE_MARKER, (name, cut)


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
def test_response_is_known_once_it_is_complete(target: str) -> None:
    reader, writer = PROTOCOLS["anthropic"], PROTOCOLS[target]
    for name, frames in non_empty(complete_streams("anthropic").items()):
        translator = StreamTranslator(reader, writer, ResponseContext(), collects_response=True)
        for frame in frames[:-1]:
            translator.feed(frame)
            assert translator.response is None, name
        translator.feed(frames[-1])
        assert translator.response is not None, name
        assert translator.response.candidates[0].messages, name


def test_failed_stream_has_no_response() -> None:
    codec = PROTOCOLS["anthropic"]
    translator = StreamTranslator(codec, PROTOCOLS["openai-chat"], ResponseContext(), collects_response=True)
    translator.feed(next(iter(complete_streams("anthropic").values()))[0])
    translator.close()
    assert translator.error is not None
    assert translator.response is None
