"""Output of commands: lines, tables and errors; styled and fitted to the width on a terminal, plain text elsewhere.

Colors have a contrast of at least 3.5 to black, to white, and to the backgrounds of Solarized. NO_COLOR removes all
styles, and FORCE_COLOR styles output that is piped. A pipe gets complete lines whatever the width, so that they can be
searched. Control characters are escaped.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from msgspec import Struct

from toolwire.codec.escapes import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

Style = Literal["", "good", "warning", "problem", "accent", "muted", "strong"]
_Command = TypeVar("_Command", bound=Callable[..., None])
Part = str | tuple[str, Style]
"""A piece of a line: a text, or a text with its style."""

# The color of each style: among 256 colors, and among 16 where a terminal has no more.
_COLORS: dict[str, tuple[int, int]] = {
    "good": (64, 32),
    "warning": (166, 35),
    "problem": (196, 31),
    "accent": (31, 1),  # bold: cyan is not readable on white, nor blue on black
    "muted": (244, 2),
}
SEVERITY_STYLES: dict[str, Style] = {"error": "problem", "warning": "warning", "info": "muted"}
_DEFAULT_WIDTH = 80
_MIN_WIDTH = 20
_MIN_COLUMN = 8
_GAP = "  "


class Column(Struct, frozen=True):
    """A column of a table."""

    title: str
    is_flexible: bool = False
    """On a terminal that is too narrow, its texts are shortened."""
    align_right: bool = False


# ---- facts about the terminal


def _is_terminal(*, err: bool) -> bool:
    """Return whether stdout or stderr is a terminal."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and not stream.closed and stream.isatty()


