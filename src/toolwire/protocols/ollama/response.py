"""Decode and encode chat responses, their timestamps, and the model list."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_stop
from toolwire.codec.encoding.hosted_tools import report_hosted_counts
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.surface import ModelCard
from toolwire.codec.wire.extras import (
    collect_extras,
    merge_extras,
    restore_extras,
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
# Statuses that the done reason or the error already expresses.
_STATUSES = ("completed", "incomplete", "failed")
_RFC_3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:Z|([+-])(\d\d):(\d\d))")

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    return _decode_response(_read_response(body))


def _decode_response(shape: ResponseShape) -> Response:
    """Build the canonical response from its wire object."""
    form: tuple[str, ...] = (NO_DONE,) if shape.done is not True and shape.done is not None else ()
    unfinished: dict[str, Any] = {}
    if shape.done is False:
        # Only lines of a stream have `done: false`.
        unfinished["extras"] = {FAMILY: {"done": Raw(b"false")}}
    has_error = shape.error is not UNSET and bytes(shape.error) != b"null"
    if shape.error is not UNSET and not has_error:
        form = (*form, f"{FAMILY}:null:error")
    created, created_extras = decode_created(shape)
    message = None
    if isinstance(shape.message, MessageShape):
        message = _decode_message(shape.message)
    return Response(
        origin=FAMILY,
        model=unset_to_none(shape.model),
        created=created,
        candidates=_build_candidates(shape, message),
        usage=decode_usage(shape),
        error=decode_error_value(shape.error, None, at="/error") if has_error and shape.error is not UNSET else None,
        **merge_extras(collect_extras(shape, FAMILY, *form), created_extras, unfinished),
    )


def _build_candidates(shape: ResponseShape, message: Message | None) -> tuple[Candidate, ...]:
    """Build the only candidate, or none if there is neither message nor stop."""
    parts = () if message is None else message.parts
    stop = decode_stop(shape, has_calls=any(isinstance(part, ToolCall) for part in parts))
    if message is None and stop is None:
        return ()
    return (Candidate(messages=() if message is None else (message,), stop=stop, at=""),)


def _decode_message(shape: MessageShape) -> Message:
    """Decode the assistant message of a response."""
    form: tuple[str, ...] = ()
    if isinstance(shape.role, str):
        if shape.role.lower() != "assistant":
            raise DecodeError(FAMILY, "/message/role", "assistant", repr(shape.role))
        form = () if shape.role == "assistant" else (ROLE_FORM + shape.role,)
    else:
        form = (NO_ROLE,)
    check_content(shape, "/message")
    parts, empty_form = decode_content(shape, "/message", is_assistant=True)
    extras = merge_extras(
        collect_extras(shape, FAMILY, *form, *empty_form), unused_fields(shape, ("tool_name", "tool_call_id"))
    )
    return Message(role="assistant", parts=parts, at="/message", **extras)


def decode_stop(shape: ResponseShape, *, has_calls: bool) -> Stop | None:
    """Decode the done reason; `stop` with calls means `tool_use`, for which Ollama has no value."""
    if isinstance(shape.done_reason, str):
        reason = CANONICAL_STOPS.get(shape.done_reason, "other")
        return Stop(reason="tool_use" if has_calls and reason == "end_turn" else reason, raw=shape.done_reason)
    return Stop(reason="tool_use" if has_calls else "end_turn") if shape.done is True else None


def decode_usage(shape: ResponseShape) -> Usage | None:
    """Decode token counts."""
    input_tokens, output_tokens = unset_to_none(shape.prompt_eval_count), unset_to_none(shape.eval_count)
    return (
        None
        if input_tokens is None and output_tokens is None
        else Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    )


def decode_created(shape: ResponseShape) -> tuple[float | None, dict[str, Any]]:
    """Decode the creation time; return it, and arguments that keep its spelling or an unreadable value."""
    text = shape.created_at
    if not isinstance(text, str):
        return None, {}
    seconds = parse_rfc3339(text)
    if seconds is None:
        return None, {"extras": {FAMILY: {"created_at": Raw(msgspec.json.encode(text))}}}
    return seconds, {"wire_form": (CREATED_FORM + text,)}


def parse_rfc3339(text: str) -> float | None:
    """Parse an RFC 3339 timestamp as seconds since the epoch; return None if it is invalid."""
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
    """Count days from 1970-01-01 to a date, in years that begin in March so that the leap day is last."""
    year -= month <= 2
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469


def format_rfc3339(seconds: float) -> str:
    """Format seconds since the epoch as an RFC 3339 timestamp in whole seconds."""
    days, second_of_day = divmod(int(seconds), 86400)
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = year_of_era + era * 400 + (month <= 2)
    hour, second_of_hour = divmod(second_of_day, 3600)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{second_of_hour // 60:02}:{second_of_hour % 60:02}Z"


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response; report as losses what Ollama cannot express."""
    same_protocol = response.origin == FAMILY
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), Target(), same_protocol=same_protocol, for_client=True)
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target returns a single candidate")
    body: dict[str, Any] = {}
    if not same_protocol or response.model is not None:
        body["model"] = response.model or ""
    created = encode_created(response, context.created, same_protocol=same_protocol)
    if created is not None:
        body["created_at"] = created
    if not same_protocol or candidate.messages:
        body["message"] = _encode_message(candidate, plan)
    if NO_DONE not in response.wire_form and f"{FAMILY}:null:done" not in response.wire_form:
        body["done"] = True
    reason = encode_stop(candidate.stop, plan)
    if reason is not None:
        body["done_reason"] = reason
    encode_usage(response.usage, body, plan)
    if response.error is not None:
        body["error"] = encode_error_value(response.error, ("error",), plan.report)
    restore_extras(body, response, FAMILY)
    if not same_protocol:
        _report_response(response, plan)
    plan.report.report_foreign_extras(response, (FAMILY,))
    return EncodedBody(body, plan.report)


