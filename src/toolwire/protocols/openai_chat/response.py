"""Decode and encode Chat responses."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, Refusal, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_stop
from toolwire.codec.encoding.hosted_tools import read_hosted_counts, report_hosted_counts
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn, derive_response_id
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import as_dict, restore_extras, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader
from toolwire.protocols.openai_chat.errors import (
    IN_CHOICE,
    decode_choice_error,
    decode_error_object,
    encode_error_object,
)
from toolwire.protocols.openai_chat.parts.calls import is_json
from toolwire.protocols.openai_chat.parts.content import chat_extras_and_form, constant_extras, restore_constant
from toolwire.protocols.openai_chat.parts.messages import decode_message, encode_turn, report_message
from toolwire.protocols.openai_chat.parts.signed_reasoning import is_id_encoded
from toolwire.protocols.openai_chat.request import ID_AND_NAME_RULES
from toolwire.protocols.openai_chat.variant import CHAT, ChatVariant
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    SHARED_FAMILY,
    CompletionDetailsShape,
    MessageShape,
    PromptDetailsShape,
    ResponseChoiceShape,
    ResponseShape,
    UsageShape,
)

CANONICAL_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "filtered",
    "error": "error",
    "model_length": "max_tokens",
    "insufficient_system_resource": "error",
}
WIRE_STOPS: dict[StopReason, str] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "filtered": "content_filter",
    "paused": "stop",
    "continuation": "stop",
    "context_window": "length",
    "malformed_call": "stop",
    "cancelled": "stop",
    "error": "stop",
    "other": "stop",
}
MESSAGE_FORM = "openai-chat:message"
NO_INDEX = "openai-chat:absent:index"
# Statuses that the finish reason or the error implies.
_STATUSES = ("completed", "incomplete", "failed", "requires_action")
_EXACT_STOPS = ("end_turn", "max_tokens", "tool_use", "filtered")

_read_message = Reader[MessageShape](MessageShape, FAMILY).read
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


_HOSTED_COUNTS_FIELD = "server_tool_use_details"
HOSTED_COUNTS = {"searches": f"{_HOSTED_COUNTS_FIELD}/web_search_requests"}
"""Fields of OpenRouter and of servers that follow it."""


# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body."""
    shape = _read_response(body)
    has_error = shape.error is not UNSET and bytes(shape.error) != b"null"
    if not isinstance(shape.choices, list) and not has_error:
        if shape.unknown is not UNSET and "role" in shape.unknown:
            return _decode_bare_message(_read_message(body))
        raise DecodeError(FAMILY, "/choices", "an array", "nothing")
    choices = shape.choices or ()
    error = decode_error_object(shape.error, None, at="/error") if has_error and shape.error is not UNSET else None
    extras, wire_form = _decode_response_extras(shape, has_error=has_error)
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.id),
        model=unset_to_none(shape.model),
        created=unset_to_none(shape.created),
        candidates=tuple([_decode_choice(choice, index, len(choices)) for index, choice in enumerate(choices)]),
        usage=None if shape.usage is UNSET or shape.usage is None else decode_usage(shape.usage),
        error=decode_choice_error(choices) if error is None else error,
        extras={FAMILY: extras} if extras else None,
        wire_form=wire_form,
    )


def _decode_response_extras(shape: ResponseShape, *, has_error: bool) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """Return the extras (by pointer) and wire-form tokens of the top level of a response.

    The tokens record absent and null fields, to restore them for Chat clients. `has_error`: `error` holds an error, so
    that it is not recorded as null.
    """
    wire_form: tuple[str, ...] = ()
    if shape.error is not UNSET and not has_error:
        wire_form = (*wire_form, f"{FAMILY}:null:error")
    if shape.choices is UNSET:
        wire_form = (*wire_form, "openai-chat:absent:choices")
    extras, wire_form = chat_extras_and_form(shape, wire_form)
    if shape.object == "chat.completion":
        return extras, wire_form
    kind = constant_extras("object", shape.object, "chat.completion")
    return extras | kind.get("extras", {}).get(FAMILY, {}), wire_form + kind.get("wire_form", ())


def _decode_bare_message(shape: MessageShape) -> Response:
    """Decode a message without the response around it, as programs store it."""
    message = decode_message(shape, "", "")
    message = replace(message, parts=tuple([_with_completeness(part, None) for part in message.parts]))
    return Response(origin=FAMILY, candidates=(Candidate(messages=(message,), at=""),), wire_form=(MESSAGE_FORM,))


