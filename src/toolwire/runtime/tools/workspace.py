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

from toolwire.runtime.toolset import Spelled, ToolFault

MOST_LINKS = 40
"""As many as the kernel follows in one path."""
LONGEST = 3000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Workspace:
    """`hidden` are paths that are there for nobody: whose names and contents no tool gives or takes. `protected`
    are paths that are not written, and `reserved` names that are not, wherever they stand."""

    def __init__(
        self, root: Path, *, hidden: Sequence[Path] = (), protected: Sequence[Path] = (), reserved: Sequence[str] = ()
    ) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir() or self.root == self.root.parent:
            raise NotADirectoryError(f"the workspace {root} is no folder, or is the whole file system")
        self._reserved = frozenset(reserved)
        self._protected = frozenset(_split(os.path.realpath(path)) for path in protected)
        # Below the root as it was named, and as it is: a model repeats whichever it was told.
        self._roots = (_split(str(self.root)), _split(os.path.abspath(root)))  # noqa: PTH100
        # What is above the workspace is hidden by it being the workspace.
        real = (Path(os.path.realpath(path)) for path in hidden)
        self._hidden = frozenset(_split(str(path)) for path in real if self.root in path.parents)
        own = self.root.stat().st_dev
        special = {Path(name).stat().st_dev for name in ("/proc", "/sys", "/dev") if Path(name).exists()}
        self._special = frozenset(special - {own})

    def parts(self, path: str) -> tuple[str, ...]:
        """The path's parts below the root, `..` among them. What is absolute must begin with the root."""
        _legible(path)
        parts = _split(path)
        if not path.startswith("/"):
            return parts
        for root in self._roots:
            if parts[: len(root)] == root:
                return parts[len(root) :]
        raise _outside(path, self.root)

    def spelled(self, parts: Sequence[str], like: str) -> str:
        """How a path is told: absolute if the one that was asked for is, else from the root."""
        return str(self.root.joinpath(*parts)) if like.startswith("/") else "/".join(parts) or "."

    def resolved(self, path: str) -> str:
        """The absolute path that is meant, whatever links and dots lead there; it need not exist."""
        real = os.path.realpath(self.root.joinpath(*self.parts(path)))
        inside = real.removeprefix(f"{self.root}/")
        return Spelled(real, inside)

    def is_hidden(self, parts: Sequence[str]) -> bool:
        whole = (*self._roots[0], *parts)
        return any(whole[:end] in self._hidden for end in range(1, len(whole) + 1)) if self._hidden else False

    @contextmanager
    def folder(self, path: str) -> Iterator["Folder"]:
        """An open folder, to be listed."""
        with self._walked(path, links=True) as walk:
            yield Folder(walk.descend_whole(), tuple(walk.here))

    def read(self, path: str, most: int) -> bytes:
        """A file's bytes. One that is longer than `most` is refused."""
        with self.opened(path) as handle:
            size = os.fstat(handle).st_size
            if size > most:
                raise ToolFault(f"{path} has {size} bytes; the most that can be taken is {most}", "too_large")
            return read_up_to(handle, most, path)

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """An open regular file."""
        with self._walked(path, links=True) as walk:
            folder, name = walk.descend()
            # Opening a device can do something already, so it is looked at before, and again once it is held.
            self._regular(os.lstat(name, dir_fd=folder), path)
            handle = os.open(name, _FILE, dir_fd=folder)
            try:
                self._regular(os.fstat(handle), path)
                yield handle
            finally:
                os.close(handle)

    def exists(self, path: str) -> bool:
        """Whether anything stands there: a link counts for itself."""
        try:
            with self._walked(path, links=False) as walk:
                folder, name = walk.descend()
                os.lstat(name, dir_fd=folder)
        except ToolFault as fault:
            if fault.kind == "not_found":
                return False
            raise
        return True

    def write(self, path: str, content: bytes) -> None:
        with self._walked(path, links=False) as walk:
            folder, name = walk.descend(make=True, writes=True)
            earlier = self._replaceable(folder, name, path)
            beside = f".{name[:80]}.{secrets.token_hex(6)}.tmp"
            try:
                # A new file's mode is what the process's mask leaves of 666.
                handle = os.open(beside, _NEW, 0o666 if earlier is None else 0o600, dir_fd=folder)
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
                raise _fault(error, path) from error

    def remove(self, path: str) -> None:
        with self._walked(path, links=False) as walk:
            folder, name = walk.descend(writes=True)
            if self._replaceable(folder, name, path) is None:
                raise ToolFault(f"{path} is not there", "not_found")
            os.unlink(name, dir_fd=folder)

    def missing_folders(self, path: str) -> list[str]:
        """What would have to be made for a file there, the innermost first."""
        parts = self.parts(path)
        above = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return list(takewhile(lambda folder: not self.exists(folder), above))

    def remove_folder(self, path: str) -> None:
        """If it is there and empty."""
        with suppress(ToolFault), self._walked(path, links=False) as walk:
            folder, name = walk.descend()
            os.rmdir(name, dir_fd=folder)

    @contextmanager
    def _walked(self, path: str, *, links: bool) -> Iterator["_Walk"]:
        walk = _Walk(self, path, links=links)
        try:
            yield walk
        except OSError as error:
            raise _fault(error, path) from error
        finally:
            walk.close()

    def _regular(self, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolFault(f"{path} is a folder, not a file", "not_a_file")
        if not stat.S_ISREG(status.st_mode) or status.st_dev in self._special:
            raise ToolFault(f"{path} is no regular file", "not_a_file")

    def _replaceable(self, folder: int, name: str, path: str) -> os.stat_result | None:
        try:
            status = os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise _through_a_link(path)
        self._regular(status, path)
        return status

    def check_written(self, parts: Sequence[str], path: str) -> None:
        """What the person's own programs will act on is not ours to write."""
        if parts[-1].casefold() in self._reserved or (*self._roots[0], *parts) in self._protected:
            raise ToolFault(f"{path} is the person's own configuration, and is not written", "protected")
        # What stands there is run by the next git command of the person: hooks, and commands in the configuration.
        if ".git" in (part.casefold() for part in parts):
            raise ToolFault(f"{path} is in git's own folder, which is written by git commands only", "protected")


class Folder:
    """An open folder, and its place below the root."""

    def __init__(self, handle: int, parts: tuple[str, ...]) -> None:
        self.handle = handle
        self.parts = parts


class _Walk:
    """One way down. It holds every folder that it came through, so that `..` can go back."""

    def __init__(self, workspace: Workspace, path: str, *, links: bool) -> None:
        self._workspace, self._path, self._links = workspace, path, links
        self._met = 0
        self.here = list[str]()
        self.ahead = list(workspace.parts(path))
        self._folders = [os.open(workspace.root, _FOLDER)]

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def descend_whole(self) -> int:
        """Into all of it: the folder that the path names."""
        while self.ahead:
            self._into(self.ahead.pop(0), make=False)
        return self._folders[-1]

    def descend(self, *, make: bool = False, writes: bool = False) -> tuple[int, str]:
        """Down to the last part, which is not opened but is no link to be followed: its folder, and its name."""
        while True:
            while len(self.ahead) > 1 or self.ahead == [".."]:
                if writes and self.ahead[0] != "..":
                    self._workspace.check_written([*self.here, self.ahead[0]], self._path)
                self._into(self.ahead.pop(0), make=make)
            if not self.ahead:
                raise ToolFault(f"{self._path} is a folder, not a file", "not_a_file")
            name = self.ahead[0]
            self._check([*self.here, name])
            if writes:
                self._workspace.check_written([*self.here, name], self._path)
            if not self._links or not self._expanded(name):
                return self._folders[-1], name

    def _into(self, part: str, *, make: bool) -> None:
        if part == "..":
            if not self.here:
                raise _outside(self._path, self._workspace.root)
            os.close(self._folders.pop())
            self.here.pop()
            return
        self._check([*self.here, part])
        try:
            opened = os.open(part, _FOLDER, dir_fd=self._folders[-1])
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=self._folders[-1])
            opened = os.open(part, _FOLDER, dir_fd=self._folders[-1])
        except OSError as error:
            # A link gives ELOOP where O_NOFOLLOW is looked at first, ENOTDIR where O_DIRECTORY is.
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            self.ahead.insert(0, part)
            if not self._links and stat.S_ISLNK(os.lstat(part, dir_fd=self._folders[-1]).st_mode):
                raise _through_a_link(self._path) from error
            if not self._expanded(part):
                if len(self.ahead) == 1:
                    raise ToolFault(f"{self._path} is a file, not a folder", "not_a_folder") from error
                raise
            return
        self._folders.append(opened)
        self.here.append(part)

    def _expanded(self, name: str) -> bool:
        """Whether the next part is a link; its target's parts then stand in its place."""
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError:
            return False
        self._met += 1
        if self._met > MOST_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        del self.ahead[0]
        parts = list(self._workspace.parts(target))
        if target.startswith("/"):
            while self.here:
                os.close(self._folders.pop())
                self.here.pop()
        self.ahead[:0] = parts
        return True

    def _check(self, parts: Sequence[str]) -> None:
        if self._workspace.is_hidden(parts):
            raise ToolFault(f"{self._path} is kept from the tools", "hidden")


