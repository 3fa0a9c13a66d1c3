"""Anthropic's errors, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.codec.fields import Reader, escape
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

_CODE = "error_code"

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


def decode_error(body: bytes, status: int | None) -> ApiError:
    shape = _read_error(body)
    raw = known(shape.error.type)
    kind = KINDS.get(raw or "", "other")
    message = known(shape.error.message) or ""
    if kind == "invalid_request" and message.startswith(OVERFLOW):
        kind = "context_length"
    envelope = (OWN_TYPE,) if shape.type is not UNSET else (OWN_TYPE, "anthropic:absent:type")
    code, kept = _decode_details(joined(rest(shape, FAMILY, *envelope), rest(shape.error, FAMILY, under="error/")))
    id = known(shape.request_id)
    return ApiError(kind=kind, message=message, status=status, code=code, raw=raw, request_id=id, **kept)


def _decode_details(kept: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The code that clients are to look at first, and what was kept without it."""
    own = (kept["extras"] or {}).get(FAMILY, {})
    raw = own.get("error/details", b"")
    details = _decode_object(raw) if bytes(raw)[:1] == b"{" else {}
    if not isinstance(code := msgspec.json.decode(details.get(_CODE, b"null")), str):
        return None, kept
    others = {f"error/details/{escape(name)}": value for name, value in details.items() if name != _CODE}
    left = {name: value for name, value in own.items() if name != "error/details"} | others
    return code, {"extras": {FAMILY: left} if left else None, "form": kept["form"]}


def demand(request: Request) -> ApiError | None:
    """A thread is held by the provider. At this code, Anthropic's tool runner goes on without one, and sends all that
    was said each time."""
    if request.extras is None or "thread" not in request.extras.get(FAMILY, {}):
        return None
    return ApiError(
        kind="invalid_request",
        message="thread: only Anthropic itself holds threads; send the whole conversation without `thread`",
        status=400,
        code="thread_unsupported_request",
        raw=TYPES["invalid_request"],
        form=(OWN_TYPE,),
    )


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
    if error.code is not None and OWN_TYPE in error.form:
        shape.details = Raw(msgspec.json.encode({_CODE: error.code}))
    restore(body, error, FAMILY)
    for field in ("code", "param"):
        if getattr(error, field) is not None and OWN_TYPE not in error.form:
            report.dropped((), field)
    report.unclaimed(error, (FAMILY,))
    return Encoding(body, report)
