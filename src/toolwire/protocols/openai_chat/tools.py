"""Decode and encode tool declarations, tool choice and web search.

Web search is Chat's only hosted tool. It is declared by `web_search_options` and available to some models only.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    Grammar,
    NativeTool,
    Tool,
    ToolChoice,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.encoding.hosted_tools import (
    choosable_tools,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    report_missing_native,
)
from toolwire.codec.encoding.hosts import choice_rule
from toolwire.codec.encoding.plan import EncodedToolsMemo, EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    freeform_description,
    freeform_schema,
    is_allowed,
    report_allowed_callers,
    report_group_descriptions,
    report_validated_choice,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.memo import DecodedToolsMemo
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.wire.extras import (
    as_dict,
    encode_with_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, decode_json, decode_members, describe_json, tag_of
from toolwire.protocols.openai_chat.hosts import fit_allowed_choice, fit_function, limit_tools
from toolwire.protocols.openai_chat.parts.cache_control import CACHE_FIELD, encode_mark, has_cache_control
from toolwire.protocols.openai_chat.parts.calls import LEGACY_FORM
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras, constant_extras, restore_constant
from toolwire.protocols.openai_chat.variant import CHAT, SEARCH_FIELD, ChatVariant
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    ChoiceShape,
    CustomShape,
    CustomToolShape,
    FormatShape,
    FunctionShape,
    FunctionToolShape,
    GrammarShape,
    ReferenceShape,
    RequestShape,
)
from toolwire.protocols.vendors.openai import STRICT_SCHEMA

SEARCH_FORM = "openai-chat:elsewhere"
"""Wire form of a tool declared outside `tools`, which the extras of the request restore."""
EMPTY_TOOLS = "openai-chat:tools:empty"
REPRESENTED_SEARCH = f"{FAMILY}:canonical:{SEARCH_FIELD}"

# All other models reject `web_search_options`.
_SEARCH_MODELS = re.compile(r"search")

# ---- web search


def decode_search(raw: Raw, tools: tuple[Tool, ...] | None) -> NativeTool | None:
    """Decode `web_search_options` as a hosted tool, None if it is not an object."""
    if (hosted := decode_hosted_tool(SEARCH_FIELD, raw, CHAT.hosted_tools)) is None:
        return None
    if hosted.location is not None:
        hosted = replace(hosted, location=_flatten_location(hosted.location))
    wire_form = (SEARCH_FORM, EMPTY_TOOLS) if tools == () else (SEARCH_FORM,)
    return NativeTool(
        protocol=FAMILY, kind="web_search", body=raw, hosted=hosted, at=f"/{SEARCH_FIELD}", wire_form=wire_form
    )


def _flatten_location(location: Raw) -> Raw:
    """Return `user_location` without the `approximate` object, which other protocols do not nest."""
    members: dict[str, Any] = dict(decode_members(location))
    inner = members.pop("approximate", None)
    if inner is None or bytes(inner)[:1] != b"{":
        return location
    return Raw(msgspec.json.encode({**members, **decode_members(inner)}))


def is_search(tool: NativeTool, plan: EncodingPlan) -> bool:
    """Tell whether the tool is a web search that can be sent as `web_search_options`."""
    return _model_has_search(plan) and has_native(tool, CHAT.hosted_tools)


def _model_has_search(plan: EncodingPlan) -> bool:
    """Tell whether host and model support `web_search_options`."""
    return plan.target.host.tools.web_search and _SEARCH_MODELS.search(plan.target.model or "") is not None


def encode_search(request: Request, plan: EncodingPlan) -> dict[str, Any]:
    """Return `web_search_options` for another protocol's web search; empty if the model has no search."""
    if plan.same_protocol or not _model_has_search(plan):
        return {}
    for located_tool in choosable_tools(request, plan):
        if isinstance(located_tool.tool, NativeTool) and is_search(located_tool.tool, plan):
            options = encode_hosted_options(located_tool.tool, located_tool.path, CHAT.hosted_tools, plan)
            if "user_location" in options:
                location = dict(decode_members(options["user_location"]))
                kind = location.pop("type", "approximate")
                options["user_location"] = {"type": kind, "approximate": location}
            return {SEARCH_FIELD: options}
    return {}


