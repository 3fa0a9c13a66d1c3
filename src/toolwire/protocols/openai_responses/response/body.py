"""The Responses API's answers and errors, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Foreign, Message, Refusal, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Continuation
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.counts import drop_counts, read_counts
from toolwire.codec.fields import Reader
from toolwire.codec.ids import made_answer_id
from toolwire.codec.interface import Context, Encoding, Target
from toolwire.codec.kept import as_object, given, joined, known, rest, restore
from toolwire.codec.losses import Report, Trail
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_responses.parts.messages import decode_items, encode_items
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.parts.uses import unanswered
from toolwire.protocols.openai_responses.request.body import FAMILIES, RULES
from toolwire.protocols.openai_responses.wire import (
    ECHO,
    FAMILY,
    EchoShape,
    ErrorShape,
    IncompleteShape,
    InputDetailsShape,
    Item,
    MessageItem,
    OutputDetailsShape,
    RefusalPart,
    ResponseShape,
    UsageShape,
)

from .envelope import finish, start_body
from .errors import decode_failure, encode_failure

INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "filtered"}
STATES: dict[StopReason, tuple[str, str | None]] = {
    "end_turn": ("completed", None),
    "tool_use": ("completed", None),
    "max_tokens": ("incomplete", "max_output_tokens"),
    "filtered": ("incomplete", "content_filter"),
    "context_window": ("incomplete", "max_output_tokens"),
    "refusal": ("incomplete", "content_filter"),
    "cancelled": ("cancelled", None),
    "error": ("failed", None),
    "malformed_call": ("failed", None),
}
"""The status, and the reason if incomplete, that tells a stop. All others are told as completed, and reported; so is a
refusal, but that in words is told by these."""
_CUT = ("incomplete", "failed")
_FAITHFUL = ("end_turn", "tool_use", "max_tokens", "filtered", "cancelled", "error")

_ECHO_NAMES = frozenset(EchoShape.__struct_fields__) - {"unknown", "nulls"}
_NO_OUTPUT = "openai-responses:absent:output"
_DETAILS = "openai-responses:details"
_IN_DETAILS = tuple(f"openai-responses:name:{field}=incomplete_details/reason" for field in ("reason", "raw"))
_INPUT = "openai-responses:input_tokens_details"
_OUTPUT = "openai-responses:output_tokens_details"
_COUNTS = {"searches": "tool_usage/web_search/num_requests"}
# All tools are there as soon as one is.
_NO_IMAGES = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    shape = _read_response(b'{"output":%b}' % body if body.lstrip()[:1] == b"[" else body)
    if shape.output is UNSET and not isinstance(shape.error, ErrorShape) and shape.status is UNSET:
        raise DecodeError(FAMILY, "/output", "an array", "nothing")
    tools = None if context.request is None else context.request.tools
    messages = decode_items(shape.output or [], "/output", tools, answer=True)
    return assembled(shape, messages)


def assembled(shape: ResponseShape, messages: tuple[Message, ...]) -> Response:
    """The answer whose envelope this is, with what it says decoded already."""
    stop = decode_stop(shape, messages)
    return Response(
        origin=FAMILY,
        id=known(shape.id),
        model=known(shape.model),
        created=known(shape.created_at),
        candidates=(Candidate(messages=messages, stop=stop, at=""),) if messages or stop is not None else (),
        usage=decode_usage(shape.usage, shape.tool_usage) if isinstance(shape.usage, UsageShape) else None,
        status=known(shape.status),
        error=decode_failure(shape.error) if isinstance(shape.error, ErrorShape) else None,
        continuation=decode_held(shape),
        **envelope(shape),
    )


def decode_held(shape: ResponseShape) -> Continuation | None:
    held = shape.conversation
    if held is UNSET or held is None:
        return None
    return Continuation(kind="conversation", id=held.id, **rest(held, FAMILY, "openai-responses:name:id=id"))


def envelope(shape: ResponseShape, *, begun: bool = False) -> dict[str, Any]:
    """Extras and form of an answer, what merely repeats the request kept apart from what is new. `begun`: its counts
    are told again at its end."""
    form = [_NO_OUTPUT] if shape.output is UNSET else []
    if shape.object is UNSET:
        form.append("openai-responses:absent:object")
    kept = rest(shape, FAMILY, *form)
    if shape.object not in (UNSET, "response"):
        kept = joined(kept, {"extras": {FAMILY: {"object": Raw(msgspec.json.encode(shape.object))}}})
    if (details := _details(shape)) is not None:
        kept = joined(kept, rest(details, FAMILY, under="incomplete_details/"))
    elif isinstance(shape.incomplete_details, IncompleteShape):
        odd = shape.incomplete_details
        whole = {**as_object(odd), **(odd.unknown or {}), **dict.fromkeys(odd.nulls or ())}
        kept = joined(kept, {"extras": {FAMILY: {"incomplete_details": Raw(msgspec.json.encode(whole))}}})
    found = (kept.get("extras") or {}).get(FAMILY, {})
    echo = {name: value for name, value in found.items() if name in _ECHO_NAMES}
    own = {name: value for name, value in found.items() if name not in _ECHO_NAMES}
    extras = ({FAMILY: own} if own else {}) | ({ECHO: echo} if echo else {})
    whole = {"extras": extras or None, "form": kept.get("form", ())}
    return read_counts(whole, FAMILY, _COUNTS)[0] if begun or isinstance(shape.usage, UsageShape) else whole


def _details(shape: ResponseShape) -> IncompleteShape | None:
    """Why an answer is incomplete, if it says that it is."""
    details = shape.incomplete_details
    return details if isinstance(details, IncompleteShape) and shape.status in (UNSET, "incomplete") else None


def decode_stop(shape: ResponseShape, messages: tuple[Message, ...]) -> Stop | None:
    if (details := _details(shape)) is not None:
        reason = known(details.reason)
        return Stop(reason=INCOMPLETE.get(reason or "", "other"), raw=reason, form=(_DETAILS, *_IN_DETAILS))
    match known(shape.status):
        case "completed" | None:
            if not messages and shape.status is UNSET:
                return None
            return Stop(reason=_ended(messages), raw=known(shape.status))
        case "failed":
            return Stop(reason="error", raw="failed")
        case "cancelled":
            return Stop(reason="cancelled", raw="cancelled")
        case "in_progress" | "queued":
            return None
        case status:
            return Stop(reason="other", raw=status)


def _ended(messages: tuple[Message, ...]) -> StopReason:
    """Why a completed answer ended. The API does not say it: it is what its items leave to do."""
    parts = [part for message in messages for part in message.parts]
    said = any(isinstance(part, Text) for part in parts)
    for part in parts:
        if isinstance(part, ToolCall) and part.executor == "client" and not (part.asynchronous and said):
            return "tool_use"
    if any(isinstance(part, Refusal) for part in parts):
        return "refusal"
    if not said and any(isinstance(part, Foreign) and part.kind == "program" for part in parts):
        return "continuation"
    return "end_turn"


def decode_usage(shape: UsageShape, tools: Raw | UnsetType) -> Usage:
    """What hosted tools did is counted beside the usage, not in it."""
    kept = rest(shape, FAMILY)
    _, counts = read_counts({} if tools is UNSET else {"extras": {FAMILY: {"tool_usage": tools}}}, FAMILY, _COUNTS)
    read = write = reasoning = None
    if shape.input_tokens_details is not UNSET:
        details = shape.input_tokens_details
        read, write = known(details.cached_tokens), known(details.cache_write_tokens)
        kept = joined(kept, rest(details, FAMILY, _INPUT, under="input_tokens_details/"))
    if shape.output_tokens_details is not UNSET:
        reasoning = known(shape.output_tokens_details.reasoning_tokens)
        kept = joined(kept, rest(shape.output_tokens_details, FAMILY, _OUTPUT, under="output_tokens_details/"))
    return Usage(
        input_tokens=known(shape.input_tokens),
        output_tokens=known(shape.output_tokens),
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
        total=known(shape.total_tokens),
        **counts,
        **kept,
    )


# ---- encode


def encode_response(response: Response, context: Context) -> Encoding:
    plan = answer_plan(response.origin, response.id, context)
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target has one answer only")
    output: list[Any] = []
    for number, message in enumerate(candidate.messages):
        plan.count = len(output)
        output += encode_answer(message, ("candidates", 0, "messages", number), plan)
    output += unanswered(plan, len(output))
    body = start_body(response, plan, context)
    if not (_NO_OUTPUT in response.form and not output):
        body["output"] = output
    if plan.home:
        body |= {} if response.status is None else {"status": response.status}
    encode_stop(candidate.stop, body, plan)
    if response.usage is not None or not plan.home:
        body["usage"] = encode_usage(response.usage or Usage(), plan)
    encode_counts(response.usage, body, plan)
    if response.error is not None:
        body["error"] = encode_failure(response.error, plan)
        if not plan.home:
            body["status"] = "failed"
    encode_held(response.continuation, body, plan)
    finish(body, response, plan)
    if not response.plain:
        plan.report.unclaimed(response, FAMILIES)
    return Encoding(body, plan.report)


def answer_plan(origin: str, id: str | None, context: Context) -> ItemPlan:
    home = origin == FAMILY
    return ItemPlan(RULES, Report(), Target(), home=home, seed=seed_of(id, context))


def seed_of(id: str | None, context: Context) -> str:
    """What the ids of an answer's items are made from: its own id, or the conversation that it continues."""
    if id or context.request is None:
        return id or ""
    return made_answer_id(context.request)


