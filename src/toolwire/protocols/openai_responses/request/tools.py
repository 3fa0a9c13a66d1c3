"""Tool declarations of the Responses API, to canonical and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    Grammar,
    NativeTool,
    Tool,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.check import object_of
from toolwire.codec.connectors import connector
from toolwire.codec.fields import BAD_JSON, Reader, Wire, tag_of
from toolwire.codec.hosted import Spelling, decode_hosted, encode_hosted, is_demanded, is_native, without_native
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.repeated import Repeated
from toolwire.codec.schema.fit import fitted_strictly
from toolwire.codec.tools import OWN_SEARCH, PlacedTool, finds_tools, usable_callers
from toolwire.protocols.openai import STRICT
from toolwire.protocols.openai_responses.parts.computer import decode_computer
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    CustomShape,
    FunctionShape,
    GrammarShape,
    NamespaceShape,
)

from .connectors import decode_server, encode_server

EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')

_COMPOSED = {"anyOf", "oneOf", "allOf", "$ref", "patternProperties", "not", "if"}
HOSTED = Spelling(
    family=FAMILY,
    words={"web_search": ("web_search", "web_search_preview"), "code_execution": ("code_interpreter",)},
    options={
        "web_search": {
            "allowed_domains": "filters/allowed_domains",
            "location": "user_location",
            "context_size": "search_context_size",
        }
    },
    native=("web_search", "code_execution"),
)
_DATED = re.compile(r"_\d{4}_\d{2}_\d{2}$")
_CLIENT_RUN = ("apply_patch", "local_shell", "computer", "computer_use", "computer_use_preview")
_FORMAT = "openai-responses:format:"
_SEARCH = {"type": "tool_search"}

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read
_function = msgspec.json.Decoder(FunctionShape).decode
_NULL = Raw(b"null")
_read_custom = Reader[CustomShape](CustomShape, FAMILY).read
_read_namespace = Reader[NamespaceShape](NamespaceShape, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode
_seen: Repeated[bytes, FunctionTool] = Repeated()


# ---- decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, raw in enumerate(tools):
        text = bytes(raw)
        tool: Tool | None = _seen.get(text)
        if tool is None:
            tool = decode_tool(Raw(text), f"{path}/{index}")
            if type(tool) is FunctionTool and tool.extras is None:
                _seen.keep(text, tool, len(text))
        found.append(tool)
    return tuple(found)


def decode_tool(raw: Raw, path: str = "") -> Tool:
    try:
        shape = _function(raw)
    except BAD_JSON:
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
        description=known(shape.description),
        parameters=None if null else known(shape.parameters),
        strict=known(shape.strict),
        defer=known(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        asynchronous=known(shape.asynchronous),
        output_schema=known(shape.output_schema),
        **rest(shape, FAMILY, *((f"{FAMILY}:null:parameters",) if null else ())),
    )


def _decode_custom(shape: CustomShape) -> FreeformTool:
    grammar = None
    form: tuple[str, ...] = ()
    callers, wanted = shape.allowed_callers, shape.format
    kept = rest(shape, FAMILY)
    if wanted is not UNSET:
        known_word = wanted.type in ("text", "grammar")
        form = (_FORMAT + str(wanted.type) if known_word else _FORMAT,)
        kept = with_more(kept, rest(wanted, FAMILY, under="format/"))
        if not known_word:
            kept = with_more(kept, beside(wanted, ("type",), under="format/"))
        if wanted.syntax is not UNSET and wanted.definition is not UNSET:
            grammar = Grammar(syntax=wanted.syntax, definition=wanted.definition, at="/format")
        else:
            kept = with_more(kept, beside(wanted, ("syntax", "definition"), under="format/"))
    return FreeformTool(
        name=shape.name,
        description=known(shape.description),
        grammar=grammar,
        defer=known(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        asynchronous=known(shape.asynchronous),
        **with_more(kept, {"form": form}),
    )


def with_more(kept: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    extras = {**kept.get("extras", {}).get(FAMILY, {}), **more.get("extras", {}).get(FAMILY, {})}
    form = kept.get("form", ()) + more.get("form", ())
    return ({"extras": {FAMILY: extras}} if extras else {}) | ({"form": form} if form else {})


def beside(shape: Wire, names: tuple[str, ...], under: str = "") -> dict[str, Any]:
    """Known fields that have no meaning where they stand, as extras."""
    found = {name: getattr(shape, name) for name in names if getattr(shape, name) is not UNSET}
    extras = {under + name: Raw(msgspec.json.encode(value)) for name, value in found.items()}
    return {"extras": {FAMILY: extras}} if extras else {}


def _decode_namespace(shape: NamespaceShape, raw: Raw, path: str) -> ToolGroup | NativeTool:
    tools = decode_tools(shape.tools, f"{path}/tools")
    usual = tuple([tool for tool in tools if isinstance(tool, FunctionTool | FreeformTool)])
    if len(usual) < len(tools):
        return NativeTool(protocol=FAMILY, kind="namespace", name=shape.name, body=raw)
    return ToolGroup(name=shape.name, description=known(shape.description), tools=usual, **rest(shape, FAMILY))


def _decode_native(raw: Raw, kind: str, members: dict[str, Raw], path: str) -> NativeTool:
    kind = _DATED.sub("", kind)
    name = _decode(members.get("server_label", b"null"))
    client = kind in _CLIENT_RUN
    if kind == "tool_search":
        client = _decode(members.get("execution", b"null")) == "client"
    elif kind == "shell":
        environment = object_of(_decode(members.get("environment", b"null")))
        client = environment.get("type", "local") == "local"
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=name if isinstance(name, str) else None,
        executor="client" if client else "server",
        body=raw,
        hosted=decode_hosted(kind, raw, HOSTED),
        server=decode_server(raw, path) if kind == "mcp" else None,
        computer=decode_computer(kind, raw),
    )


# ---- encode


def encode_tools(request: Request, plan: ItemPlan) -> list[Any] | None:
    plan.request = request
    if request.tools is None:
        return None
    plan.searches = plan.home or any(map(finds_tools, request.tools))
    encoded: list[Any] = []
    groups: dict[str, list[Any]] = {}
    for index, tool in enumerate(request.tools):
        plan.place = f"/tools/{len(encoded)}"
        wire = encode_tool(tool, ("tools", index), plan)
        namespace = getattr(tool, "namespace", None)
        if wire is None or (wire == _SEARCH and wire in encoded):
            continue
        if namespace is None:
            encoded.append(wire)
        elif namespace in groups:
            groups[namespace].append(wire)
        else:
            groups[namespace] = [wire]
            encoded.append(NamespaceShape(type="namespace", name=namespace, description="", tools=groups[namespace]))
    return encoded if encoded or plan.home else None


def encode_tool(tool: Tool | ToolRef, trail: Trail, plan: ItemPlan) -> Any:
    match tool:
        case FunctionTool():
            return _encode_function(tool, trail, plan)
        case FreeformTool():
            return _encode_custom(tool, trail, plan)
        case ToolGroup():
            members = [encode_tool(one, (*trail, "tools", i), plan) for i, one in enumerate(tool.tools)]
            about = given(tool.description) if plan.home or tool.description is not None else ""
            return emit(
                NamespaceShape(type="namespace", name=tool.name, tools=members, description=about), tool, FAMILY
            )
        case NativeTool():
            if tool.protocol == FAMILY:
                return tool.body
            if tool.hosted is not None and is_native(tool, HOSTED):
                return _encode_hosted(tool, trail, plan)
            if (server := connector(tool)) is not None:
                return encode_server(server, trail, plan)
            if finds_tools(tool) and not (plan.request is not None and is_demanded(tool, plan.request)):
                plan.report.approximated(trail, "", OWN_SEARCH)
                return _SEARCH
            without_native(PlacedTool(tool, trail), plan, connects=True)
            return None
        case ToolRef(kind="server"):
            plan.report.dropped(trail, "", "the target has no tools of servers")
            return None
        case ToolRef():
            plan.report.approximated(trail, "", "a tool that comes later is declared from the start")
            return None


def _encode_hosted(tool: NativeTool, trail: Trail, plan: ItemPlan) -> dict[str, Any]:
    bounds = encode_hosted(tool, trail, HOSTED, plan)
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter", "container": {"type": "auto"}, **bounds}
    return {"type": "web_search", **bounds}


def _encode_function(tool: FunctionTool, trail: Trail, plan: ItemPlan) -> Any:
    if plan.home:
        schema = given(tool.parameters)
        strict: Any = given(tool.strict)
    else:
        # Said always: left out, the server tries strict, and makes optional parameters required.
        schema, strict = (whole := _schema(tool, trail, plan)), False
        if tool.strict:
            schema, strict = fitted_strictly(whole, STRICT, plan.report, trail, "parameters")
            if schema is not whole and tool.namespace is None:
                plan.tools.completed(tool)
    shape = FunctionShape(
        type="function",
        name=_declare(tool, trail, plan),
        description=given(tool.description),
        parameters=schema,
        strict=strict,
        defer_loading=_encode_defer(tool, trail, plan),
        allowed_callers=_encode_callers(tool, trail, plan),
        output_schema=given(tool.output_schema),
        asynchronous=given(tool.asynchronous),
    )
    return emit(shape, tool, FAMILY)


def _declare(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> str:
    if plan.home:
        return tool.name
    if tool.cache is not None:
        plan.report.dropped(trail, "cache", "the target marks no tools")
    return plan.tools.declare(replace(tool, namespace=None), trail, plan.report)


def _encode_callers(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> Any:
    callers = tool.allowed_callers
    if plan.home or callers is None or set(callers) <= {"direct", "programmatic"}:
        return UNSET if callers is None else list(callers)
    usable_callers(tool, trail, plan.report)
    return ["direct"] if "direct" in callers else UNSET


def _encode_defer(tool: FunctionTool | FreeformTool, trail: Trail, plan: ItemPlan) -> Any:
    if tool.defer and not plan.searches:
        plan.report.approximated(trail, "defer", "nothing would load it later: it is there from the start")
        return UNSET
    return given(tool.defer)


def _schema(tool: FunctionTool, trail: Trail, plan: Plan) -> Raw:
    """The schema of another protocol's tool, as an object with properties, which this provider insists on."""
    if tool.parameters is None:
        why = "a schema is required: an empty object was declared"
        plan.report.invented(trail, "parameters", f"{plan.place}/parameters", why)
        return EMPTY_SCHEMA
    try:
        members = _members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(trail, "parameters", "not an object schema")
        return EMPTY_SCHEMA
    untyped = "type" not in members
    bare = not untyped and _decode(members["type"]) == "object" and not _is_object(members.get("properties"))
    bare = bare and not _COMPOSED & members.keys()
    if not untyped and not bare:
        return tool.parameters
    plan.report.approximated(trail, "parameters", "the target wants an object with properties")
    whole: dict[str, Any] = {"type": "object", **members}
    if bare or members.keys() <= {"properties"}:
        whole["properties"] = {}
    return Raw(msgspec.json.encode(whole))


def _is_object(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw)[:1] == b"{"


def _encode_custom(tool: FreeformTool, trail: Trail, plan: ItemPlan) -> Any:
    wanted: Any = UNSET
    word = next((token[len(_FORMAT) :] for token in tool.form if token.startswith(_FORMAT)), None)
    if tool.grammar is not None:
        grammar = tool.grammar
        kind = "grammar" if word is None else word or UNSET
        wanted = GrammarShape(type=kind, syntax=grammar.syntax, definition=grammar.definition)
    elif word is not None:
        wanted = GrammarShape(type=word or UNSET)
    shape = CustomShape(
        type="custom",
        name=_declare(tool, trail, plan),
        description=given(tool.description),
        format=wanted,
        defer_loading=_encode_defer(tool, trail, plan),
        allowed_callers=_encode_callers(tool, trail, plan),
        asynchronous=given(tool.asynchronous),
    )
    return emit(shape, tool, FAMILY)
