"""The patch format that Codex declares as a grammar: read, and applied to the text of a file.

A patch names its places by the lines around them, not by numbers, so finding a place is a search: for the lines
exactly, then without regard to spaces at their ends, then at both, then to typographic characters. Lines that are kept
are the file's own, however they were found.

`apply_patch`: files added, changed, moved and deleted by one patch, all of it or nothing.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from toolwire.canonical.tools import Grammar
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.workspace import Workspace
from toolwire.runtime.tools.write_file import MAX_FILE_BYTES, encode_text, unified_diff

PATCH_GRAMMAR = r"""start: begin_patch hunk+ end_patch
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


class PatchChange(Struct):
    """One place of a file. `lines` are as written, each with its sign; `after` is what stands before the place."""

    anchor: str | None
    lines: list[str]
    at_end: bool = False


class AddFile(Struct):
    path: str
    content: str


class DeleteFile(Struct):
    path: str


class UpdateFile(Struct):
    path: str
    move_to: str | None
    changes: list[PatchChange]


Hunk = AddFile | DeleteFile | UpdateFile

_BEGIN_PATCH, _END_PATCH, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_FILE_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE_TO = "*** Move to: "


def parse_patch(text: str) -> list[Hunk]:
    if text.startswith(f"{_BEGIN_PATCH}\r\n"):
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    while lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != _BEGIN_PATCH:
        raise _syntax_error(1, f"the first line must be {_BEGIN_PATCH!r}")
    if len(lines) < 2 or lines[-1] != _END_PATCH:
        raise _syntax_error(len(lines), f"the last line must be {_END_PATCH!r}")
    return _PatchParser(lines).parse_hunks()


def _syntax_error(line: int, reason: str) -> ToolError:
    return ToolError(f"line {line} of the patch can't be read: {reason}", "patch")


class _PatchParser:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._position = 1

    def parse_hunks(self) -> list[Hunk]:
        found = list[Hunk]()
        while self._position < len(self._lines) - 1:
            header = _FILE_HEADER.fullmatch(self._lines[self._position])
            if header is None:
                raise _syntax_error(
                    self._position + 1, "'*** Add File: ', '*** Delete File: ' or '*** Update File: ' is wanted"
                )
            self._position += 1
            match header[1]:
                case "Add":
                    found.append(AddFile(header[2], self._parse_added_lines()))
                case "Delete":
                    found.append(DeleteFile(header[2]))
                case _:
                    found.append(self._parse_update(header[2]))
        if not found:
            raise _syntax_error(2, "it names no file")
        return found

    def _peek_line(self) -> str | None:
        """The line here, unless a file or the patch ends before it."""
        if self._position >= len(self._lines) - 1 or _FILE_HEADER.fullmatch(self._lines[self._position]):
            return None
        return self._lines[self._position]

    def _parse_added_lines(self) -> str:
        found = list[str]()
        while (line := self._peek_line()) is not None:
            if not line.startswith("+"):
                raise _syntax_error(self._position + 1, "every line of a new file starts with +")
            found.append(line[1:])
            self._position += 1
        if not found:
            raise _syntax_error(self._position + 1, "a new file has at least one line, which starts with +")
        return "".join(f"{line}\n" for line in found)

    def _parse_update(self, path: str) -> UpdateFile:
        made = UpdateFile(path, None, [])
        line = self._peek_line()
        if line is not None and line.startswith(_MOVE_TO) and line != _MOVE_TO:
            made.move_to = line.removeprefix(_MOVE_TO)
            self._position += 1
        while (line := self._peek_line()) is not None:
            self._parse_change_line(made, line)
            self._position += 1
        if made.move_to is None and not any(change.lines for change in made.changes):
            raise _syntax_error(self._position, f"nothing is changed in {path}")
        return made

    def _parse_change_line(self, update: UpdateFile, line: str) -> None:
        ended = bool(update.changes) and update.changes[-1].at_end
        if line == "@@" or line.startswith("@@ "):
            update.changes.append(PatchChange(line[3:] or None, []))
        elif ended:
            raise _syntax_error(self._position + 1, "nothing comes after the end of the file")
        elif line == _END_OF_FILE and update.changes:
            update.changes[-1].at_end = True
        elif line[:1] in ("+", "-", " ", ""):
            if not update.changes:
                update.changes.append(PatchChange(None, []))
            # An empty line is one whose leading space was lost.
            update.changes[-1].lines.append(line or " ")
        else:
            raise _syntax_error(self._position + 1, "it starts with none of +, -, a space and @@")


