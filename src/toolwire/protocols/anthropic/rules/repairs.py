"""What Messages clients are known to send and the provider to refuse, mended: a limit, an id, a mark, a last word,
a choice."""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.ids import legal_id
from toolwire.codec.interface import Target
from toolwire.codec.losses import Names, Report
from toolwire.protocols.anthropic.parts.messages import GO_ON, SPEAKS_LAST
from toolwire.protocols.anthropic.request.body import RULES
from toolwire.protocols.anthropic.request.settings import LEAST_BUDGET
from toolwire.protocols.anthropic.wire import FAMILY

from .vocabulary import UNFINISHED, refuses_forcing, refuses_prefill


def repair_request(request: Request, target: Target, names: Names, report: Report) -> Request:
    """The same request where nothing is wrong with it. What others send is the encoder's to make right."""
    if request.origin != FAMILY:
        return request
    changed: dict[str, Any] = {}
    _repair_budget(request, changed, report)
    _repair_marks(request, changed, report)
    _repair_ids(request, changed, report)
    _repair_prefill(request, target, changed, report)
    _repair_choice(request, target, changed, report)
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
    if request.tools is None or not any(map(_is_marked, request.tools)):
        return
    tools = list(request.tools)
    marked = [place for place, tool in enumerate(tools) if _is_marked(tool)]
    present = [place for place, tool in enumerate(tools) if type(tool) is FunctionTool and not tool.defer]
    last = present[-1] if present else None
    for place in marked:
        tool: Any = tools[place]
        report.approximated(("tools", place, "cache"), "", "moved to the last tool that is not deferred")
        if last is not None and getattr(tools[last], "cache", None) is None:
            tools[last] = replace(tools[last], cache=tool.cache)
        tools[place] = replace(tool, cache=None)
    changed["tools"] = tuple(tools)


def _repair_prefill(request: Request, target: Target, changed: dict[str, Any], report: Report) -> None:
    """Clients that begin the answer themselves, as older models could continue it."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not refuses_prefill(target.model or request.model or ""):
        return
    if any(isinstance(part, ToolCall | ToolResult) or getattr(part, "kind", "") in UNFINISHED for part in last.parts):
        return
    said = changed.get("messages", request.messages)
    changed["messages"] = (*said, Message(role="user", parts=(Text(text=GO_ON),)))
    report.invented((), "", f"/messages/{len(said)}", SPEAKS_LAST)


def _repair_choice(request: Request, target: Target, changed: dict[str, Any], report: Report) -> None:
    """Claude Code forces its web search where the model's name is of one that can be forced, and another may answer."""
    choice = request.tool_choice
    if choice is None or choice.mode not in ("required", "named"):
        return
    if refuses_forcing(target.model or request.model or ""):
        changed["tool_choice"] = replace(choice, mode="auto", names=())
        report.approximated(("tool_choice",), "mode", "the model can't be forced to call: it may choose")


def _is_marked(tool: Tool) -> bool:
    return type(tool) is FunctionTool and tool.cache is not None and tool.defer is True


@lru_cache(maxsize=8192)
def _is_legal(id: str | None) -> bool:
    """A conversation says each id again with every turn."""
    return not id or (len(id) <= RULES.id_limit and RULES.ids.fullmatch(id) is not None)


def _repair_ids(request: Request, changed: dict[str, Any], report: Report) -> None:
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if type(part) is ToolCall:
                field, id = "id", part.id
            elif type(part) is ToolResult:
                field, id = "call_id", part.call_id
            else:
                continue
            if id is None or _is_legal(id):
                continue
            messages = list(request.messages) if messages is None else messages
            parts: list[Any] = list(messages[number].parts)
            parts[place] = replace(part, **{field: legal_id(id, RULES.ids, RULES.id_limit)})
            messages[number] = replace(messages[number], parts=tuple(parts))
            report.approximated(("messages", number, "parts", place), field, "an id that the provider takes")
    if messages is not None:
        changed["messages"] = tuple(messages)
