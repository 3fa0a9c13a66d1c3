"""Tool declarations and tool choice of the Interactions API, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.connectors import connector
from toolwire.codec.fields import Reader, tag_of
from toolwire.codec.hosted import Spelling, choosable, chosen, decode_hosted, encode_hosted, is_native, without_native
from toolwire.codec.kept import as_object, emit, given, joined, known, rest, restore
from toolwire.codec.losses import Trail
from toolwire.codec.schema.fit import fitted
from toolwire.codec.tools import (
    PlacedTool,
    flattened,
    lowered_description,
    lowered_schema,
    usable_callers,
)
from toolwire.protocols.gemini_interactions.parts.plan import StepPlan
from toolwire.protocols.gemini_interactions.wire import FAMILY, AllowedShape, ChoiceShape, FunctionShape
from toolwire.protocols.google import JSON_SCHEMA, is_validated
from toolwire.protocols.google_servers import decode_newer, encode_newer
from toolwire.protocols.google_tools import OLDER, newer

CHOICES = {"auto": "auto", "any": "required", "none": "none", "validated": "auto"}
_WORDS = {"auto": "auto", "required": "any", "none": "none"}
_MODE = "gemini-interactions:name:mode=allowed_tools/mode"
_VALIDATED = "validated"
_MODES = ("auto", "any", _VALIDATED)
_HELD = "gemini-interactions:name:validated=allowed_tools/mode"
_NO_MODE = "gemini-interactions:absent:mode"
_NO_TOOLS = "gemini-interactions:absent:tools"
_EMPTY = "gemini-interactions:empty"

HOSTED = Spelling(
    family=FAMILY,
    words={"web_search": ("google_search",), "web_fetch": ("url_context",), "code_execution": ("code_execution",)},
    options={},
)

_read_function = Reader[FunctionShape](FunctionShape, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_tools(tools: list[Raw]) -> tuple[Tool, ...]:
    return tuple([_decode_tool(raw, f"/tools/{index}") for index, raw in enumerate(tools)])


def _decode_tool(raw: Raw, path: str) -> Tool:
    kind = tag_of(raw)
    if kind == "function":
        shape = _read_function(raw, path)
        null = shape.parameters is not UNSET and bytes(shape.parameters) == b"null"
        return FunctionTool(
            name=shape.name,
            description=known(shape.description),
            parameters=None if null else known(shape.parameters),
            **rest(shape, FAMILY, *((f"{FAMILY}:null:parameters",) if null else ())),
        )
    name = _decode(_read_object(raw, path).get("name", b"null"))
    return NativeTool(
        protocol=FAMILY,
        kind=kind or "",
        name=name if isinstance(name, str) else None,
        executor="client" if kind == "computer_use" else "server",
        body=raw,
        hosted=decode_hosted(kind or "", raw, HOSTED),
        server=decode_newer(raw, path) if kind == "mcp_server" else None,
    )


def decode_choice(choice: str | ChoiceShape | UnsetType) -> ToolChoice | None:
    """None for a word that only this protocol has; the request keeps it."""
    if choice is UNSET:
        return None
    if isinstance(choice, str):
        if choice not in CHOICES:
            return None
        return ToolChoice(mode=CHOICES[choice], validated=choice == _VALIDATED)  # type: ignore[arg-type]
    allowed = choice.allowed_tools
    if allowed is UNSET:
        return ToolChoice(**rest(choice, FAMILY, _EMPTY))
    kept = joined(rest(choice, FAMILY), rest(allowed, FAMILY, under="allowed_tools/"))
    form = [_MODE, _HELD]
    if allowed.mode not in _MODES:
        form.append(_NO_MODE)
        if isinstance(allowed.mode, str):
            word = Raw(msgspec.json.encode(allowed.mode))
            kept = joined(kept, {"extras": {FAMILY: {"allowed_tools/mode": word}}})
    if allowed.tools is UNSET:
        form.append(_NO_TOOLS)
    names = tuple(ToolRef(name=name) for name in allowed.tools or ())
    named = len(names) == 1 and allowed.mode == "any"
    return ToolChoice(
        mode="named" if named else "none" if allowed.mode == "none" else "allowed",
        names=names,
        required=allowed.mode == "any" and not named,
        validated=allowed.mode == _VALIDATED,
        **joined(kept, {"form": tuple(form)}),
    )


# ---- encode


def encode_tools(request: Request, plan: StepPlan) -> list[Any] | None:
    if plan.home:
        tools = request.tools
        return None if tools is None else [_encode_at_home(tool, ("tools", i), plan) for i, tool in enumerate(tools)]
    plan.request = request
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    offered = [_encode_tool(placed, plan) for placed in choosable(request, plan)]
    return [tool for tool in offered if tool is not None] or None


def _encode_at_home(tool: Tool, trail: Trail, plan: StepPlan) -> Any:
    (placed,) = flattened(tool, trail)
    return _encode_tool(placed, plan)


def _encode_tool(placed: PlacedTool, plan: StepPlan) -> Any:
    tool = placed.tool
    if not isinstance(tool, NativeTool):
        return _encode_function(tool, placed.trail, plan)
    if tool.protocol == FAMILY:
        return tool.body
    if tool.protocol == OLDER and (made := newer(tool, placed.trail, plan.report)) is not None:
        return made | plan.located if made["type"] == "google_maps" else made
    if tool.hosted is not None and is_native(tool, HOSTED):
        return {"type": HOSTED.words[tool.hosted.kind][0], **encode_hosted(tool, placed.trail, HOSTED, plan)}
    if (server := connector(tool)) is not None:
        return encode_newer(server, placed.trail, plan)
    without_native(placed, plan, connects=True)
    return None


def _encode_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: StepPlan) -> Any:
    if plan.home and isinstance(tool, FunctionTool):
        shape = FunctionShape(type="function", name=tool.name, parameters=given(tool.parameters))
        shape.description = given(tool.description)
        return emit(shape, tool, FAMILY)
    shape = FunctionShape(type="function", name=plan.tools.declare(tool, trail, plan.report))
    usable_callers(tool, trail, plan.report)
    if tool.asynchronous:
        plan.report.dropped(trail, "asynchronous")
    if tool.defer:
        plan.report.approximated(trail, "defer", "without the other provider's search it is declared at once")
    if tool.cache is not None:
        plan.report.dropped(trail, "cache", "the target keeps prefixes by itself")
    if isinstance(tool, FreeformTool):
        shape.description, shape.parameters = lowered_description(tool), lowered_schema()
        return shape
    shape.description, shape.parameters = given(tool.description), _schema(tool, trail, plan)
    if tool.strict and not (plan.request is not None and is_validated(plan.request)):
        plan.report.dropped(trail, "strict", "the target is strict for all functions or for none")
    if tool.output_schema is not None:
        plan.report.dropped(trail, "output_schema")
    return shape


def _schema(tool: FunctionTool, trail: Trail, plan: StepPlan) -> Any:
    if tool.parameters is not None and bytes(tool.parameters)[:1] != b"{":
        plan.report.dropped(trail, "parameters", "not an object schema")
        return UNSET
    if tool.parameters is None:
        return UNSET
    return fitted(tool.parameters, JSON_SCHEMA, plan.report, trail, "parameters")


def encode_choice(request: Request, plan: StepPlan, *, any_tools: bool) -> Any:
    """The choice, or UNSET."""
    choice = request.tool_choice
    if plan.home:
        return UNSET if choice is None else _encode_home_choice(choice)
    held = is_validated(request)
    if choice is None:
        return _VALIDATED if held else UNSET
    free = _VALIDATED if held or choice.validated else "auto"
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target's models may always call several at once")
    if choice.mode is None:
        return _VALIDATED if held else UNSET
    if not any_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        return UNSET
    if choice.mode not in ("named", "allowed"):
        return free if choice.mode == "auto" else _WORDS[choice.mode]
    functions = [named for named in choice.names if named.kind in ("function", "freeform") and not chosen(request)]
    if len(functions) < len(choice.names):
        plan.report.approximated(("tool_choice",), "names", "the target chooses among functions only")
    if not functions:
        return "any" if choice.required else "auto"
    mode = "any" if choice.mode == "named" or choice.required else free
    names = [plan.name(named.name, named.namespace) for named in functions]
    return ChoiceShape(allowed_tools=AllowedShape(mode=mode, tools=names))


def _encode_home_choice(choice: ToolChoice) -> Any:
    if _EMPTY in choice.form:
        return restore({}, choice, FAMILY)
    free = _VALIDATED if choice.validated else "auto"
    if _MODE not in choice.form and choice.mode in _WORDS:
        return free if choice.mode == "auto" else _WORDS[choice.mode]
    allowed = AllowedShape(tools=[named.name for named in choice.names])
    if _NO_MODE not in choice.form:
        allowed.mode = "any" if choice.mode == "named" or choice.required else free
    if _NO_TOOLS in choice.form and not choice.names:
        allowed.tools = UNSET
    return restore({"allowed_tools": as_object(allowed)}, choice, FAMILY)
