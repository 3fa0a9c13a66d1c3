"""Decode and encode generation settings: sampling, reasoning effort and output format."""

from operator import attrgetter
from typing import Any, Literal

from msgspec import UNSET, Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import (
    NO_THINKING,
    NO_THINKING_VISIBILITY,
    fit_output_limit,
    fit_temperature,
    report_unsent_thinking,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.hosts.profile import EFFORTS
from toolwire.codec.models.gpt import refuses_tools_at_effort
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.openai_chat.hosts import DEFAULT_THINKING, fit_limit, fit_thinking
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras, constant_extras, restore_constant
from toolwire.protocols.openai_chat.wire import FAMILY, JsonSchemaShape, RequestShape, ResponseFormatShape
from toolwire.protocols.vendors.openai import (
    encode_output_schema,
    fit_effort,
)

MAX_TOKENS_ALIAS = "openai-chat:name:max_tokens=max_tokens"
SINGLE_STOP = "openai-chat:stop:string"
MIN_TOKENS = 1
REASONING_FIELD = "reasoning"

_NO_JSON_SCHEMA = "openai-chat:absent:json_schema"
_FORMATS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
_SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "n",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logprobs",
    "top_logprobs",
)
_sampling_fields = attrgetter(*_SAMPLING_FIELDS)
_NO_SAMPLING = (None,) * len(_SAMPLING_FIELDS)
_EMPTY_SAMPLING = Sampling()


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    """Decode the sampling parameters, None if the request sets none."""
    wire_form: tuple[str, ...] = ()
    limit = unset_to_none(shape.max_completion_tokens)
    extras: dict[str, Any] = {}
    if isinstance(shape.max_tokens, int):
        if limit is None:
            limit, wire_form = shape.max_tokens, (MAX_TOKENS_ALIAS,)
        else:
            extras["extras"] = {FAMILY: {"max_tokens": Raw(str(shape.max_tokens).encode())}}
    stop = shape.stop
    if isinstance(stop, str):
        stop, wire_form = [stop], (*wire_form, SINGLE_STOP)
    fields = zip(_SAMPLING_FIELDS, _sampling_fields(shape), strict=True)
    values = {name: value for name, value in fields if value is not UNSET}
    sampling = Sampling(
        max_tokens=limit, stop=tuple(stop) if isinstance(stop, list) else None, wire_form=wire_form, **values, **extras
    )
    return None if sampling == _EMPTY_SAMPLING else sampling


def decode_output(shape: RequestShape) -> OutputFormat | None:
    """Decode `response_format` and `verbosity`."""
    verbosity = unset_to_none(shape.verbosity)
    response_format = shape.response_format
    if not isinstance(response_format, ResponseFormatShape):
        return None if verbosity is None else OutputFormat(verbosity=verbosity)
    extras = collect_chat_extras(response_format, prefix="response_format/")
    schema = response_format.json_schema
    if schema is UNSET:
        kind = _FORMATS.get(unset_to_none(response_format.type) or "")
        if kind is None and response_format == ResponseFormatShape():
            extras = {"extras": {FAMILY: {"response_format": Raw(b"{}")}}}
        elif kind is None:
            extras = merge_extras(extras, constant_extras("response_format/type", response_format.type, "text"))
        elif kind == "json_schema":
            extras = merge_extras(extras, {"wire_form": (_NO_JSON_SCHEMA,)})
        return OutputFormat(kind=kind, verbosity=verbosity, **extras)
    type_extras = constant_extras("response_format/type", response_format.type, "json_schema")
    extras = merge_extras(extras, collect_chat_extras(schema, prefix="response_format/json_schema/"), type_extras)
    return OutputFormat(
        kind="json_schema",
        schema=unset_to_none(schema.schema),
        name=unset_to_none(schema.name),
        description=unset_to_none(schema.description),
        strict=unset_to_none(schema.strict),
        verbosity=verbosity,
        **extras,
    )


# ---- encode