_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)
_LINE_NORMALIZERS: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    str.rstrip,
    str.strip,
    lambda line: line.strip().translate(_TYPOGRAPHIC),
)


def apply_update(update: UpdateFile, text: str) -> str:
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
    sought = _LineIndex(lines)
    made, done = list[str](), 0
    for change in update.changes:
        start = _locate_change(change, sought, done, update.path)
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


class _LineIndex:
    """The lines of a file, each way of reading them made once."""

    def __init__(self, lines: list[str]) -> None:
        self.count = len(lines)
        self._lines = lines
        self._normalized = dict[int, list[str]]()

    def find(self, target: Sequence[str], start: int) -> int | None:
        last = self.count - len(target)
        for number, reading in enumerate(_LINE_NORMALIZERS):
            sought = [reading(line) for line in target]
            if number not in self._normalized:
                self._normalized[number] = [reading(line) for line in self._lines]
            given = self._normalized[number]
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


def _locate_change(change: PatchChange, index: _LineIndex, start: int, path: str) -> int:
    if change.anchor is not None:
        found = index.find([change.anchor], start)
        if found is None:
            raise ToolError(f"{path} has no line {change.anchor!r} below the changes before it", "not_found")
        start = found + 1
    wanted = [line[1:] for line in change.lines if line[0] != "+"]
    if not wanted:
        return index.count if change.anchor is None or change.at_end else start
    found = index.find(wanted, max(start, index.count - len(wanted)) if change.at_end else start)
    if found is None:
        where = " at its end" if change.at_end else ""
        shown = "\n".join(wanted[:10])
        raise ToolError(f"{path} has no such lines{where}; read the file, and give them exactly:\n{shown}", "not_found")
    return found


def apply_patch_tools(workspace: Workspace) -> list[Tool]:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await asyncio.to_thread(_apply_patch, workspace, arguments)

    def touches(arguments: Arguments) -> frozenset[str] | None:
        try:
            return frozenset(map(workspace.resolve_path, _patched_paths(parse_patch(arguments))))
        except ToolError:
            return frozenset()

    def amounts_to(arguments: Arguments) -> Sequence[Arguments] | None:
        try:
            return [{"file_path": workspace.resolve_path(path)} for path in _patched_paths(parse_patch(arguments))]
        except ToolError:
            return None

    def preview(arguments: Arguments) -> str | None:
        try:
            return _preview_plan(_plan_patch(workspace, parse_patch(arguments)))
        except ToolError as fault:
            return str(fault)

    tool = Tool(
        name="apply_patch",
        run=run,
        description=f"Edits files of the workspace ({workspace.root}) by a patch, all of it or nothing. This is a"
        " FREEFORM tool, so do not wrap the patch in JSON.",
        grammar=Grammar(syntax="lark", definition=PATCH_GRAMMAR),
        annotations=Annotations(destructive=True),
        source="built-in",
        stoppable=False,
        retries=0,
        resources=touches,
        subcalls=amounts_to,
        preview=preview,
    )
    return [tool]


def _patched_paths(hunks: Sequence[Hunk]) -> list[str]:
    found = dict[str, None]()
    for hunk in hunks:
        found[hunk.path] = None
        if isinstance(hunk, UpdateFile) and hunk.move_to is not None:
            found[hunk.move_to] = None
    return list(found)


