"""Decode OpenRouter's `reasoning` and `cache_control` as canonical settings."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Thinking
from toolwire.codec.wire.reader import decode_json, decode_members
from toolwire.protocols.openai_chat.parts.cache_control import CACHE_FIELD
from toolwire.protocols.openai_chat.parts.details import represented_tokens
from toolwire.protocols.openai_chat.settings import REASONING_FIELD
from toolwire.protocols.openai_chat.wire import FAMILY

_REASONING_NAMES = {"effort": "effort", "budget_tokens": "max_tokens", "enabled": "enabled"}
_REASONING_TYPES = {"effort": str, "max_tokens": int, "enabled": bool}

CacheNode = TypeVar("CacheNode", bound=Text | Media | FunctionTool | Request)


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
