"""Decode and encode generation settings, output format, stored state, service tier and labels."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import (
    fit_output_limit,
    fit_temperature,
    report_sampling,
    report_thinking_visibility,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, decode_elements, tag_of
from toolwire.protocols.gemini_interactions.wire import FAMILY, GenerationShape, RequestShape, TextFormatShape
from toolwire.protocols.vendors.google.request import JSON_SCHEMA

THINKING_LEVELS = ("minimal", "low", "medium", "high")
SERVICE_TIERS = ("flex", "standard", "priority", "deferred")
JSON_MIME = "application/json"
FORMAT_TYPES = ("text", "audio", "image", "video")

_VISIBILITIES = {"auto": "summary", "none": "omitted"}
_WIRE_SUMMARIES = {"summary": "auto", "full": "auto", "omitted": "none"}
_SCHEMA_FORM = "gemini-interactions:format:schema"
_MIME_FORM = "gemini-interactions:format:mime"
_NO_MIME = "gemini-interactions:absent:mime_type"
_FORMAT_LIST = "gemini-interactions:format:list:"
_NAME_FORM = "gemini-interactions:name:"
_LABEL = re.compile(r"[\w-]{0,63}")

_read_format = Reader[TextFormatShape](TextFormatShape, FAMILY).read
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


# ---- decode


def decode_sampling(shape: GenerationShape | UnsetType) -> Sampling | None:
    """Decode sampling settings."""
    if shape is UNSET:
        return None
    stop = shape.stop_sequences
    sampling = Sampling(
        max_tokens=unset_to_none(shape.max_output_tokens),
        temperature=unset_to_none(shape.temperature),
        top_p=unset_to_none(shape.top_p),
        stop=None if stop is UNSET else tuple(stop),
        seed=unset_to_none(shape.seed),
    )
    return None if sampling == Sampling() else sampling


def decode_thinking(shape: GenerationShape | UnsetType) -> Thinking | None:
    """Decode thinking level and summaries."""
    if shape is UNSET or (shape.thinking_level is UNSET and shape.thinking_summaries is UNSET):
        return None
    summaries = shape.thinking_summaries
    visibility: Any = None if summaries is UNSET else _VISIBILITIES.get(summaries)
    extras = None
    if isinstance(summaries, str) and visibility is None:
        extras = {FAMILY: {"thinking_summaries": Raw(msgspec.json.encode(summaries))}}
    return Thinking(
        effort=unset_to_none(shape.thinking_level), visibility=visibility, **merge_extras({"extras": extras})
    )


def decode_output(shape: RequestShape) -> tuple[OutputFormat | None, dict[str, Raw]]:
    """Decode the output format of text; return it and the extras, formats of other media."""
    raw = shape.response_format
    if raw is UNSET:
        if shape.response_mime_type == JSON_MIME:
            mime_form = (_MIME_FORM, _NAME_FORM + "kind=response_mime_type")
            return OutputFormat(kind="json", at="", wire_form=mime_form), {}
        return None, {}
    match bytes(raw)[:1]:
        case b"{":
            if tag_of(raw) == "text":
                return _decode_format(raw, "/response_format", ()), {}
            if tag_of(raw) in FORMAT_TYPES:
                return None, {"response_format": raw}
            form = (_SCHEMA_FORM, *[f"{_NAME_FORM}{field}=response_format" for field in ("schema", "kind", "held")])
            return OutputFormat(kind="json_schema", schema=raw, held=True, at="", wire_form=form), {}
        case b"[":
            return _decode_formats(raw)
        case _:
            return None, {"response_format": raw}


def _decode_formats(raw: Raw) -> tuple[OutputFormat | None, dict[str, Raw]]:
    """Decode a list of formats; return its only text format and the others as extras by pointer.

    Without exactly one text format, return None and the whole list.
    """
    formats = decode_elements(raw)
    text_indices = [index for index, element in enumerate(formats) if tag_of(element) == "text"]
    if len(text_indices) != 1:
        return None, {"response_format": raw}
    (text_index,) = text_indices
    others = {f"response_format/{index}": element for index, element in enumerate(formats) if index != text_index}
    token = f"{_FORMAT_LIST}{text_index},{len(formats)}"
    return _decode_format(formats[text_index], f"/response_format/{text_index}", (token,)), others


def _decode_format(raw: Raw, at: str, wire_form: tuple[str, ...]) -> OutputFormat:
    """Decode one text format; `at` is its pointer."""
    shape = _read_format(raw, at)
    is_null = shape.schema is not UNSET and bytes(shape.schema) == b"null"
    kind: Any = "text" if shape.mime_type == "text/plain" else None
    if shape.schema is not UNSET and not is_null:
        kind = "json_schema"
    elif shape.mime_type == JSON_MIME:
        kind = "json"
    if is_null:
        wire_form = (*wire_form, f"{FAMILY}:null:schema")
    if shape.mime_type is UNSET:
        wire_form = (*wire_form, _NO_MIME, _NAME_FORM + "kind=type")
    extras = collect_extras(shape, FAMILY, *wire_form)
    if isinstance(shape.mime_type, str) and shape.mime_type != _mime_type(kind):
        extras = merge_extras(extras, {"extras": {FAMILY: {"mime_type": Raw(msgspec.json.encode(shape.mime_type))}}})
    schema = None if is_null else unset_to_none(shape.schema)
    return OutputFormat(kind=kind, schema=schema, held=schema is not None, at=at, **extras)


def _mime_type(kind: str | None) -> str | None:
    """Return the MIME type of an output kind."""
    return {"json": JSON_MIME, "json_schema": JSON_MIME, "text": "text/plain"}.get(kind or "")


def decode_continuation(shape: RequestShape) -> Continuation | None:
    """Decode stored state: `previous_interaction_id`, `store` and `background`."""
    id = unset_to_none(shape.previous_interaction_id)
    kind: Any = None if id is None else "interaction"
    state = Continuation(kind=kind, id=id, store=unset_to_none(shape.store), background=unset_to_none(shape.background))
    return None if state == Continuation() else state


# ---- encode


def encode_sampling(request: Request, config: dict[str, Any], plan: EncodingPlan) -> None:
    """Write sampling settings into `generation_config`."""
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.max_tokens is not None:
        reason = "the target generates at least one token"
        config["max_output_tokens"] = fit_output_limit(sampling.max_tokens, plan, 1, reason)
    if sampling.temperature is not None:
        config["temperature"] = fit_temperature(sampling.temperature, plan)
    for name in ("top_p", "seed"):
        if (value := getattr(sampling, name)) is not None:
            config[name] = value
    if sampling.stop is not None and (sampling.stop or plan.same_protocol):
        config["stop_sequences"] = list(sampling.stop)
    missing = ("top_k", "n", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs")
    report_sampling(sampling, plan.report, *missing)


def encode_thinking(thinking: Thinking | None, config: dict[str, Any], plan: EncodingPlan) -> None:
    """Write thinking level and summaries into `generation_config`."""
    if thinking is None:
        return
    level = thinking.effort
    if not plan.same_protocol:
        level = _encode_level(thinking, plan)
        if thinking.budget_tokens is not None:
            plan.report.dropped(("thinking",), "budget_tokens", "the target's models choose their own thinking budget")
        report_thinking_visibility(thinking, plan.report)
    if level is not None:
        config["thinking_level"] = level
    if thinking.visibility is not None:
        config["thinking_summaries"] = _WIRE_SUMMARIES[thinking.visibility]
    elif thinking.enabled and not plan.same_protocol:
        # Other protocols show thinking by default once it is enabled.
        config["thinking_summaries"] = "auto"
    restore_extras(config, thinking, FAMILY)


def _encode_level(thinking: Thinking, plan: EncodingPlan) -> str | None:
    """Return the thinking level closest to another protocol's settings; report where it differs."""
    level = thinking.effort
    if thinking.enabled is False or level == "none":
        field = "enabled" if thinking.enabled is False else "effort"
        plan.report.approximated(("thinking",), field, "the target's models always think; sent as minimal")
        if thinking.enabled is False and level not in (None, "none"):
            plan.report.dropped(("thinking",), "effort", "thinking is disabled", severity="info")
        return "minimal"
    if level is not None and level not in THINKING_LEVELS:
        plan.report.approximated(("thinking",), "effort", f"{level} sent as high")
        return "high"
    if thinking.enabled and level is None and thinking.budget_tokens is None:
        plan.report.approximated(("thinking",), "enabled", "the target's models choose their own thinking budget")
    return level


