"""Scripted faults: a response that breaks at a chosen point, in a chosen manner.

Points within the content apply to streams. A complete body, which has no such points, breaks in its middle.
"""

import asyncio
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from toolwire.canonical.content import Reasoning, Text, ToolCall
from toolwire.canonical.events import CandidateEnd, Event, PartDelta, PartEnd, PartStart
from toolwire.upstream.asgi import AsgiRequest

FaultPoint = Literal["connection", "head", "thinking", "text", "arguments", "calls", "stop"]
"""Before the first byte, within the head, within a part, between two calls, or after the stop reason."""

FaultKind = Literal["close", "end", "silence", "garbage", "error"]
"""Close the connection, end the body early, send nothing more, send invalid data, or send the protocol's error."""

_PART_TYPES = {"thinking": Reasoning, "text": Text, "arguments": ToolCall}
_PARTIAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-ty"
_INVALID_HEAD = b"\x00\x01 this is no HTTP\r\n\r\n"


class ScriptedFault(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault of a scripted turn."""

    at: FaultPoint
    kind: FaultKind = "close"

    @property
    def is_early(self) -> bool:
        """Return whether the fault precedes the response."""
        return self.at in ("connection", "head")


ERROR_RESPONSE = ScriptedFault(at="connection", kind="error")
"""An error in place of the response."""


def split_events(events: list[Event], point: FaultPoint) -> tuple[list[Event], list[Event]]:
    """Return the events before the point, and those of the piece that it interrupts.

    In a response without such a part, the fault is after the stop reason.
    """
    position = next(_positions(events, point), None) or next(_positions(events, "stop"), len(events))
    end = position + 1
    while end < len(events) and not isinstance(events[end - 1], PartEnd):
        end += 1
    return events[:position], events[position:end]


def _positions(events: list[Event], point: FaultPoint) -> Iterator[int]:
    """Yield the index after each event that matches the point."""
    kinds: dict[int, type] = {}
    for number, event in enumerate(events, 1):
        match event:
            case PartStart():
                kinds[event.index] = type(event.part)
            case PartDelta() if kinds.get(event.index) is _PART_TYPES.get(point):
                yield number
            case PartEnd() if point == "calls" and kinds.get(event.index) is ToolCall:
                yield number
            case CandidateEnd() if point == "stop":
                yield number
            case _:
                pass


async def break_early(http_request: AsgiRequest, fault: ScriptedFault) -> None:
    """Break the connection before the response, or within its head."""
    transport = _connection_of(http_request)
    if fault.at == "head":
        transport.write(_INVALID_HEAD if fault.kind == "garbage" else _PARTIAL_HEAD)
    if fault.kind != "silence":
        transport.close()
    await _wait_for_disconnect(http_request)


async def break_body(http_request: AsgiRequest, fault: ScriptedFault, piece: bytes, garbage: bytes) -> None:
    """Break a body that has begun; `piece` is the part of it that the fault interrupts."""
    if fault.kind in ("close", "silence"):
        await http_request.write_body(piece[: len(piece) // 2], more_body=True)
    else:
        await http_request.write_body(garbage if fault.kind == "garbage" else b"")
        return
    if fault.kind == "close":
        _connection_of(http_request).close()
    await _wait_for_disconnect(http_request)


def _connection_of(http_request: AsgiRequest) -> asyncio.Transport:
    """Return a request's transport: ASGI can't abort a connection, so take it from the server's request object."""
    transport: asyncio.Transport = http_request.send.__self__.transport  # type: ignore[attr-defined]
    return transport


async def _wait_for_disconnect(http_request: AsgiRequest) -> None:
    """Wait until the client has left."""
    while (await http_request.receive())["type"] != "http.disconnect":
        pass