def encode_answer(message: Message, trail: Trail, plan: ItemPlan) -> list[Any]:
    places = [Placed(part, (*trail, "parts", index)) for index, part in enumerate(message.parts)]
    if not plan.home:
        for field in ("id", "name", "status"):
            if getattr(message, field) is not None:
                plan.report.dropped(trail, field)
        message = Message(role="assistant", parts=(), phase=message.phase)
    return encode_items(places, plan, message)


def encode_stop(stop: Stop | None, body: dict[str, Any], plan: ItemPlan) -> None:
    if plan.home:
        if stop is not None and _DETAILS in stop.form:
            body["incomplete_details"] = {} if stop.raw is None else {"reason": stop.raw}
        return
    refused = stop is not None and stop.reason == "refusal" and _is_refused(body["output"])
    status, reason = state_of(stop, refused=refused)
    body["status"] = status
    body["incomplete_details"] = None if reason is None else {"reason": reason}
    if status in _CUT and body["output"] and isinstance(last := body["output"][-1], Item):
        last.status = "incomplete"
    if stop is None:
        return
    if stop.reason not in _FAITHFUL and not refused:
        told = reason or status
        plan.report.approximated(("candidates", 0, "stop"), "reason", f"{stop.raw or stop.reason} is told as {told}")
    if stop.sequence is not None:
        plan.report.dropped(("candidates", 0, "stop"), "sequence")


