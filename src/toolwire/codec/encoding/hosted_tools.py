"""Hosted tools: web search, fetch and code execution, which vendors run themselves.

A protocol folder only says its `Spelling`: its word for each kind, and where a declaration keeps what bounds the tool.
Here is what becomes of a declaration elsewhere:

1. A target that has the kind gets its own tool, with all bounds that it knows. What else was said is reported; a domain
   filter that can't be kept is refused, since the tool would run unguarded.
2. At a target that lacks it, a tool that is merely offered beside others is dropped and reported. One that the choice
   demands, or that is all there is, is refused by name: the answer can't be what was asked for.
3. `hosted_tools="function"` makes search and fetch functions that the client runs, `"refuse"` refuses what 2. drops.

How often hosted tools ran, which vendors count beside the tokens: read from what an answer kept, or reported.

MCP connectors: servers of tools that a provider itself calls for the model, and what it called.

A protocol folder reads its own declaration into an `McpServer`, and writes one in its own words. Where `unportable`
says why, other vendors can't be bound in the same way (a person is to be asked, some tools may not be called): such a
tool is dropped whole, so that it can't run unguarded.
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
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import LocatedTool, conversation_tools, report_excluded_tool
from toolwire.codec.losses import LossReport, SourcePath, element_pointers
from toolwire.codec.wire.extras import unescape_pointer
from toolwire.codec.wire.reader import decode_json, escape_pointer

FUNCTION_SUBSTITUTES: dict[str, tuple[str, str, str]] = {
    "web_search": ("google_web_search", "query", "Search the web."),
    "web_fetch": ("web_fetch", "prompt", "Fetch URLs named in the prompt and answer from their content."),
}
"""By kind: the function of one string that a client may run in its place."""

TOOL_SEARCH = "tool_search"
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

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class HostedToolNames(Struct, frozen=True):
    """How a protocol writes hosted tools: its words for each kind, the one to write first, and by kind the pointer to
    each field. `native`: what stays its own tool even where a client asks for functions. `one_filter`: domains are
    either allowed or blocked, not both."""

    family: str
    names: Mapping[HostedKind, tuple[str, ...]]
    option_pointers: Mapping[str, Mapping[str, str]]
    native_kinds: tuple[str, ...] = ("code_execution",)
    single_domain_filter: bool = False

    def kind(self, name: str) -> HostedKind | None:
        return next((kind for kind, words in self.names.items() if name in words), None)


# ---- decode


def decode_hosted_tool(name: str, body: Raw, names: HostedToolNames) -> HostedTool | None:
    """What a declaration means; None if no other vendor has such a tool, or nobody can read it."""
    kind = names.kind(name)
    if kind is None or bytes(body)[:1] != b"{":
        return None
    left = _flatten_members(_decode_members(body), names.option_pointers.get(kind, {}).values())
    left.pop("type", None)
    if decode_json(left.get("name", b"null")) == kind:
        del left["name"]
    found: dict[str, Any] = {}
    form = []
    for field, pointer in names.option_pointers.get(kind, {}).items():
        if (raw := left.get(pointer)) is None:
            continue
        try:
            value = msgspec.json.decode(raw, type=_OPTION_TYPES[field])
        except msgspec.DecodeError:
            continue
        found[field] = raw if field == "location" else value
        form.append(f"{names.family}:name:{field}={pointer}")
        del left[pointer]
    said = [(pointer, raw) for pointer, raw in left.items() if bytes(raw) not in (b"null", b"{}")]
    others = tuple(place for pointer, raw in said for place in element_pointers(raw, pointer))
    return HostedTool(kind=kind, **found, others=others, wire_form=tuple(form), at="")


def _flatten_members(members: Mapping[str, Raw], pointers: Any) -> dict[str, Raw]:
    """The members by pointer, opened as far as a pointer looks into them."""
    flat: dict[str, Raw] = {}
    for name, raw in members.items():
        key = escape_pointer(name)
        if bytes(raw)[:1] == b"{" and any(pointer.startswith(key + "/") for pointer in pointers):
            below = [pointer.removeprefix(key + "/") for pointer in pointers if pointer.startswith(key + "/")]
            flat |= {f"{key}/{inner}": value for inner, value in _flatten_members(_decode_members(raw), below).items()}
        else:
            flat[key] = raw
    return flat


# ---- encode


def chosen_native_tool(request: Request) -> NativeTool | None:
    """The vendor's own tool that the choice demands by name."""
    choice = request.tool_choice
    if choice is None or len(choice.names) != 1 or not (choice.mode == "named" or choice.required):
        return None
    tools = [placed.tool for placed in conversation_tools(request)]
    (named,) = choice.names
    if any(not isinstance(tool, NativeTool) and tool.name == named.name for tool in tools):
        return None
    return next((tool for tool in tools if isinstance(tool, NativeTool) and _refers_to(named, tool)), None)