def _decode_choice(shape: ResponseChoiceShape, position: int, count: int) -> Candidate:
    """Decode the choice at `position` of `count`; an invalid index is replaced by the position."""
    message = decode_message(shape.message, f"/choices/{position}/message", "/message")
    stop = None
    if isinstance(shape.finish_reason, str):
        stop = decode_stop(shape.finish_reason, message)
    if ToolCall in map(type, message.parts):
        parts = tuple([_with_completeness(part, stop) for part in message.parts])
        if parts != message.parts:
            message = replace(message, parts=parts)
    wire_form: tuple[str, ...] = () if shape.index is not UNSET else (NO_INDEX,)
    if position == 0 and shape.error is not UNSET:
        wire_form = (*wire_form, f"{FAMILY}:canonical:error")
    if shape.message.role != "assistant":
        wire_form = (*wire_form, f"openai-chat:role:{shape.message.role}")
    extra_fields, wire_form = chat_extras_and_form(shape, wire_form)
    index = position if shape.index is UNSET else shape.index
    if not 0 <= index < count:
        extra_fields, wire_form = {**extra_fields, "index": Raw(str(index).encode())}, (*wire_form, NO_INDEX)
        index = position
    extras = {FAMILY: extra_fields} if extra_fields else None
    return Candidate(index=index, messages=(message,), stop=stop, extras=extras, wire_form=wire_form)


def _with_completeness(part: Any, stop: Stop | None) -> Any:
    """Return a call marked as incomplete if its arguments are truncated; other parts unchanged."""
    if not isinstance(part, ToolCall) or not part.arguments:
        return part
    is_truncated = stop is not None and stop.reason == "max_tokens"
    is_complete = not is_truncated if part.shape == "freeform" else is_json(part.arguments)
    return part if is_complete else replace(part, complete=False)


def decode_stop(reason: str, message: Message) -> Stop:
    """Decode the finish reason, which depends on the content of the message."""
    has_calls = has_refusal = False
    for part in message.parts:
        if isinstance(part, ToolCall):
            has_calls = True
        elif isinstance(part, Refusal) and part.text:
            has_refusal = True
    return Stop(reason=_canonical_stop(reason, has_calls=has_calls, has_refusal=has_refusal), raw=reason)


def _canonical_stop(reason: str, *, has_calls: bool, has_refusal: bool) -> StopReason:
    """Return the canonical stop reason; a `stop` after calls or a refusal is corrected."""
    stop_reason = CANONICAL_STOPS.get(reason, "other")
    if stop_reason == "end_turn" and (has_calls or has_refusal):
        return "tool_use" if has_calls else "refusal"
    return stop_reason


def decode_usage(shape: UsageShape) -> Usage:
    """Decode token counts."""
    extras, wire_form = chat_extras_and_form(shape)
    read = write = reasoning = None
    if type(details := shape.prompt_tokens_details) is PromptDetailsShape:
        read, write = unset_to_none(details.cached_tokens), unset_to_none(details.cache_write_tokens)
        details_extras, wire_form = chat_extras_and_form(
            details, (*wire_form, "openai-chat:details:prompt"), "prompt_tokens_details/"
        )
        extras = extras | details_extras if extras else details_extras
    if type(completion := shape.completion_tokens_details) is CompletionDetailsShape:
        reasoning = unset_to_none(completion.reasoning_tokens)
        details_extras, wire_form = chat_extras_and_form(
            completion, (*wire_form, "openai-chat:details:completion"), "completion_tokens_details/"
        )
        extras = extras | details_extras if extras else details_extras
    counts: dict[str, int] = {}
    if _HOSTED_COUNTS_FIELD in extras:
        remaining, counts = read_hosted_counts(
            {"extras": {FAMILY: extras}, "wire_form": wire_form}, FAMILY, HOSTED_COUNTS
        )
        extras, wire_form = remaining["extras"][FAMILY], remaining["wire_form"]
    return Usage(
        input_tokens=unset_to_none(shape.prompt_tokens),
        output_tokens=unset_to_none(shape.completion_tokens),
        total=unset_to_none(shape.total_tokens),
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
        searches=counts.get("searches"),
        extras={FAMILY: extras} if extras else None,
        wire_form=wire_form,
    )


class _FunctionSummary(Struct):
    """The function of a call."""

    name: str
    arguments: str


class _CallSummary(Struct):
    """A call of a function; others are decoded in full."""

    function: _FunctionSummary


class _MessageSummary(Struct):
    """The calls of a message, and the fields that decide the stop reason."""

    tool_calls: list[_CallSummary] | None = None
    refusal: str | None = None


