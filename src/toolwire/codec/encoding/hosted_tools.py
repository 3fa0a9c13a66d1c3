"""Hosted tools (web search, fetch, code execution) and MCP connectors, which providers run themselves.

A protocol folder only declares its `HostedToolNames`. Translation then follows these rules:

1. A target that has the kind gets its own tool, with all supported options; the others are reported. A domain filter
   that the target lacks is refused, since the tool would run without it.
2. At a target that lacks the kind, a tool offered beside others is dropped and reported. A tool that the choice
   demands, or the only one, is refused: the response could not be what the client asked for.
3. `hosted_tools="function"` turns search and fetch into functions that the client runs. `"refuse"` refuses the tools
   that rule 2 drops.

A protocol folder decodes its MCP declaration into an `McpServer`. If `unportable` is set, other vendors cannot enforce
the same restrictions (approval, allowed tools), so the tool is dropped.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Citation, HostedUse, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage
from toolwire.canonical.tools import FunctionTool, HostedKind, HostedTool, McpServer, NativeTool, Tool, ToolRef
from toolwire.codec.encoding.client_tools import client_function
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import LocatedTool, conversation_tools, report_excluded_tool
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.losses import LossReport, SourcePath, element_pointers
from toolwire.codec.wire.extras import unescape_pointer
from toolwire.codec.wire.reader import decode_json, decode_members, escape_pointer

FUNCTION_SUBSTITUTES: dict[str, tuple[str, str, str]] = {
    "web_search": ("google_web_search", "query", "Search the web."),
    "web_fetch": ("web_fetch", "prompt", "Fetch URLs named in the prompt and answer from their content."),
}
"""By kind: name, parameter and description of the function that a client may run instead."""

_MAX_PAGE_DEPTH = 4
_DOMAIN_FILTERS = ("allowed_domains", "blocked_domains")
_OPTION_FIELDS = ("max_uses", *_DOMAIN_FILTERS, "location", "context_size", "max_content_tokens")
_OPTION_TYPES: dict[str, Any] = {
    "max_uses": int,
    "allowed_domains": tuple[str, ...],
    "blocked_domains": tuple[str, ...],
    "location": dict[str, Any],
    "context_size": str,
    "max_content_tokens": int,
}


class HostedToolNames(Struct, frozen=True):
    """A protocol's names for hosted tools and their options."""

    family: str
    names: Mapping[HostedKind, tuple[str, ...]]  # by kind; the first one is written
    option_pointers: Mapping[str, Mapping[str, str]]  # by kind and field, the pointer within the declaration
    native_kinds: tuple[str, ...] = ("code_execution",)  # kinds that stay native even if the client asks for functions
    single_domain_filter: bool = False  # domains are either allowed or blocked, not both

    def kind(self, name: str) -> HostedKind | None:
        """Return the vendor-neutral kind of a hosted tool by the vendor's name; None if the name is unknown."""
        return next((kind for kind, aliases in self.names.items() if name in aliases), None)


# ---- decode


def decode_hosted_tool(name: str, body: Raw, names: HostedToolNames) -> HostedTool | None:
    """Decode a vendor's declaration of a hosted tool; None if no other vendor has such a tool, or it is malformed."""
    kind = names.kind(name)
    if kind is None or bytes(body)[:1] != b"{":
        return None
    members = _flatten_members(decode_members(body), names.option_pointers.get(kind, {}).values())
    members.pop("type", None)
    if decode_json(members.get("name", b"null")) == kind:
        del members["name"]
    options: dict[str, Any] = {}
    wire_form = []
    for field, pointer in names.option_pointers.get(kind, {}).items():
        if (raw := members.get(pointer)) is None:
            continue
        try:
            value = msgspec.json.decode(raw, type=_OPTION_TYPES[field])
        except msgspec.DecodeError:
            continue
        options[field] = raw if field == "location" else value
        wire_form.append(f"{names.family}:name:{field}={pointer}")
        del members[pointer]
    unread = [(pointer, raw) for pointer, raw in members.items() if bytes(raw) not in (b"null", b"{}")]
    others = tuple(inner_pointer for pointer, raw in unread for inner_pointer in element_pointers(raw, pointer))
    return HostedTool(kind=kind, **options, others=others, wire_form=tuple(wire_form), at="")


