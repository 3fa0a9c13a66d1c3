"""ASGI apps on a loopback socket, in a thread of their own."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from tests.support.deadlines import DEADLINE

http_client = httpx.Client(timeout=DEADLINE)


class QuickServer(uvicorn.Server):
    """A uvicorn server that stops at once.

    uvicorn polls for its end ten times a second and then waits a tenth more, most of the time of a short test.
    """

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 - it is told by an attribute, from any thread
            await asyncio.sleep(0.01)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        remaining = self.config.timeout_graceful_shutdown
        deadline = time.monotonic() + (0.1 if self.force_exit or remaining is None else remaining)
        state = self.server_state
        while (state.connections or state.tasks) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)
        if not self.force_exit:
            tasks = list(self.server_state.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.lifespan.shutdown()


@contextmanager
def serve_app(app: Any, port: int = 0) -> Iterator[str]:
    """Serve an ASGI app and yield its URL."""
    # By default a connection that was idle for five seconds is closed, just when a slow client may send on it.
    config = uvicorn.Config(
        app, port=port, log_level="critical", timeout_graceful_shutdown=1, timeout_keep_alive=int(DEADLINE)
    )
    server = QuickServer(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.002)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(DEADLINE)


async def send_response(send: Any, body: bytes, status: int = 200, *extra_headers: tuple[bytes, bytes]) -> None:
    headers = [(b"content-length", b"%d" % len(body)), *extra_headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_request_body(receive: Any) -> bytes:
    body, more_body = b"", True
    while more_body:
        message = await receive()
        body, more_body = body + message["body"], message["more_body"]
    return body


async def echo_app(scope: Any, receive: Any, send: Any) -> None:
    await send_response(send, await read_request_body(receive))
