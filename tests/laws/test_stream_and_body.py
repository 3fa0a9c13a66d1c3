"""A stream tells the same answer as the body that the provider would have sent in its place."""

import json
from typing import Any

import pytest

from tests.support.assertions import json_differences
from tests.support.samples import fixture_files, recorded_bodies
from toolwire.canonical.fold import fold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

# Answers that are told in other words when they are streamed.
OTHERWISE = {
    "encrypted_anew": "OpenAI encrypts reasoning anew for the last event",
    "compatible_missing_id": "a streamed call without an id gets one, so that its fragments can be told apart",
    "compatible_object_arguments": "streamed arguments are text, whatever the server sends",
}


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_the_folded_stream_is_the_body(protocol: str) -> None:
    codec = PROTOCOLS[protocol]
    pairs = [pair for pair in fixture_files.body_and_stream_pairs(protocol) if pair[0] not in OTHERWISE]
    assert pairs
    wrong = {}
    for name, body, wire in pairs:
        decoder = codec.stream_decoder(ResponseContext())
        response = fold([*decoder.feed(wire), *decoder.close()])
        encoded = json.loads(codec.encode_response(response, ResponseContext()).to_bytes())
        if found := json_differences(_said(body), _said(encoded)):
            wrong[name] = found
    assert wrong == {}


def _said(value: Any) -> Any:
    """Without nulls, empty text and empty lists: one of the two may leave out what there is nothing to say of."""
    if isinstance(value, dict):
        return {name: _said(inner) for name, inner in value.items() if inner not in (None, "", [])}
    return [_said(inner) for inner in value] if isinstance(value, list) else value
