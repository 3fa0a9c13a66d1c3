"""Settings that protocols express differently or not at all."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE

EFFORT_REQUESTS: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [USER_MESSAGE], "reasoning_effort": "high"},
    "openai-responses": {"input": "Go on.", "reasoning": {"effort": "high"}},
    "openrouter": {"messages": [USER_MESSAGE], "reasoning": {"effort": "high"}},
    "ollama": {"messages": [USER_MESSAGE], "think": "high", "stream": False},
    "gemini-interactions": {"input": "Go on.", "generation_config": {"thinking_level": "high"}},
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Go on."}]}],
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}},
    },
}
STRICT_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LOOSE_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def translate_checked(body: dict[str, Any], source: str, target: str, model: str) -> tuple[Any, list[tuple[str, str]]]:
    """Translate a request, check the result, and return it with its losses."""
    request = body if source == "gemini" else {"model": model, **body}
    translation = tw.translate(request, source, target, model=model)
    assert [finding for finding in tw.check(translation.value, target) if finding.level == "error"] == []
    return translation.value, [(loss.kind, loss.path) for loss in translation.losses if loss.path]


@pytest.mark.parametrize("source", EFFORT_REQUESTS)
def test_an_effort_enables_thinking_in_anthropic_models(source: str) -> None:
    body, losses = translate_checked(EFFORT_REQUESTS[source], source, "anthropic", "claude-opus-5-5")
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    assert losses == []


@pytest.mark.parametrize("source", EFFORT_REQUESTS)
def test_an_effort_becomes_a_budget_in_older_anthropic_models(source: str) -> None:
    body, losses = translate_checked(EFFORT_REQUESTS[source], source, "anthropic", "claude-sonnet-4-5")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 25_600}
    assert "output_config" not in body
    assert [kind for kind, _ in losses] == ["added", "approximated"]


def test_the_effort_none_disables_thinking() -> None:
    body, losses = translate_checked(
        {"messages": [USER_MESSAGE], "reasoning_effort": "none"}, "openai-chat", "anthropic", "m"
    )
    assert body["thinking"] == {"type": "disabled"}
    assert "output_config" not in body
    assert losses == []


def test_thinking_is_disabled_for_forced_calls_of_older_models() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    request = {**EFFORT_REQUESTS["openai-chat"], "tools": [tool], "tool_choice": "required"}
    body, losses = translate_checked(request, "openai-chat", "anthropic", "claude-sonnet-4-5")
    assert body["tool_choice"] == {"type": "any"}
    assert "thinking" not in body
    assert losses == [("approximated", "/reasoning_effort")]


CALL_HISTORY: list[dict[str, Any]] = [
    USER_MESSAGE,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
    {"role": "tool", "tool_call_id": "c", "content": "18 degrees"},
]
CALL_HISTORY[1]["tool_calls"][0]["function"] = {"name": "f", "arguments": "{}"}


def test_thinking_is_not_enabled_between_calls_and_results() -> None:
    request = {"messages": CALL_HISTORY, "reasoning_effort": "high"}
    body, losses = translate_checked(request, "openai-chat", "anthropic", "claude-opus-5-5")
    assert "thinking" not in body
    assert body["output_config"] == {"effort": "high"}
    assert losses == [("approximated", "/reasoning_effort")]
    next_request = {**request, "messages": [*CALL_HISTORY, {"role": "assistant", "content": "18."}, USER_MESSAGE]}
    body, losses = translate_checked(next_request, "openai-chat", "anthropic", "claude-opus-5-5")
    assert body["thinking"] == {"type": "adaptive"}
    assert losses == []


def test_temperature_is_dropped_while_thinking() -> None:
    request = {"model": "claude-opus-4-6", "temperature": 0.2, **EFFORT_REQUESTS["openai-chat"]}
    translated = tw.translate(request, "openai-chat", "anthropic", version="2023-06-01")
    assert "temperature" not in translated.value
    assert [loss.path for loss in translated.losses if loss.kind == "dropped"] == ["/temperature"]


FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "anthropic": (
        {"max_tokens": 9, "messages": [USER_MESSAGE], "output_config": {"format": {"type": "json_schema"}}},
        "/output_config/format/schema",
    ),
    "gemini": (
        {
            "contents": EFFORT_REQUESTS["gemini"]["contents"],
            "generationConfig": {"responseMimeType": "application/json"},
        },
        "/generationConfig/responseJsonSchema",
    ),
    "gemini-interactions": (
        {"input": "Go on.", "response_format": {"type": "text", "mime_type": "application/json"}},
        "/response_format/schema",
    ),
    "ollama": ({"messages": [USER_MESSAGE], "stream": False}, "/format"),
}


def request_with_schema(source: str, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a request with an output schema, and the path of the schema."""
    body, path = FORMATS[source]
    if source == "ollama":
        return {**body, "format": schema}, path
    first, *more = path.strip("/").split("/")
    request = {**body, first: {**body[first]}}
    inner = request[first]
    for name in more[:-1]:
        inner[name] = {**inner[name]}
        inner = inner[name]
    inner[more[-1]] = schema
    return request, path


