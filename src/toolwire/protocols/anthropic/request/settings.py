"""Anthropic's parameters of an answer: limits, thinking, output and tier, to canonical and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.kept import given, joined, known, rest
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted
from toolwire.codec.settings import report_shown
from toolwire.protocols.anthropic.parts.messages import lacks_thinking
from toolwire.protocols.anthropic.rules.vocabulary import COMPILED, efforts_of, model_kind
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    ChoiceShape,
    FormatShape,
    RequestShape,
    SettingsShape,
    ThinkingShape,
)

DEFAULT_MAX_TOKENS = 8192
LEAST_BUDGET = 1024
SAMPLING_VERSION = "2023-06-01"
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# What a level of effort may take of the limit, in per cent: as OpenRouter tells it to models that want a budget.
_SHARES = {"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 95, "max": 95}
_VISIBILITY: dict[str, Literal["omitted", "summary"]] = {"omitted": "omitted", "summarized": "summary"}
_DISPLAY = {"omitted": "omitted", "summary": "summarized", "full": "summarized"}


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    stop = shape.stop_sequences
    sampling = Sampling(
        max_tokens=known(shape.max_tokens),
        temperature=known(shape.temperature),
        top_p=known(shape.top_p),
        top_k=known(shape.top_k),
        stop=None if stop is UNSET else tuple(stop),
    )
    return None if sampling == Sampling() else sampling


def decode_settings(shape: RequestShape) -> tuple[Thinking | None, OutputFormat | None]:
    settings = shape.output_config
    effort = None if settings is UNSET else known(settings.effort)
    thinking = None
    if shape.thinking is not UNSET:
        thinking = _decode_thinking(shape.thinking, effort)
    elif effort is not None:
        thinking = Thinking(effort=effort)
    if settings is UNSET:
        return thinking, None
    kept = rest(settings, FAMILY, under="output_config/")
    if settings.format is UNSET:
        form = (*kept.get("form", ()), "anthropic:output_config")
        return thinking, OutputFormat(**(kept | {"form": form}))
    if settings.format.type != "json_schema":
        raise DecodeError(FAMILY, "/output_config/format/type", "json_schema", repr(settings.format.type))
    both = joined(kept, rest(settings.format, FAMILY, under="output_config/format/"))
    return thinking, OutputFormat(kind="json_schema", schema=settings.format.schema, held=True, **both)


def _decode_thinking(shape: ThinkingShape, effort: str | None) -> Thinking:
    kept = rest(shape, FAMILY, f"anthropic:thinking:{shape.type}", under="thinking/")
    if shape.type not in ("enabled", "adaptive", "disabled"):
        kept = joined(kept, {"extras": {FAMILY: {"thinking/type": Raw(msgspec.json.encode(shape.type))}}})
    visibility = None if shape.display is UNSET else _VISIBILITY.get(shape.display)
    if shape.display is not UNSET and visibility is None:
        kept = joined(kept, {"extras": {FAMILY: {"thinking/display": Raw(msgspec.json.encode(shape.display))}}})
    return Thinking(
        enabled=shape.type != "disabled",
        effort=effort,
        budget_tokens=known(shape.budget_tokens),
        visibility=visibility,
        **kept,
    )


# ---- encode


def encode_max_tokens(request: Request, plan: Plan) -> int | None:
    if request.sampling is not None and request.sampling.max_tokens is not None:
        return request.sampling.max_tokens
    if plan.home:
        return None
    chosen = _default_limit(request, plan)
    plan.report.invented((), "", "/max_tokens", f"the target requires a limit: {chosen} was chosen")
    return chosen


def _default_limit(request: Request, plan: Plan) -> int:
    """As much as each model of a generation writes: an agent that sets no limit does not expect to be cut."""
    return 32_000 if model_kind(plan.target.model or request.model or "")[1] >= (4, 0) else DEFAULT_MAX_TOKENS


def encode_sampling(request: Request, shape: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.stop is not None:
        shape["stop_sequences"] = [text for text in sampling.stop if plan.home or text.strip()]
        for index, text in enumerate(sampling.stop):
            if not plan.home and not text.strip():
                plan.report.dropped(("sampling", "stop", index), "", "the target refuses a blank one")
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, name)) is not None:
            if plan.home or plan.target.version == SAMPLING_VERSION:
                shape[name] = value
            else:
                plan.report.dropped(("sampling",), name, "the provider's current version takes no sampling parameters")
    for name in ("n", "seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs"):
        if (value := getattr(sampling, name)) is not None and not (name == "n" and value == 1):
            plan.report.dropped(("sampling",), name)


def encode_settings(request: Request, shape: dict[str, Any], plan: Plan) -> None:
    thinking, output = request.thinking, request.output
    settings = SettingsShape()
    if thinking is not None:
        shape["thinking"], settings.effort = _encode_thinking(
            thinking, request, shape.get("messages", []), plan, forced=_forces(shape)
        )
        if not plan.home and shape.get("temperature", 1) != 1 and _thinks(shape["thinking"]):
            del shape["temperature"]
            plan.report.dropped(("sampling",), "temperature", "the target takes none where it thinks")
    if output is not None and output.kind == "json_schema" and output.schema is not None:
        settings.format = FormatShape(type="json_schema", schema=_encode_schema(output.schema, plan))
    if not plan.home and output is not None:
        _report_output(output, plan)
    if settings != SettingsShape() or (output is not None and "anthropic:output_config" in output.form):
        shape["output_config"] = settings


def _forces(shape: dict[str, Any]) -> bool:
    choice = shape["tool_choice"]
    return isinstance(choice, ChoiceShape) and choice.type in ("any", "tool")


def _thinks(shape: Any) -> bool:
    return isinstance(shape, ThinkingShape) and shape.type != "disabled"


def _encode_schema(schema: Raw, plan: Plan) -> Raw:
    return schema if plan.home else fitted(schema, COMPILED, plan.report, ("output",), "schema")


def _encode_thinking(
    thinking: Thinking, request: Request, messages: list[Any], plan: Plan, *, forced: bool
) -> tuple[Any, Any]:
    effort: Any = given(thinking.effort)
    enabled = thinking.enabled
    # How a model may be asked to think depends on the model: under another name, also what was meant for Anthropic.
    as_it_is = plan.home and plan.target.model in (None, request.model)
    if not as_it_is:
        effort, enabled = _encode_effort(thinking, request, plan)
    if plan.home:
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
    for token in thinking.form:
        if token.startswith("anthropic:thinking:") and plan.home:
            kind = token.removeprefix("anthropic:thinking:")
    budget = thinking.budget_tokens
    if not as_it_is and kind in ("enabled", "adaptive"):
        kind, budget = _encode_budget(thinking, request, plan, forced=forced and not plan.home)
        if kind == "unthinking":
            return UNSET, effort
    display: Any = UNSET
    if thinking.visibility is not None and (plan.home or kind != "disabled"):
        display = _DISPLAY[thinking.visibility]
        if not plan.home:
            report_shown(thinking, plan.report)
    elif thinking.visibility is not None:
        plan.report.dropped(("thinking",), "visibility", "there is no thinking to show")
    return ThinkingShape(type=kind, budget_tokens=given(budget), display=display), effort


def _encode_effort(thinking: Thinking, request: Request, plan: Plan) -> tuple[Any, bool | None]:
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
    levels = efforts_of(model_kind(plan.target.model or request.model or ""))
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


def _encode_budget(thinking: Thinking, request: Request, plan: Plan, *, forced: bool) -> tuple[str, int | None]:
    """Models before 4.6 want a budget, of at least 1024 and below the limit; those from 4.7 on take none. A budget for
    thinking and a forced call exclude each other: the call is what was asked for."""
    generation = model_kind(plan.target.model or request.model or "")[1]
    limit = (request.sampling and request.sampling.max_tokens) or _default_limit(request, plan)
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
    if limit <= LEAST_BUDGET:
        plan.report.dropped(("thinking",), asked_by(thinking), f"the limit leaves no room for {LEAST_BUDGET} tokens")
        return "disabled", None
    if budget is None:
        chosen = max(limit * _SHARES.get(thinking.effort or "", 50) // 100, LEAST_BUDGET)
        why = f"the model wants a budget: {chosen} was chosen"
        plan.report.invented(("thinking",), asked_by(thinking), "/thinking/budget_tokens", why)
        return "enabled", chosen
    fitting = min(max(budget, LEAST_BUDGET), limit - 1)
    if fitting != budget:
        plan.report.approximated(("thinking",), "budget_tokens", f"told as {fitting}: at least 1024, below the limit")
    return "enabled", fitting


def asked_by(thinking: Thinking) -> str:
    """The field that asks to think."""
    said = [name for name in ("budget_tokens", "enabled", "visibility") if getattr(thinking, name) is not None]
    return said[0] if said else "effort"


def _report_output(output: OutputFormat, plan: Plan) -> None:
    if output.kind == "json":
        plan.report.dropped(("output",), "kind", "the target has no free JSON mode")
    for name in ("name", "description", "verbosity"):
        if getattr(output, name) is not None:
            plan.report.dropped(("output",), name)
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target is always strict")


def encode_tier(request: Request, plan: Plan) -> Any:
    if request.tier is None:
        return UNSET
    if plan.home or request.tier == "auto":
        return request.tier
    if request.tier == "default":
        plan.report.approximated((), "tier", "default is told as standard_only")
        return "standard_only"
    plan.report.dropped((), "tier", f"the target has no tier {request.tier}")
    return UNSET
