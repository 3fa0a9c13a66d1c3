"""Probes of hosts that speak the Responses API."""

from typing import Any

from toolwire.codec.hosts.generic import ROLES
from toolwire.gateway.probes.probe_set import (
    DEVELOPER_MESSAGES,
    FUNCTION_NAME,
    LATE_SYSTEM_MESSAGES,
    PARAMETERS,
    PNG,
    UNKNOWN_MEMBER,
    USER,
    Body,
    ProbeResult,
    ProbeSet,
)

_MEMBERS = ("store", "instructions", "metadata", "include", "prompt_cache_key", "parallel_tool_calls")
_EFFORTS = ("none", "low", "medium", "high", "max")
_FUNCTION: Body = {
    "type": "function",
    "name": FUNCTION_NAME,
    "description": "Does nothing.",
    "parameters": PARAMETERS,
    "strict": False,
}
_NAMED_FUNCTION: Body = {"type": "function", "name": FUNCTION_NAME}


def _facts(result: ProbeResult) -> dict[str, Any]:
    """Return the facts that the results of Responses probes show."""
    accepted = result.accepted
    return {
        "messages.roles": (*ROLES, "developer") if accepted["developer role"] else ROLES,
        "messages.late_system": accepted["late system message"],
        "content.media": result.media(),
        "tools.freeform": accepted["freeform tool"],
        "tools.hosted": accepted["hosted tool"],
        "choice.rules": result.choice_rules(),
        "thinking.efforts": result.effort_rules(),
        "output.format_required": not accepted["text without format"],
        "fields.refused": result.refused_members(_MEMBERS),
        "fields.unknown": result.unknown_members(),
    }


PROBES = ProbeSet(
    request={"max_output_tokens": 16, "input": [USER]},
    forms={"store": {"store": False}, "without store": {}},
    changes={
        "developer role": {"input": DEVELOPER_MESSAGES},
        "late system message": {"input": LATE_SYSTEM_MESSAGES},
        "image": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
                        {"type": "input_text", "text": "Hi"},
                    ],
                }
            ]
        },
        "freeform tool": {"tools": [{"type": "custom", "name": FUNCTION_NAME, "description": "Does nothing."}]},
        "hosted tool": {"tools": [_FUNCTION, {"type": "web_search"}]},
        "choice required": {"tools": [_FUNCTION], "tool_choice": "required"},
        "choice named": {"tools": [_FUNCTION], "tool_choice": _NAMED_FUNCTION},
        "choice allowed": {
            "tools": [_FUNCTION],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [_NAMED_FUNCTION]},
        },
        **{f"effort {word}": {"reasoning": {"effort": word}} for word in _EFFORTS},
        "text without format": {"text": {"verbosity": "medium"}},
        "instructions": {"instructions": "Be brief."},
        "metadata": {"metadata": {"probe": "1"}},
        "include": {"include": ["reasoning.encrypted_content"]},
        "prompt_cache_key": {"prompt_cache_key": "probe"},
        "parallel_tool_calls": {"tools": [_FUNCTION], "parallel_tool_calls": False},
        "unknown member": {UNKNOWN_MEMBER: 1},
    },
    facts=_facts,
)
