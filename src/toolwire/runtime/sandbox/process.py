"""Subprocesses: `start_subprocess` for our own helpers, `run_process` for commands and all that they start.

However the command ends (exit, timeout, limit or cancellation), every process that it started is killed. The
processes are found by the PID namespace of the sandbox, or else by session and by a marker in their environment.
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
from typing import IO, Any

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class CommandLimits(Struct, frozen=True, kw_only=True):
    """The resource limits of one command."""

    seconds: float = 120.0
    # Bytes kept of stdout and of stderr, half from the beginning and half from the end.
    output_bytes: int = 16 * 1024
    # Bytes of output after which the command is stopped.
    max_total_output: int = 64 * MEBIBYTE
    # Memory of all its processes together, and of each.
    memory_bytes: int = 4096 * MEBIBYTE
    processes: int = 256
    # Size of each of its temporary directories.
    scratch_bytes: int = 512 * MEBIBYTE
    # Size of one file that it writes.
    file_bytes: int = 4096 * MEBIBYTE

    def wrap_command(self, command: list[str], *, limit_processes: bool) -> list[str]:
        """Return the command line that sets the limits with `ulimit` and then runs the command.

        The kernel counts processes per user, so `limit_processes` only makes sense in a namespace.
        """
        kilobytes = self.memory_bytes // 1024
        # Processes are -p in dash and -u in bash. Limits that the shell or system does not support are skipped.
        # The kernel counts threads too.
        tasks = 4 * self.processes
        process_limit = f"ulimit -p {tasks} 2>/dev/null || ulimit -u {tasks} 2>/dev/null;" if limit_processes else ""
        script = (
            f"ulimit -c 0 2>/dev/null; ulimit -d {kilobytes} 2>/dev/null;"
            f" ulimit -f {self.file_bytes // 512} 2>/dev/null;"
            f' {process_limit} exec "$@"'
        )
        return ["/bin/sh", "-c", script, "sh", *command]


COMMAND_ID_VARIABLE = "TOOLWIRE_COMMAND"
_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_STREAM_LIMIT = 64 * 1024
_FULL_SCAN_TICKS = 25
"""All processes are inspected every so many ticks, or at once if their number jumps."""


class OutputBuffer:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk, keeping only the beginning and the end of the stream."""
        self.total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return the kept text, with a note of how many bytes were cut out."""
        tail = self._tail[-self._half :]
        cut = self.total - len(self._head) - len(tail)
        if not cut:
            return (self._head + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "ignore")
        return f"{head}\n[{cut} bytes omitted]\n{tail.decode('utf-8', 'ignore')}"


class ProcessResult(Struct, frozen=True):
    """The outcome of a command."""

    output: str
    error: str
    exit_code: int
    # Why the command was stopped, if it did not exit by itself.
    stop_reason: str = ""
    error_kind: str = ""


class Subprocess:
    """A running program with streams for its pipes, like that of `asyncio.create_subprocess_exec`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._unconnected = {pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None}
        self._output_transports: list[asyncio.ReadTransport] = []
        self.pid = process.pid
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    @property
    def returncode(self) -> int | None:
        """Return the exit code; None while the program runs."""
        return self._process.poll()

    async def connect_pipes(self, limit: int) -> None:
        """Open the streams; a line may have up to `limit` bytes."""
        if self._process.stdin is not None:
            self.stdin = await self._open_writer(self._process.stdin)
        if self._process.stdout is not None:
            self.stdout = await self._open_reader(self._process.stdout, limit)
        if self._process.stderr is not None:
            self.stderr = await self._open_reader(self._process.stderr, limit)

    async def _open_reader(self, pipe: IO[bytes], limit: int) -> asyncio.StreamReader:
        """Open a stream to read from a pipe."""
        self._unconnected.discard(pipe)  # if this is cancelled, the loop closes it
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._output_transports.append(transport)
        return reader

    async def _open_writer(self, pipe: IO[bytes]) -> asyncio.StreamWriter:
        """Open a stream to write to a pipe."""
        self._unconnected.discard(pipe)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
        )
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def communicate(self, data: bytes) -> bytes:
        """Write all of stdin, read all of stdout, and wait for the exit."""
        reading = asyncio.ensure_future(_read_all(self.stdout))
        await asyncio.gather(reading, self._write_all(data), self.wait())
        return reading.result()

    async def _write_all(self, data: bytes) -> None:
        """Write stdin to its end; a program that exits early need not read it."""
        if self.stdin is not None:
            with suppress(ConnectionError):
                self.stdin.write(data)
                await self.stdin.drain()
            self.stdin.close()

    async def wait(self) -> int:
        """Wait for the exit, and return the exit code."""
        await _wait_for_exit(self._process)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, if it runs."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill the program if it runs, reap it, and close the pipes."""
        self._process.kill()
        if self.stdin is not None and not self.stdin.is_closing():
            self.stdin.transport.abort()
        for transport in self._output_transports:
            transport.close()
        for pipe in self._unconnected:
            pipe.close()
        self._process.wait()


