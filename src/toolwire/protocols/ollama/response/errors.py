"""Ollama's errors, to canonical and back: a text, and an HTTP status from outside."""

import re

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.fields import told, well_formed
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import restore
from toolwire.codec.losses import Report, Trail
from toolwire.protocols.ollama.wire import FAMILY

OWN = "ollama:error"
RAW = "ollama:error:raw"
NO_ERROR = "ollama:absent:error"

_STATUSES: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
}
# What the server says tells more than its status, and is all there is within a stream.
_TEXTS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (re.compile(r"exceeds? (the )?(available |maximum )?context|context length"), "context_length"),
    (re.compile(r"unauthorized"), "authentication"),
    (re.compile(r"model .*not found|no such model"), "not_found"),
    (re.compile(r"server busy|maximum pending requests"), "overloaded"),
    (re.compile(r"rate limit|usage limit"), "rate_limit"),
    (re.compile(r" is required$|does not support|must be|^missing request body|^invalid "), "invalid_request"),
)

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    raw = well_formed(body, FAMILY)
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, "", "an object", told(raw))
    members = _members(raw)
    if "error" not in members:
        form = (OWN, NO_ERROR)
        extras = {FAMILY: members} if members else None
        return ApiError(kind=_STATUSES.get(status or 0, "other"), message="", status=status, extras=extras, form=form)
    error = decode_error_value(members.pop("error"), status)
    return replace(error, extras={FAMILY: members}) if members else error


def decode_error_value(raw: Raw, status: int | None, *, at: str | None = None) -> ApiError:
    """An error: alone in its body, or beside an answer."""
    said = _decode(raw)
    form = (OWN,) if isinstance(said, str) else (OWN, RAW)
    message = said if isinstance(said, str) else bytes(raw).decode()
    if at is not None:
        form = (*form, f"{FAMILY}:name:message=")
    return ApiError(kind=_kind(message, status), message=message, status=status, form=form, at=at)


def _kind(message: str, status: int | None) -> ErrorKind:
    for pattern, kind in _TEXTS:
        if pattern.search(message):
            return kind
    if status is None:
        return "other"
    return _STATUSES.get(status, "server" if status >= 500 else "other")


# ---- encode


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    if NO_ERROR in error.form:
        return Encoding(restore({}, error, FAMILY), report)
    body = restore({"error": encode_error_value(error, (), report)}, error, FAMILY)
    report.unclaimed(error, (FAMILY,))
    return Encoding(body, report)


def encode_error_value(error: ApiError, trail: Trail, report: Report) -> str | Raw:
    if OWN in error.form:
        return Raw(error.message.encode()) if RAW in error.form else error.message
    for field in ("raw", "code", "param"):
        if getattr(error, field) is not None:
            report.dropped(trail, field, "the target tells errors by their text and HTTP status")
    if error.request_id is not None:
        report.dropped(trail, "request_id")
    return error.message
