"""Detection of complete calls, which servers that repeat the name require for every fragment."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.canonical.events import Event, PartStart
from toolwire.protocols.openai_chat.parts.calls import is_json
from toolwire.protocols.openai_chat.stream_calls import CallAssembler, _OpenCall
from toolwire.protocols.openai_chat.wire import FragmentShape, FunctionCallShape

_PIECES = st.sampled_from(
    ['{"a":', "1", " ", "}", "{", "}", "[", "]", '"', "\\", '\\"', "x", "true", ",", "-", '{"k":"\\\\"}']
)


@settings(deadline=None, max_examples=200)
@given(st.lists(_PIECES | st.sampled_from(['{"a":"b\\"}', '"}', '{"a":[1,"]"]}']), max_size=9))
def test_call_is_complete_when_its_arguments_are_json(pieces: list[str]) -> None:
    call = _OpenCall(freeform=False, legacy=False)
    for count, piece in enumerate(pieces, 1):
        call.pieces.append(piece)
        assert call.is_complete() == is_json("".join(pieces[:count])), pieces[:count]


@pytest.mark.parametrize("piece", ["x" * 8, '\\"\\\\', "{}{}"])
def test_repeated_names_take_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        calls = CallAssembler(0, "answer", lambda events: 0)
        events: list[Event] = []
        start = time.process_time()
        calls.add_fragment(_fragment('{"text":"'), events)
        for _ in range(count):
            calls.add_fragment(_fragment(piece), events)
        calls.add_fragment(_fragment('"}'), events)
        assert sum(isinstance(event, PartStart) for event in events) == 1
        return time.process_time() - start

    # 16 times the fragments take about 16 times the CPU time; rescanning all pieces would take 256 times.
    baseline = min(seconds(2_500) for _ in range(3))
    assert min(seconds(40_000) for _ in range(3)) < 100 * baseline


def _fragment(text: str) -> FragmentShape:
    """Return a fragment that repeats the name of its call."""
    return FragmentShape(index=0, function=FunctionCallShape(name="f", arguments=text))
