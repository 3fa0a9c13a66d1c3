"""Responses of the Ollama protocol: stop reasons, timestamps and errors that are only text."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import anthropic_response, chat_call, chat_response, chat_tool
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.translation import loss_paths, translated_body
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.ollama import CODEC
from toolwire.protocols.ollama.response import format_rfc3339, parse_rfc3339

OLLAMA = "ollama"


def response_body(message: Any = None, **fields: Any) -> Any:
    full_message = {"role": "assistant", "content": "Hi.", **(message or {})}
    envelope = {"model": "qwen3", "created_at": "2026-01-01T00:00:01.5Z"}
    return {**envelope, "message": full_message, "done": True, "done_reason": "stop", **fields}


def decoded(body: Any) -> Response:
    return CODEC.decode_response(json.dumps(body).encode(), ResponseContext())


CALL = {"function": {"name": "f", "arguments": {}}}


@pytest.mark.parametrize(
    ("reason", "calls", "expected"),
    [
        ("stop", [], "end_turn"),
        ("stop", [CALL], "tool_use"),
        ("length", [], "max_tokens"),
        ("length", [CALL], "max_tokens"),
        ("load", [], "other"),
        ("unload", [], "other"),
        ("", [], "cancelled"),
        ("custom", [], "other"),
    ],
)
def test_done_reasons_decode_with_regard_to_calls(reason: str, calls: list[Any], expected: str) -> None:
    stop = decoded(response_body({"tool_calls": calls}, done_reason=reason)).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (expected, reason)


def test_done_without_reason_is_a_stop() -> None:
    body = response_body()
    del body["done_reason"]
    assert translated_body(body, OLLAMA, CHAT, "response")["choices"][0]["finish_reason"] == "stop"
    assert translated_body(body, OLLAMA, OLLAMA, "response") == body


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:01.5Z", 1767225601.5),
        ("2024-02-29T12:00:00+02:00", 1709200800),
        ("2000-03-01T00:00:00-00:30", 951870600),
        ("2026-13-01T00:00:00Z", None),
        ("yesterday", None),
    ],
)
def test_timestamps_are_decoded_and_round_trip(text: str, seconds: float | None) -> None:
    assert parse_rfc3339(text) == seconds
    body = response_body(created_at=text)
    assert translated_body(body, OLLAMA, OLLAMA, "response") == body
    if seconds is not None:
        assert parse_rfc3339(format_rfc3339(seconds)) == int(seconds)
        assert translated_body(body, OLLAMA, CHAT, "response")["created"] == int(seconds)
    else:
        assert "/created_at" in loss_paths(body, OLLAMA, CHAT, "response")


def test_foreign_responses_become_one_message() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Well.", "tool_calls": [chat_call("call_1")]}
    encoded = translated_body(chat_response(message), CHAT, OLLAMA, "response")
    assert encoded == {
        "model": "gpt-4o",
        "created_at": "1970-01-01T00:00:01Z",
        "message": {
            "role": "assistant",
            "content": "Hi",
            "thinking": "Well.",
            "tool_calls": [
                {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}}
            ],
        },
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 9,
        "eval_count": 7,
    }
    assert loss_paths(chat_response(message), CHAT, OLLAMA, "response") == {"/id"}


def test_unsupported_stop_reasons_are_reported() -> None:
    body = anthropic_response({"type": "text", "text": "No."}, stop_reason="refusal")
    assert translated_body(body, ANTHROPIC, OLLAMA, "response")["done_reason"] == "stop"
    assert "/stop_reason" in loss_paths(body, ANTHROPIC, OLLAMA, "response")


def test_namespaces_are_restored_in_responses() -> None:
    request = {
        "model": "gpt-5",
        "input": "Go on.",
        "tools": [{"type": "namespace", "name": "files", "description": "d", "tools": [_function("read")]}],
    }
    message = {"tool_calls": [{"id": "call_1", "function": {"name": "files__read", "arguments": {}}}]}
    encoded = toolwire.translate(response_body(message), OLLAMA, "openai-responses", "response", request=request).value
    (call,) = [item for item in encoded["output"] if item["type"] == "function_call"]
    assert (call["namespace"], call["name"]) == ("files", "read")


def _function(name: str) -> Any:
    return {"type": "function", **chat_tool(name)["function"]}


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("model is required", 400, "invalid_request"),
        ('"llama3.2" does not support thinking', 400, "invalid_request"),
        ("unauthorized", 401, "authentication"),
        ("model 'x' not found", 404, "not_found"),
        ("too fast", 429, "rate_limit"),
        ("the input length exceeds the context length", 400, "context_length"),
        ("boom", 500, "server"),
        ("boom", None, "other"),
    ],
)
def test_error_kinds_follow_message_and_status(text: str, status: int | None, kind: str) -> None:
    error = CODEC.decode_error(json.dumps({"error": text}).encode(), status)
    assert (error.kind, error.message, error.status) == (kind, text, status)


def test_foreign_errors_keep_only_their_message() -> None:
    body = {"error": {"message": "Overloaded", "type": "overloaded_error", "param": None, "code": "overloaded"}}
    assert translated_body(body, CHAT, OLLAMA, "error") == {"error": "Overloaded"}
    assert loss_paths(body, CHAT, OLLAMA, "error") == {"/error/type", "/error/code"}
