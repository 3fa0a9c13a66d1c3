"""Decode and encode generation settings: token limits, sampling, thinking, output format and service tier."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.encoding.fallbacks import (
    NO_THINKING,
    fit_output_limit,
    report_sampling,
    report_thinking_visibility,
    report_unsent_thinking,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.models.claude import MIN_BUDGET, model_version, refuses_temperature_with_top_p
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.anthropic.fields import OUTPUT_SCHEMA
from toolwire.protocols.anthropic.parts.messages import lacks_thinking
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CacheShape,
    ChoiceShape,
    FormatShape,
    RequestShape,
    SettingsShape,
    TextBlock,
    ThinkingShape,
    ToolShape,
)

DEFAULT_MAX_TOKENS = 8192
SAMPLING_VERSION = "2023-06-01"
"""The last `anthropic-version` with sampling parameters."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# Thinking budget per effort, in percent of max_tokens; OpenRouter uses the same shares.
_EFFORT_SHARES = {"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 95, "max": 95}
_THINKING_VISIBILITY: dict[str, Literal["omitted", "summary"]] = {"omitted": "omitted", "summarized": "summary"}
_THINKING_TYPE_FORM = "anthropic:thinking:"
_THINKING_DISPLAY = {"omitted": "omitted", "summary": "summarized", "full": "summarized"}
_EMPTY_SAMPLING = Sampling()
_SAMPLING_FIELDS = ("temperature", "top_p", "top_k")
_MIN_THINKING_TOP_P = 0.95


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    """Decode the sampling parameters, None if the request sets none."""
    stop = shape.stop_sequences
    sampling = Sampling(
        max_tokens=None if shape.max_tokens is UNSET else shape.max_tokens,
        temperature=None if shape.temperature is UNSET else shape.temperature,
        top_p=None if shape.top_p is UNSET else shape.top_p,
        top_k=None if shape.top_k is UNSET else shape.top_k,
        stop=None if stop is UNSET else tuple(stop),
    )
    return None if sampling == _EMPTY_SAMPLING else sampling


def decode_settings(shape: RequestShape) -> tuple[Thinking | None, OutputFormat | None]:
    """Decode `thinking` and `output_config`."""
    settings = shape.output_config
    effort = None if settings is UNSET else unset_to_none(settings.effort)
    thinking = None
    if shape.thinking is not UNSET:
        thinking = _decode_thinking(shape.thinking, effort)
    elif effort is not None:
        thinking = Thinking(effort=effort)
    if settings is UNSET:
        return thinking, None
    extras = collect_extras(settings, FAMILY, prefix="output_config/")
    if settings.format is UNSET:
        wire_form = (*extras.get("wire_form", ()), "anthropic:output_config")
        return thinking, OutputFormat(**(extras | {"wire_form": wire_form}))
    if settings.format.type != "json_schema":
        raise DecodeError(FAMILY, "/output_config/format/type", "json_schema", repr(settings.format.type))
    merged = merge_extras(extras, collect_extras(settings.format, FAMILY, prefix="output_config/format/"))
    return thinking, OutputFormat(kind="json_schema", schema=settings.format.schema, held=True, **merged)


def _decode_thinking(shape: ThinkingShape, effort: str | None) -> Thinking:
    """Decode `thinking` together with the effort; unknown modes and displays go to the extras."""
    extras = collect_extras(shape, FAMILY, f"{_THINKING_TYPE_FORM}{shape.type}", prefix="thinking/")
    if shape.type not in ("enabled", "adaptive", "disabled"):
        extras = merge_extras(extras, {"extras": {FAMILY: {"thinking/type": Raw(msgspec.json.encode(shape.type))}}})
    visibility = None if shape.display is UNSET else _THINKING_VISIBILITY.get(shape.display)
    if shape.display is not UNSET and visibility is None:
        extras = merge_extras(
            extras, {"extras": {FAMILY: {"thinking/display": Raw(msgspec.json.encode(shape.display))}}}
        )
    return Thinking(
        enabled=shape.type != "disabled",
        effort=effort,
        budget_tokens=unset_to_none(shape.budget_tokens),
        visibility=visibility,
        **extras,
    )


# ---- encode


def encode_max_tokens(request: Request, plan: EncodingPlan) -> int | None:
    """Encode `max_tokens`, adding the default limit if another protocol's request sets none."""
    if request.sampling is not None and request.sampling.max_tokens is not None:
        return fit_output_limit(request.sampling.max_tokens, plan)
    if plan.same_protocol:
        return None
    limit = _default_max_tokens(plan)
    plan.report.added((), "", "/max_tokens", f"the target requires a limit; set to {limit}")
    return limit


def _default_max_tokens(plan: EncodingPlan) -> int:
    """Return the `max_tokens` for a request without a limit, as high as the model generation allows."""
    limit = 32_000 if model_version(plan.target.model or "")[1] >= (4, 0) else DEFAULT_MAX_TOKENS
    return min(plan.model_info.output or limit, limit)


def encode_sampling(request: Request, shape: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the sampling parameters into the encoded request `shape`."""
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.stop is not None:
        shape["stop_sequences"] = _encode_stop_sequences(sampling.stop, plan)
    values = {name: value for name in _SAMPLING_FIELDS if (value := getattr(sampling, name)) is not None}
    shape |= values if plan.same_protocol else _accepted_sampling(values, plan)
    missing = ("n", "seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs")
    report_sampling(sampling, plan.report, *missing)


def _accepted_sampling(values: dict[str, Any], plan: EncodingPlan) -> dict[str, Any]:
    """Return those of another protocol's sampling parameters that the API version and the model accept."""
    report, path = plan.report, ("sampling",)
    if plan.target.version != SAMPLING_VERSION:
        _drop_sampling(values, "the current API version has no sampling parameters", plan)
    elif plan.model_info.sampling is False:
        _drop_sampling(values, "the model has no sampling parameters", plan)
    if values.get("temperature", 0) > 1:
        report.approximated(path, "temperature", "the target's temperature is at most 1")
        values["temperature"] = 1
    if values.keys() >= {"temperature", "top_p"} and refuses_temperature_with_top_p(plan.target.model or ""):
        report.dropped(path, "top_p", "the model accepts temperature or top_p, not both")
        del values["top_p"]
    return values


def _drop_sampling(values: dict[str, Any], reason: str, plan: EncodingPlan) -> None:
    """Remove all sampling parameters, and report them."""
    for name in values:
        plan.report.dropped(("sampling",), name, reason)
    values.clear()


def _encode_stop_sequences(stop: tuple[str, ...], plan: EncodingPlan) -> list[str]:
    """Return the stop sequences, without the blank ones that the provider rejects."""
    if plan.same_protocol:
        return list(stop)
    for index, text in enumerate(stop):
        if not text.strip():
            plan.report.dropped(("sampling", "stop", index), "", "the target rejects blank stop sequences")
    return [text for text in stop if text.strip()]


def encode_settings(request: Request, shape: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `thinking` and `output_config` into the encoded request `shape`."""
    thinking, output = request.thinking, request.output
    settings = SettingsShape()
    if thinking is not None:
        shape["thinking"], settings.effort = _encode_thinking(
            thinking, request, shape.get("messages", []), plan, forced=_has_forced_choice(shape)
        )
        if not plan.same_protocol and _is_thinking(shape["thinking"]):
            _drop_sampling_while_thinking(shape, plan)
    if output is not None and output.kind == "json_schema" and output.schema is not None:
        settings.format = FormatShape(type="json_schema", schema=_encode_schema(output.schema, plan))
    if not plan.same_protocol and output is not None:
        _report_output(output, plan)
    if settings != SettingsShape() or (output is not None and "anthropic:output_config" in output.wire_form):
        shape["output_config"] = settings


def _has_forced_choice(shape: dict[str, Any]) -> bool:
    """Tell whether the `tool_choice` of an encoded request forces a call."""
    choice = shape["tool_choice"]
    return isinstance(choice, ChoiceShape) and choice.type in ("any", "tool")


def _is_thinking(shape: Any) -> bool:
    """Tell whether the encoded `thinking` enables thinking."""
    return isinstance(shape, ThinkingShape) and shape.type != "disabled"


def _drop_sampling_while_thinking(shape: dict[str, Any], plan: EncodingPlan) -> None:
    """Remove the sampling parameters that the provider rejects while the model thinks."""
    is_rejected = {
        "temperature": shape.get("temperature", 1) != 1,
        "top_p": shape.get("top_p", 1) < _MIN_THINKING_TOP_P,
        "top_k": "top_k" in shape,
    }
    for name in (name for name, rejected in is_rejected.items() if rejected):
        del shape[name]
        plan.report.dropped(("sampling",), name, "the target does not accept it with thinking enabled")


def _encode_schema(schema: Raw, plan: EncodingPlan) -> Raw:
    """Return the output schema; another protocol's is reduced to the keywords that Anthropic supports."""
    return schema if plan.same_protocol else fit_and_report(schema, OUTPUT_SCHEMA, plan.report, ("output",), "schema")


def _encode_thinking(
    thinking: Thinking, request: Request, messages: list[Any], plan: EncodingPlan, *, forced: bool
) -> tuple[Any, Any]:
    """Return `thinking` and `output_config.effort`, each UNSET if it is not to be sent."""
    if plan.model_info.thinking == "never" and not plan.same_protocol:
        report_unsent_thinking(thinking, plan, NO_THINKING)
        return UNSET, UNSET
    effort: Any = none_to_unset(thinking.effort)
    enabled = thinking.enabled
    # Models differ in the settings they accept, so those of Anthropic clients are adapted to another model, too.
    unchanged = plan.same_protocol and plan.target.model in (None, request.model)
    if not unchanged:
        effort, enabled = _encode_effort(thinking, plan)
    if plan.same_protocol:
        enabled = thinking.enabled
    elif enabled and thinking.enabled is None and thinking.budget_tokens is None and lacks_thinking(messages):
        _report_thinking_off(thinking, plan)
        return UNSET, effort
    if enabled is None and thinking.visibility is None and thinking.budget_tokens is None:
        return UNSET, effort
    kind, budget = _thinking_type(thinking, plan, enabled=enabled is not False), thinking.budget_tokens
    if not unchanged and kind in ("enabled", "adaptive"):
        adapted, budget = _encode_budget(thinking, request, plan, forced=forced and not plan.same_protocol)
        if adapted is None:
            return UNSET, effort
        kind = adapted
        if effort is UNSET and enabled:
            _report_missing_effort(thinking, kind, plan)
    display = _encode_display(thinking, kind, plan)
    return ThinkingShape(type=kind, budget_tokens=none_to_unset(budget), display=display), effort


def _report_missing_effort(thinking: Thinking, kind: str, plan: EncodingPlan) -> None:
    """Report what stands for the effort of another protocol at a model without effort levels."""
    if thinking.effort and not plan.same_protocol:
        sent = "no thinking is sent" if kind == "disabled" else "only a thinking budget is sent"
        plan.report.approximated(("thinking",), "effort", f"the model has no effort setting; {sent}")


def _report_thinking_off(thinking: Thinking, plan: EncodingPlan) -> None:
    """Report that thinking stays off, since the calls being answered were made without it."""
    for name in ("effort", "visibility"):
        if getattr(thinking, name) is not None:
            reason = "thinking is off: the calls being answered have no thinking blocks"
            plan.report.approximated(("thinking",), name, reason)


def _thinking_type(thinking: Thinking, plan: EncodingPlan, *, enabled: bool) -> str:
    """Return `thinking.type`: the one that an Anthropic client sent, else the one that fits the settings."""
    for token in thinking.wire_form if plan.same_protocol else ():
        if token.startswith(_THINKING_TYPE_FORM):
            return token.removeprefix(_THINKING_TYPE_FORM)
    return "disabled" if not enabled else "enabled" if thinking.budget_tokens is not None else "adaptive"


def _encode_display(thinking: Thinking, kind: str, plan: EncodingPlan) -> Any:
    """Encode `thinking.display`, UNSET if the request says nothing about it or thinking is disabled."""
    if thinking.visibility is None:
        return UNSET
    if kind == "disabled" and not plan.same_protocol:
        plan.report.dropped(("thinking",), "visibility", "thinking is disabled", severity="info")
        return UNSET
    if not plan.same_protocol:
        report_thinking_visibility(thinking, plan.report)
    return _THINKING_DISPLAY[thinking.visibility]


def _encode_effort(thinking: Thinking, plan: EncodingPlan) -> tuple[Any, bool | None]:
    """Return the effort that the target model supports, and whether to enable thinking (None: unchanged).

    In other protocols an effort alone enables thinking; Anthropic needs `thinking` as well.
    """
    effort, report = thinking.effort, plan.report
    if effort is None:
        return UNSET, thinking.enabled
    if effort == "none":
        return UNSET, False
    if effort not in EFFORTS:
        nearest = "low" if effort == "minimal" else "high"
        report.approximated(("thinking",), "effort", f"{effort} sent as {nearest}")
        effort = nearest
    levels = plan.model_info.efforts
    enabled = thinking.enabled is not False
    if levels == ():
        if plan.same_protocol or not enabled:  # else it becomes a budget, if the model is to think
            report.dropped(("thinking",), "effort", "the model has no effort setting")
        return UNSET, enabled
    if levels is not None and effort not in levels:
        report.approximated(("thinking",), "effort", f"the model does not support {effort}; sent as high")
        effort = "high"
    return effort, enabled


def _encode_budget(
    thinking: Thinking, request: Request, plan: EncodingPlan, *, forced: bool
) -> tuple[str | None, int | None]:
    """Return the thinking type and budget for the target model; the type is None if it must not think.

    A model that does not choose its own budget needs one of at least 1024 and below `max_tokens`; newer models accept
    none. A budget excludes a forced tool call, and the call takes precedence.
    """
    info, budget = plan.model_info, thinking.budget_tokens
    limit = (request.sampling and request.sampling.max_tokens) or _default_max_tokens(plan)
    limit = min(limit, info.output or limit)
    if budget is None and info.adaptive is not False:
        return "adaptive", None
    if info.budget == ():
        plan.report.approximated(("thinking",), "budget_tokens", "the model chooses its own thinking budget")
        return "adaptive", None
    if forced:
        for name in ("budget_tokens", "enabled", "visibility", "effort"):
            if getattr(thinking, name) is not None:
                plan.report.approximated(("thinking",), name, "the target does not think before a forced tool call")
        return None, None
    if limit <= MIN_BUDGET:
        plan.report.dropped(
            ("thinking",), thinking_field(thinking), f"max_tokens leaves no room for {MIN_BUDGET} thinking tokens"
        )
        return "disabled", None
    if budget is None:
        default_budget = max(limit * _EFFORT_SHARES.get(thinking.effort or "", 50) // 100, MIN_BUDGET)
        reason = f"the model requires a budget; set to {default_budget}"
        plan.report.added(("thinking",), thinking_field(thinking), "/thinking/budget_tokens", reason)
        return "enabled", default_budget
    valid_budget = min(max(budget, MIN_BUDGET), limit - 1)
    if valid_budget != budget:
        plan.report.approximated(
            ("thinking",), "budget_tokens", f"sent as {valid_budget}: must be at least 1024 and below max_tokens"
        )
    return "enabled", valid_budget


def thinking_field(thinking: Thinking) -> str:
    """Return the name of the canonical field by which the client requests thinking, for loss reports."""
    fields = [name for name in ("budget_tokens", "enabled", "visibility") if getattr(thinking, name) is not None]
    return fields[0] if fields else "effort"


def _report_output(output: OutputFormat, plan: EncodingPlan) -> None:
    """Report as losses the output settings that Anthropic lacks."""
    if output.kind == "json":
        plan.report.dropped(("output",), "kind", "the target has no JSON mode without a schema")
    plan.report.dropped_fields(("output",), output, "name", "description", "verbosity")
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target always enforces the schema")


def encode_tier(request: Request, plan: EncodingPlan) -> Any:
    """Encode `service_tier`."""
    if request.tier is None:
        return UNSET
    if plan.same_protocol or request.tier == "auto":
        return request.tier
    if request.tier == "default":
        plan.report.approximated((), "tier", "default sent as standard_only")
        return "standard_only"
    plan.report.dropped((), "tier", f"the target has no service tier {request.tier}")
    return UNSET


def _mark_last_tool(tools: list[Any], reason: str, plan: EncodingPlan) -> None:
    """Mark the last tool that the client defines and that is not left to a tool search (`defer_loading`)."""
    for index in reversed(range(len(tools))):
        tool = tools[index]
        if isinstance(tool, ToolShape) and tool.defer_loading is not True:
            tools[index] = replace(tool, cache_control=CacheShape(type="ephemeral"))
            plan.report.added((), "", f"/tools/{index}/cache_control", reason, severity="info")
            return


def add_cache_marks(shape: dict[str, Any], plan: EncodingPlan) -> None:
    """Mark the end of the tools, of the system text and of the conversation in the encoded request `shape`.

    The prompt has them in this order. The first mark is for conversations in which a search loads more tools, the
    second for other conversations with the same tools and system text. The third one, at the top level, moves along as
    the conversation grows, and changes no message.
    """
    reason = "the target caches only up to marks, which the source does not need"
    _mark_last_tool(shape["tools"] or [], reason, plan)
    blocks = shape["system"]
    if isinstance(blocks, str):
        blocks = shape["system"] = [TextBlock(text=blocks)]
    if blocks and isinstance(last := blocks[-1], TextBlock):
        blocks[-1] = replace(last, cache_control=CacheShape(type="ephemeral"))
        plan.report.added((), "", f"/system/{len(blocks) - 1}/cache_control", reason, severity="info")
    shape["cache_control"] = CacheShape(type="ephemeral")
    plan.report.added((), "", "/cache_control", reason, severity="info")
