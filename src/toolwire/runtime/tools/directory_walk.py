"""Directory traversal in the workspace, with globs, .gitignore and safe regular expressions.

Patterns come from models, so they are matched by re2, in time linear in the text. Globs support `*` and `?` within a
name, `**` for any directories, `[a-z]` and `{a,b}`. Traversal skips files that git ignores, does not follow symbolic
links, and sorts by the bytes of the names, as ripgrep does, so that the same call gives the same list.
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
    """Compile a regular expression with re2."""
    options = re2.Options()
    # re2 would log errors to stderr.
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        message = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise ToolError(f"invalid pattern: {message}", "pattern") from error


MAX_GLOB_LENGTH = 1000
_GLOB_CHARACTERS = frozenset("*?[{")


def is_glob(path: str) -> bool:
    """Return True if a path contains glob characters such as `*`."""
    return not _GLOB_CHARACTERS.isdisjoint(path)


def matches_glob(path: str, pattern: str) -> bool:
    """Return whether a complete path matches a glob."""
    return bool(_compile_glob(pattern.removeprefix("./")).fullmatch(path))


def matches_glob_anywhere(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob. A glob without a slash matches names in any directory."""
    glob = pattern.removeprefix("./")
    return matches_glob(path, glob if "/" in glob else f"**/{glob}")


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> Any:
    """Compile a glob to a regular expression; raise `ToolError` if it is too long."""
    if len(pattern) > MAX_GLOB_LENGTH:
        raise ToolError(f"the pattern is longer than {MAX_GLOB_LENGTH} characters", "pattern")
    return compile_pattern(_translate_glob(pattern))


def _translate_glob(pattern: str) -> str:
    """Translate a glob to the source of a regular expression."""
    parts, position, depth = list[str](), 0, 0
    while position < len(pattern):
        remaining, character = pattern[position:], pattern[position]
        step = 1
        if remaining.startswith("**/") and (position == 0 or pattern[position - 1] in "/{,"):
            parts.append("(?:[^/]+/)*")
            step = 3
        elif remaining.startswith("**"):
            parts.append(".*")
            step = len(remaining) - len(remaining.lstrip("*"))
        elif character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[" and (end := pattern.find("]", position + 2)) > 0:
            parts.append(_character_class(pattern[position + 1 : end]))
            step = end + 1 - position
        elif character == "{" and "}" in remaining:
            depth += 1
            parts.append("(?:")
        elif character == "}" and depth:
            depth -= 1
            parts.append(")")
        elif character == "," and depth:
            parts.append("|")
        elif character == "\\" and len(remaining) > 1:
            parts.append(escape_pattern(remaining[1]))
            step = 2
        else:
            parts.append(escape_pattern(character))
        position += step
    return "(?s)" + "".join(parts) + ")" * depth


def _character_class(body: str) -> str:
    """Translate the inside of `[...]` to a character class of a regular expression."""
    negation, members = ("^/", body[1:]) if body[:1] in ("!", "^") else ("", body)
    return "[" + negation + members.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^") + "]"


MAX_VISITED_ENTRIES = 200_000
MAX_DEPTH = 100
"""Deeper directories are not entered."""
_MAX_GITIGNORE_BYTES = 1024 * 1024
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_files(workspace: Workspace, pattern: str, path: str = ".") -> Iterator[tuple[str, ...]]:
    """Yield the files whose path below `path` matches a glob, each as its parts below the root.

    An absolute pattern starts at the root.
    """
    if pattern.startswith("/"):
        path, pattern = ".", "/".join(workspace.split_path(pattern))
    with workspace.open_directory(path) as folder:
        depth = len(folder.parts)
    return (parts for parts in walk_files(workspace, path) if matches_glob("/".join(parts[depth:]), pattern))


def walk_files(workspace: Workspace, path: str) -> Iterator[tuple[str, ...]]:
    """Iterate over the regular files below a directory that git does not ignore, as their parts below the root."""
    with workspace.open_directory(path) as folder:
        yield from _Walker(workspace).walk(folder.handle, folder.parts)


class GitIgnore:
    """The `.gitignore` files of the workspace, each read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._specs = dict[tuple[str, ...], GitIgnoreSpec | None]()

    def ignores(self, parts: tuple[str, ...], *, is_directory: bool) -> bool:
        """Return whether a path itself is ignored. The nearest `.gitignore` with a matching rule decides."""
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(parts[:depth])
            if spec is None:
                continue
            ignored = spec.check_file("/".join(parts[depth:]) + ("/" if is_directory else "")).include
            if ignored is not None:
                return ignored
        return False

    def ignores_path(self, depth: int, parts: tuple[str, ...]) -> bool:
        """Return whether a file is ignored, or a directory on its path below the first `depth` parts."""
        ends = range(depth + 1, len(parts) + 1)
        return any(self.ignores(parts[:end], is_directory=end < len(parts)) for end in ends)

    def _spec(self, parts: tuple[str, ...]) -> GitIgnoreSpec | None:
        """Return the rules of the `.gitignore` in a directory, if there is one."""
        if parts not in self._specs:
            self._specs[parts] = self._read_spec("/".join((*parts, ".gitignore")))
        return self._specs[parts]

    def _read_spec(self, path: str) -> GitIgnoreSpec | None:
        """Read the rules of a `.gitignore` file; None if it can't be read."""
        try:
            lines = self._workspace.read(path, _MAX_GITIGNORE_BYTES).decode("utf-8", "replace").splitlines()
        except ToolError:
            return None
        return GitIgnoreSpec.from_lines(filter(_is_valid_rule, lines), backend="re2")


def _is_valid_rule(line: str) -> bool:
    """Return whether a rule can be parsed. Like git, we skip rules that can't."""
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


class _Walker:
    """One traversal, limited in the number of entries."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._gitignore = GitIgnore(workspace)
        self._visited = 0

    def walk(self, handle: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the files below an open directory, each as its parts below the root."""
        with os.scandir(handle) as listed:
            entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
        self._visited += len(entries)
        if self._visited > MAX_VISITED_ENTRIES:
            raise ToolError(f"more than {MAX_VISITED_ENTRIES} files: choose a deeper directory", "too_large")
        for entry in entries:
            entry_parts = (*parts, entry.name)
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # deleted meanwhile
                continue
            is_directory = stat.S_ISDIR(mode)
            if (
                entry.name == ".git"
                or self._workspace.is_hidden(entry_parts)
                or self._gitignore.ignores(entry_parts, is_directory=is_directory)
            ):
                continue
            if stat.S_ISREG(mode):
                yield entry_parts
            elif is_directory and len(entry_parts) < MAX_DEPTH:
                yield from self._walk_subdirectory(handle, entry_parts)

    def _walk_subdirectory(self, handle: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Open a subdirectory without following links, and yield the files below it."""
        try:
            subdirectory = os.open(parts[-1], _OPEN_DIRECTORY, dir_fd=handle)
        except OSError:  # deleted, not permitted, or a link by now
            return
        try:
            yield from self.walk(subdirectory, parts)
        finally:
            os.close(subdirectory)
