"""Gemini's tool declarations, to canonical and back.

A tool on the wire is a bag: functions in a list, and each of Google's own tools under its name. Canonically each is a
tool of its own, and its form says which bag it was in.

Gemini's tool choice, to canonical and back.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.encoding.hosted_tools import (
    HostedToolNames as HostedSpelling,
)
from toolwire.codec.encoding.hosted_tools import (
    choosable_tools,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    portable_server,
    report_missing_native,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    ToolNamePlan,
    flatten_tool,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, describe_json, escape_pointer
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra
from toolwire.protocols.gemini.parts.calls import is_before_gemini_3
from toolwire.protocols.gemini.settings import decode_schema, schema_dialect
from toolwire.protocols.gemini.wire import FAMILY, CallingShape, DeclarationShape
from toolwire.protocols.vendors.google.request import OPENAPI, has_only_strict_tools
from toolwire.protocols.vendors.google.tools import (
    INTERACTIONS,
    LIST_MEMBERS,
    decode_gemini_server,
    encode_gemini_server,
    to_camel_case,
    to_gemini_tool,
    to_snake_case,
)

_BAG_FORM = "gemini:bag:"
_SINGLE_BAG = "gemini:tools:object"
_LIST_FORM = "gemini:tool:listed"
_OPENAPI = "gemini:schema:openapi"
_OPENAPI_RESPONSE = "gemini:schema:openapi-response"
_FUNCTIONS_FIELDS = ("functionDeclarations", "function_declarations")

HOSTED_TOOLS = HostedSpelling(
    family=FAMILY,
    names={
        "web_search": ("googleSearch", "googleSearchRetrieval"),
        "web_fetch": ("urlContext",),
        "code_execution": ("codeExecution",),
    },
    option_pointers={},
)
# Only Vertex knows them, so that they are read but not written.
_EXCLUSION_NAMES = {
    name: msgspec.structs.replace(HOSTED_TOOLS, option_pointers={"web_search": {"blocked_domains": name}})
    for name in ("excludeDomains", "exclude_domains")
}

_read_declaration = Reader[DeclarationShape](DeclarationShape, FAMILY).read
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class NamePlan(ToolNamePlan):
    """Names here start with a letter or an underscore."""

    def _with_digest(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        made = super()._with_digest(readable, key, tries)
        if made[0].isalpha() or made[0] == "_":
            return made
        return super()._with_digest("_" + readable, key, tries)


# ---- decode


def decode_tools(tools: Any, location: str) -> tuple[tuple[Tool, ...] | None, tuple[str, ...]]:
    """The tools, and the form of the list of bags."""
    if tools is UNSET:
        return None, ()
    found: list[Tool] = []
    form: list[str] = []
    bags = [tools] if isinstance(tools, dict) else tools
    if isinstance(tools, dict):
        form.append(_SINGLE_BAG)
    for index, bag in enumerate(bags):
        path = f"/{location}" if isinstance(tools, dict) else f"/{location}/{index}"
        for name, value in bag.items():
            if name in _FUNCTIONS_FIELDS:
                _decode_functions(value, f"{path}/{name}", index, name, found, form)
            elif bytes(value) == b"null":
                form.append(f"{_BAG_FORM}{index}:null:{name}")
            elif bytes(value) == b"[]":
                form.append(f"{_BAG_FORM}{index}:empty:{name}")
            elif bytes(value)[:1] == b"[":
                places = [
                    (one, f"{path}/{escape_pointer(name)}/{number}")
                    for number, one in enumerate(_decode_elements(value))
                ]
                found += [_decode_native(name, one, at, index, _LIST_FORM) for one, at in places]
            else:
                found.append(_decode_native(name, value, f"{path}/{escape_pointer(name)}", index))
        if not bag:
            form.append(f"{_BAG_FORM}{index}")
    return tuple(found), tuple(form)


def _decode_functions(  # noqa: PLR0917
    value: Raw, path: str, bag: int, name: str, tools: list[Tool], wire_form: list[str]
) -> None:
    try:
        declarations = _decode_elements(value)
    except msgspec.DecodeError:
        if bytes(value) != b"null":
            raise DecodeError(FAMILY, path, "an array", describe_json(value)) from None
        wire_form.append(f"{_BAG_FORM}{bag}:null:{name}")
        return
    if not declarations:
        wire_form.append(f"{_BAG_FORM}{bag}:empty:{name}")
    for index, raw in enumerate(declarations):
        tools.append(_decode_function(raw, f"{path}/{index}", f"{_BAG_FORM}{bag}:{name}"))


def _decode_function(raw: Raw, path: str, bag: str) -> FunctionTool:
    shape = _read_declaration(raw, path)
    name, about, schema = shape.name, shape.description, shape.parameters_json_schema
    if schema is not UNSET and shape == DeclarationShape(name=name, description=about, parameters_json_schema=schema):
        return FunctionTool(name=name, description=unset_to_none(about), parameters=schema, at=path, wire_form=(bag,))
    spelling = FieldCase(path)
    spelling.normalize(shape)
    form: list[str] = [bag]
    more: list[dict[str, Any]] = []
    parameters, output = unset_to_none(shape.parameters_json_schema), unset_to_none(shape.response_json_schema)
    names: dict[str, str] = {}
    if shape.parameters is not UNSET:
        if parameters is None:
            parameters, kept = decode_schema(shape.parameters, "parameters")
            form.append(_OPENAPI)
            more.append(kept)
            names["parameters"] = "parameters"
        else:
            more.append(make_extra("parameters", shape.parameters))
    if shape.response is not UNSET:
        if output is None:
            output, kept = decode_schema(shape.response, "response")
            more.append(kept)
            form.append(_OPENAPI_RESPONSE)
            names["output_schema"] = "response"
        else:
            more.append(make_extra("response", shape.response))
    waits = None
    if shape.behavior in ("BLOCKING", "NON_BLOCKING"):
        waits = shape.behavior == "NON_BLOCKING"
    elif shape.behavior is not UNSET:
        more.append(make_extra("behavior", shape.behavior))
    form += [f"gemini:name:{field}={wire}" for field, wire in names.items()]
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=parameters,
        output_schema=output,
        asynchronous=waits,
        at=path,
        **merge_extras(spelling.extras_and_form("FunctionTool", (shape, ""), wire_form=tuple(form)), *more),
    )


def _decode_native(name: str, value: Raw, path: str, bag: int, *wire_form: str) -> NativeTool:
    usual = to_camel_case(name)
    kind = HOSTED_TOOLS.kind(usual) or to_snake_case(usual)
    snaked = b'"exclude_domains"' in bytes(value)
    form = (f"{_BAG_FORM}{bag}:{name}", *wire_form)
    executor: Any = "client" if usual == "computerUse" else "server"
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=name,
        body=value,
        executor=executor,
        at=path,
        wire_form=form,
        hosted=decode_hosted_tool(usual, value, _EXCLUSION_NAMES["exclude_domains" if snaked else "excludeDomains"]),
        server=decode_gemini_server(value, path) if usual == "mcpServers" else None,
    )


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> tuple[Any, dict[str, Any]]:
    """The tools, and what of `toolConfig` they need."""
    if plan.same_protocol:
        return (None if request.tools is None else _encode_same_protocol_tools(request, plan)), {}
    plan.request = request
    functions: list[Any] = []
    hosted: list[Any] = []
    computers: list[Any] = []
    config: dict[str, Any] = {}
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no tool groups")
    placed_tools = list(choosable_tools(request, plan))
    any_functions = any(not isinstance(placed.tool, NativeTool) for placed in placed_tools)
    validated = has_only_strict_tools(request)
    for placed in placed_tools:
        tool = placed.tool
        if not isinstance(tool, NativeTool):
            functions.append(_encode_function(tool, placed.path, plan, validated=validated))
        elif tool.protocol == FAMILY:
            computers.append({tool.name: tool.body})
        elif (
            tool.protocol == INTERACTIONS
            and (own := to_gemini_tool(tool, placed.path, plan.report, config)) is not None
        ):
            if not _conflicts_with_functions(placed, plan, with_functions=any_functions):
                _add_google_tool(*own, hosted)
        elif has_native(tool, HOSTED_TOOLS):
            hosted += [
                one for one in _encode_hosted(tool, placed, plan, with_functions=any_functions) if one not in hosted
            ]
        elif (server := portable_server(tool)) is not None and server.allowed is None:
            if not _conflicts_with_functions(placed, plan, with_functions=any_functions):
                _add_google_tool("mcpServers", encode_gemini_server(server, placed.path, plan), hosted)
        else:
            report_missing_native(placed, plan, has_connectors=True)
    if functions and hosted:
        config["includeServerSideToolInvocations"] = True
    tools = [{"functionDeclarations": functions}] if functions else []
    return [*tools, *hosted, *computers] or None, config


def _conflicts_with_functions(located_tool: LocatedTool, plan: EncodingPlan, *, with_functions: bool) -> bool:
    """Whether the model takes none of its own tools since there are functions."""
    if with_functions and is_before_gemini_3(plan):
        plan.report.dropped(located_tool.path, "", "the model does not support hosted tools together with functions")
        return True
    return False


def _add_google_tool(member: str, body: dict[str, Any], hosted_tools: list[Any]) -> None:
    """A tool of Google's own in the bag for it."""
    bag = next((one for one in hosted_tools if member in one), None)
    if member not in LIST_MEMBERS:
        hosted_tools += [{member: body}] if bag is None else []
    elif bag is None:
        hosted_tools.append({member: [body]})
    else:
        bag[member].append(body)


