"""Decode and encode generation settings: sampling, thinking and output format, with their schemas.

Older models take only OpenAPI schemas, which write types in capitals and null as a keyword.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import (
    NO_THINKING,
    fit_output_limit,
    report_thinking_visibility,
    report_unsent_thinking,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.models.gemini import lacks_json_schema
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import fit_and_report, fit_schema
from toolwire.codec.validation import word_set
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.gemini.field_case import FieldCase, make_extra
from toolwire.protocols.gemini.wire import FAMILY, ThinkingShape
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, OPENAPI

_JSON_SCHEMA = Dialect(name="json-schema", unsupported_keywords=word_set("nullable"))


def decode_schema(schema: Raw, name: str) -> tuple[Raw, dict[str, Any]]:
    """Convert an OpenAPI schema to JSON Schema; return it and the arguments that keep the original.

    A schema that cannot be converted without loss is returned unchanged. `name` is its field.
    """
    fitted = fit_schema(schema, _JSON_SCHEMA)
    if not fitted.changes or any(change.kind == "dropped" for change in fitted.changes):
        return schema, {}
    return fitted.schema, {**make_extra(name, schema), "wire_form": (f"{FAMILY}:canonical:{name}",)}


def schema_dialect(plan: EncodingPlan) -> Dialect:
    """Return the schema dialect of the target model."""
    return OPENAPI if lacks_json_schema(plan.target.model or "") else JSON_SCHEMA


_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_NEAREST_LEVELS = {"xhigh": "high", "max": "high"}
# Token budgets for effort levels, for models that take only budgets.
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MIME_KINDS: dict[str, Any] = {"application/json": "json", "text/plain": "text"}
_OPENAPI = "gemini:schema:openapi"
_SCHEMA_FORM = "gemini:schema:kept"
# Gemini CLI writes OpenAPI types in a JSON Schema, and Gemini accepts them.
_CAPITAL_TYPES = re.compile(rb'"type":\s*"[A-Z]+"')
_FORMATS_FORM = "gemini:formats"
_OUTPUT_FIELDS = ("response_mime_type", "response_schema", "response_json_schema")
_NO_MIME = "gemini:absent:mime"
_MIME_FORM = "gemini:mime:"
_BUDGET_FORM = "gemini:budget:"
_MAX_STOPS = 5

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
    """The text entry of Vertex AI's `responseFormat`."""

    mime_type: str
    schema: Raw | UnsetType = UNSET
    jsonSchema: Raw | UnsetType = UNSET  # noqa: N815 - an older name for `schema`


class _Format(Struct, forbid_unknown_fields=True):
    """An entry of Vertex AI's `responseFormat`."""

    text: _TextFormat


_decode_formats = msgspec.json.Decoder(list[_Format]).decode

# ---- decode


def decode_sampling(shape: Any, field_case: FieldCase, location: str) -> tuple[Sampling | None, dict[str, Any]]:
    """Decode sampling settings; return them and `extras` and `wire_form` arguments.

    A fractional `topK` becomes an extra.
    """
    fields = {name: unset_to_none(getattr(shape, wire)) for name, wire in _SAMPLING_FIELDS.items()}
    extras: dict[str, Any] = {}
    top_k = shape.top_k
    if isinstance(top_k, float) and not top_k.is_integer():
        extras = make_extra(field_case.source_pointer(location + "topK"), top_k)
        top_k = UNSET
    stop = shape.stop_sequences
    sampling = Sampling(
        top_k=None if top_k is UNSET else int(top_k),
        stop=None if stop is UNSET else tuple(stop),
        wire_form=field_case.setting_name_tokens("Sampling", location),
        **fields,
    )
    empty = Sampling(wire_form=sampling.wire_form)
    return (None if sampling == empty else sampling), extras


def decode_thinking(shape: ThinkingShape, field_case: FieldCase, location: str) -> tuple[Thinking, dict[str, Any]]:
    """Decode `thinkingConfig`; return it and `extras` and `wire_form` arguments.

    A budget of 0 disables thinking, and -1 leaves it to the model.
    """
    config_location = location + "thinkingConfig"
    field_case.normalize(shape, config_location)
    budget, level = unset_to_none(shape.thinking_budget), unset_to_none(shape.thinking_level)
    form: list[str] = []
    extras: dict[str, Any] = {}
    enabled: bool | None = None
    if budget in (0, -1):
        # 0 disables thinking; -1 lets the model choose.
        form.append(f"{_BUDGET_FORM}{budget}")
        enabled, budget = budget == -1, None
    elif budget is not None:
        enabled = True
    effort = None if level is None else _LEVELS.get(level)
    if level is not None and effort is None:
        extras = make_extra(field_case.source_pointer(config_location + "/thinkingLevel"), level)
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
        field_case.extras_and_form("", (shape, config_location)), extras, empty if shape == ThinkingShape() else {}
    )


