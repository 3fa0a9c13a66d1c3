"""Decode and encode Anthropic computer use: the tool declaration, its calls and its results.

There are three forms: the single `computer` tool, which names its action in an argument, and since 2026 the
`computer_toolset` and `browser_toolset`, which have one member per action.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

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
    SafetyCheck,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from toolwire.canonical.content import ComputerUse, OpaquePart, ScreenObservation, ToolCall, ToolResult
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.encoding.computer import (
    PIXELS_PER_NOTCH,
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    call_arguments,
    chord_of,
    encode_each,
    parse_point,
    round_seconds,
    unread_pointers,
    vendor_keys,
)
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.media import Size
from toolwire.codec.models.claude import model_version
from toolwire.codec.wire.reader import escape_pointer
from toolwire.protocols.anthropic.wire import FAMILY

SINGLE_TOOL, COMPUTER_TOOLSET, BROWSER_TOOLSET = "computer", "computer_toolset", "browser_toolset"
BROWSER_STATE = "browser_state"
_KEY_NAMES = {
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
_HISTORY_ACTIONS: dict[str, Action] = {"back": Back(), "forward": Forward(), "reload": Reload()}
_SIMPLE_ACTIONS: dict[str, Action] = {
    "screenshot": Screenshot(),
    "cursor_position": CursorPosition(),
    "get_page_text": ReadText(),
}
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_DEFAULT_NOTCHES = 3
# Models also send an address without a scheme, such as "localhost:8000".
_URL_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)")
_MAX_REPEAT = 100

# ---- decode


def decode_computer_call(call: ToolCall, _: Size | None) -> ComputerUse | None:
    """Decode a tool call as computer actions; None if it calls another tool or its arguments are invalid."""
    arguments = call_arguments(call)
    if arguments is None:
        return None
    action_name: Any = call.name
    if call.toolset is None and call.name == "computer":
        action_name = arguments.pop("action", None)
    elif call.toolset not in ("computer", "browser"):
        return None
    if not isinstance(action_name, str):
        return None
    try:
        actions = _decode_action(action_name, arguments)
    except (TypeError, ValueError, KeyError):
        return None
    if actions is None:
        return None
    unread = tuple("/" + escape_pointer(name) for name in arguments)
    return ComputerUse(actions=actions, places=("",) * len(actions), others=unread)


def _decode_action(name: str, arguments: dict[str, Any]) -> tuple[Action, ...] | None:
    """Decode the action `name`, removing the arguments it uses; None if the name is unknown."""
    if name in _SIMPLE_ACTIONS:
        return (_SIMPLE_ACTIONS[name],)
    match name:
        case "scroll":
            return _decode_scroll(arguments)
        case "zoom":
            x0, y0, x1, y1 = (_expect_int(number) for number in arguments.pop("region"))
            return (Zoom(x0=x0, y0=y0, x1=x1, y1=y1),)
        case "type":
            return (Type(text=_expect_text(arguments.pop("text"))),)
        case "key" | "hold_key":
            return _decode_keys(arguments, hold=name == "hold_key")
        case "wait":
            return (Wait(seconds=_expect_seconds(arguments.pop("duration"))),)
        case "navigate":
            url = _expect_text(arguments.pop("url"))
            return (_HISTORY_ACTIONS.get(url) or Navigate(url=url if _URL_SCHEME.match(url) else f"https://{url}"),)
        case _:
            return _decode_mouse_action(name, arguments)


def _decode_mouse_action(name: str, arguments: dict[str, Any]) -> tuple[Action, ...] | None:
    """Decode a click, move, drag, button press or button release; None for any other action name."""
    if name in CLICKS:
        keys = _decode_modifiers(arguments)
        x, y = _decode_point(arguments)
        return (Click(x=x, y=y, keys=keys, **CLICKS[name]),)
    match name:
        case "mouse_move" | "hover":
            x, y = _decode_point(arguments)
            return None if x is None or y is None else (Move(x=x, y=y),)
        case "left_click_drag":
            return _decode_drag(arguments)
        case "left_mouse_down" | "left_mouse_up":
            x, y = _decode_point(arguments)
            return (MouseDown(x=x, y=y) if name == "left_mouse_down" else MouseUp(x=x, y=y),)
        case _:
            return None


def _decode_keys(arguments: dict[str, Any], *, hold: bool) -> tuple[Action, ...] | None:
    """Decode key chords from `text`: one chord held, or several pressed in turn; None if that is not valid."""
    text = _expect_text(arguments.pop("text"))
    if hold:
        keys = chord_of(text)
        return (Keys(keys=keys, hold=_expect_seconds(arguments.pop("duration"))),) if keys else None
    repeat = _expect_int(arguments.pop("repeat", 1))
    chords = [chord_of(word) for word in text.split()]
    if not 0 < repeat <= _MAX_REPEAT or not all(chords):
        return None
    if len(chords) == 1:
        return (Keys(keys=chords[0], repeat=repeat),)
    return tuple(Keys(keys=chord) for chord in chords * repeat) or None


def _decode_drag(arguments: dict[str, Any]) -> tuple[Action, ...] | None:
    """Decode `left_click_drag`; None unless both its start and its end are given."""
    keys = _decode_modifiers(arguments)
    start = parse_point(arguments.pop("start_coordinate", None)) or _decode_target(arguments.pop("from", None))
    x, y = _decode_point(arguments)
    return None if start is None or x is None or y is None else (Drag(path=(start, (x, y)), keys=keys),)


def _decode_scroll(arguments: dict[str, Any]) -> tuple[Action, ...] | None:
    """Decode `scroll`, whose amount counts wheel notches, as a scroll by pixels."""
    keys = _decode_modifiers(arguments)
    x, y = _decode_point(arguments)
    direction = _DIRECTIONS[arguments.pop("scroll_direction")]
    amount = _expect_int(arguments.pop("scroll_amount", _DEFAULT_NOTCHES)) * PIXELS_PER_NOTCH
    return (Scroll(x=x, y=y, dx=direction[0] * amount, dy=direction[1] * amount, keys=keys),)


def _decode_point(arguments: dict[str, Any]) -> tuple[int | None, int | None]:
    """Decode an action's position as (x, y), both None if absent; raise `ValueError` if it is invalid."""
    if arguments.get("coordinate") is None and "target" not in arguments:
        arguments.pop("coordinate", None)
        return None, None
    point = parse_point(arguments.pop("coordinate", None)) or _decode_target(arguments.pop("target", None))
    if point is None:
        raise ValueError("expected a coordinate")
    return point


