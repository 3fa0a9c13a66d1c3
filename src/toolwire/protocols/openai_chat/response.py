"""Chat's answers, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Refusal, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.hosted_tools import read_hosted_counts, report_hosted_counts
from toolwire.codec.encoding.ids import derive_response_id
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn
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
from toolwire.protocols.openai_chat.fast_path import ResponseTemplateCache
from toolwire.protocols.openai_chat.parts.calls import is_json
from toolwire.protocols.openai_chat.parts.content import chat_extras_and_form, constant_extras, restore_constant
from toolwire.protocols.openai_chat.parts.messages import decode_message, encode_turn, report_message
from toolwire.protocols.openai_chat.request import ID_AND_NAME_RULES
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
# These are told by the finish reason, or by the error.
_STATUSES = ("completed", "incomplete", "failed", "requires_action")
_EXACT_STOPS = ("end_turn", "max_tokens", "tool_use", "filtered")

_read_message = Reader[MessageShape](MessageShape, FAMILY).read
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read_with_exactness
_templates = ResponseTemplateCache()


_HOSTED_COUNTS_FIELD = "server_tool_use_details"
HOSTED_COUNTS = {"searches": f"{_HOSTED_COUNTS_FIELD}/web_search_requests"}
"""OpenRouter's, and of those who write as it does."""


# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    shape, typed = _read_response(body)
    if not typed:
        return _decode_response(shape, body)
    if (response := _templates.decode(shape)) is not None:
        return response
    response = _decode_response(shape, body)
    _templates.remember(shape, response)
    return response


def _decode_response(shape: ResponseShape, body: bytes) -> Response:
    failed = shape.error is not UNSET and bytes(shape.error) != b"null"
    count = len(shape.choices or ())
    if not isinstance(shape.choices, list) and not failed:
        if shape.unknown is not UNSET and "role" in shape.unknown:
            return _decode_bare_message(_read_message(body))
        raise DecodeError(FAMILY, "/choices", "an array", "nothing")
    form: tuple[str, ...] = ()
    if shape.error is not UNSET and not failed:
        form = (*form, f"{FAMILY}:null:error")
    if shape.choices is UNSET:
        form = (*form, "openai-chat:absent:choices")
    error = decode_error_object(shape.error, None, at="/error") if failed and shape.error is not UNSET else None
    own, form = chat_extras_and_form(shape, form)
    if shape.object != "chat.completion":
        word = constant_extras("object", shape.object, "chat.completion")
        own, form = own | word.get("extras", {}).get(FAMILY, {}), form + word.get("wire_form", ())
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.id),
        model=unset_to_none(shape.model),
        created=unset_to_none(shape.created),
        candidates=tuple([_decode_choice(one, number, count) for number, one in enumerate(shape.choices or ())]),
        usage=None if shape.usage is UNSET or shape.usage is None else decode_usage(shape.usage),
        error=decode_choice_error(shape.choices or ()) if error is None else error,
        extras={FAMILY: own} if own else None,
        wire_form=form,
    )


def _decode_bare_message(shape: MessageShape) -> Response:
    """A message without the answer around it, as people keep and quote them."""
    message = decode_message(shape, "", "")
    message = replace(message, parts=tuple([_with_completeness(part, None) for part in message.parts]))
    return Response(origin=FAMILY, candidates=(Candidate(messages=(message,), at=""),), wire_form=(MESSAGE_FORM,))


def _decode_choice(shape: ResponseChoiceShape, position: int, count: int) -> Candidate:
    message = decode_message(shape.message, f"/choices/{position}/message", "/message")
    stop = None
    if isinstance(shape.finish_reason, str):
        stop = decode_stop(shape.finish_reason, message)
    if ToolCall in map(type, message.parts):
        parts = tuple([_with_completeness(part, stop) for part in message.parts])
        if parts != message.parts:
            message = replace(message, parts=parts)
    form: tuple[str, ...] = () if shape.index is not UNSET else (NO_INDEX,)
    if position == 0 and shape.error is not UNSET:
        form = (*form, f"{FAMILY}:canonical:error")
    if shape.message.role != "assistant":
        form = (*form, f"openai-chat:role:{shape.message.role}")
    own, form = chat_extras_and_form(shape, form)
    index = position if shape.index is UNSET else shape.index
    if not 0 <= index < count:
        own, form = {**own, "index": Raw(str(index).encode())}, (*form, NO_INDEX)
        index = position
    extras = {FAMILY: own} if own else None
    plain = not own and not message.extras and all(map(_is_plain_part, message.parts))
    return Candidate(index=index, messages=(message,), stop=stop, plain=plain, extras=extras, wire_form=form)


