"""Decode and encode errors of Ollama: a message, with the HTTP status outside the body."""

import re

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.surface import STATUS_KINDS
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import decode_json, decode_members, describe_json, validate_json
from toolwire.protocols.ollama.wire import FAMILY

ERROR_FORM = "ollama:error"
RAW_ERROR = "ollama:error:raw"
NO_ERROR = "ollama:absent:error"

# The message is more specific than the status, and streams have no status.
_MESSAGE_KINDS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (re.compile(r"exceeds? (the )?(available |maximum )?context|context length"), "context_length"),
    (re.compile(r"unauthorized"), "authentication"),
    (re.compile(r"model .*not found|no such model"), "not_found"),
    (re.compile(r"server busy|maximum pending requests"), "overloaded"),
    (re.compile(r"rate limit|usage limit"), "rate_limit"),
    (re.compile(r" is required$|does not support|must be|^missing request body|^invalid "), "invalid_request"),
)


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body; `status` is the HTTP status, None inside a stream."""
    raw = validate_json(body, FAMILY)
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, "", "an object", describe_json(raw))
    members = decode_members(raw)
    if "error" not in members:
        form = (ERROR_FORM, NO_ERROR)
        extras = {FAMILY: members} if members else None
        return ApiError(
            kind=STATUS_KINDS.get(status or 0, "other"), message="", status=status, extras=extras, wire_form=form
        )
    error = decode_error_value(members.pop("error"), status)
    return replace(error, extras={FAMILY: members}) if members else error


def decode_error_value(raw: Raw, status: int | None, *, at: str | None = None) -> ApiError:
    """Decode the value of `error`, which is usually a string; `at` is its pointer inside a response."""
    value = decode_json(raw)
    form = (ERROR_FORM,) if isinstance(value, str) else (ERROR_FORM, RAW_ERROR)
    message = value if isinstance(value, str) else bytes(raw).decode()
    if at is not None:
        form = (*form, f"{FAMILY}:name:message=")
    return ApiError(kind=_error_kind(message, status), message=message, status=status, wire_form=form, at=at)


def _error_kind(message: str, status: int | None) -> ErrorKind:
    """Derive the error kind from the status of a rejected key, else from the message, else from the status."""
    if status == 401:
        return "authentication"
    for pattern, kind in _MESSAGE_KINDS:
        if pattern.search(message):
            return kind
    if status is None:
        return "other"
    return STATUS_KINDS.get(status, "server" if status >= 500 else "other")


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body."""
    report = LossReport()
    if NO_ERROR in error.wire_form:
        return EncodedBody(restore_extras({}, error, FAMILY), report)
    body = restore_extras({"error": encode_error_value(error, (), report)}, error, FAMILY)
    report.report_foreign_extras(error, (FAMILY,))
    return EncodedBody(body, report)


def encode_error_value(error: ApiError, path: SourcePath, report: LossReport) -> str | Raw:
    """Encode the value of `error`; report as losses the fields that Ollama does not have."""
    if ERROR_FORM in error.wire_form:
        return Raw(error.message.encode()) if RAW_ERROR in error.wire_form else error.message
    report.dropped_fields(
        path, error, "raw", "code", "param", reason="errors of the target have only a message and an HTTP status"
    )
    if error.request_id is not None:
        report.dropped(path, "request_id")
    return error.message
