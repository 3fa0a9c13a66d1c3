"""What the Anthropic codec makes of other protocols' requests."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import chat_call, chat_request, chat_response, chat_result, chat_tool, chat_turn
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC, CHAT
from tests.support.translation import loss_paths, translated_body


def test_a_strict_tool_keeps_to_what_is_compiled_or_is_not_strict() -> None:
    count = {"type": "integer", "minimum": 1}
    for inner, strict in ((count, True), ({"type": "object"}, False)):
        schema = {"type": "object", "properties": {"n": inner}, "required": ["n"], "additionalProperties": False}
        body = chat_request(tools=[chat_tool("f", schema, strict=True)])
        (tool,) = translated_body(body, CHAT, ANTHROPIC)["tools"]
        assert tool["strict"] is strict
        told = {"type": "integer", "description": "minimum: 1"} if strict else inner
        assert tool["input_schema"] == {**schema, "properties": {"n": told}}
        below = "parameters/properties/n/minimum" if strict else "strict"
        assert [path for path in loss_paths(body, CHAT, ANTHROPIC) if path] == [f"/tools/0/function/{below}"]


def _deferred(name: str, **fields: Any) -> dict[str, Any]:
    tool = {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    return {**tool, "defer_loading": True, **fields}


def test_tools_that_are_loaded_later_are_found_by_its_own_search() -> None:
    body = {"model": "m", "input": "Go", "tools": [{"type": "tool_search"}, _deferred("f")]}
    made = tw.translate(body, "openai-responses", "anthropic")
    search, function = made.value["tools"]
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert function["defer_loading"] is True
    assert [loss.path for loss in made.losses if loss.kind != "added"] == ["/tools/0"]


def test_one_that_came_with_a_result_or_that_nothing_would_find_is_there_from_the_start() -> None:
    search = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "x"}}
    found = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [_deferred("found")]}
    body = {
        "model": "m",
        "input": [{"role": "user", "content": "Go"}, search, found],
        "tools": [{"type": "tool_search"}, _deferred("waiting")],
    }
    tools = tw.translate(body, "openai-responses", "anthropic").value["tools"]
    assert {tool["name"]: tool.get("defer_loading") for tool in tools[1:]} == {"waiting": True, "found": None}
    alone = tw.translate({"model": "m", "input": "Go", "tools": [_deferred("f")]}, "openai-responses", "anthropic")
    assert "defer_loading" not in alone.value["tools"][0]
    assert ("approximated", "/tools/0/defer_loading") in {(loss.kind, loss.path) for loss in alone.losses}


def test_a_limit_that_is_not_set_is_what_the_model_can_write() -> None:
    for model, limit in (
        ("claude-opus-4-1", 32_000),
        ("claude-sonnet-5", 32_000),
        ("claude-3-5-haiku", 8192),
        ("m", 8192),
    ):
        assert translated_body(chat_request(model=model), CHAT, ANTHROPIC)["max_tokens"] == limit


@pytest.mark.parametrize("blank", [" ", "\n\n", "\t\u00a0"])
@pytest.mark.parametrize("protocol", [name for name in ALL_PROTOCOLS if name != ANTHROPIC])
def test_f_5_blank_text_is_dropped_and_reported(protocol: str, blank: str) -> None:
    """A history with white space before a call, which Anthropic refuses for good."""
    history: list[dict[str, Any]] = [
        {"role": "system", "content": blank},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": blank, "tool_calls": [chat_call("call_1")]},
        chat_result("call_1"),
        {"role": "user", "content": blank},
        {"role": "user", "content": "Well?"},
    ]
    body = tw.translate(chat_request(*history, tools=[chat_tool()]), CHAT, protocol, model="m").value
    made = tw.translate(body, protocol, ANTHROPIC, model="claude-sonnet-4-5")
    assert [one.rule for one in tw.check(made.value, ANTHROPIC) if one.level == "error"] == []
    assert [loss.kind for loss in made.losses if loss.reason == "the target rejects blank text"] == ["dropped"] * 3
    assert "system" not in made.value
    kinds = [[block["type"] for block in one["content"]] for one in made.value["messages"][1:]]
    assert kinds == [["tool_use"], ["tool_result", "text"]]


def test_blank_text_of_an_answer_stays() -> None:
    answer = chat_response({"role": "assistant", "content": "\n\n", "tool_calls": [chat_call("call_1")]})
    made = tw.translate(answer, CHAT, ANTHROPIC, "response")
    assert made.value["content"][0]["text"] == "\n\n"


def test_a_blank_result_stays() -> None:
    made = translated_body(chat_turn([chat_call("call_1")], [chat_result("call_1", "\n")]), CHAT, ANTHROPIC)
    assert made["messages"][-1]["content"][0]["content"] == "\n"