def _is_plain_part(part: Part) -> bool:
    """Whether there is surely nothing in a part that only its own protocol has."""
    return part.extras is None and (type(part) is ToolCall or (type(part) is Text and not part.annotations))


def _with_completeness(part: Any, stop: Stop | None) -> Any:
    """A call whose text was cut is not to be run, whatever the server says of how it stopped."""
    if not isinstance(part, ToolCall) or not part.arguments:
        return part
    cut = stop is not None and stop.reason == "max_tokens"
    complete = not cut if part.shape == "freeform" else is_json(part.arguments)
    return part if complete else replace(part, complete=False)


def decode_stop(reason: str, message: Message) -> Stop:
    calls = refused = False
    for part in message.parts:
        if isinstance(part, ToolCall):
            calls = True
        elif isinstance(part, Refusal) and part.text:
            refused = True
    return Stop(reason=_canonical_stop(reason, has_calls=calls, has_refusal=refused), raw=reason)


def _canonical_stop(reason: str, *, has_calls: bool, has_refusal: bool) -> StopReason:
    """The common word. Servers also say `stop` where there are calls, or a refusal."""
    meant = CANONICAL_STOPS.get(reason, "other")
    if meant == "end_turn" and (has_calls or has_refusal):
        return "tool_use" if has_calls else "refusal"
    return meant


def decode_usage(shape: UsageShape) -> Usage:
    own, form = chat_extras_and_form(shape)
    read = write = reasoning = None
    if type(details := shape.prompt_tokens_details) is PromptDetailsShape:
        read, write = unset_to_none(details.cached_tokens), unset_to_none(details.cache_write_tokens)
        more, form = chat_extras_and_form(details, (*form, "openai-chat:details:prompt"), "prompt_tokens_details/")
        own = own | more if own else more
    if type(spent := shape.completion_tokens_details) is CompletionDetailsShape:
        reasoning = unset_to_none(spent.reasoning_tokens)
        more, form = chat_extras_and_form(
            spent, (*form, "openai-chat:details:completion"), "completion_tokens_details/"
        )
        own = own | more if own else more
    counts: dict[str, int] = {}
    if _HOSTED_COUNTS_FIELD in own:
        found, counts = read_hosted_counts({"extras": {FAMILY: own}, "wire_form": form}, FAMILY, HOSTED_COUNTS)
        own, form = found["extras"][FAMILY], found["wire_form"]
    return Usage(
        input_tokens=unset_to_none(shape.prompt_tokens),
        output_tokens=unset_to_none(shape.completion_tokens),
        total=unset_to_none(shape.total_tokens),
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
        searches=counts.get("searches"),
        extras={FAMILY: own} if own else None,
        wire_form=form,
    )


class _MessageSummary(Struct):
    tool_calls: list[Raw] | None = None
    refusal: str | None = None


class _ChoiceSummary(Struct):
    message: _MessageSummary
    finish_reason: str | None = None
    error: Raw | UnsetType = UNSET

    def stop(self) -> Stop | None:
        if self.finish_reason is None:
            return None
        return Stop(
            reason=_canonical_stop(
                self.finish_reason, has_calls=bool(self.message.tool_calls), has_refusal=bool(self.message.refusal)
            )
        )


