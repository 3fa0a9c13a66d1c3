"""`search_file_content`: ripgrep, where it is, says in which files something matches; the lines are read here.

1. What is given always comes through the workspace's own way of opening files: a link that is swapped in under
   ripgrep's eyes shows nothing.
2. With ripgrep or without, the same lines come in the same order. What git ignores, links, and files with a NUL byte
   are left out. `include` is looked at here, as ripgrep's own globs would bring back what git ignores.
"""

import asyncio
import os
import re
import shutil
import signal
import sysconfig
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from toolwire.runtime.tool import Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.directory_walk import (
    MAX_DEPTH,
    GitIgnore,
    compile_pattern,
    matches_glob_anywhere,
    walk_files,
)
from toolwire.runtime.tools.excerpt import MAX_CHARACTERS, DecodedText, count_fitting_lines, decode_text
from toolwire.runtime.tools.list_directory import printable_name
from toolwire.runtime.tools.read_file import READ_ONLY_ANNOTATIONS
from toolwire.runtime.tools.schema import integer_schema, object_schema, string_schema
from toolwire.runtime.tools.workspace import Workspace
from toolwire.runtime.tools.write_file import encode_text

MAX_MATCHES = 200
MAX_LINE_LENGTH = 500
MAX_SEARCHED_BYTES = 32 * 1024 * 1024
"""Larger files are passed over."""
_LINE_ONLY_SYNTAX = re.compile(rb"\\[AzQ]|\(\?")
_RIPGREP_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


def find_ripgrep() -> str | None:
    """The one that came with this environment, else the system's."""
    ours = Path(sysconfig.get_path("scripts")) / "rg"
    return str(ours) if ours.is_file() else shutil.which("rg")


