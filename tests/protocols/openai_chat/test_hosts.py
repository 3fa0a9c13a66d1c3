"""Chat requests fitted to the profiles of hosts, for clients of other protocols and of Chat."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE, chat_request

Body = dict[str, Any]
TOOL = {
    "name": "f",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def from_anthropic(host: str, model: str, **members: Any) -> tuple[Any, list[tuple[str, str]]]:
    body = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}], **members}
    return translated(body, "anthropic", host)


def from_chat(host: str, model: str, *messages: Body, **members: Any) -> tuple[Any, list[tuple[str, str]]]:
    return translated(chat_request(*messages or (USER_MESSAGE,), **{"model": model, **members}), "openai-chat", host)


def translated(body: Body, source: str, host: str) -> tuple[Any, list[tuple[str, str]]]:
    translation = tw.translate(body, source, "openai-chat", host=host)
    for loss in translation.losses:
        assert loss.reason
    return translation.value, [(loss.kind, loss.path) for loss in translation.losses]


def call_turn(**members: Any) -> list[Body]:
    call = {"id": "call_0123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        USER_MESSAGE,
        {"role": "assistant", "content": None, "tool_calls": [call], **members},
        {"role": "tool", "tool_call_id": "call_0123456789", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("host", "model", "effort", "expected"),
    [
        ("deepseek", "deepseek-v4-pro", "xhigh", "high"),
        ("deepseek", "deepseek-v4-pro", "medium", "high"),
        ("groq", "openai/gpt-oss-120b", "max", "high"),
        ("groq", "qwen/qwen3-32b", "medium", "default"),
        ("groq", "llama-3.3-70b-versatile", "high", None),
        ("mistral", "devstral-medium-latest", "high", None),
        ("mistral", "mistral-small-2603", "low", "high"),
        ("xai", "grok-4.3", "low", "low"),
        ("xai", "grok-4", "low", None),
        ("moonshot", "kimi-k3", "medium", "high"),
        ("moonshot", "kimi-k2.6", "medium", None),
        ("zai", "glm-4.6", "medium", None),
        ("generic", "m", "high", None),
    ],
)
def test_effort_is_the_nearest_that_the_model_accepts(host: str, model: str, effort: str, expected: str | None) -> None:
    body, losses = translated(
        {"model": model, "input": "Hi", "reasoning": {"effort": effort}}, "openai-responses", host
    )
    assert body.get("reasoning_effort") == expected
    assert bool(losses) == (expected != effort)


def test_disabled_thinking_uses_the_switch_of_the_host() -> None:
    off = {"thinking": {"type": "disabled"}}
    assert from_anthropic("deepseek", "deepseek-v4-pro", **off)[0]["thinking"] == {"type": "disabled"}
    assert from_anthropic("dashscope", "qwen3.5-plus", **off)[0]["enable_thinking"] is False
    assert from_anthropic("xai", "grok-4.3", **off)[0]["reasoning_effort"] == "none"
    body, losses = from_anthropic("zai", "glm-5.3", **off)
    assert not {"thinking", "reasoning_effort"} & body.keys() or body["reasoning_effort"] == "low"
    assert losses


@pytest.mark.parametrize(
    ("host", "model", "sent", "losses"),
    [
        ("openai", "gpt-5.5", {"reasoning_effort": "low"}, [("approximated", "sent as effort low")]),
        ("groq", "openai/gpt-oss-120b", {"reasoning_effort": "low"}, [("approximated", "sent as effort low")]),
        (
            "mistral",
            "mistral-small-2603",
            {"reasoning_effort": "high"},
            [("approximated", "mistral rejects the effort low; sent as high")],
        ),
        (
            "groq",
            "llama-3.3-70b-versatile",
            {},
            [("dropped", "groq rejects an effort for llama-3.3-70b-versatile")],
        ),
        ("dashscope", "qwen-plus", {"enable_thinking": True, "thinking_budget": 2000}, []),
    ],
)
def test_thinking_budget_has_one_loss_that_says_what_is_sent(
    host: str, model: str, sent: Body, losses: list[tuple[str, str]]
) -> None:
    """Only the outcome is reported, since the effort derived from a budget may not fit the host either."""
    body = {"model": model, "max_tokens": 9999, "messages": [USER_MESSAGE]}
    body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    translation = tw.translate(body, "anthropic", "openai-chat", host=host)
    assert {name: value for name, value in translation.value.items() if "thinking" in name or "effort" in name} == sent
    assert [(loss.kind, loss.reason) for loss in translation.losses if loss.path.startswith("/thinking")] == losses
    assert not [loss for loss in translation.losses if loss.path == "/output_config/effort"]


def test_models_that_think_only_in_streams_are_told_not_to() -> None:
    body, losses = from_anthropic("dashscope", "qwen3-32b")
    assert body["enable_thinking"] is False
    assert losses[-1][0] == "added"
    assert "enable_thinking" not in from_anthropic("dashscope", "qwen3-32b", stream=True)[0]


@pytest.mark.parametrize(
    ("host", "model", "choice", "members"),
    [
        ("deepseek", "deepseek-v4-pro", "required", {"thinking": {"type": "disabled"}}),
        ("deepseek", "deepseek-chat", "required", {}),
        ("moonshot", "kimi-k2.6", "required", {"thinking": {"type": "disabled"}}),
        ("moonshot", "kimi-k2.7-code", "auto", {}),
        ("moonshot", "kimi-k3", "required", {}),
        ("dashscope", "qwen3.5-plus", "required", {"enable_thinking": False}),
        ("zai", "glm-5.2", "auto", {}),
        ("groq", "llama-3.3-70b", "required", {}),
    ],
)
@pytest.mark.parametrize("client", ["anthropic", "openai-chat"])
def test_forced_choice_disables_thinking_or_is_relaxed(
    client: str, host: str, model: str, choice: str, members: Body
) -> None:
    if client == "anthropic":
        body, losses = from_anthropic(host, model, tools=[TOOL], tool_choice={"type": "any"})
    else:
        body, losses = from_chat(host, model, tools=[CHAT_TOOL], tool_choice="required")
    assert body["tool_choice"] == choice
    assert {name: body[name] for name in ("thinking", "enable_thinking") if name in body} == members
    assert bool(losses) == bool(members or choice != "required")


@pytest.mark.parametrize("host", ["llamacpp", "lmstudio"])
def test_named_choice_becomes_required(host: str) -> None:
    body, losses = from_anthropic(host, "m", tools=[TOOL], tool_choice={"type": "tool", "name": "f"})
    assert body["tool_choice"] == "required"
    assert ("approximated", "/tool_choice") in losses


@pytest.mark.parametrize("host", ["zai", "ollama"])
def test_choice_none_withholds_tools(host: str) -> None:
    body, losses = from_anthropic(host, "m", tools=[TOOL], tool_choice={"type": "none"})
    assert not {"tools", "tool_choice"} & body.keys()
    assert ("approximated", "/tool_choice") in losses


def test_call_ids_match_the_pattern_of_the_host() -> None:
    for body, losses in (from_chat("mistral", "m", *call_turn()), from_chat("groq", "m", *call_turn())):
        id = body["messages"][1]["tool_calls"][0]["id"]
        assert body["messages"][2]["tool_call_id"] == id
        assert (id != "call_0123456789") == (("approximated", "/messages/1/tool_calls/0/id") in losses)
    assert len(from_chat("mistral", "m", *call_turn())[0]["messages"][1]["tool_calls"][0]["id"]) == 9


def test_required_reasoning_is_added_where_it_is_missing() -> None:
    plain = [USER_MESSAGE, {"role": "assistant", "content": "Hello"}, USER_MESSAGE]
    body, losses = from_chat("deepseek", "deepseek-v4-pro", *plain)
    assert body["messages"][1]["reasoning_content"] == ""
    assert [kind for kind, _ in losses] == ["added"]
    assert from_chat("moonshot", "kimi-k2.6", *plain)[1] == []
    kept = from_chat("moonshot", "kimi-k2.6", *call_turn(content="", reasoning_content="because"))
    assert (kept[0]["messages"][1]["reasoning_content"], kept[1]) == ("because", [])
    for members in ({}, {"reasoning_content": ""}):
        body, losses = from_chat("moonshot", "kimi-k2.6", *call_turn(content="", **members))
        assert body["messages"][1]["reasoning_content"] == " "
        assert "added" in [kind for kind, _ in losses]


def test_reasoning_is_sent_back_in_the_field_of_the_host() -> None:
    thinking = {"type": "thinking", "thinking": "because", "signature": ""}
    turn = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Hello"}]}
    user = {"role": "user", "content": "Hi"}
    for host, field in {"deepseek": "reasoning_content", "vllm": "reasoning", "zai": "reasoning_content"}.items():
        body, _ = from_anthropic(host, "glm-5.2", messages=[user, turn, user])
        assert body["messages"][1][field] == "because"
    body, losses = from_anthropic("groq", "m", messages=[user, turn, user])
    assert body["messages"][1] == {"role": "assistant", "content": "Hello"}
    assert ("dropped", "/messages/1/content/0") in losses


@pytest.mark.parametrize("host", ["groq", "mistral", "cerebras"])
def test_hosts_that_reject_reasoning_of_chat_clients_do_not_get_it(host: str) -> None:
    body, losses = from_chat(host, "m", *call_turn(content="", reasoning_content="because"))
    assert "reasoning_content" not in body["messages"][1]
    assert ("dropped", "/messages/1/reasoning_content") in losses


def test_content_of_chat_clients_is_joined_for_hosts_that_reject_lists() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "developer", "content": texts},
        {"role": "user", "content": texts[:1]},
        *call_turn(reasoning_content="")[1:2],
        {"role": "tool", "tool_call_id": "call_0123456789", "content": texts},
    ]
    body, losses = from_chat("deepseek", "deepseek-v4-pro", *messages)
    assert [message["content"] for message in body["messages"]] == ["a\n\nb", "a", None, "a\n\nb"]
    assert body["messages"][0]["role"] == "system"
    assert ("approximated", "/messages/0/role") in losses
    assert ("approximated", "/messages/1") in losses
    assert from_chat("generic", "deepseek-v4-pro", *messages)[1] == []


def test_null_content_of_chat_clients_becomes_empty_for_hosts_that_reject_it() -> None:
    body, losses = from_chat("xai", "grok-4.3", *call_turn())
    assert body["messages"][1]["content"] == ""
    assert len(losses) == 1


def test_late_system_messages_of_chat_clients_become_user_reminders() -> None:
    system = {"role": "system", "content": "Be brief."}
    body, losses = from_chat("dashscope", "qwen3.5-plus", system, system, USER_MESSAGE, system)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "user"]
    assert body["messages"][2]["content"] == "<system-reminder>\nBe brief.\n</system-reminder>"
    assert ("approximated", "/messages/3/role") in losses
    assert from_chat("dashscope", "qwen3.5-plus", system, USER_MESSAGE)[1] == []
    assert from_chat("deepseek", "deepseek-v4-pro", system, USER_MESSAGE, system)[1] == []


def test_user_text_after_results_of_chat_clients_is_separated() -> None:
    body, losses = from_chat("mistral", "m", *call_turn(content=""), USER_MESSAGE)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert "added" in [kind for kind, _ in losses]


def test_user_message_is_added_where_one_is_required() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hello."}]
    body, losses = from_chat("zai", "glm-5.2", *messages)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant"]
    assert losses == [("added", "")]
    assert from_chat("generic", "m", *messages)[1] == []


def test_assistant_messages_without_content_are_left_out_where_they_are_rejected() -> None:
    messages = [USER_MESSAGE, {"role": "assistant", "content": ""}, USER_MESSAGE]
    body, losses = from_chat("mistral", "mistral-large", *messages)
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert losses == [("dropped", "/messages/1")]
    assert len(from_chat("generic", "m", *messages)[0]["messages"]) == 3


@pytest.mark.parametrize(("host", "sent"), [("zai", 1), ("groq", 1.5)])
def test_temperature_over_that_of_the_host_is_lowered(host: str, sent: float) -> None:
    body, losses = from_chat(host, "m", temperature=1.5)
    assert body["temperature"] == sent
    assert losses == ([("approximated", "/temperature")] if sent == 1 else [])


def test_prefill_is_marked_for_hosts_that_require_it() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hel"}]
    assert from_anthropic("mistral", "m", messages=messages)[0]["messages"][1]["prefix"] is True


def test_unknown_members_are_dropped_only_where_they_are_rejected() -> None:
    members = {"store": True, "seed": 7, "user": "u" * 99, "max_completion_tokens": 9}
    body, losses = from_chat("mistral", "m", **members)
    assert body.keys() == {"model", "messages", "random_seed", "max_tokens"}
    assert {path for _, path in losses} == {"/store", "/seed", "/user", "/max_completion_tokens"}
    body, losses = from_chat("groq", "m", **members)
    assert body.keys() == {"model", "messages", "seed", "user", "max_completion_tokens"}
    assert len(body["user"]) == 64
    body, losses = from_chat("deepseek", "deepseek-v4-pro", **members)
    assert body.keys() == {"model", "messages", "store", "seed", "user", "max_tokens"}
    assert losses == [("approximated", "/max_completion_tokens")]
    assert from_chat("generic", "m", **members)[1] == []


def test_sampling_that_a_model_rejects_is_dropped() -> None:
    body, losses = from_chat("xai", "grok-4.3", presence_penalty=0, stop=["x"], temperature=0.5)
    assert body.keys() == {"model", "messages", "temperature"}
    assert losses == [("dropped", "/stop/0"), ("dropped", "/presence_penalty")]
    assert "temperature" not in from_anthropic("moonshot", "kimi-k2.6", temperature=0.5)[0]


def test_stop_sequences_and_output_limit_respect_the_host() -> None:
    stop = list("abcdef")
    assert from_anthropic("zai", "glm-5.2", stop_sequences=stop)[0]["stop"] == ["a"]
    assert from_anthropic("deepseek", "deepseek-chat", stop_sequences=stop)[0]["stop"] == stop
    body, losses = from_anthropic("groq", "gemma2-9b-it", max_tokens=32000)
    assert body["max_completion_tokens"] == 8192
    assert ("approximated", "/max_tokens") in losses


def test_rejected_formats_are_replaced() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body, losses = from_chat("deepseek", "deepseek-chat", response_format=named)
    assert body["response_format"] == {"type": "json_object"}
    assert json.dumps(schema, separators=(",", ":")) in body["messages"][0]["content"].replace(" ", "")
    assert losses
    body, losses = from_chat("deepseek", "deepseek-chat", response_format={"type": "json_object"})
    assert "JSON" in body["messages"][0]["content"]
    assert [kind for kind, _ in losses] == ["added"]
    json_message = {"role": "user", "content": "As json"}
    assert from_chat("deepseek", "deepseek-chat", json_message, response_format={"type": "json_object"})[1] == []
    body, losses = from_chat("lmstudio", "m", response_format={"type": "json_object"})
    assert body["response_format"]["type"] == "json_schema"
    assert losses
    body, losses = from_chat("groq", "llama", response_format=named, tools=[CHAT_TOOL])
    assert "response_format" not in body
    assert losses


def test_images_become_text_for_models_that_do_not_see() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    body, losses = from_anthropic("deepseek", "deepseek-v4-pro", messages=messages)
    assert all(isinstance(message["content"], str | None) for message in body["messages"])
    assert ("dropped", "/messages/0/content/1") in losses
    seen, _ = from_anthropic("moonshot", "kimi-k2.6", messages=messages)
    assert [part["type"] for part in seen["messages"][0]["content"]] == ["text", "image_url"]
    assert [message["role"] for message in seen["messages"]] == ["user", "assistant", "tool", "user"]


def test_functions_of_chat_clients_get_what_the_host_requires() -> None:
    bare = {"type": "function", "function": {"name": "f"}}
    body, _ = from_chat("minimax", "MiniMax-M2", tools=[bare])
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert from_chat("generic", "m", tools=[bare])[0]["tools"] == [bare]
    body, losses = from_chat("vllm", "m", tools=[])
    assert "tools" not in body
    assert losses


def test_number_of_tools_is_limited() -> None:
    tools = [{**CHAT_TOOL, "function": {**CHAT_TOOL["function"], "name": f"f{index}"}} for index in range(130)]  # type: ignore[dict-item]
    body, losses = from_chat("groq", "m", tools=tools)
    assert len(body["tools"]) == 128
    assert losses == [("dropped", "/tools/128"), ("dropped", "/tools/129")]


def test_schemas_follow_the_flavor_of_moonshot() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}, "b": {"enum": ["x"]}, "c": {"$ref": "#/definitions/C"}},
        "required": ["missing"],
        "definitions": {"C": {"type": "string"}},
    }
    tool = {"name": "9lives", "input_schema": schema}
    body, losses = from_anthropic("moonshot", "kimi-k2.6", tools=[tool])
    function = body["tools"][0]["function"]
    assert function["name"][0].isalpha()
    properties = function["parameters"]["properties"]
    assert {branch["type"] for branch in properties["a"]["anyOf"]} >= {"string", "object"}
    assert properties["b"] == {"enum": ["x"], "type": "string"}
    assert properties["c"] == {"$ref": "#/$defs/C"}
    assert function["parameters"]["required"] == []
    assert ("approximated", "/tools/0/input_schema/properties/a") in losses
