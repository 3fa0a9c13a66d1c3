"""How hard to think and what to cache: OpenRouter's own fields, to canonical settings and back."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Thinking
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.wire.extras import mark_extras_seen
from toolwire.protocols.openai_chat.settings import EFFORTS
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.content import represented_tokens

REASONING_FIELD = "reasoning"
CACHE_FIELD = "cache_control"
CACHE_TTLS = (None, "5m", "1h")

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_json = msgspec.json.Decoder().decode
_REASONING_NAMES = {"effort": "effort", "budget_tokens": "max_tokens", "enabled": "enabled"}
_REASONING_TYPES = {"effort": str, "max_tokens": int, "enabled": bool}

CacheNode = TypeVar("CacheNode", Text, Media, FunctionTool, Request)


# ---- decode


def decode_thinking(raw: Raw) -> Thinking | None:
    """The `reasoning` of a request; None if it says nothing that others know."""
    try:
        members = _decode_members(raw)
    except msgspec.DecodeError:
        return None
    said: dict[str, Any] = {}
    form = [f"{FAMILY}:name:{field}={name}" for field, name in _REASONING_NAMES.items()]
    left = dict(members)
    for field, name in _REASONING_NAMES.items():
        value = _decode_json(members.get(name, b"null"))
        if type(value) is _REASONING_TYPES[name]:
            said[field] = value
            del left[name]
    if left.get("exclude") == Raw(b"true"):
        said["visibility"] = "omitted"
        form.append(f"{FAMILY}:name:visibility=exclude")
        del left["exclude"]
    elif isinstance(word := _decode_json(left.get("summary", b"null")), str):
        said["visibility"] = "summary"
        form.append(f"{FAMILY}:name:visibility=summary")
        if word in ("auto", "concise", "detailed"):
            del left["summary"]
            said |= {} if word == "auto" else {"summary": word}
    elif left.get("exclude") == Raw(b"false"):
        said["visibility"] = "full"
        form.append(f"{FAMILY}:name:visibility=exclude")
    left = {name: value for name, value in left.items() if bytes(value) not in (b"null", b"false")}
    if not said:
        return None
    if left:
        mark_extras_seen()
    return Thinking(**said, extras={FAMILY: left} if left else None, wire_form=tuple(form), at=f"/{REASONING_FIELD}")


def decode_cache(node: CacheNode) -> CacheNode:
    """A part, tool or request with the mark that Anthropic's way of caching puts on it."""
    own = (node.extras or {}).get(FAMILY)
    if own is None or node.cache is not None or (raw := own.get(CACHE_FIELD)) is None:
        return node
    try:
        members = _decode_members(raw)
    except msgspec.DecodeError:
        return node
    kind, ttl = _decode_json(members.pop("type", b"null")), _decode_json(members.get("ttl", b"null"))
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
    """As Chat wrote it: the mark is in the extras already, and not to be written Chat's way, too."""
    return (
        replace(node, cache=None)
        if node.cache is not None and represented_tokens(CACHE_FIELD)[0] in node.wire_form
        else node
    )


def encode_cache(cache: CacheMark) -> dict[str, Any]:
    return {"type": "ephemeral"} if cache.ttl is None else {"type": "ephemeral", "ttl": cache.ttl}


def encode_thinking(thinking: Thinking, plan: EncodingPlan) -> dict[str, Any]:
    """The `reasoning` of a request: an effort or a budget, the provider takes no two."""
    report, trail = plan.report, ("thinking",)
    body: dict[str, Any] = {}
    effort = thinking.effort
    if effort is not None and effort not in EFFORTS:
        report.approximated(trail, "effort", f"{effort} is told as high")
        effort = "high"
    if effort is None and thinking.enabled is False:
        effort = "none"
    elif effort not in (None, "none") and thinking.enabled is False:
        report.approximated(trail, "enabled", f"told as an effort: {effort}")
    if effort is not None:
        body["effort"] = effort
    if thinking.budget_tokens is not None:
        if effort is None:
            body["max_tokens"] = thinking.budget_tokens
        else:
            report.approximated(trail, "budget_tokens", f"told as an effort: {effort}")
    elif effort is None and thinking.enabled:
        body["enabled"] = True
    if thinking.visibility == "omitted":
        body["exclude"] = True
    elif thinking.visibility == "summary":
        body["summary"] = thinking.summary or "auto"
    elif thinking.visibility == "full":
        body["exclude"] = False
    return body