def _encode_hosted(
    tool: NativeTool, located_tool: LocatedTool, plan: EncodingPlan, *, with_functions: bool
) -> list[Any]:
    if _conflicts_with_functions(located_tool, plan, with_functions=with_functions):
        return []
    if with_functions:
        plan.report.approximated(located_tool.path, "", "with functions present, calls of hosted tools are also shown")
    bounds = encode_hosted_options(tool, located_tool.path, HOSTED_TOOLS, plan)
    return [{HOSTED_TOOLS.names[tool.hosted.kind][0]: bounds}] if tool.hosted is not None else []


def _encode_same_protocol_tools(request: Request, plan: EncodingPlan) -> Any:
    """Each tool in the bag that it came in; the ones that came from nowhere in bags of their own."""
    bags: dict[int, dict[str, Any]] = {}
    for token in request.wire_form:
        if token.startswith(_BAG_FORM):
            number, _, said = token.removeprefix(_BAG_FORM).partition(":")
            bag = bags.setdefault(int(number), {})
            kind, _, name = said.partition(":")
            if name:
                bag[name] = None if kind == "null" else []
    for index, tool in enumerate(request.tools or ()):
        (placed,) = flatten_tool(tool, ("tools", index))
        place = next((one for one in tool.wire_form if one.startswith(_BAG_FORM)), f"{_BAG_FORM}0:functionDeclarations")
        number, _, name = place.removeprefix(_BAG_FORM).partition(":")
        bag = bags.setdefault(int(number), {})
        if _LIST_FORM in tool.wire_form and isinstance(placed.tool, NativeTool):
            bag.setdefault(name, []).append(placed.tool.body)
        elif isinstance(placed.tool, NativeTool):
            bag[name] = placed.tool.body
        else:
            bag.setdefault(name, []).append(_encode_function(placed.tool, placed.path, plan))
    if _SINGLE_BAG in request.wire_form and len(bags) == 1:
        return bags[min(bags)]
    return [bags[number] for number in sorted(bags)]


