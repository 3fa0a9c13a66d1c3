"""The folder that the tools are confined to, and how a path in it is opened.

1. A path is walked part by part. Each part is opened below the open folder before it and never through a link, so that
   a link that is swapped in between looking and opening is met by an error, not followed.
2. A link is read and its target walked in the same way, from where it stands. So links inside the workspace work for
   who reads, and none leads out of it, whatever it says. Who writes goes through no link at all.
3. `..` goes back to the folder that was come from, never by the file system's own `..`, and not above the root.
4. Only regular files are read and written: no devices, pipes or sockets, and nothing of `/proc`, `/sys` and `/dev`.
5. A file is written beside its place and renamed onto it: there is the old or the new, never half of one.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from toolwire.runtime.tool import AliasedValue, ToolError

MAX_SYMLINKS = 40
"""As many as the kernel follows in one path."""
MAX_PATH_BYTES = 3000
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Workspace:
    """`hidden` are paths that are there for nobody: whose names and contents no tool gives or takes. `protected`
    are paths that are not written, and `reserved` names that are not, wherever they stand."""

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
            raise NotADirectoryError(f"the workspace {root} is no folder, or is the whole file system")
        self._reserved_names = frozenset(reserved_names)
        self._protected = frozenset(_path_parts(os.path.realpath(path)) for path in protected)
        # Below the root as it was named, and as it is: a model repeats whichever it was told.
        self._roots = (_path_parts(str(self.root)), _path_parts(os.path.abspath(root)))  # noqa: PTH100
        # What is above the workspace is hidden by it being the workspace.
        real = (Path(os.path.realpath(path)) for path in hidden)
        self._hidden = frozenset(_path_parts(str(path)) for path in real if self.root in path.parents)
        own = self.root.stat().st_dev
        special = {Path(name).stat().st_dev for name in ("/proc", "/sys", "/dev") if Path(name).exists()}
        self._special_devices = frozenset(special - {own})

    def split_path(self, path: str) -> tuple[str, ...]:
        """The path's parts below the root, `..` among them. What is absolute must begin with the root."""
        _require_valid_path(path)
        parts = _path_parts(path)
        if not path.startswith("/"):
            return parts
        for root in self._roots:
            if parts[: len(root)] == root:
                return parts[len(root) :]
        raise _outside_error(path, self.root)

    def format_path(self, parts: Sequence[str], requested_path: str) -> str:
        """How a path is told: absolute if the one that was asked for is, else from the root."""
        return str(self.root.joinpath(*parts)) if requested_path.startswith("/") else "/".join(parts) or "."

    def resolve_path(self, path: str) -> str:
        """The absolute path that is meant, whatever links and dots lead there; it need not exist."""
        real = os.path.realpath(self.root.joinpath(*self.split_path(path)))
        inside = real.removeprefix(f"{self.root}/")
        return AliasedValue(real, inside)

    def is_hidden(self, parts: Sequence[str]) -> bool:
        whole = (*self._roots[0], *parts)
        return any(whole[:end] in self._hidden for end in range(1, len(whole) + 1)) if self._hidden else False

    @contextmanager
    def open_directory(self, path: str) -> Iterator["OpenDirectory"]:
        """An open folder, to be listed."""
        with self._walk_path(path, follow_symlinks=True) as walk:
            yield OpenDirectory(walk.enter_directory(), tuple(walk.current))

    def read(self, path: str, max_bytes: int) -> bytes:
        """A file's bytes. One that is longer than `most` is refused."""
        with self.open_file(path) as handle:
            size = os.fstat(handle).st_size
            if size > max_bytes:
                raise ToolError(f"{path} has {size} bytes; the most that can be taken is {max_bytes}", "too_large")
            return read_up_to(handle, max_bytes, path)

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """An open regular file."""
        with self._walk_path(path, follow_symlinks=True) as walk:
            folder, name = walk.enter_parent()
            # Opening a device can do something already, so it is looked at before, and again once it is held.
            self._require_regular_file(os.lstat(name, dir_fd=folder), path)
            handle = os.open(name, _OPEN_FILE, dir_fd=folder)
            try:
                self._require_regular_file(os.fstat(handle), path)
                yield handle
            finally:
                os.close(handle)

    def exists(self, path: str) -> bool:
        """Whether anything stands there: a link counts for itself."""
        try:
            with self._walk_path(path, follow_symlinks=False) as walk:
                folder, name = walk.enter_parent()
                os.lstat(name, dir_fd=folder)
        except ToolError as fault:
            if fault.kind == "not_found":
                return False
            raise
        return True

    def write(self, path: str, content: bytes) -> None:
        with self._walk_path(path, follow_symlinks=False) as walk:
            folder, name = walk.enter_parent(create=True, for_writing=True)
            earlier = self._stat_replaceable(folder, name, path)
            beside = f".{name[:80]}.{secrets.token_hex(6)}.tmp"
            try:
                # A new file's mode is what the process's mask leaves of 666.
                handle = os.open(beside, _CREATE_FILE, 0o666 if earlier is None else 0o600, dir_fd=folder)
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    if earlier is not None:
                        with suppress(PermissionError):
                            os.fchown(handle, earlier.st_uid, earlier.st_gid)
                        os.fchmod(handle, stat.S_IMODE(earlier.st_mode))
                    os.fsync(handle)
                os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
                raise _os_error(error, path) from error

    def remove(self, path: str) -> None:
        with self._walk_path(path, follow_symlinks=False) as walk:
            folder, name = walk.enter_parent(for_writing=True)
            if self._stat_replaceable(folder, name, path) is None:
                raise ToolError(f"{path} is not there", "not_found")
            os.unlink(name, dir_fd=folder)

    def missing_directories(self, path: str) -> list[str]:
        """What would have to be made for a file there, the innermost first."""
        parts = self.split_path(path)
        above = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return list(takewhile(lambda folder: not self.exists(folder), above))

    def remove_directory(self, path: str) -> None:
        """If it is there and empty."""
        with suppress(ToolError), self._walk_path(path, follow_symlinks=False) as walk:
            folder, name = walk.enter_parent()
            os.rmdir(name, dir_fd=folder)

    @contextmanager
    def _walk_path(self, path: str, *, follow_symlinks: bool) -> Iterator["_PathWalk"]:
        walk = _PathWalk(self, path, follow_symlinks=follow_symlinks)
        try:
            yield walk
        except OSError as error:
            raise _os_error(error, path) from error
        finally:
            walk.close()

    def _require_regular_file(self, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{path} is a folder, not a file", "not_a_file")
        if not stat.S_ISREG(status.st_mode) or status.st_dev in self._special_devices:
            raise ToolError(f"{path} is no regular file", "not_a_file")

    def _stat_replaceable(self, directory: int, name: str, path: str) -> os.stat_result | None:
        try:
            status = os.lstat(name, dir_fd=directory)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise _symlink_error(path)
        self._require_regular_file(status, path)
        return status

    def require_writable(self, parts: Sequence[str], path: str) -> None:
        """What the person's own programs will act on is not ours to write."""
        if parts[-1].casefold() in self._reserved_names or (*self._roots[0], *parts) in self._protected:
            raise ToolError(f"{path} is the person's own configuration, and is not written", "protected")
        # What stands there is run by the next git command of the person: hooks, and commands in the configuration.
        if ".git" in (part.casefold() for part in parts):
            raise ToolError(f"{path} is in git's own folder, which is written by git commands only", "protected")


class OpenDirectory:
    """An open folder, and its place below the root."""

    def __init__(self, handle: int, parts: tuple[str, ...]) -> None:
        self.handle = handle
        self.parts = parts


class _PathWalk:
    """One way down. It holds every folder that it came through, so that `..` can go back."""

    def __init__(self, workspace: Workspace, path: str, *, follow_symlinks: bool) -> None:
        self._workspace, self._path, self._follow_symlinks = workspace, path, follow_symlinks
        self._symlinks_followed = 0
        self.current = list[str]()
        self.remaining = list(workspace.split_path(path))
        self._handles = [os.open(workspace.root, _OPEN_DIRECTORY)]

    def close(self) -> None:
        for folder in self._handles:
            os.close(folder)

    def enter_directory(self) -> int:
        """Into all of it: the folder that the path names."""
        while self.remaining:
            self._enter(self.remaining.pop(0), create=False)
        return self._handles[-1]

    def enter_parent(self, *, create: bool = False, for_writing: bool = False) -> tuple[int, str]:
        """Down to the last part, which is not opened but is no link to be followed: its folder, and its name."""
        while True:
            while len(self.remaining) > 1 or self.remaining == [".."]:
                if for_writing and self.remaining[0] != "..":
                    self._workspace.require_writable([*self.current, self.remaining[0]], self._path)
                self._enter(self.remaining.pop(0), create=create)
            if not self.remaining:
                raise ToolError(f"{self._path} is a folder, not a file", "not_a_file")
            name = self.remaining[0]
            self._require_visible([*self.current, name])
            if for_writing:
                self._workspace.require_writable([*self.current, name], self._path)
            if not self._follow_symlinks or not self._expand_symlink(name):
                return self._handles[-1], name

    def _enter(self, part: str, *, create: bool) -> None:
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
            # A link gives ELOOP where O_NOFOLLOW is looked at first, ENOTDIR where O_DIRECTORY is.
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            self.remaining.insert(0, part)
            if not self._follow_symlinks and stat.S_ISLNK(os.lstat(part, dir_fd=self._handles[-1]).st_mode):
                raise _symlink_error(self._path) from error
            if not self._expand_symlink(part):
                if len(self.remaining) == 1:
                    raise ToolError(f"{self._path} is a file, not a folder", "not_a_folder") from error
                raise
            return
        self._handles.append(opened)
        self.current.append(part)

    def _expand_symlink(self, name: str) -> bool:
        """Whether the next part is a link; its target's parts then stand in its place."""
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
        if self._workspace.is_hidden(parts):
            raise ToolError(f"{self._path} is kept from the tools", "hidden")


def read_up_to(handle: int, max_bytes: int, path: str) -> bytes:
    """All of an open file, though it may grow meanwhile."""
    found = bytearray()
    while piece := os.read(handle, min(1 << 20, max_bytes + 1 - len(found))):
        found += piece
        if len(found) > max_bytes:
            raise ToolError(f"{path} has more than {max_bytes} bytes", "too_large")
    return bytes(found)


def _path_parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _require_valid_path(path: str) -> None:
    if not path:
        raise ToolError("the path is empty", "path")
    if "\0" in path:
        raise ToolError("the path has a NUL character", "path")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolError("the path is not valid Unicode", "path") from error
    if length > MAX_PATH_BYTES:
        # Part by part it could be made, and then nobody else could open it.
        raise ToolError(f"the path is longer than {MAX_PATH_BYTES} bytes", "path")


def _outside_error(path: str, root: Path) -> ToolError:
    return ToolError(f"{path} is outside the workspace: give a path below {root}", "outside")


def _symlink_error(path: str) -> ToolError:
    return ToolError(f"{path} goes through a symbolic link: write to the file itself", "link")


_ERRNO_MESSAGES = {
    errno.ENOENT: ("is not there", "not_found"),
    errno.EISDIR: ("is a folder, not a file", "not_a_file"),
    errno.ENOTDIR: ("has a part that is no folder", "not_a_folder"),
    errno.ELOOP: ("is a link that can't be followed", "link"),
    errno.EACCES: ("may not be used: permission denied", "permission"),
    errno.EPERM: ("may not be used: permission denied", "permission"),
    errno.EROFS: ("can't be written: the file system is read-only", "permission"),
    errno.ENAMETOOLONG: ("is too long for a path", "path"),
    errno.ENOSPC: ("can't be written: no space is left", "no_space"),
    errno.ENXIO: ("is no regular file", "not_a_file"),
}


def _os_error(error: OSError, path: str) -> ToolError:
    shown = path if len(path) <= 200 else f"{path[:200]}..."
    said, kind = _ERRNO_MESSAGES.get(error.errno or 0, (f"can't be used: {os.strerror(error.errno or 0)}", "io"))
    return ToolError(f"{shown} {said}", kind)
