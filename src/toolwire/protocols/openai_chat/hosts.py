"""Adapt requests of other protocols to the profile of a Chat-compatible host."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import ToolChoice
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn, leading_system_count
from toolwire.codec.losses import SourcePath
from toolwire.protocols.openai_chat.parts.messages import encode_turn

_ACKNOWLEDGEMENT = "OK."
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_SYSTEM_ROLES = ("system", "developer")
_OPTIONAL_FIELDS: dict[str, tuple[SourcePath, str]] = {
    "metadata": ((), "labels"),
    "service_tier": ((), "tier"),
    "store": (("continuation",), "store"),
    "user": ((), "end_user"),
    "verbosity": (("output",), "verbosity"),
}
"""Canonical location of each field of the body; all others are extras."""


def encode_leading_system(request: Request, plan: EncodingPlan) -> tuple[list[Any], int]:
    """Encode all leading system text as one message.

    Return it in a list, and the number of request messages that it replaces.
    """
    if not request.system and not (request.messages and request.messages[0].role in _SYSTEM_ROLES):
        return [], 0
    located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(request.system or ())]
    count = leading_system_count(request.messages)
    for message_index, message in enumerate(request.messages[:count]):
        located_parts += [
            LocatedPart(part, ("messages", message_index, "parts", index)) for index, part in enumerate(message.parts)
        ]
        if message.role == "developer":
            plan.report.approximated(
                ("messages", message_index), "role", "the host may not support the developer role; sent as system"
            )
    path: SourcePath = ("system",) if request.system else ("messages", 0)
    return (encode_turn(Turn("system", located_parts, None, path), plan) if located_parts else []), count


def convert_system_messages(request: Request, start: int, plan: EncodingPlan) -> Request:
    """Return the request with system messages from index `start` on as user text in reminder tags.

    Many chat templates reject them anywhere but at the start. They stay in place, so that the prompt prefix is stable.
    """
    for index in range(start, len(request.messages)):
        if request.messages[index].role in _SYSTEM_ROLES:
            break
    else:
        return request
    messages = list(request.messages)
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role in _SYSTEM_ROLES and any(isinstance(part, Text) for part in message.parts):
            messages[index] = _as_user_reminder(message)
            reason = "mid-conversation system text sent as a user reminder"
            plan.report.approximated(("messages", index), "role", reason)
    return replace(request, messages=tuple(messages))


def _as_user_reminder(message: Message) -> Message:
    """Return the system message as a user message with its text in `system-reminder` tags."""
    parts = [
        replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>") if isinstance(part, Text) else part
        for part in message.parts
    ]
    return replace(message, role="user", parts=tuple(parts))


def acknowledge_results(messages: list[Any], plan: EncodingPlan) -> list[Any]:
    """Insert a short assistant message wherever user text directly follows tool results.

    Some hosts reject user text there. Return the new list; each inserted message is reported.
    """
    result: list[Any] = []
    for message in messages:
        if result and result[-1]["role"] == "tool" and message["role"] == "user":
            reason = "the host rejects user text directly after tool results"
            plan.report.added((), "", f"/messages/{plan.output_index + len(result)}", reason)
            result.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        result.append(message)
    return result


@lru_cache(maxsize=64)
def first_names(fields: tuple[str, ...]) -> frozenset[str]:
    """Return the top-level field name of each pointer."""
    return frozenset([field.partition("/")[0] for field in fields])


def drop_unsupported_fields(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Remove from `body`, and report as losses, the fields that the host may reject."""
    for field in plan.target.host.unsupported_fields:
        name, _, inner = field.partition("/")
        parent = body if not inner else body.get(name)
        if not isinstance(parent, dict) or (inner or name) not in parent:
            continue
        del parent[inner or name]
        path, field_name = _OPTIONAL_FIELDS.get(name, ((), f"//{field}"))
        plan.report.dropped(path, field_name, f"the host may reject {name}")


def fit_choice(choice: ToolChoice, plan: EncodingPlan) -> ToolChoice:
    """Return the choice without `allowed_tools`, for targets that lack it; tools it excludes are not sent."""
    if choice.mode != "allowed":
        return choice
    plan.report.approximated(
        ("tool_choice",), "names", "the target cannot limit the choice to some tools; only the allowed tools sent"
    )
    return replace(choice, mode="required" if choice.required else "auto", names=())


def with_root_type(schema: Raw) -> Raw:
    """Return a parameter schema with `type: object` at its root, which some hosts require."""
    try:
        members = _decode_members(schema)
    except msgspec.DecodeError:
        return schema
    return schema if "type" in members else Raw(msgspec.json.encode({"type": "object", **members}))
