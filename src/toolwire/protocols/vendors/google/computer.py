"""Google's computer use, the same in both of its protocols: functions that it declares itself, called by their names.

A point is on a grid of 1000 by 1000, whatever the screen. There are two vocabularies: that of Gemini 2.5 and 3
(`click_at`), which can only be told in a browser, and that of 3.5 and later (`click`).

How common actions on a screen are told to Google's models, and to clients that run its functions.

What both of Google's protocols reject of computer use: a decision that nobody acknowledged.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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
from toolwire.codec.encoding.computer import (
    PIXELS_PER_NOTCH,
    ActionEncodingState,
    EncodedAction,
    call_arguments,
    chord_of,
    key_of,
    round_seconds,
    unread_pointers,
    vendor_keys,
)
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.media import Size
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
"""By vocabulary: what each function is in common words."""

_BROWSER_KINDS = ("navigate", "back", "forward")
_LEGACY_MODELS = re.compile(r"gemini-(?:[12]|3-|3\.[0-4])")
_SEARCH_PAGE = "https://www.google.com"
CLEAR_FIELD = (Keys(keys=("Control", "a")), Keys(keys=("Backspace",)))
ENTER_KEY = Keys(keys=("Enter",))
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_LEGACY_WAIT_SECONDS = 5

Members = dict[str, Any]

# ---- the declaration


def with_computer_tools(request: Request, family: str) -> Request:
    """The request with what its own tool says of the screen: the model tells which vocabulary it is."""
    if not any(type(tool) is NativeTool and tool.kind == CURRENT_DIALECT for tool in request.tools or ()):
        return request
    form = LEGACY_DIALECT if _LEGACY_MODELS.search(request.model or "") else CURRENT_DIALECT
    tools = [
        replace(tool, computer=_decode_computer(tool, form))
        if isinstance(tool, NativeTool) and tool.kind == CURRENT_DIALECT and tool.protocol == family
        else tool
        for tool in request.tools or ()
    ]
    return replace(request, tools=tuple(tools))


def _decode_computer(tool: NativeTool, dialect: str) -> Computer | None:
    members = parse_json(tool.body)
    if not isinstance(members, dict):
        return None
    word = members.get("environment")
    said = str(word or "browser").removeprefix("ENVIRONMENT_").lower()
    environment: Any = said if said in ("browser", "desktop", "mobile") else None
    excluded = members.get("excludedPredefinedFunctions", members.get("excluded_predefined_functions"))
    left = [name for name in _FUNCTION_KINDS[dialect] if not isinstance(excluded, list) or name not in excluded]
    kinds = list(dict.fromkeys(_FUNCTION_KINDS[dialect][name] for name in left))
    if environment == "desktop":
        kinds = [kind for kind in kinds if kind not in _BROWSER_KINDS]
    known = ("type", "environment") if environment else ("type",)
    others = unread_pointers(members, known)
    return Computer(dialect=dialect, kinds=tuple(kinds), environment=environment, others=tuple(others), at="")


def declare_computer(client_computer: Computer, model: str) -> tuple[Computer, str, tuple[str, ...]]:
    """The tool that a model is given for the one that a client has: with its environment, and the functions that the
    client could not run."""
    form = LEGACY_DIALECT if _LEGACY_MODELS.search(model) else CURRENT_DIALECT
    browsing = form == LEGACY_DIALECT or client_computer.environment == "browser"
    environment: Any = "browser" if browsing else "desktop"
    own = Computer(dialect=form, kinds=tuple(dict.fromkeys(_FUNCTION_KINDS[form].values())), environment=environment)
    offered = _FUNCTION_KINDS[form] if browsing else {}
    excluded = tuple(name for name, kind in offered.items() if kind not in client_computer.kinds)
    return own, environment, excluded


# ---- decode


def decode_computer_call(call: ToolCall, size: Size | None, location: str) -> ComputerUse | None:
    """What a predefined function means; None for any other, or a point on a screen of unknown size.
    `place` is where its arguments stand."""
    if (read := _DECODERS.get(call.name)) is None or (members := call_arguments(call)) is None:
        return None
    try:
        checks = _take_safety_checks(members, call)
        actions = read(members, size)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    others = tuple(f"/{escape_pointer(name)}" for name, value in members.items() if value is not None)
    return ComputerUse(
        actions=actions,
        places=("",) * len(actions),
        others=others,
        checks=checks,
        checked=(f"{location}/{DECISION_FIELD}",) if checks else (),
    )


def _take_safety_checks(members: Members, call: ToolCall) -> tuple[SafetyCheck, ...]:
    """What a person must agree to, taken from `members`. What was decided in words that nobody here knows is no call to
    be told again."""
    decision = members.get(DECISION_FIELD)
    if decision is None or decision == {"decision": "regular"}:
        return ()
    if decision.keys() - {"decision", "explanation", "checks"} or decision["decision"] != REQUIRE_CONFIRMATION:
        raise ValueError("unknown safety decision")
    del members[DECISION_FIELD]
    about = _expect_text(decision.get("explanation", ""))
    if "checks" in decision:
        return msgspec.convert(decision["checks"], tuple[SafetyCheck, ...])
    return (SafetyCheck(id=f"sc_{call.id or call.name}", code=REQUIRE_CONFIRMATION, message=about or None),)


def decode_computer_result(result: ToolResult) -> ScreenObservation:
    """The address and the agreement in a result: an object, or the text of one."""
    said: Members = {}
    parts = []
    for index, one in enumerate(result.content or ()):
        found = (
            parse_json(one.json) if isinstance(one, Data) else parse_json(one.text) if isinstance(one, Text) else None
        )
        if isinstance(found, dict):
            said |= found
            parts += [index] if found.keys() <= {"url", ACKNOWLEDGEMENT_FIELD} else []
    url = said.get("url")
    agreed = said.get(ACKNOWLEDGEMENT_FIELD) in (True, "true", "True")
    return ScreenObservation(url=url if isinstance(url, str) else None, acknowledged=agreed, parts=tuple(parts))


def _expect_int(value: Any) -> int:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise TypeError("not an integer")
    return value


def _expect_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _expect_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


def _decode_point(members: Members, size: Size | None, x_name: str = "x", y_name: str = "y") -> tuple[int, int]:
    across, down = _expect_int(members.pop(x_name)), _expect_int(members.pop(y_name))
    if size is None:
        raise ValueError("unknown screen size")
    return across * size[0] // GRID, down * size[1] // GRID


def _decode_position(members: Members, size: Size | None) -> Members:
    x, y = _decode_point(members, size)
    return {"x": x, "y": y}


def _click_decoder(**options: Any) -> Callable[[Members, Size | None], tuple[Action, ...]]:
    return lambda members, size: (Click(**_decode_position(members, size), **options),)


def _decode_type(members: Members, _: Size | None) -> tuple[Action, ...]:
    entered = _expect_bool(members.pop("press_enter", False))
    return (Type(text=_expect_text(members.pop("text"))), *((ENTER_KEY,) if entered else ()))


def _decode_type_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    entered, cleared = (
        _expect_bool(members.pop("press_enter", True)),
        _expect_bool(members.pop("clear_before_typing", True)),
    )
    typed = Type(text=_expect_text(members.pop("text")))
    first = Click(**_decode_position(members, size))
    return (first, *(CLEAR_FIELD if cleared else ()), typed, *((ENTER_KEY,) if entered else ()))


def _decode_drag(members: Members, size: Size | None) -> tuple[Action, ...]:
    names = (
        ("start_x", "start_y", "end_x", "end_y")
        if "start_x" in members
        else ("x", "y", "destination_x", "destination_y")
    )
    return (Drag(path=(_decode_point(members, size, *names[:2]), _decode_point(members, size, *names[2:]))),)


def _decode_scroll(members: Members, size: Size | None) -> tuple[Action, ...]:
    across, down = _DIRECTIONS[members.pop("direction")]
    place = _decode_position(members, size) if "x" in members or "y" in members else {}
    if "magnitude_in_wheel_clicks" in members:  # seen from live models, not in the guide
        by = _expect_int(members.pop("magnitude_in_wheel_clicks")) * PIXELS_PER_NOTCH
    else:
        by = _expect_int(members.pop("magnitude_in_pixels", 300))
    return (Scroll(**place, dx=across * by, dy=down * by),)


def _decode_scroll_at(members: Members, size: Size | None) -> tuple[Action, ...]:
    across, down = _DIRECTIONS[members.pop("direction")]
    place = _decode_position(members, size) if "x" in members or "y" in members else {}
    if size is None:
        raise ValueError("unknown screen size")
    by = _expect_int(members.pop("magnitude", 800)) * size[0 if across else 1] // GRID
    return (Scroll(**place, dx=across * by, dy=down * by),)


def _decode_wait(members: Members, _: Size | None) -> tuple[Action, ...]:
    return (Wait(seconds=float(_expect_int(members.pop("seconds", 1)))),)


def _decode_key_combination(members: Members, _: Size | None) -> tuple[Action, ...]:
    keys = chord_of(_expect_text(members.pop("keys")), case_sensitive=False)
    if not keys:
        raise ValueError("no keys")
    return (Keys(keys=keys),)


def _decode_hotkey(members: Members, _: Size | None) -> tuple[Action, ...]:
    words = members.pop("keys")
    if not isinstance(words, list) or not words:
        raise TypeError("no keys")
    return (Keys(keys=tuple(key_of(_expect_text(word), case_sensitive=False) for word in words)),)


def _decode_long_press(members: Members, size: Size | None) -> tuple[Action, ...]:
    place, seconds = _decode_position(members, size), _expect_int(members.pop("seconds", 2))
    return (MouseDown(**place), Wait(seconds=float(seconds)), MouseUp(**place))


def _decode_key(members: Members) -> str:
    if not (word := _expect_text(members.pop("key"))):
        raise ValueError("no key")
    return key_of(word, case_sensitive=False)


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
_KEY_NAMES = {" ": "Space", "+": "Plus"}
_CLICK_FUNCTIONS = {(1, "left"): "click", (2, "left"): "double_click", (3, "left"): "triple_click"}
_CLICK_FUNCTIONS |= {(1, "right"): "right_click", (1, "middle"): "middle_click"}
_SIMPLE_ACTIONS: dict[str, Action] = {"take_screenshot": Screenshot(), "go_back": Back(), "go_forward": Forward()}


def encode_computer_actions(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    told: list[EncodedAction] = []
    place = 0
    while place < len(actions):
        count, made = _encode_combined(actions[place:], computer, state)
        if made is None:
            count = 1
            say = _encode_legacy_action if computer.dialect == LEGACY_DIALECT else _encode_action
            state.index = place
            if (one := say(actions[place], state)) is None:
                return None
            told += [replace(said, index=place) for said in one]
        else:
            told.append(replace(made, index=place))
        for action in actions[place : place + count]:
            state.advance(action)
        place += count
    return told


def _encode_combined(
    actions: Sequence[Action], computer: Computer, state: ActionEncodingState
) -> tuple[int, EncodedAction | None]:
    """A function that tells several actions at once, if these begin with them."""
    place = 0
    if computer.dialect == LEGACY_DIALECT:
        first = actions[0]
        if not isinstance(first, Click) or (first.count, first.button) != (1, "left"):
            return 0, None
        place = 1
    cleared = computer.dialect == LEGACY_DIALECT and tuple(actions[place : place + 2]) == CLEAR_FIELD
    place += 2 if cleared else 0
    if place >= len(actions) or not isinstance(typed := actions[place], Type):
        return 0, None
    place += 1
    entered = place < len(actions) and actions[place] == ENTER_KEY
    place += 1 if entered else 0
    if computer.dialect == CURRENT_DIALECT:
        return place, EncodedAction("type", {"text": typed.text, **({"press_enter": True} if entered else {})})
    if (at := _encode_grid_point(state, state.target_point(actions[0]))) is None:
        return 0, None
    return place, EncodedAction(
        "type_text_at", {**at, "text": typed.text, "press_enter": entered, "clear_before_typing": cleared}
    )


def _encode_grid_point(
    state: ActionEncodingState, point: tuple[int, int] | None, x_name: str = "x", y_name: str = "y"
) -> dict[str, Any] | None:
    """A point in the grid's numbers: the smallest that mean it, so that it comes back as it was."""
    if point is None or state.size is None:
        return None
    numbers = [-(-one * GRID // whole) for one, whole in zip(point, state.size, strict=True)]
    inside = [max(0, min(GRID - 1, one)) for one in numbers]
    if inside != numbers:
        state.report_loss("the point is outside the screen")
    return {x_name: inside[0], y_name: inside[1]}


def _encode_function(name: str, point: dict[str, Any] | None, **arguments: Any) -> list[EncodedAction] | None:
    return None if point is None else [EncodedAction(name, {**point, **arguments})]


def _report_modifiers(action: Any, state: ActionEncodingState) -> None:
    if action.keys:
        state.report_loss("the target cannot hold modifier keys")


def _encode_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
    for name, bare in _SIMPLE_ACTIONS.items():
        if action == bare:
            return [EncodedAction(name, {})]
    match action:
        case Click():
            return _encode_click(action, state)
        case Move():
            _report_modifiers(action, state)
            return _encode_function("move", _encode_grid_point(state, state.target_point(action)))
        case MouseDown(button="left") | MouseUp(button="left"):
            word = "mouse_down" if isinstance(action, MouseDown) else "mouse_up"
            return _encode_function(word, _encode_grid_point(state, state.target_point(action)))
        case Drag():
            return _encode_drag(action, state, ("start_x", "start_y", "end_x", "end_y"))
        case Scroll():
            return _encode_scroll(action, state, legacy=False)
        case Keys():
            return _encode_keys(action, state)
        case KeyDown(key=key):
            return [EncodedAction("key_down", {"key": _KEY_NAMES.get(key, key)})]
        case KeyUp(key=key):
            return [EncodedAction("key_up", {"key": _KEY_NAMES.get(key, key)})]
        case Wait(seconds=seconds):
            return [EncodedAction("wait", {} if seconds is None else {"seconds": round_seconds(seconds, state)})]
        case Navigate(url=url):
            return [EncodedAction("navigate", {"url": url})]
        case _:
            return None


def _encode_legacy_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
    match action:
        case Click(count=count, button="left"):
            _report_modifiers(action, state)
            if count > 1:
                state.report_loss("multiple clicks sent one by one")
            told = _encode_function("click_at", _encode_grid_point(state, state.target_point(action)))
            return None if told is None else told * count
        case Move():
            _report_modifiers(action, state)
            return _encode_function("hover_at", _encode_grid_point(state, state.target_point(action)))
        case Type(text=text):
            state.report_loss("the target clicks at the pointer before typing")
            place = _encode_grid_point(state, state.point)
            return _encode_function("type_text_at", place, text=text, press_enter=False, clear_before_typing=False)
        case Drag():
            return _encode_drag(action, state, ("x", "y", "destination_x", "destination_y"))
        case Scroll():
            return _encode_scroll(action, state, legacy=True)
        case Keys(keys=keys, repeat=repeat, hold=hold):
            if hold is not None:
                state.report_loss("the target cannot hold keys")
            return [EncodedAction("key_combination", {"keys": "+".join(vendor_keys(keys, _KEY_NAMES))})] * repeat
        case Wait():
            if action.seconds != 5:
                state.report_loss("the target always waits five seconds")
            return [EncodedAction("wait_5_seconds", {})]
        case Screenshot():
            return [EncodedAction("open_web_browser", {})]
        case Navigate() | Back() | Forward():
            return _encode_action(action, state)
        case _:
            return None


def _encode_click(action: Click, state: ActionEncodingState) -> list[EncodedAction] | None:
    _report_modifiers(action, state)
    place = _encode_grid_point(state, state.target_point(action))
    if (name := _CLICK_FUNCTIONS.get((action.count, action.button))) is not None:
        return _encode_function(name, place)
    if (name := _CLICK_FUNCTIONS.get((1, action.button))) is None or place is None:
        return None
    state.report_loss("multiple clicks sent one by one")
    return [EncodedAction(name, place)] * action.count


def _encode_keys(action: Keys, state: ActionEncodingState) -> list[EncodedAction]:
    keys = vendor_keys(action.keys, _KEY_NAMES)
    if action.hold is not None:
        down = [EncodedAction("key_down", {"key": key}) for key in keys]
        up = [EncodedAction("key_up", {"key": key}) for key in reversed(keys)]
        return [*down, EncodedAction("wait", {"seconds": round_seconds(action.hold, state)}), *up]
    once = EncodedAction("press_key", {"key": keys[0]}) if len(keys) == 1 else EncodedAction("hotkey", {"keys": keys})
    return [once] * action.repeat


def _encode_drag(
    action: Drag, state: ActionEncodingState, names: tuple[str, str, str, str]
) -> list[EncodedAction] | None:
    _report_modifiers(action, state)
    if len(action.path) > 2:
        state.report_loss("only start and end of the path sent")
    start = _encode_grid_point(state, action.path[0], *names[:2])
    end = _encode_grid_point(state, action.path[-1], *names[2:])
    return None if start is None or end is None else [EncodedAction("drag_and_drop", {**start, **end})]


def _encode_scroll(action: Scroll, state: ActionEncodingState, *, legacy: bool) -> list[EncodedAction] | None:
    _report_modifiers(action, state)
    size = state.size
    point = state.target_point(action) or (None if size is None else (size[0] // 2, size[1] // 2))
    if (place := _encode_grid_point(state, point)) is None or size is None:
        return None
    told = []
    for pixels, back, on, whole in ((action.dy, "up", "down", size[1]), (action.dx, "left", "right", size[0])):
        if pixels:
            far = abs(pixels)
            by = (
                {"magnitude": min(GRID - 1, -(-far * GRID // whole))}
                if legacy
                else {"magnitude_in_pixels": min(GRID - 1, far)}
            )
            told.append(
                EncodedAction(
                    "scroll_at" if legacy else "scroll", {**place, "direction": on if pixels > 0 else back, **by}
                )
            )
            if far >= GRID:
                state.report_loss("scroll distance capped by the target")
    return told or None


# ---- parts


def encode_computer_call(call: ToolCall, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    if not checks:
        return call
    about = "\n".join(one.message or one.code or one.id or "" for one in checks)
    decision = {"decision": REQUIRE_CONFIRMATION, "explanation": about, "checks": checks}
    arguments = {**(call_arguments(call) or {}), DECISION_FIELD: decision}
    return replace(call, arguments=msgspec.json.encode(arguments).decode())


def encode_computer_result(result: ToolResult, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    """A result with the address, and what a person agreed to, as the object that clients of Google's send."""
    seen = result.screen
    said: dict[str, Any] = {} if seen is None or seen.url is None else {"url": seen.url}
    if checks and seen is not None and seen.acknowledged:
        said[ACKNOWLEDGEMENT_FIELD] = "true"
    return encode_result_object(result, said)


def encode_result_object(result: ToolResult, members: Mapping[str, Any] = NO_MEMBERS) -> ToolResult:
    """A result whose words are all in one object, with some more."""
    said = dict(members)
    texts: list[str] = []
    pictures = []
    for one in result.content or ():
        if isinstance(one, Text) and not isinstance(parse_json(one.text), dict):
            texts.append(one.text)
        elif isinstance(one, Text | Data):
            found = parse_json(one.text if isinstance(one, Text) else one.json)
            said = {**(found if isinstance(found, dict) else {"output": found}), **said}
        else:
            pictures.append(one)
    if texts:
        said["error" if result.status != "ok" else "output"] = "\n".join(texts)
    elif result.status != "ok":
        said["error"] = "failed"
    words = (Data(json=Raw(msgspec.json.encode(said))),) if said else ()
    return replace(result, content=(*words, *pictures), native=COMPUTER_USE_KIND)


_UNACKNOWLEDGED_MESSAGE = (
    "The safety decision from function call {name} must be acknowledged in the corresponding function response."
)


def acknowledgement_error(name: object, arguments: object, response: JsonObject) -> str | None:
    """The words for a call that a person had to agree to, if its result does not say that one did."""
    if object_of(object_of(arguments).get(DECISION_FIELD)).get("decision") != REQUIRE_CONFIRMATION:
        return None
    if response.get(ACKNOWLEDGEMENT_FIELD) in (True, "true", "True"):
        return None
    return _UNACKNOWLEDGED_MESSAGE.format(name=text_of(name))
