"""`read_file`, `read_many_files` and `view_image`."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.canonical.content import Part, Text
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
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
from toolwire.runtime.tools.schema import integer_schema, object_schema, string_list_schema, string_schema
from toolwire.runtime.tools.workspace import Workspace, read_up_to

READ_ONLY_ANNOTATIONS = Annotations(read_only=True, idempotent=True)
MAX_MEDIA_BYTES = 20 * 1024 * 1024
MAX_FILES = 200


def read_file_tools(workspace: Workspace) -> list[Tool]:
    return [_read_file_tool(workspace), _read_many_files_tool(workspace), _view_image_tool(workspace)]


def _read_file_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(_read_path, workspace, **arguments)

    return Tool(
        name="read_file",
        run=run,
        description=f"Reads a file of the workspace ({workspace.root}). Images and PDFs are shown. A long text is cut;"
        " its last line then says how to read on.",
        parameters=object_schema(
            ("absolute_path",),
            absolute_path=string_schema("The absolute path of the file."),
            offset=integer_schema("For text: how many lines to skip.", 0),
            limit=integer_schema("For text: how many lines to read at most.", 1),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        resources=lambda arguments: path_resources(workspace, arguments, "absolute_path"),
        subcalls=lambda arguments: resolved_call(workspace, arguments, "absolute_path"),
    )


def path_resources(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> frozenset[str]:
    """The one file that a call is about, whichever way it is spelled."""
    try:
        return frozenset({workspace.resolve_path(arguments[key])})
    except ToolError:
        return frozenset()


def resolved_call(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> Sequence[Arguments] | None:
    """The call with its path as it really is, so that no rule is passed by dots or links."""
    try:
        return [{**arguments, key: workspace.resolve_path(arguments[key])}]
    except ToolError:
        return None


def _read_path(workspace: Workspace, absolute_path: str, offset: int = 0, limit: int | None = None) -> ToolOutput:
    with workspace.open_file(absolute_path) as handle:
        head = os.pread(handle, SNIFFED_BYTES, 0)
        size = os.fstat(handle).st_size
        if (kind := sniff_media_type(head)) is not None:
            return _media_output(handle, kind, absolute_path)
        name = sniff_encoding(head)
        if name is None:
            return _text_output(f"Binary content of type application/octet-stream, {size} bytes: it is not shown.")
        if name not in ("utf-8", "utf-8-sig"):
            # Lines of two-byte characters can't be told by bytes.
            recoded = read_up_to(handle, MAX_COUNTED_BYTES, absolute_path).decode(name, "replace").encode()
            window = take_excerpt(split_chunks(recoded), len(recoded), offset, limit or MAX_LINES)
        else:
            window = take_excerpt(read_chunks(handle), size, offset, limit or MAX_LINES)
    return _text_output(render_excerpt(window, name))


def _media_output(handle: int, media_type: str, path: str) -> ToolOutput:
    media = media_part(read_up_to(handle, MAX_MEDIA_BYTES, path), media_type, path.rsplit("/", 1)[-1])
    return ToolOutput(content=(Text(text=f"Binary content of type {media_type} was processed."), media))


def _text_output(text: str) -> ToolOutput:
    return ToolOutput(content=(Text(text=text),))


def _read_many_files_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(_read_many, workspace, **arguments)

    def amounts_to(arguments: Arguments) -> Sequence[Arguments] | None:
        try:
            meant = _select_files(workspace, **arguments)
            return [{**arguments, "paths": workspace.resolve_path(path)} for path in meant]
        except ToolError:
            return None

    return Tool(
        name="read_many_files",
        run=run,
        description=f"Reads several text files of the workspace ({workspace.root}) at once: files, folders with all"
        " that is in them, or glob patterns. What git ignores is left out, unless it is named itself.",
        parameters=object_schema(
            ("paths",),
            paths=string_list_schema("Absolute paths of files or folders, or glob patterns such as src/**/*.py."),
            include=string_list_schema("Glob patterns: only files that match one of them."),
            exclude=string_list_schema("Glob patterns: no file that matches one of them."),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        subcalls=amounts_to,
    )


def _select_files(
    workspace: Workspace, paths: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[str]:
    """The files, each once, in the order in which they are asked for."""
    found = dict[str, None]()
    for path in paths:
        if not is_glob(path):
            if not _is_directory(workspace, path):
                if not _matches_any(path, exclude):
                    found[path] = None
                continue
            below = walk_files(workspace, path)
        else:
            below = find_files(workspace, path)
        for parts in below:
            shown = "/".join(parts)
            if (not include or _matches_any(shown, include)) and not _matches_any(shown, exclude):
                found[workspace.format_path(parts, path)] = None
            if len(found) > MAX_FILES:
                return list(found)
    return list(found)


def _matches_any(path: str, patterns: Sequence[str]) -> bool:
    return any(matches_glob_anywhere(path, pattern) for pattern in patterns)


def _is_directory(workspace: Workspace, path: str) -> bool:
    try:
        with workspace.open_directory(path):
            return True
    except ToolError:
        return False


def _read_many(workspace: Workspace, **arguments: Any) -> ToolOutput:
    meant = _select_files(workspace, **arguments)
    if not meant:
        raise ToolError(f"no file matches {', '.join(arguments['paths'])}", "not_found")
    told, length, read, unread = list[str](), 0, 0, list[str]()
    for path in meant[:MAX_FILES]:
        if length >= MAX_CHARACTERS:
            unread.append(path)
            continue
        try:
            text = _file_text(_read_path(workspace, path).content)
            read += 1
        except ToolError as fault:
            text = f"[{fault}]"
        if length + len(text) > MAX_CHARACTERS:
            text = f"{text[: MAX_CHARACTERS - length]}\n[The rest of {path} is cut: read it with read_file.]"
        length += len(text)
        told.append(f"--- {path} ---\n{text}")
    if unread or len(meant) > MAX_FILES:
        rest = f"{len(unread)} more files are" if len(meant) <= MAX_FILES else "More files are"
        told.append(f"[{rest} not read, for length: {', '.join(unread[:20]) or 'narrow the paths'}]")
    joined = "".join(one if one.endswith("\n") else f"{one}\n" for one in told[:-1]) + told[-1]
    return ToolOutput(content=(Text(text=joined),), is_error=read == 0, error_kind="" if read else "not_found")


def _file_text(content: tuple[Part, ...]) -> str:
    text = next(part.text for part in content if isinstance(part, Text))
    return text if len(content) == 1 else f"[{text} Read it alone to see it.]"


def _view_image_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
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
    content = workspace.read(path, MAX_MEDIA_BYTES)
    kind = sniff_media_type(content[:SNIFFED_BYTES])
    if kind is None or not kind.startswith("image/"):
        raise ToolError(f"{path} is no PNG, JPEG, GIF or WebP image", "not_an_image")
    return ToolOutput(content=(media_part(content, kind, path.rsplit("/", 1)[-1]),))
