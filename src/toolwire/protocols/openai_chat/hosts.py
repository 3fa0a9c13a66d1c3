"""Requests of other protocols, lowered to what the profile of a host takes."""

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
"""Where a field of the body stands in the canonical request; the others are extras."""


def encode_leading_system(request: Request, plan: EncodingPlan) -> tuple[list[Any], int]:
    """Encode all system text at the start as one message; and tell how many messages it was."""
    if not request.system and not (request.messages and request.messages[0].role in _SYSTEM_ROLES):
        return [], 0
    places = [LocatedPart(part, ("system", index)) for index, part in enumerate(request.system or ())]
    count = leading_system_count(request.messages)
    for number, message in enumerate(request.messages[:count]):
        places += [LocatedPart(part, ("messages", number, "parts", index)) for index, part in enumerate(message.parts)]
        if message.role == "developer":
            plan.report.approximated(("messages", number), "role", "the host may know no developer: sent as system")
    trail: SourcePath = ("system",) if request.system else ("messages", 0)
    return (encode_turn(Turn("system", places, None, trail), plan) if places else []), count


def convert_system_messages(request: Request, start: int, plan: EncodingPlan) -> Request:
    """Return the request with system messages from `start` on as marked user text, in their places.

    Many chat templates refuse them anywhere but at the start. In place, what was sent stays a prefix of what follows.
    """
    if all(message.role not in _SYSTEM_ROLES for message in request.messages[start:]):
        return request
    messages = list(request.messages)
    for number in range(start, len(messages)):
        message = messages[number]
        if message.role in _SYSTEM_ROLES and any(isinstance(part, Text) for part in message.parts):
            messages[number] = _as_user_reminder(message)
            why = "the host may take system text at the start only: told as a reminder"
            plan.report.approximated(("messages", number), "role", why)
    return replace(request, messages=tuple(messages))


def _as_user_reminder(message: Message) -> Message:
    parts = [
        replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>") if isinstance(part, Text) else part
        for part in message.parts
    ]
    return replace(message, role="user", parts=tuple(parts))


def acknowledge_results(messages: list[Any], plan: EncodingPlan) -> list[Any]:
    """Return the messages with one of the assistant's between results and the user text that follows them."""
    made: list[Any] = []
    for message in messages:
        if made and made[-1]["role"] == "tool" and message["role"] == "user":
            why = "the host takes no user text right after results"
            plan.report.added((), "", f"/messages/{plan.output_index + len(made)}", why)
            made.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        made.append(message)
    return made


@lru_cache(maxsize=64)
def _first_names(fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset([field.partition("/")[0] for field in fields])


def drop_unsupported_fields(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Take out of a body the fields that the host may refuse."""
    fields = plan.target.host.unsupported_fields
    if _first_names(fields).isdisjoint(body):
        return
    for field in fields:
        name, _, inner = field.partition("/")
        holder = body if not inner else body.get(name)
        if not isinstance(holder, dict) or (inner or name) not in holder:
            continue
        del holder[inner or name]
        trail, source = _OPTIONAL_FIELDS.get(name, ((), f"//{field}"))
        plan.report.dropped(trail, source, f"the host may refuse {name}")


def fit_choice(choice: ToolChoice, plan: EncodingPlan) -> ToolChoice:
    """Return the choice for a target that can't choose among some, whose tools `is_allowed` has left out."""
    if choice.mode != "allowed":
        return choice
    plan.report.approximated(("tool_choice",), "names", "the target can't choose among some: only those are offered")
    return replace(choice, mode="required" if choice.required else "auto", names=())


def with_root_type(schema: Raw) -> Raw:
    """Return the schema of parameters with the root type that some hosts insist on: parameters are always an object."""
    try:
        members = _decode_members(schema)
    except msgspec.DecodeError:
        return schema
    return schema if "type" in members else Raw(msgspec.json.encode({"type": "object", **members}))
