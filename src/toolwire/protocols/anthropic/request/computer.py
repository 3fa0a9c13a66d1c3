"""The declaration of Anthropic's computer use, and which of its forms a model is given."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.computer import SafetyCheck
from toolwire.canonical.content import ToolCall, ToolResult
from toolwire.canonical.tools import Computer, NativeTool, Tool
from toolwire.codec.computer import Form, unread
from toolwire.codec.hosted import json_of
from toolwire.protocols.anthropic.parts.computer import (
    BROWSER,
    CLICKS,
    SINGLE,
    TOOLSET,
    read_call,
    read_result,
    write_calls,
)
from toolwire.protocols.anthropic.rules.vocabulary import model_kind
from toolwire.protocols.anthropic.wire import FAMILY

from .connectors import BETA as CONNECTS

_BETA = "computer-use-2025-11-24"
"""Without it the provider does not know the tool that is no toolset."""

_OLDEST = "screenshot click move drag type keys cursor_position"
_KINDS = {
    SINGLE: f"{_OLDEST} scroll wait zoom mouse_down mouse_up",
    TOOLSET: f"{_OLDEST} scroll wait zoom mouse_down mouse_up",
    BROWSER: "screenshot click move drag type keys scroll wait zoom mouse_down mouse_up "
    "navigate back forward reload read_text",
}
# By member of the browser toolset: what it is called in common, if it is.
_MEMBERS = {
    **dict.fromkeys(CLICKS, "click"),
    "navigate": "navigate",
    "screenshot": "screenshot",
    "zoom": "zoom",
    "hover": "move",
    "mouse_move": "move",
    "left_click_drag": "drag",
    "left_mouse_down": "mouse_down",
    "left_mouse_up": "mouse_up",
    "scroll": "scroll",
    "type": "type",
    "key": "keys",
    "hold_key": "keys",
    "wait": "wait",
    "get_page_text": "read_text",
}
_TABS = [
    "list_tabs",
    "new_tab",
    "switch_tab",
    "close_tab",
    "read_page",
    "read_console",
    "read_network",
    "find",
    "form_input",
    "file_upload",
    "scroll_to",
    "javascript_exec",
]


# ---- decode


def decode_computer(kind: str, date: str, raw: Raw) -> Computer | None:
    """What a declaration says of the screen; None if it is another tool."""
    if kind not in _KINDS:
        return None
    if not isinstance(members := json_of(raw), dict):
        return None
    width, height = members.pop("display_width_px", None), members.pop("display_height_px", None)
    sizes = [one if type(one) is int and one > 0 else None for one in (width, height)]
    others = unread(members, ("type", "name") if members.get("name") == "computer" else ("type",))
    others += [] if sizes[0] or width is None else ["display_width_px"]
    others += [] if sizes[1] or height is None else ["display_height_px"]
    kinds = _enabled(kind, members.get("configs"), (_OLDEST if date == "20241022" else _KINDS[kind]).split())
    return Computer(
        dialect=kind,
        kinds=tuple(kinds),
        width=sizes[0],
        height=sizes[1],
        environment="browser" if kind == BROWSER else "desktop",
        others=tuple(others),
        form=("environment",),
        at="",
    )


def _enabled(kind: str, configs: Any, kinds: list[str]) -> list[str]:
    """The actions without those of which every member is turned off."""
    if not isinstance(configs, dict) or kind == SINGLE:
        return kinds
    off = {name for name, config in configs.items() if isinstance(config, dict) and config.get("enabled") is False}
    members = _MEMBERS if kind == BROWSER else _MEMBERS_OF_COMPUTER
    there = {means for name, means in members.items() if name not in off}
    there |= set() if "navigate" in off else {"back", "forward", "reload"}
    return [one for one in kinds if one in there]


# ---- encode


def _declare(wanted: Computer, model: str) -> tuple[NativeTool, Computer]:
    generation = model_kind(model)[1]
    if (0, 0) < generation < (5, 5) and wanted.width and wanted.height:
        body: dict[str, Any] = {"type": "computer_20251124", "name": "computer"}
        body |= {"display_width_px": wanted.width, "display_height_px": wanted.height}
        return _tool(SINGLE, body, wanted, name="computer")
    if wanted.environment != "browser":
        missing = [name for name, kind in _MEMBERS_OF_COMPUTER.items() if kind not in wanted.kinds]
        return _tool(TOOLSET, {"type": "computer_toolset_20260801", **_without(missing)}, wanted)
    missing = [*_TABS, *(name for name, kind in _MEMBERS.items() if kind not in wanted.kinds)]
    return _tool(BROWSER, {"type": "browser_toolset_20260801", **_without(missing)}, wanted)


_MEMBERS_OF_COMPUTER = {
    **{name: kind for name, kind in _MEMBERS.items() if name not in ("navigate", "hover", "get_page_text")},
    "cursor_position": "cursor_position",
}


def _without(members: list[str]) -> dict[str, Any]:
    """The client can't do these: the model is not offered them."""
    return {"configs": {name: {"enabled": False} for name in members}} if members else {}


def _tool(kind: str, body: dict[str, Any], wanted: Computer, name: str | None = None) -> tuple[NativeTool, Computer]:
    sized = (wanted.width, wanted.height) if kind == SINGLE else (None, None)
    environment = None if kind == SINGLE else wanted.environment
    kinds = tuple(_KINDS[kind].split())
    own = Computer(dialect=kind, kinds=kinds, width=sized[0], height=sized[1], environment=environment)
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind=kind, name=name, body=raw, executor="client", computer=own), own


def _call(call: ToolCall, own: Computer, _: tuple[SafetyCheck, ...]) -> ToolCall:
    return replace(call, toolset=_toolset(own))


def _result(result: ToolResult, own: Computer, _: tuple[SafetyCheck, ...]) -> ToolResult:
    return replace(result, toolset=_toolset(own))


def _toolset(own: Computer) -> str | None:
    return {TOOLSET: "computer", BROWSER: "browser"}.get(own.dialect)


def betas(*, connects: bool, tools: tuple[Tool, ...] | None) -> tuple[tuple[str, str], ...]:
    """The header that a request needs for what it declares, if it came from another protocol."""
    single = any(
        isinstance(tool, NativeTool) and tool.protocol == FAMILY and tool.kind == SINGLE for tool in tools or ()
    )
    words = ([CONNECTS[1]] if connects else []) + ([_BETA] if single else [])
    return ((CONNECTS[0], ",".join(words)),) if words else ()


SCREEN = Form(
    family=FAMILY,
    kin=(FAMILY,),
    arguments="input",
    read=read_call,
    write=write_calls,
    call=_call,
    result=_result,
    declare=_declare,
    seen=read_result,
)
