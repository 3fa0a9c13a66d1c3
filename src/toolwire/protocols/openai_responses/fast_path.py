"""Fast path for plain items: one text, function call or text output, without further fields.

Each function returns None for an item or message that has more; the caller then takes the complete path, which defines
the result.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolResult
from toolwire.codec.encoding.media import ERROR_MARK
from toolwire.codec.wire.extras import none_to_unset
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.openai_responses.parts.calls import encode_fast_call, encode_fast_result
from toolwire.protocols.openai_responses.parts.content import STRING
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import EasyMessage, FunctionCall, FunctionOutput, PlainItemShape

EASY_FORM = "openai-responses:easy"

_decode_plain_item = msgspec.json.Decoder(PlainItemShape).decode
_EASY_STRING_FORM = (EASY_FORM, STRING)
_STRING_FORM = (STRING,)


def read_fast(raw: Raw) -> Message | None:
    """Parse and decode a plain item; None if it has other fields."""
    try:
        return decode_fast(_decode_plain_item(raw))
    except JSON_ERRORS:
        return None


def decode_fast(item: PlainItemShape) -> Message | None:
    """Decode a plain item; None if its combination of fields is not plain."""
    kind, call_id = item.type, item.call_id
    id = None if item.id is UNSET else item.id
    status = None if item.status is UNSET else item.status
    parts: tuple[Part, ...]
    if kind == "function_call":
        if call_id is UNSET or item.name is UNSET or item.arguments is UNSET or status == "incomplete":
            return None
        if item.output is not UNSET or item.role is not UNSET or item.content is not UNSET:
            return None
        parts = (ToolCall(id=call_id, name=item.name, arguments=item.arguments, at=""),)
        return Message(role="assistant", parts=parts, id=id, status=status)
    if item.name is not UNSET or item.arguments is not UNSET:
        return None
    if kind == "function_call_output":
        if call_id is UNSET or item.output is UNSET or item.output.startswith(ERROR_MARK):
            return None
        if item.role is not UNSET or item.content is not UNSET:
            return None
        content = (Text(text=item.output, at="/output"),)
        parts = (ToolResult(call_id=call_id, content=content, wire_form=_STRING_FORM, at=""),)
        return Message(role="user", parts=parts, id=id, status=status)
    if item.role is UNSET or item.content is UNSET or call_id is not UNSET or item.output is not UNSET:
        return None
    parts = (Text(text=item.content, at="/content"),)
    return Message(role=item.role, parts=parts, id=id, status=status, wire_form=_EASY_STRING_FORM)


def encode_fast_same_protocol(message: Message, plan: ItemPlan) -> Any:
    """Encode a message that came as a plain item of this protocol."""
    if len(message.parts) != 1:
        return None
    part, id, status = message.parts[0], message.id, message.status
    if type(part) is Text:
        easy = Message(role=message.role, parts=message.parts, id=id, status=status, wire_form=_EASY_STRING_FORM)
        if message != easy or part != Text(text=part.text, at="/content"):
            return None
        return EasyMessage(role=message.role, content=part.text, id=none_to_unset(id), status=none_to_unset(status))
    if message != Message(role=message.role, parts=message.parts, id=id, status=status):
        return None
    if type(part) is ToolCall:
        if part.id is None or part != ToolCall(id=part.id, name=part.name, arguments=part.arguments, at=""):
            return None
        plan.calls[part.id] = "json", part.name
        made: FunctionCall | FunctionOutput = FunctionCall(name=part.name, call_id=part.id, arguments=part.arguments)
    elif type(part) is ToolResult:
        said = part.content
        if (
            said is None
            or len(said) != 1
            or type(only := said[0]) is not Text
            or only != Text(text=only.text, at="/output")
        ):
            return None
        if part.call_id is None or plan.calls.get(part.call_id, ("json", ""))[0] != "json":
            return None
        if part != ToolResult(call_id=part.call_id, content=said, wire_form=_STRING_FORM, at=""):
            return None
        made = FunctionOutput(call_id=part.call_id, output=only.text)
    else:
        return None
    made.id, made.status = none_to_unset(id), none_to_unset(status)
    return made


def encode_fast_foreign(parts: tuple[Part, ...], role: Role, plan: ItemPlan) -> list[Any] | None:
    """Encode a message of another protocol that holds one text, plain calls or plain results.

    Returns None, without reporting a loss, if it holds anything else.
    """
    items: list[Any] = []
    has_text = False
    for part in parts:
        item = None
        if isinstance(part, ToolCall):
            item = encode_fast_call(part, plan)
        elif isinstance(part, ToolResult):
            item = encode_fast_result(part, plan)
        elif isinstance(part, Text) and not has_text:
            has_text = role != "assistant"
            if part.text and part.cache is None and part.annotations is None and part.signature is None:
                item = {"role": role, "content": part.text}
        if item is None:
            return None
        items.append(item)
    return items
