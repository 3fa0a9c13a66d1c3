"""Computer use in Google's two protocols: predefined functions that the model calls by name.

Points are on a grid of 1000 by 1000, whatever the size of the screen. There are two dialects: that of Gemini 2.5 and 3
(`click_at`), which works only in a browser, and that of 3.5 and later (`click`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw
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
from toolwire.canonical.content import ComputerUse, Data, ScreenObservation, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.encoding.computer import PIXELS_PER_NOTCH, call_arguments, chord_of, key_of, unread_pointers
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.media import Size
from toolwire.codec.models.gemini import uses_legacy_computer
from toolwire.codec.validation import JsonObject, object_of, text_of
from toolwire.codec.wire.reader import escape_pointer

GRID = 1000
LEGACY_DIALECT, CURRENT_DIALECT = "computer_use_2025", "computer_use"
DECISION_FIELD, ACKNOWLEDGEMENT_FIELD = "safety_decision", "safety_acknowledgement"
REQUIRE_CONFIRMATION = "require_confirmation"
_FUNCTION_KINDS = {
    LEGACY_DIALECT: {
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
    CURRENT_DIALECT: {
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
"""Canonical action kind of each function, by dialect."""

_BROWSER_KINDS = ("navigate", "back", "forward")
_SEARCH_PAGE = "https://www.google.com"
CLEAR_FIELD = (Keys(keys=("Control", "a")), Keys(keys=("Backspace",)))
ENTER_KEY = Keys(keys=("Enter",))
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_LEGACY_WAIT_SECONDS = 5

Members = dict[str, Any]

# ---- declaration


def with_computer_tools(request: Request, family: str) -> Request:
    """Return the request with decoded screen settings on its computer tools.

    The model determines the dialect, the set of predefined functions.
    """
    if not any(type(tool) is NativeTool and tool.kind == CURRENT_DIALECT for tool in request.tools or ()):
        return request
    dialect = LEGACY_DIALECT if uses_legacy_computer(request.model or "") else CURRENT_DIALECT
    tools = [
        replace(tool, computer=_decode_computer(tool, dialect))
        if isinstance(tool, NativeTool) and tool.kind == CURRENT_DIALECT and tool.protocol == family
        else tool
        for tool in request.tools or ()
    ]
    return replace(request, tools=tuple(tools))


def _decode_computer(tool: NativeTool, dialect: str) -> Computer | None:
    """Decode a computer tool: its environment and the actions it offers."""
    members = parse_json(tool.body)
    if not isinstance(members, dict):
        return None
    wire_environment = members.get("environment")
    environment_name = str(wire_environment or "browser").removeprefix("ENVIRONMENT_").lower()
    environment: Any = environment_name if environment_name in ("browser", "desktop", "mobile") else None
    excluded = members.get("excludedPredefinedFunctions", members.get("excluded_predefined_functions"))
    functions = [name for name in _FUNCTION_KINDS[dialect] if not isinstance(excluded, list) or name not in excluded]
    kinds = list(dict.fromkeys(_FUNCTION_KINDS[dialect][name] for name in functions))
    if environment == "desktop":
        kinds = [kind for kind in kinds if kind not in _BROWSER_KINDS]
    read_fields = ("type", "environment") if environment else ("type",)
    unread = unread_pointers(members, read_fields)
    return Computer(dialect=dialect, kinds=tuple(kinds), environment=environment, others=tuple(unread), at="")


def declare_computer(client_computer: Computer, model: str) -> tuple[Computer, str, tuple[str, ...]]:
    """Choose the computer to offer the model for the client's computer.

    Return the canonical computer, its environment, and the predefined functions to exclude.
    """
    dialect = LEGACY_DIALECT if uses_legacy_computer(model) else CURRENT_DIALECT
    is_browser = dialect == LEGACY_DIALECT or client_computer.environment == "browser"
    environment: Any = "browser" if is_browser else "desktop"
    target_computer = Computer(
        dialect=dialect, kinds=tuple(dict.fromkeys(_FUNCTION_KINDS[dialect].values())), environment=environment
    )
    offered = _FUNCTION_KINDS[dialect] if is_browser else {}
    excluded = tuple(name for name, kind in offered.items() if kind not in client_computer.kinds)
    return target_computer, environment, excluded


# ---- decode


def decode_computer_call(call: ToolCall, size: Size | None, location: str) -> ComputerUse | None:
    """Decode a predefined function as actions; `location` is the pointer of its arguments.

    Return None for any other function, or for a point on a screen of unknown size.
    """
    if (decoder := _DECODERS.get(call.name)) is None or (members := call_arguments(call)) is None:
        return None
    try:
        checks = _take_safety_checks(members, call)
        actions = decoder(members, size)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    unread = tuple(f"/{escape_pointer(name)}" for name, value in members.items() if value is not None)
    return ComputerUse(
        actions=actions,
        places=("",) * len(actions),
        others=unread,
        checks=checks,
        checked=(f"{location}/{DECISION_FIELD}",) if checks else (),
    )


def _take_safety_checks(members: Members, call: ToolCall) -> tuple[SafetyCheck, ...]:
    """Remove the safety decision from `members`; return the checks that a user must confirm.

    An unknown decision raises `ValueError`, so that the call is not translated.
    """
    decision = members.get(DECISION_FIELD)
    if decision is None or decision == {"decision": "regular"}:
        return ()
    if decision.keys() - {"decision", "explanation", "checks"} or decision["decision"] != REQUIRE_CONFIRMATION:
        raise ValueError("unknown safety decision")
    del members[DECISION_FIELD]
    explanation = _expect_text(decision.get("explanation", ""))
    if "checks" in decision:
        return msgspec.convert(decision["checks"], tuple[SafetyCheck, ...])
    return (SafetyCheck(id=f"sc_{call.id or call.name}", code=REQUIRE_CONFIRMATION, message=explanation or None),)


def decode_computer_result(result: ToolResult) -> ScreenObservation:
    """Decode the URL and acknowledgement in a result: an object, or text that holds one."""
    members: Members = {}
    part_indices = []
    for index, part in enumerate(result.content or ()):
        value = (
            parse_json(part.json)
            if isinstance(part, Data)
            else parse_json(part.text)
            if isinstance(part, Text)
            else None
        )
        if isinstance(value, dict):
            members |= value
            part_indices += [index] if value.keys() <= {"url", ACKNOWLEDGEMENT_FIELD} else []
    url = members.get("url")
    is_acknowledged = members.get(ACKNOWLEDGEMENT_FIELD) in (True, "true", "True")
    return ScreenObservation(
        url=url if isinstance(url, str) else None, acknowledged=is_acknowledged, parts=tuple(part_indices)
    )


def _expect_int(value: Any) -> int:
    """Return an integer, or raise `TypeError`."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise TypeError("not an integer")
    return value


