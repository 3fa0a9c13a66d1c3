"""The `mcp` tool of the Responses API, to a canonical server and back.

Tool declarations of the Responses API, to canonical and back.

Tool choice of the Responses API, to canonical and back.
"""

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    Grammar,
    McpServer,
    NativeTool,
    Tool,
    ToolChoice,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.encoding.hosted_tools import (
    NEEDS_APPROVAL,
    TOOLS_RESTRICTED,
    HostedToolNames,
    chosen_native_tool,
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
    report_allowed_callers,
    report_validated_choice,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.validation import object_of
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.memo import BoundedMemo
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, WireObject, tag_of
from toolwire.protocols.openai_responses.computer import decode_computer
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ChoiceShape,
    CustomShape,
    FunctionShape,
    GrammarShape,
    NamespaceShape,
    ToolReferenceShape,
)
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

_decode_json_server = msgspec.json.Decoder().decode

# ---- decode


def decode_server(raw: Raw, path: str) -> McpServer | None:
    """The server, if it has an address of its own: connectors and tunnels are the provider's."""
    said = _decode_json_server(raw)
    name, url, token, headers = (said.get(key) for key in ("server_label", "server_url", "authorization", "headers"))
    if not isinstance(name, str) or not isinstance(url, str) or not isinstance(token, str | None):
        return None
    if headers is not None and not (isinstance(headers, dict) and string_tuple(list(headers.values()))):
        return None
    allowed = said.get("allowed_tools")
    wrapped = isinstance(allowed, dict) and allowed.keys() == {"tool_names"}
    names = string_tuple(allowed["tool_names"] if wrapped else allowed)
    about = said.get("server_description")
    known = [f"{path}/{key}" for key in _SERVER_FIELDS]
    if names is not None:
        known.append(f"{path}/allowed_tools/tool_names" if wrapped else f"{path}/allowed_tools")
    return McpServer(
        name=name,
        url=url,
        authorization=token,
        headers=None if headers is None else Raw(msgspec.json.encode(headers)),
        allowed=names,
        description=about if isinstance(about, str) else None,
        unportable=_unportable_reason(said, names),
        others=tuple(unread_settings(said, path, known)),
        wire_form=(_FILTER_FORM,) if wrapped else (),
        at="",
    )


def _unportable_reason(declaration: dict[str, Any], allowed: tuple[str, ...] | None) -> str | None:
    if declaration.get("require_approval") != "never":  # left out, somebody is asked each time
        return NEEDS_APPROVAL
    callers = declaration.get("allowed_callers")
    if (declaration.get("allowed_tools") is not None and allowed is None) or (
        callers is not None and "direct" not in callers
    ):
        return TOOLS_RESTRICTED
    return None


# ---- encode


