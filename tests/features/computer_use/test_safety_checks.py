"""Safety checks: translated where the target has them, refused elsewhere, and acknowledged only by the user."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.computer_use import (
    CLICK,
    PENDING_SAFETY_CHECK,
    SAFETY_DECISION,
    computer_call,
    computer_calls_in,
    computer_request,
    computer_response,
    computer_turn,
    function_call,
    interactions_step,
)
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS


def test_safety_checks_and_acknowledgments_translate_from_google_to_openai() -> None:
    request = computer_request(RESPONSES)
    response = computer_response(GEMINI, function_call("f1", "click", x=500, y=500, safety_decision=SAFETY_DECISION))
    (call,) = computer_calls_in(RESPONSES, tw.translate(response, GEMINI, RESPONSES, "response", request=request).value)
    check = {"id": "sc_f1", "code": "require_confirmation", "message": "It buys something."}
    assert call["pending_safety_checks"] == [check]
    acknowledged = computer_request(RESPONSES, *computer_turn(RESPONSES, [call], acknowledged_safety_checks=[check]))
    translated = tw.translate(acknowledged, RESPONSES, GEMINI, model="gemini-3.5-flash").value["contents"]
    decision = translated[-2]["parts"][0]["functionCall"]["args"]["safety_decision"]
    assert (decision["decision"], decision["explanation"]) == ("require_confirmation", "It buys something.")
    assert translated[-1]["parts"][0]["functionResponse"]["response"] == {"safety_acknowledgement": "true"}


def test_safety_checks_and_acknowledgments_translate_from_openai_to_google() -> None:
    request = computer_request(GEMINI)
    response = computer_response(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK]))
    (call,) = computer_calls_in(GEMINI, tw.translate(response, RESPONSES, GEMINI, "response", request=request).value)
    decision = call["functionCall"]["args"]["safety_decision"]
    assert (decision["decision"], decision["explanation"]) == ("require_confirmation", "It buys something.")
    acknowledged = computer_request(GEMINI, *computer_turn(GEMINI, [call], safety_acknowledgement="true"))
    items = tw.translate(acknowledged, GEMINI, RESPONSES).value["input"]
    (upstream_call,) = [item for item in items if item.get("type") == "computer_call"]
    (output,) = [item for item in items if item.get("type") == "computer_call_output"]
    assert (upstream_call["call_id"], upstream_call["pending_safety_checks"]) == ("call_1", [PENDING_SAFETY_CHECK])
    assert output["acknowledged_safety_checks"] == [PENDING_SAFETY_CHECK]


def test_only_the_user_acknowledges_safety_checks() -> None:
    """Only checks that the client named are acknowledged."""
    response = computer_response(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK]))
    (call,) = computer_calls_in(
        GEMINI, tw.translate(response, RESPONSES, GEMINI, "response", request=computer_request(GEMINI)).value
    )
    items = tw.translate(computer_request(GEMINI, *computer_turn(GEMINI, [call])), GEMINI, RESPONSES).value["input"]
    assert all("acknowledged_safety_checks" not in item for item in items)
    two = computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK, PENDING_SAFETY_CHECK | {"id": "sc_2"}])
    partly = computer_request(RESPONSES, *computer_turn(RESPONSES, [two], acknowledged_safety_checks=[{"id": "sc_1"}]))
    translated = tw.translate(partly, RESPONSES, GEMINI, model="gemini-3.5-flash").value["contents"]
    assert "safety_acknowledgement" not in translated[-1]["parts"][0]["functionResponse"]["response"]


CALLS_WITH_CHECKS = [
    (GEMINI, function_call("f1", "click", x=500, y=500, safety_decision=SAFETY_DECISION)),
    (INTERACTIONS, interactions_step("s1", "click", x=500, y=500, safety_decision=SAFETY_DECISION)),
    (RESPONSES, computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK])),
]


@pytest.mark.parametrize(("upstream", "call"), CALLS_WITH_CHECKS)
def test_a_safety_check_without_equivalent_is_refused(upstream: str, call: Any) -> None:
    request, body = computer_request(ANTHROPIC), computer_response(upstream, call)
    with pytest.raises(tw.LossyTranslationError):
        tw.translate(body, upstream, ANTHROPIC, "response", request=request)
    source = PROTOCOLS[upstream]
    encoder = source.stream_encoder(ResponseContext())
    wire = (
        encoder.encode(unfold(source.decode_response(json.dumps(body).encode(), ResponseContext()))) + encoder.close()
    )
    stream = tw.translate_stream(wire, upstream, ANTHROPIC, request)
    frames = stream_frames(b"".join(stream))
    assert not any(frame.get("content_block", {}).get("type") == "tool_use" for frame in frames)
    assert stream.error is not None
    assert "may not be dropped" in stream.error.message


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT, OLLAMA, OPENROUTER])
@pytest.mark.parametrize(("source", "call"), CALLS_WITH_CHECKS)
def test_a_request_with_a_pending_check_is_refused_without_equivalent(source: str, call: Any, target: str) -> None:
    with pytest.raises(tw.LossyTranslationError):
        tw.translate(computer_request(source, *computer_turn(source, [call])), source, target)
    acknowledged: dict[str, Any] = {"safety_acknowledgement": "true"}
    if source == RESPONSES:
        acknowledged = {"acknowledged_safety_checks": [{"id": "sc_1"}]}
    encoded = tw.translate(computer_request(source, *computer_turn(source, [call], **acknowledged)), source, target)
    assert any("safety" in loss.path and loss.kind == "dropped" for loss in encoded.losses)


def test_the_check_of_an_untranslated_call_is_refused_or_reported() -> None:
    """Google's `click` needs the display size; without it, neither the call nor its check has an equivalent."""
    call = computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK])
    request = {"model": "gpt-5.5", "input": [{"role": "user", "content": "Go"}], "tools": [{"type": "computer"}]}
    with pytest.raises(tw.LossyTranslationError):
        tw.translate(request | {"input": [*request["input"], *computer_turn(RESPONSES, [call])]}, RESPONSES, GEMINI)
    acknowledged = computer_turn(RESPONSES, [call], acknowledged_safety_checks=[{"id": "sc_1"}])
    encoded = tw.translate(request | {"input": [*request["input"], *acknowledged]}, RESPONSES, GEMINI)
    assert encoded.value["contents"][-1]["parts"][0]["functionResponse"]["response"] == {}
    assert {loss.path for loss in encoded.losses if "safety" in loss.path and loss.kind == "dropped"} == {
        "/input/1/pending_safety_checks/0",
        "/input/2/acknowledged_safety_checks/0",
    }


def test_acknowledgments_pass_between_the_google_protocols() -> None:
    call = interactions_step("s1", "click", x=500, y=500, safety_decision=SAFETY_DECISION)
    acknowledged = computer_request(INTERACTIONS, *computer_turn(INTERACTIONS, [call], safety_acknowledgement="true"))
    contents = tw.translate(acknowledged, INTERACTIONS, GEMINI).value["contents"]
    assert contents[-2]["parts"][0]["functionCall"]["args"]["safety_decision"] == SAFETY_DECISION
    response = contents[-1]["parts"][0]["functionResponse"]["response"]
    assert response == {"url": "http://a/", "safety_acknowledgement": "true"}
