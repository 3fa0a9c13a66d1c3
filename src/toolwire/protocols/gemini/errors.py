"""Decode and encode errors of the Gemini API (`google.rpc.Status`)."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_elements, validate_json
from toolwire.protocols.gemini.wire import FAMILY, ErrorBodyShape, ErrorShape

ERROR_KINDS: dict[str, ErrorKind] = {
    "INVALID_ARGUMENT": "invalid_request",
    "FAILED_PRECONDITION": "invalid_request",
    "OUT_OF_RANGE": "invalid_request",
    "UNAUTHENTICATED": "authentication",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "ALREADY_EXISTS": "conflict",
    "ABORTED": "conflict",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "CANCELLED": "timeout",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timeout",
}
ERROR_CODES: dict[ErrorKind, tuple[int, str]] = {
    "invalid_request": (400, "INVALID_ARGUMENT"),
    "authentication": (401, "UNAUTHENTICATED"),
    "billing": (403, "PERMISSION_DENIED"),
    "permission": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "conflict": (409, "ABORTED"),
    "too_large": (400, "INVALID_ARGUMENT"),
    "rate_limit": (429, "RESOURCE_EXHAUSTED"),
    "context_length": (400, "INVALID_ARGUMENT"),
    "server": (500, "INTERNAL"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
    "overloaded": (503, "UNAVAILABLE"),
    "other": (500, "UNKNOWN"),
}
_LIST_FORM = "gemini:error:list"
_ERROR_FORM = "gemini:error"
_CONTEXT_OVERFLOW = re.compile(r"input token count .*exceeds the maximum", re.IGNORECASE)
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body; `status` is the HTTP status, None inside a stream.

    The streaming endpoint wraps the error in a list of one.
    """
    form: tuple[str, ...] = (_ERROR_FORM,)
    path = ""
    data: bytes | Raw = validate_json(body, FAMILY)
    if bytes(data)[:1] == b"[":
        # The streaming endpoint wraps its error in a list of one.
        elements = decode_elements(data)
        if len(elements) != 1:
            raise DecodeError(
                FAMILY, "", "an error object or a list with one error", f"a list with {len(elements)} elements"
            )
        data, path, form = elements[0], "/0", (_ERROR_FORM, _LIST_FORM, "gemini:name:message=0/error/message")
    shape = _read_error(data, path)
    error = shape.error
    status_name, message = unset_to_none(error.status), unset_to_none(error.message)
    kind = ERROR_KINDS.get(status_name or "", "other")
    if message is not None and _CONTEXT_OVERFLOW.search(message):
        kind = "context_length"
    if error.message is UNSET:
        form = (*form, "gemini:absent:message")
    if error.code is UNSET:
        form = (*form, "gemini:absent:code")
    delay = _RETRY_DELAY.search(body)
    prefix = path[1:] + "/" if path else ""
    extras = merge_extras(
        collect_extras(shape, FAMILY, *form, prefix=prefix), collect_extras(error, FAMILY, prefix=f"{prefix}error/")
    )
    return ApiError(
        kind=kind,
        message=message or "",
        status=status if error.code is UNSET else error.code,
        raw=status_name,
        retry_after=None if delay is None else _parse_seconds(delay[1]),
        **extras,
    )


def _parse_seconds(text: bytes) -> float | None:
    """Parse the number of a protobuf `Duration` such as `3.5s`; return None if there is none."""
    try:
        return float(text)
    except ValueError:
        return None


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error; one that came from Gemini keeps the field names it had."""
    report = LossReport()
    same_protocol = _ERROR_FORM in error.wire_form
    code, status_name = ERROR_CODES[error.kind]
    shape = ErrorShape(code=code, message=error.message, status=status_name)
    if same_protocol:
        shape.status = none_to_unset(error.raw)
        shape.code = UNSET if "gemini:absent:code" in error.wire_form or error.status is None else error.status
        if "gemini:absent:message" in error.wire_form:
            shape.message = UNSET
    elif error.retry_after is not None:
        seconds = f"{error.retry_after:.9f}".rstrip("0").rstrip(".")  # a Duration has no exponent
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}
        shape.details = Raw(msgspec.json.encode([delay]))
    body: dict[str, Any] = {"error": shape}
    if _LIST_FORM in error.wire_form:
        restore_extras({"0": body}, error, FAMILY)
        body = restore_extras({"0": body}, error, FAMILY)["0"]
        return EncodedBody([body], report)
    restore_extras(body, error, FAMILY)
    if not same_protocol:
        report.dropped_fields((), error, "code", "param", "request_id")
    report.report_foreign_extras(error, (FAMILY,))
    return EncodedBody(body, report)
