"""Decode and encode Anthropic error bodies."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json, decode_members, escape_pointer
from toolwire.protocols.anthropic.wire import FAMILY, ErrorBodyShape, ErrorShape

ERROR_TYPES: dict[ErrorKind, str] = {
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
# Of the kinds that share a type, the first one is meant.
ERROR_KINDS: dict[str, ErrorKind] = {name: kind for kind, name in reversed(ERROR_TYPES.items())}
ERROR_TYPE_FORM = "anthropic:error:type"
CONTEXT_OVERFLOW = "prompt is too long"

_CODE_FIELD = "error_code"

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body; `status` is the HTTP status, None inside a stream."""
    shape = _read_error(body)
    raw = unset_to_none(shape.error.type)
    kind = ERROR_KINDS.get(raw or "", "other")
    message = unset_to_none(shape.error.message) or ""
    if kind == "invalid_request" and message.startswith(CONTEXT_OVERFLOW):
        kind = "context_length"
    wire_form = (ERROR_TYPE_FORM,) if shape.type is not UNSET else (ERROR_TYPE_FORM, "anthropic:absent:type")
    code, extras = _decode_details(
        merge_extras(collect_extras(shape, FAMILY, *wire_form), collect_extras(shape.error, FAMILY, prefix="error/"))
    )
    id = unset_to_none(shape.request_id)
    return ApiError(kind=kind, message=message, status=status, code=code, raw=raw, request_id=id, **extras)


def _decode_details(collected: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Split `details.error_code`, which SDKs check first, from the extras.

    Return the code, None without one, and the remaining `extras` and `wire_form` arguments.
    """
    extras = (collected["extras"] or {}).get(FAMILY, {})
    raw = extras.get("error/details", b"")
    details = decode_members(raw) if bytes(raw)[:1] == b"{" else {}
    if not isinstance(code := decode_json(details.get(_CODE_FIELD, b"null")), str):
        return None, collected
    other_details = {
        f"error/details/{escape_pointer(name)}": value for name, value in details.items() if name != _CODE_FIELD
    }
    remaining = {name: value for name, value in extras.items() if name != "error/details"} | other_details
    return code, {"extras": {FAMILY: remaining} if remaining else None, "wire_form": collected["wire_form"]}


def native_only_error(request: Request) -> ApiError | None:
    """Return the error for a request with `thread`, which only Anthropic stores; None for other requests.

    Anthropic's tool runner recognizes the code and retries with the full history instead.
    """
    if request.extras is None or "thread" not in request.extras.get(FAMILY, {}):
        return None
    return ApiError(
        kind="invalid_request",
        message="thread: only Anthropic stores threads; send the full conversation without `thread`",
        status=400,
        code="thread_unsupported_request",
        raw=ERROR_TYPES["invalid_request"],
        wire_form=(ERROR_TYPE_FORM,),
    )


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body; fields that Anthropic errors lack are reported as losses."""
    report = LossReport()
    message = error.message
    if error.kind == "context_length" and not message.startswith(CONTEXT_OVERFLOW):
        message = f"{CONTEXT_OVERFLOW}: {message}"  # clients compact their history when they see this prefix
    is_native = error.raw is not None and ERROR_TYPE_FORM in error.wire_form
    shape = ErrorShape(type=none_to_unset(error.raw) if is_native else ERROR_TYPES[error.kind], message=message)
    body: dict[str, Any] = {"type": "error", "error": shape}
    if "anthropic:absent:type" in error.wire_form:
        del body["type"]
    if error.request_id is not None:
        body["request_id"] = error.request_id
    if error.code is not None and ERROR_TYPE_FORM in error.wire_form:
        shape.details = Raw(msgspec.json.encode({_CODE_FIELD: error.code}))
    restore_extras(body, error, FAMILY)
    for field in ("code", "param"):
        if getattr(error, field) is not None and ERROR_TYPE_FORM not in error.wire_form:
            report.dropped((), field)
    report.report_foreign_extras(error, (FAMILY,))
    return EncodedBody(body, report)
