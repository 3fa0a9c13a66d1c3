"""How common actions on a screen are told to Google's models, and to clients that run its functions."""

from collections.abc import Mapping, Sequence
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
from toolwire.canonical.content import Data, Text, ToolCall, ToolResult
from toolwire.canonical.tools import Computer
from toolwire.codec.computer import Saying, Spoken, members_of, whole_seconds
from toolwire.codec.hosted import json_of
from toolwire.codec.keys import spelt

from .google_computer import ACKNOWLEDGED, CLEARED, CONFIRM, CURRENT, DECISION, EARLIER, ENTER, GRID

NATIVE = "computer_use"
NOTHING: Mapping[str, Any] = {}
_NAMES = {" ": "Space", "+": "Plus"}
_CLICKS = {(1, "left"): "click", (2, "left"): "double_click", (3, "left"): "triple_click"}
_CLICKS |= {(1, "right"): "right_click", (1, "middle"): "middle_click"}
_BARE: dict[str, Action] = {"take_screenshot": Screenshot(), "go_back": Back(), "go_forward": Forward()}


def write_calls(actions: tuple[Action, ...], own: Computer, saying: Saying) -> list[Spoken] | None:
    told: list[Spoken] = []
    place = 0
    while place < len(actions):
        count, made = _several(actions[place:], own, saying)
        if made is None:
            count = 1
            say = _earlier if own.dialect == EARLIER else _current
            saying.index = place
            if (one := say(actions[place], saying)) is None:
                return None
            told += [replace(said, index=place) for said in one]
        else:
            told.append(replace(made, index=place))
        for action in actions[place : place + count]:
            saying.did(action)
        place += count
    return told


def _several(actions: Sequence[Action], own: Computer, saying: Saying) -> tuple[int, Spoken | None]:
    """A function that tells several actions at once, if these begin with them."""
    place = 0
    if own.dialect == EARLIER:
        first = actions[0]
        if not isinstance(first, Click) or (first.count, first.button) != (1, "left"):
            return 0, None
        place = 1
    cleared = own.dialect == EARLIER and tuple(actions[place : place + 2]) == CLEARED
    place += 2 if cleared else 0
    if place >= len(actions) or not isinstance(typed := actions[place], Type):
        return 0, None
    place += 1
    entered = place < len(actions) and actions[place] == ENTER
    place += 1 if entered else 0
    if own.dialect == CURRENT:
        return place, Spoken("type", {"text": typed.text, **({"press_enter": True} if entered else {})})
    if (at := _on_grid(saying, saying.where(actions[0]))) is None:
        return 0, None
    return place, Spoken(
        "type_text_at", {**at, "text": typed.text, "press_enter": entered, "clear_before_typing": cleared}
    )


