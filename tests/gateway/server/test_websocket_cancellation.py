"""A WebSocket client that leaves at any time leaves no connection to the upstream behind."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.deadlines import run_event_loop
from tests.support.gateway.in_process import one_provider_config, run_async, with_memory_state
from tests.support.servers.http_responses import SSE_HEAD, STREAM_START, chat_sse_event, transfer_chunk
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.gateway.config import parse_config
from toolwire.gateway.server.gateway import build_gateway

SCOPE = {
    "type": "websocket",
    "path": "/v1/responses",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1")],
}
CREATE = {"type": "response.create", "model": "m", "input": "Hi", "store": False}


async def endless_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    writer.write(SSE_HEAD + transfer_chunk(STREAM_START + chat_sse_event({"content": "at first"})))
    await reader.read()


@pytest.mark.parametrize("sent_events", [1, 2, 3])
def test_client_that_leaves_while_an_event_is_sent_releases_the_upstream(sent_events: int) -> None:
    async def work() -> None:
        leaving = asyncio.Event()
        incoming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps(CREATE)}]
        outgoing: list[Any] = []

        async def receive() -> Any:
            if not incoming:
                await leaving.wait()
                return {"type": "websocket.disconnect", "code": 1006}
            return incoming.pop(0)

        async def send(message: Any) -> None:
            outgoing.append(message)
            if len(outgoing) > sent_events:  # the first message accepts the connection
                leaving.set()
                await asyncio.Event().wait()

        async with serve_upstream(endless_stream) as origin:
            config = with_memory_state(parse_config(one_provider_config(origin), {}))
            app = build_gateway(config, None, {"HOME": "/nonexistent"}).app
            await app(SCOPE, receive, send)
            await run_event_loop()
            open_connections = app._dispatcher.transport._open
            app.close()
            assert outgoing[0]["type"] == "websocket.accept"
            assert not open_connections

    run_async(work())
