"""How much a command may take.

A command as a process with all that it starts: bounded while it runs, and gone when it ends.

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

MEBIBYTE = 1024 * 1024


class CommandLimits(Struct, frozen=True, kw_only=True):
    """`output`: bytes that are kept of each of the two streams, of its head and its tail. `flood`: bytes after which it
    is stopped. `memory` is for all its processes together, and for each. `scratch`: bytes of each of its temporary
    folders. `largest`: bytes of one file that it writes."""

    seconds: float = 120.0
    output_bytes: int = 16 * 1024
    max_total_output: int = 64 * MEBIBYTE
    memory_bytes: int = 4096 * MEBIBYTE
    processes: int = 256
    scratch_bytes: int = 512 * MEBIBYTE
    file_bytes: int = 4096 * MEBIBYTE

    def wrap_command(self, command: list[str], *, limit_processes: bool) -> list[str]:
        """Set by a shell in the child itself, so that they hold from its first process on. Processes are counted for
        the whole user where there is no namespace, so the kernel can bound them only where there is one."""
        kilobytes = self.memory_bytes // 1024
        # -p is dash's word for processes, and -u bash's; a limit that a shell or a system does not know is left out.
        # Threads count with the kernel, too.
        tasks = 4 * self.processes
        many = f"ulimit -p {tasks} 2>/dev/null || ulimit -u {tasks} 2>/dev/null;" if limit_processes else ""
        script = (
            f"ulimit -c 0 2>/dev/null; ulimit -d {kilobytes} 2>/dev/null;"
            f" ulimit -f {self.file_bytes // 512} 2>/dev/null;"
            f' {many} exec "$@"'
        )
        return ["/bin/sh", "-c", script, "sh", *command]


COMMAND_ID_VARIABLE = "TOOLWIRE_COMMAND"
_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_FULL_SCAN_TICKS = 25
"""Every so many ticks all processes are looked at, if their number gives no reason to do so at once."""


class OutputBuffer:
    """The head and the tail of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        tail = self._tail[-self._half :]
        cut = self.total - len(self._head) - len(tail)
        if not cut:
            return (self._head + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "ignore")
        return f"{head}\n[{cut} bytes are cut here]\n{tail.decode('utf-8', 'ignore')}"


class ProcessResult(Struct, frozen=True):
    """`stopped`: why it was, if it did not end by itself."""

    output: str
    error: str
    exit_code: int
    stop_reason: str = ""
    error_kind: str = ""


