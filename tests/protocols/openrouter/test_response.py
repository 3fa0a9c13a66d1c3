"""OpenRouter answers: proofs both ways, its own words for errors, and what only it says."""

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
SEALED = {"type": "reasoning.encrypted", "data": "gAAA/+==", "id": "rs_1", "format": "openai-responses-v1", "index": 1}


def answer(message: Any, finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": None}
    return {**head, "choices": [choice], **more}


def test_a_signed_thought_reaches_an_anthropic_client() -> None:
    body = answer({"content": "18C", "reasoning": "Look.", "reasoning_details": [SIGNED]})
    made, _ = translate_response(body, OPENROUTER, "anthropic")
    assert made["content"] == [
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
        {"type": "text", "text": "18C", "citations": []},
    ]


def test_a_thought_of_anthropic_reaches_an_openrouter_client() -> None:
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
    made, losses = translate_response(body, "anthropic", OPENROUTER)
    message = made["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_details"]) == ("Look.", [SIGNED])
    assert made["choices"][0]["native_finish_reason"] == "end_turn"
    assert openrouter.accept_response(made) is None
    assert losses == {}


def test_an_encrypted_item_reaches_an_openrouter_client_with_its_name() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.2",
        "status": "completed",
        "output": [
            {**item, "encrypted_content": "gAAA/+=="},
            {**said, "content": [{"type": "output_text", "text": "18C", "annotations": []}]},
        ],
    }
    made, losses = translate_response(body, "openai-responses", OPENROUTER)
    assert made["choices"][0]["message"]["reasoning_details"] == [SUMMARY, SEALED]
    assert "/output/0/id" not in losses


def test_ar_10_null_arguments_are_no_arguments() -> None:
    """AR-10: OpenRouter returns `arguments: null`."""
    call = {"id": "3sniiMddS", "type": "function", "function": {"name": "now", "arguments": None}}
    body = answer({"content": None, "tool_calls": [call]}, "tool_calls")
    part = decode_response_body(body).candidates[0].messages[0].parts[0]
    assert isinstance(part, ToolCall)
    assert (part.arguments, part.complete) == ("", True)
    made, _ = translate_response(body, OPENROUTER, "anthropic")
    made_call = {"type": "tool_use", "id": "3sniiMddS", "name": "now", "input": {}, "caller": {"type": "direct"}}
    assert made["content"] == [made_call]
    made, _ = translate_response(body, OPENROUTER, "openai-responses")
    assert made["output"][0]["arguments"] == "{}"
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})


def test_th_14_an_unsigned_thought_is_shown_and_never_sent_to_anthropic() -> None:
    """TH-14: reasoning without signature is allowed in the model."""
    unsigned = {"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0}
    body = answer({"content": "18C", "reasoning": "Hm.", "reasoning_details": [unsigned]})
    made, _ = translate_response(body, OPENROUTER, "anthropic")
    assert made["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": ""}


def test_an_error_within_a_200_is_a_failed_answer() -> None:
    body = {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "x"}}}
    failed = decode_response_body(body).error
    assert failed is not None
    assert (failed.kind, failed.message) == ("server", "Provider returned error")
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})
    made, _ = translate_response(body, OPENROUTER, "openai-responses")
    assert made["status"] == "failed"
    assert made["error"]["message"] == "Provider returned error"


@pytest.mark.parametrize(
    ("code", "word", "kind"),
    [
        (400, "context_length_exceeded", "context_length"),
        (402, "payment_required", "billing"),
        (403, None, "permission"),
        (429, None, "rate_limit"),
        (502, "provider_overloaded", "overloaded"),
        (524, None, "server"),
        (500, "of_tomorrow", "server"),
    ],
)
def test_the_kind_of_an_error_is_its_own_word_or_its_number(code: int, word: str | None, kind: str) -> None:
    told = {"code": code, "message": "no", **({} if word is None else {"metadata": {"error_type": word}})}
    body = {"error": told, "user_id": "user_1"}
    assert get_codec(OPENROUTER).decode_error(str(body).replace("'", '"').encode(), None).kind == kind
    assert translate_error(body, OPENROUTER, OPENROUTER) == body


def test_an_error_of_another_protocol_has_a_number_and_a_word() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    made = translate_error(body, "anthropic", OPENROUTER)
    assert made == {"error": {"message": "slow down", "code": 429, "metadata": {"error_type": "rate_limit_exceeded"}}}
    assert openrouter.accept_error(made) is None


def test_cost_and_provider_are_losses_elsewhere_also_in_chat() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}
    body = answer({"content": "Hi"}, provider="x", usage=usage)
    body["choices"][0]["native_finish_reason"] = "completed"
    assert translate_response(body, OPENROUTER, OPENROUTER) == (body, {})
    for target in ("openai-chat", "anthropic"):
        _, losses = translate_response(body, OPENROUTER, target)
        assert {"/provider", "/usage/cost", "/choices/0/native_finish_reason"} <= losses.keys()
