"""Gemini's parameters of an answer: limits, thinking and output, to canonical and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.fields import BAD_JSON
from toolwire.codec.kept import given, joined, known
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted
from toolwire.codec.settings import report_shown
from toolwire.protocols.gemini.parts.spelling import Spelling, extra
from toolwire.protocols.gemini.wire import FAMILY, ThinkingShape
from toolwire.protocols.google import OPENAPI

from .schema import decode_schema, dialect_of

_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_NEAREST = {"xhigh": "high", "max": "high"}
# What the levels stand for to models that only know budgets.
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MIMES: dict[str, Any] = {"application/json": "json", "text/plain": "text"}
_OPENAPI = "gemini:schema:openapi"
_KEPT = "gemini:schema:kept"
# Gemini CLI writes the older types in a JSON Schema, and Gemini takes them.
_CAPITALS = re.compile(rb'"type":\s*"[A-Z]+"')
_FORMATS = "gemini:formats"
_WAYS = ("response_mime_type", "response_schema", "response_json_schema")
_NO_MIME = "gemini:absent:mime"
_MIME = "gemini:mime:"
_BUDGET = "gemini:budget:"

# A model that takes budgets, or none of Google's by name.
_BUDGETED = re.compile(r"gemini-(1|2)(\D|$)")
_LEVELLED = re.compile(r"gemini-([3-9]|\d\d)")

_SAMPLING = {
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


_read_formats = msgspec.json.Decoder(list[_Format]).decode


# ---- decode


def decode_sampling(shape: Any, spelling: Spelling, place: str) -> tuple[Sampling | None, dict[str, Any]]:
    """The sampling, and what of it is no number that others know."""
    fields = {name: known(getattr(shape, wire)) for name, wire in _SAMPLING.items()}
    more: dict[str, Any] = {}
    top_k = shape.top_k
    if isinstance(top_k, float) and not top_k.is_integer():
        more = extra(spelling.source(place + "topK"), top_k)
        top_k = UNSET
    stop = shape.stop_sequences
    sampling = Sampling(
        top_k=None if top_k is UNSET else int(top_k),
        stop=None if stop is UNSET else tuple(stop),
        form=spelling.named_under("Sampling", place),
        **fields,
    )
    empty = Sampling(form=sampling.form)
    return (None if sampling == empty else sampling), more


def decode_thinking(shape: ThinkingShape, spelling: Spelling, place: str) -> tuple[Thinking, dict[str, Any]]:
    inner = place + "thinkingConfig"
    spelling.read(shape, inner)
    budget, level = known(shape.thinking_budget), known(shape.thinking_level)
    form: list[str] = []
    more: dict[str, Any] = {}
    enabled: bool | None = None
    if budget in (0, -1):
        # None at all, or as much as the model wants.
        form.append(f"{_BUDGET}{budget}")
        enabled, budget = budget == -1, None
    elif budget is not None:
        enabled = True
    effort = None if level is None else _LEVELS.get(level)
    if level is not None and effort is None:
        more = extra(spelling.source(inner + "/thinkingLevel"), level)
    visible = shape.include_thoughts
    thinking = Thinking(
        enabled=enabled,
        effort=effort,
        budget_tokens=budget,
        visibility=None if visible is UNSET else "summary" if visible else "omitted",
        form=(*form, *spelling.named_under("Thinking", place)),
    )
    empty = {"form": ("gemini:empty:thinkingConfig",)}
    return thinking, joined(spelling.kept("", (shape, inner)), more, empty if shape == ThinkingShape() else {})


def decode_output(shape: Any, spelling: Spelling, place: str) -> tuple[OutputFormat | None, dict[str, Any]]:
    if (told := _decode_format(shape, place)) is not None:
        return told
    mime = shape.response_mime_type
    kind = None if mime is UNSET else _MIMES.get(mime)
    if mime is not UNSET and kind is None:
        return None, _undecoded(shape, spelling, place)
    schema, form = known(shape.response_json_schema), [_NO_MIME] if mime is UNSET else []
    more: dict[str, Any] = {}
    if schema is not None and _CAPITALS.search(bytes(schema)):
        schema, more = decode_schema(schema, spelling.source(place + "responseJsonSchema"))
        form += [_KEPT] if more else []
    if shape.response_schema is not UNSET:
        source = spelling.source(place + "responseSchema")
        if schema is None:
            schema, more = decode_schema(shape.response_schema, source)
            names = [f"gemini:name:{field}={source}" for field in ("schema", "held")]
            form += [_OPENAPI, *names, *([_KEPT] if more else [])]
        else:
            more = joined(more, extra(source, shape.response_schema))
    if schema is not None:
        form.append(f"{_MIME}{kind or ''}")
        kind = kind if kind == "text" else "json_schema"
    if kind is None:
        return None, more
    form += spelling.named_under("OutputFormat", place)
    return OutputFormat(kind=kind, schema=schema, held=kind == "json_schema", form=tuple(form)), more


def _decode_format(shape: Any, place: str) -> tuple[OutputFormat, dict[str, Any]] | None:
    """What Vertex takes in place of a type and a schema, if it is of text only. It is kept as it is, too."""
    names = {"responseFormat": shape.response_format, **({} if shape.unknown is UNSET else shape.unknown)}
    name = next((one for one in ("responseFormat", "response_format") if names.get(one, UNSET) is not UNSET), None)
    if name is None or any(getattr(shape, one) is not UNSET for one in _WAYS):
        return None
    try:
        (only,) = _read_formats(names[name])
    except (ValueError, *BAD_JSON):
        return None
    text = only.text
    kind = _MIMES.get(text.mime_type.replace("_", "/").lower())
    schemas = {word: value for word in ("schema", "jsonSchema") if (value := getattr(text, word)) is not UNSET}
    if kind is None or len(schemas) > 1 or (schemas and kind == "text"):
        return None
    at = f"{place}{name}/0/text"
    word, schema = next(iter(schemas.items()), ("mimeType", None))
    form = [
        _FORMATS,
        f"gemini:name:kind={at}/mimeType",
        *[f"gemini:name:{one}={at}/{word}" for one in ("schema", "held")],
    ]
    output = OutputFormat(kind="json_schema" if schemas else kind, schema=schema, held=bool(schemas), form=tuple(form))
    return output, {"form": (f"{FAMILY}:told:{place}{name}",)}


def _undecoded(shape: Any, spelling: Spelling, place: str) -> dict[str, Any]:
    """An output of a kind that others don't know: its schema means something only together with it."""
    names = {
        "responseMimeType": shape.response_mime_type,
        "responseSchema": shape.response_schema,
        "responseJsonSchema": shape.response_json_schema,
    }
    told = [extra(spelling.source(place + name), value) for name, value in names.items() if value is not UNSET]
    return joined(*told)


