"""Decode and encode `generateContent` responses and the model list."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.encoding.fallbacks import report_message_fields, report_stop
from toolwire.codec.encoding.hosted_tools import report_hosted_counts
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, derive_response_id
from toolwire.codec.interface import EncodedBody, ResponseContext, Target
from toolwire.codec.losses import LossReport, SourcePath
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
from toolwire.protocols.gemini.field_case import FieldCase, make_extra, restore_case
from toolwire.protocols.gemini.parts.content import encode_parts
from toolwire.protocols.gemini.parts.grounding import decode_grounding, encode_grounding
from toolwire.protocols.gemini.parts.messages import decode_content, encode_content
from toolwire.protocols.gemini.parts.signatures import move_signatures
from toolwire.protocols.gemini.request import ID_AND_NAME_RULES
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CandidateShape,
    ContentShape,
    FeedbackShape,
    ResponseShape,
    UsageShape,
)

_IDENTIFYING_FIELDS = ("candidates", "prompt_feedback", "usage_metadata", "model_version", "response_id")
"""Fields by which a response is recognized; one without candidates has at least one of the others."""

CANONICAL_STOPS: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "IMAGE_SAFETY": "filtered",
    "IMAGE_PROHIBITED_CONTENT": "filtered",
    "IMAGE_RECITATION": "filtered",
    "MODEL_ARMOR": "filtered",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
    "TOO_MANY_TOOL_CALLS": "malformed_call",
    "MALFORMED_RESPONSE": "malformed_call",
    "CONTINUATION": "continuation",
}
WIRE_STOPS: dict[StopReason, str] = {
    "end_turn": "STOP",
    "max_tokens": "MAX_TOKENS",
    "stop_sequence": "STOP",
    "tool_use": "STOP",
    "refusal": "SAFETY",
    "filtered": "SAFETY",
    "paused": "OTHER",
    "continuation": "OTHER",
    "context_window": "MAX_TOKENS",
    "malformed_call": "MALFORMED_FUNCTION_CALL",
    "cancelled": "OTHER",
    "error": "OTHER",
    "other": "OTHER",
}
_EXACT_STOPS = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "filtered", "malformed_call")
_STOP_NUMBERS = (
    "FINISH_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
)
_NUMBER_FORM = "gemini:number:"
_BLOCK_REASONS = ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK")
BLOCKED_FORM = "gemini:promptFeedback"
NO_CANDIDATES = "gemini:absent:candidates"
_NO_INDEX = "gemini:absent:index"
_CREATED_FORM = "gemini:created:"
_NO_COUNT = "gemini:absent:candidatesTokenCount"

_CONTENT_FORM = "gemini:content"

read_response = Reader[ResponseShape](ResponseShape, FAMILY).read
_read_content = Reader[ContentShape](ContentShape, FAMILY).read

# ---- decode


def decode_response(body: bytes, context: ResponseContext) -> Response:
    """Decode a response body, or a bare content, as programs store it."""
    shape = read_response(body)
    if shape.candidates is UNSET and shape.unknown is not UNSET and shape.unknown.keys() >= {"role", "parts"}:
        return _decode_bare_content(_read_content(body))
    return _decode_response(shape)


def _decode_response(shape: ResponseShape) -> Response:
    """Decode a response with its candidates, prompt feedback and usage."""
    field_case = FieldCase()
    field_case.normalize(shape)
    if all(getattr(shape, field) is UNSET for field in _IDENTIFYING_FIELDS):
        raise DecodeError(FAMILY, "/candidates", "an array", "nothing")
    created, created_extras = decode_created(shape)
    form: tuple[str, ...] = ()
    candidates = () if shape.candidates is UNSET else _decode_candidates(shape.candidates)
    feedback_extras: dict[str, Any] = {}
    if shape.prompt_feedback is not UNSET:
        blocked, feedback_extras = decode_feedback(shape.prompt_feedback, field_case, without_candidates=not candidates)
        candidates += (blocked,) if blocked is not None else ()
    if shape.candidates is UNSET:
        form = (*form, NO_CANDIDATES)
    return Response(
        origin=FAMILY,
        id=unset_to_none(shape.response_id),
        model=unset_to_none(shape.model_version),
        created=created,
        candidates=candidates,
        usage=None if shape.usage_metadata is UNSET else decode_usage(shape.usage_metadata),
        **merge_extras(
            field_case.extras_and_form("Response", (shape, ""), wire_form=form), created_extras, feedback_extras
        ),
    )


def _decode_bare_content(shape: ContentShape) -> Response:
    """Decode a content without the response around it."""
    message = replace(decode_content(shape, "", "assistant"), at="")
    return Response(origin=FAMILY, candidates=(Candidate(messages=(message,), at=""),), wire_form=(_CONTENT_FORM,))


def _decode_candidates(shapes: list[CandidateShape]) -> tuple[Candidate, ...]:
    """Decode candidates under their wire indices if these are consecutive.

    Other indices become extras, because only Gemini can interpret them.
    """
    candidates = tuple([_decode_candidate(shape, position) for position, shape in enumerate(shapes)])
    numbers = sorted(candidate.index for candidate in candidates)
    if numbers == list(range(len(candidates))):
        return candidates
    return tuple(
        replace(
            candidate,
            index=position,
            **merge_extras(
                _candidate_extras(candidate), {} if shape.index is UNSET else make_extra("index", shape.index)
            ),
        )
        for position, (candidate, shape) in enumerate(zip(candidates, shapes, strict=True))
    )


def _candidate_extras(candidate: Candidate) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a candidate that had no index in the source."""
    return {"extras": candidate.extras, "wire_form": (*candidate.wire_form, _NO_INDEX)}


