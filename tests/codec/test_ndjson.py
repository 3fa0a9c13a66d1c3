"""Newline-delimited JSON: the same lines at any cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.pieces import POINTS, cut, cut_in_two
from toolwire.codec import ndjson
from toolwire.codec.ndjson import LineSplitter, line

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def split(*pieces: bytes) -> list[bytes]:
    splitter = LineSplitter()
    return [found for piece in pieces for found in splitter.feed(piece)] + splitter.close()


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
    assert split(wire) == expected
    for pieces in cut_in_two(wire):
        assert split(*pieces) == expected


@settings(deadline=None)
@given(st.lists(VALUES, max_size=6), st.booleans(), POINTS)
def test_what_was_written_is_read_back(values: list[Any], ended: bool, points: list[int]) -> None:
    wire = b"".join(line(json.dumps(value, ensure_ascii=False).encode()) for value in values)
    pieces = cut(wire if ended else wire.removesuffix(b"\n"), points)
    assert [json.loads(found) for found in split(*pieces)] == values


def test_a_line_is_given_as_soon_as_it_is_whole() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.feed(b"1}") == []
    assert splitter.feed(b"\n[") == [b'{"a":1}']
    assert splitter.feed(b"]\n") == [b"[]"]
    assert splitter.close() == []


def test_pieces_of_one_line_are_joined_once() -> None:
    splitter = LineSplitter()
    for _ in range(5_000):
        assert splitter.feed(b"ab") == []
    assert splitter._pieces == [b"ab"] * 5_000
    assert splitter.feed(b"\n") == [b"ab" * 5_000]
    assert splitter._pieces == []


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "LIMIT_LINE", 100)
    splitter = LineSplitter()
    for _ in range(3):
        assert splitter.feed(b"a" * 80 + b"\n") == [b"a" * 80]
    splitter.feed(b"a" * 80)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        splitter.feed(b"a" * 80)
