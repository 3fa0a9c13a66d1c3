"""Memory that the workers of one gateway share: their counters, and the losses of their latest exchanges.

The parent maps it before it forks, as Apache does with its scoreboard. Each worker writes to a part of its own, so
there is no lock, and any worker reads all parts. A part outlives its worker: the replacement counts on from there.
"""

import mmap
import re
import struct
from collections.abc import Iterator
from zlib import crc32

from .auth import Caller

LIMIT_LOSSES = 16 * 1024 * 1024
"""Bytes of loss reports, of all workers together."""

_LEAST_LOSSES = 1024 * 1024  # of each worker, however many there are
_SAMPLES = 4096  # of each worker; a page that holds none takes no memory
_NAME = 1024
OVERFLOW = "toolwire_samples_overflow_total"
_NO_LOSSES = b'{"losses":[]}'
_ENTRY = struct.Struct("<24s16sQII")  # id, tenant, offset, length, checksum
_pack_entry, _ENTRY_SIZE = _ENTRY.pack_into, _ENTRY.size
_EXCHANGE = re.compile("ex_[0-9a-f]{16}")


class Scoreboard:
    """The mapped memory. `exchanges` is the number of entries that each worker keeps."""

    def __init__(self, workers: int = 1, exchanges: int = 1000) -> None:
        self.workers = workers
        self._names = mmap.mmap(-1, workers * _SAMPLES * _NAME)
        self._values = memoryview(mmap.mmap(-1, workers * _SAMPLES * 8)).cast("d")
        self._index = mmap.mmap(-1, workers * max(1, exchanges) * _ENTRY.size)
        self._losses = mmap.mmap(-1, workers * max(_LEAST_LOSSES, LIMIT_LOSSES // workers))

    def counters(self, worker: int) -> "Counters":
        return Counters(self._names, self._values[worker * _SAMPLES : (worker + 1) * _SAMPLES], worker)

    def exchanges(self, worker: int) -> "Exchanges":
        return Exchanges(self._index, self._losses, worker, self.workers)

    def totals(self) -> dict[str, float]:
        """Return each sample, summed over all workers."""
        found: dict[str, float] = {}
        for worker in range(self.workers):
            for name, value in self.counters(worker).samples():
                found[name] = found.get(name, 0.0) + value
        return found


class Counters:
    """Values by sample name, such as `requests_total{status="200"}`, of one worker.

    The first value is the number of names. It is written after a name, so that readers see whole names only.
    """

    def __init__(self, names: mmap.mmap, values: "memoryview[float]", worker: int) -> None:
        self.values = values
        self._names = names
        self._start = worker * _SAMPLES
        self._slots = {name: slot for slot, (name, _) in enumerate(self.samples(), start=1)}

    def slot(self, name: str) -> int:
        """Return the index of a sample in `values`. Samples without a place share one."""
        if (known := self._slots.get(name)) is not None:
            return known
        data, slot = name.encode(), len(self._slots) + 1
        if (slot >= _SAMPLES - 1 or len(data) > _NAME) and name != OVERFLOW:
            return self.slot(OVERFLOW)
        at = (self._start + slot) * _NAME
        self._names[at : at + _NAME] = data.ljust(_NAME, b"\0")
        self.values[0] = slot
        self._slots[name] = slot
        return slot

    def samples(self) -> Iterator[tuple[str, float]]:
        for slot in range(1, int(self.values[0]) + 1):
            at = (self._start + slot) * _NAME
            yield self._names[at : at + _NAME].rstrip(b"\0").decode(), self.values[slot]


class Exchanges:
    """The latest exchanges: one worker adds its own, and finds those of all.

    Each worker has a ring of entries and a ring of reports. A reader may meet a report that is being written over; the
    checksum tells.
    """

    def __init__(self, index: mmap.mmap, losses: mmap.mmap, worker: int, workers: int) -> None:
        self._index = index
        self._losses = losses
        self._losses_size = len(losses) // workers
        self._losses_start = worker * self._losses_size
        self._report = 0
        self._first = self._next = worker * len(index) // workers
        self._end = (worker + 1) * len(index) // workers

    def add(self, id: str, caller: Caller, losses: bytes = b"") -> None:
        """Add an exchange, or the losses of one that was added before."""
        offset = checksum = 0
        if losses:
            if self._report + len(losses) > self._losses_size:
                self._report = 0
            offset, checksum = self._losses_start + self._report, crc32(losses)
            self._losses[offset : offset + len(losses)] = losses
            self._report += len(losses)
        at = self._next
        _pack_entry(self._index, at, id.encode(), caller.tenant.encode(), offset, len(losses), checksum)
        self._next = self._first if at + _ENTRY_SIZE == self._end else at + _ENTRY_SIZE

    def losses(self, id: str, caller: Caller) -> bytes | None:
        """Return the losses of an exchange as JSON. None if it is unknown, too old, or of another key."""
        if _EXCHANGE.fullmatch(id) is None:
            return None
        known = list(self._entries(id, caller))
        reports = [(self._losses[offset : offset + length], checksum) for offset, length, checksum in known if length]
        if known and not reports:
            return _NO_LOSSES
        return next((report for report, checksum in reports if crc32(report) == checksum), None)

    def _entries(self, id: str, caller: Caller) -> Iterator[tuple[int, int, int]]:
        key, at = id.encode(), -1
        owner = caller.tenant.encode().ljust(16, b"\0")[:16]
        while (at := self._index.find(key, at + 1)) != -1:
            if at % _ENTRY_SIZE:
                continue
            _, tenant, offset, length, checksum = _ENTRY.unpack_from(self._index, at)
            if tenant == owner:
                yield offset, length, checksum
