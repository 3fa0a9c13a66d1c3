"""The fast path for text deltas with equal heads: frames that differ in anything else are decoded completely."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.events import Event, PartDelta, ResponseFailed, separate_deltas
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

START = [
    {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
]


def frame(body: bytes) -> bytes:
    return b"event: x\ndata: " + body + b"\n\n"


def text_delta(literal: str) -> bytes:
    """Return a text delta with this JSON string."""
    return b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":' + literal.encode() + b"}}"


def events(*bodies: bytes) -> list[Event]:
    decoder = PROTOCOLS["anthropic"].stream_decoder(ResponseContext())
    start = b"".join(frame(json.dumps(body).encode()) for body in START)
    return separate_deltas(decoder.feed(start + b"".join(map(frame, bodies))))


def deltas(decoded: list[Event]) -> list[tuple[int, str]]:
    return [(event.index, event.text) for event in decoded if isinstance(event, PartDelta)]


@pytest.mark.parametrize("content", ["plain", "}}", '"}}', '\\"text\\":', "\u00e9\U0001f600", "", "\\n\\t/"])
def test_any_text_is_decoded(content: str) -> None:
    literal = json.dumps(content, ensure_ascii=False)
    assert deltas(events(text_delta('"a"'), text_delta(literal), text_delta('"z"'))) == [
        (0, "a"),
        (0, content),
        (0, "z"),
    ]


def test_escapes_and_whitespace_follow_json() -> None:
    assert deltas(events(text_delta('"a"'), text_delta('"\\u00e9\\n" '), text_delta(' "b"'))) == [
        (0, "a"),
        (0, "\u00e9\n"),
        (0, "b"),
    ]


def test_other_blocks_and_kinds_are_distinguished() -> None:
    other_block = text_delta('"b"').replace(b'"index":0', b'"index":1')
    arguments = (
        b'{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{"}}',
        b'{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"}"}}',
    )
    decoded = deltas(events(text_delta('"a"'), other_block, text_delta('"c"'), *arguments))
    assert decoded == [(0, "a"), (1, "b"), (0, "c"), (2, "{"), (2, "}")]


def test_additional_fields_are_kept_as_extras() -> None:
    frame_with_extra = text_delta('"b"')[:-1] + b',"note":1}'
    decoded: list[Any] = [
        event for event in events(text_delta('"a"'), frame_with_extra) if isinstance(event, PartDelta)
    ]
    assert [event.text for event in decoded] == ["a", "b"]
    assert decoded[1].extras is not None


@pytest.mark.parametrize("broken", [text_delta("1"), text_delta('"a'), text_delta('"a" "b"'), text_delta("null")[:-1]])
def test_invalid_json_breaks_the_stream(broken: bytes) -> None:
    assert isinstance(events(text_delta('"a"'), broken)[-1], ResponseFailed)


@pytest.mark.parametrize("truncated", [text_delta('"b"')[:-2], text_delta('"b"')[:-1]])
def test_truncated_last_frame_breaks_the_stream(truncated: bytes) -> None:
    decoded = events(text_delta('"a"'), truncated)
    assert isinstance(decoded[-1], ResponseFailed)
    assert deltas(decoded) == [(0, "a")]


def test_frames_after_message_stop_are_ignored() -> None:
    assert deltas(events(text_delta('"a"'), b'{"type":"message_stop"}', text_delta('"b"'), text_delta('"c"'))) == [
        (0, "a")
    ]


def test_call_start_without_input_is_restored() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "later": True}
    bodies = [START[0], {"type": "content_block_start", "index": 0, "content_block": block}]
    wire = b"".join(frame(json.dumps(body).encode()) for body in bodies)
    lines = b"".join(tw.translate_stream([wire], "anthropic", "anthropic")).split(b"\n")
    (start_line,) = [line for line in lines if line.startswith(b"data: ") and b'"content_block_start"' in line]
    assert json.loads(start_line[6:])["content_block"] == block


@pytest.mark.parametrize("literal", ['\n\n"b"', '"b"\n\n', '\n"b"'])
def test_a_line_break_around_the_text_ends_the_line_as_in_any_frame(literal: str) -> None:
    decoded = events(text_delta('"a"'), text_delta(literal))
    assert deltas(decoded) == [(0, "a")]
    assert isinstance(decoded[-1], ResponseFailed)
