"""OpenRouter's tools: functions as in Chat, and server tools (`openrouter:web_search`) that it runs itself."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.fields import escape
from toolwire.codec.losses import Trail, elements
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted_strictly
from toolwire.codec.tools import (
    PlacedTool,
    lowered_description,
    lowered_schema,
    tools_in_force,
    usable_callers,
    without_native,
)
from toolwire.protocols.openai import STRICT
from toolwire.protocols.openai_chat.request.tools import encode_choice as encode_chat_choice
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import told

from .settings import CACHE, TTLS, encode_cache, lift_cache

SERVER = "openrouter:"

_decode = msgspec.json.Decoder().decode

# What its server tools take of what other vendors' own say, by kind: where it stands there, and its name here.
_PARAMETERS: dict[str, dict[str, str]] = {
    "web_search": {
        "max_uses": "max_uses",
        "allowed_domains": "allowed_domains",
        "blocked_domains": "excluded_domains",
        "filters/allowed_domains": "allowed_domains",
        "filters/blocked_domains": "excluded_domains",
        "search_context_size": "search_context_size",
        "user_location": "user_location",
    },
    "web_fetch": {
        "max_uses": "max_uses",
        "allowed_domains": "allowed_domains",
        "blocked_domains": "blocked_domains",
        "max_content_tokens": "max_content_tokens",
    },
}
_NAMING = frozenset({"type", "filters", CACHE})


# ---- decode


def lift_tool(tool: Tool) -> Tool:
    match tool:
        case NativeTool() if tool.kind.startswith(SERVER):
            return replace(tool, kind=tool.kind.removeprefix(SERVER))
        case FunctionTool():
            return lift_cache(tool)
        case _:
            return tool


def lift_choice(raw: Raw, *, parallel: bool | None) -> ToolChoice | None:
    """The choice that forces a server tool, by its type alone."""
    match _decode(raw):
        case {"type": str(kind), **others} if not others:
            word = {FAMILY: {"type": Raw(msgspec.json.encode(kind))}}
            named = ToolRef(name=kind.removeprefix(SERVER), kind="native", extras=word, form=told("type"), at="")
            return ToolChoice(mode="named", names=(named,), parallel=parallel, at="/tool_choice")
        case _:
            return None


# ---- encode


def encode_tools(request: Request, plan: Plan) -> list[Any]:
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    encoded = [_encode_tool(placed, plan) for placed in tools_in_force(request) if _is_allowed(placed, request, plan)]
    return [tool for tool in encoded if tool is not None]


def _is_allowed(placed: PlacedTool, request: Request, plan: Plan) -> bool:
    """A choice among some tools is kept by offering only those."""
    choice, tool = request.tool_choice, placed.tool
    if choice is None or choice.mode != "allowed" or isinstance(tool, NativeTool):
        return True
    if any(named.name == tool.name for named in choice.names):
        return True
    plan.report.dropped(placed.trail, "", "not among the tools that may be chosen")
    return False


def _encode_tool(placed: PlacedTool, plan: Plan) -> Any:
    tool, trail, report = placed.tool, placed.trail, plan.report
    if isinstance(tool, NativeTool):
        return _encode_native(tool, placed, plan)
    usable_callers(tool, trail, report)
    if tool.defer:
        report.approximated(trail, "defer", "without the other provider's search it is declared at once")
    if tool.asynchronous:
        report.dropped(trail, "asynchronous")
    body = {"type": "function", "function": _encode_function(tool, trail, plan)}
    if tool.cache is not None:
        mark = tool.cache
        if mark.ttl not in TTLS:
            report.approximated((*trail, "cache"), "ttl", f"{mark.ttl} is told as 1h")
            mark = replace(mark, ttl="1h")
        body[CACHE] = encode_cache(mark)
    return body


def _encode_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> dict[str, Any]:
    function: dict[str, Any] = {"name": plan.tools.declare(tool, trail, plan.report)}
    if isinstance(tool, FreeformTool):
        return {**function, "description": lowered_description(tool), "parameters": lowered_schema()}
    if tool.output_schema is not None:
        plan.report.dropped(trail, "output_schema")
    if tool.description is not None:
        function["description"] = tool.description
    schema, strict = tool.parameters, tool.strict
    if strict and schema is not None:
        schema, strict = fitted_strictly(schema, STRICT, plan.report, trail, "parameters")
        if schema is not tool.parameters:
            plan.tools.completed(tool)
    if schema is not None:
        function["parameters"] = schema
    if strict is not None:
        function["strict"] = strict
    return function


def _encode_native(tool: NativeTool, placed: PlacedTool, plan: Plan) -> Any:
    """The server tool that does the same; else what becomes of any vendor's own."""
    kind = _server_kind(tool)
    if kind is None or plan.target.hosted_tools != "drop":
        function = without_native(placed, plan.report, plan.target.hosted_tools)
        if function is None:
            return None
        return {"type": "function", "function": _encode_function(function, placed.trail, plan)}
    body = _decode(tool.body)
    parameters: dict[str, Any] = {}
    flat = {**body, **{f"filters/{name}": value for name, value in (body.get("filters") or {}).items()}}
    for name, value in flat.items():
        if value is None or name in _NAMING or (name == "name" and value == kind):
            continue
        if (known := _PARAMETERS[kind].get(name)) is not None:
            parameters[known] = value
        else:
            for place in elements(Raw(msgspec.json.encode(value)), escape(name) if name in body else name):
                plan.report.dropped(placed.trail, f"//{place}", f"the target's {kind} has no such setting")
    if tool.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target has no cache marks on server tools")
    made = {"type": SERVER + kind}
    return {**made, "parameters": parameters} if parameters else made


def _server_kind(tool: NativeTool) -> str | None:
    kind = tool.kind.removesuffix("_preview")
    return kind if kind in _PARAMETERS and bytes(tool.body)[:1] == b"{" and tool.protocol != FAMILY else None


def encode_choice(request: Request, plan: Plan, *, any_tools: bool) -> dict[str, Any]:
    choice = request.tool_choice
    if choice is None or not any_tools:
        return encode_chat_choice(request, plan, any_tools=any_tools)
    if choice.mode == "allowed":
        why = "the target can't choose among some: only those are offered"
        plan.report.approximated(("tool_choice",), "names", why)
        choice = replace(choice, mode="required" if choice.required else "auto", names=())
    elif choice.mode == "named" and choice.names[0].kind == "freeform":
        choice = replace(choice, names=(replace(choice.names[0], kind="function"),))
    elif choice.mode == "named" and (server := _chosen_server(request, choice)) is not None:
        body: dict[str, Any] = {"tool_choice": {"type": SERVER + server}}
        if choice.parallel is not None:
            body["parallel_tool_calls"] = choice.parallel
        return body
    return encode_chat_choice(replace(request, tool_choice=choice), plan, any_tools=any_tools)


def _chosen_server(request: Request, choice: ToolChoice) -> str | None:
    """The server tool that a choice forces, if it is one that is offered here."""
    named = choice.names[0]
    offered = [placed.tool for placed in tools_in_force(request) if isinstance(placed.tool, NativeTool)]
    kinds = {name: kind for tool in offered if (kind := _server_kind(tool)) for name in (tool.name, tool.kind)}
    return kinds.get(named.name) if named.kind in ("native", "server") or named.name in kinds else None
