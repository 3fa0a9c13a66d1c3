"""Decode and encode Anthropic responses, and encode the list of models."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import ResponseStart
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_message_fields, report_stop
from toolwire.codec.encoding.hosted_tools import read_hosted_counts
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, derive_response_id
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.surface import ModelCard
from toolwire.codec.wire.extras import (
    collect_extras,
    extras_and_wire_form,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import JSON_ERRORS, Reader
from toolwire.protocols.anthropic.parts.content import decode_blocks, encode_parts
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CallerShape,
    ResponseShape,
    TextBlock,
    ToolUseBlock,
    UsageDetailsShape,
    UsageShape,
)

CANONICAL_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "paused",
    "compaction": "paused",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}
WIRE_STOPS: dict[StopReason, str] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "paused": "pause_turn",
    "refusal": "refusal",
    "filtered": "refusal",
    "context_window": "model_context_window_exceeded",
    "continuation": "pause_turn",
    "malformed_call": "end_turn",
    "cancelled": "end_turn",
    "error": "end_turn",
    "other": "end_turn",
}
NO_DETAILS = "anthropic:usage:no details"
_EXACT_STOPS = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "paused", "refusal", "context_window")

_HOSTED_COUNTS_FIELD = "server_tool_use"
_HOSTED_COUNTS = {
    "searches": f"{_HOSTED_COUNTS_FIELD}/web_search_requests",
    "fetches": f"{_HOSTED_COUNTS_FIELD}/web_fetch_requests",
}

_NULL_FIELDS = ("stop_details", "container")
_NULL_COUNTS = dict.fromkeys(
    (
        *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation"),
        *("output_tokens_details", "server_tool_use", "service_tier", "inference_geo"),
    )
)

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    return _decode_response(_read_response(body))


def _decode_response(shape: ResponseShape) -> Response:
    """Build the canonical response from its wire object."""
    for name, expected in (("type", "message"), ("role", "assistant")):
        if getattr(shape, name) not in (UNSET, expected):
            raise DecodeError(FAMILY, f"/{name}", expected, repr(getattr(shape, name)))
    message = Message(role="assistant", parts=decode_blocks(shape.content), at="")
    candidate = Candidate(messages=(message,), stop=decode_stop(shape.stop_reason, shape.stop_sequence), at="")
    wire_form = [f"anthropic:absent:{name}" for name in ("type", "role") if getattr(shape, name) is UNSET]
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.id),
        model=unset_to_none(shape.model),
        candidates=(candidate,),
        usage=None if shape.usage is UNSET else decode_usage(shape.usage),
        **collect_extras(shape, FAMILY, *wire_form),
    )


def decode_stop(reason: str | UnsetType | None, sequence: str | UnsetType | None) -> Stop | None:
    """Decode stop reason and stop sequence, None if neither is set."""
    if not isinstance(reason, str):
        return Stop(reason="stop_sequence", sequence=sequence) if isinstance(sequence, str) else None
    return Stop(reason=CANONICAL_STOPS.get(reason, "other"), raw=reason, sequence=unset_to_none(sequence))


def decode_usage(shape: UsageShape, *wire_form: str) -> Usage:
    """Decode token counts; the canonical input count includes cached tokens, Anthropic's excludes them."""
    read, write = unset_to_none(shape.cache_read_input_tokens), unset_to_none(shape.cache_creation_input_tokens)
    total = None
    if isinstance(shape.input_tokens, int):
        total = shape.input_tokens + (read or 0) + (write or 0)
    extras, form = extras_and_wire_form(shape, FAMILY)
    reasoning = None
    if isinstance(details := shape.output_tokens_details, UsageDetailsShape):
        reasoning = unset_to_none(details.thinking_tokens)
        if details.thinking_tokens is UNSET:
            form += (NO_DETAILS,)
        details_extras, form = extras_and_wire_form(details, FAMILY, form, "output_tokens_details/")
        extras = extras | details_extras if details_extras else extras
    counts: dict[str, int] = {}
    if _HOSTED_COUNTS_FIELD in extras:
        remaining, counts = read_hosted_counts({"extras": {FAMILY: extras}, "wire_form": form}, FAMILY, _HOSTED_COUNTS)
        extras, form = remaining["extras"][FAMILY], remaining["wire_form"]
    return Usage(
        input_tokens=total,
        output_tokens=shape.output_tokens if isinstance(shape.output_tokens, int) else None,
        cache_read=_count_or_none(shape.cache_read_input_tokens),
        cache_write=_count_or_none(shape.cache_creation_input_tokens),
        reasoning=reasoning,
        searches=counts.get("searches"),
        fetches=counts.get("fetches"),
        extras={FAMILY: extras} if extras else None,
        wire_form=form + wire_form,
    )


