"""The first requests of coding agents."""

import json
from typing import Any

Body = dict[str, Any]

CALL_ID = "a1B2c3D4e"

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
