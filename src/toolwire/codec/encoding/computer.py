"""Names of keys: every vendor's words to those of the W3C's UI Events, and how to find others again.

Computer use: calls that drive a screen, told in the form of whoever reads them.

A protocol folder says its `Form`: how it reads a call into common actions and writes one from them, what it wants of a
result, and how it declares the tool. A decoder reads the calls of a conversation (`with_screens`). Here is what becomes
of them elsewhere:

1. The tool is declared in the target's own form, or as a function where it has none (`on_screen`).
2. Calls in the history, and their results, are told in that form, turn by turn (`ScreenPlan`).
3. The answer's calls are told again in the client's own form (`acting`, which has the other half).

A form may tell several actions in a call, or one. Those of one call that had to be told as several are its pieces:
their ids say so (`piece_id`), and in the next request they are joined again. A call that can't be told stays a
function's. A safety check is told where it can be, and refused elsewhere: nobody here agrees to it.

Computer use where a protocol has none: a function whose arguments are the common actions themselves.

It is also the form of a client of our own, which runs common actions (`COMMON`): that one declares `computer_tool`, and
is told of safety checks beside the actions.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

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
_KEYS_BY_ALIAS = {word: key for key, words in _KEY_ALIASES.items() for word in words.split()}
_KEYS_BY_ALIAS |= {f"f{number}": f"F{number}" for number in range(1, 25)}


def key_of(word: str, *, case_sensitive: bool = True) -> str:
    """The key that a word names. `cased`: a capital letter is one; else all letters are written so."""
    if len(word) == 1:
        return word if case_sensitive else word.lower()
    return _KEYS_BY_ALIAS.get(word.lower(), word)


def chord_of(text: str, *, case_sensitive: bool = True) -> tuple[str, ...]:
    """The keys of `ctrl+shift+t`; a plus sign may be the last of them."""
    words = text.removesuffix("+").split("+") if text.endswith("+") and text != "+" else text.split("+")
    last = ("+",) if text.endswith("+") else ()
    return tuple(key_of(word, case_sensitive=case_sensitive) for word in words if word) + last


def vendor_keys(keys: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    """The keys in a vendor's words, where it has others."""
    return [names.get(key, key) for key in keys]


PIXELS_PER_NOTCH = 100
"""The pixels that a page moves by for one notch of a wheel."""

_SPLIT_CALL_ID = re.compile(r"(.+)_tw(\d{1,3})of(\d{1,3})")
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class EncodedAction(Struct, frozen=True):
    """A call in a vendor's form. `index` is that of the first action it tells."""

    name: str
    arguments: dict[str, Any]
    index: int = 0


class ActionEncodingState:
    """While actions are told: the size of the screen and where the pointer is, if known; what is lost, by action."""

    def __init__(self, size: Size | None = None, point: tuple[int, int] | None = None) -> None:
        self.size = size
        self.point = point
        self.index = 0
        self.losses: list[tuple[int, str]] = []

    def report_loss(self, reason: str) -> None:
        self.losses.append((self.index, reason))

    def target_point(self, action: Any) -> tuple[int, int] | None:
        """The point that an action means: its own, or where the pointer is."""
        return self.point if action.x is None or action.y is None else (action.x, action.y)

    def advance(self, action: Action) -> None:
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        if (path := getattr(action, "path", None)) is not None:
            self.point = path[-1]
        elif x is not None and y is not None:
            self.point = x, y


def round_seconds(seconds: float, state: ActionEncodingState) -> int:
    """For a form that counts no parts of a second, and none of less than one."""
    whole = max(1, round(seconds))
    if whole != seconds:
        state.report_loss("the target counts whole seconds")
    return whole


EncodeAction = Callable[[Action, ActionEncodingState], list[EncodedAction] | None]


