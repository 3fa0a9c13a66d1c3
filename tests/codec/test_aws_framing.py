"""AWS event-stream framing: any split, damage and size, judged by botocore."""

import struct
from binascii import crc32
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slices import CUT_POINTS, slice_at
from toolwire.codec.aws_framing import (
    LIMIT_HEADERS,
    LIMIT_PAYLOAD,
    EventMessage,
    EventStreamSplitter,
    FramingError,
    encode_message,
)

HEADERS = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=4)
MESSAGES = st.lists(st.builds(EventMessage, HEADERS, st.binary(max_size=50)), max_size=4)


def split(*pieces: bytes) -> list[EventMessage]:
    splitter = EventStreamSplitter()
    messages = [message for piece in pieces for message in splitter.feed(piece)]
    splitter.close()
    return messages


def encode_all(messages: list[EventMessage]) -> bytes:
    return b"".join(encode_message(message.headers, message.payload) for message in messages)


@given(MESSAGES, CUT_POINTS)
def test_messages_survive_any_split(messages: list[EventMessage], cuts: Any) -> None:
    assert split(*slice_at(encode_all(messages), cuts)) == messages


@given(MESSAGES)
def test_botocore_reads_the_messages(messages: list[EventMessage]) -> None:
    eventstream = pytest.importorskip("botocore.eventstream")
    buffer = eventstream.EventStreamBuffer()
    buffer.add_data(encode_all(messages))
    assert [EventMessage(event.headers, event.payload) for event in buffer] == messages


@given(MESSAGES.filter(bool), st.data())
def test_every_changed_bit_is_noticed(messages: list[EventMessage], data: st.DataObject) -> None:
    wire = bytearray(encode_all(messages))
    position = data.draw(st.integers(0, len(wire) * 8 - 1))
    wire[position // 8] ^= 1 << position % 8
    with pytest.raises(FramingError):
        split(bytes(wire))


@given(MESSAGES.filter(bool), st.data())
def test_truncation_is_noticed(messages: list[EventMessage], data: st.DataObject) -> None:
    wire = encode_message(messages[0].headers, messages[0].payload)
    with pytest.raises(FramingError, match="truncated"):
        split(wire[: data.draw(st.integers(1, len(wire) - 1))])


def _message(head: bytes, payload: bytes = b"") -> bytes:
    lengths = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    message = lengths + struct.pack("!I", crc32(lengths)) + head + payload
    return message + struct.pack("!I", crc32(message))


def test_headers_of_other_types_are_skipped() -> None:
    others = b"".join(
        bytes([1]) + name + bytes([kind]) + value
        for name, kind, value in (
            (b"a", 0, b""),
            (b"b", 1, b""),
            (b"c", 2, b"x"),
            (b"d", 3, b"xx"),
            (b"e", 4, b"xxxx"),
            (b"f", 5, b"x" * 8),
            (b"g", 6, b"\0\2xx"),
            (b"h", 8, b"x" * 8),
            (b"i", 9, b"x" * 16),
        )
    )
    text = b"\1s\7\0\2hi"
    assert split(_message(others + text, b"payload")) == [EventMessage({"s": "hi"}, b"payload")]


@pytest.mark.parametrize(
    "head", [b"\5ab", b"\1a", b"\1a\x0a", b"\1a\7\0\5hi", b"\1a\7\0", b"\1\xff\0", b"\1a\7\0\1\xff"]
)
def test_invalid_headers_are_refused(head: bytes) -> None:
    with pytest.raises(FramingError):
        split(_message(head))


@pytest.mark.parametrize(
    ("total", "headers"),
    [(15, 0), (16, 1), (16 + LIMIT_PAYLOAD + 1, 0), (LIMIT_HEADERS + 17, LIMIT_HEADERS + 1), (0xFFFFFFFF, 0)],
)
def test_lengths_beyond_the_limits_are_refused_at_once(total: int, headers: int) -> None:
    lengths = struct.pack("!II", total, headers)
    with pytest.raises(FramingError, match="invalid length"):
        EventStreamSplitter().feed(lengths + struct.pack("!I", crc32(lengths)))
