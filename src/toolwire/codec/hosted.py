"""Hosted tools: web search, fetch and code execution, which vendors run themselves.

A protocol folder only says its `Spelling`: its word for each kind, and where a declaration keeps what bounds the tool.
Here is what becomes of a declaration elsewhere:

1. A target that has the kind gets its own tool, with all bounds that it knows. What else was said is reported; a domain
   filter that can't be kept is refused, since the tool would run unguarded.
2. At a target that lacks it, a tool that is merely offered beside others is dropped and reported. One that the choice
   demands, or that is all there is, is refused by name: the answer can't be what was asked for.
3. `hosted_tools="function"` makes search and fetch functions that the client runs, `"refuse"` refuses what 2. drops.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Citation, HostedUse, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Hosted, HostedKind, NativeTool, Tool, ToolRef

from .fields import escape
from .kept import unescape
from .losses import Trail, elements
from .plan import Plan
from .tools import PlacedTool, leave_out, tools_in_force

FUNCTIONS: dict[str, tuple[str, str, str]] = {
    "web_search": ("google_web_search", "query", "Search the web."),
    "web_fetch": ("web_fetch", "prompt", "Fetch URLs named in the prompt and answer from their content."),
}
"""By kind: the function of one string that a client may run in its place."""

SEARCH = "tool_search"
_DEPTH = 4
_FILTERS = ("allowed_domains", "blocked_domains")
_FIELDS = ("max_uses", *_FILTERS, "location", "context_size", "max_content_tokens")
_TYPES: dict[str, Any] = {
    "max_uses": int,
    "allowed_domains": tuple[str, ...],
    "blocked_domains": tuple[str, ...],
    "location": dict[str, Any],
    "context_size": str,
    "max_content_tokens": int,
}

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


class Spelling(Struct, frozen=True):
    """How a protocol writes hosted tools: its words for each kind, the one to write first, and by kind the pointer to
    each field. `native`: what stays its own tool even where a client asks for functions. `one_filter`: domains are
    either allowed or blocked, not both."""

    family: str
    words: Mapping[HostedKind, tuple[str, ...]]
    options: Mapping[str, Mapping[str, str]]
    native: tuple[str, ...] = ("code_execution",)
    one_filter: bool = False

    def kind(self, word: str) -> HostedKind | None:
        return next((kind for kind, words in self.words.items() if word in words), None)


# ---- decode


def decode_hosted(word: str, body: Raw, spelling: Spelling) -> Hosted | None:
    """What a declaration means; None if no other vendor has such a tool, or nobody can read it."""
    kind = spelling.kind(word)
    if kind is None or bytes(body)[:1] != b"{":
        return None
    left = _flat(_members(body), spelling.options.get(kind, {}).values())
    left.pop("type", None)
    if _decode(left.get("name", b"null")) == kind:
        del left["name"]
    found: dict[str, Any] = {}
    form = []
    for field, pointer in spelling.options.get(kind, {}).items():
        if (raw := left.get(pointer)) is None:
            continue
        try:
            value = msgspec.json.decode(raw, type=_TYPES[field])
        except msgspec.DecodeError:
            continue
        found[field] = raw if field == "location" else value
        form.append(f"{spelling.family}:name:{field}={pointer}")
        del left[pointer]
    said = [(pointer, raw) for pointer, raw in left.items() if bytes(raw) not in (b"null", b"{}")]
    others = tuple(place for pointer, raw in said for place in elements(raw, pointer))
    return Hosted(kind=kind, **found, others=others, form=tuple(form), at="")


def _flat(members: Mapping[str, Raw], pointers: Any) -> dict[str, Raw]:
    """The members by pointer, opened as far as a pointer looks into them."""
    flat: dict[str, Raw] = {}
    for name, raw in members.items():
        key = escape(name)
        if bytes(raw)[:1] == b"{" and any(pointer.startswith(key + "/") for pointer in pointers):
            below = [pointer.removeprefix(key + "/") for pointer in pointers if pointer.startswith(key + "/")]
            flat |= {f"{key}/{inner}": value for inner, value in _flat(_members(raw), below).items()}
        else:
            flat[key] = raw
    return flat


# ---- encode


def chosen(request: Request) -> NativeTool | None:
    """The vendor's own tool that the choice demands by name."""
    choice = request.tool_choice
    if choice is None or len(choice.names) != 1 or not (choice.mode == "named" or choice.required):
        return None
    tools = [placed.tool for placed in tools_in_force(request)]
    (named,) = choice.names
    if any(not isinstance(tool, NativeTool) and tool.name == named.name for tool in tools):
        return None
    return next((tool for tool in tools if isinstance(tool, NativeTool) and _names(named, tool)), None)


