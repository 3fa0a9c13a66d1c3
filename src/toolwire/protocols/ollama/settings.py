"""Decode and encode sampling, thinking and output format."""

from typing import Any

from msgspec import UNSET, Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import NO_THINKING, NO_THINKING_VISIBILITY, report_unsent_thinking
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import collect_extras, merge_extras, unset_to_none
from toolwire.protocols.ollama.fields import FORMAT_SCHEMA
from toolwire.protocols.ollama.wire import FAMILY, OptionsShape, RequestShape

EMPTY_OPTIONS = "ollama:empty:options"
EMPTY_FORMAT = "ollama:empty:format"
THINKING_LEVELS = ("low", "medium", "high", "max")

_OPTION_FIELDS = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
_TOP_LEVEL_FIELDS = ("logprobs", "top_logprobs")
# As in Ollama's own OpenAI bridge.
_NEAREST_LEVELS: dict[str, str] = {"minimal": "low", "xhigh": "max", "ultra": "max"}


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    """Decode sampling settings from the options and top-level fields."""
    values: dict[str, Any] = {name: unset_to_none(getattr(shape, name)) for name in _TOP_LEVEL_FIELDS}
    options = shape.options
    if isinstance(options, OptionsShape):
        values.update((name, unset_to_none(getattr(options, name))) for name in _OPTION_FIELDS)
        if isinstance(options.stop, list):
            values["stop"] = tuple(options.stop)
        # Negative values have special meanings: no limit, or fill the context.
        if isinstance(options.num_predict, int):
            if options.num_predict >= 0:
                values["max_tokens"] = options.num_predict
            else:
                values["extras"] = {FAMILY: {"options/num_predict": Raw(str(options.num_predict).encode())}}
    sampling = Sampling(**values)
    return None if sampling == Sampling() else sampling


def decode_options(shape: RequestShape) -> dict[str, Any]:
    """Return an `extras` argument with the options that have no canonical counterpart."""
    options = shape.options
    if not isinstance(options, OptionsShape):
        return {}
    return collect_extras(options, FAMILY, *((EMPTY_OPTIONS,) if options == OptionsShape() else ()), prefix="options/")


def decode_thinking(shape: RequestShape) -> Thinking | None:
    """Decode `think`, a boolean or a level."""
    match shape.think:
        case bool() as enabled:
            return Thinking(enabled=enabled)
        case str() as effort:
            return Thinking(effort=effort)
        case _:
            return None


def decode_output(shape: RequestShape) -> tuple[OutputFormat | None, dict[str, Any]]:
    """Decode `format`; return it and `extras` and `wire_form` arguments.

    An empty string, which older clients send, is recorded in the wire form.
    """
    if shape.format is UNSET:
        return None, {}
    match bytes(shape.format):
        case b"null":
            return None, {"wire_form": (f"{FAMILY}:null:format",)}
        case b'""':
            return None, {"wire_form": (EMPTY_FORMAT,)}
        case b'"json"':
            return OutputFormat(kind="json"), {}
        case text if text.startswith(b"{"):
            return OutputFormat(kind="json_schema", schema=shape.format, held=True), {}
        case _:
            return None, merge_extras({"extras": {FAMILY: {"format": shape.format}}})


# ---- encode


def encode_sampling(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write sampling settings into the options and top-level fields of `body`."""
    options: dict[str, Any] = {}
    if (sampling := request.sampling) is not None:
        if sampling.max_tokens is not None:
            options["num_predict"] = sampling.max_tokens
        for name in _OPTION_FIELDS:
            if (value := getattr(sampling, name)) is not None:
                options[name] = value
        if sampling.stop is not None:
            options["stop"] = list(sampling.stop)
        for name in _TOP_LEVEL_FIELDS:
            if (value := getattr(sampling, name)) is not None:
                body[name] = value
        if sampling.n is not None and sampling.n != 1:
            plan.report.dropped(("sampling",), "n", "the target returns a single candidate")
    if plan.target.context_tokens is not None and not plan.same_protocol:
        options["num_ctx"] = plan.target.context_tokens
        reason = f"the server cuts a prompt beyond its context; set to {plan.target.context_tokens} tokens"
        plan.report.added((), "", "/options/num_ctx", reason)
    if options or EMPTY_OPTIONS in request.wire_form:
        body["options"] = options


def encode_thinking(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `think` into `body`, with the values that the model supports."""
    thinking = request.thinking
    if thinking is None:
        return
    think: bool | str | None = thinking.effort if thinking.effort is not None else thinking.enabled
    if not plan.same_protocol:
        think = _encode_level(thinking, plan)
        info, facts = plan.model_info, plan.target.host.thinking
        if think and info.thinking == "never":
            report_unsent_thinking(thinking, plan, NO_THINKING)
            return
        if think and info.thinking is None and not facts.efforts and facts.switch is None:
            report_unsent_thinking(thinking, plan, "the model may not support thinking; left at its default")
            return
        if isinstance(think, str) and info.efforts == ():
            plan.report.approximated(("thinking",), "effort", f"the model has no thinking levels; {think} sent as true")
            think = True
    if think is not None:
        body["think"] = think


def _encode_level(thinking: Thinking, plan: EncodingPlan) -> bool | str | None:
    """Return the value of `think` closest to another protocol's settings; report where it differs."""
    effort, report = thinking.effort, plan.report
    if thinking.visibility is not None:
        report.dropped(("thinking",), "visibility", NO_THINKING_VISIBILITY)
    if thinking.budget_tokens is not None:
        report.dropped(("thinking",), "budget_tokens", "the target's models choose their own thinking budget")
    if thinking.enabled is False:
        if effort not in (None, "none"):
            report.dropped(("thinking",), "effort", "thinking is disabled", severity="info")
        return False
    if effort is None:
        return True if thinking.budget_tokens is not None else thinking.enabled
    if effort == "none":
        return False
    if effort in THINKING_LEVELS:
        return effort
    level = _NEAREST_LEVELS.get(effort)
    report.approximated(("thinking",), "effort", f"{effort} sent as {level or 'true'}")
    return level or True


def encode_output(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `format` into `body`."""
    output = request.output
    if output is None:
        if EMPTY_FORMAT in request.wire_form:
            body["format"] = ""
        return
    if output.kind == "json":
        body["format"] = "json"
    elif output.kind == "json_schema":
        body["format"] = "json" if output.schema is None else _encode_schema(output.schema, plan)
    plan.report.dropped_fields(("output",), output, "name", "description", "verbosity")
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target always enforces the schema")


def _encode_schema(schema: Raw, plan: EncodingPlan) -> Raw:
    """Return the schema of another protocol's output format, reduced to what the server supports."""
    return schema if plan.same_protocol else fit_and_report(schema, FORMAT_SCHEMA, plan.report, ("output",), "schema")
