"""Responses of the Responses API to canonical responses and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Message, OpaquePart, Refusal, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import ResponseStart
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_stop
from toolwire.codec.encoding.hosted_tools import read_hosted_counts, report_hosted_counts
from toolwire.codec.encoding.turns import LocatedPart, derive_response_id
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.openai_responses.errors import decode_failure, encode_failure
from toolwire.protocols.openai_responses.parts.hosted_calls import encode_unanswered_calls
from toolwire.protocols.openai_responses.parts.messages import decode_items, encode_items
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.request import FAMILIES, ID_AND_NAME_RULES, encode_request, without_input
from toolwire.protocols.openai_responses.wire import (
    ECHO_FAMILY,
    FAMILY,
    EchoShape,
    ErrorShape,
    FunctionShape,
    IncompleteShape,
    InputDetailsShape,
    Item,
    MessageItem,
    OutputDetailsShape,
    RefusalPart,
    ResponseShape,
    UsageShape,
)

_ECHOED_FIELDS = (
    "background",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "safety_identifier",
    "store",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
_ECHOED_OBJECTS = ("reasoning", "text")


def encode_start(response: Response | ResponseStart, plan: ItemPlan, context: ResponseContext) -> dict[str, Any]:
    """Encode the fields of a response that are known at its start: all but output and stop reason.

    A response of another protocol gets every field that the API sends: the echoed request, else the API's defaults.
    """
    id, model, created = response.id, response.model, response.created
    if plan.same_protocol:
        fields = {"id": id, "created_at": created, "model": model}
        return {name: value for name, value in fields.items() if value is not None}
    body = _default_body()
    body["id"] = id if id is not None and id.startswith("resp_") else f"resp_{id or plan.seed or 'tw'}"
    body["created_at"] = context.created if created is None else created
    body["model"] = model or ""
    if context.request is not None:
        _echo_request(context.request, body)
    return body


def _default_body() -> dict[str, Any]:
    """Return a response with the API's defaults, in its order of fields."""
    return {
        "id": "",
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "",
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }


def _echo_request(request: Request, body: dict[str, Any]) -> None:
    """Write the settings of the request into `body`, as the API repeats them in each response."""
    encoded = encode_request(without_input(request), Target()).body
    body |= {name: encoded[name] for name in _ECHOED_FIELDS if encoded.get(name) is not None}
    body |= {name: body[name] | _as_members(encoded[name]) for name in _ECHOED_OBJECTS if encoded.get(name) is not None}
    body["tools"] = [_complete_tool(tool) for tool in body["tools"]]
    continuation = request.continuation
    if continuation is not None and continuation.kind == "response":
        body["previous_response_id"] = continuation.id
    elif continuation is not None and continuation.kind == "conversation":
        body["conversation"] = {"id": continuation.id}


def _as_members(value: Any) -> dict[str, Any]:
    """Return the fields of a wire object as a dict."""
    return value if isinstance(value, dict) else as_dict(value)


def _complete_tool(tool: Any) -> Any:
    """Return a tool with the fields that a request may omit, as the API repeats it in a response."""
    if not isinstance(tool, FunctionShape):
        return tool
    members = as_dict(tool)
    return {"parameters": None, "strict": None} | members


def restore_response(body: dict[str, Any], node: Node, plan: ItemPlan) -> dict[str, Any]:
    """Return the body with the extras of `node` written back, and the fields that every response has."""
    restore_extras(body, node, ECHO_FAMILY)
    restore_extras(body, node, FAMILY)
    if not plan.same_protocol:
        body.setdefault("service_tier", "default")
    if "openai-responses:absent:object" not in node.wire_form:
        body.setdefault("object", "response")
    return body


CANONICAL_STOPS: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "filtered"}
WIRE_STOPS: dict[StopReason, tuple[str, str | None]] = {
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
"""The status, and the reason if incomplete, for each stop reason.

Other stop reasons are sent as completed and reported. A refusal with text in the output is completed, too.
"""
RUNNING_STATUSES = ("queued", "in_progress")
_INCOMPLETE_STATUSES = ("incomplete", "failed")
_EXACT_STOPS = ("end_turn", "tool_use", "max_tokens", "filtered", "cancelled", "error")

_ECHO_NAMES = frozenset(EchoShape.__struct_fields__) - {"unknown", "nulls"}
_NO_OUTPUT = "openai-responses:absent:output"
_DETAILS_FORM = "openai-responses:details"
_DETAILS_NAMES = tuple(f"openai-responses:name:{field}=incomplete_details/reason" for field in ("reason", "raw"))
_INPUT_FORM = "openai-responses:input_tokens_details"
_OUTPUT_FORM = "openai-responses:output_tokens_details"
_HOSTED_COUNTS = {"searches": "tool_usage/web_search/num_requests"}
# `tool_usage` lists all tools if it lists one.
_EMPTY_IMAGE_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}

