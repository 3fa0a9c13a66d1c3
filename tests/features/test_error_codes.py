"""Fields of an error that clients inspect: its code and the details of a policy violation."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.codecs import body_as_stream
from tests.support.samples import recorded_bodies

DETAILS = {"error_code": "tool_name_conflict", "tool_name": "get_weather"}
CONFLICT = {"type": "error", "error": {"type": "invalid_request_error", "message": "Twice.", "details": DETAILS}}
MISALIGNED = {"review_target": "rt_1", "steer": {"message": "Ask first."}}
BLOCKED = {
    "error": {
        "message": "Blocked.",
        "type": "invalid_request_error",
        "param": None,
        "code": "misalignment_policy_violation",
        "misalignment": MISALIGNED,
    }
}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_the_error_code_of_anthropic_becomes_the_openai_code(target: str) -> None:
    translated = tw.translate(CONFLICT, "anthropic", target, "error")
    assert translated.value["error"]["code"] == "tool_name_conflict"
    assert [(loss.kind, loss.path) for loss in translated.losses] == [("dropped", "/error/details/tool_name")]


def test_the_error_code_is_reported_without_equivalent() -> None:
    losses = tw.translate(CONFLICT, "anthropic", "ollama", "error").losses
    assert "/error/details/error_code" in [loss.path for loss in losses]


@pytest.mark.parametrize("details", [DETAILS, {"error_code": 7}, {"error_code": None}, {}, "words", ["a"], None])
def test_error_details_are_unchanged_within_their_protocol(details: Any) -> None:
    body = {"type": "error", "error": {"type": "api_error", "message": "Oh.", "details": details}}
    assert tw.translate(body, "anthropic", "anthropic", "error").value == body


@pytest.mark.parametrize(
    ("source", "target"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_policy_violation_details_translate_between_the_openai_protocols(source: str, target: str) -> None:
    translated = tw.translate(BLOCKED, source, target, "error")
    assert translated.value == BLOCKED
    assert translated.losses == []


def test_policy_violation_details_translate_in_responses_and_streams() -> None:
    response = recorded_bodies.fixture_responses("openai-responses")["failed_policy"]
    details = response["error"]["misalignment"]
    translated = tw.translate(response, "openai-responses", "openai-chat", "response")
    assert translated.value["error"]["misalignment"] == details
    restored = tw.translate(translated.value, "openai-chat", "openai-responses", "response")
    assert restored.value["error"] == {name: value for name, value in response["error"].items() if value is not None}
    stream = tw.translate_stream(body_as_stream(response, "openai-responses"), "openai-responses", "openai-chat")
    last = b"".join(stream).strip().split(b"\n")[-1]
    assert json.loads(last.removeprefix(b"data: "))["error"]["misalignment"] == details
    assert "/error/misalignment" not in [loss.path for loss in [*translated.losses, *stream.losses]]


def test_policy_violation_details_are_reported_in_other_protocols() -> None:
    for target in ("anthropic", "gemini", "openrouter"):
        translated = tw.translate(BLOCKED, "openai-responses", target, "error")
        assert "steer" not in translated.to_bytes().decode()
        assert "/error/misalignment" in [loss.path for loss in translated.losses]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "models/gemini-3-pro"),
        ("google/gemini-3-pro", "models/gemini-3-pro"),
        ("models/gemini-3-pro", "models/gemini-3-pro"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("projects/p/locations/l/endpoints/e", "projects/p/locations/l/endpoints/e"),
        ("publishers/google/models/gemini-3-pro", "publishers/google/models/gemini-3-pro"),
        ("acme/llama-5", "models/acme%2Fllama-5"),
    ],
)
def test_the_url_path_of_a_gemini_model(model: str, path: str) -> None:
    request = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    assert tw.translate(request, "openrouter", "gemini").route.path == f"/v1beta/{path}:generateContent"
