"""Translation within one protocol: equal JSON and no losses."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import json_differences, non_empty
from tests.support.samples import recorded_bodies
from toolwire.canonical.events import separate_deltas
from toolwire.canonical.fold import fold, unfold
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

KINDS = {"request": recorded_bodies.requests, "response": recorded_bodies.responses, "error": recorded_bodies.errors}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_bodies_are_unchanged(protocol: str, kind: Any) -> None:
    bodies = KINDS[kind](protocol)
    assert bodies
    wrong = {}
    for name, body in bodies.items():
        encoded = tw.translate(body, protocol, protocol, kind)
        if encoded.value != body or encoded.losses:
            wrong[name] = json_differences(body, encoded.value) or [str(loss) for loss in encoded.losses]
    assert wrong == {}


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_bytes_and_parsed_bodies_translate_the_same(protocol: str) -> None:
    for body in non_empty(recorded_bodies.fixture_requests(protocol).values()):
        assert tw.translate(json.dumps(body).encode(), protocol, protocol).value == body


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_streams_fold_to_the_same_response(protocol: str) -> None:
    codec = PROTOCOLS[protocol]
    wrong = []
    for name, wire in recorded_bodies.streams(protocol).items():
        events = _events(protocol, [wire])
        encoder = codec.stream_encoder(ResponseContext())
        reencoded = _events(protocol, [encoder.encode(events) + encoder.close()])
        if fold(reencoded) != fold(events):
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("protocol", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "ollama"])
def test_frames_of_several_lines_are_unchanged(protocol: str) -> None:
    wrong = []
    for name, wire in recorded_bodies.fixture_streams(protocol).items():
        frames = [json.dumps(frame)[:-1] for frame in _objects(wire)]
        values = ('{\n"list": [1,\n2]\n}', '{"list": [1, 2]}')
        spread, compact = (
            _translate_frames(protocol, [f'{frame}, "of_tomorrow": {value}}}' for frame in frames]) for value in values
        )
        if not compact or spread != compact:
            wrong.append(name)
    assert wrong == []


def _translate_frames(protocol: str, frames: list[str]) -> list[Any]:
    wire = b"".join([*map(_encode_frame, frames), _encode_frame("[DONE]")])
    return _objects(b"".join(tw.translate_stream([wire], protocol, protocol)))


def _objects(wire: bytes) -> list[Any]:
    """Return the JSON objects of a stream, without the end marker."""
    splitter = SseSplitter()
    return [json.loads(data) for data in splitter.feed(wire) + splitter.close() if data.startswith(b"{")]


def _encode_frame(data: str) -> bytes:
    return b"".join(b"data: %b\n" % line.encode() for line in data.split("\n")) + b"\n"


def test_anthropic_frames_are_unchanged_one_by_one() -> None:
    wrong = []
    for name, wire in recorded_bodies.streams("anthropic").items():
        translated = b"".join(tw.translate_stream([wire], "anthropic", "anthropic"))
        if _frames(translated) != _frames(wire):
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_events_do_not_depend_on_how_the_stream_is_split(protocol: str, size: int) -> None:
    for name, wire in non_empty(recorded_bodies.streams(protocol).items()):
        if size > 1 or len(wire) < 20_000:
            pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
            assert _events(protocol, pieces) == _events(protocol, [wire]), name


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_fold_inverts_unfold(protocol: str) -> None:
    codec = PROTOCOLS[protocol]
    for name, body in non_empty(recorded_bodies.responses(protocol).items()):
        response = codec.decode_response(json.dumps(body).encode(), ResponseContext())
        encoded = codec.encode_response(fold(unfold(response)), ResponseContext())
        assert encoded.to_bytes() == codec.encode_response(response, ResponseContext()).to_bytes(), name


def _events(protocol: str, pieces: list[bytes]) -> list[Any]:
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    return separate_deltas([event for piece in pieces for event in decoder.feed(piece)] + decoder.close())


def _frames(wire: bytes) -> list[Any]:
    splitter = SseSplitter()
    return [json.loads(data) for data in splitter.feed(wire) + splitter.close()]
