"""Python programs in processes that are forked from one that has imported toolwire.

Importing takes longer than most commands. A forked process has its own arguments, environment, folder and standard
streams, and ends as any other.
"""

import atexit
import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.support.deadlines import DEADLINE
from tests.support.paths import ROOT

_MAX_REQUEST = 1 << 20


def run_forked(
    program: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    stdin: str = "",
    merge_streams: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Run the source of a program as `python -c` would; with `merge_streams`, stdout contains stderr too."""
    request = {"program": program, "arguments": arguments, "folder": str(folder), "environment": dict(environment)}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        streams = [given, output, output if merge_streams else errors]
        code = _wait_for_exit(_start(request, streams))
        return subprocess.CompletedProcess(arguments, code, _read_text(output), _read_text(errors))


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _start(request: Mapping[str, Any], streams: Sequence[IO[bytes]]) -> int:
    """Start the program, and return a descriptor from which its pid and then its exit status can be read."""
    status_reader, status_writer = os.pipe()
    descriptors = [*(stream.fileno() for stream in streams), status_writer]
    message = json.dumps(request).encode()
    assert len(message) < _MAX_REQUEST
    socket.send_fds(_server(), [message], descriptors)
    os.close(status_writer)
    return status_reader


def _wait_for_exit(status_reader: int) -> int:
    """Wait for the end of the program, and return its exit code as `subprocess` does."""
    with os.fdopen(status_reader, "rb", buffering=0) as status:
        pid = int(_read_line(status))
        try:
            return os.waitstatus_to_exitcode(int(_read_line(status)))
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise


def _read_line(status: io.RawIOBase) -> bytes:
    assert select.select([status], [], [], DEADLINE)[0], "the program did not end"
    line = status.read(16)
    assert line, "the server of forked processes ended"
    return line


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
        if os.fork() == 0:
            requests.close()
            _fork_program(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        while _reap(os.WNOHANG):
            pass
    while _reap(0):
        pass


def _reap(options: int) -> bool:
    try:
        return os.waitpid(-1, options)[0] != 0
    except ChildProcessError:
        return False


def _fork_program(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Run the program in a process of its own, which returns, and report its end."""
    *streams, status_writer = descriptors
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        os.write(status_writer, b"%d\n" % pid)
        status = os.waitpid(pid, 0)[1]
        with contextlib.suppress(BrokenPipeError):  # the test no longer waits
            os.write(status_writer, b"%d\n" % status)
        os._exit(0)
    os.close(status_writer)
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
    exec(compile(request["program"], "<string>", "exec"), module.__dict__)


def _import_commands() -> None:
    import jsonschema_rs  # noqa: F401
    import uvicorn.protocols.http.httptools_impl
    import uvicorn.protocols.websockets.websockets_sansio_impl  # noqa: F401

    import toolwire.agent
    import toolwire.cli.ask
    import toolwire.cli.run_session
    import toolwire.cli.runs
    import toolwire.gateway.in_process
    import toolwire.gateway.server.http
    import toolwire.protocols.anthropic.rules
    import toolwire.runtime.run.replay
    import toolwire.runtime.tools.builtin
    import toolwire.upstream.simulator.app  # noqa: F401


if __name__ == "__main__":
    _import_commands()
    gc.freeze()  # a collection would write to all the memory that the processes share
    _serve(socket.socket(fileno=int(sys.argv[1])))
