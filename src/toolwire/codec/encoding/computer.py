"""Computer use: calls that operate a screen, and their encoding in another vendor's format.

A protocol folder provides a `ComputerUseAdapter`: how to decode a call into canonical actions and encode actions as
calls, what results need, and how the tool is declared. Translation works in three steps:

1. The tool is declared in the target's own format, or as a function (`use_target_tool`).
2. Calls in the history and their results are encoded in that format, turn by turn (`ComputerUsePlan`).
3. Calls in the response are encoded in the client's format (`translation.stages.computer`).

A format allows one or several actions per call. One call that had to be split has ids that say so (`split_call_id`),
and the next request joins it again. A call that cannot be encoded stays a function call. Safety checks are passed on
where the format supports them, and are refused elsewhere: the gateway never acknowledges them itself.

`FUNCTION_ADAPTER` is for protocols without computer use: a function whose arguments are the canonical actions.
`CANONICAL_ADAPTER` is for clients that run canonical actions; they declare `computer_tool`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.computer import Action, Keys, SafetyCheck, Screenshot, Type
from toolwire.canonical.content import ComputerUse, Media, Message, Part, ScreenObservation, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, FunctionTool, NativeTool, Tool
from toolwire.codec.encoding.media import Size, image_size
from toolwire.codec.losses import element_pointers
from toolwire.codec.wire.reader import escape_pointer

_KEY_ALIASES = {
    "Control": "ctrl control",
    "Meta": "meta cmd command super super_l win windows",
    "Alt": "alt option",
    "Shift": "shift",
    "Enter": "enter return kp_enter",
    "Escape": "escape esc",
    "Tab": "tab",
    " ": "space spacebar",
    "Backspace": "backspace back_space",
    "Delete": "delete del",
    "Insert": "insert",
    "Home": "home",
    "End": "end",
    "PageUp": "pageup page_up prior pgup",
    "PageDown": "pagedown page_down next pgdn",
    "ArrowUp": "arrowup up arrow_up",
    "ArrowDown": "arrowdown down arrow_down",
    "ArrowLeft": "arrowleft left arrow_left",
    "ArrowRight": "arrowright right arrow_right",
    "CapsLock": "capslock caps_lock",
    "+": "plus",
    "-": "minus",
    "=": "equal",
    ",": "comma",
    ".": "period",
    "/": "slash",
    "\\": "backslash",
    ";": "semicolon",
    "'": "apostrophe",
    "`": "grave",
    "[": "bracketleft",
    "]": "bracketright",
}
_KEYS_BY_ALIAS = {alias: key for key, aliases in _KEY_ALIASES.items() for alias in aliases.split()}
_KEYS_BY_ALIAS |= {f"f{number}": f"F{number}" for number in range(1, 25)}


def key_of(word: str, *, case_sensitive: bool = True) -> str:
    """Return the W3C key name for a vendor's key name; unless `case_sensitive`, letters are lower-cased."""
    if len(word) == 1:
        return word if case_sensitive else word.lower()
    return _KEYS_BY_ALIAS.get(word.lower(), word)


def chord_of(text: str, *, case_sensitive: bool = True) -> tuple[str, ...]:
    """Return the W3C key names of a chord such as `ctrl+shift+t`; the last key may be a plus sign."""
    words = text.removesuffix("+").split("+") if text.endswith("+") and text != "+" else text.split("+")
    last = ("+",) if text.endswith("+") else ()
    return tuple(key_of(word, case_sensitive=case_sensitive) for word in words if word) + last


