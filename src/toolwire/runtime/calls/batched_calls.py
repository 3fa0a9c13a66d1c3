"""Normalize the calls of a turn: unwrap calls batched into one, and make their ids unique."""

import json
from collections.abc import Collection
from typing import Any, TypeGuard

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall

# OpenAI models sometimes call this internal tool, with function names prefixed by `functions.`
_WRAPPER_NAMES = frozenset({"multi_tool_use.parallel", "multi_tool_use_parallel", "parallel"})


def unwrap_batched_calls(messages: tuple[Message, ...], tool_names: Collection[str]) -> tuple[Message, ...]:
    """Replace each batch wrapper by the calls inside it.

    A malformed wrapper stays, and is later refused as an unknown tool.
    """
    return _assign_unique_ids(tuple(_unwrap_message(message, tool_names) for message in messages))


def _assign_unique_ids(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Make call ids unique within a turn: some servers repeat ids, and Anthropic rejects such turns."""
    calls = [part for message in messages for part in message.parts if is_client_call(part) and part.id]
    if len({call.id for call in calls}) == len(calls):
        return messages
    used_ids, index = set[str](), -1
    renumbered = list[Message]()
    for message in messages:
        parts = list[Part]()
        for part in message.parts:
            if is_client_call(part):
                index += 1
                if part.id:
                    id = unique_id(part.id, index, used_ids)
                    part = part if id == part.id else replace(part, id=id, extras=None, wire_form=())  # noqa: PLW2901
                    used_ids.add(id)
            parts.append(part)
        renumbered.append(replace(message, parts=tuple(parts)))
    return tuple(renumbered)


def is_client_call(part: Part) -> TypeGuard[ToolCall]:
    """Return True for a call that the runtime executes, rather than the provider."""
    return isinstance(part, ToolCall) and part.executor == "client"


def unique_id(id: str, index: int, used_ids: Collection[str]) -> str:
    """Return the id, with the call's index in the turn appended if it is already used."""
    while id in used_ids:
        id = f"{id}_{index}"
    return id


def _unwrap_message(message: Message, tool_names: Collection[str]) -> Message:
    if not any(_is_wrapper(part, tool_names) for part in message.parts):
        return message
    return replace(message, parts=tuple(call for part in message.parts for call in _unwrap_part(part, tool_names)))


def _is_wrapper(part: Part, tool_names: Collection[str]) -> bool:
    """Return True for a complete call of a batch tool that the agent does not define itself."""
    return isinstance(part, ToolCall) and part.name in _WRAPPER_NAMES and part.name not in tool_names and part.complete


def _unwrap_part(part: Part, tool_names: Collection[str]) -> list[Part]:
    """Return the calls inside a wrapper, or the part itself if it is no wrapper or malformed."""
    if not isinstance(part, ToolCall) or not _is_wrapper(part, tool_names):
        return [part]
    try:
        uses = json.loads(part.arguments)["tool_uses"]
        return [_build_call(part, use, index) for index, use in enumerate(uses)] or [part]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [part]


def _build_call(wrapper: ToolCall, use: Any, index: int) -> ToolCall:
    """Build one call from an entry of `tool_uses`."""
    name = str(use["recipient_name"]).removeprefix("functions.")
    arguments = json.dumps(use.get("parameters", {}), ensure_ascii=False)
    id = wrapper.id if index == 0 or wrapper.id is None else f"{wrapper.id}_{index}"
    return replace(
        wrapper,
        id=id,
        name=name,
        arguments=arguments,
        extras=None,
        wire_form=(),
        signature=wrapper.signature if index == 0 else None,
    )
