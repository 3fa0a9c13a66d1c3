"""The `search_file_content` tool: ripgrep, if installed, finds the files that match, and the lines are read here.

1. Content is always read through the workspace: a link swapped in while ripgrep runs reveals nothing.
2. With or without ripgrep, the same lines are returned in the same order. Files that git ignores, links, and files with
   a NUL byte are skipped. `include` is applied here, because ripgrep's own globs would override .gitignore.
"""

import asyncio
import os
import re
import shutil
import sysconfig
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from toolwire.runtime.sandbox.process import start_subprocess
from toolwire.runtime.tool import Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.directory_listing import printable_name
from toolwire.runtime.tools.directory_walk import (
    MAX_DEPTH,
    GitIgnore,
    compile_pattern,
    matches_glob_anywhere,
    walk_files,
)
from toolwire.runtime.tools.excerpt import MAX_CHARACTERS, DecodedText, count_fitting_lines, decode_text
from toolwire.runtime.tools.read_file import READ_ONLY_ANNOTATIONS
from toolwire.runtime.tools.workspace import Workspace, integer_schema, object_schema, string_schema
from toolwire.runtime.tools.write_file import encode_text

MAX_MATCHES = 200
MAX_LINE_LENGTH = 500
MAX_SEARCHED_BYTES = 32 * 1024 * 1024
"""Larger files are skipped."""
_LINE_ONLY_SYNTAX = re.compile(rb"\\[AzQ]|\(\?")
_RIPGREP_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


def find_ripgrep() -> str | None:
    """Return the path of ripgrep: from this Python environment, or else from the system."""
    bundled = Path(sysconfig.get_path("scripts")) / "rg"
    return str(bundled) if bundled.is_file() else shutil.which("rg")


