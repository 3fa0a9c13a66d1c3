"""Damaged and truncated streams of every protocol: each ends properly for every client, however it is split."""

from typing import Any

import toolwire as tw
from tests.fuzz.engine import Target
from tests.support.samples.fixture_files import PROTOCOLS, fixtures
from toolwire.canonical.fold import fold
from toolwire.codec.framing import LineSplitter, SseSplitter
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS as CODECS

_LONGEST_SEED = 20_000
_SPLITS = (1, 7, 64)


def _seeds(protocol: str) -> Any:
    def seeds() -> list[bytes]:
        wires = [wire for kind in ("streams", "broken_streams") for _, wire in fixtures(protocol, kind)]
        return [wire for wire in wires if len(wire) <= _LONGEST_SEED]

    return seeds


def _chunks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _check_translation(protocol: str) -> Any:
    def check(data: bytes) -> None:
        for target in PROTOCOLS:
            assert b"".join(tw.translate_stream([data], protocol, target)).decode()

    return check


def _check_splits(protocol: str) -> Any:
    """Check that a decoder reads the same response from one chunk and from many."""

    def folded(chunks: list[bytes]) -> Any:
        decoder = CODECS[protocol].stream_decoder(ResponseContext())
        return fold([event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close())

    def check(data: bytes) -> None:
        expected = folded([data])
        for size in _SPLITS:
            assert folded(_chunks(data, size)) == expected, f"split every {size} bytes"

    return check


def _check_splitter(make: Any) -> Any:
    def frames(chunks: list[bytes]) -> list[bytes]:
        splitter: SseSplitter | LineSplitter = make()
        return [frame for chunk in chunks for frame in splitter.feed(chunk)] + splitter.close()

    def check(data: bytes) -> None:
        expected = frames([data])
        for size in _SPLITS:
            assert frames(_chunks(data, size)) == expected, f"split every {size} bytes"

    return check


TARGETS = [
    *(Target(f"stream-{protocol}", _seeds(protocol), _check_translation(protocol)) for protocol in PROTOCOLS),
    *(Target(f"stream-splits-{protocol}", _seeds(protocol), _check_splits(protocol)) for protocol in PROTOCOLS),
    Target("sse", _seeds("openai-chat"), _check_splitter(SseSplitter)),
    Target("ndjson", _seeds("ollama"), _check_splitter(LineSplitter)),
]
