"""Most answers of other protocols hold text and calls of functions, and nothing else: those are written straight."""

from operator import attrgetter
from typing import Any

from msgspec import Raw

from toolwire.canonical.content import Part, Text, ToolCall
from toolwire.canonical.response import Response, Usage
from toolwire.codec.fields import BAD_JSON
from toolwire.codec.ids import ESCAPED
from toolwire.protocols.anthropic.parts.calls import decode_object
from toolwire.protocols.anthropic.request.body import RULES
from toolwire.protocols.anthropic.wire import FAMILY, CallerShape, TextBlock, ToolUseBlock

_STOPS = ("end_turn", "max_tokens", "tool_use")

# That there is nothing else in it is asked of all fields at once.
_of_message = attrgetter("id", "status", "phase")
_of_text = attrgetter("annotations", "seal", "cache", "extras")
_of_call = attrgetter(
    *("executor", "shape", "asynchronous", "namespace", "native", "toolset"),
    *("caller", "seal", "cache", "use", "screen", "extras"),
)
_of_usage = attrgetter("tool_use", "searches", "fetches")
_NO_MESSAGE = (None,) * 3
_NO_TEXT = (None,) * 4
_NO_USAGE = (None,) * 3
_USUAL_CALL = ("client", "json", *(None,) * 10)


def encode_ordinary(id: str, response: Response) -> dict[str, Any] | None:
    """The answer, or None if it has anything else. What is lost of it, `report_response` and `unclaimed` find."""
    usage = response.usage
    if len(response.candidates) != 1 or usage is None or (response.extras and FAMILY in response.extras):
        return None
    (candidate,) = response.candidates
    if len(candidate.messages) != 1 or candidate.stop is None or (candidate.extras and FAMILY in candidate.extras):
        return None
    (message,), stop = candidate.messages, candidate.stop
    if stop.reason not in _STOPS or stop.sequence is not None or _of_message(message) != _NO_MESSAGE:
        return None
    content = [_block(part) for part in message.parts]
    if None in content or (counts := _counts(usage)) is None:
        return None
    called = stop.reason == "end_turn" and ToolUseBlock in map(type, content)
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": response.model or "",
        "content": content,
        "stop_reason": "tool_use" if called else stop.reason,
        "stop_sequence": None,
        "usage": counts,
        "stop_details": None,
        "container": None,
    }


def _block(part: Part) -> TextBlock | ToolUseBlock | None:
    if type(part) is Text:
        return TextBlock(text=part.text, citations=[]) if part.text and _of_text(part) == _NO_TEXT else None
    if type(part) is not ToolCall or _of_call(part) != _USUAL_CALL:
        return None
    id, text = part.id, part.arguments
    if not id or len(id) > RULES.id_limit or id.startswith(ESCAPED) or not RULES.ids.fullmatch(id):
        return None
    if text[:1] != "{" or text[-1:] != "}":
        return None
    try:
        decode_object(data := text.encode())
    except BAD_JSON:
        return None
    return ToolUseBlock(id=id, name=part.name, input=Raw(data), caller=CallerShape("direct"))


def _counts(usage: Usage) -> dict[str, Any] | None:
    if _of_usage(usage) != _NO_USAGE or (usage.extras and FAMILY in usage.extras) or usage.input_tokens is None:
        return None
    read, written = usage.cache_read, usage.cache_write
    return {
        "input_tokens": usage.input_tokens - (read or 0) - (written or 0),
        "output_tokens": usage.output_tokens or 0,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": None,
        "output_tokens_details": None if usage.reasoning is None else {"thinking_tokens": usage.reasoning},
        "server_tool_use": None,
        "service_tier": None,
        "inference_geo": None,
    }
