"""Anthropic's parameters of an answer: limits, thinking, output and tier, to canonical and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import report_thinking_visibility
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.anthropic.fields import OUTPUT_SCHEMA, model_version, supported_efforts
from toolwire.protocols.anthropic.parts.messages import lacks_thinking
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    ChoiceShape,
    FormatShape,
    RequestShape,
    SettingsShape,
    ThinkingShape,
)

DEFAULT_MAX_TOKENS = 8192
MIN_BUDGET = 1024
SAMPLING_VERSION = "2023-06-01"
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# What a level of effort may take of the limit, in per cent: as OpenRouter tells it to models that want a budget.
_EFFORT_SHARES = {"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 95, "max": 95}
_THINKING_VISIBILITY: dict[str, Literal["omitted", "summary"]] = {"omitted": "omitted", "summarized": "summary"}
_THINKING_DISPLAY = {"omitted": "omitted", "summary": "summarized", "full": "summarized"}


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    stop = shape.stop_sequences
    sampling = Sampling(
        max_tokens=unset_to_none(shape.max_tokens),
        temperature=unset_to_none(shape.temperature),
        top_p=unset_to_none(shape.top_p),
        top_k=unset_to_none(shape.top_k),
        stop=None if stop is UNSET else tuple(stop),
    )
    return None if sampling == Sampling() else sampling


def decode_settings(shape: RequestShape) -> tuple[Thinking | None, OutputFormat | None]:
    settings = shape.output_config
    effort = None if settings is UNSET else unset_to_none(settings.effort)
    thinking = None
    if shape.thinking is not UNSET:
        thinking = _decode_thinking(shape.thinking, effort)
    elif effort is not None:
        thinking = Thinking(effort=effort)
    if settings is UNSET:
        return thinking, None
    kept = collect_extras(settings, FAMILY, prefix="output_config/")
    if settings.format is UNSET:
        form = (*kept.get("wire_form", ()), "anthropic:output_config")
        return thinking, OutputFormat(**(kept | {"wire_form": form}))
    if settings.format.type != "json_schema":
        raise DecodeError(FAMILY, "/output_config/format/type", "json_schema", repr(settings.format.type))
    both = merge_extras(kept, collect_extras(settings.format, FAMILY, prefix="output_config/format/"))
    return thinking, OutputFormat(kind="json_schema", schema=settings.format.schema, held=True, **both)


def _decode_thinking(shape: ThinkingShape, effort: str | None) -> Thinking:
    kept = collect_extras(shape, FAMILY, f"anthropic:thinking:{shape.type}", prefix="thinking/")
    if shape.type not in ("enabled", "adaptive", "disabled"):
        kept = merge_extras(kept, {"extras": {FAMILY: {"thinking/type": Raw(msgspec.json.encode(shape.type))}}})
    visibility = None if shape.display is UNSET else _THINKING_VISIBILITY.get(shape.display)
    if shape.display is not UNSET and visibility is None:
        kept = merge_extras(kept, {"extras": {FAMILY: {"thinking/display": Raw(msgspec.json.encode(shape.display))}}})
    return Thinking(
        enabled=shape.type != "disabled",
        effort=effort,
        budget_tokens=unset_to_none(shape.budget_tokens),
        visibility=visibility,
        **kept,
    )


# ---- encode


def encode_max_tokens(request: Request, plan: EncodingPlan) -> int | None:
    if request.sampling is not None and request.sampling.max_tokens is not None:
        return request.sampling.max_tokens
    if plan.same_protocol:
        return None
    chosen = _default_max_tokens(request, plan)
    plan.report.added((), "", "/max_tokens", f"the target requires a limit: {chosen} was chosen")
    return chosen


def _default_max_tokens(request: Request, plan: EncodingPlan) -> int:
    """As much as each model of a generation writes: an agent that sets no limit does not expect to be cut."""
    return 32_000 if model_version(plan.target.model or request.model or "")[1] >= (4, 0) else DEFAULT_MAX_TOKENS


def encode_sampling(request: Request, shape: dict[str, Any], plan: EncodingPlan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.stop is not None:
        shape["stop_sequences"] = [text for text in sampling.stop if plan.same_protocol or text.strip()]
        for index, text in enumerate(sampling.stop):
            if not plan.same_protocol and not text.strip():
                plan.report.dropped(("sampling", "stop", index), "", "the target refuses a blank one")
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, name)) is not None:
            if plan.same_protocol or plan.target.version == SAMPLING_VERSION:
                shape[name] = value
            else:
                plan.report.dropped(("sampling",), name, "the provider's current version takes no sampling parameters")
    for name in ("n", "seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs"):
        if (value := getattr(sampling, name)) is not None and not (name == "n" and value == 1):
            plan.report.dropped(("sampling",), name)


def encode_settings(request: Request, shape: dict[str, Any], plan: EncodingPlan) -> None:
    thinking, output = request.thinking, request.output
    settings = SettingsShape()
    if thinking is not None:
        shape["thinking"], settings.effort = _encode_thinking(
            thinking, request, shape.get("messages", []), plan, forced=_has_forced_choice(shape)
        )
        if not plan.same_protocol and shape.get("temperature", 1) != 1 and _is_thinking(shape["thinking"]):
            del shape["temperature"]
            plan.report.dropped(("sampling",), "temperature", "the target takes none where it thinks")
    if output is not None and output.kind == "json_schema" and output.schema is not None:
        settings.format = FormatShape(type="json_schema", schema=_encode_schema(output.schema, plan))
    if not plan.same_protocol and output is not None:
        _report_output(output, plan)
    if settings != SettingsShape() or (output is not None and "anthropic:output_config" in output.wire_form):
        shape["output_config"] = settings


def _has_forced_choice(shape: dict[str, Any]) -> bool:
    choice = shape["tool_choice"]
    return isinstance(choice, ChoiceShape) and choice.type in ("any", "tool")


def _is_thinking(shape: Any) -> bool:
    return isinstance(shape, ThinkingShape) and shape.type != "disabled"


def _encode_schema(schema: Raw, plan: EncodingPlan) -> Raw:
    return schema if plan.same_protocol else fit_and_report(schema, OUTPUT_SCHEMA, plan.report, ("output",), "schema")


def _encode_thinking(
    thinking: Thinking, request: Request, messages: list[Any], plan: EncodingPlan, *, forced: bool
) -> tuple[Any, Any]:
    effort: Any = none_to_unset(thinking.effort)
    enabled = thinking.enabled
    # How a model may be asked to think depends on the model: under another name, also what was meant for Anthropic.
    as_it_is = plan.same_protocol and plan.target.model in (None, request.model)
    if not as_it_is:
        effort, enabled = _encode_effort(thinking, request, plan)
    if plan.same_protocol:
        enabled = thinking.enabled
    elif enabled and thinking.enabled is None and thinking.budget_tokens is None and lacks_thinking(messages):
        for name in ("effort", "visibility"):
            if getattr(thinking, name) is not None:
                why = "no thinking while calls are answered that were made without, or whose thinking was lost"
                plan.report.approximated(("thinking",), name, why)
        return UNSET, effort
    if enabled is None:
        if thinking.visibility is not None or thinking.budget_tokens is not None:
            enabled = True
        else:
            return UNSET, effort
    kind = "disabled" if not enabled else "enabled" if thinking.budget_tokens is not None else "adaptive"
    for token in thinking.wire_form:
        if token.startswith("anthropic:thinking:") and plan.same_protocol:
            kind = token.removeprefix("anthropic:thinking:")
    budget = thinking.budget_tokens
    if not as_it_is and kind in ("enabled", "adaptive"):
        kind, budget = _encode_budget(thinking, request, plan, forced=forced and not plan.same_protocol)
        if kind == "unthinking":
            return UNSET, effort
    display: Any = UNSET
    if thinking.visibility is not None and (plan.same_protocol or kind != "disabled"):
        display = _THINKING_DISPLAY[thinking.visibility]
        if not plan.same_protocol:
            report_thinking_visibility(thinking, plan.report)
    elif thinking.visibility is not None:
        plan.report.dropped(("thinking",), "visibility", "there is no thinking to show")
    return ThinkingShape(type=kind, budget_tokens=none_to_unset(budget), display=display), effort


def _encode_effort(thinking: Thinking, request: Request, plan: EncodingPlan) -> tuple[Any, bool | None]:
    """How hard another protocol's model was to think, and whether. An effort alone makes no model think here: elsewhere
    it does."""
    effort, report = thinking.effort, plan.report
    if effort is None:
        return UNSET, thinking.enabled
    if effort == "none":
        return UNSET, False
    if effort not in EFFORTS:
        nearest = "low" if effort == "minimal" else "high"
        report.approximated(("thinking",), "effort", f"{effort} is told as {nearest}")
        effort = nearest
    levels = supported_efforts(model_version(plan.target.model or request.model or ""))
    enabled = thinking.enabled is not False
    if levels == "":
        why = "the model takes no effort"
        if enabled:
            report.approximated(("thinking",), "effort", f"{why}: told in a budget at most")
        else:
            report.dropped(("thinking",), "effort", why)
        return UNSET, enabled
    if levels is not None and effort not in levels.split(", "):
        report.approximated(("thinking",), "effort", f"the model has no {effort}: told as high")
        effort = "high"
    return effort, enabled


def _encode_budget(thinking: Thinking, request: Request, plan: EncodingPlan, *, forced: bool) -> tuple[str, int | None]:
    """Models before 4.6 want a budget, of at least 1024 and below the limit; those from 4.7 on take none. A budget for
    thinking and a forced call exclude each other: the call is what was asked for."""
    generation = model_version(plan.target.model or request.model or "")[1]
    limit = (request.sampling and request.sampling.max_tokens) or _default_max_tokens(request, plan)
    budget = thinking.budget_tokens
    if budget is None and not (0, 0) < generation < (4, 6):
        return "adaptive", None
    if generation >= (4, 7):
        plan.report.approximated(("thinking",), "budget_tokens", "the model decides itself how long it thinks")
        return "adaptive", None
    if forced:
        for name in ("budget_tokens", "enabled", "visibility", "effort"):
            if getattr(thinking, name) is not None:
                plan.report.approximated(("thinking",), name, "no thinking before a forced call")
        return "unthinking", None
    if limit <= MIN_BUDGET:
        plan.report.dropped(
            ("thinking",), thinking_field(thinking), f"the limit leaves no room for {MIN_BUDGET} tokens"
        )
        return "disabled", None
    if budget is None:
        chosen = max(limit * _EFFORT_SHARES.get(thinking.effort or "", 50) // 100, MIN_BUDGET)
        why = f"the model wants a budget: {chosen} was chosen"
        plan.report.added(("thinking",), thinking_field(thinking), "/thinking/budget_tokens", why)
        return "enabled", chosen
    fitting = min(max(budget, MIN_BUDGET), limit - 1)
    if fitting != budget:
        plan.report.approximated(("thinking",), "budget_tokens", f"told as {fitting}: at least 1024, below the limit")
    return "enabled", fitting


def thinking_field(thinking: Thinking) -> str:
    """The field that asks to think."""
    said = [name for name in ("budget_tokens", "enabled", "visibility") if getattr(thinking, name) is not None]
    return said[0] if said else "effort"


def _report_output(output: OutputFormat, plan: EncodingPlan) -> None:
    if output.kind == "json":
        plan.report.dropped(("output",), "kind", "the target has no free JSON mode")
    for name in ("name", "description", "verbosity"):
        if getattr(output, name) is not None:
            plan.report.dropped(("output",), name)
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target is always strict")


def encode_tier(request: Request, plan: EncodingPlan) -> Any:
    if request.tier is None:
        return UNSET
    if plan.same_protocol or request.tier == "auto":
        return request.tier
    if request.tier == "default":
        plan.report.approximated((), "tier", "default is told as standard_only")
        return "standard_only"
    plan.report.dropped((), "tier", f"the target has no tier {request.tier}")
    return UNSET
