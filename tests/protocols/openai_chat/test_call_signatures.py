"""Signatures of tool calls in `extra_content`, as Gemini's Chat form has them."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.codec.envelope import EnvelopeKey

SIGNED = {"google": {"thought_signature": "c2ln"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
PLACEHOLDER = {"google": {"thought_signature": "skip_thought_signature_validator"}}
KEY = EnvelopeKey([b"k" * 32])


def call(id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **more}


def response(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "tool_calls"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "gemini-3-pro", "choices": [choice]}


def request(*calls: dict[str, Any], model: str = "gemini-3-pro") -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": list(calls)},
        *[{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls],
    ]
    return {"model": model, "messages": messages, "tools": [TOOL]}


def test_signature_reaches_a_gemini_client() -> None:
    translated = tw.translate(
        response({"tool_calls": [call(extra_content=SIGNED)]}), "openai-chat", "gemini", "response"
    )
    (part,) = translated.value["candidates"][0]["content"]["parts"]
    assert part["thoughtSignature"] == "c2ln"
    assert translated.losses == []


def test_signature_of_a_gemini_client_is_sent_with_its_call() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
    ]
    body = {"contents": contents}
    translated = tw.translate(body, "gemini", "openai-chat", model="gemini-3-pro", host="gemini")
    (sent,) = translated.value["messages"][1]["tool_calls"]
    assert sent["extra_content"] == SIGNED
    assert not [loss for loss in translated.losses if "ignature" in loss.path]
    elsewhere = tw.translate(body, "gemini", "openai-chat", model="m", host="generic")
    assert "extra_content" not in elsewhere.value["messages"][1]["tool_calls"][0]
    assert [loss.path for loss in elsewhere.losses if "ignature" in loss.path]


def test_signature_returns_through_a_client_of_another_protocol() -> None:
    question = {"model": "gemini-3-pro", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    first = response({"tool_calls": [call(extra_content=SIGNED)]})
    translated = tw.translate(first, "openai-chat", "anthropic", "response", envelope_key=KEY, request=question)
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": translated.value["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "done"}]},
    ]
    body = {"model": "gemini-3-pro", "max_tokens": 9, "messages": history}
    sent = tw.translate(body, "anthropic", "openai-chat", host="gemini", envelope_key=KEY).value
    assert sent["messages"][1]["tool_calls"][0]["extra_content"] == SIGNED


def test_signature_in_a_stream() -> None:
    fragment = {"index": 0, **call(extra_content=SIGNED)}
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [
        chunk | {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [fragment]}}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    wire = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"
    translated = b"".join(tw.translate_stream([wire], "openai-chat", "gemini"))
    assert b'"thoughtSignature":"c2ln"' in translated


def test_signature_passes_between_chat_client_and_server() -> None:
    body = request(call(extra_content=SIGNED))
    assert tw.translate(body, "openai-chat", "openai-chat", host="gemini").value == body


@pytest.mark.parametrize(("model", "placeholder"), [("gemini-3-pro", PLACEHOLDER), ("gemini-2.5-flash", None)])
@pytest.mark.parametrize("source", ["openai-chat", "anthropic"])
def test_first_call_without_signature_gets_a_placeholder(source: str, model: str, placeholder: Any) -> None:
    body: dict[str, Any] = request(call(), call("call_2"), model=model)
    if source == "anthropic":
        body = tw.translate(body, "openai-chat", "anthropic").value
    translated = tw.translate(body, source, "openai-chat", host="gemini")
    first, second = translated.value["messages"][1]["tool_calls"]
    assert first.get("extra_content") == placeholder
    assert "extra_content" not in second
    added = [loss for loss in translated.losses if loss.kind == "added" and "extra_content" in str(loss)]
    assert len(added) == (placeholder is not None)


def test_other_extra_content_stays_an_extra() -> None:
    extra = {"google": {"thought_signature": "c2ln", "other": 1}}
    translated = tw.translate(
        response({"tool_calls": [call(extra_content=extra)]}), "openai-chat", "gemini", "response"
    )
    assert [loss.path for loss in translated.losses] == ["/choices/0/message/tool_calls/0/extra_content"]
