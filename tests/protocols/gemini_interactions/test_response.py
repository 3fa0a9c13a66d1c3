"""What the Interactions codec makes of its own answers and errors, and of those of others."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.canonical.content import Message, OpaquePart, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.codec.wire.timestamps import decode_timestamp, encode_timestamp
from toolwire.protocols.gemini_interactions import CODEC

CALL = {"type": "function_call", "id": "c1", "name": "f", "arguments": {}}
SAID = {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}


def decode(*steps: Any, **body: Any) -> Response:
    whole = {"id": "v1_a", "object": "interaction", "status": "completed", "model": "m", "steps": list(steps), **body}
    return CODEC.decode_response(json.dumps(whole).encode(), ResponseContext())


def encode(response: Response, **context: Any) -> Any:
    return json.loads(CODEC.encode_response(response, ResponseContext(**context)).to_bytes())


def answer(*parts: Any, stop: StopReason = "end_turn", **more: Any) -> Response:
    message = Message(role="assistant", parts=parts)
    return Response(origin="anthropic", candidates=(Candidate(messages=(message,), stop=Stop(reason=stop)),), **more)


@pytest.mark.parametrize(
    ("status", "steps", "reason"),
    [
        ("completed", [SAID], "end_turn"),
        ("completed", [CALL], "tool_use"),
        ("requires_action", [CALL], "tool_use"),
        ("incomplete", [SAID], "max_tokens"),
        ("requires_continuation", [SAID], "continuation"),
        ("failed", [], "error"),
        ("cancelled", [], "cancelled"),
        ("budget_exceeded", [SAID], "other"),
        ("a_word_of_tomorrow", [SAID], "other"),
    ],
)
def test_what_ended_it(status: str, steps: list[Any], reason: str) -> None:
    stop = decode(*steps, status=status).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (reason, status)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_what_has_not_ended(status: str) -> None:
    assert decode(SAID, status=status).candidates[0].stop is None


def test_thoughts_are_part_of_the_output() -> None:
    counts = {"total_input_tokens": 53, "total_output_tokens": 15, "total_thought_tokens": 41, "total_tokens": 109}
    usage = decode(SAID, usage=counts).usage
    assert usage == Usage(
        input_tokens=53, output_tokens=56, reasoning=41, total=109, wire_form=usage.wire_form if usage else ()
    )
    told = encode(answer(Text(text="Hi"), usage=Usage(input_tokens=53, output_tokens=56, reasoning=41)))
    assert told["usage"] == counts


def test_why_it_failed() -> None:
    errors = [{"code": "https://ai.google.dev/errors/unavailable", "message": "busy"}]
    error = decode(status="failed", errors=errors).error
    assert error is not None
    assert (error.kind, error.message) == ("overloaded", "busy")
    assert decode(SAID, errors=errors).error is None


def test_what_the_client_said_is_no_answer() -> None:
    asked = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}
    parts = [part for message in decode(asked, SAID).candidates[0].messages for part in message.parts]
    assert [type(part) for part in parts] == [OpaquePart, Text]


@pytest.mark.parametrize(
    ("stop", "status"),
    [("end_turn", "completed"), ("tool_use", "requires_action"), ("max_tokens", "incomplete"), ("error", "failed")],
)
def test_status_tells_the_stop(stop: StopReason, status: str) -> None:
    assert encode(answer(Text(text="Hi"), stop=stop))["status"] == status


def test_an_answer_of_another_protocol() -> None:
    call = ToolCall(id="toolu_1", name="f", arguments='{"a": 1}')
    told = encode(answer(Text(text="Hi"), call, stop="tool_use", id="msg_1", model="m", created=1762000000))
    assert told == {
        "id": "msg_1",
        "object": "interaction",
        "model": "m",
        "created": "2025-11-01T12:26:40Z",
        "status": "requires_action",
        "steps": [SAID, {"type": "function_call", "id": "toolu_1", "name": "f", "arguments": {"a": 1}}],
    }


def test_without_a_key_the_proof_is_a_loss() -> None:
    seal = Signature(issuer="anthropic", data="sig", kind="signature")
    response = answer(Reasoning(content=(ReasoningText(kind="full", text="hm"),), signature=seal))
    encoding = CODEC.encode_response(response, ResponseContext())
    (loss,) = encoding.report.resolve(response, {})
    assert loss.kind == "dropped"
    assert loss.path.endswith("/signature")


def test_arguments_that_a_stream_cut_stay_json() -> None:
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


def test_an_error_of_another_protocol() -> None:
    told = json.loads(CODEC.encode_error(ApiError(kind="rate_limit", message="slow down")).to_bytes())
    assert told == {"error": {"code": "resource_exhausted", "message": "slow down"}}


@given(seconds=st.integers(-62_000_000_000, 200_000_000_000))
def test_moments_are_those_of_the_calendar(seconds: int) -> None:
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    assert encode_timestamp(seconds) == text
    assert decode_timestamp(text) == seconds


def test_moments_with_fractions_and_offsets() -> None:
    assert decode_timestamp("2026-05-15T12:00:00.25+02:00") == 1778839200.25
    assert encode_timestamp(1778839200.25) == "2026-05-15T10:00:00.25Z"
    assert decode_timestamp("yesterday") is None


@pytest.mark.parametrize(
    ("reason", "status"), [("refusal", "incomplete"), ("malformed_call", "failed"), ("other", "incomplete")]
)
def test_only_what_ended_well_is_completed(reason: StopReason, status: str) -> None:
    made = encode(Response(origin="", candidates=(Candidate(stop=Stop(reason=reason)),)))
    assert made["status"] == status
