"""Computer use in the Responses API.

A `computer_call` holds a list of actions, in the `computer_use_preview` tool a single one. Its output is a screenshot.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.computer import Action, Click, Drag, Keys, Move, SafetyCheck, Screenshot, Scroll, Type, Wait
from toolwire.canonical.content import ComputerUse, ScreenObservation, ToolCall, ToolResult
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.encoding.computer import (
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    encode_each,
    encode_extras,
    key_of,
    unread_pointers,
    vendor_keys,
)
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.media import Size
from toolwire.codec.wire.reader import decode_json, escape_pointer
from toolwire.protocols.openai_responses.wire import CONSTRAINT_FAMILY, FAMILY

_PREVIEW_TOOL = "computer_use_preview"
_COMPUTER_TOOL, _COMPUTER_CALL = "computer", "computer_call"
_KINDS = ("screenshot", "click", "move", "drag", "scroll", "type", "keys", "wait")
_BUTTONS = {"left": "left", "right": "right", "wheel": "middle", "back": "back", "forward": "forward"}
_BUTTON_NAMES: dict[str, str] = {canonical: wire for wire, canonical in _BUTTONS.items()}
_KEY_NAMES = {"Control": "CTRL", "Meta": "CMD", "Alt": "ALT", "Shift": "SHIFT", "Escape": "ESC", " ": "SPACE"}
_KEY_NAMES |= {
    name: name.upper()
    for name in ["Enter", "Tab", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown", "CapsLock"]
}
_KEY_NAMES |= {f"Arrow{side}": f"ARROW{side.upper()}" for side in ("Up", "Down", "Left", "Right")}
_ENVIRONMENTS = {"browser": "browser", "mac": "desktop", "windows": "desktop", "linux": "desktop", "ubuntu": "desktop"}
_DEFAULT_SIZE = (1024, 768)
"""The size in the preview tool's guide: the preview requires one."""

_ACTIONS_PREFIX = '{"actions":'
_CALL_FORM = ("openai-responses:name:arguments=%s", "openai-responses:raw:")
_NO_PENDING_CHECKS = "openai-responses:empty:pending_safety_checks"
_CHECK_FIELDS = {"id", "code", "message"}


# ---- declaration


def decode_computer(kind: str, raw: Raw) -> Computer | None:
    """Decode the display size and environment of a computer tool; None for other tools."""
    if kind not in (_COMPUTER_TOOL, "computer_use", _PREVIEW_TOOL):
        return None
    if not isinstance(members := parse_json(raw), dict):
        return None
    width, height = members.get("display_width"), members.get("display_height")
    has_size = type(width) is int and type(height) is int and width > 0 and height > 0
    environment = _ENVIRONMENTS.get(str(members.get("environment")))
    known_fields = (
        "type",
        *(("display_width", "display_height") if has_size else ()),
        *(("environment",) if environment else ()),
    )
    return Computer(
        dialect=kind,
        kinds=_KINDS,
        width=width if has_size else None,
        height=height if has_size else None,
        environment=environment,  # type: ignore[arg-type]
        others=tuple(unread_pointers(members, known_fields)),
        at="",
    )


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    """Declare computer use for a model; return the computer tool and the canonical computer it provides."""
    kind, body = _COMPUTER_TOOL, {"type": _COMPUTER_TOOL}
    if "computer-use-preview" in model:
        width, height = (
            (client_computer.width, client_computer.height)
            if client_computer.width and client_computer.height
            else _DEFAULT_SIZE
        )
        environment = "browser" if client_computer.environment == "browser" else "linux"
        kind, body = _PREVIEW_TOOL, {"type": _PREVIEW_TOOL, "display_width": width, "display_height": height}  # type: ignore[dict-item]
        body |= {"environment": environment}
    target_computer = Computer(dialect=kind, kinds=_KINDS)
    if kind == _PREVIEW_TOOL:
        target_computer = replace(
            target_computer,
            width=client_computer.width,
            height=client_computer.height,
            environment=client_computer.environment,
        )
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(
        protocol=FAMILY, kind=kind, body=raw, executor="client", computer=target_computer
    ), target_computer


# ---- decode


