"""Decode and encode the messages and the system text of a request."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import UNSET

from toolwire.canonical.content import Message, Reasoning, Role, SettingChange, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.protocols.anthropic.fields import UNFINISHED_BLOCKS
from toolwire.protocols.anthropic.parts.content import STRING, decode_blocks, encode_parts
from toolwire.protocols.anthropic.wire import FAMILY, Block, MessageShape, SettingsShape, TextBlock

CONTINUE_PROMPT = "Continue from where you left off."
USER_LAST_REASON = "the model does not support prefill: the last message must be from the user"

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


# ---- decode


def decode_system(system: str | list[Any]) -> tuple[Text, ...]:
    """Decode `system`, which may hold text only."""
    if isinstance(system, str):
        return (Text(text=system, at="/system"),)
    for index, block in enumerate(system):
        if not isinstance(block, TextBlock):
            raise DecodeError(FAMILY, f"/system/{index}/type", "text", "another block")
    return tuple(part for part in decode_blocks(system) if isinstance(part, Text))


def decode_messages(messages: list[MessageShape]) -> tuple[Message, ...]:
    """Decode the messages of a request."""
    return tuple([_decode_message(message, index) for index, message in enumerate(messages)])


def _decode_message(shape: MessageShape, index: int) -> Message:
    """Decode one message; `index` is its position for error messages."""
    role = _ROLES.get(shape.role)
    if role is None:
        raise DecodeError(FAMILY, f"/messages/{index}/role", "user, assistant or system", repr(shape.role))
    parts: tuple[Any, ...] = ()
    wire_form: tuple[str, ...] = ()
    if type(content := shape.content) is list:
        parts = decode_blocks(content)
    elif isinstance(content, str):
        parts = (Text(text=content, at="/content"),)
        wire_form = (STRING,)
    else:
        wire_form = ("anthropic:content:absent",)
    if shape.unknown is UNSET and shape.nulls is UNSET and shape.clear_at is UNSET and shape.output_config is UNSET:
        return Message(role=role, parts=parts, wire_form=wire_form)
    if shape.output_config is not UNSET:
        parts = (*parts, _decode_setting(shape.output_config))
    clear_at = unset_to_none(shape.clear_at)
    return Message(role=role, parts=parts, clear_at=clear_at, **collect_extras(shape, FAMILY, *wire_form))


def _decode_setting(shape: SettingsShape) -> SettingChange:
    """Decode `output_config` of a system message, which changes settings within the conversation."""
    thinking = None
    if shape.effort is not UNSET:
        thinking = Thinking(effort=shape.effort, at="", wire_form=("anthropic:name:effort=effort",))
    return SettingChange(thinking=thinking, at="/output_config", **collect_extras(shape, FAMILY))


# ---- encode


def encode_system(request: Request, lifted_count: int, plan: EncodingPlan) -> Any:
    """Encode `system`; for other protocols it includes the first `lifted_count` messages, which are system text."""
    system = request.system
    if plan.same_protocol and system is not None and _is_string(system, request):
        return system[0].text
    located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(system or ())]
    for number, message in enumerate(request.messages[:lifted_count]):
        path: SourcePath = ("messages", number, "parts")
        located_parts += [LocatedPart(part, (*path, index)) for index, part in enumerate(message.parts)]
    blocks = encode_parts(located_parts, plan)
    if plan.same_protocol:
        return blocks if blocks or system is not None else None
    if len(blocks) == 1 and type(blocks[0]) is TextBlock and blocks[0].cache_control is UNSET:
        return blocks[0].text
    return blocks or None


def _is_string(system: tuple[Text, ...], request: Request) -> bool:
    """Tell whether the client sent `system` as a string, not as a list of blocks."""
    return len(system) == 1 and "anthropic:system:string" in request.wire_form


def encode_turn(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode one turn as zero or more messages."""
    message = turn.message
    if plan.same_protocol and message is not None:
        return [_encode_message(message, turn, plan)]
    if turn.role in ("system", "developer"):
        return _encode_reminder(turn, plan)
    blocks = encode_parts(turn.parts, plan)
    return [{"role": turn.role, "content": blocks}] if blocks else []


