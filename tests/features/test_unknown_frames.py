"""Unknown frames in a stream: forwarded within their protocol, and reported as lost elsewhere."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies
from toolwire.protocols import PROTOCOLS

# An unknown frame for each protocol with typed frames; it is inserted after the first frame.
UNKNOWN_FRAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("block_of_tomorrow", {"type": "block_of_tomorrow", "x": 1}),
    "openai-responses": ("response.audio.delta", {"type": "response.audio.delta", "delta": "QUJD"}),
    "gemini-interactions": ("step.of_tomorrow", {"event_type": "step.of_tomorrow", "x": 1}),
}
PAIRS = [(source, target) for source in UNKNOWN_FRAMES for target in PROTOCOLS]


def stream_with_unknown_frame(source: str) -> bytes:
    kind, body = UNKNOWN_FRAMES[source]
    name = next(
        exchange
        for exchange in recorded_bodies.fixture_streams(source)
        if "text" in exchange or "basic" in exchange or "plain" in exchange
    )
    first, end, others = recorded_bodies.fixture_streams(source)[name].partition(b"\n\n")
    return first + end + f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode() + others


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_unknown_frame_is_forwarded_or_reported(source: str, target: str) -> None:
    kind, _ = UNKNOWN_FRAMES[source]
    stream = tw.translate_stream([stream_with_unknown_frame(source)], source, target)
    wire = b"".join(stream)
    assert stream.error is None
    lost = [(loss.kind, loss.path) for loss in stream.losses if loss.path == f"/{kind}"]
    assert (kind.encode() in wire, lost) == (source == target, [] if source == target else [("dropped", f"/{kind}")])


@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_citation_of_an_unknown_block_is_harmless(target: str) -> None:
    citation = {"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": None}
    cited = {"type": "citations_delta", "citation": citation | {"start_char_index": 0, "end_char_index": 1}}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    bodies: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "block_of_tomorrow", "x": 1}},
        {"type": "content_block_delta", "index": 0, "delta": cited},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
        {"type": "message_stop"},
    ]
    wire = b"".join(f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode() for body in bodies)
    stream = tw.translate_stream([wire], "anthropic", target)
    assert b"".join(stream)
    assert stream.error is None


@pytest.mark.parametrize("tail", [b"\r\x80\n\r\n", b"\n\x80\n\n", b"\n: \xff\n\n", b"\r\xff"])
def test_data_beside_a_line_that_is_not_utf8_is_forwarded(tail: bytes) -> None:
    """Same-protocol streams dropped the data of a frame with a comment that is not UTF-8."""
    data = b'data: {"promptFeedback":{"blockReason":"SAFETY"},"responseId":"r1"}'
    forwarded = b"".join(tw.translate_stream([data + tail], "gemini", "gemini"))
    assert forwarded == data + b"\n\n"
