"""Law: a usage costs the same in every protocol, unless a count was reported as lost."""

import json

import pytest

from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.codec.models.info import ModelInfo, Prices
from toolwire.codec.models.prices import price_usage
from toolwire.protocols import PROTOCOLS

MODEL = ModelInfo(prices=Prices(input=3, output=15, cache_read=0.3, cache_write=3.75))
USAGES = [
    Usage(input_tokens=1000, output_tokens=50),
    Usage(input_tokens=1000, cache_read=400, output_tokens=50),
    Usage(input_tokens=1000, cache_read=400, cache_write=250, output_tokens=50),
    Usage(input_tokens=1000, cache_read=400, output_tokens=50, reasoning=20),
]


def reencode(usage: Usage, protocol: str) -> tuple[Usage | None, bool]:
    """Return the usage after a trip over the wire of a protocol, and whether a count of it was reported as lost."""
    codec = PROTOCOLS[protocol]
    response = Response(origin="canonical", id="r", model="m", candidates=(Candidate(),), usage=usage)
    encoding = codec.encode_response(response, ResponseContext())
    losses = encoding.report.resolve(response, codec.wire_names) if encoding.report else []
    lost = any("usage" in loss.path.lower() or "cache" in loss.path for loss in losses)
    return codec.decode_response(encoding.to_bytes(), ResponseContext()).usage, lost


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("usage", USAGES)
def test_usage_costs_the_same_in_every_protocol(usage: Usage, protocol: str) -> None:
    decoded, lost = reencode(usage, protocol)
    assert decoded is not None
    assert lost or price_usage(decoded, MODEL) == price_usage(usage, MODEL)


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_recorded_usage_costs_the_same_in_the_protocol_of_the_client(source: str, target: str) -> None:
    codec, priced = PROTOCOLS[source], 0
    for name, body in non_empty(recorded_bodies.responses(source).items()):
        usage = codec.decode_response(json.dumps(body).encode(), ResponseContext()).usage
        if usage is None or (price := price_usage(usage, MODEL)) is None:
            continue
        decoded, lost = reencode(usage, target)
        assert decoded is not None, name
        assert lost or price_usage(decoded, MODEL) == price, name
        priced += 1
    assert priced
