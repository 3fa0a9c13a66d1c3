"""Anthropic's computer use: one tool with a word for each action, and since 2026 toolsets with a member for each."""

import re
from typing import Any

from msgspec import Raw

from toolwire.canonical.computer import (
    Action,
    Back,
    Click,
    CursorPosition,
    Drag,
    Forward,
    Keys,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    ReadText,
    Reload,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from toolwire.canonical.content import Foreign, ScreenSeen, ScreenUse, ToolCall, ToolResult
from toolwire.canonical.tools import Computer
from toolwire.codec.computer import (
    NOTCH,
    Saying,
    Spoken,
    each,
    members_of,
    point_of,
    whole_seconds,
)
from toolwire.codec.fields import escape
from toolwire.codec.hosted import json_of
from toolwire.codec.keys import chord_of, spelt
from toolwire.codec.pictures import Size

SINGLE, TOOLSET, BROWSER = "computer", "computer_toolset", "browser_toolset"
BROWSER_STATE = "browser_state"
_NAMES = {
    "Control": "ctrl",
    "Meta": "super",
    "Alt": "alt",
    "Shift": "shift",
    "Enter": "Return",
    "Backspace": "BackSpace",
    "PageUp": "Page_Up",
    "PageDown": "Page_Down",
    "ArrowUp": "Up",
    "ArrowDown": "Down",
    "ArrowLeft": "Left",
    "ArrowRight": "Right",
    " ": "space",
    "+": "plus",
}
CLICKS: dict[str, dict[str, Any]] = {
    "left_click": {},
    "right_click": {"button": "right"},
    "middle_click": {"button": "middle"},
    "double_click": {"count": 2},
    "triple_click": {"count": 3},
}
_HISTORY: dict[str, Action] = {"back": Back(), "forward": Forward(), "reload": Reload()}
_BARE: dict[str, Action] = {
    "screenshot": Screenshot(),
    "cursor_position": CursorPosition(),
    "get_page_text": ReadText(),
}
_TOWARDS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_USUAL_NOTCHES = 3
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)")
"""An address may come without one, and perhaps with a port."""
_LONGEST_REPEAT = 100

# ---- decode


def read_call(call: ToolCall, _: Size | None) -> ScreenUse | None:
    members = members_of(call)
    if members is None:
        return None
    member: Any = call.name
    if call.toolset is None and call.name == "computer":
        member = members.pop("action", None)
    elif call.toolset not in ("computer", "browser"):
        return None
    if not isinstance(member, str):
        return None
    try:
        actions = _acted(member, members)
    except (TypeError, ValueError, KeyError):
        return None
    if actions is None:
        return None
    others = tuple("/" + escape(name) for name in members)
    return ScreenUse(actions=actions, places=("",) * len(actions), others=others)


def _acted(member: str, members: dict[str, Any]) -> tuple[Action, ...] | None:
    """What a member means; it takes from `members` what it understands."""
    if member in CLICKS:
        keys = _held(members)
        x, y = _point(members)
        return (Click(x=x, y=y, keys=keys, **CLICKS[member]),)
    if member in _BARE:
        return (_BARE[member],)
    match member:
        case "mouse_move" | "hover":
            x, y = _point(members)
            return None if x is None or y is None else (Move(x=x, y=y),)
        case "left_click_drag":
            return _dragged(members)
        case "left_mouse_down" | "left_mouse_up":
            x, y = _point(members)
            return (MouseDown(x=x, y=y) if member == "left_mouse_down" else MouseUp(x=x, y=y),)
        case "scroll":
            return _scrolled(members)
        case "zoom":
            x0, y0, x1, y1 = (_whole(one) for one in members.pop("region"))
            return (Zoom(x0=x0, y0=y0, x1=x1, y1=y1),)
        case "type":
            return (Type(text=_text(members.pop("text"))),)
        case "key" | "hold_key":
            return _typed_keys(members, held=member == "hold_key")
        case "wait":
            return (Wait(seconds=_seconds(members.pop("duration"))),)
        case "navigate":
            url = _text(members.pop("url"))
            return (_HISTORY.get(url) or Navigate(url=url if _SCHEME.match(url) else f"https://{url}"),)
        case _:
            return None