def state_of(stop: Stop | None, *, refused: bool) -> tuple[str, str | None]:
    """The status and reason; `refused`: in words that the answer has."""
    if stop is None or (stop.reason == "refusal" and refused):
        return "completed", None
    return STATES.get(stop.reason, ("completed", None))


def is_cut(stop: Stop | None, *, refused: bool) -> bool:
    """Whether the answer ended before it was complete."""
    return state_of(stop, refused=refused)[0] in _CUT


def _is_refused(output: list[Any]) -> bool:
    contents = [item.content for item in output if isinstance(item, MessageItem)]
    return any(isinstance(block, RefusalPart) for blocks in contents if isinstance(blocks, list) for block in blocks)


def encode_usage(usage: Usage, plan: ItemPlan) -> dict[str, Any]:
    if plan.home:
        shape = UsageShape()
        for name, value in (("input_tokens", usage.input_tokens), ("output_tokens", usage.output_tokens)):
            setattr(shape, name, given(value))
        shape.total_tokens = given(usage.total)
        if usage.cache_read is not None or usage.cache_write is not None or _INPUT in usage.form:
            details = InputDetailsShape(
                cached_tokens=given(usage.cache_read), cache_write_tokens=given(usage.cache_write)
            )
            shape.input_tokens_details = details
        if usage.reasoning is not None or _OUTPUT in usage.form:
            shape.output_tokens_details = OutputDetailsShape(reasoning_tokens=given(usage.reasoning))
        return restore(as_object(shape), usage, FAMILY)
    if usage.tool_use is not None:
        plan.report.dropped(("usage",), "tool_use")
    taken, given_out = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": taken,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": given_out,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": taken + given_out if usage.total is None else usage.total,
    }


def encode_counts(usage: Usage | None, body: dict[str, Any], plan: ItemPlan) -> None:
    """How often hosted tools ran, which stands beside the usage."""
    if plan.home or usage is None:
        return
    drop_counts(usage, plan.report, "fetches")
    if usage.searches is not None:
        body["tool_usage"] = {"image_gen": _NO_IMAGES, "web_search": {"num_requests": usage.searches}}


def encode_held(held: Continuation | None, body: dict[str, Any], plan: ItemPlan) -> None:
    if held is None:
        return
    if plan.home and held.id is not None:
        body["conversation"] = restore({"id": held.id}, held, FAMILY)
    elif held.id is not None:
        plan.report.dropped(("continuation",), "id", "what another provider holds")
