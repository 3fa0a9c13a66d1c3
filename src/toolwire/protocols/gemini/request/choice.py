"""Gemini's tool choice, to canonical and back."""

from typing import Any

from msgspec import UNSET

from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    ToolChoice,
    ToolRef,
)
from toolwire.codec.hosted import chosen
from toolwire.codec.kept import joined
from toolwire.codec.plan import Plan
from toolwire.protocols.gemini.parts.spelling import Spelling, extra, write
from toolwire.protocols.gemini.wire import FAMILY, CallingShape
from toolwire.protocols.google import is_validated

# ---- decode


def decode_choice(config: Any, spelling: Spelling, place: str) -> ToolChoice | None:
    """The choice of functions; what else `toolConfig` holds is the request's."""
    if config is UNSET or config.function_calling_config is UNSET:
        return None
    calling = config.function_calling_config
    inner = f"{place}/functionCallingConfig"
    spelling.read(calling, inner)
    source = spelling.source(inner)
    own = Spelling(f"/{source}")
    own.adopt(spelling, inner)
    listed = calling.allowed_function_names
    names_place = "/" + own.source("allowedFunctionNames")
    told_names = () if listed is UNSET else listed
    names = tuple([ToolRef(name=name, at=f"{names_place}/{index}") for index, name in enumerate(told_names)])
    mode, required, form, more = _decode_mode(calling.mode, len(names))
    validated = calling.mode == "VALIDATED"
    if listed == []:
        form = (*form, "gemini:names:empty")
    kept = joined(own.kept("ToolChoice", (calling, ""), form=form), more)
    return ToolChoice(mode=mode, names=names, required=required, validated=validated, at=f"/{source}", **kept)


def _decode_mode(word: Any, names: int) -> tuple[Any, bool, tuple[str, ...], dict[str, Any]]:
    match word:
        case "ANY" if names == 1:
            return "named", False, (), {}
        case "ANY":
            return ("allowed", True, (), {}) if names else ("required", False, (), {})
        case "NONE":
            return "none", False, (), {}
        case "AUTO" | "VALIDATED":
            return ("allowed" if names else "auto"), False, (), {}
        case _ if word is UNSET:
            return ("allowed" if names else None), False, ("gemini:absent:mode",), {}
        case _:
            return ("allowed" if names else None), False, ("gemini:absent:mode",), extra("mode", word)


# ---- encode


def encode_choice(request: Request, plan: Plan, *, any_functions: bool) -> Any:
    """The choice, or UNSET. Without functions there is nothing to choose, and the provider refuses the word."""
    choice = request.tool_choice
    if plan.home:
        return UNSET if choice is None else _encode_own_choice(choice)
    validated = any_functions and (is_validated(request) or (choice is not None and choice.validated))
    if choice is None:
        return CallingShape(mode="VALIDATED") if validated else UNSET
    if choice.parallel is False:
        plan.report.dropped(("tool_choice",), "parallel", "the target can't be held to one call at a time")
    if not any_functions:
        if choice.mode is not None:
            plan.report.dropped(("tool_choice",), "mode", "there are no functions to choose from")
        return UNSET
    if chosen(request) is not None:
        plan.report.approximated(("tool_choice",), "names", "the target can't force its own tools: any may be chosen")
        return CallingShape(mode="AUTO")
    return _encode_mode(choice, plan, validated=validated)


_MODES: dict[Any, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _encode_mode(choice: ToolChoice, plan: Plan, *, validated: bool) -> Any:
    if validated and not choice.names:
        return CallingShape(mode="VALIDATED")
    if choice.mode is None:
        return UNSET
    if choice.mode in _MODES:
        return CallingShape(mode=_MODES[choice.mode])
    names = [plan.name(one.name, one.namespace) for one in choice.names if one.kind in ("function", "freeform")]
    if not names:
        why = "the target can't force its own tools: any may be chosen"
        plan.report.approximated(("tool_choice",), "names", why)
        return CallingShape(mode="AUTO")
    for index, one in enumerate(choice.names):
        if one.kind not in ("function", "freeform"):
            plan.report.dropped(("tool_choice", "names", index), "", "the target lacks this tool")
    # To choose freely among some is only possible where calls are also held to their schemas.
    forced = choice.mode == "named" or choice.required
    return CallingShape(mode="ANY" if forced else "VALIDATED", allowed_function_names=names)


def _encode_own_choice(choice: ToolChoice) -> Any:
    words = {**_MODES, "named": "ANY"}
    shape = CallingShape()
    if "gemini:absent:mode" not in choice.form and "mode" not in (choice.extras or {}).get(FAMILY, {}):
        free = "VALIDATED" if choice.validated else "AUTO"
        shape.mode = free if choice.mode == "auto" else words.get(choice.mode, "ANY" if choice.required else free)
    if choice.names or "gemini:names:empty" in choice.form:
        shape.allowed_function_names = [one.name for one in choice.names]
    return write(shape, choice)


def tool_config(calling: Any, more: dict[str, Any]) -> Any:
    """`toolConfig`, or None if there is nothing to say in it."""
    if calling is UNSET and not more:
        return None
    shape: dict[str, Any] = {} if calling is UNSET else {"functionCallingConfig": calling}
    return {**shape, **more}
