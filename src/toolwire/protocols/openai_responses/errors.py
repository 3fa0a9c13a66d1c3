"""Errors of the Responses API: HTTP error bodies, errors inside a response and `error` stream events."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.interface import EncodedBody
from toolwire.codec.losses import LossReport
from toolwire.codec.surface import STATUS_KINDS
from toolwire.codec.wire.extras import as_dict, collect_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json, escape_pointer
from toolwire.protocols.openai_responses.wire import ECHO_FAMILY, FAMILY, ErrorShape
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

CODE_KINDS: dict[str, ErrorKind] = {
    **ERROR_CODES,
    "previous_response_not_found": "not_found",
    "vector_store_timeout": "timeout",
}
TYPE_KINDS: dict[str, ErrorKind] = {**ERROR_KINDS, "invalid_request_error": "invalid_request", "server_error": "server"}
RESPONSES_ERROR_TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    **ERROR_TYPES,
    "server": ("server_error", "server_error"),
    "other": ("server_error", None),
}
# Error codes allowed inside a response: the SDK types accept no others.
_RESPONSE_CODES = (
    "server_error",
    "rate_limit_exceeded",
    "invalid_prompt",
    "data_residency_mismatch",
    "bio_policy",
    "misalignment_policy_violation",
    "vector_store_timeout",
)

_ERROR_FORM = "openai-responses:error"
_FLAT_FORM = "openai-responses:error:flat"
_TEXT_FORM = "openai-responses:error:text"
_DETAIL_FORM = "openai-responses:error:detail"
_DETAIL_JSON = "openai-responses:error:detail:json"
_NUMERIC_CODE = "openai-responses:error:number"
_NO_MESSAGE = "openai-responses:absent:message"
_FLAT_NAMES = tuple(
    f"openai-responses:name:{canonical}={wire}"
    for canonical, wire in (("message", "message"), ("raw", "type"), ("code", "code"), ("param", "param"))
)
_EVENT_FIELDS = ("type", "sequence_number", "status")

_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_read_error = Reader[ErrorShape](ErrorShape, FAMILY).read


# ---- decode


def decode_error(body: bytes, status: int | None) -> ApiError:
    """Decode an error body in any of its shapes: `error` object or text, `detail`, or flat fields."""
    members = dict(_read_object(body))
    error_field = members.get("error")
    body_extras = _body_extras(members)
    event_status = decode_json(members.get("status", b"null"))
    if status is None and isinstance(event_status, int) and not isinstance(event_status, bool):
        status = event_status
    if error_field is not None and bytes(error_field)[:1] == b"{":
        error = _decode_shape(_read_error(error_field, "/error"), status, (_ERROR_FORM,), prefix="error/")
        return _with_body_extras(error, body_extras)
    if error_field is not None and isinstance(text := decode_json(error_field), str):
        return _decode_text(text, status, body_extras, _TEXT_FORM, "error")
    if "detail" in members:
        detail = decode_json(members["detail"])
        if isinstance(detail, str):
            return _decode_text(detail, status, body_extras, _DETAIL_FORM, "detail")
        return _decode_text(str(members["detail"], "utf-8"), status, body_extras, _DETAIL_JSON, "detail")
    if "message" in members:
        error_fields = {name: raw for name, raw in members.items() if name not in _EVENT_FIELDS}
        shape = _read_error(msgspec.json.encode(error_fields))
        event_extras = {ECHO_FAMILY: {name: members[name] for name in _EVENT_FIELDS if name in members}}
        return _with_body_extras(_decode_shape(shape, status, (_ERROR_FORM, _FLAT_FORM, *_FLAT_NAMES)), event_extras)
    raise DecodeError(FAMILY, "/error", "an error", "nothing")


def _body_extras(members: dict[str, Raw]) -> dict[str, dict[str, Raw]]:
    """Return the extras, by family, in the fields of an error body next to the error itself."""
    unknown = {
        escape_pointer(name): raw for name, raw in members.items() if name not in (*_EVENT_FIELDS, "error", "detail")
    }
    echo = {name: members[name] for name in _EVENT_FIELDS if name in members}
    return ({FAMILY: unknown} if unknown else {}) | ({ECHO_FAMILY: echo} if echo else {})


def _with_body_extras(error: ApiError, body_extras: dict[str, dict[str, Raw]]) -> ApiError:
    """Return the error with the extras that were found next to it in the body."""
    if not any(body_extras.values()):
        return error
    extras = dict(error.extras or {})
    for family, fields in body_extras.items():
        extras[family] = {**extras.get(family, {}), **fields}
    return msgspec.structs.replace(error, extras=extras)


def _decode_text(text: str, status: int | None, body_extras: dict[str, Any], body_form: str, field: str) -> ApiError:
    """Build an error from a message string, which the body has in the field `field`.

    `body_extras` are extras from the other fields of the body. `body_form` is a wire-form token that records the kind
    of body, to encode the error in the same way.
    """
    wire_form = (_ERROR_FORM, body_form, f"openai-responses:name:message={field}")
    return ApiError(
        kind=_error_kind(None, None, status),
        message=text,
        status=status,
        extras=body_extras or None,
        wire_form=wire_form,
    )


def decode_failure(shape: ErrorShape) -> ApiError:
    """Decode the error inside a failed response."""
    return _decode_shape(shape, None, (_ERROR_FORM, *_FLAT_NAMES))


def _decode_shape(shape: ErrorShape, status: int | None, wire_form: tuple[str, ...], prefix: str = "") -> ApiError:
    """Decode an error object; `prefix` is its pointer in the body, `wire_form` records the kind of body."""
    code, raw = unset_to_none(shape.code), unset_to_none(shape.type)
    if isinstance(code, int):
        wire_form = (*wire_form, _NUMERIC_CODE)
        status = code if status is None and code in STATUS_KINDS else status
    if shape.message is UNSET:
        wire_form = (*wire_form, _NO_MESSAGE)
    if raw is not None:
        wire_form = (*wire_form, OPENAI_ERROR_FORM)
    return ApiError(
        kind=_error_kind(None if code is None else str(code), raw, status),
        message=shape.message or "",
        status=status,
        code=None if code is None else str(code),
        param=unset_to_none(shape.param),
        raw=raw,
        **move_shared_extras(collect_extras(shape, FAMILY, *wire_form, prefix=prefix), FAMILY, *MISALIGNMENT_FIELDS),
    )


def _error_kind(code: str | None, raw: str | None, status: int | None) -> ErrorKind:
    """Classify an error by code, then type, then HTTP status."""
    if code in CODE_KINDS:
        return CODE_KINDS[code]
    kind = TYPE_KINDS.get(raw or "")
    if kind is None or (kind == "invalid_request" and status in (401, 403, 404, 409, 413, 429)):
        return STATUS_KINDS.get(status or 0, kind or "other")
    return kind


# ---- encode


def encode_error(error: ApiError) -> EncodedBody:
    """Encode an error body; one that came from this API keeps its kind of body."""
    report = LossReport()
    body: dict[str, Any]
    if _TEXT_FORM in error.wire_form:
        body = {"error": error.message}
    elif _DETAIL_FORM in error.wire_form:
        body = {"detail": error.message}
    elif _DETAIL_JSON in error.wire_form:
        body = {"detail": Raw(error.message.encode())}
    elif _ERROR_FORM in error.wire_form:
        shape = _encode_shape(error)
        error_object = restore_error(as_dict(shape), error)
        body = error_object if _FLAT_FORM in error.wire_form else {"error": error_object}
    else:
        body = {"error": _encode_foreign_error(error, report)}
    restore_extras(body, error, FAMILY)
    restore_extras(body, error, ECHO_FAMILY)
    report.report_foreign_extras(error, (FAMILY, SHARED_FAMILY, ECHO_FAMILY))
    return EncodedBody(body, report)


def _encode_shape(error: ApiError) -> ErrorShape:
    """Encode the error object of an error that came from this API."""
    code: str | int | None = error.code
    if _NUMERIC_CODE in error.wire_form and error.code is not None:
        code = int(error.code)
    shape = ErrorShape(
        message=error.message, type=none_to_unset(error.raw), param=none_to_unset(error.param), code=none_to_unset(code)
    )
    if _NO_MESSAGE in error.wire_form and not error.message:
        shape.message = UNSET
    return shape


def _encode_foreign_error(error: ApiError, report: LossReport) -> dict[str, Any]:
    """Encode the error object of an error that came from another protocol."""
    if error.request_id is not None:
        report.dropped((), "request_id", "the target reports it in a header")
    kind, code = encode_error_type(error, RESPONSES_ERROR_TYPES, (), report)
    error_object = {"message": error.message, "type": kind, "param": error.param, "code": error.code or code}
    return dict(restore_error(error_object, error))


def encode_failure(error: ApiError, plan: EncodingPlan) -> Any:
    """Encode the error inside a failed response."""
    if plan.same_protocol:
        return restore_error(restore_extras(as_dict(_encode_shape(error)), error, FAMILY), error)
    code = error.code if error.code in _RESPONSE_CODES else RESPONSES_ERROR_TYPES[error.kind][1]
    if error.code is not None and error.code != code:
        plan.report.approximated(("error",), "code", "the target has no such error code in responses")
    error_object = {"code": code if code in _RESPONSE_CODES else "server_error", "message": error.message}
    details = {"type": error.raw, "param": error.param}
    return restore_error(error_object | {name: value for name, value in details.items() if value is not None}, error)


def is_error_event(error: ApiError) -> bool:
    """Return whether the error came as a separate stream event, not inside a response."""
    return _ERROR_FORM in error.wire_form and (
        _FLAT_FORM in error.wire_form or not any(token in error.wire_form for token in _FLAT_NAMES)
    )
