"""WebSocket frames in packets, compared with a reader of RFC 6455 (section 5) on the complete input."""

import asyncio
import logging
from functools import cache
from typing import Any

import uvicorn
from msgspec import Struct
from uvicorn.server import ServerState

from tests.fuzz.engine import Target
from tests.fuzz.memory_transport import MemoryTransport, run_async, settle
from tests.fuzz.packets import read_seeds, split
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.server.http import WebSocketConnection, uvicorn_options

LONGEST = 1000
HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TOKENS = (
    b"\x81\x80abcd",
    b"\x01\x80abcd",
    b"\x80\x80abcd",
    b"\x00\x81abcda",
    b"\x82\x80abcd",
    b"\x88\x80abcd",
    b"\x88\x82abcd\x62\x8a",
    b"\x89\x80abcd",
    b"\x8a\x80abcd",
    b"\xfe",
    b"\xff",
    b"\x81\xfe\x00\x02abcdaa",
    b"\x81\xff\x00\x00\x00\x00\x00\x00\x00\x01abcda",
    b"\x81\xff\x80\x00\x00\x00\x00\x00\x00\x01abcda",
)
CLOSE_CODES = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, *range(3000, 5000)}


# Used in place of an opcode.
INVALID, INCOMPLETE = -1, -2


class Parsed(Struct):
    """Complete messages of a connection.

    `over`: the client closed, or violated the protocol (`failed`). A frame that violates the protocol may be rejected
    before it is complete: then `doomed`.
    """

    messages: list[str | bytes]
    over: bool = False
    failed: bool = False
    doomed: bool = False


def check(data: bytes) -> None:
    parsed, expected = run_async(parse_here(split(data))), parse_by_rfc(data)
    if expected.failed or (expected.doomed and parsed.over):  # what came with it may be lost
        expected = Parsed(expected.messages[: len(parsed.messages)], over=True)
    expected.doomed = False
    assert parsed == expected, f"RFC 6455: {expected}, here: {parsed}"


async def record(scope: Any, receive: Any, send: Any) -> None:
    """Record each message in the state of its connection."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        scope["state"]["messages"].append(message["bytes"] if message.get("text") is None else message["text"])


@cache
def _config() -> uvicorn.Config:
    config = uvicorn.Config(record, **uvicorn_options(LimitsSection()) | {"ws_max_size": LONGEST})
    config.load()
    return config


async def parse_here(packets: list[bytes]) -> Parsed:
    messages: list[str | bytes] = []
    wire = MemoryTransport()
    websocket = WebSocketConnection(_config(), ServerState(), {"messages": messages}, asyncio.get_running_loop())
    wire.set_protocol(websocket)
    websocket.connection_made(wire)
    logger = logging.getLogger("uvicorn.error")
    logger.disabled = True  # it would log every invalid text
    try:
        await wire.deliver([HANDSHAKE, *packets], lambda: (len(messages), len(wire.written), wire.closed))
    finally:
        logger.disabled = False
    over = wire.closed
    websocket.connection_lost(None)
    await settle(lambda: len(messages))
    return Parsed(messages, over)


def parse_by_rfc(data: bytes) -> Parsed:
    parsed = Parsed([])
    kind, buffered = 0, b""
    while (frame := _next_frame(data)) is not None:
        fin, code, payload, data = frame
        if code == INCOMPLETE:
            return Parsed(parsed.messages, doomed=True)
        if code == 8:  # websockets takes one within a message for an error
            return Parsed(parsed.messages, over=True, failed=kind != 0)
        if code >= 8:
            continue
        if code == INVALID or (code == 0) != (kind != 0) or len(buffered) + len(payload) > LONGEST:
            return Parsed(parsed.messages, over=True, failed=True)
        kind, buffered = kind or code, buffered + payload
        if not fin:
            continue
        try:
            parsed.messages.append(buffered.decode() if kind == 1 else buffered)
        except UnicodeDecodeError:
            return Parsed(parsed.messages, over=True, failed=True)
        kind, buffered = 0, b""
    return parsed


def _next_frame(data: bytes) -> tuple[bool, int, bytes, bytes] | None:
    """Return `fin`, opcode, payload and the remaining bytes; None while the frame is incomplete."""
    if len(data) < 2:
        return None
    fin, code, length, at = data[0] >= 0x80, data[0] & 0x0F, data[1] & 0x7F, 2
    valid = not data[0] & 0x70 and data[1] >= 0x80 and code in (0, 1, 2, 8, 9, 10)
    valid = valid and (code < 8 or fin)
    if length >= 126:
        at = 4 if length == 126 else 10
        if len(data) < at:
            return None if valid else (fin, INCOMPLETE, b"", b"")
        length = int.from_bytes(data[2:at], "big")
    # The payload of a control frame is bounded, not the width of its length field: websockets takes longer fields than
    # a length needs, of data and of control frames, and nothing is read in two ways by that.
    valid = valid and (code < 8 or length <= 125)
    at += 4 if data[1] >= 0x80 else 0
    if length > LONGEST:
        return fin, INVALID, b"", b""
    if len(data) < at + length:
        return None if valid else (fin, INCOMPLETE, b"", b"")
    if not valid:
        return fin, INVALID, b"", b""
    mask = data[at - 4 : at]
    payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data[at : at + length]))
    if code == 8 and not _is_close(payload):
        return fin, INVALID, b"", b""
    return fin, code, payload, data[at + length :]


def _is_close(payload: bytes) -> bool:
    if len(payload) < 2:
        return not payload
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return False
    return int.from_bytes(payload[:2], "big") in CLOSE_CODES


TARGETS = [Target("websocket", lambda: read_seeds("websocket"), check, TOKENS)]