def _on_grid(saying: Saying, point: tuple[int, int] | None, x: str = "x", y: str = "y") -> dict[str, Any] | None:
    """A point in the grid's numbers: the smallest that mean it, so that it comes back as it was."""
    if point is None or saying.size is None:
        return None
    numbers = [-(-one * GRID // whole) for one, whole in zip(point, saying.size, strict=True)]
    inside = [max(0, min(GRID - 1, one)) for one in numbers]
    if inside != numbers:
        saying.lose("the point is outside of the screen")
    return {x: inside[0], y: inside[1]}


def _named(name: str, place: dict[str, Any] | None, **more: Any) -> list[Spoken] | None:
    return None if place is None else [Spoken(name, {**place, **more})]


def _held(action: Any, saying: Saying) -> None:
    if action.keys:
        saying.lose("the target holds no keys meanwhile")


def _current(action: Action, saying: Saying) -> list[Spoken] | None:
    for name, bare in _BARE.items():
        if action == bare:
            return [Spoken(name, {})]
    match action:
        case Click():
            return _clicked(action, saying)
        case Move():
            _held(action, saying)
            return _named("move", _on_grid(saying, saying.where(action)))
        case MouseDown(button="left") | MouseUp(button="left"):
            word = "mouse_down" if isinstance(action, MouseDown) else "mouse_up"
            return _named(word, _on_grid(saying, saying.where(action)))
        case Drag():
            return _dragged(action, saying, ("start_x", "start_y", "end_x", "end_y"))
        case Scroll():
            return _scrolled(action, saying, earlier=False)
        case Keys():
            return _pressed(action, saying)
        case KeyDown(key=key):
            return [Spoken("key_down", {"key": _NAMES.get(key, key)})]
        case KeyUp(key=key):
            return [Spoken("key_up", {"key": _NAMES.get(key, key)})]
        case Wait(seconds=seconds):
            return [Spoken("wait", {} if seconds is None else {"seconds": whole_seconds(seconds, saying)})]
        case Navigate(url=url):
            return [Spoken("navigate", {"url": url})]
        case _:
            return None


def _earlier(action: Action, saying: Saying) -> list[Spoken] | None:
    match action:
        case Click(count=count, button="left"):
            _held(action, saying)
            if count > 1:
                saying.lose("several clicks are told one by one")
            told = _named("click_at", _on_grid(saying, saying.where(action)))
            return None if told is None else told * count
        case Move():
            _held(action, saying)
            return _named("hover_at", _on_grid(saying, saying.where(action)))
        case Type(text=text):
            saying.lose("where the pointer is, is clicked before it is typed")
            place = _on_grid(saying, saying.point)
            return _named("type_text_at", place, text=text, press_enter=False, clear_before_typing=False)
        case Drag():
            return _dragged(action, saying, ("x", "y", "destination_x", "destination_y"))
        case Scroll():
            return _scrolled(action, saying, earlier=True)
        case Keys(keys=keys, repeat=repeat, hold=hold):
            if hold is not None:
                saying.lose("keys are pressed, and not held")
            return [Spoken("key_combination", {"keys": "+".join(spelt(keys, _NAMES))})] * repeat
        case Wait():
            if action.seconds != 5:
                saying.lose("the target waits for five seconds")
            return [Spoken("wait_5_seconds", {})]
        case Screenshot():
            return [Spoken("open_web_browser", {})]
        case Navigate() | Back() | Forward():
            return _current(action, saying)
        case _:
            return None


def _clicked(action: Click, saying: Saying) -> list[Spoken] | None:
    _held(action, saying)
    place = _on_grid(saying, saying.where(action))
    if (name := _CLICKS.get((action.count, action.button))) is not None:
        return _named(name, place)
    if (name := _CLICKS.get((1, action.button))) is None or place is None:
        return None
    saying.lose("several clicks of that button are told one by one")
    return [Spoken(name, place)] * action.count


def _pressed(action: Keys, saying: Saying) -> list[Spoken]:
    keys = spelt(action.keys, _NAMES)
    if action.hold is not None:
        down = [Spoken("key_down", {"key": key}) for key in keys]
        up = [Spoken("key_up", {"key": key}) for key in reversed(keys)]
        return [*down, Spoken("wait", {"seconds": whole_seconds(action.hold, saying)}), *up]
    once = Spoken("press_key", {"key": keys[0]}) if len(keys) == 1 else Spoken("hotkey", {"keys": keys})
    return [once] * action.repeat


def _dragged(action: Drag, saying: Saying, names: tuple[str, str, str, str]) -> list[Spoken] | None:
    _held(action, saying)
    if len(action.path) > 2:
        saying.lose("only where it starts and ends is told")
    start = _on_grid(saying, action.path[0], *names[:2])
    end = _on_grid(saying, action.path[-1], *names[2:])
    return None if start is None or end is None else [Spoken("drag_and_drop", {**start, **end})]


def _scrolled(action: Scroll, saying: Saying, *, earlier: bool) -> list[Spoken] | None:
    _held(action, saying)
    size = saying.size
    point = saying.where(action) or (None if size is None else (size[0] // 2, size[1] // 2))
    if (place := _on_grid(saying, point)) is None or size is None:
        return None
    told = []
    for pixels, back, on, whole in ((action.dy, "up", "down", size[1]), (action.dx, "left", "right", size[0])):
        if pixels:
            far = abs(pixels)
            by = (
                {"magnitude": min(GRID - 1, -(-far * GRID // whole))}
                if earlier
                else {"magnitude_in_pixels": min(GRID - 1, far)}
            )
            told.append(
                Spoken("scroll_at" if earlier else "scroll", {**place, "direction": on if pixels > 0 else back, **by})
            )
            if far >= GRID:
                saying.lose("it is scrolled less far at once")
    return told or None


# ---- parts


def make_call(call: ToolCall, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    if not checks:
        return call
    about = "\n".join(one.message or one.code or one.id or "" for one in checks)
    decision = {"decision": CONFIRM, "explanation": about, "checks": checks}
    arguments = {**(members_of(call) or {}), DECISION: decision}
    return replace(call, arguments=msgspec.json.encode(arguments).decode())


def make_result(result: ToolResult, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    """A result with the address, and what a person agreed to, as the object that clients of Google's send."""
    seen = result.screen
    said: dict[str, Any] = {} if seen is None or seen.url is None else {"url": seen.url}
    if checks and seen is not None and seen.acknowledged:
        said[ACKNOWLEDGED] = "true"
    return in_object(result, said)


def in_object(result: ToolResult, more: Mapping[str, Any] = NOTHING) -> ToolResult:
    """A result whose words are all in one object, with some more."""
    said = dict(more)
    texts: list[str] = []
    pictures = []
    for one in result.content or ():
        if isinstance(one, Text) and not isinstance(json_of(one.text), dict):
            texts.append(one.text)
        elif isinstance(one, Text | Data):
            found = json_of(one.text if isinstance(one, Text) else one.json)
            said = {**(found if isinstance(found, dict) else {"output": found}), **said}
        else:
            pictures.append(one)
    if texts:
        said["error" if result.status != "ok" else "output"] = "\n".join(texts)
    elif result.status != "ok":
        said["error"] = "failed"
    words = (Data(json=Raw(msgspec.json.encode(said))),) if said else ()
    return replace(result, content=(*words, *pictures), native=NATIVE)
