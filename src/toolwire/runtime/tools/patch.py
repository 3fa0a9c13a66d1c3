"""The patch format that Codex declares as a grammar: read, and applied to the text of a file.

A patch names its places by the lines around them, not by numbers, so finding a place is a search: for the lines
exactly, then without regard to spaces at their ends, then at both, then to typographic characters. Lines that are kept
are the file's own, however they were found.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from toolwire.runtime.toolset import ToolFault

GRAMMAR = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""


class Change(Struct):
    """One place of a file. `lines` are as written, each with its sign; `after` is what stands before the place."""

    after: str | None
    lines: list[str]
    at_end: bool = False


class Add(Struct):
    path: str
    content: str


class Delete(Struct):
    path: str


class Update(Struct):
    path: str
    to: str | None
    changes: list[Change]


Hunk = Add | Delete | Update

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE = "*** Move to: "


def parse(text: str) -> list[Hunk]:
    if text.startswith(f"{_BEGIN}\r\n"):
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    while lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != _BEGIN:
        raise _unreadable(1, f"the first line must be {_BEGIN!r}")
    if len(lines) < 2 or lines[-1] != _END:
        raise _unreadable(len(lines), f"the last line must be {_END!r}")
    return _Reader(lines).hunks()


def _unreadable(line: int, why: str) -> ToolFault:
    return ToolFault(f"line {line} of the patch can't be read: {why}", "patch")


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 1

    def hunks(self) -> list[Hunk]:
        found = list[Hunk]()
        while self._at < len(self._lines) - 1:
            header = _HEADER.fullmatch(self._lines[self._at])
            if header is None:
                raise _unreadable(
                    self._at + 1, "'*** Add File: ', '*** Delete File: ' or '*** Update File: ' is wanted"
                )
            self._at += 1
            match header[1]:
                case "Add":
                    found.append(Add(header[2], self._added()))
                case "Delete":
                    found.append(Delete(header[2]))
                case _:
                    found.append(self._update(header[2]))
        if not found:
            raise _unreadable(2, "it names no file")
        return found

    def _next(self) -> str | None:
        """The line here, unless a file or the patch ends before it."""
        if self._at >= len(self._lines) - 1 or _HEADER.fullmatch(self._lines[self._at]):
            return None
        return self._lines[self._at]

    def _added(self) -> str:
        found = list[str]()
        while (line := self._next()) is not None:
            if not line.startswith("+"):
                raise _unreadable(self._at + 1, "every line of a new file starts with +")
            found.append(line[1:])
            self._at += 1
        if not found:
            raise _unreadable(self._at + 1, "a new file has at least one line, which starts with +")
        return "".join(f"{line}\n" for line in found)

    def _update(self, path: str) -> Update:
        made = Update(path, None, [])
        line = self._next()
        if line is not None and line.startswith(_MOVE) and line != _MOVE:
            made.to = line.removeprefix(_MOVE)
            self._at += 1
        while (line := self._next()) is not None:
            self._change(made, line)
            self._at += 1
        if made.to is None and not any(change.lines for change in made.changes):
            raise _unreadable(self._at, f"nothing is changed in {path}")
        return made

    def _change(self, made: Update, line: str) -> None:
        ended = bool(made.changes) and made.changes[-1].at_end
        if line == "@@" or line.startswith("@@ "):
            made.changes.append(Change(line[3:] or None, []))
        elif ended:
            raise _unreadable(self._at + 1, "nothing comes after the end of the file")
        elif line == _END_OF_FILE and made.changes:
            made.changes[-1].at_end = True
        elif line[:1] in ("+", "-", " ", ""):
            if not made.changes:
                made.changes.append(Change(None, []))
            # An empty line is one whose leading space was lost.
            made.changes[-1].lines.append(line or " ")
        else:
            raise _unreadable(self._at + 1, "it starts with none of +, -, a space and @@")


_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)
_READINGS: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    str.rstrip,
    str.strip,
    lambda line: line.strip().translate(_TYPOGRAPHIC),
)


def apply(update: Update, text: str) -> str:
    """The text after the changes; each is looked for below the one before it."""
    newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    whole = text.split("\n")
    endings = ["\r\n" if line.endswith("\r") else "\n" for line in whole]
    lines = [line.removesuffix("\r") for line in whole]
    if lines[-1] == "":
        lines.pop()
        endings.pop()
    else:
        endings[-1] = ""
    sought = _Sought(lines)
    made, done = list[str](), 0
    for change in update.changes:
        start = _place(change, sought, done, update.path)
        made += [line + end for line, end in zip(lines[done:start], endings[done:start], strict=True)]
        done = start
        for line in change.lines:
            if line[0] == "+":
                made.append(line[1:] + newline)
                continue
            if line[0] == " ":
                made.append(lines[done] + endings[done])
            done += 1
    made += [line + end for line, end in zip(lines[done:], endings[done:], strict=True)]
    # Only the last line of a file may lack its end.
    return "".join(one if one.endswith("\n") else one + newline for one in made[:-1]) + "".join(made[-1:])


class _Sought:
    """The lines of a file, each way of reading them made once."""

    def __init__(self, lines: list[str]) -> None:
        self.count = len(lines)
        self._lines = lines
        self._read = dict[int, list[str]]()

    def find(self, wanted: Sequence[str], start: int) -> int | None:
        last = self.count - len(wanted)
        for number, reading in enumerate(_READINGS):
            sought = [reading(line) for line in wanted]
            if number not in self._read:
                self._read[number] = [reading(line) for line in self._lines]
            given = self._read[number]
            place = start
            while place <= last:
                try:
                    place = given.index(sought[0], place, last + 1)
                except ValueError:
                    break
                if given[place : place + len(sought)] == sought:
                    return place
                place += 1
        return None


def _place(change: Change, lines: _Sought, done: int, path: str) -> int:
    if change.after is not None:
        found = lines.find([change.after], done)
        if found is None:
            raise ToolFault(f"{path} has no line {change.after!r} below the changes before it", "not_found")
        done = found + 1
    wanted = [line[1:] for line in change.lines if line[0] != "+"]
    if not wanted:
        return lines.count if change.after is None or change.at_end else done
    found = lines.find(wanted, max(done, lines.count - len(wanted)) if change.at_end else done)
    if found is None:
        where = " at its end" if change.at_end else ""
        shown = "\n".join(wanted[:10])
        raise ToolFault(f"{path} has no such lines{where}; read the file, and give them exactly:\n{shown}", "not_found")
    return found
