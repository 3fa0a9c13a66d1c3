"""Computer use of the Responses API: actions in a call, only one in the preview's, and a screenshot for an answer."""

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
from toolwire.codec.wire.reader import escape_pointer
from toolwire.protocols.openai_responses.wire import CONSTRAINT_FAMILY, FAMILY

_PREVIEW = "computer_use_preview"
_COMPUTER_TOOL, _COMPUTER_CALL = "computer", "computer_call"
_KINDS = ("screenshot", "click", "move", "drag", "scroll", "type", "keys", "wait")
_BUTTONS = {"left": "left", "right": "right", "wheel": "middle", "back": "back", "forward": "forward"}
_BUTTON_NAMES: dict[str, str] = {ours: theirs for theirs, ours in _BUTTONS.items()}
_KEY_NAMES = {"Control": "CTRL", "Meta": "CMD", "Alt": "ALT", "Shift": "SHIFT", "Escape": "ESC", " ": "SPACE"}
_KEY_NAMES |= {
    name: name.upper()
    for name in ["Enter", "Tab", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown", "CapsLock"]
}
_KEY_NAMES |= {f"Arrow{side}": f"ARROW{side.upper()}" for side in ("Up", "Down", "Left", "Right")}
_ENVIRONMENTS = {"browser": "browser", "mac": "desktop", "windows": "desktop", "linux": "desktop", "ubuntu": "desktop"}
_DEFAULT_SIZE = (1024, 768)
"""The size that the preview's guide declares: it wants one."""

_ACTIONS_PREFIX = '{"actions":'
_CALL_FORM = ("openai-responses:name:arguments=%s", "openai-responses:whole:")
_NO_PENDING_CHECKS = "openai-responses:empty:pending_safety_checks"
_CHECK_FIELDS = {"id", "code", "message"}


# ---- the declaration


def decode_computer(kind: str, raw: Raw) -> Computer | None:
    """What a declaration says of the screen; None if it is another tool."""
    if kind not in (_COMPUTER_TOOL, "computer_use", _PREVIEW):
        return None
    if not isinstance(members := parse_json(raw), dict):
        return None
    width, height = members.get("display_width"), members.get("display_height")
    whole = type(width) is int and type(height) is int and width > 0 and height > 0
    environment = _ENVIRONMENTS.get(str(members.get("environment")))
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
        others=tuple(unread_pointers(members, known)),
        at="",
    )


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    form, body = _COMPUTER_TOOL, {"type": _COMPUTER_TOOL}
    if "computer-use-preview" in model:
        width, height = (
            (client_computer.width, client_computer.height)
            if client_computer.width and client_computer.height
            else _DEFAULT_SIZE
        )
        environment = "browser" if client_computer.environment == "browser" else "linux"
        form, body = _PREVIEW, {"type": _PREVIEW, "display_width": width, "display_height": height}  # type: ignore[dict-item]
        body |= {"environment": environment}
    own = Computer(dialect=form, kinds=_KINDS)
    if form == _PREVIEW:
        own = replace(
            own, width=client_computer.width, height=client_computer.height, environment=client_computer.environment
        )
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind=form, body=raw, executor="client", computer=own), own


# ---- decode


def _decode_computer_call(call: ToolCall, _: Size | None) -> ComputerUse | None:
    if call.native != _COMPUTER_CALL:
        return None
    try:
        said = msgspec.json.decode(call.arguments.encode())
        listed = call.arguments.startswith(_ACTIONS_PREFIX)
        found = said["actions"] if listed else [said]
        others: list[str] = []
        actions: list[Action] = []
        for index, one in enumerate(found):
            members = dict(one)
            actions.append(_decode_action(members))
            place = f"/{index}/" if listed else "/"
            others += [place + escape_pointer(name) for name, value in members.items() if value is not None]
        checks = _pending_checks(call)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, ValueError, KeyError):
        return None
    checked = tuple(f"pending_safety_checks/{index}" for index in range(len(checks)))
    places = tuple(f"/{index}" if listed else "" for index in range(len(actions)))
    return ComputerUse(actions=tuple(actions), places=places, others=tuple(others), checks=checks, checked=checked)