FileFilter: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a file is meant, by its parts below the root."""


class LineMatch(Struct, frozen=True):
    """One line, by the parts of its path below the root."""

    parts: tuple[str, ...]
    line: int
    text: bytes


def search_files_tools(workspace: Workspace, ripgrep: str | None) -> list[Tool]:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await _search(workspace, ripgrep, **arguments)

    tool = Tool(
        name="search_file_content",
        run=run,
        description=f"Searches the files of the workspace ({workspace.root}) for lines that match a regular expression,"
        " and gives path:line: text for each. What git ignores and what is binary is left out.",
        parameters=object_schema(
            ("pattern",),
            pattern=string_schema("The regular expression (RE2 syntax: no look-around, no back-references)."),
            path=string_schema("The absolute path of the folder or file to search. Absent: the workspace."),
            include=string_schema("A glob pattern: only files that match it, such as *.py or src/**/*.ts."),
            max_matches=integer_schema(f"How many lines at most. Absent: {MAX_MATCHES}.", 1),
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
    if "\n" in pattern or "\0" in pattern:
        raise ToolError("the pattern is for single lines: it can't hold a line end", "pattern")
    expression = _Expression(encode_text(pattern))
    start, only = await asyncio.to_thread(_split_target, workspace, path)

    def wanted(parts: tuple[str, ...]) -> bool:
        return include is None or matches_glob_anywhere("/".join(parts[len(start) :]), include)

    found: AsyncGenerator[LineMatch, None]
    if ripgrep is None or only is not None:
        files = walk_files(workspace, "/".join(start) or ".") if only is None else iter([(*start, only)])
        found = _iterate_in_thread(
            match for file in files if wanted(file) for match in _matches_in(workspace, expression, file)
        )
    else:
        named = _list_with_ripgrep(workspace, [ripgrep, "--regexp", pattern], start, wanted)
        found = _search_each(named, partial(_matches_in, workspace, expression))
    lines, length = list[str](), 0
    async with aclosing(found) as matches:
        async for match in matches:
            shown = printable_name(workspace.format_path(match.parts, path))
            lines.append(f"{shown}:{match.line}: {_format_line(match.text)}")
            length += len(lines[-1])
            if len(lines) > max_matches or length > MAX_CHARACTERS:
                break
    if not lines:
        return "No matches found."
    given = count_fitting_lines(lines, max_matches)
    rest = [f"[Only the first {given} matches are shown: narrow the search.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)


def _split_target(workspace: Workspace, path: str) -> tuple[tuple[str, ...], str | None]:
    """The folder to begin in, and the one file in it that is meant."""
    try:
        with workspace.open_directory(path) as folder:
            return folder.parts, None
    except ToolError as fault:
        if fault.kind != "not_a_folder":
            raise
    with workspace.open_file(path):
        parts = workspace.split_path(workspace.resolve_path(path))
        return parts[:-1], parts[-1]


def _format_line(text: bytes) -> str:
    found: DecodedText = decode_text(text.rstrip(b"\r\n"), "utf-8")
    cut = found.text[:MAX_LINE_LENGTH]
    left = len(found.text) - len(cut)
    return f"{cut}[... {left} more characters]" if left else cut


async def _list_with_ripgrep(
    workspace: Workspace, base_command: list[str], start: tuple[str, ...], file_filter: FileFilter
) -> AsyncGenerator[tuple[str, ...], None]:
    command = [
        *base_command,
        *("--no-config", "--files-with-matches", "--null", "--sort", "path", "--hidden", "--glob", "!.git"),
        *("--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-parent", "--no-ignore-exclude"),
        *("--encoding", "none", "--no-messages", "--max-filesize", str(MAX_SEARCHED_BYTES)),
        *("--max-depth", str(MAX_DEPTH - len(start)), "--", "./"),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=workspace.root.joinpath(*start),
        env=_RIPGREP_ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None  # noqa: S101
    # What folders above the first one say of it, ripgrep would look for outside the workspace, too.
    ignoring = GitIgnore(workspace)
    try:
        while name := (await _read_until_nul(process.stdout)).removesuffix(b"\0"):
            parts = (*start, *os.fsdecode(name).removeprefix("./").split("/"))
            if file_filter(parts) and not workspace.is_hidden(parts) and not ignoring.ignores_path(len(start), parts):
                yield parts
    except BaseException:
        # Not by the process itself: that could take its end from who waits for it.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        raise
    finally:
        await process.wait()


async def _read_until_nul(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\0")
    except asyncio.IncompleteReadError:
        return b""


async def _search_each(
    file_paths: AsyncGenerator[tuple[str, ...], None], find_matches: Callable[[tuple[str, ...]], Iterator[LineMatch]]
) -> AsyncGenerator[LineMatch, None]:
    async with aclosing(file_paths) as files:
        async for parts in files:
            async for match in _iterate_in_thread(find_matches(parts)):
                yield match


async def _iterate_in_thread(matches: Iterator[LineMatch]) -> AsyncGenerator[LineMatch, None]:
    """In a thread, a batch at a time."""
    while batch := await asyncio.to_thread(_take_batch, matches):
        for match in batch:
            yield match


def _take_batch(matches: Iterator[LineMatch]) -> list[LineMatch]:
    taken = list[LineMatch]()
    for match in matches:
        taken.append(match)
        if len(taken) == 50:
            break
    return taken


class _Expression:
    """A whole file is looked at first, since few have a match. Where anchors or flags make a file differ from its
    lines, they alone are."""

    def __init__(self, pattern: bytes) -> None:
        self.line_pattern = compile_pattern(pattern)
        self._file_pattern = None if _LINE_ONLY_SYNTAX.search(pattern) else compile_pattern(b"(?m:" + pattern + b")")

    def may_match(self, content: bytes) -> bool:
        return self._file_pattern is None or bool(self._file_pattern.search(content))


def _matches_in(workspace: Workspace, expression: _Expression, parts: tuple[str, ...]) -> Iterator[LineMatch]:
    try:
        content = workspace.read("/".join(parts), MAX_SEARCHED_BYTES)
    except ToolError:
        return
    if not content or b"\0" in content or not expression.may_match(content):
        return
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        if expression.line_pattern.search(line):
            yield LineMatch(parts, number, line)
