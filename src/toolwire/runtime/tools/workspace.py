"""The directory that the tools are confined to, and safe access to paths in it.

1. A path is opened part by part, each below its open parent directory and never through a symbolic link. A link that is
   swapped in between check and open causes an error and is not followed.
2. For reading, a link is read and its target is opened in the same way, so links inside the workspace work and none
   leads out of it. Writing never goes through a link.
3. `..` returns to the directory that was opened before, not to the file system's `..`, and never above the root.
4. Only regular files are read and written: no devices, pipes or sockets, and nothing in `/proc`, `/sys` or `/dev`.
5. A file is written under a temporary name and renamed: there is always the old or the new content, never a part.

JSON Schemas for the parameters of the built-in tools.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from toolwire.runtime.tool import AliasedValue, ToolError

MAX_SYMLINKS = 40
"""The number of links that Linux follows in one path."""
MAX_PATH_BYTES = 3000
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Workspace:
    """The directory that the tools work in.

    `hidden` paths can't be listed, read or written. `protected` paths can't be written, and neither can files with
    `reserved_names`, wherever they are.
    """

    def __init__(
        self,
        root: Path,
        *,
        hidden: Sequence[Path] = (),
        protected: Sequence[Path] = (),
        reserved_names: Sequence[str] = (),
    ) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir() or self.root == self.root.parent:
            raise NotADirectoryError(f"the workspace {root} is not a directory, or is the root of the file system")
        self._reserved_names = frozenset(reserved_names)
        self._protected = frozenset(_path_parts(os.path.realpath(path)) for path in protected)
        # Accept both the resolved root and the root as given: a model repeats whichever it saw.
        self._roots = (_path_parts(str(self.root)), _path_parts(os.path.abspath(root)))  # noqa: PTH100
        # Paths outside the workspace can't be reached anyway.
        real = (Path(os.path.realpath(path)) for path in hidden)
        self._hidden = frozenset(_path_parts(str(path)) for path in real if self.root in path.parents)
        root_device = self.root.stat().st_dev
        special = {Path(name).stat().st_dev for name in ("/proc", "/sys", "/dev") if Path(name).exists()}
        self._special_devices = frozenset(special - {root_device})

    def split_path(self, path: str) -> tuple[str, ...]:
        """Return the parts of a path below the root, including `..`. An absolute path must begin with the root."""
        _require_valid_path(path)
        parts = _path_parts(path)
        if not path.startswith("/"):
            return parts
        for root in self._roots:
            if parts[: len(root)] == root:
                return parts[len(root) :]
        raise _outside_error(path, self.root)

    def format_path(self, parts: Sequence[str], requested_path: str) -> str:
        """Format a path like the one that was requested: absolute, or relative to the root."""
        return str(self.root.joinpath(*parts)) if requested_path.startswith("/") else "/".join(parts) or "."

    def resolve_path(self, path: str) -> str:
        """Return the absolute path with links and dots resolved; it need not exist."""
        real = os.path.realpath(self.root.joinpath(*self.split_path(path)))
        relative = real.removeprefix(f"{self.root}/")
        return AliasedValue(real, relative)

    def is_hidden(self, parts: Sequence[str]) -> bool:
        """Return whether a path, or a directory above it, is hidden."""
        path = (*self._roots[0], *parts)
        return any(path[:end] in self._hidden for end in range(1, len(path) + 1)) if self._hidden else False

    @contextmanager
    def open_directory(self, path: str) -> Iterator["OpenDirectory"]:
        """Open a directory for listing."""
        with self._walk_path(path, follow_symlinks=True) as walk:
            yield OpenDirectory(walk.enter_directory(), tuple(walk.current))

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a file, or raise `ToolError` if it is longer than `max_bytes`."""
        with self.open_file(path) as handle:
            size = os.fstat(handle).st_size
            if size > max_bytes:
                raise ToolError(f"{path} has {size} bytes; the limit is {max_bytes}", "too_large")
            return read_up_to(handle, max_bytes, path)

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """Open a regular file for reading, and yield its descriptor."""
        with self._walk_path(path, follow_symlinks=True) as walk:
            directory, name = walk.enter_parent()
            # Opening a device may have side effects, so the type is checked before, and again on the open file.
            self._require_regular_file(os.lstat(name, dir_fd=directory), path)
            handle = os.open(name, _OPEN_FILE, dir_fd=directory)
            try:
                self._require_regular_file(os.fstat(handle), path)
                yield handle
            finally:
                os.close(handle)

    def exists(self, path: str) -> bool:
        """Return whether a path exists; a link counts even if its target does not."""
        try:
            with self._walk_path(path, follow_symlinks=False) as walk:
                directory, name = walk.enter_parent()
                os.lstat(name, dir_fd=directory)
        except ToolError as error:
            if error.kind == "not_found":
                return False
            raise
        return True

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically. Directories are created, and the mode and owner of an existing file are kept."""
        with self._walk_path(path, follow_symlinks=False) as walk:
            directory, name = walk.enter_parent(create=True, for_writing=True)
            previous = self._stat_replaceable(directory, name, path)
            temporary_name = f".{name[:80]}.{secrets.token_hex(6)}.tmp"
            try:
                # The mode of a new file is 0666 minus the umask.
                handle = os.open(temporary_name, _CREATE_FILE, 0o666 if previous is None else 0o600, dir_fd=directory)
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    if previous is not None:
                        with suppress(PermissionError):
                            os.fchown(handle, previous.st_uid, previous.st_gid)
                        os.fchmod(handle, stat.S_IMODE(previous.st_mode))
                    os.fsync(handle)
                os.rename(temporary_name, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(temporary_name, dir_fd=directory)
                raise _os_error(error, path) from error

    def remove(self, path: str) -> None:
        """Delete a regular file."""
        with self._walk_path(path, follow_symlinks=False) as walk:
            directory, name = walk.enter_parent(for_writing=True)
            if self._stat_replaceable(directory, name, path) is None:
                raise ToolError(f"file not found: {path}", "not_found")
            os.unlink(name, dir_fd=directory)

    def missing_directories(self, path: str) -> list[str]:
        """Return the directories that writing a file would create, the innermost first."""
        parts = self.split_path(path)
        parents = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return list(takewhile(lambda directory: not self.exists(directory), parents))

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it exists and is empty."""
        with suppress(ToolError), self._walk_path(path, follow_symlinks=False) as walk:
            directory, name = walk.enter_parent()
            os.rmdir(name, dir_fd=directory)

    @contextmanager
    def _walk_path(self, path: str, *, follow_symlinks: bool) -> Iterator["_PathWalk"]:
        """Open a path part by part, and yield the walk; errors of the system become `ToolError`."""
        walk = _PathWalk(self, path, follow_symlinks=follow_symlinks)
        try:
            yield walk
        except OSError as error:
            raise _os_error(error, path) from error
        finally:
            walk.close()

    def _require_regular_file(self, status: os.stat_result, path: str) -> None:
        """Raise `ToolError` unless the status is that of a regular file."""
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{path} is a directory, not a file", "not_a_file")
        if not stat.S_ISREG(status.st_mode) or status.st_dev in self._special_devices:
            raise ToolError(f"{path} is not a regular file", "not_a_file")

    def _stat_replaceable(self, directory: int, name: str, path: str) -> os.stat_result | None:
        """Return the status of a file that may be replaced; None if it does not exist."""
        try:
            status = os.lstat(name, dir_fd=directory)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise _symlink_error(path)
        self._require_regular_file(status, path)
        return status

    def require_writable(self, parts: Sequence[str], path: str) -> None:
        """Raise `ToolError` for paths that the user's programs act on: configuration, and git's own files."""
        if parts[-1].casefold() in self._reserved_names or (*self._roots[0], *parts) in self._protected:
            raise ToolError(f"{path} is the user's configuration and can't be written", "protected")
        # The user's next git command would run hooks, and commands in git's configuration.
        if ".git" in (part.casefold() for part in parts):
            raise ToolError(f"{path} is in the .git directory: use git commands to change it", "protected")


