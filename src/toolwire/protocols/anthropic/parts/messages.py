"""Anthropic's messages and system text, to canonical messages and back."""

from typing import Any

from msgspec import UNSET

from toolwire.canonical.content import Message, Role, SettingChange, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed, Turn
from toolwire.protocols.anthropic.rules.vocabulary import UNFINISHED
from toolwire.protocols.anthropic.wire import FAMILY, Block, MessageShape, SettingsShape, TextBlock

from .content import STRING, decode_blocks, encode_parts

GO_ON = "Continue from where you left off."
SPEAKS_LAST = "the model continues nothing by itself: a user must speak last"

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


# ---- decode


def decode_system(system: str | list[Any]) -> tuple[Text, ...]:
    if isinstance(system, str):
        return (Text(text=system, at="/system"),)
    for index, block in enumerate(system):
        if not isinstance(block, TextBlock):
            raise DecodeError(FAMILY, f"/system/{index}/type", "text", "another block")
    return tuple(part for part in decode_blocks(system) if isinstance(part, Text))


def decode_messages(messages: list[MessageShape]) -> tuple[Message, ...]:
    return tuple([_decode_message(message, index) for index, message in enumerate(messages)])


def _decode_message(shape: MessageShape, index: int) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        raise DecodeError(FAMILY, f"/messages/{index}/role", "user, assistant or system", repr(shape.role))
    parts: tuple[Any, ...] = ()
    form: tuple[str, ...] = ()
    if type(content := shape.content) is list:
        parts = decode_blocks(content)
    elif isinstance(content, str):
        parts = (Text(text=content, at="/content"),)
        form = (STRING,)
    else:
        form = ("anthropic:content:absent",)
    if shape.unknown is UNSET and shape.nulls is UNSET and shape.clear_at is UNSET and shape.output_config is UNSET:
        return Message(role=role, parts=parts, form=form)
    if shape.output_config is not UNSET:
        parts = (*parts, _decode_setting(shape.output_config))
    clear_at = known(shape.clear_at)
    return Message(role=role, parts=parts, clear_at=clear_at, **rest(shape, FAMILY, *form))


def _decode_setting(shape: SettingsShape) -> SettingChange:
    thinking = None
    if shape.effort is not UNSET:
        thinking = Thinking(effort=shape.effort, at="", form=("anthropic:name:effort=effort",))
    return SettingChange(thinking=thinking, at="/output_config", **rest(shape, FAMILY))


# ---- encode


def is_call_id(message: Message) -> bool:
    """Whether the message's id is that of a call in it, and so arrives."""
    return any(isinstance(part, ToolCall) and part.id == message.id for part in message.parts)


def encode_system(request: Request, lifted: int, plan: Plan) -> Any:
    """`system`, and for another protocol's request also the system messages that lead it."""
    system = request.system
    if plan.home and system is not None and "anthropic:system:string" in request.form and len(system) == 1:
        return system[0].text
    places = [Placed(part, ("system", index)) for index, part in enumerate(system or ())]
    for number, message in enumerate(request.messages[:lifted]):
        places.extend(Placed(part, ("messages", number, "parts", i)) for i, part in enumerate(message.parts))
    blocks = encode_parts(places, plan)
    if not plan.home and len(blocks) == 1 and type(blocks[0]) is TextBlock and blocks[0].cache_control is UNSET:
        return blocks[0].text
    return blocks if blocks or (system is not None and plan.home) else None


def encode_turn(turn: Turn, plan: Plan) -> list[Any]:
    """The messages of one turn."""
    message = turn.message
    if plan.home and message is not None:
        return [_encode_message(message, turn, plan)]
    if turn.role in ("system", "developer"):
        return _encode_reminder(turn, plan)
    blocks = encode_parts(turn.parts, plan)
    return [{"role": turn.role, "content": blocks}] if blocks else []


def lacks_thinking(messages: list[Any]) -> bool:
    """Whether results are sent for calls without the thinking before them. Where the model thinks, the provider misses
    it: what it thought since the user last spoke must come back, and it can't begin to think in between."""
    for message in reversed(messages):
        blocks = message["content"]
        kinds = {_kind(block) for block in blocks} if isinstance(blocks, list) else set()
        if message["role"] == "user" and "tool_result" not in kinds:
            return False
        if "tool_use" in kinds and not kinds & {"thinking", "redacted_thinking"}:
            return True
    return False


def _kind(block: Any) -> Any:
    return block.__struct_config__.tag if isinstance(block, Block) else block.get("type")


def ask_to_go_on(messages: list[Any], report: Report) -> None:
    """A user after what the model began, for one that continues nothing by itself. It is told what to do, since a turn
    that says nothing would be answered, not continued."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or any(_kind(block) in UNFINISHED for block in last["content"]):
        return
    report.invented((), "", f"/messages/{len(messages)}", SPEAKS_LAST)
    messages.append({"role": "user", "content": GO_ON})


def trim_prefill(blocks: list[Any], trail: Trail, plan: Plan) -> None:
    """The provider refuses a last assistant text that ends in white space."""
    last = blocks[-1]
    if isinstance(last, TextBlock) and last.text != (trimmed := last.text.rstrip()):
        plan.report.approximated(trail, "", "white space at the end of the last text was cut off")
        last.text = trimmed


def _encode_message(message: Message, turn: Turn, plan: Plan) -> Any:
    shape = MessageShape(role=message.role, clear_at=given(message.clear_at))
    only = message.parts[0] if len(message.parts) == 1 else None
    if STRING in message.form and isinstance(only, Text) and not only.cache and not only.extras:
        shape.content = only.text
    elif not (message.parts == () and "anthropic:content:absent" in message.form):
        shape.content = encode_parts(turn.parts, plan)
    for part in message.parts:
        if isinstance(part, SettingChange):
            effort = UNSET if part.thinking is None else given(part.thinking.effort)
            shape.output_config = emit(SettingsShape(effort=effort), part, FAMILY)
            if STRING in message.form and isinstance(first := message.parts[0], Text):
                shape.content = first.text
            elif "anthropic:content:absent" in message.form:
                shape.content = UNSET
    return emit(shape, message, FAMILY)


def _encode_reminder(turn: Turn, plan: Plan) -> list[Any]:
    """System text within a conversation: not every model takes the role there, so it is told in a user turn."""
    blocks = encode_parts(turn.parts, plan)
    if not blocks:
        return []
    plan.report.approximated(turn.trail, "role", "system text within the conversation is told as a reminder")
    for block in blocks:
        if isinstance(block, TextBlock):
            block.text = f"<system-reminder>\n{block.text}\n</system-reminder>"
    return [{"role": "user", "content": blocks}]
