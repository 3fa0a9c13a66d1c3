"""Clearing of old tool results and thinking from a history, as Anthropic's `context_management` asks for it.

The number of tokens is estimated. Messages, calls and results stay: only their contents are replaced.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.context_management import AppliedEdit, ClearThinking, ClearToolUses
from toolwire.codec.losses import WireNames, with_source_positions
from toolwire.codec.token_count import BYTES_PER_TOKEN
from toolwire.translation.compaction import part_size

CLEARED_RESULT = "[the result of this tool call was cleared to save context]"
_CLEARED_ARGUMENTS = "{}"
_Location = tuple[int, int]


def clear_tool_uses(request: Request, edit: ClearToolUses, prompt_tokens: int) -> tuple[Request, AppliedEdit | None]:
    """Clear the results of old calls, and return the request with what was cleared; None if nothing was.

    `prompt_tokens` is the estimated size of the whole prompt.
    """
    calls = _client_calls(request.messages)
    if (prompt_tokens if edit.unit == "input_tokens" else len(calls)) <= edit.threshold:
        return request, None
    cleared_ids = {
        call.id
        for _, call in calls[: max(0, len(calls) - edit.keep)]
        if call.id is not None and call.name not in edit.excluded_tools
    }
    changes: dict[_Location, Part] = {}
    saved = uses = 0
    for location, part in _located_parts(request.messages):
        new: Part = part
        if isinstance(part, ToolResult) and part.call_id in cleared_ids and not _is_cleared(part):
            new, uses = replace(part, content=(Text(text=CLEARED_RESULT),), wire_form=()), uses + 1
        elif isinstance(part, ToolCall) and part.id in cleared_ids and _clears_arguments(edit, part):
            new = replace(part, arguments=_CLEARED_ARGUMENTS)
        if new is not part:
            changes[location] = new
            saved += part_size(part) - part_size(new)
    tokens = max(0, saved // BYTES_PER_TOKEN)
    if not uses or tokens < edit.least_tokens:
        return request, None
    return _with_parts(request, changes), AppliedEdit(edit=edit, cleared=uses, tokens=tokens)


def clear_thinking(request: Request, edit: ClearThinking, wire_names: WireNames) -> tuple[Request, AppliedEdit | None]:
    """Clear the thinking of old turns, and return the request with what was cleared; None if nothing was.

    A turn lasts until the user writes again; results of tools do not end it.
    """
    if edit.keep is None:
        return request, None
    turns: dict[int, list[_Location]] = {}
    turn = 0
    for number, message in enumerate(request.messages):
        if message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts):
            turn += 1
        for position, part in enumerate(message.parts):
            if isinstance(part, Reasoning):
                turns.setdefault(turn, []).append((number, position))
    old = sorted(turns)[: max(0, len(turns) - edit.keep)]
    if not old:
        return request, None
    removed = {location for number in old for location in turns[number]}
    size = sum(part_size(request.messages[number].parts[position]) for number, position in removed)
    messages = []
    for number, message in enumerate(with_source_positions(request, wire_names, "messages").messages):
        positions = [position for position in range(len(message.parts)) if (number, position) not in removed]
        if len(positions) == len(message.parts):
            messages.append(message)
        elif positions:
            parts = with_source_positions(message, wire_names).parts
            messages.append(replace(message, parts=tuple([parts[position] for position in positions])))
    applied = AppliedEdit(edit=edit, cleared=len(old), tokens=size // BYTES_PER_TOKEN)
    return replace(request, messages=tuple(messages)), applied


def _client_calls(messages: Sequence[Message]) -> list[tuple[_Location, ToolCall]]:
    """Return the calls that the client ran, in order."""
    return [
        (location, part)
        for location, part in _located_parts(messages)
        if isinstance(part, ToolCall) and part.executor == "client"
    ]


def _located_parts(messages: Sequence[Message]) -> list[tuple[_Location, Part]]:
    """Return all parts with their positions."""
    return [
        ((number, position), part)
        for number, message in enumerate(messages)
        for position, part in enumerate(message.parts)
    ]


def _is_cleared(result: ToolResult) -> bool:
    """Return whether a result is empty or already cleared."""
    return not result.content or result.content == (Text(text=CLEARED_RESULT),)


def _clears_arguments(edit: ClearToolUses, call: ToolCall) -> bool:
    """Return whether an edit clears the arguments of a call as well."""
    if call.shape != "json" or call.arguments == _CLEARED_ARGUMENTS:
        return False
    return edit.arguments if isinstance(edit.arguments, bool) else call.name in edit.arguments


def _with_parts(request: Request, changes: dict[_Location, Part]) -> Request:
    """Return the request with some parts replaced."""
    messages = list(request.messages)
    for number in {number for number, _ in changes}:
        message = messages[number]
        parts = [changes.get((number, position), part) for position, part in enumerate(message.parts)]
        messages[number] = replace(message, parts=tuple(parts))
    return replace(request, messages=tuple(messages))