def _names(named: ToolRef, tool: NativeTool) -> bool:
    if named.kind == "server":
        return named.server is not None and named.server == tool.name
    if named.name in (tool.name, tool.kind):
        return True
    # A vendor's own word may be older than the one that declares the tool, or have a date.
    return named.kind == "native" and named.name.startswith(tool.kind.removesuffix("_preview"))


def is_demanded(tool: NativeTool, request: Request) -> bool:
    """Whether an answer without this tool can't be the one that was asked for: the choice names it, or a call is wanted
    and only hosted tools are there to be called, or it is all there is."""
    choice = request.tool_choice
    if choice is not None and (choice.mode == "none" or chosen(request) is tool):
        return choice.mode != "none"
    offered = [placed.tool for placed in tools_in_force(request)]
    if not all(isinstance(one, NativeTool) for one in offered):
        return False
    wanted = choice is not None and choice.mode == "required"
    return tool.hosted is not None and (wanted or len(offered) == 1)


def choosable(request: Request, plan: Plan) -> Iterable[PlacedTool]:
    """The tools in force, without those that a provider would run though a choice among some leaves them out."""
    choice = request.tool_choice
    return plan.offered(request) if choice is None or not choice.natives else _among(choice.names, request, plan)


def _among(names: tuple[ToolRef, ...], request: Request, plan: Plan) -> Iterator[PlacedTool]:
    for placed in plan.offered(request):
        if not _is_left_out(placed.tool, names):
            yield placed
        else:
            leave_out(placed, request, plan.report, "not among the tools that may be chosen")


def _is_left_out(tool: Tool, names: tuple[ToolRef, ...]) -> bool:
    if not isinstance(tool, NativeTool) or tool.hosted is None:
        return False
    return not any(_names(named, tool) for named in names)


def is_native(tool: NativeTool, spelling: Spelling) -> bool:
    """Whether the target has this tool itself."""
    return tool.hosted is not None and tool.hosted.kind in spelling.words


def encode_hosted(tool: NativeTool, trail: Trail, spelling: Spelling, plan: Plan) -> dict[str, Any]:
    """What bounds the tool, in the target's words; what has none there is reported, and refused if it is a filter."""
    hosted = tool.hosted
    if hosted is None:
        raise TypeError(f"{tool.kind} is no hosted tool")
    wire: dict[str, Any] = {}
    known = spelling.options.get(hosted.kind, {})
    for field in _FIELDS:
        value = getattr(hosted, field)
        if value is None:
            continue
        pointer = known.get(field)
        if field == "blocked_domains" and spelling.one_filter and hosted.allowed_domains:
            pointer = None
        if pointer is not None:
            put(wire, pointer, value)
        else:
            why = f"the target's {hosted.kind} has no such bound"
            plan.report.dropped((*trail, "hosted"), field, why, guarded=field in _FILTERS and bool(value))
    programs_only = _is_for_programs(tool)
    for pointer in hosted.others:
        guarded = programs_only and pointer.startswith("allowed_callers")
        plan.report.dropped(trail, "//" + pointer, f"the target's {hosted.kind} has no such setting", guarded=guarded)
    if tool.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target has no cache marks on its own tools")
    return wire


def put(wire: dict[str, Any], pointer: str, value: Any) -> None:
    """Set the value that a pointer names, in objects made as needed."""
    *parents, last = pointer.split("/")
    for name in parents:
        wire = wire.setdefault(unescape(name), {})
    wire[unescape(last)] = value


def as_functions(request: Request, plan: Plan, spelling: Spelling | None = None) -> Request:
    """The request with functions in place of the hosted tools that a client can run itself, where it asks for that.
    The choice follows, and so do calls in the history under the tool's own name."""
    if plan.home or not request.tools or NativeTool not in map(type, request.tools):
        return request
    tools = [_searching(tool, index, plan) for index, tool in enumerate(request.tools)]
    if plan.target.hosted_tools != "function":
        return replace(request, tools=tuple(tools))
    choice, demanded = request.tool_choice, chosen(request)
    for index, tool in enumerate(tools):
        if not isinstance(tool, NativeTool) or tool.hosted is None or (kind := tool.hosted.kind) not in FUNCTIONS:
            continue
        if spelling is not None and kind in spelling.native:
            continue
        if tool.hosted.allowed_domains or tool.hosted.blocked_domains or _is_for_programs(tool):
            why = f"its filter can't be kept by a function in place of {kind}"
            plan.report.dropped(("tools", index), "", why, guarded=True)
            continue
        name, parameter, about = FUNCTIONS[kind]
        schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
        plan.report.approximated(("tools", index), "", f"declared as the function {name}, which the client runs")
        plan.tools.stand_in(kind, name)
        tools[index] = FunctionTool(name=name, description=about, parameters=Raw(msgspec.json.encode(schema)))
        if tool is demanded and choice is not None:
            (named,) = choice.names
            choice = replace(choice, mode="named", names=(ToolRef(name=name, at=named.at),))
    return replace(request, tools=tuple(tools), tool_choice=choice)


