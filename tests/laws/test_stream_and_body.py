"""A stream is equivalent to the body that the provider would have sent without streaming."""

import json
from typing import Any

import pytest

from tests.support.assertions import json_differences
from tests.support.samples import fixture_files, recorded_bodies
from toolwire.canonical.fold import fold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

# Responses whose stream differs from the body, each with the reason.
EXCEPTIONS = {
    "encrypted_anew": "OpenAI encrypts reasoning anew for the last event",
    "compatible_missing_id": "a streamed call without an id gets one, so that its fragments can be joined",
    "compatible_object_arguments": "streamed arguments are text, whatever the server sends",
}


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_the_folded_stream_equals_the_body(protocol: str) -> None:
    codec = PROTOCOLS[protocol]
    pairs = [pair for pair in fixture_files.body_and_stream_pairs(protocol) if pair[0] not in EXCEPTIONS]
    assert pairs
    wrong = {}
    for name, body, wire in pairs:
        decoder = codec.stream_decoder(ResponseContext())
        response = fold([*decoder.feed(wire), *decoder.close()])
        encoded = json.loads(codec.encode_response(response, ResponseContext()).to_bytes())
        if differences := json_differences(_without_empty_values(body), _without_empty_values(encoded)):
            wrong[name] = differences
    assert wrong == {}


def _without_empty_values(value: Any) -> Any:
    """Remove nulls, empty text and empty lists, which either form may omit."""
    if isinstance(value, dict):
        return {name: _without_empty_values(inner) for name, inner in value.items() if inner not in (None, "", [])}
    return [_without_empty_values(inner) for inner in value] if isinstance(value, list) else value
