"""Decode and encode interactions, as responses, and the model list."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import ResponseStart
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_message_fields, report_stop
from toolwire.codec.encoding.hosted_tools import parse_json, report_hosted_counts
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.surface import ModelCard
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, decode_timestamp, encode_timestamp
from toolwire.protocols.gemini_interactions.errors import decode_failure, encode_failure
from toolwire.protocols.gemini_interactions.parts.content import StepPlan
from toolwire.protocols.gemini_interactions.parts.messages import decode_response_steps, encode_parts, encode_step
from toolwire.protocols.gemini_interactions.request import GOOGLE_PROTOCOLS, ID_AND_NAME_RULES
from toolwire.protocols.gemini_interactions.wire import FAMILY, ErrorShape, ResponseShape, UsageShape

CANONICAL_STOPS: dict[str, StopReason] = {
    "completed": "end_turn",
    "requires_action": "tool_use",
    "incomplete": "max_tokens",
    "requires_continuation": "continuation",
    "failed": "error",
    "cancelled": "cancelled",
    "budget_exceeded": "other",
}
RUNNING_STATUSES = ("queued", "in_progress")
FAILED_STATUSES = ("failed", "cancelled", "budget_exceeded")
WIRE_STOPS: dict[StopReason, str] = {
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
"""Statuses by stop reason. Clients look only for `completed`, so only successful stops map to it."""
_EXACT_STOPS = ("end_turn", "tool_use", "max_tokens", "cancelled", "error")

_NO_STEPS = "gemini-interactions:absent:steps"
_NO_OBJECT = "gemini-interactions:absent:object"
_CREATED_FORM = "gemini-interactions:created:"
_AGENT_NAME = "gemini-interactions:name:model=agent"
_THOUGHTS_FORM = "gemini-interactions:thoughts"
_HOSTED_COUNTS_FIELD = "grounding_tool_count"

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    shape = _read_response(body)
    if (
        shape.steps is UNSET
        and shape.status is UNSET
        and "status" not in (*(shape.unknown or ()), *(shape.nulls or ()))
    ):
        raise DecodeError(FAMILY, "/steps", "an array", "nothing")
    messages = () if shape.steps is UNSET else decode_response_steps(shape.steps, "/steps")
    return _assemble_response(shape, messages)


def _assemble_response(shape: ResponseShape, messages: tuple[Message, ...]) -> Response:
    """Build the canonical response from its wire object and messages."""
    stop = decode_stop(shape, messages)
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.id),
        model=unset_to_none(shape.agent if shape.model is UNSET else shape.model),
        created=decode_created(shape.created),
        candidates=(Candidate(messages=messages, stop=stop, at=""),) if messages or stop is not None else (),
        usage=None if shape.usage is UNSET else decode_usage(shape.usage),
        status=unset_to_none(shape.status),
        error=decode_errors(shape),
        **response_extras(shape),
    )


def response_extras(shape: ResponseShape) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a response."""
    form = [_NO_STEPS] if shape.steps is UNSET else []
    extras: dict[str, Any] = {}
    if shape.object is UNSET:
        form.append(_NO_OBJECT)
    elif shape.object != "interaction":
        extras["object"] = shape.object
    if shape.agent is not UNSET:
        if shape.model is UNSET:
            form.append(_AGENT_NAME)
        else:
            extras["agent"] = shape.agent
    if shape.created is not UNSET:
        if decode_created(shape.created) is None:
            extras["created"] = shape.created
        else:
            form.append(_CREATED_FORM + shape.created)
    if shape.errors is not UNSET:
        extras |= _error_extras(shape, shape.errors)
    extras_and_form = collect_extras(shape, FAMILY, *form)
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in extras.items()}
    return merge_extras(extras_and_form, {"extras": {FAMILY: raw}}) if raw else extras_and_form


def _error_extras(shape: ResponseShape, errors: list[ErrorShape]) -> dict[str, Any]:
    """Return, by pointer, the errors that the canonical error does not represent: all but the first, or all."""
    bodies = [{**as_dict(error), **(error.unknown or {}), **dict.fromkeys(error.nulls or ())} for error in errors]
    if decode_errors(shape) is None:
        return {"errors": bodies}
    return {f"errors/{index}": body for index, body in enumerate(bodies) if index}


def decode_errors(shape: ResponseShape) -> ApiError | None:
    """Decode the first error of a failed interaction; errors of a successful one are only notes."""
    if not shape.errors or shape.status not in FAILED_STATUSES:
        return None
    return decode_failure(shape.errors[0])


def decode_created(text: str | UnsetType) -> int | float | None:
    """Decode a creation time as seconds since the epoch; None if it is absent or unreadable."""
    return None if text is UNSET else decode_timestamp(text)