def _typed_keys(members: dict[str, Any], *, held: bool) -> tuple[Action, ...] | None:
    """One chord, held or pressed; or several, with spaces between them."""
    text = _text(members.pop("text"))
    if held:
        keys = chord_of(text)
        return (Keys(keys=keys, hold=_seconds(members.pop("duration"))),) if keys else None
    repeat = _whole(members.pop("repeat", 1))
    chords = [chord_of(word) for word in text.split()]
    if not 0 < repeat <= _LONGEST_REPEAT or not all(chords):
        return None
    if len(chords) == 1:
        return (Keys(keys=chords[0], repeat=repeat),)
    return tuple(Keys(keys=chord) for chord in chords * repeat) or None


def _dragged(members: dict[str, Any]) -> tuple[Action, ...] | None:
    keys = _held(members)
    start = point_of(members.pop("start_coordinate", None)) or _target(members.pop("from", None))
    x, y = _point(members)
    return None if start is None or x is None or y is None else (Drag(path=(start, (x, y)), keys=keys),)


def _scrolled(members: dict[str, Any]) -> tuple[Action, ...] | None:
    keys = _held(members)
    x, y = _point(members)
    towards = _TOWARDS[members.pop("scroll_direction")]
    amount = _whole(members.pop("scroll_amount", _USUAL_NOTCHES)) * NOTCH
    return (Scroll(x=x, y=y, dx=towards[0] * amount, dy=towards[1] * amount, keys=keys),)


def _point(members: dict[str, Any]) -> tuple[int | None, int | None]:
    if members.get("coordinate") is None and "target" not in members:
        members.pop("coordinate", None)
        return None, None
    found = point_of(members.pop("coordinate", None)) or _target(members.pop("target", None))
    if found is None:
        raise ValueError("no point")
    return found


def _target(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, dict) or value.keys() != {"type", "x", "y"} or value["type"] != "coordinate":
        return None
    return point_of([value["x"], value["y"]])


def _held(members: dict[str, Any]) -> tuple[str, ...]:
    word = members.pop("text", None) or members.pop("modifiers", None)
    return () if word is None else chord_of(_text(word))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("no number")
    return float(value)


def read_result(result: ToolResult) -> ScreenSeen:
    """Where the tab in view is, if the state of a browser says it."""
    for part in result.content or ():
        if isinstance(part, Foreign) and part.kind == BROWSER_STATE:
            shown = [tab.get("url") for tab in _entries(json_of(part.body), "tabs") if tab.get("active") is True]
            return ScreenSeen(url=next((url for url in shown if isinstance(url, str) and url), None))
    return ScreenSeen()


def tabs_told(raw: Raw) -> str | None:
    """The state of a browser in words, which is how the provider tells it to its own model."""
    state = json_of(raw)
    tabs = []
    for tab in _entries(state, "tabs"):
        shown = " (in view)" if tab.get("active") is True else ""
        tabs.append(f"Tab {tab.get('tab_id')}{shown}: {tab.get('title')} {tab.get('url')}")
    changes = [" ".join(map(str, change.values())) for change in _entries(state, "state_changes")]
    return "\n".join([*tabs, *changes]) or None


