"""Which schemas a model takes, and the older ones as JSON Schema: their types are in capitals, null is a keyword.

Gemini's parameters of an answer: limits, thinking and output, to canonical and back.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import report_thinking_visibility
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import fit_and_report, fit_schema
from toolwire.codec.validation import word_set
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.gemini.field_case import FieldCase, make_extra
from toolwire.protocols.gemini.wire import FAMILY, ThinkingShape
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, OPENAPI

# Before 2.5 a model knows the older schemas only: https://github.com/envoyproxy/ai-gateway/pull/1512.
_OPENAPI_MODELS = re.compile(r"gemini-(?:1\.|2\.0)")
_JSON_SCHEMA = Dialect(name="json-schema", unsupported_keywords=word_set("nullable"))


def decode_schema(schema: Raw, name: str) -> tuple[Raw, dict[str, Any]]:
    """The schema, and what it was where that was something else; as it is if something in it can't be read."""
    found = fit_schema(schema, _JSON_SCHEMA)
    if not found.changes or any(change.kind == "dropped" for change in found.changes):
        return schema, {}
    return found.schema, {**make_extra(name, schema), "wire_form": (f"{FAMILY}:canonical:{name}",)}


def schema_dialect(plan: EncodingPlan) -> Dialect:
    return OPENAPI if _OPENAPI_MODELS.search(plan.target.model or "") else JSON_SCHEMA


_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_NEAREST_LEVELS = {"xhigh": "high", "max": "high"}
# What the levels stand for to models that only know budgets.
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MIME_KINDS: dict[str, Any] = {"application/json": "json", "text/plain": "text"}
_OPENAPI = "gemini:schema:openapi"
_SCHEMA_FORM = "gemini:schema:kept"
# Gemini CLI writes the older types in a JSON Schema, and Gemini takes them.
_CAPITAL_TYPES = re.compile(rb'"type":\s*"[A-Z]+"')
_FORMATS_FORM = "gemini:formats"
_OUTPUT_FIELDS = ("response_mime_type", "response_schema", "response_json_schema")
_NO_MIME = "gemini:absent:mime"
_MIME_FORM = "gemini:mime:"
_BUDGET_FORM = "gemini:budget:"

# A model that takes budgets, or none of Google's by name.
_BUDGET_MODELS = re.compile(r"gemini-(1|2)(\D|$)")
_LEVEL_MODELS = re.compile(r"gemini-([3-9]|\d\d)")

_SAMPLING_FIELDS = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "n": "candidate_count",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logprobs": "response_logprobs",
    "top_logprobs": "logprobs",
}


class _TextFormat(Struct, forbid_unknown_fields=True, rename="camel"):
    mime_type: str
    schema: Raw | UnsetType = UNSET
    jsonSchema: Raw | UnsetType = UNSET  # noqa: N815 - an older word for the same


class _Format(Struct, forbid_unknown_fields=True):
    text: _TextFormat


_decode_formats = msgspec.json.Decoder(list[_Format]).decode

# ---- decode


def decode_sampling(shape: Any, field_case: FieldCase, location: str) -> tuple[Sampling | None, dict[str, Any]]:
    """The sampling, and what of it is no number that others know."""
    fields = {name: unset_to_none(getattr(shape, wire)) for name, wire in _SAMPLING_FIELDS.items()}
    more: dict[str, Any] = {}
    top_k = shape.top_k
    if isinstance(top_k, float) and not top_k.is_integer():
        more = make_extra(field_case.source_pointer(location + "topK"), top_k)
        top_k = UNSET
    stop = shape.stop_sequences
    sampling = Sampling(
        top_k=None if top_k is UNSET else int(top_k),
        stop=None if stop is UNSET else tuple(stop),
        wire_form=field_case.setting_name_tokens("Sampling", location),
        **fields,
    )
    empty = Sampling(wire_form=sampling.wire_form)
    return (None if sampling == empty else sampling), more