def _expect_text(value: Any) -> str:
    """Return a string, or raise `TypeError`."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _expect_bool(value: Any) -> bool:
    """Return a boolean, or raise `TypeError`."""
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


def _decode_point(members: Members, size: Size | None, x_name: str = "x", y_name: str = "y") -> tuple[int, int]:
    """Convert a point on Google's grid to pixels (x, y)."""
    grid_x, grid_y = _expect_int(members.pop(x_name)), _expect_int(members.pop(y_name))
    if size is None:
        raise ValueError("unknown screen size")
    return grid_x * size[0] // GRID, grid_y * size[1] // GRID


def _decode_position(members: Members, size: Size | None) -> Members:
    """Convert `x` and `y` from Google's 1000-unit grid to pixels of a screen of this size."""
    x, y = _decode_point(members, size)
    return {"x": x, "y": y}


def _click_decoder(**options: Any) -> Callable[[Members, Size | None], tuple[Action, ...]]:
    """Return a function that decodes a click, with these arguments for `Click`."""
    return lambda members, size: (Click(**_decode_position(members, size), **options),)


def _decode_type(members: Members, _: Size | None) -> tuple[Action, ...]:
    """Decode typing, with Enter if requested."""
    press_enter = _expect_bool(members.pop("press_enter", False))
    return (Type(text=_expect_text(members.pop("text"))), *((ENTER_KEY,) if press_enter else ()))