def _refers_to(reference: ToolRef, tool: NativeTool) -> bool:
    if reference.kind == "server":
        return reference.server is not None and reference.server == tool.name
    if reference.name in (tool.name, tool.kind):
        return True
    # A vendor's own word may be older than the one that declares the tool, or have a date.
    return reference.kind == "native" and reference.name.startswith(tool.kind.removesuffix("_preview"))


def is_required(tool: NativeTool, request: Request) -> bool:
    """Whether an answer without this tool can't be the one that was asked for: the choice names it, or a call is wanted
    and only hosted tools are there to be called, or it is all there is."""
    choice = request.tool_choice
    if choice is not None and (choice.mode == "none" or chosen_native_tool(request) is tool):
        return choice.mode != "none"
    offered = [placed.tool for placed in conversation_tools(request)]
    if not all(isinstance(one, NativeTool) for one in offered):
        return False
    wanted = choice is not None and choice.mode == "required"
    return tool.hosted is not None and (wanted or len(offered) == 1)


def choosable_tools(request: Request, plan: EncodingPlan) -> Iterable[LocatedTool]:
    """The tools in force, without those that a provider would run though a choice among some leaves them out."""
    choice = request.tool_choice
    return (
        plan.offered_tools(request)
        if choice is None or not choice.natives
        else _tools_among(choice.names, request, plan)
    )


def _tools_among(names: tuple[ToolRef, ...], request: Request, plan: EncodingPlan) -> Iterator[LocatedTool]:
    for placed in plan.offered_tools(request):
        if not _is_excluded(placed.tool, names):
            yield placed
        else:
            report_excluded_tool(placed, request, plan.report, "not among the tools that may be chosen")


def _is_excluded(tool: Tool, names: tuple[ToolRef, ...]) -> bool:
    if not isinstance(tool, NativeTool) or tool.hosted is None:
        return False
    return not any(_refers_to(named, tool) for named in names)


def has_native(tool: NativeTool, names: HostedToolNames) -> bool:
    """Whether the target has this tool itself."""
    return tool.hosted is not None and tool.hosted.kind in names.names


def encode_hosted_options(
    tool: NativeTool, path: SourcePath, names: HostedToolNames, plan: EncodingPlan
) -> dict[str, Any]:
    """What bounds the tool, in the target's words; what has none there is reported, and refused if it is a filter."""
    hosted = tool.hosted
    if hosted is None:
        raise TypeError(f"{tool.kind} is no hosted tool")
    wire: dict[str, Any] = {}
    known = names.option_pointers.get(hosted.kind, {})
    for field in _OPTION_FIELDS:
        value = getattr(hosted, field)
        if value is None:
            continue
        pointer = known.get(field)
        if field == "blocked_domains" and names.single_domain_filter and hosted.allowed_domains:
            pointer = None
        if pointer is not None:
            set_at_pointer(wire, pointer, value)
        else:
            why = f"the target's {hosted.kind} has no such bound"
            plan.report.dropped((*path, "hosted"), field, why, constraint=field in _DOMAIN_FILTERS and bool(value))
    programs_only = _is_for_programs_only(tool)
    for pointer in hosted.others:
        guarded = programs_only and pointer.startswith("allowed_callers")
        plan.report.dropped(path, "//" + pointer, f"the target's {hosted.kind} has no such setting", constraint=guarded)
    if tool.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target has no cache marks on its own tools")
    return wire