def encode_output(request: Request, plan: EncodingPlan) -> Any:
    """Encode `response_format`, or return UNSET."""
    output = request.output
    if output is None:
        return UNSET
    if plan.same_protocol:
        return _encode_same_protocol_output(output, request)
    plan.report.dropped_fields(("output",), output, "name", "description", "verbosity")
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target always enforces the schema")
    if output.kind is None:
        return UNSET
    shape = TextFormatShape(type="text", mime_type="text/plain" if output.kind == "text" else JSON_MIME)
    if output.kind == "json_schema" and output.schema is not None:
        shape.schema = fit_and_report(output.schema, JSON_SCHEMA, plan.report, ("output",), "schema")
    return shape


def _encode_same_protocol_output(output: OutputFormat, request: Request) -> Any:
    """Encode the output format of an Interactions client, with the formats of other media."""
    if _MIME_FORM in output.wire_form:
        return UNSET
    if _SCHEMA_FORM in output.wire_form and output.schema is not None:
        return output.schema
    extras = {} if output.extras is None else output.extras.get(FAMILY, {})
    shape = TextFormatShape(type="text", mime_type=none_to_unset(_mime_type(output.kind)))
    if _NO_MIME in output.wire_form or "mime_type" in extras:
        shape.mime_type = UNSET
    shape.schema = none_to_unset(output.schema)
    text_format = restore_extras(as_dict(shape), output, FAMILY)
    for token in output.wire_form:
        if token.startswith(_FORMAT_LIST):
            text_index, count = map(int, token[len(_FORMAT_LIST) :].split(","))
            others = (request.extras or {}).get(FAMILY, {})
            return [
                text_format if index == text_index else others[f"response_format/{index}"] for index in range(count)
            ]
    return text_format


