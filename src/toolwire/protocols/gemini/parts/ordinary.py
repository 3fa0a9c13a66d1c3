"""Contents as nearly all are, by the shortest way: texts, calls, results that are texts; nothing else said of them."""

from msgspec import UNSET

from toolwire.canonical.content import Message, Part, Text, ToolResult
from toolwire.codec.kept import known
from toolwire.protocols.gemini.wire import OrdinaryContent, OrdinaryPart

from .calls import OUTPUT, plain_call


def decode_ordinary(contents: list[OrdinaryContent]) -> tuple[Message, ...] | None:
    """None if there is more to one of them than it seemed."""
    messages: list[Message] = []
    for content in contents:
        parts = [_decode_part(part) for part in content.parts]
        if None in parts:
            return None
        role = "assistant" if content.role == "model" else "user"
        messages.append(Message(role=role, parts=tuple(parts)))  # type: ignore[arg-type]
    return tuple(messages)


def _decode_part(part: OrdinaryPart) -> Part | None:
    text, call, result, signature = part.text, part.function_call, part.function_response, part.thought_signature
    if text is not UNSET:
        return Text(text=text) if call is UNSET and result is UNSET and signature is UNSET else None
    if call is not UNSET:
        return plain_call(call, signature) if result is UNSET else None
    if result is UNSET or signature is not UNSET:
        return None
    said = (Text(text=result.response.output, at="/functionResponse/response/output"),)
    return ToolResult(call_id=known(result.id), name=result.name, content=said, form=OUTPUT)
