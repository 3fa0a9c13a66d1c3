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

PATIENCE = 60.0
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
    why: str = ""


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self._status = 0
        self._pieces: list[bytes] = []
        self._done: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(0, b"the connection was closed")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self.heard.set()

    def on_message_complete(self) -> None:
        self._finish(self._parser.get_status_code(), b"".join(self._pieces))

    def _finish(self, status: int, body: bytes) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result((status, body))

    async def ask(self, message: bytes) -> tuple[int, bytes]:
        self._start(message)
        assert self._done is not None
        return await asyncio.wait_for(self._done, PATIENCE)

    async def leave(self, message: bytes) -> None:
        self._start(message)
        await asyncio.wait_for(self.heard.wait(), PATIENCE)
        self.transport.abort()

    def _start(self, message: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces.clear()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(message)


class Judge:
    """A check of responses that caches the bytes of valid ones."""

    def __init__(self, workload: Workload, *, translated: bool) -> None:
        self._workload = workload
        self._translated = translated
        self._right: set[bytes] = set()

    def is_right(self, body: bytes) -> bool:
        if body in self._right:
            return True
        try:
            right = self._workload.read(body) == self._workload.said if self._translated else self._same(body)
        except (ValueError, KeyError, TypeError):
            return False
        if right and len(self._right) < 100:
            self._right.add(body)
        return right

    def _same(self, body: bytes) -> bool:
        return body == self._workload.answer


async def carry_out(order: Order, workload: Workload) -> Outcome:
    outcome, judge = Outcome(), Judge(workload, translated=order.translated)
    message = _message(order, workload)
    left = order.count

    async def work() -> None:
        nonlocal left
        client: Client | None = None
        while left > 0:
            left -= 1
            if client is None or client.transport.is_closing():
                client = await _connected(order.port)
            if order.leave:
                await client.leave(message)
                outcome.good += 1
                continue
            status, body = await client.ask(message)
            if status == 200 and judge.is_right(body):
                outcome.good += 1
            else:
                outcome.bad += 1
                outcome.why = outcome.why or f"{status} {body[:600].decode(errors='replace')}"
        if client is not None:
            client.transport.close()

    await asyncio.gather(*(work() for _ in range(order.concurrency)))
    return outcome


async def _connected(port: int) -> Client:
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
    known = {one.name: one for one in workloads()}
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order = msgspec.json.decode(line, type=Order)
        try:
            outcome: Any = await carry_out(order, known[order.workload])
        except (OSError, TimeoutError) as error:
            outcome = Outcome(bad=1, why=f"{type(error).__name__}: {error}")
        print(json.dumps(msgspec.structs.asdict(outcome)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
