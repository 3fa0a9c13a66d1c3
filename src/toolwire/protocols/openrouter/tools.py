"""Tools of OpenRouter: functions as in Chat, and server tools such as `openrouter:web_search`."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.encoding.hosted_tools import (
    HostedToolNames,
    choosable_tools,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    report_missing_native,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    freeform_description,
    freeform_schema,
    is_allowed,
    report_allowed_callers,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import decode_elements, decode_json
from toolwire.protocols.openai_chat.hosts import fit_allowed_choice
from toolwire.protocols.openai_chat.tools import SEARCH_FORM
from toolwire.protocols.openai_chat.tools import encode_choice as encode_chat_choice
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.content import represented_tokens
from toolwire.protocols.openrouter.settings import CACHE_FIELD, CACHE_TTLS, decode_cache, encode_cache
from toolwire.protocols.vendors.openai import STRICT_SCHEMA

SERVER_TOOL_PREFIX = "openrouter:"


_SEARCH_OPTIONS = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "excluded_domains",
    "context_size": "search_context_size",
    "location": "user_location",
}
_FETCH_OPTIONS = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "blocked_domains",
    "max_content_tokens": "max_content_tokens",
}


def _nest_options(options: dict[str, str]) -> dict[str, str]:
    """Return the option pointers with `parameters/` before each name."""
    return {field: f"parameters/{name}" for field, name in options.items()}


HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={"web_search": (SERVER_TOOL_PREFIX + "web_search",), "web_fetch": (SERVER_TOOL_PREFIX + "web_fetch",)},
    option_pointers={"web_search": _nest_options(_SEARCH_OPTIONS), "web_fetch": _nest_options(_FETCH_OPTIONS)},
)
_SHORT_NAMES = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web_search", "web_search_preview", "web_search_2025_08_26")},
    option_pointers={"web_search": _SEARCH_OPTIONS},
)
_PLUGIN_NAMES = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web",), "web_fetch": ("web-fetch",)},
    option_pointers={
        "web_search": {
            "max_uses": "max_uses",
            "allowed_domains": "include_domains",
            "blocked_domains": "exclude_domains",
            "location": "user_location",
        },
        "web_fetch": _FETCH_OPTIONS,
    },
)


# ---- decode


def decode_tool(tool: Tool) -> Tool:
    """Return a tool from Chat's decoder with the fields that OpenRouter adds to Chat decoded."""
    match tool:
        case NativeTool() if tool.kind.startswith(SERVER_TOOL_PREFIX):
            hosted = decode_hosted_tool(tool.kind, tool.body, HOSTED_TOOLS)
            return replace(tool, kind=tool.kind.removeprefix(SERVER_TOOL_PREFIX), hosted=hosted)
        case NativeTool() if tool.hosted is None:
            return replace(tool, hosted=decode_hosted_tool(tool.kind, tool.body, _SHORT_NAMES))
        case FunctionTool():
            return decode_cache(tool)
        case _:
            return tool


def decode_plugins(raw: Raw) -> tuple[list[NativeTool], list[int]]:
    """Decode enabled plugins that are hosted tools.

    Return the tools, and the indices of all other plugins.
    """
    try:
        plugins = decode_elements(raw)
    except msgspec.DecodeError:
        return [], []
    tools: list[NativeTool] = []
    others: list[int] = []
    for index, plugin in enumerate(plugins):
        body = decode_json(plugin)
        plugin_id = body.get("id") if isinstance(body, dict) and body.get("enabled") is not False else None
        if not isinstance(plugin_id, str) or (hosted := decode_hosted_tool(plugin_id, plugin, _PLUGIN_NAMES)) is None:
            others.append(index)
            continue
        hosted = replace(hosted, others=tuple(name for name in hosted.others if name not in ("id", "enabled")))
        pointer = f"/plugins/{index}"
        tool = NativeTool(
            protocol=FAMILY, kind=hosted.kind, body=plugin, hosted=hosted, at=pointer, wire_form=(SEARCH_FORM,)
        )
        tools.append(tool)
    return tools, others


