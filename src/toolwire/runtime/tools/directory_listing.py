"""The entries of a directory as text."""

import os
import stat

from toolwire.runtime.tools.excerpt import count_fitting_lines
from toolwire.runtime.tools.workspace import Workspace

MAX_ENTRIES = 1000


def list_entries(workspace: Workspace, path: str) -> str:
    """Return a directory's entries as text, one per line, up to the limit."""
    with workspace.open_directory(path) as directory:
        lines = list[str]()
        for name in sorted(os.listdir(directory.handle), key=os.fsencode):  # noqa: PTH208 - an open directory
            if not workspace.is_hidden((*directory.parts, name)):
                lines.append(_format_entry(directory.handle, name))
    if not lines:
        return "(empty)"
    shown = count_fitting_lines(lines, MAX_ENTRIES)
    note = [f"[{len(lines) - shown} more entries not listed]"] if shown < len(lines) else []
    return "\n".join(lines[:shown] + note)


def _format_entry(directory: int, name: str) -> str:
    """Format an entry of an open directory: directories with a slash, links with their target."""
    label = printable_name(name)
    try:
        mode = os.lstat(name, dir_fd=directory).st_mode
        if stat.S_ISLNK(mode):
            return f"{label} -> {printable_name(os.readlink(name, dir_fd=directory))}"
    except OSError:
        return label
    return f"{label}/" if stat.S_ISDIR(mode) else label


def printable_name(name: str) -> str:
    """Escape control characters and undecodable bytes in a file name."""
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in plain)
