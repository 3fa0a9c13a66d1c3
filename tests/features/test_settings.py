"""What one protocol means by a setting, and says in other words or not at all, as another takes it."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE

ASKED: dict[str, dict[str, Any]] = {
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
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPTIONAL = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def translated(body: dict[str, Any], source: str, target: str, model: str) -> tuple[Any, list[tuple[str, str]]]:
    named = body if source == "gemini" else {"model": model, **body}
    made = tw.translate(named, source, target, model=model)
    assert [finding for finding in tw.check(made.value, target) if finding.level == "error"] == []
    return made.value, [(loss.kind, loss.path) for loss in made.losses if loss.path]


@pytest.mark.parametrize("source", ASKED)
def test_an_effort_enables_thinking_in_anthropic_models(source: str) -> None:
    body, losses = translated(ASKED[source], source, "anthropic", "claude-opus-5-5")
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    assert losses == []


@pytest.mark.parametrize("source", ASKED)
def test_an_effort_becomes_a_budget_in_older_anthropic_models(source: str) -> None:
    body, losses = translated(ASKED[source], source, "anthropic", "claude-sonnet-4-5")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 25_600}
    assert "output_config" not in body
    assert [kind for kind, _ in losses] == ["approximated", "added"]


def test_the_effort_none_disables_thinking() -> None:
    body, losses = translated({"messages": [USER_MESSAGE], "reasoning_effort": "none"}, "openai-chat", "anthropic", "m")
    assert body["thinking"] == {"type": "disabled"}
    assert "output_config" not in body
    assert losses == []


def test_thinking_is_disabled_for_forced_calls_of_older_models() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    request = {**ASKED["openai-chat"], "tools": [tool], "tool_choice": "required"}
    body, losses = translated(request, "openai-chat", "anthropic", "claude-sonnet-4-5")
    assert body["tool_choice"] == {"type": "any"}
    assert "thinking" not in body
    assert losses == [("approximated", "/reasoning_effort")]


CALLED: list[dict[str, Any]] = [
    USER_MESSAGE,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
    {"role": "tool", "tool_call_id": "c", "content": "18 degrees"},
]
CALLED[1]["tool_calls"][0]["function"] = {"name": "f", "arguments": "{}"}


def test_thinking_is_not_enabled_between_calls_and_results() -> None:
    request = {"messages": CALLED, "reasoning_effort": "high"}
    body, losses = translated(request, "openai-chat", "anthropic", "claude-opus-5-5")
    assert "thinking" not in body
    assert body["output_config"] == {"effort": "high"}
    assert losses == [("approximated", "/reasoning_effort")]
    said = {**request, "messages": [*CALLED, {"role": "assistant", "content": "18."}, USER_MESSAGE]}
    body, losses = translated(said, "openai-chat", "anthropic", "claude-opus-5-5")
    assert body["thinking"] == {"type": "adaptive"}
    assert losses == []


def test_temperature_is_dropped_while_thinking() -> None:
    request = {"model": "claude-opus-4-6", "temperature": 0.2, **ASKED["openai-chat"]}
    translated = tw.translate(request, "openai-chat", "anthropic", version="2023-06-01")
    assert "temperature" not in translated.value
    assert [loss.path for loss in translated.losses if loss.kind == "dropped"] == ["/temperature"]


FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "anthropic": (
        {"max_tokens": 9, "messages": [USER_MESSAGE], "output_config": {"format": {"type": "json_schema"}}},
        "/output_config/format/schema",
    ),
    "gemini": (
        {"contents": ASKED["gemini"]["contents"], "generationConfig": {"responseMimeType": "application/json"}},
        "/generationConfig/responseJsonSchema",
    ),
    "gemini-interactions": (
        {"input": "Go on.", "response_format": {"type": "text", "mime_type": "application/json"}},
        "/response_format/schema",
    ),
    "ollama": ({"messages": [USER_MESSAGE], "stream": False}, "/format"),
}


def asking(source: str, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    body, path = FORMATS[source]
    if source == "ollama":
        return {**body, "format": schema}, path
    first, *more = path.strip("/").split("/")
    whole = {**body, first: {**body[first]}}
    inner = whole[first]
    for name in more[:-1]:
        inner[name] = {**inner[name]}
        inner = inner[name]
    inner[more[-1]] = schema
    return whole, path


def described(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["text"]["format"] if "text" in body else body["response_format"]["json_schema"]
    return found


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
@pytest.mark.parametrize("source", FORMATS)
def test_an_always_enforced_schema_becomes_strict_in_openai(source: str, target: str) -> None:
    request, path = asking(source, CLOSED)
    body, losses = translated(request, source, target, "gpt-5.1")
    assert described(body)["strict"] is True
    assert described(body)["schema"] == CLOSED
    assert ("approximated", path) not in losses


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
@pytest.mark.parametrize("source", FORMATS)
def test_a_schema_that_openai_cannot_enforce_is_reported(source: str, target: str) -> None:
    request, path = asking(source, OPTIONAL)
    body, losses = translated(request, source, target, "gpt-5.1")
    assert "strict" not in described(body)
    assert described(body)["schema"] == OPTIONAL
    assert ("approximated", path) in losses


BEGUN = [USER_MESSAGE, {"role": "assistant", "content": "The answer is"}]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini", "gemini-interactions"])
@pytest.mark.parametrize(("source", "more"), [("anthropic", {"max_tokens": 99}), ("ollama", {"stream": False})])
def test_a_prefill_without_equivalent_is_reported(source: str, more: dict[str, Any], target: str) -> None:
    losses = tw.translate({"model": "m", "messages": BEGUN, **more}, source, target, model="m").losses
    assert [loss.path for loss in losses if "continue" in loss.reason] == ["/messages/1/content"]
    whole = {"model": "m", "messages": [*BEGUN, USER_MESSAGE], **more}
    assert [loss for loss in tw.translate(whole, source, target, model="m").losses if "continue" in loss.reason] == []


@pytest.mark.parametrize(("source", "target"), [("anthropic", "ollama"), ("anthropic", "openrouter")])
def test_a_supported_prefill_is_not_reported(source: str, target: str) -> None:
    translated = tw.translate({"model": "m", "max_tokens": 9, "messages": BEGUN}, source, target)
    assert translated.losses == []
    assert translated.value["messages"] == BEGUN


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


EFFORT: dict[str, list[str]] = {
    "anthropic": ["output_config", "effort"],
    "openai-chat": ["reasoning_effort"],
    "openrouter": ["reasoning", "effort"],
    "ollama": ["think"],
    "gemini-interactions": ["generation_config", "thinking_level"],
}


@pytest.mark.parametrize("first", ["high", None])
@pytest.mark.parametrize("target", EFFORT)
def test_the_last_effort_update_applies_to_the_next_response(target: str, first: str | None) -> None:
    said: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"type": "configuration_update", "reasoning": {"effort": "medium"}},
        {"role": "assistant", "content": "Hello"},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"role": "user", "content": "Go on."},
    ]
    asked = {"input": said} | ({} if first is None else {"reasoning": {"effort": first}})
    body, losses = translated(asked, "openai-responses", target, "m")
    for name in EFFORT[target]:
        body = body[name]
    assert body == "low"
    places = ["/input/1", "/input/3", "/input/1/reasoning/effort" if first is None else "/reasoning/effort"]
    assert sorted(losses) == [("approximated", place) for place in sorted(places)]


def test_the_last_format_update_applies_to_the_next_response() -> None:
    told = {"format": {"type": "json_schema", "name": "a", "schema": CLOSED, "strict": True}}
    said: list[Any] = [{"type": "configuration_update", "text": told}, {"role": "user", "content": "Hi"}]
    body, losses = translated({"input": said}, "openai-responses", "openai-chat", "m")
    assert described(body)["schema"] == CLOSED
    assert losses == [("approximated", "/input/0")]
    body, losses = translated({"input": said, "text": {"format": {"type": "text"}}}, "openai-responses", "ollama", "m")
    assert "format" not in body
    assert losses == [("dropped", "/input/0")]


def test_an_effort_update_of_anthropic_becomes_one_of_responses() -> None:
    said = [
        USER_MESSAGE,
        {"role": "assistant", "content": "Hello"},
        USER_MESSAGE,
        {"role": "system", "output_config": {"effort": "low"}},
    ]
    body, losses = translated({"max_tokens": 99, "messages": said}, "anthropic", "openai-responses", "m")
    assert body["input"][3] == {"type": "configuration_update", "reasoning": {"effort": "low"}}
    assert losses == []
    body, losses = translated({"max_tokens": 99, "messages": said}, "anthropic", "openai-chat", "m")
    assert body["reasoning_effort"] == "low"
    assert losses == [("approximated", "/messages/3/output_config")]


@pytest.mark.parametrize("source", ["openai-chat", "openai-responses"])
def test_the_user_id_moves_to_the_field_of_each_protocol(source: str) -> None:
    said = {"messages": [USER_MESSAGE]} if source == "openai-chat" else {"input": "Go on."}
    request = {"model": "m", **said, "safety_identifier": "u_1"}
    other = "openai-responses" if source == "openai-chat" else "openai-chat"
    assert tw.translate(request, source, source).value == request
    for target, place in (
        (other, ["safety_identifier"]),
        ("anthropic", ["metadata", "user_id"]),
        ("openrouter", ["user"]),
    ):
        body, losses = translated(request, source, target, "m")
        assert ("user" in body) == (target == "openrouter")
        for name in place:
            body = body[name]
        assert (body, losses) == ("u_1", [])
    unsaid = tw.translate(request, source, "gemini").losses
    assert [loss.path for loss in unsaid if loss.kind == "dropped"] == ["/safety_identifier"]
    both = {**request, "user": "u_2"}
    body, losses = translated(both, source, "anthropic", "m")
    assert body["metadata"] == {"user_id": "u_2"}
    assert losses == [("dropped", "/safety_identifier")]
    assert tw.translate(both, source, other).value["user"] == "u_2"


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openrouter"])
def test_a_long_user_id_is_sent_as_a_digest(target: str) -> None:
    """Claude Code's `metadata.user_id` is JSON text of 155 characters; OpenAI takes 64, OpenRouter 128."""
    ids = [f'{{"device_id":"{number:064x}","account_uuid":"","session_id":"{number:036}"}}' for number in (1, 1, 2)]
    asked = [{"max_tokens": 99, "messages": [USER_MESSAGE], "metadata": {"user_id": one}} for one in ids]
    first, again, other = (translated(one, "anthropic", target, "m") for one in asked)
    assert first == again
    assert first[0]["user"] != other[0]["user"]
    assert len(first[0]["user"]) == 64
    assert first[1] == [("approximated", "/metadata/user_id")]
    short = {"max_tokens": 99, "messages": [USER_MESSAGE], "metadata": {"user_id": "u" * 64}}
    body, losses = translated(short, "anthropic", target, "m")
    assert (body["user"], losses) == ("u" * 64, [])


def test_a_long_user_id_is_unchanged_within_its_protocol() -> None:
    request = {"model": "m", "messages": [USER_MESSAGE], "user": "u" * 200}
    assert tw.translate(request, "openai-chat", "openai-chat").value == request
