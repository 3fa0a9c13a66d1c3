"""The `apply_patch` tool, in the patch format that Codex declares as a grammar.

A patch locates its changes by the surrounding lines, not by line numbers. Lines are matched exactly, then without
trailing spaces, then without surrounding spaces, then with typographic characters replaced. Context lines keep the
file's own spelling. A patch is applied completely or not at all.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from toolwire.canonical.tools import Grammar
from toolwire.runtime.native_forms import PATCH_FORMS
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
    """One change within a file."""

    # A line above the change, given after `@@`.
    anchor: str | None
    # The lines as written, each with its sign: `+`, `-` or a space.
    lines: list[str]
    at_end: bool = False


class AddFile(Struct):
    """Creates a file."""

    path: str
    content: str


class DeleteFile(Struct):
    """Deletes a file."""

    path: str


class UpdateFile(Struct):
    """Changes a file, and optionally moves it."""

    path: str
    move_to: str | None
    changes: list[PatchChange]


Hunk = AddFile | DeleteFile | UpdateFile

_BEGIN_PATCH, _END_PATCH, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_FILE_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE_TO = "*** Move to: "


def parse_patch(text: str) -> list[Hunk]:
    """Parse a patch into the files that it adds, deletes and updates."""
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
    """Return the error for a line of the patch."""
    return ToolError(f"line {line} of the patch is invalid: {reason}", "patch")


class _PatchParser:
    """Parses the lines between the first and the last line of a patch."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._position = 1

    def parse_hunks(self) -> list[Hunk]:
        """Parse all files of the patch."""
        hunks = list[Hunk]()
        while self._position < len(self._lines) - 1:
            header = _FILE_HEADER.fullmatch(self._lines[self._position])
            if header is None:
                raise _syntax_error(
                    self._position + 1, "expected '*** Add File: ', '*** Delete File: ' or '*** Update File: '"
                )
            self._position += 1
            match header[1]:
                case "Add":
                    hunks.append(AddFile(header[2], self._parse_added_lines()))
                case "Delete":
                    hunks.append(DeleteFile(header[2]))
                case _:
                    hunks.append(self._parse_update(header[2]))
        if not hunks:
            raise _syntax_error(2, "the patch names no file")
        return hunks

    def _peek_line(self) -> str | None:
        """Return the current line; None at the next file or at the end of the patch."""
        if self._position >= len(self._lines) - 1 or _FILE_HEADER.fullmatch(self._lines[self._position]):
            return None
        return self._lines[self._position]

    def _parse_added_lines(self) -> str:
        """Consume the `+` lines of a new file, and return its content."""
        lines = list[str]()
        while (line := self._peek_line()) is not None:
            if not line.startswith("+"):
                raise _syntax_error(self._position + 1, "every line of a new file must start with +")
            lines.append(line[1:])
            self._position += 1
        if not lines:
            raise _syntax_error(self._position + 1, "a new file needs at least one line, starting with +")
        return "".join(f"{line}\n" for line in lines)

    def _parse_update(self, path: str) -> UpdateFile:
        """Parse the changes of one file."""
        update = UpdateFile(path, None, [])
        line = self._peek_line()
        if line is not None and line.startswith(_MOVE_TO) and line != _MOVE_TO:
            update.move_to = line.removeprefix(_MOVE_TO)
            self._position += 1
        while (line := self._peek_line()) is not None:
            self._parse_change_line(update, line)
            self._position += 1
        if update.move_to is None and not any(change.lines for change in update.changes):
            raise _syntax_error(self._position, f"{path} has no changes")
        return update

    def _parse_change_line(self, update: UpdateFile, line: str) -> None:
        """Add a line to the changes of a file."""
        at_end = bool(update.changes) and update.changes[-1].at_end
        if line == "@@" or line.startswith("@@ "):
            update.changes.append(PatchChange(line[3:] or None, []))
        elif at_end:
            raise _syntax_error(self._position + 1, "nothing may follow the end of the file")
        elif line == _END_OF_FILE and update.changes:
            update.changes[-1].at_end = True
        elif line[:1] in ("+", "-", " ", ""):
            if not update.changes:
                update.changes.append(PatchChange(None, []))
            # Models often drop the leading space of an empty context line.
            update.changes[-1].lines.append(line or " ")
        else:
            raise _syntax_error(self._position + 1, "expected a line starting with +, -, a space or @@")


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
    """Return the text with the changes applied. Each change is searched for below the previous one."""
    newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    raw_lines = text.split("\n")
    endings = ["\r\n" if line.endswith("\r") else "\n" for line in raw_lines]
    lines = [line.removesuffix("\r") for line in raw_lines]
    if lines[-1] == "":
        lines.pop()
        endings.pop()
    else:
        endings[-1] = ""
    index = _LineIndex(lines)
    result, position = list[str](), 0
    for change in update.changes:
        start = _locate_change(change, index, position, update.path)
        result += [line + end for line, end in zip(lines[position:start], endings[position:start], strict=True)]
        position = start
        for line in change.lines:
            if line[0] == "+":
                result.append(line[1:] + newline)
                continue
            if line[0] == " ":
                result.append(lines[position] + endings[position])
            position += 1
    result += [line + end for line, end in zip(lines[position:], endings[position:], strict=True)]
    # Only the last line of a file may lack a line ending.
    return "".join(line if line.endswith("\n") else line + newline for line in result[:-1]) + "".join(result[-1:])


