"""The `read_file`, `read_many_files` and `view_image` tools."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.canonical.content import Part, Text
from toolwire.runtime.native_forms import VIEW_FORMS
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools.directory_listing import list_entries
from toolwire.runtime.tools.directory_walk import find_files, is_glob, matches_glob_anywhere, walk_files
from toolwire.runtime.tools.excerpt import (
    MAX_CHARACTERS,
    MAX_COUNTED_BYTES,
    MAX_LINES,
    SNIFFED_BYTES,
    media_part,
    read_chunks,
    render_excerpt,
    sniff_encoding,
    sniff_media_type,
    split_chunks,
    take_excerpt,
)
from toolwire.runtime.tools.workspace import (
    Workspace,
    integer_schema,
    object_schema,
    read_up_to,
    string_list_schema,
    string_schema,
)

READ_ONLY_ANNOTATIONS = Annotations(read_only=True, idempotent=True)
MAX_MEDIA_BYTES = 20 * 1024 * 1024
MAX_FILES = 200


def read_file_tools(workspace: Workspace) -> list[Tool]:
    """Return the `read_file`, `read_many_files` and `view_image` tools."""
    return [_read_file_tool(workspace), _read_many_files_tool(workspace), _view_image_tool(workspace)]


def _read_file_tool(workspace: Workspace) -> Tool:
    """Build the `read_file` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Read the file in a thread."""
        return await asyncio.to_thread(_read_path, workspace, **arguments)

    return Tool(
        name="read_file",
        run=run,
        description=f"Reads a file of the workspace ({workspace.root}). Images and PDFs are shown, and"
        " directories are listed. A long text is cut, and its last line says how to read on.",
        parameters=object_schema(
            ("absolute_path",),
            absolute_path=string_schema("The absolute path of the file."),
            offset=integer_schema("For text: the number of lines to skip.", 0),
            limit=integer_schema("For text: the maximum number of lines to read.", 1),
            line_numbers={"type": "boolean", "description": "For text: write its number before each line."},
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        output_limit=60_000,  # of the numbers, besides `MAX_CHARACTERS` of text
        retries=0,
        native_forms=VIEW_FORMS,
        resources=lambda arguments: path_resources(workspace, arguments, "absolute_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "absolute_path"),
    )


def path_resources(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return the resolved path in `arguments[key]` as the resource of the call, to serialize conflicting calls."""
    try:
        return frozenset({workspace.resolve_path(arguments[key])})
    except ToolError:
        return frozenset()


