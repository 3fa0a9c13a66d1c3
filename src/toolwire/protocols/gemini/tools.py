"""Decode and encode tool declarations and the tool choice.

A wire tool is a bag: a list of functions, and each hosted tool under its own name. Canonically each is a separate
tool, and its `wire_form` names the bag it came from.

Adapter for Google's computer use in `generateContent` requests.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
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
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    LocatedTool,
    ToolNamePlan,
    flatten_tool,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
    report_group_descriptions,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_elements, describe_json, escape_pointer
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra
from toolwire.protocols.gemini.parts.calls import is_before_gemini_3
from toolwire.protocols.gemini.settings import decode_schema, schema_dialect
from toolwire.protocols.gemini.wire import FAMILY, CallingShape, DeclarationShape
from toolwire.protocols.vendors.google.computer import (
    declare_computer,
    decode_computer_call,
    decode_computer_result,
    encode_computer_call,
    encode_computer_result,
    with_computer_tools,
)
from toolwire.protocols.vendors.google.computer_actions import encode_computer_actions
from toolwire.protocols.vendors.google.request import OPENAPI, has_only_strict_tools
from toolwire.protocols.vendors.google.tools import (
    GEMINI,
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
_SHOW_HOSTED_CALLS = "toolConfig/includeServerSideToolInvocations"
_FUNCTIONS_FIELDS = ("functionDeclarations", "function_declarations")

HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={
        "web_search": ("googleSearch", "googleSearchRetrieval"),
        "web_fetch": ("urlContext",),
        "code_execution": ("codeExecution",),
    },
    option_pointers={},
)
# Only Vertex AI has excluded domains, so they are decoded but never encoded.
_EXCLUSION_NAMES = {
    name: msgspec.structs.replace(HOSTED_TOOLS, option_pointers={"web_search": {"blocked_domains": name}})
    for name in ("excludeDomains", "exclude_domains")
}

_read_declaration = Reader[DeclarationShape](DeclarationShape, FAMILY).read


class NamePlan(ToolNamePlan):
    """Tool names for Gemini, which must start with a letter or an underscore."""

    def _with_digest(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        """Derive a legal tool name from `readable`, prefixed with an underscore if its start is illegal."""
        name = super()._with_digest(readable, key, tries)
        if name[0].isalpha() or name[0] == "_":
            return name
        return super()._with_digest("_" + readable, key, tries)


# ---- decode


def decode_tools(tools: Any, location: str) -> tuple[tuple[Tool, ...] | None, tuple[str, ...]]:
    """Decode the tools; return them with wire-form tokens that record how they were grouped.

    Gemini groups tools in objects ("bags"), each with a list of functions or hosted tools.
    """
    if tools is UNSET:
        return None, ()
    decoded: list[Tool] = []
    form: list[str] = []
    bags = [tools] if isinstance(tools, dict) else tools
    if isinstance(tools, dict):
        form.append(_SINGLE_BAG)
    for index, bag in enumerate(bags):
        path = f"/{location}" if isinstance(tools, dict) else f"/{location}/{index}"
        for name, value in bag.items():
            if name in _FUNCTIONS_FIELDS:
                _decode_functions(value, f"{path}/{name}", index, name, decoded, form)
            elif bytes(value) == b"null":
                form.append(f"{_BAG_FORM}{index}:null:{name}")
            elif bytes(value) == b"[]":
                form.append(f"{_BAG_FORM}{index}:empty:{name}")
            elif bytes(value)[:1] == b"[":
                decoded += [
                    _decode_native(name, element, f"{path}/{escape_pointer(name)}/{number}", index, _LIST_FORM)
                    for number, element in enumerate(decode_elements(value))
                ]
            else:
                decoded.append(_decode_native(name, value, f"{path}/{escape_pointer(name)}", index))
        if not bag:
            form.append(f"{_BAG_FORM}{index}")
    return tuple(decoded), tuple(form)


def _decode_functions(  # noqa: PLR0917
    value: Raw, path: str, bag: int, name: str, tools: list[Tool], wire_form: list[str]
) -> None:
    """Append the function declarations of one bag to `tools`.

    If the list is empty or null, append a token for it to `wire_form` instead.
    """
    try:
        declarations = decode_elements(value)
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
    """Decode one function declaration, whose schemas may be JSON Schema or OpenAPI.

    `bag` is stored in `wire_form`: it names the `tools` entry that groups the function with others.
    """
    shape = _read_declaration(raw, path)
    name, description, schema = shape.name, shape.description, shape.parameters_json_schema
    if schema is not UNSET and shape == DeclarationShape(
        name=name, description=description, parameters_json_schema=schema
    ):
        return FunctionTool(
            name=name, description=unset_to_none(description), parameters=schema, at=path, wire_form=(bag,)
        )
    field_case = FieldCase(path)
    field_case.normalize(shape)
    form: list[str] = [bag]
    extras: list[dict[str, Any]] = []
    parameters, output_schema = unset_to_none(shape.parameters_json_schema), unset_to_none(shape.response_json_schema)
    names: dict[str, str] = {}
    if shape.parameters is not UNSET:
        if parameters is None:
            parameters, schema_extras = decode_schema(shape.parameters, "parameters")
            form.append(_OPENAPI)
            extras.append(schema_extras)
            names["parameters"] = "parameters"
        else:
            extras.append(make_extra("parameters", shape.parameters))
    if shape.response is not UNSET:
        if output_schema is None:
            output_schema, schema_extras = decode_schema(shape.response, "response")
            extras.append(schema_extras)
            form.append(_OPENAPI_RESPONSE)
            names["output_schema"] = "response"
        else:
            extras.append(make_extra("response", shape.response))
    asynchronous = None
    if shape.behavior in ("BLOCKING", "NON_BLOCKING"):
        asynchronous = shape.behavior == "NON_BLOCKING"
    elif shape.behavior is not UNSET:
        extras.append(make_extra("behavior", shape.behavior))
    form += [f"gemini:name:{field}={wire}" for field, wire in names.items()]
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=parameters,
        output_schema=output_schema,
        asynchronous=asynchronous,
        at=path,
        **merge_extras(field_case.extras_and_form("FunctionTool", (shape, ""), wire_form=tuple(form)), *extras),
    )


def _decode_native(name: str, value: Raw, path: str, bag: int, *wire_form: str) -> NativeTool:
    """Decode one hosted tool; `bag` is the index of its `tools` entry, `wire_form` describes its spelling."""
    member = to_camel_case(name)
    kind = HOSTED_TOOLS.kind(member) or to_snake_case(member)
    has_snake_case = b'"exclude_domains"' in bytes(value)
    form = (f"{_BAG_FORM}{bag}:{name}", *wire_form)
    executor: Any = "client" if member == "computerUse" else "server"
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=name,
        body=value,
        executor=executor,
        at=path,
        wire_form=form,
        hosted=decode_hosted_tool(
            member, value, _EXCLUSION_NAMES["exclude_domains" if has_snake_case else "excludeDomains"]
        ),
        server=decode_gemini_server(value, path) if member == "mcpServers" else None,
    )


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> tuple[Any, dict[str, Any]]:
    """Encode the tools; return them with the `toolConfig` fields that they require."""
    if plan.same_protocol:
        return (None if request.tools is None else _encode_same_protocol_tools(request, plan)), {}
    plan.request = request
    report_group_descriptions(request, plan.report)
    located_tools = list(choosable_tools(request, plan))
    with_functions = any(type(located_tool.tool) is not NativeTool for located_tool in located_tools)
    validated = has_only_strict_tools(request, plan)
    functions: list[Any] = []
    hosted: list[Any] = []
    computers: list[Any] = []
    config: dict[str, Any] = {}
    for located_tool in located_tools:
        offered = located_tool.tool
        if type(offered) is not NativeTool:
            functions.append(_encode_function(offered, located_tool.path, plan, validated=validated))
        elif offered.protocol == FAMILY:
            computers.append({offered.name or to_camel_case(offered.kind): offered.body})
        else:
            _encode_foreign_native(offered, located_tool, plan, hosted, config, with_functions=with_functions)
    if functions and hosted and _SHOW_HOSTED_CALLS not in plan.target.host.fields.refused:
        config["includeServerSideToolInvocations"] = True
    tools = [{"functionDeclarations": functions}] if functions else []
    return [*tools, *hosted, *computers] or None, config


def _encode_foreign_native(
    tool: NativeTool,
    located_tool: LocatedTool,
    plan: EncodingPlan,
    hosted_tools: list[Any],
    config: dict[str, Any],
    *,
    with_functions: bool,
) -> None:
    """Append another protocol's native tool to `hosted_tools`; report it if Gemini has no such tool."""
    path = located_tool.path
    if tool.protocol == INTERACTIONS and (bag := to_gemini_tool(tool, path, plan.report, config)) is not None:
        if not _conflicts_with_functions(located_tool, plan, with_functions=with_functions):
            _add_google_tool(*bag, hosted_tools)
    elif has_native(tool, HOSTED_TOOLS):
        encoded = _encode_hosted(tool, located_tool, plan, with_functions=with_functions)
        hosted_tools += [bag for bag in encoded if bag not in hosted_tools]
    elif (server := portable_server(tool)) is not None and server.allowed is None:
        if not _conflicts_with_functions(located_tool, plan, with_functions=with_functions):
            _add_google_tool("mcpServers", encode_gemini_server(server, path, plan), hosted_tools)
    else:
        report_missing_native(located_tool, plan, has_connectors=True)