class _PromptTokens(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionTokens(Struct):
    reasoning_tokens: int | None = None


class _HostedCounts(Struct):
    web_search_requests: int | None = None


class _UsageSummary(Struct):
    """All counts of `decode_usage`, and none of what only some servers tell besides."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | None = None
    prompt_tokens_details: _PromptTokens | None = None
    completion_tokens_details: _CompletionTokens | None = None
    server_tool_use_details: _HostedCounts | None = None

    def usage(self) -> Usage:
        prompt, completion, uses = (
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
            searches=None if uses is None else uses.web_search_requests,
        )


class _ResponseSummary(Struct):
    choices: list[_ChoiceSummary]
    usage: _UsageSummary
    id: str | None = None
    model: str | None = None
    error: Raw | UnsetType = UNSET


_decode_summary = msgspec.json.Decoder(_ResponseSummary).decode


def peek_response(body: bytes) -> Response | None:
    try:
        shape = _decode_summary(body)
    except JSON_ERRORS:
        return None
    failed = shape.error is not UNSET or any(one.error is not UNSET for one in shape.choices)
    if failed or not shape.choices:
        return None
    stops = tuple([Candidate(stop=one.stop()) for one in shape.choices])
    return Response(origin=FAMILY, id=shape.id, model=shape.model, candidates=stops, usage=shape.usage.usage())


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    home = response.origin == FAMILY
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), Target(), same_protocol=home, for_client=True)
    if MESSAGE_FORM in response.wire_form and len(response.candidates) == 1:
        return EncodedBody(_encode_message(response.candidates[0], 0, plan), plan.report)
    body: dict[str, Any] = {}
    if not home or response.id is not None:
        body["id"] = completion_id(response.id, plan, context)
    if (word := restore_constant(response, "object", "chat.completion")) is not UNSET:
        body["object"] = word
    if not home:
        body["created"] = int(response.created or context.created)
    elif response.created is not None:
        body["created"] = response.created
    if not home or response.model is not None:
        body["model"] = response.model or ""
    if response.candidates or "openai-chat:absent:choices" not in response.wire_form:
        candidates = response.candidates or (() if home else (Candidate(),))
        body["choices"] = [_encode_choice(one, number, plan) for number, one in enumerate(candidates)]
    if f"{FAMILY}:null:choices" in response.wire_form:
        del body["choices"]
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage, plan)
    if response.error is not None and not (home and IN_CHOICE in response.error.wire_form):
        body["error"] = encode_error_object(response.error, ("error",), plan.report)
    restore_extras(body, response, FAMILY)
    if not home:
        _report_response(response, plan)
    if not response.plain:
        plan.report.report_foreign_extras(response, (FAMILY, SHARED_FAMILY))
    return EncodedBody(body, plan.report)


def completion_id(id: str | None, plan: EncodingPlan, context: ResponseContext) -> str:
    if plan.same_protocol or (id is not None and id.startswith(("chatcmpl", "gen-"))):
        return id or ""
    return f"chatcmpl-{id or derive_response_id(context.request)}"


def _encode_choice(candidate: Candidate, number: int, plan: EncodingPlan) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if NO_INDEX not in candidate.wire_form:
        body["index"] = candidate.index
    message = _encode_message(candidate, number, plan)
    body["message"] = message
    if not plan.same_protocol:
        body["logprobs"] = (candidate.extras or {}).get(FAMILY, {}).get("logprobs")
    calls = bool(message.get("tool_calls"))
    finish = encode_stop(
        candidate.stop, ("candidates", number, "stop"), plan, has_calls=calls, has_refusal="refusal" in message
    )
    if finish is not None:
        body["finish_reason"] = finish
    if not plan.same_protocol:
        message.setdefault("refusal", None)
    for token in candidate.wire_form:
        if token.startswith("openai-chat:role:"):
            message["role"] = token.removeprefix("openai-chat:role:")
    return restore_extras(body, candidate, FAMILY)


def _encode_message(candidate: Candidate, number: int, plan: EncodingPlan) -> dict[str, Any]:
    places: list[LocatedPart] = []
    for index, message in enumerate(candidate.messages):
        trail: SourcePath = ("candidates", number, "messages", index)
        places += [LocatedPart(part, (*trail, "parts", position)) for position, part in enumerate(message.parts)]
        if not plan.same_protocol:
            report_message(message, trail, plan)
    only = candidate.messages[0] if len(candidate.messages) == 1 else None
    role = "assistant" if only is None or not plan.same_protocol else only.role
    trail = ("candidates", number, "messages", 0)
    (body,) = encode_turn(Turn(role, places, only, trail), plan)
    return dict(body)


def encode_stop(
    stop: Stop | None, path: SourcePath, plan: EncodingPlan, *, has_calls: bool, has_refusal: bool
) -> str | None:
    if stop is None:
        return None if plan.same_protocol else "tool_calls" if has_calls else "stop"
    if plan.same_protocol and stop.raw is not None:
        return stop.raw
    if stop.reason == "end_turn" and has_calls and not plan.same_protocol:
        return "tool_calls"  # a call that may be answered later: here its client would take `stop` for the end
    reason = WIRE_STOPS[stop.reason]
    if stop.reason == "refusal" and has_refusal:
        return "stop"
    if not plan.same_protocol and stop.reason not in _EXACT_STOPS:
        plan.report.approximated(path, "reason", f"{stop.raw or stop.reason} is told as {reason}")
    if stop.sequence is not None:
        plan.report.dropped(path, "sequence")
    return reason


def encode_usage(usage: Usage, plan: EncodingPlan) -> dict[str, Any]:
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
    return restore_extras(body, usage, FAMILY)


def _report_response(response: Response, plan: EncodingPlan) -> None:
    state = response.continuation
    if state is not None and state.id is not None:
        plan.report.dropped(("continuation",), "id")
    if response.status is not None and response.status not in _STATUSES:
        plan.report.dropped((), "status")
