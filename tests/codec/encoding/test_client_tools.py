"""Vendors' own tools that the client runs: functions at other targets, and their calls in the client's form."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.protocols import PROTOCOLS

QUESTION = {"role": "user", "content": "List the files."}
ANTHROPIC_TOOLS = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9000},
    {"type": "memory_20250818", "name": "memory"},
]
RESPONSES_TOOLS = [
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
]
NATIVE_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "shell": ("action", {"commands": ["ls"]}),
    "local_shell": ("action", {"type": "exec", "command": ["ls"], "env": {}}),
    "apply_patch": ("operation", {"type": "delete_file", "path": "a"}),
}


def requests(**fields: Any) -> dict[str, dict[str, Any]]:
    """Return requests with all client-run tools, by protocol."""
    return {
        "anthropic": {"model": "m", "max_tokens": 99, "messages": [QUESTION], "tools": ANTHROPIC_TOOLS, **fields},
        "openai-responses": {"model": "m", "input": [QUESTION], "tools": RESPONSES_TOOLS, **fields},
    }


def chat_response(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chat_stream(name: str, arguments: dict[str, Any]) -> bytes:
    text = json.dumps(arguments)
    deltas: list[dict[str, Any]] = [{"id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}]
    deltas += [{"function": {"arguments": text[at : at + 7]}} for at in range(0, len(text), 7)]
    choices: list[dict[str, Any]] = [{"delta": {"tool_calls": [{"index": 0, **delta}]}} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": "tool_calls"})
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [json.dumps({**head, "choices": [{"index": 0, **choice}]}) for choice in choices]
    return "".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]).encode()


@pytest.mark.parametrize("target", list(PROTOCOLS))
@pytest.mark.parametrize("source", ["anthropic", "openai-responses"])
def test_tools_are_declared_as_functions_that_the_target_accepts(source: str, target: str) -> None:
    request = requests()[source]
    translation = tw.translate(request, source, target)
    if source == target:
        assert translation.value == request
        return
    names = ["bash", "str_replace_based_edit_tool", "memory"] if source == "anthropic" else list(NATIVE_CALLS)
    wire = json.dumps(translation.value["tools"])
    assert all(f'"name": "{name}"' in wire for name in names)
    reported = [(loss.kind, loss.path) for loss in translation.losses if loss.path.startswith("/tools")]
    assert reported == [("approximated", f"/tools/{index}") for index in range(3)]
    assert [finding for finding in tw.check(translation.value, target) if finding.level == "error"] == []


@pytest.mark.parametrize("kind", NATIVE_CALLS)
def test_calls_return_to_a_responses_client_as_its_own_items(kind: str) -> None:
    field, arguments = NATIVE_CALLS[kind]
    request = requests()["openai-responses"]
    translation = tw.translate(
        chat_response(kind, arguments), "openai-chat", "openai-responses", "response", request=request
    )
    (item,) = translation.value["output"]
    assert (item["type"], item["call_id"], item[field]) == (f"{kind}_call", "c1", arguments)
    assert translation.losses == []
    stream = tw.translate_stream([chat_stream(kind, arguments)], "openai-chat", "openai-responses", request=request)
    events = [json.loads(line[6:]) for line in b"".join(stream).splitlines() if line.startswith(b"data: {")]
    (done,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (done["type"], done["call_id"], done[field]) == (f"{kind}_call", "c1", arguments)


def test_calls_return_to_an_anthropic_client_as_tool_use() -> None:
    request = requests()["anthropic"]
    body = tw.translate(
        chat_response("bash", {"command": "ls"}), "openai-chat", "anthropic", "response", request=request
    ).value
    (block,) = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "bash", {"command": "ls"})


def test_history_of_native_calls_uses_the_declared_functions() -> None:
    call = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed", "action": {"commands": ["ls"]}}
    outcome = {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    output = {"type": "shell_call_output", "call_id": "c1", "output": [outcome]}
    request = requests()["openai-responses"] | {"input": [QUESTION, call, output]}
    messages = tw.translate(request, "openai-responses", "openai-chat").value["messages"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"commands":["ls"]}'}
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}


def test_choice_of_a_native_tool_names_its_function() -> None:
    request = requests(tool_choice={"type": "apply_patch"})["openai-responses"]
    choice = tw.translate(request, "openai-responses", "openai-chat").value["tool_choice"]
    assert choice == {"type": "function", "function": {"name": "apply_patch"}}


def test_shell_in_a_container_of_the_provider_stays_hosted() -> None:
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}, {"type": "apply_patch"}]
    translation = tw.translate(requests(tools=tools)["openai-responses"], "openai-responses", "openai-chat")
    assert [tool["function"]["name"] for tool in translation.value["tools"]] == ["apply_patch"]
    assert ("dropped", "/tools/0") in [(loss.kind, loss.path) for loss in translation.losses]