def _encode_function(
    tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan, *, validated: bool = False
) -> Any:
    name = tool.name
    if not plan.same_protocol:
        name = plan.tools.declare(tool, path, plan.report)
        report_allowed_callers(tool, path, plan.report)
        _report_function(tool, path, plan)
        if isinstance(tool, FunctionTool) and tool.strict and not validated:
            plan.report.dropped(path, "strict", "the target validates arguments for all functions or none")
    shape = DeclarationShape(name=name, description=none_to_unset(tool.description))
    if isinstance(tool, FreeformTool):
        shape.description = freeform_description(tool)
        shape.parameters_json_schema = freeform_schema()
        return shape
    if plan.same_protocol:
        _encode_same_protocol_schemas(tool, shape)
    else:
        _encode_schemas(tool, path, shape, plan)
    if tool.asynchronous is not None and plan.same_protocol:
        shape.behavior = "NON_BLOCKING" if tool.asynchronous else "BLOCKING"
    return encode_shape(shape, tool)


def _encode_schemas(tool: FunctionTool, path: SourcePath, shape: DeclarationShape, plan: EncodingPlan) -> None:
    dialect = schema_dialect(plan)
    for field, json_schema, openapi in (
        ("parameters", "parameters_json_schema", "parameters"),
        ("output_schema", "response_json_schema", "response"),
    ):
        if (schema := getattr(tool, field)) is not None:
            name = openapi if dialect is OPENAPI else json_schema
            setattr(shape, name, fit_and_report(schema, dialect, plan.report, path, field))


def _encode_same_protocol_schemas(tool: FunctionTool, shape: DeclarationShape) -> None:
    if tool.parameters is not None:
        if _OPENAPI not in tool.wire_form:
            shape.parameters_json_schema = tool.parameters
        elif "parameters" not in (tool.extras or {}).get(FAMILY, {}):
            shape.parameters = tool.parameters
    if tool.output_schema is not None:
        if _OPENAPI_RESPONSE not in tool.wire_form:
            shape.response_json_schema = tool.output_schema
        elif "response" not in (tool.extras or {}).get(FAMILY, {}):
            shape.response = tool.output_schema


def _report_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> None:
    if tool.asynchronous:
        plan.report.dropped(path, "asynchronous", "the target has no asynchronous tools")
    if tool.defer:
        plan.report.approximated(path, "defer", "without tool search, the tool is declared from the start")
    if tool.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")


# ---- decode


