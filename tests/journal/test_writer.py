"""The journal writer never blocks, counts dropped records, and isolates failing sinks."""

import threading

import pytest
from msgspec.structs import replace

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.runtime.journal_records import make_record
from toolwire.journal import writer
from toolwire.journal.records import RecordBatch
from toolwire.journal.redaction import Redactor
from toolwire.journal.writer import JournalWriter


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the thread from writing before the journal is closed."""
    monkeypatch.setattr(writer, "BATCH_INTERVAL", 2 * DEADLINE)


class Collected:
    """A sink that takes batches only after it is released."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.may = threading.Event()
        self.closed = False

    def add(self, batch: RecordBatch) -> None:
        self.may.wait(DEADLINE)
        self.threads.add(threading.get_ident())
        self.batches.append([record.id for record in batch.records])

    def close(self) -> None:
        self.closed = True


class Broken(Collected):
    def add(self, batch: RecordBatch) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("unhurried")
def test_records_arrive_in_order_in_batches_from_one_thread() -> None:
    sink = Collected()
    sink.may.set()
    journal = JournalWriter([sink], Redactor(()), 10_000_000, print)
    for number in range(500):
        journal.add(make_record(number))
    journal.close()
    assert [id for batch in sink.batches for id in batch] == [f"ex_{number}" for number in range(500)]
    assert len(sink.batches) <= 2
    assert len(sink.threads) == 1
    assert threading.get_ident() not in sink.threads
    assert (journal.written_count, journal.dropped_count, sink.closed) == (500, 0, True)


@pytest.mark.usefixtures("unhurried")
def test_batch_size_is_limited() -> None:
    sink = Collected()
    sink.may.set()
    journal = JournalWriter([sink], Redactor(()), 100_000_000, print)
    for number in range(10):
        journal.add(make_record(number, body=3_000_000))
    journal.close()
    wait_until(lambda: sink.closed)  # packing takes long on a busy machine
    assert [len(batch) for batch in sink.batches] == [2, 2, 2, 2, 2]


def test_records_that_do_not_fit_are_dropped_without_blocking() -> None:
    sink = Collected()
    journal = JournalWriter([sink], Redactor(()), 100_000, print)
    for number in range(50):  # the sink takes nothing: whoever waited for it would not come to the end of this
        journal.add(make_record(number, body=10_000))
    assert journal.dropped_count == 41
    sink.may.set()
    journal.close()
    assert (journal.written_count, journal.dropped_count) == (9, 41)


def test_written_records_free_queue_space() -> None:
    sink = Collected()
    sink.may.set()
    journal = JournalWriter([sink], Redactor(()), 100_000, print)
    for number in range(9):
        journal.add(make_record(number, body=10_000))
    wait_until(lambda: journal.written_count == 9)
    journal.add(make_record(9, body=10_000))
    journal.close()
    assert (journal.written_count, journal.dropped_count) == (10, 0)


def test_write_error_is_reported_once_and_other_sinks_continue() -> None:
    reported: list[str] = []
    sink = Collected()
    sink.may.set()
    journal = JournalWriter([Broken(), sink], Redactor(()), 100_000, reported.append)
    journal.add(make_record(1))
    wait_until(lambda: sink.batches)
    journal.add(make_record(2))
    journal.close()
    assert sink.batches == [["ex_1"], ["ex_2"]]
    assert reported == ["OSError: [Errno 28] No space left on device"]
    assert (journal.written_count, journal.dropped_count) == (0, 2)


def test_no_thread_starts_without_records() -> None:
    sink = Collected()
    before = threading.active_count()
    journal = JournalWriter([sink], Redactor(()), 1, print)
    assert threading.active_count() == before
    journal.close()
    assert sink.closed
    journal.add(make_record(1))
    assert (journal.written_count, journal.dropped_count) == (0, 1)


@pytest.mark.parametrize("body", [None, 10])
def test_record_that_cannot_be_packed_does_not_affect_others(body: int | None) -> None:
    reported: list[str] = []
    sink = Collected()
    sink.may.set()
    journal = JournalWriter([sink], Redactor(()), 100_000, reported.append)
    for number in range(32):
        journal.add(replace(make_record(number, body=body), model="\ud800"))
    wait_until(lambda: journal.dropped_count == 32)
    journal.add(make_record(32, body=body))
    journal.close()
    assert sink.batches == [["ex_32"]]
    assert (journal.written_count, journal.dropped_count, len(reported)) == (1, 32, 1)
