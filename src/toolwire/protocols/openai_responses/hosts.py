"""Fit requests to the profile of a host that speaks the Responses API. Every step is reported as a loss."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, ReasoningText
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, NativeTool, Thinking
from toolwire.codec.encoding.hosted_tools import accepts_native, choosable_tools, report_missing_native
from toolwire.codec.encoding.hosts import (
    SYSTEM_ROLES,
    FieldLocations,
    choice_rule,
    convert_system_messages,
    fit_fields,
    nearest_effort,
    replace_media,
    report_fitted_effort,
)
from toolwire.codec.encoding.tools import freeform_description, freeform_schema
from toolwire.codec.encoding.turns import Turn, leading_system_count
from toolwire.codec.hosts.profile import matches_model, rule_for
from toolwire.codec.wire.extras import none_to_unset
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.tools import encode_tool
from toolwire.protocols.openai_responses.wire import (
    AdditionalTools,
    ConfigurationUpdate,
    CustomShape,
    EasyMessage,
    FormatShape,
    FunctionShape,
    InputText,
    MessageItem,
    ReasoningShape,
    TextShape,
)

_FIELD_LOCATIONS: FieldLocations = {
    "metadata": ((), "labels"),
    "service_tier": ((), "tier"),
    "store": (("continuation",), "store"),
    "previous_response_id": (("continuation",), "id"),
    "user": ((), "end_user"),
    "reasoning": (("thinking",), "effort"),
}
_EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')


def fit_messages(request: Request, plan: ItemPlan) -> Request:
    """Return the request with roles that the host accepts, and late system text as user reminders if it must be."""
    facts = plan.target.host.messages
    request = replace_media(request, plan)
    if not facts.late_system:
        request = convert_system_messages(request, leading_system_count(request.messages), plan)
    if "developer" in facts.roles or not any(message.role == "developer" for message in request.messages):
        return request
    messages = []
    for index, message in enumerate(request.messages):
        if message.role == "developer":
            reason = f"{plan.target.host.rejects('the developer role')}; sent as system"
            plan.report.approximated(("messages", index), "role", reason)
        messages.append(replace(message, role="system") if message.role == "developer" else message)
    return replace(request, messages=tuple(messages))


def lacks_required_text(turn: Turn, plan: ItemPlan) -> bool:
    """Tell whether a turn is sealed reasoning, which a host that reads only its text rejects; it is reported."""
    message = turn.message
    if plan.target.host.reasoning.signatures or message is None or not message.parts:
        return False
    for part in message.parts:
        if type(part) is not Reasoning:
            return False
        if any(isinstance(block, ReasoningText) and block.kind == "full" for block in part.content):
            return False
    plan.report.dropped(turn.path, "", plan.target.host.rejects("reasoning without its text"))
    return True


def encode_functions(request: Request, plan: ItemPlan) -> list[Any] | None:
    """Encode the tools for a host that has only functions: namespaces are flattened, custom tools get one string."""
    plan.request = request
    host = plan.target.host
    encoded: list[Any] = []
    for located_tool in choosable_tools(request, plan):
        tool, path = located_tool.tool, located_tool.path
        if isinstance(tool, NativeTool):
            if not accepts_native(tool.executor, host):
                report_missing_native(located_tool, plan)
            elif (shape := encode_tool(tool, path, plan)) is not None:
                encoded.append(shape)
            continue
        function = FunctionShape(type="function", name=plan.tools.declare(tool, path, plan.report), strict=False)
        if isinstance(tool, FreeformTool):
            function.description, function.parameters = freeform_description(tool), freeform_schema()
        else:
            function.description = none_to_unset(tool.description)
            function.parameters = tool.parameters or _EMPTY_SCHEMA
            function.strict = bool(tool.strict)
        encoded.append(function)
    return (limit_functions(encoded, plan) if plan.same_protocol else encoded) or None


def limit_functions(tools: list[Any], plan: ItemPlan) -> list[Any]:
    """Return as many functions as the host accepts, with all other tools; the rest is reported."""
    limit = plan.target.host.tools.max_count
    if limit is None or len(tools) <= limit:
        return tools
    functions = [index for index, tool in enumerate(tools) if isinstance(tool, FunctionShape | CustomShape)]
    if len(functions) <= limit:
        return tools
    excess = set(functions[limit:])
    reason = f"{plan.target.host.rejects(f'more than {limit} tools')}; {len(excess)} left out"
    plan.report.approximated((), "", reason, severity="error")
    return [tool for index, tool in enumerate(tools) if index not in excess]


def fit_body(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Fit instructions, effort, format and other members of `body` to what the host accepts."""
    host = plan.target.host
    if "instructions" in body and "instructions" in host.fields.refused:
        _move_instructions(body, plan)
    if not plan.tools.freeform:
        _drop_tool_items(body, plan)
    if not host.messages.late_system:
        _join_leading_system(request, body, plan)
    _fit_effort(request.thinking, body, plan)
    if body.get("tool_choice") not in (None, UNSET):
        _fit_choice(body, plan)
    text = body.get("text")
    if host.output.format_required and isinstance(text, TextShape) and text.format is UNSET:
        text.format = FormatShape(type="text")
        plan.report.added((), "", "/text/format", host.rejects("text settings without a format"))
    fit_fields(request, body, plan, _FIELD_LOCATIONS)