def decode_output(shape: Any, field_case: FieldCase, location: str) -> tuple[OutputFormat | None, dict[str, Any]]:
    """Decode the output format; return it and `extras` and `wire_form` arguments.

    It comes from `responseMimeType` and a schema, or from `responseFormat`.
    """
    if (decoded := _decode_format(shape, location)) is not None:
        return decoded
    mime_type = shape.response_mime_type
    kind = None if mime_type is UNSET else _MIME_KINDS.get(mime_type)
    if mime_type is not UNSET and kind is None:
        return None, _output_extras(shape, field_case, location)
    schema, form, extras = _decode_output_schema(shape, field_case, location)
    if mime_type is UNSET:
        form.insert(0, _NO_MIME)
    if schema is not None:
        form.append(f"{_MIME_FORM}{kind or ''}")
        kind = kind if kind == "text" else "json_schema"
    if kind is None:
        return None, extras
    form += field_case.setting_name_tokens("OutputFormat", location)
    return OutputFormat(kind=kind, schema=schema, held=kind == "json_schema", wire_form=tuple(form)), extras


def _decode_output_schema(
    shape: Any, field_case: FieldCase, location: str
) -> tuple[Raw | None, list[str], dict[str, Any]]:
    """Decode `responseJsonSchema` or `responseSchema`; return schema, wire-form tokens and `extras` arguments."""
    schema, form = unset_to_none(shape.response_json_schema), []
    extras: dict[str, Any] = {}
    if schema is not None and _CAPITAL_TYPES.search(bytes(schema)):
        schema, extras = decode_schema(schema, field_case.source_pointer(location + "responseJsonSchema"))
        form += [_SCHEMA_FORM] if extras else []
    if shape.response_schema is UNSET:
        return schema, form, extras
    source = field_case.source_pointer(location + "responseSchema")
    if schema is not None:
        return schema, form, merge_extras(extras, make_extra(source, shape.response_schema))
    schema, extras = decode_schema(shape.response_schema, source)
    names = [f"gemini:name:{field}={source}" for field in ("schema", "held")]
    return schema, [*form, _OPENAPI, *names, *([_SCHEMA_FORM] if extras else [])], extras


def _decode_format(shape: Any, location: str) -> tuple[OutputFormat, dict[str, Any]] | None:
    """Decode Vertex AI's `responseFormat`; return None unless it asks for text only.

    The field also stays in the extras, which are returned with the format.
    """
    if any(getattr(shape, field) is not UNSET for field in _OUTPUT_FIELDS):
        return None
    formats = {"responseFormat": shape.response_format, **(shape.unknown or {})}
    name = "responseFormat" if formats["responseFormat"] else "response_format"
    if not (raw := formats.get(name)):
        return None
    try:
        (text_format,) = _decode_formats(raw)
    except (ValueError, *JSON_ERRORS):
        return None
    text = text_format.text
    kind = _MIME_KINDS.get(text.mime_type.replace("_", "/").lower())
    schemas = {key: value for key in ("schema", "jsonSchema") if (value := getattr(text, key)) is not UNSET}
    if kind is None or len(schemas) > 1 or (schemas and kind == "text"):
        return None
    at = f"{location}{name}/0/text"
    schema_key, schema = next(iter(schemas.items()), ("mimeType", None))
    form = [
        _FORMATS_FORM,
        f"gemini:name:kind={at}/mimeType",
        *[f"gemini:name:{field}={at}/{schema_key}" for field in ("schema", "held")],
    ]
    output = OutputFormat(
        kind="json_schema" if schemas else kind, schema=schema, held=bool(schemas), wire_form=tuple(form)
    )
    return output, {"wire_form": (f"{FAMILY}:canonical:{location}{name}",)}


def _output_extras(shape: Any, field_case: FieldCase, location: str) -> dict[str, Any]:
    """Return an `extras` argument that keeps an output format unknown to other protocols, with its schema."""
    names = {
        "responseMimeType": shape.response_mime_type,
        "responseSchema": shape.response_schema,
        "responseJsonSchema": shape.response_json_schema,
    }
    extras = [
        make_extra(field_case.source_pointer(location + name), value)
        for name, value in names.items()
        if value is not UNSET
    ]
    return merge_extras(*extras)


# ---- encode


