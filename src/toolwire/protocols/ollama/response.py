"""Ollama's answers, to canonical and back.

The models on offer, as Ollama lists and shows them.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.hosted_tools import report_hosted_counts
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.surface import ModelCard
from toolwire.codec.wire.extras import (
    collect_extras,
    mark_extras_seen,
    merge_extras,
    restore_extras,
    track_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.ollama.errors import decode_error_value, encode_error_value
from toolwire.protocols.ollama.parts.messages import (
    NO_ROLE,
    ROLE_FORM,
    check_content,
    decode_content,
    encode_assistant,
    encode_same_protocol_message,
    report_message,
    restore_message,
    unused_fields,
)
from toolwire.protocols.ollama.request import ID_AND_NAME_RULES
from toolwire.protocols.ollama.wire import FAMILY, MessageShape, ResponseShape

CANONICAL_STOPS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens", "": "cancelled"}
WIRE_STOPS: dict[StopReason, str] = {"max_tokens": "length", "context_window": "length"}
CREATED_FORM = "ollama:created_at:"
NO_DONE = "ollama:absent:done"
_EXACT_STOPS = ("end_turn", "max_tokens", "tool_use")
# These are told by the reason, or by the error.
_STATUSES = ("completed", "incomplete", "failed")
_RFC_3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:Z|([+-])(\d\d):(\d\d))")

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    with track_extras() as extras:
        response = _decode_response(_read_response(body))
    return response if extras else replace(response, plain=True)


def _decode_response(shape: ResponseShape) -> Response:
    form: tuple[str, ...] = (NO_DONE,) if shape.done is not True and shape.done is not None else ()
    unfinished: dict[str, Any] = {}
    if shape.done is False:
        # Only a line of a stream says so.
        unfinished["extras"] = {FAMILY: {"done": Raw(b"false")}}
        mark_extras_seen()
    failed = shape.error is not UNSET and bytes(shape.error) != b"null"
    if shape.error is not UNSET and not failed:
        form = (*form, f"{FAMILY}:null:error")
    created, created_kept = decode_created(shape)
    message = None
    if isinstance(shape.message, MessageShape):
        message = _decode_message(shape.message)
    return Response(
        origin=FAMILY,
        model=unset_to_none(shape.model),
        created=created,
        candidates=_build_candidates(shape, message),
        usage=decode_usage(shape),
        error=decode_error_value(shape.error, None, at="/error") if failed and shape.error is not UNSET else None,
        **merge_extras(collect_extras(shape, FAMILY, *form), created_kept, unfinished),
    )


def _build_candidates(shape: ResponseShape, message: Message | None) -> tuple[Candidate, ...]:
    parts = () if message is None else message.parts
    stop = decode_stop(shape, has_calls=any(isinstance(part, ToolCall) for part in parts))
    if message is None and stop is None:
        return ()
    return (Candidate(messages=() if message is None else (message,), stop=stop, at=""),)


def _decode_message(shape: MessageShape) -> Message:
    form: tuple[str, ...] = ()
    if isinstance(shape.role, str):
        if shape.role.lower() != "assistant":
            raise DecodeError(FAMILY, "/message/role", "assistant", repr(shape.role))
        form = () if shape.role == "assistant" else (ROLE_FORM + shape.role,)
    else:
        form = (NO_ROLE,)
    check_content(shape, "/message")
    parts, empty = decode_content(shape, "/message", is_assistant=True)
    found = merge_extras(
        collect_extras(shape, FAMILY, *form, *empty), unused_fields(shape, ("tool_name", "tool_call_id"))
    )
    return Message(role="assistant", parts=parts, at="/message", **found)


def decode_stop(shape: ResponseShape, *, has_calls: bool) -> Stop | None:
    """The common word; the server has none of its own for calls."""
    if isinstance(shape.done_reason, str):
        meant = CANONICAL_STOPS.get(shape.done_reason, "other")
        return Stop(reason="tool_use" if has_calls and meant == "end_turn" else meant, raw=shape.done_reason)
    return Stop(reason="tool_use" if has_calls else "end_turn") if shape.done is True else None


def decode_usage(shape: ResponseShape) -> Usage | None:
    taken, given = unset_to_none(shape.prompt_eval_count), unset_to_none(shape.eval_count)
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def decode_created(shape: ResponseShape) -> tuple[float | None, dict[str, Any]]:
    """Seconds, and how the time was spelled; a time that we can't read is only kept."""
    text = shape.created_at
    if not isinstance(text, str):
        return None, {}
    seconds = parse_rfc3339(text)
    if seconds is None:
        return None, {"extras": {FAMILY: {"created_at": Raw(msgspec.json.encode(text))}}}
    return seconds, {"wire_form": (CREATED_FORM + text,)}


