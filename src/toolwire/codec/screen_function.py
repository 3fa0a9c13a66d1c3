"""Computer use where a protocol has none: a function whose arguments are the common actions themselves.

It is also the form of a client of our own, which runs common actions (`COMMON`): that one declares `computer_tool`, and
is told of safety checks beside the actions.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.content import ScreenUse, ToolCall, ToolResult
from toolwire.canonical.tools import Computer, FunctionTool, NativeTool

from .computer import Form, Saying, Spoken
from .pictures import Size

NAME = "computer"

_POINT = {"x": {"type": "integer"}, "y": {"type": "integer"}}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_FIELDS: dict[str, dict[str, Any]] = {
    "screenshot": {},
    "click": {
        **_POINT,
        "button": {"type": "string", "enum": ["left", "right", "middle"]},
        "count": {"type": "integer", "enum": [1, 2, 3]},
        "keys": _TEXTS,
    },
    "move": _POINT,
    "drag": {"path": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}},
    "scroll": {**_POINT, "dx": {"type": "integer"}, "dy": {"type": "integer"}},
    "type": {"text": {"type": "string"}},
    "keys": {"keys": _TEXTS, "repeat": {"type": "integer"}, "hold": {"type": "number"}},
    "key_down": {"key": {"type": "string"}},
    "key_up": {"key": {"type": "string"}},
    "wait": {"seconds": {"type": "number"}},
    "zoom": {name: {"type": "integer"} for name in ("x0", "y0", "x1", "y1")},
    "navigate": {"url": {"type": "string"}},
    "back": {},
    "forward": {},
    "reload": {},
    "read_text": {},
    "mouse_down": _POINT,
    "mouse_up": _POINT,
    "cursor_position": {},
}
_ABOUT = (
    "Drive a screen: the actions are done in order, then a screenshot is returned. Points are pixels from the top left "
    "corner. Keys are named as in the W3C's UI Events (Enter, ArrowDown, Control) or are the character itself; those "
    "of one action are one chord. A drag is a path of points; scrolling is by pixels to the right (dx) and down (dy)."
)


class _Arguments(msgspec.Struct):
    actions: tuple[Action, ...]
    checks: tuple[SafetyCheck, ...] = ()


_read_arguments = msgspec.json.Decoder(_Arguments).decode


def _read(call: ToolCall, _: Size | None) -> ScreenUse | None:
    if call.name != NAME:
        return None
    try:
        said = _read_arguments(call.arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    checked = ("arguments",) if said.checks else ()
    return ScreenUse(actions=said.actions, places=("",) * len(said.actions), checks=said.checks, checked=checked)


def _write(actions: tuple[Action, ...], _: Computer, __: Saying) -> list[Spoken] | None:
    return [Spoken(NAME, {"actions": actions})]


def _declare(wanted: Computer, _: str) -> tuple[FunctionTool, Computer]:
    kinds = tuple(kind for kind in _FIELDS if kind in wanted.kinds)
    fields: dict[str, Any] = {"kind": {"type": "string", "enum": list(kinds)}}
    for kind in kinds:
        fields |= _FIELDS[kind]
    item = {"type": "object", "properties": fields, "required": ["kind"]}
    schema = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": item}},
        "required": ["actions"],
    }
    size = f" The screen is {wanted.width} by {wanted.height} pixels." if wanted.width and wanted.height else ""
    own = Computer(dialect=NAME, kinds=tuple(_FIELDS), width=wanted.width, height=wanted.height)
    about = _ABOUT + size
    return FunctionTool(name=NAME, description=about, parameters=Raw(msgspec.json.encode(schema))), own


def _call(call: ToolCall, _: Computer, __: tuple[SafetyCheck, ...]) -> ToolCall:
    return call


def _checked_call(call: ToolCall, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    if not checks:
        return call
    said = msgspec.json.decode(call.arguments, type=dict[str, Raw])
    return replace(call, arguments=msgspec.json.encode({**said, "checks": checks}).decode())


def _result(result: ToolResult, _: Computer, __: tuple[SafetyCheck, ...]) -> ToolResult:
    return result


FUNCTION = Form(
    family="",
    kin=(),
    arguments="function/arguments",
    read=_read,
    write=_write,
    call=_call,
    result=_result,
    declare=_declare,
)

COMMON = replace(FUNCTION, family="toolwire", kin=("toolwire",), arguments="arguments", call=_checked_call, checks=True)
"""The form of a client that runs common actions: how its calls are read (`with_screens`) and told to it (`raising`)."""


def computer_tool(
    width: int,
    height: int,
    kinds: tuple[str, ...] = tuple(_FIELDS),
    environment: Literal["browser", "desktop"] = "browser",
) -> NativeTool:
    """The tool that such a client declares, for a screen of this size and the actions that it can do."""
    computer = Computer(dialect=NAME, kinds=kinds, width=width, height=height, environment=environment, at="")
    return NativeTool(
        protocol=COMMON.family, kind=NAME, name=NAME, body=Raw(b"{}"), executor="client", computer=computer
    )