TEXT_FORMAT = "openai-chat:format:text"
ANY_CHOICE = "openai-chat:any"

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read
_read_function_tool = Reader[FunctionToolShape](FunctionToolShape, FAMILY).read_with_exactness
_read_custom_tool = Reader[CustomToolShape](CustomToolShape, FAMILY).read
_read_choice = Reader[ChoiceShape](ChoiceShape, FAMILY).read
_tools_memo = DecodedToolsMemo[Tool](FunctionTool, FreeformTool, NativeTool)
_encoded_tools_memo = EncodedToolsMemo()
_LEGACY_NAMES = tuple(f"{FAMILY}:name:{name}={name}" for name in ("name", "description", "parameters", "strict"))

# ---- decode


def decode_tools(shape: RequestShape) -> tuple[Tool, ...] | None:
    """Decode `tools`, then the deprecated `functions`."""
    if not isinstance(shape.tools, list) and not shape.functions:
        return None
    tools = _tools_memo.decode(shape.tools or [], "/tools", _decode_tool)
    for index, raw in enumerate(shape.functions or ()):
        function = _read_function(raw, f"/functions/{index}")
        extras = collect_chat_extras(function, LEGACY_FORM, *_LEGACY_NAMES)
        tools = (*tools, _decode_function(function, {**extras, "at": f"/functions/{index}"}))
    return tools


def _decode_tool(raw: Raw, path: str) -> Tool:
    """Decode one tool."""
    kind = tag_of(raw)
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, path, "an object", describe_json(raw))
    members = decode_members(raw) if kind is None else {}
    if kind == "function" or "function" in members:
        shape, is_exact = _read_function_tool(raw, path)
        if is_exact and shape.type == "function" and _has_no_nulls(shape.function):
            return _decode_function(shape.function, {})
        extras = merge_extras(
            collect_chat_extras(shape),
            constant_extras("type", shape.type, "function"),
            collect_chat_extras(shape.function, prefix="function/"),
        )
        return _decode_function(shape.function, extras)
    if kind == "custom":
        return _decode_custom(_read_custom_tool(raw, path))
    return NativeTool(protocol=FAMILY, kind=kind or "", body=raw)


def _has_no_nulls(shape: FunctionShape) -> bool:
    """Tell whether no field of the function is null."""
    return shape.description is not None and shape.strict is not None


def _decode_function(shape: FunctionShape, collected: dict[str, Any]) -> FunctionTool:
    """Decode a function; `collected` holds the `extras` and `wire_form` arguments of the tool around it."""
    parameters = unset_to_none(shape.parameters)
    if parameters is not None and bytes(parameters) == b"null":
        prefix = "" if LEGACY_FORM in collected.get("wire_form", ()) else "function/"
        collected = {
            **collected,
            "wire_form": (*collected.get("wire_form", ()), f"{FAMILY}:null:{prefix}parameters"),
        }
        parameters = None
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=parameters,
        strict=unset_to_none(shape.strict),
        **collected,
    )


def _decode_custom(shape: CustomToolShape) -> FreeformTool:
    """Decode a custom tool."""
    custom = shape.custom
    grammar = None
    format_extras: dict[str, Any] = {}
    wire_form: tuple[str, ...] = ()
    if custom.format is not UNSET:
        format_extras = collect_chat_extras(custom.format, prefix="custom/format/")
        if custom.format.grammar is UNSET:
            wire_form = (TEXT_FORMAT,)
            format_extras = merge_extras(
                format_extras, constant_extras("custom/format/type", custom.format.type, "text")
            )
        else:
            format_extras = merge_extras(
                format_extras, constant_extras("custom/format/type", custom.format.type, "grammar")
            )
            shape_grammar = custom.format.grammar
            grammar = Grammar(
                syntax=shape_grammar.syntax,
                definition=shape_grammar.definition,
                **collect_chat_extras(shape_grammar),
            )
    extras = merge_extras(
        collect_chat_extras(shape, *wire_form), collect_chat_extras(custom, prefix="custom/"), format_extras
    )
    return FreeformTool(name=custom.name, description=unset_to_none(custom.description), grammar=grammar, **extras)