def encode_mime(request: Request, body: dict[str, Any]) -> None:
    """Write `response_mime_type` into `body` if the client sent it."""
    if request.output is not None and _MIME_FORM in request.output.wire_form:
        body["response_mime_type"] = JSON_MIME


def encode_continuation(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write references to stored state into `body`; other protocols' references are reported as losses."""
    continuation = request.continuation
    if continuation is None:
        return
    if continuation.store is not None:
        body["store"] = continuation.store
    if continuation.background and not plan.same_protocol and body.get("stream"):
        plan.report.dropped(("continuation",), "background", "the target cannot stream background responses")
    elif continuation.background is not None:
        body["background"] = continuation.background
    if continuation.id is None:
        return
    if plan.same_protocol:
        body["previous_interaction_id"] = continuation.id
    else:
        plan.report.dropped(("continuation",), "id", "stored by another provider")


def encode_tier(request: Request, plan: EncodingPlan) -> Any:
    """Encode the service tier, or return UNSET."""
    tier = request.tier
    if tier is None or plan.same_protocol or tier in SERVICE_TIERS:
        return none_to_unset(tier)
    if tier in ("default", "standard_only"):
        plan.report.approximated((), "tier", f"{tier} sent as standard")
        return "standard"
    plan.report.dropped((), "tier", f"the target has no service tier {tier}")
    return UNSET


def encode_labels(request: Request, plan: EncodingPlan) -> Any:
    """Encode labels; other protocols' must all be short and lowercase, or UNSET is returned and reported."""
    if request.labels is None or plan.same_protocol:
        return none_to_unset(request.labels)
    try:
        labels = _decode_labels(request.labels)
    except msgspec.DecodeError:
        labels = None
    if labels is None or not all(_is_label(name, value) for name, value in labels.items()):
        plan.report.dropped((), "labels", "labels of the target must be short and lowercase")
        return UNSET
    return request.labels


def _is_label(name: str, value: str) -> bool:
    """Check that name and value of a label are legal."""
    matches = _LABEL.fullmatch(name) is not None and _LABEL.fullmatch(value) is not None
    return matches and name[:1].isalpha() and name == name.lower() and value == value.lower()
