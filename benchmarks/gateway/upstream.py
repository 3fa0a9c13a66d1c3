"""`upstream.c` in Python, for machines without a C compiler: the same checks, but streams only at once."""

import asyncio
import re
import struct
import sys
from pathlib import Path
from typing import cast

import httptools
import uvloop
from msgspec import Struct

from benchmarks.gateway.agents import NONCE
from benchmarks.gateway.traffic import read_records

_MARKER = re.compile(rb"~(.)(.{8})([0-9a-f]{6})", re.DOTALL)
_HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_ERROR = b'{"error":{"message":"%b","type":"invalid_request_error","code":null,"param":null}}'


class Answer(Struct):
    mode: int
    first: int
    tools: int
    markers: int
    agent: bytes
    response: bytes


def read_answers(path: Path) -> list[Answer]:
    answers = []
    for _, payload in read_records(path):
        mode, first, tools, markers, agent = struct.unpack_from("<5I", payload)
        answers.append(Answer(mode, first, tools, markers, b"%08x" % agent, payload[20:]))
    return answers


def find_answer(body: bytes, answers: list[Answer]) -> tuple[Answer, bytes] | str:
    """Return the answer and the nonce of a request, or what the request has lost."""
    markers = [(match[1], match[2], int(match[3], 16)) for match in _MARKER.finditer(body)]
    tools = [(agent, number) for kind, agent, number in markers if kind == b"t"]
    written = [(kind, nonce, number) for kind, nonce, number in markers if kind != b"t"]
    if not written or written[-1][0] != b"u":
        return "the last user message was lost"
    _, nonce, last = written[-1]
    if last >= len(answers):
        return "unknown answer"
    answer = answers[last]
    expected = []
    for number in range(answer.first, last + 1):
        expected += [(b"u", nonce, number)] + [(b"a", nonce, number)] * answers[number].markers
    if written != expected[: len(expected) - answer.markers]:
        return "a message was lost, moved or mixed up"
    if tools != [(answer.agent, number) for number in range(answer.tools)]:
        return "a tool was lost, moved or mixed up"
    return answer, nonce


class Upstream(asyncio.Protocol):
    """One connection."""

    last_request = b""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers
        self._body: list[bytes] = []
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if self._parser.get_method() == b"GET":
            text = Upstream.last_request if self._url == b"/last" else b"0"
            self._transport.write(_HEAD % (200, len(text)) + text)
            return
        found = find_answer(body, self._answers)
        if isinstance(found, str):
            error = _ERROR % found.encode()
            self._transport.write(_HEAD % (400, len(error)) + error)
            return
        Upstream.last_request = body
        answer, nonce = found
        self._transport.write(answer.response.replace(NONCE.encode(), nonce))


async def main() -> None:
    answers = read_answers(Path(sys.argv[2]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(answers), "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