class _PatchPlan(Struct):
    """What each file holds before and after; None is nothing. `told` is one line for each hunk."""

    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    summary: list[str]


class _Overlay:
    """The workspace as the hunks so far would leave it. A file is one, whichever way its path is spelled."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._paths = dict[str, str]()
        self.before = dict[str, bytes | None]()
        self.after = dict[str, bytes | None]()

    def canonical_path(self, path: str) -> str:
        """The spelling that a file was first named by."""
        return self._paths.setdefault(self._workspace.resolve_path(path), path)

    def read(self, path: str) -> bytes | None:
        name = self.canonical_path(path)
        if name not in self.after:
            there = self._workspace.exists(name)
            self.before[name] = self.after[name] = self._workspace.read(name, MAX_FILE_BYTES) if there else None
        return self.after[name]

    def write(self, path: str, content: bytes | None) -> None:
        if content is not None and len(content) > MAX_FILE_BYTES:
            raise ToolError(f"{path} would have {len(content)} bytes; the most is {MAX_FILE_BYTES}", "too_large")
        self.read(path)
        self.after[self.canonical_path(path)] = content


def _plan_patch(workspace: Workspace, hunks: Sequence[Hunk]) -> _PatchPlan:
    files, told = _Overlay(workspace), list[str]()
    for hunk in hunks:
        there = files.read(hunk.path)
        if isinstance(hunk, AddFile):
            if there is not None:
                raise ToolError(f"{hunk.path} is there already: update it", "exists")
            files.write(hunk.path, encode_text(hunk.content))
            told.append(f"A {hunk.path}")
            continue
        if there is None:
            raise ToolError(f"{hunk.path} is not there", "not_found")
        if isinstance(hunk, DeleteFile):
            files.write(hunk.path, None)
            told.append(f"D {hunk.path}")
        else:
            told.append(_plan_update(files, hunk, there))
    return _PatchPlan(files.before, files.after, told)


def _plan_update(files: _Overlay, hunk: UpdateFile, original: bytes) -> str:
    # Bytes that are no text come through as they are.
    changed = apply_update(hunk, original.decode("utf-8", "surrogateescape"))
    try:
        content = changed.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolError(f"what {hunk.path} would hold is not valid Unicode", "text") from error
    if hunk.move_to is None or files.canonical_path(hunk.move_to) == files.canonical_path(hunk.path):
        files.write(hunk.path, content)
        return f"M {hunk.path}"
    if files.read(hunk.move_to) is not None:
        raise ToolError(f"{hunk.move_to} is there already: {hunk.path} can't be moved onto it", "exists")
    files.write(hunk.path, None)
    files.write(hunk.move_to, content)
    return f"M {hunk.move_to}"


def _apply_patch(workspace: Workspace, text: str) -> str:
    plan = _plan_patch(workspace, parse_patch(text))
    done, folders = list[str](), list[str]()
    try:
        # What is new first, so that what is moved is never nowhere.
        for path in sorted(plan.after, key=lambda path: plan.after[path] is None):
            folders += workspace.missing_directories(path)
            _write_change(workspace, path, plan.before[path], plan.after[path])
            done.append(path)
    except ToolError:
        for path in reversed(done):
            _write_change(workspace, path, plan.after[path], plan.before[path])
        for folder in sorted(folders, reverse=True):
            workspace.remove_directory(folder)
        raise
    return "\n".join(["Success. Updated the following files:", *plan.summary])


def _write_change(workspace: Workspace, path: str, before: bytes | None, after: bytes | None) -> None:
    if before == after:
        return
    if after is None:
        workspace.remove(path)
    else:
        workspace.write(path, after)


def _preview_plan(plan: _PatchPlan) -> str:
    def one(path: str, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> str:
        gone = after[path] is None
        return unified_diff(path, before[path] or b"", after[path] or b"", to_path="/dev/null" if gone else None)

    return "".join(one(path, plan.before, plan.after) for path in plan.after)
