"""OpenRouter's errors: a number as code, and what the upstream said in `metadata`, to canonical and back."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.protocols.openai_chat import errors as chat
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY
from toolwire.protocols.openrouter.request import with_protocol_name

_ERROR_KINDS: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_length",
    "max_tokens_exceeded": "invalid_request",
    "token_limit_exceeded": "context_length",
    "string_too_long": "too_large",
    "authentication": "authentication",
    "permission_denied": "permission",
    "payment_required": "billing",
    "rate_limit_exceeded": "rate_limit",
    "provider_overloaded": "overloaded",
    "provider_unavailable": "overloaded",
    "invalid_request": "invalid_request",
    "invalid_prompt": "invalid_request",
    "not_found": "not_found",
    "precondition_failed": "conflict",
    "payload_too_large": "too_large",
    "unprocessable": "invalid_request",
    "content_policy_violation": "permission",
    "refusal": "permission",
    "server": "server",
    "timeout": "timeout",
}
# What each kind is told as: the number of its code, and OpenRouter's own word.
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

_decode_json = msgspec.json.Decoder().decode


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    try:
        return with_error_kind(chat.decode_error(body, status))
    except DecodeError as error:
        raise with_protocol_name(error) from None


def with_error_kind(error: ApiError) -> ApiError:
    """What went wrong by OpenRouter's own word for it, which is the same whoever the upstream is."""
    own = (error.extras or {}).get(FAMILY, {})
    metadata = own.get("error/metadata", own.get("metadata"))
    match None if metadata is None else _decode_json(metadata):
        case {"error_type": str(word)} if word in _ERROR_KINDS:
            return replace(error, kind=_ERROR_KINDS[word])
        case _:
            return error


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    encoding = chat.encode_error(as_openrouter_error(error))
    report_error(error, (), encoding.report)
    if chat.ERROR_FORM not in error.wire_form:
        encoding.report.report_foreign_extras(error, (FAMILY,))
    return encoding


def as_openrouter_error(error: ApiError, *, prefix: str = "error/") -> ApiError:
    """An error of another protocol as this one would have told it; Chat's encoder then writes it as it is."""
    if chat.ERROR_FORM in error.wire_form:
        return error
    code, word = _ERROR_CODES[error.kind]
    numbered = error.code is not None and error.code.isdecimal()
    metadata = {"error_type": word} | ({} if error.code is None or numbered else {"provider_code": error.code})
    number = code if error.status is None else error.status
    # What OpenAI's own protocols share is not told here: under another name it is reported.
    others = {
        f"{name}:only" if name == SHARED_FAMILY else name: fields for name, fields in (error.extras or {}).items()
    }
    return ApiError(
        kind=error.kind,
        message=error.message,
        code=error.code if numbered else str(number),
        extras={**others, FAMILY: {f"{prefix}metadata": Raw(msgspec.json.encode(metadata))}},
        wire_form=(chat.ERROR_FORM, chat.NUMERIC_CODE),
    )


def report_error(error: ApiError, path: SourcePath, report: LossReport) -> None:
    """What is not said of an error of another protocol."""
    if chat.ERROR_FORM in error.wire_form:
        return
    _, word = _ERROR_CODES[error.kind]
    if error.raw is not None and error.raw != word:
        report.approximated(path, "raw", f"{error.raw} is told as {word}")
    for field in ("param", "request_id"):
        if getattr(error, field) is not None:
            report.dropped(path, field)