def _conflicts_with_functions(located_tool: LocatedTool, plan: EncodingPlan, *, with_functions: bool) -> bool:
    """Check whether the model rejects hosted tools because functions are declared; report it if so."""
    if with_functions and is_before_gemini_3(plan):
        plan.report.dropped(located_tool.path, "", "the model does not support hosted tools together with functions")
        return True
    return False


def _add_google_tool(member: str, body: dict[str, Any], hosted_tools: list[Any]) -> None:
    """Add a hosted tool to `hosted_tools` under the field `member`; fields such as `mcpServers` hold a list."""
    bag = next((candidate for candidate in hosted_tools if member in candidate), None)
    if member not in LIST_MEMBERS:
        hosted_tools += [{member: body}] if bag is None else []
    elif bag is None:
        hosted_tools.append({member: [body]})
    else:
        bag[member].append(body)


def _encode_hosted(
    tool: NativeTool, located_tool: LocatedTool, plan: EncodingPlan, *, with_functions: bool
) -> list[Any]:
    """Return Google's counterpart of another provider's hosted tool, in a list; empty if functions exclude it."""
    if _conflicts_with_functions(located_tool, plan, with_functions=with_functions):
        return []
    if with_functions:
        plan.report.approximated(located_tool.path, "", "with functions present, calls of hosted tools are also shown")
    options = encode_hosted_options(tool, located_tool.path, HOSTED_TOOLS, plan)
    return [{HOSTED_TOOLS.names[tool.hosted.kind][0]: options}] if tool.hosted is not None else []