def set_at_pointer(wire: dict[str, Any], pointer: str, value: Any) -> None:
    """Set the value that a pointer names, in objects made as needed."""
    *parents, last = pointer.split("/")
    for name in parents:
        wire = wire.setdefault(unescape_pointer(name), {})
    wire[unescape_pointer(last)] = value


def substitute_functions(request: Request, plan: EncodingPlan, names: HostedToolNames | None = None) -> Request:
    """The request with functions in place of the hosted tools that a client can run itself, where it asks for that.
    The choice follows, and so do calls in the history under the tool's own name."""
    if plan.same_protocol or not request.tools or NativeTool not in map(type, request.tools):
        return request
    tools = [_tool_search_function(tool, index, plan) for index, tool in enumerate(request.tools)]
    if plan.target.hosted_tools != "function":
        return replace(request, tools=tuple(tools))
    choice, demanded = request.tool_choice, chosen_native_tool(request)
    for index, tool in enumerate(tools):
        if (
            not isinstance(tool, NativeTool)
            or tool.hosted is None
            or (kind := tool.hosted.kind) not in FUNCTION_SUBSTITUTES
        ):
            continue
        if names is not None and kind in names.native_kinds:
            continue
        if tool.hosted.allowed_domains or tool.hosted.blocked_domains or _is_for_programs_only(tool):
            why = f"its filter can't be kept by a function in place of {kind}"
            plan.report.dropped(("tools", index), "", why, constraint=True)
            continue
        name, parameter, about = FUNCTION_SUBSTITUTES[kind]
        schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
        plan.report.approximated(("tools", index), "", f"declared as the function {name}, which the client runs")
        plan.tools.substitute_function(kind, name)
        tools[index] = FunctionTool(name=name, description=about, parameters=Raw(msgspec.json.encode(schema)))
        if tool is demanded and choice is not None:
            (named,) = choice.names
            choice = replace(choice, mode="named", names=(ToolRef(name=name, at=named.at),))
    return replace(request, tools=tuple(tools), tool_choice=choice)


def _tool_search_function(tool: Tool, index: int, plan: EncodingPlan) -> Tool:
    """OpenAI's search for tools as a function, if the client runs it: what it finds could not be called without."""
    if not isinstance(tool, NativeTool) or tool.kind != TOOL_SEARCH or tool.executor != "client":
        return tool
    said = _decode_members(tool.body)
    about = decode_json(said.get("description", b"null"))
    plan.report.approximated(("tools", index), "", f"declared as the function {TOOL_SEARCH}, which the client runs")
    plan.tools.map_to_native_call(TOOL_SEARCH, f"{TOOL_SEARCH}_call")
    return FunctionTool(
        name=TOOL_SEARCH,
        description=about if isinstance(about, str) else None,
        parameters=said.get("parameters"),
    )