def decode_choice(shape: RequestShape) -> tuple[ToolChoice | None, dict[str, Raw]]:
    """Decode `tool_choice` and `function_call`.

    Return the choice, and as extras by name the fields that could not be decoded.
    """
    parallel = unset_to_none(shape.parallel_tool_calls)
    choice: ToolChoice | None = None
    undecoded: dict[str, Raw] = {}
    for name, raw in (("tool_choice", shape.tool_choice), ("function_call", shape.function_call)):
        if raw is UNSET or bytes(raw) == b"null":
            continue
        decoded = None if choice is not None else _decode_choice_value(raw, name, parallel=parallel)
        if decoded is None:
            undecoded[name] = raw
        choice = choice or decoded
    if choice is None and parallel is not None:
        choice = ToolChoice(parallel=parallel, at="/parallel_tool_calls")
    return choice, undecoded


def _decode_choice_value(raw: Raw, name: str, *, parallel: bool | None) -> ToolChoice | None:
    """Decode the value of the field `name` as a choice; None if it is unknown."""
    at = f"/{name}"
    legacy = (LEGACY_FORM,) if name == "function_call" else ()
    match decode_json(raw):
        case "auto":
            return ToolChoice(mode="auto", parallel=parallel, wire_form=legacy, at=at)
        case "none":
            return ToolChoice(mode="none", parallel=parallel, wire_form=legacy, at=at)
        case "required":
            return ToolChoice(mode="required", parallel=parallel, at=at)
        case "any":
            return ToolChoice(mode="required", parallel=parallel, wire_form=(ANY_CHOICE,), at=at)
        case {"name": str(function), **others} if legacy and not others:
            named = ToolRef(name=function, at="/name")
            return ToolChoice(mode="named", names=(named,), parallel=parallel, wire_form=legacy, at=at)
        case dict():
            return _decode_object_choice(_read_choice(raw, at), at, parallel=parallel)
        case _:
            return None


def _decode_object_choice(shape: ChoiceShape, at: str, *, parallel: bool | None) -> ToolChoice | None:
    """Decode a choice that is an object; None if its type is unknown."""
    if shape.allowed_tools is not UNSET:
        allowed = shape.allowed_tools
        names = tuple(
            _decode_reference(reference, f"/allowed_tools/tools/{index}")
            for index, reference in enumerate(allowed.tools)
        )
        required = allowed.mode == "required"
        mode_extras = constant_extras("allowed_tools/mode", allowed.mode, "required" if required else "auto")
        type_extras = constant_extras("type", shape.type, "allowed_tools")
        extras = merge_extras(
            collect_chat_extras(shape), mode_extras, type_extras, collect_chat_extras(allowed, prefix="allowed_tools/")
        )
        return ToolChoice(mode="allowed", names=names, required=required, parallel=parallel, at=at, **extras)
    if shape.function is UNSET and shape.custom is UNSET:
        return None
    extras = merge_extras(collect_chat_extras(shape), constant_extras("type", shape.type, _reference_kind(shape)))
    return ToolChoice(mode="named", names=(_decode_reference(shape, ""),), parallel=parallel, at=at, **extras)


def _reference_kind(shape: ReferenceShape) -> str:
    """Return the type of tool that a reference names."""
    return "custom" if shape.custom is not UNSET else "function"


