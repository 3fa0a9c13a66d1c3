"""What some servers that are compatible with Chat refuse and others take, made to fit the one that is asked."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Target
from toolwire.codec.losses import Names, Report, pinned
from toolwire.protocols.openai_chat.wire import FAMILY

_DEEPSEEK = re.compile(r"deepseek", re.IGNORECASE)
_DATABRICKS = re.compile(r"databricks-", re.IGNORECASE)

_NO_CONTENT = (f"{FAMILY}:null:content",)
_DISABLED = Raw(b'{"type":"disabled"}')
_ENABLED = re.compile(rb'"type"\s*:\s*"(?!disabled)')


def repair_request(request: Request, target: Target, names: Names, report: Report) -> Request:
    """The same request where nothing is wrong with it, or where nothing is known of the model."""
    model = target.model or request.model or ""
    if _is(_DEEPSEEK, model):
        request = _forced_without_thinking(request, report)
    if _is(_DATABRICKS, model):
        request = _one_call_a_turn(request, names, report)
    return request


@lru_cache(maxsize=512)
def _is(pattern: re.Pattern[str], model: str) -> bool:
    return pattern.search(model) is not None


def _forced_without_thinking(request: Request, report: Report) -> Request:
    """DeepSeek thinks unless told not to, and refuses a forced call while it does."""
    choice = request.tool_choice
    if choice is None or not (choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)):
        return request
    own = (request.extras or {}).get(FAMILY, {})
    said = own.get("thinking")
    if said is not None and not _ENABLED.search(bytes(said)):
        return request
    why = "the model takes no forced call while it thinks"
    if said is not None:
        report.approximated((), "//thinking", f"{why}: disabled")
    else:
        report.invented(("tool_choice",), "mode", "/thinking", why)
    if (thinking := request.thinking) is not None:
        for name in ("enabled", "effort", "budget_tokens", "visibility"):
            if getattr(thinking, name) is not None:
                report.approximated(("thinking",), name, f"{why}: disabled")
    extras = {**(request.extras or {}), FAMILY: {**own, "thinking": _DISABLED}}
    return replace(request, thinking=None, extras=extras)


def _one_call_a_turn(request: Request, names: Names, report: Report) -> Request:
    """Databricks wants each result right after a message that makes only its call."""
    rest = list(pinned(request, names, "messages").messages)
    out: list[Message] = []
    divided = False
    while rest:
        start = len(request.messages) - len(rest)
        asked = _leading(rest, "assistant")
        calls = {part.id for message in asked for part in message.parts if _is_call(part)}
        if len(calls) < 2:
            out += asked or [rest.pop(0)]
            continue
        divided = True
        answers, others = _answers(_leading(rest, "user"), calls, names)
        for number, message in enumerate(asked, start):
            report.approximated(("messages", number), "", "one call a turn, as the provider wants it")
            for piece in _pieces(pinned(message, names)):
                out.append(piece)
                out += [answers.pop(part.id) for part in piece.parts if _is_call(part) and part.id in answers]
        out += others
    return replace(request, messages=tuple(out)) if divided else request


def _leading(messages: list[Message], role: str) -> list[Message]:
    """Take those of one role from the front."""
    count = next((place for place, message in enumerate(messages) if message.role != role), len(messages))
    taken = messages[:count]
    del messages[:count]
    return taken


def _answers(
    replies: list[Message], calls: set[str | None], names: Names
) -> tuple[dict[str | None, Message], list[Message]]:
    """Each result in a message of its own, by its call, and what else was said."""
    found: dict[str | None, Message] = {}
    others: list[Message] = []
    for message in replies:
        if len(message.parts) == 1 and _answered(message.parts[0], calls, found):
            found[_id(message.parts[0])] = message
            continue
        left: list[Part] = []
        for part in pinned(message, names).parts:
            if _answered(part, calls, found):
                found[_id(part)] = replace(message, parts=(part,), extras=None, form=())
            else:
                left.append(part)
        if left or not message.parts:
            others.append(replace(message, parts=tuple(left)))
    return found, others


def _answered(part: Part, calls: set[str | None], found: Mapping[str | None, Message]) -> bool:
    return isinstance(part, ToolResult) and part.call_id in calls and part.call_id not in found


def _id(part: Part) -> str | None:
    return part.call_id if isinstance(part, ToolResult) else None


def _pieces(message: Message) -> Iterator[Message]:
    """The message, cut after each call but the last."""
    parts: list[Part] = []
    left = sum(map(_is_call, message.parts))
    whole = message
    for part in message.parts:
        parts.append(part)
        if _is_call(part):
            left -= 1
            if left > 0:
                yield replace(whole, parts=tuple(parts))
                whole, parts = replace(message, extras=None, form=_NO_CONTENT), []
    yield replace(whole, parts=tuple(parts))


def _is_call(part: Part) -> TypeGuard[ToolCall]:
    return isinstance(part, ToolCall) and part.executor == "client"
