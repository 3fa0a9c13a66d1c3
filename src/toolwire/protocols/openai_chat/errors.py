"""Decode and encode Chat error bodies, and errors inside a response."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.surface import STATUS_KINDS
from toolwire.codec.wire.extras import restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json, decode_members, describe_json, validate_json
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras
from toolwire.protocols.openai_chat.wire import FAMILY, ErrorShape, ResponseChoiceShape
from toolwire.protocols.vendors.openai import (
    ERROR_CODES,
    ERROR_KINDS,
    ERROR_TYPES,
    MISALIGNMENT_FIELDS,
    OPENAI_ERROR_FORM,
    SHARED_FAMILY,
    encode_error_type,
    move_shared_extras,
    restore_error,
)

_SPECIFIC_KINDS: dict[str, ErrorKind] = {**ERROR_KINDS, "permission_denied_error": "permission"}
_GENERIC_KINDS: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "server_error": "server",
    "api_error": "server",
    "internal_error": "server",
}
CHAT_ERROR_TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    **ERROR_TYPES,
    "server": ("server_error", None),
    "other": ("api_error", None),
}

_METADATA_KINDS: dict[str, ErrorKind] = {
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
"""Kinds by the `error_type` in the metadata of OpenRouter, which is the same for all upstreams."""

ERROR_FORM = "openai-chat:error"
NUMERIC_CODE = "openai-chat:code:number"
TEXT_ERROR = "openai-chat:error:text"
BODY_ERROR = "openai-chat:error:body"
RAW_ERROR = "openai-chat:error:raw"
NO_MESSAGE = "openai-chat:absent:message"
IN_CHOICE = "openai-chat:error:choice"
_BARE_ERROR_NAMES = tuple(
    f"{FAMILY}:name:{name}" for name in ("message=message", "raw=type", "code=code", "param=param")
)

_read_error = Reader[ErrorShape](ErrorShape, FAMILY).read


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body; `status` is the HTTP status, None inside a stream."""
    raw = validate_json(body, FAMILY)
    if bytes(raw).lstrip()[:1] != b"{":
        raise DecodeError(FAMILY, "", "an object", describe_json(raw))
    members = decode_members(raw)
    if "error" not in members:
        return _decode_bare_error(members, status)
    error = decode_error_object(members.pop("error"), status)
    extras = error.extras or {}
    return replace(error, extras={**extras, FAMILY: {**extras.get(FAMILY, {}), **members}}) if members else error


def decode_error_object(raw: Raw, status: int | None, *, at: str | None = None) -> ApiError:
    """Decode the value of `error`; `at` is its pointer if it stands inside a response."""
    wire_names = () if at is None else _BARE_ERROR_NAMES
    if bytes(raw)[:1] != b"{":
        value = decode_json(raw)
        message = value if isinstance(value, str) else bytes(raw).decode()
        error_form = (ERROR_FORM, TEXT_ERROR) if isinstance(value, str) else (ERROR_FORM, TEXT_ERROR, RAW_ERROR)
        return ApiError(
            kind=STATUS_KINDS.get(status or 0, "other"),
            message=message,
            status=status,
            wire_form=(*error_form, *wire_names),
            at=at,
        )
    shape = _read_error(raw, "/error")
    code = shape.code
    number = code if isinstance(code, int) else None
    wire_form = (ERROR_FORM, *wire_names) if number is None else (ERROR_FORM, NUMERIC_CODE, *wire_names)
    if shape.message is UNSET:
        wire_form = (*wire_form, NO_MESSAGE)
    if isinstance(shape.type, str):
        wire_form = (*wire_form, OPENAI_ERROR_FORM)
    return ApiError(
        kind=_error_kind(shape, status if status is not None else number),
        message=unset_to_none(shape.message) or "",
        status=status,
        code=None if code is UNSET or code is None else str(code),
        param=unset_to_none(shape.param),
        raw=unset_to_none(shape.type),
        at=at,
        **move_shared_extras(
            collect_chat_extras(shape, *wire_form, prefix="error/" if at is None else ""), FAMILY, *MISALIGNMENT_FIELDS
        ),
    )


