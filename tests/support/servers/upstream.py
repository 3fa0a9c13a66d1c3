"""Scripted upstreams on loopback sockets."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.servers.http_responses import SSE_HEAD, STREAM_START, chat_sse_event, transfer_chunk
from toolwire.upstream.provider import Origin

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def serve_upstream(handler: Handler, port: int = 0) -> AsyncIterator[Origin]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    try:
        yield Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()  # no wait_closed: since Python 3.12 it waits for connections, which the transport keeps open


async def read_http_request(reader: asyncio.StreamReader) -> bytes:
    """Read one request: head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


def reply_with(*answers: bytes, keep_open: bool = True) -> Handler:
    """Return a handler that sends the next of these responses for each request on a connection."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_http_request(reader)
            writer.write(answer)
            await writer.drain()
        if keep_open:
            await reader.read()

    return handler


class StalledUpstream:
    """An upstream that starts a stream for each request and ends all of them when released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_http_request(reader)
            writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            await self.released.wait()
            writer.write(transfer_chunk(chat_sse_event({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")


_MODEL_LOOKUP = re.compile(rb"POST /api/show\b|GET \S*/models\b")
"""Requests about models, which the gateway sends at a time of its own."""
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class ScriptedUpstream:
    """An upstream that sends the next of its responses for each request and records the requests.

    Like a server that is not Ollama, it knows nothing of its models, unless `lists_models`: then requests for its list
    get these responses, too.
    """

    def __init__(self, *responses: bytes, lists_models: bool = False) -> None:
        self.responses = list(responses)
        self._lists_models = lists_models
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_http_request(reader)
            if not self._lists_models and _MODEL_LOOKUP.match(request):
                writer.write(_NOT_FOUND)
            else:
                self.requests.append(request)
                writer.write(self.responses[min(len(self.requests), len(self.responses)) - 1])
            await writer.drain()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]
