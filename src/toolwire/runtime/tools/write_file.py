"""The `write_file` and `replace` tools, and the diff that previews a change."""

import asyncio
import difflib

from toolwire.runtime.native_forms import CREATE_FORMS, EDIT_FORMS
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.read_file import path_resources, resolved_call
from toolwire.runtime.tools.workspace import Workspace, integer_schema, object_schema, string_schema

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_PREVIEW_CHARACTERS = 20_000
MAX_DIFF_BYTES = 1024 * 1024
"""Larger files are not diffed, which would take too long."""
DESTRUCTIVE_ANNOTATIONS = Annotations(destructive=True)


def write_file_tools(workspace: Workspace) -> list[Tool]:
    """Return the `write_file` and `replace` tools."""
    return [_write_file_tool(workspace), _replace_tool(workspace)]


def _write_file_tool(workspace: Workspace) -> Tool:
    """Build the `write_file` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Write the file in a thread."""
        return await asyncio.to_thread(_write_content, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        """Return the diff to show the user, or the error if the file can't be written."""
        path = arguments["file_path"]
        try:
            before = workspace.read(path, MAX_FILE_BYTES) if workspace.exists(path) else b""
            return unified_diff(path, before, encode_text(arguments["content"]))
        except ToolError as error:
            return str(error)

    return Tool(
        name="write_file",
        run=run,
        description=f"Writes a file of the workspace ({workspace.root}), replacing its content. Missing directories are"
        " created.",
        parameters=object_schema(
            ("file_path", "content"),
            file_path=string_schema("The absolute path of the file."),
            content=string_schema("The complete content of the file."),
        ),
        annotations=Annotations(destructive=True, idempotent=True),
        source="built-in",
        stoppable=False,
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "file_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "file_path"),
        preview=preview,
        native_forms=CREATE_FORMS,
    )


def _write_content(workspace: Workspace, file_path: str, content: str) -> str:
    """Write a file, and return the message for the model."""
    data = encode_text(content)
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"the content has {len(data)} bytes; the limit is {MAX_FILE_BYTES}", "too_large")
    workspace.write(file_path, data)
    return f"Wrote {len(data)} bytes to {file_path}"


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8, or raise `ToolError` if it has lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text is not valid Unicode at character {error.start}", "text") from error


def _replace_tool(workspace: Workspace) -> Tool:
    """Build the `replace` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Replace the text in a thread."""
        return await asyncio.to_thread(_replace_text, workspace, **arguments)

    def preview(arguments: Arguments) -> str | None:
        """Return the diff to show the user, or the error if the text can't be replaced."""
        try:
            before, after, _ = _plan_replacement(workspace, **arguments)
        except ToolError as error:
            return str(error)
        return unified_diff(arguments["file_path"], before or b"", after)

    return Tool(
        name="replace",
        run=run,
        description=f"Replaces text in a file of the workspace ({workspace.root}). The text must occur exactly as often"
        " as expected: include enough surrounding lines. An empty old_string creates a new file, or inserts text"
        " after a line.",
        parameters=object_schema(
            ("file_path", "old_string", "new_string"),
            file_path=string_schema("The absolute path of the file."),
            old_string=string_schema("The exact text in the file, including spaces and line breaks."),
            new_string=string_schema("The replacement text."),
            expected_replacements=integer_schema("The number of occurrences. Default: 1.", 1),
            after_line=integer_schema(
                "With an empty old_string: the line after which to insert new_string; 0 is the start of the file.", 0
            ),
        ),
        annotations=DESTRUCTIVE_ANNOTATIONS,
        source="built-in",
        stoppable=False,
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "file_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "file_path"),
        preview=preview,
        native_forms=EDIT_FORMS,
    )


def _replace_text(workspace: Workspace, **arguments: Arguments) -> str:
    """Replace the text in the file, and return the message for the model."""
    before, after, count = _plan_replacement(workspace, **arguments)
    path = arguments["file_path"]
    workspace.write(path, after)
    if before is None:
        return f"Wrote {len(after)} bytes to {path}"
    if not count:
        return f"Updated {path}: inserted {len(after) - len(before)} bytes after line {arguments['after_line']}"
    return f"Updated {path}: {count} replacement{'' if count == 1 else 's'}"


def _plan_replacement(
    workspace: Workspace,
    file_path: str,
    old_string: str,
    new_string: str,
    *,
    expected_replacements: int = 1,
    after_line: int | None = None,
) -> tuple[bytes | None, bytes, int]:
    """Return the file's content before and after, and the number of replacements.

    Bytes outside the replaced text are preserved. The content before is None for a new file.
    """
    old, new = encode_text(old_string), encode_text(new_string)
    if after_line is not None:
        if old:
            raise ToolError("after_line needs an empty old_string", "arguments")
        before = workspace.read(file_path, MAX_FILE_BYTES)
        return before, _insert_lines(before, new, after_line, file_path), 0
    if not old:
        if workspace.exists(file_path):
            raise ToolError(f"old_string is empty, but {file_path} already exists", "exists")
        return None, new, 0
    if old == new:
        raise ToolError("old_string and new_string are the same", "no_change")
    before = workspace.read(file_path, MAX_FILE_BYTES)
    count = before.count(old)
    if not count and b"\r\n" in before and b"\r" not in old:
        # Models write line endings as \n, whatever the file uses.
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = before.count(old)
    if not count:
        raise ToolError(f"old_string not found in {file_path}: read the file and copy the text exactly", "not_found")
    if count != expected_replacements:
        raise ToolError(
            f"old_string occurs {count} times in {file_path}, expected {expected_replacements}: include more"
            " surrounding lines, or set expected_replacements",
            "ambiguous",
        )
    return before, before.replace(old, new), count


def _insert_lines(before: bytes, new: bytes, after_line: int, path: str) -> bytes:
    """Return the content with text inserted after a line, as lines of their own; other bytes are preserved."""
    lines = before.split(b"\n")
    ends = before.endswith(b"\n") or not before
    count = len(lines) - 1 if ends else len(lines)
    if after_line > count:
        raise ToolError(f"{path} has {count} lines: there is no line {after_line}", "not_found")
    if b"\r\n" in before and b"\r" not in new:
        new = new.replace(b"\n", b"\r\n")
    ending = b"\r\n" if b"\r\n" in before else b"\n"
    head = b"".join(line + b"\n" for line in lines[:after_line])
    if after_line == count and not ends:
        return before + ending + new
    if not new.endswith(b"\n"):
        new += ending
    return head + new + before[len(head) :]


def unified_diff(path: str, before: bytes, after: bytes, *, to_path: str | None = None) -> str:
    """Return a unified diff for the user to review."""
    if max(len(before), len(after)) > MAX_DIFF_BYTES or b"\0" in before or b"\0" in after:
        return f"{path}: {len(before)} bytes before, {len(after)} after; diff not shown\n"
    lines = difflib.unified_diff(
        before.decode("utf-8", "replace").splitlines(keepends=True),
        after.decode("utf-8", "replace").splitlines(keepends=True),
        path if before else "/dev/null",
        to_path or path,
    )
    shown_lines, length = list[str](), 0
    for line in lines:
        shown_lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        length += len(line)
        if length > MAX_PREVIEW_CHARACTERS:
            shown_lines.append("[rest of the diff not shown]\n")
            break
    return _escape_control_characters("".join(shown_lines))


def _escape_control_characters(text: str) -> str:
    """Escape the characters that would control a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)