def _decode_reference(shape: ReferenceShape, at: str) -> ToolRef:
    """Decode a reference to a tool."""
    kind = _reference_kind(shape)
    tool = shape.custom if shape.custom is not UNSET else shape.function
    extras = merge_extras(collect_chat_extras(shape), constant_extras("type", shape.type, kind)) if at else {}
    if tool is UNSET:
        return ToolRef(name="", kind="native", at=at, **extras)
    extras = merge_extras(extras, collect_chat_extras(tool, f"{FAMILY}:name:name={kind}/name", prefix=f"{kind}/"))
    return ToolRef(name=tool.name, kind="freeform" if kind == "custom" else "function", at=at, **extras)


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan, variant: ChatVariant) -> tuple[Any, list[Any] | None]:
    """Encode the tools; return `tools`, and `functions` for a Chat client that used those."""
    if plan.same_protocol:
        if request.tools is None:
            return None, None
        fitted = _fit_tools(request.tools, plan) if plan.adapts else request.tools
        functions = [_encode_same_protocol_tool(tool) for tool in fitted if LEGACY_FORM in tool.wire_form]
        tools = [
            _encode_same_protocol_tool(tool)
            for tool in fitted
            if LEGACY_FORM not in tool.wire_form and SEARCH_FORM not in tool.wire_form
        ]
        sent_empty = not request.tools or any(EMPTY_TOOLS in tool.wire_form for tool in request.tools)
        if sent_empty and not tools and plan.adapts and not plan.target.host.tools.empty_list:
            plan.report.dropped((), "tools", plan.target.host.rejects("an empty list of tools"))
            sent_empty = False
        if plan.adapts:
            tools = limit_tools(tools, plan)
        return (tools if tools or sent_empty else None), (functions or None)
    plan.request = request
    return _encoded_tools_memo.encode(request, plan, lambda: _encode_available_tools(request, plan, variant)), None


def _fit_tools(tools: tuple[Tool, ...], plan: EncodingPlan) -> list[Tool]:
    """Return a Chat client's tools with the functions as the host accepts them."""
    return [
        fit_function(tool, ("tools", index), plan) if isinstance(tool, FunctionTool) else tool
        for index, tool in enumerate(tools)
    ]


def _encode_available_tools(request: Request, plan: EncodingPlan, variant: ChatVariant) -> list[Any] | None:
    """Encode another protocol's tools, None if there are none."""
    report_group_descriptions(request, plan.report)
    available = choosable_tools(request, plan)
    if "allowed" not in choice_rule(plan).modes:
        available = [located_tool for located_tool in available if is_allowed(located_tool, request, plan.report)]
    encoded = [_encode_tool(located_tool, plan, variant) for located_tool in available]
    return limit_tools([tool for tool in encoded if tool is not None], plan) or None


def _encode_same_protocol_tool(tool: Tool) -> Any:
    """Encode a tool that came from a Chat client."""
    if type(tool) is NativeTool:
        return tool.body
    if type(tool) is ToolGroup:
        raise TypeError("Chat requests have no tool groups")
    if type(tool) is FreeformTool:
        return restore_extras(
            {"type": "custom", "custom": _custom_members(_custom_shape(tool, tool.name))}, tool, FAMILY
        )
    function = FunctionShape(
        name=tool.name,
        description=none_to_unset(tool.description),
        parameters=none_to_unset(tool.parameters),
        strict=none_to_unset(tool.strict),
    )
    if LEGACY_FORM in tool.wire_form:
        return encode_with_extras(function, tool, FAMILY)
    shape = FunctionToolShape(function=function, type=restore_constant(tool, "type", "function"))
    return encode_with_extras(shape, tool, FAMILY)


def _custom_members(shape: CustomShape) -> dict[str, Any]:
    """Return the members of a custom tool as a dict."""
    body = as_dict(shape)
    if isinstance(shape.format, FormatShape):
        body["format"] = as_dict(shape.format)
    return body


