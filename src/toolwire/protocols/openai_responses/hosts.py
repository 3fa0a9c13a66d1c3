"""Fit requests to the profile of a host that speaks the Responses API. Every step is reported as a loss."""

from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, ReasoningText
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, NativeTool
from toolwire.codec.encoding.hosted_tools import choosable_tools, report_missing_native
from toolwire.codec.encoding.hosts import (
    SYSTEM_ROLES,
    FieldLocations,
    convert_system_messages,
    fit_fields,
    nearest_effort,
    replace_media,
)
from toolwire.codec.encoding.tools import freeform_description, freeform_schema
from toolwire.codec.encoding.turns import Turn, leading_system_count
from toolwire.codec.hosts.profile import rule_for
from toolwire.codec.wire.extras import none_to_unset
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import (
    AdditionalTools,
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
            if host.tools.hosted and tool.protocol == "openai-responses":
                encoded.append(tool.body)
            else:
                report_missing_native(located_tool, plan)
            continue
        shape = FunctionShape(type="function", name=plan.tools.declare(tool, path, plan.report), strict=False)
        if isinstance(tool, FreeformTool):
            shape.description, shape.parameters = freeform_description(tool), freeform_schema()
        else:
            shape.description = none_to_unset(tool.description)
            shape.parameters = tool.parameters or _EMPTY_SCHEMA
            shape.strict = bool(tool.strict)
        encoded.append(shape)
    limit = host.tools.max_count
    if limit is not None and len(encoded) > limit:
        plan.report.dropped((), "tools", host.rejects(f"more than {limit} tools"))
        encoded = encoded[:limit]
    return encoded or None


def fit_body(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Fit instructions, effort, format and other members of `body` to what the host accepts."""
    host = plan.target.host
    if "instructions" in body and "instructions" in host.fields.refused:
        _move_instructions(body, plan)
    if not plan.tools.freeform:
        _drop_tool_items(body, plan)
    if not host.messages.late_system:
        _join_leading_system(request, body, plan)
    _fit_effort(body, plan)
    text = body.get("text")
    if host.output.format_required and isinstance(text, TextShape) and text.format is UNSET:
        text.format = FormatShape(type="text")
        plan.report.added((), "", "/text/format", host.rejects("text settings without a format"))
    fit_fields(request, body, plan, _FIELD_LOCATIONS)


def _drop_tool_items(body: dict[str, Any], plan: ItemPlan) -> None:
    """Remove `additional_tools` items, whose tools are sent with the others."""
    items = body.get("input")
    if isinstance(items, list) and any(isinstance(item, AdditionalTools) for item in items):
        body["input"] = [item for item in items if not isinstance(item, AdditionalTools)]
        plan.report.approximated((), "tools", f"{plan.target.host.rejects('additional_tools')}; sent as tools")


def _join_leading_system(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Join all leading system messages to one, or to `instructions`, as some chat templates require."""
    items = body.get("input")
    leading: list[EasyMessage | MessageItem] = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, EasyMessage | MessageItem) and item.role in SYSTEM_ROLES:
            leading.append(item)
        else:
            break
    instructions = body.get("instructions")
    kept = [] if isinstance(instructions, str) else leading[:1]
    if not isinstance(items, list) or len(leading) == len(kept):
        return
    parts = [part for item in leading for part in _content_parts(item)]
    if kept:
        kept[0].content = parts
    else:
        texts = [part.text for part in parts if isinstance(part, InputText)]
        body["instructions"] = "\n\n".join([str(instructions), *texts])
    body["input"] = [
        item for item in items if all(item is not other for other in leading) or any(item is other for other in kept)
    ]
    for index in range(len(kept), leading_system_count(request.messages)):
        reason = f"{plan.target.host.rejects('several system messages')}; joined"
        plan.report.approximated(("messages", index), "role", reason)


def _content_parts(item: EasyMessage | MessageItem) -> list[Any]:
    """Return the content of a message as parts."""
    content = item.content
    if isinstance(content, str):
        return [InputText(text=content)]
    return [] if content is UNSET else list(content)


def _move_instructions(body: dict[str, Any], plan: ItemPlan) -> None:
    """Move `instructions` to a system message at the front of the input."""
    instructions, items = body.pop("instructions"), body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    leading = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else instructions
    body["input"] = [*leading, *items]
    plan.report.approximated((), "system", f"{plan.target.host.rejects('instructions')}; sent as a system message")


def _fit_effort(body: dict[str, Any], plan: ItemPlan) -> None:
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
        plan.report.dropped(("thinking",), "effort", f"{host.rejects('an effort')} for {model}")
        return
    nearest = nearest_effort(effort, words)
    if isinstance(reasoning, dict):
        reasoning["effort"] = nearest
    elif isinstance(reasoning, ReasoningShape):
        reasoning.effort = nearest
    plan.report.approximated(("thinking",), "effort", f"{host.rejects(f'the effort {effort}')}; sent as {nearest}")
