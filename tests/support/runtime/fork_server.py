"""Python programs in processes that are forked from one that has imported toolwire.

Importing takes longer than most commands. A forked process has its own arguments, environment, folder and standard
streams. It ends without finalizing the interpreter, which would write to all the memory that it shares.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from tests.support.deadlines import DEADLINE
from tests.support.paths import ROOT
from toolwire.translation.stages.tool_call_parsers.signs import compile_marks

MAIN_PROGRAM = "from toolwire.cli import main; main()"
MODULES = [
    "jsonschema_rs",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "toolwire.agent",
    "toolwire.cli.ask",
    "toolwire.cli.launch",
    "toolwire.cli.run_session",
    "toolwire.cli.runs",
    "toolwire.gateway.in_process",
    "toolwire.gateway.server.http",
    "toolwire.gateway.server.launch",
    "toolwire.protocols.anthropic.rules",
    "toolwire.runtime.run.replay",
    "toolwire.runtime.tools.builtin",
    "toolwire.upstream.simulator.app",
]
"""Modules that most programs import."""

_MAX_REQUEST = 1 << 20
_NUMBER = struct.Struct("=q")


class ForkedProcess:
    """A forked process, with the interface of `subprocess.Popen` as far as the tests need it."""

    def __init__(self, status: int, stdin: int | None, stdout: int | None, stderr: int | None) -> None:
        self._status = status
        self.pid = self._read_number()
        self._returncode: int | None = None
        self.stdin = None if stdin is None else os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = None if stdout is None else os.fdopen(stdout, encoding="utf-8")
        self.stderr = None if stderr is None else os.fdopen(stderr, encoding="utf-8")

    def poll(self) -> int | None:
        """Return the exit code as `subprocess` does, or None while the process runs."""
        if self._returncode is None and select.select([self._status], [], [], 0)[0]:
            self._returncode = os.waitstatus_to_exitcode(self._read_number())
            os.close(self._status)
        return self._returncode

    def wait(self, timeout: float = DEADLINE) -> int:
        if self._returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.poll()
        return self.returncode

    @property
    def returncode(self) -> int:
        """The exit code of the ended process."""
        assert self._returncode is not None
        return self._returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended, and its status is about to arrive
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = DEADLINE) -> tuple[str, str]:
        """Return all output and errors, after the end of the process."""
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append("" if self.stderr is None else self.stderr.read()))
        reader.start()
        output = "" if self.stdout is None else self.stdout.read()
        reader.join()
        self.close_streams()
        self.wait(timeout)
        return output, errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_streams()
        self.wait()

    def close_streams(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _read_number(self) -> int:
        data = os.read(self._status, _NUMBER.size)
        assert data, "the server of forked processes ended"
        (number,) = _NUMBER.unpack(data)
        return int(number)


def start_forked(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    program: str = MAIN_PROGRAM,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    new_session: bool = False,
    preload: Iterable[str] = (),
) -> ForkedProcess:
    """Start the source of a program, by default the `toolwire` command, as `subprocess.Popen` would.

    Modules to `preload` stay imported for the programs that follow.
    """
    request = {
        "program": program,
        "arguments": arguments,
        "folder": str(folder),
        "environment": dict(environment),
        "new_session": new_session,
        "preload": [*preload],
    }
    message = json.dumps(request).encode()
    assert len(message) < _MAX_REQUEST
    with contextlib.ExitStack() as stack:
        ours: list[int | None] = []
        theirs: list[int] = []
        for number, stream in enumerate((stdin, stdout, stderr)):
            our_end, their_end = None, stream
            if stream == subprocess.STDOUT:
                their_end = theirs[1]
            elif stream == subprocess.PIPE:
                reader, writer = os.pipe()
                our_end, their_end = (writer, reader) if number == 0 else (reader, writer)
                stack.callback(os.close, their_end)
            elif stream == subprocess.DEVNULL:
                their_end = os.open(os.devnull, os.O_RDWR)
                stack.callback(os.close, their_end)
            ours.append(our_end)
            theirs.append(their_end)
        status_reader, status_writer = os.pipe()
        stack.callback(os.close, status_writer)
        socket.send_fds(_server(), [message], [*theirs, status_writer])
    return ForkedProcess(status_reader, *ours)


def run_forked(
    program: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    stdin: str = "",
    merge_streams: bool = False,
    preload: Iterable[str] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run the source of a program as `python -c` would; with `merge_streams`, stdout contains stderr too."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        process = start_forked(
            *arguments,
            folder=folder,
            environment=environment,
            program=program,
            stdin=given.fileno(),
            stdout=output.fileno(),
            stderr=output.fileno() if merge_streams else errors.fileno(),
            preload=preload,
        )
        try:
            code = process.wait()
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, _read_text(output), _read_text(errors))


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_REQUEST)
        command = [sys.executable, "-m", "tests.support.runtime.fork_server", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork a process for each request; in that process, return after running the program."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 4)
        if not message:
            break
        request = json.loads(message)
        _preload(request["preload"])
        if os.fork() == 0:
            requests.close()
            _fork_program(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        while _reap(os.WNOHANG):
            pass
    while _reap(0):
        pass


def _preload(modules: Iterable[str]) -> None:
    if missing := {*modules} - sys.modules.keys():
        for module in missing:
            importlib.import_module(module)
        gc.freeze()  # a collection would write to all the memory that the processes share


def _reap(options: int) -> bool:
    try:
        return os.waitpid(-1, options)[0] != 0
    except ChildProcessError:
        return False


def _fork_program(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Run the program in a process of its own, and report its pid and its end."""
    *streams, status_writer = descriptors
    if pid := os.fork():
        for stream in {*streams}:
            os.close(stream)
        os.write(status_writer, _NUMBER.pack(pid))
        status = os.waitpid(pid, 0)[1]
        with contextlib.suppress(BrokenPipeError):  # the test no longer waits
            os.write(status_writer, _NUMBER.pack(status))
        os._exit(0)
    os.close(status_writer)
    _reset_signals()
    if request["new_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in {*streams} - {0, 1, 2}:
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    _exit_with(_run_source(request["program"], module))


def _reset_signals() -> None:
    """Handle signals as a shell in a terminal would start a program; a background job ignores some of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _run_source(program: str, module: types.ModuleType) -> int:
    """Run a program, and return its exit code."""
    try:
        exec(compile(program, "<string>", "exec"), module.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _exit_with(code: int) -> None:
    """Exit as the interpreter does, but leave the memory as it is."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    compile_marks()  # each gateway does it at its start
    _preload(MODULES)
    _serve(socket.socket(fileno=int(sys.argv[1])))