def decode_choice(raw: Raw, *, parallel: bool | None) -> ToolChoice | None:
    """Decode a tool choice that forces a server tool by its type; None for any other choice."""
    match decode_json(raw):
        case {"type": str(kind), **others} if not others:
            type_extra = {FAMILY: {"type": Raw(msgspec.json.encode(kind))}}
            reference = ToolRef(
                name=kind.removeprefix(SERVER_TOOL_PREFIX),
                kind="native",
                extras=type_extra,
                wire_form=represented_tokens("type"),
                at="",
            )
            return ToolChoice(mode="named", names=(reference,), parallel=parallel, at="/tool_choice")
        case _:
            return None


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> list[Any]:
    """Encode the tools of a request."""
    plan.request = request
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no tool groups")
    encoded = [
        _encode_tool(located_tool, plan)
        for located_tool in choosable_tools(request, plan)
        if is_allowed(located_tool, request, plan.report)
    ]
    return [tool for tool in encoded if tool is not None]


def _encode_tool(located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    """Encode one tool; report it and return None if the target has no counterpart."""
    tool, path, report = located_tool.tool, located_tool.path, plan.report
    if isinstance(tool, NativeTool):
        return _encode_native(tool, located_tool, plan)
    report_allowed_callers(tool, path, report)
    if tool.defer:
        report.approximated(path, "defer", "without tool search, the tool is declared from the start")
    if tool.asynchronous:
        report.dropped(path, "asynchronous")
    body: dict[str, Any] = {"type": "function", "function": _encode_function(tool, path, plan)}
    if tool.cache is not None:
        mark = tool.cache
        plan.cache_marks += 1
        if mark.ttl not in CACHE_TTLS:
            report.approximated((*path, "cache"), "ttl", f"{mark.ttl} sent as 1h")
            mark = replace(mark, ttl="1h")
        body[CACHE_FIELD] = encode_cache(mark)
    return restore_extras(body, tool, FAMILY)


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the `function` object of a tool."""
    function: dict[str, Any] = {"name": plan.tools.declare(tool, path, plan.report)}
    if isinstance(tool, FreeformTool):
        return {**function, "description": freeform_description(tool), "parameters": freeform_schema()}
    if tool.output_schema is not None:
        plan.report.dropped(path, "output_schema")
    if tool.description is not None:
        function["description"] = tool.description
    schema, strict = tool.parameters, tool.strict
    if strict and schema is not None:
        schema, strict = fit_strictly_and_report(schema, STRICT_SCHEMA, plan.report, path, "parameters")
        if schema is not tool.parameters:
            plan.tools.expect_nulls(tool)
    if schema is not None:
        function["parameters"] = schema
    if strict is not None:
        function["strict"] = strict
    return function


def _encode_native(tool: NativeTool, located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    """Encode a native tool as the server tool that does the same; report it and return None without one."""
    if tool.kind.startswith(SERVER_TOOL_PREFIX):
        return tool.body  # clients of Chat may send them, too
    if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
        return {
            "type": HOSTED_TOOLS.names[tool.hosted.kind][0],
            **encode_hosted_options(tool, located_tool.path, HOSTED_TOOLS, plan),
        }
    report_missing_native(located_tool, plan)
    return None


def encode_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> dict[str, Any]:
    """Return the fields `tool_choice` and `parallel_tool_calls`, each only if it is to be sent."""
    choice = request.tool_choice
    if choice is None or not has_tools:
        return encode_chat_choice(request, plan, has_tools=has_tools)
    if (tool := chosen_native_tool(request)) is not None and tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
        body: dict[str, Any] = {"tool_choice": {"type": HOSTED_TOOLS.names[tool.hosted.kind][0]}}
        if choice.parallel is not None:
            body["parallel_tool_calls"] = choice.parallel
        return body
    chat_request = replace(request, tool_choice=fit_allowed_choice(choice, plan))
    return encode_chat_choice(chat_request, plan, has_tools=has_tools)
