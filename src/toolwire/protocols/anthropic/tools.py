"""Decode and encode tool declarations, tool choice, cache marks and the MCP connector.

The MCP connector lists a server in `mcp_servers` and, apart from it, the `mcp_toolset` that offers its tools.
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
    ToolRef,
)
from toolwire.codec.encoding.hosted_tools import (
    TOOLS_RESTRICTED,
    HostedToolNames,
    accepts_native,
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
    report_group_descriptions,
    report_validated_choice,
)
from toolwire.codec.losses import SourcePath
from toolwire.codec.memo import DecodedToolsMemo
from toolwire.codec.models.claude import refuses_forced_choice, refuses_strict
from toolwire.codec.schema.moonshot import fit_moonshot_schema
from toolwire.codec.schema.rewriter import fit_strictly_and_report
from toolwire.codec.validation import object_of
from toolwire.codec.wire.extras import (
    collect_extras,
    encode_with_extras,
    merge_extras,
    none_to_unset,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, decode_json, decode_members, describe_json, tag_of
from toolwire.protocols.anthropic.computer import SINGLE_TOOL, decode_computer
from toolwire.protocols.anthropic.fields import STRICT_SCHEMA
from toolwire.protocols.anthropic.wire import FAMILY, CacheShape, ChoiceShape, ToolShape

MCP_BETA_HEADER = ("anthropic-beta", "mcp-client-2025-11-20")
REPRESENTED_SERVERS = f"{FAMILY}:canonical:mcp_servers"
"""Wire form of a request whose `mcp_servers` are all attached to toolsets."""

_MCP_TOOLSET = "mcp_toolset"
_TOOLSET_FIELDS = ("type", "mcp_server_name", "default_config/enabled")
_SERVER_FIELDS = ("type", "name", "url", "authorization_token", "tool_configuration/enabled")


# ---- MCP connector: decode


def attach_servers(tools: tuple[Tool, ...], servers: Raw | UnsetType) -> tuple[Tool, ...]:
    """Attach each entry of `mcp_servers` to its toolset; return the tools unchanged unless they match one to one."""
    if not isinstance(servers, Raw) or not isinstance(entries := decode_json(servers), list):
        return tools
    toolsets = {
        index: decode_json(tool.body)
        for index, tool in enumerate(tools)
        if isinstance(tool, NativeTool) and tool.kind == _MCP_TOOLSET
    }
    if not all(map(_is_server, entries)):
        return tools
    names = [entry["name"] for entry in entries]
    if sorted(names) != sorted(str(entry.get("mcp_server_name")) for entry in toolsets.values()):
        return tools
    attached = list(tools)
    for index, toolset in toolsets.items():
        server_index = names.index(toolset["mcp_server_name"])
        attached[index] = replace(
            attached[index], server=_decode_server(entries[server_index], server_index, toolset, index)
        )
    return tuple(attached)


def has_servers(tools: tuple[Tool, ...] | None) -> bool:
    """Tell whether a toolset with a server is among the tools."""
    if NativeTool not in map(type, tools or ()):
        return False
    return any(isinstance(tool, NativeTool) and tool.server is not None for tool in tools or ())


def _is_server(entry: Any) -> bool:
    """Tell whether an element of `mcp_servers` is a URL server with a name, as far as its types go."""
    if not isinstance(entry, dict) or entry.get("type") != "url":
        return False
    if not isinstance(entry.get("authorization_token"), str | None):
        return False
    return all(isinstance(entry.get(key), str) for key in ("name", "url"))


def _decode_server(entry: dict[str, Any], server_index: int, toolset: dict[str, Any], toolset_index: int) -> McpServer:
    """Decode an element of `mcp_servers` together with its toolset; the indices locate both in the request."""
    server_path, toolset_path = f"/mcp_servers/{server_index}", f"/tools/{toolset_index}"
    configuration = object_of(entry.get("tool_configuration"))
    names, unportable = _allowed_tools(toolset)
    read_paths = [f"{server_path}/{key}" for key in _SERVER_FIELDS] + [
        f"{toolset_path}/{key}" for key in _TOOLSET_FIELDS
    ]
    read_paths += [f"{toolset_path}/configs/{name}/enabled" for name in object_of(toolset.get("configs"))]
    read_paths += [f"{toolset_path}/tools/{tool_index}/name" for tool_index in range(len(toolset.get("tools") or ()))]
    if configuration.get("enabled") is False:
        unportable = TOOLS_RESTRICTED
    if (configured_names := string_tuple(configuration.get("allowed_tools"))) is not None:
        names = configured_names if names is None else tuple([name for name in names if name in configured_names])
        read_paths.append(f"{server_path}/tool_configuration/allowed_tools")
    return McpServer(
        name=entry["name"],
        url=entry["url"],
        authorization=entry.get("authorization_token"),
        allowed=names,
        unportable=unportable,
        others=(*unread_settings(entry, server_path, read_paths), *unread_settings(toolset, toolset_path, read_paths)),
        wire_form=(f"{FAMILY}:name:allowed={toolset_path}",),
        at=f"/{server_path}",
    )


def _allowed_tools(toolset: dict[str, Any]) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the only tools of a toolset that may be called, None for all.

    The second value is the reason why the restriction has no equivalent elsewhere, None if it has one.
    """
    enabled_by_default = object_of(toolset.get("default_config")).get("enabled", True)
    enabled_tools = {
        name: object_of(config).get("enabled", enabled_by_default)
        for name, config in object_of(toolset.get("configs")).items()
    }
    listed_tools = toolset.get("tools")
    if listed_tools is not None:
        listed_names = [config.get("name") if isinstance(config, dict) else None for config in listed_tools]
        return tuple(
            [name for name in listed_names if isinstance(name, str) and enabled_tools.get(name, enabled_by_default)]
        ), None
    if not enabled_by_default:
        return tuple([name for name, is_enabled in enabled_tools.items() if is_enabled]), None
    return None, None if all(enabled_tools.values()) else TOOLS_RESTRICTED


