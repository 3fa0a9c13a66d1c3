"""Anthropic's errors, to canonical and back."""

from typing import Any

from msgspec import UNSET

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.codec.fields import Reader
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import given, joined, known, rest, restore
from toolwire.codec.losses import Report
from toolwire.protocols.anthropic.wire import FAMILY, ErrorBodyShape, ErrorShape

KINDS: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "billing",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "api_error": "server",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
}
TYPES: dict[ErrorKind, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "billing": "billing_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "conflict": "conflict_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "context_length": "invalid_request_error",
    "server": "api_error",
    "timeout": "timeout_error",
    "overloaded": "overloaded_error",
    "other": "api_error",
}
OWN_TYPE = "anthropic:error:type"
OVERFLOW = "prompt is too long"

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


def decode_error(body: bytes, status: int | None) -> ApiError:
    shape = _read_error(body)
    raw = known(shape.error.type)
    kind = KINDS.get(raw or "", "other")
    message = known(shape.error.message) or ""
    if kind == "invalid_request" and message.startswith(OVERFLOW):
        kind = "context_length"
    envelope = (OWN_TYPE,) if shape.type is not UNSET else (OWN_TYPE, "anthropic:absent:type")
    kept = joined(rest(shape, FAMILY, *envelope), rest(shape.error, FAMILY, under="error/"))
    return ApiError(kind=kind, message=message, status=status, raw=raw, request_id=known(shape.request_id), **kept)


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    message = error.message
    if error.kind == "context_length" and not message.startswith(OVERFLOW):
        message = f"{OVERFLOW}: {message}"  # by these words clients know that they must compact
    own = error.raw is not None and OWN_TYPE in error.form
    shape = ErrorShape(type=given(error.raw) if own else TYPES[error.kind], message=message)
    body: dict[str, Any] = {"type": "error", "error": shape}
    if "anthropic:absent:type" in error.form:
        del body["type"]
    if error.request_id is not None:
        body["request_id"] = error.request_id
    restore(body, error, FAMILY)
    for field in ("code", "param"):
        if getattr(error, field) is not None:
            report.dropped((), field)
    report.unclaimed(error, (FAMILY,))
    return Encoding(body, report)
