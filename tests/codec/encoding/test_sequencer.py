"""Sequence: whatever interleaves comes out one part after the other, and nothing is lost."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.support.protocols import ALL_PROTOCOLS, RESPONSES
from tests.support.samples import recorded_bodies
from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Usage
from toolwire.codec.encoding import sequencer
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

FAILED = ResponseFailed(error=ApiError(kind="server", message="cut"))


def ordered(events: list[Event]) -> list[Event]:
    sequence = PartSequencer()
    return [*fed(sequence, events), *sequence.close()]


def fed(sequence: PartSequencer, events: list[Event]) -> list[Event]:
    return [told for event in events for told in sequence.order(event)]


def start(index: int, message: int = 0, candidate: int = 0) -> PartStart:
    return PartStart(index=index, message=message, candidate=candidate, part=Text(text=""))


def delta(index: int, text: str = "x", candidate: int = 0) -> PartDelta:
    return PartDelta(index=index, text=text, candidate=candidate)


def end(index: int, candidate: int = 0) -> PartEnd:
    return PartEnd(index=index, candidate=candidate)


def key(event: Event) -> tuple[int, int] | None:
    return (event.candidate, event.index) if isinstance(event, PartStart | PartDelta | PartEnd) else None


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Messages of several parts, all running at once, in any order that their own orders allow; perhaps cut."""
    threads: list[list[Event]] = []
    index = 0
    for message in range(draw(st.integers(1, 3))):
        opening = len(threads)
        threads.append([MessageStart(message=message)])
        for _ in range(draw(st.integers(0, 3))):
            deltas = [delta(index, str(number)) for number in range(draw(st.integers(0, 3)))]
            threads.append([start(index, message), *deltas, end(index)])
            index += 1
        threads[opening] += [Notice(kind=str(message)), MessageEnd(message=message)]
    events: list[Event] = [ResponseStart(origin="")]
    left = [list(thread) for thread in threads]
    while any(left):
        ready = [thread for thread in left if thread and _may_come(thread[0], left, events)]
        events.append(draw(st.sampled_from(ready)).pop(0))
    events.append(ResponseEnd())
    return events[: draw(st.integers(0, len(events)))] if draw(st.booleans()) else events


def _may_come(event: Event, left: list[list[Event]], told: list[Event]) -> bool:
    if isinstance(event, PartStart):
        return MessageStart(message=event.message) in told
    if isinstance(event, MessageEnd):
        parts = [first for thread in left for first in thread if isinstance(first, PartStart)]
        ended = {one.index for one in told if isinstance(one, PartEnd)}
        begun = {one.index for one in told if isinstance(one, PartStart) and one.message == event.message}
        return begun <= ended and all(one.message != event.message for one in parts)
    return True


@settings(deadline=None, max_examples=200)
@given(streams())
def test_any_interleaving_becomes_one_after_the_other(events: list[Event]) -> None:
    told = ordered(events)
    _assert_sequential(told)
    # Nothing is lost or made up, and each part is told in its own order.
    assert Counter(map(str, told)) == Counter(map(str, events))
    for part in {key(event) for event in events} - {None}:
        assert [event for event in told if key(event) == part] == [event for event in events if key(event) == part]
    assert fold(told) == fold(events)
    for event in told:
        if isinstance(event, PartStart):
            assert told.index(MessageStart(message=event.message)) < told.index(event)
        if isinstance(event, MessageEnd):
            parts = [one.index for one in told if isinstance(one, PartStart) and one.message == event.message]
            assert all(told.index(end(index)) < told.index(event) for index in parts)


def _assert_sequential(told: list[Event]) -> None:
    parts = [part for event in told if (part := key(event)) is not None]
    runs = [part for place, part in enumerate(parts) if place == 0 or parts[place - 1] != part]
    assert len(runs) == len(set(runs))


