"""Anthropic's tool declarations and tool choice, to canonical and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    CacheMark,
    FreeformTool,
    FunctionTool,
    NativeTool,
    Tool,
    ToolChoice,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.connectors import connector
from toolwire.codec.fields import Reader, tag_of, told
from toolwire.codec.hosted import (
    Spelling,
    choosable,
    chosen,
    decode_hosted,
    encode_hosted,
    is_demanded,
    is_native,
    without_native,
)
from toolwire.codec.kept import emit, given, joined, known, note_extras, rest, watching_extras
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.repeated import Repeated
from toolwire.codec.schema.fit import fitted_strictly
from toolwire.codec.tools import (
    OWN_SEARCH,
    PlacedTool,
    finds_tools,
    flattened,
    is_allowed,
    lowered_description,
    lowered_schema,
    report_validated,
    usable_callers,
)
from toolwire.protocols.anthropic.rules.vocabulary import STRICT, refuses_forcing, refuses_strict
from toolwire.protocols.anthropic.wire import FAMILY, CacheShape, ChoiceShape, ToolShape

from .computer import decode_computer
from .connectors import encode_server

MAX_MARKS = 4
_NULL = Raw(b"null")
EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')

_DATED = re.compile(r"_\d{8}$")
_DATES = {"web_search": "20250305", "web_fetch": "20250910", "code_execution": "20250825"}
_BOUNDS = {"max_uses": "max_uses", "allowed_domains": "allowed_domains", "blocked_domains": "blocked_domains"}
HOSTED = Spelling(
    family=FAMILY,
    words={"web_search": ("web_search",), "web_fetch": ("web_fetch",), "code_execution": ("code_execution",)},
    options={
        "web_search": {**_BOUNDS, "location": "user_location"},
        "web_fetch": {**_BOUNDS, "max_content_tokens": "max_content_tokens"},
    },
    one_filter=True,
)
_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
# Claude Code declares it beside its own search: it "keeps deferred tool loading active; never call this tool".
_PLACEHOLDER = "DeferredToolPlaceholder"
_CLIENT_RUN = ("bash", "text_editor", "memory", "computer", "computer_toolset", "browser_toolset")

_decode_tool = msgspec.json.Decoder(ToolShape).decode
_read_tool = Reader[ToolShape](ToolShape, FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_seen: Repeated[bytes, Tool] = Repeated()


# ---- decode


def decode_tools(tools: list[Raw], path: str = "/tools") -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, raw in enumerate(tools):
        text = bytes(raw)
        if (tool := _seen.get(text)) is None:
            with watching_extras() as extras:
                tool = decode_tool(Raw(text), f"{path}/{index}")
            if extras:
                note_extras()
            else:
                _seen.keep(text, tool, len(text))
        found.append(tool)
    return tuple(found)


def decode_tool(raw: Raw, path: str = "") -> FunctionTool | NativeTool:
    try:
        shape = _decode_tool(raw)
    except msgspec.ValidationError:
        kind = tag_of(raw)
        if kind is not None and kind != "custom":
            return _decode_native(raw, kind, path)
        if kind is None and bytes(raw)[:1] == b"{" and "type" in _members(raw):
            raise DecodeError(FAMILY, f"{path}/type", "a string", told(_members(raw)["type"])) from None
        shape = _read_tool(raw, path)
    if shape.type not in (UNSET, "custom"):
        return _decode_native(raw, str(shape.type), path)
    if shape.name == _PLACEHOLDER and shape.defer_loading is True:
        return NativeTool(protocol=FAMILY, kind="placeholder", name=shape.name, executor="nobody", body=raw)
    return _decode_function(shape)


def _decode_function(shape: ToolShape) -> FunctionTool:
    callers = shape.allowed_callers
    form = () if shape.type is UNSET else ("anthropic:type:custom",)
    return FunctionTool(
        name=shape.name,
        description=known(shape.description),
        parameters=shape.input_schema,
        strict=known(shape.strict),
        defer=known(shape.defer_loading),
        allowed_callers=None if callers is UNSET else tuple(callers),
        cache=decode_cache(shape.cache_control),
        **rest(shape, FAMILY, *form),
    )


def _decode_native(raw: Raw, kind: str, path: str) -> NativeTool:
    kind, date = _DATED.sub("", kind), kind[-8:]
    name = _members(raw).get("name")
    if name is not None and bytes(name)[:1] != b'"':
        raise DecodeError(FAMILY, f"{path}/name", "a string", told(name))
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=None if name is None else str(msgspec.json.decode(name)),
        executor="client" if kind in _CLIENT_RUN else "server",
        body=raw,
        hosted=decode_hosted(kind, raw, HOSTED),
        computer=decode_computer(kind, date, raw),
    )


def decode_cache(shape: CacheShape | UnsetType) -> CacheMark | None:
    if shape is UNSET:
        return None
    kept = rest(shape, FAMILY)
    if shape.type != "ephemeral":
        kept = joined(kept, {"extras": {FAMILY: {"type": Raw(msgspec.json.encode(shape.type))}}})
    return CacheMark(ttl=known(shape.ttl), **kept)


def decode_choice(shape: ChoiceShape) -> ToolChoice:
    parallel = None if shape.disable_parallel_tool_use is UNSET else not shape.disable_parallel_tool_use
    kept = rest(shape, FAMILY)
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


def encode_tools(request: Request, plan: Plan) -> list[Any] | None:
    if plan.home:
        tools = request.tools
        return None if tools is None else [_encode_at_home(tool, ("tools", i), plan) for i, tool in enumerate(tools)]
    plan.request = request
    for index, group in enumerate(request.tools or ()):
        if isinstance(group, ToolGroup) and group.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    plan.searches = any(finds_tools(placed.tool) for placed in plan.offered(request))
    offered: list[Any] = []
    for placed in choosable(request, plan):
        plan.place = f"/tools/{len(offered)}"
        if is_allowed(placed, request, plan.report) and (tool := encode_tool(placed, plan)) is not None:
            offered.append(tool)
    return offered or None


def _encode_at_home(tool: Tool, trail: Trail, plan: Plan) -> Any:
    (placed,) = flattened(tool, trail)
    return encode_tool(placed, plan)


def encode_tool(placed: PlacedTool, plan: Plan) -> Any:
    tool = placed.tool
    if isinstance(tool, NativeTool):
        if tool.protocol == FAMILY:
            return tool.body
        if tool.hosted is not None and is_native(tool, HOSTED):
            kind = tool.hosted.kind
            if kind in plan.hosted:
                plan.report.dropped(placed.trail, "", f"the target has one {kind} tool, which is declared already")
                return None
            plan.hosted.add(kind)
            return {"type": f"{kind}_{_DATES[kind]}", "name": kind, **encode_hosted(tool, placed.trail, HOSTED, plan)}
        if (server := connector(tool)) is not None:
            return encode_server(server, placed.trail, plan)
        if finds_tools(tool) and not (plan.request is not None and is_demanded(tool, plan.request)):
            plan.report.approximated(placed.trail, "", OWN_SEARCH)
            return _SEARCH
        without_native(placed, plan, connects=True)
        return None
    return _encode_function(tool, placed.trail, plan)


def _encode_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> Any:
    name = tool.name
    callers: tuple[str, ...] | None = tool.allowed_callers
    deferred: bool | UnsetType = given(tool.defer)
    if not plan.home:
        name = plan.tools.declare(tool, trail, plan.report)
        usable_callers(tool, trail, plan.report)
        callers = None
        if tool.asynchronous:
            plan.report.dropped(trail, "asynchronous")
        # It stays so when it was found: the provider binds thinking to the tools as they were.
        deferred = True if tool.defer and plan.searches and trail[0] == "tools" and tool.cache is None else UNSET
        if tool.defer and not deferred:
            plan.report.approximated(trail, "defer", "nothing would load it later: it is there from the start")
    if isinstance(tool, FreeformTool):
        schema, strict = lowered_schema(), None
        description: str | None = lowered_description(tool) or None
    else:
        schema, strict, description = _schema(tool, trail, plan), tool.strict, tool.description
        if strict and not plan.home and refuses_strict(plan.target.model or ""):
            plan.report.approximated(trail, "strict", "the model can't be held to a schema: it is told")
            strict = None
        elif strict and not plan.home:
            schema, strict = fitted_strictly(schema, STRICT, plan.report, trail, "parameters")
        if tool.output_schema is not None:
            plan.report.dropped(trail, "output_schema")
    shape = ToolShape(
        name=name,
        input_schema=schema,
        type="custom" if "anthropic:type:custom" in tool.form else UNSET,
        description=given(description),
        strict=given(strict),
        defer_loading=deferred,
        allowed_callers=UNSET if callers is None else list(callers),
        cache_control=encode_cache(tool.cache, trail, plan),
    )
    return emit(shape, tool, FAMILY)


def _schema(tool: FunctionTool, trail: Trail, plan: Plan) -> Raw:
    """The schema; for another protocol's tool one that says `object`, which this provider insists on."""
    if tool.parameters is None:
        why = "a schema is required: an empty object was declared"
        plan.report.invented(trail, "parameters", f"{plan.place}/input_schema", why)
        return EMPTY_SCHEMA
    if plan.home:
        return tool.parameters
    try:
        members = _members(tool.parameters)
    except msgspec.DecodeError:
        plan.report.dropped(trail, "parameters", "not an object schema")
        return EMPTY_SCHEMA
    complete: dict[str, Any] = {"type": Raw(b'"object"'), **members}
    if complete.keys() <= {"type", "properties"} and complete.get("properties", _NULL) == _NULL:
        complete["properties"] = {}
    if complete == members:
        return tool.parameters
    plan.report.approximated(trail, "parameters", "completed to the schema of an object")
    return Raw(msgspec.json.encode(complete))