def encode_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    report_unportable_settings(server, plan)
    wire = {
        "type": "mcp",
        "server_label": server.name,
        "server_url": server.url,
        "server_description": server.description,
        "authorization": server.authorization,
        "headers": server.headers,
        "allowed_tools": server.allowed,
        "require_approval": "never",  # as with other vendors; left out, this one asks
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
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_json = msgspec.json.Decoder().decode
_tool_memo: BoundedMemo[bytes, FunctionTool] = BoundedMemo()

# ---- decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, raw in enumerate(tools):
        text = bytes(raw)
        tool: Tool | None = _tool_memo.get(text)
        if tool is None:
            tool = decode_tool(Raw(text), f"{path}/{index}")
            if type(tool) is FunctionTool and tool.extras is None:
                _tool_memo.put(text, tool, len(text))
        found.append(tool)
    return tuple(found)


def decode_tool(raw: Raw, path: str = "") -> Tool:
    try:
        shape = _decode_typed_function(raw)
    except JSON_ERRORS:
        return _decode_by_tag(raw, path)
    return decode_function(shape) if shape.type == "function" else _decode_by_tag(raw, path)


def _decode_by_tag(raw: Raw, path: str) -> Tool:
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
    grammar = None
    form: tuple[str, ...] = ()
    callers, wanted = shape.allowed_callers, shape.format
    kept = collect_extras(shape, FAMILY)
    if wanted is not UNSET:
        known_word = wanted.type in ("text", "grammar")
        form = (_FORMAT_FORM + str(wanted.type) if known_word else _FORMAT_FORM,)
        kept = add_form_fields(kept, collect_extras(wanted, FAMILY, prefix="format/"))
        if not known_word:
            kept = add_form_fields(kept, unused_field_extras(wanted, ("type",), prefix="format/"))
        if wanted.syntax is not UNSET and wanted.definition is not UNSET:
            grammar = Grammar(syntax=wanted.syntax, definition=wanted.definition, at="/format")
        else:
            kept = add_form_fields(kept, unused_field_extras(wanted, ("syntax", "definition"), prefix="format/"))
    return FreeformTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        grammar=grammar,
        defer=unset_to_none(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        asynchronous=unset_to_none(shape.asynchronous),
        **add_form_fields(kept, {"wire_form": form}),
    )


def add_form_fields(extras_and_form: dict[str, Any], wire_form: dict[str, Any]) -> dict[str, Any]:
    extras = {**extras_and_form.get("extras", {}).get(FAMILY, {}), **wire_form.get("extras", {}).get(FAMILY, {})}
    form = extras_and_form.get("wire_form", ()) + wire_form.get("wire_form", ())
    return ({"extras": {FAMILY: extras}} if extras else {}) | ({"wire_form": form} if form else {})


def unused_field_extras(shape: WireObject, names: tuple[str, ...], prefix: str = "") -> dict[str, Any]:
    """Known fields that have no meaning where they stand, as extras."""
    found = {name: getattr(shape, name) for name in names if getattr(shape, name) is not UNSET}
    extras = {prefix + name: Raw(msgspec.json.encode(value)) for name, value in found.items()}
    return {"extras": {FAMILY: extras}} if extras else {}


def _decode_namespace(shape: NamespaceShape, raw: Raw, path: str) -> ToolGroup | NativeTool:
    tools = decode_tools(shape.tools, f"{path}/tools")
    usual = tuple([tool for tool in tools if isinstance(tool, FunctionTool | FreeformTool)])
    if len(usual) < len(tools):
        return NativeTool(protocol=FAMILY, kind="namespace", name=shape.name, body=raw)
    return ToolGroup(
        name=shape.name, description=unset_to_none(shape.description), tools=usual, **collect_extras(shape, FAMILY)
    )


def _decode_native(raw: Raw, kind: str, members: dict[str, Raw], path: str) -> NativeTool:
    kind = _VERSION_SUFFIX.sub("", kind)
    name = _decode_json(members.get("server_label", b"null"))
    client = kind in _CLIENT_TOOLS
    if kind == "tool_search":
        client = _decode_json(members.get("execution", b"null")) == "client"
    elif kind == "shell":
        environment = object_of(_decode_json(members.get("environment", b"null")))
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


# ---- encode


def encode_tools(request: Request, plan: ItemPlan) -> list[Any] | None:
    plan.request = request
    if request.tools is None:
        return None
    plan.can_search_tools = plan.same_protocol or any(map(is_tool_search, request.tools))
    encoded: list[Any] = []
    groups: dict[str, list[Any]] = {}
    for index, tool in enumerate(request.tools):
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
    match tool:
        case FunctionTool():
            return _encode_function(tool, path, plan)
        case FreeformTool():
            return _encode_custom(tool, path, plan)
        case ToolGroup():
            members = [encode_tool(one, (*path, "tools", i), plan) for i, one in enumerate(tool.tools)]
            about = none_to_unset(tool.description) if plan.same_protocol or tool.description is not None else ""
            return encode_with_extras(
                NamespaceShape(type="namespace", name=tool.name, tools=members, description=about), tool, FAMILY
            )
        case NativeTool():
            if tool.protocol == FAMILY:
                return tool.body
            if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
                return _encode_hosted(tool, path, plan)
            if (server := portable_server(tool)) is not None:
                return encode_server(server, path, plan)
            if is_tool_search(tool) and not (plan.request is not None and is_required(tool, plan.request)):
                plan.report.approximated(path, "", TARGET_HAS_TOOL_SEARCH)
                return _TOOL_SEARCH
            report_missing_native(LocatedTool(tool, path), plan, has_connectors=True)
            return None
        case ToolRef(kind="server"):
            plan.report.dropped(path, "", "the target has no tools of servers")
            return None
        case ToolRef():
            plan.report.approximated(path, "", "a tool that comes later is declared from the start")
            return None


def _encode_hosted(tool: NativeTool, path: SourcePath, plan: ItemPlan) -> dict[str, Any]:
    bounds = encode_hosted_options(tool, path, HOSTED_TOOLS, plan)
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter", "container": {"type": "auto"}, **bounds}
    return {"type": "web_search", **bounds}


def _encode_function(tool: FunctionTool, path: SourcePath, plan: ItemPlan) -> Any:
    if plan.same_protocol:
        schema = none_to_unset(tool.parameters)
        strict: Any = none_to_unset(tool.strict)
    else:
        # Said always: left out, the server tries strict, and makes optional parameters required.
        schema, strict = (whole := _encode_schema(tool, path, plan)), False
        if tool.strict:
            schema, strict = fit_strictly_and_report(whole, STRICT_SCHEMA, plan.report, path, "parameters")
            if schema is not whole and tool.namespace is None:
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
    if plan.same_protocol:
        return tool.name
    if tool.cache is not None:
        plan.report.dropped(path, "cache", "the target marks no tools")
    return plan.tools.declare(replace(tool, namespace=None), path, plan.report)


def _encode_callers(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    callers = tool.allowed_callers
    if plan.same_protocol or callers is None or set(callers) <= {"direct", "programmatic"}:
        return UNSET if callers is None else list(callers)
    report_allowed_callers(tool, path, plan.report)
    return ["direct"] if "direct" in callers else UNSET


def _encode_defer(tool: FunctionTool | FreeformTool, path: SourcePath, plan: ItemPlan) -> Any:
    if tool.defer and not plan.can_search_tools:
        plan.report.approximated(path, "defer", "nothing would load it later: it is there from the start")
        return UNSET
    return none_to_unset(tool.defer)


def _encode_schema(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> Raw:
    """The schema of another protocol's tool, as an object with properties, which this provider insists on."""
    if tool.parameters is None:
        why = "a schema is required: an empty object was declared"
        plan.report.added(path, "parameters", f"{plan.output_pointer}/parameters", why)
        return EMPTY_SCHEMA
    try:
        members = _decode_members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(path, "parameters", "not an object schema")
        return EMPTY_SCHEMA
    untyped = "type" not in members
    bare = not untyped and _decode_json(members["type"]) == "object" and not _is_object(members.get("properties"))
    bare = bare and not _COMPOSITION_KEYWORDS & members.keys()
    if not untyped and not bare:
        return tool.parameters
    plan.report.approximated(path, "parameters", "the target wants an object with properties")
    whole: dict[str, Any] = {"type": "object", **members}
    if bare or members.keys() <= {"properties"}:
        whole["properties"] = {}
    return Raw(msgspec.json.encode(whole))


def _is_object(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw)[:1] == b"{"


def _encode_custom(tool: FreeformTool, path: SourcePath, plan: ItemPlan) -> Any:
    wanted: Any = UNSET
    word = next((token[len(_FORMAT_FORM) :] for token in tool.wire_form if token.startswith(_FORMAT_FORM)), None)
    if tool.grammar is not None:
        grammar = tool.grammar
        kind = "grammar" if word is None else word or UNSET
        wanted = GrammarShape(type=kind, syntax=grammar.syntax, definition=grammar.definition)
    elif word is not None:
        wanted = GrammarShape(type=word or UNSET)
    shape = CustomShape(
        type="custom",
        name=_declare_name(tool, path, plan),
        description=none_to_unset(tool.description),
        format=wanted,
        defer_loading=_encode_defer(tool, path, plan),
        allowed_callers=_encode_callers(tool, path, plan),
        asynchronous=none_to_unset(tool.asynchronous),
    )
    return encode_with_extras(shape, tool, FAMILY)


_NO_CHOICE_NAME = "openai-responses:absent:name"
_NO_CHOICE_MODE = "openai-responses:absent:mode"
_NO_CHOICE_TOOLS = "openai-responses:absent:tools"
CHOICE_MODES: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}

# ---- decode


def decode_choice(choice: str | ChoiceShape | UnsetType, *, parallel: bool | None) -> ToolChoice | None:
    if choice is UNSET or (isinstance(choice, str) and choice not in CHOICE_MODES):
        return None if parallel is None else ToolChoice(parallel=parallel, at="/parallel_tool_calls")
    if isinstance(choice, str):
        return ToolChoice(mode=CHOICE_MODES[choice], parallel=parallel)
    if choice.type != "allowed_tools":
        named = replace(_decode_reference(choice), at="")
        return ToolChoice(
            mode="named", names=(named,), parallel=parallel, **unused_field_extras(choice, ("mode", "tools"))
        )
    kept = add_form_fields(collect_extras(choice, FAMILY), unused_field_extras(choice, ("name", "server_label")))
    form: tuple[str, ...] = (_NO_CHOICE_TOOLS,) if choice.tools is UNSET else ()
    if choice.mode not in ("auto", "required"):
        form = (*form, _NO_CHOICE_MODE)
        kept = add_form_fields(kept, unused_field_extras(choice, ("mode",)))
    tools = choice.tools or []
    return ToolChoice(
        mode="allowed",
        names=tuple(replace(_decode_reference(one), at=f"/tools/{index}") for index, one in enumerate(tools)),
        required=choice.mode == "required",
        natives=True,
        parallel=parallel,
        **add_form_fields(kept, {"wire_form": form}),
    )


def _decode_reference(shape: ToolReferenceShape) -> ToolRef:
    match shape.type:
        case "function" | "custom" if shape.name is not UNSET:
            kept = add_form_fields(collect_extras(shape, FAMILY), unused_field_extras(shape, ("server_label",)))
            return ToolRef(name=shape.name, kind="function" if shape.type == "function" else "freeform", **kept)
        case "mcp":
            form = (_NO_CHOICE_NAME,) if shape.name is UNSET else ()
            server = unset_to_none(shape.server_label)
            return ToolRef(name=shape.name or "", server=server, kind="server", **collect_extras(shape, FAMILY, *form))
        case kind:
            kept = add_form_fields(collect_extras(shape, FAMILY), unused_field_extras(shape, ("name", "server_label")))
            return ToolRef(name=kind, kind="native", **kept)


# ---- encode


def encode_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    """The choice, or UNSET. Without tools there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    report_validated_choice(choice, plan.report)
    if choice is None or choice.mode is None:
        return UNSET
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        return UNSET
    if (
        not plan.same_protocol
        and (hosted := chosen_native_tool(request)) is not None
        and has_native(hosted, HOSTED_TOOLS)
    ):
        return _encode_forced_tool(hosted)
    match choice.mode:
        case "named":
            named = choice.names[0]
            shape = _encode_reference(named, plan)
            if shape is None:
                return "auto"
            return restore_extras(restore_extras(as_dict(shape), named, FAMILY), choice, FAMILY)
        case "allowed":
            members = [_encode_reference(one, plan) for one in choice.names]
            mode = "required" if choice.required else "auto"
            tools = [
                encode_with_extras(one, ref, FAMILY)
                for one, ref in zip(members, choice.names, strict=True)
                if one is not None
            ]
            allowed = ChoiceShape(type="allowed_tools", mode=mode, tools=tools)
            if _NO_CHOICE_MODE in choice.wire_form:
                allowed.mode = UNSET
            if _NO_CHOICE_TOOLS in choice.wire_form and not tools:
                allowed.tools = UNSET
            return encode_with_extras(allowed, choice, FAMILY)
        case _:
            return choice.mode


def _encode_forced_tool(tool: NativeTool) -> dict[str, Any]:
    """The choice that demands a hosted tool. A search under its newer word can't be named by itself, only be the one
    that may be chosen."""
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter"}
    return {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}


def encode_parallel(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    choice = request.tool_choice
    if choice is None or choice.parallel is None:
        return UNSET
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "parallel", "there are no tools to call")
        return UNSET
    return choice.parallel


def _encode_reference(reference: ToolRef, plan: EncodingPlan) -> ToolReferenceShape | None:
    if not plan.same_protocol and reference.kind in ("native", "server"):
        plan.report.approximated(("tool_choice",), "names", "the target lacks this tool: any tool may be chosen")
        return None
    match reference.kind:
        case "function" | "freeform":
            name = reference.name if plan.same_protocol else plan.tools.alias(reference.name)
            return ToolReferenceShape(type="custom" if reference.kind == "freeform" else "function", name=name)
        case "server":
            member = UNSET if _NO_CHOICE_NAME in reference.wire_form else reference.name
            return ToolReferenceShape(type="mcp", server_label=none_to_unset(reference.server), name=member)
        case "native":
            return ToolReferenceShape(type=reference.name)