def report_missing_native(located_tool: LocatedTool, plan: EncodingPlan, *, has_connectors: bool = False) -> None:
    """Report a vendor's own tool at a target that lacks it; it is refused if an answer without it is worth nothing.
    `connects`: the target has MCP connectors, but may not be told of this one."""
    tool = located_tool.tool
    if not isinstance(tool, NativeTool):
        raise TypeError(f"{type(tool).__name__} is no vendor's own tool")
    if plan.request is not None and is_required(tool, plan.request):
        chosen_too = plan.request.tool_choice is not None and plan.request.tool_choice.mode in ("named", "required")
        what = "is to be called" if chosen_too or chosen_native_tool(plan.request) is tool else "is the only tool"
        why = f"{tool.kind} {what}, and the target has no such tool"
        plan.report.dropped(located_tool.path, "", why, constraint=True)
        return
    guarded = plan.target.hosted_tools == "refuse" and tool.executor != "nobody"
    why = f"the target has no {tool.kind} tool" if tool.kind else "it has no type, so that no target can know it"
    if tool.server is not None:
        why = (has_connectors and tool.server.unportable) or why
        plan.report.dropped((*located_tool.path, "server"), "", why)
    plan.report.dropped(located_tool.path, "", why, constraint=guarded)
    if _requires_approval(tool):
        why = f"a person is to be asked before {tool.kind} runs, and the target has no such tool"
        plan.report.dropped(located_tool.path, "//require_approval", why, constraint=True)


def _is_for_programs_only(tool: NativeTool) -> bool:
    """Only programs may call this tool, not the model itself."""
    if b'"allowed_callers"' not in bytes(tool.body):
        return False
    body = decode_json(tool.body)
    callers = body.get("allowed_callers") if isinstance(body, dict) else None
    return isinstance(callers, list) and "direct" not in callers


def _requires_approval(tool: NativeTool) -> bool:
    """A person was to be asked before this tool runs: dropping that word is never right."""
    if b'"require_approval"' not in bytes(tool.body):
        return False
    body = decode_json(tool.body)
    return isinstance(body, dict) and body.get("require_approval", "never") not in ("never", None)


# ---- what they did


def decode_hosted_use(kind: HostedKind, value: Any, *, id: str | None = None) -> HostedUse:
    """What a hosted tool was asked or found, from the vendor's own JSON: all of them use the same few words."""
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
    """What a model reads of a call that another provider ran."""
    return f"[{call.name} was called{f' with {call.arguments}' if call.arguments else ''}]"


def hosted_query(call: ToolCall) -> HostedUse:
    """What a call asks, by its arguments, which a stream brings after it."""
    if call.use is None:
        raise TypeError(f"{call.name} is no hosted tool")
    return decode_hosted_use(call.use.kind, parse_json(call.arguments), id=call.use.id) if call.arguments else call.use