def _encode_tool(located_tool: LocatedTool, plan: EncodingPlan, variant: ChatVariant) -> Any:
    """Encode another protocol's tool; report it and return None if it has no equivalent."""
    tool = located_tool.tool
    if type(tool) is NativeTool:
        return _encode_native(tool, located_tool, plan, variant)
    if tool.allowed_callers is not None:
        report_allowed_callers(tool, located_tool.path, plan.report)
    if tool.defer:
        plan.report.approximated(located_tool.path, "defer", "without tool search, the tool is declared from the start")
    if tool.asynchronous:
        plan.report.dropped(located_tool.path, "asynchronous")
    body: dict[str, Any]
    if type(tool) is FreeformTool:
        name = plan.tools.declare(tool, located_tool.path, plan.report)
        function = {"name": name, "description": freeform_description(tool), "parameters": freeform_schema()}
        body = {"type": "function", "function": function}
        if plan.tools.freeform:
            body = {"type": "custom", "custom": _custom_shape(tool, name)}
    else:
        if tool.output_schema is not None:
            plan.report.dropped(located_tool.path, "output_schema")
        body = _encode_function(tool, located_tool.path, plan)
    if tool.cache is not None and has_cache_control(plan):
        body[CACHE_FIELD] = encode_mark(tool.cache, located_tool.path, plan)
    elif tool.cache is not None:
        plan.report.dropped((*located_tool.path, "cache"), "", "the target has no cache marks on tools")
    return restore_extras(body, tool, FAMILY) if tool.extras else body


def _encode_native(tool: NativeTool, located_tool: LocatedTool, plan: EncodingPlan, variant: ChatVariant) -> Any:
    """Encode a native tool as the server tool that does the same; report it and return None without one."""
    if variant.server_tools is not None:
        if tool.kind.startswith(variant.server_tools):
            return tool.body  # clients of Chat may send them, too
        if (kind := _server_tool(tool, variant)) is not None:
            return {"type": kind, **encode_hosted_options(tool, located_tool.path, variant.hosted_tools, plan)}
    if not is_search(tool, plan):  # a search is encoded by `encode_search`
        report_missing_native(located_tool, plan)
    return None


def _server_tool(tool: NativeTool | None, variant: ChatVariant) -> str | None:
    """Return the type of the server tool that does the same as a native tool; None if there is none."""
    names = variant.hosted_tools
    if variant.server_tools is None or tool is None or tool.hosted is None or not has_native(tool, names):
        return None
    return names.names[tool.hosted.kind][0]


def _custom_shape(tool: FreeformTool, name: str) -> CustomShape:
    """Return the wire object of a free-form tool."""
    shape = CustomShape(name=name, description=none_to_unset(tool.description))
    if tool.grammar is not None:
        grammar = GrammarShape(syntax=tool.grammar.syntax, definition=tool.grammar.definition)
        format_type = restore_constant(tool, "custom/format/type", "grammar")
        shape.format = FormatShape(type=format_type, grammar=encode_with_extras(grammar, tool.grammar, FAMILY))
    elif TEXT_FORMAT in tool.wire_form:
        shape.format = FormatShape(type=restore_constant(tool, "custom/format/type", "text"))
    return shape


