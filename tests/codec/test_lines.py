"""Streams that a reader may split at every end of a line that Unicode knows."""

import json

import pytest

import toolwire as tw
from tests.gateway.running import PROTOCOL_NAMES
from toolwire.codec.lines import in_one_line

ENDS = "a\u2028b\u2029c\x85d ü “e” \u2027"


def test_only_ends_of_lines_are_escaped() -> None:
    frames = f'data: {{"text":"{ENDS}"}}\n\n'.encode()
    assert in_one_line(frames) == rb'data: {"text":"a\u2028b\u2029c\u0085d ' + 'ü “e” \u2027"}\n\n'.encode()
    assert json.loads(in_one_line(frames)[6:]) == {"text": ENDS}


@pytest.mark.parametrize("target", PROTOCOL_NAMES)
def test_no_stream_has_an_end_of_a_line_within_its_json(target: str) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [({"role": "assistant", "content": ENDS}, None), ({}, "stop")]
    chunks = [{**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": stop}]} for d, stop in deltas]
    stream = (
        "".join(f"data: {json.dumps(one, ensure_ascii=False)}\n\n" for one in chunks).encode() + b"data: [DONE]\n\n"
    )
    wire = b"".join(tw.translate_stream(stream, "openai-chat", target)).decode()
    assert wire.splitlines() == wire.split("\n")[:-1]
    assert json.dumps(ENDS)[1:8] in wire