def output_format(body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema format of an OpenAI request."""
    format_field: dict[str, Any] = body["text"]["format"] if "text" in body else body["response_format"]["json_schema"]
    return format_field


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
@pytest.mark.parametrize("source", FORMATS)
def test_an_always_enforced_schema_becomes_strict_in_openai(source: str, target: str) -> None:
    request, path = request_with_schema(source, STRICT_SCHEMA)
    body, losses = translate_checked(request, source, target, "gpt-5.1")
    assert output_format(body)["strict"] is True
    assert output_format(body)["schema"] == STRICT_SCHEMA
    assert ("approximated", path) not in losses


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
@pytest.mark.parametrize("source", FORMATS)
def test_a_schema_that_openai_cannot_enforce_is_reported(source: str, target: str) -> None:
    request, path = request_with_schema(source, LOOSE_SCHEMA)
    body, losses = translate_checked(request, source, target, "gpt-5.1")
    assert "strict" not in output_format(body)
    assert output_format(body)["schema"] == LOOSE_SCHEMA
    assert ("approximated", path) in losses


PREFILL = [USER_MESSAGE, {"role": "assistant", "content": "The answer is"}]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini", "gemini-interactions"])
@pytest.mark.parametrize(("source", "more"), [("anthropic", {"max_tokens": 99}), ("ollama", {"stream": False})])
def test_a_prefill_without_equivalent_is_reported(source: str, more: dict[str, Any], target: str) -> None:
    losses = tw.translate({"model": "m", "messages": PREFILL, **more}, source, target, model="m").losses
    assert [loss.path for loss in losses if "continue" in loss.reason] == ["/messages/1/content"]
    without_prefill = {"model": "m", "messages": [*PREFILL, USER_MESSAGE], **more}
    assert [
        loss for loss in tw.translate(without_prefill, source, target, model="m").losses if "continue" in loss.reason
    ] == []


@pytest.mark.parametrize(("source", "target"), [("anthropic", "ollama"), ("anthropic", "openrouter")])
def test_a_supported_prefill_is_not_reported(source: str, target: str) -> None:
    translated = tw.translate({"model": "m", "max_tokens": 9, "messages": PREFILL}, source, target)
    assert translated.losses == []
    assert translated.value["messages"] == PREFILL


def test_logprobs_translate_between_the_openai_protocols() -> None:
    include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    request = {"model": "m", "input": "Go on.", "include": include, "top_logprobs": 2}
    translated = tw.translate(request, "openai-responses", "openai-chat")
    assert (translated.value["logprobs"], translated.value["top_logprobs"]) == (True, 2)
    assert [loss.path for loss in translated.losses] == ["/include/0"]
    assert tw.translate(request, "openai-responses", "openai-responses").value == request
    assert [loss.path for loss in tw.translate(request, "openai-responses", "anthropic").losses if loss.path] == [
        "/include/1",
        "/top_logprobs",
        "/include/0",
    ]
    alone = {"model": "m", "input": "Go on.", "include": include[1:]}
    restored = tw.translate(
        tw.translate(alone, "openai-responses", "openai-chat").value, "openai-chat", "openai-responses"
    )
    assert restored.value["include"] == include[1:]
    assert restored.losses == []


EFFORT_FIELDS: dict[str, list[str]] = {
    "anthropic": ["output_config", "effort"],
    "openai-chat": ["reasoning_effort"],
    "openrouter": ["reasoning", "effort"],
    "ollama": ["think"],
    "gemini-interactions": ["generation_config", "thinking_level"],
}


@pytest.mark.parametrize("first", ["high", None])
@pytest.mark.parametrize("target", EFFORT_FIELDS)
def test_the_last_effort_update_applies_to_the_next_response(target: str, first: str | None) -> None:
    items: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"type": "configuration_update", "reasoning": {"effort": "medium"}},
        {"role": "assistant", "content": "Hello"},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"role": "user", "content": "Go on."},
    ]
    request = {"input": items} | ({} if first is None else {"reasoning": {"effort": first}})
    body, losses = translate_checked(request, "openai-responses", target, "m")
    for name in EFFORT_FIELDS[target]:
        body = body[name]
    assert body == "low"
    paths = ["/input/1", "/input/3", "/input/1/reasoning/effort" if first is None else "/reasoning/effort"]
    assert sorted(losses) == [("approximated", path) for path in sorted(paths)]


def test_the_last_format_update_applies_to_the_next_response() -> None:
    update = {"format": {"type": "json_schema", "name": "a", "schema": STRICT_SCHEMA, "strict": True}}
    items: list[Any] = [{"type": "configuration_update", "text": update}, {"role": "user", "content": "Hi"}]
    body, losses = translate_checked({"input": items}, "openai-responses", "openai-chat", "m")
    assert output_format(body)["schema"] == STRICT_SCHEMA
    assert losses == [("approximated", "/input/0")]
    body, losses = translate_checked(
        {"input": items, "text": {"format": {"type": "text"}}}, "openai-responses", "ollama", "m"
    )
    assert "format" not in body
    assert losses == [("dropped", "/input/0")]


def test_an_effort_update_of_anthropic_becomes_one_of_responses() -> None:
    messages = [
        USER_MESSAGE,
        {"role": "assistant", "content": "Hello"},
        USER_MESSAGE,
        {"role": "system", "output_config": {"effort": "low"}},
    ]
    body, losses = translate_checked({"max_tokens": 99, "messages": messages}, "anthropic", "openai-responses", "m")
    assert body["input"][3] == {"type": "configuration_update", "reasoning": {"effort": "low"}}
    assert losses == []
    body, losses = translate_checked({"max_tokens": 99, "messages": messages}, "anthropic", "openai-chat", "m")
    assert body["reasoning_effort"] == "low"
    assert losses == [("approximated", "/messages/3/output_config")]


@pytest.mark.parametrize("source", ["openai-chat", "openai-responses"])
def test_the_user_id_moves_to_the_field_of_each_protocol(source: str) -> None:
    content = {"messages": [USER_MESSAGE]} if source == "openai-chat" else {"input": "Go on."}
    request = {"model": "m", **content, "safety_identifier": "u_1"}
    other = "openai-responses" if source == "openai-chat" else "openai-chat"
    assert tw.translate(request, source, source).value == request
    for target, path in (
        (other, ["safety_identifier"]),
        ("anthropic", ["metadata", "user_id"]),
        ("openrouter", ["user"]),
    ):
        body, losses = translate_checked(request, source, target, "m")
        assert ("user" in body) == (target == "openrouter")
        for name in path:
            body = body[name]
        assert (body, losses) == ("u_1", [])
    losses_in_gemini = tw.translate(request, source, "gemini").losses
    assert [loss.path for loss in losses_in_gemini if loss.kind == "dropped"] == ["/safety_identifier"]
    two_ids = {**request, "user": "u_2"}
    body, losses = translate_checked(two_ids, source, "anthropic", "m")
    assert body["metadata"] == {"user_id": "u_2"}
    assert losses == [("dropped", "/safety_identifier")]
    assert tw.translate(two_ids, source, other).value["user"] == "u_2"


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
def test_a_long_user_id_is_sent_as_a_digest(target: str) -> None:
    """Claude Code's `metadata.user_id` is JSON text of 155 characters; OpenAI takes 64, OpenRouter 128."""
    ids = [f'{{"device_id":"{number:064x}","account_uuid":"","session_id":"{number:036}"}}' for number in (1, 1, 2)]
    requests = [{"max_tokens": 99, "messages": [USER_MESSAGE], "metadata": {"user_id": user_id}} for user_id in ids]
    first, repeated, other = (translate_checked(request, "anthropic", target, "m") for request in requests)
    assert first == repeated
    assert first[0]["user"] != other[0]["user"]
    assert len(first[0]["user"]) == 64
    assert first[1] == [("approximated", "/metadata/user_id")]
    short = {"max_tokens": 99, "messages": [USER_MESSAGE], "metadata": {"user_id": "u" * 64}}
    body, losses = translate_checked(short, "anthropic", target, "m")
    assert (body["user"], losses) == ("u" * 64, [])


def test_a_long_user_id_is_unchanged_within_its_protocol() -> None:
    request = {"model": "m", "messages": [USER_MESSAGE], "user": "u" * 200}
    assert tw.translate(request, "openai-chat", "openai-chat").value == request
