"""`write_file` and `replace`, and how a change is shown."""

import asyncio
import difflib

from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.read_file import path_resources, resolved_call
from toolwire.runtime.tools.schema import integer_schema, object_schema, string_schema
from toolwire.runtime.tools.workspace import Workspace

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_PREVIEW_CHARACTERS = 20_000
MAX_DIFF_BYTES = 1024 * 1024
"""Larger files are not compared line by line: it takes too long."""
DESTRUCTIVE_ANNOTATIONS = Annotations(destructive=True)


def write_file_tools(workspace: Workspace) -> list[Tool]:
    return [_write_file_tool(workspace), _replace_tool(workspace)]


def _write_file_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await asyncio.to_thread(_write_content, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        path = arguments["file_path"]
        try:
            before = workspace.read(path, MAX_FILE_BYTES) if workspace.exists(path) else b""
            return unified_diff(path, before, encode_text(arguments["content"]))
        except ToolError as fault:
            return str(fault)

    return Tool(
        name="write_file",
        run=run,
        description=f"Writes a file of the workspace ({workspace.root}), in place of what it held; folders are made.",
        parameters=object_schema(
            ("file_path", "content"),
            file_path=string_schema("The absolute path of the file."),
            content=string_schema("All that the file is to hold."),
        ),
        annotations=Annotations(destructive=True, idempotent=True),
        source="built-in",
        stoppable=False,
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "file_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "file_path"),
        preview=preview,
    )


def _write_content(workspace: Workspace, file_path: str, content: str) -> str:
    written = encode_text(content)
    if len(written) > MAX_FILE_BYTES:
        raise ToolError(f"{len(written)} bytes are more than the {MAX_FILE_BYTES} that can be written", "too_large")
    workspace.write(file_path, written)
    return f"Wrote {len(written)} bytes to {file_path}"


def encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text is not valid Unicode at character {error.start}", "text") from error


def _replace_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await asyncio.to_thread(_replace_text, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        try:
            before, after, _ = _plan_replacement(workspace, **arguments)
        except ToolError as fault:
            return str(fault)
        return unified_diff(arguments["file_path"], before or b"", after)

    return Tool(
        name="replace",
        run=run,
        description=f"Replaces a text in a file of the workspace ({workspace.root}). It must be there exactly as often"
        " as expected: give enough lines around it. An empty old_string makes a new file.",
        parameters=object_schema(
            ("file_path", "old_string", "new_string"),
            file_path=string_schema("The absolute path of the file."),
            old_string=string_schema("The text as the file has it, with its spaces and line ends."),
            new_string=string_schema("The text in its place."),
            expected_replacements=integer_schema("How often it is there. Absent: once.", 1),
        ),
        annotations=DESTRUCTIVE_ANNOTATIONS,
        source="built-in",
        stoppable=False,
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "file_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "file_path"),
        preview=preview,
    )


def _replace_text(workspace: Workspace, **arguments: Arguments) -> str:
    before, after, count = _plan_replacement(workspace, **arguments)
    path = arguments["file_path"]
    workspace.write(path, after)
    if before is None:
        return f"Wrote {len(after)} bytes to {path}"
    return f"Updated {path}: {count} replacement{'' if count == 1 else 's'}"


def _plan_replacement(
    workspace: Workspace, file_path: str, old_string: str, new_string: str, expected_replacements: int = 1
) -> tuple[bytes | None, bytes, int]:
    """What the file holds, what it will hold, and in how many places that differs. Bytes that are no text stay."""
    old, new = encode_text(old_string), encode_text(new_string)
    if not old:
        if workspace.exists(file_path):
            raise ToolError(f"old_string is empty, and {file_path} is there already", "exists")
        return None, new, 0
    if old == new:
        raise ToolError("old_string and new_string are the same", "no_change")
    before = workspace.read(file_path, MAX_FILE_BYTES)
    count = before.count(old)
    if not count and b"\r\n" in before and b"\r" not in old:
        # A model writes line ends as \n, whatever the file has.
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = before.count(old)
    if not count:
        raise ToolError(f"old_string is not in {file_path}: read the file, and give the text exactly", "not_found")
    if count != expected_replacements:
        raise ToolError(
            f"old_string is {count} times in {file_path}, but {expected_replacements} was expected: give more lines"
            " around it, or expected_replacements",
            "ambiguous",
        )
    return before, before.replace(old, new), count


def unified_diff(path: str, before: bytes, after: bytes, *, to_path: str | None = None) -> str:
    """A unified diff, for a person."""
    if max(len(before), len(after)) > MAX_DIFF_BYTES or b"\0" in before or b"\0" in after:
        return f"{path}: {len(before)} bytes, then {len(after)}; not shown\n"
    lines = difflib.unified_diff(
        before.decode("utf-8", "replace").splitlines(keepends=True),
        after.decode("utf-8", "replace").splitlines(keepends=True),
        path if before else "/dev/null",
        to_path or path,
    )
    told, length = list[str](), 0
    for line in lines:
        told.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        length += len(line)
        if length > MAX_PREVIEW_CHARACTERS:
            told.append("[The rest of the difference is not shown.]\n")
            break
    return _escape_control_characters("".join(told))


def _escape_control_characters(text: str) -> str:
    """A terminal is not to act on what is shown: what it would take as a command is spelled out."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\x{ord(one):02x}" for one in text)