@settings(deadline=None)
@given(streams().filter(lambda events: ResponseEnd() in events))
def test_what_is_in_order_passes_at_once(events: list[Event]) -> None:
    told = ordered(events)
    order = PartSequencer()
    assert [order.order(event) for event in told] == [[event] for event in told]


@settings(deadline=None)
@given(streams(), st.sampled_from([FAILED, ResponseEnd()]))
def test_nothing_comes_after_the_end(events: list[Event], last: Event) -> None:
    events = [event for event in events if not isinstance(event, ResponseEnd)]
    order = PartSequencer()
    told = fed(order, [*events, last])
    assert told[-1] == last
    assert len(told) == len(events) + 1
    assert [*order.close()] == []
    _assert_sequential(told)


def test_the_first_open_part_speaks_at_once() -> None:
    order = PartSequencer()
    steps: list[tuple[Event, list[Event]]] = [
        (start(0), [start(0)]),
        (start(1), []),
        (delta(0, "a"), [delta(0, "a")]),
        (delta(1, "b"), []),
        (Notice(kind="ping"), [Notice(kind="ping")]),
        (UsageReport(usage=Usage()), [UsageReport(usage=Usage())]),
        (end(0), [end(0), start(1), delta(1, "b")]),
        (delta(1, "c"), [delta(1, "c")]),
        (end(1), [end(1)]),
    ]
    assert [order.order(event) for event, _ in steps] == [told for _, told in steps]


@settings(deadline=None)
@given(streams())
def test_what_was_kept_until_the_end_passes_through_again(events: list[Event]) -> None:
    order = PartSequencer()
    told = fed(order, events)
    last = [*order.close()]
    assert fed(order, last) == last
    assert len(told) + len(last) == len(events)


def test_candidates_are_told_apart() -> None:
    events: list[Event] = [start(0), start(0, candidate=1), delta(0, "b", 1), delta(0, "a"), end(0, 1), end(0)]
    assert ordered(events) == [start(0), delta(0, "a"), end(0), start(0, candidate=1), delta(0, "b", 1), end(0, 1)]


def test_any_number_of_parts_may_run_at_once() -> None:
    numbers = range(3_000)
    # The one that speaks ends last: all the others then follow it at once.
    events: list[Event] = [*map(start, numbers), *map(delta, numbers), *map(end, reversed(numbers))]
    told = ordered(events)
    assert told == [event for number in numbers for event in (start(number), delta(number), end(number))]


def test_what_belongs_to_no_part_is_kept_all_the_same() -> None:
    events: list[Event] = [delta(7), start(0), delta(8), end(9), end(0), delta(0)]
    assert ordered(events) == [delta(7), start(0), end(0), delta(8), end(9), delta(0)]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "LIMIT_WAITING", 10)
    order = PartSequencer()
    for _ in range(3):
        told = fed(order, [start(0), start(1), *[delta(1)] * 8, end(0), end(1)])
        assert len(told) == 12
    assert order.failure is None
    assert len(fed(order, [start(0), start(1), *[delta(1)] * 100])) == 1
    assert order.failure is not None
    assert "more than 10 events wait" in order.failure.message
    failed = ResponseFailed(error=order.failure)
    assert fed(order, [end(0), ResponseEnd(), failed]) == [start(1), *[delta(1)] * 9, failed]


@pytest.mark.parametrize("target", [name for name in ALL_PROTOCOLS if name != RESPONSES])
@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_in_which_too_much_waits_ends_with_an_error(
    target: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "LIMIT_WAITING", 2)
    wire = recorded_bodies.fixture_streams(RESPONSES)["interleaved_items"]
    chunks = [wire] if whole else [wire[place : place + 100] for place in range(0, len(wire), 100)]
    stream = tw.translate_stream(chunks, RESPONSES, target)
    told = b"".join(stream)
    assert stream.error is not None
    assert stream.broken
    decoder = PROTOCOLS[target].stream_decoder(ResponseContext())
    events = [*decoder.feed(told), *decoder.close()]
    (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
    assert "more than 2 events wait" in failed.error.message
    assert events[-1] is failed
