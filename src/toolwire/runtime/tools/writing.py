"""`write_file` and `replace`, and how a change is shown."""

import asyncio
import difflib

from toolwire.runtime.toolset import Annotations, Arguments, Calling, Tool, ToolFault

from .reading import named, plainly
from .schema import a_count, a_string, an_object
from .workspace import Workspace

MOST_WRITTEN = 16 * 1024 * 1024
MOST_PREVIEWED = 20_000
MOST_COMPARED = 1024 * 1024
"""Larger files are not compared line by line: it takes too long."""
WRITES = Annotations(destructive=True)


def writing_tools(workspace: Workspace) -> list[Tool]:
    return [_write_file(workspace), _replace(workspace)]


def _write_file(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await asyncio.to_thread(_written, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        path = arguments["file_path"]
        try:
            before = workspace.read(path, MOST_WRITTEN) if workspace.exists(path) else b""
            return difference(path, before, encoded(arguments["content"]))
        except ToolFault as fault:
            return str(fault)

    return Tool(
        name="write_file",
        run=run,
        description=f"Writes a file of the workspace ({workspace.root}), in place of what it held; folders are made.",
        parameters=an_object(
            ("file_path", "content"),
            file_path=a_string("The absolute path of the file."),
            content=a_string("All that the file is to hold."),
        ),
        annotations=Annotations(destructive=True, idempotent=True),
        source="built-in",
        stoppable=False,
        retries=0,
        touches=lambda arguments: named(workspace, arguments, "file_path"),
        amounts_to=lambda arguments: plainly(workspace, arguments, "file_path"),
        preview=preview,
    )


def _written(workspace: Workspace, file_path: str, content: str) -> str:
    written = encoded(content)
    if len(written) > MOST_WRITTEN:
        raise ToolFault(f"{len(written)} bytes are more than the {MOST_WRITTEN} that can be written", "too_large")
    workspace.write(file_path, written)
    return f"Wrote {len(written)} bytes to {file_path}"


def encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFault(f"the text is not valid Unicode at character {error.start}", "text") from error


def _replace(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await asyncio.to_thread(_replaced, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        try:
            before, after, _ = _replacement(workspace, **arguments)
        except ToolFault as fault:
            return str(fault)
        return difference(arguments["file_path"], before or b"", after)

    return Tool(
        name="replace",
        run=run,
        description=f"Replaces a text in a file of the workspace ({workspace.root}). It must be there exactly as often"
        " as expected: give enough lines around it. An empty old_string makes a new file.",
        parameters=an_object(
            ("file_path", "old_string", "new_string"),
            file_path=a_string("The absolute path of the file."),
            old_string=a_string("The text as the file has it, with its spaces and line ends."),
            new_string=a_string("The text in its place."),
            expected_replacements=a_count("How often it is there. Absent: once.", 1),
        ),
        annotations=WRITES,
        source="built-in",
        stoppable=False,
        retries=0,
        touches=lambda arguments: named(workspace, arguments, "file_path"),
        amounts_to=lambda arguments: plainly(workspace, arguments, "file_path"),
        preview=preview,
    )


def _replaced(workspace: Workspace, **arguments: Arguments) -> str:
    before, after, count = _replacement(workspace, **arguments)
    path = arguments["file_path"]
    workspace.write(path, after)
    if before is None:
        return f"Wrote {len(after)} bytes to {path}"
    return f"Updated {path}: {count} replacement{'' if count == 1 else 's'}"


def _replacement(
    workspace: Workspace, file_path: str, old_string: str, new_string: str, expected_replacements: int = 1
) -> tuple[bytes | None, bytes, int]:
    """What the file holds, what it will hold, and in how many places that differs. Bytes that are no text stay."""
    old, new = encoded(old_string), encoded(new_string)
    if not old:
        if workspace.exists(file_path):
            raise ToolFault(f"old_string is empty, and {file_path} is there already", "exists")
        return None, new, 0
    if old == new:
        raise ToolFault("old_string and new_string are the same", "no_change")
    before = workspace.read(file_path, MOST_WRITTEN)
    count = before.count(old)
    if not count and b"\r\n" in before and b"\r" not in old:
        # A model writes line ends as \n, whatever the file has.
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = before.count(old)
    if not count:
        raise ToolFault(f"old_string is not in {file_path}: read the file, and give the text exactly", "not_found")
    if count != expected_replacements:
        raise ToolFault(
            f"old_string is {count} times in {file_path}, but {expected_replacements} was expected: give more lines"
            " around it, or expected_replacements",
            "ambiguous",
        )
    return before, before.replace(old, new), count


def difference(path: str, before: bytes, after: bytes, *, to: str | None = None) -> str:
    """A unified diff, for a person."""
    if max(len(before), len(after)) > MOST_COMPARED or b"\0" in before or b"\0" in after:
        return f"{path}: {len(before)} bytes, then {len(after)}; not shown\n"
    lines = difflib.unified_diff(
        before.decode("utf-8", "replace").splitlines(keepends=True),
        after.decode("utf-8", "replace").splitlines(keepends=True),
        path if before else "/dev/null",
        to or path,
    )
    told, length = list[str](), 0
    for line in lines:
        told.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        length += len(line)
        if length > MOST_PREVIEWED:
            told.append("[The rest of the difference is not shown.]\n")
            break
    return _visible("".join(told))


def _visible(text: str) -> str:
    """A terminal is not to act on what is shown: what it would take as a command is spelled out."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\x{ord(one):02x}" for one in text)
