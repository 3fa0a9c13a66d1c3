"""Fast path for responses of other protocols that consist of text and function calls only.

The general encoder in `response` defines the output; `encode_fast` must produce the same or return None.
"""

from operator import attrgetter
from typing import Any

from msgspec import Raw

from toolwire.canonical.content import Part, Text, ToolCall
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.encoding.turns import ESCAPED_PREFIX
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.anthropic.parts.calls import decode_members
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.wire import FAMILY, CallerShape, TextBlock, ToolUseBlock

_STOPS = ("end_turn", "max_tokens", "tool_use")

# One comparison of all other fields shows that a value is plain.
_message_fields = attrgetter("id", "status", "phase")
_text_fields = attrgetter("annotations", "signature", "cache", "extras")
_call_fields = attrgetter(
    *("executor", "shape", "asynchronous", "namespace", "native", "toolset"),
    *("caller", "signature", "cache", "use", "screen", "extras"),
)
_usage_fields = attrgetter("tool_use", "searches", "fetches")
_PLAIN_MESSAGE = (None,) * 3
_PLAIN_TEXT = (None,) * 4
_PLAIN_USAGE = (None,) * 3
_PLAIN_CALL = ("client", "json", *(None,) * 10)


def encode_fast(id: str, response: Response) -> dict[str, Any] | None:
    """Encode a response of plain texts and calls; None if it needs the general encoder.

    Losses are not reported here but by `report_response`.
    """
    usage, candidate = response.usage, _single_candidate(response)
    if usage is None or candidate is None or (stop := candidate.stop) is None:
        return None
    (message,) = candidate.messages
    if stop.reason not in _STOPS or stop.sequence is not None or _message_fields(message) != _PLAIN_MESSAGE:
        return None
    content = [_encode_block(part) for part in message.parts]
    if None in content or (counts := _encode_usage(usage)) is None:
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


def _single_candidate(response: Response) -> Candidate | None:
    """Return the only candidate, None unless it has one message, a stop reason and no Anthropic extras."""
    if len(response.candidates) != 1 or (response.extras and FAMILY in response.extras):
        return None
    (candidate,) = response.candidates
    if len(candidate.messages) != 1 or (candidate.extras and FAMILY in candidate.extras):
        return None
    return candidate


def _encode_block(part: Part) -> TextBlock | ToolUseBlock | None:
    """Encode a text or function call without optional fields, None for any other part."""
    if type(part) is Text:
        return TextBlock(text=part.text, citations=[]) if part.text and _text_fields(part) == _PLAIN_TEXT else None
    if type(part) is not ToolCall or _call_fields(part) != _PLAIN_CALL:
        return None
    id, text = part.id, part.arguments
    if (
        not id
        or len(id) > ID_AND_NAME_RULES.id_limit
        or id.startswith(ESCAPED_PREFIX)
        or not ID_AND_NAME_RULES.id_pattern.fullmatch(id)
    ):
        return None
    if text[:1] != "{" or text[-1:] != "}":
        return None
    try:
        decode_members(data := text.encode())
    except JSON_ERRORS:
        return None
    return ToolUseBlock(id=id, name=part.name, input=Raw(data), caller=CallerShape("direct"))


def _encode_usage(usage: Usage) -> dict[str, Any] | None:
    """Encode usage that has token counts only, None if it has anything else."""
    if _usage_fields(usage) != _PLAIN_USAGE or (usage.extras and FAMILY in usage.extras) or usage.input_tokens is None:
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
