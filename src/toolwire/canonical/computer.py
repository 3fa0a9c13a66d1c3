"""Computer-use actions in a vendor-neutral form.

A point is in pixels of the declared display, from its top left corner. `None` means the current pointer position. Keys
are named as in the W3C UI Events `key` values (`Enter`, `ArrowLeft`, `PageDown`, `Control`, `Meta`, `F5`), or are the
character that they type (`a`, `+`, a space). Several keys form a chord: pressed in order, released in reverse.
"""

from typing import Literal

from msgspec import Struct

Button = Literal["left", "right", "middle", "back", "forward"]


class ComputerAction(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """Common base of all actions, distinguished by `kind` in JSON."""


class Screenshot(ComputerAction, frozen=True, tag="screenshot"):
    """Capture the entire display."""


class Click(ComputerAction, frozen=True, tag="click"):
    """Click a mouse button, once or several times."""

    x: int | None = None
    y: int | None = None
    button: Button = "left"
    count: Literal[1, 2, 3] = 1
    keys: tuple[str, ...] = ()  # held during the click


class Move(ComputerAction, frozen=True, tag="move"):
    """Move the pointer."""

    x: int
    y: int
    keys: tuple[str, ...] = ()  # held during the move


class Drag(ComputerAction, frozen=True, tag="drag"):
    """Press the left button at the first point and release it at the last."""

    path: tuple[tuple[int, int], ...]
    keys: tuple[str, ...] = ()  # held during the drag


class Scroll(ComputerAction, frozen=True, tag="scroll"):
    """Scroll by pixels."""

    x: int | None = None
    y: int | None = None
    dx: int = 0  # positive scrolls right
    dy: int = 0  # positive scrolls down
    keys: tuple[str, ...] = ()  # held while scrolling


class Type(ComputerAction, frozen=True, tag="type"):
    """Type text."""

    text: str


class Keys(ComputerAction, frozen=True, tag="keys"):
    """Press a chord once or several times, or hold it."""

    keys: tuple[str, ...]
    repeat: int = 1
    hold: float | None = None  # in seconds; excludes `repeat`


class KeyDown(ComputerAction, frozen=True, tag="key_down"):
    """Press a key without releasing it."""

    key: str


class KeyUp(ComputerAction, frozen=True, tag="key_up"):
    """Release a key."""

    key: str


class Wait(ComputerAction, frozen=True, tag="wait"):
    """Wait before the next action."""

    seconds: float | None = None  # None: the executor chooses


class Zoom(ComputerAction, frozen=True, tag="zoom"):
    """Capture an enlarged region, from its top left to its bottom right corner."""

    x0: int
    y0: int
    x1: int
    y1: int


class Navigate(ComputerAction, frozen=True, tag="navigate"):
    """Open a URL in the browser."""

    url: str


class Back(ComputerAction, frozen=True, tag="back"):
    """Go back in the browser history."""


class Forward(ComputerAction, frozen=True, tag="forward"):
    """Go forward in the browser history."""


class Reload(ComputerAction, frozen=True, tag="reload"):
    """Reload the page."""


class ReadText(ComputerAction, frozen=True, tag="read_text"):
    """Read the visible text of the page."""


class MouseDown(ComputerAction, frozen=True, tag="mouse_down"):
    """Press a mouse button without releasing it."""

    x: int | None = None
    y: int | None = None
    button: Button = "left"


class MouseUp(ComputerAction, frozen=True, tag="mouse_up"):
    """Release a mouse button."""

    x: int | None = None
    y: int | None = None
    button: Button = "left"


class CursorPosition(ComputerAction, frozen=True, tag="cursor_position"):
    """Report the pointer position."""


Action = (
    Screenshot
    | Click
    | Move
    | Drag
    | Scroll
    | Type
    | Keys
    | KeyDown
    | KeyUp
    | Wait
    | Zoom
    | Navigate
    | Back
    | Forward
    | Reload
    | ReadText
    | MouseDown
    | MouseUp
    | CursorPosition
)


ACTION_KINDS = tuple(str(kind.__struct_config__.tag) for kind in Action.__args__)
ACTION_FIELDS = ("kind", *dict.fromkeys(name for kind in Action.__args__ for name in kind.__struct_fields__))


class SafetyCheck(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A provider's safety check that a person must acknowledge before the action runs."""

    id: str | None = None
    code: str | None = None
    message: str | None = None
