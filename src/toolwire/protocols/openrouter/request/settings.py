"""How hard to think and what to cache: OpenRouter's own fields, to canonical settings and back."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Thinking
from toolwire.codec.kept import note_extras
from toolwire.codec.plan import Plan
from toolwire.protocols.openai_chat.request.settings import EFFORTS
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import told

REASONING = "reasoning"
CACHE = "cache_control"
TTLS = (None, "5m", "1h")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode
_NAMES = {"effort": "effort", "budget_tokens": "max_tokens", "enabled": "enabled"}
_KINDS = {"effort": str, "max_tokens": int, "enabled": bool}

Marked = TypeVar("Marked", Text, Media, FunctionTool, Request)


# ---- decode


def lift_thinking(raw: Raw) -> Thinking | None:
    """The `reasoning` of a request; None if it says nothing that others know."""
    try:
        members = _members(raw)
    except msgspec.DecodeError:
        return None
    said: dict[str, Any] = {}
    form = [f"{FAMILY}:name:{field}={name}" for field, name in _NAMES.items()]
    left = dict(members)
    for field, name in _NAMES.items():
        value = _decode(members.get(name, b"null"))
        if type(value) is _KINDS[name]:
            said[field] = value
            del left[name]
    if left.get("exclude") == Raw(b"true"):
        said["visibility"] = "omitted"
        form.append(f"{FAMILY}:name:visibility=exclude")
        del left["exclude"]
    elif isinstance(word := _decode(left.get("summary", b"null")), str):
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
        note_extras()
    return Thinking(**said, extras={FAMILY: left} if left else None, form=tuple(form), at=f"/{REASONING}")


def lift_cache(node: Marked) -> Marked:
    """A part, tool or request with the mark that Anthropic's way of caching puts on it."""
    own = (node.extras or {}).get(FAMILY)
    if own is None or node.cache is not None or (raw := own.get(CACHE)) is None:
        return node
    try:
        members = _members(raw)
    except msgspec.DecodeError:
        return node
    kind, ttl = _decode(members.pop("type", b"null")), _decode(members.get("ttl", b"null"))
    if kind != "ephemeral" or not isinstance(ttl, str | None):
        return node
    members.pop("ttl", None)
    mark = CacheMark(ttl=ttl, extras={FAMILY: members} if members else None, at=f"/{CACHE}")
    return replace(node, cache=mark, form=(*node.form, *told(CACHE), f"{FAMILY}:name:cache={CACHE}"))


# ---- encode


def unmarked(node: Marked) -> Marked:
    """As Chat wrote it: the mark is in the extras already, and not to be written Chat's way, too."""
    return replace(node, cache=None) if node.cache is not None and told(CACHE)[0] in node.form else node


def encode_cache(cache: CacheMark) -> dict[str, Any]:
    return {"type": "ephemeral"} if cache.ttl is None else {"type": "ephemeral", "ttl": cache.ttl}


def encode_thinking(thinking: Thinking, plan: Plan) -> dict[str, Any]:
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