def encode_sampling(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    """Write sampling settings into `out`, the fields of `generationConfig`."""
    sampling = request.sampling
    if sampling is None:
        return
    for name, wire in _SAMPLING_FIELDS.items():
        if (value := getattr(sampling, name)) is not None:
            out[wire] = value
    if sampling.max_tokens is not None:
        reason = "the target generates at least one token"
        out["max_output_tokens"] = fit_output_limit(sampling.max_tokens, plan, 1, reason)
    if sampling.top_k is not None:
        out["top_k"] = sampling.top_k
    if sampling.stop is not None:
        out["stop_sequences"] = _encode_stop_sequences(sampling.stop, plan)
    if not plan.same_protocol and sampling.n == 1:
        del out["candidate_count"]


def _encode_stop_sequences(stop: tuple[str, ...], plan: EncodingPlan) -> list[str]:
    """Return the stop sequences, at most five for another protocol's request."""
    if plan.same_protocol:
        return list(stop)
    for index in range(_MAX_STOPS, len(stop)):
        plan.report.dropped(("sampling", "stop", index), "", f"the target accepts at most {_MAX_STOPS} stop sequences")
    return list(stop[:_MAX_STOPS])


def encode_thinking(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `thinkingConfig` into `out`, the fields of `generationConfig`."""
    thinking = request.thinking
    if thinking is None:
        return
    if plan.same_protocol:
        out["thinking_config"] = _encode_same_protocol_thinking(thinking)
        return
    if plan.model_info.thinking == "never":
        report_unsent_thinking(thinking, plan, NO_THINKING)
        return
    shape = _encode_foreign_thinking(thinking, plan)
    is_enabled = thinking.enabled is not False and thinking.effort != "none"
    if thinking.visibility is not None and is_enabled:
        shape.include_thoughts = thinking.visibility != "omitted"
        report_thinking_visibility(thinking, plan.report)
    elif thinking.visibility is not None:
        plan.report.dropped(("thinking",), "visibility", "thinking is disabled", severity="info")
    elif thinking.enabled and is_enabled:
        shape.include_thoughts = True
    if shape != ThinkingShape():
        out["thinking_config"] = shape


def _encode_same_protocol_thinking(thinking: Thinking) -> ThinkingShape:
    """Encode the thinking settings of a Gemini client, with the fields that the client used."""
    shape = ThinkingShape(thinking_budget=none_to_unset(thinking.budget_tokens))
    if thinking.visibility is not None:
        shape.include_thoughts = thinking.visibility != "omitted"
    for token in thinking.wire_form:
        if token.startswith(_BUDGET_FORM):
            shape.thinking_budget = int(token.removeprefix(_BUDGET_FORM))
    if thinking.effort is not None:
        shape.thinking_level = thinking.effort.upper()
    return shape


def _encode_foreign_thinking(thinking: Thinking, plan: EncodingPlan) -> ThinkingShape:
    """Encode another protocol's thinking settings as a level or budget that the target model takes."""
    effort, path = thinking.effort, ("thinking",)
    if thinking.enabled is False or effort == "none":
        return _disable_thinking(thinking, plan)
    if effort is not None and plan.model_info.efforts != ():
        if thinking.budget_tokens is not None:
            plan.report.dropped(path, "budget_tokens", "the target takes a thinking level or a budget, not both")
        level = _NEAREST_LEVELS.get(effort, effort)
        if level not in _LEVELS.values():
            level = "high"
        if level != effort:
            plan.report.approximated(path, "effort", f"{effort} sent as {level}")
        return ThinkingShape(thinking_level=level.upper())
    if thinking.budget_tokens is not None:
        if effort is not None:
            plan.report.dropped(path, "effort", "the model takes a token budget only")
        return ThinkingShape(thinking_budget=_fit_budget(thinking.budget_tokens, plan))
    if effort is not None:
        budget = _BUDGETS.get(effort, _BUDGETS["high"])
        plan.report.approximated(path, "effort", f"the model takes a token budget; {effort} sent as {budget} tokens")
        return ThinkingShape(thinking_budget=budget)
    return ThinkingShape(thinking_budget=-1) if thinking.enabled else ThinkingShape()


def _disable_thinking(thinking: Thinking, plan: EncodingPlan) -> ThinkingShape:
    """Encode disabled thinking; a model that always thinks gets its lowest level or budget."""
    info = plan.model_info
    if info.thinking != "always":
        return ThinkingShape(thinking_budget=0)
    field = "effort" if thinking.effort == "none" else "enabled"
    if info.budget:
        plan.report.approximated(("thinking",), field, f"the model always thinks; sent as {info.budget[0]} tokens")
        return ThinkingShape(thinking_budget=info.budget[0])
    plan.report.approximated(("thinking",), field, "the model always thinks; sent as low")
    return ThinkingShape(thinking_level="LOW")


def _fit_budget(budget: int, plan: EncodingPlan) -> int:
    """Return the budget within the range of the model, if that is known."""
    limits = plan.model_info.budget
    valid = min(max(budget, limits[0]), limits[-1]) if limits else budget
    if valid != budget:
        plan.report.approximated(("thinking",), "budget_tokens", f"outside the range of the model; sent as {valid}")
    return valid


def encode_output(request: Request, out: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the output format into `out`, the fields of `generationConfig`."""
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
    plan.report.dropped_fields(("output",), output, "name", "description", "verbosity")
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target always enforces the schema")


def _encode_same_protocol_output(output: OutputFormat, out: dict[str, Any]) -> None:
    """Write the output format of a Gemini client into `out`, with the fields that the client used."""
    if _FORMATS_FORM in output.wire_form:
        return
    kind: Any = output.kind
    for token in output.wire_form:
        if token.startswith(_MIME_FORM):
            kind = token.removeprefix(_MIME_FORM) or None
    if _NO_MIME not in output.wire_form and kind is not None:
        mime_types = {name: mime_type for mime_type, name in _MIME_KINDS.items()}
        out["response_mime_type"] = mime_types.get(kind, "application/json")
    if output.schema is not None and _SCHEMA_FORM not in output.wire_form:
        out["response_schema" if _OPENAPI in output.wire_form else "response_json_schema"] = output.schema