def read_up_to(handle: int, most: int, path: str) -> bytes:
    """All of an open file, though it may grow meanwhile."""
    found = bytearray()
    while piece := os.read(handle, min(1 << 20, most + 1 - len(found))):
        found += piece
        if len(found) > most:
            raise ToolFault(f"{path} has more than {most} bytes", "too_large")
    return bytes(found)


def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _legible(path: str) -> None:
    if not path:
        raise ToolFault("the path is empty", "path")
    if "\0" in path:
        raise ToolFault("the path has a NUL character", "path")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolFault("the path is not valid Unicode", "path") from error
    if length > LONGEST:
        # Part by part it could be made, and then nobody else could open it.
        raise ToolFault(f"the path is longer than {LONGEST} bytes", "path")


def _outside(path: str, root: Path) -> ToolFault:
    return ToolFault(f"{path} is outside the workspace: give a path below {root}", "outside")


def _through_a_link(path: str) -> ToolFault:
    return ToolFault(f"{path} goes through a symbolic link: write to the file itself", "link")


_SAID = {
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


def _fault(error: OSError, path: str) -> ToolFault:
    shown = path if len(path) <= 200 else f"{path[:200]}..."
    said, kind = _SAID.get(error.errno or 0, (f"can't be used: {os.strerror(error.errno or 0)}", "io"))
    return ToolFault(f"{shown} {said}", kind)