def _encode_same_protocol_tools(request: Request, plan: EncodingPlan) -> Any:
    """Encode a Gemini client's tools grouped as the client grouped them; new ones join the first group."""
    bags: dict[int, dict[str, Any]] = {}
    for token in request.wire_form:
        if token.startswith(_BAG_FORM):
            number, _, content = token.removeprefix(_BAG_FORM).partition(":")
            bag = bags.setdefault(int(number), {})
            kind, _, name = content.partition(":")
            if name:
                bag[name] = None if kind == "null" else []
    for index, tool in enumerate(request.tools or ()):
        (located_tool,) = flatten_tool(tool, ("tools", index))
        token = next(
            (token for token in tool.wire_form if token.startswith(_BAG_FORM)), f"{_BAG_FORM}0:functionDeclarations"
        )
        number, _, name = token.removeprefix(_BAG_FORM).partition(":")
        bag = bags.setdefault(int(number), {})
        if _LIST_FORM in tool.wire_form and isinstance(located_tool.tool, NativeTool):
            bag.setdefault(name, []).append(located_tool.tool.body)
        elif isinstance(located_tool.tool, NativeTool):
            bag[name] = located_tool.tool.body
        else:
            bag.setdefault(name, []).append(_encode_function(located_tool.tool, located_tool.path, plan))
    if _SINGLE_BAG in request.wire_form and len(bags) == 1:
        return bags[min(bags)]
    return [bags[number] for number in sorted(bags)]


