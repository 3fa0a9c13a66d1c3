"""Anthropic's errors, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json, escape_pointer
from toolwire.protocols.anthropic.wire import FAMILY, ErrorBodyShape, ErrorShape

ERROR_KINDS: dict[str, ErrorKind] = {
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
ERROR_TYPE_FORM = "anthropic:error:type"
CONTEXT_OVERFLOW = "prompt is too long"

_CODE_FIELD = "error_code"

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


def decode_error(body: bytes, status: int | None) -> ApiError:
    shape = _read_error(body)
    raw = unset_to_none(shape.error.type)
    kind = ERROR_KINDS.get(raw or "", "other")
    message = unset_to_none(shape.error.message) or ""
    if kind == "invalid_request" and message.startswith(CONTEXT_OVERFLOW):
        kind = "context_length"
    envelope = (ERROR_TYPE_FORM,) if shape.type is not UNSET else (ERROR_TYPE_FORM, "anthropic:absent:type")
    code, kept = _decode_details(
        merge_extras(collect_extras(shape, FAMILY, *envelope), collect_extras(shape.error, FAMILY, prefix="error/"))
    )
    id = unset_to_none(shape.request_id)
    return ApiError(kind=kind, message=message, status=status, code=code, raw=raw, request_id=id, **kept)


def _decode_details(extras_and_form: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The code that clients are to look at first, and what was kept without it."""
    own = (extras_and_form["extras"] or {}).get(FAMILY, {})
    raw = own.get("error/details", b"")
    details = _decode_members(raw) if bytes(raw)[:1] == b"{" else {}
    if not isinstance(code := decode_json(details.get(_CODE_FIELD, b"null")), str):
        return None, extras_and_form
    others = {f"error/details/{escape_pointer(name)}": value for name, value in details.items() if name != _CODE_FIELD}
    left = {name: value for name, value in own.items() if name != "error/details"} | others
    return code, {"extras": {FAMILY: left} if left else None, "wire_form": extras_and_form["wire_form"]}


def native_only_error(request: Request) -> ApiError | None:
    """A thread is held by the provider. At this code, Anthropic's tool runner goes on without one, and sends all that
    was said each time."""
    if request.extras is None or "thread" not in request.extras.get(FAMILY, {}):
        return None
    return ApiError(
        kind="invalid_request",
        message="thread: only Anthropic itself holds threads; send the whole conversation without `thread`",
        status=400,
        code="thread_unsupported_request",
        raw=ERROR_TYPES["invalid_request"],
        wire_form=(ERROR_TYPE_FORM,),
    )


def encode_error(error: ApiError) -> EncodedBody:
    report = LossReport()
    message = error.message
    if error.kind == "context_length" and not message.startswith(CONTEXT_OVERFLOW):
        message = f"{CONTEXT_OVERFLOW}: {message}"  # by these words clients know that they must compact
    own = error.raw is not None and ERROR_TYPE_FORM in error.wire_form
    shape = ErrorShape(type=none_to_unset(error.raw) if own else ERROR_TYPES[error.kind], message=message)
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