def _encode_function(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode a function tool, adapted to what the host accepts."""
    function: dict[str, Any] = {"name": plan.tools.declare(tool, path, plan.report)}
    if tool.description is not None:
        function["description"] = tool.description
    fitted = fit_function(tool, path, plan)
    schema, strict = fitted.parameters, fitted.strict
    if strict and schema is not None:
        schema, strict = fit_strictly_and_report(schema, STRICT_SCHEMA, plan.report, path, "parameters")
        if schema is not fitted.parameters:
            plan.tools.expect_nulls(tool)
    if schema is not None:
        function["parameters"] = schema
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def encode_choice(request: Request, plan: EncodingPlan, variant: ChatVariant, *, has_tools: bool) -> dict[str, Any]:
    """Return the fields `tool_choice` and `parallel_tool_calls`; empty without tools, when they are rejected."""
    choice = request.tool_choice
    if choice is None:
        return {}
    report_validated_choice(choice, plan.report)
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "", "no tools are declared", severity="info")
        if choice.parallel is not None:
            plan.report.dropped(("tool_choice",), "parallel", "no tools are declared", severity="info")
        return {}
    body: dict[str, Any] = {}
    if choice.parallel is not None:
        body["parallel_tool_calls"] = choice.parallel
    if not plan.same_protocol and (kind := _server_tool(chosen_native_tool(request), variant)) is not None:
        return {**body, "tool_choice": {"type": kind}}
    if plan.adapts and "allowed" not in choice_rule(plan).modes:
        choice = fit_allowed_choice(choice, plan)
    if choice.mode is not None:
        name = "function_call" if LEGACY_FORM in choice.wire_form else "tool_choice"
        body[name] = _encode_mode(choice, plan, _chosen_tools(choice, request, plan))
    return body


def _chosen_tools(choice: ToolChoice, request: Request, plan: EncodingPlan) -> list[ToolRef]:
    """Return the tools that the choice names and the request declares; report the others."""
    if not choice.names or plan.same_protocol:
        return list(choice.names)
    available = {
        located_tool.tool.name
        for located_tool in plan.offered_tools(request)
        if not isinstance(located_tool.tool, NativeTool)
    }
    chosen = []
    for index, reference in enumerate(choice.names):
        if reference.kind in ("function", "freeform") and reference.name in available:
            chosen.append(reference)
        elif choice.mode == "named":
            plan.report.approximated(
                ("tool_choice",), "names", "the target does not have this tool; sent as auto", severity="error"
            )
        else:
            plan.report.dropped(("tool_choice", "names", index), "", "the target does not have this tool")
    return chosen


def _encode_mode(choice: ToolChoice, plan: EncodingPlan, references: list[ToolRef]) -> Any:
    """Encode the value of `tool_choice`; `references` are the chosen tools."""
    match choice.mode:
        case "required":
            return "any" if ANY_CHOICE in choice.wire_form else "required"
        case "named" if LEGACY_FORM in choice.wire_form:
            return restore_extras({"name": choice.names[0].name}, choice, FAMILY)
        case "named":
            return _encode_named_choice(choice, references[0], plan) if references else "auto"
        case "allowed":
            tools = [_encode_reference(reference, plan) for reference in references]
            allowed: dict[str, Any] = {"tools": tools}
            if (
                mode := restore_constant(choice, "allowed_tools/mode", "required" if choice.required else "auto")
            ) is not UNSET:
                allowed["mode"] = mode
            members = {"type": restore_constant(choice, "type", "allowed_tools"), "allowed_tools": allowed}
            return restore_extras(
                {name: value for name, value in members.items() if value is not UNSET}, choice, FAMILY
            )
        case mode:
            return mode


def _encode_named_choice(choice: ToolChoice, reference: ToolRef, plan: EncodingPlan) -> Any:
    """Encode a choice of one tool."""
    body = _encode_reference(reference, plan)
    if (wire_type := restore_constant(choice, "type", body["type"])) is UNSET:
        del body["type"]
    else:
        body["type"] = wire_type
    return restore_extras(body, choice, FAMILY)


def _encode_reference(reference: ToolRef, plan: EncodingPlan) -> dict[str, Any]:
    """Encode a reference to a tool."""
    is_freeform = reference.kind == "freeform" and (plan.same_protocol or plan.tools.freeform)
    kind = "custom" if is_freeform else "function"
    body: dict[str, Any] = {
        "type": restore_constant(reference, "type", kind),
        kind: {"name": plan.tool_name(reference.name, reference.namespace)},
    }
    if body["type"] is UNSET:
        del body["type"]
    if reference.kind == "native":
        del body[kind]
    return restore_extras(body, reference, FAMILY)
