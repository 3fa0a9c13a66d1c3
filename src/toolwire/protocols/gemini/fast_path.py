"""Fast decoders for the usual contents: plain text, function calls and text results without extra fields.

Each decoder returns None when a value has anything else, and the caller uses the general decoder.
"""

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.canonical.content import Message, Part, Signature, Text, ToolCall, ToolResult
from toolwire.codec.wire.extras import merge_extras, unset_to_none
from toolwire.protocols.gemini.field_case import make_extra
from toolwire.protocols.gemini.parts.calls import OUTPUT_FORM
from toolwire.protocols.gemini.parts.signatures import is_dummy
from toolwire.protocols.gemini.wire import (
    ISSUER,
    CallShape,
    PartShape,
    PlainCallShape,
    PlainContentShape,
    PlainPartShape,
    ResultShape,
)


class _TextOutput(msgspec.Struct, forbid_unknown_fields=True):
    """The usual response object of a function result: `{"output": "..."}`."""

    output: str


_decode_text_output = msgspec.json.Decoder(_TextOutput).decode


def decode_fast_call(part: PartShape) -> ToolCall | None:
    """Decode a part that holds only a function call; return None for anything else."""
    call, signature = part.function_call, part.thought_signature
    if type(call) is not CallShape or part != PartShape(function_call=call, thought_signature=signature):
        return None
    if call.name is UNSET or call.args is UNSET or call != CallShape(name=call.name, args=call.args, id=call.id):
        return None
    return decode_plain_call(PlainCallShape(name=call.name, args=call.args, id=call.id), signature)


def decode_plain_call(call: PlainCallShape, signature: str | UnsetType) -> ToolCall:
    """Decode a function call with its thought signature; a placeholder signature becomes an extra."""
    id, arguments = unset_to_none(call.id), str(call.args, "utf-8")
    if signature is UNSET:
        return ToolCall(id=id, name=call.name, arguments=arguments)
    if is_dummy(signature):
        return ToolCall(
            id=id, name=call.name, arguments=arguments, **merge_extras(make_extra("thoughtSignature", signature))
        )
    issued = Signature(issuer=ISSUER, data=signature, kind="signature")
    return ToolCall(id=id, name=call.name, arguments=arguments, signature=issued)


def decode_fast_result(part: PartShape) -> ToolResult | None:
    """Decode a part that holds only a text result of a function; return None for anything else."""
    result = part.function_response
    if type(result) is not ResultShape or part != PartShape(function_response=result):
        return None
    if result.response is UNSET or result.name is UNSET:
        return None
    if result != ResultShape(name=result.name, response=result.response, id=result.id):
        return None
    try:
        output = _decode_text_output(result.response).output
    except msgspec.DecodeError:
        return None
    content = (Text(text=output, at="/functionResponse/response/output"),)
    return ToolResult(call_id=unset_to_none(result.id), name=result.name, content=content, wire_form=OUTPUT_FORM)


def decode_fast(contents: list[PlainContentShape]) -> tuple[Message, ...] | None:
    """Decode the contents of a typed request; return None if one part has several data fields."""
    messages: list[Message] = []
    for content in contents:
        parts = [_decode_fast_part(part) for part in content.parts]
        if None in parts:
            return None
        role = "assistant" if content.role == "model" else "user"
        messages.append(Message(role=role, parts=tuple(parts)))  # type: ignore[arg-type]
    return tuple(messages)


def _decode_fast_part(part: PlainPartShape) -> Part | None:
    """Decode one typed part; return None if more than one data field is set."""
    text, call, result, signature = part.text, part.function_call, part.function_response, part.thought_signature
    if text is not UNSET:
        return Text(text=text) if call is UNSET and result is UNSET and signature is UNSET else None
    if call is not UNSET:
        return decode_plain_call(call, signature) if result is UNSET else None
    if result is UNSET or signature is not UNSET:
        return None
    content = (Text(text=result.response.output, at="/functionResponse/response/output"),)
    return ToolResult(call_id=unset_to_none(result.id), name=result.name, content=content, wire_form=OUTPUT_FORM)