def _decode_type_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    """Decode one function that clicks a field, clears it, types and presses Enter, as several actions."""
    press_enter, clear_first = (
        _expect_bool(members.pop("press_enter", True)),
        _expect_bool(members.pop("clear_before_typing", True)),
    )
    typing = Type(text=_expect_text(members.pop("text")))
    click = Click(**_decode_position(members, size))
    return (click, *(CLEAR_FIELD if clear_first else ()), typing, *((ENTER_KEY,) if press_enter else ()))


def _decode_drag(members: Members, size: Size | None) -> tuple[Action, ...]:
    """Decode a drag in either dialect."""
    names = (
        ("start_x", "start_y", "end_x", "end_y")
        if "start_x" in members
        else ("x", "y", "destination_x", "destination_y")
    )
    return (Drag(path=(_decode_point(members, size, *names[:2]), _decode_point(members, size, *names[2:]))),)


def _decode_scroll(members: Members, size: Size | None) -> tuple[Action, ...]:
    """Decode scrolling by pixels or wheel notches."""
    x_sign, y_sign = _DIRECTIONS[members.pop("direction")]
    position = _decode_position(members, size) if "x" in members or "y" in members else {}
    if "magnitude_in_wheel_clicks" in members:  # seen from live models, not in the guide
        distance = _expect_int(members.pop("magnitude_in_wheel_clicks")) * PIXELS_PER_NOTCH
    else:
        distance = _expect_int(members.pop("magnitude_in_pixels", 300))
    return (Scroll(**position, dx=x_sign * distance, dy=y_sign * distance),)


def _decode_scroll_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    """Decode a scroll, whose distance is in units of Google's 1000-unit grid; fails without a screen size."""
    x_sign, y_sign = _DIRECTIONS[members.pop("direction")]
    position = _decode_position(members, size) if "x" in members or "y" in members else {}
    if size is None:
        raise ValueError("unknown screen size")
    distance = _expect_int(members.pop("magnitude", 800)) * size[0 if x_sign else 1] // GRID
    return (Scroll(**position, dx=x_sign * distance, dy=y_sign * distance),)


def _decode_wait(members: Members, _: Size | None) -> tuple[Action, ...]:
    """Decode a wait of some seconds."""
    return (Wait(seconds=float(_expect_int(members.pop("seconds", 1)))),)


def _decode_key_combination(members: Members, _: Size | None) -> tuple[Action, ...]:
    """Decode a key combination such as `Control+A`."""
    keys = chord_of(_expect_text(members.pop("keys")), case_sensitive=False)
    if not keys:
        raise ValueError("no keys")
    return (Keys(keys=keys),)


def _decode_hotkey(members: Members, _: Size | None) -> tuple[Action, ...]:
    """Decode a list of keys."""
    names = members.pop("keys")
    if not isinstance(names, list) or not names:
        raise TypeError("no keys")
    return (Keys(keys=tuple(key_of(_expect_text(name), case_sensitive=False) for name in names)),)


def _decode_long_press(members: Members, size: Size | None) -> tuple[Action, ...]:
    """Decode a long press as mouse down, wait and mouse up."""
    position, seconds = _decode_position(members, size), _expect_int(members.pop("seconds", 2))
    return (MouseDown(**position), Wait(seconds=float(seconds)), MouseUp(**position))


def _decode_key(members: Members) -> str:
    """Remove one key from `members` and return its canonical name."""
    if not (name := _expect_text(members.pop("key"))):
        raise ValueError("no key")
    return key_of(name, case_sensitive=False)


