"""HTTP clients for the vendors' SDKs that reach any model through a gateway in this process, without a server.

    client = anthropic.Anthropic(http_client=toolwire.http_client("openai/gpt-5.5"), api_key="none")

A client has a gateway of its own. It runs on the background event loop, which synchronous and asynchronous clients
share, and starts with the first request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator, MutableMapping
from typing import Any, TypeVar

from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.gateway.config import ConfigSource, ConsoleSection, resolve_config
from toolwire.gateway.observability.access_log import SilentLog
from toolwire.gateway.providers.discovery import embedded_simulator
from toolwire.gateway.server.gateway import Gateway, build_gateway
from toolwire.installation import require_extra
from toolwire.runtime.portal import run_on_portal, run_sync

with require_extra("web", "an HTTP client for SDKs"):
    import httpx2

T = TypeVar("T")
Message = MutableMapping[str, Any]

_BASE_URL = "http://localhost"
_PENDING_CHUNKS = 16  # chunks of a response that wait for a slow reader
# Of the connection that the SDK believes in; the gateway sees its own host.
_CONNECTION_HEADERS = frozenset((b"host", b"connection", b"transfer-encoding", b"accept-encoding"))


def http_client(model: str | None = None, *, config: ConfigSource | None = None) -> httpx2.Client:
    """Return an HTTP client for synchronous SDK clients, such as `openai.OpenAI(http_client=...)`.

    All requests go to `model`, whatever model they name. Without one, the names in requests are routed as by
    `toolwire serve`. `config` is a configuration or the path of its file.
    Close the client, or the SDK client that has it, to stop its gateway.
    """
    return httpx2.Client(transport=_Transport(_LocalGateway(model, config)), base_url=_BASE_URL, timeout=None)


def async_http_client(model: str | None = None, *, config: ConfigSource | None = None) -> httpx2.AsyncClient:
    """Return an HTTP client for asynchronous SDK clients, like `http_client`."""
    transport = _AsyncTransport(_LocalGateway(model, config))
    return httpx2.AsyncClient(transport=transport, base_url=_BASE_URL, timeout=None)


class _LocalGateway:
    """A gateway on the background event loop. Its methods run there."""

    def __init__(self, model: str | None, source: ConfigSource | None) -> None:
        config = resolve_config(source)
        # Only this client reaches the gateway, so nobody needs a key.
        server = replace(config.server, keys=(), host="127.0.0.1")
        self._gateway: Gateway = build_gateway(
            replace(config, server=server, console=ConsoleSection(enabled=False)), model=model, log=SilentLog()
        )
        self._resources = contextlib.AsyncExitStack()
        if self._gateway.simulator_socket is not None:
            self._resources.enter_context(self._gateway.simulator_socket)
        self._start_lock: asyncio.Lock | None = None
        self._is_started = self._is_closed = False

    async def send(self, request: httpx2.Request, body: bytes) -> "_Exchange":
        """Send a request, and return its exchange when the response starts."""
        await self._start()
        exchange = _Exchange(request, body)
        exchange.task = asyncio.ensure_future(exchange.run(self._gateway))
        await exchange.wait(exchange.started.wait())
        if exchange.error is not None:
            raise exchange.error
        return exchange

    async def _start(self) -> None:
        """Start the built-in simulator, if no provider is configured."""
        if self._is_closed:
            raise ToolwireError("the HTTP client is closed")
        if self._start_lock is None:
            self._start_lock = asyncio.Lock()
        async with self._start_lock:
            if not self._is_started:
                self._is_started = True
                simulator = embedded_simulator(self._gateway.simulator_socket, self._gateway.config.simulator)
                await self._resources.enter_async_context(simulator)
                self._resources.push_async_callback(self._gateway.route_toolsets.close)

    async def close(self) -> None:
        """Stop the gateway."""
        if not self._is_closed:
            self._is_closed = True
            self._gateway.app.close()
            await self._resources.aclose()


class _Exchange:
    """One request to the gateway's ASGI application, and its response as it arrives."""

    def __init__(self, request: httpx2.Request, body: bytes) -> None:
        self._request = request
        self._timeout: float | None = request.extensions.get("timeout", {}).get("read")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        self._scope = {
            "type": "http",
            "method": request.method,
            "path": request.url.path,
            "query_string": request.url.query,
            "headers": [
                (b"host", b"localhost"),
                *[(name, value) for name, value in headers if name not in _CONNECTION_HEADERS],
            ],
        }
        self._body: list[bytes] = [body]
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_PENDING_CHUNKS)
        self._left = asyncio.Event()
        self.started = asyncio.Event()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.error: BaseException | None = None
        self.task: asyncio.Future[None]

    async def run(self, gateway: Gateway) -> None:
        """Run the application on the request."""
        try:
            await gateway.app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - raised where the response is read
            self.error = error
        finally:
            self.started.set()
            if not self._left.is_set():
                await self._chunks.put(None)

    async def _receive(self) -> Message:
        """Return the body, then wait until the caller closes the response."""
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Accept a message of the response; wait while the caller has unread chunks."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
            self.started.set()
        elif message.get("body") and not self._left.is_set():
            await self._chunks.put(message["body"])

    async def next_chunk(self) -> bytes | None:
        """Return the next chunk of the response; None at its end."""
        chunk = await self.wait(self._chunks.get())
        if chunk is None and self.error is not None:
            raise self.error
        return chunk

    async def wait(self, event: Awaitable[T]) -> T:
        """Wait for an event of the response, at most for the client's read timeout."""
        try:
            async with asyncio.timeout(self._timeout):
                return await event
        except TimeoutError:
            self._left.set()
            raise httpx2.ReadTimeout("no response in time", request=self._request) from None

    async def close(self) -> None:
        """Signal the disconnect to the application, and wait for it to end."""
        self._left.set()
        while not self._chunks.empty():
            self._chunks.get_nowait()
        await asyncio.wait([self.task])


class _Transport(httpx2.BaseTransport):
    """The transport of a synchronous client."""

    def __init__(self, gateway: _LocalGateway) -> None:
        self._gateway = gateway

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request through the gateway."""
        exchange = run_sync(self._gateway.send(request, request.read()))
        return httpx2.Response(exchange.status, headers=exchange.headers, stream=_Stream(exchange), request=request)

    def close(self) -> None:
        """Stop the gateway."""
        run_sync(self._gateway.close())


class _Stream(httpx2.SyncByteStream):
    """The body of a response, for a synchronous client."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := run_sync(self._exchange.next_chunk())) is not None:
            yield chunk

    def close(self) -> None:
        """End the exchange."""
        run_sync(self._exchange.close())


class _AsyncTransport(httpx2.AsyncBaseTransport):
    """The transport of an asynchronous client."""

    def __init__(self, gateway: _LocalGateway) -> None:
        self._gateway = gateway

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request through the gateway."""
        exchange = await run_on_portal(self._gateway.send(request, await request.aread()))
        stream = _AsyncStream(exchange)
        return httpx2.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)

    async def aclose(self) -> None:
        """Stop the gateway."""
        await run_on_portal(self._gateway.close())


class _AsyncStream(httpx2.AsyncByteStream):
    """The body of a response, for an asynchronous client."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await run_on_portal(self._exchange.next_chunk())) is not None:
            yield chunk

    async def aclose(self) -> None:
        """End the exchange."""
        await run_on_portal(self._exchange.close())
