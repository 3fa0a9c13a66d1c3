"""Going through the folders of the workspace: what git ignores is left out, and links are not followed.

Order is that of the names' bytes, folder by folder, as ripgrep sorts: the same calls give the same lists.
"""

import os
import re
import stat
from collections.abc import Iterator

from pathspec import GitIgnoreSpec

from toolwire.runtime.toolset import ToolFault

from .globs import matches
from .workspace import Workspace

MOST_VISITED = 200_000
DEEPEST = 100
"""Folders further down are not entered."""
_MOST_IGNORED = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def matching(workspace: Workspace, pattern: str, path: str = ".") -> Iterator[tuple[str, ...]]:
    """The files whose path from the folder on matches, each as its parts below the root. An absolute pattern starts at
    the root."""
    if pattern.startswith("/"):
        path, pattern = ".", "/".join(workspace.parts(pattern))
    with workspace.folder(path) as folder:
        depth = len(folder.parts)
    return (found for found in walked(workspace, path) if matches("/".join(found[depth:]), pattern))


def walked(workspace: Workspace, path: str) -> Iterator[tuple[str, ...]]:
    """Every regular file below a folder that git does not ignore, as its parts below the root."""
    with workspace.folder(path) as folder:
        yield from _Going(workspace).below(folder.handle, folder.parts)


class Ignoring:
    """What the `.gitignore` files of the workspace say, each read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._specs = dict[tuple[str, ...], GitIgnoreSpec | None]()

    def ignores(self, parts: tuple[str, ...], *, folder: bool) -> bool:
        """Whether it is ignored itself. The nearest folder that says something decides."""
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(parts[:depth])
            if spec is None:
                continue
            said = spec.check_file("/".join(parts[depth:]) + ("/" if folder else "")).include
            if said is not None:
                return said
        return False

    def ignores_below(self, start: int, parts: tuple[str, ...]) -> bool:
        """Whether a file is, or a folder on the way to it from so many parts on."""
        ways = range(start + 1, len(parts) + 1)
        return any(self.ignores(parts[:end], folder=end < len(parts)) for end in ways)

    def _spec(self, parts: tuple[str, ...]) -> GitIgnoreSpec | None:
        if parts not in self._specs:
            self._specs[parts] = self._read("/".join((*parts, ".gitignore")))
        return self._specs[parts]

    def _read(self, path: str) -> GitIgnoreSpec | None:
        try:
            lines = self._workspace.read(path, _MOST_IGNORED).decode("utf-8", "replace").splitlines()
        except ToolFault:
            return None
        return GitIgnoreSpec.from_lines(filter(_is_rule, lines), backend="re2")


def _is_rule(line: str) -> bool:
    """One that can't be read is passed over, as git does."""
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


class _Going:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ignoring = Ignoring(workspace)
        self._visited = 0

    def below(self, handle: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        with os.scandir(handle) as listed:
            entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
        self._visited += len(entries)
        if self._visited > MOST_VISITED:
            raise ToolFault(f"there are more than {MOST_VISITED} files: name a folder further down", "too_large")
        for entry in entries:
            here = (*parts, entry.name)
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # gone meanwhile
                continue
            folder = stat.S_ISDIR(mode)
            if entry.name == ".git" or self._workspace.is_hidden(here) or self._ignoring.ignores(here, folder=folder):
                continue
            if stat.S_ISREG(mode):
                yield here
            elif folder and len(here) < DEEPEST:
                yield from self._entered(handle, here)

    def _entered(self, handle: int, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        try:
            inner = os.open(here[-1], _FOLDER, dir_fd=handle)
        except OSError:  # gone, closed to us, or a link by now
            return
        try:
            yield from self.below(inner, here)
        finally:
            os.close(inner)
