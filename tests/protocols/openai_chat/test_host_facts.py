"""Facts of host profiles that change messages: thinking parts, empty assistant messages, a required user message."""

from typing import Any

import pytest

import toolwire as tw
from toolwire.codec.envelope import EnvelopeKey

USER = {"role": "user", "content": "Hi"}
EMPTY = {"role": "assistant", "content": ""}


def chat(*messages: dict[str, Any], model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": list(messages)}


# ---- thinking parts of Mistral


FIRST = {"model": "magistral-small", "max_tokens": 9, "messages": [USER]}
KEY = EnvelopeKey([b"k" * 32])
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def test_reasoning_is_sent_to_mistral_as_a_thinking_part() -> None:
    messages = [USER, {"role": "assistant", "content": [THINKING, {"type": "text", "text": "So."}]}, USER]
    body = {"model": "magistral-medium-2509", "max_tokens": 9, "messages": messages}
    translated = tw.translate(body, "anthropic", "openai-chat", host="mistral")
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    assert translated.value["messages"][1]["content"] == [part, {"type": "text", "text": "So."}]
    assert "/messages/1/content/0/signature" in [loss.path for loss in translated.losses]
    other = tw.translate({**body, "model": "devstral-medium"}, "anthropic", "openai-chat", host="mistral")
    assert other.value["messages"][1]["content"] == "So."
    assert "/messages/1/content/0" in [loss.path for loss in other.losses]


def test_thinking_part_of_mistral_returns_through_another_client() -> None:
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "So."}]
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "magistral-small", "choices": [choice]}
    answer = tw.translate(body, "openai-chat", "anthropic", "response", envelope_key=KEY, request=FIRST).value[
        "content"
    ]
    assert answer[0]["thinking"] == "Hm."
    messages = [USER, {"role": "assistant", "content": answer}, USER]
    history = {"model": "magistral-small", "max_tokens": 9, "messages": messages}
    sent = tw.translate(history, "anthropic", "openai-chat", host="mistral", envelope_key=KEY).value
    assert sent["messages"][1]["content"] == content


# ---- empty assistant messages


@pytest.mark.parametrize("host", ["deepseek", "moonshot", "xai", "mistral"])
def test_empty_assistant_messages_are_left_out_for_hosts_that_reject_them(host: str) -> None:
    translated = tw.translate(chat(USER, EMPTY, USER), "openai-chat", "openai-chat", host=host)
    assert [message["role"] for message in translated.value["messages"]] == ["user", "user"]
    assert ("dropped", "/messages/1") in [(loss.kind, loss.path) for loss in translated.losses]
    gemini = {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in (("user", "Hi"), ("model", ""))]}
    foreign = tw.translate(gemini, "gemini", "openai-chat", model="m", host=host)
    assert [message["role"] for message in foreign.value["messages"]] == ["user"]
    assert ("dropped", "/contents/1") in [(loss.kind, loss.path) for loss in foreign.losses]


@pytest.mark.parametrize("host", ["openai", "groq"])
def test_empty_assistant_messages_pass_to_other_hosts(host: str) -> None:
    body = chat(USER, EMPTY, USER)
    assert tw.translate(body, "openai-chat", "openai-chat", host=host).value == body


# ---- a required user message


@pytest.mark.parametrize("source", ["openai-chat", "openai-responses"])
def test_missing_user_message_is_added_where_the_host_requires_one(source: str) -> None:
    system = {"role": "system", "content": "Be brief."}
    body = chat(system) if source == "openai-chat" else {"model": "m", "input": [system]}
    translated = tw.translate(body, source, "openai-chat", host="zai")
    assert translated.value["messages"] == [system, {"role": "user", "content": "(nothing)"}]
    assert [loss.kind for loss in translated.losses] == ["added"]
    assert tw.translate(body, source, "openai-chat").value["messages"] == [system]
    complete = chat(system, USER)
    assert tw.translate(complete, "openai-chat", "openai-chat", host="zai").value == complete