_DECODERS: dict[str, Callable[[Members, Size | None], tuple[Action, ...]]] = {
    "click": _click_decoder(),
    "click_at": _click_decoder(),
    "double_click": _click_decoder(count=2),
    "triple_click": _click_decoder(count=3),
    "middle_click": _click_decoder(button="middle"),
    "right_click": _click_decoder(button="right"),
    "mouse_down": lambda members, size: (MouseDown(**_decode_position(members, size)),),
    "mouse_up": lambda members, size: (MouseUp(**_decode_position(members, size)),),
    "move": lambda members, size: (Move(**_decode_position(members, size)),),
    "hover_at": lambda members, size: (Move(**_decode_position(members, size)),),
    "long_press": _decode_long_press,
    "type": _decode_type,
    "type_text_at": _decode_type_at,
    "drag_and_drop": _decode_drag,
    "scroll": _decode_scroll,
    "scroll_document": _decode_scroll_at,
    "scroll_at": _decode_scroll_at,
    "wait": _decode_wait,
    "wait_5_seconds": lambda _, __: (Wait(seconds=float(_LEGACY_WAIT_SECONDS)),),
    "key_combination": _decode_key_combination,
    "press_key": lambda members, _: (Keys(keys=(_decode_key(members),)),),
    "key_down": lambda members, _: (KeyDown(key=_decode_key(members)),),
    "key_up": lambda members, _: (KeyUp(key=_decode_key(members)),),
    "hotkey": _decode_hotkey,
    "take_screenshot": lambda _, __: (Screenshot(),),
    "open_web_browser": lambda _, __: (Screenshot(),),
    "search": lambda _, __: (Navigate(url=_SEARCH_PAGE),),
    "navigate": lambda members, _: (Navigate(url=_expect_text(members.pop("url"))),),
    "go_back": lambda _, __: (Back(),),
    "go_forward": lambda _, __: (Forward(),),
}

COMPUTER_USE_KIND = "computer_use"
NO_MEMBERS: Mapping[str, Any] = {}

# ---- calls and results


def encode_computer_call(call: ToolCall, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    """Return the call with a safety decision in its arguments, unchanged without checks."""
    if not checks:
        return call
    explanation = "\n".join(check.message or check.code or check.id or "" for check in checks)
    decision = {"decision": REQUIRE_CONFIRMATION, "explanation": explanation, "checks": checks}
    arguments = {**(call_arguments(call) or {}), DECISION_FIELD: decision}
    return replace(call, arguments=msgspec.json.encode(arguments).decode())


def encode_computer_result(result: ToolResult, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    """Return the result with the URL and acknowledgement, in the object that Google's clients send."""
    screen = result.screen
    members: dict[str, Any] = {} if screen is None or screen.url is None else {"url": screen.url}
    if checks and screen is not None and screen.acknowledged:
        members[ACKNOWLEDGEMENT_FIELD] = "true"
    return encode_result_object(result, members)


def encode_result_object(result: ToolResult, members: Mapping[str, Any] = NO_MEMBERS) -> ToolResult:
    """Return the result with all its texts and objects merged into one object, plus these members."""
    combined = dict(members)
    texts: list[str] = []
    images = []
    for part in result.content or ():
        if isinstance(part, Text) and not isinstance(parse_json(part.text), dict):
            texts.append(part.text)
        elif isinstance(part, Text | Data):
            value = parse_json(part.text if isinstance(part, Text) else part.json)
            combined = {**(value if isinstance(value, dict) else {"output": value}), **combined}
        else:
            images.append(part)
    if texts:
        combined["error" if result.status != "ok" else "output"] = "\n".join(texts)
    elif result.status != "ok":
        combined["error"] = "failed"
    content = (Data(json=Raw(msgspec.json.encode(combined))),) if combined else ()
    return replace(result, content=(*content, *images), native=COMPUTER_USE_KIND)


_UNACKNOWLEDGED_MESSAGE = (
    "The safety decision from function call {name} must be acknowledged in the corresponding function response."
)


def acknowledgement_error(name: object, arguments: object, response: JsonObject) -> str | None:
    """Return Google's error message if the result lacks the confirmation that its call requires, else None."""
    if object_of(object_of(arguments).get(DECISION_FIELD)).get("decision") != REQUIRE_CONFIRMATION:
        return None
    if response.get(ACKNOWLEDGEMENT_FIELD) in (True, "true", "True"):
        return None
    return _UNACKNOWLEDGED_MESSAGE.format(name=text_of(name))