def decode_choice(config: Any, field_case: FieldCase, location: str) -> ToolChoice | None:
    """The choice of functions; what else `toolConfig` holds is the request's."""
    if config is UNSET or config.function_calling_config is UNSET:
        return None
    calling = config.function_calling_config
    inner = f"{location}/functionCallingConfig"
    field_case.normalize(calling, inner)
    source = field_case.source_pointer(inner)
    own = FieldCase(f"/{source}")
    own.adopt(field_case, inner)
    listed = calling.allowed_function_names
    names_place = "/" + own.source_pointer("allowedFunctionNames")
    told_names = () if listed is UNSET else listed
    names = tuple([ToolRef(name=name, at=f"{names_place}/{index}") for index, name in enumerate(told_names)])
    mode, required, form, more = _decode_mode(calling.mode, len(names))
    validated = calling.mode == "VALIDATED"
    if listed == []:
        form = (*form, "gemini:names:empty")
    kept = merge_extras(own.extras_and_form("ToolChoice", (calling, ""), wire_form=form), more)
    return ToolChoice(mode=mode, names=names, required=required, validated=validated, at=f"/{source}", **kept)


def _decode_mode(mode: Any, name_count: int) -> tuple[Any, bool, tuple[str, ...], dict[str, Any]]:
    match mode:
        case "ANY" if name_count == 1:
            return "named", False, (), {}
        case "ANY":
            return ("allowed", True, (), {}) if name_count else ("required", False, (), {})
        case "NONE":
            return "none", False, (), {}
        case "AUTO" | "VALIDATED":
            return ("allowed" if name_count else "auto"), False, (), {}
        case _ if mode is UNSET:
            return ("allowed" if name_count else None), False, ("gemini:absent:mode",), {}
        case _:
            return ("allowed" if name_count else None), False, ("gemini:absent:mode",), make_extra("mode", mode)


# ---- encode


def encode_choice(request: Request, plan: EncodingPlan, *, has_functions: bool) -> Any:
    """The choice, or UNSET. Without functions there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    if plan.same_protocol:
        return UNSET if choice is None else _encode_same_protocol_choice(choice)
    validated = has_functions and (has_only_strict_tools(request) or (choice is not None and choice.validated))
    if choice is None:
        return CallingShape(mode="VALIDATED") if validated else UNSET
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target cannot disable parallel tool calls")
    if not has_functions:
        if choice.mode is not None:
            plan.report.dropped(("tool_choice",), "mode", "no functions are declared")
        return UNSET
    if chosen_native_tool(request) is not None:
        plan.report.approximated(("tool_choice",), "names", "the target cannot force a hosted tool; sent as auto")
        return CallingShape(mode="AUTO")
    return _encode_mode(choice, plan, validated=validated)


_CHOICE_MODES: dict[Any, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _encode_mode(choice: ToolChoice, plan: EncodingPlan, *, validated: bool) -> Any:
    if validated and not choice.names:
        return CallingShape(mode="VALIDATED")
    if choice.mode is None:
        return UNSET
    if choice.mode in _CHOICE_MODES:
        return CallingShape(mode=_CHOICE_MODES[choice.mode])
    names = [plan.tool_name(one.name, one.namespace) for one in choice.names if one.kind in ("function", "freeform")]
    if not names:
        why = "the target cannot force a hosted tool; sent as auto"
        plan.report.approximated(("tool_choice",), "names", why)
        return CallingShape(mode="AUTO")
    for index, one in enumerate(choice.names):
        if one.kind not in ("function", "freeform"):
            plan.report.dropped(("tool_choice", "names", index), "", "the target does not have this tool")
    # To choose freely among some is only possible where calls are also held to their schemas.
    forced = choice.mode == "named" or choice.required
    return CallingShape(mode="ANY" if forced else "VALIDATED", allowed_function_names=names)


def _encode_same_protocol_choice(choice: ToolChoice) -> Any:
    words = {**_CHOICE_MODES, "named": "ANY"}
    shape = CallingShape()
    if "gemini:absent:mode" not in choice.wire_form and "mode" not in (choice.extras or {}).get(FAMILY, {}):
        free = "VALIDATED" if choice.validated else "AUTO"
        shape.mode = free if choice.mode == "auto" else words.get(choice.mode, "ANY" if choice.required else free)
    if choice.names or "gemini:names:empty" in choice.wire_form:
        shape.allowed_function_names = [one.name for one in choice.names]
    return encode_shape(shape, choice)


def encode_tool_config(calling_config: Any, fields: dict[str, Any]) -> Any:
    """`toolConfig`, or None if there is nothing to say in it."""
    if calling_config is UNSET and not fields:
        return None
    shape: dict[str, Any] = {} if calling_config is UNSET else {"functionCallingConfig": calling_config}
    return {**shape, **fields}