def _searching(tool: Tool, index: int, plan: Plan) -> Tool:
    """OpenAI's search for tools as a function, if the client runs it: what it finds could not be called without."""
    if not isinstance(tool, NativeTool) or tool.kind != SEARCH or tool.executor != "client":
        return tool
    said = _members(tool.body)
    about = _decode(said.get("description", b"null"))
    plan.report.approximated(("tools", index), "", f"declared as the function {SEARCH}, which the client runs")
    plan.tools.stands_for(SEARCH, f"{SEARCH}_call")
    return FunctionTool(
        name=SEARCH,
        description=about if isinstance(about, str) else None,
        parameters=said.get("parameters"),
    )


def without_native(placed: PlacedTool, plan: Plan, *, connects: bool = False) -> None:
    """Report a vendor's own tool at a target that lacks it; it is refused if an answer without it is worth nothing.
    `connects`: the target has MCP connectors, but may not be told of this one."""
    tool = placed.tool
    if not isinstance(tool, NativeTool):
        raise TypeError(f"{type(tool).__name__} is no vendor's own tool")
    if plan.request is not None and is_demanded(tool, plan.request):
        chosen_too = plan.request.tool_choice is not None and plan.request.tool_choice.mode in ("named", "required")
        what = "is to be called" if chosen_too or chosen(plan.request) is tool else "is the only tool"
        why = f"{tool.kind} {what}, and the target has no such tool"
        plan.report.dropped(placed.trail, "", why, guarded=True)
        return
    guarded = plan.target.hosted_tools == "refuse" and tool.executor != "nobody"
    why = f"the target has no {tool.kind} tool" if tool.kind else "it has no type, so that no target can know it"
    if tool.server is not None:
        why = (connects and tool.server.unportable) or why
        plan.report.dropped((*placed.trail, "server"), "", why)
    plan.report.dropped(placed.trail, "", why, guarded=guarded)
    if _wants_approval(tool):
        why = f"a person is to be asked before {tool.kind} runs, and the target has no such tool"
        plan.report.dropped(placed.trail, "//require_approval", why, guarded=True)


def _is_for_programs(tool: NativeTool) -> bool:
    """Only programs may call this tool, not the model itself."""
    if b'"allowed_callers"' not in bytes(tool.body):
        return False
    body = msgspec.json.decode(tool.body)
    callers = body.get("allowed_callers") if isinstance(body, dict) else None
    return isinstance(callers, list) and "direct" not in callers


def _wants_approval(tool: NativeTool) -> bool:
    """A person was to be asked before this tool runs: dropping that word is never right."""
    if b'"require_approval"' not in bytes(tool.body):
        return False
    body = msgspec.json.decode(tool.body)
    return isinstance(body, dict) and body.get("require_approval", "never") not in ("never", None)


# ---- what they did


def use_of(kind: HostedKind, said: Any, *, id: str | None = None) -> HostedUse:
    """What a hosted tool was asked or found, from the vendor's own JSON: all of them use the same few words."""
    members = said if isinstance(said, dict) else {}
    texts = [members[name] for name in ("stdout", "stderr", "output") if isinstance(members.get(name), str)]
    if isinstance(said, str):
        texts = [said]
    code = members.get("code", members.get("command"))
    return HostedUse(
        kind=kind,
        id=id,
        queries=_strings(members.get("queries") or members.get("query")),
        urls=_strings(members.get("urls") or members.get("url")),
        code=code if isinstance(code, str) else None,
        pages=tuple(_pages(said, 0)),
        output="\n".join(text for text in texts if text) if texts else None,
    )


def in_words(call: ToolCall) -> str:
    """What a model reads of a call that another provider ran."""
    return f"[{call.name} was called{f' with {call.arguments}' if call.arguments else ''}]"


def asked(call: ToolCall) -> HostedUse:
    """What a call asks, by its arguments, which a stream brings after it."""
    if call.use is None:
        raise TypeError(f"{call.name} is no hosted tool")
    return use_of(call.use.kind, json_of(call.arguments), id=call.use.id) if call.arguments else call.use


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _pages(value: Any, depth: int) -> Iterator[Citation]:
    """The pages in a result, wherever it lists them."""
    if isinstance(value, list):
        for one in value:
            yield from _pages(one, depth)
    elif isinstance(value, dict) and depth < _DEPTH:
        url = value.get("url") or value.get("uri")
        if isinstance(url, str):
            title = value.get("title")
            yield Citation(url=url, title=title if isinstance(title, str) else None)
            return
        for name in ("results", "sources", "content", "result"):
            yield from _pages(value.get(name), depth + 1)


def json_of(raw: Raw | str) -> Any:
    """The value, for reading uses; None if it is no JSON."""
    try:
        return _decode(raw.encode() if isinstance(raw, str) else raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
