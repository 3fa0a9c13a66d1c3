"""Anthropic's MCP connector, to canonical servers and back: a server, and apart from it the toolset that offers it.

Anthropic's tool declarations and tool choice, to canonical and back.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    CacheMark,
    FreeformTool,
    FunctionTool,
    McpServer,
    NativeTool,
    Tool,
    ToolChoice,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.encoding.hosted_tools import (
    TOOLS_RESTRICTED,
    HostedToolNames,
    choosable_tools,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    is_required,
    portable_server,
    report_missing_native,
    report_unportable_settings,
    server_token,
    string_tuple,
    unread_settings,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import (
    TARGET_HAS_TOOL_SEARCH,
    LocatedTool,
    flatten_tool,
    freeform_description,
    freeform_schema,
    is_allowed,
    is_tool_search,
    report_allowed_callers,
    report_validated_choice,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.wire.extras import (
    collect_extras,
    encode_with_extras,
    mark_extras_seen,
    merge_extras,
    none_to_unset,
    track_extras,
    unset_to_none,
)
from toolwire.codec.wire.memo import BoundedMemo
from toolwire.codec.wire.reader import Reader, decode_json, describe_json, tag_of
from toolwire.protocols.anthropic.computer import SINGLE_TOOL, decode_computer
from toolwire.protocols.anthropic.fields import STRICT_SCHEMA, refuses_forced_choice, refuses_strict
from toolwire.protocols.anthropic.wire import FAMILY, CacheShape, ChoiceShape, ToolShape

MCP_BETA_HEADER = ("anthropic-beta", "mcp-client-2025-11-20")
REPRESENTED_SERVERS = f"{FAMILY}:canonical:mcp_servers"
"""All servers are those of toolsets, and so are told with them."""

_MCP_TOOLSET = "mcp_toolset"
_TOOLSET_FIELDS = ("type", "mcp_server_name", "default_config/enabled")
_SERVER_FIELDS = ("type", "name", "url", "authorization_token", "tool_configuration/enabled")


# ---- decode


def attach_servers(tools: tuple[Tool, ...], servers: Raw | UnsetType) -> tuple[Tool, ...]:
    """The tools, each toolset with its server; as they are if a server has none, or several."""
    if not isinstance(servers, Raw) or not isinstance(entries := decode_json(servers), list):
        return tools
    toolsets = {
        index: decode_json(tool.body)
        for index, tool in enumerate(tools)
        if isinstance(tool, NativeTool) and tool.kind == _MCP_TOOLSET
    }
    if not all(map(_is_server, entries)):
        return tools
    names = [one["name"] for one in entries]
    if sorted(names) != sorted(str(one.get("mcp_server_name")) for one in toolsets.values()):
        return tools
    made = list(tools)
    for index, toolset in toolsets.items():
        number = names.index(toolset["mcp_server_name"])
        made[index] = replace(made[index], server=_decode_server(entries[number], number, toolset, index))
    return tuple(made)


def has_servers(tools: tuple[Tool, ...] | None) -> bool:
    if NativeTool not in map(type, tools or ()):
        return False
    return any(isinstance(tool, NativeTool) and tool.server is not None for tool in tools or ())


def _is_server(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("type") != "url":
        return False
    if not isinstance(entry.get("authorization_token"), str | None):
        return False
    return all(isinstance(entry.get(key), str) for key in ("name", "url"))


def _decode_server(entry: dict[str, Any], number: int, toolset: dict[str, Any], index: int) -> McpServer:
    here, there = f"/mcp_servers/{number}", f"/tools/{index}"
    older = _object_or_empty(entry.get("tool_configuration"))
    names, unportable = _allowed_tools(toolset)
    known = [f"{here}/{key}" for key in _SERVER_FIELDS] + [f"{there}/{key}" for key in _TOOLSET_FIELDS]
    known += [f"{there}/configs/{name}/enabled" for name in _object_or_empty(toolset.get("configs"))]
    known += [f"{there}/tools/{place}/name" for place in range(len(toolset.get("tools") or ()))]
    if older.get("enabled") is False:
        unportable = TOOLS_RESTRICTED
    if (also := string_tuple(older.get("allowed_tools"))) is not None:
        names = also if names is None else tuple([name for name in names if name in also])
        known.append(f"{here}/tool_configuration/allowed_tools")
    return McpServer(
        name=entry["name"],
        url=entry["url"],
        authorization=entry.get("authorization_token"),
        allowed=names,
        unportable=unportable,
        others=(*unread_settings(entry, here, known), *unread_settings(toolset, there, known)),
        wire_form=(f"{FAMILY}:name:allowed={there}",),
        at=f"/{here}",
    )


def _allowed_tools(toolset: dict[str, Any]) -> tuple[tuple[str, ...] | None, str | None]:
    """The only tools that may be called, None for all; and why no other vendor can be told so."""
    usually = _object_or_empty(toolset.get("default_config")).get("enabled", True)
    said = {
        name: _object_or_empty(one).get("enabled", usually)
        for name, one in _object_or_empty(toolset.get("configs")).items()
    }
    pinned = toolset.get("tools")
    if pinned is not None:
        listed = [one.get("name") if isinstance(one, dict) else None for one in pinned]
        return tuple([name for name in listed if isinstance(name, str) and said.get(name, usually)]), None
    if not usually:
        return tuple([name for name, enabled in said.items() if enabled]), None
    return None, None if all(said.values()) else TOOLS_RESTRICTED


def _object_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- encode


def encode_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """The toolset; the server itself waits in the plan."""
    report_unportable_settings(server, plan)
    if server.description is not None:
        plan.report.dropped((*path, "server"), "description")
    entry = {"type": "url", "name": server.name, "url": server.url}
    if (token := server_token(server, path, plan)) is not None:
        entry["authorization_token"] = token
    plan.mcp_servers.append(entry)
    toolset: dict[str, Any] = {"type": _MCP_TOOLSET, "mcp_server_name": server.name}
    if server.allowed is not None:
        toolset["default_config"] = {"enabled": False}
        toolset["configs"] = {name: {"enabled": True} for name in server.allowed}
    return toolset


_COMPUTER_BETA = "computer-use-2025-11-24"
"""Without it the provider does not know the tool that is no toolset."""


def beta_headers(*, has_connectors: bool, tools: tuple[Tool, ...] | None) -> tuple[tuple[str, str], ...]:
    """The header that a request needs for what it declares, if it came from another protocol."""
    single = any(
        isinstance(tool, NativeTool) and tool.protocol == FAMILY and tool.kind == SINGLE_TOOL for tool in tools or ()
    )
    words = ([MCP_BETA_HEADER[1]] if has_connectors else []) + ([_COMPUTER_BETA] if single else [])
    return ((MCP_BETA_HEADER[0], ",".join(words)),) if words else ()


MAX_CACHE_MARKS = 4
_NULL = Raw(b"null")
EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')

_VERSION_SUFFIX = re.compile(r"_\d{8}$")
_TOOL_VERSIONS = {"web_search": "20250305", "web_fetch": "20250910", "code_execution": "20250825"}
_SEARCH_LIMITS = {"max_uses": "max_uses", "allowed_domains": "allowed_domains", "blocked_domains": "blocked_domains"}
HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web_search",), "web_fetch": ("web_fetch",), "code_execution": ("code_execution",)},
    option_pointers={
        "web_search": {**_SEARCH_LIMITS, "location": "user_location"},
        "web_fetch": {**_SEARCH_LIMITS, "max_content_tokens": "max_content_tokens"},
    },
    single_domain_filter=True,
)
_TOOL_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
# Claude Code declares it beside its own search: it "keeps deferred tool loading active; never call this tool".
_DEFERRED_PLACEHOLDER = "DeferredToolPlaceholder"
_CLIENT_TOOLS = ("bash", "text_editor", "memory", "computer", "computer_toolset", "browser_toolset")

_decode_typed_tool = msgspec.json.Decoder(ToolShape).decode
_read_tool = Reader[ToolShape](ToolShape, FAMILY).read
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_tool_memo: BoundedMemo[bytes, Tool] = BoundedMemo()

# ---- decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, raw in enumerate(tools):
        text = bytes(raw)
        if (tool := _tool_memo.get(text)) is None:
            with track_extras() as extras:
                tool = decode_tool(Raw(text), f"{path}/{index}")
            if extras:
                mark_extras_seen()
            else:
                _tool_memo.put(text, tool, len(text))
        found.append(tool)
    return tuple(found)


def decode_tool(raw: Raw, path: str = "") -> FunctionTool | NativeTool:
    try:
        shape = _decode_typed_tool(raw)
    except msgspec.ValidationError:
        kind = tag_of(raw)
        if kind is not None and kind != "custom":
            return _decode_native(raw, kind, path)
        if kind is None and bytes(raw)[:1] == b"{" and "type" in _decode_members(raw):
            raise DecodeError(FAMILY, f"{path}/type", "a string", describe_json(_decode_members(raw)["type"])) from None
        shape = _read_tool(raw, path)
    if shape.type not in (UNSET, "custom"):
        return _decode_native(raw, str(shape.type), path)
    if shape.name == _DEFERRED_PLACEHOLDER and shape.defer_loading is True:
        return NativeTool(protocol=FAMILY, kind="placeholder", name=shape.name, executor="nobody", body=raw)
    return _decode_function(shape)


def _decode_function(shape: ToolShape) -> FunctionTool:
    callers = shape.allowed_callers
    form = () if shape.type is UNSET else ("anthropic:type:custom",)
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=shape.input_schema,
        strict=unset_to_none(shape.strict),
        defer=unset_to_none(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        cache=decode_cache(shape.cache_control),
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_native(raw: Raw, kind: str, path: str) -> NativeTool:
    kind, date = _VERSION_SUFFIX.sub("", kind), kind[-8:]
    name = _decode_members(raw).get("name")
    if name is not None and bytes(name)[:1] != b'"':
        raise DecodeError(FAMILY, f"{path}/name", "a string", describe_json(name))
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=None if name is None else str(msgspec.json.decode(name)),
        executor="client" if kind in _CLIENT_TOOLS else "server",
        body=raw,
        hosted=decode_hosted_tool(kind, raw, HOSTED_TOOLS),
        computer=decode_computer(kind, date, raw),
    )


def decode_cache(shape: CacheShape | UnsetType) -> CacheMark | None:
    if shape is UNSET:
        return None
    kept = collect_extras(shape, FAMILY)
    if shape.type != "ephemeral":
        kept = merge_extras(kept, {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(shape.type))}}})
    return CacheMark(ttl=unset_to_none(shape.ttl), **kept)


def decode_choice(shape: ChoiceShape) -> ToolChoice:
    parallel = None if shape.disable_parallel_tool_use is UNSET else not shape.disable_parallel_tool_use
    kept = collect_extras(shape, FAMILY)
    match shape.type:
        case "any":
            return ToolChoice(mode="required", parallel=parallel, **kept)
        case "tool":
            if shape.name is UNSET:
                raise DecodeError(FAMILY, "/tool_choice/name", "a string", "nothing")
            named = ToolRef(name=shape.name, at="/name")
            return ToolChoice(mode="named", names=(named,), parallel=parallel, **kept)
        case "none":
            return ToolChoice(mode="none", parallel=parallel, **kept)
        case "auto":
            return ToolChoice(mode="auto", parallel=parallel, **kept)
        case other:
            raise DecodeError(FAMILY, "/tool_choice/type", "auto, any, tool or none", repr(other))


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> list[Any] | None:
    if plan.same_protocol:
        tools = request.tools
        return (
            None
            if tools is None
            else [_encode_same_protocol_tool(tool, ("tools", i), plan) for i, tool in enumerate(tools)]
        )
    plan.request = request
    for index, group in enumerate(request.tools or ()):
        if isinstance(group, ToolGroup) and group.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    plan.can_search_tools = any(is_tool_search(placed.tool) for placed in plan.offered_tools(request))
    offered: list[Any] = []
    for placed in choosable_tools(request, plan):
        plan.output_pointer = f"/tools/{len(offered)}"
        if is_allowed(placed, request, plan.report) and (tool := encode_tool(placed, plan)) is not None:
            offered.append(tool)
    return offered or None


def _encode_same_protocol_tool(tool: Tool, path: SourcePath, plan: EncodingPlan) -> Any:
    (placed,) = flatten_tool(tool, path)
    return encode_tool(placed, plan)


def encode_tool(located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    tool = located_tool.tool
    if isinstance(tool, NativeTool):
        if tool.protocol == FAMILY:
            return tool.body
        if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
            kind = tool.hosted.kind
            if kind in plan.hosted_kinds:
                plan.report.dropped(located_tool.path, "", f"the target has one {kind} tool, which is declared already")
                return None
            plan.hosted_kinds.add(kind)
            return {
                "type": f"{kind}_{_TOOL_VERSIONS[kind]}",
                "name": kind,
                **encode_hosted_options(tool, located_tool.path, HOSTED_TOOLS, plan),
            }
        if (server := portable_server(tool)) is not None:
            return encode_server(server, located_tool.path, plan)
        if is_tool_search(tool) and not (plan.request is not None and is_required(tool, plan.request)):
            plan.report.approximated(located_tool.path, "", TARGET_HAS_TOOL_SEARCH)
            return _TOOL_SEARCH
        report_missing_native(located_tool, plan, has_connectors=True)
        return None
    return _encode_function(tool, located_tool.path, plan)


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    name = tool.name
    callers: tuple[str, ...] | None = tool.allowed_callers
    deferred: bool | UnsetType = none_to_unset(tool.defer)
    if not plan.same_protocol:
        name = plan.tools.declare(tool, path, plan.report)
        report_allowed_callers(tool, path, plan.report)
        callers = None
        if tool.asynchronous:
            plan.report.dropped(path, "asynchronous")
        # It stays so when it was found: the provider binds thinking to the tools as they were.
        deferred = True if tool.defer and plan.can_search_tools and path[0] == "tools" and tool.cache is None else UNSET
        if tool.defer and not deferred:
            plan.report.approximated(path, "defer", "nothing would load it later: it is there from the start")
    if isinstance(tool, FreeformTool):
        schema, strict = freeform_schema(), None
        description: str | None = freeform_description(tool) or None
    else:
        schema, strict, description = _encode_schema(tool, path, plan), tool.strict, tool.description
        if strict and not plan.same_protocol and refuses_strict(plan.target.model or ""):
            plan.report.approximated(path, "strict", "the model can't be held to a schema: it is told")
            strict = None
        elif strict and not plan.same_protocol:
            schema, strict = fit_strictly_and_report(schema, STRICT_SCHEMA, plan.report, path, "parameters")
        if tool.output_schema is not None:
            plan.report.dropped(path, "output_schema")
    shape = ToolShape(
        name=name,
        input_schema=schema,
        type="custom" if "anthropic:type:custom" in tool.wire_form else UNSET,
        description=none_to_unset(description),
        strict=none_to_unset(strict),
        defer_loading=deferred,
        allowed_callers=UNSET if callers is None else list(callers),
        cache_control=encode_cache(tool.cache, path, plan),
    )
    return encode_with_extras(shape, tool, FAMILY)


def _encode_schema(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> Raw:
    """The schema; for another protocol's tool one that says `object`, which this provider insists on."""
    if tool.parameters is None:
        why = "a schema is required: an empty object was declared"
        plan.report.added(path, "parameters", f"{plan.output_pointer}/input_schema", why)
        return EMPTY_SCHEMA
    if plan.same_protocol:
        return tool.parameters
    try:
        members = _decode_members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(path, "parameters", "not an object schema")
        return EMPTY_SCHEMA
    complete: dict[str, Any] = {"type": Raw(b'"object"'), **members}
    if complete.keys() <= {"type", "properties"} and complete.get("properties", _NULL) == _NULL:
        complete["properties"] = {}
    if complete == members:
        return tool.parameters
    plan.report.approximated(path, "parameters", "completed to the schema of an object")
    return Raw(msgspec.json.encode(complete))