class OpenDirectory:
    """An open directory, and its path below the root."""

    def __init__(self, handle: int, parts: tuple[str, ...]) -> None:
        self.handle = handle
        self.parts = parts


class _PathWalk:
    """The walk down one path. It keeps every parent directory open, so that `..` can return to it."""

    def __init__(self, workspace: Workspace, path: str, *, follow_symlinks: bool) -> None:
        self._workspace, self._path, self._follow_symlinks = workspace, path, follow_symlinks
        self._symlinks_followed = 0
        self.current = list[str]()
        self.remaining = list(workspace.split_path(path))
        self._handles = [os.open(workspace.root, _OPEN_DIRECTORY)]

    def close(self) -> None:
        """Close all directories that the walk opened."""
        for handle in self._handles:
            os.close(handle)

    def enter_directory(self) -> int:
        """Enter all parts, and return the descriptor of the directory that the path names."""
        while self.remaining:
            self._enter(self.remaining.pop(0), create=False)
        return self._handles[-1]

    def enter_parent(self, *, create: bool = False, for_writing: bool = False) -> tuple[int, str]:
        """Enter all parts but the last, following links if allowed.

        Returns the descriptor of the parent directory and the last name.
        """
        while True:
            while len(self.remaining) > 1 or self.remaining == [".."]:
                if for_writing and self.remaining[0] != "..":
                    self._workspace.require_writable([*self.current, self.remaining[0]], self._path)
                self._enter(self.remaining.pop(0), create=create)
            if not self.remaining:
                raise ToolError(f"{self._path} is a directory, not a file", "not_a_file")
            name = self.remaining[0]
            self._require_visible([*self.current, name])
            if for_writing:
                self._workspace.require_writable([*self.current, name], self._path)
            if not self._follow_symlinks or not self._expand_symlink(name):
                return self._handles[-1], name

    def _enter(self, part: str, *, create: bool) -> None:
        """Enter one part, which may be `..` or a link, and create it if requested."""
        if part == "..":
            if not self.current:
                raise _outside_error(self._path, self._workspace.root)
            os.close(self._handles.pop())
            self.current.pop()
            return
        self._require_visible([*self.current, part])
        try:
            opened = os.open(part, _OPEN_DIRECTORY, dir_fd=self._handles[-1])
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=self._handles[-1])
            opened = os.open(part, _OPEN_DIRECTORY, dir_fd=self._handles[-1])
        except OSError as error:
            # For a link, the error is ELOOP or ENOTDIR, depending on which flag the kernel checks first.
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            self.remaining.insert(0, part)
            if not self._follow_symlinks and stat.S_ISLNK(os.lstat(part, dir_fd=self._handles[-1]).st_mode):
                raise _symlink_error(self._path) from error
            if not self._expand_symlink(part):
                if len(self.remaining) == 1:
                    raise ToolError(f"{self._path} is a file, not a directory", "not_a_folder") from error
                raise
            return
        self._handles.append(opened)
        self.current.append(part)

    def _expand_symlink(self, name: str) -> bool:
        """Replace the next part with the target of its link; return False if it is not a link."""
        try:
            target = os.readlink(name, dir_fd=self._handles[-1])
        except OSError:
            return False
        self._symlinks_followed += 1
        if self._symlinks_followed > MAX_SYMLINKS:
            raise OSError(errno.ELOOP, "too many links")
        del self.remaining[0]
        parts = list(self._workspace.split_path(target))
        if target.startswith("/"):
            while self.current:
                os.close(self._handles.pop())
                self.current.pop()
        self.remaining[:0] = parts
        return True

    def _require_visible(self, parts: Sequence[str]) -> None:
        """Raise `ToolError` if the path is hidden."""
        if self._workspace.is_hidden(parts):
            raise ToolError(f"{self._path} is hidden from tools", "hidden")