def encode_sampling(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the sampling parameters into `body`."""
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.max_tokens is not None:
        _encode_limit(sampling, sampling.max_tokens, body, plan)
    if sampling.stop is not None:
        stop = _encode_stop_sequences(sampling.stop, plan)
        body["stop"] = stop[0] if SINGLE_STOP in sampling.wire_form and len(stop) == 1 else stop
    for name in _SAMPLING_FIELDS if _sampling_fields(sampling) != _NO_SAMPLING else ():
        value = getattr(sampling, name)
        if value is None:
            continue
        if name == "top_k" and not plan.same_protocol and not plan.target.host.fields.top_k:
            plan.report.dropped(("sampling",), "top_k")
        else:
            body[name] = fit_temperature(value, plan) if name == "temperature" else value
    if sampling.top_logprobs is not None and not plan.same_protocol:
        if sampling.logprobs is False:
            del body["top_logprobs"]
            plan.report.dropped(("sampling",), "top_logprobs", "log probabilities are disabled")
        else:
            body["logprobs"] = True  # in Responses, top_logprobs alone enables them


def _encode_limit(sampling: Sampling, limit: int, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the output limit under the field name that the client used or the host knows."""
    limit = fit_output_limit(limit, plan, MIN_TOKENS, f"the target requires at least {MIN_TOKENS}")
    facts = plan.target.host.output
    name = "max_completion_tokens" if plan.same_protocol else facts.limit_field
    name = "max_tokens" if MAX_TOKENS_ALIAS in sampling.wire_form else name
    if plan.adapts and (facts.caps or name not in facts.limit_fields):
        name, limit = fit_limit(name, limit, plan)
    body[name] = limit


def _encode_stop_sequences(stop: tuple[str, ...], plan: EncodingPlan) -> list[str]:
    """Return the stop sequences, as many as the host accepts."""
    limit = plan.target.host.output.stop_limit
    if not plan.adapts or limit is None:
        return list(stop)
    for index in range(limit, len(stop)):
        reason = plan.target.host.rejects(f"more than {limit} stop sequences")
        plan.report.dropped(("sampling", "stop", index), "", reason)
    return list(stop[:limit])


def encode_thinking(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `reasoning_effort` into `body`."""
    thinking, facts = request.thinking, plan.target.host.thinking
    if facts.field == REASONING_FIELD and not plan.same_protocol:
        settings = {} if thinking is None else encode_reasoning_settings(thinking, plan)
        if settings and REASONING_FIELD in (request.extras or {}).get(FAMILY, {}):
            body["reasoning_effort"] = settings["effort"]  # Chat's field, beside the extra `reasoning`
        elif settings:
            body[REASONING_FIELD] = settings
        return
    can_think = plan.model_info.thinking != "never"
    is_known = bool(facts.efforts) or facts.switch is not None
    if not plan.same_protocol and not (can_think and is_known):
        if thinking is not None:
            reason = "the host may reject an effort; its model decides how to think" if can_think else NO_THINKING
            report_unsent_thinking(thinking, plan, reason)
        return
    if thinking is not None:
        effort = thinking.effort if plan.same_protocol else fit_effort(_encode_effort(thinking, plan), thinking, plan)
        if effort is not None:
            body["reasoning_effort"] = effort
    if plan.adapts:
        if facts is not DEFAULT_THINKING:
            fit_thinking(thinking, body, plan)
        elif "tools" in body:
            _disable_thinking_with_tools(body, plan)


def encode_reasoning_settings(thinking: Thinking, plan: EncodingPlan) -> dict[str, Any]:
    """Encode OpenRouter's `reasoning`, with an effort or a budget: it does not accept both."""
    body: dict[str, Any] = {}
    effort = _encode_level(thinking, plan)
    if effort is not None:
        body["effort"] = effort
    if thinking.budget_tokens is not None:
        if effort is None:
            body["max_tokens"] = thinking.budget_tokens
        else:
            plan.report.approximated(("thinking",), "budget_tokens", f"sent as effort {effort}")
    elif effort is None and thinking.enabled:
        body["enabled"] = True
    if thinking.visibility == "summary":
        body["summary"] = thinking.summary or "auto"
    elif thinking.visibility is not None:
        body["exclude"] = thinking.visibility == "omitted"
    return body


def _encode_level(thinking: Thinking, plan: EncodingPlan) -> str | None:
    """Return the effort, `none` if thinking is disabled; None if no effort is sent."""
    effort = _known_effort(thinking, plan)
    if effort is None and thinking.enabled is False:
        return "none"
    if effort not in (None, "none") and thinking.enabled is False:
        plan.report.approximated(("thinking",), "enabled", f"sent as effort {effort}")
    return effort


def _known_effort(thinking: Thinking, plan: EncodingPlan) -> str | None:
    """Return the effort, `high` for a word that the target does not know."""
    if thinking.effort is None or thinking.effort in EFFORTS:
        return thinking.effort
    plan.report.approximated(("thinking",), "effort", f"{thinking.effort} sent as high")
    return "high"


def _disable_thinking_with_tools(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Set the effort to `none` for models that reject tools while reasoning, which is their default."""
    effort = body.get("reasoning_effort")
    if effort == "none" or not refuses_tools_at_effort(plan.target.model or ""):
        return
    body["reasoning_effort"] = "none"
    if effort is None:
        plan.report.added((), "", "/reasoning_effort", "the model does not support tools while reasoning")
    else:
        plan.report.approximated(
            ("thinking",), "effort", "the model does not support tools while reasoning; sent as none"
        )


def _encode_effort(thinking: Thinking, plan: EncodingPlan) -> str | None:
    """Return the reasoning effort closest to another protocol's thinking settings; None if it has none."""
    report = plan.report
    if thinking.visibility is not None:
        report.dropped(("thinking",), "visibility", NO_THINKING_VISIBILITY)
    effort = _known_effort(thinking, plan)
    if thinking.budget_tokens is not None:
        budget = thinking.budget_tokens
        estimate = "low" if budget <= 2048 else "medium" if budget <= 8192 else "high"
        report.approximated(("thinking",), "budget_tokens", f"sent as effort {effort or estimate}")
        return effort or estimate
    if thinking.enabled is False and effort is None:
        return "none"
    if thinking.enabled is not None and effort is None:
        report.approximated(("thinking",), "enabled", "the model decides whether to think")
    elif thinking.enabled is False and effort != "none":
        report.approximated(("thinking",), "enabled", f"sent as effort {effort}")
    return effort


def encode_output(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `response_format` and `verbosity` into `body`."""
    output = request.output
    if output is None:
        return
    if output.verbosity is not None:
        body["verbosity"] = output.verbosity
    match output.kind:
        case "text":
            body["response_format"] = {"type": "text"}
        case "json":
            body["response_format"] = {"type": "json_object"}
        case "json_schema":
            body["response_format"] = _encode_json_schema(output, plan)
        case None:
            pass


def _encode_json_schema(output: OutputFormat, plan: EncodingPlan) -> ResponseFormatShape:
    """Encode a `response_format` of type `json_schema`, which needs a name."""
    name = output.name
    if name is None and not plan.same_protocol:
        name = "response"
        reason = f"the target requires a schema name; set to {name}"
        plan.report.added(("output",), "schema", "/response_format/json_schema/name", reason)
    schema, strict = output.schema, output.strict
    if not plan.same_protocol:
        schema, strict = encode_output_schema(output, plan.report, ("output",))
    json_schema = JsonSchemaShape(
        name=none_to_unset(name),
        description=none_to_unset(output.description),
        schema=none_to_unset(schema),
        strict=none_to_unset(strict),
    )
    kind = restore_constant(output, "response_format/type", "json_schema")
    if plan.same_protocol and _NO_JSON_SCHEMA in output.wire_form and json_schema == JsonSchemaShape():
        return ResponseFormatShape(type=kind)
    return ResponseFormatShape(type=kind, json_schema=json_schema)
