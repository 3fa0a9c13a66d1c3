"""Ollama's answers, to canonical and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.counts import drop_counts
from toolwire.codec.fields import Reader
from toolwire.codec.interface import Context, Encoding, Target
from toolwire.codec.kept import joined, known, note_extras, rest, restore, watching_extras
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.ollama.parts.messages import (
    NO_ROLE,
    ROLE,
    check_content,
    decode_said,
    encode_assistant,
    encode_own,
    finish_own,
    report_message,
    unplaced,
)
from toolwire.protocols.ollama.request.body import RULES
from toolwire.protocols.ollama.wire import FAMILY, AnswerShape, MessageShape

from .errors import decode_error_value, encode_error_value

STOPS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens", "": "cancelled"}
REASONS: dict[StopReason, str] = {"max_tokens": "length", "context_window": "length"}
CREATED = "ollama:created_at:"
NO_DONE = "ollama:absent:done"
_FAITHFUL = ("end_turn", "max_tokens", "tool_use")
# These are told by the reason, or by the error.
_STATUSES = ("completed", "incomplete", "failed")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:Z|([+-])(\d\d):(\d\d))")

_read = Reader[AnswerShape](AnswerShape, FAMILY).read


# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    with watching_extras() as extras:
        response = _decode_response(_read(body))
    return response if extras else replace(response, plain=True)


def _decode_response(shape: AnswerShape) -> Response:
    form: tuple[str, ...] = (NO_DONE,) if shape.done is not True and shape.done is not None else ()
    unfinished: dict[str, Any] = {}
    if shape.done is False:
        # Only a line of a stream says so.
        unfinished["extras"] = {FAMILY: {"done": Raw(b"false")}}
        note_extras()
    failed = shape.error is not UNSET and bytes(shape.error) != b"null"
    if shape.error is not UNSET and not failed:
        form = (*form, f"{FAMILY}:null:error")
    created, created_kept = decode_created(shape)
    message = None
    if isinstance(shape.message, MessageShape):
        message = _decode_message(shape.message)
    return Response(
        origin=FAMILY,
        model=known(shape.model),
        created=created,
        candidates=_candidates(shape, message),
        usage=decode_usage(shape),
        error=decode_error_value(shape.error, None, at="/error") if failed and shape.error is not UNSET else None,
        **joined(rest(shape, FAMILY, *form), created_kept, unfinished),
    )


def _candidates(shape: AnswerShape, message: Message | None) -> tuple[Candidate, ...]:
    parts = () if message is None else message.parts
    stop = decode_stop(shape, calls=any(isinstance(part, ToolCall) for part in parts))
    if message is None and stop is None:
        return ()
    return (Candidate(messages=() if message is None else (message,), stop=stop, at=""),)


def _decode_message(shape: MessageShape) -> Message:
    form: tuple[str, ...] = ()
    if isinstance(shape.role, str):
        if shape.role.lower() != "assistant":
            raise DecodeError(FAMILY, "/message/role", "assistant", repr(shape.role))
        form = () if shape.role == "assistant" else (ROLE + shape.role,)
    else:
        form = (NO_ROLE,)
    check_content(shape, "/message")
    parts, empty = decode_said(shape, "/message", speaks=True)
    found = joined(rest(shape, FAMILY, *form, *empty), unplaced(shape, ("tool_name", "tool_call_id")))
    return Message(role="assistant", parts=parts, at="/message", **found)


def decode_stop(shape: AnswerShape, *, calls: bool) -> Stop | None:
    """The common word; the server has none of its own for calls."""
    if isinstance(shape.done_reason, str):
        meant = STOPS.get(shape.done_reason, "other")
        return Stop(reason="tool_use" if calls and meant == "end_turn" else meant, raw=shape.done_reason)
    return Stop(reason="tool_use" if calls else "end_turn") if shape.done is True else None


def decode_usage(shape: AnswerShape) -> Usage | None:
    taken, given = known(shape.prompt_eval_count), known(shape.eval_count)
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def decode_created(shape: AnswerShape) -> tuple[float | None, dict[str, Any]]:
    """Seconds, and how the time was spelled; a time that we can't read is only kept."""
    text = shape.created_at
    if not isinstance(text, str):
        return None, {}
    seconds = seconds_of(text)
    if seconds is None:
        return None, {"extras": {FAMILY: {"created_at": Raw(msgspec.json.encode(text))}}}
    return seconds, {"form": (CREATED + text,)}


