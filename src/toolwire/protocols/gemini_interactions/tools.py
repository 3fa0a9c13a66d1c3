"""Decode and encode tool declarations and the tool choice.

Adapter for Google's computer use in Interactions requests.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    Computer,
    FreeformTool,
    FunctionTool,
    NativeTool,
    Tool,
    ToolChoice,
    ToolRef,
)
from toolwire.codec.encoding.computer import ComputerUseAdapter
from toolwire.codec.encoding.hosted_tools import (
    HostedToolNames,
    choosable_tools,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    portable_server,
    report_missing_native,
)
from toolwire.codec.encoding.tools import (
    LocatedTool,
    flatten_tool,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
    report_group_descriptions,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, decode_json, tag_of
from toolwire.protocols.gemini_interactions.parts.content import StepPlan
from toolwire.protocols.gemini_interactions.wire import FAMILY, AllowedShape, ChoiceShape, FunctionShape
from toolwire.protocols.vendors.google.computer import (
    declare_computer,
    decode_computer_call,
    decode_computer_result,
    encode_computer_call,
    encode_computer_result,
    with_computer_tools,
)
from toolwire.protocols.vendors.google.computer_actions import encode_computer_actions
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, has_only_strict_tools
from toolwire.protocols.vendors.google.tools import (
    GEMINI,
    INTERACTIONS,
    decode_interactions_server,
    encode_interactions_server,
    to_interactions_tool,
)

CHOICE_MODES = {"auto": "auto", "any": "required", "none": "none", "validated": "auto"}
_WIRE_MODES = {"auto": "auto", "required": "any", "none": "none"}
_MODE_NAME = "gemini-interactions:name:mode=allowed_tools/mode"
_VALIDATED_MODE = "validated"
_ALLOWED_MODES = ("auto", "any", _VALIDATED_MODE)
_VALIDATED_NAME = "gemini-interactions:name:validated=allowed_tools/mode"
_NO_MODE = "gemini-interactions:absent:mode"
_NO_TOOLS = "gemini-interactions:absent:tools"
_EMPTY_FORM = "gemini-interactions:empty"

HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("google_search",), "web_fetch": ("url_context",), "code_execution": ("code_execution",)},
    option_pointers={},
)

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read

# ---- decode


def decode_tools(tools: list[Raw]) -> tuple[Tool, ...]:
    """Decode the tools."""
    return tuple([_decode_tool(raw, f"/tools/{index}") for index, raw in enumerate(tools)])


def _decode_tool(raw: Raw, path: str) -> Tool:
    """Decode a function or a native tool."""
    kind = tag_of(raw)
    if kind == "function":
        shape = _read_function(raw, path)
        is_null = shape.parameters is not UNSET and bytes(shape.parameters) == b"null"
        return FunctionTool(
            name=shape.name,
            description=unset_to_none(shape.description),
            parameters=None if is_null else unset_to_none(shape.parameters),
            **collect_extras(shape, FAMILY, *((f"{FAMILY}:null:parameters",) if is_null else ())),
        )
    name = decode_json(_read_object(raw, path).get("name", b"null"))
    return NativeTool(
        protocol=FAMILY,
        kind=kind or "",
        name=name if isinstance(name, str) else None,
        executor="client" if kind == "computer_use" else "server",
        body=raw,
        hosted=decode_hosted_tool(kind or "", raw, HOSTED_TOOLS),
        server=decode_interactions_server(raw, path) if kind == "mcp_server" else None,
    )


def decode_choice(choice: str | ChoiceShape | UnsetType) -> ToolChoice | None:
    """Decode the tool choice; return None for an unknown mode, which the request keeps as extras."""
    if choice is UNSET:
        return None
    if isinstance(choice, str):
        if choice not in CHOICE_MODES:
            return None
        return ToolChoice(mode=CHOICE_MODES[choice], validated=choice == _VALIDATED_MODE)  # type: ignore[arg-type]
    allowed = choice.allowed_tools
    if allowed is UNSET:
        return ToolChoice(**collect_extras(choice, FAMILY, _EMPTY_FORM))
    extras = merge_extras(collect_extras(choice, FAMILY), collect_extras(allowed, FAMILY, prefix="allowed_tools/"))
    form = [_MODE_NAME, _VALIDATED_NAME]
    if allowed.mode not in _ALLOWED_MODES:
        form.append(_NO_MODE)
        if isinstance(allowed.mode, str):
            mode = Raw(msgspec.json.encode(allowed.mode))
            extras = merge_extras(extras, {"extras": {FAMILY: {"allowed_tools/mode": mode}}})
    if allowed.tools is UNSET:
        form.append(_NO_TOOLS)
    names = tuple(ToolRef(name=name) for name in allowed.tools or ())
    is_named = len(names) == 1 and allowed.mode == "any"
    return ToolChoice(
        mode="named" if is_named else "none" if allowed.mode == "none" else "allowed",
        names=names,
        required=allowed.mode == "any" and not is_named,
        validated=allowed.mode == _VALIDATED_MODE,
        **merge_extras(extras, {"wire_form": tuple(form)}),
    )


# ---- encode


def encode_tools(request: Request, plan: StepPlan) -> list[Any] | None:
    """Encode the tools that the model may use."""
    if plan.same_protocol:
        tools = request.tools
        return (
            None
            if tools is None
            else [_encode_same_protocol_tool(tool, ("tools", index), plan) for index, tool in enumerate(tools)]
        )
    plan.request = request
    report_group_descriptions(request, plan.report)
    encoded = [_encode_tool(located_tool, plan) for located_tool in choosable_tools(request, plan)]
    return [tool for tool in encoded if tool is not None] or None


def _encode_same_protocol_tool(tool: Tool, path: SourcePath, plan: StepPlan) -> Any:
    """Encode one tool that came from an Interactions client."""
    (located_tool,) = flatten_tool(tool, path)
    return _encode_tool(located_tool, plan)


def _encode_tool(located_tool: LocatedTool, plan: StepPlan) -> Any:
    """Encode one tool; report it and return None if the protocol has no such tool."""
    tool = located_tool.tool
    if not isinstance(tool, NativeTool):
        return _encode_function(tool, located_tool.path, plan)
    if tool.protocol == FAMILY:
        return tool.body
    if tool.protocol == GEMINI and (body := to_interactions_tool(tool, located_tool.path, plan.report)) is not None:
        return body | plan.map_location if body["type"] == "google_maps" else body
    if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
        return {
            "type": HOSTED_TOOLS.names[tool.hosted.kind][0],
            **encode_hosted_options(tool, located_tool.path, HOSTED_TOOLS, plan),
        }
    if (server := portable_server(tool)) is not None:
        return encode_interactions_server(server, located_tool.path, plan)
    report_missing_native(located_tool, plan, has_connectors=True)
    return None


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: StepPlan) -> Any:
    """Encode a function, or a freeform tool as a function."""
    if plan.same_protocol and isinstance(tool, FunctionTool):
        shape = FunctionShape(type="function", name=tool.name, parameters=none_to_unset(tool.parameters))
        shape.description = none_to_unset(tool.description)
        return encode_with_extras(shape, tool, FAMILY)
    shape = FunctionShape(type="function", name=plan.tools.declare(tool, path, plan.report))
    report_allowed_callers(tool, path, plan.report)
    if tool.asynchronous:
        plan.report.dropped(path, "asynchronous")
    if tool.defer:
        plan.report.approximated(path, "defer", "without tool search, the tool is declared from the start")
    if tool.cache is not None:
        plan.report.dropped(path, "cache", "the target caches automatically")
    if isinstance(tool, FreeformTool):
        shape.description, shape.parameters = freeform_description(tool), freeform_schema()
        return shape
    shape.description, shape.parameters = none_to_unset(tool.description), _encode_schema(tool, path, plan)
    if tool.strict and not (plan.request is not None and has_only_strict_tools(plan.request, plan)):
        plan.report.dropped(path, "strict", "the target validates arguments for all functions or none")
    if tool.output_schema is not None:
        plan.report.dropped(path, "output_schema")
    return shape


def _encode_schema(tool: FunctionTool, path: SourcePath, plan: StepPlan) -> Any:
    """Return the parameter schema of a function, reduced to what the API accepts."""
    if tool.parameters is not None and bytes(tool.parameters)[:1] != b"{":
        plan.report.dropped(path, "parameters", "not an object schema")
        return UNSET
    if tool.parameters is None:
        return UNSET
    return fit_and_report(tool.parameters, JSON_SCHEMA, plan.report, path, "parameters")


def encode_choice(request: Request, plan: StepPlan, *, has_tools: bool) -> Any:
    """Encode the tool choice; UNSET if there is none, or no tools to choose from."""
    choice = request.tool_choice
    if plan.same_protocol:
        return UNSET if choice is None else _encode_same_protocol_choice(choice)
    is_strict = has_only_strict_tools(request, plan)
    if choice is not None and choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target cannot disable parallel tool calls")
    if choice is None or choice.mode is None:
        return _VALIDATED_MODE if is_strict else UNSET
    if not has_tools:
        plan.report.dropped(("tool_choice",), "", "no tools are declared", severity="info")
        return UNSET
    free_mode = _VALIDATED_MODE if is_strict or choice.validated else "auto"
    if choice.mode not in ("named", "allowed"):
        return free_mode if choice.mode == "auto" else _WIRE_MODES[choice.mode]
    return _encode_allowed_tools(choice, request, plan, free_mode)


def _encode_allowed_tools(choice: ToolChoice, request: Request, plan: StepPlan, free_mode: str) -> Any:
    """Encode a choice among named functions; hosted tools cannot be chosen and are reported.

    `free_mode` is the mode for a choice that does not force a call.
    """
    functions = [
        tool_ref
        for tool_ref in choice.names
        if tool_ref.kind in ("function", "freeform") and not chosen_native_tool(request)
    ]
    if len(functions) < len(choice.names):
        plan.report.approximated(("tool_choice",), "names", "the target's tool choice is limited to functions")
    if not functions:
        return "any" if choice.required else "auto"
    mode = "any" if choice.mode == "named" or choice.required else free_mode
    names = [plan.tool_name(tool_ref.name, tool_ref.namespace) for tool_ref in functions]
    return ChoiceShape(allowed_tools=AllowedShape(mode=mode, tools=names))


def _encode_same_protocol_choice(choice: ToolChoice) -> Any:
    """Encode the tool choice of an Interactions client, as string or object like the client's."""
    if _EMPTY_FORM in choice.wire_form:
        return restore_extras({}, choice, FAMILY)
    free_mode = _VALIDATED_MODE if choice.validated else "auto"
    if _MODE_NAME not in choice.wire_form and choice.mode in _WIRE_MODES:
        return free_mode if choice.mode == "auto" else _WIRE_MODES[choice.mode]
    allowed = AllowedShape(tools=[tool_ref.name for tool_ref in choice.names])
    if _NO_MODE not in choice.wire_form:
        allowed.mode = "any" if choice.mode == "named" or choice.required else free_mode
    if _NO_TOOLS in choice.wire_form and not choice.names:
        allowed.tools = UNSET
    return restore_extras({"allowed_tools": as_dict(allowed)}, choice, FAMILY)


def with_computer(request: Request) -> Request:
    """Attach the decoded screen settings to each `computer_use` tool of the request."""
    return with_computer_tools(request, FAMILY)


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    """Declare computer use for a model; return the `computer_use` tool and the computer that it provides.

    The canonical computer describes the environment and actions that the model will use, to translate its calls.
    """
    target_computer, environment, excluded = declare_computer(client_computer, model)
    body: dict[str, Any] = {"type": "computer_use", "environment": environment}
    if excluded:
        body["excluded_predefined_functions"] = excluded
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind="computer_use", body=raw, executor="client"), target_computer


COMPUTER_USE = ComputerUseAdapter(
    family=FAMILY,
    compatible_families=(GEMINI, INTERACTIONS),
    arguments_pointer="arguments",
    decode_call=partial(decode_computer_call, location="arguments"),
    encode_actions=encode_computer_actions,
    finish_call=encode_computer_call,
    finish_result=encode_computer_result,
    declare_tool=_declare_computer,
    decode_observation=decode_computer_result,
    has_safety_checks=True,
)
