"""Tool choice of the Responses API, to canonical and back."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    NativeTool,
    ToolChoice,
    ToolRef,
)
from toolwire.codec.hosted import chosen, is_native
from toolwire.codec.kept import as_object, emit, given, known, rest, restore
from toolwire.codec.plan import Plan
from toolwire.codec.tools import report_validated
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ChoiceShape,
    ChosenShape,
)

from .tools import HOSTED, beside, with_more

_NO_NAME = "openai-responses:absent:name"
_NO_MODE = "openai-responses:absent:mode"
_NO_TOOLS = "openai-responses:absent:tools"
CHOICES: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}


# ---- decode


def decode_choice(choice: str | ChoiceShape | UnsetType, *, parallel: bool | None) -> ToolChoice | None:
    if choice is UNSET or (isinstance(choice, str) and choice not in CHOICES):
        return None if parallel is None else ToolChoice(parallel=parallel, at="/parallel_tool_calls")
    if isinstance(choice, str):
        return ToolChoice(mode=CHOICES[choice], parallel=parallel)
    if choice.type != "allowed_tools":
        named = replace(_decode_chosen(choice), at="")
        return ToolChoice(mode="named", names=(named,), parallel=parallel, **beside(choice, ("mode", "tools")))
    kept = with_more(rest(choice, FAMILY), beside(choice, ("name", "server_label")))
    form: tuple[str, ...] = (_NO_TOOLS,) if choice.tools is UNSET else ()
    if choice.mode not in ("auto", "required"):
        form = (*form, _NO_MODE)
        kept = with_more(kept, beside(choice, ("mode",)))
    tools = choice.tools or []
    return ToolChoice(
        mode="allowed",
        names=tuple(replace(_decode_chosen(one), at=f"/tools/{index}") for index, one in enumerate(tools)),
        required=choice.mode == "required",
        natives=True,
        parallel=parallel,
        **with_more(kept, {"form": form}),
    )


def _decode_chosen(shape: ChosenShape) -> ToolRef:
    match shape.type:
        case "function" | "custom" if shape.name is not UNSET:
            kept = with_more(rest(shape, FAMILY), beside(shape, ("server_label",)))
            return ToolRef(name=shape.name, kind="function" if shape.type == "function" else "freeform", **kept)
        case "mcp":
            form = (_NO_NAME,) if shape.name is UNSET else ()
            server = known(shape.server_label)
            return ToolRef(name=shape.name or "", server=server, kind="server", **rest(shape, FAMILY, *form))
        case kind:
            kept = with_more(rest(shape, FAMILY), beside(shape, ("name", "server_label")))
            return ToolRef(name=kind, kind="native", **kept)


# ---- encode


def encode_choice(request: Request, plan: Plan, *, any_tools: bool) -> Any:
    """The choice, or UNSET. Without tools there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    report_validated(choice, plan.report)
    if choice is None or choice.mode is None:
        return UNSET
    if not plan.home and not any_tools:
        plan.report.dropped(("tool_choice",), "", "there are no tools to choose from")
        return UNSET
    if not plan.home and (hosted := chosen(request)) is not None and is_native(hosted, HOSTED):
        return _encode_forced(hosted)
    match choice.mode:
        case "named":
            named = choice.names[0]
            shape = _encode_chosen(named, plan)
            if shape is None:
                return "auto"
            return restore(restore(as_object(shape), named, FAMILY), choice, FAMILY)
        case "allowed":
            members = [_encode_chosen(one, plan) for one in choice.names]
            mode = "required" if choice.required else "auto"
            tools = [emit(one, ref, FAMILY) for one, ref in zip(members, choice.names, strict=True) if one is not None]
            allowed = ChoiceShape(type="allowed_tools", mode=mode, tools=tools)
            if _NO_MODE in choice.form:
                allowed.mode = UNSET
            if _NO_TOOLS in choice.form and not tools:
                allowed.tools = UNSET
            return emit(allowed, choice, FAMILY)
        case _:
            return choice.mode


def _encode_forced(tool: NativeTool) -> dict[str, Any]:
    """The choice that demands a hosted tool. A search under its newer word can't be named by itself, only be the one
    that may be chosen."""
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter"}
    return {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}


def encode_parallel(request: Request, plan: Plan, *, any_tools: bool) -> Any:
    choice = request.tool_choice
    if choice is None or choice.parallel is None:
        return UNSET
    if not plan.home and not any_tools:
        plan.report.dropped(("tool_choice",), "parallel", "there are no tools to call")
        return UNSET
    return choice.parallel


def _encode_chosen(named: ToolRef, plan: Plan) -> ChosenShape | None:
    if not plan.home and named.kind in ("native", "server"):
        plan.report.approximated(("tool_choice",), "names", "the target lacks this tool: any tool may be chosen")
        return None
    match named.kind:
        case "function" | "freeform":
            name = named.name if plan.home else plan.tools.alias(named.name)
            return ChosenShape(type="custom" if named.kind == "freeform" else "function", name=name)
        case "server":
            member = UNSET if _NO_NAME in named.form else named.name
            return ChosenShape(type="mcp", server_label=given(named.server), name=member)
        case "native":
            return ChosenShape(type=named.name)