def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of a time as RFC 3339 writes it."""
    if (match := _TIME.fullmatch(text)) is None:
        return None
    year, month, day, hour, minute, second = (int(number) for number in match.groups()[:6])
    if not 1 <= month <= 12:
        return None
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    if match[8] is not None:
        offset = (int(match[9]) * 60 + int(match[10])) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds + float(match[7]) if match[7] else seconds


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970, counted in years that begin in March, so that the odd day comes last."""
    year -= month <= 2
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469


def time_of(seconds: float) -> str:
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


def encode_response(response: Response, context: Context) -> Encoding:
    home = response.origin == FAMILY
    plan = Plan(RULES, Report(), Target(), home=home, answering=True)
    candidate = response.candidates[0] if response.candidates else None
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target has one answer only")
    body: dict[str, Any] = {}
    if not home or response.model is not None:
        body["model"] = response.model or ""
    created = encode_created(response, context.created, home=home)
    if created is not None:
        body["created_at"] = created
    if not home or (candidate is not None and candidate.messages):
        body["message"] = _encode_message(candidate, plan)
    if NO_DONE not in response.form and f"{FAMILY}:null:done" not in response.form:
        body["done"] = True
    reason = encode_stop(None if candidate is None else candidate.stop, plan)
    if reason is not None:
        body["done_reason"] = reason
    encode_usage(response.usage, body, plan)
    if response.error is not None:
        body["error"] = encode_error_value(response.error, ("error",), plan.report)
    restore(body, response, FAMILY)
    if not home:
        _report_response(response, plan)
    if not response.plain:
        plan.report.unclaimed(response, (FAMILY,))
    return Encoding(body, plan.report)


def encode_created(response: Any, otherwise: int, *, home: bool) -> str | None:
    """When a response, or the start of one, was made; as it was spelled, while that is still the time."""
    if home:
        for token in response.form:
            if token.startswith(CREATED) and seconds_of(spelled := token.removeprefix(CREATED)) == response.created:
                return str(spelled)
        return None if response.created is None else time_of(response.created)
    return time_of(otherwise if response.created is None else response.created)


def _encode_message(candidate: Candidate | None, plan: Plan) -> dict[str, Any]:
    places: list[Placed] = []
    messages = () if candidate is None else candidate.messages
    for index, message in enumerate(messages):
        trail: Trail = ("candidates", 0, "messages", index)
        places += [Placed(part, (*trail, "parts", position)) for position, part in enumerate(message.parts)]
        if not plan.home:
            report_message(message, trail, plan)
    if plan.home and len(messages) == 1:
        return finish_own(encode_own("assistant", places, plan), messages[0])
    found = encode_assistant(places, plan)
    return found[0] if found else {"role": "assistant", "content": ""}


def encode_stop(stop: Stop | None, plan: Plan) -> str | None:
    if stop is None:
        return None if plan.home else "stop"
    if plan.home:
        return stop.raw
    reason = REASONS.get(stop.reason, "stop")
    trail: Trail = ("candidates", 0, "stop")
    if stop.reason not in _FAITHFUL:
        plan.report.approximated(trail, "reason", f"{stop.raw or stop.reason} is told as {reason}")
    if stop.sequence is not None:
        plan.report.dropped(trail, "sequence")
    return reason


def encode_usage(usage: Usage | None, body: dict[str, Any], plan: Plan) -> None:
    if usage is None:
        return
    if usage.input_tokens is not None:
        body["prompt_eval_count"] = usage.input_tokens
    if usage.output_tokens is not None:
        body["eval_count"] = usage.output_tokens
    if plan.home:
        return
    for field in ("cache_read", "cache_write", "reasoning", "tool_use"):
        if getattr(usage, field):
            plan.report.dropped(("usage",), field)
    drop_counts(usage, plan.report)
    if usage.total not in (None, (usage.input_tokens or 0) + (usage.output_tokens or 0)):
        plan.report.dropped(("usage",), "total", "the target has no total of its own")


def _report_response(response: Response, plan: Plan) -> None:
    if response.id is not None:
        plan.report.dropped((), "id", "the target's answers have no id")
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id")
    if response.status is not None and response.status not in _STATUSES:
        plan.report.dropped((), "status")
