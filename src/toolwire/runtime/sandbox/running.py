"""A command as a process with all that it starts: bounded while it runs, and gone when it ends.

Whatever ends it (its own exit, the time, a limit, or who called being cancelled), everything that it started is killed.
Its processes are found by the namespace of the sandbox, else by session and by a mark in their environment.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec import Struct

from .limits import Limits

MARK = "TOOLWIRE_COMMAND"
_PROCESSES = Path("/proc")
_TICK = 0.02
_LOOKED_CLOSELY = 25
"""Every so many ticks all processes are looked at, if their number gives no reason to do so at once."""


class Kept:
    """The head and the tail of a stream."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room < len(piece) else b""
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        cut = self.total - len(self._head) - len(tail)
        if not cut:
            return (self._head + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "ignore")
        return f"{head}\n[{cut} bytes are cut here]\n{tail.decode('utf-8', 'ignore')}"


class Ended(Struct, frozen=True):
    """`stopped`: why it was, if it did not end by itself."""

    output: str
    error: str
    code: int
    stopped: str = ""
    kind: str = ""


async def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: Limits,
    folder: Path | None = None,
    namespaced: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Ended:
    mark = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - it is waited for below, without blocking
        command,
        cwd=folder,
        env={**environment, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    running = _Running(process, _Tree(process.pid, mark, namespaced=namespaced), limits, progress)
    try:
        stopped, kind = await running.until_it_ends()
    except BaseException:
        running.forget()
        raise
    finally:
        running.end()
    await running.drain()
    # As shells say it: 124 for a time-out, 128 and the signal's number for what was killed.
    code = 124 if kind == "timeout" else running.code
    return Ended(running.output.text(), running.error.text(), code, stopped, kind)


class _Running:
    def __init__(
        self, process: "subprocess.Popen[bytes]", tree: "_Tree", limits: Limits, progress: Callable[[str], None]
    ) -> None:
        self._process, self._tree, self._limits, self._progress = process, tree, limits, progress
        self.output, self.error = Kept(limits.output), Kept(limits.output)
        self._flooded = asyncio.Event()
        self._told = time.monotonic()
        self._readers = [
            asyncio.create_task(self._read(stream, kept))
            for stream, kept in ((process.stdout, self.output), (process.stderr, self.error))
        ]

    @property
    def code(self) -> int:
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    async def until_it_ends(self) -> tuple[str, str]:
        exited = asyncio.create_task(_exited(self._process))
        flooded = asyncio.create_task(self._flooded.wait())
        outgrown = asyncio.create_task(self._tree.outgrows(self._limits))
        tasks = {exited, flooded, outgrown}
        try:
            await asyncio.wait(tasks, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return "", ""
            if outgrown.done():
                return outgrown.result(), "limit"
            if flooded.done():
                return f"it wrote more than {self._limits.flood} bytes", "limit"
            return f"it took longer than {self._limits.seconds:g} seconds", "timeout"
        finally:
            for task in tasks:
                task.cancel()

    def end(self) -> None:
        self._tree.kill()
        # Not before: until it is waited for, nothing else can have its number.
        self._process.wait()

    def forget(self) -> None:
        """Nobody wants what it said."""
        for reader in self._readers:
            reader.cancel()

    async def drain(self) -> None:
        """What is left in the pipes; a process that escaped may still hold them open."""
        _, late = await asyncio.wait(self._readers, timeout=1.0)
        for reader in late:
            reader.cancel()

    async def _read(self, stream: object, kept: Kept) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        try:
            while piece := await reader.read(1 << 16):
                kept.add(piece)
                if self.output.total + self.error.total > self._limits.flood:
                    self._flooded.set()
                    return
                if time.monotonic() - self._told > 0.5:
                    self._told = time.monotonic()
                    self._progress(piece[-200:].decode("utf-8", "replace").rstrip("\n").rsplit("\n", 1)[-1])
        finally:
            transport.close()


async def _exited(process: "subprocess.Popen[bytes]") -> None:
    """Without waiting for it: its number stays taken."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not on this system, or not in this container
        while not _is_over(process):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _is_over(process: "subprocess.Popen[bytes]") -> bool:
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Tree:
    """A process and what descends from it."""

    def __init__(self, root: int, mark: str, *, namespaced: bool) -> None:
        self._root, self._mark = root, f"{MARK}={mark}".encode()
        self._namespaced = namespaced
        self._namespace: int | None = None

    async def outgrows(self, limits: Limits) -> str:
        """Returns when it does, saying how. The number of all processes is cheap to see: a jump is looked into."""
        usual = len(_numbers())
        for tick in count(1):
            await asyncio.sleep(_TICK)
            grown = len(_numbers()) - usual > limits.processes // 2
            if not grown and tick % _LOOKED_CLOSELY:
                continue
            members = self.members()
            if len(members) > limits.processes:
                return f"it started more than {limits.processes} processes"
            if sum(map(_resident, members)) > limits.memory:
                return f"it took more than {limits.memory} bytes of memory"
        raise AssertionError

    def kill(self) -> None:
        for _ in range(50):
            # The group at once, so that none of it can start another between two looks.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root, signal.SIGKILL)
            members = [one for one in self.members() if not _is_dead(one)]
            for one in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            if not members:
                return

    def members(self) -> list[int]:
        if self._namespaced and self._namespace is None:
            self._namespace = self._found_namespace()
        return [number for number in _numbers() if self._has(number)]

    def _has(self, number: int) -> bool:
        try:
            if self._namespace is not None:
                return (_PROCESSES / f"{number}/ns/pid").stat().st_ino == self._namespace
            if _session(number) == self._root:
                return True
            environment = (_PROCESSES / f"{number}/environ").read_bytes()
        except OSError:
            return False
        return self._mark in environment.split(b"\0")

    def _found_namespace(self) -> int | None:
        """That of the sandbox: of a descendant that has another one than we have."""
        own = (_PROCESSES / "self/ns/pid").stat().st_ino
        for number in _numbers():
            with suppress(OSError):
                if (
                    _session(number) == self._root
                    and (inside := (_PROCESSES / f"{number}/ns/pid").stat().st_ino) != own
                ):
                    return inside
        return None


def _numbers() -> list[int]:
    """Of all processes; of none where the system does not show them."""
    try:
        return [int(name) for name in os.listdir(_PROCESSES) if name.isdecimal()]  # noqa: PTH208 - it is looked at often
    except OSError:
        return []


def _fields(number: int) -> list[str]:
    """State, parent, group, session, ...: what follows the name, which may hold anything."""
    return (_PROCESSES / f"{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _session(number: int) -> int:
    return int(_fields(number)[3])


def _is_dead(number: int) -> bool:
    try:
        return _fields(number)[0] in ("Z", "X")
    except OSError:
        return True


def _resident(number: int) -> int:
    try:
        pages = int((_PROCESSES / f"{number}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
