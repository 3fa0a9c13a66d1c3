"""Requests of other protocols, encoded for Anthropic."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import chat_call, chat_request, chat_response, chat_result, chat_tool, chat_turn
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC, CHAT
from tests.support.translation import loss_paths, translated_body


def test_strict_schema_is_reduced_or_strict_is_dropped() -> None:
    count = {"type": "integer", "minimum": 1}
    for property_schema, strict in ((count, True), ({"type": "object"}, False)):
        schema = {
            "type": "object",
            "properties": {"n": property_schema},
            "required": ["n"],
            "additionalProperties": False,
        }
        body = chat_request(tools=[chat_tool("f", schema, strict=True)])
        (tool,) = translated_body(body, CHAT, ANTHROPIC)["tools"]
        assert tool["strict"] is strict
        expected = {"type": "integer", "description": "minimum: 1"} if strict else property_schema
        assert tool["input_schema"] == {**schema, "properties": {"n": expected}}
        lost_field = "parameters/properties/n/minimum" if strict else "strict"
        assert [path for path in loss_paths(body, CHAT, ANTHROPIC) if path] == [f"/tools/0/function/{lost_field}"]


def _deferred(name: str, **fields: Any) -> dict[str, Any]:
    tool = {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    return {**tool, "defer_loading": True, **fields}


def test_deferred_tools_use_the_hosted_tool_search() -> None:
    body = {"model": "m", "input": "Go", "tools": [{"type": "tool_search"}, _deferred("f")]}
    translation = tw.translate(body, "openai-responses", "anthropic")
    search, function = translation.value["tools"]
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert function["defer_loading"] is True
    assert [loss.path for loss in translation.losses if loss.kind != "added"] == ["/tools/0"]


def test_found_tools_and_tools_without_search_are_declared_from_the_start() -> None:
    search = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "x"}}
    search_output = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [_deferred("found")]}
    body = {
        "model": "m",
        "input": [{"role": "user", "content": "Go"}, search, search_output],
        "tools": [{"type": "tool_search"}, _deferred("waiting")],
    }
    tools = tw.translate(body, "openai-responses", "anthropic").value["tools"]
    assert {tool["name"]: tool.get("defer_loading") for tool in tools[1:]} == {"waiting": True, "found": None}
    alone = tw.translate({"model": "m", "input": "Go", "tools": [_deferred("f")]}, "openai-responses", "anthropic")
    assert "defer_loading" not in alone.value["tools"][0]
    assert ("approximated", "/tools/0/defer_loading") in {(loss.kind, loss.path) for loss in alone.losses}


def test_default_limit_depends_on_the_model() -> None:
    for model, limit in (
        ("claude-opus-4-1", 32_000),
        ("claude-sonnet-5", 32_000),
        ("claude-3-5-haiku", 8192),
        ("m", 8192),
    ):
        assert translated_body(chat_request(model=model), CHAT, ANTHROPIC)["max_tokens"] == limit


@pytest.mark.parametrize("blank", [" ", "\n\n", "\t\u00a0"])
@pytest.mark.parametrize("protocol", [name for name in ALL_PROTOCOLS if name != ANTHROPIC])
def test_blank_text_is_dropped_and_reported(protocol: str, blank: str) -> None:
    """Anthropic rejects whitespace-only text, which stays in the history of a conversation."""
    history: list[dict[str, Any]] = [
        {"role": "system", "content": blank},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": blank, "tool_calls": [chat_call("call_1")]},
        chat_result("call_1"),
        {"role": "user", "content": blank},
        {"role": "user", "content": "Well?"},
    ]
    body = tw.translate(chat_request(*history, tools=[chat_tool()]), CHAT, protocol, model="m").value
    translation = tw.translate(body, protocol, ANTHROPIC, model="claude-sonnet-4-5")
    assert [item.rule for item in tw.check(translation.value, ANTHROPIC) if item.level == "error"] == []
    assert [loss.kind for loss in translation.losses if loss.reason == "the target rejects blank text"] == [
        "dropped"
    ] * 3
    assert "system" not in translation.value
    kinds = [[block["type"] for block in item["content"]] for item in translation.value["messages"][1:]]
    assert kinds == [["tool_use"], ["tool_result", "text"]]


def test_blank_text_of_a_response_is_kept() -> None:
    response = chat_response({"role": "assistant", "content": "\n\n", "tool_calls": [chat_call("call_1")]})
    translation = tw.translate(response, CHAT, ANTHROPIC, "response")
    assert translation.value["content"][0]["text"] == "\n\n"


def test_blank_tool_result_is_kept() -> None:
    translated = translated_body(chat_turn([chat_call("call_1")], [chat_result("call_1", "\n")]), CHAT, ANTHROPIC)
    assert translated["messages"][-1]["content"][0]["content"] == "\n"
