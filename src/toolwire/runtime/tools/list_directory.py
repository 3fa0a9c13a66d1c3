"""The `list_directory` and `glob` tools."""

import asyncio
from itertools import islice

from toolwire.runtime.tool import Arguments, Tool, ToolContext
from toolwire.runtime.tools.directory_listing import MAX_ENTRIES, list_entries, printable_name
from toolwire.runtime.tools.directory_walk import find_files
from toolwire.runtime.tools.excerpt import count_fitting_lines
from toolwire.runtime.tools.read_file import READ_ONLY_ANNOTATIONS, resolved_call
from toolwire.runtime.tools.workspace import Workspace, object_schema, string_schema


def list_directory_tools(workspace: Workspace) -> list[Tool]:
    """Return the `list_directory` and `glob` tools."""
    return [_list_directory_tool(workspace), _glob_tool(workspace)]


def _list_directory_tool(workspace: Workspace) -> Tool:
    """Build the `list_directory` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """List the directory in a thread."""
        return await asyncio.to_thread(list_entries, workspace, arguments["path"])

    return Tool(
        name="list_directory",
        run=run,
        description=f"Lists a directory of the workspace ({workspace.root}). Directories end in /, links show their"
        " target.",
        parameters=object_schema(("path",), path=string_schema("The absolute path of the directory.")),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
        subcalls=lambda arguments: resolved_call(workspace, arguments, "path"),
    )


def _glob_tool(workspace: Workspace) -> Tool:
    """Build the `glob` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Find the files in a thread."""
        return await asyncio.to_thread(_glob_files, workspace, **arguments)

    return Tool(
        name="glob",
        run=run,
        description=f"Finds files of the workspace ({workspace.root}) that match a pattern such as src/**/*.py."
        " Files that git ignores are skipped.",
        parameters=object_schema(
            ("pattern",),
            pattern=string_schema("The pattern: * within a name, ** for any directories, {a,b} for alternatives."),
            path=string_schema("The absolute path of the directory to search. Default: the workspace."),
        ),
        annotations=READ_ONLY_ANNOTATIONS,
        source="built-in",
        retries=0,
    )


def _glob_files(workspace: Workspace, pattern: str, path: str = ".") -> str:
    """Return the paths that match a glob as text, formatted like the path that was requested."""
    requested_path = pattern if pattern.startswith("/") else path
    matches = list(islice(find_files(workspace, pattern, path), MAX_ENTRIES + 1))
    if not matches:
        return f"No files match {pattern}"
    lines = [printable_name(workspace.format_path(parts, requested_path)) for parts in matches]
    shown = count_fitting_lines(lines, MAX_ENTRIES)
    note = ["[more files match: narrow the pattern]"] if shown < len(lines) else []
    return "\n".join(lines[:shown] + note)
