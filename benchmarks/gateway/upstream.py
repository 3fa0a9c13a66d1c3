"""The upstream of all programs: prepared responses, and an error for requests that lost data."""

import asyncio
import re
import sys
from typing import ClassVar, cast

import httptools
import uvloop

from benchmarks.gateway.workloads import MARK, STALLED, Workload, workloads

_MODEL = re.compile(rb'"model" ?: ?"(?:[a-z]+/)?%b(\w+)"' % MARK)
_BAD = b'{"error":{"message":"the request lost something","type":"invalid_request_error","code":null,"param":null}}'


class Upstream(asyncio.Protocol):
    """One connection; `GET` returns the number of stalled streams."""

    stalled = 0
    checked: ClassVar[set[tuple[str, int]]] = set()

    def __init__(self, answers: dict[bytes, bytes], workloads_by_name: dict[bytes, Workload]) -> None:
        self._answers = answers
        self._workloads = workloads_by_name
        self._body: list[bytes] = []
        self._stands = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._stands:
            Upstream.stalled -= 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if self._parser.get_method() == b"GET":
            self._transport.write(complete_response(b"%d" % Upstream.stalled, 200))
            return
        match = _MODEL.search(body)
        name = b"" if match is None else match[1]
        if name not in self._answers or not self._is_complete(body, self._workloads[name]):
            self._transport.write(complete_response(_BAD, 400))
            return
        self._transport.write(self._answers[name])
        if name == STALLED.encode() and not self._stands:
            self._stands = True
            Upstream.stalled += 1

    def _is_complete(self, body: bytes, workload: Workload) -> bool:
        key = (workload.name, hash(body))
        if key not in self.checked:
            if not all(mark in body for mark in workload.required_bytes):
                return False
            self.checked.add(key)
        return True


def complete_response(body: bytes, status: int) -> bytes:
    head = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def streamed(stream: bytes, *, ends: bool) -> bytes:
    """Return a stream in one burst, with one chunk per event as providers send it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    frames = [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]
    if not ends:
        frames = frames[: len(frames) // 2]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames) + (b"0\r\n\r\n" if ends else b"")


async def main() -> None:
    workloads_by_name = {workload.name.encode(): workload for workload in workloads()}
    answers = {
        name: streamed(workload.answer, ends=workload.name != STALLED)
        if workload.streamed
        else complete_response(workload.answer, 200)
        for name, workload in workloads_by_name.items()
    }
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(answers, workloads_by_name), "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