def decode_created(shape: ResponseShape) -> tuple[float | None, dict[str, Any]]:
    """Decode the creation time; return it, and arguments that keep its spelling or an unreadable value."""
    if shape.create_time is UNSET:
        return None, {}
    if (created := decode_timestamp(shape.create_time)) is None:
        return None, make_extra("createTime", shape.create_time)
    return created, {"wire_form": (_CREATED_FORM + shape.create_time,)}


def _decode_candidate(shape: CandidateShape, index: int) -> Candidate:
    """Decode one candidate with its citations and stop reason."""
    field_case = FieldCase(f"/candidates/{index}")
    field_case.normalize(shape)
    form: tuple[str, ...] = (_NO_INDEX,) if shape.index is UNSET else ()
    messages: tuple[Message, ...] = ()
    if shape.content is not UNSET:
        message = decode_content(shape.content, f"{field_case.path}/content", "assistant")
        messages = (replace(message, at="/content"),)
    extras, messages = decode_grounding(
        field_case.extras_and_form("Candidate", (shape, ""), wire_form=form), messages, f"/candidates/{index}"
    )
    return Candidate(
        index=index if shape.index is UNSET else shape.index,
        messages=messages,
        stop=decode_stop(shape.finish_reason, has_calls=_has_calls(messages), wire_form=field_case.name_tokens("Stop")),
        **extras,
    )


def _has_calls(messages: tuple[Message, ...]) -> bool:
    """Check for calls that the client must run."""
    parts = [part for message in messages for part in message.parts]
    return any(isinstance(part, ToolCall) and part.executor == "client" for part in parts)


def decode_stop(finish_reason: Any, *, has_calls: bool, wire_form: tuple[str, ...] = ()) -> Stop | None:
    """Decode a finish reason; `STOP` with open calls means `tool_use`, for which Gemini has no value."""
    if finish_reason is UNSET:
        return None
    form = wire_form
    if isinstance(finish_reason, int):
        # Some clients store the enum numbers.
        form = (*form, f"{_NUMBER_FORM}{finish_reason}")
        finish_reason = _STOP_NUMBERS[finish_reason] if 0 <= finish_reason < len(_STOP_NUMBERS) else str(finish_reason)
    reason = CANONICAL_STOPS.get(finish_reason, "other")
    return Stop(reason="tool_use" if has_calls and reason == "end_turn" else reason, raw=finish_reason, wire_form=form)


