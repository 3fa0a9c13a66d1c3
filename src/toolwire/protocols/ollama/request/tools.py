"""Ollama's tool declarations, to canonical and back. There is no tool choice: what may not be called is not offered."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup
from toolwire.codec.fields import Reader, told
from toolwire.codec.hosted import without_native
from toolwire.codec.kept import given, joined, known, rest, restore
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted
from toolwire.codec.tools import (
    PlacedTool,
    leave_out,
    lowered_description,
    lowered_schema,
    report_validated,
    tools_in_force,
    usable_callers,
)
from toolwire.protocols.ollama.rules.vocabulary import PARAMETERS
from toolwire.protocols.ollama.wire import FAMILY, FunctionShape, RequestShape, ToolShape

NO_TYPE = "ollama:absent:type"

_read_tool = Reader[ToolShape](ToolShape, FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_tools(shape: RequestShape) -> tuple[Tool, ...] | None:
    if not isinstance(shape.tools, list):
        return None
    return tuple([_decode_tool(raw, f"/tools/{index}") for index, raw in enumerate(shape.tools)])


def _decode_tool(raw: Raw, path: str) -> FunctionTool:
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, path, "an object", told(raw))
    tool = _read_tool(raw, path)
    function = tool.function
    form: tuple[str, ...] = ()
    parameters = known(function.parameters)
    if parameters is not None and bytes(parameters) == b"null":
        form, parameters = (f"{FAMILY}:null:function/parameters",), None
    kind: dict[str, Any] = {}
    if tool.type is UNSET:
        form = (*form, NO_TYPE)
    elif tool.type not in ("function", None):
        # The server does not look at it.
        kind = {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(tool.type))}}}
    found = joined(rest(tool, FAMILY, *form), rest(function, FAMILY, under="function/"), kind)
    return FunctionTool(name=function.name, description=known(function.description), parameters=parameters, **found)


# ---- encode


def encode_tools(request: Request, plan: Plan) -> list[Any] | None:
    if plan.home:
        return None if request.tools is None else [_encode_own(tool) for tool in request.tools]
    plan.request = request
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    offered = [_encode_tool(placed, plan) for placed in tools_in_force(request) if _is_allowed(placed, request, plan)]
    return [tool for tool in offered if tool is not None] or None


def _encode_own(tool: Tool) -> Any:
    if not isinstance(tool, FunctionTool):
        raise TypeError(f"this protocol has no {type(tool).__name__}")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    body: dict[str, Any] = {"function": function}
    restore(body, tool, FAMILY)
    if NO_TYPE not in tool.form:
        body.setdefault("type", "function")
    return body


def _is_allowed(placed: PlacedTool, request: Request, plan: Plan) -> bool:
    """A choice that leaves out tools is kept by not offering them."""
    choice = request.tool_choice
    if choice is None or isinstance(placed.tool, NativeTool):
        return True
    if choice.mode == "none":
        leave_out(placed, request, plan.report, "no tool may be called, and the target can't be told so")
        return False
    if choice.mode not in ("allowed", "named") or any(named.name == placed.tool.name for named in choice.names):
        return True
    if choice.mode == "named" and not _is_offered(request):
        return True
    leave_out(placed, request, plan.report, "not among the tools that may be chosen")
    return False


def _is_offered(request: Request) -> bool:
    """Whether the tool that is to be called can be offered at all."""
    choice = request.tool_choice
    names = {placed.tool.name for placed in tools_in_force(request) if not isinstance(placed.tool, NativeTool)}
    return choice is not None and any(named.name in names for named in choice.names)


def _encode_tool(placed: PlacedTool, plan: Plan) -> Any:
    tool = placed.tool
    if isinstance(tool, NativeTool):
        without_native(placed, plan)
        return None
    usable_callers(tool, placed.trail, plan.report)
    if tool.defer:
        plan.report.approximated(placed.trail, "defer", "the target has no deferred tools: it sees this one at once")
    if tool.asynchronous:
        plan.report.dropped(placed.trail, "asynchronous")
    if tool.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target has no cache marks")
    return _encode_function(tool, placed.trail, plan)


def _encode_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> Any:
    shape = FunctionShape(name=plan.tools.declare(tool, trail, plan.report))
    if isinstance(tool, FreeformTool):
        shape.description, shape.parameters = lowered_description(tool), lowered_schema()
        return ToolShape(type="function", function=shape)
    if tool.strict:
        plan.report.dropped(trail, "strict", "the target can't be strict about arguments")
    if tool.output_schema is not None:
        plan.report.dropped(trail, "output_schema")
    shape.description = given(tool.description)
    if tool.parameters is not None:
        shape.parameters = _schema(tool.parameters, trail, plan)
    return ToolShape(type="function", function=shape)


def _schema(schema: Raw, trail: Trail, plan: Plan) -> Any:
    if bytes(schema)[:1] != b"{":
        plan.report.dropped(trail, "parameters", "not an object schema")
        return UNSET
    return fitted(schema, PARAMETERS, plan.report, trail, "parameters")


def report_choice(request: Request, plan: Plan, *, any_tools: bool) -> None:
    """What a choice says that leaving tools out does not."""
    choice = request.tool_choice
    if choice is None or plan.home:
        return
    report_validated(choice, plan.report)
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target can't be told to call one tool at a time")
    match choice.mode:
        case None | "auto":
            pass
        case "none":
            plan.report.approximated(("tool_choice",), "", "the target has no tool choice: no tool is offered")
        case _ if not any_tools:
            plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        case "required":
            plan.report.dropped(("tool_choice",), "", "the target can't be made to call a tool")
        case "named":
            why = "the target can't be made to call a tool: where it has this one, no other is offered"
            plan.report.approximated(("tool_choice",), "names", why)
        case "allowed":
            why = "the target can't choose among some: only those are offered"
            plan.report.approximated(("tool_choice",), "names", why)
            if choice.required:
                plan.report.dropped(("tool_choice",), "required", "the target can't be made to call a tool")
