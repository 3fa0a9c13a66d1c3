"""A server that is a program: its lines, bounded, and its end, whatever it does."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from . import bounds
from .settings import Server

# What a program needs to run at all. Keys of providers are in the environment of whoever starts us, and not in here.
_PASSED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
_PASSED_WINDOWS = ("APPDATA", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERPROFILE")
_GRACE = 2.0
_TAIL = 2_000


def environment_of(server: Server, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    names = _PASSED_WINDOWS if os.name == "nt" else _PASSED
    # A value that begins so is a function of a shell.
    passed = {name: inherited[name] for name in names if name in inherited and not inherited[name].startswith("()")}
    return passed | server.env


class Complaints:
    """The last of what a server wrote to stderr."""

    def __init__(self) -> None:
        self._tail = ""

    def add(self, text: str) -> None:
        self._tail = (self._tail + text)[-_TAIL:]

    @property
    def last(self) -> str:
        lines = bounds.readable(self._tail, _TAIL).split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


@asynccontextmanager
async def running(server: Server, complaints: Complaints, ended: asyncio.Event) -> AsyncGenerator[TransportStreams]:
    """`ended` is set when nothing more will come."""
    process = await asyncio.create_subprocess_exec(
        server.command or "",
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment_of(server),
        cwd=server.cwd,
        limit=bounds.MESSAGE,
        start_new_session=os.name != "nt",
    )
    received_in, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, sent_out = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, received_in, ended)),
        asyncio.create_task(_write(process, sent_out, received_in)),
        asyncio.create_task(_listen(process, complaints)),
    ]
    try:
        yield received, sent
    finally:
        # Neither a cancelled caller nor a server that ignores its end may leave the program running.
        await asyncio.shield(asyncio.ensure_future(_stop(process)))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (received_in, received, sent, sent_out):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process,
    received: anyio.abc.ObjectSendStream[SessionMessage | Exception],
    ended: asyncio.Event,
) -> None:
    stdout = process.stdout
    if stdout is None:
        return
    # The last three: the end, or a line over the limit, after which nothing is sure to be where it belongs.
    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError, EOFError, asyncio.LimitOverrunError)
    with contextlib.suppress(*gone):
        async with received:
            while True:
                if (line := await stdout.readuntil(b"\n")).strip():
                    await received.send(_message(line))
    ended.set()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    process: asyncio.subprocess.Process,
    sent: anyio.abc.ObjectReceiveStream[SessionMessage],
    received: anyio.abc.ObjectSendStream[SessionMessage | Exception],
) -> None:
    stdin = process.stdin
    if stdin is None:
        return
    try:
        async with sent:
            async for one in sent:
                stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        # The program may live on: who waits for its answer must not.
        await received.aclose()


async def _listen(process: asyncio.subprocess.Process, complaints: Complaints) -> None:
    if process.stderr is not None:
        while chunk := await process.stderr.read(4096):
            complaints.add(chunk.decode("utf-8", "replace"))


async def _stop(process: asyncio.subprocess.Process) -> None:
    """As the specification has it: close its input, then ask, then end it with all that it started."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if number is not None:
            _signal(process, number)
        try:
            async with asyncio.timeout(_GRACE):
                # Not wait(): a child that holds the pipes would be waited for.
                while process.returncode is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            continue
        break
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