def _entries(state: Any, name: str) -> list[dict[str, Any]]:
    found = state.get(name) if isinstance(state, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


# ---- encode


def write_calls(actions: tuple[Action, ...], own: Computer, saying: Saying) -> list[Spoken] | None:
    browsing = own.dialect == BROWSER

    def say(action: Action, saying: Saying) -> list[Spoken] | None:
        said = _members_for(action, saying, browsing=browsing)
        if said is None or own.dialect != SINGLE:
            return said
        return [Spoken("computer", {"action": one.name, **one.arguments}) for one in said]

    return each(actions, say, saying)


def _members_for(action: Action, saying: Saying, *, browsing: bool) -> list[Spoken] | None:
    if (word := _bare_word(action)) is not None:
        return [word]
    match action:
        case Click():
            return _clicked(action, saying, browsing=browsing)
        case Move(x=x, y=y):
            return [Spoken("mouse_move", _at((x, y), browsing=browsing))]
        case Drag(path=path):
            if len(path) > 2:
                saying.lose("only where it starts and ends is told")
            origin = {"from": _coordinate(path[0])} if browsing else {"start_coordinate": list(path[0])}
            return [
                Spoken(
                    "left_click_drag",
                    {**origin, **_at(path[-1], browsing=browsing), **_holding(action, saying, browsing=browsing)},
                )
            ]
        case Scroll():
            return _wheeled(action, saying, browsing=browsing)
        case Type(text=text):
            return [Spoken("type", {"text": text})]
        case Keys():
            return [_chord(action, saying, browsing=browsing)]
        case Wait(seconds=seconds):
            return [
                Spoken("wait", {"duration": _duration(1.0 if seconds is None else seconds, saying, browsing=browsing)})
            ]
        case Zoom(x0=x0, y0=y0, x1=x1, y1=y1):
            return [Spoken("zoom", {"region": [x0, y0, x1, y1]})]
        case MouseDown() | MouseUp():
            return _pressed(action, saying, browsing=browsing)
        case Navigate(url=url):
            return [Spoken("navigate", {"url": url})]
        case _:
            return None


def _bare_word(action: Action) -> Spoken | None:
    for word, bare in _BARE.items():
        if action == bare:
            return Spoken(word, {})
    for word, bare in _HISTORY.items():
        if action == bare:
            return Spoken("navigate", {"url": word})
    return None


def _chord(action: Keys, saying: Saying, *, browsing: bool) -> Spoken:
    chord = "+".join(spelt(action.keys, _NAMES))
    if action.hold is not None:
        return Spoken("hold_key", {"text": chord, "duration": _duration(action.hold, saying, browsing=browsing)})
    return Spoken("key", {"text": chord} | ({"repeat": action.repeat} if action.repeat != 1 else {}))


def _duration(seconds: float, saying: Saying, *, browsing: bool) -> float:
    """Only the browser's members take a part of a second."""
    return seconds if browsing and not seconds.is_integer() else whole_seconds(seconds, saying)


def _clicked(action: Click, saying: Saying, *, browsing: bool) -> list[Spoken] | None:
    if action.button in ("back", "forward"):
        return None
    wanted: dict[str, Any] = {"button": action.button} if action.button != "left" else {}
    wanted |= {"count": action.count} if action.count != 1 else {}
    member = next((name for name, means in CLICKS.items() if means == wanted), None)
    times = 1
    if member is None:
        member, times = f"{action.button}_click", action.count
        saying.lose("several clicks of that button are told one by one")
    where = saying.where(action) if browsing else (action.x, action.y) if action.x is not None else None
    if browsing and where is None:
        return None
    place = {} if where is None else _at(where, browsing=browsing)
    return [Spoken(member, {**place, **_holding(action, saying, browsing=browsing)})] * times


def _wheeled(action: Scroll, saying: Saying, *, browsing: bool) -> list[Spoken] | None:
    where = saying.where(action)
    if where is None and saying.size is not None:
        where = saying.size[0] // 2, saying.size[1] // 2
    if browsing and where is None:
        return None
    place = {} if where is None else _at(where, browsing=browsing)
    told = []
    for pixels, back, on in ((action.dy, "up", "down"), (action.dx, "left", "right")):
        if pixels:
            notches = max(1, round(abs(pixels) / NOTCH))
            if notches * NOTCH != abs(pixels):
                saying.lose("pixels are told as notches of a wheel")
            towards = {"scroll_direction": on if pixels > 0 else back, "scroll_amount": notches}
            told.append(
                Spoken("scroll", {**place, **towards, **_holding(action, saying, browsing=browsing, scrolls=True)})
            )
    return told or [Spoken("wait", {"duration": 1})]


def _pressed(action: MouseDown | MouseUp, saying: Saying, *, browsing: bool) -> list[Spoken] | None:
    if action.button != "left":
        return None
    word = "left_mouse_down" if isinstance(action, MouseDown) else "left_mouse_up"
    where = saying.where(action)
    if browsing:
        return None if where is None else [Spoken(word, _at(where, browsing=True))]
    first = [] if action.x is None or where is None else [Spoken("mouse_move", {"coordinate": list(where)})]
    return [*first, Spoken(word, {})]


def _at(point: Any, *, browsing: bool) -> dict[str, Any]:
    return {"target": _coordinate(point)} if browsing else {"coordinate": list(point)}


def _coordinate(point: tuple[int, int]) -> dict[str, Any]:
    return {"type": "coordinate", "x": point[0], "y": point[1]}


def _holding(action: Any, saying: Saying, *, browsing: bool, scrolls: bool = False) -> dict[str, Any]:
    if not action.keys:
        return {}
    if browsing and (scrolls or isinstance(action, Drag)):
        saying.lose("the target holds no keys meanwhile")
        return {}
    return {"modifiers" if browsing else "text": "+".join(spelt(action.keys, _NAMES))}