def decode_feedback(
    shape: FeedbackShape, field_case: FieldCase, *, without_candidates: bool
) -> tuple[Candidate | None, dict[str, Any]]:
    """Decode prompt feedback; return a candidate and the response's `extras` and `wire_form` arguments.

    The candidate stands for a blocked prompt; it is None if the prompt was not blocked or there are candidates.
    """
    field_case.normalize(shape, "promptFeedback")
    location = field_case.source_pointer("promptFeedback")
    if not without_candidates or shape.block_reason is UNSET:
        block_reason = {} if shape.block_reason is UNSET else make_extra(f"{location}/blockReason", shape.block_reason)
        return None, merge_extras(
            collect_extras(shape, FAMILY, f"gemini:had:{location}", prefix=location + "/"), block_reason
        )
    name = f"gemini:name:reason={field_case.source_pointer('promptFeedback/blockReason').rpartition('/')[2]}"
    stop = Stop(reason="filtered", raw=shape.block_reason, at=f"//{location}", wire_form=(name,))
    unknown_reason = (
        {}
        if shape.block_reason in _BLOCK_REASONS
        else make_extra(location + "/" + name.partition("=")[2], shape.block_reason)
    )
    return Candidate(stop=stop, at="", wire_form=(BLOCKED_FORM,)), merge_extras(
        collect_extras(shape, FAMILY, prefix=location + "/"), unknown_reason
    )


def decode_usage(shape: UsageShape) -> Usage:
    """Decode token counts. Gemini counts thoughts separately; canonically they are part of the output."""
    field_case = FieldCase("/usageMetadata")
    field_case.normalize(shape)
    candidates, thoughts = unset_to_none(shape.candidates_token_count), unset_to_none(shape.thoughts_token_count)
    form = (_NO_COUNT,) if candidates is None and thoughts is not None else ()
    return Usage(
        input_tokens=unset_to_none(shape.prompt_token_count),
        output_tokens=None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0),
        cache_read=unset_to_none(shape.cached_content_token_count),
        reasoning=thoughts,
        tool_use=unset_to_none(shape.tool_use_prompt_token_count),
        total=unset_to_none(shape.total_token_count),
        **field_case.extras_and_form("Usage", (shape, ""), wire_form=form),
    )


# ---- encode


def encode_response(response: Response, context: ResponseContext) -> EncodedBody:
    """Encode a response; report as losses what Gemini cannot express."""
    same_protocol = response.origin == FAMILY
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), Target(), same_protocol=same_protocol, for_client=True)
    if same_protocol and _CONTENT_FORM in response.wire_form and len(response.candidates) == 1:
        (message,) = response.candidates[0].messages
        located_parts = _locate_parts(message, ("candidates", 0, "messages", 0))
        return EncodedBody(encode_content(message, encode_parts(located_parts, plan)), plan.report)
    body: dict[str, Any] = {}
    _encode_candidates(response, body, plan)
    if response.usage is not None:
        body["usageMetadata"] = encode_usage(response.usage, plan)
    if response.model is not None:
        body["modelVersion"] = response.model
    encode_created(response.created, response.wire_form, body, plan)
    if response.id is not None or not same_protocol:
        body["responseId"] = derive_response_id(context.request) if response.id is None else response.id
    if same_protocol:
        for token in response.wire_form:
            if token.startswith("gemini:had:"):
                body.setdefault(token.removeprefix("gemini:had:"), {})
        restore_case(body, response)
    else:
        report_response(response, plan)
    restore_extras(body, response, FAMILY)
    plan.report.report_foreign_extras(response, (FAMILY,))
    return EncodedBody(body, plan.report)


