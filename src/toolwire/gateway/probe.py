"""Probes of a Chat host: tiny requests that find out what it accepts, for `toolwire doctor --probe`.

Each probe changes one thing in a request for one token. A host that answers 400, 422 or 500 does not accept that thing.
Any other failure ends the probing, since it says nothing about what the host accepts.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.hosts.generic import ROLES
from toolwire.codec.hosts.profile import ChoiceRule, EffortRule, HostProfile
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

Body = dict[str, Any]

PROTOCOL = "openai-chat"
_PATH = "/v1/chat/completions"
_REFUSED = (400, 422, 500)  # 500: a chat template that fails
_LIMIT_RESPONSE = 1024 * 1024
_EFFORTS = ("low", "medium", "high")
_USER = {"role": "user", "content": "Hi"}
_CALL_ID = "a1B2c3D4e"  # legal at all known hosts
_FUNCTION = {
    "name": "noop",
    "description": "Does nothing.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}
_CALL = {"id": _CALL_ID, "type": "function", "function": {"name": "noop", "arguments": "{}"}}


def _tools(**members: Any) -> list[Body]:
    """Return the tools that probes declare: one function, with these members added."""
    return [{"type": "function", "function": {**_FUNCTION, **members}}]


PROBES: dict[str, Body] = {
    "max_tokens": {},
    "max_completion_tokens": {},
    "developer role": {"messages": [{"role": "developer", "content": "Be brief."}, _USER]},
    "list content": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    "late system message": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            _USER,
            {"role": "assistant", "content": "Hello."},
            {"role": "system", "content": "Be briefer."},
            _USER,
        ]
    },
    "user after tool": {
        "messages": [
            _USER,
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": _CALL_ID, "content": "done"},
            _USER,
        ],
        "tools": _tools(),
    },
    "reasoning_effort": {"reasoning_effort": "low"},
    "strict": {"tools": _tools(strict=True)},
    "choice required": {"tools": _tools(), "tool_choice": "required"},
    "choice named": {"tools": _tools(), "tool_choice": {"type": "function", "function": {"name": "noop"}}},
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
    "parallel_tool_calls": {"tools": _tools(), "parallel_tool_calls": False},
    "store": {"store": False},
    "metadata": {"metadata": {"probe": "1"}},
    "prompt_cache_key": {"prompt_cache_key": "probe"},
    "unknown member": {"toolwire_probe": 1},
}
"""The change that each probe makes to the request."""

_MEMBERS = ("parallel_tool_calls", "store", "metadata", "prompt_cache_key")
"""Probed members of the body; those that the host rejects are listed in `fields.refused`."""


class ProbeFailed(Exception):
    """Raised if a host can't be probed."""


class ProbeResult(Struct, frozen=True):
    """The results of all probes of a model."""

    provider: Provider
    model: str
    accepted: Mapping[str, bool]  # by probe


async def probe_host(
    provider: Provider, model: str, transport: Transport, timeout: float, report: Callable[[str, bool], None]
) -> ProbeResult:
    """Send all probes, one after the other; `report` receives each result. Raises `ProbeFailed`."""
    accepted: dict[str, bool] = {}
    limit = "max_tokens"
    for name, change in PROBES.items():
        limit = name if name in ("max_tokens", "max_completion_tokens") else limit
        accepted[name] = await _send(
            provider, {"model": model, "messages": [_USER], **change, limit: 1}, transport, timeout
        )
        report(name, accepted[name])
        if name == "max_completion_tokens":
            if not accepted["max_tokens"] and not accepted[name]:
                raise ProbeFailed(f"{provider.name} rejects the simplest request for {model}")
            limit = "max_tokens" if accepted["max_tokens"] else name
    return ProbeResult(provider, model, accepted)


async def _send(provider: Provider, body: Body, transport: Transport, timeout: float) -> bool:
    """Send one probe, and return whether the host accepts it."""
    headers = {"content-type": "application/json"} | provider.request_headers(PROTOCOLS[PROTOCOL].surface)
    head = request_head(provider.origin, provider.request_target(_PATH), headers.items())
    data = msgspec.json.encode(body)
    try:
        response = await transport.send(
            provider.origin, head, data, read_timeout=timeout, connect_timeout=provider.connect_timeout
        )
        await response.read(_LIMIT_RESPONSE)
    except TransportError as error:
        raise ProbeFailed(f"{provider.name}: {error}") from None
    if response.status < 300:
        return True
    if response.status in _REFUSED:
        return False
    raise ProbeFailed(f"{provider.name} responded with status {response.status}, which says nothing about the host")


def probed_profile(result: ProbeResult) -> HostProfile:
    """Return the profile of the provider's host, with the probed facts."""
    parent, accepted = result.provider.profile(result.model), result.accepted
    limits = tuple(name for name in ("max_completion_tokens", "max_tokens") if accepted[name])
    modes = ["auto", "none", *[mode for mode in ("required", "named") if accepted[f"choice {mode}"]]]
    refused = [name for name in parent.fields.refused if name not in _MEMBERS]
    refused += [name for name in _MEMBERS if not accepted[name]]
    return replace(
        parent,
        name=result.provider.name,
        messages=replace(
            parent.messages,
            roles=(*ROLES, "developer") if accepted["developer role"] else ROLES,
            late_system=accepted["late system message"],
            user_after_tool=accepted["user after tool"],
        ),
        content=replace(parent.content, string_roles=() if accepted["list content"] else ROLES),
        tools=replace(parent.tools, strict="accepted" if accepted["strict"] else "refused"),
        choice=replace(parent.choice, rules=(ChoiceRule(modes=tuple(modes)),)),
        thinking=replace(
            parent.thinking,
            efforts=(
                EffortRule(models=(result.model.lower(),), words=_EFFORTS if accepted["reasoning_effort"] else ()),
            ),
        ),
        output=replace(
            parent.output,
            limit_field="max_tokens" if "max_tokens" in limits else limits[0],
            limit_fields=limits,
            stream_usage=accepted["stream_options"],
        ),
        fields=replace(
            parent.fields, refused=tuple(refused), unknown="accepted" if accepted["unknown member"] else "refused"
        ),
    )


_KEYS = {
    "messages": ("roles", "late_system", "user_after_tool"),
    "content": ("string_roles",),
    "tools": ("strict",),
    "choice": ("rules",),
    "thinking": ("efforts",),
    "output": ("limit_field", "limit_fields", "stream_usage"),
    "fields": ("refused", "unknown"),
}
"""The probed facts, by group."""


def render_table(result: ProbeResult) -> str:
    """Return the probed facts as a table `[hosts.NAME]` for `toolwire.toml`."""
    name, parent = result.provider.name, result.provider.profile(result.model)
    profile = probed_profile(result)
    lines = [
        f"# probed with {result.model}; use it with host = {_toml(name)} in [providers.{_key(name)}]",
        f"[hosts.{_key(name)}]",
        f"extends = {_toml(parent.name)}",
        f"protocol = {_toml(PROTOCOL)}",
    ]
    for group, keys in _KEYS.items():
        facts = getattr(profile, group)
        lines += ["", f"[hosts.{_key(name)}.{group}]"]
        lines += [f"{key} = {_toml(getattr(facts, key))}" for key in keys]
    return "\n".join(lines)


def _key(name: str) -> str:
    """Return a TOML key, quoted if necessary."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    """Return a fact as a TOML value."""
    if isinstance(value, Struct):
        members = {key: member for key in value.__struct_fields__ if (member := getattr(value, key)) is not None}
        return f"{{ {', '.join(f'{key} = {_toml(member)}' for key, member in members.items())} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
