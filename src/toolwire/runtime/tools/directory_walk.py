"""Regular expressions that a model wrote, matched by re2: in time linear in the text, so that none holds things up.

Glob patterns for paths: `*` and `?` within a name, `**` for any folders, `[a-z]`, `{a,b}`.

They become regular expressions, which are matched in time linear in the path.

Going through the folders of the workspace: what git ignores is left out, and links are not followed.

Order is that of the names' bytes, folder by folder, as ripgrep sorts: the same calls give the same lists.
"""

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2
from pathspec import GitIgnoreSpec

from toolwire.runtime.tool import ToolError
from toolwire.runtime.tools.workspace import Workspace

escape_pattern = re2.escape


def compile_pattern(pattern: str | bytes) -> Any:
    options = re2.Options()
    # It would write them to stderr.
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ToolError(f"the pattern can't be used: {told}", "pattern") from error


MAX_GLOB_LENGTH = 1000
_GLOB_CHARACTERS = frozenset("*?[{")


def is_glob(path: str) -> bool:
    return not _GLOB_CHARACTERS.isdisjoint(path)


def matches_glob(path: str, pattern: str) -> bool:
    return bool(_compile_glob(pattern.removeprefix("./")).fullmatch(path))


def matches_glob_anywhere(path: str, pattern: str) -> bool:
    """As `include` is meant: a pattern with no slash is for names in any folder."""
    given = pattern.removeprefix("./")
    return matches_glob(path, given if "/" in given else f"**/{given}")


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> Any:
    if len(pattern) > MAX_GLOB_LENGTH:
        raise ToolError(f"the pattern is longer than {MAX_GLOB_LENGTH} characters", "pattern")
    return compile_pattern(_translate_glob(pattern))


def _translate_glob(pattern: str) -> str:
    made, at, depth = list[str](), 0, 0
    while at < len(pattern):
        rest, one = pattern[at:], pattern[at]
        step = 1
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] in "/{,"):
            made.append("(?:[^/]+/)*")
            step = 3
        elif rest.startswith("**"):
            made.append(".*")
            step = len(rest) - len(rest.lstrip("*"))
        elif one == "*":
            made.append("[^/]*")
        elif one == "?":
            made.append("[^/]")
        elif one == "[" and (end := pattern.find("]", at + 2)) > 0:
            made.append(_character_class(pattern[at + 1 : end]))
            step = end + 1 - at
        elif one == "{" and "}" in rest:
            depth += 1
            made.append("(?:")
        elif one == "}" and depth:
            depth -= 1
            made.append(")")
        elif one == "," and depth:
            made.append("|")
        elif one == "\\" and len(rest) > 1:
            made.append(escape_pattern(rest[1]))
            step = 2
        else:
            made.append(escape_pattern(one))
        at += step
    return "(?s)" + "".join(made) + ")" * depth


def _character_class(body: str) -> str:
    sign, named = ("^/", body[1:]) if body[:1] in ("!", "^") else ("", body)
    return "[" + sign + named.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^") + "]"


MAX_VISITED_ENTRIES = 200_000
MAX_DEPTH = 100
"""Folders further down are not entered."""
_MAX_GITIGNORE_BYTES = 1024 * 1024
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_files(workspace: Workspace, pattern: str, path: str = ".") -> Iterator[tuple[str, ...]]:
    """The files whose path from the folder on matches, each as its parts below the root. An absolute pattern starts at
    the root."""
    if pattern.startswith("/"):
        path, pattern = ".", "/".join(workspace.split_path(pattern))
    with workspace.open_directory(path) as folder:
        depth = len(folder.parts)
    return (found for found in walk_files(workspace, path) if matches_glob("/".join(found[depth:]), pattern))


def walk_files(workspace: Workspace, path: str) -> Iterator[tuple[str, ...]]:
    """Every regular file below a folder that git does not ignore, as its parts below the root."""
    with workspace.open_directory(path) as folder:
        yield from _Walker(workspace).walk(folder.handle, folder.parts)


class GitIgnore:
    """What the `.gitignore` files of the workspace say, each read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._specs = dict[tuple[str, ...], GitIgnoreSpec | None]()

    def ignores(self, parts: tuple[str, ...], *, is_directory: bool) -> bool:
        """Whether it is ignored itself. The nearest folder that says something decides."""
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(parts[:depth])
            if spec is None:
                continue
            said = spec.check_file("/".join(parts[depth:]) + ("/" if is_directory else "")).include
            if said is not None:
                return said
        return False

    def ignores_path(self, depth: int, parts: tuple[str, ...]) -> bool:
        """Whether a file is, or a folder on the way to it from so many parts on."""
        ways = range(depth + 1, len(parts) + 1)
        return any(self.ignores(parts[:end], is_directory=end < len(parts)) for end in ways)

    def _spec(self, parts: tuple[str, ...]) -> GitIgnoreSpec | None:
        if parts not in self._specs:
            self._specs[parts] = self._read_spec("/".join((*parts, ".gitignore")))
        return self._specs[parts]

    def _read_spec(self, path: str) -> GitIgnoreSpec | None:
        try:
            lines = self._workspace.read(path, _MAX_GITIGNORE_BYTES).decode("utf-8", "replace").splitlines()
        except ToolError:
            return None
        return GitIgnoreSpec.from_lines(filter(_is_valid_rule, lines), backend="re2")


def _is_valid_rule(line: str) -> bool:
    """One that can't be read is passed over, as git does."""
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


class _Walker:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._gitignore = GitIgnore(workspace)
        self._visited = 0

    def walk(self, handle: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        with os.scandir(handle) as listed:
            entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
        self._visited += len(entries)
        if self._visited > MAX_VISITED_ENTRIES:
            raise ToolError(f"there are more than {MAX_VISITED_ENTRIES} files: name a folder further down", "too_large")
        for entry in entries:
            here = (*parts, entry.name)
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # gone meanwhile
                continue
            folder = stat.S_ISDIR(mode)
            if (
                entry.name == ".git"
                or self._workspace.is_hidden(here)
                or self._gitignore.ignores(here, is_directory=folder)
            ):
                continue
            if stat.S_ISREG(mode):
                yield here
            elif folder and len(here) < MAX_DEPTH:
                yield from self._walk_subdirectory(handle, here)

    def _walk_subdirectory(self, handle: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        try:
            inner = os.open(parts[-1], _OPEN_DIRECTORY, dir_fd=handle)
        except OSError:  # gone, closed to us, or a link by now
            return
        try:
            yield from self.walk(inner, parts)
        finally:
            os.close(inner)