def _decode_computer_call(call: ToolCall, _: Size | None) -> ComputerUse | None:
    """Decode the actions and safety checks of a computer call; None if any of it is unknown."""
    if call.native != _COMPUTER_CALL:
        return None
    try:
        arguments = decode_json(call.arguments.encode())
        is_list = call.arguments.startswith(_ACTIONS_PREFIX)
        wire_actions = arguments["actions"] if is_list else [arguments]
        unknown_pointers: list[str] = []
        actions: list[Action] = []
        for index, wire_action in enumerate(wire_actions):
            members = dict(wire_action)
            actions.append(_decode_action(members))
            prefix = f"/{index}/" if is_list else "/"
            unknown_pointers += [prefix + escape_pointer(name) for name, value in members.items() if value is not None]
        checks = _pending_checks(call)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, ValueError, KeyError):
        return None
    check_pointers = tuple(f"pending_safety_checks/{index}" for index in range(len(checks)))
    action_pointers = tuple(f"/{index}" if is_list else "" for index in range(len(actions)))
    return ComputerUse(
        actions=tuple(actions),
        places=action_pointers,
        others=tuple(unknown_pointers),
        checks=checks,
        checked=check_pointers,
    )


def _pending_checks(call: ToolCall) -> tuple[SafetyCheck, ...]:
    """Return the safety checks of a call that the user must confirm; raise ValueError for unknown fields."""
    for fields in (call.extras or {}).values():
        if (raw := fields.get("pending_safety_checks")) is not None:
            members = msgspec.json.decode(raw, type=list[dict[str, Any]])
            if any(check.keys() - _CHECK_FIELDS for check in members):
                raise ValueError("unknown fields in a safety check")
            return msgspec.convert(members, tuple[SafetyCheck, ...])
    return ()


def _decode_action(members: dict[str, Any]) -> Action:
    """Decode one action, removing the fields that it uses from `members`."""
    match members.pop("type"):
        case "click":
            button: Any = _BUTTONS[members.pop("button")]
            return Click(**_decode_point(members), button=button, keys=_decode_keys(members.pop("keys", None)))
        case "double_click":
            return Click(**_decode_point(members), count=2, keys=_decode_keys(members.pop("keys", None)))
        case "move":
            return Move(**_decode_point(members), keys=_decode_keys(members.pop("keys", None)))
        case "drag":
            return _decode_drag(members)
        case "scroll":
            offset = {"dx": _expect_int(members.pop("scroll_x")), "dy": _expect_int(members.pop("scroll_y"))}
            return Scroll(**_decode_point(members), **offset, keys=_decode_keys(members.pop("keys", None)))
        case "keypress":
            keys = _decode_keys(members.pop("keys"))
            if not keys:
                raise ValueError("expected keys")
            return Keys(keys=keys)
        case "type":
            if not isinstance(text := members.pop("text"), str):
                raise TypeError("expected a text")
            return Type(text=text)
        case "wait":
            return Wait()
        case "screenshot":
            return Screenshot()
        case _:
            raise ValueError("unknown action")


def _decode_drag(members: dict[str, Any]) -> Drag:
    """Decode a drag, which needs at least two points."""
    path = [dict(point) for point in members.pop("path")]
    points = tuple((_expect_int(point.pop("x")), _expect_int(point.pop("y"))) for point in path)
    if any(path) or len(points) < 2:
        raise ValueError("expected at least two points")
    return Drag(path=points, keys=_decode_keys(members.pop("keys", None)))


def _decode_point(members: dict[str, Any]) -> dict[str, Any]:
    """Remove the coordinates from `members` and return them as arguments of an action."""
    return {"x": _expect_int(members.pop("x")), "y": _expect_int(members.pop("y"))}


def _expect_int(value: Any) -> int:
    """Return the value if it is an integer; raise TypeError otherwise."""
    if type(value) is not int:
        raise TypeError("expected an integer")
    return value


def _decode_keys(value: Any) -> tuple[str, ...]:
    """Decode a list of key names; None means no keys."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(key, str) and key for key in value):
        raise TypeError("expected a list of key names")
    return tuple(key_of(key, case_sensitive=False) for key in value)


def _decode_computer_result(result: ToolResult) -> ScreenObservation:
    """Decode the observation in a result: the safety checks that it acknowledges."""
    extras = (result.extras or {}).get(FAMILY, {})
    if (raw := extras.get("acknowledged_safety_checks")) is None:
        return ScreenObservation()
    checks = parse_json(raw)
    ids = [check.get("id") for check in checks if isinstance(check, dict)] if isinstance(checks, list) else []
    return ScreenObservation(acknowledged=bool(ids), checks=tuple(str(id) for id in ids))


# ---- encode


def _encode_computer_actions(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Encode actions as arguments of computer calls; None if the target cannot perform one of them.

    The preview tool takes one action per call, newer tools take all of them in one call.
    """
    encoded = encode_each(actions, _encode_action, state)
    if encoded is None or computer.dialect == _PREVIEW_TOOL:
        return encoded
    return [EncodedAction(_COMPUTER_TOOL, {"actions": [action.arguments for action in encoded]})]