def _count_or_none(value: int | UnsetType | None) -> int | None:
    """Return the count, None if it is null or absent."""
    return value if isinstance(value, int) else None


class _BlockSummary(Struct):
    """The fields of a block that a call has."""

    type: str
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class _ResponseSummary(Struct):
    """The fields of a response that logs, metrics and checks of calls need."""

    type: Literal["message"]
    content: list[_BlockSummary]
    usage: UsageShape
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None


_decode_summary = msgspec.json.Decoder(_ResponseSummary).decode


def peek_response(body: bytes) -> Response | None:
    """Decode id, model, stop reason, calls and usage of a response; None if it is invalid.

    Calls have only their ids, names and arguments.
    """
    try:
        shape = _decode_summary(body)
        calls = [
            ToolCall(id=block.id, name=block.name or "", arguments=bytes(block.input).decode())
            for block in shape.content
            if block.type == "tool_use"
        ]
    except JSON_ERRORS:
        return None
    messages = (Message(role="assistant", parts=tuple(calls)),) if calls else ()
    candidate = Candidate(messages=messages, stop=decode_stop(shape.stop_reason, None))
    usage = decode_usage(shape.usage)
    return Response(origin=FAMILY, id=shape.id, model=shape.model, candidates=(candidate,), usage=usage)


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response for an Anthropic client."""
    same_protocol = response.origin == FAMILY
    report = LossReport()
    plan = EncodingPlan(ID_AND_NAME_RULES, report, Target(), same_protocol=same_protocol, for_client=True)
    body = _encode_response(response, context, plan)
    if not same_protocol:
        report_response(response, report)
    report.report_foreign_extras(response, (FAMILY,))
    return EncodedBody(body, report)


def _encode_response(response: Response, context: ResponseContext, plan: EncodingPlan) -> dict[str, Any]:
    """Encode a response with any content, where the fast path does not apply."""
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target returns a single candidate")
    content = encode_parts(locate_parts(candidate, plan), plan)
    body = encode_message_head(response, context, plan)
    body["content"] = content
    encode_stop(candidate.stop, body, plan, has_calls=ToolUseBlock in map(type, content))
    if response.usage is not None or not plan.same_protocol:
        body["usage"] = encode_usage(response.usage or Usage(), plan)
    restore_extras(restore_extras(body, response, FAMILY), candidate, FAMILY)
    if not plan.same_protocol:
        add_required_fields(body)
    return body


def encode_message_head(
    start: Response | ResponseStart, context: ResponseContext, plan: EncodingPlan
) -> dict[str, Any]:
    """Encode the fields of a message that precede its content: id, type, role and model."""
    head: dict[str, Any] = {}
    if not plan.same_protocol:
        head["id"] = message_id(start.id, context)
    elif start.id is not None:
        head["id"] = start.id
    if "anthropic:absent:type" not in start.wire_form:
        head["type"] = "message"
    if "anthropic:absent:role" not in start.wire_form:
        head["role"] = "assistant"
    if start.model is not None or not plan.same_protocol:
        head["model"] = start.model or ""
    return head


def add_required_fields(message: dict[str, Any]) -> None:
    """Add to an encoded message and its blocks the nullable fields that Anthropic's specification requires."""
    for name in _NULL_FIELDS:
        message.setdefault(name, None)
    message["usage"] = _NULL_COUNTS | message["usage"]
    for block in message["content"]:
        if type(block) is TextBlock and block.citations is UNSET:
            block.citations = []  # some clients reject null here
        elif type(block) is ToolUseBlock and block.caller is UNSET:
            block.caller = CallerShape("direct")


def locate_parts(candidate: Candidate, plan: EncodingPlan) -> list[LocatedPart]:
    """Return the parts of a candidate with their paths; report message fields that Anthropic lacks as losses."""
    located_parts: list[LocatedPart] = []
    for message_index, message in enumerate(candidate.messages):
        path: SourcePath = ("candidates", 0, "messages", message_index)
        located_parts += [LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)]
        if not plan.same_protocol:
            report_message_fields(message, path, plan.report, "id", "status", "phase")
    return located_parts


