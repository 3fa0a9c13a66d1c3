"""Validation with the official SDKs: bodies by their types, streams by their accumulators."""

import json
from functools import cache
from importlib import import_module
from typing import Any, Literal

from anthropic.types.beta import BetaMessage
from anthropic.types.beta import message_create_params as anthropic_params
from anthropic.types.shared import ErrorObject as AnthropicErrorObject
from anthropic.types.shared import ErrorResponse as AnthropicErrorResponse
from openai.types.chat import ChatCompletion
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import Response
from openai.types.responses import response_create_params as responses_params
from openai.types.shared import ErrorObject as OpenAIErrorObject
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.support.sdk import streams, summaries
from tests.support.sdk.rejections import explain_rejection
from tests.support.sdk.request_types import RequestTypeBuilder
from tests.support.sdk.streams import InvalidStream, fold_body
from tests.support.sdk.summaries import Call, Summary

__all__ = [
    "Call",
    "InvalidStream",
    "Summary",
    "accept_error",
    "accept_request",
    "accept_response",
    "fold_body",
    "fold_stream",
    "summary",
]

# The beta types have every GA field in addition to the beta fields.
REQUESTS: dict[str, tuple[Any, Any]] = {
    "anthropic": (anthropic_params.MessageCreateParamsNonStreaming, anthropic_params.MessageCreateParamsStreaming),
    "openai-chat": (chat_params.CompletionCreateParamsNonStreaming, chat_params.CompletionCreateParamsStreaming),
    "openai-responses": (
        responses_params.ResponseCreateParamsNonStreaming,
        responses_params.ResponseCreateParamsStreaming,
    ),
}
RESPONSES: dict[str, type[BaseModel]] = {
    "anthropic": BetaMessage,
    "openai-chat": ChatCompletion,
    "openai-responses": Response,
}
# Arguments of the SDK's method that it sends as headers; they are invalid in a body.
HEADER_ARGUMENTS = frozenset({"betas", "user_profile_id", "workspace_id"})


class _DocumentedErrorObject(BaseModel):
    """Error types that the vendor documents (413, 409) and the SDK's union omits."""

    type: Literal["request_too_large", "conflict_error"]
    message: str


class _AnthropicError(AnthropicErrorResponse):
    error: AnthropicErrorObject | _DocumentedErrorObject  # type: ignore[assignment]


class _OpenAIError(BaseModel):
    error: OpenAIErrorObject


ERRORS: dict[str, type[BaseModel]] = {
    "anthropic": _AnthropicError,
    "openai-chat": _OpenAIError,
    "openai-responses": _OpenAIError,
}


# Modules with the same functions for SDKs of other vendors.
VENDOR_MODULES = {
    "gemini": "tests.support.sdk.gemini",
    "gemini-interactions": "tests.support.sdk.gemini_interactions",
    "ollama": "tests.support.sdk.ollama",
    "openrouter": "tests.support.sdk.openrouter",
}


def fold_stream(protocol: str, wire: bytes, *, tolerant: bool = False) -> Summary:
    """Fold a stream with the SDK's accumulator; `tolerant` as in `streams.fold_stream`."""
    if protocol in VENDOR_MODULES:
        vendor_summary: Summary = import_module(VENDOR_MODULES[protocol]).fold_stream(wire, tolerant=tolerant)
        return vendor_summary
    return streams.fold_stream(protocol, wire, tolerant=tolerant)


def summary(protocol: str, body: dict[str, Any]) -> Summary:
    """Summarize a response body."""
    if protocol in VENDOR_MODULES:
        vendor_summary: Summary = import_module(VENDOR_MODULES[protocol]).summary(body)
        return vendor_summary
    return summaries.summary(protocol, body)


def accept_request(protocol: str, body: Any, *, unknown_fields: bool = False) -> str | None:
    """Return None if the SDK's request type accepts the body at every level, otherwise the first error.

    Unknown fields are rejected at every level, unless `unknown_fields` is set.
    """
    if protocol in VENDOR_MODULES:
        return _accept_by_vendor(protocol, "accept_request", body)
    streaming = isinstance(body, dict) and body.get("stream") is True
    if protocol == "anthropic" and isinstance(body, dict) and (headers := HEADER_ARGUMENTS & body.keys()):
        return f"{min(headers)}: is a header, not a body field"
    adapter = _request_adapter(protocol, streaming, unknown_fields)
    try:
        adapter.validate_python(body, strict=True)
    except ValidationError as error:
        return explain_rejection(error)
    return None


def accept_response(protocol: str, body: Any) -> str | None:
    """Return None if the SDK's response model validates the body strictly, without coercion."""
    return (
        _accept_by_vendor(protocol, "accept_response", body)
        if protocol in VENDOR_MODULES
        else _accept_model(RESPONSES[protocol], body)
    )


def accept_error(protocol: str, body: Any) -> str | None:
    return (
        _accept_by_vendor(protocol, "accept_error", body)
        if protocol in VENDOR_MODULES
        else _accept_model(ERRORS[protocol], body)
    )


def _accept_by_vendor(protocol: str, function: str, body: Any) -> str | None:
    answer: str | None = getattr(import_module(VENDOR_MODULES[protocol]), function)(body)
    return answer


@cache
def _request_adapter(protocol: str, streaming: bool, unknown_fields: bool) -> TypeAdapter[Any]:
    return RequestTypeBuilder(unknown_fields=unknown_fields).adapter(REQUESTS[protocol][streaming])


def _accept_model(model: type[BaseModel], body: Any) -> str | None:
    try:
        # Validate from JSON, because only then does strict mode accept a date as text.
        model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return explain_rejection(error)
    return None