def _encode_function(
    tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan, *, validated: bool = False
) -> Any:
    """Encode one function or freeform tool as a function declaration."""
    name = tool.name
    if not plan.same_protocol:
        name = plan.tools.declare(tool, path, plan.report)
        report_allowed_callers(tool, path, plan.report)
        _report_function(tool, path, plan)
        if type(tool) is FunctionTool and tool.strict and not validated:
            plan.report.dropped(path, "strict", "the target validates arguments for all functions or none")
    shape = DeclarationShape(name=name, description=none_to_unset(tool.description))
    if type(tool) is FreeformTool:
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
    """Write the schemas of another protocol's function into `shape`, in the model's schema dialect."""
    dialect = schema_dialect(plan)
    for field, json_schema, openapi in (
        ("parameters", "parameters_json_schema", "parameters"),
        ("output_schema", "response_json_schema", "response"),
    ):
        if (schema := getattr(tool, field)) is not None:
            name = openapi if dialect is OPENAPI else json_schema
            setattr(shape, name, fit_and_report(schema, dialect, plan.report, path, field))


def _encode_same_protocol_schemas(tool: FunctionTool, shape: DeclarationShape) -> None:
    """Write the schemas of a Gemini client's function into `shape`, in the client's schema dialect."""
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
    """Report as losses the fields of another protocol's function that Gemini does not have."""
    if tool.asynchronous:
        plan.report.dropped(path, "asynchronous", "the target has no asynchronous tools")
    if tool.defer:
        plan.report.approximated(path, "defer", "without tool search, the tool is declared from the start")
    if tool.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")


# ---- tool choice


def decode_choice(config: Any, field_case: FieldCase, location: str) -> ToolChoice | None:
    """Decode the function calling config; other fields of `toolConfig` belong to the request."""
    if config is UNSET or config.function_calling_config is UNSET:
        return None
    calling = config.function_calling_config
    config_location = f"{location}/functionCallingConfig"
    field_case.normalize(calling, config_location)
    source = field_case.source_pointer(config_location)
    choice_case = FieldCase(f"/{source}")
    choice_case.adopt(field_case, config_location)
    allowed = calling.allowed_function_names
    names_location = "/" + choice_case.source_pointer("allowedFunctionNames")
    names = tuple([ToolRef(name=name, at=f"{names_location}/{index}") for index, name in enumerate(allowed or ())])
    mode, required, form, mode_extras = _decode_mode(calling.mode, len(names))
    validated = calling.mode == "VALIDATED"
    if allowed == []:
        form = (*form, "gemini:names:empty")
    extras = merge_extras(choice_case.extras_and_form("ToolChoice", (calling, ""), wire_form=form), mode_extras)
    return ToolChoice(mode=mode, names=names, required=required, validated=validated, at=f"/{source}", **extras)


def _decode_mode(mode: Any, name_count: int) -> tuple[Any, bool, tuple[str, ...], dict[str, Any]]:
    """Decode the calling mode; `name_count` is the number of allowed function names.

    Return the canonical mode, whether a call is required, the wire-form tokens that record an absent mode, and an
    `extras` argument that holds an unknown one.
    """
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


def encode_choice(request: Request, plan: EncodingPlan, *, has_functions: bool) -> Any:
    """Encode the tool choice; UNSET if there is none or no functions are declared, which Gemini rejects."""
    choice = request.tool_choice
    if plan.same_protocol:
        return UNSET if choice is None else _encode_same_protocol_choice(choice)
    validated = has_functions and (has_only_strict_tools(request, plan) or (choice is not None and choice.validated))
    if choice is None:
        return CallingShape(mode="VALIDATED") if validated else UNSET
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target cannot disable parallel tool calls")
    if not has_functions:
        if choice.mode is not None:
            plan.report.dropped(("tool_choice",), "mode", "no functions are declared", severity="info")
        return UNSET
    if chosen_native_tool(request) is not None:
        plan.report.approximated(
            ("tool_choice",), "names", "the target cannot force a hosted tool; sent as auto", severity="error"
        )
        return CallingShape(mode="AUTO")
    return _encode_mode(choice, plan, validated=validated)