def encode_created(response: Any, default: int, *, same_protocol: bool) -> str | None:
    """Encode the creation time, spelled as in the source unless the time has changed."""
    if same_protocol:
        for token in response.wire_form:
            if (
                token.startswith(CREATED_FORM)
                and parse_rfc3339(text := token.removeprefix(CREATED_FORM)) == response.created
            ):
                return str(text)
        return None if response.created is None else format_rfc3339(response.created)
    return format_rfc3339(default if response.created is None else response.created)


def _encode_message(candidate: Candidate, plan: EncodingPlan) -> dict[str, Any]:
    """Encode all messages of a candidate as one message."""
    located_parts: list[LocatedPart] = []
    messages = candidate.messages
    for index, message in enumerate(messages):
        path: SourcePath = ("candidates", 0, "messages", index)
        located_parts += [LocatedPart(part, (*path, "parts", position)) for position, part in enumerate(message.parts)]
        if not plan.same_protocol:
            report_message(message, path, plan)
    if plan.same_protocol and len(messages) == 1:
        return restore_message(encode_same_protocol_message("assistant", located_parts, plan), messages[0])
    encoded = encode_assistant(located_parts, plan)
    return encoded[0] if encoded else {"role": "assistant", "content": ""}


def encode_stop(stop: Stop | None, plan: EncodingPlan) -> str | None:
    """Encode a stop reason as `done_reason`."""
    if stop is None:
        return None if plan.same_protocol else "stop"
    if plan.same_protocol:
        return stop.raw
    reason = WIRE_STOPS.get(stop.reason, "stop")
    path: SourcePath = ("candidates", 0, "stop")
    report_stop(stop, path, reason, plan.report, exact=_EXACT_STOPS, finished="stop")
    return reason


def encode_usage(usage: Usage | None, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write token counts into `body`; report as losses the counts that Ollama does not have."""
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
    """Report as losses the fields of another protocol's response that Ollama does not have."""
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
    """Encode the model list (`/api/tags`)."""
    return {
        "models": [
            {
                "name": model.id,
                "model": model.id,
                "modified_at": _UNKNOWN_MODIFICATION,
                "size": 0,
                "digest": "",
                "details": _EMPTY_DETAILS,
            }
            for model in models
        ]
    }


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode the details of one model (`/api/show`)."""
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _EMPTY_DETAILS,
        "model_info": {
            "general.architecture": "toolwire",
            "general.basename": model.id,
            **({} if model.context is None else {"toolwire.context_length": model.context}),
        },
        "capabilities": ["completion", *(["tools"] if model.tool_calling else []), "thinking", "vision"],
        "modified_at": _UNKNOWN_MODIFICATION,
    }
