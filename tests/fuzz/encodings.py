"""Compressed bodies in packets, compared with zlib on the complete body."""

import zlib

from tests.fuzz.engine import Target
from tests.fuzz.packets import read_seeds, split
from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError

LIMIT = 50_000
TOKENS = (b"\x1f\x8b", b"\x1f\x8b\x08\x00", b"\x78\x9c", b"\x00\x00\xff\xff", b"\x03\x00", bytes(8))


def check(data: bytes) -> None:
    expected = _inflate(data)
    output = _unpack("gzip", split(data))
    assert output == expected, f"zlib: {_describe(expected)}, here: {_describe(output)}"
    assert _unpack("deflate", [data]) == _unpack("x-gzip", [data]), "one name of an encoding differs from another"
    layered = _unpack("gzip, deflate", split(zlib.compress(data)))
    assert layered == expected, f"zlib: {_describe(expected)}, in another layer: {_describe(layered)}"


def _inflate(data: bytes) -> bytes | None:
    """Decompress every member of the input; return None if it is invalid, truncated or too long."""
    output = b""
    while data:
        inflating = zlib.decompressobj(32 + zlib.MAX_WBITS)
        try:
            output += inflating.decompress(data)
        except zlib.error:
            return None
        if not inflating.eof:
            return None
        data = inflating.unused_data
    return output if len(output) <= LIMIT else None


def _unpack(encoding: str, packets: list[bytes]) -> bytes | None:
    unpacker = ContentDecoder(encoding)
    output = b""
    try:
        for packet in packets:
            output += unpacker.feed(packet, LIMIT)
        unpacker.close()
    except ContentEncodingError:
        return None
    return output if len(output) <= LIMIT else None


def _describe(output: bytes | None) -> str:
    return "refused" if output is None else f"{len(output)} bytes"


TARGETS = [Target("encodings", lambda: read_seeds("encodings"), check, TOKENS)]
