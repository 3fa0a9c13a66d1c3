"""Encode canonical computer actions as calls of Google's predefined functions, in either dialect."""

from collections.abc import Sequence
from typing import Any

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
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from toolwire.canonical.tools import Computer
from toolwire.codec.encoding.computer import ActionEncodingState, EncodedAction, round_seconds, vendor_keys
from toolwire.protocols.vendors.google.computer import CLEAR_FIELD, CURRENT_DIALECT, ENTER_KEY, GRID, LEGACY_DIALECT

_KEY_NAMES = {" ": "Space", "+": "Plus"}
_CLICK_FUNCTIONS = {(1, "left"): "click", (2, "left"): "double_click", (3, "left"): "triple_click"}
_CLICK_FUNCTIONS |= {(1, "right"): "right_click", (1, "middle"): "middle_click"}
_SIMPLE_ACTIONS: dict[str, Action] = {"take_screenshot": Screenshot(), "go_back": Back(), "go_forward": Forward()}


def encode_computer_actions(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Encode actions as calls of predefined functions; return None if one has no counterpart."""
    encoded: list[EncodedAction] = []
    encode_action = _encode_legacy_action if computer.dialect == LEGACY_DIALECT else _encode_action
    position = 0
    while position < len(actions):
        count, combined = _encode_combined(actions[position:], computer, state)
        if combined is None:
            count = 1
            state.index = position
            if (calls := encode_action(actions[position], state)) is None:
                return None
            encoded += [replace(call, index=position) for call in calls]
        else:
            encoded.append(replace(combined, index=position))
        for action in actions[position : position + count]:
            state.advance(action)
        position += count
    return encoded


def _encode_combined(
    actions: Sequence[Action], computer: Computer, state: ActionEncodingState
) -> tuple[int, EncodedAction | None]:
    """Encode leading actions that a single function combines, such as click and type.

    Return how many actions the call covers, and the call; None if there is no such function.
    """
    count = 0
    if computer.dialect == LEGACY_DIALECT:
        first = actions[0]
        if not isinstance(first, Click) or (first.count, first.button) != (1, "left"):
            return 0, None
        count = 1
    clears = computer.dialect == LEGACY_DIALECT and tuple(actions[count : count + 2]) == CLEAR_FIELD
    count += 2 if clears else 0
    if count >= len(actions) or not isinstance(typing := actions[count], Type):
        return 0, None
    count += 1
    presses_enter = count < len(actions) and actions[count] == ENTER_KEY
    count += 1 if presses_enter else 0
    if computer.dialect == CURRENT_DIALECT:
        return count, EncodedAction("type", {"text": typing.text, **({"press_enter": True} if presses_enter else {})})
    if (point := _encode_grid_point(state, state.target_point(actions[0]))) is None:
        return 0, None
    return count, EncodedAction(
        "type_text_at", {**point, "text": typing.text, "press_enter": presses_enter, "clear_before_typing": clears}
    )


def _encode_grid_point(
    state: ActionEncodingState, point: tuple[int, int] | None, x_name: str = "x", y_name: str = "y"
) -> dict[str, Any] | None:
    """Convert a pixel to a point on Google's grid, rounding up so that decoding returns the same pixel.

    Return it as arguments named `x_name` and `y_name`, or None if point or screen size is unknown. A point outside the
    screen is moved to its edge and reported.
    """
    if point is None or state.size is None:
        return None
    grid = [-(-value * GRID // extent) for value, extent in zip(point, state.size, strict=True)]
    clamped = [max(0, min(GRID - 1, value)) for value in grid]
    if clamped != grid:
        state.report_loss("the point is outside the screen")
    return {x_name: clamped[0], y_name: clamped[1]}


def _encode_function(name: str, point: dict[str, Any] | None, **arguments: Any) -> list[EncodedAction] | None:
    """Return a list with one call at this point; None if the point is unknown."""
    return None if point is None else [EncodedAction(name, {**point, **arguments})]


def _report_modifiers(action: Any, state: ActionEncodingState) -> None:
    """Report as a loss modifier keys that are held during an action."""
    if action.keys:
        state.report_loss("the target cannot hold modifier keys")


def _encode_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
    """Encode one action in the current dialect; None if it has no counterpart."""
    for name, simple_action in _SIMPLE_ACTIONS.items():
        if action == simple_action:
            return [EncodedAction(name, {})]
    match action:
        case Click():
            return _encode_click(action, state)
        case Move():
            _report_modifiers(action, state)
            return _encode_function("move", _encode_grid_point(state, state.target_point(action)))
        case MouseDown(button="left") | MouseUp(button="left"):
            function = "mouse_down" if isinstance(action, MouseDown) else "mouse_up"
            return _encode_function(function, _encode_grid_point(state, state.target_point(action)))
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
    """Encode one action in the dialect of Gemini 2.5 and 3; None if it has no counterpart."""
    match action:
        case Click(count=count, button="left"):
            _report_modifiers(action, state)
            if count > 1:
                state.report_loss("multiple clicks sent one by one")
            click = _encode_function("click_at", _encode_grid_point(state, state.target_point(action)))
            return None if click is None else click * count
        case Move():
            _report_modifiers(action, state)
            return _encode_function("hover_at", _encode_grid_point(state, state.target_point(action)))
        case Type(text=text):
            state.report_loss("the target clicks at the pointer before typing")
            point = _encode_grid_point(state, state.point)
            return _encode_function("type_text_at", point, text=text, press_enter=False, clear_before_typing=False)
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
    """Encode a click in the current dialect; several clicks of other buttons become separate calls."""
    _report_modifiers(action, state)
    point = _encode_grid_point(state, state.target_point(action))
    if (name := _CLICK_FUNCTIONS.get((action.count, action.button))) is not None:
        return _encode_function(name, point)
    if (name := _CLICK_FUNCTIONS.get((1, action.button))) is None or point is None:
        return None
    state.report_loss("multiple clicks sent one by one")
    return [EncodedAction(name, point)] * action.count


def _encode_keys(action: Keys, state: ActionEncodingState) -> list[EncodedAction]:
    """Encode a key combination, or key down, wait and key up if the keys are held."""
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
    """Encode a drag from the first to the last point; `names` are the arguments for start and end x and y."""
    _report_modifiers(action, state)
    if len(action.path) > 2:
        state.report_loss("only start and end of the path sent")
    start = _encode_grid_point(state, action.path[0], *names[:2])
    end = _encode_grid_point(state, action.path[-1], *names[2:])
    return None if start is None or end is None else [EncodedAction("drag_and_drop", {**start, **end})]


def _encode_scroll(action: Scroll, state: ActionEncodingState, *, legacy: bool) -> list[EncodedAction] | None:
    """Encode scrolling: one call for each axis, starting at the center if there is no point."""
    _report_modifiers(action, state)
    size = state.size
    point = state.target_point(action) or (None if size is None else (size[0] // 2, size[1] // 2))
    if (position := _encode_grid_point(state, point)) is None or size is None:
        return None
    function = "scroll_at" if legacy else "scroll"
    calls = []
    for pixels, backward, forward, extent in (
        (action.dy, "up", "down", size[1]),
        (action.dx, "left", "right", size[0]),
    ):
        if not pixels:
            continue
        distance = abs(pixels)
        if legacy:
            magnitude = {"magnitude": min(GRID - 1, -(-distance * GRID // extent))}
        else:
            magnitude = {"magnitude_in_pixels": min(GRID - 1, distance)}
        direction = forward if pixels > 0 else backward
        calls.append(EncodedAction(function, {**position, "direction": direction, **magnitude}))
        if distance >= GRID:
            state.report_loss("scroll distance capped by the target")
    return calls or None
