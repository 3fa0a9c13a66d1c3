"""From the event loop to the file: records wait in a bounded queue, and one thread writes them in batches.

1. `add` never waits. What does not fit in the queue is counted and dropped.
2. Secrets are taken out before anybody else sees a record.
3. What goes wrong in writing is counted and told, and never reaches an exchange.

Records without bodies are packed by whoever adds them, a few at a time: what waits in memory for the thread costs more
than to be done with it. Large ones are left to the thread.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .records import Batch, Entry, Packed, packed
from .secrets import Redactor

PAUSE = 0.5
_FEW = 32
_BATCH, _BATCH_SIZE = 1000, 4 * 1024 * 1024


class Sink(Protocol):
    """Takes every batch, without its secrets."""

    def add(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


class Journal:
    """A queue of records, written in batches by a thread of its own.

    `limit` is how many bytes may wait; `complain` gets the first failure of each kind; `publish` gets how many records
    were written and dropped; `trouble` is the last failure, until a batch is written.
    """

    def __init__(self, sinks: Sequence[Sink], redactor: Redactor, limit: int, complain: Callable[[str], None]) -> None:
        self.written = 0
        self.publish: Callable[[int, int], None] | None = None
        self._refused = self._failed = 0
        self._sinks = tuple(sinks)
        self._redactor = redactor
        self._limit = limit
        self._complain = complain
        self._complaint = ""
        self.trouble = ""
        self._lock = threading.Lock()  # of what waits to be packed, and of how much waits
        self._fresh: list[Entry] = []
        self._large: list[Entry] = []
        self._queue: deque[tuple[Packed, int]] = deque()  # each with how much was added for it
        # The difference is what waits.
        self._added = self._taken = 0
        self._wake = threading.Event()
        self._awake = False
        self._closing = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, entry: Entry) -> None:
        if self._closed:
            self._refused += 1
            return
        if entry.bodies is not None:
            self._add_large(entry)
        else:
            with self._lock:
                self._fresh.append(entry)
                if len(self._fresh) >= _FEW:
                    self._pack()
        if not self._awake:
            self._wake_up()

    def _add_large(self, entry: Entry) -> None:
        size = entry.size
        with self._lock:
            if self._has_room(size):
                self._added += size
                self._large.append(entry)
            else:
                self._refused += 1

    def _has_room(self, size: int) -> bool:
        return self._added - self._taken + size <= self._limit

    def _pack(self) -> None:
        fresh, self._fresh = self._fresh, []
        if (pack := self._packed(fresh)) is None:
            return
        if self._has_room(size := len(pack.data)):
            self._added += size
            self._queue.append((pack, size))
        else:
            self._refused += pack.count

    def _packed(self, entries: list[Entry]) -> Packed | None:
        try:
            return packed(entries, self._redactor.record)
        except Exception as error:  # noqa: BLE001 - it may be an exchange that is under way
            self._failed += len(entries)
            self._tell(f"{type(error).__name__}: {error}")
            return None

    def _wake_up(self) -> None:
        self._awake = True
        self._wake.set()
        if self._thread is None:  # not before: a process that forks takes no thread along
            self._thread = threading.Thread(target=self._work, name="toolwire-journal", daemon=True)
            self._thread.start()

    @property
    def dropped(self) -> int:
        """How many did not fit, or could not be written."""
        return self._refused + self._failed

    def close(self) -> None:
        """Write what waits, and stop."""
        self._closed = True
        self._closing.set()
        self._wake.set()
        if self._thread is None:
            self._close_sinks()
        else:
            self._thread.join(10)

    def _work(self) -> None:
        closing = False
        while not closing:
            self._wake.wait()
            closing = self._closing.wait(PAUSE)
            self._wake.clear()
            self._awake = False
            self._pack_rest()
            while self._queue:
                self._write(self._take())
            if self.publish is not None:
                self.publish(self.written, self.dropped)
        self._close_sinks()

    def _pack_rest(self) -> None:
        with self._lock:
            if self._fresh:
                self._pack()
            large, self._large = self._large, []
        for entry in large:
            if (pack := self._packed([entry])) is None:
                self._taken += entry.size
            else:
                self._queue.append((pack, entry.size))

    def _take(self) -> list[tuple[Packed, int]]:
        """Some of what waits: not too many, and not too much."""
        taken: list[tuple[Packed, int]] = []
        count = size = 0
        while self._queue and count < _BATCH and size < _BATCH_SIZE:
            taken.append(self._queue.popleft())
            count, size = count + taken[-1][0].count, size + taken[-1][1]
        return taken

    def _close_sinks(self) -> None:
        for sink in self._sinks:
            sink.close()

    def _write(self, taken: list[tuple[Packed, int]]) -> None:
        batch = Batch([pack for pack, _ in taken])
        failed = False
        for sink in self._sinks:
            try:
                sink.add(batch)
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread
                failed = True
                self._tell(f"{type(error).__name__}: {error}")
        self._taken += sum(size for _, size in taken)
        if failed:
            self._failed += batch.count
        else:
            self.written += batch.count
            self.trouble = ""

    def _tell(self, complaint: str) -> None:
        self.trouble = complaint
        if complaint != self._complaint:
            self._complaint = complaint
            self._complain(complaint)
