"""The Interactions API's answers, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import ResponseStart
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.counts import drop_counts
from toolwire.codec.fields import Reader
from toolwire.codec.hosted import json_of
from toolwire.codec.interface import Context, Encoding, Target
from toolwire.codec.kept import as_object, given, joined, known, rest, restore, watching_extras
from toolwire.codec.losses import Report
from toolwire.codec.moments import decode_moment, encode_moment
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.parts.messages import decode_answers, encode_parts, encode_step
from toolwire.protocols.gemini_interactions.parts.plan import StepPlan
from toolwire.protocols.gemini_interactions.request.body import GOOGLE, RULES, is_call_id
from toolwire.protocols.gemini_interactions.wire import FAMILY, ResponseShape, UsageShape

from .errors import decode_failure, encode_failure

STOPS: dict[str, StopReason] = {
    "completed": "end_turn",
    "requires_action": "tool_use",
    "incomplete": "max_tokens",
    "requires_continuation": "continuation",
    "failed": "error",
    "cancelled": "cancelled",
    "budget_exceeded": "other",
}
RUNNING = ("queued", "in_progress")
FAILED = ("failed", "cancelled", "budget_exceeded")
STATES: dict[StopReason, str] = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "tool_use": "requires_action",
    "max_tokens": "incomplete",
    "context_window": "incomplete",
    "filtered": "incomplete",
    "paused": "incomplete",
    "continuation": "incomplete",
    "refusal": "incomplete",
    "malformed_call": "failed",
    "cancelled": "cancelled",
    "error": "failed",
    "other": "incomplete",
}
"""The status that tells a stop. Only what ended well is completed: clients look no further."""
_FAITHFUL = ("end_turn", "tool_use", "max_tokens", "cancelled", "error")

_NO_STEPS = "gemini-interactions:absent:steps"
_NO_OBJECT = "gemini-interactions:absent:object"
_CREATED = "gemini-interactions:created:"
_AGENT = "gemini-interactions:name:model=agent"
_SPLIT = "gemini-interactions:thoughts"
_COUNTS = "grounding_tool_count"

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    with watching_extras() as extras:
        shape = _read_response(body)
        if (
            shape.steps is UNSET
            and shape.status is UNSET
            and "status" not in (*(shape.unknown or ()), *(shape.nulls or ()))
        ):
            raise DecodeError(FAMILY, "/steps", "an array", "nothing")
        messages = () if shape.steps is UNSET else decode_answers(shape.steps, "/steps")
        response = _assembled(shape, messages)
    return response if extras else replace(response, plain=True)


def _assembled(shape: ResponseShape, messages: tuple[Message, ...]) -> Response:
    stop = decode_stop(shape, messages)
    return Response(
        origin=FAMILY,
        id=known(shape.id),
        model=known(shape.agent if shape.model is UNSET else shape.model),
        created=decode_created(shape.created),
        candidates=(Candidate(messages=messages, stop=stop, at=""),) if messages or stop is not None else (),
        usage=None if shape.usage is UNSET else decode_usage(shape.usage),
        status=known(shape.status),
        error=decode_errors(shape),
        **envelope(shape),
    )


def envelope(shape: ResponseShape) -> dict[str, Any]:
    """Extras and form of an answer."""
    form = [_NO_STEPS] if shape.steps is UNSET else []
    extras: dict[str, Any] = {}
    if shape.object is UNSET:
        form.append(_NO_OBJECT)
    elif shape.object != "interaction":
        extras["object"] = shape.object
    if shape.agent is not UNSET:
        if shape.model is UNSET:
            form.append(_AGENT)
        else:
            extras["agent"] = shape.agent
    if shape.created is not UNSET:
        if decode_created(shape.created) is None:
            extras["created"] = shape.created
        else:
            form.append(_CREATED + shape.created)
    if shape.errors is not UNSET:
        wire = [{**as_object(one), **(one.unknown or {}), **dict.fromkeys(one.nulls or ())} for one in shape.errors]
        if decode_errors(shape) is None:
            extras["errors"] = wire
        else:
            extras |= {f"errors/{index}": one for index, one in enumerate(wire) if index}
    kept = rest(shape, FAMILY, *form)
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in extras.items()}
    return joined(kept, {"extras": {FAMILY: raw}}) if raw else kept


def decode_errors(shape: ResponseShape) -> ApiError | None:
    """Why it failed. Of one that went well they are mere remarks."""
    if not shape.errors or shape.status not in FAILED:
        return None
    return decode_failure(shape.errors[0])


def decode_created(text: str | UnsetType) -> int | float | None:
    return None if text is UNSET else decode_moment(text)


def decode_stop(shape: ResponseShape, messages: tuple[Message, ...]) -> Stop | None:
    status = known(shape.status)
    if status in RUNNING or (status is None and not messages):
        return None
    return stop_of(status, calls=any(is_open_call(part) for message in messages for part in message.parts))


def stop_of(status: str | None, *, calls: bool) -> Stop:
    """Some answers with calls are called completed."""
    reason = STOPS.get(status or "completed", "other")
    return Stop(reason="tool_use" if reason == "end_turn" and calls else reason, raw=status)


def is_open_call(part: Any) -> bool:
    return isinstance(part, ToolCall) and part.executor == "client"


def decode_usage(shape: UsageShape) -> Usage:
    """Thoughts are counted apart from the output; canonically they are part of it."""
    output, thoughts = known(shape.total_output_tokens), known(shape.total_thought_tokens)
    split = output is not None and thoughts is not None
    kept, counts = _counted(rest(shape, FAMILY, *((_SPLIT,) if split else ())))
    return Usage(
        input_tokens=known(shape.total_input_tokens),
        output_tokens=output + thoughts if output is not None and thoughts is not None else output,
        cache_read=known(shape.total_cached_tokens),
        reasoning=thoughts,
        tool_use=known(shape.total_tool_use_tokens),
        total=known(shape.total_tokens),
        **counts,
        **kept,
    )


def _counted(kept: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """How often Google searched; what else it counts stays its own."""
    own: dict[str, Raw] = (kept.get("extras") or {}).get(FAMILY, {})
    counts = json_of(own[_COUNTS]) if _COUNTS in own else None
    searches = [index for index, one in enumerate(counts or ()) if _is_search(one)] if isinstance(counts, list) else []
    if not isinstance(counts, list) or len(searches) != 1:
        return kept, {}
    (place,) = searches
    others = {f"{_COUNTS}/{index}": one for index, one in enumerate(counts) if index != place}
    more = {name: Raw(msgspec.json.encode(one)) for name, one in others.items()}
    form = (f"{FAMILY}:told:{_COUNTS}", f"{FAMILY}:name:searches={_COUNTS}/{place}")
    extras = {**kept["extras"], FAMILY: {**own, **more}}
    return {"extras": extras, "form": (*kept.get("form", ()), *form)}, {"searches": counts[place]["count"]}


def _is_search(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() == {"type", "count"}
        and one["type"] == "google_search"
        and (isinstance(one["count"], int))
    )


# ---- encode


def encode_response(response: Response, context: Context) -> Encoding:
    plan = answer_plan(response.origin, Report(), context)
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target has one answer only")
    steps: list[Any] = []
    for number, message in enumerate(candidate.messages):
        steps += _encode_message(message, number, plan)
    body = start_body(response, plan, context)
    encode_status(response.status, candidate.stop, body, plan)
    if steps or not (plan.home and _NO_STEPS in response.form):
        body["steps"] = steps
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage, plan)
    if response.error is not None:
        encode_errors(response.error, body, response, plan)
    restore(body, response, FAMILY)
    if not plan.home:
        _report_response(response, plan)
    if not response.plain:
        plan.report.unclaimed(response, (FAMILY,))
    return Encoding(body, plan.report)


def answer_plan(origin: str, report: Report, context: Context) -> StepPlan:
    return StepPlan(RULES, report, Target(), home=origin == FAMILY, answering=True, google=origin in GOOGLE)


def _encode_message(message: Message, number: int, plan: StepPlan) -> list[Any]:
    trail = ("candidates", 0, "messages", number)
    places = [Placed(part, (*trail, "parts", index)) for index, part in enumerate(message.parts)]
    if plan.home:
        return [encode_step(message, places, plan)]
    for field in ("id", "name", "status", "phase"):
        if getattr(message, field) is not None and not (field == "id" and is_call_id(message)):
            plan.report.dropped(trail, field)
    return encode_parts(places, plan, spoken=True)


def start_body(answer: Response | ResponseStart, plan: StepPlan, context: Context) -> dict[str, Any]:
    """The envelope of an answer."""
    body: dict[str, Any] = {}
    if answer.id is not None:
        body["id"] = answer.id
    own = {} if answer.extras is None else answer.extras.get(FAMILY, {})
    if not plan.home or (_NO_OBJECT not in answer.form and "object" not in own):
        body["object"] = "interaction"
    if answer.model is not None:
        body["agent" if _AGENT in answer.form else "model"] = answer.model
    created = answer.created
    if created is None and not plan.home and context.created:
        created = context.created
    if created is not None:
        body["created"] = _encode_created(created, answer.form)
    held = None if plan.home or context.request is None else context.request.continuation
    if held is not None and held.kind == "interaction":
        body["previous_interaction_id"] = held.id
    return body


def _encode_created(created: float, form: tuple[str, ...]) -> str:
    for token in form:
        if token.startswith(_CREATED) and decode_created(token[len(_CREATED) :]) == created:
            return token[len(_CREATED) :]
    return encode_moment(created)


def encode_status(status: str | None, stop: Stop | None, body: dict[str, Any], plan: StepPlan) -> None:
    if plan.home:
        if status is not None:
            body["status"] = status
        return
    reason: StopReason = "end_turn" if stop is None else stop.reason
    body["status"] = STATES[reason]
    if stop is None:
        return
    if stop.reason not in _FAITHFUL:
        why = f"{stop.raw or stop.reason} is told as {body['status']}"
        plan.report.approximated(("candidates", 0, "stop"), "reason", why)
    if stop.sequence is not None:
        plan.report.dropped(("candidates", 0, "stop"), "sequence")


def encode_usage(usage: Usage, plan: StepPlan) -> Any:
    shape = UsageShape(
        total_input_tokens=given(usage.input_tokens),
        total_output_tokens=given(usage.output_tokens),
        total_thought_tokens=given(usage.reasoning),
        total_cached_tokens=given(usage.cache_read),
        total_tool_use_tokens=given(usage.tool_use),
        total_tokens=given(usage.total),
    )
    if usage.output_tokens is not None and usage.reasoning is not None and (not plan.home or _SPLIT in usage.form):
        shape.total_output_tokens = usage.output_tokens - usage.reasoning
    if not plan.home:
        if usage.total is None and usage.input_tokens is not None and usage.output_tokens is not None:
            shape.total_tokens = usage.input_tokens + usage.output_tokens
        if usage.cache_write:
            plan.report.dropped(("usage",), "cache_write")
        drop_counts(usage, plan.report, "fetches")
        if usage.searches is not None:
            return {**as_object(shape), _COUNTS: [{"type": "google_search", "count": usage.searches}]}
    return restore(as_object(shape), usage, FAMILY)


def encode_errors(error: ApiError, body: dict[str, Any], node: Any, plan: StepPlan) -> None:
    others = (node.extras or {}).get(FAMILY, {})
    more = [others[name] for name in sorted(others, key=_place) if name.startswith("errors/")]
    body["errors"] = [encode_failure(error, plan), *more]
    if not plan.home:
        body["status"] = "failed"


def _place(name: str) -> int:
    number = name.rpartition("/")[2]
    return int(number) if number.isdigit() else 0


def _report_response(response: Response, plan: StepPlan) -> None:
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id", "what another provider holds")
