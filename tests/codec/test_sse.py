"""Server-sent events: what a plain reading of the standard gives, whatever the cuts and line ends."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.pieces import POINTS, cut, cut_in_two
from toolwire.codec import sse
from toolwire.codec.sse import SseSplitter, frame

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12).map(str.encode)
DATA = st.builds(lambda space, value: b"data:" + space + value, st.sampled_from([b"", b" ", b"  "]), VALUES)
BARE = st.sampled_from([b"data", b"event", b"database"])
FIELDS = BARE | st.builds(
    lambda name, value: name + value, st.sampled_from([b":", b": ", b"event: ", b"id: ", b"retry: ", b"dat: "]), VALUES
)
FRAMES = st.lists(st.lists(DATA | FIELDS, min_size=1, max_size=4), max_size=5)


def split(*pieces: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [data for piece in pieces for data in splitter.feed(piece)] + splitter.close()


def plainly(wire: bytes) -> list[bytes]:
    """The standard's own steps, line by line; an unfinished last frame counts, since servers do close like that."""
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
    assert split(wire) == expected
    for pieces in cut_in_two(wire):
        assert split(*pieces) == expected


@settings(deadline=None)
@given(wires(), POINTS)
def test_any_cut_reads_as_the_standard_says(wire: bytes, points: list[int]) -> None:
    expected = plainly(wire)
    assert split(wire) == expected
    assert split(*cut(wire, points)) == expected
    assert split(*(wire[place : place + 1] for place in range(len(wire)))) == expected


@settings(deadline=None)
@given(st.lists(VALUES, max_size=6), st.booleans(), POINTS)
def test_what_was_framed_is_read_back(values: list[bytes], named: bool, points: list[int]) -> None:
    wire = b"".join(frame(value, b"name" if named else None) for value in values)
    assert split(*cut(wire, points)) == values


def test_a_frame_that_is_no_text_is_only_its_bad_byte() -> None:
    wire = 'data: "é"\n\ndata: "'.encode() + b'\xff"\n\ndata: 1\n\n'
    assert split(wire) == ['"é"'.encode(), b"\xff", b"1"]
    for pieces in cut_in_two(wire):
        assert split(*pieces) == ['"é"'.encode(), b"\xff", b"1"]


@pytest.mark.parametrize("name", [None, b"name", b"of two\nlines"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_json_of_several_lines_is_framed_whole(end: str, name: bytes | None) -> None:
    value = {"text": "a\nb\rc", "list": [1, {"two": 2}]}
    wire = frame(json.dumps(value, indent=1).replace("\n", end).encode(), name)
    assert wire.startswith(b"event: name\ndata: {" if name == b"name" else b"data: {")
    assert [json.loads(data) for data in split(wire)] == [value]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_frame_is_given_as_soon_as_it_is_whole(end: bytes) -> None:
    splitter = SseSplitter()
    for number in (b"1", b"2"):
        assert splitter.feed(b"data: " + number) == []
        assert splitter.feed(b"") == []
        assert splitter.feed(end) == []
        # Of the last CRLF the CR is enough: its LF may come much later.
        assert splitter.feed(end[:1]) == [number]
        assert splitter.feed(end[1:]) == []
    assert splitter.close() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_pieces_of_one_frame_are_joined_once(end: bytes) -> None:
    splitter = SseSplitter()
    for number in range(5_000):
        assert splitter.feed(b"data: %d" % number + end) == []
    assert len(splitter._pieces) == 5_000
    assert splitter.feed(end) == [b"\n".join(b"%d" % number for number in range(5_000))]
    assert splitter._pieces == []


def test_a_frame_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LIMIT_FRAME", 100)
    splitter = SseSplitter()
    for _ in range(3):
        assert splitter.feed(b"data: " + b"a" * 80 + b"\n\n") == [b"a" * 80]
    splitter.feed(b"data: " + b"a" * 80)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        splitter.feed(b"a" * 80)
