"""Transports to MCP servers: streamable HTTP and stdio, with limits on message sizes."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.sandbox.process import Subprocess, start_subprocess

Streams: TypeAlias = tuple[Any, Any]
"""The SDK's streams of incoming and outgoing messages, whose types are private."""

AnyProcess: TypeAlias = Subprocess | asyncio.subprocess.Process


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that fails beyond a size limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._remaining = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the body; raise `ReadError` beyond the limit."""
        async for chunk in self._stream:
            self._remaining -= len(chunk)
            if self._remaining < 0:
                raise httpx2.ReadError(f"the response is longer than {limits.MAX_MESSAGE_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._stream.aclose()


_KEEPALIVE_SECONDS = 2.0
"""Seconds for which an idle connection is used again; servers on Node close theirs after five."""


class _HttpTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that limits response sizes and detects lost sessions.

    SSE streams are limited per event by the SDK. `on_session_lost` is called when the server answers a session id with
    404, which the SDK does not distinguish from other errors.
    """

    def __init__(self, on_session_lost: Callable[[], None]) -> None:
        super().__init__(limits=httpx2.Limits(keepalive_expiry=_KEEPALIVE_SECONDS))
        self._on_session_lost = on_session_lost

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, report a lost session (status 404), and bound the response unless it is an event stream."""
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ReadError, httpx2.RemoteProtocolError):
            # The server may have closed an idle connection. Only what has no effect is sent again.
            if request.method != "GET" and request.headers.get("mcp-method") != "server/discover":
                raise
            response = await super().handle_async_request(request)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            self._on_session_lost()
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            stream = response.stream
            if isinstance(stream, httpx2.AsyncByteStream):
                response.stream = _BoundedStream(stream, limits.MAX_MESSAGE_BYTES)
        return response


@asynccontextmanager
async def open_http(
    config: McpServerConfig, auth: httpx2.Auth | None, on_session_lost: Callable[[], None]
) -> AsyncGenerator[Streams]:
    """Connect to a server's URL, ignoring proxy variables and credential files of this machine."""
    timeout = httpx2.Timeout(config.connect_timeout, read=max(config.timeout, 300))
    async with (
        httpx2.AsyncClient(
            transport=_HttpTransport(on_session_lost),
            headers=config.headers,
            timeout=timeout,
            auth=auth,
            trust_env=False,
        ) as client,
        streamable_http_client(
            config.url or "", http_client=client, max_sse_event_size=limits.MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


# Variables that a program needs to run at all. API keys of providers in our environment are not passed on.
_INHERITED_VARIABLES = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)
_INHERITED_VARIABLES_WINDOWS = (
    "APPDATA",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERPROFILE",
)
_STOP_GRACE_SECONDS = 2.0
_STDERR_TAIL_LENGTH = 2_000


def server_environment(config: McpServerConfig, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a server's program: a few inherited variables, and the configured ones."""
    names = _INHERITED_VARIABLES_WINDOWS if os.name == "nt" else _INHERITED_VARIABLES
    # Values that start with "()" are exported bash functions.
    environment = {
        name: inherited[name] for name in names if name in inherited and not inherited[name].startswith("()")
    }
    return environment | config.env


class StderrTail:
    """The end of a server's stderr output."""

    def __init__(self) -> None:
        self._tail = ""

    def add(self, text: str) -> None:
        """Append text, and keep only the end."""
        self._tail = (self._tail + text)[-_STDERR_TAIL_LENGTH:]

    @property
    def last_line(self) -> str:
        """The last line that is not empty, without control characters."""
        lines = limits.sanitize_text(self._tail, _STDERR_TAIL_LENGTH).split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


@asynccontextmanager
async def open_process(
    config: McpServerConfig, stderr_tail: StderrTail, closed: asyncio.Event
) -> AsyncGenerator[Streams]:
    """Start a server's program, and stop it on exit. `closed` is set when its output ends."""
    process = await (asyncio.create_subprocess_exec if os.name == "nt" else start_subprocess)(
        config.command or "",
        *config.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=server_environment(config),
        cwd=config.cwd,
        limit=limits.MAX_MESSAGE_BYTES,
        start_new_session=os.name != "nt",
    )
    incoming_send, incoming_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing_send, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read_stdout(process, incoming_send, closed)),
        asyncio.create_task(_write_stdin(process, outgoing_receive, incoming_send)),
        asyncio.create_task(_read_stderr(process, stderr_tail)),
    ]
    try:
        yield incoming_receive, outgoing_send
    finally:
        # Shielded: the program must be stopped even if the caller is cancelled.
        await asyncio.shield(asyncio.ensure_future(_stop_process(process)))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (incoming_send, incoming_receive, outgoing_send, outgoing_receive):
            stream.close()


async def _read_stdout(
    process: AnyProcess,
    incoming: anyio.abc.ObjectSendStream[SessionMessage | Exception],
    closed: asyncio.Event,
) -> None:
    """Forward the messages that the program writes, until its output ends or a line is too long."""
    stdout = process.stdout
    if stdout is None:
        return
    # After a line over the limit, message boundaries are unknown, so that ends the connection, too.
    end_errors = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError, EOFError, asyncio.LimitOverrunError)
    with contextlib.suppress(*end_errors):
        async with incoming:
            while True:
                if (line := await stdout.readuntil(b"\n")).strip():
                    await incoming.send(_parse_message(line))
    closed.set()


def _parse_message(line: bytes) -> SessionMessage | Exception:
    """Parse one line as a JSON-RPC message; return the error if it is invalid."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write_stdin(
    process: AnyProcess,
    outgoing: anyio.abc.ObjectReceiveStream[SessionMessage],
    incoming: anyio.abc.ObjectSendStream[SessionMessage | Exception],
) -> None:
    """Write outgoing messages to the program, one JSON text per line."""
    stdin = process.stdin
    if stdin is None:
        return
    try:
        async with outgoing:
            async for session_message in outgoing:
                line = session_message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                stdin.write(line)
                await stdin.drain()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        # The program may still run, but requests must not wait for its responses.
        await incoming.aclose()


async def _read_stderr(process: AnyProcess, stderr_tail: StderrTail) -> None:
    """Add what the program writes to stderr to the tail, until it ends."""
    if process.stderr is not None:
        while chunk := await process.stderr.read(4096):
            stderr_tail.add(chunk.decode("utf-8", "replace"))


async def _stop_process(process: AnyProcess) -> None:
    """Stop the program as MCP specifies: close its stdin, then SIGTERM, then SIGKILL to its process group."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if number is not None:
            _send_signal(process, number)
        try:
            async with asyncio.timeout(_STOP_GRACE_SECONDS):
                # Not wait(): it would also wait for child processes that hold the pipes.
                while process.returncode is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            continue
        break
    _send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    if isinstance(process, Subprocess):
        process.close()
    else:
        getattr(process, "_transport").close()  # noqa: B009 - there is no public way


def _send_signal(process: AnyProcess, number: signal.Signals) -> None:
    """Send a signal to the program and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
