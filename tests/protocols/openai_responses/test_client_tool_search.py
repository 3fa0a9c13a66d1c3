"""Tool search run by the client, as Codex does it: a function in other protocols, restored on the way back."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.protocols import PROTOCOLS

PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = {"type": "tool_search", "execution": "client", "description": "Find tools.", "parameters": PARAMETERS}
BODY: dict[str, Any] = {"model": "m", "input": "Go on.", "tools": [SEARCH]}
READ_OUT = {"type": "function", "name": "read_out", "parameters": {"type": "object", "properties": {}}}
OTHERS = [name for name in PROTOCOLS if name != "openai-responses"]


@pytest.mark.parametrize("target", OTHERS)
def test_client_tool_search_is_declared_as_a_function(target: str) -> None:
    translated = tw.translate(BODY, "openai-responses", target)
    assert "tool_search" in json.dumps(translated.value["tools"])
    assert ("approximated", "/tools/0") in {(loss.kind, loss.path) for loss in translated.losses}
    back = tw.translate(translated.value, target, "openai-responses", model="m")
    (function,) = back.value["tools"]
    assert (function["name"], function["description"]) == ("tool_search", "Find tools.")
    assert function["parameters"] == PARAMETERS


def chat_search_response(arguments: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "tool_search", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(
    ("arguments", "expected"), [('{"query": "files"}', {"query": "files"}), ("fil", {"_raw": "fil"}), ("", None)]
)
def test_function_call_is_restored_to_tool_search_call(arguments: str, expected: Any) -> None:
    translated = tw.translate(
        chat_search_response(arguments), "openai-chat", "openai-responses", kind="response", request=BODY
    )
    (item,) = translated.value["output"]
    assert (item["type"], item["call_id"], item["execution"]) == ("tool_search_call", "c1", "client")
    assert item.get("arguments") == expected


def test_streamed_function_call_is_restored_to_tool_search_call() -> None:
    response = chat_search_response('{"query": "files"}')
    (call,) = response["choices"][0]["message"]["tool_calls"]
    deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **call}]}, {}]
    chunks = [
        {**response, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in zip(deltas, [None, "tool_calls"], strict=True)
    ]
    data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    stream = tw.translate_stream([data.encode()], "openai-chat", "openai-responses", request=BODY)
    frames = [json.loads(line[6:]) for line in b"".join(stream).decode().splitlines() if line.startswith("data: {")]
    (done,) = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert (done["type"], done["execution"], done["arguments"]) == ("tool_search_call", "client", {"query": "files"})


def test_namespace_found_by_tool_search_is_referenced_tool_by_tool() -> None:
    namespace = {"type": "namespace", "name": "mcp__clerk", "description": "", "tools": [READ_OUT]}
    items = [
        {"type": "message", "role": "user", "content": "Go on."},
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "files"}},
        {
            "type": "tool_search_output",
            "call_id": "c1",
            "execution": "client",
            "status": "completed",
            "tools": [namespace],
        },
    ]
    body = {**BODY, "input": items}
    translated = tw.translate(body, "openai-responses", "anthropic").value
    (result,) = translated["messages"][-1]["content"]
    assert result["content"] == [{"type": "tool_reference", "tool_name": "mcp__clerk__read_out"}]
    assert [tool["name"] for tool in translated["tools"]] == ["tool_search", "mcp__clerk__read_out"]
    assert tw.translate(body, "openai-responses", "openai-responses").value == body
