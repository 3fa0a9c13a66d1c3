"""Deltas that begin alike are read by their text alone: whatever differs is still read whole."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.events import Event, PartDelta, ResponseFailed
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


def text(literal: str) -> bytes:
    return b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":' + literal.encode() + b"}}"


def events(*bodies: bytes) -> list[Event]:
    decoder = PROTOCOLS["anthropic"].stream_decoder(ResponseContext())
    opened = b"".join(frame(json.dumps(one).encode()) for one in START)
    return decoder.feed(opened + b"".join(map(frame, bodies)))


def deltas(found: list[Event]) -> list[tuple[int, str]]:
    return [(event.index, event.text) for event in found if isinstance(event, PartDelta)]


@pytest.mark.parametrize("said", ["plain", "}}", '"}}', '\\"text\\":', "\u00e9\U0001f600", "", "\\n\\t/"])
def test_texts_of_any_kind_follow_one_another(said: str) -> None:
    literal = json.dumps(said, ensure_ascii=False)
    assert deltas(events(text('"a"'), text(literal), text('"z"'))) == [(0, "a"), (0, said), (0, "z")]


def test_escapes_and_spaces_are_read_as_json_says() -> None:
    assert deltas(events(text('"a"'), text('"\\u00e9\\n" '), text(' "b"'))) == [(0, "a"), (0, "\u00e9\n"), (0, "b")]


def test_another_block_and_another_kind_are_told_apart() -> None:
    other = text('"b"').replace(b'"index":0', b'"index":1')
    arguments = (
        b'{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{"}}',
        b'{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"}"}}',
    )
    found = deltas(events(text('"a"'), other, text('"c"'), *arguments))
    assert found == [(0, "a"), (1, "b"), (0, "c"), (2, "{"), (2, "}")]


def test_what_only_begins_alike_keeps_what_it_says_more() -> None:
    more = text('"b"')[:-1] + b',"note":1}'
    kept: list[Any] = [event for event in events(text('"a"'), more) if isinstance(event, PartDelta)]
    assert [event.text for event in kept] == ["a", "b"]
    assert kept[1].extras is not None


@pytest.mark.parametrize("broken", [text("1"), text('"a'), text('"a" "b"'), text("null")[:-1]])
def test_what_only_begins_alike_and_is_no_json_breaks_the_stream(broken: bytes) -> None:
    assert isinstance(events(text('"a"'), broken)[-1], ResponseFailed)


@pytest.mark.parametrize("cut", [text('"b"')[:-2], text('"b"')[:-1]])
def test_the_last_one_must_end_as_the_others_do(cut: bytes) -> None:
    found = events(text('"a"'), cut)
    assert isinstance(found[-1], ResponseFailed)
    assert deltas(found) == [(0, "a")]


def test_after_the_end_nothing_is_heard() -> None:
    assert deltas(events(text('"a"'), b'{"type":"message_stop"}', text('"b"'), text('"c"'))) == [(0, "a")]


def test_a_call_that_starts_without_input_and_with_more_comes_home() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "later": True}
    bodies = [START[0], {"type": "content_block_start", "index": 0, "content_block": block}]
    wire = b"".join(frame(json.dumps(one).encode()) for one in bodies)
    lines = b"".join(tw.translate_stream([wire], "anthropic", "anthropic")).split(b"\n")
    (told,) = [line for line in lines if line.startswith(b"data: ") and b'"content_block_start"' in line]
    assert json.loads(told[6:])["content_block"] == block
