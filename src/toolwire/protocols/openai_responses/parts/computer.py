"""Computer use of the Responses API: actions in a call, only one in the preview's, and a screenshot for an answer."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.computer import (
    Action,
    Click,
    Drag,
    Keys,
    Move,
    SafetyCheck,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from toolwire.canonical.content import ScreenSeen, ScreenUse, ToolCall, ToolResult
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.computer import Form, Saying, Spoken, each, extras_of, unread
from toolwire.codec.fields import escape
from toolwire.codec.hosted import json_of
from toolwire.codec.keys import key_of, spelt
from toolwire.codec.pictures import Size
from toolwire.protocols.openai_responses.wire import FAMILY, GUARDED

_PREVIEW = "computer_use_preview"
_TOOL, _CALL = "computer", "computer_call"
_KINDS = ("screenshot", "click", "move", "drag", "scroll", "type", "keys", "wait")
_BUTTONS = {"left": "left", "right": "right", "wheel": "middle", "back": "back", "forward": "forward"}
_WORDS: dict[str, str] = {ours: theirs for theirs, ours in _BUTTONS.items()}
_NAMES = {"Control": "CTRL", "Meta": "CMD", "Alt": "ALT", "Shift": "SHIFT", "Escape": "ESC", " ": "SPACE"}
_NAMES |= {
    name: name.upper()
    for name in ["Enter", "Tab", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown", "CapsLock"]
}
_NAMES |= {f"Arrow{side}": f"ARROW{side.upper()}" for side in ("Up", "Down", "Left", "Right")}
_SCREENS = {"browser": "browser", "mac": "desktop", "windows": "desktop", "linux": "desktop", "ubuntu": "desktop"}
_USUAL = (1024, 768)
"""The size that the preview's guide declares: it wants one."""

_SEVERAL = '{"actions":'
_FORM = ("openai-responses:name:arguments=%s", "openai-responses:whole:")
_EMPTY = "openai-responses:empty:pending_safety_checks"
_CHECK = {"id", "code", "message"}


# ---- the declaration


def decode_computer(kind: str, raw: Raw) -> Computer | None:
    """What a declaration says of the screen; None if it is another tool."""
    if kind not in (_TOOL, "computer_use", _PREVIEW):
        return None
    if not isinstance(members := json_of(raw), dict):
        return None
    width, height = members.get("display_width"), members.get("display_height")
    whole = type(width) is int and type(height) is int and width > 0 and height > 0
    environment = _SCREENS.get(str(members.get("environment")))
    known = (
        "type",
        *(("display_width", "display_height") if whole else ()),
        *(("environment",) if environment else ()),
    )
    return Computer(
        dialect=kind,
        kinds=_KINDS,
        width=width if whole else None,
        height=height if whole else None,
        environment=environment,  # type: ignore[arg-type]
        others=tuple(unread(members, known)),
        at="",
    )


def _declare(wanted: Computer, model: str) -> tuple[NativeTool, Computer]:
    form, body = _TOOL, {"type": _TOOL}
    if "computer-use-preview" in model:
        width, height = (wanted.width, wanted.height) if wanted.width and wanted.height else _USUAL
        environment = "browser" if wanted.environment == "browser" else "linux"
        form, body = _PREVIEW, {"type": _PREVIEW, "display_width": width, "display_height": height}  # type: ignore[dict-item]
        body |= {"environment": environment}
    own = Computer(dialect=form, kinds=_KINDS)
    if form == _PREVIEW:
        own = replace(own, width=wanted.width, height=wanted.height, environment=wanted.environment)
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind=form, body=raw, executor="client", computer=own), own


# ---- decode


def _read(call: ToolCall, _: Size | None) -> ScreenUse | None:
    if call.native != _CALL:
        return None
    try:
        said = msgspec.json.decode(call.arguments.encode())
        listed = call.arguments.startswith(_SEVERAL)
        found = said["actions"] if listed else [said]
        others: list[str] = []
        actions: list[Action] = []
        for index, one in enumerate(found):
            members = dict(one)
            actions.append(_acted(members))
            place = f"/{index}/" if listed else "/"
            others += [place + escape(name) for name, value in members.items() if value is not None]
        checks = _pending(call)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, ValueError, KeyError):
        return None
    checked = tuple(f"pending_safety_checks/{index}" for index in range(len(checks)))
    places = tuple(f"/{index}" if listed else "" for index in range(len(actions)))
    return ScreenUse(actions=tuple(actions), places=places, others=tuple(others), checks=checks, checked=checked)


def _pending(call: ToolCall) -> tuple[SafetyCheck, ...]:
    for kept in (call.extras or {}).values():
        if (raw := kept.get("pending_safety_checks")) is not None:
            said = msgspec.json.decode(raw, type=list[dict[str, Any]])
            if any(one.keys() - _CHECK for one in said):
                raise ValueError("more than a check")
            return msgspec.convert(said, tuple[SafetyCheck, ...])
    return ()


