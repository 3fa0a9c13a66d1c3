"""The sequencer turns interleaved parts into sequential ones, without losing any event."""

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
    part_sequencer = PartSequencer()
    return [*fed(part_sequencer, events), *part_sequencer.close()]


def fed(part_sequencer: PartSequencer, events: list[Event]) -> list[Event]:
    return [released for event in events for released in part_sequencer.order(event)]


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
    """Generate messages with concurrently running parts, in any legal order, possibly cut off."""
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
    remaining = [list(thread) for thread in threads]
    while any(remaining):
        ready = [thread for thread in remaining if thread and _may_come(thread[0], remaining, events)]
        events.append(draw(st.sampled_from(ready)).pop(0))
    events.append(ResponseEnd())
    return events[: draw(st.integers(0, len(events)))] if draw(st.booleans()) else events


def _may_come(event: Event, remaining: list[list[Event]], events: list[Event]) -> bool:
    if isinstance(event, PartStart):
        return MessageStart(message=event.message) in events
    if isinstance(event, MessageEnd):
        parts = [first for thread in remaining for first in thread if isinstance(first, PartStart)]
        ended = {other.index for other in events if isinstance(other, PartEnd)}
        begun = {other.index for other in events if isinstance(other, PartStart) and other.message == event.message}
        return begun <= ended and all(other.message != event.message for other in parts)
    return True


@settings(deadline=None, max_examples=200)
@given(streams())
def test_interleaved_parts_become_sequential(events: list[Event]) -> None:
    sequenced = ordered(events)
    _assert_sequential(sequenced)
    # No event is lost or added, and the order within each part is kept.
    assert Counter(map(str, sequenced)) == Counter(map(str, events))
    for part in {key(event) for event in events} - {None}:
        assert [event for event in sequenced if key(event) == part] == [event for event in events if key(event) == part]
    assert fold(sequenced) == fold(events)
    for event in sequenced:
        if isinstance(event, PartStart):
            assert sequenced.index(MessageStart(message=event.message)) < sequenced.index(event)
        if isinstance(event, MessageEnd):
            parts = [
                other.index for other in sequenced if isinstance(other, PartStart) and other.message == event.message
            ]
            assert all(sequenced.index(end(index)) < sequenced.index(event) for index in parts)


def _assert_sequential(events: list[Event]) -> None:
    parts = [part for event in events if (part := key(event)) is not None]
    runs = [part for index, part in enumerate(parts) if index == 0 or parts[index - 1] != part]
    assert len(runs) == len(set(runs))


@settings(deadline=None)
@given(streams().filter(lambda events: ResponseEnd() in events))
def test_sequential_events_pass_immediately(events: list[Event]) -> None:
    sequenced = ordered(events)
    part_sequencer = PartSequencer()
    assert [part_sequencer.order(event) for event in sequenced] == [[event] for event in sequenced]


@settings(deadline=None)
@given(streams(), st.sampled_from([FAILED, ResponseEnd()]))
def test_nothing_follows_the_terminal_event(events: list[Event], last: Event) -> None:
    events = [event for event in events if not isinstance(event, ResponseEnd)]
    part_sequencer = PartSequencer()
    sequenced = fed(part_sequencer, [*events, last])
    assert sequenced[-1] == last
    assert len(sequenced) == len(events) + 1
    assert [*part_sequencer.close()] == []
    _assert_sequential(sequenced)


def test_first_open_part_is_passed_on_immediately() -> None:
    part_sequencer = PartSequencer()
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
    assert [part_sequencer.order(event) for event, _ in steps] == [released for _, released in steps]


@settings(deadline=None)
@given(streams())
def test_events_flushed_at_close_pass_unchanged(events: list[Event]) -> None:
    part_sequencer = PartSequencer()
    sequenced = fed(part_sequencer, events)
    last = [*part_sequencer.close()]
    assert fed(part_sequencer, last) == last
    assert len(sequenced) + len(last) == len(events)


def test_candidates_are_kept_apart() -> None:
    events: list[Event] = [start(0), start(0, candidate=1), delta(0, "b", 1), delta(0, "a"), end(0, 1), end(0)]
    assert ordered(events) == [start(0), delta(0, "a"), end(0), start(0, candidate=1), delta(0, "b", 1), end(0, 1)]


def test_many_parts_may_be_open_at_once() -> None:
    numbers = range(3_000)
    # The open part ends last; then all the others follow at once.
    events: list[Event] = [*map(start, numbers), *map(delta, numbers), *map(end, reversed(numbers))]
    sequenced = ordered(events)
    assert sequenced == [event for number in numbers for event in (start(number), delta(number), end(number))]


def test_events_of_unknown_parts_are_kept() -> None:
    events: list[Event] = [delta(7), start(0), delta(8), end(9), end(0), delta(0)]
    assert ordered(events) == [delta(7), start(0), end(0), delta(8), end(9), delta(0)]


def test_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "LIMIT_WAITING", 10)
    part_sequencer = PartSequencer()
    for _ in range(3):
        sequenced = fed(part_sequencer, [start(0), start(1), *[delta(1)] * 8, end(0), end(1)])
        assert len(sequenced) == 12
    assert part_sequencer.failure is None
    assert len(fed(part_sequencer, [start(0), start(1), *[delta(1)] * 100])) == 1
    assert part_sequencer.failure is not None
    assert "more than 10 events wait" in part_sequencer.failure.message
    failed = ResponseFailed(error=part_sequencer.failure)
    assert fed(part_sequencer, [end(0), ResponseEnd(), failed]) == [start(1), *[delta(1)] * 9, failed]


@pytest.mark.parametrize("target", [name for name in ALL_PROTOCOLS if name != RESPONSES])
@pytest.mark.parametrize("complete", [True, False])
def test_stream_with_full_queue_ends_with_an_error(
    target: str, complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "LIMIT_WAITING", 2)
    wire = recorded_bodies.fixture_streams(RESPONSES)["interleaved_items"]
    chunks = [wire] if complete else [wire[index : index + 100] for index in range(0, len(wire), 100)]
    stream = tw.translate_stream(chunks, RESPONSES, target)
    out = b"".join(stream)
    assert stream.error is not None
    assert stream.broken
    decoder = PROTOCOLS[target].stream_decoder(ResponseContext())
    events = [*decoder.feed(out), *decoder.close()]
    (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
    assert "more than 2 events wait" in failed.error.message
    assert events[-1] is failed
