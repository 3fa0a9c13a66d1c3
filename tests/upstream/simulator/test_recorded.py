"""Over all requests of the fixtures: what the model answers is what the SDK's types know, whole and streamed alike."""

import json

import pytest

from tests import sdk
from tests.laws.material import addressed, fixture_requests
from toolwire.codec.interface import Context, Route
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.brain import reply_to
from toolwire.upstream.simulator.composing import Composer
from toolwire.upstream.simulator.pieces import pieces_of
from toolwire.upstream.simulator.proofs import Proofs

CASES = [(protocol, name) for protocol in PROTOCOLS for name in fixture_requests(protocol)]


@pytest.mark.parametrize(("protocol", "name"), CASES)
def test_every_request_is_answered(protocol: str, name: str) -> None:
    codec = PROTOCOLS[protocol]
    body = json.dumps(fixture_requests(protocol)[name]).encode()
    request = codec.decode_request(body, Route(model=addressed(protocol, "request").get("model")))
    response = Composer(request, protocol, Proofs()).response(reply_to(request, protocol))
    context = Context(request=request, created=1767225600)
    whole = json.loads(codec.encode_response(response, context).to_bytes())
    assert sdk.accept_response(protocol, whole) is None
    encoder = codec.stream_encoder(context)
    wire = b"".join([*map(encoder.encode, pieces_of(response)), encoder.close()])
    told, streamed = sdk.summary(protocol, whole), sdk.fold_stream(protocol, wire)
    if protocol == "openai-chat" and not request.include_usage:
        # A stream says it only when asked.
        for one in (told, *told["other_choices"]):
            one["usage"] = {}
    assert streamed == told