def encode_cache(cache: CacheMark | None, trail: Trail, plan: Plan) -> Any:
    """A mark; for another protocol's request at most as many as the provider takes, and for as long as it keeps."""
    if cache is None:
        return UNSET
    if not plan.home:
        plan.marks += 1
        if plan.marks > MAX_MARKS:
            plan.report.dropped((*trail, "cache"), "", f"the target takes {MAX_MARKS} marks")
            return UNSET
        if cache.ttl not in (None, "5m", "1h"):
            plan.report.approximated((*trail, "cache"), "ttl", f"{cache.ttl} is told as 1h")
            return CacheShape(type="ephemeral", ttl="1h")
    shape = emit(CacheShape(type="ephemeral", ttl=given(cache.ttl)), cache, FAMILY)
    if cache.extras and "type" in cache.extras.get(FAMILY, {}):
        shape["type"] = cache.extras[FAMILY]["type"]
    return shape


def encode_choice(request: Request, plan: Plan, *, any_tools: bool) -> Any:
    """The choice, or UNSET. Without tools there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    if choice is None:
        return UNSET
    report_validated(choice, plan.report)
    if not plan.home and not any_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        if choice.parallel is not None:
            plan.report.dropped(("tool_choice",), "parallel", "there are no tools to call")
        return UNSET
    mode = choice.mode
    if not plan.home and mode in ("required", "named") and refuses_forcing(plan.target.model or request.model or ""):
        plan.report.approximated(("tool_choice",), "mode", "the model can't be forced to call: it may choose")
        mode = "auto"
    match mode:
        case "required":
            shape = ChoiceShape(type="any")
        case "none":
            shape = ChoiceShape(type="none")
        case "named":
            shape = _encode_named(request, choice, plan)
        case "allowed" if (hosted := _forced(request, plan)) is not None:
            shape = ChoiceShape(type="tool", name=hosted)
        case "allowed":
            why = "the target can't choose among some: only those are offered"
            plan.report.approximated(("tool_choice",), "names", why)
            shape = ChoiceShape(type="any" if choice.required else "auto")
        case _:
            shape = ChoiceShape(type="auto")
    if choice.parallel is not None and (plan.home or mode != "none"):
        shape.disable_parallel_tool_use = not choice.parallel
    return emit(shape, choice, FAMILY)


def _forced(request: Request, plan: Plan) -> str | None:
    """The hosted tool that another protocol's choice demands, if it is here."""
    tool = None if plan.home else chosen(request)
    return tool.hosted.kind if tool is not None and tool.hosted and is_native(tool, HOSTED) else None


def _encode_named(request: Request, choice: ToolChoice, plan: Plan) -> ChoiceShape:
    named = choice.names[0]
    if (hosted := _forced(request, plan)) is not None:
        return ChoiceShape(type="tool", name=hosted)
    if named.kind == "server" and not plan.home:
        why = "a server's tool can't be forced by its name: some tool is to be called"
        plan.report.approximated(("tool_choice",), "names", why)
        return ChoiceShape(type="any")
    if named.kind == "native" and not plan.home:
        plan.report.approximated(("tool_choice",), "names", "the target lacks this tool: any tool may be chosen")
        return ChoiceShape(type="auto")
    return ChoiceShape(type="tool", name=plan.name(named.name, named.namespace))
