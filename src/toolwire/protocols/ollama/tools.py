"""Decode and encode tool declarations.

Ollama has no tool choice: tools that may not be called are left out.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool
from toolwire.codec.encoding.hosted_tools import report_missing_native
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    conversation_tools,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
    report_excluded_tool,
    report_group_descriptions,
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


# ---- decode


def decode_tools(shape: RequestShape) -> tuple[Tool, ...] | None:
    """Decode the tools."""
    if not isinstance(shape.tools, list):
        return None
    return tuple([_decode_tool(raw, f"/tools/{index}") for index, raw in enumerate(shape.tools)])


def _decode_tool(raw: Raw, path: str) -> FunctionTool:
    """Decode one function."""
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, path, "an object", describe_json(raw))
    tool = _read_tool(raw, path)
    function = tool.function
    form: tuple[str, ...] = ()
    parameters = unset_to_none(function.parameters)
    if parameters is not None and bytes(parameters) == b"null":
        form, parameters = (f"{FAMILY}:null:function/parameters",), None
    type_extras: dict[str, Any] = {}
    if tool.type is UNSET:
        form = (*form, NO_TYPE)
    elif tool.type not in ("function", None):
        # The server ignores the type.
        type_extras = {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(tool.type))}}}
    extras = merge_extras(
        collect_extras(tool, FAMILY, *form), collect_extras(function, FAMILY, prefix="function/"), type_extras
    )
    return FunctionTool(
        name=function.name, description=unset_to_none(function.description), parameters=parameters, **extras
    )


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> list[Any] | None:
    """Encode the tools that the model may use."""
    if plan.same_protocol:
        return None if request.tools is None else [_encode_same_protocol_tool(tool) for tool in request.tools]
    plan.request = request
    report_group_descriptions(request, plan.report)
    encoded = [
        _encode_tool(located_tool, plan)
        for located_tool in conversation_tools(request)
        if _is_allowed(located_tool, request, plan)
    ]
    return [tool for tool in encoded if tool is not None] or None


def _encode_same_protocol_tool(tool: Tool) -> Any:
    """Encode a function that came from an Ollama client."""
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
    """Check whether the tool choice allows a tool; report a tool that is left out."""
    choice = request.tool_choice
    if choice is None or isinstance(located_tool.tool, NativeTool):
        return True
    if choice.mode == "none":
        report_excluded_tool(located_tool, request, plan.report, "the target has no tool choice; no tools sent")
        return False
    if choice.mode not in ("allowed", "named") or any(
        tool_ref.name == located_tool.tool.name for tool_ref in choice.names
    ):
        return True
    if choice.mode == "named" and not _is_choice_available(request):
        return True
    report_excluded_tool(located_tool, request, plan.report, "excluded by the tool choice")
    return False


def _is_choice_available(request: Request) -> bool:
    """Check whether any tool that the choice names is among the functions."""
    choice = request.tool_choice
    names = {
        located_tool.tool.name
        for located_tool in conversation_tools(request)
        if not isinstance(located_tool.tool, NativeTool)
    }
    return choice is not None and any(tool_ref.name in names for tool_ref in choice.names)


def _encode_tool(located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    """Encode one tool; report a native tool as a loss and return None, since Ollama has none."""
    tool = located_tool.tool
    if isinstance(tool, NativeTool):
        report_missing_native(located_tool, plan)
        return None
    report_allowed_callers(tool, located_tool.path, plan.report)
    if tool.defer:
        plan.report.approximated(located_tool.path, "defer", "without tool search, the tool is declared from the start")
    if tool.asynchronous:
        plan.report.dropped(located_tool.path, "asynchronous")
    if tool.cache is not None:
        plan.report.dropped((*located_tool.path, "cache"), "", "the target has no cache marks")
    return _encode_function(tool, located_tool.path, plan)


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode a function, or a freeform tool as a function."""
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
    """Return the parameter schema of a function, reduced to the keywords that the server keeps."""
    if bytes(schema)[:1] != b"{":
        plan.report.dropped(path, "parameters", "not an object schema")
        return UNSET
    return fit_and_report(schema, PARAMETERS_SCHEMA, plan.report, path, "parameters")


def report_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> None:
    """Report as losses what the tool choice asks beyond leaving out tools, such as a forced call."""
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
            plan.report.dropped(("tool_choice",), "", "no tools are declared", severity="info")
        case "required":
            plan.report.dropped(("tool_choice",), "", "the target cannot force a tool call")
        case "named":
            reason = "the target cannot force a tool call; only the named tool sent"
            plan.report.approximated(("tool_choice",), "names", reason)
        case "allowed":
            reason = "the target has no tool choice; only the allowed tools sent"
            plan.report.approximated(("tool_choice",), "names", reason)
            if choice.required:
                plan.report.dropped(("tool_choice",), "required", "the target cannot force a tool call")