FileFilter: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Tells whether to search a file, by its parts below the root."""


class LineMatch(Struct, frozen=True):
    """A matching line of a file."""

    # The path of the file below the root.
    parts: tuple[str, ...]
    line: int
    text: bytes


def search_files_tools(workspace: Workspace, ripgrep: str | None) -> list[Tool]:
    """Return the `search_file_content` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Search the files, and return the matching lines as text."""
        return await _search(workspace, ripgrep, **arguments)

    tool = Tool(
        name="search_file_content",
        run=run,
        description=f"Searches the files of the workspace ({workspace.root}) for lines that match a regular expression,"
        " and returns path:line: text for each. Binary files and files that git ignores are skipped.",
        parameters=object_schema(
            ("pattern",),
            pattern=string_schema("The regular expression (RE2 syntax: no look-around, no back-references)."),
            path=string_schema("The absolute path of the directory or file to search. Default: the workspace."),
            include=string_schema("A glob pattern: search only files that match it, such as *.py or src/**/*.ts."),
            max_matches=integer_schema(f"The maximum number of lines. Default: {MAX_MATCHES}.", 1),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
    )
    return [tool]


async def _search(
    workspace: Workspace,
    ripgrep: str | None,
    *,
    pattern: str,
    path: str = ".",
    include: str | None = None,
    max_matches: int = MAX_MATCHES,
) -> str:
    """Search files, and return the matching lines as text."""
    if "\n" in pattern or "\0" in pattern:
        raise ToolError("the pattern must not contain line breaks: it is matched against single lines", "pattern")
    expression = _Expression(encode_text(pattern))
    directory, file_name = await asyncio.to_thread(_split_target, workspace, path)

    def is_included(parts: tuple[str, ...]) -> bool:
        """Return True if the file, given by its path parts, matches the `include` glob."""
        return include is None or matches_glob_anywhere("/".join(parts[len(directory) :]), include)

    line_matches: AsyncGenerator[LineMatch, None]
    if ripgrep is None or file_name is not None:
        files = (
            walk_files(workspace, "/".join(directory) or ".") if file_name is None else iter([(*directory, file_name)])
        )
        line_matches = _iterate_in_thread(
            match for file in files if is_included(file) for match in _matches_in(workspace, expression, file)
        )
    else:
        listed_files = _list_with_ripgrep(workspace, [ripgrep, "--regexp", pattern], directory, is_included)
        line_matches = _search_each(listed_files, partial(_matches_in, workspace, expression))
    lines, length = list[str](), 0
    async with aclosing(line_matches) as matches:
        async for match in matches:
            shown_path = printable_name(workspace.format_path(match.parts, path))
            lines.append(f"{shown_path}:{match.line}: {_format_line(match.text)}")
            length += len(lines[-1])
            if len(lines) > max_matches or length > MAX_CHARACTERS:
                break
    if not lines:
        return "No matches found."
    shown_count = count_fitting_lines(lines, max_matches)
    note = [f"[only the first {shown_count} matches are shown: narrow the search]"] if shown_count < len(lines) else []
    return "\n".join(lines[:shown_count] + note)


def _split_target(workspace: Workspace, path: str) -> tuple[tuple[str, ...], str | None]:
    """Return the directory to search, and the file in it if the path names one."""
    try:
        with workspace.open_directory(path) as directory:
            return directory.parts, None
    except ToolError as error:
        if error.kind != "not_a_folder":
            raise
    with workspace.open_file(path):
        parts = workspace.split_path(workspace.resolve_path(path))
        return parts[:-1], parts[-1]


def _format_line(text: bytes) -> str:
    """Decode a line, and cut it if it is too long."""
    decoded: DecodedText = decode_text(text.rstrip(b"\r\n"), "utf-8")
    cut = decoded.text[:MAX_LINE_LENGTH]
    remaining = len(decoded.text) - len(cut)
    return f"{cut}[... {remaining} more characters]" if remaining else cut


async def _list_with_ripgrep(
    workspace: Workspace, base_command: list[str], start: tuple[str, ...], file_filter: FileFilter
) -> AsyncGenerator[tuple[str, ...], None]:
    """Yield the files with a match as ripgrep finds them, each as its parts below the root."""
    command = [
        *base_command,
        *("--no-config", "--files-with-matches", "--null", "--sort", "path", "--hidden", "--glob", "!.git"),
        *("--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-parent", "--no-ignore-exclude"),
        *("--encoding", "none", "--no-messages", "--max-filesize", str(MAX_SEARCHED_BYTES)),
        *("--max-depth", str(MAX_DEPTH - len(start)), "--", "./"),
    ]
    process = await start_subprocess(
        *command,
        cwd=workspace.root.joinpath(*start),
        env=_RIPGREP_ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None  # noqa: S101
    # .gitignore files of parent directories are read here: ripgrep would also look for them outside the workspace.
    gitignore = GitIgnore(workspace)
    try:
        while name := (await _read_until_nul(process.stdout)).removesuffix(b"\0"):
            parts = (*start, *os.fsdecode(name).removeprefix("./").split("/"))
            if file_filter(parts) and not workspace.is_hidden(parts) and not gitignore.ignores_path(len(start), parts):
                yield parts
    finally:
        process.close()


async def _read_until_nul(stream: asyncio.StreamReader) -> bytes:
    """Read up to the next NUL byte, which ends a file name; empty at the end."""
    try:
        return await stream.readuntil(b"\0")
    except asyncio.IncompleteReadError:
        return b""


async def _search_each(
    file_paths: AsyncGenerator[tuple[str, ...], None], find_matches: Callable[[tuple[str, ...]], Iterator[LineMatch]]
) -> AsyncGenerator[LineMatch, None]:
    """Yield the matching lines of each file, searched in a thread."""
    async with aclosing(file_paths) as files:
        async for parts in files:
            async for match in _iterate_in_thread(find_matches(parts)):
                yield match


async def _iterate_in_thread(matches: Iterator[LineMatch]) -> AsyncGenerator[LineMatch, None]:
    """Yield the items of an iterator that runs in a thread, a batch at a time."""
    while batch := await asyncio.to_thread(_take_batch, matches):
        for match in batch:
            yield match


def _take_batch(matches: Iterator[LineMatch]) -> list[LineMatch]:
    """Take up to 50 matches."""
    batch = list[LineMatch]()
    for match in matches:
        batch.append(match)
        if len(batch) == 50:
            break
    return batch


class _Expression:
    """A regular expression for lines.

    Few files match, so a complete file is searched first. Patterns with anchors or flags that would behave
    differently on a file are only matched against lines.
    """

    def __init__(self, pattern: bytes) -> None:
        self.line_pattern = compile_pattern(pattern)
        self._file_pattern = None if _LINE_ONLY_SYNTAX.search(pattern) else compile_pattern(b"(?m:" + pattern + b")")

    def may_match(self, content: bytes) -> bool:
        """Return whether a file may contain a matching line."""
        return self._file_pattern is None or bool(self._file_pattern.search(content))


def _matches_in(workspace: Workspace, expression: _Expression, parts: tuple[str, ...]) -> Iterator[LineMatch]:
    """Yield the matching lines of one file."""
    try:
        content = workspace.read("/".join(parts), MAX_SEARCHED_BYTES)
    except ToolError:
        return
    if not content or b"\0" in content or not expression.may_match(content):
        return
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        if expression.line_pattern.search(line):
            yield LineMatch(parts, number, line)
