"""Chat servers that reject the same requests as real hosts, and the first requests of coding agents."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.bodies.minimal import chat_events
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import read_http_request

Body = dict[str, Any]
Refusal = tuple[int, Any]
Check = Callable[[Body], Refusal | None]

CALL_ID = "a1B2c3D4e"
_PATCH = json.dumps({"input": "*** Begin Patch"})


def _error_body(message: str, **more: Any) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}


def _calls(body: Body) -> Iterator[tuple[int, Body]]:
    for index, message in enumerate(body["messages"]):
        if message.get("tool_calls"):
            yield index, message


def deepseek(body: Body) -> Refusal | None:
    for index, message in enumerate(body["messages"]):
        if message["role"] not in ("system", "user", "assistant", "tool", "latest_reminder"):
            expected = "expected one of `system`, `user`, `assistant`, `tool`, `latest_reminder`"
            return 400, _error_body(f"messages[{index}].role: unknown variant `{message['role']}`, {expected}")
        if isinstance(message.get("content"), list):
            return 422, _error_body(f"messages[{index}]: invalid type: sequence, expected a string")
    for tool in body.get("tools", ()):
        if tool["type"] != "function":
            return 400, _error_body(f"tools[0].type: unknown variant `{tool['type']}`, expected `function`")
    for _, message in _calls(body):
        if "reasoning_content" not in message:
            return 400, _error_body("The `reasoning_content` in the thinking mode must be passed back to the API.")
    return None


_MISTRAL = {
    "": {"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "response_format"}
    | {"tools", "tool_choice", "n", "parallel_tool_calls", "reasoning_effort", "prompt_cache_key", "metadata"},
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
    "function": {"name", "description", "parameters", "strict"},
}


def _unknown_field(path: list[Any]) -> Refusal:
    detail = [{"type": "extra_forbidden", "loc": ["body", *path], "msg": "Extra inputs are not permitted"}]
    return 422, {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error", "code": None}


def mistral(body: Body) -> Refusal | None:
    for name in body.keys() - _MISTRAL[""]:
        return _unknown_field([name])
    last = ""
    for index, message in enumerate(body["messages"]):
        role = message["role"]
        if role not in _MISTRAL:
            return _unknown_field(["messages", index, "role"])
        for name in message.keys() - _MISTRAL[role]:
            return _unknown_field(["messages", index, role, name])
        if (last == "tool" and role == "user") or (role == "system" and index):
            text = f"Unexpected role '{role}' after role '{last}'"
            return 400, {"object": "error", "message": text, "type": "invalid_request_message_order", "code": "3230"}
        last = role
        for call in message.get("tool_calls") or ():
            if len(call["id"]) != 9 or not call["id"].isalnum():
                text = f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
                return 400, {"object": "error", "message": text, "type": "invalid_function_call", "code": "3280"}
    for index, tool in enumerate(body.get("tools", ())):
        if tool["type"] != "function":
            return _unknown_field(["tools", index, "type"])
        for name in tool["function"].keys() - _MISTRAL["function"]:
            return _unknown_field(["tools", index, "function", name])
    return None


_GROQ = {
    "model",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stop",
    "seed",
} | {
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "user",
}


def groq(body: Body) -> Refusal | None:
    for name in body.keys() - _GROQ:
        return 400, _error_body(f"property '{name}' is unsupported")
    for index, message in enumerate(body["messages"]):
        for name in message.keys() - {"role", "content", "tool_calls", "tool_call_id", "reasoning"}:
            rule = f"('messages.{index}' : property '{name}' is unsupported)"
            return 400, _error_body(
                f"'messages.{index}' : for 'role:{message['role']}' the following must be satisfied[{rule}]"
            )
        if message["role"] == "system" and isinstance(message["content"], list):
            return 400, _error_body(f"'messages.{index}.content' : value must be a string")
    if any(tool["type"] != "function" for tool in body.get("tools", ())):
        return 400, _error_body("'tools.0.type' : value is not one of the allowed values ['function']")
    return None


def chat_template(body: Body) -> Refusal | None:
    """Apply the rules of vLLM with the chat template of Qwen 3.5, and of xAI on empty content."""
    for index, message in enumerate(body["messages"]):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            return 400, _error_body("Unexpected message role.")
        if message["role"] == "system" and index:
            return 400, _error_body("System message must be at the beginning.")
        if message.get("content") in (None, []):
            return 400, _error_body("Invalid request content: Each message must have at least one content element.")
    for tool in body.get("tools", ()):
        if tool.get("function", {}).get("parameters", {}).get("type") != "object":
            return 400, _error_body('tools.function.parameters.type is required and must be "object"')
    if "reasoning_effort" in body:
        return 400, _error_body("Model does not support parameter reasoningEffort.")
    if len(body.get("user", "")) > 64:
        return 400, _error_body("Invalid 'user': string too long. Expected a string with maximum length 64.")
    return None


class StrictHost:
    """An upstream that responds with a call of `apply_patch`, or with the error of its check."""

    def __init__(self, check: Check) -> None:
        self.bodies: list[Body] = []
        self.refusals: list[Refusal] = []
        self._check = check

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            body = json.loads((await read_http_request(reader)).partition(b"\r\n\r\n")[2])
            self.bodies.append(body)
            refusal = self._check(body)
            if refusal is None:
                writer.write(_answer())
            else:
                self.refusals.append(refusal)
                writer.write(http_response(f"{refusal[0]} Refused", json.dumps(refusal[1]).encode()))
            await writer.drain()


def _answer() -> bytes:
    call = {"index": 0, "id": CALL_ID, "type": "function", "function": {"name": "apply_patch", "arguments": _PATCH}}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    events = chat_events(
        chunk
        | {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": usage},
    )
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(events)}\r\n\r\n"
    return head.encode() + events


# ---- requests of agents


_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
_EPHEMERAL = {"type": "ephemeral"}


def claude_code_request(model: str) -> list[Body]:
    """Return the first two requests of Claude Code 2.1.325 with a model name that it does not know."""
    first: Body = {
        "model": model,
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.11f; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are Claude Code.", "cache_control": _EPHEMERAL},
            {"type": "text", "text": "Be brief.", "cache_control": {**_EPHEMERAL, "ttl": "1h"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>Today is Monday.</system-reminder>"},
                    {"type": "text", "text": "Fix the test.", "cache_control": _EPHEMERAL},
                ],
            },
            {"role": "system", "content": "These tools are deferred: WebSearch."},
        ],
        "tools": [
            {"name": "apply_patch", "description": "Run it.", "input_schema": _SCHEMA},
            {"name": "Workflow", "input_schema": {"type": "object", "properties": {"args": {}}}},
            {"name": "ToolSearch", "input_schema": _SCHEMA, "cache_control": _EPHEMERAL},
            {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
        ],
        "metadata": {"user_id": json.dumps({"device_id": "a" * 64, "account_uuid": "", "session_id": "b" * 36})},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    }
    result = {
        "type": "tool_result",
        "tool_use_id": CALL_ID,
        "content": [{"type": "text", "text": "done"}, {"type": "text", "text": "twice"}],
    }
    turn = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": CALL_ID, "name": "apply_patch", "input": {}}]},
        {"role": "user", "content": [result, {"type": "text", "text": "Tool loaded."}]},
        {"role": "system", "content": [{"type": "text", "text": "Two files changed."}]},
    ]
    return [first, first | {"messages": first["messages"] + turn}]


def codex_request(model: str) -> list[Body]:
    """Return the first two requests of Codex 0.166 with its tools for gpt-5.5."""
    first: Body = {
        "model": model,
        "input": [
            _item("developer", "You are Codex."),
            _item("developer", "Approval policy: never.", "Skills: none."),
            _item("user", "<environment_context/>", "Fix the test."),
        ],
        "tools": [
            {"type": "function", "name": "exec_command", "strict": False, "parameters": _SCHEMA},
            {"type": "function", "name": "list_goals", "strict": False, "parameters": None},
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Edit files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            },
            {"type": "namespace", "name": "mcp__w", "description": "Weather.", "tools": [_weather()]},
            {"type": "web_search"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199-session",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "1"},
    }
    turn = [
        {"type": "custom_tool_call", "call_id": CALL_ID, "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": CALL_ID, "output": [_text("done"), _text("twice")]},
        _item("developer", "The user changed the model."),
        _item("user", "Go on."),
    ]
    return [first, first | {"input": first["input"] + turn}]


def _text(text: str) -> Body:
    return {"type": "input_text", "text": text}


def _item(role: str, *texts: str) -> Body:
    return {"type": "message", "role": role, "content": [_text(text) for text in texts]}


def _weather() -> Body:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "name": "get_weather", "strict": False, "parameters": parameters}
