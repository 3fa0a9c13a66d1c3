"""Decode and encode errors of the Interactions API: error bodies, errors of an interaction, and error events."""

from typing import Any

import msgspec
from msgspec import UNSET

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport
from toolwire.codec.surface import STATUS_KINDS
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.gemini_interactions.wire import FAMILY, ErrorBodyShape, ErrorShape

ERROR_KINDS: dict[str, ErrorKind] = {
    "invalid_argument": "invalid_request",
    "invalid_request": "invalid_request",
    "failed_precondition": "invalid_request",
    "out_of_range": "invalid_request",
    "unauthenticated": "authentication",
    "permission_denied": "permission",
    "not_found": "not_found",
    "already_exists": "conflict",
    "aborted": "conflict",
    "resource_exhausted": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "too_many_requests": "rate_limit",
    "quota_exceeded": "billing",
    "internal": "server",
    "internal_error": "server",
    "unknown": "server",
    "data_loss": "server",
    "unavailable": "overloaded",
    "overloaded": "overloaded",
    "deadline_exceeded": "timeout",
}
ERROR_CODES: dict[ErrorKind, str] = {
    "invalid_request": "invalid_argument",
    "authentication": "unauthenticated",
    "billing": "resource_exhausted",
    "permission": "permission_denied",
    "not_found": "not_found",
    "conflict": "aborted",
    "too_large": "invalid_argument",
    "rate_limit": "resource_exhausted",
    "context_length": "invalid_argument",
    "server": "internal",
    "timeout": "deadline_exceeded",
    "overloaded": "unavailable",
    "other": "internal",
}
CONTEXT_OVERFLOW = "exceeds the maximum number of tokens"

_ERROR_FORM = "gemini-interactions:error"
_INNER_ERROR_FORM = "gemini-interactions:error:inside"
_NUMERIC_CODE = "gemini-interactions:error:number"
_NO_MESSAGE = "gemini-interactions:absent:message"
_FLAT_NAMES = tuple(
    f"gemini-interactions:name:{field}={wire_name}"
    for field, wire_name in (("message", "message"), ("raw", "status"), ("code", "code"))
)

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body; `status` is the HTTP status, None inside a stream."""
    shape = _read_error(body)
    return _decode_shape(shape.error, status, (_ERROR_FORM,), collect_extras(shape, FAMILY), prefix="error/")


def decode_failure(shape: ErrorShape) -> ApiError:
    """Decode the error inside a failed interaction."""
    return _decode_shape(shape, None, (_ERROR_FORM, _INNER_ERROR_FORM, *_FLAT_NAMES), {})


def _decode_shape(
    shape: ErrorShape, status: int | None, wire_form: tuple[str, ...], body_extras: dict[str, Any], prefix: str = ""
) -> ApiError:
    """Build the canonical error from its wire object.

    `body_extras` are extras of the object around it, `prefix` is its pointer there, and `wire_form` holds tokens that
    record how the error was sent.
    """
    code, status_name = unset_to_none(shape.code), unset_to_none(shape.status)
    if isinstance(code, int):
        wire_form = (*wire_form, _NUMERIC_CODE)
        status = code if status is None and code in STATUS_KINDS else status
    if shape.message is UNSET:
        wire_form = (*wire_form, _NO_MESSAGE)
    message = unset_to_none(shape.message) or ""
    kind = _error_kind(None if code is None else str(code), status_name, status)
    if kind == "invalid_request" and CONTEXT_OVERFLOW in message:
        kind = "context_length"
    return ApiError(
        kind=kind,
        message=message,
        status=status,
        code=None if code is None else str(code),
        raw=status_name,
        **merge_extras(body_extras, collect_extras(shape, FAMILY, *wire_form, prefix=prefix)),
    )


def _error_kind(code: str | None, status_name: str | None, status: int | None) -> ErrorKind:
    """Derive the error kind from the status name, the code, or the HTTP status."""
    for name in (status_name, code):
        # A code may be a URI whose last segment is the name.
        kind = ERROR_KINDS.get((name or "").rpartition("/")[2].lower())
        if kind is not None:
            return kind
    return STATUS_KINDS.get(status or 0, "other")


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body; one that came from the Interactions API keeps the fields it had."""
    report = LossReport()
    if _ERROR_FORM in error.wire_form:
        body = {"error": as_dict(_encode_shape(error))}
    else:
        for field in ("param", "raw", "request_id"):
            if getattr(error, field) is not None and not (field == "raw" and error.kind != "other"):
                report.dropped((), field)
        body = {"error": _encode_foreign_error(error, report)}
    restore_extras(body, error, FAMILY)
    report.report_foreign_extras(error, (FAMILY,))
    return EncodedBody(body, report)


def _encode_shape(error: ApiError) -> ErrorShape:
    """Encode the error object of an error that came from the Interactions API."""
    code: str | int | None = error.code
    if _NUMERIC_CODE in error.wire_form and code is not None:
        code = int(code)
    shape = ErrorShape(code=none_to_unset(code), message=error.message, status=none_to_unset(error.raw))
    if _NO_MESSAGE in error.wire_form and not error.message:
        shape.message = UNSET
    return shape


def _encode_foreign_error(error: ApiError, report: LossReport) -> dict[str, Any]:
    """Encode the error object of an error that came from another protocol."""
    message = error.message
    if error.kind == "context_length" and CONTEXT_OVERFLOW not in message:
        message = f"{message} (the input {CONTEXT_OVERFLOW})"  # clients compact when they see this text
    if error.code is not None:
        report.dropped((), "code")
    return {"code": ERROR_CODES[error.kind], "message": message}


def encode_failure(error: ApiError, plan: EncodingPlan) -> Any:
    """Encode the error inside a failed interaction."""
    if plan.same_protocol and _ERROR_FORM in error.wire_form:
        return encode_with_extras(_encode_shape(error), error, FAMILY)
    plan.report.dropped_fields(("error",), error, "code", "param", "raw")
    return {"code": ERROR_CODES[error.kind], "message": error.message}


def is_event(error: ApiError) -> bool:
    """Check whether the error came as a separate event, not inside an interaction."""
    return _INNER_ERROR_FORM not in error.wire_form


def encode_event(error: ApiError) -> bytes:
    """Encode an `error` event of a stream."""
    return msgspec.json.encode({"event_type": "error", **encode_error(error).body})