async def _read_all(stream: asyncio.StreamReader | None) -> bytes:
    """Read a stream to its end."""
    return b"" if stream is None else await stream.read()


async def start_subprocess(program: str, *arguments: str, limit: int = _STREAM_LIMIT, **options: Any) -> Subprocess:
    """Start a program; the options are those of `subprocess.Popen`.

    `asyncio.create_subprocess_exec` connects the pipes in a task of its own, and never returns if that is cancelled
    too, as by `asyncio.run` at its end.
    """
    started = Subprocess(subprocess.Popen([program, *arguments], **options))  # noqa: ASYNC220, S603 - see `Subprocess.wait`
    connecting = asyncio.ensure_future(started.connect_pipes(limit))
    try:
        await asyncio.shield(connecting)
    except BaseException:
        try:
            await asyncio.wait([connecting])  # a moment later: uvloop does not close a pipe that is being connected
        finally:
            started.close()
        raise
    return started


async def run_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    limits: CommandLimits,
    directory: Path | None = None,
    namespaced: bool = False,
    report_progress: Callable[[str], None] = lambda _: None,
) -> ProcessResult:
    """Run a command within the limits, and kill everything it started when it ends."""
    command_id = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - waited for below without blocking
        command,
        cwd=directory,
        env={**environment, COMMAND_ID_VARIABLE: command_id},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    tracked = _Process(process, _ProcessTree(process.pid, command_id, namespaced=namespaced), limits, report_progress)
    try:
        stop_reason, error_kind = await tracked.wait()
    except BaseException:
        tracked.cancel_readers()
        raise
    finally:
        tracked.kill()
    await tracked.drain_output()
    # As in shells: 124 for a timeout, 128 plus the signal number for a killed process.
    exit_code = 124 if error_kind == "timeout" else tracked.exit_code
    return ProcessResult(tracked.output.text(), tracked.error.text(), exit_code, stop_reason, error_kind)


