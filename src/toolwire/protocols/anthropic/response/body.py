"""Anthropic's answers and errors, to canonical and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.counts import read_counts
from toolwire.codec.fields import BAD_JSON, Reader
from toolwire.codec.ids import made_answer_id
from toolwire.codec.interface import Context, Encoding, Target
from toolwire.codec.kept import given, known, left, rest, restore, watching_extras
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.anthropic.parts.content import decode_blocks, encode_parts
from toolwire.protocols.anthropic.parts.messages import is_call_id
from toolwire.protocols.anthropic.request.body import RULES
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CallerShape,
    ResponseShape,
    TextBlock,
    ToolUseBlock,
    UsageDetailsShape,
    UsageShape,
)

from .ordinary import encode_ordinary

STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "paused",
    "compaction": "paused",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}
REASONS: dict[StopReason, str] = {
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
_FAITHFUL = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "paused", "refusal", "context_window")


_COUNTED = "server_tool_use"
_COUNTS = {"searches": f"{_COUNTED}/web_search_requests", "fetches": f"{_COUNTED}/web_fetch_requests"}

_NULLS = ("stop_details", "container")
_NO_COUNTS = dict.fromkeys(
    (
        *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation"),
        *("output_tokens_details", "server_tool_use", "service_tier", "inference_geo"),
    )
)

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    with watching_extras() as extras:
        response = _decode_response(_read_response(body))
    return response if extras else replace(response, plain=True)


def _decode_response(shape: ResponseShape) -> Response:
    for name, word in (("type", "message"), ("role", "assistant")):
        if getattr(shape, name) not in (UNSET, word):
            raise DecodeError(FAMILY, f"/{name}", word, repr(getattr(shape, name)))
    message = Message(role="assistant", parts=decode_blocks(shape.content), at="")
    candidate = Candidate(messages=(message,), stop=decode_stop(shape.stop_reason, shape.stop_sequence), at="")
    envelope = [f"anthropic:absent:{name}" for name in ("type", "role") if getattr(shape, name) is UNSET]
    return Response(
        origin=FAMILY,
        id=known(shape.id),
        model=known(shape.model),
        candidates=(candidate,),
        usage=None if shape.usage is UNSET else decode_usage(shape.usage),
        **rest(shape, FAMILY, *envelope),
    )


def decode_stop(reason: str | UnsetType | None, sequence: str | UnsetType | None) -> Stop | None:
    if not isinstance(reason, str):
        return Stop(reason="stop_sequence", sequence=sequence) if isinstance(sequence, str) else None
    return Stop(reason=STOPS.get(reason, "other"), raw=reason, sequence=known(sequence))


def decode_usage(shape: UsageShape, *more: str) -> Usage:
    """Anthropic counts what a cache gave or took apart from the input; canonically it is part of it."""
    read, write = known(shape.cache_read_input_tokens), known(shape.cache_creation_input_tokens)
    total = None
    if isinstance(shape.input_tokens, int):
        total = shape.input_tokens + (read or 0) + (write or 0)
    own, form = left(shape, FAMILY)
    reasoning = None
    if isinstance(details := shape.output_tokens_details, UsageDetailsShape):
        reasoning = known(details.thinking_tokens)
        if details.thinking_tokens is UNSET:
            form += (NO_DETAILS,)
        inner, form = left(details, FAMILY, form, "output_tokens_details/")
        own = own | inner if inner else own
    counts: dict[str, int] = {}
    if _COUNTED in own:
        found, counts = read_counts({"extras": {FAMILY: own}, "form": form}, FAMILY, _COUNTS)
        own, form = found["extras"][FAMILY], found["form"]
    return Usage(
        input_tokens=total,
        output_tokens=shape.output_tokens if isinstance(shape.output_tokens, int) else None,
        cache_read=_count(shape.cache_read_input_tokens),
        cache_write=_count(shape.cache_creation_input_tokens),
        reasoning=reasoning,
        searches=counts.get("searches"),
        fetches=counts.get("fetches"),
        extras={FAMILY: own} if own else None,
        form=form + more,
    )


def _count(value: int | UnsetType | None) -> int | None:
    return value if isinstance(value, int) else None


class _Ordinary(Struct):
    type: Literal["message"]
    content: list[Raw]
    usage: UsageShape
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None


_read_ordinary = msgspec.json.Decoder(_Ordinary).decode


def glance(body: bytes) -> Response | None:
    try:
        shape = _read_ordinary(body)
    except BAD_JSON:
        return None
    stops = (Candidate(stop=decode_stop(shape.stop_reason, None)),)
    return Response(origin=FAMILY, id=shape.id, model=shape.model, candidates=stops, usage=decode_usage(shape.usage))


# ---- encode


def encode_response(response: Response, context: Context) -> Encoding:
    home = response.origin == FAMILY
    body = None if home else encode_ordinary(message_id(response.id, context), response)
    report = Report()
    if body is None:
        body = _encode_response(response, context, Plan(RULES, report, Target(), home=home, answering=True))
    if not home:
        report_response(response, report)
    if not response.plain:
        report.unclaimed(response, (FAMILY,))
    return Encoding(body, report)


def _encode_response(response: Response, context: Context, plan: Plan) -> dict[str, Any]:
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target has one answer only")
    content = encode_parts(places(candidate, plan), plan)
    body: dict[str, Any] = {}
    if not plan.home:
        body["id"] = message_id(response.id, context)
    elif response.id is not None:
        body["id"] = response.id
    if "anthropic:absent:type" not in response.form:
        body["type"] = "message"
    if "anthropic:absent:role" not in response.form:
        body["role"] = "assistant"
    if response.model is not None or not plan.home:
        body["model"] = response.model or ""
    body["content"] = content
    encode_stop(candidate.stop, body, plan, calls=ToolUseBlock in map(type, content))
    if response.usage is not None or not plan.home:
        body["usage"] = encode_usage(response.usage or Usage(), plan)
    restore(restore(body, response, FAMILY), candidate, FAMILY)
    if not plan.home:
        complete(body)
    return body


def complete(message: dict[str, Any]) -> None:
    """Anthropic's specification requires these of every message, be they null, and of each block likewise."""
    for name in _NULLS:
        message.setdefault(name, None)
    message["usage"] = _NO_COUNTS | message["usage"]
    for block in message["content"]:
        if type(block) is TextBlock and block.citations is UNSET:
            block.citations = []  # some clients take no null for it
        elif type(block) is ToolUseBlock and block.caller is UNSET:
            block.caller = CallerShape("direct")


