"""A server that has an address: its answers, bounded."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from . import bounds
from .settings import Server


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError(f"the answer is longer than {bounds.MESSAGE} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Streams have a bound of their own, on each event. `forgotten` is called when the server says that there is no
    such session, which the SDK does not tell apart from other errors."""

    def __init__(self, forgotten: Callable[[], None]) -> None:
        super().__init__()
        self._forgotten = forgotten

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            self._forgotten()
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            stream = response.stream
            if isinstance(stream, httpx2.AsyncByteStream):
                response.stream = _Bounded(stream, bounds.MESSAGE)
        return response


@asynccontextmanager
async def reaching(
    server: Server, auth: httpx2.Auth | None, forgotten: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Nothing of this machine's proxies or credentials files is used."""
    timeout = httpx2.Timeout(server.connect_timeout, read=max(server.timeout, 300))
    async with (
        httpx2.AsyncClient(
            transport=_Transport(forgotten), headers=server.headers, timeout=timeout, auth=auth, trust_env=False
        ) as client,
        streamable_http_client(server.url or "", http_client=client, max_sse_event_size=bounds.MESSAGE) as streams,
    ):
        yield streams
