"""OpenRouter's `reasoning` and `cache_control` to canonical settings and back."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Thinking
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.hosts.profile import EFFORTS
from toolwire.codec.wire.extras import mark_extras_seen
from toolwire.codec.wire.reader import decode_json, decode_members
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.content import represented_tokens

REASONING_FIELD = "reasoning"
CACHE_FIELD = "cache_control"
CACHE_TTLS = (None, "5m", "1h")

_REASONING_NAMES = {"effort": "effort", "budget_tokens": "max_tokens", "enabled": "enabled"}
_REASONING_TYPES = {"effort": str, "max_tokens": int, "enabled": bool}

CacheNode = TypeVar("CacheNode", Text, Media, FunctionTool, Request)


# ---- decode


def decode_thinking(raw: Raw) -> Thinking | None:
    """Decode the `reasoning` of a request; None if nothing in it has a canonical meaning."""
    try:
        members = decode_members(raw)
    except msgspec.DecodeError:
        return None
    settings: dict[str, Any] = {}
    form = [f"{FAMILY}:name:{field}={name}" for field, name in _REASONING_NAMES.items()]
    unread = dict(members)
    for field, name in _REASONING_NAMES.items():
        value = decode_json(members.get(name, b"null"))
        if type(value) is _REASONING_TYPES[name]:
            settings[field] = value
            del unread[name]
    if unread.get("exclude") == Raw(b"true"):
        settings["visibility"] = "omitted"
        form.append(f"{FAMILY}:name:visibility=exclude")
        del unread["exclude"]
    elif isinstance(summary := decode_json(unread.get("summary", b"null")), str):
        settings["visibility"] = "summary"
        form.append(f"{FAMILY}:name:visibility=summary")
        if summary in ("auto", "concise", "detailed"):
            del unread["summary"]
            settings |= {} if summary == "auto" else {"summary": summary}
    elif unread.get("exclude") == Raw(b"false"):
        settings["visibility"] = "full"
        form.append(f"{FAMILY}:name:visibility=exclude")
    unread = {name: value for name, value in unread.items() if bytes(value) not in (b"null", b"false")}
    if not settings:
        return None
    if unread:
        mark_extras_seen()
    return Thinking(
        **settings, extras={FAMILY: unread} if unread else None, wire_form=tuple(form), at=f"/{REASONING_FIELD}"
    )


def decode_cache(node: CacheNode) -> CacheNode:
    """Return a part, tool or request with its `cache_control`, which Chat left in the extras, decoded."""
    extras = (node.extras or {}).get(FAMILY)
    if extras is None or node.cache is not None or (raw := extras.get(CACHE_FIELD)) is None:
        return node
    try:
        members = decode_members(raw)
    except msgspec.DecodeError:
        return node
    kind, ttl = decode_json(members.pop("type", b"null")), decode_json(members.get("ttl", b"null"))
    if kind != "ephemeral" or not isinstance(ttl, str | None):
        return node
    members.pop("ttl", None)
    mark = CacheMark(ttl=ttl, extras={FAMILY: members} if members else None, at=f"/{CACHE_FIELD}")
    return replace(
        node,
        cache=mark,
        wire_form=(*node.wire_form, *represented_tokens(CACHE_FIELD), f"{FAMILY}:name:cache={CACHE_FIELD}"),
    )


# ---- encode


def without_cache_mark(node: CacheNode) -> CacheNode:
    """Return the node without a cache mark that its extras hold too, so that it is not written twice."""
    return (
        replace(node, cache=None)
        if node.cache is not None and represented_tokens(CACHE_FIELD)[0] in node.wire_form
        else node
    )


def encode_cache(cache: CacheMark) -> dict[str, Any]:
    """Encode a cache mark as `cache_control`."""
    return {"type": "ephemeral"} if cache.ttl is None else {"type": "ephemeral", "ttl": cache.ttl}


def encode_thinking(thinking: Thinking, plan: EncodingPlan) -> dict[str, Any]:
    """Encode `reasoning`, with an effort or a budget: the provider does not accept both."""
    body: dict[str, Any] = {}
    effort = _encode_effort(thinking, plan)
    if effort is not None:
        body["effort"] = effort
    if thinking.budget_tokens is not None:
        if effort is None:
            body["max_tokens"] = thinking.budget_tokens
        else:
            plan.report.approximated(("thinking",), "budget_tokens", f"sent as effort {effort}")
    elif effort is None and thinking.enabled:
        body["enabled"] = True
    if thinking.visibility == "omitted":
        body["exclude"] = True
    elif thinking.visibility == "summary":
        body["summary"] = thinking.summary or "auto"
    elif thinking.visibility == "full":
        body["exclude"] = False
    return body


def _encode_effort(thinking: Thinking, plan: EncodingPlan) -> str | None:
    """Return the effort, `none` if thinking is disabled; None if no effort is sent."""
    effort = thinking.effort
    if effort is not None and effort not in EFFORTS:
        plan.report.approximated(("thinking",), "effort", f"{effort} sent as high")
        effort = "high"
    if effort is None and thinking.enabled is False:
        return "none"
    if effort not in (None, "none") and thinking.enabled is False:
        plan.report.approximated(("thinking",), "enabled", f"sent as effort {effort}")
    return effort