def decode_thinking(shape: ThinkingShape, field_case: FieldCase, location: str) -> tuple[Thinking, dict[str, Any]]:
    inner = location + "thinkingConfig"
    field_case.normalize(shape, inner)
    budget, level = unset_to_none(shape.thinking_budget), unset_to_none(shape.thinking_level)
    form: list[str] = []
    more: dict[str, Any] = {}
    enabled: bool | None = None
    if budget in (0, -1):
        # None at all, or as much as the model wants.
        form.append(f"{_BUDGET_FORM}{budget}")
        enabled, budget = budget == -1, None
    elif budget is not None:
        enabled = True
    effort = None if level is None else _LEVELS.get(level)
    if level is not None and effort is None:
        more = make_extra(field_case.source_pointer(inner + "/thinkingLevel"), level)
    visible = shape.include_thoughts
    thinking = Thinking(
        enabled=enabled,
        effort=effort,
        budget_tokens=budget,
        visibility=None if visible is UNSET else "summary" if visible else "omitted",
        wire_form=(*form, *field_case.setting_name_tokens("Thinking", location)),
    )
    empty = {"wire_form": ("gemini:empty:thinkingConfig",)}
    return thinking, merge_extras(
        field_case.extras_and_form("", (shape, inner)), more, empty if shape == ThinkingShape() else {}
    )


def decode_output(shape: Any, field_case: FieldCase, location: str) -> tuple[OutputFormat | None, dict[str, Any]]:
    if (told := _decode_format(shape, location)) is not None:
        return told
    mime = shape.response_mime_type
    kind = None if mime is UNSET else _MIME_KINDS.get(mime)
    if mime is not UNSET and kind is None:
        return None, _output_extras(shape, field_case, location)
    schema, form = unset_to_none(shape.response_json_schema), [_NO_MIME] if mime is UNSET else []
    more: dict[str, Any] = {}
    if schema is not None and _CAPITAL_TYPES.search(bytes(schema)):
        schema, more = decode_schema(schema, field_case.source_pointer(location + "responseJsonSchema"))
        form += [_SCHEMA_FORM] if more else []
    if shape.response_schema is not UNSET:
        source = field_case.source_pointer(location + "responseSchema")
        if schema is None:
            schema, more = decode_schema(shape.response_schema, source)
            names = [f"gemini:name:{field}={source}" for field in ("schema", "held")]
            form += [_OPENAPI, *names, *([_SCHEMA_FORM] if more else [])]
        else:
            more = merge_extras(more, make_extra(source, shape.response_schema))
    if schema is not None:
        form.append(f"{_MIME_FORM}{kind or ''}")
        kind = kind if kind == "text" else "json_schema"
    if kind is None:
        return None, more
    form += field_case.setting_name_tokens("OutputFormat", location)
    return OutputFormat(kind=kind, schema=schema, held=kind == "json_schema", wire_form=tuple(form)), more


def _decode_format(shape: Any, location: str) -> tuple[OutputFormat, dict[str, Any]] | None:
    """What Vertex takes in place of a type and a schema, if it is of text only. It is kept as it is, too."""
    names = {"responseFormat": shape.response_format, **({} if shape.unknown is UNSET else shape.unknown)}
    name = next((one for one in ("responseFormat", "response_format") if names.get(one, UNSET) is not UNSET), None)
    if name is None or any(getattr(shape, one) is not UNSET for one in _OUTPUT_FIELDS):
        return None
    try:
        (only,) = _decode_formats(names[name])
    except (ValueError, *JSON_ERRORS):
        return None
    text = only.text
    kind = _MIME_KINDS.get(text.mime_type.replace("_", "/").lower())
    schemas = {word: value for word in ("schema", "jsonSchema") if (value := getattr(text, word)) is not UNSET}
    if kind is None or len(schemas) > 1 or (schemas and kind == "text"):
        return None
    at = f"{location}{name}/0/text"
    word, schema = next(iter(schemas.items()), ("mimeType", None))
    form = [
        _FORMATS_FORM,
        f"gemini:name:kind={at}/mimeType",
        *[f"gemini:name:{one}={at}/{word}" for one in ("schema", "held")],
    ]
    output = OutputFormat(
        kind="json_schema" if schemas else kind, schema=schema, held=bool(schemas), wire_form=tuple(form)
    )
    return output, {"wire_form": (f"{FAMILY}:canonical:{location}{name}",)}


def _output_extras(shape: Any, field_case: FieldCase, location: str) -> dict[str, Any]:
    """An output of a kind that others don't know: its schema means something only together with it."""
    names = {
        "responseMimeType": shape.response_mime_type,
        "responseSchema": shape.response_schema,
        "responseJsonSchema": shape.response_json_schema,
    }
    told = [
        make_extra(field_case.source_pointer(location + name), value)
        for name, value in names.items()
        if value is not UNSET
    ]
    return merge_extras(*told)


# ---- encode


