"""Chat's tool declarations and tool choice, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    Grammar,
    NativeTool,
    Tool,
    ToolChoice,
    ToolGroup,
    ToolRef,
)
from toolwire.codec.fields import Reader, tag_of, told
from toolwire.codec.hosted import choosable, without_native
from toolwire.codec.kept import as_object, emit, given, joined, known, restore
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.repeated import Repeated, WrittenTools
from toolwire.codec.schema.fit import fitted_strictly
from toolwire.codec.tools import (
    PlacedTool,
    is_allowed,
    lowered_description,
    lowered_schema,
    report_validated,
    usable_callers,
)
from toolwire.protocols.openai import STRICT
from toolwire.protocols.openai_chat.parts.calls import LEGACY
from toolwire.protocols.openai_chat.parts.content import kept, spelled, spelling
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    ChoiceShape,
    CustomShape,
    CustomToolShape,
    FormatShape,
    FunctionShape,
    FunctionToolShape,
    GrammarShape,
    ReferenceShape,
    RequestShape,
)

from .lowering import lower_choice, with_root_type
from .search import ELSEWHERE, NO_TOOLS, is_search

TEXT_FORMAT = "openai-chat:format:text"
ANY = "openai-chat:any"

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read_noting
_read_function_tool = Reader[FunctionToolShape](FunctionToolShape, FAMILY).read_noting
_read_custom_tool = Reader[CustomToolShape](CustomToolShape, FAMILY).read_noting
_read_choice = Reader[ChoiceShape](ChoiceShape, FAMILY).read
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_seen: Repeated[bytes, Tool] = Repeated()
_written = WrittenTools()
_NO_PARAMETERS = Raw(b'{"type":"object","properties":{}}')
_LEGACY_NAMES = tuple(f"{FAMILY}:name:{name}={name}" for name in ("name", "description", "parameters", "strict"))


# ---- decode


def decode_tools(shape: RequestShape) -> tuple[tuple[Tool, ...] | None, bool]:
    """All tools, those of the deprecated `functions` last, and whether there was nothing to keep."""
    if not isinstance(shape.tools, list) and not shape.functions:
        return None, True
    tools: list[Tool] = []
    plain = True
    for index, raw in enumerate(shape.tools or ()):
        text = bytes(raw)
        if (tool := _seen.get(text)) is None:
            tool, read_whole = _decode_tool(Raw(text), f"/tools/{index}")
            if read_whole:
                _seen.keep(text, tool, len(text))
            plain = plain and read_whole
        tools.append(tool)
    for index, raw in enumerate(shape.functions or ()):
        function, read_whole = _read_function(raw, f"/functions/{index}")
        found = kept(function, LEGACY, *_LEGACY_NAMES)
        tools.append(_decode_function(function, {**found, "at": f"/functions/{index}"}))
        plain = plain and read_whole
    return tuple(tools), plain


def _decode_tool(raw: Raw, path: str) -> tuple[Tool, bool]:
    kind = tag_of(raw)
    if bytes(raw)[:1] != b"{":
        raise DecodeError(FAMILY, path, "an object", told(raw))
    members = _members(raw) if kind is None else {}
    if kind == "function" or "function" in members:
        shape, plain = _read_function_tool(raw, path)
        if plain and shape.type == "function" and _says_all(shape.function):
            return _decode_function(shape.function, {}), True
        found = joined(kept(shape), spelled("type", shape.type, "function"), kept(shape.function, under="function/"))
        return _decode_function(shape.function, found), plain
    if kind == "custom":
        custom, plain = _read_custom_tool(raw, path)
        return _decode_custom(custom), plain
    return NativeTool(protocol=FAMILY, kind=kind or "", body=raw), True


def _says_all(shape: FunctionShape) -> bool:
    """Whether there is no null in it, whose spelling would have to be kept."""
    return shape.description is not None and shape.strict is not None


def _decode_function(shape: FunctionShape, found: dict[str, Any]) -> FunctionTool:
    parameters = known(shape.parameters)
    if parameters is not None and bytes(parameters) == b"null":
        under = "" if LEGACY in found.get("form", ()) else "function/"
        found = {**found, "form": (*found.get("form", ()), f"{FAMILY}:null:{under}parameters")}
        parameters = None
    return FunctionTool(
        name=shape.name,
        description=known(shape.description),
        parameters=parameters,
        strict=known(shape.strict),
        **found,
    )


def _decode_custom(shape: CustomToolShape) -> FreeformTool:
    custom = shape.custom
    grammar = None
    format_kept: dict[str, Any] = {}
    form: tuple[str, ...] = ()
    if custom.format is not UNSET:
        format_kept = kept(custom.format, under="custom/format/")
        if custom.format.grammar is UNSET:
            form = (TEXT_FORMAT,)
            format_kept = joined(format_kept, spelled("custom/format/type", custom.format.type, "text"))
        else:
            format_kept = joined(format_kept, spelled("custom/format/type", custom.format.type, "grammar"))
            given_grammar = custom.format.grammar
            grammar = Grammar(
                syntax=given_grammar.syntax,
                definition=given_grammar.definition,
                **kept(given_grammar),
            )
    found = joined(kept(shape, *form), kept(custom, under="custom/"), format_kept)
    return FreeformTool(name=custom.name, description=known(custom.description), grammar=grammar, **found)


def decode_choice(shape: RequestShape) -> tuple[ToolChoice | None, dict[str, Raw]]:
    """The choice; and what of it can only be kept."""
    parallel = known(shape.parallel_tool_calls)
    choice: ToolChoice | None = None
    left: dict[str, Raw] = {}
    for name, raw in (("tool_choice", shape.tool_choice), ("function_call", shape.function_call)):
        if raw is UNSET or bytes(raw) == b"null":
            continue
        read = None if choice is not None else _decode_one_choice(raw, name, parallel=parallel)
        if read is None:
            left[name] = raw
        choice = choice or read
    if choice is None and parallel is not None:
        choice = ToolChoice(parallel=parallel, at="/parallel_tool_calls")
    return choice, left


def _decode_one_choice(raw: Raw, name: str, *, parallel: bool | None) -> ToolChoice | None:
    at = f"/{name}"
    legacy = (LEGACY,) if name == "function_call" else ()
    match _decode(raw):
        case "auto":
            return ToolChoice(mode="auto", parallel=parallel, form=legacy, at=at)
        case "none":
            return ToolChoice(mode="none", parallel=parallel, form=legacy, at=at)
        case "required":
            return ToolChoice(mode="required", parallel=parallel, at=at)
        case "any":
            return ToolChoice(mode="required", parallel=parallel, form=(ANY,), at=at)
        case {"name": str(function), **others} if legacy and not others:
            named = ToolRef(name=function, at="/name")
            return ToolChoice(mode="named", names=(named,), parallel=parallel, form=legacy, at=at)
        case dict():
            return _decode_object_choice(_read_choice(raw, at), at, parallel=parallel)
        case _:
            return None


def _decode_object_choice(shape: ChoiceShape, at: str, *, parallel: bool | None) -> ToolChoice | None:
    if shape.allowed_tools is not UNSET:
        allowed = shape.allowed_tools
        names = tuple(
            _decode_reference(one, f"/allowed_tools/tools/{index}") for index, one in enumerate(allowed.tools)
        )
        required = allowed.mode == "required"
        mode = spelled("allowed_tools/mode", allowed.mode, "required" if required else "auto")
        kind = spelled("type", shape.type, "allowed_tools")
        found = joined(kept(shape), mode, kind, kept(allowed, under="allowed_tools/"))
        return ToolChoice(mode="allowed", names=names, required=required, parallel=parallel, at=at, **found)
    if shape.function is UNSET and shape.custom is UNSET:
        return None
    found = joined(kept(shape), spelled("type", shape.type, _kind_of(shape)))
    return ToolChoice(mode="named", names=(_decode_reference(shape, ""),), parallel=parallel, at=at, **found)


def _kind_of(shape: ReferenceShape) -> str:
    return "custom" if shape.custom is not UNSET else "function"


def _decode_reference(shape: ReferenceShape, at: str) -> ToolRef:
    kind = _kind_of(shape)
    named = shape.custom if shape.custom is not UNSET else shape.function
    found = joined(kept(shape), spelled("type", shape.type, kind)) if at else {}
    if named is UNSET:
        return ToolRef(name="", kind="native", at=at, **found)
    found = joined(found, kept(named, f"{FAMILY}:name:name={kind}/name", under=f"{kind}/"))
    return ToolRef(name=named.name, kind="freeform" if kind == "custom" else "function", at=at, **found)


# ---- encode


def encode_tools(request: Request, plan: Plan) -> tuple[Any, list[Any] | None]:
    """`tools`, and at home what came as `functions`."""
    if plan.home:
        if request.tools is None:
            return None, None
        functions = [_encode_own(tool) for tool in request.tools if LEGACY in tool.form]
        tools = [_encode_own(tool) for tool in request.tools if LEGACY not in tool.form and ELSEWHERE not in tool.form]
        empty = not request.tools or any(NO_TOOLS in tool.form for tool in request.tools)
        return (tools if tools or empty else None), (functions or None)
    plan.request = request
    return _written.write(request, plan, lambda: _encode_offered(request, plan)), None


def _encode_offered(request: Request, plan: Plan) -> list[Any] | None:
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    offered = choosable(request, plan)
    if not plan.target.host.allowed_tools:
        offered = [one for one in offered if is_allowed(one, request, plan.report)]
    encoded = [_encode_tool(one, plan) for one in offered]
    return [tool for tool in encoded if tool is not None] or None


def _encode_own(tool: Tool) -> Any:
    if isinstance(tool, NativeTool):
        return tool.body
    if isinstance(tool, ToolGroup):
        raise TypeError("this protocol has no groups of tools")
    if isinstance(tool, FreeformTool):
        return restore({"type": "custom", "custom": _open(_custom(tool, tool.name))}, tool, FAMILY)
    function = FunctionShape(
        name=tool.name,
        description=given(tool.description),
        parameters=given(tool.parameters),
        strict=given(tool.strict),
    )
    if LEGACY in tool.form:
        return emit(function, tool, FAMILY)
    shape = FunctionToolShape(function=function, type=spelling(tool, "type", "function"))
    return emit(shape, tool, FAMILY)


def _open(shape: CustomShape) -> dict[str, Any]:
    body = as_object(shape)
    if isinstance(shape.format, FormatShape):
        body["format"] = as_object(shape.format)
    return body


def _encode_tool(placed: PlacedTool, plan: Plan) -> Any:
    tool = placed.tool
    if isinstance(tool, NativeTool):
        if not is_search(tool, plan):  # which `encode_search` says
            without_native(placed, plan)
        return None
    if tool.allowed_callers is not None:
        usable_callers(tool, placed.trail, plan.report)
    if tool.defer:
        plan.report.approximated(placed.trail, "defer", "the target has no deferred tools: it sees this one at once")
    if tool.asynchronous:
        plan.report.dropped(placed.trail, "asynchronous")
    if tool.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target has no cache marks on tools")
    if isinstance(tool, FreeformTool):
        name = plan.tools.declare(tool, placed.trail, plan.report)
        if plan.tools.freeform:
            return {"type": "custom", "custom": _custom(tool, name)}
        lowered = {"name": name, "description": lowered_description(tool), "parameters": lowered_schema()}
        return {"type": "function", "function": lowered}
    if tool.output_schema is not None:
        plan.report.dropped(placed.trail, "output_schema")
    return _encode_function(tool, placed.trail, plan)


def _custom(tool: FreeformTool, name: str) -> CustomShape:
    shape = CustomShape(name=name, description=given(tool.description))
    if tool.grammar is not None:
        grammar = GrammarShape(syntax=tool.grammar.syntax, definition=tool.grammar.definition)
        word = spelling(tool, "custom/format/type", "grammar")
        shape.format = FormatShape(type=word, grammar=emit(grammar, tool.grammar, FAMILY))
    elif TEXT_FORMAT in tool.form:
        shape.format = FormatShape(type=spelling(tool, "custom/format/type", "text"))
    return shape


def _encode_function(tool: FunctionTool, trail: Trail, plan: Plan) -> Any:
    function: dict[str, Any] = {"name": plan.tools.declare(tool, trail, plan.report)}
    if tool.description is not None:
        function["description"] = tool.description
    schema, strict = tool.parameters, tool.strict
    if strict and schema is not None:
        schema, strict = fitted_strictly(schema, STRICT, plan.report, trail, "parameters")
        if schema is not tool.parameters:
            plan.tools.completed(tool)
    bare = plan.target.host.bare_functions
    if schema is not None:
        function["parameters"] = schema if bare else with_root_type(schema)
    elif not bare:
        function["parameters"] = _NO_PARAMETERS
    if strict or (strict is not None and bare):
        function["strict"] = strict
    return {"type": "function", "function": function}


def encode_choice(request: Request, plan: Plan, *, any_tools: bool) -> dict[str, Any]:
    """`tool_choice` and `parallel_tool_calls`: the target refuses both where there are no tools."""
    choice = request.tool_choice
    if choice is None:
        return {}
    report_validated(choice, plan.report)
    if not plan.home and not any_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        if choice.parallel is not None:
            plan.report.dropped(("tool_choice",), "parallel", "there are no tools to call")
        return {}
    body: dict[str, Any] = {}
    if choice.parallel is not None:
        body["parallel_tool_calls"] = choice.parallel
    if not plan.home and not plan.target.host.allowed_tools:
        choice = lower_choice(choice, plan)
    if choice.mode is not None:
        name = "function_call" if LEGACY in choice.form else "tool_choice"
        body[name] = _encode_mode(choice, plan, _chosen(request, plan))
    return body


def _chosen(request: Request, plan: Plan) -> list[ToolRef]:
    """The tools that the choice names and that are offered; the others are reported."""
    choice = request.tool_choice
    if choice is None or not choice.names or plan.home:
        return [] if choice is None else list(choice.names)
    offered = {placed.tool.name for placed in plan.offered(request) if not isinstance(placed.tool, NativeTool)}
    found = []
    for index, named in enumerate(choice.names):
        if named.kind in ("function", "freeform") and named.name in offered:
            found.append(named)
        elif choice.mode == "named":
            plan.report.approximated(("tool_choice",), "names", "the target lacks this tool: any tool may be chosen")
        else:
            plan.report.dropped(("tool_choice", "names", index), "", "the target lacks this tool")
    return found


def _encode_mode(choice: ToolChoice, plan: Plan, chosen: list[ToolRef]) -> Any:
    match choice.mode:
        case "required":
            return "any" if ANY in choice.form else "required"
        case "named" if LEGACY in choice.form:
            return restore({"name": choice.names[0].name}, choice, FAMILY)
        case "named":
            return _encode_named(choice, chosen[0], plan) if chosen else "auto"
        case "allowed":
            tools = [_encode_reference(one, plan) for one in chosen]
            allowed: dict[str, Any] = {"tools": tools}
            if (mode := spelling(choice, "allowed_tools/mode", "required" if choice.required else "auto")) is not UNSET:
                allowed["mode"] = mode
            whole = {"type": spelling(choice, "type", "allowed_tools"), "allowed_tools": allowed}
            return restore({name: value for name, value in whole.items() if value is not UNSET}, choice, FAMILY)
        case mode:
            return mode


def _encode_named(choice: ToolChoice, named: ToolRef, plan: Plan) -> Any:
    body = _encode_reference(named, plan)
    if (word := spelling(choice, "type", body["type"])) is UNSET:
        del body["type"]
    else:
        body["type"] = word
    return restore(body, choice, FAMILY)


def _encode_reference(named: ToolRef, plan: Plan) -> dict[str, Any]:
    free = named.kind == "freeform" and (plan.home or plan.tools.freeform)
    kind = "custom" if free else "function"
    body: dict[str, Any] = {
        "type": spelling(named, "type", kind),
        kind: {"name": plan.name(named.name, named.namespace)},
    }
    if body["type"] is UNSET:
        del body["type"]
    if named.kind == "native":
        del body[kind]
    return restore(body, named, FAMILY)