def _flatten_members(members: Mapping[str, Raw], pointers: Any) -> dict[str, Raw]:
    """Return the members of an object by JSON pointer, descending only as deep as the given pointers reach."""
    flat: dict[str, Raw] = {}
    for name, raw in members.items():
        key = escape_pointer(name)
        if bytes(raw)[:1] == b"{" and any(pointer.startswith(key + "/") for pointer in pointers):
            below = [pointer.removeprefix(key + "/") for pointer in pointers if pointer.startswith(key + "/")]
            flat |= {
                f"{key}/{inner_pointer}": value
                for inner_pointer, value in _flatten_members(decode_members(raw), below).items()
            }
        else:
            flat[key] = raw
    return flat


# ---- encode


def chosen_native_tool(request: Request) -> NativeTool | None:
    """Return the vendor's own tool that the tool choice demands by name; None if it demands none."""
    choice = request.tool_choice
    if choice is None or len(choice.names) != 1 or not (choice.mode == "named" or choice.required):
        return None
    tools = [located.tool for located in conversation_tools(request)]
    (reference,) = choice.names
    if any(not isinstance(tool, NativeTool) and tool.name == reference.name for tool in tools):
        return None
    return next((tool for tool in tools if isinstance(tool, NativeTool) and _refers_to(reference, tool)), None)


def _refers_to(reference: ToolRef, tool: NativeTool) -> bool:
    """Return whether a reference names this tool."""
    if reference.kind == "server":
        return reference.server is not None and reference.server == tool.name
    if reference.name in (tool.name, tool.kind):
        return True
    # The reference may use an older type name, or one with a date suffix.
    return reference.kind == "native" and reference.name.startswith(tool.kind.removesuffix("_preview"))


def is_required(tool: NativeTool, request: Request) -> bool:
    """Return whether a response without this tool would be useless.

    That is so if the choice names it, if a call is required and only hosted tools are offered, or if it is the only
    tool.
    """
    choice = request.tool_choice
    if choice is not None and (choice.mode == "none" or chosen_native_tool(request) is tool):
        return choice.mode != "none"
    offered = [located.tool for located in conversation_tools(request)]
    if not all(isinstance(candidate, NativeTool) for candidate in offered):
        return False
    call_required = choice is not None and choice.mode == "required"
    return tool.hosted is not None and (call_required or len(offered) == 1)


def choosable_tools(request: Request, plan: EncodingPlan) -> Iterable[LocatedTool]:
    """Return the offered tools, without hosted ones that the tool choice excludes."""
    choice = request.tool_choice
    return (
        plan.offered_tools(request)
        if choice is None or not choice.natives
        else _tools_among(choice.names, request, plan)
    )


def _tools_among(names: tuple[ToolRef, ...], request: Request, plan: EncodingPlan) -> Iterator[LocatedTool]:
    """Yield the offered tools, except hosted tools that are not among the names, which are reported."""
    for located in plan.offered_tools(request):
        if not _is_excluded(located.tool, names):
            yield located
        else:
            report_excluded_tool(located, request, plan.report, "excluded by the tool choice")


def _is_excluded(tool: Tool, names: tuple[ToolRef, ...]) -> bool:
    """Return whether a tool is hosted and not among the names that the tool choice allows."""
    if not isinstance(tool, NativeTool) or tool.hosted is None:
        return False
    return not any(_refers_to(reference, tool) for reference in names)


def has_native(tool: NativeTool, names: HostedToolNames) -> bool:
    """Return whether the target has a hosted tool of this kind."""
    return tool.hosted is not None and tool.hosted.kind in names.names


def encode_hosted_options(
    tool: NativeTool, path: SourcePath, names: HostedToolNames, plan: EncodingPlan
) -> dict[str, Any]:
    """Return the options of a hosted tool under the target's names.

    Options that the target lacks are reported; a constraint (safety limit) among them refuses the request.
    """
    hosted = tool.hosted
    if hosted is None:
        raise TypeError(f"{tool.kind} is not a hosted tool")
    wire: dict[str, Any] = {}
    pointers = names.option_pointers.get(hosted.kind, {})
    for field in _OPTION_FIELDS:
        value = getattr(hosted, field)
        if value is None:
            continue
        pointer = pointers.get(field)
        if field == "blocked_domains" and names.single_domain_filter and hosted.allowed_domains:
            pointer = None
        if pointer is not None:
            set_at_pointer(wire, pointer, value)
        else:
            reason = f"the target's {hosted.kind} has no such option"
            plan.report.dropped((*path, "hosted"), field, reason, constraint=field in _DOMAIN_FILTERS and bool(value))
    programs_only = _is_for_programs_only(tool)
    for pointer in hosted.others:
        constraint = programs_only and pointer.startswith("allowed_callers")
        plan.report.dropped(
            path, "//" + pointer, f"the target's {hosted.kind} has no such option", constraint=constraint
        )
    if tool.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target has no cache marks on hosted tools")
    return wire


