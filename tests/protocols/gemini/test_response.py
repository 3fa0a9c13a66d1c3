"""Responses and errors of the Gemini protocol: stop reasons, blocked prompts, token counts and error lists."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Response, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.gemini import CODEC


def decoded(body: Any) -> Response:
    return CODEC.decode_response(json.dumps(body).encode(), ResponseContext())


def response_body(*parts: Any, reason: str = "STOP", **fields: Any) -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], **fields}


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "filtered"),
        ("IMAGE_RECITATION", "filtered"),
        ("MALFORMED_FUNCTION_CALL", "malformed_call"),
        ("CONTINUATION", "continuation"),
        ("NO_IMAGE", "other"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_finish_reasons_decode_to_stop_reasons(finish_reason: str, reason: str) -> None:
    stop = decoded(response_body({"text": "a"}, reason=finish_reason)).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (reason, finish_reason)


def test_stop_means_tool_use_only_after_client_side_calls() -> None:
    call = decoded(response_body({"functionCall": {"name": "f"}})).candidates[0].stop
    hosted = decoded(response_body({"toolCall": {"id": "a", "toolType": "URL_CONTEXT"}})).candidates[0].stop
    truncated = decoded(response_body({"functionCall": {"name": "f"}}, reason="MAX_TOKENS")).candidates[0].stop
    assert [stop and stop.reason for stop in (call, hosted, truncated)] == ["tool_use", "end_turn", "max_tokens"]


def test_a_blocked_prompt_is_a_filtered_response() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    chat = tw.translate(body, "gemini", "openai-chat", "response").value
    assert chat["choices"][0]["finish_reason"] == "content_filter"
    assert tw.translate(body, "gemini", "gemini", "response").value == body


def test_thought_tokens_count_as_output() -> None:
    counts = {"promptTokenCount": 29, "candidatesTokenCount": 15, "thoughtsTokenCount": 804, "totalTokenCount": 848}
    usage = decoded(response_body({"text": "a"}, usageMetadata=counts)).usage
    assert usage == Usage(input_tokens=29, output_tokens=819, reasoning=804, total=848)
    chat = tw.translate(response_body({"text": "a"}, usageMetadata=counts), "gemini", "openai-chat", "response").value
    assert chat["usage"]["completion_tokens"] == 819
    round_trip_body = tw.translate(chat, "openai-chat", "gemini", "response").value["usageMetadata"]
    assert {name: round_trip_body[name] for name in counts} == counts


def test_foreign_responses_have_the_fields_of_the_sdk() -> None:
    chat = {
        "id": "c",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
            }
        ],
    }
    encoded = tw.translate(chat, "openai-chat", "gemini", "response").value
    assert encoded == {
        "candidates": [
            {
                "content": {"parts": [{"functionCall": {"name": "f", "args": {}, "id": "c1"}}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "m",
        "createTime": "2023-11-14T22:13:20Z",
        "responseId": "c",
    }


def test_errors_decode_from_an_object_or_a_list() -> None:
    error = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE", "odd": 1}}
    for body in (error, [error]):
        decoded_error = CODEC.decode_error(json.dumps(body).encode(), None)
        assert (decoded_error.kind, decoded_error.status, decoded_error.raw) == ("overloaded", 503, "UNAVAILABLE")
        assert tw.translate(body, "gemini", "gemini", "error").value == body


def test_retry_delay_is_decoded() -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
    body = {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": [delay]}}
    error = CODEC.decode_error(json.dumps(body).encode(), 429)
    assert error.retry_after == 34.4


def test_long_delay_has_no_exponent() -> None:
    for seconds, expected in ((12345678.5, "12345678.5s"), (0.25, "0.25s"), (3.0, "3s"), (1e15, "1000000000000000s")):
        body = CODEC.encode_error(ApiError(kind="rate_limit", message="m", retry_after=seconds)).to_bytes()
        assert json.loads(body)["error"]["details"][0]["retryDelay"] == expected


def test_context_overflow_is_recognized_by_message() -> None:
    message = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
    body = {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    assert tw.translate(body, "gemini", "openai-chat", "error").value["error"]["code"] == "context_length_exceeded"


def test_a_status_is_reported_once() -> None:
    body = {"id": "v1_a", "object": "interaction", "status": "failed", "model": "m", "steps": []}
    translation = tw.translate(body, "gemini-interactions", "gemini", "response")
    assert translation.value["candidates"][0]["finishReason"] == "OTHER"
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("approximated", "/status")]
    queued = tw.translate({**body, "status": "queued"}, "gemini-interactions", "gemini", "response")
    assert "/status" in {loss.path for loss in queued.losses}


@pytest.mark.parametrize("body", [{}, {"foo": 1}, {"error_description": "gone"}])
def test_body_that_is_no_response_raises_decode_error(body: Any) -> None:
    with pytest.raises(tw.DecodeError, match="/candidates"):
        tw.translate(body, "gemini", "anthropic", "response")


@pytest.mark.parametrize("body", [{"usage_metadata": {"prompt_token_count": 3}}, {"modelVersion": "gemini-3-pro"}])
def test_response_without_candidates_is_decoded(body: Any) -> None:
    assert tw.translate(body, "gemini", "anthropic", "response").value["content"] == []
