"""Decoders are total: any input is a value or a DecodeError that names the place."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.laws import material
from tests.laws.leaves import changed, leaves, objects

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS: list[Any] = ["request", "response", "error"]


@pytest.mark.parametrize("protocol", material.NAMES)
@given(data=st.binary(max_size=60))
def test_any_bytes(protocol: str, data: bytes) -> None:
    for kind in KINDS:
        _value_or_decode_error(data, protocol, kind)


@pytest.mark.parametrize("protocol", material.NAMES)
@given(value=JSON)
def test_any_json(protocol: str, value: Any) -> None:
    for kind in KINDS:
        _value_or_decode_error(json.dumps(value).encode(), protocol, kind)


@pytest.mark.parametrize("protocol", material.NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
@settings(max_examples=150)
@given(data=st.data())
def test_a_fixture_with_anything_anywhere(protocol: str, kind: Any, data: st.DataObject) -> None:
    bodies = material.fixture_requests(protocol) if kind == "request" else material.fixture_responses(protocol)
    body = bodies[data.draw(st.sampled_from(sorted(bodies)))]
    places = [path for path, _ in leaves(body)] + [path for path in objects(body) if path]
    value = changed(body, data.draw(st.sampled_from(places)), data.draw(JSON))
    for target in material.NAMES:
        _value_or_decode_error(json.dumps(value).encode(), protocol, kind, target)


@pytest.mark.parametrize("protocol", material.NAMES)
@given(data=st.binary(max_size=200))
def test_any_bytes_as_a_stream(protocol: str, data: bytes) -> None:
    assert b"".join(tw.translate_stream([data], protocol, protocol))


@pytest.mark.parametrize("protocol", material.NAMES)
@settings(max_examples=100)
@given(data=st.data())
def test_a_stream_cut_or_spoilt_still_ends(protocol: str, data: st.DataObject) -> None:
    streams = {name: wire for name, wire in material.streams(protocol).items() if len(wire) < 20_000}
    wire = streams[data.draw(st.sampled_from(sorted(streams)))]
    cut = data.draw(st.integers(0, len(wire)))
    spoilt = wire[:cut] + data.draw(st.binary(max_size=6)) + wire[cut + data.draw(st.integers(0, 40)) :]
    for target in material.NAMES:
        assert b"".join(tw.translate_stream([spoilt], protocol, target))


@pytest.mark.parametrize("protocol", material.NAMES)
@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 5000])
def test_depth_is_bounded(protocol: str, deep: bytes) -> None:
    with pytest.raises(tw.DecodeError):
        tw.translate(deep, protocol, protocol)


def _value_or_decode_error(data: bytes, protocol: str, kind: Any, target: str | None = None) -> None:
    refused: tw.ToolwireError | None = None
    try:
        json.loads(tw.translate(data, protocol, target or protocol, kind).to_bytes())
    except tw.ToolwireError as error:
        refused = error
    if isinstance(refused, tw.DecodeError):
        assert refused.protocol == protocol
        assert refused.path == "" or refused.path.startswith("/")
    elif isinstance(refused, tw.LossRefused):
        assert target != protocol
        assert refused.losses
