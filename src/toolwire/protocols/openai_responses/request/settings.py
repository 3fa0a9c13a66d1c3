"""How a model is asked to think, answer and remember: `reasoning`, `text`, sampling and stored state, and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.kept import given, joined, known, rest
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.settings import report_shown
from toolwire.protocols.openai import encode_format
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ConversationShape,
    FormatShape,
    ReasoningShape,
    RequestShape,
    TextShape,
)

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
LEAST_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"

_KINDS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
_TYPES = {"text": "text", "json": "json_object", "json_schema": "json_schema"}
LENGTHS = ("concise", "detailed")
_REASONING = "openai-responses:reasoning"
_TEXT = "openai-responses:text"
_FORMAT = "openai-responses:format"
_CONVERSATION = "openai-responses:name:id=conversation"
_CONVERSATION_OBJECT = "openai-responses:conversation:object"


# ---- decode


def decode_thinking(shape: ReasoningShape | UnsetType) -> Thinking | None:
    if shape is UNSET:
        return None
    kept = rest(shape, FAMILY, _REASONING, under="reasoning/")
    length: Any = shape.summary if shape.summary in LENGTHS else None
    if shape.summary not in (UNSET, "auto", *LENGTHS):
        kept = joined(kept, _word("reasoning/summary", shape.summary))
    visibility: Any = "summary" if isinstance(shape.summary, str) else None
    return Thinking(effort=known(shape.effort), visibility=visibility, summary=length, **kept)


def _word(place: str, word: Any) -> dict[str, Any]:
    """A word that only this protocol knows, as an extra."""
    return {"extras": {FAMILY: {place: Raw(msgspec.json.encode(word))}}}


def decode_output(shape: TextShape | UnsetType) -> OutputFormat | None:
    if shape is UNSET:
        return None
    kept = rest(shape, FAMILY, _TEXT, under="text/")
    asked = shape.format
    if asked is UNSET:
        return OutputFormat(verbosity=known(shape.verbosity), **kept)
    kept = joined(kept, rest(asked, FAMILY, _FORMAT, under="text/format/"))
    if isinstance(asked.type, str) and asked.type not in _KINDS:
        kept = joined(kept, _word("text/format/type", asked.type))
    return OutputFormat(
        kind=_KINDS.get(known(asked.type) or ""),
        schema=known(asked.schema),
        name=known(asked.name),
        description=known(asked.description),
        strict=known(asked.strict),
        verbosity=known(shape.verbosity),
        **kept,
    )


def decode_sampling(shape: RequestShape) -> Sampling | None:
    sampling = Sampling(
        max_tokens=known(shape.max_output_tokens),
        temperature=known(shape.temperature),
        top_p=known(shape.top_p),
        top_logprobs=known(shape.top_logprobs),
        **_decode_logprobs(shape),
    )
    return None if sampling == Sampling() else sampling


def included(shape: RequestShape) -> list[Any]:
    """What an answer is to include, if it asks for log probabilities among it."""
    raw = shape.include
    words = msgspec.json.decode(raw) if raw is not UNSET and LOGPROBS.encode() in bytes(raw) else ()
    return words if isinstance(words, list) and LOGPROBS in words else []


def _decode_logprobs(shape: RequestShape) -> dict[str, Any]:
    if not (words := included(shape)):
        return {}
    return {"logprobs": True, "form": (f"{FAMILY}:name:logprobs=include/{words.index(LOGPROBS)}",)}


def decode_continuation(shape: RequestShape) -> Continuation | None:
    """What the provider holds. Named in both ways at once, which it refuses, the conversation is an extra."""
    kind: Any = None
    id = None
    kept: dict[str, Any] = {}
    if shape.previous_response_id is not UNSET:
        kind, id = "response", shape.previous_response_id
    elif isinstance(shape.conversation, str):
        kind, id, kept = "conversation", shape.conversation, {"form": (_CONVERSATION,)}
    elif shape.conversation is not UNSET:
        held = shape.conversation
        kept = rest(held, FAMILY, _CONVERSATION + "/id", _CONVERSATION_OBJECT, under="conversation/")
        kind, id = "conversation", held.id
    state = Continuation(kind=kind, id=id, store=known(shape.store), background=known(shape.background), **kept)
    return None if state == Continuation() else state


# ---- encode


def encode_thinking(thinking: Thinking | None, trail: Trail, plan: Plan) -> Any:
    if thinking is None:
        return UNSET
    shape = ReasoningShape(effort=given(thinking.effort))
    if thinking.visibility in ("summary", "full"):
        own = (thinking.extras or {}).get(FAMILY, {})
        shape.summary = UNSET if "reasoning/summary" in own else thinking.summary or "auto"
    if not plan.home:
        _encode_foreign_thinking(thinking, shape, trail, plan)
    return shape if shape != ReasoningShape() or _REASONING in thinking.form else UNSET


def _encode_foreign_thinking(thinking: Thinking, shape: ReasoningShape, trail: Trail, plan: Plan) -> None:
    if thinking.effort is not None and thinking.effort not in EFFORTS:
        plan.report.approximated(trail, "effort", f"{thinking.effort} is told as high")
        shape.effort = "high"
    if thinking.enabled is False:
        if thinking.effort not in (None, "none"):
            plan.report.dropped(trail, "effort", "there is no effort without thinking")
        shape.effort = "none"
    elif thinking.enabled and thinking.effort is None:
        plan.report.approximated(trail, "enabled", "the target's models decide themselves whether to think")
    if thinking.budget_tokens is not None:
        plan.report.dropped(trail, "budget_tokens")
    report_shown(replace(thinking, summary=None), plan.report, trail)


def encode_output(output: OutputFormat | None, trail: Trail, plan: Plan) -> Any:
    if output is None:
        return UNSET
    shape = TextShape(verbosity=given(output.verbosity))
    if output.kind is not None or (plan.home and _FORMAT in output.form):
        kind = UNSET if output.kind is None else _TYPES[output.kind]
        schema, strict = output.schema, output.strict
        if not plan.home:
            schema, strict = encode_format(output, plan.report, trail)
        shape.format = FormatShape(type=kind, schema=given(schema), strict=given(strict))
        shape.format.name, shape.format.description = given(output.name), given(output.description)
        if not plan.home and output.kind == "json_schema" and output.name is None:
            shape.format.name = "answer"
            plan.report.invented(trail, "schema", "/text/format/name", "the target wants a name for the schema")
    return shape if shape != TextShape() or _TEXT in output.form else UNSET


def encode_sampling(request: Request, body: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    for field, name in (
        ("max_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_logprobs", "top_logprobs"),
    ):
        if (value := getattr(sampling, field)) is not None:
            body[name] = value
    if not plan.home and sampling.max_tokens is not None and sampling.max_tokens < LEAST_TOKENS:
        plan.report.approximated(("sampling",), "max_tokens", f"the target gives at least {LEAST_TOKENS}")
        body["max_output_tokens"] = LEAST_TOKENS
    if sampling.logprobs and not plan.home:
        body["include"] = [*body.get("include", ()), LOGPROBS]
    for name in ("top_k", "stop", "n", "seed", "frequency_penalty", "presence_penalty"):
        value = getattr(sampling, name)
        if value is not None and not (name == "n" and value == 1) and value != ():
            plan.report.dropped(("sampling",), name)


def encode_continuation(request: Request, body: dict[str, Any], plan: Plan) -> None:
    state = request.continuation
    if state is None:
        return
    if state.store is not None:
        body["store"] = state.store
    if state.background is not None:
        body["background"] = state.background
    if state.id is None:
        return
    if not plan.home:
        plan.report.dropped(("continuation",), "id", "the target holds no conversation of another provider's")
    elif state.kind == "conversation":
        whole = _CONVERSATION_OBJECT in state.form
        body["conversation"] = ConversationShape(id=state.id) if whole else state.id
    else:
        body["previous_response_id"] = state.id
