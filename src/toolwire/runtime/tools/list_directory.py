"""`list_directory` and `glob`."""

import asyncio
import os
import stat
from itertools import islice

from toolwire.runtime.tool import Arguments, Tool, ToolContext
from toolwire.runtime.tools.directory_walk import find_files
from toolwire.runtime.tools.excerpt import count_fitting_lines
from toolwire.runtime.tools.read_file import READ_ONLY_ANNOTATIONS, resolved_call
from toolwire.runtime.tools.schema import object_schema, string_schema
from toolwire.runtime.tools.workspace import Workspace

MAX_ENTRIES = 1000


def list_directory_tools(workspace: Workspace) -> list[Tool]:
    return [_list_directory_tool(workspace), _glob_tool(workspace)]


def _list_directory_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await asyncio.to_thread(_list_entries, workspace, arguments["path"])

    return Tool(
        name="list_directory",
        run=run,
        description=f"Lists a folder of the workspace ({workspace.root}): folders end in /, links show their target.",
        parameters=object_schema(("path",), path=string_schema("The absolute path of the folder.")),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        subcalls=lambda arguments: resolved_call(workspace, arguments, "path"),
    )


def _list_entries(workspace: Workspace, path: str) -> str:
    with workspace.open_directory(path) as folder:
        lines = list[str]()
        for name in sorted(os.listdir(folder.handle), key=os.fsencode):  # noqa: PTH208 - of an open folder
            if not workspace.is_hidden((*folder.parts, name)):
                lines.append(_format_entry(folder.handle, name))
    if not lines:
        return "(empty)"
    given = count_fitting_lines(lines, MAX_ENTRIES)
    rest = [f"[{len(lines) - given} more entries are not listed.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)


def _format_entry(directory: int, name: str) -> str:
    shown = printable_name(name)
    try:
        mode = os.lstat(name, dir_fd=directory).st_mode
        if stat.S_ISLNK(mode):
            return f"{shown} -> {printable_name(os.readlink(name, dir_fd=directory))}"
    except OSError:
        return shown
    return f"{shown}/" if stat.S_ISDIR(mode) else shown


def printable_name(name: str) -> str:
    """A name on one line: names may hold line ends, and bytes that are no text."""
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in plain)


def _glob_tool(workspace: Workspace) -> Tool:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        return await asyncio.to_thread(_glob_files, workspace, **arguments)

    return Tool(
        name="glob",
        run=run,
        description=f"Finds files of the workspace ({workspace.root}) by a pattern such as src/**/*.py. What git"
        " ignores is left out.",
        parameters=object_schema(
            ("pattern",),
            pattern=string_schema("The pattern: * within a name, ** for any folders, {a,b} for either."),
            path=string_schema("The absolute path of the folder to begin in. Absent: the workspace."),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
    )


def _glob_files(workspace: Workspace, pattern: str, path: str = ".") -> str:
    like = pattern if pattern.startswith("/") else path
    found = list(islice(find_files(workspace, pattern, path), MAX_ENTRIES + 1))
    if not found:
        return f"No files match {pattern}."
    lines = [printable_name(workspace.format_path(parts, like)) for parts in found]
    given = count_fitting_lines(lines, MAX_ENTRIES)
    rest = ["[More files match: narrow the pattern.]"] if given < len(lines) else []
    return "\n".join(lines[:given] + rest)