_CHOICE_MODES: dict[Any, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _encode_mode(choice: ToolChoice, plan: EncodingPlan, *, validated: bool) -> Any:
    """Encode the calling mode of another protocol's tool choice.

    `validated`: the tools are strict, so that calls are held to their schemas.
    """
    if validated and not choice.names:
        return CallingShape(mode="VALIDATED")
    if choice.mode is None:
        return UNSET
    if choice.mode in _CHOICE_MODES:
        return CallingShape(mode=_CHOICE_MODES[choice.mode])
    names = [
        plan.tool_name(choice_name.name, choice_name.namespace)
        for choice_name in choice.names
        if choice_name.kind in ("function", "freeform")
    ]
    if not names:
        reason = "the target cannot force a hosted tool; sent as auto"
        plan.report.approximated(("tool_choice",), "names", reason)
        return CallingShape(mode="AUTO")
    for index, choice_name in enumerate(choice.names):
        if choice_name.kind not in ("function", "freeform"):
            plan.report.dropped(("tool_choice", "names", index), "", "the target does not have this tool")
    # To choose freely among some is only possible where calls are also held to their schemas.
    forced = choice.mode == "named" or choice.required
    return CallingShape(mode="ANY" if forced else "VALIDATED", allowed_function_names=names)


def _encode_same_protocol_choice(choice: ToolChoice) -> Any:
    """Encode the tool choice of a Gemini client, with the fields that the client used."""
    modes = {**_CHOICE_MODES, "named": "ANY"}
    shape = CallingShape()
    if "gemini:absent:mode" not in choice.wire_form and "mode" not in (choice.extras or {}).get(FAMILY, {}):
        free = "VALIDATED" if choice.validated else "AUTO"
        shape.mode = free if choice.mode == "auto" else modes.get(choice.mode, "ANY" if choice.required else free)
    if choice.names or "gemini:names:empty" in choice.wire_form:
        shape.allowed_function_names = [name.name for name in choice.names]
    return encode_shape(shape, choice)


def encode_tool_config(calling_config: Any, fields: dict[str, Any]) -> Any:
    """Merge the function calling config and other fields into `toolConfig`; None if both are empty."""
    if calling_config is UNSET and not fields:
        return None
    shape: dict[str, Any] = {} if calling_config is UNSET else {"functionCallingConfig": calling_config}
    return {**shape, **fields}


_ENVIRONMENT_PREFIX = "ENVIRONMENT_"


def with_computer(request: Request) -> Request:
    """Attach the decoded screen settings to each `computerUse` tool of the request."""
    return with_computer_tools(request, FAMILY)


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    """Declare computer use for a model; return the `computerUse` tool and the computer that it provides.

    The canonical computer describes the environment and actions that the model will use, to translate its calls.
    """
    target_computer, environment, excluded = declare_computer(client_computer, model)
    body: dict[str, Any] = {"environment": _ENVIRONMENT_PREFIX + environment.upper()}
    if excluded:
        body["excludedPredefinedFunctions"] = excluded
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(
        protocol=FAMILY, kind="computer_use", name="computerUse", body=raw, executor="client"
    ), target_computer


COMPUTER_USE = ComputerUseAdapter(
    family=FAMILY,
    compatible_families=(GEMINI, INTERACTIONS),
    arguments_pointer="functionCall/args",
    decode_call=partial(decode_computer_call, location="functionCall/args"),
    encode_actions=encode_computer_actions,
    finish_call=encode_computer_call,
    finish_result=encode_computer_result,
    declare_tool=_declare_computer,
    decode_observation=decode_computer_result,
    has_safety_checks=True,
)
