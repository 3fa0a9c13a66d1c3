"""Chat and OpenRouter are one family: what both have passes as it is, what only one has is named at the other."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.openrouter_translation import OPENROUTER, translate_error, translate_request, translate_response
from tests.support.samples.fixture_files import fixtures

CHAT = "openai-chat"
MESSAGES = [{"role": "user", "content": "Hi"}]
BOTH = {
    "model": "m",
    "messages": MESSAGES,
    "max_tokens": 64,
    "stop": "END",
    "logit_bias": {"1": -100},
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_key": "k",
    "user": "u",
}
OWN = {
    "provider": {"only": ["anthropic"]},
    "plugins": [{"id": "file-parser"}],
    "session_id": "s",
    "trace": {"trace_id": "t"},
    "top_a": 0.1,
}
DETAILS = [{"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0}]


@pytest.mark.parametrize(("source", "target"), [(CHAT, OPENROUTER), (OPENROUTER, CHAT)])
def test_what_both_have_passes_as_it_is(source: str, target: str) -> None:
    assert translate_request(BOTH, source, target) == (BOTH, {})


def test_what_chat_lacks_is_named_there() -> None:
    made, losses = translate_request(BOTH | OWN, OPENROUTER, CHAT)
    assert made == BOTH
    assert losses == dict.fromkeys(("/provider", "/plugins/0", "/session_id", "/trace", "/top_a"), "dropped")


def test_what_openrouter_lacks_is_named_there() -> None:
    made, losses = translate_request(
        BOTH | {"safety_identifier": "x", "chat_template_kwargs": {"a": 1}}, CHAT, OPENROUTER
    )
    assert made == BOTH
    assert losses == {"/safety_identifier": "dropped", "/chat_template_kwargs": "dropped"}


@pytest.mark.parametrize("value", [1, None])
def test_a_field_of_tomorrow_does_not_cross(value: Any) -> None:
    for source, target in ((CHAT, OPENROUTER), (OPENROUTER, CHAT)):
        made, losses = translate_request(BOTH | {"tomorrow": value}, source, target)
        assert made == BOTH
        assert losses == ({} if value is None else {"/tomorrow": "dropped"})


def test_reasoning_is_told_in_the_words_of_the_other() -> None:
    asked = {"model": "m", "messages": MESSAGES}
    assert translate_request(asked | {"reasoning": {"effort": "low"}}, OPENROUTER, CHAT) == (
        asked | {"reasoning_effort": "low"},
        {},
    )
    assert translate_request(asked | {"reasoning_effort": "low"}, CHAT, OPENROUTER) == (
        asked | {"reasoning": {"effort": "low"}},
        {},
    )


def test_what_a_client_of_chat_writes_of_openrouter_reaches_it() -> None:
    said = {"role": "assistant", "content": "So.", "reasoning": "Hm.", "reasoning_details": DETAILS}
    text = {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {
        **BOTH,
        **OWN,
        "messages": [*MESSAGES, said, {"role": "user", "content": [text]}],
        "tools": [tool, {"type": "openrouter:datetime"}],
        "reasoning": {"effort": "low"},
        "reasoning_effort": "low",
    }
    assert translate_request(body, CHAT, OPENROUTER) == (body, {})


def test_proofs_of_a_turn_of_several_messages_are_named() -> None:
    said = {"role": "assistant", "content": "So.", "reasoning_details": DETAILS}
    body = {"model": "m", "messages": [*MESSAGES, said, {"role": "assistant", "content": "Well."}]}
    _, losses = translate_request(body, CHAT, OPENROUTER)
    assert losses["/messages/1/reasoning_details/0"] == "dropped"


def test_an_answer_shows_reasoning_and_names_its_proof() -> None:
    message = {"role": "assistant", "content": "So.", "refusal": None, "reasoning": "Hm.", "reasoning_details": DETAILS}
    body = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"message": message}]}
    made, losses = translate_response(body, OPENROUTER, CHAT)
    shown = made["choices"][0]["message"]
    assert (shown["reasoning_content"], shown["content"]) == ("Hm.", "So.")
    assert shown.keys() == {"role", "content", "refusal", "reasoning_content"}
    assert losses == {"/choices/0/message/reasoning_details/0/signature": "dropped"}


def test_the_old_ways_of_chat_are_told_in_the_new() -> None:
    body = {
        "model": "m",
        "messages": MESSAGES,
        "functions": [{"name": "f"}],
        "function_call": {"name": "f"},
    }
    made, losses = translate_request(body, CHAT, OPENROUTER)
    named = {"type": "function", "function": {"name": "f"}}
    assert (made["tools"], made["tool_choice"], losses) == ([named], named, {})
    assert made.keys() == {"model", "messages", "tools", "tool_choice"}


def test_a_status_is_no_code_of_chats() -> None:
    told = {"error": {"code": 400, "message": "Too long.", "metadata": {"error_type": "context_length_exceeded"}}}
    assert translate_error(told, OPENROUTER, CHAT)["error"]["code"] == "context_length_exceeded"
    assert translate_error({"error": {"code": 502, "message": "Bad."}}, CHAT, OPENROUTER)["error"]["code"] == 502


@pytest.mark.parametrize(("source", "target"), [(CHAT, OPENROUTER), (OPENROUTER, CHAT)])
def test_log_probabilities_stream_through(source: str, target: str) -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [token]}, "finish_reason": None}
    chunk = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    end = chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    wire = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (chunk, end)) + b"data: [DONE]\n\n"
    stream = tw.translate_stream([wire], source, target)
    assert b"".join(stream).count(b'"logprob": -0.5') == 1
    assert stream.losses == []


@pytest.mark.parametrize("protocol", [CHAT, OPENROUTER])
@pytest.mark.parametrize(("name", "body"), fixtures(OPENROUTER, "requests"))
def test_at_home_nothing_is_set_apart(name: str, body: Any, protocol: str) -> None:
    encoded = tw.translate(body, protocol, protocol)
    assert (encoded.value, encoded.losses) == (body, [])


def test_what_arrives_is_no_loss() -> None:
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "thinking_with_tools"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any(path.startswith("/messages/1/reasoning") for path in losses)
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "cache_marks"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any("cache" in path for path in losses)
    (body,) = [body for name, body in fixtures(OPENROUTER, "requests") if name == "reasoning_budget"]
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert not any(path.startswith("/reasoning") for path in losses)
