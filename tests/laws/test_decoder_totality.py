"""Decoders are total: any input gives a value or a `DecodeError` that names the position."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.support.samples import recorded_bodies
from tests.support.samples.json_leaves import MARKER, UNKNOWN_KEY, leaves, object_paths, with_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS: list[Any] = ["request", "response", "error"]
# Values that pass when they are skipped and fail when they are decoded.
UNDECODABLE = [
    b'"\xff"',
    b'["\xed\xa0\x80"]',
    b'{"\xff":1}',
    b"1e999",
    b"[1e999]",
    b"9" * 5000,
    b"[" * 600 + b"]" * 600,
]


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_fail_cleanly(protocol: str, data: bytes) -> None:
    for kind in KINDS:
        _assert_value_or_decode_error(data, protocol, kind)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@given(value=JSON)
def test_arbitrary_json_decodes_or_fails_cleanly(protocol: str, value: Any) -> None:
    for kind in KINDS:
        _assert_value_or_decode_error(json.dumps(value).encode(), protocol, kind)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
@settings(max_examples=recorded_bodies.example_count(150), deadline=None)
@given(data=st.data())
def test_fixtures_with_a_replaced_value_decode_or_fail_cleanly(protocol: str, kind: Any, data: st.DataObject) -> None:
    bodies = (
        recorded_bodies.fixture_requests(protocol) if kind == "request" else recorded_bodies.fixture_responses(protocol)
    )
    body = bodies[data.draw(st.sampled_from(sorted(bodies)))]
    places = [path for path, _ in leaves(body)] + [path for path in object_paths(body) if path]
    value = with_value(body, data.draw(st.sampled_from(places)), data.draw(JSON))
    for target in recorded_bodies.PROTOCOL_NAMES:
        _assert_value_or_decode_error(json.dumps(value).encode(), protocol, kind, target)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
@settings(max_examples=recorded_bodies.example_count(150), deadline=None)
@given(data=st.data())
def test_a_fixture_with_a_value_that_python_cannot_hold(protocol: str, kind: Any, data: st.DataObject) -> None:
    bodies = (
        recorded_bodies.fixture_requests(protocol) if kind == "request" else recorded_bodies.fixture_responses(protocol)
    )
    body = bodies[data.draw(st.sampled_from(sorted(bodies)))]
    places = [path for path, _ in leaves(body)] + [f"{path}/{UNKNOWN_KEY}" for path in object_paths(body)]
    text = json.dumps(with_value(body, data.draw(st.sampled_from(places)), MARKER)).encode()
    wire = text.replace(b'"%b"' % MARKER.encode(), data.draw(st.sampled_from([b"1e999", b'{"type":"x","a":[1e999]}'])))
    for target in recorded_bodies.PROTOCOL_NAMES:
        _assert_value_or_decode_error(wire, protocol, kind, target)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_as_a_stream_end_cleanly(protocol: str, data: bytes) -> None:
    _assert_ends(data, protocol, protocol)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@settings(max_examples=recorded_bodies.example_count(100), deadline=None)
@given(data=st.data())
def test_truncated_or_corrupted_streams_end_cleanly(protocol: str, data: st.DataObject) -> None:
    streams = {name: wire for name, wire in recorded_bodies.streams(protocol).items() if len(wire) < 20_000}
    wire = streams[data.draw(st.sampled_from(sorted(streams)))]
    offset = data.draw(st.integers(0, len(wire)))
    corrupted = wire[:offset] + data.draw(st.binary(max_size=6)) + wire[offset + data.draw(st.integers(0, 40)) :]
    for target in recorded_bodies.PROTOCOL_NAMES:
        _assert_ends(corrupted, protocol, target)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@settings(max_examples=recorded_bodies.example_count(150), deadline=None)
@given(data=st.data())
def test_streams_with_an_undecodable_value_end_cleanly(protocol: str, data: st.DataObject) -> None:
    """A value that is only forwarded is not decoded at first, so its errors appear later."""
    streams = {name: wire for name, wire in recorded_bodies.fixture_streams(protocol).items() if len(wire) < 20_000}
    lines = streams[data.draw(st.sampled_from(sorted(streams)))].split(b"\n")
    frames = {index: body for index, line in enumerate(lines) if (body := _parse_line(line)) is not None}
    assume(frames)
    number = data.draw(st.sampled_from(sorted(frames)))
    head, body = b"data: " if lines[number].startswith(b"data: ") else b"", frames[number]
    new_paths = [f"{path}/{UNKNOWN_KEY}" for path in object_paths(body)]
    corrupted = with_value(body, data.draw(st.sampled_from(new_paths + [path for path, _ in leaves(body)])), MARKER)
    lines[number] = head + json.dumps(corrupted).encode().replace(
        b'"%b"' % MARKER.encode(), data.draw(st.sampled_from(UNDECODABLE))
    )
    for target in recorded_bodies.PROTOCOL_NAMES:
        _assert_ends(b"\n".join(lines), protocol, target)


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 5000])
def test_nesting_depth_is_limited(protocol: str, deep: bytes) -> None:
    with pytest.raises(tw.DecodeError):
        tw.translate(deep, protocol, protocol)


def _parse_line(line: bytes) -> Any:
    """Return the JSON object in a line of a stream, if there is one."""
    try:
        body = json.loads(line.removeprefix(b"data: "))
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _assert_ends(wire: bytes, protocol: str, target: str) -> None:
    assert b"".join(tw.translate_stream([wire], protocol, target)).decode()


def _assert_value_or_decode_error(data: bytes, protocol: str, kind: Any, target: str | None = None) -> None:
    refused: tw.ToolwireError | None = None
    try:
        json.loads(tw.translate(data, protocol, target or protocol, kind).to_bytes())
    except tw.ToolwireError as error:
        refused = error
    if isinstance(refused, tw.DecodeError):
        assert refused.protocol == protocol
        assert refused.path == "" or refused.path.startswith("/")
    elif isinstance(refused, tw.LossyTranslationError):
        assert target != protocol
        assert refused.losses