def set_at_pointer(wire: dict[str, Any], pointer: str, value: Any) -> None:
    """Set the value at a JSON pointer of a wire object, creating objects on the way."""
    *parents, last = pointer.split("/")
    for name in parents:
        wire = wire.setdefault(unescape_pointer(name), {})
    wire[unescape_pointer(last)] = value


def substitute_functions(request: Request, plan: EncodingPlan, names: HostedToolNames | None = None) -> Request:
    """Replace vendors' own tools by functions that the client runs; hosted tools only if the target's options say so.

    The tool choice and calls in the history follow.
    """
    if not request.tools or NativeTool not in map(type, request.tools):
        return request
    if plan.same_protocol and accepts_native("client", plan.target.host):
        return request
    tools, choice, chosen = list(request.tools), request.tool_choice, chosen_native_tool(request)
    native_kinds = () if names is None else names.native_kinds
    for index, tool in enumerate(tools):
        if _is_own_tool(tool, names) and accepts_native("client", plan.target.host):
            continue
        function = client_function(tool, index, plan)
        if function is None and plan.target.hosted_tools == "function":
            function = _hosted_function(tool, index, plan, native_kinds)
        if function is None:
            continue
        tools[index] = function
        if tool is chosen and choice is not None:
            (reference,) = choice.names
            choice = replace(choice, mode="named", names=(ToolRef(name=function.name, at=reference.at),))
    return replace(request, tools=tuple(tools), tool_choice=choice)


def _is_own_tool(tool: Tool, names: HostedToolNames | None) -> bool:
    """Return whether a client-run tool is the target's own, as in requests of the runtime, which have no protocol."""
    if names is None or not isinstance(tool, NativeTool):
        return False
    return tool.protocol == names.family and tool.executor == "client"


def _hosted_function(tool: Tool, index: int, plan: EncodingPlan, native_kinds: tuple[str, ...]) -> FunctionTool | None:
    """Return the function that replaces a hosted tool; None if the tool stays or must be refused."""
    if not isinstance(tool, NativeTool) or tool.hosted is None:
        return None
    kind = tool.hosted.kind
    if kind not in FUNCTION_SUBSTITUTES or kind in native_kinds:
        return None
    if tool.hosted.allowed_domains or tool.hosted.blocked_domains or _is_for_programs_only(tool):
        reason = f"a function in place of {kind} cannot enforce its restrictions"
        plan.report.dropped(("tools", index), "", reason, constraint=True)
        return None
    name, parameter, description = FUNCTION_SUBSTITUTES[kind]
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    plan.report.approximated(("tools", index), "", f"declared as the function {name}, run by the client")
    plan.tools.substitute_function(kind, name)
    return FunctionTool(name=name, description=description, parameters=Raw(msgspec.json.encode(schema)))


def accepts_native(executor: str, host: HostProfile) -> bool:
    """Return whether a host accepts the protocol's own tools that client, server or nobody run."""
    rules = host.tools
    if executor == "nobody" and not rules.deferred and not host.pass_through:
        return False
    return host.pass_through or (rules.hosted if executor == "server" or rules.client_run is None else rules.client_run)


def report_missing_native(located_tool: LocatedTool, plan: EncodingPlan, *, has_connectors: bool = False) -> None:
    """Report a vendor's own tool that the target lacks; refuse it if a response without it would be useless.

    `has_connectors`: the target has MCP connectors, but this server is not portable.
    """
    tool = located_tool.tool
    if not isinstance(tool, NativeTool):
        raise TypeError(f"{type(tool).__name__} is not a native tool")
    if plan.request is not None and is_required(tool, plan.request):
        call_demanded = plan.request.tool_choice is not None and plan.request.tool_choice.mode in ("named", "required")
        role = "must be called" if call_demanded or chosen_native_tool(plan.request) is tool else "is the only tool"
        reason = f"{tool.kind} {role}, but the target does not have it"
        plan.report.dropped(located_tool.path, "", reason, constraint=True)
        return
    constraint = plan.target.hosted_tools == "refuse" and tool.executor != "nobody"
    reason = f"the target has no {tool.kind} tool" if tool.kind else "the tool has no type"
    if tool.server is not None:
        reason = (has_connectors and tool.server.unportable) or reason
        plan.report.dropped((*located_tool.path, "server"), "", reason)
    plan.report.dropped(located_tool.path, "", reason, constraint=constraint)
    if _requires_approval(tool):
        reason = f"{tool.kind} requires a person's approval, which the target does not support"
        plan.report.dropped(located_tool.path, "//require_approval", reason, constraint=True)


