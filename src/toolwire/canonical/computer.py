"""What a model may do with a screen, in common words.

A point is in pixels of the declared display, from its top left corner; `None` is where the pointer is. A key is named
as in the W3C's UI Events `key` values (`Enter`, `ArrowLeft`, `PageDown`, `Control`, `Meta`, `F5`), or is the one
character that it types (`a`, `+`, and a space for the space bar). Several keys are one chord: pressed in order,
released in reverse.
"""

from typing import Literal

from msgspec import Struct

Button = Literal["left", "right", "middle", "back", "forward"]


class ComputerAction(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """One action. `kind` names it in JSON."""


class Screenshot(ComputerAction, frozen=True, tag="screenshot"):
    """A picture of the whole display."""


class Click(ComputerAction, frozen=True, tag="click"):
    """`keys` are held meanwhile."""

    x: int | None = None
    y: int | None = None
    button: Button = "left"
    count: Literal[1, 2, 3] = 1
    keys: tuple[str, ...] = ()


class Move(ComputerAction, frozen=True, tag="move"):
    x: int
    y: int
    keys: tuple[str, ...] = ()


class Drag(ComputerAction, frozen=True, tag="drag"):
    """The left button is pressed at the first point and released at the last one."""

    path: tuple[tuple[int, int], ...]
    keys: tuple[str, ...] = ()


class Scroll(ComputerAction, frozen=True, tag="scroll"):
    """By pixels: `dx` to the right, `dy` down."""

    x: int | None = None
    y: int | None = None
    dx: int = 0
    dy: int = 0
    keys: tuple[str, ...] = ()


class Type(ComputerAction, frozen=True, tag="type"):
    text: str


class Keys(ComputerAction, frozen=True, tag="keys"):
    """A chord, pressed `repeat` times; or held for `hold` seconds."""

    keys: tuple[str, ...]
    repeat: int = 1
    hold: float | None = None


class KeyDown(ComputerAction, frozen=True, tag="key_down"):
    key: str


class KeyUp(ComputerAction, frozen=True, tag="key_up"):
    key: str


class Wait(ComputerAction, frozen=True, tag="wait"):
    """`seconds` absent: as long as the one who does it thinks right."""

    seconds: float | None = None


class Zoom(ComputerAction, frozen=True, tag="zoom"):
    """A closer picture of a part of the display, from its top left corner to its bottom right one."""

    x0: int
    y0: int
    x1: int
    y1: int


class Navigate(ComputerAction, frozen=True, tag="navigate"):
    url: str


class Back(ComputerAction, frozen=True, tag="back"):
    pass


class Forward(ComputerAction, frozen=True, tag="forward"):
    pass


class Reload(ComputerAction, frozen=True, tag="reload"):
    pass


class ReadText(ComputerAction, frozen=True, tag="read_text"):
    """The text of the page, as a person would read it."""


class MouseDown(ComputerAction, frozen=True, tag="mouse_down"):
    x: int | None = None
    y: int | None = None
    button: Button = "left"


class MouseUp(ComputerAction, frozen=True, tag="mouse_up"):
    x: int | None = None
    y: int | None = None
    button: Button = "left"


class CursorPosition(ComputerAction, frozen=True, tag="cursor_position"):
    """Where the pointer is."""


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


class SafetyCheck(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a person must agree to before an action is done. Nobody else may."""

    id: str | None = None
    code: str | None = None
    message: str | None = None
