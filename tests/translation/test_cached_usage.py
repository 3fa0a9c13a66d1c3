"""Counts of cached tokens in responses, in protocols that include them in the input tokens and those that don't."""

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies
from toolwire.canonical.content import Message, Text
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

USAGE = Usage(input_tokens=125, cache_read=100, cache_write=20, output_tokens=2, total=127)
NO_WRITES = ("gemini", "gemini-interactions")  # their usage has no count of tokens written to the cache
NO_COUNTS = ("ollama",)


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_cached_tokens_are_counted_once(source: str, target: str) -> None:
    message = Message(role="assistant", parts=(Text(text="Hello."),))
    candidate = Candidate(messages=(message,), stop=Stop(reason="end_turn"))
    response = Response(origin="", id="r", model="m", candidates=(candidate,), usage=USAGE, status="completed")
    body = PROTOCOLS[source].encode_response(response, ResponseContext()).to_bytes()
    translated = tw.translate(body, source, target, "response").to_bytes()
    usage = PROTOCOLS[target].decode_response(translated, ResponseContext()).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (125, 2)
    if not {source, target} & {*NO_COUNTS}:
        assert usage.cache_read == 100
    if not {source, target} & {*NO_COUNTS, *NO_WRITES}:
        assert usage.cache_write == 20