# ---- MCP connector: encode


def encode_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Return the toolset that declares an MCP server, and add the server itself to the plan."""
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
"""The provider rejects the single `computer` tool without this beta."""


def beta_headers(*, has_connectors: bool, tools: tuple[Tool, ...] | None) -> tuple[tuple[str, str], ...]:
    """Return the `anthropic-beta` header that tools of another protocol's request need, or an empty tuple."""
    has_single_tool = any(
        type(tool) is NativeTool and tool.protocol == FAMILY and tool.kind == SINGLE_TOOL for tool in tools or ()
    )
    betas = ([MCP_BETA_HEADER[1]] if has_connectors else []) + ([_COMPUTER_BETA] if has_single_tool else [])
    return ((MCP_BETA_HEADER[0], ",".join(betas)),) if betas else ()


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
# Claude Code declares it beside its own search; it "keeps deferred tool loading active; never call this tool".
_DEFERRED_PLACEHOLDER = "DeferredToolPlaceholder"
_CLIENT_TOOLS = ("bash", "text_editor", "memory", "computer", "computer_toolset", "browser_toolset")

_decode_typed_tool = msgspec.json.Decoder(ToolShape).decode
_read_tool = Reader[ToolShape](ToolShape, FAMILY).read
_tools_memo = DecodedToolsMemo[Tool](FunctionTool, NativeTool)

# ---- decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    """Decode tool declarations; they are cached."""
    return _tools_memo.decode(tools, path, decode_tool)


def decode_tool(raw: Raw, path: str = "") -> FunctionTool | NativeTool:
    """Decode one tool declaration."""
    try:
        shape = _decode_typed_tool(raw)
    except msgspec.ValidationError:
        kind = tag_of(raw)
        if kind is not None and kind != "custom":
            return _decode_native(raw, kind, path)
        if kind is None and bytes(raw)[:1] == b"{" and "type" in decode_members(raw):
            raise DecodeError(FAMILY, f"{path}/type", "a string", describe_json(decode_members(raw)["type"])) from None
        shape = _read_tool(raw, path)
    if shape.type not in (UNSET, "custom"):
        return _decode_native(raw, str(shape.type), path)
    if shape.name == _DEFERRED_PLACEHOLDER and shape.defer_loading is True:
        return NativeTool(protocol=FAMILY, kind="placeholder", name=shape.name, executor="nobody", body=raw)
    return _decode_function(shape)