_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body; a bare array is taken as `output`."""
    shape = _read_response(b'{"output":%b}' % body if body.lstrip()[:1] == b"[" else body)
    if shape.output is UNSET and not isinstance(shape.error, ErrorShape) and shape.status is UNSET:
        raise DecodeError(FAMILY, "/output", "an array", "nothing")
    tools = None if context.request is None else context.request.tools
    messages = decode_items(shape.output or [], "/output", tools, is_response=True)
    return assemble_response(shape, messages)


def assemble_response(shape: ResponseShape, messages: tuple[Message, ...]) -> Response:
    """Build the canonical response from its wire object and its decoded messages."""
    stop = decode_stop(shape, messages)
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.id),
        model=unset_to_none(shape.model),
        created=unset_to_none(shape.created_at),
        candidates=(Candidate(messages=messages, stop=stop, at=""),) if messages or stop is not None else (),
        usage=decode_usage(shape.usage, shape.tool_usage) if isinstance(shape.usage, UsageShape) else None,
        status=unset_to_none(shape.status),
        error=decode_failure(shape.error) if isinstance(shape.error, ErrorShape) else None,
        continuation=decode_response_state(shape),
        **response_extras(shape),
    )


def decode_response_state(shape: ResponseShape) -> Continuation | None:
    """Return the conversation that the provider stores; None if the response names none."""
    conversation = shape.conversation
    if conversation is UNSET or conversation is None:
        return None
    return Continuation(
        kind="conversation", id=conversation.id, **collect_extras(conversation, FAMILY, "openai-responses:name:id=id")
    )


def response_extras(shape: ResponseShape, *, is_start: bool = False) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a response.

    Fields that only repeat the request have their own family. `is_start`: the response opens a stream, so that its
    hosted tool counts are repeated at the end.
    """
    collected = _collect_response_extras(shape)
    fields = (collected.get("extras") or {}).get(FAMILY, {})
    echo = {name: value for name, value in fields.items() if name in _ECHO_NAMES}
    others = {name: value for name, value in fields.items() if name not in _ECHO_NAMES}
    extras = ({FAMILY: others} if others else {}) | ({ECHO_FAMILY: echo} if echo else {})
    extras_and_form = {"extras": extras or None, "wire_form": collected.get("wire_form", ())}
    if is_start or isinstance(shape.usage, UsageShape):
        return read_hosted_counts(extras_and_form, FAMILY, _HOSTED_COUNTS)[0]
    return extras_and_form