def lacks_thinking(messages: list[Any]) -> bool:
    """Tell whether the messages end with tool results whose calls have no thinking block before them.

    With thinking enabled the provider rejects such a request: the thinking since the last user message must be resent,
    and thinking cannot start in between.
    """
    for message in reversed(messages):
        blocks = message["content"]
        kinds = {_block_type(block) for block in blocks} if isinstance(blocks, list) else set()
        if message["role"] == "user" and "tool_result" not in kinds:
            return False
        if "tool_use" in kinds and not kinds & {"thinking", "redacted_thinking"}:
            return True
    return False


def is_separable(request: Request) -> bool:
    """Return whether the messages of a request can be encoded without the messages that precede them.

    Not if cache marks must be counted from the start of the conversation, or if earlier messages decide whether
    thinking is shown.
    """
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content or ()]
    if any(getattr(part, "cache", None) is not None for part in parts):
        return False
    return request.thinking is None or _shows_thinking(request.messages)


def _shows_thinking(messages: Sequence[Message]) -> bool:
    """Return whether it is certain, whatever comes before these messages, that `lacks_thinking` or that it does not."""
    for role, turn in groupby(reversed(messages), attrgetter("role")):
        parts = [part for message in turn for part in message.parts]
        kinds = set(map(type, parts))
        if role == "assistant" and ToolCall in kinds:
            return Reasoning not in kinds
        if role != "assistant" and ToolResult not in kinds:
            return role == "user" and any(isinstance(part, Text) and part.text.strip() for part in parts)
    return False


def _block_type(block: Any) -> Any:
    """Return the type of an encoded block."""
    return block.__struct_config__.tag if isinstance(block, Block) else block.get("type")


def append_continue_prompt(messages: list[Any], report: LossReport) -> None:
    """Append a user message after a trailing assistant message, for models without prefill support.

    It asks the model to continue; an empty message would be answered instead.
    """
    last = messages[-1] if messages else None
    if (
        last is None
        or last["role"] != "assistant"
        or any(_block_type(block) in UNFINISHED_BLOCKS for block in last["content"])
    ):
        return
    report.added((), "", f"/messages/{len(messages)}", USER_LAST_REASON)
    messages.append({"role": "user", "content": CONTINUE_PROMPT})


def trim_prefill(blocks: list[Any], path: SourcePath, plan: EncodingPlan) -> None:
    """Strip trailing whitespace, which the provider rejects, from a final assistant text; report the change."""
    last = blocks[-1]
    if isinstance(last, TextBlock) and last.text != (trimmed := last.text.rstrip()):
        plan.report.approximated(path, "", "trailing whitespace removed: the target rejects it")
        last.text = trimmed


def _encode_message(message: Message, turn: Turn, plan: EncodingPlan) -> Any:
    """Encode one message that came from an Anthropic client."""
    shape = MessageShape(role=message.role, clear_at=none_to_unset(message.clear_at))
    only = message.parts[0] if len(message.parts) == 1 else None
    if STRING in message.wire_form and isinstance(only, Text) and not only.cache and not only.extras:
        shape.content = only.text
    elif not (message.parts == () and "anthropic:content:absent" in message.wire_form):
        shape.content = encode_parts(turn.parts, plan)
    for part in message.parts:
        if type(part) is SettingChange:
            effort = UNSET if part.thinking is None else none_to_unset(part.thinking.effort)
            shape.output_config = encode_with_extras(SettingsShape(effort=effort), part, FAMILY)
            if STRING in message.wire_form and isinstance(first := message.parts[0], Text):
                shape.content = first.text
            elif "anthropic:content:absent" in message.wire_form:
                shape.content = UNSET
    return encode_with_extras(shape, message, FAMILY)


def _encode_reminder(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode a system message within the conversation as user text, since not all models accept it there."""
    blocks = encode_parts(turn.parts, plan)
    if not blocks:
        return []
    plan.report.approximated(turn.path, "role", "mid-conversation system text sent as a user reminder")
    for block in blocks:
        if isinstance(block, TextBlock):
            block.text = f"<system-reminder>\n{block.text}\n</system-reminder>"
    return [{"role": "user", "content": blocks}]
