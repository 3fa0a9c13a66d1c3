"""Calls whose arguments are `null`, as some small servers write them."""

import pytest

import toolwire as tw


@pytest.mark.parametrize("target", ["anthropic", "gemini", "gemini-interactions", "ollama", "openai-responses"])
@pytest.mark.parametrize(("arguments", "is_reported"), [("null", True), (" null ", True), ("", False), ("{}", False)])
def test_null_arguments_are_an_empty_object_and_reported(target: str, arguments: str, is_reported: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    translation = tw.translate({"model": "m", "messages": messages}, "openai-chat", target)
    assert b"null" not in translation.to_bytes()
    paths = [loss.path for loss in translation.losses if loss.severity == "info"]
    assert ("/messages/1/tool_calls/0/function/arguments" in paths) is is_reported
