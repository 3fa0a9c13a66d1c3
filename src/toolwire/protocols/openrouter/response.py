"""Responses and model list of OpenRouter.

Responses are those of Chat with `reasoning_details`, which hold signatures and encrypted reasoning.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import FAILED_STOPS, Candidate, Response, Usage
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.interface import EncodedBody, ResponseContext
from toolwire.codec.surface import ModelCard
from toolwire.protocols.openai_chat import response as chat
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import as_openrouter_error, report_error, with_error_kind
from toolwire.protocols.openrouter.parts.content import (
    DETAILS_FIELD,
    IMAGES,
    encode_entries,
    encode_image,
    is_known_issuer,
    replace_image,
    report_image,
)
from toolwire.protocols.openrouter.parts.messages import (
    decode_dialect,
    encode_dialect,
    encode_signature,
    is_reasoning_item,
    report_images,
    vendor_item_id,
)
from toolwire.protocols.openrouter.request import PROTOCOL, with_protocol_name

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    try:
        response = chat.decode_response(body, context)
    except DecodeError as error:
        raise with_protocol_name(error) from None
    candidates = tuple([_map_messages(candidate, decode_dialect) for candidate in response.candidates])
    response_error = None if response.error is None else with_error_kind(response.error)
    return replace(response, origin=PROTOCOL, candidates=candidates, error=response_error)


def _map_messages(candidate: Candidate, transform: Any) -> Candidate:
    """Return the candidate with `transform` applied to each of its messages."""
    return replace(candidate, messages=tuple([transform(message) for message in candidate.messages]))


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response body and report losses."""
    if response.origin == PROTOCOL:
        candidates = tuple([_map_messages(candidate, encode_dialect) for candidate in response.candidates])
        return chat.encode_response(replace(response, origin=FAMILY, candidates=candidates), context)
    error = None if response.error is None else as_openrouter_error(response.error, prefix="")
    stripped = tuple([_without_signatures(candidate, context) for candidate in response.candidates])
    usage = None if response.usage is None else with_hosted_counts(response.usage)
    chat_response = replace(response, origin="", candidates=stripped, error=error, usage=usage)
    encoding = chat.encode_response(chat_response, context)
    if response.error is not None:
        report_error(response.error, ("error",), encoding.report)
    encoding.body.setdefault("system_fingerprint", None)
    for index, (candidate, choice) in enumerate(zip(response.candidates, encoding.body["choices"], strict=False)):
        _add_dialect_fields(choice, candidate)
        for number, message in enumerate(candidate.messages):
            path = ("candidates", index, "messages", number)
            for position, part in enumerate(message.parts):
                report_image(part, (*path, "parts", position), encoding.report)
                if isinstance(part, Reasoning):
                    report_images(part, (*path, "parts", position), encoding.report)
    return encoding


def with_hosted_counts(usage: Usage) -> Usage:
    """Return the usage with the search count as an extra, since OpenRouter reports it and Chat does not."""
    if usage.searches is None:
        return usage
    counts = {chat.HOSTED_COUNTS["searches"]: Raw(b"%d" % usage.searches)}
    extras = {**(usage.extras or {}), FAMILY: {**(usage.extras or {}).get(FAMILY, {}), **counts}}
    return replace(usage, searches=None, extras=extras)


def _without_signatures(candidate: Candidate, context: ResponseContext) -> Candidate:
    """Return a candidate for Chat's encoder, without signatures and images that are encoded separately.

    Chat's encoder reports any signature that is left.
    """
    messages = []
    freeform_names = freeform_tool_names(context)
    for message in candidate.messages:
        parts = tuple(
            [_wrap_freeform_call(replace_image(_without_signature(part)), freeform_names) for part in message.parts]
        )
        is_id_encoded = is_reasoning_item(message) and parts[0] is not message.parts[0]
        messages.append(replace(message, parts=parts, id=None if is_id_encoded else message.id))
    stop = candidate.stop
    if stop is not None and stop.reason in FAILED_STOPS:
        stop = replace(stop, reason="end_turn")
    return replace(candidate, messages=tuple(messages), stop=stop)


def _without_signature(part: Part) -> Part:
    """Return the part without a signature that `reasoning_details` can hold."""
    if isinstance(part, Reasoning) and part.signature is not None and is_known_issuer(part.signature):
        return replace(part, signature=None, id=None)
    if isinstance(part, Text | ToolCall) and _has_signature(part):
        return replace(part, signature=None)
    return part


def _has_signature(part: Part) -> bool:
    """Return whether a text or client-side call has a signature that `reasoning_details` can hold."""
    if isinstance(part, ToolCall) and part.executor == "server":
        return False
    return isinstance(part, Text | ToolCall) and part.signature is not None and is_known_issuer(part.signature)


def freeform_tool_names(context: ResponseContext) -> frozenset[str]:
    """Return the names of the tools whose calls the client expects as free text."""
    tools = () if context.request is None else context.request.tools or ()
    return frozenset(tool.name for tool in tools if isinstance(tool, FreeformTool))


def _wrap_freeform_call(part: Part, freeform_names: frozenset[str]) -> Part:
    """Return a free-text call as a function call, unless the client declared that tool as free-text."""
    if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in freeform_names:
        return replace(part, shape="json", arguments=wrap_freeform_input(part.arguments))
    return part


def _add_dialect_fields(choice: dict[str, Any], candidate: Candidate) -> None:
    """Add `reasoning_details` and `images` to a choice that Chat's encoder wrote."""
    body = choice["message"]
    if "reasoning_content" in body:
        body["reasoning"] = body.pop("reasoning_content")
    if entries := _encode_candidate_details(candidate):
        body[DETAILS_FIELD] = entries
    images: list[Any] = []
    for message in candidate.messages:
        for part in message.parts:
            if (image := encode_image(part, len(images))) is not None:
                images.append(image)
    if images:
        body[IMAGES] = images
    for message in candidate.messages:
        body.update((message.extras or {}).get(FAMILY, {}))  # fields of compatible servers
    stop = candidate.stop
    if stop is not None and stop.raw is not None:
        choice.setdefault("native_finish_reason", stop.raw)
    if stop is not None and stop.reason in FAILED_STOPS:
        choice["finish_reason"] = "error"


def _encode_candidate_details(candidate: Candidate) -> list[Any]:
    """Encode the `reasoning_details` of a candidate: its reasoning, and signatures of texts and calls."""
    entries: list[Any] = []
    for number, message in enumerate(candidate.messages):
        for part in message.parts:
            if isinstance(part, Reasoning):
                entries += encode_entries(part, vendor_item_id(part, number, candidate.messages), len(entries))
            elif isinstance(part, Text | ToolCall) and part.signature is not None and _has_signature(part):
                call_id = part.id if isinstance(part, ToolCall) else None
                entries += encode_signature(part.signature, call_id, len(entries))
    return entries


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