def places(candidate: Candidate, plan: Plan) -> list[Placed]:
    found: list[Placed] = []
    for number, message in enumerate(candidate.messages):
        trail: Trail = ("candidates", 0, "messages", number)
        found += [Placed(part, (*trail, "parts", index)) for index, part in enumerate(message.parts)]
        for field in ("id", "status", "phase") if not plan.home else ():
            if getattr(message, field) is not None and not (field == "id" and is_call_id(message)):
                plan.report.dropped(trail, field)
    return found


def message_id(id: str | None, context: Context) -> str:
    """The id of another protocol's answer."""
    if id is not None and id.startswith("msg_"):
        return id
    return f"msg_{id or made_answer_id(context.request)}"


def encode_stop(stop: Stop | None, body: dict[str, Any], plan: Plan, *, calls: bool = False) -> None:
    if stop is None:
        if not plan.home:
            body["stop_reason"], body["stop_sequence"] = None, None
        return
    if stop.reason == "end_turn" and calls and not plan.home:
        body["stop_reason"] = "tool_use"  # a call that may be answered later: here its client would take it for the end
    elif not plan.home:
        body["stop_reason"] = REASONS[stop.reason]
    elif stop.raw is not None:
        body["stop_reason"] = stop.raw
    if stop.sequence is not None or not plan.home:
        body["stop_sequence"] = stop.sequence
    if not plan.home and stop.reason not in _FAITHFUL:
        why = f"{stop.raw or stop.reason} is told as {body['stop_reason']}"
        plan.report.approximated(("candidates", 0, "stop"), "reason", why)


def encode_usage(usage: Usage, plan: Plan) -> Any:
    body: dict[str, Any] = {}
    if usage.input_tokens is not None:
        body["input_tokens"] = usage.input_tokens - (usage.cache_read or 0) - (usage.cache_write or 0)
    elif not plan.home:
        body["input_tokens"] = 0
    if usage.output_tokens is not None or not plan.home:
        body["output_tokens"] = usage.output_tokens or 0
    if usage.cache_write is not None:
        body["cache_creation_input_tokens"] = usage.cache_write
    if usage.cache_read is not None:
        body["cache_read_input_tokens"] = usage.cache_read
    if usage.reasoning is not None or NO_DETAILS in usage.form:
        body["output_tokens_details"] = UsageDetailsShape(thinking_tokens=given(usage.reasoning))
    restore(body, usage, FAMILY)
    if not plan.home and (plan.uses or usage.searches is not None or usage.fetches is not None):
        # A provider that does not count leaves that to whoever reads its calls.
        counted = {"web_search": usage.searches, "web_fetch": usage.fetches}
        body["server_tool_use"] = {
            f"{kind}_requests": plan.uses.get(kind, 0) if said is None else said for kind, said in counted.items()
        }
    return body


def report_response(response: Response, report: Report) -> None:
    if response.error is not None:
        report.dropped(("error",), "", "the target tells errors apart from answers")
    if response.created is not None:
        report.dropped((), "created")
    if response.continuation is not None and response.continuation.id is not None:
        report.dropped(("continuation",), "id")
    if response.usage is not None:
        report_usage(response.usage, report)


def report_usage(usage: Usage, report: Report) -> None:
    if usage.tool_use is not None:
        report.dropped(("usage",), "tool_use")
    if usage.total not in (None, (usage.input_tokens or 0) + (usage.output_tokens or 0)):
        report.dropped(("usage",), "total", "the target has no total of its own")
