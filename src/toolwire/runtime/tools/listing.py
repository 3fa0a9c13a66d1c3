"""`list_directory` and `glob`."""

import asyncio
import os
import stat
from itertools import islice

from toolwire.runtime.toolset import Arguments, Calling, Tool

from .excerpt import fitting
from .reading import READS, plainly
from .schema import a_string, an_object
from .walking import matching
from .workspace import Workspace

MOST_ENTRIES = 1000


def listing_tools(workspace: Workspace) -> list[Tool]:
    return [_list_directory(workspace), _glob(workspace)]


def _list_directory(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await asyncio.to_thread(_listed, workspace, arguments["path"])

    return Tool(
        name="list_directory",
        run=run,
        description=f"Lists a folder of the workspace ({workspace.root}): folders end in /, links show their target.",
        parameters=an_object(("path",), path=a_string("The absolute path of the folder.")),
        annotations=READS,
        source="built-in",
        retries=0,
        amounts_to=lambda arguments: plainly(workspace, arguments, "path"),
    )


def _listed(workspace: Workspace, path: str) -> str:
    with workspace.folder(path) as folder:
        lines = list[str]()
        for name in sorted(os.listdir(folder.handle), key=os.fsencode):  # noqa: PTH208 - of an open folder
            if not workspace.is_hidden((*folder.parts, name)):
                lines.append(_entry(folder.handle, name))
    if not lines:
        return "(empty)"
    given = fitting(lines, MOST_ENTRIES)
    rest = [f"[{len(lines) - given} more entries are not listed.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)


def _entry(folder: int, name: str) -> str:
    shown = printable(name)
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
        if stat.S_ISLNK(mode):
            return f"{shown} -> {printable(os.readlink(name, dir_fd=folder))}"
    except OSError:
        return shown
    return f"{shown}/" if stat.S_ISDIR(mode) else shown


def printable(name: str) -> str:
    """A name on one line: names may hold line ends, and bytes that are no text."""
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in plain)


def _glob(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await asyncio.to_thread(_globbed, workspace, **arguments)

    return Tool(
        name="glob",
        run=run,
        description=f"Finds files of the workspace ({workspace.root}) by a pattern such as src/**/*.py. What git"
        " ignores is left out.",
        parameters=an_object(
            ("pattern",),
            pattern=a_string("The pattern: * within a name, ** for any folders, {a,b} for either."),
            path=a_string("The absolute path of the folder to begin in. Absent: the workspace."),
        ),
        annotations=READS,
        source="built-in",
        retries=0,
    )


def _globbed(workspace: Workspace, pattern: str, path: str = ".") -> str:
    like = pattern if pattern.startswith("/") else path
    found = list(islice(matching(workspace, pattern, path), MOST_ENTRIES + 1))
    if not found:
        return f"No files match {pattern}."
    lines = [printable(workspace.spelled(parts, like)) for parts in found]
    given = fitting(lines, MOST_ENTRIES)
    rest = ["[More files match: narrow the pattern.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)
