"""Computer use: calls that drive a screen, told in the form of whoever reads them.

A protocol folder says its `Form`: how it reads a call into common actions and writes one from them, what it wants of a
result, and how it declares the tool. A decoder reads the calls of a conversation (`with_screens`). Here is what becomes
of them elsewhere:

1. The tool is declared in the target's own form, or as a function where it has none (`on_screen`).
2. Calls in the history, and their results, are told in that form, turn by turn (`ScreenPlan`).
3. The answer's calls are told again in the client's own form (`acting`, which has the other half).

A form may tell several actions in a call, or one. Those of one call that had to be told as several are its pieces:
their ids say so (`piece_id`), and in the next request they are joined again. A call that can't be told stays a
function's. A safety check is told where it can be, and refused elsewhere: nobody here agrees to it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.computer import Action, Keys, SafetyCheck, Screenshot, Type
from toolwire.canonical.content import Media, Message, Part, ScreenSeen, ScreenUse, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, FunctionTool, NativeTool, Tool

from .fields import escape
from .losses import elements
from .pictures import Size, size_of

NOTCH = 100
"""The pixels that a page moves by for one notch of a wheel."""

_PIECE = re.compile(r"(.+)_tw(\d{1,3})of(\d{1,3})")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Spoken(Struct, frozen=True):
    """A call in a vendor's form. `index` is that of the first action it tells."""

    name: str
    arguments: dict[str, Any]
    index: int = 0


class Saying:
    """While actions are told: the size of the screen and where the pointer is, if known; what is lost, by action."""

    def __init__(self, size: Size | None = None, point: tuple[int, int] | None = None) -> None:
        self.size = size
        self.point = point
        self.index = 0
        self.lost: list[tuple[int, str]] = []

    def lose(self, why: str) -> None:
        self.lost.append((self.index, why))

    def where(self, action: Any) -> tuple[int, int] | None:
        """The point that an action means: its own, or where the pointer is."""
        return self.point if action.x is None or action.y is None else (action.x, action.y)

    def did(self, action: Action) -> None:
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        if (path := getattr(action, "path", None)) is not None:
            self.point = path[-1]
        elif x is not None and y is not None:
            self.point = x, y


def whole_seconds(seconds: float, saying: Saying) -> int:
    """For a form that counts no parts of a second, and none of less than one."""
    whole = max(1, round(seconds))
    if whole != seconds:
        saying.lose("the target counts whole seconds")
    return whole


Say = Callable[[Action, Saying], list[Spoken] | None]


def each(actions: Iterable[Action], say: Say, saying: Saying) -> list[Spoken] | None:
    """Every action as calls of its own; None if one of them can't be told."""
    told: list[Spoken] = []
    for index, action in enumerate(actions):
        saying.index = index
        if (said := say(action, saying)) is None:
            return None
        told += [replace(one, index=index) for one in said]
        saying.did(action)
    return told


class Form(Struct, frozen=True):
    """How a protocol tells what is done with a screen.

    `kin` are the families whose calls need no telling again. `arguments` is where those stand in a call, as a pointer.
    `read` gives what a call does, for a screen of this size; `write` the calls that tell some actions, `call` and
    `result` make them the protocol's own parts. `declare` gives the tool for a model, and `checks`: it can say that a
    person must agree.
    """

    family: str
    kin: tuple[str, ...]
    arguments: str
    read: Callable[[ToolCall, Size | None], ScreenUse | None]
    write: Callable[[tuple[Action, ...], Computer, Saying], list[Spoken] | None]
    call: Callable[[ToolCall, Computer, tuple[SafetyCheck, ...]], ToolCall]
    result: Callable[[ToolResult, Computer, tuple[SafetyCheck, ...]], ToolResult]
    declare: Callable[[Computer, str], tuple[FunctionTool | NativeTool, Computer]]
    seen: Callable[[ToolResult], ScreenSeen] = lambda _: ScreenSeen()
    checks: bool = False
    pictures_only: bool = False


class OnScreen(Struct, frozen=True):
    """What an answer's calls are read by, and told again for: the upstream's form and the client's tools."""

    form: Form
    computers: tuple[Computer, ...]
    functions: frozenset[str]
    size: Size | None
    point: tuple[int, int] | None


# ---- decode


def computers_of(tools: Sequence[Tool] | None) -> tuple[Computer, ...]:
    if not tools or NativeTool not in map(type, tools):
        return ()
    return tuple([one.computer for one in tools if type(one) is NativeTool and one.computer is not None])


def functions_of(request: Request) -> frozenset[str]:
    return frozenset([tool.name for tool in request.tools or () if type(tool) is FunctionTool])


def declared_size(computers: Iterable[Computer]) -> Size | None:
    return next(((one.width, one.height) for one in computers if one.width and one.height), None)


class Watching:
    """The size of the screen and the place of the pointer, as a conversation goes on."""

    def __init__(self, computers: Iterable[Computer]) -> None:
        self.declared = declared_size(computers)
        self.size = self.declared
        self.picture: Media | None = None
        self.saying = Saying(self.size)

    def see(self, part: Part) -> None:
        if isinstance(part, ToolCall) and part.screen is not None:
            for action in part.screen.actions:
                self.saying.did(action)
        for one in (part.content or ()) if isinstance(part, ToolResult) else (part,):
            if isinstance(one, Media) and one.kind == "image":
                self.picture = one
                self.size = self.saying.size = self.declared or size_of(one) or self.size