def vendor_keys(keys: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    """Return the keys of a chord under the vendor's names."""
    return [names.get(key, key) for key in keys]


PIXELS_PER_NOTCH = 100
"""Pixels that a page scrolls for one notch of a mouse wheel."""

_SPLIT_CALL_ID = re.compile(r"(.+)_tw(\d{1,3})of(\d{1,3})")
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class EncodedAction(Struct, frozen=True):
    """A call in a vendor's format."""

    name: str
    arguments: dict[str, Any]
    index: int = 0  # of the first action that it performs


class ActionEncodingState:
    """The known screen size and pointer position while actions are encoded, and the losses per action."""

    def __init__(self, size: Size | None = None, point: tuple[int, int] | None = None) -> None:
        self.size = size
        self.point = point
        self.index = 0
        self.losses: list[tuple[int, str]] = []

    def report_loss(self, reason: str) -> None:
        """Record why the current action can't be encoded exactly."""
        self.losses.append((self.index, reason))

    def target_point(self, action: Any) -> tuple[int, int] | None:
        """Return the pixel that an action points at, or the pointer position if it names none."""
        return self.point if action.x is None or action.y is None else (action.x, action.y)

    def advance(self, action: Action) -> None:
        """Move the known pointer position to where an action leaves it."""
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        if (path := getattr(action, "path", None)) is not None:
            self.point = path[-1]
        elif x is not None and y is not None:
            self.point = x, y


def round_seconds(seconds: float, state: ActionEncodingState) -> int:
    """Round a duration to full seconds, at least one, and record a loss if that changes it."""
    rounded = max(1, round(seconds))
    if rounded != seconds:
        state.report_loss("the target only supports full seconds")
    return rounded


EncodeAction = Callable[[Action, ActionEncodingState], list[EncodedAction] | None]


def encode_each(
    actions: Iterable[Action], encode: EncodeAction, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Encode every action as calls of its own; None if one of them cannot be encoded."""
    calls: list[EncodedAction] = []
    for index, action in enumerate(actions):
        state.index = index
        if (encoded := encode(action, state)) is None:
            return None
        calls += [replace(call, index=index) for call in encoded]
        state.advance(action)
    return calls


class ComputerUseAdapter(Struct, frozen=True):
    """A protocol's format of computer use."""

    family: str
    compatible_families: tuple[str, ...]  # families whose calls need no conversion
    arguments_pointer: str  # to the arguments within a call
    # reads the actions of a call, for a screen of this size; None if it is no computer call
    decode_call: Callable[[ToolCall, Size | None], ComputerUse | None]
    # encodes actions as calls; None if that is impossible
    encode_actions: Callable[[tuple[Action, ...], Computer, ActionEncodingState], list[EncodedAction] | None]
    # adds the protocol's own fields to a call
    finish_call: Callable[[ToolCall, Computer, tuple[SafetyCheck, ...]], ToolCall]
    # adds the protocol's own fields to a result
    finish_result: Callable[[ToolResult, Computer, tuple[SafetyCheck, ...]], ToolResult]
    # returns the tool declaration for a model, and what it supports
    declare_tool: Callable[[Computer, str], tuple[FunctionTool | NativeTool, Computer]]
    decode_observation: Callable[[ToolResult], ScreenObservation] = lambda _: ScreenObservation()
    has_safety_checks: bool = False  # calls can require that a person acknowledges them
    screenshots_only: bool = False  # results consist of one screenshot


class ScreenContext(Struct, frozen=True):
    """The upstream's format and the client's computers, for converting the calls of a response."""

    adapter: ComputerUseAdapter
    computers: tuple[Computer, ...]
    function_names: frozenset[str]
    size: Size | None
    point: tuple[int, int] | None


# ---- decode


def computers_of(tools: Sequence[Tool] | None) -> tuple[Computer, ...]:
    """Return the computers among the declared tools."""
    if not tools or NativeTool not in map(type, tools):
        return ()
    return tuple([tool.computer for tool in tools if type(tool) is NativeTool and tool.computer is not None])


def function_names(request: Request) -> frozenset[str]:
    """Return the names of the declared functions."""
    return frozenset([tool.name for tool in request.tools or () if type(tool) is FunctionTool])


def declared_size(computers: Iterable[Computer]) -> Size | None:
    """Return the first declared screen size; None if no computer declares one."""
    return next(
        ((computer.width, computer.height) for computer in computers if computer.width and computer.height), None
    )


class ScreenTracker:
    """The screen size and pointer position in the course of a conversation."""

    def __init__(self, computers: Iterable[Computer]) -> None:
        self.declared_size = declared_size(computers)
        self.size = self.declared_size
        self.screenshot: Media | None = None
        self.state = ActionEncodingState(self.size)

    def observe(self, part: Part) -> None:
        """Update screen size, pointer and last screenshot from a computer call or its result."""
        if isinstance(part, ToolCall) and part.screen is not None:
            for action in part.screen.actions:
                self.state.advance(action)
        for content_part in (part.content or ()) if isinstance(part, ToolResult) else (part,):
            if isinstance(content_part, Media) and content_part.kind == "image":
                self.screenshot = content_part
                self.size = self.state.size = self.declared_size or image_size(content_part) or self.size


def decode_computer_use(request: Request, adapter: ComputerUseAdapter) -> Request:
    """Return the request with the actions of its computer calls decoded, if it declares a computer."""
    if not (computers := computers_of(request.tools)):
        return request
    tracker, functions, computer_calls = ScreenTracker(computers), function_names(request), set[str]()
    messages: list[Message] = []
    for message in request.messages:
        parts = []
        for part in message.parts:
            decoded = part
            if isinstance(part, ToolCall) and part.executor == "client" and part.name not in functions:
                decoded = _decode_call(part, adapter, tracker.size, computer_calls)
            elif isinstance(part, ToolResult) and (part.call_id in computer_calls or part.name in computer_calls):
                decoded = part if part.screen is not None else _decode_result(part, adapter)
            tracker.observe(decoded)
            parts.append(decoded)
        unchanged = all(after is before for after, before in zip(parts, message.parts, strict=True))
        messages.append(message if unchanged else replace(message, parts=tuple(parts)))
    return replace(request, messages=tuple(messages)) if computer_calls else request


def _decode_call(call: ToolCall, adapter: ComputerUseAdapter, size: Size | None, computer_calls: set[str]) -> ToolCall:
    """Return a computer call with its actions decoded, and add its id to `computer_calls`; leave others alone."""
    use = call.screen or (adapter.decode_call(call, size) if call.complete else None)
    if use is None:
        return call
    computer_calls.add(call.id or call.name)
    return (
        call
        if call.screen is not None
        else replace(call, screen=use, wire_form=(*call.wire_form, *_safety_check_tokens(call)))
    )


def _decode_result(result: ToolResult, adapter: ComputerUseAdapter) -> ToolResult:
    """Return the result of a computer call with the screen state that it reports decoded."""
    return replace(
        result, screen=adapter.decode_observation(result), wire_form=(*result.wire_form, *_safety_check_tokens(result))
    )


def _safety_check_tokens(part: ToolCall | ToolResult) -> list[str]:
    """Return `wire_form` entries that keep safety checks in extras from being reported as lost: they are translated."""
    extras = [(family, key) for family, members in (part.extras or {}).items() for key in members]
    return [f"{family}:canonical:{key}" for family, key in extras if key.endswith("_safety_checks")]


def call_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they are not a JSON object."""
    try:
        return _decode_object(call.arguments.encode() or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def unread_pointers(members: dict[str, Any], known_names: Iterable[str]) -> list[str]:
    """Return the JSON pointers of members not among the known names; for a list, those of its elements."""
    unread = [
        (escape_pointer(name), value)
        for name, value in members.items()
        if name not in known_names and value is not None
    ]
    return [pointer for name, value in unread for pointer in element_pointers(Raw(msgspec.json.encode(value)), name)]


def parse_point(value: Any) -> tuple[int, int] | None:
    """Return a point given as a list of two integers; None for any other value."""
    if isinstance(value, list) and len(value) == 2 and all(type(coordinate) is int for coordinate in value):
        return value[0], value[1]
    return None


# ---- split calls


def split_call_id(id: str, number: int, count: int) -> str:
    """Return the id of call `number` of the `count` calls that one call is split into."""
    return id if count == 1 else f"{id}_tw{number}of{count}"


def group_split_calls(calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
    """Group the calls that were split from one call, if all are there in order; other calls are groups of one."""
    groups: list[list[ToolCall]] = []
    position = 0
    while position < len(calls):
        match = _SPLIT_CALL_ID.fullmatch(calls[position].id or "")
        count = int(match[3]) if match is not None else 1
        group = list(calls[position : position + count])
        complete = match is not None and [call.id for call in group] == [
            split_call_id(match[1], number, count) for number in range(1, count + 1)
        ]
        groups.append(group if complete else [calls[position]])
        position += count if complete else 1
    return groups


def original_call_id(group: Sequence[ToolCall]) -> str:
    """Return the id that the call had before it was split into this group."""
    match = _SPLIT_CALL_ID.fullmatch(group[0].id or "") if len(group) > 1 else None
    return (group[0].id or "") if match is None else match[1]


def encode_arguments(action: EncodedAction) -> str:
    """Return the arguments of an encoded action as JSON text."""
    return msgspec.json.encode(action.arguments).decode()


def encode_extras(family: str, members: dict[str, Any]) -> dict[str, dict[str, Raw]]:
    """Return JSON members as extras: wire fields that are written back only in this protocol family."""
    return {family: {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}}


# ---- actions that a format lacks


def action_kind(action: Action) -> str:
    """Return the `kind` that names an action in JSON, such as `click`."""
    return str(type(action).__struct_config__.tag)


_FALLBACK_ACTIONS: dict[str, Callable[[Any], tuple[Action, ...]]] = {
    "navigate": lambda action: (Keys(keys=("Control", "l")), Type(text=action.url), Keys(keys=("Enter",))),
    "back": lambda _: (Keys(keys=("Alt", "ArrowLeft")),),
    "forward": lambda _: (Keys(keys=("Alt", "ArrowRight")),),
    "reload": lambda _: (Keys(keys=("F5",)),),
    "zoom": lambda _: (Screenshot(),),
    "read_text": lambda _: (Screenshot(),),
    "cursor_position": lambda _: (Screenshot(),),
}
"""The closest equivalents of actions that a format lacks."""


def encode_actions(
    actions: tuple[Action, ...], computer: Computer, adapter: ComputerUseAdapter, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Encode actions for this computer, using fallbacks where needed; None if that is impossible or there are none."""
    if not actions:
        return None
    supported: list[Action] = []
    origins: list[int] = []
    for index, action in enumerate(actions):
        kind = action_kind(action)
        if kind in computer.kinds:
            equivalents: tuple[Action, ...] = (action,)
        elif (fallback := _FALLBACK_ACTIONS.get(kind)) is not None:
            equivalents = fallback(action)
            state.losses.append((index, f"{kind} is replaced by the closest equivalent"))
        else:
            return None
        supported += equivalents
        origins += [index] * len(equivalents)
    loss_count = len(state.losses)
    calls = adapter.encode_actions(tuple(supported), computer, state)
    if calls is None:
        return None
    state.losses[loss_count:] = [(origins[index], reason) for index, reason in state.losses[loss_count:]]
    return [replace(call, index=origins[call.index]) for call in calls]


COMPUTER_FUNCTION_NAME = "computer"

_POINT_SCHEMA = {"x": {"type": "integer"}, "y": {"type": "integer"}}
_STRINGS_SCHEMA = {"type": "array", "items": {"type": "string"}}
_ACTION_SCHEMAS: dict[str, dict[str, Any]] = {
    "screenshot": {},
    "click": {
        **_POINT_SCHEMA,
        "button": {"type": "string", "enum": ["left", "right", "middle"]},
        "count": {"type": "integer", "enum": [1, 2, 3]},
        "keys": _STRINGS_SCHEMA,
    },
    "move": _POINT_SCHEMA,
    "drag": {"path": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}},
    "scroll": {**_POINT_SCHEMA, "dx": {"type": "integer"}, "dy": {"type": "integer"}},
    "type": {"text": {"type": "string"}},
    "keys": {"keys": _STRINGS_SCHEMA, "repeat": {"type": "integer"}, "hold": {"type": "number"}},
    "key_down": {"key": {"type": "string"}},
    "key_up": {"key": {"type": "string"}},
    "wait": {"seconds": {"type": "number"}},
    "zoom": {name: {"type": "integer"} for name in ("x0", "y0", "x1", "y1")},
    "navigate": {"url": {"type": "string"}},
    "back": {},
    "forward": {},
    "reload": {},
    "read_text": {},
    "mouse_down": _POINT_SCHEMA,
    "mouse_up": _POINT_SCHEMA,
    "cursor_position": {},
}
_FUNCTION_DESCRIPTION = (
    "Drive a screen: the actions are done in order, then a screenshot is returned. Points are pixels from the top left "
    "corner. Keys are named as in the W3C's UI Events (Enter, ArrowDown, Control) or are the character itself; those "
    "of one action are one chord. A drag is a path of points; scrolling is by pixels to the right (dx) and down (dy)."
)


class _FunctionArguments(msgspec.Struct):
    """Arguments of the computer function."""

    actions: tuple[Action, ...]
    checks: tuple[SafetyCheck, ...] = ()


_decode_function_arguments = msgspec.json.Decoder(_FunctionArguments).decode


def _decode_function_call(call: ToolCall, size: Size | None) -> ComputerUse | None:
    """Decode the actions in a call of the computer function; None if its arguments are invalid."""
    if call.name != COMPUTER_FUNCTION_NAME:
        return None
    try:
        arguments = _decode_function_arguments(call.arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    checked = ("arguments",) if arguments.checks else ()
    return ComputerUse(
        actions=arguments.actions, places=("",) * len(arguments.actions), checks=arguments.checks, checked=checked
    )


def _encode_function_call(
    actions: tuple[Action, ...], computer: Computer, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Return one call of the computer function that holds all these actions."""
    return [EncodedAction(COMPUTER_FUNCTION_NAME, {"actions": actions})]


def _declare_function(client_computer: Computer, model: str) -> tuple[FunctionTool, Computer]:
    """Declare the function that stands for a computer at targets without computer use.

    Returns the function, and the computer as it appears to the target: all canonical actions, on the client's screen.
    """
    kinds = tuple(kind for kind in _ACTION_SCHEMAS if kind in client_computer.kinds)
    fields: dict[str, Any] = {"kind": {"type": "string", "enum": list(kinds)}}
    for kind in kinds:
        fields |= _ACTION_SCHEMAS[kind]
    item = {"type": "object", "properties": fields, "required": ["kind"]}
    schema = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": item}},
        "required": ["actions"],
    }
    size = (
        f" The screen is {client_computer.width} by {client_computer.height} pixels."
        if client_computer.width and client_computer.height
        else ""
    )
    computer = Computer(
        dialect=COMPUTER_FUNCTION_NAME,
        kinds=tuple(_ACTION_SCHEMAS),
        width=client_computer.width,
        height=client_computer.height,
    )
    description = _FUNCTION_DESCRIPTION + size
    return FunctionTool(
        name=COMPUTER_FUNCTION_NAME, description=description, parameters=Raw(msgspec.json.encode(schema))
    ), computer


def _finish_call(call: ToolCall, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    """Return the call unchanged: this format has no fields for safety checks."""
    return call


def _finish_call_with_checks(call: ToolCall, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    """Return the call with pending safety checks added to its arguments."""
    if not checks:
        return call
    arguments = msgspec.json.decode(call.arguments, type=dict[str, Raw])
    return replace(call, arguments=msgspec.json.encode({**arguments, "checks": checks}).decode())


def _finish_result(result: ToolResult, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolResult:
    """Return the result unchanged: this format has no fields for safety checks."""
    return result


FUNCTION_ADAPTER = ComputerUseAdapter(
    family="",
    compatible_families=(),
    arguments_pointer="function/arguments",
    decode_call=_decode_function_call,
    encode_actions=_encode_function_call,
    finish_call=_finish_call,
    finish_result=_finish_result,
    declare_tool=_declare_function,
)

CANONICAL_ADAPTER = replace(
    FUNCTION_ADAPTER,
    family="toolwire",
    compatible_families=("toolwire",),
    arguments_pointer="arguments",
    finish_call=_finish_call_with_checks,
    has_safety_checks=True,
)
"""The format of clients that run canonical actions."""


def computer_tool(width: int, height: int, kinds: tuple[str, ...] = tuple(_ACTION_SCHEMAS)) -> NativeTool:
    """Declare a browser of this size that the client operates with canonical actions."""
    computer = Computer(
        dialect=COMPUTER_FUNCTION_NAME, kinds=kinds, width=width, height=height, environment="browser", at=""
    )
    return NativeTool(
        protocol=CANONICAL_ADAPTER.family,
        kind=COMPUTER_FUNCTION_NAME,
        name=COMPUTER_FUNCTION_NAME,
        body=Raw(b"{}"),
        executor="client",
        computer=computer,
    )