def _decode_target(value: Any) -> tuple[int, int] | None:
    """Decode the browser toolset's `target` as (x, y); None unless it is an object of type `coordinate`."""
    if not isinstance(value, dict) or value.keys() != {"type", "x", "y"} or value["type"] != "coordinate":
        return None
    return parse_point([value["x"], value["y"]])


def _decode_modifiers(arguments: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the modifier keys held during an action."""
    chord = arguments.pop("text", None) or arguments.pop("modifiers", None)
    return () if chord is None else chord_of(_expect_text(chord))


def _expect_text(value: Any) -> str:
    """Return the value if it is a string, else raise `TypeError`."""
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _expect_int(value: Any) -> int:
    """Return the value if it is an integer, else raise `TypeError`."""
    if type(value) is not int:
        raise TypeError("expected an integer")
    return value


def _expect_seconds(value: Any) -> float:
    """Return the value as a float if it is a number, else raise `TypeError`."""
    if type(value) not in (int, float):
        raise TypeError("expected a number")
    return float(value)


def decode_computer_result(result: ToolResult) -> ScreenObservation:
    """Decode the observation in a tool result: the active tab's URL from its `browser_state`, if any."""
    for part in result.content or ():
        if isinstance(part, OpaquePart) and part.kind == BROWSER_STATE:
            urls = [
                tab.get("url") for tab in _state_objects(parse_json(part.body), "tabs") if tab.get("active") is True
            ]
            return ScreenObservation(url=next((url for url in urls if isinstance(url, str) and url), None))
    return ScreenObservation()


def describe_tabs(raw: Raw) -> str | None:
    """Describe the tabs and changes of a `browser_state` block as text for the model; None if there are none."""
    state = parse_json(raw)
    tabs = []
    for tab in _state_objects(state, "tabs"):
        marker = " (in view)" if tab.get("active") is True else ""
        tabs.append(f"Tab {tab.get('tab_id')}{marker}: {tab.get('title')} {tab.get('url')}")
    changes = [" ".join(map(str, change.values())) for change in _state_objects(state, "state_changes")]
    return "\n".join([*tabs, *changes]) or None


def _state_objects(state: Any, name: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the list `name` of a browser state, ignoring elements of other types."""
    entries = state.get(name) if isinstance(state, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


# ---- encode


def encode_computer_actions(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Encode actions as calls of the declared computer tool; None if it cannot express one of them."""
    in_browser = computer.dialect == BROWSER_TOOLSET

    def encode_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
        """Encode one action for the declared computer tool."""
        encoded = _encode_action(action, state, in_browser=in_browser)
        if encoded is None or computer.dialect != SINGLE_TOOL:
            return encoded
        return [EncodedAction("computer", {"action": call.name, **call.arguments}) for call in encoded]

    return encode_each(actions, encode_action, state)


def _encode_action(action: Action, state: ActionEncodingState, *, in_browser: bool) -> list[EncodedAction] | None:
    """Encode one action as tool calls; None if the declared computer tool has no equivalent."""
    if (simple := _encode_simple_action(action)) is not None:
        return [simple]
    match action:
        case Click():
            return _encode_click(action, state, in_browser=in_browser)
        case Move(x=x, y=y):
            return [EncodedAction("mouse_move", _encode_point((x, y), in_browser=in_browser))]
        case Drag():
            return [_encode_drag(action, state, in_browser=in_browser)]
        case Scroll():
            return _encode_scroll(action, state, in_browser=in_browser)
        case Type(text=text):
            return [EncodedAction("type", {"text": text})]
        case Keys():
            return [_encode_keys(action, state, in_browser=in_browser)]
        case Wait(seconds=seconds):
            duration = _encode_duration(1.0 if seconds is None else seconds, state, in_browser=in_browser)
            return [EncodedAction("wait", {"duration": duration})]
        case Zoom(x0=x0, y0=y0, x1=x1, y1=y1):
            return [EncodedAction("zoom", {"region": [x0, y0, x1, y1]})]
        case MouseDown() | MouseUp():
            return _encode_mouse_button(action, state, in_browser=in_browser)
        case Navigate(url=url):
            return [EncodedAction("navigate", {"url": url})]
        case _:
            return None


def _encode_simple_action(action: Action) -> EncodedAction | None:
    """Encode an action that takes no arguments; None for every other action."""
    for name, simple_action in _SIMPLE_ACTIONS.items():
        if action == simple_action:
            return EncodedAction(name, {})
    for name, simple_action in _HISTORY_ACTIONS.items():
        if action == simple_action:
            return EncodedAction("navigate", {"url": name})
    return None


def _encode_drag(action: Drag, state: ActionEncodingState, *, in_browser: bool) -> EncodedAction:
    """Encode a drag by its first and last point; the points between them are not sent."""
    start, end = action.path[0], action.path[-1]
    if len(action.path) > 2:
        state.report_loss("only start and end of the path sent")
    arguments = {"from": _encode_coordinate(start)} if in_browser else {"start_coordinate": list(start)}
    arguments |= _encode_point(end, in_browser=in_browser)
    arguments |= _encode_modifiers(action, state, in_browser=in_browser)
    return EncodedAction("left_click_drag", arguments)


def _encode_keys(action: Keys, state: ActionEncodingState, *, in_browser: bool) -> EncodedAction:
    """Encode a key press, or `hold_key` for one with a duration."""
    chord = "+".join(vendor_keys(action.keys, _KEY_NAMES))
    if action.hold is not None:
        return EncodedAction(
            "hold_key", {"text": chord, "duration": _encode_duration(action.hold, state, in_browser=in_browser)}
        )
    return EncodedAction("key", {"text": chord} | ({"repeat": action.repeat} if action.repeat != 1 else {}))


def _encode_duration(seconds: float, state: ActionEncodingState, *, in_browser: bool) -> float:
    """Return the duration in seconds, rounded to whole seconds except for the browser toolset."""
    return seconds if in_browser and not seconds.is_integer() else round_seconds(seconds, state)


def _encode_click(action: Click, state: ActionEncodingState, *, in_browser: bool) -> list[EncodedAction] | None:
    """Encode a click; None for an unsupported button, or in the browser for an unknown position."""
    if action.button in ("back", "forward"):
        return None
    options: dict[str, Any] = {"button": action.button} if action.button != "left" else {}
    options |= {"count": action.count} if action.count != 1 else {}
    member = next((name for name, click_options in CLICKS.items() if click_options == options), None)
    times = 1
    if member is None:
        member, times = f"{action.button}_click", action.count
        state.report_loss("multiple clicks sent one by one")
    point = state.target_point(action) if in_browser else (action.x, action.y) if action.x is not None else None
    if in_browser and point is None:
        return None
    position = {} if point is None else _encode_point(point, in_browser=in_browser)
    return [EncodedAction(member, {**position, **_encode_modifiers(action, state, in_browser=in_browser)})] * times


def _encode_scroll(action: Scroll, state: ActionEncodingState, *, in_browser: bool) -> list[EncodedAction] | None:
    """Encode a scroll as one action per axis, in wheel notches."""
    point = state.target_point(action)
    if point is None and state.size is not None:
        point = state.size[0] // 2, state.size[1] // 2
    if in_browser and point is None:
        return None
    position = {} if point is None else _encode_point(point, in_browser=in_browser)
    encoded = []
    for pixels, negative, positive in ((action.dy, "up", "down"), (action.dx, "left", "right")):
        if pixels:
            notches = max(1, round(abs(pixels) / PIXELS_PER_NOTCH))
            if notches * PIXELS_PER_NOTCH != abs(pixels):
                state.report_loss("pixels rounded to wheel notches")
            direction = {"scroll_direction": positive if pixels > 0 else negative, "scroll_amount": notches}
            encoded.append(
                EncodedAction(
                    "scroll",
                    {
                        **position,
                        **direction,
                        **_encode_modifiers(action, state, in_browser=in_browser, is_scroll=True),
                    },
                )
            )
    return encoded or [EncodedAction("wait", {"duration": 1})]


def _encode_mouse_button(
    action: MouseDown | MouseUp, state: ActionEncodingState, *, in_browser: bool
) -> list[EncodedAction] | None:
    """Encode a left button press or release; None for other buttons or, in the browser, an unknown position.

    On a desktop, a move of the pointer comes first.
    """
    if action.button != "left":
        return None
    name = "left_mouse_down" if isinstance(action, MouseDown) else "left_mouse_up"
    point = state.target_point(action)
    if in_browser:
        return None if point is None else [EncodedAction(name, _encode_point(point, in_browser=True))]
    move = [] if action.x is None or point is None else [EncodedAction("mouse_move", {"coordinate": list(point)})]
    return [*move, EncodedAction(name, {})]


def _encode_point(point: Any, *, in_browser: bool) -> dict[str, Any]:
    """Return the argument for a position: `target` in the browser toolset, else `coordinate`."""
    return {"target": _encode_coordinate(point)} if in_browser else {"coordinate": list(point)}


def _encode_coordinate(point: tuple[int, int]) -> dict[str, Any]:
    """Return the browser toolset's object for a coordinate."""
    return {"type": "coordinate", "x": point[0], "y": point[1]}


def _encode_modifiers(
    action: Any, state: ActionEncodingState, *, in_browser: bool, is_scroll: bool = False
) -> dict[str, Any]:
    """Return the argument for modifier keys held during the action; empty if there are none or they are lost."""
    if not action.keys:
        return {}
    if in_browser and (is_scroll or isinstance(action, Drag)):
        state.report_loss("the target cannot hold modifier keys")
        return {}
    return {"modifiers" if in_browser else "text": "+".join(vendor_keys(action.keys, _KEY_NAMES))}


_EARLIEST_KINDS = "screenshot click move drag type keys cursor_position"
_KINDS = {
    SINGLE_TOOL: f"{_EARLIEST_KINDS} scroll wait zoom mouse_down mouse_up",
    COMPUTER_TOOLSET: f"{_EARLIEST_KINDS} scroll wait zoom mouse_down mouse_up",
    BROWSER_TOOLSET: "screenshot click move drag type keys scroll wait zoom mouse_down mouse_up "
    "navigate back forward reload read_text",
}
# Action kind by member of the browser toolset.
_BROWSER_MEMBERS = {
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
_TAB_MEMBERS = [
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

# ---- declaration


def decode_computer(kind: str, date: str, raw: Raw) -> Computer | None:
    """Decode a tool declaration as a computer; None if the tool is not for computer use.

    `date` is the version suffix of the tool's type.
    """
    if kind not in _KINDS:
        return None
    if not isinstance(members := parse_json(raw), dict):
        return None
    width, height = members.pop("display_width_px", None), members.pop("display_height_px", None)
    sizes = [size if type(size) is int and size > 0 else None for size in (width, height)]
    unread = unread_pointers(members, ("type", "name") if members.get("name") == "computer" else ("type",))
    unread += [] if sizes[0] or width is None else ["display_width_px"]
    unread += [] if sizes[1] or height is None else ["display_height_px"]
    kinds = _enabled_kinds(
        kind, members.get("configs"), (_EARLIEST_KINDS if date == "20241022" else _KINDS[kind]).split()
    )
    return Computer(
        dialect=kind,
        kinds=tuple(kinds),
        width=sizes[0],
        height=sizes[1],
        environment="browser" if kind == BROWSER_TOOLSET else "desktop",
        others=tuple(unread),
        wire_form=("environment",),
        at="",
    )


def _enabled_kinds(kind: str, configs: Any, kinds: list[str]) -> list[str]:
    """Return those of `kinds`, the names of action kinds, that have at least one enabled toolset member."""
    if not isinstance(configs, dict) or kind == SINGLE_TOOL:
        return kinds
    disabled = {name for name, config in configs.items() if isinstance(config, dict) and config.get("enabled") is False}
    members = _BROWSER_MEMBERS if kind == BROWSER_TOOLSET else _COMPUTER_MEMBERS
    enabled = {action_kind for name, action_kind in members.items() if name not in disabled}
    enabled |= set() if "navigate" in disabled else {"back", "forward", "reload"}
    return [action_kind for action_kind in kinds if action_kind in enabled]


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    """Declare computer use for a model; return the tool and the canonical computer it provides.

    Older models get the single computer tool, newer ones the toolset that matches the client's computer.
    """
    generation = model_version(model)[1]
    if (0, 0) < generation < (5, 5) and client_computer.width and client_computer.height:
        body: dict[str, Any] = {"type": "computer_20251124", "name": "computer"}
        body |= {"display_width_px": client_computer.width, "display_height_px": client_computer.height}
        return _native_tool(SINGLE_TOOL, body, client_computer, name="computer")
    if client_computer.environment != "browser":
        missing = [name for name, kind in _COMPUTER_MEMBERS.items() if kind not in client_computer.kinds]
        return _native_tool(
            COMPUTER_TOOLSET, {"type": "computer_toolset_20260801", **_disabled_configs(missing)}, client_computer
        )
    missing = [*_TAB_MEMBERS, *(name for name, kind in _BROWSER_MEMBERS.items() if kind not in client_computer.kinds)]
    return _native_tool(
        BROWSER_TOOLSET, {"type": "browser_toolset_20260801", **_disabled_configs(missing)}, client_computer
    )


_COMPUTER_MEMBERS = {
    **{name: kind for name, kind in _BROWSER_MEMBERS.items() if name not in ("navigate", "hover", "get_page_text")},
    "cursor_position": "cursor_position",
}


def _disabled_configs(members: list[str]) -> dict[str, Any]:
    """Return the `configs` of a toolset that disable the given members."""
    return {"configs": {name: {"enabled": False} for name in members}} if members else {}


def _native_tool(
    kind: str, body: dict[str, Any], client_computer: Computer, name: str | None = None
) -> tuple[NativeTool, Computer]:
    """Build the tool declaration and the canonical description of the computer that it provides."""
    size = (client_computer.width, client_computer.height) if kind == SINGLE_TOOL else (None, None)
    environment = None if kind == SINGLE_TOOL else client_computer.environment
    kinds = tuple(_KINDS[kind].split())
    computer = Computer(dialect=kind, kinds=kinds, width=size[0], height=size[1], environment=environment)
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind=kind, name=name, body=raw, executor="client", computer=computer), computer


def _encode_computer_call(call: ToolCall, computer: Computer, _: tuple[SafetyCheck, ...]) -> ToolCall:
    """Return the call with the `toolset_name` that it requires, unchanged for the single computer tool."""
    return replace(call, toolset=_toolset_name(computer))


def _encode_computer_result(result: ToolResult, computer: Computer, _: tuple[SafetyCheck, ...]) -> ToolResult:
    """Return the result with the `toolset_name` that it requires, unchanged for the single computer tool."""
    return replace(result, toolset=_toolset_name(computer))


def _toolset_name(computer: Computer) -> str | None:
    """Return the `toolset_name` of the declared toolset, None for the single computer tool."""
    return {COMPUTER_TOOLSET: "computer", BROWSER_TOOLSET: "browser"}.get(computer.dialect)


COMPUTER_USE = ComputerUseAdapter(
    family=FAMILY,
    compatible_families=(FAMILY,),
    arguments_pointer="input",
    decode_call=decode_computer_call,
    encode_actions=encode_computer_actions,
    finish_call=_encode_computer_call,
    finish_result=_encode_computer_result,
    declare_tool=_declare_computer,
    decode_observation=decode_computer_result,
)
