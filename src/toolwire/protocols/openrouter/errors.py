"""Errors of OpenRouter: a numeric `code`, and the upstream's error in `metadata`."""

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.protocols.openai_chat import errors as chat
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY
from toolwire.protocols.openrouter.tools import OPENROUTER

# The numeric code and OpenRouter's `error_type` for each error kind.
_ERROR_CODES: dict[ErrorKind, tuple[int, str]] = {
    "invalid_request": (400, "invalid_request"),
    "authentication": (401, "authentication"),
    "billing": (402, "payment_required"),
    "permission": (403, "permission_denied"),
    "not_found": (404, "not_found"),
    "conflict": (409, "precondition_failed"),
    "too_large": (413, "payload_too_large"),
    "rate_limit": (429, "rate_limit_exceeded"),
    "context_length": (400, "context_length_exceeded"),
    "server": (500, "server"),
    "timeout": (504, "timeout"),
    "overloaded": (529, "provider_overloaded"),
    "other": (500, "unmapped"),
}


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body."""
    try:
        return chat.decode_error(body, status)
    except DecodeError as error:
        raise with_protocol_name(error) from None


def with_protocol_name(error: DecodeError) -> DecodeError:
    """Return an error of Chat's decoder with OpenRouter as its protocol."""
    return DecodeError(OPENROUTER.protocol, error.path, error.expected, error.got)


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body."""
    encoding = chat.encode_error(as_openrouter_error(error))
    report_error(error, (), encoding.report)
    if chat.ERROR_FORM not in error.wire_form:
        encoding.report.report_foreign_extras(error, (FAMILY,))
    return encoding


def as_openrouter_error(error: ApiError, *, prefix: str = "error/") -> ApiError:
    """Return another protocol's error with OpenRouter's fields as extras, for Chat's encoder to write.

    `prefix` is the pointer of the error object.
    """
    if chat.ERROR_FORM in error.wire_form:
        return error
    default_code, error_type = _ERROR_CODES[error.kind]
    is_numeric = error.code is not None and error.code.isdecimal()
    metadata = {"error_type": error_type} | ({} if error.code is None or is_numeric else {"provider_code": error.code})
    number = default_code if error.status is None else error.status
    # OpenRouter lacks the fields that OpenAI's protocols share: in another family they are reported.
    others = {
        f"{name}:only" if name == SHARED_FAMILY else name: fields for name, fields in (error.extras or {}).items()
    }
    return ApiError(
        kind=error.kind,
        message=error.message,
        code=error.code if is_numeric else str(number),
        extras={**others, FAMILY: {f"{prefix}metadata": Raw(msgspec.json.encode(metadata))}},
        wire_form=(chat.ERROR_FORM, chat.NUMERIC_CODE),
    )


def report_error(error: ApiError, path: SourcePath, report: LossReport) -> None:
    """Report as losses the fields of another protocol's error that OpenRouter lacks."""
    if chat.ERROR_FORM in error.wire_form:
        return
    _, error_type = _ERROR_CODES[error.kind]
    if error.raw is not None and error.raw != error_type:
        report.approximated(path, "raw", f"{error.raw} sent as {error_type}")
    report.dropped_fields(path, error, "param", "request_id")
