"""Responses requests fitted to the profiles of hosts."""

import json
from typing import Any

import toolwire as tw

PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "text"}}
GROUP = {
    "type": "namespace",
    "name": "mcp__w",
    "description": "Weather.",
    "tools": [{"type": "function", "name": "get", "parameters": {"type": "object", "properties": {}}, "strict": False}],
}


def from_responses(host: str, model: str = "m", **members: Any) -> tuple[Any, list[tuple[str, str]]]:
    translation = tw.translate(
        {"model": model, "input": "Hi", **members}, "openai-responses", "openai-responses", host=host
    )
    return translation.value, [(loss.kind, loss.path) for loss in translation.losses]


def test_custom_tools_and_namespaces_become_functions() -> None:
    items = [
        {"type": "message", "role": "user", "content": "Go"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        {"type": "function_call", "call_id": "c2", "name": "get", "namespace": "mcp__w", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "sun"},
    ]
    for host in ("groq", "vllm", "llamacpp", "lmstudio"):
        body, losses = from_responses(host, tools=[PATCH, GROUP], input=items)
        assert [(tool["type"], tool["name"]) for tool in body["tools"]] == [
            ("function", "apply_patch"),
            ("function", "mcp__w__get"),
        ]
        assert body["tools"][0]["parameters"]["required"] == ["input"]
        assert [item["type"] for item in body["input"]][1:] == ["function_call", "function_call_output"] * 2
        assert json.loads(body["input"][1]["arguments"]) == {"input": "*** Begin"}
        assert body["input"][3]["name"] == "mcp__w__get"
        assert ("approximated", "/tools/0") in losses
    assert from_responses("copilot", tools=[PATCH], input=items[:3])[1] == []


def test_calls_of_lowered_tools_come_back_as_custom_calls() -> None:
    request = {"model": "m", "input": "Hi", "tools": [PATCH]}
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "apply_patch", "arguments": '{"input":"x"}'}
    response = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [call]}
    translation = tw.translate(
        response, "openai-responses", "openai-responses", "response", request=request, host="groq"
    )
    (item,) = translation.value["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "x")


def test_members_that_a_host_rejects_are_dropped() -> None:
    body, losses = from_responses("groq", store=False, include=["reasoning.encrypted_content"])
    assert body.keys() == {"model", "input"}
    assert sorted(losses) == [("dropped", "/include/0"), ("dropped", "/store")]
    assert from_responses("deepseek", store=False)[1] == []


def test_instructions_become_a_system_message_where_they_are_rejected() -> None:
    body, losses = from_responses("xai", "grok-4.3", instructions="Be brief.")
    assert body["input"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert [kind for kind, _ in losses] == ["approximated"]


def test_effort_is_the_nearest_that_the_model_accepts() -> None:
    assert from_responses("xai", "grok-4.5", reasoning={"effort": "none"})[0]["reasoning"] == {"effort": "low"}
    body, losses = from_responses("groq", "llama-3.3-70b", reasoning={"effort": "high"})
    assert "reasoning" not in body
    assert losses == [("dropped", "/reasoning/effort")]


def test_format_is_added_where_text_settings_require_it() -> None:
    body, losses = from_responses("lmstudio", text={"verbosity": "low"})
    assert body["text"]["format"] == {"type": "text"}
    assert [kind for kind, _ in losses] == ["added"]


def test_sealed_reasoning_is_not_sent_to_hosts_that_read_its_text() -> None:
    sealed: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x", "content": None}
    items = [{"role": "user", "content": "Hi"}, sealed, {"role": "user", "content": "Hi"}]
    body, losses = from_responses("llamacpp", input=items)
    assert len(body["input"]) == 2
    assert ("dropped", "/input/1") in losses


def test_late_developer_messages_become_user_reminders() -> None:
    items = [
        {"role": "developer", "content": "One."},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": "Two."},
    ]
    body, losses = from_responses("vllm", input=items)
    assert [item["role"] for item in body["input"]] == ["system", "user", "user"]
    assert ("approximated", "/input/0/role") in losses
    assert ("approximated", "/input/2/role") in losses
