"""Gemini's answers, to canonical and back."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.codec.counts import drop_counts
from toolwire.codec.fields import Reader
from toolwire.codec.ids import made_answer_id
from toolwire.codec.interface import Context, Encoding, Target
from toolwire.codec.kept import as_object, given, joined, known, rest, restore, watching_extras
from toolwire.codec.losses import Report, Trail
from toolwire.codec.moments import decode_moment, encode_moment
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.parts.content import encode_parts
from toolwire.protocols.gemini.parts.grounding import ground, grounding
from toolwire.protocols.gemini.parts.messages import decode_content, encode_content
from toolwire.protocols.gemini.parts.signatures import signed
from toolwire.protocols.gemini.parts.spelling import Spelling, extra, spell
from toolwire.protocols.gemini.request.body import RULES, is_call_id
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CandidateShape,
    ContentShape,
    FeedbackShape,
    ResponseShape,
    UsageShape,
)

STOPS: dict[str, StopReason] = {
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
REASONS: dict[StopReason, str] = {
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
_FAITHFUL = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "filtered", "malformed_call")
_NUMBERS = (
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
_NUMBER = "gemini:number:"
_BLOCKS = ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK")
BLOCKED = "gemini:promptFeedback"
NO_CANDIDATES = "gemini:absent:candidates"
_NO_INDEX = "gemini:absent:index"
_CREATED = "gemini:created:"
_NO_COUNT = "gemini:absent:candidatesTokenCount"

_CONTENT = "gemini:content"

read_response = Reader[ResponseShape](ResponseShape, FAMILY).read
_read_content = Reader[ContentShape](ContentShape, FAMILY).read


# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    with watching_extras() as extras:
        shape = read_response(body)
        if shape.candidates is UNSET and shape.unknown is not UNSET and shape.unknown.keys() >= {"role", "parts"}:
            response = _decode_bare(_read_content(body))
        else:
            response = _decode_response(shape)
    return response if extras else replace(response, plain=True)


def _decode_response(shape: ResponseShape) -> Response:
    spelling = Spelling()
    spelling.read(shape)
    created, when = decode_created(shape)
    form: tuple[str, ...] = ()
    candidates = () if shape.candidates is UNSET else _decode_candidates(shape.candidates)
    more: dict[str, Any] = {}
    if shape.prompt_feedback is not UNSET:
        blocked, more = decode_feedback(shape.prompt_feedback, spelling, alone=not candidates)
        candidates += (blocked,) if blocked is not None else ()
    if shape.candidates is UNSET:
        form = (*form, NO_CANDIDATES)
    return Response(
        origin=FAMILY,
        id=known(shape.response_id),
        model=known(shape.model_version),
        created=created,
        candidates=candidates,
        usage=None if shape.usage_metadata is UNSET else decode_usage(shape.usage_metadata),
        **joined(spelling.kept("Response", (shape, ""), form=form), when, more),
    )


def _decode_bare(shape: ContentShape) -> Response:
    """A content without the answer around it, as people keep and quote them."""
    message = replace(decode_content(shape, "", "assistant"), at="")
    return Response(origin=FAMILY, candidates=(Candidate(messages=(message,), at=""),), form=(_CONTENT,))


def _decode_candidates(shapes: list[CandidateShape]) -> tuple[Candidate, ...]:
    """Each under its own number, if the numbers are those of places; else that is for this protocol only to know."""
    found = tuple([_decode_candidate(shape, place) for place, shape in enumerate(shapes)])
    numbers = sorted(candidate.index for candidate in found)
    if numbers == list(range(len(found))):
        return found
    return tuple(
        replace(one, index=place, **joined(_as_kept(one), {} if shape.index is UNSET else extra("index", shape.index)))
        for place, (one, shape) in enumerate(zip(found, shapes, strict=True))
    )


def _as_kept(candidate: Candidate) -> dict[str, Any]:
    return {"extras": candidate.extras, "form": (*candidate.form, _NO_INDEX)}


def decode_created(shape: ResponseShape) -> tuple[float | None, dict[str, Any]]:
    """When it was made. The exact text is a matter of form, while it can be read at all."""
    if shape.create_time is UNSET:
        return None, {}
    if (made := decode_moment(shape.create_time)) is None:
        return None, extra("createTime", shape.create_time)
    return made, {"form": (_CREATED + shape.create_time,)}


def _decode_candidate(shape: CandidateShape, place: int) -> Candidate:
    spelling = Spelling(f"/candidates/{place}")
    spelling.read(shape)
    form: tuple[str, ...] = (_NO_INDEX,) if shape.index is UNSET else ()
    messages: tuple[Message, ...] = ()
    if shape.content is not UNSET:
        message = decode_content(shape.content, f"{spelling.path}/content", "assistant")
        messages = (replace(message, at="/content"),)
    kept, messages = ground(spelling.kept("Candidate", (shape, ""), form=form), messages, f"/candidates/{place}")
    return Candidate(
        index=place if shape.index is UNSET else shape.index,
        messages=messages,
        stop=decode_stop(shape.finish_reason, calls=_calls(messages), named=spelling.named("Stop")),
        **kept,
    )


def _calls(messages: tuple[Message, ...]) -> bool:
    parts = [part for message in messages for part in message.parts]
    return any(isinstance(part, ToolCall) and part.executor == "client" for part in parts)


def decode_stop(word: Any, *, calls: bool, named: tuple[str, ...] = ()) -> Stop | None:
    """There is no word for a stop at calls: that there are some says it."""
    if word is UNSET:
        return None
    form = named
    if isinstance(word, int):
        # Some clients record the numbers of the enumeration.
        form = (*form, f"{_NUMBER}{word}")
        word = _NUMBERS[word] if 0 <= word < len(_NUMBERS) else str(word)
    reason = STOPS.get(word, "other")
    return Stop(reason="tool_use" if calls and reason == "end_turn" else reason, raw=word, form=form)


def decode_feedback(
    shape: FeedbackShape, spelling: Spelling, *, alone: bool
) -> tuple[Candidate | None, dict[str, Any]]:
    """A prompt that was blocked has no candidates: that is one, without words, that was filtered."""
    spelling.read(shape, "promptFeedback")
    place = spelling.source("promptFeedback")
    if not alone or shape.block_reason is UNSET:
        own = {} if shape.block_reason is UNSET else extra(f"{place}/blockReason", shape.block_reason)
        return None, joined(rest(shape, FAMILY, f"gemini:had:{place}", under=place + "/"), own)
    name = f"gemini:name:reason={spelling.source('promptFeedback/blockReason').rpartition('/')[2]}"
    stop = Stop(reason="filtered", raw=shape.block_reason, at=f"//{place}", form=(name,))
    unknown = {} if shape.block_reason in _BLOCKS else extra(place + "/" + name.partition("=")[2], shape.block_reason)
    return Candidate(stop=stop, at="", form=(BLOCKED,)), joined(rest(shape, FAMILY, under=place + "/"), unknown)


def decode_usage(shape: UsageShape) -> Usage:
    """Gemini counts thoughts apart from the answer; canonically they are part of the output."""
    spelling = Spelling("/usageMetadata")
    spelling.read(shape)
    said, thoughts = known(shape.candidates_token_count), known(shape.thoughts_token_count)
    form = (_NO_COUNT,) if said is None and thoughts is not None else ()
    return Usage(
        input_tokens=known(shape.prompt_token_count),
        output_tokens=None if said is None and thoughts is None else (said or 0) + (thoughts or 0),
        cache_read=known(shape.cached_content_token_count),
        reasoning=thoughts,
        tool_use=known(shape.tool_use_prompt_token_count),
        total=known(shape.total_token_count),
        **spelling.kept("Usage", (shape, ""), form=form),
    )


# ---- encode


def encode_response(response: Response, context: Context) -> Encoding:
    home = response.origin == FAMILY
    plan = Plan(RULES, Report(), Target(), home=home, answering=True)
    body: Any = {}
    if home and _CONTENT in response.form and len(response.candidates) == 1:
        (message,) = response.candidates[0].messages
        places = _places(message, ("candidates", 0, "messages", 0))
        return Encoding(encode_content(message, encode_parts(places, plan)), plan.report)
    candidates = [
        _encode_candidate(candidate, number, plan)
        for number, candidate in enumerate(response.candidates)
        if BLOCKED not in candidate.form
    ]
    if candidates or not (home and NO_CANDIDATES in response.form):
        body["candidates"] = candidates
    for candidate in response.candidates:
        if BLOCKED in candidate.form and candidate.stop is not None:
            body["promptFeedback"] = FeedbackShape(block_reason=given(candidate.stop.raw))
    if response.usage is not None:
        body["usageMetadata"] = encode_usage(response.usage, plan)
    if response.model is not None:
        body["modelVersion"] = response.model
    encode_created(response.created, response.form, body, plan)
    if response.id is not None or not home:
        body["responseId"] = made_answer_id(context.request) if response.id is None else response.id
    if home:
        for token in response.form:
            if token.startswith("gemini:had:"):
                body.setdefault(token.removeprefix("gemini:had:"), {})
        spell(body, response)
    else:
        report_response(response, plan)
    restore(body, response, FAMILY)
    if not response.plain:
        plan.report.unclaimed(response, (FAMILY,))
    return Encoding(body, plan.report)


def encode_created(created: float | None, form: tuple[str, ...], body: dict[str, Any], plan: Plan) -> None:
    for token in form:
        if token.startswith(_CREATED) and plan.home:
            body["createTime"] = token.removeprefix(_CREATED)
            return
    if created is not None and not plan.home:
        body["createTime"] = encode_moment(created)


def _encode_candidate(candidate: Candidate, number: int, plan: Plan) -> Any:
    trail: Trail = ("candidates", number)
    shape: dict[str, Any] = {}
    if plan.home:
        for index, message in enumerate(candidate.messages):
            places = _places(message, (*trail, "messages", index))
            shape["content"] = encode_content(message, encode_parts(places, plan))
    else:
        said: list[Placed] = []
        for index, message in enumerate(candidate.messages):
            said += _places(message, (*trail, "messages", index))
            report_message(message, (*trail, "messages", index), plan)
        parts: list[Any] = []
        cited: list[tuple[int, Text]] = []
        for placed in signed(said):
            if isinstance(placed.part, Text) and placed.part.annotations:
                cited.append((len(parts), placed.part))
            parts += encode_parts([placed], plan)
        shape["content"] = ContentShape(parts=parts, role="model")
        if (found := grounding(cited)) is not None:
            shape["groundingMetadata"] = found
    if (word := encode_stop(candidate.stop, number, plan)) is not None:
        shape["finishReason"] = word
    if not (plan.home and _NO_INDEX in candidate.form):
        shape["index"] = candidate.index
    return restore(spell(shape, candidate), candidate, FAMILY)


def _places(message: Message, trail: Trail) -> list[Placed]:
    return [Placed(part, (*trail, "parts", index)) for index, part in enumerate(message.parts)]


def report_message(message: Any, trail: Trail, plan: Plan) -> None:
    for field in ("id", "status", "phase", "name"):
        if getattr(message, field) is not None:
            if field == "id" and isinstance(message, Message) and is_call_id(message):
                continue
            plan.report.dropped(trail, field)


def encode_stop(stop: Stop | None, number: int, plan: Plan) -> str | int | None:
    if stop is None:
        return None
    if plan.home:
        for token in stop.form:
            if token.startswith(_NUMBER):
                return int(token.removeprefix(_NUMBER))
        return stop.raw
    word = REASONS[stop.reason]
    trail: Trail = ("candidates", number, "stop")
    if stop.reason not in _FAITHFUL:
        plan.report.approximated(trail, "reason", f"{stop.raw or stop.reason} is told as {word}")
    if stop.sequence is not None:
        plan.report.dropped(trail, "sequence")
    return word


def encode_usage(usage: Usage, plan: Plan) -> Any:
    shape = UsageShape(
        prompt_token_count=given(usage.input_tokens),
        cached_content_token_count=given(usage.cache_read),
        thoughts_token_count=given(usage.reasoning),
        tool_use_prompt_token_count=given(usage.tool_use),
        total_token_count=given(usage.total),
    )
    if usage.output_tokens is not None and not (plan.home and _NO_COUNT in usage.form):
        shape.candidates_token_count = usage.output_tokens - (usage.reasoning or 0)
    if not plan.home:
        if usage.total is None and usage.input_tokens is not None and usage.output_tokens is not None:
            shape.total_token_count = usage.input_tokens + usage.output_tokens
        if usage.cache_write:
            plan.report.dropped(("usage",), "cache_write")
        drop_counts(usage, plan.report)
    return restore(spell(as_object(shape), usage), usage, FAMILY)


def report_response(response: Response, plan: Plan) -> None:
    if response.error is not None:
        plan.report.dropped(("error",), "", "the target tells errors apart from answers")
    if response.continuation is not None and response.continuation.id is not None:
        plan.report.dropped(("continuation",), "id")
    stopped = any(candidate.stop is not None for candidate in response.candidates)
    if response.status not in (None, "completed") and not stopped:
        plan.report.dropped((), "status")