def _encode_candidates(response: Response, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the candidates into `body`; a blocked prompt becomes `promptFeedback`."""
    candidates = [
        _encode_candidate(candidate, number, plan)
        for number, candidate in enumerate(response.candidates)
        if BLOCKED_FORM not in candidate.wire_form
    ]
    if candidates or not (plan.same_protocol and NO_CANDIDATES in response.wire_form):
        body["candidates"] = candidates
    for candidate in response.candidates:
        if BLOCKED_FORM in candidate.wire_form and candidate.stop is not None:
            body["promptFeedback"] = FeedbackShape(block_reason=none_to_unset(candidate.stop.raw))


def encode_created(created: float | None, wire_form: tuple[str, ...], body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `createTime` into `body`, spelled as in the source if that was Gemini."""
    for token in wire_form:
        if token.startswith(_CREATED_FORM) and plan.same_protocol:
            body["createTime"] = token.removeprefix(_CREATED_FORM)
            return
    if created is not None and not plan.same_protocol:
        body["createTime"] = encode_timestamp(created)


def _encode_candidate(candidate: Candidate, number: int, plan: EncodingPlan) -> Any:
    """Encode one candidate; several messages, of other protocols or of several rounds, are joined into one content."""
    path: SourcePath = ("candidates", number)
    shape: dict[str, Any] = {}
    if plan.same_protocol:
        located_parts: list[LocatedPart] = []
        for index, message in enumerate(candidate.messages):
            located_parts += _locate_parts(message, (*path, "messages", index))
        if candidate.messages:
            shape["content"] = encode_content(candidate.messages[-1], encode_parts(located_parts, plan))
    else:
        all_parts: list[LocatedPart] = []
        for index, message in enumerate(candidate.messages):
            all_parts += _locate_parts(message, (*path, "messages", index))
            report_message_fields(message, (*path, "messages", index), plan.report, "id", "status", "phase", "name")
        parts: list[Any] = []
        cited_texts: list[tuple[int, Text]] = []
        for located_part in move_signatures(all_parts):
            if isinstance(located_part.part, Text) and located_part.part.annotations:
                cited_texts.append((len(parts), located_part.part))
            parts += encode_parts([located_part], plan)
        shape["content"] = ContentShape(parts=parts, role="model")
        if (metadata := encode_grounding(cited_texts)) is not None:
            shape["groundingMetadata"] = metadata
    if (finish_reason := encode_stop(candidate.stop, number, plan)) is not None:
        shape["finishReason"] = finish_reason
    if not (plan.same_protocol and _NO_INDEX in candidate.wire_form):
        shape["index"] = candidate.index
    return restore_extras(restore_case(shape, candidate), candidate, FAMILY)


def _locate_parts(message: Message, path: SourcePath) -> list[LocatedPart]:
    """Pair each part of a message with its path."""
    return [LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)]


def encode_stop(stop: Stop | None, number: int, plan: EncodingPlan) -> str | int | None:
    """Encode a stop reason as `finishReason`."""
    if stop is None:
        return None
    if plan.same_protocol:
        for token in stop.wire_form:
            if token.startswith(_NUMBER_FORM):
                return int(token.removeprefix(_NUMBER_FORM))
        return stop.raw
    finish_reason = WIRE_STOPS[stop.reason]
    path: SourcePath = ("candidates", number, "stop")
    report_stop(stop, path, finish_reason, plan.report, exact=_EXACT_STOPS, finished="STOP")
    return finish_reason


def encode_usage(usage: Usage, plan: EncodingPlan) -> Any:
    """Encode token counts, with thoughts counted separately."""
    shape = UsageShape(
        prompt_token_count=none_to_unset(usage.input_tokens),
        cached_content_token_count=none_to_unset(usage.cache_read),
        thoughts_token_count=none_to_unset(usage.reasoning),
        tool_use_prompt_token_count=none_to_unset(usage.tool_use),
        total_token_count=none_to_unset(usage.total),
    )
    if usage.output_tokens is not None and not (plan.same_protocol and _NO_COUNT in usage.wire_form):
        shape.candidates_token_count = usage.output_tokens - (usage.reasoning or 0)
    if not plan.same_protocol:
        if usage.total is None and usage.input_tokens is not None and usage.output_tokens is not None:
            shape.total_token_count = usage.input_tokens + usage.output_tokens
        if usage.cache_write:
            plan.report.dropped(("usage",), "cache_write")
        report_hosted_counts(usage, plan.report)
    return restore_extras(restore_case(as_dict(shape), usage), usage, FAMILY)


def report_response(response: Response, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's response that Gemini does not have."""
    if response.error is not None:
        plan.report.dropped(("error",), "", "the target reports errors outside the response")
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id")
    has_stop = any(candidate.stop is not None for candidate in response.candidates)
    if response.status not in (None, "completed") and not has_stop:
        plan.report.dropped((), "status")


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    """Encode the model list."""
    return {"models": [encode_model(model) for model in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode one model of the list."""
    return {
        "name": f"models/{model.id}",
        "version": "1",
        "displayName": model.id,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
        **({} if model.context is None else {"inputTokenLimit": model.context}),
    }
