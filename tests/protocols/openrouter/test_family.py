"""Chat and OpenRouter are one family: at home in each other, and what they keep for each other is no loss elsewhere."""

from typing import Any

import pytest

from tests.fixture_files import fixtures
from tests.protocols.openrouter.through import ROUTER, request, response
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS

CHAT = "openai-chat"
# Chat's own field says the effort, too, so that OpenAI's models find it.
ALSO = {"reasoning_effort_object": {"reasoning_effort": "high"}, "reasoning_none": {"reasoning_effort": "none"}}


@pytest.mark.parametrize(("name", "body"), fixtures(ROUTER, "requests"))
def test_a_request_is_at_home_in_both(name: str, body: Any) -> None:
    assert request(body, CHAT, ROUTER) == (body, {})
    made, losses = request(body, ROUTER, CHAT)
    model = {"model": body["models"][0]} if "model" not in body else {}
    assert (made, losses) == ({**body, **ALSO.get(name, {}), **model}, {})


@pytest.mark.parametrize(("name", "body"), fixtures(ROUTER, "responses"))
def test_a_response_is_at_home_in_both(name: str, body: Any) -> None:
    assert response(body, CHAT, ROUTER) == (body, {})
    assert response(body, ROUTER, CHAT) == (body, {})


@pytest.mark.parametrize(("name", "wire"), fixtures(ROUTER, "streams"))
def test_a_stream_reports_nothing_at_home(name: str, wire: bytes) -> None:
    encoder = PROTOCOLS[CHAT].stream_encoder(Context())
    decoder = PROTOCOLS[ROUTER].stream_decoder(Context())
    assert encoder.encode([*decoder.feed(wire), *decoder.close()])
    assert not encoder.report


def test_what_arrives_is_no_loss() -> None:
    (body,) = [body for name, body in fixtures(ROUTER, "requests") if name == "thinking_with_tools"]
    _, losses = request(body, ROUTER, "anthropic")
    assert not any(path.startswith("/messages/1/reasoning") for path in losses)
    (body,) = [body for name, body in fixtures(ROUTER, "requests") if name == "cache_marks"]
    _, losses = request(body, ROUTER, "anthropic")
    assert not any("cache" in path for path in losses)
    (body,) = [body for name, body in fixtures(ROUTER, "requests") if name == "reasoning_budget"]
    _, losses = request(body, ROUTER, "anthropic")
    assert not any(path.startswith("/reasoning") for path in losses)