# ---- encode


def encode_sampling(request: Request, out: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    for name, wire in _SAMPLING.items():
        if (value := getattr(sampling, name)) is not None:
            out[wire] = value
    if not plan.home and sampling.max_tokens is not None and sampling.max_tokens < 1:
        plan.report.approximated(("sampling",), "max_tokens", "the target gives at least one")
        out["max_output_tokens"] = 1
    if sampling.top_k is not None:
        out["top_k"] = sampling.top_k
    if sampling.stop is not None:
        out["stop_sequences"] = list(sampling.stop)
    if not plan.home and sampling.n == 1:
        del out["candidate_count"]


def encode_thinking(request: Request, out: dict[str, Any], plan: Plan) -> None:
    thinking = request.thinking
    if thinking is None:
        return
    shape = ThinkingShape() if plan.home else _encode_foreign(thinking, request, plan)
    thinks = thinking.enabled is not False and thinking.effort != "none"
    if thinking.visibility is not None and (plan.home or thinks):
        shape.include_thoughts = thinking.visibility != "omitted"
        if not plan.home:
            report_shown(thinking, plan.report)
    elif thinking.visibility is not None:
        plan.report.dropped(("thinking",), "visibility", "there is no thinking to show")
    elif not plan.home and thinking.enabled and thinks:
        shape.include_thoughts = True
    if plan.home:
        shape.thinking_budget = given(thinking.budget_tokens)
        for token in thinking.form:
            if token.startswith(_BUDGET):
                shape.thinking_budget = int(token.removeprefix(_BUDGET))
        if thinking.effort is not None:
            shape.thinking_level = thinking.effort.upper()
    if shape != ThinkingShape() or plan.home:
        out["thinking_config"] = shape


def _encode_foreign(thinking: Thinking, request: Request, plan: Plan) -> ThinkingShape:
    model = plan.target.model or ""
    effort, trail = thinking.effort, ("thinking",)
    if thinking.enabled is False or effort == "none":
        if _LEVELLED.search(model):
            field = "effort" if effort == "none" else "enabled"
            plan.report.approximated(trail, field, "the model always thinks: it is asked to think little")
            return ThinkingShape(thinking_level="LOW")
        return ThinkingShape(thinking_budget=0)
    if effort is not None and not _BUDGETED.search(model):
        if thinking.budget_tokens is not None:
            plan.report.dropped(trail, "budget_tokens", "the target takes a level or a budget, not both")
        told = _NEAREST.get(effort, effort)
        if told not in _LEVELS.values():
            told = "high"
        if told != effort:
            plan.report.approximated(trail, "effort", f"{effort} is told as {told}")
        return ThinkingShape(thinking_level=told.upper())
    if thinking.budget_tokens is not None:
        if effort is not None:
            plan.report.dropped(trail, "effort", "the model takes a budget only")
        return ThinkingShape(thinking_budget=thinking.budget_tokens)
    if effort is not None:
        budget = _BUDGETS.get(effort, _BUDGETS["high"])
        plan.report.approximated(trail, "effort", f"the model takes budgets only: {effort} is told as {budget} tokens")
        return ThinkingShape(thinking_budget=budget)
    return ThinkingShape(thinking_budget=-1) if thinking.enabled else ThinkingShape()


def encode_output(request: Request, out: dict[str, Any], plan: Plan) -> None:
    output = request.output
    if output is None:
        return
    if plan.home:
        _encode_own_output(output, out)
        return
    if output.kind in ("json", "json_schema"):
        out["response_mime_type"] = "application/json"
    if output.kind == "json_schema" and output.schema is not None:
        dialect = dialect_of(plan)
        name = "response_schema" if dialect is OPENAPI else "response_json_schema"
        out[name] = fitted(output.schema, dialect, plan.report, ("output",), "schema")
    for name in ("name", "description", "verbosity"):
        if getattr(output, name) is not None:
            plan.report.dropped(("output",), name)
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target is always strict")


def _encode_own_output(output: OutputFormat, out: dict[str, Any]) -> None:
    if _FORMATS in output.form:
        return
    kind: Any = output.kind
    for token in output.form:
        if token.startswith(_MIME):
            kind = token.removeprefix(_MIME) or None
    if _NO_MIME not in output.form and kind is not None:
        words = {word: mime for mime, word in _MIMES.items()}
        out["response_mime_type"] = words.get(kind, "application/json")
    if output.schema is not None and _KEPT not in output.form:
        out["response_schema" if _OPENAPI in output.form else "response_json_schema"] = output.schema
