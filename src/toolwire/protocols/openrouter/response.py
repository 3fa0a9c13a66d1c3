"""Responses and model list of OpenRouter.

Responses are those of Chat with `reasoning_details`, which hold signatures and encrypted reasoning.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import FAILED_STOPS, Candidate, Response, Usage
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.interface import EncodedBody, ResponseContext
from toolwire.codec.surface import ModelCard
from toolwire.protocols.openai_chat import response as chat
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import as_openrouter_error, report_error, with_protocol_name
from toolwire.protocols.openrouter.tools import OPENROUTER


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    try:
        return replace(chat.decode_response(body, context), origin=OPENROUTER.protocol)
    except DecodeError as error:
        raise with_protocol_name(error) from None


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response body and report losses."""
    if response.origin == OPENROUTER.protocol:
        return chat.encode_response(response, context, OPENROUTER)
    error = None if response.error is None else as_openrouter_error(response.error, prefix="")
    freeform_names = freeform_tool_names(context)
    candidates = tuple([_adapt_candidate(candidate, freeform_names) for candidate in response.candidates])
    usage = None if response.usage is None else with_hosted_counts(response.usage)
    chat_response = replace(response, candidates=candidates, error=error, usage=usage)
    encoding = chat.encode_response(chat_response, context, OPENROUTER)
    if response.error is not None:
        report_error(response.error, ("error",), encoding.report)
    encoding.body.setdefault("system_fingerprint", None)
    for candidate, choice in zip(response.candidates, encoding.body["choices"], strict=False):
        if candidate.stop is not None and candidate.stop.raw is not None:
            choice.setdefault("native_finish_reason", candidate.stop.raw)
        if candidate.stop is not None and candidate.stop.reason in FAILED_STOPS:
            choice["finish_reason"] = "error"
    return encoding


def with_hosted_counts(usage: Usage) -> Usage:
    """Return the usage with the search count as an extra, since OpenRouter reports it and Chat does not."""
    if usage.searches is None:
        return usage
    counts = {chat.HOSTED_COUNTS["searches"]: Raw(b"%d" % usage.searches)}
    extras = {**(usage.extras or {}), FAMILY: {**(usage.extras or {}).get(FAMILY, {}), **counts}}
    return replace(usage, searches=None, extras=extras)


def _adapt_candidate(candidate: Candidate, freeform_names: frozenset[str]) -> Candidate:
    """Return a candidate for Chat's encoder: a failed stop, which Chat lacks, is encoded separately."""
    messages = tuple([_wrap_freeform_calls(message, freeform_names) for message in candidate.messages])
    stop = candidate.stop
    if stop is not None and stop.reason in FAILED_STOPS:
        stop = replace(stop, reason="end_turn")
    return replace(candidate, messages=messages, stop=stop)


def _wrap_freeform_calls(message: Message, freeform_names: frozenset[str]) -> Message:
    """Return a message with free-text calls as function calls, unless the client declared those tools as free-text."""
    return replace(message, parts=tuple([_wrap_freeform_call(part, freeform_names) for part in message.parts]))


def _wrap_freeform_call(part: Part, freeform_names: frozenset[str]) -> Part:
    """Return a free-text call as a function call, unless its tool is one of `freeform_names`; other parts unchanged."""
    if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in freeform_names:
        return replace(part, shape="json", arguments=wrap_freeform_input(part.arguments))
    return part


def freeform_tool_names(context: ResponseContext) -> frozenset[str]:
    """Return the names of the tools whose calls the client expects as free text."""
    tools = () if context.request is None else context.request.tools or ()
    return frozenset(tool.name for tool in tools if isinstance(tool, FreeformTool))


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    """Encode the model list of `GET /api/v1/models`."""
    return {"data": [_encode_card(model) for model in models], "total_count": len(models), "links": {"next": None}}


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode one model as `GET /api/v1/models/{id}` returns it."""
    return {"data": _encode_card(model)}


def _encode_card(model: ModelCard) -> dict[str, Any]:
    """Encode one model of the list."""
    return {
        "id": model.id,
        "canonical_slug": model.id,
        "name": model.id,
        "created": 0,
        "context_length": None,
        "architecture": {"modality": "text->text", "input_modalities": ["text"], "output_modalities": ["text"]},
        "pricing": {"prompt": "0", "completion": "0"},
        "top_provider": {"is_moderated": False},
        "per_request_limits": None,
        "supported_parameters": ["tools", "tool_choice"],
        "supported_voices": None,
        "default_parameters": None,
        "links": {"details": f"/api/v1/models/{model.id}/endpoints"},
    }