def _strings_in(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _pages_in(value: Any, depth: int) -> Iterator[Citation]:
    """The pages in a result, wherever it lists them."""
    if isinstance(value, list):
        for one in value:
            yield from _pages_in(one, depth)
    elif isinstance(value, dict) and depth < _MAX_PAGE_DEPTH:
        url = value.get("url") or value.get("uri")
        if isinstance(url, str):
            title = value.get("title")
            yield Citation(url=url, title=title if isinstance(title, str) else None)
            return
        for name in ("results", "sources", "content", "result"):
            yield from _pages_in(value.get(name), depth + 1)


def parse_json(raw: Raw | str) -> Any:
    """The value, for reading uses; None if it is no JSON."""
    try:
        return decode_json(raw.encode() if isinstance(raw, str) else raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_COUNT_FIELDS = ("searches", "fetches")
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def read_hosted_counts(
    extras_and_form: dict[str, Any], family: str, pointers: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was kept, with what it says of counts marked as told; and the counts, by field. `places` are pointers."""
    own: dict[str, Raw] = (extras_and_form.get("extras") or {}).get(family, {})
    if own.keys().isdisjoint([pointer.partition("/")[0] for pointer in pointers.values()]):
        return extras_and_form, {}
    opened = dict(own)
    for pointer in pointers.values():
        _expand_objects(opened, pointer)
    found: dict[str, int] = {}
    told: list[str] = []
    for field, pointer in pointers.items():
        raw = bytes(opened.get(pointer, b""))
        if raw.isdigit() and len(raw) < 16:
            found[field] = int(raw)
            told += (f"{family}:canonical:{pointer}", f"{family}:name:{field}={pointer}")
    if not found:
        return extras_and_form, {}
    extras = {**extras_and_form["extras"], family: opened}
    return {**extras_and_form, "extras": extras, "wire_form": (*extras_and_form.get("wire_form", ()), *told)}, found


def _expand_objects(extras: dict[str, Raw], pointer: str) -> None:
    """The members of each object on the way to a place, as values of their own."""
    path = ""
    for step in pointer.split("/")[:-1]:
        path = f"{path}/{step}" if path else step
        raw = extras.get(path)
        if raw is not None and bytes(raw)[:1] == b"{" and (members := _decode_object(raw)):
            del extras[path]
            extras |= {f"{path}/{escape_pointer(name)}": value for name, value in members.items()}


def report_hosted_counts(usage: Usage, report: LossReport, *fields: str) -> None:
    """Report the counts that the target has no field for; all of them if none are named."""
    for field in fields or _COUNT_FIELDS:
        if getattr(usage, field) is not None:
            report.dropped(("usage",), field, "the target does not count it")


NEEDS_APPROVAL = "a person is to be asked before its tools are called"
TOOLS_RESTRICTED = "which of its tools may be called can't be said to the target"

_MCP_PART_KINDS = frozenset(
    {"mcp_tool_use", "mcp_tool_result", "mcp_call", "mcp_server_tool_call", "mcp_server_tool_result"}
)
_BEARER_PREFIX = "Bearer "
_decode_headers = msgspec.json.Decoder().decode

# ---- decode


def string_tuple(value: Any) -> tuple[str, ...] | None:
    """The names in a list of nothing but names."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    return None


def unread_settings(value: Any, pointer: str, known_pointers: Collection[str]) -> Iterator[str]:
    """The pointers to all that is not known in a declaration; `known` are pointers, too."""
    if pointer in known_pointers or value is None or value == {}:
        return
    if isinstance(value, dict | list) and any(one.startswith(pointer + "/") for one in known_pointers):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unread_settings(inner, f"{pointer}/{escape_pointer(str(name))}", known_pointers)
    else:
        yield pointer


# ---- encode


def portable_server(tool: NativeTool) -> McpServer | None:
    """The server that a target with connectors may be told of."""
    return None if tool.server is None or tool.server.unportable is not None else tool.server


def server_headers(server: McpServer) -> dict[str, str]:
    """All headers, for a target that takes a key only among them."""
    found: dict[str, str] = {} if server.headers is None else _decode_headers(server.headers)
    return found if server.authorization is None else {**found, "Authorization": _BEARER_PREFIX + server.authorization}


def server_token(server: McpServer, path: SourcePath, plan: EncodingPlan) -> str | None:
    """The key, for a target that takes no other headers: those are reported."""
    token = server.authorization
    for name, value in ({} if server.headers is None else _decode_headers(server.headers)).items():
        if token is None and name.lower() == "authorization" and value.startswith(_BEARER_PREFIX):
            token = value.removeprefix(_BEARER_PREFIX)
        else:
            plan.report.dropped(
                (*path, "server"), f"//headers/{escape_pointer(name)}", "the target sends no such header"
            )
    return token


def report_unportable_settings(server: McpServer, plan: EncodingPlan) -> None:
    """What else its declaration said, which only its own protocol has."""
    for pointer in server.others:
        plan.report.dropped((), f"/{pointer}", "the target's connector has no such setting")


# ---- what was called


def is_mcp_part(part: Part) -> bool:
    """Whether it is a call of a server's tool, or its result."""
    return isinstance(part, ToolCall | ToolResult) and part.native in _MCP_PART_KINDS


def mcp_result_text(result: ToolResult) -> str:
    """What a server's tool said."""
    said = result.content or ()
    texts = [one.text if isinstance(one, Text) else one.gist for one in said if isinstance(one, Text | OpaquePart)]
    return "\n".join(text for text in texts if text)
