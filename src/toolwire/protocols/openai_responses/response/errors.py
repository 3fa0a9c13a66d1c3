"""The Responses API's errors, to canonical and back: of a request, inside an answer, and as events of a stream."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.fields import Reader, escape
from toolwire.codec.interface import Encoding
from toolwire.codec.kept import as_object, given, known, rest, restore
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan
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
from toolwire.protocols.openai_responses.wire import ECHO, FAMILY, ErrorShape

CODES: dict[str, ErrorKind] = {
    **ERROR_CODES,
    "previous_response_not_found": "not_found",
    "vector_store_timeout": "timeout",
}
KINDS: dict[str, ErrorKind] = {**ERROR_KINDS, "invalid_request_error": "invalid_request", "server_error": "server"}
TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    **ERROR_TYPES,
    "server": ("server_error", "server_error"),
    "other": ("server_error", None),
}
# What a failed answer may call its error; the SDK knows no other words.
_ANSWER_CODES = (
    "server_error",
    "rate_limit_exceeded",
    "invalid_prompt",
    "data_residency_mismatch",
    "bio_policy",
    "misalignment_policy_violation",
    "vector_store_timeout",
)

_OWN = "openai-responses:error"
_FLAT = "openai-responses:error:flat"
_WORD = "openai-responses:error:text"
_DETAIL = "openai-responses:error:detail"
_DETAIL_JSON = "openai-responses:error:detail:json"
_NUMBER = "openai-responses:error:number"
_NO_MESSAGE = "openai-responses:absent:message"
_UNNESTED = tuple(
    f"openai-responses:name:{ours}={theirs}"
    for ours, theirs in (("message", "message"), ("raw", "type"), ("code", "code"), ("param", "param"))
)
_ENVELOPE = ("type", "sequence_number", "status")

_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_read_error = Reader[ErrorShape](ErrorShape, FAMILY).read
_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    members = dict(_read_object(body))
    nested = members.get("error")
    around = _around(members)
    if status is None and isinstance(said := _decode(members.get("status", b"null")), int):
        status = said
    if nested is not None and bytes(nested)[:1] == b"{":
        error = _decode_shape(_read_error(nested, "/error"), status, (_OWN,), under="error/")
        return _joined(error, around)
    if nested is not None and isinstance(text := _decode(nested), str):
        return _decode_text(text, status, around, _WORD, "error")
    if "detail" in members:
        detail = _decode(members["detail"])
        if isinstance(detail, str):
            return _decode_text(detail, status, around, _DETAIL, "detail")
        return _decode_text(str(members["detail"], "utf-8"), status, around, _DETAIL_JSON, "detail")
    if "message" in members:
        flat = {name: raw for name, raw in members.items() if name not in _ENVELOPE}
        shape = _read_error(msgspec.json.encode(flat))
        envelope = {ECHO: {name: members[name] for name in _ENVELOPE if name in members}}
        return _joined(_decode_shape(shape, status, (_OWN, _FLAT, *_UNNESTED)), envelope)
    raise DecodeError(FAMILY, "/error", "an error", "nothing")


def _around(members: dict[str, Raw]) -> dict[str, dict[str, Raw]]:
    """What stands beside the error: the envelope of an event, and what is not known."""
    own = {escape(name): raw for name, raw in members.items() if name not in (*_ENVELOPE, "error", "detail")}
    echo = {name: members[name] for name in _ENVELOPE if name in members}
    return ({FAMILY: own} if own else {}) | ({ECHO: echo} if echo else {})


def _joined(error: ApiError, around: dict[str, dict[str, Raw]]) -> ApiError:
    if not any(around.values()):
        return error
    extras = dict(error.extras or {})
    for family, kept in around.items():
        extras[family] = {**extras.get(family, {}), **kept}
    return msgspec.structs.replace(error, extras=extras)


def _decode_text(text: str, status: int | None, around: dict[str, Any], form: str, field: str) -> ApiError:
    names = (_OWN, form, f"openai-responses:name:message={field}")
    return ApiError(kind=_kind(None, None, status), message=text, status=status, extras=around or None, form=names)


def decode_failure(shape: ErrorShape) -> ApiError:
    """The error inside an answer."""
    return _decode_shape(shape, None, (_OWN, *_UNNESTED))


def _decode_shape(shape: ErrorShape, status: int | None, form: tuple[str, ...], under: str = "") -> ApiError:
    code, raw = known(shape.code), known(shape.type)
    if isinstance(code, int):
        form = (*form, _NUMBER)
        status = code if status is None and code in STATUSES else status
    if shape.message is UNSET:
        form = (*form, _NO_MESSAGE)
    if raw is not None:
        form = (*form, OWN_ERROR)
    return ApiError(
        kind=_kind(None if code is None else str(code), raw, status),
        message=shape.message or "",
        status=status,
        code=None if code is None else str(code),
        param=known(shape.param),
        raw=raw,
        **shared(rest(shape, FAMILY, *form, under=under), FAMILY, *MISALIGNMENT),
    )


def _kind(code: str | None, raw: str | None, status: int | None) -> ErrorKind:
    if code in CODES:
        return CODES[code]
    kind = KINDS.get(raw or "")
    if kind is None or (kind == "invalid_request" and status in (401, 403, 404, 409, 413, 429)):
        return STATUSES.get(status or 0, kind or "other")
    return kind


# ---- encode


def encode_error(error: ApiError) -> Encoding:
    report = Report()
    body: dict[str, Any]
    if _WORD in error.form:
        body = {"error": error.message}
    elif _DETAIL in error.form:
        body = {"detail": error.message}
    elif _DETAIL_JSON in error.form:
        body = {"detail": Raw(error.message.encode())}
    elif _OWN in error.form:
        shape = _encode_shape(error)
        own = restore_error(as_object(shape), error)
        body = own if _FLAT in error.form else {"error": own}
    else:
        body = {"error": _encode_foreign(error, report)}
    restore(body, error, FAMILY)
    restore(body, error, ECHO)
    report.unclaimed(error, (FAMILY, SHARED, ECHO))
    return Encoding(body, report)


def _encode_shape(error: ApiError) -> ErrorShape:
    code: str | int | None = error.code
    if _NUMBER in error.form and error.code is not None:
        code = int(error.code)
    shape = ErrorShape(message=error.message, type=given(error.raw), param=given(error.param), code=given(code))
    if _NO_MESSAGE in error.form and not error.message:
        shape.message = UNSET
    return shape


def _encode_foreign(error: ApiError, report: Report) -> dict[str, Any]:
    if error.request_id is not None:
        report.dropped((), "request_id", "the target tells it in a header")
    kind, code = encode_type(error, TYPES, (), report)
    said = {"message": error.message, "type": kind, "param": error.param, "code": error.code or code}
    return dict(restore_error(said, error))


def encode_failure(error: ApiError, plan: Plan) -> Any:
    """The error inside an answer."""
    if plan.home:
        return restore_error(restore(as_object(_encode_shape(error)), error, FAMILY), error)
    code = error.code if error.code in _ANSWER_CODES else TYPES[error.kind][1]
    if error.code is not None and error.code != code:
        plan.report.approximated(("error",), "code", "the target has few words for errors in an answer")
    said = {"code": code if code in _ANSWER_CODES else "server_error", "message": error.message}
    more = {"type": error.raw, "param": error.param}
    return restore_error(said | {name: value for name, value in more.items() if value is not None}, error)


def is_event(error: ApiError) -> bool:
    """Whether it was an event of its own, and no answer's error."""
    return _OWN in error.form and (_FLAT in error.form or not any(token in error.form for token in _UNNESTED))
