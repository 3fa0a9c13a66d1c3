"""Chat's errors, to canonical and back."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json, describe_json, validate_json
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras
from toolwire.protocols.openai_chat.wire import FAMILY, ErrorShape, ResponseChoiceShape
from toolwire.protocols.vendors.openai import (
    ERROR_CODES,
    ERROR_KINDS,
    ERROR_TYPES,
    MISALIGNMENT_FIELDS,
    OPENAI_ERROR_FORM,
    SHARED_FAMILY,
    STATUS_KINDS,
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
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    raw = validate_json(body, FAMILY)
    if bytes(raw).lstrip()[:1] != b"{":
        raise DecodeError(FAMILY, "", "an object", describe_json(raw))
    members = _decode_members(raw)
    if "error" not in members:
        return _decode_bare_error(members, status)
    error = decode_error_object(members.pop("error"), status)
    extras = error.extras or {}
    return replace(error, extras={**extras, FAMILY: {**extras.get(FAMILY, {}), **members}}) if members else error


def decode_error_object(raw: Raw, status: int | None, *, at: str | None = None) -> ApiError:
    """An error: alone in its body, or with a place of its own within an answer."""
    names = () if at is None else _BARE_ERROR_NAMES
    if bytes(raw)[:1] != b"{":
        said = decode_json(raw)
        message = said if isinstance(said, str) else bytes(raw).decode()
        spelling = (ERROR_FORM, TEXT_ERROR) if isinstance(said, str) else (ERROR_FORM, TEXT_ERROR, RAW_ERROR)
        return ApiError(
            kind=STATUS_KINDS.get(status or 0, "other"),
            message=message,
            status=status,
            wire_form=(*spelling, *names),
            at=at,
        )
    shape = _read_error(raw, "/error")
    code = shape.code
    number = code if isinstance(code, int) else None
    form = (ERROR_FORM, *names) if number is None else (ERROR_FORM, NUMERIC_CODE, *names)
    if shape.message is UNSET:
        form = (*form, NO_MESSAGE)
    if isinstance(shape.type, str):
        form = (*form, OPENAI_ERROR_FORM)
    return ApiError(
        kind=_error_kind(shape, status if status is not None else number),
        message=unset_to_none(shape.message) or "",
        status=status,
        code=None if code is UNSET or code is None else str(code),
        param=unset_to_none(shape.param),
        raw=unset_to_none(shape.type),
        at=at,
        **move_shared_extras(
            collect_chat_extras(shape, *form, prefix="error/" if at is None else ""), FAMILY, *MISALIGNMENT_FIELDS
        ),
    )


def decode_choice_error(choices: Sequence[ResponseChoiceShape]) -> ApiError | None:
    """What a gateway says of an upstream that failed within its answer."""
    raw = choices[0].error if choices else UNSET
    if raw is UNSET or bytes(raw) == b"null":
        return None
    error = decode_error_object(raw, None, at="/choices/0/error")
    return replace(error, wire_form=(*error.wire_form, IN_CHOICE))


def _error_kind(shape: ErrorShape, status: int | None) -> ErrorKind:
    """OpenAI tells most failures as `invalid_request_error`: code and status know more."""
    code, kind = str(shape.code), unset_to_none(shape.type) or ""
    found = ERROR_CODES.get(code) or _SPECIFIC_KINDS.get(kind)
    if found is None and status is not None:
        found = STATUS_KINDS.get(status)
        if found is None and status >= 500:
            found = "server"
    return found or _GENERIC_KINDS.get(kind) or "other"


def _decode_bare_error(members: dict[str, Raw], status: int | None) -> ApiError:
    """An error without its envelope, as frameworks under compatible servers send it."""
    said = members.get("message", members.get("detail", Raw(b'""')))
    text = decode_json(said)
    message = text if isinstance(text, str) else bytes(said).decode()
    kind = STATUS_KINDS.get(status or 0, "other")
    return ApiError(
        kind=kind, message=message, status=status, extras={FAMILY: dict(members)}, wire_form=(ERROR_FORM, BODY_ERROR)
    )


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    report = LossReport()
    if ERROR_FORM in error.wire_form:
        return EncodedBody(_encode_same_protocol_error(error), report)
    body = {"error": _encode_foreign_error(error, (), report)}
    report.report_foreign_extras(error, (FAMILY, SHARED_FAMILY))
    return EncodedBody(body, report)


def _encode_foreign_error(error: ApiError, path: SourcePath, report: LossReport) -> dict[str, Any]:
    kind, code = encode_error_type(error, CHAT_ERROR_TYPES, path, report)
    if error.request_id is not None:
        report.dropped(path, "request_id", "the target tells it in a header")
    word = error.code or code
    if error.code is not None and error.code.isdecimal():
        report.approximated(path, "code", f"a status, which is told as {code or kind}")
        word = code
    return dict(restore_error({"message": error.message, "type": kind, "param": error.param, "code": word}, error))


def _encode_same_protocol_error(error: ApiError) -> dict[str, Any]:
    if BODY_ERROR in error.wire_form:
        return restore_extras({}, error, FAMILY)
    return restore_extras({"error": _error_members(error, "error/")}, error, FAMILY)


def encode_error_object(error: ApiError, path: SourcePath, report: LossReport) -> Any:
    """An error as it stands within an answer."""
    if ERROR_FORM not in error.wire_form:
        return _encode_foreign_error(error, path, report)
    members = _error_members(error, "")
    return restore_extras(members, error, FAMILY) if isinstance(members, dict) else members


def _error_members(error: ApiError, prefix: str) -> Any:
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