def read_up_to(handle: int, max_bytes: int, path: str) -> bytes:
    """Read an open file to its end, or raise `ToolError` if it is longer than `max_bytes`."""
    content = bytearray()
    while chunk := os.read(handle, min(1 << 20, max_bytes + 1 - len(content))):
        content += chunk
        if len(content) > max_bytes:
            raise ToolError(f"{path} has more than {max_bytes} bytes", "too_large")
    return bytes(content)


def _path_parts(path: str) -> tuple[str, ...]:
    """Split a path into its parts, without empty ones and dots."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _require_valid_path(path: str) -> None:
    """Raise `ToolError` for a path that no file can have."""
    if not path:
        raise ToolError("the path is empty", "path")
    if "\0" in path:
        raise ToolError("the path contains a NUL character", "path")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolError("the path is not valid Unicode", "path") from error
    if length > MAX_PATH_BYTES:
        # It could be created part by part, but other programs could not open it.
        raise ToolError(f"the path is longer than {MAX_PATH_BYTES} bytes", "path")


def _outside_error(path: str, root: Path) -> ToolError:
    """Build the error for a path outside the workspace."""
    return ToolError(f"{path} is outside the workspace: use a path below {root}", "outside")


def _symlink_error(path: str) -> ToolError:
    """Build the error for writing through a symbolic link."""
    return ToolError(f"{path} goes through a symbolic link: write to the file itself", "link")


_ERRNO_MESSAGES = {
    errno.ENOENT: ("file not found: {path}", "not_found"),
    errno.EISDIR: ("{path} is a directory, not a file", "not_a_file"),
    errno.ENOTDIR: ("{path} has a part that is not a directory", "not_a_folder"),
    errno.ELOOP: ("{path} is a link that can't be followed", "link"),
    errno.EACCES: ("permission denied: {path}", "permission"),
    errno.EPERM: ("permission denied: {path}", "permission"),
    errno.EROFS: ("{path} can't be written: the file system is read-only", "permission"),
    errno.ENAMETOOLONG: ("{path} is too long for a path", "path"),
    errno.ENOSPC: ("{path} can't be written: no space left", "no_space"),
    errno.ENXIO: ("{path} is not a regular file", "not_a_file"),
}


def _os_error(error: OSError, path: str) -> ToolError:
    """Convert an error of the operating system to a `ToolError`."""
    shown_path = path if len(path) <= 200 else f"{path[:200]}..."
    if (known := _ERRNO_MESSAGES.get(error.errno or 0)) is None:
        return ToolError(f"can't access {shown_path}: {os.strerror(error.errno or 0)}", "io")
    template, kind = known
    return ToolError(template.replace("{path}", shown_path), kind)


def object_schema(required: tuple[str, ...], /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object. Unknown properties are rejected, so that a wrong name is reported."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def string_schema(description: str) -> dict[str, Any]:
    """Return the JSON Schema of a string."""
    return {"type": "string", "description": description}


def integer_schema(description: str, minimum: int) -> dict[str, Any]:
    """Return the JSON Schema of an integer."""
    return {"type": "integer", "minimum": minimum, "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    """Return the JSON Schema of a list of strings."""
    return {"type": "array", "items": {"type": "string"}, "description": description}