def encode_sampling(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    for name, wire in _SAMPLING_FIELDS.items():
        if (value := getattr(sampling, name)) is not None:
            out[wire] = value
    if not plan.same_protocol and sampling.max_tokens is not None and sampling.max_tokens < 1:
        plan.report.approximated(("sampling",), "max_tokens", "the target generates at least one token")
        out["max_output_tokens"] = 1
    if sampling.top_k is not None:
        out["top_k"] = sampling.top_k
    if sampling.stop is not None:
        out["stop_sequences"] = list(sampling.stop)
    if not plan.same_protocol and sampling.n == 1:
        del out["candidate_count"]


def encode_thinking(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    thinking = request.thinking
    if thinking is None:
        return
    shape = ThinkingShape() if plan.same_protocol else _encode_foreign_thinking(thinking, request, plan)
    thinks = thinking.enabled is not False and thinking.effort != "none"
    if thinking.visibility is not None and (plan.same_protocol or thinks):
        shape.include_thoughts = thinking.visibility != "omitted"
        if not plan.same_protocol:
            report_thinking_visibility(thinking, plan.report)
    elif thinking.visibility is not None:
        plan.report.dropped(("thinking",), "visibility", "thinking is disabled")
    elif not plan.same_protocol and thinking.enabled and thinks:
        shape.include_thoughts = True
    if plan.same_protocol:
        shape.thinking_budget = none_to_unset(thinking.budget_tokens)
        for token in thinking.wire_form:
            if token.startswith(_BUDGET_FORM):
                shape.thinking_budget = int(token.removeprefix(_BUDGET_FORM))
        if thinking.effort is not None:
            shape.thinking_level = thinking.effort.upper()
    if shape != ThinkingShape() or plan.same_protocol:
        out["thinking_config"] = shape


def _encode_foreign_thinking(thinking: Thinking, request: Request, plan: EncodingPlan) -> ThinkingShape:
    model = plan.target.model or ""
    effort, trail = thinking.effort, ("thinking",)
    if thinking.enabled is False or effort == "none":
        if _LEVEL_MODELS.search(model):
            field = "effort" if effort == "none" else "enabled"
            plan.report.approximated(trail, field, "the model always thinks; sent as low")
            return ThinkingShape(thinking_level="LOW")
        return ThinkingShape(thinking_budget=0)
    if effort is not None and not _BUDGET_MODELS.search(model):
        if thinking.budget_tokens is not None:
            plan.report.dropped(trail, "budget_tokens", "the target takes a thinking level or a budget, not both")
        told = _NEAREST_LEVELS.get(effort, effort)
        if told not in _LEVELS.values():
            told = "high"
        if told != effort:
            plan.report.approximated(trail, "effort", f"{effort} sent as {told}")
        return ThinkingShape(thinking_level=told.upper())
    if thinking.budget_tokens is not None:
        if effort is not None:
            plan.report.dropped(trail, "effort", "the model takes a token budget only")
        return ThinkingShape(thinking_budget=thinking.budget_tokens)
    if effort is not None:
        budget = _BUDGETS.get(effort, _BUDGETS["high"])
        plan.report.approximated(trail, "effort", f"the model takes a token budget; {effort} sent as {budget} tokens")
        return ThinkingShape(thinking_budget=budget)
    return ThinkingShape(thinking_budget=-1) if thinking.enabled else ThinkingShape()


def encode_output(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    output = request.output
    if output is None:
        return
    if plan.same_protocol:
        _encode_same_protocol_output(output, out)
        return
    if output.kind in ("json", "json_schema"):
        out["response_mime_type"] = "application/json"
    if output.kind == "json_schema" and output.schema is not None:
        dialect = schema_dialect(plan)
        name = "response_schema" if dialect is OPENAPI else "response_json_schema"
        out[name] = fit_and_report(output.schema, dialect, plan.report, ("output",), "schema")
    for name in ("name", "description", "verbosity"):
        if getattr(output, name) is not None:
            plan.report.dropped(("output",), name)
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target always enforces the schema")


def _encode_same_protocol_output(output: OutputFormat, out: dict[str, Any]) -> None:
    if _FORMATS_FORM in output.wire_form:
        return
    kind: Any = output.kind
    for token in output.wire_form:
        if token.startswith(_MIME_FORM):
            kind = token.removeprefix(_MIME_FORM) or None
    if _NO_MIME not in output.wire_form and kind is not None:
        words = {word: mime for mime, word in _MIME_KINDS.items()}
        out["response_mime_type"] = words.get(kind, "application/json")
    if output.schema is not None and _SCHEMA_FORM not in output.wire_form:
        out["response_schema" if _OPENAPI in output.wire_form else "response_json_schema"] = output.schema
