"""Probes of hosts that speak Chat Completions."""

from typing import Any

from toolwire.codec.hosts.generic import ROLES
from toolwire.gateway.probes.probe_set import (
    DEVELOPER_MESSAGES,
    FUNCTION_NAME,
    LATE_SYSTEM_MESSAGES,
    PARAMETERS,
    UNKNOWN_MEMBER,
    USER,
    Body,
    ProbeResult,
    ProbeSet,
)

_MEMBERS = ("parallel_tool_calls", "store", "metadata", "prompt_cache_key")
_EFFORTS = ("none", "low", "medium", "high", "max")
_LIMITS = ("max_completion_tokens", "max_tokens")
_CALL_ID = "a1B2c3D4e"  # legal at all known hosts
_CALL = {"id": _CALL_ID, "type": "function", "function": {"name": FUNCTION_NAME, "arguments": "{}"}}


def _tools(**members: Any) -> list[Body]:
    """Return the tools that probes declare: one function, with these members added."""
    function = {"name": FUNCTION_NAME, "description": "Does nothing.", "parameters": PARAMETERS}
    return [{"type": "function", "function": function | members}]


def _facts(result: ProbeResult) -> dict[str, Any]:
    """Return the facts that the results of Chat probes show."""
    accepted = result.accepted
    limits = tuple(name for name in _LIMITS if accepted[name])
    return {
        "messages.roles": (*ROLES, "developer") if accepted["developer role"] else ROLES,
        "messages.late_system": accepted["late system message"],
        "messages.user_after_tool": accepted["user after tool"],
        "content.string_roles": () if accepted["list content"] else ROLES,
        "tools.strict": "accepted" if accepted["strict"] else "refused",
        "choice.rules": result.choice_rules(),
        "thinking.efforts": result.effort_rules(),
        "output.limit_field": "max_tokens" if "max_tokens" in limits else limits[0],
        "output.limit_fields": limits,
        "output.stream_usage": accepted["stream_options"],
        "fields.refused": result.refused_members(_MEMBERS),
        "fields.unknown": result.unknown_members(),
    }


PROBES = ProbeSet(
    request={"messages": [USER]},
    forms={"max_tokens": {"max_tokens": 1}, "max_completion_tokens": {"max_completion_tokens": 1}},
    changes={
        "developer role": {"messages": DEVELOPER_MESSAGES},
        "list content": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        "late system message": {"messages": LATE_SYSTEM_MESSAGES},
        "user after tool": {
            "messages": [
                USER,
                {"role": "assistant", "content": "", "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": _CALL_ID, "content": "done"},
                USER,
            ],
            "tools": _tools(),
        },
        **{f"effort {word}": {"reasoning_effort": word} for word in _EFFORTS},
        "strict": {"tools": _tools(strict=True)},
        "choice required": {"tools": _tools(), "tool_choice": "required"},
        "choice named": {
            "tools": _tools(),
            "tool_choice": {"type": "function", "function": {"name": FUNCTION_NAME}},
        },
        "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
        "parallel_tool_calls": {"tools": _tools(), "parallel_tool_calls": False},
        "store": {"store": False},
        "metadata": {"metadata": {"probe": "1"}},
        "prompt_cache_key": {"prompt_cache_key": "probe"},
        "unknown member": {UNKNOWN_MEMBER: 1},
    },
    facts=_facts,
)