class _ChoiceSummary(Struct):
    """A choice without its content."""

    message: _MessageSummary
    finish_reason: str | None = None
    error: Raw | UnsetType = UNSET

    def candidate(self) -> Candidate:
        """Return the stop and the calls."""
        calls = [
            ToolCall(id=None, name=call.function.name, arguments=call.function.arguments)
            for call in self.message.tool_calls or ()
        ]
        messages = (Message(role="assistant", parts=tuple(calls)),) if calls else ()
        return Candidate(messages=messages, stop=self.stop())

    def stop(self) -> Stop | None:
        """Return the canonical stop."""
        if self.finish_reason is None:
            return None
        return Stop(
            reason=_canonical_stop(
                self.finish_reason, has_calls=bool(self.message.tool_calls), has_refusal=bool(self.message.refusal)
            )
        )


class _PromptTokens(Struct):
    """`prompt_tokens_details` of the usage."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionTokens(Struct):
    """`completion_tokens_details` of the usage."""

    reasoning_tokens: int | None = None


class _HostedCounts(Struct):
    """OpenRouter's counts of hosted tool calls."""

    web_search_requests: int | None = None


class _UsageSummary(Struct):
    """The counts that `decode_usage` reads, without extras."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | None = None
    prompt_tokens_details: _PromptTokens | None = None
    completion_tokens_details: _CompletionTokens | None = None
    server_tool_use_details: _HostedCounts | None = None

    def usage(self) -> Usage:
        """Return the canonical usage."""
        prompt, completion, hosted = (
            self.prompt_tokens_details,
            self.completion_tokens_details,
            self.server_tool_use_details,
        )
        return Usage(
            input_tokens=self.prompt_tokens,
            output_tokens=self.completion_tokens,
            total=self.total_tokens,
            cache_read=None if prompt is None else prompt.cached_tokens,
            cache_write=None if prompt is None else prompt.cache_write_tokens,
            reasoning=None if completion is None else completion.reasoning_tokens,
            searches=None if hosted is None else hosted.web_search_requests,
        )


class _ResponseSummary(Struct):
    """The fields of a response that logs and metrics need."""

    choices: list[_ChoiceSummary]
    usage: _UsageSummary
    id: str | None = None
    model: str | None = None
    error: Raw | UnsetType = UNSET


_decode_summary = msgspec.json.Decoder(_ResponseSummary).decode


def peek_response(body: bytes) -> Response | None:
    """Decode id, model, stop reasons, calls and usage of a response; None if it failed, is invalid or unusual.

    Calls have only their names and arguments.
    """
    try:
        shape = _decode_summary(body)
    except JSON_ERRORS:
        return None
    has_error = shape.error is not UNSET or any(choice.error is not UNSET for choice in shape.choices)
    if has_error or not shape.choices:
        return None
    candidates = tuple([choice.candidate() for choice in shape.choices])
    return Response(origin=FAMILY, id=shape.id, model=shape.model, candidates=candidates, usage=shape.usage.usage())


# ---- encode


def encode_response(response: Response, context: ResponseContext, variant: ChatVariant = CHAT) -> EncodedBody:
    """Encode a response for a client of Chat, or of a variant of it."""
    same_protocol, target = response.origin == variant.protocol, Target(host=variant.host)
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), target, same_protocol=same_protocol, for_client=True)
    if MESSAGE_FORM in response.wire_form and len(response.candidates) == 1:
        return EncodedBody(_encode_message(response.candidates[0], 0, plan), plan.report)
    body = _encode_head(response, context, plan)
    if response.candidates or "openai-chat:absent:choices" not in response.wire_form:
        candidates = response.candidates or (() if same_protocol else (Candidate(),))
        body["choices"] = [_encode_choice(candidate, index, plan) for index, candidate in enumerate(candidates)]
    if f"{FAMILY}:null:choices" in response.wire_form:
        del body["choices"]
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage, plan)
    if response.error is not None and not (same_protocol and IN_CHOICE in response.error.wire_form):
        body["error"] = encode_error_object(response.error, ("error",), plan.report)
    restore_extras(body, response, FAMILY)
    if not same_protocol:
        _report_response(response, plan)
    plan.report.report_foreign_extras(response, (FAMILY, SHARED_FAMILY))
    return EncodedBody(body, plan.report)


def _encode_head(response: Response, context: ResponseContext, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the fields that precede the choices: id, object, time and model."""
    head: dict[str, Any] = {}
    if not plan.same_protocol or response.id is not None:
        head["id"] = completion_id(response.id, plan, context)
    if (kind := restore_constant(response, "object", "chat.completion")) is not UNSET:
        head["object"] = kind
    if not plan.same_protocol:
        head["created"] = int(response.created or context.created)
    elif response.created is not None:
        head["created"] = response.created
    if not plan.same_protocol or response.model is not None:
        head["model"] = response.model or ""
    return head


