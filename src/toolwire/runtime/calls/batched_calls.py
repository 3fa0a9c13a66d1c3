"""Calls as the runtime takes them: those that a model wrapped into one are unwrapped, and no two have one id."""

import json
from collections.abc import Collection
from typing import Any, TypeGuard

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall

# OpenAI's models write it now and then, with the names of functions behind `functions.`
_WRAPPER_NAMES = frozenset({"multi_tool_use.parallel", "multi_tool_use_parallel", "parallel"})


def unwrap_batched_calls(messages: tuple[Message, ...], tool_names: Collection[str]) -> tuple[Message, ...]:
    """The messages with each call as its own: a wrapper that can't be read stays, and is an unknown tool."""
    return _assign_unique_ids(tuple(_unwrap_message(message, tool_names) for message in messages))


def _assign_unique_ids(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Give calls ids that no other call of their turn has: servers repeat ids, and Anthropic refuses such a turn."""
    calls = [part for message in messages for part in message.parts if is_client_call(part) and part.id]
    if len({call.id for call in calls}) == len(calls):
        return messages
    taken, place = set[str](), -1
    made = list[Message]()
    for message in messages:
        parts = list[Part]()
        for part in message.parts:
            if is_client_call(part):
                place += 1
                if part.id:
                    id = unique_id(part.id, place, taken)
                    part = part if id == part.id else replace(part, id=id, extras=None, wire_form=())  # noqa: PLW2901
                    taken.add(id)
            parts.append(part)
        made.append(replace(message, parts=tuple(parts)))
    return tuple(made)


def is_client_call(part: Part) -> TypeGuard[ToolCall]:
    return isinstance(part, ToolCall) and part.executor == "client"


def unique_id(id: str, index: int, used_ids: Collection[str]) -> str:
    """The id, or one made of it and of the call's place in the turn."""
    while id in used_ids:
        id = f"{id}_{index}"
    return id


def _unwrap_message(message: Message, tool_names: Collection[str]) -> Message:
    if not any(_is_wrapper(part, tool_names) for part in message.parts):
        return message
    return replace(message, parts=tuple(one for part in message.parts for one in _unwrap_part(part, tool_names)))


def _is_wrapper(part: Part, tool_names: Collection[str]) -> bool:
    return isinstance(part, ToolCall) and part.name in _WRAPPER_NAMES and part.name not in tool_names and part.complete


def _unwrap_part(part: Part, tool_names: Collection[str]) -> list[Part]:
    if not isinstance(part, ToolCall) or not _is_wrapper(part, tool_names):
        return [part]
    try:
        uses = json.loads(part.arguments)["tool_uses"]
        return [_build_call(part, use, place) for place, use in enumerate(uses)] or [part]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [part]


def _build_call(wrapper: ToolCall, use: Any, index: int) -> ToolCall:
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
