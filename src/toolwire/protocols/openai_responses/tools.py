"""Tool declarations of the Responses API, MCP servers included; `settings` has the tool choice."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    Grammar,
    McpServer,
    NativeTool,
    Tool,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.encoding.hosted_tools import (
    NEEDS_APPROVAL,
    TOOLS_RESTRICTED,
    HostedToolNames,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    is_required,
    portable_server,
    report_missing_native,
    report_unportable_settings,
    string_tuple,
    unread_settings,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    TARGET_HAS_TOOL_SEARCH,
    LocatedTool,
    is_tool_search,
    order_declarations,
    report_allowed_callers,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.memo import DecodedToolsMemo
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.validation import object_of
from toolwire.codec.wire.extras import (
    collect_extras,
    encode_with_extras,
    none_to_unset,
    unset_to_none,
)
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, WireObject, decode_json, decode_members, tag_of
from toolwire.protocols.openai_responses.computer import decode_computer
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import FAMILY, CustomShape, FunctionShape, GrammarShape, NamespaceShape
from toolwire.protocols.vendors.openai import STRICT_SCHEMA

_SERVER_FIELDS = (
    "type",
    "server_label",
    "server_url",
    "server_description",
    "authorization",
    "headers",
    "require_approval",
)
_FILTER_FORM = f"{FAMILY}:name:allowed=allowed_tools/tool_names"

# ---- MCP servers


def decode_server(raw: Raw, path: str) -> McpServer | None:
    """Decode an `mcp` tool that has a URL; None for connectors and tunnels.

    Connectors and tunnels are only available at OpenAI.
    """
    members = decode_json(raw)
    name, url, token, headers = (members.get(key) for key in ("server_label", "server_url", "authorization", "headers"))
    if not isinstance(name, str) or not isinstance(url, str) or not isinstance(token, str | None):
        return None
    if not _are_headers(headers):
        return None
    allowed = members.get("allowed_tools")
    is_filter = isinstance(allowed, dict) and allowed.keys() == {"tool_names"}
    names = string_tuple(allowed["tool_names"] if is_filter else allowed)
    description = members.get("server_description")
    known = [f"{path}/{key}" for key in _SERVER_FIELDS]
    if names is not None:
        known.append(f"{path}/allowed_tools/tool_names" if is_filter else f"{path}/allowed_tools")
    return McpServer(
        name=name,
        url=url,
        authorization=token,
        headers=None if headers is None else Raw(msgspec.json.encode(headers)),
        allowed=names,
        description=description if isinstance(description, str) else None,
        unportable=_unportable_reason(members, names),
        others=tuple(unread_settings(members, path, known)),
        wire_form=(_FILTER_FORM,) if is_filter else (),
        at="",
    )


def _are_headers(headers: object) -> bool:
    """Return whether the value is absent or maps names to strings."""
    return headers is None or (isinstance(headers, dict) and bool(string_tuple(list(headers.values()))))


def _unportable_reason(declaration: dict[str, Any], allowed: tuple[str, ...] | None) -> str | None:
    """Return why no other provider can use the MCP server; None if others can."""
    if declaration.get("require_approval") != "never":  # the default is "always"
        return NEEDS_APPROVAL
    callers = declaration.get("allowed_callers")
    if (declaration.get("allowed_tools") is not None and allowed is None) or (
        callers is not None and "direct" not in callers
    ):
        return TOOLS_RESTRICTED
    return None


def encode_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode an MCP server as an `mcp` tool."""
    report_unportable_settings(server, plan)
    wire = {
        "type": "mcp",
        "server_label": server.name,
        "server_url": server.url,
        "server_description": server.description,
        "authorization": server.authorization,
        "headers": server.headers,
        "allowed_tools": server.allowed,
        "require_approval": "never",  # as other vendors do; the default here is "always"
    }
    return {name: value for name, value in wire.items() if value is not None}


EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')