def _collect_response_extras(shape: ResponseShape) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a response, with all extras in one family."""
    form = [_NO_OUTPUT] if shape.output is UNSET else []
    if shape.object is UNSET:
        form.append("openai-responses:absent:object")
    collected = collect_extras(shape, FAMILY, *form)
    if shape.object not in (UNSET, "response"):
        collected = merge_extras(collected, {"extras": {FAMILY: {"object": Raw(msgspec.json.encode(shape.object))}}})
    details = shape.incomplete_details
    if not isinstance(details, IncompleteShape):
        return collected
    if _incomplete_details(shape) is not None:
        return merge_extras(collected, collect_extras(details, FAMILY, prefix="incomplete_details/"))
    # Details beside another status have no canonical meaning.
    members = {**as_dict(details), **(details.unknown or {}), **dict.fromkeys(details.nulls or ())}
    raw = Raw(msgspec.json.encode(members))
    return merge_extras(collected, {"extras": {FAMILY: {"incomplete_details": raw}}})


def _incomplete_details(shape: ResponseShape) -> IncompleteShape | None:
    """Return `incomplete_details` if the status is `incomplete` or absent, else None."""
    details = shape.incomplete_details
    return details if isinstance(details, IncompleteShape) and shape.status in (UNSET, "incomplete") else None


def decode_stop(shape: ResponseShape, messages: tuple[Message, ...]) -> Stop | None:
    """Return why the response ended; None while it is in progress."""
    if (details := _incomplete_details(shape)) is not None:
        reason = unset_to_none(details.reason)
        return Stop(
            reason=CANONICAL_STOPS.get(reason or "", "other"), raw=reason, wire_form=(_DETAILS_FORM, *_DETAILS_NAMES)
        )
    match unset_to_none(shape.status):
        case "completed" | None:
            if not messages and shape.status is UNSET:
                return None
            return Stop(reason=_infer_stop_reason(messages), raw=unset_to_none(shape.status))
        case "failed":
            return Stop(reason="error", raw="failed")
        case "cancelled":
            return Stop(reason="cancelled", raw="cancelled")
        case status if status in RUNNING_STATUSES:
            return None
        case status:
            return Stop(reason="other", raw=status)


def _infer_stop_reason(messages: tuple[Message, ...]) -> StopReason:
    """Infer why a completed response ended from its items: the API does not report it."""
    parts = [part for message in messages for part in message.parts]
    has_text = any(isinstance(part, Text) for part in parts)
    for part in parts:
        if isinstance(part, ToolCall) and part.executor == "client" and not (part.asynchronous and has_text):
            return "tool_use"
    if any(isinstance(part, Refusal) for part in parts):
        return "refusal"
    if not has_text and any(isinstance(part, OpaquePart) and part.kind == "program" for part in parts):
        return "continuation"
    return "end_turn"


def decode_usage(shape: UsageShape, tools: Raw | UnsetType) -> Usage:
    """Decode token usage; `tools` is `tool_usage`, which holds the hosted tool counts."""
    extras_and_form = collect_extras(shape, FAMILY)
    _, counts = read_hosted_counts(
        {} if tools is UNSET else {"extras": {FAMILY: {"tool_usage": tools}}}, FAMILY, _HOSTED_COUNTS
    )
    read = write = reasoning = None
    if shape.input_tokens_details is not UNSET:
        details = shape.input_tokens_details
        read, write = unset_to_none(details.cached_tokens), unset_to_none(details.cache_write_tokens)
        extras_and_form = merge_extras(
            extras_and_form, collect_extras(details, FAMILY, _INPUT_FORM, prefix="input_tokens_details/")
        )
    if shape.output_tokens_details is not UNSET:
        reasoning = unset_to_none(shape.output_tokens_details.reasoning_tokens)
        extras_and_form = merge_extras(
            extras_and_form,
            collect_extras(shape.output_tokens_details, FAMILY, _OUTPUT_FORM, prefix="output_tokens_details/"),
        )
    return Usage(
        input_tokens=unset_to_none(shape.input_tokens),
        output_tokens=unset_to_none(shape.output_tokens),
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
        total=unset_to_none(shape.total_tokens),
        **counts,
        **extras_and_form,
    )


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response body and report losses."""
    plan = response_plan(response.origin, response.id, context)
    candidate = response.candidates[0] if response.candidates else Candidate()
    for index in range(1, len(response.candidates)):
        plan.report.dropped(("candidates", index), "", "the target returns a single candidate")
    output: list[Any] = []
    for number, message in enumerate(candidate.messages):
        plan.output_index = len(output)
        output += encode_message(message, ("candidates", 0, "messages", number), plan)
    output += encode_unanswered_calls(plan, len(output))
    body = encode_start(response, plan, context)
    if not (_NO_OUTPUT in response.wire_form and not output):
        body["output"] = output
    if plan.same_protocol:
        body |= {} if response.status is None else {"status": response.status}
    encode_stop(candidate.stop, body, plan, response.status)
    if response.usage is not None or not plan.same_protocol:
        body["usage"] = encode_usage(response.usage or Usage(), plan)
    encode_counts(response.usage, body, plan)
    if response.error is not None:
        body["error"] = encode_failure(response.error, plan)
        if not plan.same_protocol:
            body["status"] = "failed"
    encode_response_state(response.continuation, body, plan)
    restore_response(body, response, plan)
    plan.report.report_foreign_extras(response, FAMILIES)
    return EncodedBody(body, plan.report)


def response_plan(origin: str, id: str | None, context: ResponseContext) -> ItemPlan:
    """Return the encoding plan for a response to a client.

    `origin` is the protocol of the provider's response, which keeps its spelling if it is this one.
    """
    same_protocol = origin == FAMILY
    return ItemPlan(ID_AND_NAME_RULES, LossReport(), Target(), same_protocol=same_protocol, seed=id_seed(id, context))


def id_seed(id: str | None, context: ResponseContext) -> str:
    """Return the seed from which item ids are derived: the response id, or a digest of the request."""
    if id or context.request is None:
        return id or ""
    return derive_response_id(context.request)