class _Process:
    """A running command: reads its output and waits for its end or for a limit."""

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
            asyncio.create_task(self._read_stream(stream, buffer))
            for stream, buffer in ((process.stdout, self.output), (process.stderr, self.error))
        ]

    @property
    def exit_code(self) -> int:
        """Return the exit code as shells report it."""
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    async def wait(self) -> tuple[str, str]:
        """Wait for the exit or for a limit, and return why the command must be stopped.

        Returns a message and an error kind; both are empty if the command ended by itself.
        """
        exited = asyncio.create_task(_wait_for_exit(self._process))
        output_exceeded = asyncio.create_task(self._output_exceeded.wait())
        tree_exceeded = asyncio.create_task(self._tree.wait_until_exceeding(self._limits))
        tasks = {exited, output_exceeded, tree_exceeded}
        try:
            await asyncio.wait(tasks, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return "", ""
            if tree_exceeded.done():
                return tree_exceeded.result(), "limit"
            if output_exceeded.done():
                return f"output exceeded {self._limits.max_total_output} bytes", "limit"
            return f"timed out after {self._limits.seconds:g} seconds", "timeout"
        finally:
            for task in tasks:
                task.cancel()

    def kill(self) -> None:
        """Kill the process tree and reap the process."""
        self._tree.kill()
        # Reap it last: until then, no other process can get its pid.
        self._process.wait()

    def cancel_readers(self) -> None:
        """Stop reading output, which is no longer needed."""
        for reader in self._readers:
            reader.cancel()

    async def drain_output(self) -> None:
        """Read the rest of the pipes. A process that escaped may still hold them open."""
        _, unfinished = await asyncio.wait(self._readers, timeout=1.0)
        for reader in unfinished:
            reader.cancel()

    async def _read_stream(self, stream: object, buffer: OutputBuffer) -> None:
        """Read one stream into its buffer, and report progress."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        try:
            while chunk := await reader.read(1 << 16):
                buffer.add(chunk)
                if self.output.total + self.error.total > self._limits.max_total_output:
                    self._output_exceeded.set()
                    return
                if time.monotonic() - self._progress_at > 0.5:
                    self._progress_at = time.monotonic()
                    self._report_progress(chunk[-200:].decode("utf-8", "replace").rstrip("\n").rsplit("\n", 1)[-1])
        finally:
            transport.close()


async def _wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the process exits, without reaping it, so that its pid stays reserved."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not available on this system or in this container
        while not _has_exited(process):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
        return
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether the process has exited, without reaping it if possible."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _ProcessTree:
    """A process and its descendants."""

    def __init__(self, root_pid: int, command_id: str, *, namespaced: bool) -> None:
        self._root_pid, self._marker = root_pid, f"{COMMAND_ID_VARIABLE}={command_id}".encode()
        self._namespaced = namespaced
        self._namespace: int | None = None

    async def wait_until_exceeding(self, limits: CommandLimits) -> str:
        """Wait until the tree exceeds a limit, and return a message that names the limit.

        A jump in the number of all processes is inspected at once.
        """
        initial_count = len(_all_pids())
        for tick in count(1):
            await asyncio.sleep(_POLL_SECONDS)
            has_jumped = len(_all_pids()) - initial_count > limits.processes // 2
            if not has_jumped and tick % _FULL_SCAN_TICKS:
                continue
            members = self.pids()
            if len(members) > limits.processes:
                return f"started more than {limits.processes} processes"
            if sum(map(_resident_memory, members)) > limits.memory_bytes:
                return f"used more than {limits.memory_bytes} bytes of memory"
        raise AssertionError

    def kill(self) -> None:
        """Kill all processes of the tree, repeatedly until none is left."""
        for _ in range(50):
            # Kill the group at once, so that none of it can start another process meanwhile.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root_pid, signal.SIGKILL)
            members = [pid for pid in self.pids() if not _is_dead(pid)]
            for pid in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not members:
                return

    def pids(self) -> list[int]:
        """Return the pids of all processes of the tree."""
        if self._namespaced and self._namespace is None:
            self._namespace = self._find_namespace()
        return [pid for pid in _all_pids() if self._contains(pid)]

    def _contains(self, pid: int) -> bool:
        """Return whether a process belongs to the tree."""
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
        """Return the inode of the sandbox's PID namespace: that of a descendant which differs from ours."""
        our_namespace = (_PROC / "self/ns/pid").stat().st_ino
        for pid in _all_pids():
            with suppress(OSError):
                if (
                    _session_id(pid) == self._root_pid
                    and (namespace := (_PROC / f"{pid}/ns/pid").stat().st_ino) != our_namespace
                ):
                    return namespace
        return None


def _all_pids() -> list[int]:
    """Return all pids; none if the system does not list them."""
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]  # noqa: PTH208 - faster, and called often
    except OSError:
        return []


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain anything: state, parent, group, session."""
    return (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _session_id(pid: int) -> int:
    """Return the id of the session (a group of processes) that a process belongs to."""
    return int(_stat_fields(pid)[3])


def _is_dead(pid: int) -> bool:
    """Return True if a process has ended, even if it was not reaped yet."""
    try:
        return _stat_fields(pid)[0] in ("Z", "X")
    except OSError:
        return True


def _resident_memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    try:
        pages = int((_PROC / f"{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