_COMPOSITION_KEYWORDS = {"anyOf", "oneOf", "allOf", "$ref", "patternProperties", "not", "if"}
HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web_search", "web_search_preview"), "code_execution": ("code_interpreter",)},
    option_pointers={
        "web_search": {
            "allowed_domains": "filters/allowed_domains",
            "location": "user_location",
            "context_size": "search_context_size",
        }
    },
    native_kinds=("web_search", "code_execution"),
)
_INCLUDED_RESULTS = {
    "web_search": "web_search_call.action.sources",
    "code_interpreter": "code_interpreter_call.outputs",
}
"""The results of hosted tools by type, which the API returns only on request."""
_VERSION_SUFFIX = re.compile(r"_\d{4}_\d{2}_\d{2}$")
_CLIENT_TOOLS = ("apply_patch", "local_shell", "computer", "computer_use", "computer_use_preview")
_FORMAT_FORM = "openai-responses:format:"
_TOOL_SEARCH = {"type": "tool_search"}

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read
_decode_typed_function = msgspec.json.Decoder(FunctionShape).decode
_NULL = Raw(b"null")
_read_custom = Reader[CustomShape](CustomShape, FAMILY).read
_read_namespace = Reader[NamespaceShape](NamespaceShape, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_tools_memo = DecodedToolsMemo[Tool](FunctionTool)

# ---- declarations: decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    """Decode tool declarations; functions are cached."""
    return _tools_memo.decode(tools, path, decode_tool)


def decode_tool(raw: Raw, path: str = "") -> Tool:
    """Decode one tool declaration."""
    try:
        shape = _decode_typed_function(raw)
    except JSON_ERRORS:
        return _decode_by_tag(raw, path)
    return decode_function(shape) if shape.type == "function" else _decode_by_tag(raw, path)


def _decode_by_tag(raw: Raw, path: str) -> Tool:
    """Decode a tool by its `type`."""
    match tag_of(raw):
        case "function":
            return decode_function(_read_function(raw, path))
        case "custom":
            return _decode_custom(_read_custom(raw, path))
        case "namespace":
            return _decode_namespace(_read_namespace(raw, path), raw, path)
        case kind:
            return _decode_native(raw, kind or "", _read_object(raw, path), path)


def decode_function(shape: FunctionShape) -> FunctionTool:
    """Decode a function tool."""
    null = shape.parameters == _NULL
    callers = shape.allowed_callers
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=None if null else unset_to_none(shape.parameters),
        strict=unset_to_none(shape.strict),
        defer=unset_to_none(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        asynchronous=unset_to_none(shape.asynchronous),
        output_schema=unset_to_none(shape.output_schema),
        **collect_extras(shape, FAMILY, *((f"{FAMILY}:null:parameters",) if null else ())),
    )


def _decode_custom(shape: CustomShape) -> FreeformTool:
    """Decode a custom tool and its input format."""
    grammar = None
    format_form: tuple[str, ...] = ()
    callers, input_format = shape.allowed_callers, shape.format
    extras_and_form = collect_extras(shape, FAMILY)
    if input_format is not UNSET:
        is_known_type = input_format.type in ("text", "grammar")
        format_form = (_FORMAT_FORM + str(input_format.type) if is_known_type else _FORMAT_FORM,)
        extras_and_form = combine_extras(extras_and_form, collect_extras(input_format, FAMILY, prefix="format/"))
        if not is_known_type:
            extras_and_form = combine_extras(
                extras_and_form, unused_field_extras(input_format, ("type",), prefix="format/")
            )
        if input_format.syntax is not UNSET and input_format.definition is not UNSET:
            grammar = Grammar(syntax=input_format.syntax, definition=input_format.definition, at="/format")
        else:
            extras_and_form = combine_extras(
                extras_and_form, unused_field_extras(input_format, ("syntax", "definition"), prefix="format/")
            )
    return FreeformTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        grammar=grammar,
        defer=unset_to_none(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        asynchronous=unset_to_none(shape.asynchronous),
        **combine_extras(extras_and_form, {"wire_form": format_form}),
    )


def combine_extras(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the merged `extras` and `wire_form` arguments of two decoded objects."""
    extras = {**first.get("extras", {}).get(FAMILY, {}), **second.get("extras", {}).get(FAMILY, {})}
    form = first.get("wire_form", ()) + second.get("wire_form", ())
    return ({"extras": {FAMILY: extras}} if extras else {}) | ({"wire_form": form} if form else {})


def unused_field_extras(shape: WireObject, names: tuple[str, ...], prefix: str = "") -> dict[str, Any]:
    """Return an `extras` argument with the named fields, which have no meaning where they are used."""
    values = {name: getattr(shape, name) for name in names if getattr(shape, name) is not UNSET}
    extras = {prefix + name: Raw(msgspec.json.encode(value)) for name, value in values.items()}
    return {"extras": {FAMILY: extras}} if extras else {}


def _decode_namespace(shape: NamespaceShape, raw: Raw, path: str) -> ToolGroup | NativeTool:
    """Decode a namespace as a tool group; one with other than function and custom tools stays native."""
    tools = decode_tools(shape.tools, f"{path}/tools")
    members = tuple([tool for tool in tools if isinstance(tool, FunctionTool | FreeformTool)])
    if len(members) < len(tools):
        return NativeTool(protocol=FAMILY, kind="namespace", name=shape.name, body=raw)
    return ToolGroup(
        name=shape.name, description=unset_to_none(shape.description), tools=members, **collect_extras(shape, FAMILY)
    )


def _decode_native(raw: Raw, kind: str, members: dict[str, Raw], path: str) -> NativeTool:
    """Decode a tool that only this API declares this way, with its vendor-neutral meaning if it has one."""
    kind = _VERSION_SUFFIX.sub("", kind)
    name = decode_json(members.get("server_label", b"null"))
    client = kind in _CLIENT_TOOLS
    if kind == "tool_search":
        client = decode_json(members.get("execution", b"null")) == "client"
    elif kind == "shell":
        environment = object_of(decode_json(members.get("environment", b"null")))
        client = environment.get("type", "local") == "local"
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=name if isinstance(name, str) else None,
        executor="client" if client else "server",
        body=raw,
        hosted=decode_hosted_tool(kind, raw, HOSTED_TOOLS),
        server=decode_server(raw, path) if kind == "mcp" else None,
        computer=decode_computer(kind, raw),
    )


# ---- declarations: encode


def encode_tools(request: Request, plan: ItemPlan) -> list[Any] | None:
    """Encode the tools of a request, those of one namespace together; None if there are none."""
    plan.request = request
    if request.tools is None:
        return None
    plan.can_search_tools = plan.same_protocol or any(map(is_tool_search, request.tools))
    encoded: list[Any] = []
    groups: dict[str, list[Any]] = {}
    for index, tool in enumerate(request.tools) if plan.same_protocol else order_declarations(request):
        plan.output_pointer = f"/tools/{len(encoded)}"
        wire = encode_tool(tool, ("tools", index), plan)
        namespace = getattr(tool, "namespace", None)
        if wire is None or (wire == _TOOL_SEARCH and wire in encoded):
            continue
        if namespace is None:
            encoded.append(wire)
        elif namespace in groups:
            groups[namespace].append(wire)
        else:
            groups[namespace] = [wire]
            encoded.append(NamespaceShape(type="namespace", name=namespace, description="", tools=groups[namespace]))
    return encoded if encoded or plan.same_protocol else None


def encode_tool(tool: Tool | ToolRef, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode one tool; report it and return None if the target has no counterpart."""
    match tool:
        case FunctionTool():
            return _encode_function(tool, path, plan)
        case FreeformTool():
            return _encode_custom(tool, path, plan)
        case ToolGroup():
            return _encode_namespace(tool, path, plan)
        case NativeTool():
            return tool.body if tool.protocol == FAMILY else _encode_foreign_native(tool, path, plan)
        case ToolRef(kind="server"):
            plan.report.dropped(path, "", "the target cannot refer to tools of MCP servers")
            return None
        case ToolRef():
            plan.report.approximated(
                path, "", "without tool search, the tool is declared from the start", severity="info"
            )
            return None


def _encode_namespace(group: ToolGroup, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode a group of tools as a namespace."""
    members = [encode_tool(tool, (*path, "tools", index), plan) for index, tool in enumerate(group.tools)]
    description = none_to_unset(group.description) if plan.same_protocol or group.description is not None else ""
    shape = NamespaceShape(type="namespace", name=group.name, tools=members, description=description)
    return encode_with_extras(shape, group, FAMILY)


def _encode_foreign_native(tool: NativeTool, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode another protocol's native tool as this API's counterpart; report it and return None without one."""
    if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
        return _encode_hosted(tool, path, plan)
    if (server := portable_server(tool)) is not None:
        return encode_server(server, path, plan)
    if is_tool_search(tool) and not (plan.request is not None and is_required(tool, plan.request)):
        plan.report.approximated(path, "", TARGET_HAS_TOOL_SEARCH, severity="info")
        return _TOOL_SEARCH
    report_missing_native(LocatedTool(tool, path), plan, has_connectors=True)
    return None


def _encode_hosted(tool: NativeTool, path: SourcePath, plan: ItemPlan) -> dict[str, Any]:
    """Encode another provider's hosted tool, which this API also has."""
    options = encode_hosted_options(tool, path, HOSTED_TOOLS, plan)
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter", "container": {"type": "auto"}, **options}
    return {"type": "web_search", **options}


def include_hosted_results(tools: Sequence[Any], body: dict[str, Any], plan: ItemPlan) -> None:
    """Request the results of hosted tools, which other vendors return unasked, by `include`."""
    if plan.same_protocol:
        return
    kinds = [tool.get("type") for tool in tools if isinstance(tool, dict)]
    included = [name for kind, name in _INCLUDED_RESULTS.items() if kind in kinds]
    if included:
        body["include"] = included


def _encode_function(tool: FunctionTool, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode a function tool."""
    if plan.same_protocol:
        schema = none_to_unset(tool.parameters)
        strict: Any = none_to_unset(tool.strict)
    else:
        # Always sent: without it, the server tries strict mode and makes optional parameters required.
        schema, strict = (object_schema := _encode_schema(tool, path, plan)), False
        if tool.strict:
            schema, strict = fit_strictly_and_report(object_schema, STRICT_SCHEMA, plan.report, path, "parameters")
            if schema is not object_schema and tool.namespace is None:
                plan.tools.expect_nulls(tool)
    shape = FunctionShape(
        type="function",
        name=_declare_name(tool, path, plan),
        description=none_to_unset(tool.description),
        parameters=schema,
        strict=strict,
        defer_loading=_encode_defer(tool, path, plan),
        allowed_callers=_encode_callers(tool, path, plan),
        output_schema=none_to_unset(tool.output_schema),
        asynchronous=none_to_unset(tool.asynchronous),
    )
    return encode_with_extras(shape, tool, FAMILY)


def _declare_name(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> str:
    """Return the name of a tool, made legal for the target."""
    if plan.same_protocol:
        return tool.name
    if tool.cache is not None:
        plan.report.dropped(path, "cache", "the target has no cache marks on tools")
    return plan.tools.declare(replace(tool, namespace=None), path, plan.report)


def _encode_callers(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    """Return who may call the tool, the model or its program; UNSET without limits.

    Callers that only other vendors have are reported as losses.
    """
    callers = tool.allowed_callers
    if plan.same_protocol or callers is None or set(callers) <= {"direct", "programmatic"}:
        return UNSET if callers is None else list(callers)
    report_allowed_callers(tool, path, plan.report)
    return ["direct"] if "direct" in callers else UNSET


def _encode_defer(tool: FunctionTool | FreeformTool, path: SourcePath, plan: ItemPlan) -> Any:
    """Return `defer_loading`, whether tool search loads the tool; UNSET if it is not sent."""
    if tool.defer and not plan.can_search_tools:
        plan.report.approximated(path, "defer", "without tool search, the tool is declared from the start")
        return UNSET
    return none_to_unset(tool.defer)


def _encode_schema(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> Raw:
    """Return the parameter schema as an object schema with properties, which the provider requires."""
    if tool.parameters is None:
        reason = "the target requires a schema; an empty object is declared"
        plan.report.added(path, "parameters", f"{plan.output_pointer}/parameters", reason)
        return EMPTY_SCHEMA
    try:
        members = decode_members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(path, "parameters", "the schema is not an object")
        return EMPTY_SCHEMA
    is_untyped = "type" not in members
    is_bare = not is_untyped and decode_json(members["type"]) == "object" and not _is_object(members.get("properties"))
    is_bare = is_bare and not _COMPOSITION_KEYWORDS & members.keys()
    if not is_untyped and not is_bare:
        return tool.parameters
    plan.report.approximated(path, "parameters", "the target requires an object schema with properties")
    schema: dict[str, Any] = {"type": "object", **members}
    if is_bare or members.keys() <= {"properties"}:
        schema["properties"] = {}
    return Raw(msgspec.json.encode(schema))


def _is_object(raw: Raw | None) -> bool:
    """Return whether the JSON value is an object."""
    return raw is not None and bytes(raw)[:1] == b"{"


def _encode_custom(tool: FreeformTool, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode a custom tool and its input format."""
    input_format: Any = UNSET
    format_type = next((token[len(_FORMAT_FORM) :] for token in tool.wire_form if token.startswith(_FORMAT_FORM)), None)
    if tool.grammar is not None:
        grammar = tool.grammar
        kind = "grammar" if format_type is None else format_type or UNSET
        input_format = GrammarShape(type=kind, syntax=grammar.syntax, definition=grammar.definition)
    elif format_type is not None:
        input_format = GrammarShape(type=format_type or UNSET)
    shape = CustomShape(
        type="custom",
        name=_declare_name(tool, path, plan),
        description=none_to_unset(tool.description),
        format=input_format,
        defer_loading=_encode_defer(tool, path, plan),
        allowed_callers=_encode_callers(tool, path, plan),
        asynchronous=none_to_unset(tool.asynchronous),
    )
    return encode_with_extras(shape, tool, FAMILY)
