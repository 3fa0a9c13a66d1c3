"""All fixture requests: the SDK's types accept the responses, complete and streamed."""

import json

import pytest

from tests.support.samples.recorded_bodies import address_options, fixture_requests
from tests.support.sdk import validation
from toolwire.codec.interface import ResponseContext, Route
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.model import generate_reply
from toolwire.upstream.simulator.response_builder import ResponseBuilder, chunk_response
from toolwire.upstream.simulator.validation import SignatureKey

CASES = [(protocol, name) for protocol in PROTOCOLS for name in fixture_requests(protocol)]


@pytest.mark.parametrize(("protocol", "name"), CASES)
def test_every_fixture_request_gets_a_response(protocol: str, name: str) -> None:
    codec = PROTOCOLS[protocol]
    body = json.dumps(fixture_requests(protocol)[name]).encode()
    request = codec.decode_request(body, Route(model=address_options(protocol, "request").get("model")))
    response = ResponseBuilder(request, protocol, SignatureKey()).build(generate_reply(request, protocol))
    context = ResponseContext(request=request, created=1767225600)
    encoded = json.loads(codec.encode_response(response, context).to_bytes())
    assert validation.accept_response(protocol, encoded) is None
    encoder = codec.stream_encoder(context)
    wire = b"".join([*map(encoder.encode, chunk_response(response)), encoder.close()])
    summary, streamed = validation.summary(protocol, encoded), validation.fold_stream(protocol, wire)
    if protocol == "openai-chat" and not request.include_usage:
        # A stream reports usage only on request.
        for choice in (summary, *summary["other_choices"]):
            choice["usage"] = {}
    assert streamed == summary
