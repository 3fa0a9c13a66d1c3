"""The HTTP client's parser, compared with h11: the same response and body, or a failure."""

import asyncio
import re

import h11
from msgspec import Struct

from tests.fuzz.engine import Target
from tests.fuzz.memory_transport import MemoryTransport, run_async
from tests.fuzz.packets import read_seeds, split
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import TransportError, _Connection, request_head

ORIGIN = Origin("http", "127.0.0.1", 1)
TOKENS = (
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"content-length: 2\r\n",
    b"content-length: 0\r\n",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: x\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0",
    b"000",
    b"304",
    b"2\r\nok\r\n",
    b"x:\r\n",
)


# h11 is stricter here, with no effect on framing: empty lines before the head, and unusual reason phrases. It takes
# "\r\r\n" for a status line that is only "\r"; such a line holds nothing that could be read in two ways.
EXCUSED = re.compile(
    r"no response line received|illegal status line: bytearray\(b[\"'](\\[rn])*(HTTP/1\.[01] \d{3}\b.*|[\"']\))",
    re.DOTALL,
)


# A response without a body ends with its head, whatever its fields say (RFC 9112, 6.3); h11 reads them all the same.
BODILESS_WITH_ENCODING = re.compile(
    rb"HTTP/1\.[01] (?:1\d\d|204|304)\b[^\n]*\n(?:[^\r\n][^\n]*\n)*?transfer-encoding:", re.IGNORECASE
)


class Parsed(Struct):
    """A complete response, or the failure."""

    status: int = 0
    body: bytes = b""
    failed: str = ""


def check(data: bytes) -> None:
    ours, reference = run_async(parse_here(split(data))), parse_by_h11(data)
    if ours.failed:
        return  # the caller gets an error, never a wrong response
    if EXCUSED.fullmatch(reference.failed):
        return
    if "Transfer-Encoding" in reference.failed and BODILESS_WITH_ENCODING.search(data):
        return
    assert not reference.failed, f"h11: {reference.failed}, here: {ours}"
    assert ours == reference, f"h11: {reference}, here: {ours}"


async def parse_here(packets: list[bytes]) -> Parsed:
    loop = asyncio.get_running_loop()
    wire, connection = MemoryTransport(), _Connection(ORIGIN, loop, lambda _: None)
    wire.set_protocol(connection)
    connection.connection_made(wire)
    connection.send(request_head(ORIGIN, "/x", []), b"")
    for packet in packets:
        if wire.closed:
            break
        connection.data_received(packet)
    if not wire.closed:
        connection.eof_received()
    connection.connection_lost(None)
    body = b""
    try:
        await connection.wait_for_head(1)
        while data := await connection.read(1):
            body += data
    except TransportError as error:
        return Parsed(failed=str(error))
    return Parsed(connection.status, body)


def parse_by_h11(data: bytes) -> Parsed:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
    connection.send(h11.Request(method="POST", target="/x", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    parsed = Parsed()
    if data:
        connection.receive_data(data)
    connection.receive_data(b"")
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            return Parsed(failed=str(error))
        if isinstance(event, h11.Response):
            parsed.status = event.status_code
        elif isinstance(event, h11.Data):
            parsed.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return parsed
        elif not isinstance(event, h11.InformationalResponse):
            return Parsed(failed=f"ends with {event}")


TARGETS = [Target("http-client", lambda: read_seeds("http_client"), check, TOKENS)]
