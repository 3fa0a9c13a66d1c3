"""Stream framing: SSE, newline-delimited JSON, JSON arrays, and Unicode line separators."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.support.gateway.in_process import PROTOCOL_NAMES
from tests.support.slices import CUT_POINTS, slice_at, slice_in_two
from toolwire.codec import framing
from toolwire.codec.framing import (
    JsonArrayFramer,
    LineSplitter,
    SseSplitter,
    encode_line,
    encode_sse_frame,
    escape_line_separators,
)

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
SSE_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12).map(str.encode)
DATA = st.builds(lambda space, value: b"data:" + space + value, st.sampled_from([b"", b" ", b"  "]), SSE_VALUES)
BARE = st.sampled_from([b"data", b"event", b"database"])
FIELDS = BARE | st.builds(
    lambda name, value: name + value,
    st.sampled_from([b":", b": ", b"event: ", b"id: ", b"retry: ", b"dat: "]),
    SSE_VALUES,
)
FRAMES = st.lists(st.lists(DATA | FIELDS, min_size=1, max_size=4), max_size=5)


def split_sse(*pieces: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [data for piece in pieces for data in splitter.feed(piece)] + splitter.close()


def reference_split(wire: bytes) -> list[bytes]:
    """Split as the SSE standard describes; an unfinished last frame counts, since some servers omit its end."""
    frames: list[bytes] = []
    data: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", wire.removeprefix(b"\xef\xbb\xbf")), b""]:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            frames.append(b"\n".join(data))
            data = []
    return frames


@st.composite
def wires(draw: st.DrawFn) -> bytes:
    wire = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\n", b"\r\n"]))
    for lines in draw(FRAMES):
        for line in lines:
            wire += line + draw(LINE_ENDS)
        wire += draw(LINE_ENDS)
    last = draw(st.lists(DATA | FIELDS, max_size=2))
    return wire + draw(LINE_ENDS).join(last)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b"data: a\n\r\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\ndata: b\n\n: ping\n\n", [b"a\nb"]),
        (b"data: a\ndata\ndata:\n\nevent: x\n\n", [b"a\n\n"]),
        (b"data: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:\n\n", [b""]),
        (b"event: x\nid: 7\nretry: 10\n: note\ndata: a\n\n", [b"a"]),
        (b": only\n\nevent: x\n\n", []),
        (b"database: a\n\n data: a\n\n", []),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        (b"data: a\n\nda", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: \xe2\x80\xa8\x0b\xc2\x85\n\n", [b"\xe2\x80\xa8\x0b\xc2\x85"]),
        (b"", []),
        (b"\n\n\n", []),
        (b'data: a\n\n{"error": 1}\n\ndata: b\n\n', [b"a", b'{"error": 1}', b"b"]),
        (b'data: a\r\n\r\n\r\n{\r\n "error": 1\r\n}', [b"a", b'{\n "error": 1\n}']),
        (b'{"error": 1}\n', [b'{"error": 1}']),
        (b'event: x\n{"error": 1}\n\n', []),
    ],
)
def test_frames(wire: bytes, expected: list[bytes]) -> None:
    assert split_sse(wire) == expected
    for pieces in slice_in_two(wire):
        assert split_sse(*pieces) == expected


@settings(deadline=None)
@given(wires(), CUT_POINTS)
def test_sse_follows_the_standard_at_any_cut(wire: bytes, points: list[int]) -> None:
    expected = reference_split(wire)
    assert split_sse(wire) == expected
    assert split_sse(*slice_at(wire, points)) == expected
    assert split_sse(*(wire[index : index + 1] for index in range(len(wire)))) == expected


@settings(deadline=None)
@given(st.lists(SSE_VALUES, max_size=6), st.booleans(), CUT_POINTS)
def test_encoded_frames_are_split_again(values: list[bytes], named: bool, points: list[int]) -> None:
    wire = b"".join(encode_sse_frame(value, b"name" if named else None) for value in values)
    assert split_sse(*slice_at(wire, points)) == values


def test_invalid_utf8_frame_is_truncated_to_its_first_bad_byte() -> None:
    wire = 'data: "é"\n\ndata: "'.encode() + b'\xff"\n\ndata: 1\n\n'
    assert split_sse(wire) == ['"é"'.encode(), b"\xff", b"1"]
    for pieces in slice_in_two(wire):
        assert split_sse(*pieces) == ['"é"'.encode(), b"\xff", b"1"]


@pytest.mark.parametrize("name", [None, b"name", b"of two\nlines"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_multiline_json_fits_in_one_frame(end: str, name: bytes | None) -> None:
    value = {"text": "a\nb\rc", "list": [1, {"two": 2}]}
    wire = encode_sse_frame(json.dumps(value, indent=1).replace("\n", end).encode(), name)
    assert wire.startswith(b"event: name\ndata: {" if name == b"name" else b"data: {")
    assert [json.loads(data) for data in split_sse(wire)] == [value]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_frame_is_returned_as_soon_as_it_is_complete(end: bytes) -> None:
    splitter = SseSplitter()
    for number in (b"1", b"2"):
        assert splitter.feed(b"data: " + number) == []
        assert splitter.feed(b"") == []
        assert splitter.feed(end) == []
        # The CR of the last CRLF suffices: its LF may come much later.
        assert splitter.feed(end[:1]) == [number]
        assert splitter.feed(end[1:]) == []
    assert splitter.close() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_frame_pieces_are_joined_once(end: bytes) -> None:
    splitter = SseSplitter()
    for number in range(5_000):
        assert splitter.feed(b"data: %d" % number + end) == []
    assert len(splitter._pieces) == 5_000
    assert splitter.feed(end) == [b"\n".join(b"%d" % number for number in range(5_000))]
    assert splitter._pieces == []


def test_oversized_frame_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "LIMIT_FRAME", 100)
    splitter = SseSplitter()
    for _ in range(3):
        assert splitter.feed(b"data: " + b"a" * 80 + b"\n\n") == [b"a" * 80]
    splitter.feed(b"data: " + b"a" * 80)
    with pytest.raises(ValueError, match="exceeds 100 bytes"):
        splitter.feed(b"a" * 80)


NDJSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def split_ndjson(*pieces: bytes) -> list[bytes]:
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.close()


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n\n \n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        ('{"a":"é"}\n'.encode(), ['{"a":"é"}'.encode()]),
        (b"1", [b"1"]),
        (b"\n\r\n \t\n", []),
        (b"", []),
    ],
)
def test_lines(wire: bytes, expected: list[bytes]) -> None:
    assert split_ndjson(wire) == expected
    for pieces in slice_in_two(wire):
        assert split_ndjson(*pieces) == expected


@settings(deadline=None)
@given(st.lists(NDJSON_VALUES, max_size=6), st.booleans(), CUT_POINTS)
def test_encoded_lines_are_split_again(values: list[Any], ended: bool, points: list[int]) -> None:
    wire = b"".join(encode_line(json.dumps(value, ensure_ascii=False).encode()) for value in values)
    pieces = slice_at(wire if ended else wire.removesuffix(b"\n"), points)
    assert [json.loads(line) for line in split_ndjson(*pieces)] == values


def test_line_is_returned_as_soon_as_it_is_complete() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.feed(b"1}") == []
    assert splitter.feed(b"\n[") == [b'{"a":1}']
    assert splitter.feed(b"]\n") == [b"[]"]
    assert splitter.close() == []


def test_line_pieces_are_joined_once() -> None:
    splitter = LineSplitter()
    for _ in range(5_000):
        assert splitter.feed(b"ab") == []
    assert splitter._pieces == [b"ab"] * 5_000
    assert splitter.feed(b"\n") == [b"ab" * 5_000]
    assert splitter._pieces == []


def test_oversized_line_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "LIMIT_LINE", 100)
    splitter = LineSplitter()
    for _ in range(3):
        assert splitter.feed(b"a" * 80 + b"\n") == [b"a" * 80]
    splitter.feed(b"a" * 80)
    with pytest.raises(ValueError, match="exceeds 100 bytes"):
        splitter.feed(b"a" * 80)


@pytest.mark.parametrize("count", range(4))
def test_frames_become_array_elements(count: int) -> None:
    values = [{"n": number, "text": 'a\u2028[]{}"'} for number in range(count)]
    framer = JsonArrayFramer()
    out = b""
    for number, value in enumerate(values):
        out += framer.add(encode_sse_frame(json.dumps(value).encode()))
        assert json.loads(out + b"]") == values[: number + 1]
    assert json.loads(out + framer.close()) == values


def test_several_and_multiline_frames_become_elements() -> None:
    framer = JsonArrayFramer()
    out = framer.add(encode_sse_frame(b'{"a":\n1}') + encode_sse_frame(b"{}"))
    assert json.loads(out + framer.close()) == [{"a": 1}, {}]


def test_comments_become_whitespace() -> None:
    framer = JsonArrayFramer()
    out = framer.add(b"\n\n") + framer.add(encode_sse_frame(b"1")) + framer.add(b"\n\n") + framer.add(b": ping\n\n")
    assert out == b"[1\n\n"
    assert json.loads(out + framer.close()) == [1]


LINE_SEPARATORS = "a\u2028b\u2029c\x85d ü “e” \u2027"


def test_only_line_separators_are_escaped() -> None:
    frames = f'data: {{"text":"{LINE_SEPARATORS}"}}\n\n'.encode()
    assert escape_line_separators(frames) == rb'data: {"text":"a\u2028b\u2029c\u0085d ' + 'ü “e” \u2027"}\n\n'.encode()
    assert json.loads(escape_line_separators(frames)[6:]) == {"text": LINE_SEPARATORS}


@pytest.mark.parametrize("target", PROTOCOL_NAMES)
def test_streams_contain_no_unescaped_line_separators(target: str) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [({"role": "assistant", "content": LINE_SEPARATORS}, None), ({}, "stop")]
    chunks = [{**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": stop}]} for d, stop in deltas]
    stream = (
        "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"
    )
    wire = b"".join(tw.translate_stream(stream, "openai-chat", target)).decode()
    assert wire.splitlines() == wire.split("\n")[:-1]
    assert json.dumps(LINE_SEPARATORS)[1:8] in wire