def _is_for_programs_only(tool: NativeTool) -> bool:
    """Return whether only programs may call this tool, not the model itself."""
    if b'"allowed_callers"' not in bytes(tool.body):
        return False
    body = decode_json(tool.body)
    callers = body.get("allowed_callers") if isinstance(body, dict) else None
    return isinstance(callers, list) and "direct" not in callers


def _requires_approval(tool: NativeTool) -> bool:
    """Return whether a person must approve each use of this tool, which may never be dropped."""
    if b'"require_approval"' not in bytes(tool.body):
        return False
    body = decode_json(tool.body)
    return isinstance(body, dict) and body.get("require_approval", "never") not in ("never", None)


# ---- calls and results of hosted tools


def decode_hosted_use(kind: HostedKind, value: Any, *, id: str | None = None) -> HostedUse:
    """Read the input or output of a hosted tool from the vendor's JSON; vendors share these few names."""
    members = value if isinstance(value, dict) else {}
    texts = [members[name] for name in ("stdout", "stderr", "output") if isinstance(members.get(name), str)]
    if isinstance(value, str):
        texts = [value]
    code = members.get("code", members.get("command"))
    return HostedUse(
        kind=kind,
        id=id,
        queries=_strings_in(members.get("queries") or members.get("query")),
        urls=_strings_in(members.get("urls") or members.get("url")),
        code=code if isinstance(code, str) else None,
        pages=tuple(_pages_in(value, 0)),
        output="\n".join(text for text in texts if text) if texts else None,
    )


def hosted_call_as_text(call: ToolCall) -> str:
    """Return a bracketed remark for the model about a call that another provider ran."""
    return f"[{call.name} was called{f' with {call.arguments}' if call.arguments else ''}]"


def hosted_query(call: ToolCall) -> HostedUse:
    """Return the input of a hosted call, read from its arguments if those arrived after the call started."""
    if call.use is None:
        raise TypeError(f"{call.name} is not a hosted tool")
    return decode_hosted_use(call.use.kind, parse_json(call.arguments), id=call.use.id) if call.arguments else call.use


def _strings_in(value: Any) -> tuple[str, ...]:
    """Return a string as a tuple of one, or the strings of a list."""
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _pages_in(value: Any, depth: int) -> Iterator[Citation]:
    """Yield the pages that a search result lists, at any level of its JSON."""
    if isinstance(value, list):
        for item in value:
            yield from _pages_in(item, depth)
    elif isinstance(value, dict) and depth < _MAX_PAGE_DEPTH:
        url = value.get("url") or value.get("uri")
        if isinstance(url, str):
            title = value.get("title")
            yield Citation(url=url, title=title if isinstance(title, str) else None)
            return
        for name in ("results", "sources", "content", "result"):
            yield from _pages_in(value.get(name), depth + 1)


