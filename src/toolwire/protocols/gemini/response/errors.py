"""Gemini's errors, to canonical and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.fields import Reader, well_formed
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import given, joined, known, rest, restore
from toolwire.codec.losses import Report
from toolwire.protocols.gemini.wire import FAMILY, ErrorBodyShape, ErrorShape

KINDS: dict[str, ErrorKind] = {
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
CODES: dict[ErrorKind, tuple[int, str]] = {
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
_LIST = "gemini:error:list"
_OWN = "gemini:error"
_OVERFLOW = re.compile(r"input token count .*exceeds the maximum", re.IGNORECASE)
_DELAY = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')

_read_error = Reader[ErrorBodyShape](ErrorBodyShape, FAMILY).read
_elements = msgspec.json.Decoder(list[Raw]).decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    form: tuple[str, ...] = (_OWN,)
    path = ""
    data: bytes | Raw = well_formed(body, FAMILY)
    if bytes(data)[:1] == b"[":
        # The streaming address answers with a list of one.
        listed = _elements(data)
        if len(listed) != 1:
            raise DecodeError(FAMILY, "", "an error, or a list of one", f"a list of {len(listed)}")
        data, path, form = listed[0], "/0", (_OWN, _LIST, "gemini:name:message=0/error/message")
    shape = _read_error(data, path)
    error = shape.error
    raw, message = known(error.status), known(error.message)
    kind = KINDS.get(raw or "", "other")
    if message is not None and _OVERFLOW.search(message):
        kind = "context_length"
    if error.message is UNSET:
        form = (*form, "gemini:absent:message")
    if error.code is UNSET:
        form = (*form, "gemini:absent:code")
    delay = _DELAY.search(body)
    under = path[1:] + "/" if path else ""
    kept = joined(rest(shape, FAMILY, *form, under=under), rest(error, FAMILY, under=f"{under}error/"))
    return ApiError(
        kind=kind,
        message=message or "",
        status=status if error.code is UNSET else error.code,
        raw=raw,
        retry_after=None if delay is None else _seconds(delay[1]),
        **kept,
    )


def _seconds(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    own = _OWN in error.form
    code, word = CODES[error.kind]
    shape = ErrorShape(code=code, message=error.message, status=word)
    if own:
        shape.status = given(error.raw)
        shape.code = UNSET if "gemini:absent:code" in error.form or error.status is None else error.status
        if "gemini:absent:message" in error.form:
            shape.message = UNSET
    elif error.retry_after is not None:
        seconds = f"{error.retry_after:.9f}".rstrip("0").rstrip(".")  # a Duration has no exponent
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}
        shape.details = Raw(msgspec.json.encode([delay]))
    body: dict[str, Any] = {"error": shape}
    if _LIST in error.form:
        restore({"0": body}, error, FAMILY)
        body = restore({"0": body}, error, FAMILY)["0"]
        return Encoding([body], report)
    restore(body, error, FAMILY)
    if not own:
        for field in ("code", "param", "request_id"):
            if getattr(error, field) is not None:
                report.dropped((), field)
    report.unclaimed(error, (FAMILY,))
    return Encoding(body, report)