def encode_each(
    actions: Iterable[Action], encode: EncodeAction, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """Every action as calls of its own; None if one of them can't be told."""
    told: list[EncodedAction] = []
    for index, action in enumerate(actions):
        state.index = index
        if (said := encode(action, state)) is None:
            return None
        told += [replace(one, index=index) for one in said]
        state.advance(action)
    return told


class ComputerUseAdapter(Struct, frozen=True):
    """How a protocol tells what is done with a screen.

    `kin` are the families whose calls need no telling again. `arguments` is where those stand in a call, as a pointer.
    `read` gives what a call does, for a screen of this size; `write` the calls that tell some actions, `call` and
    `result` make them the protocol's own parts. `declare` gives the tool for a model, and `checks`: it can say that a
    person must agree.
    """

    family: str
    compatible_families: tuple[str, ...]
    arguments_pointer: str
    decode_call: Callable[[ToolCall, Size | None], ComputerUse | None]
    encode_actions: Callable[[tuple[Action, ...], Computer, ActionEncodingState], list[EncodedAction] | None]
    finish_call: Callable[[ToolCall, Computer, tuple[SafetyCheck, ...]], ToolCall]
    finish_result: Callable[[ToolResult, Computer, tuple[SafetyCheck, ...]], ToolResult]
    declare_tool: Callable[[Computer, str], tuple[FunctionTool | NativeTool, Computer]]
    decode_observation: Callable[[ToolResult], ScreenObservation] = lambda _: ScreenObservation()
    has_safety_checks: bool = False
    screenshots_only: bool = False


class ScreenContext(Struct, frozen=True):
    """What an answer's calls are read by, and told again for: the upstream's form and the client's tools."""

    adapter: ComputerUseAdapter
    computers: tuple[Computer, ...]
    function_names: frozenset[str]
    size: Size | None
    point: tuple[int, int] | None


# ---- decode


def computers_of(tools: Sequence[Tool] | None) -> tuple[Computer, ...]:
    if not tools or NativeTool not in map(type, tools):
        return ()
    return tuple([one.computer for one in tools if type(one) is NativeTool and one.computer is not None])


def function_names(request: Request) -> frozenset[str]:
    return frozenset([tool.name for tool in request.tools or () if type(tool) is FunctionTool])


def declared_size(computers: Iterable[Computer]) -> Size | None:
    return next(((one.width, one.height) for one in computers if one.width and one.height), None)


class ScreenTracker:
    """The size of the screen and the place of the pointer, as a conversation goes on."""

    def __init__(self, computers: Iterable[Computer]) -> None:
        self.declared_size = declared_size(computers)
        self.size = self.declared_size
        self.screenshot: Media | None = None
        self.state = ActionEncodingState(self.size)

    def observe(self, part: Part) -> None:
        if isinstance(part, ToolCall) and part.screen is not None:
            for action in part.screen.actions:
                self.state.advance(action)
        for one in (part.content or ()) if isinstance(part, ToolResult) else (part,):
            if isinstance(one, Media) and one.kind == "image":
                self.screenshot = one
                self.size = self.state.size = self.declared_size or image_size(one) or self.size


def decode_computer_use(request: Request, adapter: ComputerUseAdapter) -> Request:
    """The request with what its calls do to a screen, if it declares one. What is known already stays."""
    if not (computers := computers_of(request.tools)):
        return request
    watching, functions, called = ScreenTracker(computers), function_names(request), set[str]()
    messages: list[Message] = []
    for message in request.messages:
        parts = []
        for part in message.parts:
            read = part
            if isinstance(part, ToolCall) and part.executor == "client" and part.name not in functions:
                read = _decode_call(part, adapter, watching.size, called)
            elif isinstance(part, ToolResult) and (part.call_id in called or part.name in called):
                read = part if part.screen is not None else _decode_result(part, adapter)
            watching.observe(read)
            parts.append(read)
        same = all(one is other for one, other in zip(parts, message.parts, strict=True))
        messages.append(message if same else replace(message, parts=tuple(parts)))
    return replace(request, messages=tuple(messages)) if called else request


def _decode_call(call: ToolCall, adapter: ComputerUseAdapter, size: Size | None, computer_calls: set[str]) -> ToolCall:
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
    return replace(
        result, screen=adapter.decode_observation(result), wire_form=(*result.wire_form, *_safety_check_tokens(result))
    )


def _safety_check_tokens(part: ToolCall | ToolResult) -> list[str]:
    """That safety checks are canonical, too: as extras they are only there to be written back."""
    kept = [(family, key) for family, members in (part.extras or {}).items() for key in members]
    return [f"{family}:canonical:{key}" for family, key in kept if key.endswith("_safety_checks")]


def call_arguments(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of a call, if they are an object."""
    try:
        return _decode_object(call.arguments.encode() or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def unread_pointers(members: dict[str, Any], known_names: Iterable[str]) -> list[str]:
    """The pointers to what else is said: of a list, to its elements."""
    found = [
        (escape_pointer(name), value)
        for name, value in members.items()
        if name not in known_names and value is not None
    ]
    return [place for name, value in found for place in element_pointers(Raw(msgspec.json.encode(value)), name)]


def parse_point(value: Any) -> tuple[int, int] | None:
    """Two whole numbers in a list."""
    if isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value):
        return value[0], value[1]
    return None


# ---- ids of pieces


def split_call_id(id: str, number: int, count: int) -> str:
    return id if count == 1 else f"{id}_tw{number}of{count}"


def group_split_calls(calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
    """The calls, those together that are the pieces of one: all of them, in order."""
    found: list[list[ToolCall]] = []
    place = 0
    while place < len(calls):
        match = _SPLIT_CALL_ID.fullmatch(calls[place].id or "")
        count = int(match[3]) if match is not None else 1
        group = list(calls[place : place + count])
        whole = match is not None and [one.id for one in group] == [
            split_call_id(match[1], number, count) for number in range(1, count + 1)
        ]
        found.append(group if whole else [calls[place]])
        place += count if whole else 1
    return found


def original_call_id(group: Sequence[ToolCall]) -> str:
    """The id of the call that these are the pieces of."""
    match = _SPLIT_CALL_ID.fullmatch(group[0].id or "") if len(group) > 1 else None
    return (group[0].id or "") if match is None else match[1]


def encode_arguments(action: EncodedAction) -> str:
    return msgspec.json.encode(action.arguments).decode()


def encode_extras(family: str, members: dict[str, Any]) -> dict[str, dict[str, Raw]]:
    return {family: {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}}


# ---- what a form can say


def action_kind(action: Action) -> str:
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
"""What comes nearest to an action that a form has no word for."""


def encode_actions(
    actions: tuple[Action, ...], computer: Computer, adapter: ComputerUseAdapter, state: ActionEncodingState
) -> list[EncodedAction] | None:
    """The calls that tell some actions to one who has this tool; None if that can't be done, or there are none."""
    if not actions:
        return None
    fitted: list[Action] = []
    origins: list[int] = []
    for index, action in enumerate(actions):
        kind = action_kind(action)
        if kind in computer.kinds:
            nearest: tuple[Action, ...] = (action,)
        elif (lesser := _FALLBACK_ACTIONS.get(kind)) is not None:
            nearest = lesser(action)
            state.losses.append((index, f"{kind} is told by what comes nearest to it"))
        else:
            return None
        fitted += nearest
        origins += [index] * len(nearest)
    before = len(state.losses)
    spoken = adapter.encode_actions(tuple(fitted), computer, state)
    if spoken is None:
        return None
    state.losses[before:] = [(origins[index], why) for index, why in state.losses[before:]]
    return [replace(one, index=origins[one.index]) for one in spoken]


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
    actions: tuple[Action, ...]
    checks: tuple[SafetyCheck, ...] = ()


_decode_function_arguments = msgspec.json.Decoder(_FunctionArguments).decode


def _decode_function_call(call: ToolCall, _: Size | None) -> ComputerUse | None:
    if call.name != COMPUTER_FUNCTION_NAME:
        return None
    try:
        said = _decode_function_arguments(call.arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    checked = ("arguments",) if said.checks else ()
    return ComputerUse(actions=said.actions, places=("",) * len(said.actions), checks=said.checks, checked=checked)


def _encode_function_call(
    actions: tuple[Action, ...], _: Computer, __: ActionEncodingState
) -> list[EncodedAction] | None:
    return [EncodedAction(COMPUTER_FUNCTION_NAME, {"actions": actions})]


def _declare_function(client_computer: Computer, _: str) -> tuple[FunctionTool, Computer]:
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
    own = Computer(
        dialect=COMPUTER_FUNCTION_NAME,
        kinds=tuple(_ACTION_SCHEMAS),
        width=client_computer.width,
        height=client_computer.height,
    )
    about = _FUNCTION_DESCRIPTION + size
    return FunctionTool(
        name=COMPUTER_FUNCTION_NAME, description=about, parameters=Raw(msgspec.json.encode(schema))
    ), own


def _finish_call(call: ToolCall, _: Computer, __: tuple[SafetyCheck, ...]) -> ToolCall:
    return call


def _finish_call_with_checks(call: ToolCall, _: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    if not checks:
        return call
    said = msgspec.json.decode(call.arguments, type=dict[str, Raw])
    return replace(call, arguments=msgspec.json.encode({**said, "checks": checks}).decode())


def _finish_result(result: ToolResult, _: Computer, __: tuple[SafetyCheck, ...]) -> ToolResult:
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
"""The form of a client that runs common actions: how its calls are read (`with_screens`) and told to it (`raising`)."""


def computer_tool(
    width: int,
    height: int,
    kinds: tuple[str, ...] = tuple(_ACTION_SCHEMAS),
    environment: Literal["browser", "desktop"] = "browser",
) -> NativeTool:
    """The tool that such a client declares, for a screen of this size and the actions that it can do."""
    computer = Computer(
        dialect=COMPUTER_FUNCTION_NAME, kinds=kinds, width=width, height=height, environment=environment, at=""
    )
    return NativeTool(
        protocol=CANONICAL_ADAPTER.family,
        kind=COMPUTER_FUNCTION_NAME,
        name=COMPUTER_FUNCTION_NAME,
        body=Raw(b"{}"),
        executor="client",
        computer=computer,
    )