def _decode_function(shape: ToolShape) -> FunctionTool:
    """Decode a tool that the client defines."""
    callers = shape.allowed_callers
    wire_form = () if shape.type is UNSET else ("anthropic:type:custom",)
    return FunctionTool(
        name=shape.name,
        description=unset_to_none(shape.description),
        parameters=shape.input_schema,
        strict=unset_to_none(shape.strict),
        defer=unset_to_none(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        cache=decode_cache(shape.cache_control),
        **collect_extras(shape, FAMILY, *wire_form),
    )


def _decode_native(raw: Raw, kind: str, path: str) -> NativeTool:
    """Decode a tool that Anthropic defines, whose type ends with a version date."""
    kind, date = _VERSION_SUFFIX.sub("", kind), kind[-8:]
    name = decode_members(raw).get("name")
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
    """Decode `cache_control`."""
    if shape is UNSET:
        return None
    extras = collect_extras(shape, FAMILY)
    if shape.type != "ephemeral":
        extras = merge_extras(extras, {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(shape.type))}}})
    return CacheMark(ttl=unset_to_none(shape.ttl), **extras)


def decode_choice(shape: ChoiceShape) -> ToolChoice:
    """Decode `tool_choice`."""
    parallel = None if shape.disable_parallel_tool_use is UNSET else not shape.disable_parallel_tool_use
    extras = collect_extras(shape, FAMILY)
    match shape.type:
        case "any":
            return ToolChoice(mode="required", parallel=parallel, **extras)
        case "tool":
            if shape.name is UNSET:
                raise DecodeError(FAMILY, "/tool_choice/name", "a string", "nothing")
            tool = ToolRef(name=shape.name, at="/name")
            return ToolChoice(mode="named", names=(tool,), parallel=parallel, **extras)
        case "none":
            return ToolChoice(mode="none", parallel=parallel, **extras)
        case "auto":
            return ToolChoice(mode="auto", parallel=parallel, **extras)
        case other:
            raise DecodeError(FAMILY, "/tool_choice/type", "auto, any, tool or none", repr(other))


# ---- encode


def encode_tools(request: Request, plan: EncodingPlan) -> list[Any] | None:
    """Encode the tools, None if there are none."""
    plan.request = request
    if plan.same_protocol:
        return _encode_anthropic_tools(request, plan)
    report_group_descriptions(request, plan.report)
    plan.can_search_tools = any(is_tool_search(located.tool) for located in plan.offered_tools(request))
    tools: list[Any] = []
    for located in choosable_tools(request, plan):
        plan.output_pointer = f"/tools/{len(tools)}"
        if is_allowed(located, request, plan.report) and (tool := encode_tool(located, plan)) is not None:
            tools.append(tool)
    return tools or None


def _encode_anthropic_tools(request: Request, plan: EncodingPlan) -> list[Any] | None:
    """Encode the tools of an Anthropic client, without those that the host rejects."""
    if request.tools is None:
        return None
    located = [flat for index, tool in enumerate(request.tools) for flat in flatten_tool(tool, ("tools", index))]
    encoded = [tool for flat in located if (tool := encode_tool(flat, plan)) is not None]
    return encoded if encoded or not located else None


