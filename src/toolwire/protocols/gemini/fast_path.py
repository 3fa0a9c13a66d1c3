"""Fast path for requests of plain texts, function calls and text results without further fields.

`decode_fast` returns None if a content has anything else; the caller then uses the general decoder.
"""

from msgspec import UNSET, UnsetType

from toolwire.canonical.content import Message, Part, Signature, Text, ToolCall, ToolResult
from toolwire.codec.wire.extras import merge_extras, unset_to_none
from toolwire.protocols.gemini.field_case import make_extra
from toolwire.protocols.gemini.parts.calls import OUTPUT_FORM
from toolwire.protocols.gemini.parts.signatures import is_dummy
from toolwire.protocols.gemini.wire import ISSUER, PlainCallShape, PlainContentShape, PlainPartShape


def _decode_fast_call(call: PlainCallShape, signature: str | UnsetType) -> ToolCall:
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
        return _decode_fast_call(call, signature) if result is UNSET else None
    if result is UNSET or signature is not UNSET:
        return None
    content = (Text(text=result.response.output, at="/functionResponse/response/output"),)
    return ToolResult(call_id=unset_to_none(result.id), name=result.name, content=content, wire_form=OUTPUT_FORM)