def parse_json(raw: Raw | str) -> Any:
    """Parse JSON; return None if it is invalid."""
    try:
        return decode_json(raw.encode() if isinstance(raw, str) else raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_COUNT_FIELDS = ("searches", "fetches")


def read_hosted_counts(
    extras_and_form: dict[str, Any], family: str, pointers: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read usage counts of hosted tools from the extras (non-canonical wire fields) of a usage object.

    Returns the extras and wire form, with the counted fields marked as canonical so that they are no losses, and the
    counts by field of `Usage`.
    """
    extras: dict[str, Raw] = (extras_and_form.get("extras") or {}).get(family, {})
    if extras.keys().isdisjoint([pointer.partition("/")[0] for pointer in pointers.values()]):
        return extras_and_form, {}
    expanded = dict(extras)
    for pointer in pointers.values():
        _expand_objects(expanded, pointer)
    counts: dict[str, int] = {}
    tokens: list[str] = []
    for field, pointer in pointers.items():
        raw = bytes(expanded.get(pointer, b""))
        if raw.isdigit() and len(raw) < 16:
            counts[field] = int(raw)
            tokens += (f"{family}:canonical:{pointer}", f"{family}:name:{field}={pointer}")
    if not counts:
        return extras_and_form, {}
    updated = {**extras_and_form["extras"], family: expanded}
    return {**extras_and_form, "extras": updated, "wire_form": (*extras_and_form.get("wire_form", ()), *tokens)}, counts


def _expand_objects(extras: dict[str, Raw], pointer: str) -> None:
    """Replace, in place, each object on the way to a pointer by its members, keyed by their pointers."""
    path = ""
    for step in pointer.split("/")[:-1]:
        path = f"{path}/{step}" if path else step
        raw = extras.get(path)
        if raw is not None and bytes(raw)[:1] == b"{" and (members := decode_members(raw)):
            del extras[path]
            extras |= {f"{path}/{escape_pointer(name)}": value for name, value in members.items()}


def report_hosted_counts(usage: Usage, report: LossReport, *fields: str) -> None:
    """Report counts that the target has no field for; by default all of them."""
    for field in fields or _COUNT_FIELDS:
        if getattr(usage, field) is not None:
            report.dropped(("usage",), field, "the target does not report this count")


NEEDS_APPROVAL = "its tools require a person's approval"
TOOLS_RESTRICTED = "the target cannot restrict its tools"

_MCP_PART_KINDS = frozenset(
    {"mcp_tool_use", "mcp_tool_result", "mcp_call", "mcp_server_tool_call", "mcp_server_tool_result"}
)
_BEARER_PREFIX = "Bearer "
_decode_headers = msgspec.json.Decoder().decode

# ---- decode


def string_tuple(value: Any) -> tuple[str, ...] | None:
    """Return a list of strings as a tuple; None if it is anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


def unread_settings(value: Any, pointer: str, known_pointers: Collection[str]) -> Iterator[str]:
    """Yield the JSON pointers of settings in a declaration that are not among the known ones."""
    if pointer in known_pointers or value is None or value == {}:
        return
    if isinstance(value, dict | list) and any(known.startswith(pointer + "/") for known in known_pointers):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unread_settings(inner, f"{pointer}/{escape_pointer(str(name))}", known_pointers)
    else:
        yield pointer


# ---- encode


def portable_server(tool: NativeTool) -> McpServer | None:
    """Return the MCP server of a tool if other vendors' connectors can use it, else None."""
    return None if tool.server is None or tool.server.unportable is not None else tool.server


def server_headers(server: McpServer) -> dict[str, str]:
    """Return the HTTP headers for an MCP server, with its bearer token as `Authorization`."""
    headers: dict[str, str] = {} if server.headers is None else _decode_headers(server.headers)
    return (
        headers if server.authorization is None else {**headers, "Authorization": _BEARER_PREFIX + server.authorization}
    )


def server_token(server: McpServer, path: SourcePath, plan: EncodingPlan) -> str | None:
    """Return the bearer token of an MCP server, and report its other headers, which this target does not accept."""
    token = server.authorization
    for name, value in ({} if server.headers is None else _decode_headers(server.headers)).items():
        if token is None and name.lower() == "authorization" and value.startswith(_BEARER_PREFIX):
            token = value.removeprefix(_BEARER_PREFIX)
        else:
            plan.report.dropped(
                (*path, "server"), f"//headers/{escape_pointer(name)}", "the target sends no custom headers"
            )
    return token


def report_unportable_settings(server: McpServer, plan: EncodingPlan) -> None:
    """Report settings of a server's declaration that only its own protocol has."""
    for pointer in server.others:
        plan.report.dropped((), f"/{pointer}", "the target's MCP connector has no such setting")


# ---- calls and results of MCP servers


def is_mcp_part(part: Part) -> bool:
    """Return whether a part is a call of an MCP server's tool, or its result."""
    return isinstance(part, ToolCall | ToolResult) and part.native in _MCP_PART_KINDS


def mcp_result_text(result: ToolResult) -> str:
    """Return the texts of an MCP tool result, one per line."""
    content = result.content or ()
    texts = [
        part.text if isinstance(part, Text) else part.gist for part in content if isinstance(part, Text | OpaquePart)
    ]
    return "\n".join(text for text in texts if text)