def _encode_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
    """Encode one action as computer calls; None if the target cannot perform it."""
    wire_actions = _encode_action_members(action, state)
    return None if wire_actions is None else [EncodedAction(_COMPUTER_TOOL, members) for members in wire_actions]


def _encode_action_members(action: Action, state: ActionEncodingState) -> list[dict[str, Any]] | None:
    """Encode one action as wire action objects; None if the target cannot perform it."""
    match action:
        case Screenshot():
            return [{"type": "screenshot"}]
        case Click():
            return _encode_click(action, state)
        case Move(x=x, y=y):
            return [{"type": "move", **_encode_point((x, y)), **_encode_modifiers(action)}]
        case Drag(path=path):
            return [{"type": "drag", "path": [_encode_point(point) for point in path], **_encode_modifiers(action)}]
        case Scroll(dx=dx, dy=dy):
            point = state.target_point(action)
            if point is None and state.size is not None:
                point = state.size[0] // 2, state.size[1] // 2
            if point is None:
                return None
            return [
                {"type": "scroll", **_encode_point(point), "scroll_x": dx, "scroll_y": dy, **_encode_modifiers(action)}
            ]
        case Type(text=text):
            return [{"type": "type", "text": text}]
        case Keys(keys=keys, repeat=repeat, hold=hold):
            if hold is not None:
                state.report_loss("the target cannot hold keys")
            return [{"type": "keypress", "keys": vendor_keys(keys, _KEY_NAMES)}] * repeat
        case Wait(seconds=seconds):
            if seconds is not None:
                state.report_loss("the target has no wait duration")
            return [{"type": "wait"}]
        case _:
            return None


def _encode_click(action: Click, state: ActionEncodingState) -> list[dict[str, Any]] | None:
    """Encode a click as wire action objects; a double click of the left button has its own type."""
    if (point := state.target_point(action)) is None:
        return None
    click = {
        "type": "click",
        "button": _BUTTON_NAMES[action.button],
        **_encode_point(point),
        **_encode_modifiers(action),
    }
    double_click = {
        "type": "double_click",
        **_encode_point(point),
        "keys": vendor_keys(action.keys, _KEY_NAMES) or None,
    }
    if action.count == 1 or action.button != "left":
        return [click] * action.count
    if action.count == 3:
        state.report_loss("triple click sent as a double click and a click")
    return [double_click] if action.count == 2 else [double_click, click]


def _encode_point(point: tuple[int, int]) -> dict[str, int]:
    """Return the `x` and `y` fields of a point."""
    return {"x": point[0], "y": point[1]}


def _encode_modifiers(action: Click | Move | Drag | Scroll) -> dict[str, Any]:
    """Return the `keys` field for modifier keys held during an action; empty without any."""
    return {"keys": vendor_keys(action.keys, _KEY_NAMES)} if action.keys else {}


def _encode_computer_call(call: ToolCall, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    """Return a computer call with the wire-form tokens and safety checks that this API's encoder needs."""
    field = "action" if computer.dialect == _PREVIEW_TOOL else "actions"
    form = tuple(token % field if "%s" in token else token for token in _CALL_FORM)
    extras = (
        {**(call.extras or {}), **encode_extras(CONSTRAINT_FAMILY, {"pending_safety_checks": checks})}
        if checks
        else call.extras
    )
    return replace(
        call, native=_COMPUTER_CALL, wire_form=form if checks else (*form, _NO_PENDING_CHECKS), extras=extras
    )


def _encode_computer_result(result: ToolResult, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    """Return a result with the safety checks that the user acknowledged."""
    acknowledged = result.screen is not None and result.screen.acknowledged
    extras = encode_extras(FAMILY, {"acknowledged_safety_checks": checks}) if checks and acknowledged else None
    return replace(result, native="computer_call_output", extras=extras, status="ok")


COMPUTER_USE = ComputerUseAdapter(
    family=FAMILY,
    compatible_families=(FAMILY,),
    arguments_pointer="",
    decode_call=_decode_computer_call,
    encode_actions=_encode_computer_actions,
    finish_call=_encode_computer_call,
    finish_result=_encode_computer_result,
    declare_tool=_declare_computer,
    decode_observation=_decode_computer_result,
    has_safety_checks=True,
    screenshots_only=True,
)
