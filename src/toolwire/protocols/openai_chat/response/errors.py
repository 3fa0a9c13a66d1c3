"""Chat's errors, to canonical and back."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.fields import Reader, told, well_formed
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import known, restore
from toolwire.codec.losses import Report, Trail
from toolwire.protocols.openai import (
    ERROR_CODES,
    ERROR_KINDS,
    ERROR_TYPES,
    MISALIGNMENT,
    OWN_ERROR,
    SHARED,
    STATUSES,
    encode_type,
    restore_error,
    shared,
)
from toolwire.protocols.openai_chat.parts.content import kept
from toolwire.protocols.openai_chat.wire import FAMILY, AnswerShape, ErrorShape

_TYPES: dict[str, ErrorKind] = {**ERROR_KINDS, "permission_denied_error": "permission"}
_GENERIC: dict[str, ErrorKind] = {
    "invalid_request_error": "invalid_request",
    "server_error": "server",
    "api_error": "server",
    "internal_error": "server",
}
TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    **ERROR_TYPES,
    "server": ("server_error", None),
    "other": ("api_error", None),
}

OWN = "openai-chat:error"
NUMBER = "openai-chat:code:number"
TEXT_ERROR = "openai-chat:error:text"
BODY_ERROR = "openai-chat:error:body"
RAW_ERROR = "openai-chat:error:raw"
NO_MESSAGE = "openai-chat:absent:message"
IN_CHOICE = "openai-chat:error:choice"
_NAMES = tuple(f"{FAMILY}:name:{name}" for name in ("message=message", "raw=type", "code=code", "param=param"))

_read_error = Reader[ErrorShape](ErrorShape, FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    raw = well_formed(body, FAMILY)
    if bytes(raw).lstrip()[:1] != b"{":
        raise DecodeError(FAMILY, "", "an object", told(raw))
    members = _members(raw)
    if "error" not in members:
        return _decode_bare_error(members, status)
    error = decode_error_object(members.pop("error"), status)
    extras = error.extras or {}
    return replace(error, extras={**extras, FAMILY: {**extras.get(FAMILY, {}), **members}}) if members else error


def decode_error_object(raw: Raw, status: int | None, *, at: str | None = None) -> ApiError:
    """An error: alone in its body, or with a place of its own within an answer."""
    names = () if at is None else _NAMES
    if bytes(raw)[:1] != b"{":
        said = _decode(raw)
        message = said if isinstance(said, str) else bytes(raw).decode()
        spelling = (OWN, TEXT_ERROR) if isinstance(said, str) else (OWN, TEXT_ERROR, RAW_ERROR)
        return ApiError(
            kind=STATUSES.get(status or 0, "other"), message=message, status=status, form=(*spelling, *names), at=at
        )
    shape = _read_error(raw, "/error")
    code = shape.code
    number = code if isinstance(code, int) else None
    form = (OWN, *names) if number is None else (OWN, NUMBER, *names)
    if shape.message is UNSET:
        form = (*form, NO_MESSAGE)
    if isinstance(shape.type, str):
        form = (*form, OWN_ERROR)
    return ApiError(
        kind=_kind(shape, status if status is not None else number),
        message=known(shape.message) or "",
        status=status,
        code=None if code is UNSET or code is None else str(code),
        param=known(shape.param),
        raw=known(shape.type),
        at=at,
        **shared(kept(shape, *form, under="error/" if at is None else ""), FAMILY, *MISALIGNMENT),
    )


def decode_choice_error(choices: Sequence[AnswerShape]) -> ApiError | None:
    """What a gateway says of an upstream that failed within its answer."""
    raw = choices[0].error if choices else UNSET
    if raw is UNSET or bytes(raw) == b"null":
        return None
    error = decode_error_object(raw, None, at="/choices/0/error")
    return replace(error, form=(*error.form, IN_CHOICE))


def _kind(shape: ErrorShape, status: int | None) -> ErrorKind:
    """OpenAI tells most failures as `invalid_request_error`: code and status know more."""
    code, kind = str(shape.code), known(shape.type) or ""
    found = ERROR_CODES.get(code) or _TYPES.get(kind)
    if found is None and status is not None:
        found = STATUSES.get(status)
        if found is None and status >= 500:
            found = "server"
    return found or _GENERIC.get(kind) or "other"


def _decode_bare_error(members: dict[str, Raw], status: int | None) -> ApiError:
    """An error without its envelope, as frameworks under compatible servers send it."""
    said = members.get("message", members.get("detail", Raw(b'""')))
    text = _decode(said)
    message = text if isinstance(text, str) else bytes(said).decode()
    kind = STATUSES.get(status or 0, "other")
    return ApiError(kind=kind, message=message, status=status, extras={FAMILY: dict(members)}, form=(OWN, BODY_ERROR))


# ---- encode


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    if OWN in error.form:
        return Encoding(_encode_own_error(error), report)
    body = {"error": _encode_other_error(error, (), report)}
    report.unclaimed(error, (FAMILY, SHARED))
    return Encoding(body, report)


def _encode_other_error(error: ApiError, trail: Trail, report: Report) -> dict[str, Any]:
    kind, code = encode_type(error, TYPES, trail, report)
    if error.request_id is not None:
        report.dropped(trail, "request_id", "the target tells it in a header")
    word = error.code or code
    if error.code is not None and error.code.isdecimal():
        report.approximated(trail, "code", f"a status, which is told as {code or kind}")
        word = code
    return dict(restore_error({"message": error.message, "type": kind, "param": error.param, "code": word}, error))


def _encode_own_error(error: ApiError) -> dict[str, Any]:
    if BODY_ERROR in error.form:
        return restore({}, error, FAMILY)
    return restore({"error": _own_members(error, "error/")}, error, FAMILY)


def encode_error_object(error: ApiError, trail: Trail, report: Report) -> Any:
    """An error as it stands within an answer."""
    if OWN not in error.form:
        return _encode_other_error(error, trail, report)
    members = _own_members(error, "")
    return restore(members, error, FAMILY) if isinstance(members, dict) else members


def _own_members(error: ApiError, under: str) -> Any:
    if TEXT_ERROR in error.form:
        return Raw(error.message.encode()) if RAW_ERROR in error.form else error.message
    members: dict[str, Any] = {}
    if error.message or not {f"{FAMILY}:null:{under}message", NO_MESSAGE} & set(error.form):
        members["message"] = error.message
    if error.raw is not None:
        members["type"] = error.raw
    if error.param is not None:
        members["param"] = error.param
    if error.code is not None:
        members["code"] = int(error.code) if NUMBER in error.form else error.code
    return restore_error(members, error)