def message_id(id: str | None, context: ResponseContext) -> str:
    """Return the response id with the `msg_` prefix that clients expect; without an id, derive one from the request."""
    if id is not None and id.startswith("msg_"):
        return id
    return f"msg_{id or derive_response_id(context.request)}"


def encode_stop(stop: Stop | None, body: dict[str, Any], plan: EncodingPlan, *, has_calls: bool = False) -> None:
    """Write stop reason and stop sequence into `body`; with calls, another protocol's `end_turn` becomes `tool_use`."""
    if stop is None:
        if not plan.same_protocol:
            body["stop_reason"], body["stop_sequence"] = None, None
        return
    if stop.reason == "end_turn" and has_calls and not plan.same_protocol:
        body["stop_reason"] = "tool_use"  # with end_turn, the client would not answer the call
    elif not plan.same_protocol:
        body["stop_reason"] = WIRE_STOPS[stop.reason]
    elif stop.raw is not None:
        body["stop_reason"] = stop.raw
    if stop.sequence is not None or not plan.same_protocol:
        body["stop_sequence"] = stop.sequence
    if not plan.same_protocol:
        path, word = ("candidates", 0, "stop"), body["stop_reason"]
        report_stop(stop, path, word, plan.report, exact=_EXACT_STOPS, finished="end_turn", has_sequence=True)


def encode_usage(usage: Usage, plan: EncodingPlan) -> Any:
    """Encode token counts."""
    body: dict[str, Any] = {}
    if usage.input_tokens is not None:
        body["input_tokens"] = usage.input_tokens - (usage.cache_read or 0) - (usage.cache_write or 0)
    elif not plan.same_protocol:
        body["input_tokens"] = 0
    if usage.output_tokens is not None or not plan.same_protocol:
        body["output_tokens"] = usage.output_tokens or 0
    if usage.cache_write is not None:
        body["cache_creation_input_tokens"] = usage.cache_write
    if usage.cache_read is not None:
        body["cache_read_input_tokens"] = usage.cache_read
    if usage.reasoning is not None or NO_DETAILS in usage.wire_form:
        body["output_tokens_details"] = UsageDetailsShape(thinking_tokens=none_to_unset(usage.reasoning))
    restore_extras(body, usage, FAMILY)
    if not plan.same_protocol:
        _encode_hosted_counts(usage, body, plan)
    return body


def _encode_hosted_counts(usage: Usage, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `server_tool_use` into `body`, counting the hosted calls if the provider did not."""
    if not plan.hosted_uses and usage.searches is None and usage.fetches is None:
        return
    counts = {"web_search": usage.searches, "web_fetch": usage.fetches}
    body[_HOSTED_COUNTS_FIELD] = {
        f"{kind}_requests": plan.hosted_uses.get(kind, 0) if count is None else count for kind, count in counts.items()
    }


def report_response(response: Response, report: LossReport) -> None:
    """Report as losses the response fields that Anthropic lacks."""
    if response.error is not None:
        report.dropped(("error",), "", "the target reports errors outside the response")
    if response.status is not None and not any(candidate.stop for candidate in response.candidates):
        report.dropped((), "status")
    if response.created is not None:
        report.dropped((), "created")
    if response.continuation is not None and response.continuation.id is not None:
        report.dropped(("continuation",), "id")
    if response.usage is not None:
        report_usage(response.usage, report)


def report_usage(usage: Usage, report: LossReport) -> None:
    """Report as losses the token counts that Anthropic lacks."""
    if usage.tool_use is not None:
        report.dropped(("usage",), "tool_use")
    if usage.total not in (None, (usage.input_tokens or 0) + (usage.output_tokens or 0)):
        report.dropped(("usage",), "total", "the target does not report a total")


# The protocol requires a date, which other providers do not publish.
_UNKNOWN_CREATION = "1970-01-01T00:00:00Z"


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    """Encode the list of models for `GET /v1/models`."""
    return {
        "data": [encode_model(model) for model in models],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode one model of the list."""
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": _UNKNOWN_CREATION,
        "lifecycle": "active",
        **({} if model.context is None else {"max_input_tokens": model.context}),
    }
