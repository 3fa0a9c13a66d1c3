"""Load generator: concurrent requests whose responses are compared with the expected ones.

Each line of JSON on stdin is an `Order`; the line of JSON that answers it is an `Outcome`.
"""

import asyncio
import json
import sys
from typing import Any, cast

import httptools
import msgspec
import uvloop
from msgspec import Struct

from benchmarks.gateway.workloads import Workload, workloads

TIMEOUT = 60.0
CLIENT_KEY = "sk-" + "0123456789abcdef" * 4


class Order(Struct):
    """A batch of requests; `leave` disconnects after the first bytes of each response."""

    port: int
    workload: str
    count: int
    concurrency: int
    translated: bool = True
    leave: bool = False


class Outcome(Struct):
    good: int = 0
    bad: int = 0
    first_error: str = ""


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self._status = 0
        self._chunks: list[bytes] = []
        self._done: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(0, b"the connection was closed")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self.received.set()

    def on_message_complete(self) -> None:
        self._finish(self._parser.get_status_code(), b"".join(self._chunks))

    def _finish(self, status: int, body: bytes) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result((status, body))

    async def send(self, message: bytes) -> tuple[int, bytes]:
        self._start(message)
        assert self._done is not None
        return await asyncio.wait_for(self._done, TIMEOUT)

    async def leave(self, message: bytes) -> None:
        self._start(message)
        await asyncio.wait_for(self.received.wait(), TIMEOUT)
        self.transport.abort()

    def _start(self, message: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._chunks.clear()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(message)


class ResponseCheck:
    """A check of responses that caches the bytes of valid ones."""

    def __init__(self, workload: Workload, *, translated: bool) -> None:
        self._workload = workload
        self._translated = translated
        self._valid_bodies: set[bytes] = set()

    def is_valid(self, body: bytes) -> bool:
        if body in self._valid_bodies:
            return True
        try:
            valid = self._workload.parse(body) == self._workload.expected if self._translated else self._same(body)
        except (ValueError, KeyError, TypeError):
            return False
        if valid and len(self._valid_bodies) < 100:
            self._valid_bodies.add(body)
        return valid

    def _same(self, body: bytes) -> bool:
        return body == self._workload.answer


async def run_order(order: Order, workload: Workload) -> Outcome:
    outcome, check = Outcome(), ResponseCheck(workload, translated=order.translated)
    message = _message(order, workload)
    remaining = order.count

    async def work() -> None:
        nonlocal remaining
        client: Client | None = None
        while remaining > 0:
            remaining -= 1
            if client is None or client.transport.is_closing():
                client = await _connect(order.port)
            if order.leave:
                await client.leave(message)
                outcome.good += 1
                continue
            status, body = await client.send(message)
            if status == 200 and check.is_valid(body):
                outcome.good += 1
            else:
                outcome.bad += 1
                outcome.first_error = outcome.first_error or f"{status} {body[:600].decode(errors='replace')}"
        if client is not None:
            client.transport.close()

    await asyncio.gather(*(work() for _ in range(order.concurrency)))
    return outcome


async def _connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


def _message(order: Order, workload: Workload) -> bytes:
    lines = [
        f"POST {workload.path} HTTP/1.1",
        f"host: 127.0.0.1:{order.port}",
        "content-type: application/json",
        f"authorization: Bearer {CLIENT_KEY}",
        "user-agent: bench",
        "accept: */*",
        f"content-length: {len(workload.body)}",
    ]
    if workload.path == "/v1/messages":
        lines.append("anthropic-version: 2023-06-01")
    return "\r\n".join([*lines, "", ""]).encode() + workload.body


async def main() -> None:
    workloads_by_name = {workload.name: workload for workload in workloads()}
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order = msgspec.json.decode(line, type=Order)
        try:
            outcome: Any = await run_order(order, workloads_by_name[order.workload])
        except (OSError, TimeoutError) as error:
            outcome = Outcome(bad=1, first_error=f"{type(error).__name__}: {error}")
        print(json.dumps(msgspec.structs.asdict(outcome)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
