"""Google's computer use, the same in both of its protocols: functions that it declares itself, called by their names.

A point is on a grid of 1000 by 1000, whatever the screen. There are two vocabularies: that of Gemini 2.5 and 3
(`click_at`), which can only be told in a browser, and that of 3.5 and later (`click`).
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.computer import (
    Action,
    Back,
    Click,
    Drag,
    Forward,
    KeyDown,
    Keys,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    SafetyCheck,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from toolwire.canonical.content import Data, ScreenSeen, ScreenUse, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.computer import NOTCH, members_of, unread
from toolwire.codec.fields import escape
from toolwire.codec.hosted import json_of
from toolwire.codec.keys import chord_of, key_of
from toolwire.codec.pictures import Size

GRID = 1000
EARLIER, CURRENT = "computer_use_2025", "computer_use"
DECISION, ACKNOWLEDGED = "safety_decision", "safety_acknowledgement"
CONFIRM = "require_confirmation"
_FUNCTIONS = {
    EARLIER: {
        "open_web_browser": "screenshot",
        "click_at": "click",
        "hover_at": "move",
        "drag_and_drop": "drag",
        "scroll_at": "scroll",
        "type_text_at": "type",
        "key_combination": "keys",
        "wait_5_seconds": "wait",
        "search": "navigate",
        "navigate": "navigate",
        "go_back": "back",
        "go_forward": "forward",
    },
    CURRENT: {
        "take_screenshot": "screenshot",
        **dict.fromkeys(("click", "double_click", "triple_click", "middle_click", "right_click"), "click"),
        "move": "move",
        "drag_and_drop": "drag",
        "scroll": "scroll",
        "type": "type",
        **dict.fromkeys(("press_key", "hotkey"), "keys"),
        "wait": "wait",
        "navigate": "navigate",
        "go_back": "back",
        "go_forward": "forward",
        "mouse_down": "mouse_down",
        "mouse_up": "mouse_up",
        "key_down": "key_down",
        "key_up": "key_up",
    },
}
"""By vocabulary: what each function is in common words."""

_ONLY_BROWSERS = ("navigate", "back", "forward")
_EARLY = re.compile(r"gemini-(?:[12]|3-|3\.[0-4])")
_HOME = "https://www.google.com"
CLEARED = (Keys(keys=("Control", "a")), Keys(keys=("Backspace",)))
ENTER = Keys(keys=("Enter",))
_TOWARDS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_SECONDS = 5

Members = dict[str, Any]


# ---- the declaration


def with_computers(request: Request, family: str) -> Request:
    """The request with what its own tool says of the screen: the model tells which vocabulary it is."""
    if not any(type(tool) is NativeTool and tool.kind == CURRENT for tool in request.tools or ()):
        return request
    form = EARLIER if _EARLY.search(request.model or "") else CURRENT
    tools = [
        replace(tool, computer=_decode_computer(tool, form))
        if isinstance(tool, NativeTool) and tool.kind == CURRENT and tool.protocol == family
        else tool
        for tool in request.tools or ()
    ]
    return replace(request, tools=tuple(tools))


def _decode_computer(tool: NativeTool, dialect: str) -> Computer | None:
    members = json_of(tool.body)
    if not isinstance(members, dict):
        return None
    word = members.get("environment")
    said = str(word or "browser").removeprefix("ENVIRONMENT_").lower()
    environment: Any = said if said in ("browser", "desktop", "mobile") else None
    excluded = members.get("excludedPredefinedFunctions", members.get("excluded_predefined_functions"))
    left = [name for name in _FUNCTIONS[dialect] if not isinstance(excluded, list) or name not in excluded]
    kinds = list(dict.fromkeys(_FUNCTIONS[dialect][name] for name in left))
    if environment == "desktop":
        kinds = [kind for kind in kinds if kind not in _ONLY_BROWSERS]
    known = ("type", "environment") if environment else ("type",)
    others = unread(members, known)
    return Computer(dialect=dialect, kinds=tuple(kinds), environment=environment, others=tuple(others), at="")


def declared(wanted: Computer, model: str) -> tuple[Computer, str, tuple[str, ...]]:
    """The tool that a model is given for the one that a client has: with its environment, and the functions that the
    client could not run."""
    form = EARLIER if _EARLY.search(model) else CURRENT
    browsing = form == EARLIER or wanted.environment == "browser"
    environment: Any = "browser" if browsing else "desktop"
    own = Computer(dialect=form, kinds=tuple(dict.fromkeys(_FUNCTIONS[form].values())), environment=environment)
    offered = _FUNCTIONS[form] if browsing else {}
    excluded = tuple(name for name, kind in offered.items() if kind not in wanted.kinds)
    return own, environment, excluded


# ---- decode


def read_call(call: ToolCall, size: Size | None, place: str) -> ScreenUse | None:
    """What a predefined function means; None for any other, or a point on a screen of unknown size.
    `place` is where its arguments stand."""
    if (read := _READERS.get(call.name)) is None or (members := members_of(call)) is None:
        return None
    try:
        checks = _decided(members, call)
        actions = read(members, size)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    others = tuple(f"/{escape(name)}" for name, value in members.items() if value is not None)
    return ScreenUse(
        actions=actions,
        places=("",) * len(actions),
        others=others,
        checks=checks,
        checked=(f"{place}/{DECISION}",) if checks else (),
    )


def _decided(members: Members, call: ToolCall) -> tuple[SafetyCheck, ...]:
    """What a person must agree to, taken from `members`. What was decided in words that nobody here knows is no call to
    be told again."""
    decision = members.get(DECISION)
    if decision is None or decision == {"decision": "regular"}:
        return ()
    if decision.keys() - {"decision", "explanation", "checks"} or decision["decision"] != CONFIRM:
        raise ValueError("another decision")
    del members[DECISION]
    about = _text(decision.get("explanation", ""))
    if "checks" in decision:
        return msgspec.convert(decision["checks"], tuple[SafetyCheck, ...])
    return (SafetyCheck(id=f"sc_{call.id or call.name}", code=CONFIRM, message=about or None),)


def read_result(result: ToolResult) -> ScreenSeen:
    """The address and the agreement in a result: an object, or the text of one."""
    said: Members = {}
    parts = []
    for index, one in enumerate(result.content or ()):
        found = json_of(one.json) if isinstance(one, Data) else json_of(one.text) if isinstance(one, Text) else None
        if isinstance(found, dict):
            said |= found
            parts += [index] if found.keys() <= {"url", ACKNOWLEDGED} else []
    url = said.get("url")
    agreed = said.get(ACKNOWLEDGED) in (True, "true", "True")
    return ScreenSeen(url=url if isinstance(url, str) else None, acknowledged=agreed, parts=tuple(parts))


def _whole(value: Any) -> int:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _point(members: Members, size: Size | None, x: str = "x", y: str = "y") -> tuple[int, int]:
    across, down = _whole(members.pop(x)), _whole(members.pop(y))
    if size is None:
        raise ValueError("a screen of unknown size")
    return across * size[0] // GRID, down * size[1] // GRID


def _at(members: Members, size: Size | None) -> Members:
    x, y = _point(members, size)
    return {"x": x, "y": y}


def _clicking(**how: Any) -> Callable[[Members, Size | None], tuple[Action, ...]]:
    return lambda members, size: (Click(**_at(members, size), **how),)


def _typed(members: Members, _: Size | None) -> tuple[Action, ...]:
    entered = _flag(members.pop("press_enter", False))
    return (Type(text=_text(members.pop("text"))), *((ENTER,) if entered else ()))


def _typed_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    entered, cleared = _flag(members.pop("press_enter", True)), _flag(members.pop("clear_before_typing", True))
    typed = Type(text=_text(members.pop("text")))
    first = Click(**_at(members, size))
    return (first, *(CLEARED if cleared else ()), typed, *((ENTER,) if entered else ()))


def _dragged(members: Members, size: Size | None) -> tuple[Action, ...]:
    names = (
        ("start_x", "start_y", "end_x", "end_y")
        if "start_x" in members
        else ("x", "y", "destination_x", "destination_y")
    )
    return (Drag(path=(_point(members, size, *names[:2]), _point(members, size, *names[2:]))),)


def _scrolled(members: Members, size: Size | None) -> tuple[Action, ...]:
    across, down = _TOWARDS[members.pop("direction")]
    place = _at(members, size) if "x" in members or "y" in members else {}
    if "magnitude_in_wheel_clicks" in members:  # seen from live models, not in the guide
        by = _whole(members.pop("magnitude_in_wheel_clicks")) * NOTCH
    else:
        by = _whole(members.pop("magnitude_in_pixels", 300))
    return (Scroll(**place, dx=across * by, dy=down * by),)


def _scrolled_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    across, down = _TOWARDS[members.pop("direction")]
    place = _at(members, size) if "x" in members or "y" in members else {}
    if size is None:
        raise ValueError("a screen of unknown size")
    by = _whole(members.pop("magnitude", 800)) * size[0 if across else 1] // GRID
    return (Scroll(**place, dx=across * by, dy=down * by),)


def _waited(members: Members, _: Size | None) -> tuple[Action, ...]:
    return (Wait(seconds=float(_whole(members.pop("seconds", 1)))),)


def _pressed(members: Members, _: Size | None) -> tuple[Action, ...]:
    keys = chord_of(_text(members.pop("keys")), cased=False)
    if not keys:
        raise ValueError("no keys")
    return (Keys(keys=keys),)


def _hotkey(members: Members, _: Size | None) -> tuple[Action, ...]:
    words = members.pop("keys")
    if not isinstance(words, list) or not words:
        raise TypeError("no keys")
    return (Keys(keys=tuple(key_of(_text(word), cased=False) for word in words)),)


def _held(members: Members, size: Size | None) -> tuple[Action, ...]:
    place, seconds = _at(members, size), _whole(members.pop("seconds", 2))
    return (MouseDown(**place), Wait(seconds=float(seconds)), MouseUp(**place))


def _key(members: Members) -> str:
    if not (word := _text(members.pop("key"))):
        raise ValueError("no key")
    return key_of(word, cased=False)


_READERS: dict[str, Callable[[Members, Size | None], tuple[Action, ...]]] = {
    "click": _clicking(),
    "click_at": _clicking(),
    "double_click": _clicking(count=2),
    "triple_click": _clicking(count=3),
    "middle_click": _clicking(button="middle"),
    "right_click": _clicking(button="right"),
    "mouse_down": lambda members, size: (MouseDown(**_at(members, size)),),
    "mouse_up": lambda members, size: (MouseUp(**_at(members, size)),),
    "move": lambda members, size: (Move(**_at(members, size)),),
    "hover_at": lambda members, size: (Move(**_at(members, size)),),
    "long_press": _held,
    "type": _typed,
    "type_text_at": _typed_at,
    "drag_and_drop": _dragged,
    "scroll": _scrolled,
    "scroll_document": _scrolled_at,
    "scroll_at": _scrolled_at,
    "wait": _waited,
    "wait_5_seconds": lambda _, __: (Wait(seconds=float(_SECONDS)),),
    "key_combination": _pressed,
    "press_key": lambda members, _: (Keys(keys=(_key(members),)),),
    "key_down": lambda members, _: (KeyDown(key=_key(members)),),
    "key_up": lambda members, _: (KeyUp(key=_key(members)),),
    "hotkey": _hotkey,
    "take_screenshot": lambda _, __: (Screenshot(),),
    "open_web_browser": lambda _, __: (Screenshot(),),
    "search": lambda _, __: (Navigate(url=_HOME),),
    "navigate": lambda members, _: (Navigate(url=_text(members.pop("url"))),),
    "go_back": lambda _, __: (Back(),),
    "go_forward": lambda _, __: (Forward(),),
}
