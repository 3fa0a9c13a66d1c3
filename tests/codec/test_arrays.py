"""A JSON array that grows: at every moment the start of one, and whole at its end."""

import json

import pytest

from toolwire.codec.arrays import ArrayFraming
from toolwire.codec.sse import frame


@pytest.mark.parametrize("count", range(4))
def test_the_frames_are_the_elements(count: int) -> None:
    values = [{"n": number, "text": 'a\u2028[]{}"'} for number in range(count)]
    framing = ArrayFraming()
    told = b""
    for number, value in enumerate(values):
        told += framing.add(frame(json.dumps(value).encode()))
        assert json.loads(told + b"]") == values[: number + 1]
    assert json.loads(told + framing.close()) == values


def test_several_frames_at_once_and_those_of_several_lines() -> None:
    framing = ArrayFraming()
    told = framing.add(frame(b'{"a":\n1}') + frame(b"{}"))
    assert json.loads(told + framing.close()) == [{"a": 1}, {}]


def test_what_is_no_frame_is_space() -> None:
    framing = ArrayFraming()
    told = framing.add(b"\n\n") + framing.add(frame(b"1")) + framing.add(b"\n\n") + framing.add(b": ping\n\n")
    assert told == b"[1\n\n"
    assert json.loads(told + framing.close()) == [1]