def _acted(members: dict[str, Any]) -> Action:
    """What an action means; it takes from `members` what it understands."""
    match members.pop("type"):
        case "click":
            button: Any = _BUTTONS[members.pop("button")]
            return Click(**_point(members), button=button, keys=_keys(members.pop("keys", None)))
        case "double_click":
            return Click(**_point(members), count=2, keys=_keys(members.pop("keys", None)))
        case "move":
            return Move(**_point(members), keys=_keys(members.pop("keys", None)))
        case "drag":
            path = [dict(one) for one in members.pop("path")]
            points = tuple((_whole(one.pop("x")), _whole(one.pop("y"))) for one in path)
            if any(path) or len(points) < 2:
                raise ValueError("a drag has points")
            return Drag(path=points, keys=_keys(members.pop("keys", None)))
        case "scroll":
            by = {"dx": _whole(members.pop("scroll_x")), "dy": _whole(members.pop("scroll_y"))}
            return Scroll(**_point(members), **by, keys=_keys(members.pop("keys", None)))
        case "keypress":
            keys = _keys(members.pop("keys"))
            if not keys:
                raise ValueError("no keys")
            return Keys(keys=keys)
        case "type":
            if not isinstance(text := members.pop("text"), str):
                raise TypeError("no text")
            return Type(text=text)
        case "wait":
            return Wait()
        case "screenshot":
            return Screenshot()
        case _:
            raise ValueError("another action")


def _point(members: dict[str, Any]) -> dict[str, Any]:
    return {"x": _whole(members.pop("x")), "y": _whole(members.pop("y"))}


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def _keys(words: Any) -> tuple[str, ...]:
    if words is None:
        return ()
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise TypeError("no keys")
    return tuple(key_of(word, cased=False) for word in words)


def _seen(result: ToolResult) -> ScreenSeen:
    kept = (result.extras or {}).get(FAMILY, {})
    if (raw := kept.get("acknowledged_safety_checks")) is None:
        return ScreenSeen()
    found = json_of(raw)
    ids = [one.get("id") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return ScreenSeen(acknowledged=bool(ids), checks=tuple(str(id) for id in ids))


# ---- encode


def _write(actions: tuple[Action, ...], own: Computer, saying: Saying) -> list[Spoken] | None:
    told = each(actions, _said, saying)
    if told is None or own.dialect == _PREVIEW:
        return told
    return [Spoken(_TOOL, {"actions": [one.arguments for one in told]})]


def _said(action: Action, saying: Saying) -> list[Spoken] | None:
    made = _actions_for(action, saying)
    return None if made is None else [Spoken(_TOOL, one) for one in made]


def _actions_for(action: Action, saying: Saying) -> list[dict[str, Any]] | None:
    match action:
        case Screenshot():
            return [{"type": "screenshot"}]
        case Click():
            return _clicked(action, saying)
        case Move(x=x, y=y):
            return [{"type": "move", **_at((x, y)), **_held(action)}]
        case Drag(path=path):
            return [{"type": "drag", "path": [_at(point) for point in path], **_held(action)}]
        case Scroll(dx=dx, dy=dy):
            point = saying.where(action)
            if point is None and saying.size is not None:
                point = saying.size[0] // 2, saying.size[1] // 2
            if point is None:
                return None
            return [{"type": "scroll", **_at(point), "scroll_x": dx, "scroll_y": dy, **_held(action)}]
        case Type(text=text):
            return [{"type": "type", "text": text}]
        case Keys(keys=keys, repeat=repeat, hold=hold):
            if hold is not None:
                saying.lose("keys are pressed, and not held")
            return [{"type": "keypress", "keys": spelt(keys, _NAMES)}] * repeat
        case Wait(seconds=seconds):
            if seconds is not None:
                saying.lose("how long to wait is not told")
            return [{"type": "wait"}]
        case _:
            return None


def _clicked(action: Click, saying: Saying) -> list[dict[str, Any]] | None:
    if (point := saying.where(action)) is None:
        return None
    once = {"type": "click", "button": _WORDS[action.button], **_at(point), **_held(action)}
    twice = {"type": "double_click", **_at(point), "keys": spelt(action.keys, _NAMES) or None}
    if action.count == 1 or action.button != "left":
        return [once] * action.count
    if action.count == 3:
        saying.lose("a third click is told after a double one")
    return [twice] if action.count == 2 else [twice, once]


def _at(point: tuple[int, int]) -> dict[str, int]:
    return {"x": point[0], "y": point[1]}


def _held(action: Click | Move | Drag | Scroll) -> dict[str, Any]:
    return {"keys": spelt(action.keys, _NAMES)} if action.keys else {}


def _call(call: ToolCall, own: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    field = "action" if own.dialect == _PREVIEW else "actions"
    form = tuple(token % field if "%s" in token else token for token in _FORM)
    extras = {**(call.extras or {}), **extras_of(GUARDED, {"pending_safety_checks": checks})} if checks else call.extras
    return replace(call, native=_CALL, form=form if checks else (*form, _EMPTY), extras=extras)


def _result(result: ToolResult, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    seen = result.screen is not None and result.screen.acknowledged
    extras = extras_of(FAMILY, {"acknowledged_safety_checks": checks}) if checks and seen else None
    return replace(result, native="computer_call_output", extras=extras, status="ok")


SCREEN = Form(
    family=FAMILY,
    kin=(FAMILY,),
    arguments="",
    read=_read,
    write=_write,
    call=_call,
    result=_result,
    declare=_declare,
    seen=_seen,
    checks=True,
    pictures_only=True,
)
