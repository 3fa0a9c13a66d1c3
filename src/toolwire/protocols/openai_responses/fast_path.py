"""Fast path for encoding plain items: one text, function call or text output, without further fields.

Each function returns None for a message that has more; the caller then takes the complete path, which defines the
result.
"""

from typing import Any

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolResult
from toolwire.codec.wire.extras import none_to_unset
from toolwire.protocols.openai_responses.parts.calls import encode_fast_call, encode_fast_result
from toolwire.protocols.openai_responses.parts.content import STRING
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import EasyMessage, FunctionCall, FunctionOutput

EASY_FORM = "openai-responses:easy"

_EASY_STRING_FORM = (EASY_FORM, STRING)
_STRING_FORM = (STRING,)


def encode_fast_same_protocol(message: Message, plan: ItemPlan) -> Any:
    """Encode a message that was decoded from a plain item of this API; None if it has changed since."""
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
        item = _encode_plain_call(part, plan)
    elif type(part) is ToolResult:
        item = _encode_plain_result(part, plan)
    else:
        return None
    if item is not None:
        item.id, item.status = none_to_unset(id), none_to_unset(status)
    return item


def _encode_plain_call(part: ToolCall, plan: ItemPlan) -> FunctionCall | FunctionOutput | None:
    """Encode a call that has only id, name and arguments; None for any other."""
    if part.id is None or part != ToolCall(id=part.id, name=part.name, arguments=part.arguments, at=""):
        return None
    plan.calls[part.id] = "json", part.name
    return FunctionCall(name=part.name, call_id=part.id, arguments=part.arguments)


def _encode_plain_result(part: ToolResult, plan: ItemPlan) -> FunctionOutput | None:
    """Encode a result that is a single text; None for any other."""
    content = part.content
    if content is None or len(content) != 1 or type(text := content[0]) is not Text:
        return None
    if text != Text(text=text.text, at="/output"):
        return None
    if part.call_id is None or plan.calls.get(part.call_id, ("json", ""))[0] != "json":
        return None
    if part != ToolResult(call_id=part.call_id, content=content, wire_form=_STRING_FORM, at=""):
        return None
    return FunctionOutput(call_id=part.call_id, output=text.text)


def encode_fast_foreign(parts: tuple[Part, ...], role: Role, plan: ItemPlan) -> list[Any] | None:
    """Encode another protocol's message of one text, or of calls or results without optional fields.

    Return None, without reporting a loss, if it holds anything else.
    """
    items: list[Any] = []
    has_text = False
    for part in parts:
        item = None
        if type(part) is ToolCall:
            item = encode_fast_call(part, plan)
        elif type(part) is ToolResult:
            item = encode_fast_result(part, plan)
        elif type(part) is Text and not has_text:
            has_text = role != "assistant"
            if part.text and part.cache is None and part.annotations is None and part.signature is None:
                item = {"role": role, "content": part.text}
        if item is None:
            return None
        items.append(item)
    return items