def resolved_call(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> Sequence[Arguments] | None:
    """Return the call with the path in `arguments[key]` resolved, so that dots and links can't bypass a rule."""
    try:
        return [{**arguments, key: workspace.resolve_path(arguments[key])}]
    except ToolError:
        return None


def _read_path(
    workspace: Workspace, absolute_path: str, offset: int = 0, limit: int | None = None, *, line_numbers: bool = False
) -> ToolOutput:
    """Read a file as text, image or document, or list a directory."""
    if _is_directory(workspace, absolute_path):
        return _text_output(list_entries(workspace, absolute_path))
    with workspace.open_file(absolute_path) as handle:
        head = os.pread(handle, SNIFFED_BYTES, 0)
        size = os.fstat(handle).st_size
        if (media_type := sniff_media_type(head)) is not None:
            return _media_output(handle, media_type, absolute_path)
        encoding = sniff_encoding(head)
        if encoding is None:
            return _text_output(f"Binary content of type application/octet-stream, {size} bytes, not shown.")
        if encoding not in ("utf-8", "utf-8-sig"):
            # Lines of multi-byte encodings can't be split as bytes.
            recoded = read_up_to(handle, MAX_COUNTED_BYTES, absolute_path).decode(encoding, "replace").encode()
            excerpt = take_excerpt(split_chunks(recoded), len(recoded), offset, limit or MAX_LINES)
        else:
            excerpt = take_excerpt(read_chunks(handle), size, offset, limit or MAX_LINES)
    return _text_output(render_excerpt(excerpt, encoding, line_numbers=line_numbers))


def _media_output(handle: int, media_type: str, path: str) -> ToolOutput:
    """Return an open image or document file as a tool result."""
    media = media_part(read_up_to(handle, MAX_MEDIA_BYTES, path), media_type, path.rsplit("/", 1)[-1])
    return ToolOutput(content=(Text(text=f"Binary content of type {media_type} was processed."), media))


def _text_output(text: str) -> ToolOutput:
    """Return a text as a tool result."""
    return ToolOutput(content=(Text(text=text),))


def _read_many_files_tool(workspace: Workspace) -> Tool:
    """Build the `read_many_files` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Read the files in a thread."""
        return await asyncio.to_thread(_read_many, workspace, **arguments)

    def subcalls(arguments: Arguments) -> Sequence[Arguments] | None:
        """Return a call for each selected file, for the policy; None if they can't be known."""
        try:
            files = _select_files(workspace, **arguments)
            return [{**arguments, "paths": workspace.resolve_path(path)} for path in files]
        except ToolError:
            return None

    return Tool(
        name="read_many_files",
        run=run,
        description=f"Reads several text files of the workspace ({workspace.root}): files, whole directories, or glob"
        " patterns. Files that git ignores are skipped, unless named explicitly.",
        parameters=object_schema(
            ("paths",),
            paths=string_list_schema("Absolute paths of files or directories, or glob patterns such as src/**/*.py."),
            include=string_list_schema("Glob patterns: read only files that match one of them."),
            exclude=string_list_schema("Glob patterns: skip files that match one of them."),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        subcalls=subcalls,
    )


def _select_files(
    workspace: Workspace, paths: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[str]:
    """Return the files that the arguments select, each once, in the order requested."""
    selected = dict[str, None]()
    for path in paths:
        if not is_glob(path):
            if not _is_directory(workspace, path):
                if not _matches_any(path, exclude):
                    selected[path] = None
                continue
            candidates = walk_files(workspace, path)
        else:
            candidates = find_files(workspace, path)
        for parts in candidates:
            relative_path = "/".join(parts)
            if (not include or _matches_any(relative_path, include)) and not _matches_any(relative_path, exclude):
                selected[workspace.format_path(parts, path)] = None
            if len(selected) > MAX_FILES:
                return list(selected)
    return list(selected)


def _matches_any(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path matches one of the globs."""
    return any(matches_glob_anywhere(path, pattern) for pattern in patterns)


def _is_directory(workspace: Workspace, path: str) -> bool:
    """Return True if a path names a directory that can be opened."""
    try:
        with workspace.open_directory(path):
            return True
    except ToolError:
        return False


def _read_many(workspace: Workspace, **arguments: Any) -> ToolOutput:
    """Read the selected files into one text, up to the limit."""
    files = _select_files(workspace, **arguments)
    if not files:
        raise ToolError(f"no file matches {', '.join(arguments['paths'])}", "not_found")
    sections, length, read_count, skipped = list[str](), 0, 0, list[str]()
    for path in files[:MAX_FILES]:
        if length >= MAX_CHARACTERS:
            skipped.append(path)
            continue
        try:
            text = _file_text(_read_path(workspace, path).content)
            read_count += 1
        except ToolError as error:
            text = f"[{error}]"
        if length + len(text) > MAX_CHARACTERS:
            text = f"{text[: MAX_CHARACTERS - length]}\n[the rest of {path} is cut: use read_file]"
        length += len(text)
        sections.append(f"--- {path} ---\n{text}")
    if skipped or len(files) > MAX_FILES:
        subject = f"{len(skipped)} more files" if len(files) <= MAX_FILES else "more files"
        sections.append(f"[{subject} not read, output too long: {', '.join(skipped[:20]) or 'narrow the paths'}]")
    joined = "".join(text if text.endswith("\n") else f"{text}\n" for text in sections[:-1]) + sections[-1]
    return ToolOutput(
        content=(Text(text=joined),), is_error=read_count == 0, error_kind="" if read_count else "not_found"
    )


def _file_text(content: tuple[Part, ...]) -> str:
    """Return the text of a result; for media, a note to read the file alone."""
    text = next(part.text for part in content if isinstance(part, Text))
    return text if len(content) == 1 else f"[{text} Read it alone to see it.]"


def _view_image_tool(workspace: Workspace) -> Tool:
    """Build the `view_image` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Read the image in a thread."""
        return await asyncio.to_thread(_read_image, workspace, arguments["absolute_path"])

    return Tool(
        name="view_image",
        run=run,
        description=f"Shows an image of the workspace ({workspace.root}): PNG, JPEG, GIF or WebP.",
        parameters=object_schema(("absolute_path",), absolute_path=string_schema("The absolute path of the image.")),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "absolute_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "absolute_path"),
    )


def _read_image(workspace: Workspace, path: str) -> ToolOutput:
    """Return an image file as a tool result; raise `ToolError` for other files."""
    content = workspace.read(path, MAX_MEDIA_BYTES)
    media_type = sniff_media_type(content[:SNIFFED_BYTES])
    if media_type is None or not media_type.startswith("image/"):
        raise ToolError(f"{path} is not a PNG, JPEG, GIF or WebP image", "not_an_image")
    return ToolOutput(content=(media_part(content, media_type, path.rsplit("/", 1)[-1]),))
