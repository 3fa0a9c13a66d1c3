"""The journal writer: a bounded queue of records, written in batches by one thread.

1. `add` never blocks. Records that do not fit in the queue are counted and dropped.
2. Secrets are redacted before any sink receives a record.
3. Write errors are counted and reported, and never affect an exchange.

Records without bodies are packed by the caller of `add`, several at a time, which costs less than keeping them for the
thread. Records with bodies are packed by the thread.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from toolwire.journal.records import JournalEntry, PackedRecords, RecordBatch, pack_records
from toolwire.journal.redaction import Redactor

BATCH_INTERVAL = 0.5
_PACK_SIZE = 32
_MAX_BATCH_RECORDS, _MAX_BATCH_BYTES = 1000, 4 * 1024 * 1024


class RecordSink(Protocol):
    """A destination of records: the journal file, or telemetry."""

    def add(self, batch: RecordBatch) -> None:
        """Take a batch of redacted records."""
        ...

    def close(self) -> None:
        """Release resources after the last batch."""
        ...


class JournalWriter:
    """Writes records to sinks in batches, from its own thread.

    At most `max_queued_bytes` wait to be written. `report_error` receives each error that differs from the last one.
    """

    written_count: int
    """Records written."""
    publish_counts: Callable[[int, int], None] | None
    """Receives the numbers of records written and dropped after each batch."""
    last_error: str
    """The last error; empty after a batch is written."""

    def __init__(
        self,
        sinks: Sequence[RecordSink],
        redactor: Redactor,
        max_queued_bytes: int,
        report_error: Callable[[str], None],
    ) -> None:
        self.written_count = 0
        self.publish_counts = None
        self._rejected_count = self._failed_count = 0
        self._sinks = tuple(sinks)
        self._redactor = redactor
        self._max_queued_bytes = max_queued_bytes
        self._report_error = report_error
        self._reported_error = ""
        self.last_error = ""
        self._lock = threading.Lock()  # guards the unpacked entries and the byte counts
        self._small_entries: list[JournalEntry] = []
        self._large_entries: list[JournalEntry] = []
        self._queue: deque[tuple[PackedRecords, int]] = deque()  # with the bytes counted for each
        # The difference is the size of the queue.
        self._added_bytes = self._taken_bytes = 0
        self._wake = threading.Event()
        self._is_awake = False
        self._closing = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, entry: JournalEntry) -> None:
        """Queue an entry without blocking; drop it if the queue is full."""
        if self._closed:
            self._rejected_count += 1
            return
        if entry.bodies is not None:
            self._add_large(entry)
        else:
            with self._lock:
                self._small_entries.append(entry)
                if len(self._small_entries) >= _PACK_SIZE:
                    self._pack_small()
        if not self._is_awake:
            self._wake_up()

    def _add_large(self, entry: JournalEntry) -> None:
        """Queue an entry with bodies; count it as dropped if the queue is full."""
        size = entry.size
        with self._lock:
            if self._has_room(size):
                self._added_bytes += size
                self._large_entries.append(entry)
            else:
                self._rejected_count += 1

    def _has_room(self, size: int) -> bool:
        """Return True if `size` more bytes fit into the queue."""
        return self._added_bytes - self._taken_bytes + size <= self._max_queued_bytes

    def _pack_small(self) -> None:
        """Compress the collected small entries and queue them; without room they count as rejected. Needs the lock."""
        entries, self._small_entries = self._small_entries, []
        if (pack := self._pack_entries(entries)) is None:
            return
        if self._has_room(size := len(pack.data)):
            self._added_bytes += size
            self._queue.append((pack, size))
        else:
            self._rejected_count += pack.count

    def _pack_entries(self, entries: list[JournalEntry]) -> PackedRecords | None:
        """Redact and pack entries; None if that fails."""
        try:
            return pack_records(entries, self._redactor.redact_record)
        except Exception as error:  # noqa: BLE001 - the caller may be serving an exchange
            self._failed_count += len(entries)
            self._note_error(f"{type(error).__name__}: {error}")
            return None

    def _wake_up(self) -> None:
        """Wake the thread, and start it on first use."""
        self._is_awake = True
        self._wake.set()
        if self._thread is None:  # not earlier: threads do not survive a fork
            self._thread = threading.Thread(target=self._run, name="toolwire-journal", daemon=True)
            self._thread.start()

    @property
    def dropped_count(self) -> int:
        """Records that did not fit in the queue or could not be written."""
        return self._rejected_count + self._failed_count

    def close(self) -> None:
        """Write the queued records, and stop the thread."""
        self._closed = True
        self._closing.set()
        self._wake.set()
        if self._thread is None:
            self._close_sinks()
        else:
            self._thread.join(10)

    def _run(self) -> None:
        """Write batches until closed, as the body of the thread."""
        closing = False
        while not closing:
            self._wake.wait()
            closing = self._closing.wait(BATCH_INTERVAL)
            self._wake.clear()
            self._is_awake = False
            self._pack_remaining()
            while self._queue:
                self._write_batch(self._take_batch())
            if self.publish_counts is not None:
                self.publish_counts(self.written_count, self.dropped_count)
        self._close_sinks()

    def _pack_remaining(self) -> None:
        """Pack all entries that are not packed yet."""
        with self._lock:
            if self._small_entries:
                self._pack_small()
            large, self._large_entries = self._large_entries, []
        for entry in large:
            if (pack := self._pack_entries([entry])) is None:
                self._taken_bytes += entry.size
            else:
                self._queue.append((pack, entry.size))

    def _take_batch(self) -> list[tuple[PackedRecords, int]]:
        """Take packs with their sizes in bytes from the queue, up to the limits of one batch."""
        packs: list[tuple[PackedRecords, int]] = []
        count = size = 0
        while self._queue and count < _MAX_BATCH_RECORDS and size < _MAX_BATCH_BYTES:
            packs.append(self._queue.popleft())
            count, size = count + packs[-1][0].count, size + packs[-1][1]
        return packs

    def _close_sinks(self) -> None:
        """Close every sink after the last batch."""
        for sink in self._sinks:
            sink.close()

    def _write_batch(self, packs: list[tuple[PackedRecords, int]]) -> None:
        """Pass a batch to every sink, and count it as written or failed."""
        batch = RecordBatch([pack for pack, _ in packs])
        failed = False
        for sink in self._sinks:
            try:
                sink.add(batch)
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread
                failed = True
                self._note_error(f"{type(error).__name__}: {error}")
        self._taken_bytes += sum(size for _, size in packs)
        if failed:
            self._failed_count += batch.count
        else:
            self.written_count += batch.count
            self.last_error = ""

    def _note_error(self, error: str) -> None:
        """Remember the last error, and report it if it differs from the previous one."""
        self.last_error = error
        if error != self._reported_error:
            self._reported_error = error
            self._report_error(error)
