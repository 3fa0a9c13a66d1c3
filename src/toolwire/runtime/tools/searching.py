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

from toolwire.runtime.toolset import Arguments, Calling, Tool, ToolFault

from .excerpt import MOST_CHARACTERS, fitting
from .globs import matches_anywhere
from .listing import printable
from .patterns import compiled
from .reading import READS
from .schema import a_count, a_string, an_object
from .text import Decoded, decoded
from .walking import DEEPEST, Ignoring, walked
from .workspace import Workspace
from .writing import encoded

MOST_MATCHES = 200
LONGEST_LINE = 500
MOST_SEARCHED = 32 * 1024 * 1024
"""Larger files are passed over."""
_BY_LINE = re.compile(rb"\\[AzQ]|\(\?")
_PLAIN = {"LC_ALL": "C.UTF-8"}


def ripgrep() -> str | None:
    """The one that came with this environment, else the system's."""
    ours = Path(sysconfig.get_path("scripts")) / "rg"
    return str(ours) if ours.is_file() else shutil.which("rg")


Wanted: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a file is meant, by its parts below the root."""


class Match(Struct, frozen=True):
    """One line, by the parts of its path below the root."""

    parts: tuple[str, ...]
    line: int
    text: bytes


def searching_tools(workspace: Workspace, program: str | None) -> list[Tool]:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await _searched(workspace, program, **arguments)

    tool = Tool(
        name="search_file_content",
        run=run,
        description=f"Searches the files of the workspace ({workspace.root}) for lines that match a regular expression,"
        " and gives path:line: text for each. What git ignores and what is binary is left out.",
        parameters=an_object(
            ("pattern",),
            pattern=a_string("The regular expression (RE2 syntax: no look-around, no back-references)."),
            path=a_string("The absolute path of the folder or file to search. Absent: the workspace."),
            include=a_string("A glob pattern: only files that match it, such as *.py or src/**/*.ts."),
            max_matches=a_count(f"How many lines at most. Absent: {MOST_MATCHES}.", 1),
        ),
        annotations=READS,
        source="built-in",
        retries=0,
    )
    return [tool]


async def _searched(
    workspace: Workspace,
    program: str | None,
    *,
    pattern: str,
    path: str = ".",
    include: str | None = None,
    max_matches: int = MOST_MATCHES,
) -> str:
    if "\n" in pattern or "\0" in pattern:
        raise ToolFault("the pattern is for single lines: it can't hold a line end", "pattern")
    expression = _Expression(encoded(pattern))
    start, only = await asyncio.to_thread(_start, workspace, path)

    def wanted(parts: tuple[str, ...]) -> bool:
        return include is None or matches_anywhere("/".join(parts[len(start) :]), include)

    found: AsyncGenerator[Match, None]
    if program is None or only is not None:
        files = walked(workspace, "/".join(start) or ".") if only is None else iter([(*start, only)])
        found = _aside(match for file in files if wanted(file) for match in _matches_in(workspace, expression, file))
    else:
        named = _with_ripgrep(workspace, [program, "--regexp", pattern], start, wanted)
        found = _in_each(named, partial(_matches_in, workspace, expression))
    lines, length = list[str](), 0
    async with aclosing(found) as matches:
        async for match in matches:
            shown = printable(workspace.spelled(match.parts, path))
            lines.append(f"{shown}:{match.line}: {_line(match.text)}")
            length += len(lines[-1])
            if len(lines) > max_matches or length > MOST_CHARACTERS:
                break
    if not lines:
        return "No matches found."
    given = fitting(lines, max_matches)
    rest = [f"[Only the first {given} matches are shown: narrow the search.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)


def _start(workspace: Workspace, path: str) -> tuple[tuple[str, ...], str | None]:
    """The folder to begin in, and the one file in it that is meant."""
    try:
        with workspace.folder(path) as folder:
            return folder.parts, None
    except ToolFault as fault:
        if fault.kind != "not_a_folder":
            raise
    with workspace.opened(path):
        parts = workspace.parts(workspace.resolved(path))
        return parts[:-1], parts[-1]


def _line(text: bytes) -> str:
    found: Decoded = decoded(text.rstrip(b"\r\n"), "utf-8")
    cut = found.text[:LONGEST_LINE]
    left = len(found.text) - len(cut)
    return f"{cut}[... {left} more characters]" if left else cut


async def _with_ripgrep(
    workspace: Workspace, asked: list[str], start: tuple[str, ...], wanted: Wanted
) -> AsyncGenerator[tuple[str, ...], None]:
    command = [
        *asked,
        *("--no-config", "--files-with-matches", "--null", "--sort", "path", "--hidden", "--glob", "!.git"),
        *("--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-parent", "--no-ignore-exclude"),
        *("--encoding", "none", "--no-messages", "--max-filesize", str(MOST_SEARCHED)),
        *("--max-depth", str(DEEPEST - len(start)), "--", "./"),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=workspace.root.joinpath(*start),
        env=_PLAIN,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None  # noqa: S101
    # What folders above the first one say of it, ripgrep would look for outside the workspace, too.
    ignoring = Ignoring(workspace)
    try:
        while name := (await _until_nul(process.stdout)).removesuffix(b"\0"):
            parts = (*start, *os.fsdecode(name).removeprefix("./").split("/"))
            if wanted(parts) and not workspace.is_hidden(parts) and not ignoring.ignores_below(len(start), parts):
                yield parts
    except BaseException:
        # Not by the process itself: that could take its end from who waits for it.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        raise
    finally:
        await process.wait()


async def _until_nul(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\0")
    except asyncio.IncompleteReadError:
        return b""


async def _in_each(
    named: AsyncGenerator[tuple[str, ...], None], look: Callable[[tuple[str, ...]], Iterator[Match]]
) -> AsyncGenerator[Match, None]:
    async with aclosing(named) as files:
        async for parts in files:
            async for match in _aside(look(parts)):
                yield match


async def _aside(found: Iterator[Match]) -> AsyncGenerator[Match, None]:
    """In a thread, a batch at a time."""
    while batch := await asyncio.to_thread(_batch, found):
        for match in batch:
            yield match


def _batch(found: Iterator[Match]) -> list[Match]:
    taken = list[Match]()
    for match in found:
        taken.append(match)
        if len(taken) == 50:
            break
    return taken


class _Expression:
    """A whole file is looked at first, since few have a match. Where anchors or flags make a file differ from its
    lines, they alone are."""

    def __init__(self, pattern: bytes) -> None:
        self.line = compiled(pattern)
        self._file = None if _BY_LINE.search(pattern) else compiled(b"(?m:" + pattern + b")")

    def may_match(self, content: bytes) -> bool:
        return self._file is None or bool(self._file.search(content))


def _matches_in(workspace: Workspace, expression: _Expression, parts: tuple[str, ...]) -> Iterator[Match]:
    try:
        content = workspace.read("/".join(parts), MOST_SEARCHED)
    except ToolFault:
        return
    if not content or b"\0" in content or not expression.may_match(content):
        return
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        if expression.line.search(line):
            yield Match(parts, number, line)
