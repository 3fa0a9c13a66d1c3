"""Messages requests fitted to the profiles of hosts."""

import json
from typing import Any

import pytest

import toolwire as tw

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "custom", "name": "f", "input_schema": {"type": "object", "properties": {"a": {}}}}


def from_anthropic(host: str, model: str = "m", **members: Any) -> tuple[Any, list[tuple[str, str]]]:
    translation = tw.translate(
        {"model": model, "max_tokens": 9, "messages": [USER], **members}, "anthropic", "anthropic", host=host
    )
    return translation.value, [(loss.kind, loss.path) for loss in translation.losses]


@pytest.mark.parametrize("host", ["deepseek", "minimax", "dashscope", "ollama", "llamacpp", "lmstudio"])
def test_late_system_messages_become_user_reminders(host: str) -> None:
    messages = [USER, {"role": "system", "content": "Be brief."}]
    body, losses = from_anthropic(host, messages=messages)
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert "Be brief." in json.dumps(body["messages"][1]["content"])
    assert losses == [("approximated", "/messages/1/role")]
    assert from_anthropic("openai", messages=messages) == (
        {"model": "m", "max_tokens": 9, "messages": messages},
        [],
    )


def test_type_of_functions_is_removed_where_it_is_rejected() -> None:
    body, losses = from_anthropic("deepseek", tools=[TOOL])
    assert "type" not in body["tools"][0]
    assert losses == [("approximated", "/tools/0")]
    assert from_anthropic("minimax", tools=[TOOL])[0]["tools"] == [TOOL]


@pytest.mark.parametrize(("host", "model"), [("deepseek", "deepseek-v4-pro"), ("dashscope", "qwen3.5-plus")])
def test_forced_choice_disables_thinking(host: str, model: str) -> None:
    plain = {key: value for key, value in TOOL.items() if key != "type"}
    forced = {"tools": [plain], "tool_choice": {"type": "tool", "name": "f"}}
    body, losses = from_anthropic(host, model, **forced)
    assert body["thinking"] == {"type": "disabled"}
    assert [kind for kind, _ in losses] == ["added"]
    assert "thinking" not in from_anthropic(host, model, tools=[plain], tool_choice={"type": "auto"})[0]
    assert "thinking" not in from_anthropic("openrouter", model, **forced)[0]


def test_user_id_becomes_a_digest_where_it_is_too_long() -> None:
    body, losses = from_anthropic("zai", metadata={"user_id": "u" * 150})
    assert len(body["metadata"]["user_id"]) == 64
    assert losses == [("approximated", "/metadata/user_id")]
    assert from_anthropic("minimax", metadata={"user_id": "u" * 150})[1] == []


def test_unsigned_reasoning_is_sent_to_hosts_that_do_not_sign() -> None:
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "because"}
    body = {"model": "deepseek-v4-pro", "messages": [USER, message, USER]}
    translation = tw.translate(body, "openai-chat", "anthropic", host="deepseek")
    assert translation.value["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "because",
        "signature": "",
    }
    dropped = tw.translate(body, "openai-chat", "anthropic")
    assert "because" not in json.dumps(dropped.value)


def test_effort_of_other_protocols_is_the_nearest_that_the_host_knows() -> None:
    body = {"model": "deepseek-v4-pro", "input": "Hi", "reasoning": {"effort": "medium"}}
    translation = tw.translate(body, "openai-responses", "anthropic", host="deepseek")
    assert translation.value["output_config"]["effort"] == "high"


def test_schemas_follow_the_flavor_of_moonshot() -> None:
    body, losses = from_anthropic("moonshot", "kimi-k2.6", tools=[TOOL])
    assert "anyOf" in body["tools"][0]["input_schema"]["properties"]["a"]
    assert losses
