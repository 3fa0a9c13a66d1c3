"""How a model is asked to think, answer and remember: `reasoning`, `text`, sampling and stored state, and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import report_thinking_visibility
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ConversationShape,
    FormatShape,
    ReasoningShape,
    RequestShape,
    TextShape,
)
from toolwire.protocols.vendors.openai import encode_output_schema

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MIN_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"

_FORMAT_KINDS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
_FORMAT_TYPES = {"text": "text", "json": "json_object", "json_schema": "json_schema"}
SUMMARY_LENGTHS = ("concise", "detailed")
_REASONING_FORM = "openai-responses:reasoning"
_TEXT_FORM = "openai-responses:text"
_FORMAT_FORM = "openai-responses:format"
_CONVERSATION = "openai-responses:name:id=conversation"
_CONVERSATION_OBJECT = "openai-responses:conversation:object"


# ---- decode


def decode_thinking(shape: ReasoningShape | UnsetType) -> Thinking | None:
    if shape is UNSET:
        return None
    kept = collect_extras(shape, FAMILY, _REASONING_FORM, prefix="reasoning/")
    length: Any = shape.summary if shape.summary in SUMMARY_LENGTHS else None
    if shape.summary not in (UNSET, "auto", *SUMMARY_LENGTHS):
        kept = merge_extras(kept, _word_extra("reasoning/summary", shape.summary))
    visibility: Any = "summary" if isinstance(shape.summary, str) else None
    return Thinking(effort=unset_to_none(shape.effort), visibility=visibility, summary=length, **kept)


def _word_extra(pointer: str, word: Any) -> dict[str, Any]:
    """A word that only this protocol knows, as an extra."""
    return {"extras": {FAMILY: {pointer: Raw(msgspec.json.encode(word))}}}


def decode_output(shape: TextShape | UnsetType) -> OutputFormat | None:
    if shape is UNSET:
        return None
    kept = collect_extras(shape, FAMILY, _TEXT_FORM, prefix="text/")
    asked = shape.format
    if asked is UNSET:
        return OutputFormat(verbosity=unset_to_none(shape.verbosity), **kept)
    kept = merge_extras(kept, collect_extras(asked, FAMILY, _FORMAT_FORM, prefix="text/format/"))
    if isinstance(asked.type, str) and asked.type not in _FORMAT_KINDS:
        kept = merge_extras(kept, _word_extra("text/format/type", asked.type))
    return OutputFormat(
        kind=_FORMAT_KINDS.get(unset_to_none(asked.type) or ""),
        schema=unset_to_none(asked.schema),
        name=unset_to_none(asked.name),
        description=unset_to_none(asked.description),
        strict=unset_to_none(asked.strict),
        verbosity=unset_to_none(shape.verbosity),
        **kept,
    )


def decode_sampling(shape: RequestShape) -> Sampling | None:
    sampling = Sampling(
        max_tokens=unset_to_none(shape.max_output_tokens),
        temperature=unset_to_none(shape.temperature),
        top_p=unset_to_none(shape.top_p),
        top_logprobs=unset_to_none(shape.top_logprobs),
        **_decode_logprobs(shape),
    )
    return None if sampling == Sampling() else sampling


def included_fields(shape: RequestShape) -> list[Any]:
    """What an answer is to include, if it asks for log probabilities among it."""
    raw = shape.include
    words = msgspec.json.decode(raw) if raw is not UNSET and LOGPROBS.encode() in bytes(raw) else ()
    return words if isinstance(words, list) and LOGPROBS in words else []


def _decode_logprobs(shape: RequestShape) -> dict[str, Any]:
    if not (words := included_fields(shape)):
        return {}
    return {"logprobs": True, "wire_form": (f"{FAMILY}:name:logprobs=include/{words.index(LOGPROBS)}",)}


def decode_continuation(shape: RequestShape) -> Continuation | None:
    """What the provider holds. Named in both ways at once, which it refuses, the conversation is an extra."""
    kind: Any = None
    id = None
    kept: dict[str, Any] = {}
    if shape.previous_response_id is not UNSET:
        kind, id = "response", shape.previous_response_id
    elif isinstance(shape.conversation, str):
        kind, id, kept = "conversation", shape.conversation, {"wire_form": (_CONVERSATION,)}
    elif shape.conversation is not UNSET:
        held = shape.conversation
        kept = collect_extras(held, FAMILY, _CONVERSATION + "/id", _CONVERSATION_OBJECT, prefix="conversation/")
        kind, id = "conversation", held.id
    state = Continuation(
        kind=kind, id=id, store=unset_to_none(shape.store), background=unset_to_none(shape.background), **kept
    )
    return None if state == Continuation() else state


# ---- encode


def encode_thinking(thinking: Thinking | None, path: SourcePath, plan: EncodingPlan) -> Any:
    if thinking is None:
        return UNSET
    shape = ReasoningShape(effort=none_to_unset(thinking.effort))
    if thinking.visibility in ("summary", "full"):
        own = (thinking.extras or {}).get(FAMILY, {})
        shape.summary = UNSET if "reasoning/summary" in own else thinking.summary or "auto"
    if not plan.same_protocol:
        _encode_foreign_thinking(thinking, shape, path, plan)
    return shape if shape != ReasoningShape() or _REASONING_FORM in thinking.wire_form else UNSET


def _encode_foreign_thinking(thinking: Thinking, shape: ReasoningShape, path: SourcePath, plan: EncodingPlan) -> None:
    if thinking.effort is not None and thinking.effort not in EFFORTS:
        plan.report.approximated(path, "effort", f"{thinking.effort} is told as high")
        shape.effort = "high"
    if thinking.enabled is False:
        if thinking.effort not in (None, "none"):
            plan.report.dropped(path, "effort", "there is no effort without thinking")
        shape.effort = "none"
    elif thinking.enabled and thinking.effort is None:
        plan.report.approximated(path, "enabled", "the target's models decide themselves whether to think")
    if thinking.budget_tokens is not None:
        plan.report.dropped(path, "budget_tokens")
    report_thinking_visibility(replace(thinking, summary=None), plan.report, path)


def encode_output(output: OutputFormat | None, path: SourcePath, plan: EncodingPlan) -> Any:
    if output is None:
        return UNSET
    shape = TextShape(verbosity=none_to_unset(output.verbosity))
    if output.kind is not None or (plan.same_protocol and _FORMAT_FORM in output.wire_form):
        kind = UNSET if output.kind is None else _FORMAT_TYPES[output.kind]
        schema, strict = output.schema, output.strict
        if not plan.same_protocol:
            schema, strict = encode_output_schema(output, plan.report, path)
        shape.format = FormatShape(type=kind, schema=none_to_unset(schema), strict=none_to_unset(strict))
        shape.format.name, shape.format.description = none_to_unset(output.name), none_to_unset(output.description)
        if not plan.same_protocol and output.kind == "json_schema" and output.name is None:
            shape.format.name = "answer"
            plan.report.added(path, "schema", "/text/format/name", "the target wants a name for the schema")
    return shape if shape != TextShape() or _TEXT_FORM in output.wire_form else UNSET


def encode_sampling(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
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
    if not plan.same_protocol and sampling.max_tokens is not None and sampling.max_tokens < MIN_TOKENS:
        plan.report.approximated(("sampling",), "max_tokens", f"the target gives at least {MIN_TOKENS}")
        body["max_output_tokens"] = MIN_TOKENS
    if sampling.logprobs and not plan.same_protocol:
        body["include"] = [*body.get("include", ()), LOGPROBS]
    for name in ("top_k", "stop", "n", "seed", "frequency_penalty", "presence_penalty"):
        value = getattr(sampling, name)
        if value is not None and not (name == "n" and value == 1) and value != ():
            plan.report.dropped(("sampling",), name)


def encode_continuation(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    state = request.continuation
    if state is None:
        return
    if state.store is not None:
        body["store"] = state.store
    if state.background is not None:
        body["background"] = state.background
    if state.id is None:
        return
    if not plan.same_protocol:
        plan.report.dropped(("continuation",), "id", "the target holds no conversation of another provider's")
    elif state.kind == "conversation":
        whole = _CONVERSATION_OBJECT in state.wire_form
        body["conversation"] = ConversationShape(id=state.id) if whole else state.id
    else:
        body["previous_response_id"] = state.id
