"""What Messages clients are known to send and the provider to refuse, mended: a limit, an id, a mark."""

from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.ids import legal_id
from toolwire.codec.interface import Target
from toolwire.codec.losses import Names, Report
from toolwire.protocols.anthropic.request.body import RULES
from toolwire.protocols.anthropic.request.settings import LEAST_BUDGET
from toolwire.protocols.anthropic.wire import FAMILY

_is_legal = RULES.ids.fullmatch


def repair_request(request: Request, target: Target, names: Names, report: Report) -> Request:
    """The same request where nothing is wrong with it. What others send is the encoder's to make right."""
    if request.origin != FAMILY:
        return request
    changed: dict[str, Any] = {}
    _repair_budget(request, changed, report)
    _repair_marks(request, changed, report)
    _repair_ids(request, changed, report)
    return replace(request, **changed) if changed else request


def _repair_budget(request: Request, changed: dict[str, Any], report: Report) -> None:
    """qwen-code thinks for as long as it may answer; the answer must be longer."""
    thinking, limit = request.thinking, request.sampling.max_tokens if request.sampling else None
    if thinking is None or thinking.budget_tokens is None or limit is None or thinking.budget_tokens < limit:
        return
    if limit > LEAST_BUDGET:
        changed["thinking"] = replace(thinking, budget_tokens=limit - 1)
        why = f"less than max_tokens, as the provider wants it: {limit - 1}"
    else:
        changed["thinking"] = None
        why = "there is no room to think within max_tokens"
    report.approximated(("thinking",), "budget_tokens", why)


def _repair_marks(request: Request, changed: dict[str, Any], report: Report) -> None:
    """A tool that is loaded later can't be the end of what is cached: the last one before is."""
    tools = list(request.tools or ())
    marked = [
        place for place, tool in enumerate(tools) if getattr(tool, "defer", None) and getattr(tool, "cache", None)
    ]
    if not marked:
        return
    present = [place for place, tool in enumerate(tools) if not getattr(tool, "defer", None) and hasattr(tool, "cache")]
    last = present[-1] if present else None
    for place in marked:
        tool: Any = tools[place]
        report.approximated(("tools", place, "cache"), "", "moved to the last tool that is not deferred")
        if last is not None and getattr(tools[last], "cache", None) is None:
            tools[last] = replace(tools[last], cache=tool.cache)
        tools[place] = replace(tool, cache=None)
    changed["tools"] = tuple(tools)


def _repair_ids(request: Request, changed: dict[str, Any], report: Report) -> None:
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            kind = type(part)
            if kind is not ToolCall and kind is not ToolResult:
                continue
            field = "id" if kind is ToolCall else "call_id"
            id: str | None = getattr(part, field)
            if not id or (len(id) <= RULES.id_limit and _is_legal(id)):
                continue
            messages = list(request.messages) if messages is None else messages
            parts: list[Any] = list(messages[number].parts)
            parts[place] = replace(part, **{field: legal_id(id, RULES.ids, RULES.id_limit)})
            messages[number] = replace(messages[number], parts=tuple(parts))
            report.approximated(("messages", number, "parts", place), field, "an id that the provider takes")
    if messages is not None:
        changed["messages"] = tuple(messages)
