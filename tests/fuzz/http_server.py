"""The HTTP server's parser, compared with h11: the same requests and bodies, or a rejection."""

import asyncio
import re
from functools import cache
from typing import Any

import h11
import uvicorn
from msgspec import Struct
from uvicorn.server import ServerState

from tests.fuzz.engine import Target
from tests.fuzz.memory_transport import MemoryTransport, run_async, settle
from tests.fuzz.packets import read_seeds, split
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.server.http import HttpConnection, uvicorn_options

TOKENS = (
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"5\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n",
    b"ffffffffffffffff\r\n",
    b"X:\r\n",
    b" folded\r\n",
)


class Parsed(Struct):
    """Complete requests as method, target and body; `refused` if the bytes after them are invalid."""

    requests: list[tuple[str, str, bytes]]
    refused: str = ""
    closed: bool = False


def check(data: bytes) -> None:
    ours, reference = run_async(parse_here(split(data))), parse_by_h11(data)
    common = min(len(ours.requests), len(reference.requests))
    for request, expected in zip(ours.requests, reference.requests, strict=False):
        assert request == expected, f"h11: {expected}, here: {request}"
    if len(ours.requests) > common:
        excused = EXCUSED.fullmatch(reference.refused)
        assert excused, f"only here: {ours.requests[common]}, h11: {reference.refused or 'waits'}"
    elif len(reference.requests) > common:
        assert ours.refused or ours.closed, f"only h11: {reference.requests[common]}, and not refused here"


# h11 is stricter here, with no effect on lengths: Host, which the authenticator checks, empty lines before the head,
# and more than one space in the request line. It takes "\r\r\n" for a request line that is only "\r"; such a line holds
# nothing that could be read in two ways.
EXCUSED = re.compile(
    r"Missing mandatory Host:.*|Found multiple Host:.*|no request line received"
    r"|illegal request line: bytearray\(b'(\\[rn])*([A-Z]+ +[^ ]+ +HTTP/1\.[01])?'\)"
)


async def record(scope: Any, receive: Any, send: Any) -> None:
    """Record a request in the state of its connection, and respond to it."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
        return
    body, more_body = b"", True
    while more_body:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more_body = body + message["body"], message["more_body"]
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    scope["state"]["requests"].append((scope["method"], target.decode("latin-1"), body))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@cache
def _config() -> uvicorn.Config:
    config = uvicorn.Config(record, **uvicorn_options(LimitsSection()))
    config.load()
    return config


async def parse_here(packets: list[bytes]) -> Parsed:
    requests: list[tuple[str, str, bytes]] = []
    wire = MemoryTransport()
    connection = HttpConnection(_config(), ServerState(), {"requests": requests}, asyncio.get_running_loop())
    wire.set_protocol(connection)
    connection.connection_made(wire)
    await wire.deliver(packets, lambda: (len(requests), len(wire.written), wire.closed))
    closed, written = wire.closed, bytes(wire.written)
    wire.protocol.connection_lost(None)
    await settle(lambda: len(requests))
    last = written.rpartition(b"HTTP/1.1 ")[2][:3].decode()
    return Parsed(requests, last if last[:1] in ("4", "5") else "", closed)


def parse_by_h11(data: bytes) -> Parsed:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    parsed = Parsed([])
    method, target, body = "", "", b""
    connection.receive_data(data)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            parsed.refused = str(error)
            return parsed
        if isinstance(event, h11.Request):
            method, target, body = event.method.decode(), _path_of(event.target.decode("latin-1")), b""
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            parsed.requests.append((method, target, body))
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                parsed.closed = True
                return parsed
            connection.start_next_cycle()
        else:
            return parsed


def _path_of(target: str) -> str:
    """Remove the origin and the fragment, which a server ignores."""
    origin = re.match(r"[A-Za-z]+://[^/?#]*", target)
    return target[origin.end() if origin else 0 :].partition("#")[0]


TARGETS = [Target("http-server", lambda: read_seeds("http_server"), check, TOKENS)]
