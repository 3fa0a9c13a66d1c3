"""The way to one server: opened when it is first needed, and opened anew, with more and more patience, when it broke.

The SDK's client lives in one task of its own, because what it opens must be closed where it was opened; requests come
from any task. The version is negotiated once for each connection: a connection speaks one version or it is not there.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import mcp_types as types
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ElicitationFnT, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolwire.canonical.errors import ToolwireError

from .addresses import reaching
from .identity import NAME, VERSION
from .oauth import Browse, SignInNeeded, signing_in
from .process import Complaints, running
from .settings import Server

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_SIGN_IN = 330.0


class Unavailable(ToolwireError):
    """The server can't be reached; the message says why."""


class _Session:
    """Whether the server still knows it."""

    forgotten = False

    def forget(self) -> None:
        self.forgotten = True


class Connection:
    """`changed` is called when the server says that its tools are others now."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        elicit: ElicitationFnT,
        changed: Callable[[], None],
        folder: Path | None = None,
        browse: Browse | None = None,
    ) -> None:
        self._name = name
        self._server = server
        self._elicit = elicit
        self._changed = changed
        self._folder = folder
        self._browse = browse
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._ended = asyncio.Event()
        # Those before the last too: calls that were under way still ask.
        self._sessions: deque[tuple[Client, _Session]] = deque(maxlen=4)
        self._failures = 0
        self._not_before = 0.0
        self._again: asyncio.Task[None] | None = None
        self.why = "not opened yet"

    @property
    def alive(self) -> bool:
        return self._client is not None and not self._ended.is_set()

    @property
    def failing(self) -> bool:
        return self._failures > 0 and not self.alive

    def try_again(self) -> None:
        """When it is time, in the background: nobody waits for a server that failed before."""
        if self._again is None and time.monotonic() >= self._not_before:
            self._again = asyncio.create_task(self._tried(), name=f"mcp {self._name} again")

    async def _tried(self) -> None:
        try:
            await self.client()
        except Unavailable:
            return
        finally:
            self._again = None
        self._changed()

    async def client(self) -> Client:
        """A client that is connected, or `Unavailable`."""
        async with self._opening:
            if self._client is not None and not self._ended.is_set():
                return self._client
            await self._end()
            if (wait := self._not_before - time.monotonic()) > 0:
                raise Unavailable(f"{self.why} (tried again in {wait:.0f} s)")
            return await self._connect()

    def is_forgotten(self, client: Client) -> bool:
        """Whether the server has lost this client's session, and so has not looked at what it was sent."""
        return any(session.forgotten for one, session in self._sessions if one is client)

    def broke(self, why: str) -> None:
        """A request found out."""
        self.why = why
        self._ended.set()

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait([self._again])
        async with self._opening:
            await self._end()
            self.why = "closed"

    async def _end(self) -> None:
        self._client = None
        self._ended.set()
        if self._task is not None:
            task, self._task = self._task, None
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # what it ended with was told before

    async def _connect(self) -> Client:
        self._ended = asyncio.Event()
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready), name=f"mcp {self._name}")
        try:
            async with asyncio.timeout(_SIGN_IN if self._browse else self._server.connect_timeout):
                self._client = await asyncio.shield(ready)
        except TimeoutError:
            self.why = f"it did not answer within {self._server.connect_timeout:g} seconds"
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other servers go on
            self.why = said(error)
        else:
            self._failures = 0
            self.why = ""
            return self._client
        self._task.cancel()
        self._not_before = time.monotonic() + min(_LONGEST_WAIT, _FIRST_WAIT * 2**self._failures)
        self._failures += 1
        raise Unavailable(self.why)

    async def _live(self, ready: asyncio.Future[Client]) -> None:
        complaints, session = Complaints(), _Session()
        try:
            async with AsyncExitStack() as held:
                client = await held.enter_async_context(self._made(complaints, session))
                await self._check_version(client)
                self._sessions.append((client, session))
                ready.set_result(client)
                async with asyncio.TaskGroup() as group:
                    listening = group.create_task(self._listen(client))
                    await self._ended.wait()
                    listening.cancel()
        except BaseException as error:
            self._ended.set()
            if ready.done():
                raise
            if complaints.last and not isinstance(_first(error), SignInNeeded | Unavailable):
                error = Unavailable(f"{said(error)}; it said: {complaints.last}")
            ready.set_exception(error)
            # Looked at by nobody if the one who waited has gone.
            ready.exception()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _check_version(self, client: Client) -> None:
        wanted = self._server.version
        if wanted == "2026-07-28":  # the SDK takes it for granted
            raw = await client.session.send_discover(wanted)
            client.session.adopt(types.DiscoverResult.model_validate(raw))
        if wanted not in ("auto", client.protocol_version):
            raise Unavailable(f"it speaks {client.protocol_version}, and not {wanted}")

    def _made(self, complaints: Complaints, session: _Session) -> Client:
        async def received(message: IncomingMessage) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed()

        return Client(
            self._transport(complaints, session),
            mode={"2025-11-25": "legacy"}.get(self._server.version, self._server.version),
            elicitation_callback=self._elicit,
            message_handler=received,
            client_info=types.Implementation(name=NAME, version=VERSION),
            read_timeout_seconds=self._server.timeout,
            cache=None,
        )

    @asynccontextmanager
    async def _transport(self, complaints: Complaints, session: _Session) -> AsyncGenerator[TransportStreams]:
        if self._server.command is not None:
            async with running(self._server, complaints, self._ended) as streams:
                yield streams
            return
        async with (
            signing_in(self._name, self._server, self._folder, self._browse) as auth,
            reaching(self._server, auth, session.forget) as streams,
        ):
            yield streams

    async def _listen(self, client: Client) -> None:
        """Change notices of the newer version come on a stream of their own, which may break on its own."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        wait = _FIRST_WAIT
        while wait <= _LONGEST_WAIT:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    wait = _FIRST_WAIT
                    async for _ in events:
                        self._changed()
            except SubscriptionLost:
                self._changed()
            except (MCPError, TimeoutError):
                pass
            await asyncio.sleep(wait)
            wait *= 2


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def said(error: BaseException) -> str:
    """What happened, in one line."""
    error = _first(error)
    if isinstance(error, MCPError):
        return f"{error.message} ({error.code})"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename!r}"
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__