def encode_tool(located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    """Encode one tool; report it and return None if Anthropic has no equivalent."""
    tool = located_tool.tool
    if type(tool) is not NativeTool:
        return _encode_function(tool, located_tool.path, plan)
    if tool.protocol != FAMILY:
        return _encode_foreign_native(tool, located_tool, plan)
    if accepts_native(tool.executor, plan.target.host):
        return tool.body
    report_missing_native(located_tool, plan)
    return None


def _encode_foreign_native(tool: NativeTool, located_tool: LocatedTool, plan: EncodingPlan) -> Any:
    """Encode another protocol's native tool as Anthropic's equivalent; report it and return None without one."""
    if not plan.target.host.tools.hosted:
        report_missing_native(located_tool, plan)
        return None
    if tool.hosted is not None and has_native(tool, HOSTED_TOOLS):
        kind = tool.hosted.kind
        if kind in plan.hosted_kinds:
            plan.report.dropped(located_tool.path, "", f"the target allows only one {kind} tool")
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
        plan.report.approximated(located_tool.path, "", TARGET_HAS_TOOL_SEARCH, severity="info")
        return _TOOL_SEARCH
    report_missing_native(located_tool, plan, has_connectors=True)
    return None


def _encode_function(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode a function or free-form tool."""
    name = tool.name
    callers: tuple[str, ...] | None = tool.allowed_callers
    deferred: bool | UnsetType = none_to_unset(tool.defer)
    if tool.defer and not (plan.target.host.pass_through or plan.target.host.tools.deferred):
        plan.report.approximated(
            path, "defer", f"{plan.target.host.rejects('deferred tools')}; declared from the start"
        )
        deferred = UNSET
    if not plan.same_protocol:
        name = plan.tools.declare(tool, path, plan.report)
        report_allowed_callers(tool, path, plan.report)
        callers = None
        if tool.asynchronous:
            plan.report.dropped(path, "asynchronous")
        deferred = _encode_deferral(tool, path, plan) if deferred is True else UNSET
    strict: bool | None
    if type(tool) is FreeformTool:
        schema, strict = freeform_schema(), None
        description: str | None = freeform_description(tool) or None
    else:
        schema, strict = _encode_parameters(tool, path, plan)
        description = tool.description
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


def _encode_deferral(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> bool | UnsetType:
    """Return True to send `defer_loading`, or UNSET to declare the tool from the start.

    A deferred tool from another protocol stays deferred only if tool search is available and the tool has no cache
    mark; otherwise the change is reported. It stays deferred even once found, since the provider binds thinking to the
    declared tools.
    """
    if not tool.defer:
        return UNSET
    if plan.can_search_tools and path[0] == "tools" and tool.cache is None:
        return True
    plan.report.approximated(path, "defer", "without tool search, the tool is declared from the start")
    return UNSET


def _encode_parameters(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> tuple[Raw, bool | None]:
    """Return `input_schema` and `strict`; strict is None for a schema that strict mode rejects."""
    schema, strict = _encode_schema(tool, path, plan), tool.strict
    if strict and not plan.same_protocol and refuses_strict(plan.target.model or ""):
        plan.report.approximated(path, "strict", "the model does not support strict schemas; sent without strict")
        strict = None
    elif strict and not plan.same_protocol:
        schema, strict = fit_strictly_and_report(schema, STRICT_SCHEMA, plan.report, path, "parameters")
    if tool.output_schema is not None:
        plan.report.dropped(path, "output_schema")
    host = plan.target.host
    if host.tools.schema == "moonshot" and not host.pass_through:
        schema = fit_moonshot_schema(schema, plan.report, path, "parameters")
    return schema, strict


def _encode_schema(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> Raw:
    """Encode `input_schema`, adding `type: object`, which Anthropic requires."""
    if tool.parameters is None:
        reason = "the target requires a schema; set to an empty object"
        plan.report.added(path, "parameters", f"{plan.output_pointer}/input_schema", reason)
        return EMPTY_SCHEMA
    if plan.same_protocol:
        return tool.parameters
    try:
        members = decode_members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(path, "parameters", "not an object schema")
        return EMPTY_SCHEMA
    complete: dict[str, Any] = {"type": Raw(b'"object"'), **members}
    if complete.keys() <= {"type", "properties"} and complete.get("properties", _NULL) == _NULL:
        complete["properties"] = {}
    if complete == members:
        return tool.parameters
    plan.report.approximated(path, "parameters", "completed to an object schema")
    return Raw(msgspec.json.encode(complete))


def encode_cache(cache: CacheMark | None, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode a cache mark; UNSET without one, or beyond the number that the provider accepts."""
    if cache is None:
        return UNSET
    if not plan.same_protocol:
        plan.cache_marks += 1
        if plan.cache_marks > MAX_CACHE_MARKS:
            plan.report.dropped((*path, "cache"), "", f"the target accepts at most {MAX_CACHE_MARKS} cache marks")
            return UNSET
        if cache.ttl not in (None, "5m", "1h"):
            plan.report.approximated((*path, "cache"), "ttl", f"{cache.ttl} sent as 1h")
            return CacheShape(type="ephemeral", ttl="1h")
    shape = encode_with_extras(CacheShape(type="ephemeral", ttl=none_to_unset(cache.ttl)), cache, FAMILY)
    if cache.extras and "type" in cache.extras.get(FAMILY, {}):
        shape["type"] = cache.extras[FAMILY]["type"]
    return shape


def encode_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    """Encode `tool_choice`, UNSET without tools: the provider rejects it then."""
    choice = request.tool_choice
    if choice is None:
        return UNSET
    report_validated_choice(choice, plan.report)
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "", "no tools are declared", severity="info")
        if choice.parallel is not None:
            plan.report.dropped(("tool_choice",), "parallel", "no tools are declared", severity="info")
        return UNSET
    mode = choice.mode
    if not plan.same_protocol and mode in ("required", "named") and refuses_forced_choice(plan.target.model or ""):
        reason = "the model does not support a forced tool choice; sent as auto"
        plan.report.approximated(("tool_choice",), "mode", reason, severity="error")
        mode = "auto"
    shape = _encode_choice_mode(mode, choice, request, plan)
    if choice.parallel is not None and (plan.same_protocol or mode != "none"):
        shape.disable_parallel_tool_use = not choice.parallel
    return encode_with_extras(shape, choice, FAMILY)


def _encode_choice_mode(mode: str | None, choice: ToolChoice, request: Request, plan: EncodingPlan) -> ChoiceShape:
    """Encode `tool_choice` for this canonical mode."""
    match mode:
        case "required":
            return ChoiceShape(type="any")
        case "none":
            return ChoiceShape(type="none")
        case "named":
            return _encode_named_choice(request, choice, plan)
        case "allowed" if (hosted := _forced_hosted_tool(request, plan)) is not None:
            return ChoiceShape(type="tool", name=hosted)
        case "allowed":
            reason = "the target cannot limit the choice to some tools; only the allowed tools sent"
            plan.report.approximated(("tool_choice",), "names", reason)
            return ChoiceShape(type="any" if choice.required else "auto")
        case _:
            return ChoiceShape(type="auto")


def _forced_hosted_tool(request: Request, plan: EncodingPlan) -> str | None:
    """Return the name of the hosted tool that another protocol's choice forces, None if Anthropic lacks it."""
    tool = None if plan.same_protocol else chosen_native_tool(request)
    return tool.hosted.kind if tool is not None and tool.hosted and has_native(tool, HOSTED_TOOLS) else None


def _encode_named_choice(request: Request, choice: ToolChoice, plan: EncodingPlan) -> ChoiceShape:
    """Encode a choice of one tool."""
    named = choice.names[0]
    if (hosted := _forced_hosted_tool(request, plan)) is not None:
        return ChoiceShape(type="tool", name=hosted)
    if named.kind == "server" and not plan.same_protocol:
        reason = "a tool of an MCP server cannot be forced by name; any tool is forced"
        plan.report.approximated(("tool_choice",), "names", reason)
        return ChoiceShape(type="any")
    if named.kind == "native" and not plan.same_protocol:
        plan.report.approximated(
            ("tool_choice",), "names", "the target does not have this tool; sent as auto", severity="error"
        )
        return ChoiceShape(type="auto")
    return ChoiceShape(type="tool", name=plan.tool_name(named.name, named.namespace))