def encode_message(message: Message, path: SourcePath, plan: ItemPlan) -> list[Any]:
    """Encode one message of a response as items."""
    located_parts = [LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)]
    if not plan.same_protocol:
        plan.report.dropped_fields(path, message, "id", "name", "status")
        message = Message(role="assistant", parts=(), phase=message.phase)
    return encode_items(located_parts, plan, message)


def encode_stop(stop: Stop | None, body: dict[str, Any], plan: ItemPlan, running_status: str | None = None) -> None:
    """Write status and incomplete details into `body`, and mark the last item of a truncated response.

    `running_status` is the status of another protocol's response, which remains if that has not ended.
    """
    if plan.same_protocol:
        if stop is not None and _DETAILS_FORM in stop.wire_form:
            body["incomplete_details"] = {} if stop.raw is None else {"reason": stop.raw}
        return
    has_refusal = stop is not None and stop.reason == "refusal" and _has_refusal(body["output"])
    status, reason = encode_status(stop, has_refusal=has_refusal)
    body["status"] = running_status if stop is None and running_status in RUNNING_STATUSES else status
    body["incomplete_details"] = None if reason is None else {"reason": reason}
    if status in _INCOMPLETE_STATUSES and body["output"] and isinstance(last := body["output"][-1], Item):
        last.status = "incomplete"
    if stop is not None:
        exact = ("refusal", *_EXACT_STOPS) if has_refusal else _EXACT_STOPS
        path = ("candidates", 0, "stop")
        report_stop(stop, path, reason or status, plan.report, exact=exact, finished="completed")


def encode_status(stop: Stop | None, *, has_refusal: bool) -> tuple[str, str | None]:
    """Return status and incomplete reason of a response; `has_refusal`: the output has the refusal text."""
    if stop is None or (stop.reason == "refusal" and has_refusal):
        return "completed", None
    return WIRE_STOPS.get(stop.reason, ("completed", None))


def is_incomplete(stop: Stop | None, *, has_refusal: bool) -> bool:
    """Return whether the response ended before it was complete."""
    return encode_status(stop, has_refusal=has_refusal)[0] in _INCOMPLETE_STATUSES


def _has_refusal(output: list[Any]) -> bool:
    """Return whether any output message contains a refusal part."""
    contents = [item.content for item in output if isinstance(item, MessageItem)]
    return any(isinstance(block, RefusalPart) for blocks in contents if isinstance(blocks, list) for block in blocks)


def encode_usage(usage: Usage, plan: ItemPlan) -> dict[str, Any]:
    """Encode token usage."""
    if plan.same_protocol:
        return _encode_same_protocol_usage(usage)
    if usage.tool_use is not None:
        plan.report.dropped(("usage",), "tool_use")
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read or 0,
            "cache_write_tokens": usage.cache_write or 0,
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": input_tokens + output_tokens if usage.total is None else usage.total,
    }


def _encode_same_protocol_usage(usage: Usage) -> dict[str, Any]:
    """Encode token usage that came from this API."""
    shape = UsageShape(
        input_tokens=none_to_unset(usage.input_tokens),
        output_tokens=none_to_unset(usage.output_tokens),
        total_tokens=none_to_unset(usage.total),
    )
    if usage.cache_read is not None or usage.cache_write is not None or _INPUT_FORM in usage.wire_form:
        shape.input_tokens_details = InputDetailsShape(
            cached_tokens=none_to_unset(usage.cache_read), cache_write_tokens=none_to_unset(usage.cache_write)
        )
    if usage.reasoning is not None or _OUTPUT_FORM in usage.wire_form:
        shape.output_tokens_details = OutputDetailsShape(reasoning_tokens=none_to_unset(usage.reasoning))
    return restore_extras(as_dict(shape), usage, FAMILY)


def encode_counts(usage: Usage | None, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the hosted tool counts into `body` as `tool_usage`, which is separate from `usage`."""
    if plan.same_protocol or usage is None:
        return
    report_hosted_counts(usage, plan.report, "fetches")
    if usage.searches is not None:
        body["tool_usage"] = {"image_gen": _EMPTY_IMAGE_USAGE, "web_search": {"num_requests": usage.searches}}


def encode_response_state(continuation: Continuation | None, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the stored conversation into `body`; report one of another provider as a loss."""
    if continuation is None:
        return
    if plan.same_protocol and continuation.id is not None:
        body["conversation"] = restore_extras({"id": continuation.id}, continuation, FAMILY)
    elif continuation.id is not None:
        plan.report.dropped(("continuation",), "id", "stored by another provider")
