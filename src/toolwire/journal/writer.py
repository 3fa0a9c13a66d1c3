"""From the event loop to the file: records wait in a bounded queue, and one thread writes them in batches.

1. `add` never waits. What does not fit in the queue is counted and dropped.
2. Secrets are taken out by the thread, before anybody else sees a record.
3. What goes wrong in writing is counted and told, and never reaches an exchange.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .records import Record
from .secrets import Redactor

PAUSE = 0.5
_BATCH, _BATCH_SIZE = 1000, 4 * 1024 * 1024


class Entry(Protocol):
    """What waits to be recorded: the record of it is made by the thread, or is there already."""

    @property
    def size(self) -> int: ...
    def record(self) -> Record: ...


class Sink(Protocol):
    """Takes every batch, without its secrets."""

    def add(self, records: Sequence[Record]) -> None: ...
    def close(self) -> None: ...


class Journal:
    """`limit` is how many bytes may wait; `complain` is told what went wrong, once."""

    def __init__(self, sinks: Sequence[Sink], redactor: Redactor, limit: int, complain: Callable[[str], None]) -> None:
        self.written = 0
        self._refused = self._failed = 0
        self._sinks = tuple(sinks)
        self._redactor = redactor
        self._limit = limit
        self._complain = complain
        self._complaint = ""
        self._queue: deque[Entry] = deque()
        # Each is changed by one thread only, as the counts above are; the difference is what waits.
        self._added = self._taken = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, entry: Entry) -> None:
        size = entry.size
        if self._added - self._taken + size > self._limit or self._closing.is_set():
            self._refused += 1
            return
        self._added += size
        self._queue.append(entry)
        if not self._wake.is_set():
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
            while self._queue:
                self._write(self._take())
        self._close_sinks()

    def _take(self) -> list[Entry]:
        """Some of what waits: not too many, and not too much."""
        taken: list[Entry] = []
        size = 0
        while self._queue and len(taken) < _BATCH and size < _BATCH_SIZE:
            taken.append(self._queue.popleft())
            size += taken[-1].size
        return taken

    def _close_sinks(self) -> None:
        for sink in self._sinks:
            sink.close()

    def _write(self, taken: list[Entry]) -> None:
        batch = [self._redactor.record(entry.record()) for entry in taken]
        failed = False
        for sink in self._sinks:
            try:
                sink.add(batch)
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread
                failed = True
                self._tell(f"{type(error).__name__}: {error}")
        self._taken += sum(entry.size for entry in taken)
        if failed:
            self._failed += len(batch)
        else:
            self.written += len(batch)

    def _tell(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            self._complain(complaint)