class _LineIndex:
    """The lines of a file, with each normalization computed once."""

    def __init__(self, lines: list[str]) -> None:
        self.count = len(lines)
        self._lines = lines
        self._normalized = dict[int, list[str]]()

    def find(self, target: Sequence[str], start: int) -> int | None:
        """Return the index of the target lines at or after `start`; None if they do not occur.

        Of the ways to normalize whitespace and punctuation, the strictest that matches is used.
        """
        last = self.count - len(target)
        for number, normalize in enumerate(_LINE_NORMALIZERS):
            wanted = [normalize(line) for line in target]
            if number not in self._normalized:
                self._normalized[number] = [normalize(line) for line in self._lines]
            lines = self._normalized[number]
            position = start
            while position <= last:
                try:
                    position = lines.index(wanted[0], position, last + 1)
                except ValueError:
                    break
                if lines[position : position + len(wanted)] == wanted:
                    return position
                position += 1
        return None


def _locate_change(change: PatchChange, index: _LineIndex, start: int, path: str) -> int:
    """Return the index of the line where a change begins; raise `ToolError` if its lines are not found."""
    if change.anchor is not None:
        position = index.find([change.anchor], start)
        if position is None:
            raise ToolError(f"{path} has no line {change.anchor!r} below the previous change", "not_found")
        start = position + 1
    old_lines = [line[1:] for line in change.lines if line[0] != "+"]
    if not old_lines:
        return index.count if change.anchor is None or change.at_end else start
    position = index.find(old_lines, max(start, index.count - len(old_lines)) if change.at_end else start)
    if position is None:
        location = " at its end" if change.at_end else ""
        excerpt = "\n".join(old_lines[:10])
        raise ToolError(
            f"{path} does not contain these lines{location}; read the file and copy them exactly:\n{excerpt}",
            "not_found",
        )
    return position


def apply_patch_tools(workspace: Workspace) -> list[Tool]:
    """Return the `apply_patch` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Apply the patch in a thread, and return the summary for the model."""
        return await asyncio.to_thread(_apply_patch, workspace, arguments)

    def resources(arguments: Arguments) -> frozenset[str] | None:
        """Return the files that the patch touches, so that calls on the same file are serialized."""
        try:
            return frozenset(map(workspace.resolve_path, _patched_paths(parse_patch(arguments))))
        except ToolError:
            return frozenset()

    def subcalls(arguments: Arguments) -> Sequence[Arguments] | None:
        """Return a call for each file that the patch touches, for the policy; None if the patch is invalid."""
        try:
            return [{"file_path": workspace.resolve_path(path)} for path in _patched_paths(parse_patch(arguments))]
        except ToolError:
            return None

    def preview(arguments: Arguments) -> str | None:
        """Return the diff to show the user, or the error of an invalid patch."""
        try:
            return _preview_plan(_plan_patch(workspace, parse_patch(arguments)))
        except ToolError as error:
            return str(error)

    tool = Tool(
        name="apply_patch",
        run=run,
        description=f"Edits files of the workspace ({workspace.root}) with a patch, completely or not at all. This is a"
        " FREEFORM tool, so do not wrap the patch in JSON.",
        grammar=Grammar(syntax="lark", definition=PATCH_GRAMMAR),
        validates_input=True,
        annotations=Annotations(destructive=True),
        source="built-in",
        stoppable=False,
        retries=0,
        resources=resources,
        subcalls=subcalls,
        subcall_arguments=("file_path",),
        preview=preview,
        native_forms=PATCH_FORMS,
    )
    return [tool]


