"""AWS event-stream framing (`application/vnd.amazon.eventstream`): binary messages with headers and checksums.

A message is its total length, the length of its headers, a CRC-32 of both, the headers, the payload and a CRC-32 of
everything before it. Numbers are big-endian.
"""

import struct
from binascii import crc32

from msgspec import Struct

LIMIT_HEADERS = 128 * 1024
LIMIT_PAYLOAD = 24 * 1024 * 1024
"""The limits of AWS."""

_PRELUDE = struct.Struct("!III")
_CHECKSUM = struct.Struct("!I")
_LENGTH = struct.Struct("!H")
_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
_STRING = 7
_BYTE_ARRAY = 6
# By type of header value: true, false, byte, short, integer, long, timestamp, UUID.
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class FramingError(ValueError):
    """Bytes that are not an event stream."""


class EventMessage(Struct, frozen=True):
    """One message of an event stream."""

    headers: dict[str, str]  # string headers only
    payload: bytes


class EventStreamSplitter:
    """Splits the bytes of an event stream, cut anywhere, into its messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[EventMessage]:
        """Add bytes and return the messages that are now complete. Raises `FramingError` for an invalid one."""
        self._buffer += data
        messages: list[EventMessage] = []
        start = 0
        while (size := self._message_size(start)) is not None and len(self._buffer) >= start + size:
            messages.append(_decode_message(bytes(self._buffer[start : start + size])))
            start += size
        del self._buffer[:start]
        return messages

    def close(self) -> None:
        """Signal the end of the stream. Raises `FramingError` if it ends within a message."""
        if self._buffer:
            raise FramingError("the event stream is truncated")

    def _message_size(self, start: int) -> int | None:
        """Return the size of the message that begins at `start`; None if its lengths have not arrived yet."""
        if len(self._buffer) < start + _PRELUDE.size:
            return None
        size, headers_size, checksum = _PRELUDE.unpack_from(self._buffer, start)
        if crc32(self._buffer[start : start + 8]) != checksum:
            raise FramingError("prelude checksum mismatch")
        if headers_size > LIMIT_HEADERS or not 0 <= size - headers_size - _OVERHEAD <= LIMIT_PAYLOAD:
            raise FramingError(f"invalid length of a message: {size} bytes, {headers_size} of them headers")
        return int(size)


def _decode_message(data: bytes) -> EventMessage:
    """Decode a message whose lengths are valid."""
    end = len(data) - _CHECKSUM.size
    if crc32(data[:end]) != _CHECKSUM.unpack_from(data, end)[0]:
        raise FramingError("wrong checksum of a message")
    payload_start = _PRELUDE.size + _PRELUDE.unpack_from(data)[1]
    return EventMessage(_decode_headers(data[_PRELUDE.size : payload_start]), data[payload_start:end])


def _decode_headers(data: bytes) -> dict[str, str]:
    """Decode the string headers of a message."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            start = name_end + 1
            if kind in (_STRING, _BYTE_ARRAY):
                start += _LENGTH.size
                size = _LENGTH.unpack_from(data, start - _LENGTH.size)[0]
            else:
                size = _FIXED_SIZES[kind]
            at = start + size
            if at > len(data):
                raise FramingError("a header extends past the end of the headers")
            if kind == _STRING:
                headers[name] = data[start:at].decode()
    except (IndexError, KeyError, UnicodeDecodeError, struct.error):
        raise FramingError("invalid headers of a message") from None
    return headers


def encode_message(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode a message with string headers."""
    parts = [
        bytes([len(name.encode())])
        + name.encode()
        + bytes([_STRING])
        + _LENGTH.pack(len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    ]
    head = b"".join(parts)
    lengths = _PRELUDE.pack(_OVERHEAD + len(head) + len(payload), len(head), 0)[:8]
    message = lengths + _CHECKSUM.pack(crc32(lengths)) + head + payload
    return message + _CHECKSUM.pack(crc32(message))
