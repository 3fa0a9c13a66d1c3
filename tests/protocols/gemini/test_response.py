"""What is particular to Gemini's answers and errors: stops, blocked prompts, counts, lists of one error."""

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


def answer(*parts: Any, reason: str = "STOP", **fields: Any) -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], **fields}


@pytest.mark.parametrize(
    ("word", "reason"),
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
def test_reasons(word: str, reason: str) -> None:
    stop = decoded(answer({"text": "a"}, reason=word)).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (reason, word)


def test_a_stop_after_a_call_is_a_tool_stop_and_one_after_hosted_calls_is_not() -> None:
    call = decoded(answer({"functionCall": {"name": "f"}})).candidates[0].stop
    hosted = decoded(answer({"toolCall": {"id": "a", "toolType": "URL_CONTEXT"}})).candidates[0].stop
    cut = decoded(answer({"functionCall": {"name": "f"}}, reason="MAX_TOKENS")).candidates[0].stop
    assert [one and one.reason for one in (call, hosted, cut)] == ["tool_use", "end_turn", "max_tokens"]


def test_a_blocked_prompt_is_a_filtered_answer() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    chat = tw.translate(body, "gemini", "openai-chat", "response").value
    assert chat["choices"][0]["finish_reason"] == "content_filter"
    assert tw.translate(body, "gemini", "gemini", "response").value == body


def test_thoughts_are_part_of_the_output() -> None:
    counts = {"promptTokenCount": 29, "candidatesTokenCount": 15, "thoughtsTokenCount": 804, "totalTokenCount": 848}
    usage = decoded(answer({"text": "a"}, usageMetadata=counts)).usage
    assert usage == Usage(input_tokens=29, output_tokens=819, reasoning=804, total=848)
    chat = tw.translate(answer({"text": "a"}, usageMetadata=counts), "gemini", "openai-chat", "response").value
    assert chat["usage"]["completion_tokens"] == 819
    back = tw.translate(chat, "openai-chat", "gemini", "response").value["usageMetadata"]
    assert {name: back[name] for name in counts} == counts


def test_an_answer_of_another_protocol_is_one_that_the_sdk_reads() -> None:
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
    made = tw.translate(chat, "openai-chat", "gemini", "response").value
    assert made == {
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


def test_an_error_may_stand_in_a_list() -> None:
    error = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE", "odd": 1}}
    for body in (error, [error]):
        found = CODEC.decode_error(json.dumps(body).encode(), None)
        assert (found.kind, found.status, found.raw) == ("overloaded", 503, "UNAVAILABLE")
        assert tw.translate(body, "gemini", "gemini", "error").value == body


def test_when_to_try_again_is_read_and_written() -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
    body = {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": [delay]}}
    error = CODEC.decode_error(json.dumps(body).encode(), 429)
    assert error.retry_after == 34.4


def test_q_13_a_long_delay_has_no_exponent() -> None:
    for seconds, written in ((12345678.5, "12345678.5s"), (0.25, "0.25s"), (3.0, "3s"), (1e15, "1000000000000000s")):
        body = CODEC.encode_error(ApiError(kind="rate_limit", message="m", retry_after=seconds)).to_bytes()
        assert json.loads(body)["error"]["details"][0]["retryDelay"] == written


def test_too_long_a_prompt_is_recognised() -> None:
    said = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
    body = {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}
    assert tw.translate(body, "gemini", "openai-chat", "error").value["error"]["code"] == "context_length_exceeded"


def test_a_status_is_reported_once() -> None:
    body = {"id": "v1_a", "object": "interaction", "status": "failed", "model": "m", "steps": []}
    made = tw.translate(body, "gemini-interactions", "gemini", "response")
    assert made.value["candidates"][0]["finishReason"] == "OTHER"
    assert [(loss.kind, loss.path) for loss in made.losses] == [("approximated", "/status")]
    waiting = tw.translate({**body, "status": "queued"}, "gemini-interactions", "gemini", "response")
    assert "/status" in {loss.path for loss in waiting.losses}