def encode_cache(cache: CacheMark | None, path: SourcePath, plan: EncodingPlan) -> Any:
    """A mark; for another protocol's request at most as many as the provider takes, and for as long as it keeps."""
    if cache is None:
        return UNSET
    if not plan.same_protocol:
        plan.cache_marks += 1
        if plan.cache_marks > MAX_CACHE_MARKS:
            plan.report.dropped((*path, "cache"), "", f"the target takes {MAX_CACHE_MARKS} marks")
            return UNSET
        if cache.ttl not in (None, "5m", "1h"):
            plan.report.approximated((*path, "cache"), "ttl", f"{cache.ttl} is told as 1h")
            return CacheShape(type="ephemeral", ttl="1h")
    shape = encode_with_extras(CacheShape(type="ephemeral", ttl=none_to_unset(cache.ttl)), cache, FAMILY)
    if cache.extras and "type" in cache.extras.get(FAMILY, {}):
        shape["type"] = cache.extras[FAMILY]["type"]
    return shape


def encode_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    """The choice, or UNSET. Without tools there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    if choice is None:
        return UNSET
    report_validated_choice(choice, plan.report)
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        if choice.parallel is not None:
            plan.report.dropped(("tool_choice",), "parallel", "there are no tools to call")
        return UNSET
    mode = choice.mode
    if (
        not plan.same_protocol
        and mode in ("required", "named")
        and refuses_forced_choice(plan.target.model or request.model or "")
    ):
        plan.report.approximated(("tool_choice",), "mode", "the model can't be forced to call: it may choose")
        mode = "auto"
    match mode:
        case "required":
            shape = ChoiceShape(type="any")
        case "none":
            shape = ChoiceShape(type="none")
        case "named":
            shape = _encode_named_choice(request, choice, plan)
        case "allowed" if (hosted := _forced_hosted_tool(request, plan)) is not None:
            shape = ChoiceShape(type="tool", name=hosted)
        case "allowed":
            why = "the target can't choose among some: only those are offered"
            plan.report.approximated(("tool_choice",), "names", why)
            shape = ChoiceShape(type="any" if choice.required else "auto")
        case _:
            shape = ChoiceShape(type="auto")
    if choice.parallel is not None and (plan.same_protocol or mode != "none"):
        shape.disable_parallel_tool_use = not choice.parallel
    return encode_with_extras(shape, choice, FAMILY)


def _forced_hosted_tool(request: Request, plan: EncodingPlan) -> str | None:
    """The hosted tool that another protocol's choice demands, if it is here."""
    tool = None if plan.same_protocol else chosen_native_tool(request)
    return tool.hosted.kind if tool is not None and tool.hosted and has_native(tool, HOSTED_TOOLS) else None


def _encode_named_choice(request: Request, choice: ToolChoice, plan: EncodingPlan) -> ChoiceShape:
    named = choice.names[0]
    if (hosted := _forced_hosted_tool(request, plan)) is not None:
        return ChoiceShape(type="tool", name=hosted)
    if named.kind == "server" and not plan.same_protocol:
        why = "a server's tool can't be forced by its name: some tool is to be called"
        plan.report.approximated(("tool_choice",), "names", why)
        return ChoiceShape(type="any")
    if named.kind == "native" and not plan.same_protocol:
        plan.report.approximated(("tool_choice",), "names", "the target lacks this tool: any tool may be chosen")
        return ChoiceShape(type="auto")
    return ChoiceShape(type="tool", name=plan.tool_name(named.name, named.namespace))
