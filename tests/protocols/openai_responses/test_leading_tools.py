"""Newer Codex models send their tools as the first input item and the system prompt after it."""

from typing import Any

import pytest

import toolwire as tw

EXEC = {"type": "custom", "name": "exec", "description": "Run JavaScript."}
TOOLS = [{"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}]
BODY: dict[str, Any] = {
    "model": "gpt-6.1-sol",
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": TOOLS},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
}
SYSTEM: dict[str, Any] = {
    "anthropic": ("system", "You are Codex."),
    "gemini": ("systemInstruction", {"parts": [{"text": "You are Codex."}]}),
    "gemini-interactions": ("system_instruction", "You are Codex."),
}


@pytest.mark.parametrize("target", SYSTEM)
def test_system_prompt_after_leading_tools_stays_a_system_prompt(target: str) -> None:
    translated = tw.translate(BODY, "openai-responses", target)
    field, expected = SYSTEM[target]
    assert translated.value[field] == expected
    assert "functions__exec" in str(translated.value["tools"])
    assert "You are Codex." not in str({**translated.value, field: None})
    tool_losses = [loss for loss in translated.losses if loss.path == "/input/0"]
    assert [loss.reason for loss in tool_losses] == ["tools that are loaded later are declared from the start"]
