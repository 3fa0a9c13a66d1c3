"""The Interactions API's errors, to canonical and back: of a request, of an interaction, and as events of a stream."""

from typing import Any

import msgspec
from msgspec import UNSET

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.codec.fields import Reader
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import as_object, emit, given, joined, known, rest, restore
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan
from toolwire.protocols.gemini_interactions.wire import FAMILY, ErrorBodyShape, ErrorShape

KINDS: dict[str, ErrorKind] = {
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
STATUSES: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
}
CODES: dict[ErrorKind, str] = {
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
OVERFLOW = "exceeds the maximum number of tokens"

_OWN = "gemini-interactions:error"
_INSIDE = "gemini-interactions:error:inside"
_NUMBER = "gemini-interactions:error:number"
_NO_MESSAGE = "gemini-interactions:absent:message"
_UNNESTED = tuple(
    f"gemini-interactions:name:{ours}={theirs}"
    for ours, theirs in (("message", "message"), ("raw", "status"), ("code", "code"))
)

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    shape = _read_error(body)
    return _decode_shape(shape.error, status, (_OWN,), rest(shape, FAMILY), under="error/")


def decode_failure(shape: ErrorShape) -> ApiError:
    """The error inside an answer."""
    return _decode_shape(shape, None, (_OWN, _INSIDE, *_UNNESTED), {})


def _decode_shape(
    shape: ErrorShape, status: int | None, form: tuple[str, ...], around: dict[str, Any], under: str = ""
) -> ApiError:
    code, raw = known(shape.code), known(shape.status)
    if isinstance(code, int):
        form = (*form, _NUMBER)
        status = code if status is None and code in STATUSES else status
    if shape.message is UNSET:
        form = (*form, _NO_MESSAGE)
    message = known(shape.message) or ""
    kind = _kind(None if code is None else str(code), raw, status)
    if kind == "invalid_request" and OVERFLOW in message:
        kind = "context_length"
    return ApiError(
        kind=kind,
        message=message,
        status=status,
        code=None if code is None else str(code),
        raw=raw,
        **joined(around, rest(shape, FAMILY, *form, under=under)),
    )


def _kind(code: str | None, raw: str | None, status: int | None) -> ErrorKind:
    for word in (raw, code):
        # A code may be a URI; what it names stands last.
        kind = KINDS.get((word or "").rpartition("/")[2].lower())
        if kind is not None:
            return kind
    return STATUSES.get(status or 0, "other")


# ---- encode


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    if _OWN in error.form:
        body = {"error": as_object(_encode_shape(error))}
    else:
        for field in ("param", "raw", "request_id"):
            if getattr(error, field) is not None and not (field == "raw" and error.kind != "other"):
                report.dropped((), field)
        body = {"error": _encode_foreign(error, report)}
    restore(body, error, FAMILY)
    report.unclaimed(error, (FAMILY,))
    return Encoding(body, report)


def _encode_shape(error: ApiError) -> ErrorShape:
    code: str | int | None = error.code
    if _NUMBER in error.form and code is not None:
        code = int(code)
    shape = ErrorShape(code=given(code), message=error.message, status=given(error.raw))
    if _NO_MESSAGE in error.form and not error.message:
        shape.message = UNSET
    return shape


def _encode_foreign(error: ApiError, report: Report) -> dict[str, Any]:
    message = error.message
    if error.kind == "context_length" and OVERFLOW not in message:
        message = f"{message} (the input {OVERFLOW})"  # by these words clients know that they must compact
    if error.code is not None:
        report.dropped((), "code")
    return {"code": CODES[error.kind], "message": message}


def encode_failure(error: ApiError, plan: Plan) -> Any:
    """The error inside an answer."""
    if plan.home and _OWN in error.form:
        return emit(_encode_shape(error), error, FAMILY)
    for field in ("code", "param", "raw"):
        if getattr(error, field) is not None:
            plan.report.dropped(("error",), field)
    return {"code": CODES[error.kind], "message": error.message}


def is_event(error: ApiError) -> bool:
    """Whether it was an event of its own, and no answer's error."""
    return _INSIDE not in error.form


def encode_event(error: ApiError) -> bytes:
    return msgspec.json.encode({"event_type": "error", **encode_error(error).body})
