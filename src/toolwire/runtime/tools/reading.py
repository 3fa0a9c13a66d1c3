"""`read_file`, `read_many_files` and `view_image`."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.canonical.content import Part, Text
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Output, Tool, ToolFault

from .excerpt import MOST_CHARACTERS, MOST_COUNTED, MOST_LINES, cut_from, pieces, pieces_of, with_notes
from .globs import is_glob, matches_anywhere
from .schema import a_count, a_string, an_object, strings
from .text import LOOKED_AT, as_media, encoding, media_type
from .walking import matching, walked
from .workspace import Workspace, read_up_to

READS = Annotations(read_only=True, idempotent=True)
MOST_MEDIA = 20 * 1024 * 1024
MOST_FILES = 200


def reading_tools(workspace: Workspace) -> list[Tool]:
    return [_read_file(workspace), _read_many_files(workspace), _view_image(workspace)]


def _read_file(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> Output:
        return await asyncio.to_thread(_read, workspace, **arguments)

    return Tool(
        name="read_file",
        run=run,
        description=f"Reads a file of the workspace ({workspace.root}). Images and PDFs are shown. A long text is cut;"
        " its last line then says how to read on.",
        parameters=an_object(
            ("absolute_path",),
            absolute_path=a_string("The absolute path of the file."),
            offset=a_count("For text: how many lines to skip.", 0),
            limit=a_count("For text: how many lines to read at most.", 1),
        ),
        annotations=READS,
        source="built-in",
        retries=0,
        touches=lambda arguments: named(workspace, arguments, "absolute_path"),
        amounts_to=lambda arguments: plainly(workspace, arguments, "absolute_path"),
    )


def named(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> frozenset[str]:
    """The one file that a call is about, whichever way it is spelled."""
    try:
        return frozenset({workspace.resolved(arguments[key])})
    except ToolFault:
        return frozenset()


def plainly(workspace: Workspace, arguments: Mapping[str, Any], key: str) -> Sequence[Arguments] | None:
    """The call with its path as it really is, so that no rule is passed by dots or links."""
    try:
        return [{**arguments, key: workspace.resolved(arguments[key])}]
    except ToolFault:
        return None


def _read(workspace: Workspace, absolute_path: str, offset: int = 0, limit: int | None = None) -> Output:
    with workspace.opened(absolute_path) as handle:
        head = os.pread(handle, LOOKED_AT, 0)
        size = os.fstat(handle).st_size
        if (kind := media_type(head)) is not None:
            return _shown(handle, kind, absolute_path)
        name = encoding(head)
        if name is None:
            return _told(f"Binary content of type application/octet-stream, {size} bytes: it is not shown.")
        if name not in ("utf-8", "utf-8-sig"):
            # Lines of two-byte characters can't be told by bytes.
            recoded = read_up_to(handle, MOST_COUNTED, absolute_path).decode(name, "replace").encode()
            window = cut_from(pieces_of(recoded), len(recoded), offset, limit or MOST_LINES)
        else:
            window = cut_from(pieces(handle), size, offset, limit or MOST_LINES)
    return _told(with_notes(window, name))


def _shown(handle: int, kind: str, path: str) -> Output:
    media = as_media(read_up_to(handle, MOST_MEDIA, path), kind, path.rsplit("/", 1)[-1])
    return Output(content=(Text(text=f"Binary content of type {kind} was processed."), media))


def _told(text: str) -> Output:
    return Output(content=(Text(text=text),))


def _read_many_files(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> Output:
        return await asyncio.to_thread(_read_many, workspace, **arguments)

    def amounts_to(arguments: Arguments) -> Sequence[Arguments] | None:
        try:
            meant = _meant(workspace, **arguments)
            return [{**arguments, "paths": workspace.resolved(path)} for path in meant]
        except ToolFault:
            return None

    return Tool(
        name="read_many_files",
        run=run,
        description=f"Reads several text files of the workspace ({workspace.root}) at once: files, folders with all"
        " that is in them, or glob patterns. What git ignores is left out, unless it is named itself.",
        parameters=an_object(
            ("paths",),
            paths=strings("Absolute paths of files or folders, or glob patterns such as src/**/*.py."),
            include=strings("Glob patterns: only files that match one of them."),
            exclude=strings("Glob patterns: no file that matches one of them."),
        ),
        annotations=READS,
        source="built-in",
        retries=0,
        amounts_to=amounts_to,
    )


def _meant(
    workspace: Workspace, paths: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[str]:
    """The files, each once, in the order in which they are asked for."""
    found = dict[str, None]()
    for path in paths:
        if not is_glob(path):
            if not _is_folder(workspace, path):
                if not _any(path, exclude):
                    found[path] = None
                continue
            below = walked(workspace, path)
        else:
            below = matching(workspace, path)
        for parts in below:
            shown = "/".join(parts)
            if (not include or _any(shown, include)) and not _any(shown, exclude):
                found[workspace.spelled(parts, path)] = None
            if len(found) > MOST_FILES:
                return list(found)
    return list(found)


def _any(path: str, patterns: Sequence[str]) -> bool:
    return any(matches_anywhere(path, pattern) for pattern in patterns)


def _is_folder(workspace: Workspace, path: str) -> bool:
    try:
        with workspace.folder(path):
            return True
    except ToolFault:
        return False


def _read_many(workspace: Workspace, **arguments: Any) -> Output:
    meant = _meant(workspace, **arguments)
    if not meant:
        raise ToolFault(f"no file matches {', '.join(arguments['paths'])}", "not_found")
    told, length, read, unread = list[str](), 0, 0, list[str]()
    for path in meant[:MOST_FILES]:
        if length >= MOST_CHARACTERS:
            unread.append(path)
            continue
        try:
            text = _text_of(_read(workspace, path).content)
            read += 1
        except ToolFault as fault:
            text = f"[{fault}]"
        if length + len(text) > MOST_CHARACTERS:
            text = f"{text[: MOST_CHARACTERS - length]}\n[The rest of {path} is cut: read it with read_file.]"
        length += len(text)
        told.append(f"--- {path} ---\n{text}")
    if unread or len(meant) > MOST_FILES:
        rest = f"{len(unread)} more files are" if len(meant) <= MOST_FILES else "More files are"
        told.append(f"[{rest} not read, for length: {', '.join(unread[:20]) or 'narrow the paths'}]")
    joined = "".join(one if one.endswith("\n") else f"{one}\n" for one in told[:-1]) + told[-1]
    return Output(content=(Text(text=joined),), is_error=read == 0, kind="" if read else "not_found")


def _text_of(content: tuple[Part, ...]) -> str:
    text = next(part.text for part in content if isinstance(part, Text))
    return text if len(content) == 1 else f"[{text} Read it alone to see it.]"


def _view_image(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> Output:
        return await asyncio.to_thread(_view, workspace, arguments["absolute_path"])

    return Tool(
        name="view_image",
        run=run,
        description=f"Shows an image of the workspace ({workspace.root}): PNG, JPEG, GIF or WebP.",
        parameters=an_object(("absolute_path",), absolute_path=a_string("The absolute path of the image.")),
        annotations=READS,
        source="built-in",
        retries=0,
        touches=lambda arguments: named(workspace, arguments, "absolute_path"),
        amounts_to=lambda arguments: plainly(workspace, arguments, "absolute_path"),
    )


def _view(workspace: Workspace, path: str) -> Output:
    content = workspace.read(path, MOST_MEDIA)
    kind = media_type(content[:LOOKED_AT])
    if kind is None or not kind.startswith("image/"):
        raise ToolFault(f"{path} is no PNG, JPEG, GIF or WebP image", "not_an_image")
    return Output(content=(as_media(content, kind, path.rsplit("/", 1)[-1]),))