def decode_stop(shape: ResponseShape, messages: tuple[Message, ...]) -> Stop | None:
    """Decode the status of a finished interaction as a stop reason."""
    status = unset_to_none(shape.status)
    if status in RUNNING_STATUSES or (status is None and not messages):
        return None
    return status_stop(status, has_calls=any(is_open_call(part) for message in messages for part in message.parts))


def status_stop(status: str | None, *, has_calls: bool) -> Stop:
    """Convert a status to a stop; a completed response with open calls means `tool_use`."""
    reason = CANONICAL_STOPS.get(status or "completed", "other")
    return Stop(reason="tool_use" if reason == "end_turn" and has_calls else reason, raw=status)


def is_open_call(part: Any) -> bool:
    """Check for a call that the client must run."""
    return isinstance(part, ToolCall) and part.executor == "client"


def decode_usage(shape: UsageShape) -> Usage:
    """Decode token counts. The API counts thoughts separately; canonically they are part of the output."""
    output, thoughts = unset_to_none(shape.total_output_tokens), unset_to_none(shape.total_thought_tokens)
    counts_thoughts = output is not None and thoughts is not None
    extras, hosted_counts = _decode_hosted_counts(
        collect_extras(shape, FAMILY, *((_THOUGHTS_FORM,) if counts_thoughts else ()))
    )
    return Usage(
        input_tokens=unset_to_none(shape.total_input_tokens),
        output_tokens=output + thoughts if output is not None and thoughts is not None else output,
        cache_read=unset_to_none(shape.total_cached_tokens),
        reasoning=thoughts,
        tool_use=unset_to_none(shape.total_tool_use_tokens),
        total=unset_to_none(shape.total_tokens),
        **hosted_counts,
        **extras,
    )


def _decode_hosted_counts(extras_and_form: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the number of Google searches from the extras.

    Return the `extras` and `wire_form` arguments with the remaining counts, and the number as an argument of `Usage`.
    """
    extras: dict[str, Raw] = (extras_and_form.get("extras") or {}).get(FAMILY, {})
    counts = parse_json(extras[_HOSTED_COUNTS_FIELD]) if _HOSTED_COUNTS_FIELD in extras else None
    searches = (
        [index for index, count in enumerate(counts or ()) if _is_search_count(count)]
        if isinstance(counts, list)
        else []
    )
    if not isinstance(counts, list) or len(searches) != 1:
        return extras_and_form, {}
    (position,) = searches
    others = {f"{_HOSTED_COUNTS_FIELD}/{index}": count for index, count in enumerate(counts) if index != position}
    other_extras = {name: Raw(msgspec.json.encode(count)) for name, count in others.items()}
    form = (f"{FAMILY}:canonical:{_HOSTED_COUNTS_FIELD}", f"{FAMILY}:name:searches={_HOSTED_COUNTS_FIELD}/{position}")
    all_extras = {**extras_and_form["extras"], FAMILY: {**extras, **other_extras}}
    return {"extras": all_extras, "wire_form": (*extras_and_form.get("wire_form", ()), *form)}, {
        "searches": counts[position]["count"]
    }


def _is_search_count(count: Any) -> bool:
    """Check for a count of Google searches without other fields."""
    return (
        isinstance(count, dict)
        and count.keys() == {"type", "count"}
        and count["type"] == "google_search"
        and (isinstance(count["count"], int))
    )


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response; report as losses what the Interactions API cannot express."""
    plan = response_plan(response.origin, LossReport(), context)
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target returns a single candidate")
    steps: list[Any] = []
    for number, message in enumerate(candidate.messages):
        steps += _encode_message(message, number, plan)
    body = encode_start(response, plan, context)
    encode_status(response.status, candidate.stop, body, plan)
    if steps or not (plan.same_protocol and _NO_STEPS in response.wire_form):
        body["steps"] = steps
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage, plan)
    if response.error is not None:
        encode_errors(response.error, body, response, plan)
    restore_extras(body, response, FAMILY)
    if not plan.same_protocol:
        _report_response(response, plan)
    plan.report.report_foreign_extras(response, (FAMILY,))
    return EncodedBody(body, plan.report)


def response_plan(origin: str, report: LossReport, context: ResponseContext) -> StepPlan:
    """Create the encoding plan for a response to a client.

    `origin` is the protocol family of the provider's response. One from the same protocol keeps its spelling, and one
    from `generateContent` can keep Google's signatures.
    """
    return StepPlan(
        ID_AND_NAME_RULES,
        report,
        Target(),
        same_protocol=origin == FAMILY,
        for_client=True,
        from_gemini=origin in GOOGLE_PROTOCOLS,
    )