def decode_choice_error(choices: Sequence[ResponseChoiceShape]) -> ApiError | None:
    """Decode the error in the first choice, where gateways report an upstream that failed midway; None without one."""
    raw = choices[0].error if choices else UNSET
    if raw is UNSET or bytes(raw) == b"null":
        return None
    error = decode_error_object(raw, None, at="/choices/0/error")
    return replace(error, wire_form=(*error.wire_form, IN_CHOICE))


def _error_kind(shape: ErrorShape, status: int | None) -> ErrorKind:
    """Return the canonical kind from code and status: OpenAI types most errors `invalid_request_error`."""
    code, error_type = str(shape.code), unset_to_none(shape.type) or ""
    if shape.unknown is not UNSET and "metadata" in shape.unknown:
        match decode_json(shape.unknown["metadata"]):
            case {"error_type": str(metadata_type)} if metadata_type in _METADATA_KINDS:
                return _METADATA_KINDS[metadata_type]
    error_kind = ERROR_CODES.get(code) or _SPECIFIC_KINDS.get(error_type)
    if error_kind is None and status is not None:
        error_kind = STATUS_KINDS.get(status)
        if error_kind is None and status >= 500:
            error_kind = "server"
    return error_kind or _GENERIC_KINDS.get(error_type) or "other"


def _decode_bare_error(members: dict[str, Raw], status: int | None) -> ApiError:
    """Decode an error without the `error` object around it, as frameworks of compatible servers send it."""
    raw = members.get("message", members.get("detail", Raw(b'""')))
    value = decode_json(raw)
    message = value if isinstance(value, str) else bytes(raw).decode()
    kind = STATUS_KINDS.get(status or 0, "other")
    return ApiError(
        kind=kind, message=message, status=status, extras={FAMILY: dict(members)}, wire_form=(ERROR_FORM, BODY_ERROR)
    )


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body."""
    report = LossReport()
    if ERROR_FORM in error.wire_form:
        return EncodedBody(_encode_same_protocol_error(error), report)
    body = {"error": _encode_foreign_error(error, (), report)}
    report.report_foreign_extras(error, (FAMILY, SHARED_FAMILY))
    return EncodedBody(body, report)


def _encode_foreign_error(error: ApiError, path: SourcePath, report: LossReport) -> dict[str, Any]:
    """Encode another protocol's error with OpenAI's type and code."""
    kind, code = encode_error_type(error, CHAT_ERROR_TYPES, path, report)
    if error.request_id is not None:
        report.dropped(path, "request_id", "the target reports it in a header")
    wire_code = error.code or code
    if error.code is not None and error.code.isdecimal():
        report.approximated(path, "code", f"status sent as {code or kind}")
        wire_code = code
    return dict(restore_error({"message": error.message, "type": kind, "param": error.param, "code": wire_code}, error))


def _encode_same_protocol_error(error: ApiError) -> dict[str, Any]:
    """Encode the body of an error that came from a Chat server."""
    if BODY_ERROR in error.wire_form:
        return restore_extras({}, error, FAMILY)
    return restore_extras({"error": _error_members(error, "error/")}, error, FAMILY)


def encode_error_object(error: ApiError, path: SourcePath, report: LossReport) -> Any:
    """Encode the `error` value of a failed response."""
    if ERROR_FORM not in error.wire_form:
        return _encode_foreign_error(error, path, report)
    members = _error_members(error, "")
    return restore_extras(members, error, FAMILY) if isinstance(members, dict) else members


def _error_members(error: ApiError, prefix: str) -> Any:
    """Return the value of `error`; `prefix` is the pointer of that value, under which its extras are stored."""
    if TEXT_ERROR in error.wire_form:
        return Raw(error.message.encode()) if RAW_ERROR in error.wire_form else error.message
    members: dict[str, Any] = {}
    if error.message or not {f"{FAMILY}:null:{prefix}message", NO_MESSAGE} & set(error.wire_form):
        members["message"] = error.message
    if error.raw is not None:
        members["type"] = error.raw
    if error.param is not None:
        members["param"] = error.param
    if error.code is not None:
        members["code"] = int(error.code) if NUMERIC_CODE in error.wire_form else error.code
    return restore_error(members, error)