async def run_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: CommandLimits,
    directory: Path | None = None,
    namespaced: bool = False,
    report_progress: Callable[[str], None] = lambda _: None,
) -> ProcessResult:
    mark = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - it is waited for below, without blocking
        command,
        cwd=directory,
        env={**environment, COMMAND_ID_VARIABLE: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    running = _Process(process, _ProcessTree(process.pid, mark, namespaced=namespaced), limits, report_progress)
    try:
        stopped, kind = await running.wait()
    except BaseException:
        running.cancel_readers()
        raise
    finally:
        running.kill()
    await running.drain_output()
    # As shells say it: 124 for a time-out, 128 and the signal's number for what was killed.
    code = 124 if kind == "timeout" else running.exit_code
    return ProcessResult(running.output.text(), running.error.text(), code, stopped, kind)


class _Process:
    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        tree: "_ProcessTree",
        limits: CommandLimits,
        report_progress: Callable[[str], None],
    ) -> None:
        self._process, self._tree, self._limits, self._report_progress = process, tree, limits, report_progress
        self.output, self.error = OutputBuffer(limits.output_bytes), OutputBuffer(limits.output_bytes)
        self._output_exceeded = asyncio.Event()
        self._progress_at = time.monotonic()
        self._readers = [
            asyncio.create_task(self._read_stream(stream, kept))
            for stream, kept in ((process.stdout, self.output), (process.stderr, self.error))
        ]

    @property
    def exit_code(self) -> int:
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    async def wait(self) -> tuple[str, str]:
        exited = asyncio.create_task(_wait_for_exit(self._process))
        flooded = asyncio.create_task(self._output_exceeded.wait())
        outgrown = asyncio.create_task(self._tree.wait_until_exceeding(self._limits))
        tasks = {exited, flooded, outgrown}
        try:
            await asyncio.wait(tasks, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return "", ""
            if outgrown.done():
                return outgrown.result(), "limit"
            if flooded.done():
                return f"it wrote more than {self._limits.max_total_output} bytes", "limit"
            return f"it took longer than {self._limits.seconds:g} seconds", "timeout"
        finally:
            for task in tasks:
                task.cancel()

    def kill(self) -> None:
        self._tree.kill()
        # Not before: until it is waited for, nothing else can have its number.
        self._process.wait()

    def cancel_readers(self) -> None:
        """Nobody wants what it said."""
        for reader in self._readers:
            reader.cancel()

    async def drain_output(self) -> None:
        """What is left in the pipes; a process that escaped may still hold them open."""
        _, late = await asyncio.wait(self._readers, timeout=1.0)
        for reader in late:
            reader.cancel()

    async def _read_stream(self, stream: object, buffer: OutputBuffer) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        try:
            while piece := await reader.read(1 << 16):
                buffer.add(piece)
                if self.output.total + self.error.total > self._limits.max_total_output:
                    self._output_exceeded.set()
                    return
                if time.monotonic() - self._progress_at > 0.5:
                    self._progress_at = time.monotonic()
                    self._report_progress(piece[-200:].decode("utf-8", "replace").rstrip("\n").rsplit("\n", 1)[-1])
        finally:
            transport.close()


async def _wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    """Without waiting for it: its number stays taken."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not on this system, or not in this container
        while not _has_exited(process):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _ProcessTree:
    """A process and what descends from it."""

    def __init__(self, root_pid: int, command_id: str, *, namespaced: bool) -> None:
        self._root_pid, self._marker = root_pid, f"{COMMAND_ID_VARIABLE}={command_id}".encode()
        self._namespaced = namespaced
        self._namespace: int | None = None

    async def wait_until_exceeding(self, limits: CommandLimits) -> str:
        """Returns when it does, saying how. The number of all processes is cheap to see: a jump is looked into."""
        usual = len(_all_pids())
        for tick in count(1):
            await asyncio.sleep(_POLL_SECONDS)
            grown = len(_all_pids()) - usual > limits.processes // 2
            if not grown and tick % _FULL_SCAN_TICKS:
                continue
            members = self.pids()
            if len(members) > limits.processes:
                return f"it started more than {limits.processes} processes"
            if sum(map(_resident_memory, members)) > limits.memory_bytes:
                return f"it took more than {limits.memory_bytes} bytes of memory"
        raise AssertionError

    def kill(self) -> None:
        for _ in range(50):
            # The group at once, so that none of it can start another between two looks.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root_pid, signal.SIGKILL)
            members = [one for one in self.pids() if not _is_dead(one)]
            for one in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            if not members:
                return

    def pids(self) -> list[int]:
        if self._namespaced and self._namespace is None:
            self._namespace = self._find_namespace()
        return [number for number in _all_pids() if self._contains(number)]

    def _contains(self, pid: int) -> bool:
        try:
            if self._namespace is not None:
                return (_PROC / f"{pid}/ns/pid").stat().st_ino == self._namespace
            if _session_id(pid) == self._root_pid:
                return True
            environment = (_PROC / f"{pid}/environ").read_bytes()
        except OSError:
            return False
        return self._marker in environment.split(b"\0")

    def _find_namespace(self) -> int | None:
        """That of the sandbox: of a descendant that has another one than we have."""
        own = (_PROC / "self/ns/pid").stat().st_ino
        for number in _all_pids():
            with suppress(OSError):
                if (
                    _session_id(number) == self._root_pid
                    and (inside := (_PROC / f"{number}/ns/pid").stat().st_ino) != own
                ):
                    return inside
        return None


def _all_pids() -> list[int]:
    """Of all processes; of none where the system does not show them."""
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]  # noqa: PTH208 - it is looked at often
    except OSError:
        return []


def _stat_fields(pid: int) -> list[str]:
    """State, parent, group, session, ...: what follows the name, which may hold anything."""
    return (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _session_id(pid: int) -> int:
    return int(_stat_fields(pid)[3])


def _is_dead(pid: int) -> bool:
    try:
        return _stat_fields(pid)[0] in ("Z", "X")
    except OSError:
        return True


def _resident_memory(pid: int) -> int:
    try:
        pages = int((_PROC / f"{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