def _pending_checks(call: ToolCall) -> tuple[SafetyCheck, ...]:
    for kept in (call.extras or {}).values():
        if (raw := kept.get("pending_safety_checks")) is not None:
            said = msgspec.json.decode(raw, type=list[dict[str, Any]])
            if any(one.keys() - _CHECK_FIELDS for one in said):
                raise ValueError("more than a check")
            return msgspec.convert(said, tuple[SafetyCheck, ...])
    return ()


def _decode_action(members: dict[str, Any]) -> Action:
    """What an action means; it takes from `members` what it understands."""
    match members.pop("type"):
        case "click":
            button: Any = _BUTTONS[members.pop("button")]
            return Click(**_decode_point(members), button=button, keys=_decode_keys(members.pop("keys", None)))
        case "double_click":
            return Click(**_decode_point(members), count=2, keys=_decode_keys(members.pop("keys", None)))
        case "move":
            return Move(**_decode_point(members), keys=_decode_keys(members.pop("keys", None)))
        case "drag":
            path = [dict(one) for one in members.pop("path")]
            points = tuple((_expect_int(one.pop("x")), _expect_int(one.pop("y"))) for one in path)
            if any(path) or len(points) < 2:
                raise ValueError("a drag has points")
            return Drag(path=points, keys=_decode_keys(members.pop("keys", None)))
        case "scroll":
            by = {"dx": _expect_int(members.pop("scroll_x")), "dy": _expect_int(members.pop("scroll_y"))}
            return Scroll(**_decode_point(members), **by, keys=_decode_keys(members.pop("keys", None)))
        case "keypress":
            keys = _decode_keys(members.pop("keys"))
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


def _decode_point(members: dict[str, Any]) -> dict[str, Any]:
    return {"x": _expect_int(members.pop("x")), "y": _expect_int(members.pop("y"))}


def _expect_int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def _decode_keys(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise TypeError("no keys")
    return tuple(key_of(word, case_sensitive=False) for word in value)


def _decode_computer_result(result: ToolResult) -> ScreenObservation:
    kept = (result.extras or {}).get(FAMILY, {})
    if (raw := kept.get("acknowledged_safety_checks")) is None:
        return ScreenObservation()
    found = parse_json(raw)
    ids = [one.get("id") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return ScreenObservation(acknowledged=bool(ids), checks=tuple(str(id) for id in ids))


# ---- encode


def _encode_computer_actions(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    told = encode_each(actions, _encode_action, state)
    if told is None or computer.dialect == _PREVIEW:
        return told
    return [EncodedAction(_COMPUTER_TOOL, {"actions": [one.arguments for one in told]})]


def _encode_action(action: Action, state: ActionEncodingState) -> list[EncodedAction] | None:
    made = _encode_action_members(action, state)
    return None if made is None else [EncodedAction(_COMPUTER_TOOL, one) for one in made]


def _encode_action_members(action: Action, state: ActionEncodingState) -> list[dict[str, Any]] | None:
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
                state.report_loss("keys are pressed, and not held")
            return [{"type": "keypress", "keys": vendor_keys(keys, _KEY_NAMES)}] * repeat
        case Wait(seconds=seconds):
            if seconds is not None:
                state.report_loss("how long to wait is not told")
            return [{"type": "wait"}]
        case _:
            return None


def _encode_click(action: Click, state: ActionEncodingState) -> list[dict[str, Any]] | None:
    if (point := state.target_point(action)) is None:
        return None
    once = {
        "type": "click",
        "button": _BUTTON_NAMES[action.button],
        **_encode_point(point),
        **_encode_modifiers(action),
    }
    twice = {"type": "double_click", **_encode_point(point), "keys": vendor_keys(action.keys, _KEY_NAMES) or None}
    if action.count == 1 or action.button != "left":
        return [once] * action.count
    if action.count == 3:
        state.report_loss("a third click is told after a double one")
    return [twice] if action.count == 2 else [twice, once]


def _encode_point(point: tuple[int, int]) -> dict[str, int]:
    return {"x": point[0], "y": point[1]}


def _encode_modifiers(action: Click | Move | Drag | Scroll) -> dict[str, Any]:
    return {"keys": vendor_keys(action.keys, _KEY_NAMES)} if action.keys else {}


def _encode_computer_call(call: ToolCall, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    field = "action" if computer.dialect == _PREVIEW else "actions"
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
    seen = result.screen is not None and result.screen.acknowledged
    extras = encode_extras(FAMILY, {"acknowledged_safety_checks": checks}) if checks and seen else None
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
