"""Repair what Messages clients are known to send although the provider rejects it."""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, Reasoning, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.encoding.turns import EMPTY_TEXT, legal_id
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.models import claude
from toolwire.protocols.anthropic.fields import UNFINISHED_BLOCKS
from toolwire.protocols.anthropic.parts.messages import CONTINUE_PROMPT, USER_LAST_REASON
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.wire import FAMILY


def repair_request(request: Request, target: Target, names: WireNames, report: LossReport) -> Request:
    """Repair an Anthropic client's request; return it unchanged if nothing is wrong.

    Requests of other protocols are left to the encoder, which produces valid ones.
    """
    if request.origin != FAMILY:
        return request
    changed: dict[str, Any] = {}
    _repair_budget(request, changed, report)
    _repair_marks(request, changed, report)
    _repair_ids(request, changed, report)
    _repair_thinking(request, target, changed, report)
    _repair_prefill(request, target, changed, report)
    _repair_choice(request, target, changed, report)
    return replace(request, **changed) if changed else request


def _repair_budget(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    """Lower a thinking budget that is not below `max_tokens`, as Anthropic requires and qwen-code does not."""
    thinking, limit = request.thinking, request.sampling.max_tokens if request.sampling else None
    if thinking is None or thinking.budget_tokens is None or limit is None or thinking.budget_tokens < limit:
        return
    if limit > claude.MIN_BUDGET:
        changed["thinking"] = replace(thinking, budget_tokens=limit - 1)
        reason = f"must be less than max_tokens; sent as {limit - 1}"
    else:
        changed["thinking"] = None
        reason = "max_tokens leaves no room for thinking"
    report.approximated(("thinking",), "budget_tokens", reason)


def _repair_marks(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    """Move cache marks from deferred tools, where the provider rejects them, to the last tool not deferred."""
    if request.tools is None or not any(map(_has_cache_mark, request.tools)):
        return
    tools = list(request.tools)
    marked_indices = [index for index, tool in enumerate(tools) if _has_cache_mark(tool)]
    loaded_indices = [index for index, tool in enumerate(tools) if type(tool) is FunctionTool and not tool.defer]
    last_loaded = loaded_indices[-1] if loaded_indices else None
    for index in marked_indices:
        tool: Any = tools[index]
        report.approximated(("tools", index, "cache"), "", "moved to the last tool that is not deferred")
        if last_loaded is not None and getattr(tools[last_loaded], "cache", None) is None:
            tools[last_loaded] = replace(tools[last_loaded], cache=tool.cache)
        tools[index] = replace(tool, cache=None)
    changed["tools"] = tuple(tools)


def _repair_prefill(request: Request, target: Target, changed: dict[str, Any], report: LossReport) -> None:
    """Append a user message for models that do not support prefill."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not claude.refuses_prefill(target.model or request.model or ""):
        return
    if any(
        isinstance(part, ToolCall | ToolResult) or getattr(part, "kind", "") in UNFINISHED_BLOCKS for part in last.parts
    ):
        return
    messages = changed.get("messages", request.messages)
    changed["messages"] = (*messages, Message(role="user", parts=(Text(text=CONTINUE_PROMPT),)))
    report.added((), "", f"/messages/{len(messages)}", USER_LAST_REASON)


def _repair_choice(request: Request, target: Target, changed: dict[str, Any], report: LossReport) -> None:
    """Replace a forced tool choice by `auto` for models that reject it.

    Claude Code forces its web search depending on the model name it knows; a route may use another model.
    """
    choice = request.tool_choice
    if choice is None or choice.mode not in ("required", "named"):
        return
    if claude.refuses_forced_choice(target.model or request.model or ""):
        changed["tool_choice"] = replace(choice, mode="auto", names=())
        reason = "the model does not support a forced tool choice; sent as auto"
        report.approximated(("tool_choice",), "mode", reason, severity="error")


def _has_cache_mark(tool: Tool) -> bool:
    """Tell whether the tool is deferred and carries a cache mark, which the provider rejects."""
    return type(tool) is FunctionTool and tool.cache is not None and tool.defer is True


@lru_cache(maxsize=8192)
def _is_valid_id(id: str | None) -> bool:
    """Tell whether the provider accepts the id; memoized, since a conversation resends each id every turn."""
    return not id or (len(id) <= ID_AND_NAME_RULES.id_limit and ID_AND_NAME_RULES.id_pattern.fullmatch(id) is not None)


def _repair_ids(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    """Rewrite tool call ids that the provider rejects."""
    messages: list[Message] | None = None
    for message_index, message in enumerate(request.messages):
        for part_index, part in enumerate(message.parts):
            if type(part) is ToolCall:
                field, id = "id", part.id
            elif type(part) is ToolResult:
                field, id = "call_id", part.call_id
            else:
                continue
            if id is None or _is_valid_id(id):
                continue
            messages = list(request.messages) if messages is None else messages
            parts: list[Any] = list(messages[message_index].parts)
            parts[part_index] = replace(
                part, **{field: legal_id(id, ID_AND_NAME_RULES.id_pattern, ID_AND_NAME_RULES.id_limit)}
            )
            messages[message_index] = replace(messages[message_index], parts=tuple(parts))
            report.approximated(
                ("messages", message_index, "parts", part_index), field, "rewritten to an id that the provider accepts"
            )
    if messages is not None:
        changed["messages"] = tuple(messages)


def _repair_thinking(request: Request, target: Target, changed: dict[str, Any], report: LossReport) -> None:
    """Remove thinking blocks without a signature, which other vendors' models write and Claude rejects."""
    if "claude" not in (target.model or request.model or "").lower():
        return
    messages: list[Message] | None = None
    for number, message in enumerate(changed.get("messages", request.messages)):
        unsigned = [index for index, part in enumerate(message.parts) if type(part) is Reasoning and not part.signature]
        if not unsigned:
            continue
        messages = list(changed.get("messages", request.messages)) if messages is None else messages
        parts = tuple([part for index, part in enumerate(message.parts) if index not in unsigned])
        messages[number] = replace(message, parts=parts or (Text(text=EMPTY_TEXT),))
        for index in unsigned:
            report.dropped(("messages", number, "parts", index), "", "the model rejects thinking without a signature")
    if messages is not None:
        changed["messages"] = tuple(messages)