def is_styled(*, err: bool = False) -> bool:
    """Return whether output is styled: on a terminal, or where FORCE_COLOR says so, but never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if (force := os.environ.get("FORCE_COLOR", "")) != "":
        return force != "0"
    return _is_terminal(err=err) and os.environ.get("TERM", "dumb") != "dumb"


def is_interactive(*, err: bool = False) -> bool:
    """Return whether a person reads the output on a terminal that can redraw lines."""
    return _is_terminal(err=err) and os.environ.get("TERM", "dumb") != "dumb"


def terminal_width(*, err: bool = False) -> int | None:
    """Return the number of columns of the terminal; None for a pipe or a file."""
    if not _is_terminal(err=err):
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(int(columns), _MIN_WIDTH)
    try:
        size = os.get_terminal_size((sys.stderr if err else sys.stdout).fileno()).columns
    except (OSError, ValueError):
        size = 0
    return max(size or _DEFAULT_WIDTH, _MIN_WIDTH)


def apply_style(text: str, style: str) -> str:
    """Return the text in a style, as SGR sequences (ECMA-48)."""
    if not text or not style:
        return text
    if style == "strong":
        return f"\x1b[1m{text}\x1b[0m"
    extended, basic = _COLORS[style]
    return f"\x1b[{f'38;5;{extended}' if _has_256_colors() else basic}m{text}\x1b[0m"


def _has_256_colors() -> bool:
    """Return whether the terminal has 256 colors; TERM=xterm, the default in containers, counts as one that has."""
    name = os.environ.get("TERM", "")
    return "256color" in name or name.startswith("xterm") or bool(os.environ.get("COLORTERM"))


# ---- texts in cells


def _split_part(part: Part) -> tuple[str, Style]:
    """Return text and style of a part."""
    return (part, "") if isinstance(part, str) else part


def text_width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, width: int) -> str:
    """Return the beginning of a text that fits into a width, with an ellipsis if it is cut."""
    if text_width(text) <= width:
        return text
    length = min(len(text), max(width - 1, 0))
    while length and text_width(text[:length]) > width - 1:
        length -= 1
    return f"{text[:length].rstrip()}…"


def format_dollars(dollars: float, digits: int = 4) -> str:
    """Format an amount of money; one that would round to zero is shown as less than the smallest."""
    smallest = 10**-digits
    return f"<${smallest:.{digits}f}" if 0 < dollars < smallest / 2 else f"${dollars:,.{digits}f}"


def diff_style(line: str) -> Style:
    """Return the style of a line of a unified diff; "" for none."""
    if line.startswith(("+++", "---", "@@")):
        return "muted"
    styles: dict[str, Style] = {"+": "good", "-": "problem"}
    return styles.get(line[:1], "")


# ---- lines


def print_line(*parts: Part, indent: int = 0, err: bool = False) -> None:
    """Print a line. A terminal wraps it at words, with the further lines indented.

    A command in backquotes stays on one line if it fits, so that it can be copied.
    """
    pieces = [(escape_controls(text), style) for text, style in map(_split_part, parts)]
    width = terminal_width(err=err)
    styled = is_styled(err=err)
    lines = [pieces] if width is None else _wrap_pieces(pieces, width, indent)
    text = "\n".join("".join(apply_style(text, style) if styled else text for text, style in line) for line in lines)
    click.echo(text, err=err, color=styled or None)


def _wrap_pieces(pieces: list[tuple[str, Style]], width: int, indent: int) -> list[list[tuple[str, Style]]]:
    """Break a line into lines of at most `width` columns, at spaces."""
    if sum(text_width(text) for text, _ in pieces) <= width:
        return [pieces]
    lines: list[list[tuple[str, Style]]] = [[]]
    used, word, word_width = 0, list[tuple[str, Style]](), 0
    tokens = [(token, style) for text, style in pieces for token in _split_words(text, width - indent)]
    for token, style in [*tokens, (" ", "")]:
        if not token.startswith(" "):
            word.append((token, style))
            word_width += text_width(token)
            continue
        if used + word_width > width and used > indent:
            _strip_end(lines[-1])
            # A word that is too long for the indented line is indented less: broken, it could not be copied.
            used = max(min(indent, width - word_width), 0)
            lines.append([(" " * used, "")])
        lines[-1] += [*word, (token, "" if style == "" else style)]
        used += word_width + len(token)
        word, word_width = [], 0
    _strip_end(lines[-1])
    return lines


def _split_words(text: str, width: int) -> list[str]:
    """Split a text into words and spaces; a command in backquotes is one word if it fits into a width."""
    tokens = re.findall(r" +|`[^`]*`|[^ `]+|`", text)
    return [
        token for span in tokens for token in ([span] if text_width(span) <= width else re.findall(r" +|[^ ]+", span))
    ]


def _strip_end(line: list[tuple[str, Style]]) -> None:
    """Remove the spaces at the end of a line."""
    while line and line[-1][0].isspace():
        line.pop()


def wrap_text(text: str, width: int, indent: int) -> str:
    """Break a text into lines of at most `width` columns, as `print_line` does."""
    return "\n".join("".join(piece for piece, _ in line) for line in _wrap_pieces([(text, "")], width, indent))


def print_command(label: Part, command: str) -> None:
    """Print a command after a label on one line, however long, so that it can be copied."""
    text, style = _split_part(label)
    styled = is_styled()
    shown = f"{apply_style(text, style) if styled else text} {escape_controls(command)}"
    click.echo(shown, color=styled or None)


def end_interrupted_line() -> None:
    """End the line on which a terminal shows `^C`."""
    if is_interactive(err=True):
        click.echo(err=True)


def print_error(message: str) -> None:
    """Print an error on stderr: one line in a pipe, wrapped at words on a terminal."""
    print_line(("Error:", "problem"), f" {' '.join(message.split())}", indent=2, err=True)


# ---- tables


class Table:
    """Rows in columns: on a terminal fitted to its width, under a header; in a pipe complete, and without header.

    Rows can be printed as they arrive. Columns become wider where needed, never narrower.
    """

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._widths = [0] * len(columns)
        self._has_header = False

    def print_rows(self, rows: Iterable[Sequence[Part]]) -> None:
        """Print rows, each as one line."""
        cells = [[(escape_controls(text), style) for text, style in map(_split_part, row)] for row in rows]
        width = terminal_width()
        if cells and width is not None and not self._has_header:
            self._has_header = True
            cells.insert(0, [(column.title, "muted") for column in self._columns])
        for row in cells:
            self._widths = [max(old, text_width(text)) for old, (text, _) in zip(self._widths, row, strict=True)]
        widths = self._widths if width is None else self._fit_widths(width)
        for row in cells:
            self._print_row(row, widths, width)

    def _fit_widths(self, width: int) -> list[int]:
        """Return the widths with the flexible columns narrowed, the widest first, until a row fits."""
        widths = [min(column_width, width) for column_width in self._widths]
        flexible = [index for index, column in enumerate(self._columns) if column.is_flexible]
        while flexible and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
            widest = max(flexible, key=widths.__getitem__)
            if widths[widest] <= _MIN_COLUMN:
                break
            widths[widest] -= 1
        return widths

    def _print_row(self, row: Sequence[tuple[str, Style]], widths: Sequence[int], width: int | None) -> None:
        """Print one row; on a terminal it never takes a second line."""
        styled, left, cells = is_styled(), width, list[str]()
        for (text, style), column, column_width in zip(row, self._columns, widths, strict=True):
            cell = text if width is None else shorten(text, column_width)
            if left is not None:
                cell = shorten(cell, left)
                left = max(left - column_width - len(_GAP), 0)
            padding = " " * (column_width - text_width(cell))
            shown = apply_style(cell, style) if styled else cell
            cells.append(f"{padding}{shown}" if column.align_right else f"{shown}{padding}")
            if left == 0:
                break
        click.echo(_GAP.join(cells).rstrip(), color=styled or None)


# ---- JSON


def print_json(value: Any, *, indent: bool = True) -> None:
    """Print a value as JSON in ASCII: indented, or as one line."""
    import json

    click.echo(json.dumps(value, indent=2 if indent else None))


def json_option(text: str = "Print JSON.") -> Callable[[_Command], _Command]:
    """Return the option --json of a command, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


# ---- progress


@contextmanager
def show_progress(text: str) -> Iterator[None]:
    """Show a spinner with a text while the context is open, on stderr if that is a terminal."""
    if not is_interactive(err=True):
        yield
        return
    with open_console().status(escape_controls(text), spinner="dots", spinner_style="accent"):
        yield


def open_console() -> "Console":
    """Return a rich console on stderr that knows the styles of this module."""
    from rich.console import Console
    from rich.theme import Theme

    styles = {name: f"color({color})" for name, (color, _) in _COLORS.items()} | {"strong": "bold"}
    styles["thinking"] = f"{styles['muted']} italic"
    if not is_styled(err=True):
        styles = dict.fromkeys(styles, "none")
    return Console(stderr=True, highlight=False, markup=False, emoji=False, theme=Theme(styles))
