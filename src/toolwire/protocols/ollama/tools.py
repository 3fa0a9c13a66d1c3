"""Ollama's tool declarations, to canonical and back. There is no tool choice: what may not be called is not offered."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup
from toolwire.codec.encoding.hosted_tools import report_missing_native
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    conversation_tools,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
    report_excluded_tool,
    report_validated_choice,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import collect_extras, merge_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, describe_json
from toolwire.protocols.ollama.fields import PARAMETERS_SCHEMA
from toolwire.protocols.ollama.wire import FAMILY, FunctionShape, RequestShape, ToolShape

NO_TYPE = "ollama:absent:type"

_read_tool = Reader[ToolShape](ToolShape, FAMILY).read
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_tools(shape: RequestShape) -> tuple[Tool, ...] | None:
    if not isinstance(shape.tools, list):
        return None
    return tuple([_decode_tool(raw, f"/tools/{index}") for index, raw in enumerate(shape.tools)])


def _decode_tool(raw: Raw, path: str) -> FunctionTool:
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, path, "an object", describe_json(raw))
    tool = _read_tool(raw, path)
    function = tool.function
    form: tuple[str, ...] = ()
    parameters = unset_to_none(function.parameters)
    if parameters is not None and bytes(parameters) == b"null":
        form, parameters = (f"{FAMILY}:null:function/parameters",), None
    kind: dict[str, Any] = {}
    if tool.type is UNSET:
        form = (*form, NO_TYPE)
    elif tool.type not in ("function", None):
        # The server does not look at it.
        kind = {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(tool.type))}}}
    found = merge_extras(
        collect_extras(tool, FAMILY, *form), collect_extras(function, FAMILY, prefix="function/"), kind
    )
    return FunctionTool(
        name=function.name, description=unset_to_none(function.description), parameters=parameters, **found
    )


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> list[Any] | None:
    if plan.same_protocol:
        return None if request.tools is None else [_encode_same_protocol_tool(tool) for tool in request.tools]
    plan.request = request
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no tool groups")
    offered = [
        _encode_tool(placed, plan) for placed in conversation_tools(request) if _is_allowed(placed, request, plan)
    ]
    return [tool for tool in offered if tool is not None] or None


def _encode_same_protocol_tool(tool: Tool) -> Any:
    if not isinstance(tool, FunctionTool):
        raise TypeError(f"this protocol has no {type(tool).__name__}")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    body: dict[str, Any] = {"function": function}
    restore_extras(body, tool, FAMILY)
    if NO_TYPE not in tool.wire_form:
        body.setdefault("type", "function")
    return body


def _is_allowed(located_tool: LocatedTool, request: Request, plan: EncodingPlan) -> bool:
    """A choice that leaves out tools is kept by not offering them."""
    choice = request.tool_choice
    if choice is None or isinstance(located_tool.tool, NativeTool):
        return True
    if choice.mode == "none":
        report_excluded_tool(
            located_tool, request, plan.report, "the target has no tool choice; no tools sent"
        )
        return False
    if choice.mode not in ("allowed", "named") or any(named.name == located_tool.tool.name for named in choice.names):
        return True
    if choice.mode == "named" and not _is_choice_available(request):
        return True
    report_excluded_tool(located_tool, request, plan.report, "not among the allowed tools")
    return False


def _is_choice_available(request: Request) -> bool:
    """Whether the tool that is to be called can be offered at all."""
    choice = request.tool_choice
    names = {placed.tool.name for placed in conversation_tools(request) if not isinstance(placed.tool, NativeTool)}
    return choice is not None and any(named.name in names for named in choice.names)


def _encode_tool(located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    tool = located_tool.tool
    if isinstance(tool, NativeTool):
        report_missing_native(located_tool, plan)
        return None
    report_allowed_callers(tool, located_tool.path, plan.report)
    if tool.defer:
        plan.report.approximated(
            located_tool.path, "defer", "without tool search, the tool is declared from the start"
        )
    if tool.asynchronous:
        plan.report.dropped(located_tool.path, "asynchronous")
    if tool.cache is not None:
        plan.report.dropped((*located_tool.path, "cache"), "", "the target has no cache marks")
    return _encode_function(tool, located_tool.path, plan)


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    shape = FunctionShape(name=plan.tools.declare(tool, path, plan.report))
    if isinstance(tool, FreeformTool):
        shape.description, shape.parameters = freeform_description(tool), freeform_schema()
        return ToolShape(type="function", function=shape)
    if tool.strict:
        plan.report.dropped(path, "strict", "the target does not validate arguments")
    if tool.output_schema is not None:
        plan.report.dropped(path, "output_schema")
    shape.description = none_to_unset(tool.description)
    if tool.parameters is not None:
        shape.parameters = _encode_schema(tool.parameters, path, plan)
    return ToolShape(type="function", function=shape)


def _encode_schema(schema: Raw, path: SourcePath, plan: EncodingPlan) -> Any:
    if bytes(schema)[:1] != b"{":
        plan.report.dropped(path, "parameters", "not an object schema")
        return UNSET
    return fit_and_report(schema, PARAMETERS_SCHEMA, plan.report, path, "parameters")


def report_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> None:
    """What a choice says that leaving tools out does not."""
    choice = request.tool_choice
    if choice is None or plan.same_protocol:
        return
    report_validated_choice(choice, plan.report)
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target cannot disable parallel tool calls")
    match choice.mode:
        case None | "auto":
            pass
        case "none":
            plan.report.approximated(("tool_choice",), "", "the target has no tool choice; no tools sent")
        case _ if not has_tools:
            plan.report.dropped(("tool_choice",), "", "no tools are declared")
        case "required":
            plan.report.dropped(("tool_choice",), "", "the target cannot force a tool call")
        case "named":
            why = "the target cannot force a tool call; only the named tool sent"
            plan.report.approximated(("tool_choice",), "names", why)
        case "allowed":
            why = "the target has no tool choice; only the allowed tools sent"
            plan.report.approximated(("tool_choice",), "names", why)
            if choice.required:
                plan.report.dropped(("tool_choice",), "required", "the target cannot force a tool call")
