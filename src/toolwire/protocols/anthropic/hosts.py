"""Fit requests to the profile of a host that speaks the Messages API. Every step is reported as a loss."""

from typing import Any

from msgspec import UNSET

from toolwire.canonical.request import Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.encoding.hosts import (
    FieldLocations,
    choice_rule,
    convert_system_messages,
    encode_user,
    fit_fields,
    nearest_effort,
    replace_media,
    report_fitted_effort,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import leading_system_count
from toolwire.codec.hosts.profile import matches_model, rule_for
from toolwire.protocols.anthropic.wire import ChoiceShape, MetadataShape, SettingsShape, ThinkingShape, ToolShape

_MODES = {"any": "required", "tool": "named"}
_FIELD_LOCATIONS: FieldLocations = {
    "service_tier": ((), "tier"),
    "top_k": (("sampling",), "top_k"),
    "thinking": (("thinking",), "enabled"),
}


def fit_messages(request: Request, plan: EncodingPlan) -> Request:
    """Return the request without media that the host rejects, and with late `system` messages as user reminders."""
    request = replace_media(request, plan)
    if plan.target.host.messages.late_system:
        return request
    start = 0 if plan.same_protocol else leading_system_count(request.messages)
    return convert_system_messages(request, start, plan)


def fit_body(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Fit tools, choice, effort and other members of `body` to what the host accepts."""
    host = plan.target.host
    if not host.tools.typed:
        _remove_tool_types(body.get("tools") or [], plan)
    if isinstance(choice := body.get("tool_choice"), ChoiceShape):
        _fit_choice(choice, body, plan)
    if isinstance(settings := body.get("output_config"), SettingsShape):
        _fit_effort(request.thinking, settings, plan)
    metadata = body.get("metadata")
    if isinstance(metadata, MetadataShape) and isinstance(metadata.user_id, str):
        metadata.user_id = encode_user(metadata.user_id, plan.report, host.fields.user_pattern)
    fit_fields(request, body, plan, _FIELD_LOCATIONS)


def _remove_tool_types(tools: list[Any], plan: EncodingPlan) -> None:
    """Remove `type: custom`, the default, from tools."""
    for index, tool in enumerate(tools):
        if isinstance(tool, ToolShape) and tool.type == "custom":
            tool.type = UNSET
        elif not isinstance(tool, dict) or tool.get("type") != "custom":
            continue
        else:
            del tool["type"]
        plan.report.approximated(("tools", index), "", plan.target.host.rejects("the type custom"))


def _fit_choice(choice: ChoiceShape, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Replace a choice that the host rejects, and disable thinking beside one that it rejects only then."""
    host, rule = plan.target.host, choice_rule(plan)
    mode = _MODES.get(str(choice.type), str(choice.type))
    if mode not in rule.modes:
        mode = "required" if mode == "named" and "required" in rule.modes else "auto"
        choice.type, choice.name = "any" if mode == "required" else "auto", UNSET
        plan.report.approximated(("tool_choice",), "", f"{host.rejects('this tool choice')}; sent as {choice.type}")
    if rule.thinking_modes is None or mode in rule.thinking_modes or not _is_thinking(body, plan):
        return
    body["thinking"] = ThinkingShape(type="disabled")
    reason = f"{host.rejects(f'the choice {mode} while the model thinks')}; thinking disabled"
    plan.report.added((), "", "/thinking", reason)
    if isinstance(settings := body.get("output_config"), SettingsShape) and settings.effort is not UNSET:
        settings.effort = UNSET
        plan.report.dropped(("thinking",), "effort", reason)


def _is_thinking(body: dict[str, Any], plan: EncodingPlan) -> bool:
    """Tell whether the model thinks with these settings."""
    thinking = body.get("thinking")
    if isinstance(thinking, ThinkingShape):
        return thinking.type != "disabled"
    return matches_model(plan.target.host.thinking.default_on, plan.target.model or str(body.get("model", "")))


def _fit_effort(thinking: Thinking | None, settings: SettingsShape, plan: EncodingPlan) -> None:
    """Replace `output_config.effort` by the nearest word that the host knows."""
    host, effort = plan.target.host, settings.effort
    rule = rule_for(host.thinking.efforts, plan.target.model or "")
    words = () if rule is None else rule.words
    if not isinstance(effort, str) or effort in words or not host.thinking.efforts:
        return
    if not words:
        settings.effort = UNSET
        reason = f"{host.rejects('an effort')} for {plan.target.model}"
        report_fitted_effort(thinking, plan, reason, is_sent=False)
        return
    if plan.same_protocol:
        return
    settings.effort = nearest_effort(effort, words)
    reason = f"{host.rejects(f'the effort {effort}')}; sent as {settings.effort}"
    report_fitted_effort(thinking, plan, reason, is_sent=True)
