"""Responses of OpenRouter: signatures in both directions, error types and fields that only it has."""

from typing import Any

import pytest

from tests.support.openrouter_translation import (
    OPENROUTER,
    decode_response_body,
    get_codec,
    translate_error,
    translate_response,
)
from tests.support.sdk import openrouter
from toolwire.canonical.content import ToolCall

SIGNED = {
    "type": "reasoning.text",
    "text": "Look.",
    "signature": "c2ln/+==",
    "format": "anthropic-claude-v1",
    "index": 0,
}
SUMMARY = {"type": "reasoning.summary", "summary": "Look.", "format": "openai-responses-v1", "index": 0}
ENCRYPTED = {
    "type": "reasoning.encrypted",
    "data": "gAAA/+==",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 1,
}


def response_body(message: Any, finish: str = "stop", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": None}
    return {**head, "choices": [choice], **fields}


def test_signed_reasoning_reaches_an_anthropic_client() -> None:
    body = response_body({"content": "18C", "reasoning": "Look.", "reasoning_details": [SIGNED]})
    translated, _ = translate_response(body, OPENROUTER, "anthropic")
    assert translated["content"] == [
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
        {"type": "text", "text": "18C", "citations": []},
    ]


def test_anthropic_thinking_reaches_an_openrouter_client() -> None:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": [
            {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
            {"type": "text", "text": "18C", "citations": []},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    translated, losses = translate_response(body, "anthropic", OPENROUTER)
    message = translated["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_details"]) == ("Look.", [SIGNED])
    assert translated["choices"][0]["native_finish_reason"] == "end_turn"
    assert openrouter.accept_response(translated) is None
    assert losses == {}


def test_encrypted_reasoning_reaches_an_openrouter_client_with_its_id() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.2",
        "status": "completed",
        "output": [
            {**item, "encrypted_content": "gAAA/+=="},
            {**message, "content": [{"type": "output_text", "text": "18C", "annotations": []}]},
        ],
    }
    translated, losses = translate_response(body, "openai-responses", OPENROUTER)
    assert translated["choices"][0]["message"]["reasoning_details"] == [SUMMARY, ENCRYPTED]
    assert "/output/0/id" not in losses


def test_ar_10_null_arguments_are_empty_arguments() -> None:
    """AR-10: OpenRouter returns `arguments: null`."""
    call = {"id": "3sniiMddS", "type": "function", "function": {"name": "now", "arguments": None}}
    body = response_body({"content": None, "tool_calls": [call]}, "tool_calls")
    part = decode_response_body(body).candidates[0].messages[0].parts[0]
    assert isinstance(part, ToolCall)
    assert (part.arguments, part.complete) == ("", True)
    translated, _ = translate_response(body, OPENROUTER, "anthropic")
    tool_use = {"type": "tool_use", "id": "3sniiMddS", "name": "now", "input": {}, "caller": {"type": "direct"}}
    assert translated["content"] == [tool_use]
    translated, _ = translate_response(body, OPENROUTER, "openai-responses")
    assert translated["output"][0]["arguments"] == "{}"
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})


def test_th_14_unsigned_reasoning_is_shown_with_an_empty_signature() -> None:
    """TH-14: reasoning without signature is allowed in the model."""
    unsigned = {"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0}
    body = response_body({"content": "18C", "reasoning": "Hm.", "reasoning_details": [unsigned]})
    translated, _ = translate_response(body, OPENROUTER, "anthropic")
    assert translated["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": ""}


def test_error_in_a_200_body_is_a_failed_response() -> None:
    body = {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "x"}}}
    failed = decode_response_body(body).error
    assert failed is not None
    assert (failed.kind, failed.message) == ("server", "Provider returned error")
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})
    translated, _ = translate_response(body, OPENROUTER, "openai-responses")
    assert translated["status"] == "failed"
    assert translated["error"]["message"] == "Provider returned error"


@pytest.mark.parametrize(
    ("code", "error_type", "kind"),
    [
        (400, "context_length_exceeded", "context_length"),
        (402, "payment_required", "billing"),
        (403, None, "permission"),
        (429, None, "rate_limit"),
        (502, "provider_overloaded", "overloaded"),
        (524, None, "server"),
        (500, "unknown_type", "server"),
    ],
)
def test_error_kind_comes_from_error_type_or_code(code: int, error_type: str | None, kind: str) -> None:
    error = {"code": code, "message": "no", **({} if error_type is None else {"metadata": {"error_type": error_type}})}
    body = {"error": error, "user_id": "user_1"}
    assert get_codec(OPENROUTER).decode_error(str(body).replace("'", '"').encode(), None).kind == kind
    assert translate_error(body, OPENROUTER, OPENROUTER) == body


def test_foreign_error_gets_a_code_and_an_error_type() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    translated = translate_error(body, "anthropic", OPENROUTER)
    assert translated == {
        "error": {"message": "slow down", "code": 429, "metadata": {"error_type": "rate_limit_exceeded"}}
    }
    assert openrouter.accept_error(translated) is None


def test_cost_and_provider_are_reported_in_other_protocols() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}
    body = response_body({"content": "Hi"}, provider="x", usage=usage)
    body["choices"][0]["native_finish_reason"] = "completed"
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})
    for target in ("openai-chat", "anthropic"):
        _, losses = translate_response(body, OPENROUTER, target)
        assert {"/provider", "/usage/cost", "/choices/0/native_finish_reason"} <= losses.keys()
