"""Chat and OpenRouter share an extras family: common fields pass, fields of only one are reported."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.openrouter_translation import OPENROUTER, translate_error, translate_request, translate_response
from tests.support.samples.fixture_files import fixtures

CHAT = "openai-chat"
MESSAGES = [{"role": "user", "content": "Hi"}]
SHARED_BODY = {
    "model": "m",
    "messages": MESSAGES,
    "max_tokens": 64,
    "stop": "END",
    "logit_bias": {"1": -100},
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_key": "k",
    "user": "u",
}
OPENROUTER_FIELDS = {
    "provider": {"only": ["anthropic"]},
    "plugins": [{"id": "file-parser"}],
    "session_id": "s",
    "trace": {"trace_id": "t"},
    "top_a": 0.1,
}
DETAILS = [{"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0}]


@pytest.mark.parametrize(("source", "target"), [(CHAT, OPENROUTER), (OPENROUTER, CHAT)])
def test_shared_fields_pass_unchanged(source: str, target: str) -> None:
    assert translate_request(SHARED_BODY, source, target) == (SHARED_BODY, {})


def test_fields_that_chat_lacks_are_reported() -> None:
    translated, losses = translate_request(SHARED_BODY | OPENROUTER_FIELDS, OPENROUTER, CHAT)
    assert translated == SHARED_BODY
    assert losses == dict.fromkeys(("/provider", "/plugins/0", "/session_id", "/trace", "/top_a"), "dropped")


def test_fields_that_openrouter_lacks_are_reported() -> None:
    translated, losses = translate_request(
        SHARED_BODY | {"safety_identifier": "x", "chat_template_kwargs": {"a": 1}}, CHAT, OPENROUTER
    )
    assert translated == SHARED_BODY
    assert losses == {"/safety_identifier": "dropped", "/chat_template_kwargs": "dropped"}


@pytest.mark.parametrize("value", [1, None])
def test_unknown_fields_are_dropped_and_reported(value: Any) -> None:
    for source, target in ((CHAT, OPENROUTER), (OPENROUTER, CHAT)):
        translated, losses = translate_request(SHARED_BODY | {"tomorrow": value}, source, target)
        assert translated == SHARED_BODY
        assert losses == ({} if value is None else {"/tomorrow": "dropped"})


def test_reasoning_effort_is_translated_both_ways() -> None:
    body = {"model": "m", "messages": MESSAGES}
    assert translate_request(body | {"reasoning": {"effort": "low"}}, OPENROUTER, CHAT) == (
        body | {"reasoning_effort": "low"},
        {},
    )
    assert translate_request(body | {"reasoning_effort": "low"}, CHAT, OPENROUTER) == (
        body | {"reasoning": {"effort": "low"}},
        {},
    )


def test_openrouter_fields_of_a_chat_client_pass() -> None:
    message = {"role": "assistant", "content": "So.", "reasoning": "Hm.", "reasoning_details": DETAILS}
    text = {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {
        **SHARED_BODY,
        **OPENROUTER_FIELDS,
        "messages": [*MESSAGES, message, {"role": "user", "content": [text]}],
        "tools": [tool, {"type": "openrouter:datetime"}],
        "reasoning": {"effort": "low"},
        "reasoning_effort": "low",
    }
    assert translate_request(body, CHAT, OPENROUTER) == (body, {})


def test_details_of_a_merged_turn_are_sent() -> None:
    message = {"role": "assistant", "content": "So.", "reasoning_details": DETAILS}
    body = {"model": "m", "messages": [*MESSAGES, message, {"role": "assistant", "content": "Well."}]}
    translated, losses = translate_request(body, CHAT, OPENROUTER)
    assert translated["messages"][-1]["reasoning_details"] == DETAILS
    assert losses == {}


def test_details_of_a_user_message_are_reported() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi", "reasoning_details": DETAILS}]}
    _, losses = translate_request(body, CHAT, OPENROUTER)
    assert losses == {"/messages/0/reasoning_details/0": "dropped"}


def test_chat_client_gets_reasoning_and_the_signature_is_reported() -> None:
    message = {"role": "assistant", "content": "So.", "refusal": None, "reasoning": "Hm.", "reasoning_details": DETAILS}
    body = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"message": message}]}
    translated, losses = translate_response(body, OPENROUTER, CHAT)
    chat_message = translated["choices"][0]["message"]
    assert (chat_message["reasoning_content"], chat_message["content"]) == ("Hm.", "So.")
    assert chat_message.keys() == {"role", "content", "refusal", "reasoning_content"}
    assert losses == {"/choices/0/message/reasoning_details/0/signature": "dropped"}


def test_deprecated_functions_become_tools() -> None:
    body = {
        "model": "m",
        "messages": MESSAGES,
        "functions": [{"name": "f"}],
        "function_call": {"name": "f"},
    }
    translated, losses = translate_request(body, CHAT, OPENROUTER)
    function_tool = {"type": "function", "function": {"name": "f"}}
    assert (translated["tools"], translated["tool_choice"], losses) == ([function_tool], function_tool, {})
    assert translated.keys() == {"model", "messages", "tools", "tool_choice"}


def test_numeric_codes_are_translated_to_and_from_chat() -> None:
    body = {"error": {"code": 400, "message": "Too long.", "metadata": {"error_type": "context_length_exceeded"}}}
    assert translate_error(body, OPENROUTER, CHAT)["error"]["code"] == "context_length_exceeded"
    assert translate_error({"error": {"code": 502, "message": "Bad."}}, CHAT, OPENROUTER)["error"]["code"] == 502


@pytest.mark.parametrize(("source", "target"), [(CHAT, OPENROUTER), (OPENROUTER, CHAT)])
def test_log_probabilities_pass_through_streams(source: str, target: str) -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [token]}, "finish_reason": None}
    chunk = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    end = chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    wire = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in (chunk, end)) + b"data: [DONE]\n\n"
    stream = tw.translate_stream([wire], source, target)
    assert b"".join(stream).count(b'"logprob": -0.5') == 1
    assert stream.losses == []


@pytest.mark.parametrize("protocol", [CHAT, OPENROUTER])
@pytest.mark.parametrize(("name", "body"), fixtures(OPENROUTER, "requests"))
def test_fixtures_pass_through_unchanged(name: str, body: Any, protocol: str) -> None:
    encoded = tw.translate(body, protocol, protocol)
    assert (encoded.value, encoded.losses) == (body, [])


def test_translated_fields_are_not_reported() -> None:
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "thinking_with_tools"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any(path.startswith("/messages/1/reasoning") for path in losses)
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "cache_marks"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any("cache" in path for path in losses)
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "reasoning_budget"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any(path.startswith("/reasoning") for path in losses)
