"""Responses and errors of the Interactions protocol, decoded and encoded from other protocols."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire as tw
from toolwire.canonical.content import Message, OpaquePart, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.codec.wire.reader import decode_timestamp, encode_timestamp
from toolwire.protocols.gemini_interactions import CODEC

CALL = {"type": "function_call", "id": "c1", "name": "f", "arguments": {}}
OUTPUT = {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}


def decode(*steps: Any, **body: Any) -> Response:
    interaction = {
        "id": "v1_a",
        "object": "interaction",
        "status": "completed",
        "model": "m",
        "steps": list(steps),
        **body,
    }
    return CODEC.decode_response(json.dumps(interaction).encode(), ResponseContext())


def encode(response: Response, **context: Any) -> Any:
    return json.loads(CODEC.encode_response(response, ResponseContext(**context)).to_bytes())


def foreign_response(*parts: Any, stop: StopReason = "end_turn", **fields: Any) -> Response:
    message = Message(role="assistant", parts=parts)
    return Response(origin="anthropic", candidates=(Candidate(messages=(message,), stop=Stop(reason=stop)),), **fields)


@pytest.mark.parametrize(
    ("status", "steps", "reason"),
    [
        ("completed", [OUTPUT], "end_turn"),
        ("completed", [CALL], "tool_use"),
        ("requires_action", [CALL], "tool_use"),
        ("incomplete", [OUTPUT], "max_tokens"),
        ("requires_continuation", [OUTPUT], "continuation"),
        ("failed", [], "error"),
        ("cancelled", [], "cancelled"),
        ("budget_exceeded", [OUTPUT], "other"),
        ("future_status", [OUTPUT], "other"),
    ],
)
def test_statuses_decode_to_stop_reasons(status: str, steps: list[Any], reason: str) -> None:
    stop = decode(*steps, status=status).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (reason, status)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_running_statuses_have_no_stop(status: str) -> None:
    assert decode(OUTPUT, status=status).candidates[0].stop is None


def test_thought_tokens_count_as_output() -> None:
    counts = {"total_input_tokens": 53, "total_output_tokens": 15, "total_thought_tokens": 41, "total_tokens": 109}
    usage = decode(OUTPUT, usage=counts).usage
    assert usage == Usage(
        input_tokens=53, output_tokens=56, reasoning=41, total=109, wire_form=usage.wire_form if usage else ()
    )
    encoded = encode(foreign_response(Text(text="Hi"), usage=Usage(input_tokens=53, output_tokens=56, reasoning=41)))
    assert encoded["usage"] == counts


def test_errors_of_a_failed_interaction_are_decoded() -> None:
    errors = [{"code": "https://ai.google.dev/errors/unavailable", "message": "busy"}]
    error = decode(status="failed", errors=errors).error
    assert error is not None
    assert (error.kind, error.message) == ("overloaded", "busy")
    assert decode(OUTPUT, errors=errors).error is None


def test_repeated_user_input_is_opaque() -> None:
    user_input = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}
    parts = [part for message in decode(user_input, OUTPUT).candidates[0].messages for part in message.parts]
    assert [type(part) for part in parts] == [OpaquePart, Text]


@pytest.mark.parametrize(
    ("stop", "status"),
    [("end_turn", "completed"), ("tool_use", "requires_action"), ("max_tokens", "incomplete"), ("error", "failed")],
)
def test_stop_reasons_are_encoded_as_status(stop: StopReason, status: str) -> None:
    assert encode(foreign_response(Text(text="Hi"), stop=stop))["status"] == status


def test_foreign_responses_are_encoded_as_steps() -> None:
    call = ToolCall(id="toolu_1", name="f", arguments='{"a": 1}')
    encoded = encode(
        foreign_response(Text(text="Hi"), call, stop="tool_use", id="msg_1", model="m", created=1762000000)
    )
    assert encoded == {
        "id": "msg_1",
        "object": "interaction",
        "model": "m",
        "created": "2025-11-01T12:26:40Z",
        "status": "requires_action",
        "steps": [OUTPUT, {"type": "function_call", "id": "toolu_1", "name": "f", "arguments": {"a": 1}}],
    }


def test_without_an_envelope_key_a_foreign_signature_is_a_loss() -> None:
    signature = Signature(issuer="anthropic", data="sig", kind="signature")
    response = foreign_response(Reasoning(content=(ReasoningText(kind="full", text="hm"),), signature=signature))
    encoding = CODEC.encode_response(response, ResponseContext())
    (loss,) = encoding.report.resolve(response, {})
    assert loss.kind == "dropped"
    assert loss.path.endswith("/signature")


def test_truncated_arguments_are_wrapped_as_json() -> None:
    message = Message(role="assistant", parts=(ToolCall(id="c", name="f", arguments='{"a": ', at=""),))
    response = Response(origin="gemini-interactions", candidates=(Candidate(messages=(message,)),))
    assert encode(response)["steps"][0]["arguments"] == {"_raw": '{"a": '}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "invalid_argument", "message": "x"}, "invalid_request"),
        ({"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED"}, "rate_limit"),
        ({"code": 503, "message": "x"}, "overloaded"),
        ({"code": "https://a/b/not_found", "message": "x"}, "not_found"),
        ({"code": "invalid_argument", "message": "9 exceeds the maximum number of tokens allowed"}, "context_length"),
        ({"message": "x"}, "other"),
    ],
)
def test_errors(error: Any, kind: str) -> None:
    decoded = CODEC.decode_error(json.dumps({"error": error}).encode(), None)
    assert decoded.kind == kind
    assert json.loads(CODEC.encode_error(decoded).to_bytes()) == {"error": error}


def test_foreign_errors_are_encoded() -> None:
    encoded = json.loads(CODEC.encode_error(ApiError(kind="rate_limit", message="slow down")).to_bytes())
    assert encoded == {"error": {"code": "resource_exhausted", "message": "slow down"}}


@given(seconds=st.integers(-62_000_000_000, 200_000_000_000))
def test_timestamps_match_the_calendar(seconds: int) -> None:
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    assert encode_timestamp(seconds) == text
    assert decode_timestamp(text) == seconds


def test_timestamps_with_fractions_and_offsets() -> None:
    assert decode_timestamp("2026-05-15T12:00:00.25+02:00") == 1778839200.25
    assert encode_timestamp(1778839200.25) == "2026-05-15T10:00:00.25Z"
    assert decode_timestamp("yesterday") is None


@pytest.mark.parametrize(
    ("reason", "status"), [("refusal", "incomplete"), ("malformed_call", "failed"), ("other", "incomplete")]
)
def test_unsuccessful_stops_are_not_completed(reason: StopReason, status: str) -> None:
    encoded = encode(Response(origin="", candidates=(Candidate(stop=Stop(reason=reason)),)))
    assert encoded["status"] == status


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_unfinished_response_is_not_completed(status: str) -> None:
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": []}
    assert tw.translate(body, "openai-responses", "gemini-interactions", "response").value["status"] == status
    interaction = {"id": "v1_a", "object": "interaction", "status": status, "model": "m", "steps": []}
    assert tw.translate(interaction, "gemini-interactions", "openai-responses", "response").value["status"] == status


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "gemini", "ollama", "openrouter"])
def test_status_of_an_unfinished_response_is_reported(target: str) -> None:
    interaction = {"id": "v1_a", "object": "interaction", "status": "in_progress", "model": "m", "steps": []}
    losses = tw.translate(interaction, "gemini-interactions", target, "response").losses
    assert "/status" in {loss.path for loss in losses}
    finished = {**interaction, "status": "completed"}
    losses = tw.translate(finished, "gemini-interactions", target, "response").losses
    assert "/status" not in {loss.path for loss in losses}
