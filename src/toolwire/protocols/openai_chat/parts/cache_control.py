"""Encode cache marks as `cache_control`, which OpenRouter accepts on texts, tools and requests."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.tools import CacheMark
from toolwire.codec.encoding.plan import FORM_REASON, EncodingPlan
from toolwire.codec.losses import SourcePath
from toolwire.protocols.openai_chat.wire import FAMILY, TextPart

CACHE_FIELD = "cache_control"
CACHE_TTLS = (None, "5m", "1h")
TEXT_ONLY = "the target has cache marks on text only"

_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_CLAUDE = "claude"  # in the names of models that cache only by marks


def has_cache_control(plan: EncodingPlan) -> bool:
    """Tell whether cache marks of another protocol are sent as `cache_control`."""
    return plan.target.host.content.cache_control and not plan.same_protocol


def encode_mark(mark: CacheMark, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the cache mark of the value at `path`."""
    ttl = mark.ttl
    if ttl not in CACHE_TTLS:
        plan.report.approximated((*path, "cache"), "ttl", f"{ttl} sent as 1h")
        ttl = "1h"
    plan.cache_marks += 1
    return {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}


def move_mark(part: Text, path: SourcePath, plan: EncodingPlan) -> Text:
    """Return a text with its mark as an extra, which is written as `cache_control`; others lack such a lifetime."""
    mark = part.cache
    if mark is None or mark.ttl not in CACHE_TTLS or CACHE_FIELD in (part.extras or {}).get(FAMILY, {}):
        return part
    extra = {CACHE_FIELD: Raw(msgspec.json.encode(encode_mark(mark, path, plan)))}
    return replace(part, cache=None, extras={FAMILY: extra})


def lift_mark(mark: CacheMark, path: SourcePath, plan: EncodingPlan) -> None:
    """Send the mark of a message at `path` as the request's, which the provider sets on the last message."""
    plan.last_mark = mark
    plan.report.approximated((*path, "cache"), "", f"sent as the mark of the request: {FORM_REASON}")


def mark_last_text(content: list[Any], mark: CacheMark, path: SourcePath, plan: EncodingPlan) -> None:
    """Put the mark of a result at `path` on the last encoded part, which must be text; else report it."""
    last = content[-1] if content else None
    if isinstance(last, TextPart):
        content[-1] = {"type": "text", "text": last.text, CACHE_FIELD: encode_mark(mark, path, plan)}
    else:
        plan.report.dropped((*path, "cache"), "", TEXT_ONLY)


def _with_mark(tool: Any, mark: dict[str, Any]) -> Any:
    """Return an encoded function with a mark, None for another tool."""
    if isinstance(tool, Raw):
        return Raw(bytes(tool)[:-1] + b',"%b":%b}' % (CACHE_FIELD.encode(), msgspec.json.encode(mark)))
    is_function = isinstance(tool, dict) and tool.get("type") == "function"
    return {**tool, CACHE_FIELD: mark} if is_function else None


def add_cache_marks(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Mark the end of tools, system text and conversation for a Claude model, unless the client set marks."""
    if plan.cache_marks or CACHE_FIELD in body or _CLAUDE not in (plan.target.model or ""):
        return
    reason = "Claude models cache only up to marks, which the source does not need"
    first, mark = body["messages"][0] if body["messages"] else {}, encode_mark(CacheMark(), (), plan)
    if first.get("role") in ("system", "developer"):
        content = first["content"]
        parts = [TextPart(text=content)] if isinstance(content, str) else content
        if parts and isinstance(last := parts[-1], TextPart):
            first["content"] = [*parts[:-1], {"type": "text", "text": last.text, CACHE_FIELD: mark}]
            plan.report.added((), "", f"/messages/0/content/{len(parts) - 1}/{CACHE_FIELD}", reason, severity="info")
    tools = body.get("tools")
    if isinstance(tools, Raw):
        tools = _decode_elements(tools)  # functions, which many requests have in common
    if isinstance(tools, list) and tools and (marked := _with_mark(tools[-1], mark)) is not None:
        body["tools"] = [*tools[:-1], marked]
        plan.report.added((), "", f"/tools/{len(tools) - 1}/{CACHE_FIELD}", reason, severity="info")
    body[CACHE_FIELD] = mark
    plan.report.added((), "", f"/{CACHE_FIELD}", reason, severity="info")
