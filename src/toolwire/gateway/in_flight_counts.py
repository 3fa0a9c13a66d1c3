"""Counts of what is in flight, such as open streams, by key, in memory that all workers of a gateway share.

Each worker writes only to its own part, so there are no locks. A worker adds a use before it reads the counts of
all, so that two workers can't both take the last place of a limit.
"""

import mmap
import struct
from collections import Counter
from typing import Literal

Kind = Literal["streams", "background", "websockets", "bodies"]

_KINDS: tuple[Kind, ...] = ("streams", "background", "websockets", "bodies")
_ROWS = 512
"""Maximum number of keys whose counts a worker publishes. Other workers see no uses of further keys."""

_TOTAL = struct.Struct("<q")
_ROW = struct.Struct("<16sq")  # key, count
_NO_KEY = bytes(16)
_PART_SIZE = _TOTAL.size + _ROWS * _ROW.size


class SharedInFlightCounts:
    """The shared memory: one part for each kind and worker."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._memory = mmap.mmap(-1, len(_KINDS) * workers * _PART_SIZE)
        self._counts: dict[tuple[Kind, int], InFlightCounts] = {}

    def counts(self, kind: Kind, worker: int) -> "InFlightCounts":
        """Return the counts of one kind for one worker to write; the same object each time."""
        if (known := self._counts.get((kind, worker))) is None:
            start = _KINDS.index(kind) * self._workers * _PART_SIZE
            known = self._counts[kind, worker] = InFlightCounts(self._memory, start, worker, self._workers)
        return known

    def clear(self, worker: int) -> None:
        """Forget the uses of a worker that has died."""
        for kind in range(len(_KINDS)):
            start = (kind * self._workers + worker) * _PART_SIZE
            self._memory[start : start + _PART_SIZE] = bytes(_PART_SIZE)


class InFlightCounts:
    """The uses of one kind. A worker writes its own counts, and reads those of all workers."""

    def __init__(self, memory: mmap.mmap | None = None, start: int = 0, worker: int = 0, workers: int = 1) -> None:
        """Without `memory`, count only the uses in this process."""
        self._memory = memory or mmap.mmap(-1, _PART_SIZE)
        self._part = start + worker * _PART_SIZE
        self._others = [start + other * _PART_SIZE for other in range(workers) if other != worker]
        self._own = Counter[str]()
        self._rows: dict[str, int] = {}
        self._free_rows = [self._part + _TOTAL.size + row * _ROW.size for row in reversed(range(_ROWS))]
        self.own_total = 0
        """The uses in this worker."""

    def add(self, tenant: str, amount: int) -> None:
        """Add uses of a key, or remove them if the amount is negative."""
        self.own_total += amount
        self._own[tenant] += amount
        if self._others:
            _TOTAL.pack_into(self._memory, self._part, self.own_total)
            self._write_row(tenant)
        if not self._own[tenant]:
            del self._own[tenant]

    def _write_row(self, tenant: str) -> None:
        """Publish the uses of a key; free its row when there are none."""
        count, row = self._own[tenant], self._rows.get(tenant)
        if row is None and self._free_rows:
            row = self._rows[tenant] = self._free_rows.pop()
        if row is None:
            return
        _ROW.pack_into(self._memory, row, _row_key(tenant) if count else _NO_KEY, count)
        if not count:
            self._free_rows.append(self._rows.pop(tenant))

    def total(self) -> int:
        """Return the uses in all workers."""
        others: list[int] = [_TOTAL.unpack_from(self._memory, part)[0] for part in self._others]
        return self.own_total + sum(others)

    def total_of(self, tenant: str) -> int:
        """Return the uses of a key in all workers."""
        return self._own[tenant] + sum([self._find(tenant, part + _TOTAL.size) for part in self._others])

    def _find(self, tenant: str, start: int) -> int:
        """Return the uses of a key in the rows of one worker, which begin at `start`."""
        key, at = _row_key(tenant), start - 1
        while (at := self._memory.find(key, at + 1, start + _ROWS * _ROW.size)) != -1:
            if (at - start) % _ROW.size == 0:
                return int(_ROW.unpack_from(self._memory, at)[1])
        return 0


def _row_key(tenant: str) -> bytes:
    """Encode a tenant as the key of a row. It is never empty, since an empty key marks a free row."""
    return (tenant or "anonymous").encode()[:16].ljust(16, b"\0")