def _drop_tool_items(body: dict[str, Any], plan: ItemPlan) -> None:
    """Remove `additional_tools` items, whose tools are sent with the others, and changes of settings."""
    items, host = body.get("input"), plan.target.host
    if not isinstance(items, list):
        return
    if any(isinstance(item, AdditionalTools) for item in items):
        plan.report.approximated((), "tools", f"{host.rejects('additional_tools')}; sent as tools")
    if any(_is_update(item) for item in items):
        plan.report.approximated((), "", f"{host.rejects('configuration_update')}; left out", severity="warning")
    body["input"] = [item for item in items if not isinstance(item, AdditionalTools) and not _is_update(item)]


def _is_update(item: Any) -> bool:
    """Return whether an item changes settings within the conversation."""
    if isinstance(item, dict):
        return item.get("type") == "configuration_update"
    return isinstance(item, ConfigurationUpdate)


def _join_leading_system(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Join all leading system messages to one, or to `instructions`, as some chat templates require."""
    items = body.get("input")
    leading: list[Any] = []
    for item in items if isinstance(items, list) else ():
        if _role(item) not in SYSTEM_ROLES:
            break
        leading.append(item)
    instructions = body.get("instructions")
    kept = [] if isinstance(instructions, str) else leading[:1]
    if not isinstance(items, list) or len(leading) == len(kept):
        return
    parts = [part for item in leading for part in _content_parts(item)]
    if kept and isinstance(kept[0], dict):
        kept[0]["content"] = parts
    elif kept:
        kept[0].content = parts
    else:
        texts = [text for part in parts if isinstance(text := _text(part), str)]
        body["instructions"] = "\n\n".join([str(instructions), *texts])
    body["input"] = [
        item for item in items if all(item is not other for other in leading) or any(item is other for other in kept)
    ]
    for index in range(len(kept), leading_system_count(request.messages)):
        reason = f"{plan.target.host.rejects('several system messages')}; joined"
        plan.report.approximated(("messages", index), "role", reason)


def _role(item: Any) -> Any:
    """Return the role of a message, which is a plain object if it has members without canonical counterpart."""
    if isinstance(item, dict):
        return item.get("role")
    return item.role if isinstance(item, EasyMessage | MessageItem) else None


def _content_parts(item: Any) -> list[Any]:
    """Return the content of a message as parts."""
    content = item.get("content", UNSET) if isinstance(item, dict) else item.content
    if isinstance(content, str):
        return [InputText(text=content)]
    return [] if content is UNSET else list(content)


def _text(part: Any) -> Any:
    """Return the text of a part of a message."""
    return part.get("text") if isinstance(part, dict) else getattr(part, "text", None)


def _move_instructions(body: dict[str, Any], plan: ItemPlan) -> None:
    """Move `instructions` to a system message at the front of the input."""
    instructions, items = body.pop("instructions"), body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    leading = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else instructions
    body["input"] = [*leading, *items]
    plan.report.approximated((), "system", f"{plan.target.host.rejects('instructions')}; sent as a system message")


def _fit_choice(body: dict[str, Any], plan: ItemPlan) -> None:
    """Replace a tool choice that host and model reject, also because the model thinks."""
    host, rule, choice = (
        plan.target.host,
        choice_rule(plan),
        msgspec.json.decode(msgspec.json.encode(body["tool_choice"])),
    )
    mode = choice if isinstance(choice, str) else "allowed" if choice.get("type") == "allowed_tools" else "named"
    lower = mode
    if mode not in rule.modes:
        lower = "required" if mode == "named" and "required" in rule.modes else "auto"
        if mode == "allowed":
            lower = choice.get("mode", "auto")
            allowed = {tool.get("name") for tool in choice.get("tools", ())}
            body["tools"] = [tool for tool in body.get("tools") or () if _name(tool) in allowed]
    if rule.thinking_modes is not None and lower not in rule.thinking_modes and _is_thinking(body, plan):
        lower = "auto"
    if lower != mode:
        body["tool_choice"] = lower
        plan.report.approximated(("tool_choice",), "", f"{host.rejects(f'the choice {mode}')}; sent as {lower}")


def _is_thinking(body: dict[str, Any], plan: ItemPlan) -> bool:
    """Tell whether the model thinks with these settings."""
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else getattr(reasoning, "effort", None)
    if isinstance(effort, str):
        return effort != "none"
    return matches_model(plan.target.host.thinking.default_on, plan.target.model or str(body.get("model", "")))


def _name(tool: Any) -> Any:
    """Return the name of an encoded tool."""
    return tool.get("name") if isinstance(tool, dict) else getattr(tool, "name", None)


def _fit_effort(thinking: Thinking | None, body: dict[str, Any], plan: ItemPlan) -> None:
    """Replace the effort by the nearest word of host and model, or remove it."""
    host, reasoning = plan.target.host, body.get("reasoning")
    # With members that have no canonical counterpart, it is a plain object.
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else getattr(reasoning, "effort", None)
    model = plan.target.model or str(body.get("model", ""))
    rule = rule_for(host.thinking.efforts, model)
    words = () if rule is None else rule.words
    if not isinstance(effort, str) or effort in words or not host.thinking.efforts:
        return
    if not words:
        del body["reasoning"]
        report_fitted_effort(thinking, plan, f"{host.rejects('an effort')} for {model}", is_sent=False)
        return
    nearest = nearest_effort(effort, words)
    if isinstance(reasoning, dict):
        reasoning["effort"] = nearest
    elif isinstance(reasoning, ReasoningShape):
        reasoning.effort = nearest
    reason = f"{host.rejects(f'the effort {effort}')}; sent as {nearest}"
    report_fitted_effort(thinking, plan, reason, is_sent=True)