def parse_rfc3339(text: str) -> float | None:
    """Seconds since 1970 of a time as RFC 3339 writes it."""
    if (match := _RFC_3339.fullmatch(text)) is None:
        return None
    year, month, day, hour, minute, second = (int(number) for number in match.groups()[:6])
    if not 1 <= month <= 12:
        return None
    seconds = ((_days_since_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    if match[8] is not None:
        offset = (int(match[9]) * 60 + int(match[10])) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds + float(match[7]) if match[7] else seconds


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Days since 1970, counted in years that begin in March, so that the odd day comes last."""
    year -= month <= 2
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469


def format_rfc3339(seconds: float) -> str:
    """The time as RFC 3339 writes it, in whole seconds."""
    days, rest_of_day = divmod(int(seconds), 86400)
    era, of_era = divmod(days + 719468, 146097)
    years = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = years + era * 400 + (month <= 2)
    hour, rest_of_hour = divmod(rest_of_day, 3600)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{rest_of_hour // 60:02}:{rest_of_hour % 60:02}Z"


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    home = response.origin == FAMILY
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), Target(), same_protocol=home, for_client=True)
    candidate = response.candidates[0] if response.candidates else None
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target returns a single candidate")
    body: dict[str, Any] = {}
    if not home or response.model is not None:
        body["model"] = response.model or ""
    created = encode_created(response, context.created, same_protocol=home)
    if created is not None:
        body["created_at"] = created
    if not home or (candidate is not None and candidate.messages):
        body["message"] = _encode_message(candidate, plan)
    if NO_DONE not in response.wire_form and f"{FAMILY}:null:done" not in response.wire_form:
        body["done"] = True
    reason = encode_stop(None if candidate is None else candidate.stop, plan)
    if reason is not None:
        body["done_reason"] = reason
    encode_usage(response.usage, body, plan)
    if response.error is not None:
        body["error"] = encode_error_value(response.error, ("error",), plan.report)
    restore_extras(body, response, FAMILY)
    if not home:
        _report_response(response, plan)
    if not response.plain:
        plan.report.report_foreign_extras(response, (FAMILY,))
    return EncodedBody(body, plan.report)


def encode_created(response: Any, default: int, *, same_protocol: bool) -> str | None:
    """When a response, or the start of one, was made; as it was spelled, while that is still the time."""
    if same_protocol:
        for token in response.wire_form:
            if (
                token.startswith(CREATED_FORM)
                and parse_rfc3339(spelled := token.removeprefix(CREATED_FORM)) == response.created
            ):
                return str(spelled)
        return None if response.created is None else format_rfc3339(response.created)
    return format_rfc3339(default if response.created is None else response.created)


def _encode_message(candidate: Candidate | None, plan: EncodingPlan) -> dict[str, Any]:
    places: list[LocatedPart] = []
    messages = () if candidate is None else candidate.messages
    for index, message in enumerate(messages):
        trail: SourcePath = ("candidates", 0, "messages", index)
        places += [LocatedPart(part, (*trail, "parts", position)) for position, part in enumerate(message.parts)]
        if not plan.same_protocol:
            report_message(message, trail, plan)
    if plan.same_protocol and len(messages) == 1:
        return restore_message(encode_same_protocol_message("assistant", places, plan), messages[0])
    found = encode_assistant(places, plan)
    return found[0] if found else {"role": "assistant", "content": ""}


def encode_stop(stop: Stop | None, plan: EncodingPlan) -> str | None:
    if stop is None:
        return None if plan.same_protocol else "stop"
    if plan.same_protocol:
        return stop.raw
    reason = WIRE_STOPS.get(stop.reason, "stop")
    trail: SourcePath = ("candidates", 0, "stop")
    if stop.reason not in _EXACT_STOPS:
        plan.report.approximated(trail, "reason", f"{stop.raw or stop.reason} sent as {reason}")
    if stop.sequence is not None:
        plan.report.dropped(trail, "sequence")
    return reason


def encode_usage(usage: Usage | None, body: dict[str, Any], plan: EncodingPlan) -> None:
    if usage is None:
        return
    if usage.input_tokens is not None:
        body["prompt_eval_count"] = usage.input_tokens
    if usage.output_tokens is not None:
        body["eval_count"] = usage.output_tokens
    if plan.same_protocol:
        return
    for field in ("cache_read", "cache_write", "reasoning", "tool_use"):
        if getattr(usage, field):
            plan.report.dropped(("usage",), field)
    report_hosted_counts(usage, plan.report)
    if usage.total not in (None, (usage.input_tokens or 0) + (usage.output_tokens or 0)):
        plan.report.dropped(("usage",), "total", "the target does not report a total")


def _report_response(response: Response, plan: EncodingPlan) -> None:
    if response.id is not None:
        plan.report.dropped((), "id", "responses of the target have no id")
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id")
    if response.status is not None and response.status not in _STATUSES:
        plan.report.dropped((), "status")


_UNKNOWN_MODIFICATION = "1970-01-01T00:00:00Z"
_EMPTY_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": None,
    "parameter_size": "",
    "quantization_level": "",
}


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {
        "models": [
            {
                "name": one.id,
                "model": one.id,
                "modified_at": _UNKNOWN_MODIFICATION,
                "size": 0,
                "digest": "",
                "details": _EMPTY_DETAILS,
            }
            for one in models
        ]
    }


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _EMPTY_DETAILS,
        "model_info": {"general.architecture": "", "general.basename": model.id},
        "capabilities": ["completion", "tools", "thinking", "vision"],
        "modified_at": _UNKNOWN_MODIFICATION,
    }
