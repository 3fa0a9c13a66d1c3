"""The connection to one MCP server: opened on first use, and reopened with exponential backoff after a failure.

The SDK's session runs in its own task, because it must be closed by the task that opened it; requests come from any
task. The protocol version is negotiated once per connection.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import mcp_types as types
from mcp import MCPError
from mcp.client import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen

from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.oauth import BrowserLauncher, SignInRequired, oauth_provider
from toolwire.runtime.mcp.server_requests import ServerRequests
from toolwire.runtime.mcp.session import Session, negotiate
from toolwire.runtime.mcp.transports import StderrTail, Streams, open_http, open_process

_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 0.5, 60.0
_SIGN_IN_TIMEOUT = 330.0
_STDIO_PROBE_TIMEOUT = 10.0
"""Seconds to wait for `server/discover`: old programs may ignore requests before the handshake."""


class ServerUnavailable(ToolwireError):
    """An MCP server can't be reached or started."""


class _SessionState:
    """Notes whether the server has lost the HTTP session."""

    is_lost = False

    def mark_lost(self) -> None:
        """Note that the server no longer knows the session."""
        self.is_lost = True


class ServerConnection:
    """A connection to one MCP server.

    `on_change` is called when the server reports a changed tool list, and after a reconnect.
    """

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        *,
        requests: ServerRequests,
        on_change: Callable[[], None],
        token_folder: Path | None = None,
        open_browser: BrowserLauncher | None = None,
    ) -> None:
        self._name = name
        self._config = config
        self._requests = requests
        self._on_change = on_change
        self._token_folder = token_folder
        self._open_browser = open_browser
        self._open_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._closed = asyncio.Event()
        # Earlier sessions, too: calls in progress still ask about them.
        self._sessions: deque[tuple[Session, _SessionState]] = deque(maxlen=4)
        self._failures = 0
        self._retry_at = 0.0
        self._reconnect_task: asyncio.Task[None] | None = None
        self.error = "not connected yet"

    @property
    def is_alive(self) -> bool:
        """True while a session is open."""
        return self._session is not None and not self._closed.is_set()

    @property
    def is_failing(self) -> bool:
        """True if the last attempt to connect failed."""
        return self._failures > 0 and not self.is_alive

    def reconnect_in_background(self) -> None:
        """Start to reconnect unless it is too early, so that no turn waits for a failing server."""
        if self._reconnect_task is None and time.monotonic() >= self._retry_at:
            self._reconnect_task = asyncio.create_task(self._reconnect(), name=f"mcp {self._name} reconnect")

    async def _reconnect(self) -> None:
        """Connect again, and announce the server's tools if that succeeds, as the background task."""
        try:
            await self.session()
        except ServerUnavailable:
            return
        finally:
            self._reconnect_task = None
        self._on_change()

    async def session(self) -> Session:
        """Return an open session, connecting if needed; raise `ServerUnavailable` if that fails."""
        async with self._open_lock:
            if self._session is not None and not self._closed.is_set():
                return self._session
            await self._close_session()
            if (wait := self._retry_at - time.monotonic()) > 0:
                raise ServerUnavailable(f"{self.error} (retrying in {wait:.0f} s)")
            return await self._connect()

    def is_session_lost(self, session: Session) -> bool:
        """Return True if the server lost this session, and so did not process the request."""
        return any(state.is_lost for known, state in self._sessions if known is session)

    def mark_broken(self, reason: str) -> None:
        """Close the connection after a request showed that it is broken."""
        self.error = reason
        self._closed.set()

    async def close(self) -> None:
        """Close the connection and stop reconnecting."""
        if self._reconnect_task is not None:
            self._reconnect_task.cancel()
            await asyncio.wait([self._reconnect_task])
        async with self._open_lock:
            await self._close_session()
            self.error = "closed"

    async def _close_session(self) -> None:
        """Close the current session, and wait for its task to end."""
        self._session = None
        self._closed.set()
        if self._task is not None:
            task, self._task = self._task, None
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # retrieved so that asyncio does not log it: it was reported before

    async def _connect(self) -> Session:
        """Start the session's task and wait until it is connected."""
        self._closed = asyncio.Event()
        ready: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_session(ready), name=f"mcp {self._name}")
        try:
            async with asyncio.timeout(self._connect_timeout):
                self._session = await asyncio.shield(ready)
        except TimeoutError:
            self.error = f"no response within {self._connect_timeout:g} seconds"
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - no failure of one server may affect the others
            self.error = describe_error(error)
        else:
            self._failures = 0
            self.error = ""
            return self._session
        self._task.cancel()
        self._retry_at = time.monotonic() + min(_MAX_RETRY_DELAY, _MIN_RETRY_DELAY * 2**self._failures)
        self._failures += 1
        raise ServerUnavailable(self.error)

    async def _run_session(self, ready: asyncio.Future[Session]) -> None:
        """Run the SDK's session until the connection is closed. `ready` receives the session, or the error."""
        stderr_tail, state = StderrTail(), _SessionState()
        try:
            async with AsyncExitStack() as stack:
                streams = await stack.enter_async_context(self._open_transport(stderr_tail, state))
                session = await stack.enter_async_context(self._build_session(streams))
                await self._negotiate(session)
                self._sessions.append((session, state))
                ready.set_result(session)
                async with asyncio.TaskGroup() as group:
                    watch_task = group.create_task(self._watch_tool_changes(session))
                    await self._closed.wait()
                    watch_task.cancel()
        except BaseException as error:
            self._closed.set()
            if ready.done():
                raise
            if stderr_tail.last_line and not isinstance(_first_error(error), SignInRequired | ServerUnavailable):
                error = ServerUnavailable(f"{describe_error(error)}; stderr: {stderr_tail.last_line}")
            ready.set_exception(error)
            # Retrieved so that asyncio does not log it if the waiting caller was cancelled.
            ready.exception()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _negotiate(self, session: Session) -> None:
        """Agree on a protocol version, and ask an older server for its logs."""
        version, timeout = self._config.version, max(self._config.timeout, self._connect_timeout)
        # Over HTTP, the first request includes those of the sign-in.
        is_program = self._config.command is not None
        probe_timeout = (
            _STDIO_PROBE_TIMEOUT
            if is_program
            else _SIGN_IN_TIMEOUT
            if self._open_browser
            else self._config.connect_timeout / 2
        )
        await negotiate(session, version, probe_timeout=probe_timeout, timeout=timeout)
        if version not in ("auto", session.version):
            raise ServerUnavailable(f"it uses protocol version {session.version}, but {version} is configured")
        await self._requests.request_logs(session)

    @property
    def _connect_timeout(self) -> float:
        """Seconds to wait for a connection, with enough time for a person to sign in."""
        return _SIGN_IN_TIMEOUT if self._open_browser else self._config.connect_timeout

    def _build_session(self, streams: Streams) -> Session:
        """Build the SDK's session with our answers to the server's requests, and change notifications."""

        async def handle_message(message: IncomingMessage) -> None:
            """Report a notification that the server's tool list changed."""
            if isinstance(message, types.ToolListChangedNotification):
                self._on_change()

        return Session(
            streams,
            self._requests.capabilities,
            message_handler=handle_message,
            read_timeout_seconds=self._config.timeout,
            **self._requests.callbacks(),
        )

    @asynccontextmanager
    async def _open_transport(self, stderr_tail: StderrTail, state: _SessionState) -> AsyncGenerator[Streams]:
        """Start the server's program, or connect to its URL with OAuth."""
        if (reason := self._config.unavailable_reason) is not None:
            raise ServerUnavailable(reason)
        if self._config.command is not None:
            async with open_process(self._config, stderr_tail, self._closed) as streams:
                yield streams
            return
        async with (
            oauth_provider(self._name, self._config, self._token_folder, self._open_browser) as auth,
            open_http(self._config, auth, state.mark_lost) as streams,
        ):
            yield streams

    async def _watch_tool_changes(self, session: Session) -> None:
        """Listen for tool list changes, which the newer protocol version sends on a separate stream."""
        capabilities = session.server_capabilities
        tools = None if capabilities is None else capabilities.tools
        if not session.is_modern or tools is None or not tools.list_changed:
            return
        delay = _MIN_RETRY_DELAY
        while delay <= _MAX_RETRY_DELAY:
            try:
                async with listen(session, tools_list_changed=True) as events:
                    delay = _MIN_RETRY_DELAY
                    async for _ in events:
                        self._on_change()
            except SubscriptionLost:
                self._on_change()
            except Exception:  # noqa: BLE001, S110 - the connection itself works without this stream
                pass
            await asyncio.sleep(delay)
            delay *= 2


def _first_error(error: BaseException) -> BaseException:
    """Return the first error of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """Describe an error in one line."""
    error = _first_error(error)
    if isinstance(error, MCPError):
        return f"{error.message} ({error.code})"
    if isinstance(error, FileNotFoundError):
        hint = " (put its arguments into `args`)" if " " in str(error.filename) else ""
        return f"command not found: {error.filename}{hint}"
    text = " ".join(str(error).split())
    if isinstance(error, httpx2.ConnectError):
        # Without path and query, which may hold a key.
        origin = error.request.url.copy_with(path="/", query=None, userinfo=b"")
        reason = "" if text == "All connection attempts failed" else f" ({text})"
        return f"can't connect to {origin}{reason}"[:300]
    return text[:300] if text else type(error).__name__