def _patched_paths(hunks: Sequence[Hunk]) -> list[str]:
    """Return the paths that a patch touches."""
    paths = dict[str, None]()
    for hunk in hunks:
        paths[hunk.path] = None
        if isinstance(hunk, UpdateFile) and hunk.move_to is not None:
            paths[hunk.move_to] = None
    return list(paths)


class _PatchPlan(Struct):
    """The content of each file before and after the patch; None if the file does not exist."""

    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    # One line per hunk.
    summary: list[str]


class _Overlay:
    """The workspace as the hunks so far leave it. Different spellings of a path are one file."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._paths = dict[str, str]()
        self.before = dict[str, bytes | None]()
        self.after = dict[str, bytes | None]()

    def canonical_path(self, path: str) -> str:
        """Return the spelling by which the file was first named."""
        return self._paths.setdefault(self._workspace.resolve_path(path), path)

    def read(self, path: str) -> bytes | None:
        """Return the current content of a file; None if it does not exist."""
        name = self.canonical_path(path)
        if name not in self.after:
            exists = self._workspace.exists(name)
            self.before[name] = self.after[name] = self._workspace.read(name, MAX_FILE_BYTES) if exists else None
        return self.after[name]

    def write(self, path: str, content: bytes | None) -> None:
        """Set the content of a file; None deletes it."""
        if content is not None and len(content) > MAX_FILE_BYTES:
            raise ToolError(f"{path} would have {len(content)} bytes; the limit is {MAX_FILE_BYTES}", "too_large")
        self.read(path)
        self.after[self.canonical_path(path)] = content


def _plan_patch(workspace: Workspace, hunks: Sequence[Hunk]) -> _PatchPlan:
    """Apply the hunks to an overlay, and return the resulting plan."""
    files, summary = _Overlay(workspace), list[str]()
    for hunk in hunks:
        content = files.read(hunk.path)
        if isinstance(hunk, AddFile):
            if content is not None:
                raise ToolError(f"{hunk.path} already exists: update it instead", "exists")
            files.write(hunk.path, encode_text(hunk.content))
            summary.append(f"A {hunk.path}")
            continue
        if content is None:
            raise ToolError(f"file not found: {hunk.path}", "not_found")
        if isinstance(hunk, DeleteFile):
            files.write(hunk.path, None)
            summary.append(f"D {hunk.path}")
        else:
            summary.append(_plan_update(files, hunk, content))
    return _PatchPlan(files.before, files.after, summary)


def _plan_update(files: _Overlay, hunk: UpdateFile, original: bytes) -> str:
    """Apply an update to the overlay, and return the line that reports it in the summary."""
    # Bytes that are not UTF-8 are preserved.
    changed = apply_update(hunk, original.decode("utf-8", "surrogateescape"))
    try:
        content = changed.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolError(f"the new content of {hunk.path} is not valid Unicode", "text") from error
    if hunk.move_to is None or files.canonical_path(hunk.move_to) == files.canonical_path(hunk.path):
        files.write(hunk.path, content)
        return f"M {hunk.path}"
    if files.read(hunk.move_to) is not None:
        raise ToolError(f"can't move {hunk.path}: {hunk.move_to} already exists", "exists")
    files.write(hunk.path, None)
    files.write(hunk.move_to, content)
    return f"M {hunk.move_to}"


def _apply_patch(workspace: Workspace, text: str) -> str:
    """Apply a patch and return a summary of the changed files; roll back if a file can't be written."""
    plan = _plan_patch(workspace, parse_patch(text))
    done, folders = list[str](), list[str]()
    try:
        # Write before deleting, so that a moved file always exists.
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
    """Write or remove one file, if it changes."""
    if before == after:
        return
    if after is None:
        workspace.remove(path)
    else:
        workspace.write(path, after)


def _preview_plan(plan: _PatchPlan) -> str:
    """Return the unified diff of all files that the plan changes."""

    def file_diff(path: str, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> str:
        """Return the unified diff of one file."""
        deleted = after[path] is None
        return unified_diff(path, before[path] or b"", after[path] or b"", to_path="/dev/null" if deleted else None)

    return "".join(file_diff(path, plan.before, plan.after) for path in plan.after)