def completion_id(id: str | None, plan: EncodingPlan, context: ResponseContext) -> str:
    """Return the id of a response, with the prefix that Chat clients expect."""
    if plan.same_protocol or (id is not None and id.startswith(("chatcmpl", "gen-"))):
        return id or ""
    return f"chatcmpl-{id or derive_response_id(context.request)}"


def _encode_choice(candidate: Candidate, position: int, plan: EncodingPlan) -> dict[str, Any]:
    """Encode one candidate as a choice."""
    body: dict[str, Any] = {}
    if NO_INDEX not in candidate.wire_form:
        body["index"] = candidate.index
    message = _encode_message(candidate, position, plan)
    body["message"] = message
    if not plan.same_protocol:
        body["logprobs"] = (candidate.extras or {}).get(FAMILY, {}).get("logprobs")
    has_calls = bool(message.get("tool_calls"))
    reason = encode_stop(
        candidate.stop, ("candidates", position, "stop"), plan, has_calls=has_calls, has_refusal="refusal" in message
    )
    if reason is not None:
        body["finish_reason"] = reason
    if not plan.same_protocol:
        message.setdefault("refusal", None)
    for token in candidate.wire_form:
        if token.startswith("openai-chat:role:"):
            message["role"] = token.removeprefix("openai-chat:role:")
    return restore_extras(body, candidate, FAMILY)


def _encode_message(candidate: Candidate, candidate_index: int, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the messages of a candidate as one message."""
    located_parts: list[LocatedPart] = []
    plan.messages = candidate.messages
    for index, message in enumerate(candidate.messages):
        path: SourcePath = ("candidates", candidate_index, "messages", index)
        located_parts += [LocatedPart(part, (*path, "parts", position)) for position, part in enumerate(message.parts)]
        if not plan.same_protocol:
            report_message(replace(message, id=None) if is_id_encoded(message, plan) else message, path, plan)
    single = candidate.messages[0] if len(candidate.messages) == 1 else None
    role = "assistant" if single is None or not plan.same_protocol else single.role
    path = ("candidates", candidate_index, "messages", 0)
    (body,) = encode_turn(Turn(role, located_parts, single, path), plan)
    return dict(body)


def encode_stop(
    stop: Stop | None, path: SourcePath, plan: EncodingPlan, *, has_calls: bool, has_refusal: bool
) -> str | None:
    """Return the finish reason; None if a Chat response is unfinished."""
    if stop is None:
        return None if plan.same_protocol else "tool_calls" if has_calls else "stop"
    if plan.same_protocol and stop.raw is not None:
        return stop.raw
    if stop.reason == "end_turn" and has_calls and not plan.same_protocol:
        return "tool_calls"  # with stop, the client would not answer the call
    reason = WIRE_STOPS[stop.reason]
    if stop.reason == "refusal" and has_refusal:
        return "stop"
    if not plan.same_protocol:
        report_stop(stop, path, reason, plan.report, exact=_EXACT_STOPS, finished="stop")
    return reason


def encode_usage(usage: Usage, plan: EncodingPlan) -> dict[str, Any]:
    """Encode token counts."""
    if usage.tool_use is not None:
        plan.report.dropped(("usage",), "tool_use")
    if not plan.same_protocol:
        report_hosted_counts(usage, plan.report)
    body: dict[str, Any] = {}
    if usage.input_tokens is not None or not plan.same_protocol:
        body["prompt_tokens"] = usage.input_tokens or 0
    if usage.output_tokens is not None or not plan.same_protocol:
        body["completion_tokens"] = usage.output_tokens or 0
    if usage.total is not None:
        body["total_tokens"] = usage.total
    elif not plan.same_protocol:
        body["total_tokens"] = body["prompt_tokens"] + body["completion_tokens"]
    _encode_usage_details(usage, body)
    return restore_extras(body, usage, FAMILY)


def _encode_usage_details(usage: Usage, body: dict[str, Any]) -> None:
    """Write the counts of cached and reasoning tokens."""
    prompt = PromptDetailsShape()
    if usage.cache_read is not None:
        prompt.cached_tokens = usage.cache_read
    if usage.cache_write is not None:
        prompt.cache_write_tokens = usage.cache_write
    if prompt != PromptDetailsShape() or "openai-chat:details:prompt" in usage.wire_form:
        body["prompt_tokens_details"] = as_dict(prompt)
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    elif "openai-chat:details:completion" in usage.wire_form:
        body["completion_tokens_details"] = {}


def _report_response(response: Response, plan: EncodingPlan) -> None:
    """Report as losses the response fields that Chat lacks."""
    continuation = response.continuation
    if continuation is not None and continuation.id is not None:
        plan.report.dropped(("continuation",), "id")
    if response.status is not None and response.status not in _STATUSES:
        plan.report.dropped((), "status")
