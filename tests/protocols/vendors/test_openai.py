"""Response fields that OpenAI's two protocols share pass from one to the other."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import chat_response, responses_response
from tests.support.codecs import body_as_stream

RESULT = {"type": "moderation_result", "model": "omni", "flagged": False, "categories": {}, "category_scores": {}}
SINGLE = {"input": RESULT, "output": {"type": "error", "code": "busy", "message": "Later."}}
LISTS = {"input": {"type": "moderation_results", "model": "omni", "results": [RESULT]}, "output": SINGLE["output"]}
TWO_RESULTS = {"input": {"type": "moderation_results", "model": "omni", "results": [RESULT, RESULT]}}


def response_body(protocol: str, **fields: Any) -> dict[str, Any]:
    if protocol == "openai-chat":
        return chat_response({"role": "assistant", "content": "Done."}, "stop", **fields)
    return responses_response(**fields)


def test_service_tier_and_moderation_survive_the_round_trip_through_chat() -> None:
    response = responses_response(service_tier="flex", moderation=SINGLE)
    translated = tw.translate(response, "openai-responses", "openai-chat", "response")
    assert (translated.value["service_tier"], translated.value["moderation"]) == ("flex", LISTS)
    assert {"/service_tier", "/moderation"}.isdisjoint(loss.path for loss in translated.losses)
    back = tw.translate(translated.value, "openai-chat", "openai-responses", "response")
    assert (back.value["service_tier"], back.value["moderation"]) == ("flex", SINGLE)
    assert {"/service_tier", "/moderation"}.isdisjoint(loss.path for loss in back.losses)


@pytest.mark.parametrize(
    ("source", "fields", "target"),
    [
        ("openai-responses", {"service_tier": "ultrafast"}, "openai-chat"),
        ("openai-responses", {"moderation": SINGLE}, "anthropic"),
        ("openai-chat", {"moderation": TWO_RESULTS}, "openai-responses"),
        ("openai-chat", {"service_tier": "flex"}, "anthropic"),
    ],
)
def test_shared_fields_without_equivalent_are_reported(source: str, fields: dict[str, Any], target: str) -> None:
    response = response_body(source, **fields)
    translated = tw.translate(response, source, target, "response")
    (name,) = fields
    assert translated.value.get(name) is None
    assert f"/{name}" in [loss.path for loss in translated.losses]


@pytest.mark.parametrize(
    ("source", "target"), [("openai-responses", "openai-chat"), ("openai-chat", "openai-responses")]
)
def test_service_tier_passes_through_streams(source: str, target: str) -> None:
    response = response_body(source, service_tier="flex")
    stream = tw.translate_stream(body_as_stream(response, source), source, target)
    assert b'"service_tier":"flex"' in b"".join(stream)
    assert "/service_tier" not in [loss.path for loss in stream.losses]
