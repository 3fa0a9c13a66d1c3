"""Damaged event streams of Bedrock: the same result for every split, and as botocore reads them."""

import base64
import json
from typing import Any

from tests.fuzz.engine import Target
from tests.support.samples.fixture_files import fixtures
from toolwire.codec.aws_framing import EventStreamSplitter, FramingError, encode_message
from toolwire.codec.framing import SseSplitter
from toolwire.upstream.address import InvokeStreamDecoder

_SPLITS = (1, 7, 64)
_LONGEST_SEED = 4_000
_EVENT = {":event-type": "chunk", ":message-type": "event", ":content-type": "application/json"}
_EXCEPTION = {":exception-type": "throttlingException", ":message-type": "exception"}


def _seeds() -> list[bytes]:
    seeds = [encode_message(_EXCEPTION, b'{"message":"Too many requests"}'), encode_message({}, b"")]
    for _, wire in fixtures("anthropic", "streams"):
        chunks = [json.dumps({"bytes": base64.b64encode(data).decode()}) for data in SseSplitter().feed(wire)]
        stream = b"".join(encode_message(_EVENT, chunk.encode()) for chunk in chunks)
        seeds.append(stream[:_LONGEST_SEED])
    return seeds


def _decode(chunks: list[bytes]) -> tuple[bytes, str]:
    decoder, decoded = InvokeStreamDecoder(), b""
    try:
        for chunk in chunks:
            decoded += decoder.feed(chunk)
        decoder.close()
    except FramingError as error:
        return b"", str(error)
    return decoded, ""


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _check(data: bytes) -> None:
    expected = _decode([data])
    for size in _SPLITS:
        assert _decode(_split(data, size)) == expected, f"split every {size} bytes"
    _compare_with_botocore(data)


def _compare_with_botocore(data: bytes) -> None:
    """Check that the same messages are read, unless one of both refuses the data."""
    from botocore.eventstream import EventStreamBuffer

    ours: list[Any] = []
    splitter, buffer = EventStreamSplitter(), EventStreamBuffer()
    try:
        ours = splitter.feed(data)
        buffer.add_data(data)
        theirs = list(buffer)
    except Exception:  # noqa: BLE001 - botocore raises many types
        return
    assert [message.payload for message in ours] == [message.payload for message in theirs]


TARGETS = [Target("event-stream", _seeds, _check)]
