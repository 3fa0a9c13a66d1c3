"""Codex's newer models: the tools come first, as an item of the input, and its system prompt after them."""

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
def test_the_system_prompt_stays_one(target: str) -> None:
    made = tw.translate(BODY, "openai-responses", target)
    field, told = SYSTEM[target]
    assert made.value[field] == told
    assert "functions__exec" in str(made.value["tools"])
    assert "You are Codex." not in str({**made.value, field: None})
    changes = [loss for loss in made.losses if loss.path == "/input/0"]
    assert [loss.reason for loss in changes] == ["tools that are loaded later are declared from the start"]