def _encode_message(message: Message, number: int, plan: StepPlan) -> list[Any]:
    """Encode the message at index `number` of a response as steps."""
    path = ("candidates", 0, "messages", number)
    located_parts = [LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)]
    if plan.same_protocol:
        return [encode_step(message, located_parts, plan)]
    report_message_fields(message, path, plan.report, "id", "name", "status", "phase")
    return encode_parts(located_parts, plan, is_output=True)


def encode_start(response: Response | ResponseStart, plan: StepPlan, context: ResponseContext) -> dict[str, Any]:
    """Encode the fields of a response that precede its steps."""
    body: dict[str, Any] = {}
    if response.id is not None:
        body["id"] = response.id
    extras = {} if response.extras is None else response.extras.get(FAMILY, {})
    if not plan.same_protocol or (_NO_OBJECT not in response.wire_form and "object" not in extras):
        body["object"] = "interaction"
    if response.model is not None:
        body["agent" if _AGENT_NAME in response.wire_form else "model"] = response.model
    created = response.created
    if created is None and not plan.same_protocol:
        created = context.created or None
    if created is not None:
        body["created"] = _encode_created(created, response.wire_form)
    if not plan.same_protocol and (previous_id := _previous_interaction_id(context)) is not None:
        body["previous_interaction_id"] = previous_id
    return body


def _previous_interaction_id(context: ResponseContext) -> str | None:
    """Return the id of the interaction that the client's request continues."""
    continuation = None if context.request is None else context.request.continuation
    return continuation.id if continuation is not None and continuation.kind == "interaction" else None


def _encode_created(created: float, wire_form: tuple[str, ...]) -> str:
    """Encode a creation time, spelled as in the source unless the time has changed."""
    for token in wire_form:
        if token.startswith(_CREATED_FORM) and decode_created(token[len(_CREATED_FORM) :]) == created:
            return token[len(_CREATED_FORM) :]
    return encode_timestamp(created)


def encode_status(status: str | None, stop: Stop | None, body: dict[str, Any], plan: StepPlan) -> None:
    """Write the status into `body`; for other protocols it is derived from the stop reason, unless they still run."""
    if plan.same_protocol:
        if status is not None:
            body["status"] = status
        return
    if stop is None:
        body["status"] = status if status in RUNNING_STATUSES else "completed"
        return
    body["status"] = WIRE_STOPS[stop.reason]
    path = ("candidates", 0, "stop")
    report_stop(stop, path, body["status"], plan.report, exact=_EXACT_STOPS, finished="completed")


def encode_usage(usage: Usage, plan: StepPlan) -> Any:
    """Encode token counts, with thoughts counted separately."""
    shape = UsageShape(
        total_input_tokens=none_to_unset(usage.input_tokens),
        total_output_tokens=none_to_unset(usage.output_tokens),
        total_thought_tokens=none_to_unset(usage.reasoning),
        total_cached_tokens=none_to_unset(usage.cache_read),
        total_tool_use_tokens=none_to_unset(usage.tool_use),
        total_tokens=none_to_unset(usage.total),
    )
    if (
        usage.output_tokens is not None
        and usage.reasoning is not None
        and (not plan.same_protocol or _THOUGHTS_FORM in usage.wire_form)
    ):
        shape.total_output_tokens = usage.output_tokens - usage.reasoning
    if not plan.same_protocol:
        if usage.total is None and usage.input_tokens is not None and usage.output_tokens is not None:
            shape.total_tokens = usage.input_tokens + usage.output_tokens
        if usage.cache_write:
            plan.report.dropped(("usage",), "cache_write")
        report_hosted_counts(usage, plan.report, "fetches")
        if usage.searches is not None:
            return {**as_dict(shape), _HOSTED_COUNTS_FIELD: [{"type": "google_search", "count": usage.searches}]}
    return restore_extras(as_dict(shape), usage, FAMILY)


def encode_errors(error: ApiError, body: dict[str, Any], node: Any, plan: StepPlan) -> None:
    """Write the error list of a failed interaction into `body`, with further errors from the extras of `node`."""
    extras = (node.extras or {}).get(FAMILY, {})
    further_errors = [extras[name] for name in sorted(extras, key=_error_index) if name.startswith("errors/")]
    body["errors"] = [encode_failure(error, plan), *further_errors]
    if not plan.same_protocol:
        body["status"] = "failed"


def _error_index(name: str) -> int:
    """Return the list index at the end of the pointer of an extra."""
    index = name.rpartition("/")[2]
    return int(index) if index.isdigit() else 0


def _report_response(response: Response, plan: StepPlan) -> None:
    """Report as losses the fields of another protocol's response that the Interactions API does not have."""
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id", "stored by another provider")


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    """Encode the model list."""
    return {"models": [encode_model(model) for model in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode one model of the list."""
    limits = {} if model.context is None else {"inputTokenLimit": model.context}
    return {"name": f"models/{model.id}", "version": "1", "displayName": model.id, **limits}
