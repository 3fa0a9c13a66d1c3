"""What the answers of both of OpenAI's protocols say passes from one to the other."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import chat_response, responses_response
from tests.support.codecs import body_as_stream

RESULT = {"type": "moderation_result", "model": "omni", "flagged": False, "categories": {}, "category_scores": {}}
ONE = {"input": RESULT, "output": {"type": "error", "code": "busy", "message": "Later."}}
LISTED = {"input": {"type": "moderation_results", "model": "omni", "results": [RESULT]}, "output": ONE["output"]}
TWO = {"input": {"type": "moderation_results", "model": "omni", "results": [RESULT, RESULT]}}


def answered(protocol: str, **fields: Any) -> dict[str, Any]:
    if protocol == "openai-chat":
        return chat_response({"role": "assistant", "content": "Done."}, "stop", **fields)
    return responses_response(**fields)


def test_from_responses_to_chat_and_back() -> None:
    answer = responses_response(service_tier="flex", moderation=ONE)
    made = tw.translate(answer, "openai-responses", "openai-chat", "response")
    assert (made.value["service_tier"], made.value["moderation"]) == ("flex", LISTED)
    assert {"/service_tier", "/moderation"}.isdisjoint(loss.path for loss in made.losses)
    back = tw.translate(made.value, "openai-chat", "openai-responses", "response")
    assert (back.value["service_tier"], back.value["moderation"]) == ("flex", ONE)
    assert {"/service_tier", "/moderation"}.isdisjoint(loss.path for loss in back.losses)


@pytest.mark.parametrize(
    ("source", "fields", "target"),
    [
        ("openai-responses", {"service_tier": "ultrafast"}, "openai-chat"),
        ("openai-responses", {"moderation": ONE}, "anthropic"),
        ("openai-chat", {"moderation": TWO}, "openai-responses"),
        ("openai-chat", {"service_tier": "flex"}, "anthropic"),
    ],
)
def test_what_the_other_can_not_say_is_reported(source: str, fields: dict[str, Any], target: str) -> None:
    answer = answered(source, **fields)
    made = tw.translate(answer, source, target, "response")
    (name,) = fields
    assert made.value.get(name) is None
    assert f"/{name}" in [loss.path for loss in made.losses]


@pytest.mark.parametrize(
    ("source", "target"), [("openai-responses", "openai-chat"), ("openai-chat", "openai-responses")]
)
def test_streams_say_it_too(source: str, target: str) -> None:
    answer = answered(source, service_tier="flex")
    stream = tw.translate_stream(body_as_stream(answer, source), source, target)
    assert b'"service_tier":"flex"' in b"".join(stream)
    assert "/service_tier" not in [loss.path for loss in stream.losses]