def with_screens(request: Request, form: Form) -> Request:
    """The request with what its calls do to a screen, if it declares one. What is known already stays."""
    if not (computers := computers_of(request.tools)):
        return request
    watching, functions, called = Watching(computers), functions_of(request), set[str]()
    messages: list[Message] = []
    for message in request.messages:
        parts = []
        for part in message.parts:
            read = part
            if isinstance(part, ToolCall) and part.executor == "client" and part.name not in functions:
                read = _read_call(part, form, watching.size, called)
            elif isinstance(part, ToolResult) and (part.call_id in called or part.name in called):
                read = part if part.screen is not None else _read_result(part, form)
            watching.see(read)
            parts.append(read)
        same = all(one is other for one, other in zip(parts, message.parts, strict=True))
        messages.append(message if same else replace(message, parts=tuple(parts)))
    return replace(request, messages=tuple(messages)) if called else request


def _read_call(call: ToolCall, form: Form, size: Size | None, called: set[str]) -> ToolCall:
    use = call.screen or (form.read(call, size) if call.complete else None)
    if use is None:
        return call
    called.add(call.id or call.name)
    return call if call.screen is not None else replace(call, screen=use, form=(*call.form, *_told_checks(call)))


def _read_result(result: ToolResult, form: Form) -> ToolResult:
    return replace(result, screen=form.seen(result), form=(*result.form, *_told_checks(result)))


def _told_checks(part: ToolCall | ToolResult) -> list[str]:
    """That safety checks are canonical, too: as extras they are only there to be written back."""
    kept = [(family, key) for family, members in (part.extras or {}).items() for key in members]
    return [f"{family}:told:{key}" for family, key in kept if key.endswith("_safety_checks")]


def members_of(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of a call, if they are an object."""
    try:
        return _decode(call.arguments.encode() or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def unread(members: dict[str, Any], known: Iterable[str]) -> list[str]:
    """The pointers to what else is said: of a list, to its elements."""
    found = [(escape(name), value) for name, value in members.items() if name not in known and value is not None]
    return [place for name, value in found for place in elements(Raw(msgspec.json.encode(value)), name)]


def point_of(value: Any) -> tuple[int, int] | None:
    """Two whole numbers in a list."""
    if isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value):
        return value[0], value[1]
    return None


# ---- ids of pieces


def piece_id(id: str, number: int, count: int) -> str:
    return id if count == 1 else f"{id}_tw{number}of{count}"


def pieces(calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
    """The calls, those together that are the pieces of one: all of them, in order."""
    found: list[list[ToolCall]] = []
    place = 0
    while place < len(calls):
        match = _PIECE.fullmatch(calls[place].id or "")
        count = int(match[3]) if match is not None else 1
        group = list(calls[place : place + count])
        whole = match is not None and [one.id for one in group] == [
            piece_id(match[1], number, count) for number in range(1, count + 1)
        ]
        found.append(group if whole else [calls[place]])
        place += count if whole else 1
    return found


def whole_id(group: Sequence[ToolCall]) -> str:
    """The id of the call that these are the pieces of."""
    match = _PIECE.fullmatch(group[0].id or "") if len(group) > 1 else None
    return (group[0].id or "") if match is None else match[1]


def arguments_of(spoken: Spoken) -> str:
    return msgspec.json.encode(spoken.arguments).decode()


def extras_of(family: str, members: dict[str, Any]) -> dict[str, dict[str, Raw]]:
    return {family: {name: Raw(msgspec.json.encode(value)) for name, value in members.items()}}


# ---- what a form can say


def kind_of(action: Action) -> str:
    return str(type(action).__struct_config__.tag)


_LESSER: dict[str, Callable[[Any], tuple[Action, ...]]] = {
    "navigate": lambda action: (Keys(keys=("Control", "l")), Type(text=action.url), Keys(keys=("Enter",))),
    "back": lambda _: (Keys(keys=("Alt", "ArrowLeft")),),
    "forward": lambda _: (Keys(keys=("Alt", "ArrowRight")),),
    "reload": lambda _: (Keys(keys=("F5",)),),
    "zoom": lambda _: (Screenshot(),),
    "read_text": lambda _: (Screenshot(),),
    "cursor_position": lambda _: (Screenshot(),),
}
"""What comes nearest to an action that a form has no word for."""


def told(actions: tuple[Action, ...], computer: Computer, form: Form, saying: Saying) -> list[Spoken] | None:
    """The calls that tell some actions to one who has this tool; None if that can't be done."""
    fitted: list[Action] = []
    origins: list[int] = []
    for index, action in enumerate(actions):
        kind = kind_of(action)
        if kind in computer.kinds:
            nearest: tuple[Action, ...] = (action,)
        elif (lesser := _LESSER.get(kind)) is not None:
            nearest = lesser(action)
            saying.lost.append((index, f"{kind} is told by what comes nearest to it"))
        else:
            return None
        fitted += nearest
        origins += [index] * len(nearest)
    before = len(saying.lost)
    spoken = form.write(tuple(fitted), computer, saying)
    if spoken is None:
        return None
    saying.lost[before:] = [(origins[index], why) for index, why in saying.lost[before:]]
    return [replace(one, index=origins[one.index]) for one in spoken]
