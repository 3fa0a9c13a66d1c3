"""Probes of hosts that speak the Messages API."""

from typing import Any

from toolwire.gateway.probes.probe_set import (
    FUNCTION_NAME,
    PARAMETERS,
    PNG,
    UNKNOWN_MEMBER,
    USER,
    Body,
    ProbeResult,
    ProbeSet,
)

_MEMBERS = ("metadata", "service_tier", "top_k")
_EFFORTS = ("low", "medium", "high", "max")
_TOOL: Body = {"name": FUNCTION_NAME, "description": "Does nothing.", "input_schema": PARAMETERS}


def _facts(result: ProbeResult) -> dict[str, Any]:
    """Return the facts that the results of Messages probes show."""
    accepted, host = result.accepted, result.host
    return {
        "messages.late_system": accepted["late system message"],
        "content.media": result.media(),
        "content.cache_marks": host.content.cache_marks and accepted["cache mark"],
        "tools.typed": accepted["typed tool"],
        "tools.hosted": accepted["hosted tool"],
        "tools.client_run": accepted["client-run tool"],
        "tools.deferred": accepted["deferred tool"],
        "choice.rules": result.choice_rules(),
        "thinking.efforts": result.effort_rules(),
        "fields.refused": result.refused_members(_MEMBERS),
        "fields.unknown": result.unknown_members(),
    }


PROBES = ProbeSet(
    request={"max_tokens": 1, "messages": [USER]},
    forms={"simplest request": {}},
    changes={
        "late system message": {"messages": [USER, {"role": "system", "content": "Be brief."}]},
        "image": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        {"type": "text", "text": "Hi"},
                    ],
                }
            ]
        },
        "cache mark": {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
            ]
        },
        "typed tool": {"tools": [{"type": "custom", **_TOOL}]},
        "hosted tool": {"tools": [_TOOL, {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]},
        "client-run tool": {"tools": [{"type": "bash_20250124", "name": "bash"}]},
        "deferred tool": {"tools": [_TOOL, _TOOL | {"name": "other", "defer_loading": True}]},
        "choice required": {"tools": [_TOOL], "tool_choice": {"type": "any"}},
        "choice named": {"tools": [_TOOL], "tool_choice": {"type": "tool", "name": FUNCTION_NAME}},
        **{f"effort {word}": {"output_config": {"effort": word}} for word in _EFFORTS},
        "metadata": {"metadata": {"user_id": "probe-1"}},
        "service_tier": {"service_tier": "standard_only"},
        "top_k": {"top_k": 1},
        "unknown member": {UNKNOWN_MEMBER: 1},
    },
    facts=_facts,
)
