"""OpenRouter's tools: functions as in Chat, and server tools (`openrouter:web_search`) that it runs itself."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.hosted import Spelling, choosable, chosen, decode_hosted, encode_hosted, is_native, without_native
from toolwire.codec.kept import restore
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted_strictly
from toolwire.codec.tools import (
    PlacedTool,
    is_allowed,
    lowered_description,
    lowered_schema,
    usable_callers,
)
from toolwire.protocols.openai import STRICT
from toolwire.protocols.openai_chat.request.lowering import lower_choice
from toolwire.protocols.openai_chat.request.search import ELSEWHERE
from toolwire.protocols.openai_chat.request.tools import encode_choice as encode_chat_choice
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import told

from .settings import CACHE, TTLS, encode_cache, lift_cache

SERVER = "openrouter:"

_decode = msgspec.json.Decoder().decode
_elements = msgspec.json.Decoder(list[Raw]).decode

_SEARCH = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "excluded_domains",
    "context_size": "search_context_size",
    "location": "user_location",
}
_FETCH = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "blocked_domains",
    "max_content_tokens": "max_content_tokens",
}


def _below(options: dict[str, str]) -> dict[str, str]:
    return {field: f"parameters/{name}" for field, name in options.items()}


HOSTED = Spelling(
    family=FAMILY,
    words={"web_search": (SERVER + "web_search",), "web_fetch": (SERVER + "web_fetch",)},
    options={"web_search": _below(_SEARCH), "web_fetch": _below(_FETCH)},
)
_SHORT = Spelling(
    family=FAMILY,
    words={"web_search": ("web_search", "web_search_preview", "web_search_2025_08_26")},
    options={"web_search": _SEARCH},
)
_PLUGINS = Spelling(
    family=FAMILY,
    words={"web_search": ("web",), "web_fetch": ("web-fetch",)},
    options={
        "web_search": {
            "max_uses": "max_uses",
            "allowed_domains": "include_domains",
            "blocked_domains": "exclude_domains",
            "location": "user_location",
        },
        "web_fetch": _FETCH,
    },
)


# ---- decode


def lift_tool(tool: Tool) -> Tool:
    match tool:
        case NativeTool() if tool.kind.startswith(SERVER):
            hosted = decode_hosted(tool.kind, tool.body, HOSTED)
            return replace(tool, kind=tool.kind.removeprefix(SERVER), hosted=hosted)
        case NativeTool() if tool.hosted is None:
            return replace(tool, hosted=decode_hosted(tool.kind, tool.body, _SHORT))
        case FunctionTool():
            return lift_cache(tool)
        case _:
            return tool


def lift_plugins(raw: Raw) -> tuple[list[NativeTool], list[int]]:
    """The plugins that are hosted tools, and the places of the others. A plugin that is off is none."""
    try:
        plugins = _elements(raw)
    except msgspec.DecodeError:
        return [], []
    tools: list[NativeTool] = []
    others: list[int] = []
    for index, plugin in enumerate(plugins):
        body = _decode(plugin)
        word = body.get("id") if isinstance(body, dict) and body.get("enabled") is not False else None
        if not isinstance(word, str) or (hosted := decode_hosted(word, plugin, _PLUGINS)) is None:
            others.append(index)
            continue
        hosted = replace(hosted, others=tuple(name for name in hosted.others if name not in ("id", "enabled")))
        at = f"/plugins/{index}"
        tool = NativeTool(protocol=FAMILY, kind=hosted.kind, body=plugin, hosted=hosted, at=at, form=(ELSEWHERE,))
        tools.append(tool)
    return tools, others


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
    plan.request = request
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    encoded = [
        _encode_tool(placed, plan) for placed in choosable(request, plan) if is_allowed(placed, request, plan.report)
    ]
    return [tool for tool in encoded if tool is not None]


def _encode_tool(placed: PlacedTool, plan: Plan) -> Any:
    tool, trail, report = placed.tool, placed.trail, plan.report
    if isinstance(tool, NativeTool):
        return _encode_native(tool, placed, plan)
    usable_callers(tool, trail, report)
    if tool.defer:
        report.approximated(trail, "defer", "without the other provider's search it is declared at once")
    if tool.asynchronous:
        report.dropped(trail, "asynchronous")
    body: dict[str, Any] = {"type": "function", "function": _encode_function(tool, trail, plan)}
    if tool.cache is not None:
        mark = tool.cache
        if mark.ttl not in TTLS:
            report.approximated((*trail, "cache"), "ttl", f"{mark.ttl} is told as 1h")
            mark = replace(mark, ttl="1h")
        body[CACHE] = encode_cache(mark)
    return restore(body, tool, FAMILY)


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
    if tool.kind.startswith(SERVER):
        return tool.body  # Chat's clients write them, too
    if tool.hosted is not None and is_native(tool, HOSTED):
        return {"type": HOSTED.words[tool.hosted.kind][0], **encode_hosted(tool, placed.trail, HOSTED, plan)}
    without_native(placed, plan)
    return None


def encode_choice(request: Request, plan: Plan, *, any_tools: bool) -> dict[str, Any]:
    choice = request.tool_choice
    if choice is None or not any_tools:
        return encode_chat_choice(request, plan, any_tools=any_tools)
    if (tool := chosen(request)) is not None and tool.hosted is not None and is_native(tool, HOSTED):
        body: dict[str, Any] = {"tool_choice": {"type": HOSTED.words[tool.hosted.kind][0]}}
        if choice.parallel is not None:
            body["parallel_tool_calls"] = choice.parallel
        return body
    lowered = replace(request, tool_choice=lower_choice(choice, plan))
    return encode_chat_choice(lowered, plan, any_tools=any_tools)
