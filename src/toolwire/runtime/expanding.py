"""Calls as the runtime takes them: those that a model wrapped into one are unwrapped, and no two have one id."""

import json
from collections.abc import Collection
from typing import Any, TypeGuard

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall

# OpenAI's models write it now and then, with the names of functions behind `functions.`
_WRAPPERS = frozenset({"multi_tool_use.parallel", "multi_tool_use_parallel", "parallel"})


def expanded(messages: tuple[Message, ...], known: Collection[str]) -> tuple[Message, ...]:
    """The messages with each call as its own: a wrapper that can't be read stays, and is an unknown tool."""
    return _distinct(tuple(_message(message, known) for message in messages))


def _distinct(messages: tuple[Message, ...]) -> tuple[Message, ...]:
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
                    id = free_id(part.id, place, taken)
                    part = part if id == part.id else replace(part, id=id, extras=None, form=())  # noqa: PLW2901
                    taken.add(id)
            parts.append(part)
        made.append(replace(message, parts=tuple(parts)))
    return tuple(made)


def is_client_call(part: Part) -> TypeGuard[ToolCall]:
    return isinstance(part, ToolCall) and part.executor == "client"


def free_id(id: str, place: int, taken: Collection[str]) -> str:
    """The id, or one made of it and of the call's place in the turn."""
    while id in taken:
        id = f"{id}_{place}"
    return id


def _message(message: Message, known: Collection[str]) -> Message:
    if not any(_is_wrapper(part, known) for part in message.parts):
        return message
    return replace(message, parts=tuple(one for part in message.parts for one in _parts(part, known)))


def _is_wrapper(part: Part, known: Collection[str]) -> bool:
    return isinstance(part, ToolCall) and part.name in _WRAPPERS and part.name not in known and part.complete


def _parts(part: Part, known: Collection[str]) -> list[Part]:
    if not isinstance(part, ToolCall) or not _is_wrapper(part, known):
        return [part]
    try:
        uses = json.loads(part.arguments)["tool_uses"]
        return [_call(part, use, place) for place, use in enumerate(uses)] or [part]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [part]


def _call(wrapper: ToolCall, use: Any, place: int) -> ToolCall:
    name = str(use["recipient_name"]).removeprefix("functions.")
    arguments = json.dumps(use.get("parameters", {}), ensure_ascii=False)
    id = wrapper.id if place == 0 or wrapper.id is None else f"{wrapper.id}_{place}"
    return replace(
        wrapper, id=id, name=name, arguments=arguments, extras=None, form=(), seal=wrapper.seal if place == 0 else None
    )
