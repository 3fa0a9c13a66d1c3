"""`search_file_content`: by ripgrep where it is, else in Python with re2. Both give the same lines in the same order.

Both leave out what git ignores, links, and files with a NUL byte; `include` is looked at here, as ripgrep's own globs
would bring back what git ignores.
"""

import asyncio
import os
import shutil
import sysconfig
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field

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
    expression = compiled(encoded(pattern))
    start, only = await asyncio.to_thread(_start, workspace, path)

    def wanted(parts: tuple[str, ...]) -> bool:
        return include is None or matches_anywhere("/".join(parts[len(start) :]), include)

    if program is None:
        found = _aside(_in_python(workspace, expression, start, only, wanted))
    else:
        found = _with_ripgrep(workspace, [program, "--regexp", pattern], start, only, wanted)
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
        parts = Path(workspace.resolved(path)).relative_to(workspace.root).parts
        return parts[:-1], parts[-1]


def _line(text: bytes) -> str:
    found: Decoded = decoded(text.rstrip(b"\r\n"), "utf-8")
    cut = found.text[:LONGEST_LINE]
    left = len(found.text) - len(cut)
    return f"{cut}[... {left} more characters]" if left else cut


async def _with_ripgrep(
    workspace: Workspace, asked: list[str], start: tuple[str, ...], only: str | None, wanted: Wanted
) -> AsyncGenerator[Match, None]:
    command = [
        *asked,
        *("--no-config", "--json", "--sort", "path", "--hidden", "--glob", "!.git", "--no-require-git"),
        *("--no-ignore-global", "--no-ignore-dot", "--no-ignore-parent", "--no-ignore-exclude"),
        *("--encoding", "none", "--no-messages"),
        *("--max-filesize", str(MOST_SEARCHED), "--max-depth", str(DEEPEST - len(start)), "--"),
        f"./{only or ''}",
    ]
    folder = workspace.root.joinpath(*start)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=_PLAIN,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2 * MOST_SEARCHED,
    )
    assert process.stdout is not None  # noqa: S101
    # What folders above the first one say of it, ripgrep would look for outside the workspace, too.
    ignoring = Ignoring(workspace)
    try:
        held = list[Match]()
        async for line in process.stdout:
            said = msgspec.json.decode(line, type=_Said)
            if said.type == "begin":
                parts = said.parts(start)
                taken = wanted(parts) and not workspace.is_hidden(parts)
                taken = taken and (only is not None or not ignoring.ignores_below(len(start), parts))
            elif said.type == "match" and taken:
                held.append(said.match(parts))
            elif said.type == "end":
                for one in held if said.data.binary_offset is None else ():
                    yield one
                held.clear()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Bytes(Struct):
    """Text, or what is none in base64."""

    text: str | None = None
    encoded: bytes | None = field(default=None, name="bytes")

    def __bytes__(self) -> bytes:
        return self.text.encode() if self.text is not None else self.encoded or b""


class _Told(Struct):
    path: _Bytes = field(default_factory=_Bytes)
    lines: _Bytes = field(default_factory=_Bytes)
    line_number: int = 0
    binary_offset: int | None = None


class _Said(Struct):
    """A line of ripgrep's output: of a file's begin, a match in it, its end, or a summary."""

    type: str
    data: _Told

    def parts(self, start: tuple[str, ...]) -> tuple[str, ...]:
        return (*start, *os.fsdecode(bytes(self.data.path)).removeprefix("./").split("/"))

    def match(self, parts: tuple[str, ...]) -> Match:
        return Match(parts, self.data.line_number, bytes(self.data.lines))


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


def _in_python(
    workspace: Workspace, expression: Any, start: tuple[str, ...], only: str | None, wanted: Wanted
) -> Iterator[Match]:
    files = iter([(*start, only)]) if only is not None else walked(workspace, "/".join(start) or ".")
    for parts in files:
        if not wanted(parts):
            continue
        try:
            content = workspace.read("/".join(parts), MOST_SEARCHED)
        except ToolFault:
            continue
        if not content or b"\0" in content:
            continue
        for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
            if expression.search(line):
                yield Match(parts, number, line)
