"""Streams with an excessive candidate index."""

import json

import pytest

import toolwire as tw
from tests.support.protocols import ALL_PROTOCOLS, CHAT, GEMINI, OPENROUTER

CHUNKS = {
    CHAT: {"id": "1", "choices": [{"index": 1_000_000, "delta": {"role": "assistant", "content": "a"}}]},
    OPENROUTER: {"id": "1", "choices": [{"index": -1, "delta": {"role": "assistant", "content": "a"}}]},
    GEMINI: {"candidates": [{"index": 1_000_000, "content": {"role": "model", "parts": [{"text": "a"}]}}]},
}


@pytest.mark.parametrize("source", CHUNKS)
@pytest.mark.parametrize("target", ALL_PROTOCOLS)
def test_an_excessive_candidate_index_ends_the_stream_with_an_error(source: str, target: str) -> None:
    """Encoders open all candidates below an index, so one chunk could take gigabytes."""
    wire = b"data: %b\n\n" % json.dumps(CHUNKS[source]).encode()
    translated = b"".join(tw.translate_stream([wire], source, target))
    assert len(translated) < 10_000
    assert b"an index from 0 to 127" in translated
