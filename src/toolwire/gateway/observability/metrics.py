"""Prometheus metrics and loss reports, in memory that all workers of a gateway share.

The parent maps the memory before it forks, as Apache does with its scoreboard. Each worker writes only to its own
region, so there are no locks, and any worker can read all regions. A region outlives its worker: the replacement
continues its counts.
"""

import asyncio
import mmap
import re
import struct
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from zlib import crc32

from toolwire.gateway.in_flight_counts import SharedInFlightCounts
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.server.auth import Principal
from toolwire.journal.writer import JournalWriter

LIMIT_LOSS_BYTES = 16 * 1024 * 1024
"""Bytes for loss reports of all workers together."""

_MIN_LOSS_BYTES = 1024 * 1024  # per worker, however many there are
_SAMPLES_PER_WORKER = 4096  # unused pages take no memory
_NAME_SIZE = 1024
OVERFLOW_METRIC = "toolwire_samples_overflow_total"
_NO_LOSSES = b'{"losses":[]}'
_ENTRY = struct.Struct("<24s16sQII")  # id, tenant, offset, length, checksum
_pack_entry, _ENTRY_SIZE = _ENTRY.pack_into, _ENTRY.size
_EXCHANGE_ID = re.compile("ex_[0-9a-f]{16}")


class Scoreboard:
    """The shared memory; each worker has room for `entries` exchanges."""

    def __init__(self, workers: int = 1, entries: int = 1000) -> None:
        self.workers = workers
        self._names = mmap.mmap(-1, workers * _SAMPLES_PER_WORKER * _NAME_SIZE)
        self._values = memoryview(mmap.mmap(-1, workers * _SAMPLES_PER_WORKER * 8)).cast("d")
        self._entry_memory = mmap.mmap(-1, workers * max(1, entries) * _ENTRY.size)
        self._loss_memory = mmap.mmap(-1, workers * max(_MIN_LOSS_BYTES, LIMIT_LOSS_BYTES // workers))
        self.uses = SharedInFlightCounts(workers)

    def counters(self, worker: int) -> "Counters":
        """Return the counters of one worker."""
        return Counters(
            self._names, self._values[worker * _SAMPLES_PER_WORKER : (worker + 1) * _SAMPLES_PER_WORKER], worker
        )

    def loss_store(self, worker: int) -> "LossStore":
        """Return the loss reports as one worker writes them."""
        return LossStore(self._entry_memory, self._loss_memory, worker, self.workers)

    def totals(self) -> dict[str, float]:
        """Return each sample, summed over all workers."""
        totals: dict[str, float] = {}
        for worker in range(self.workers):
            for name, value in self.counters(worker).samples():
                totals[name] = totals.get(name, 0.0) + value
        return totals


class Counters:
    """The values of one worker by sample name, such as `requests_total{status="200"}`.

    The first value is the number of names. It is written after the name, so readers only see complete names.
    """

    def __init__(self, names: mmap.mmap, values: "memoryview[float]", worker: int) -> None:
        self.values = values
        self._names = names
        self._start = worker * _SAMPLES_PER_WORKER
        self._slots = {name: slot for slot, (name, _) in enumerate(self.samples(), start=1)}

    def slot(self, name: str) -> int:
        """Return the index of a sample in `values`; samples that do not fit share one."""
        if (cached := self._slots.get(name)) is not None:
            return cached
        data, slot = name.encode(), len(self._slots) + 1
        if (slot >= _SAMPLES_PER_WORKER - 1 or len(data) > _NAME_SIZE) and name != OVERFLOW_METRIC:
            return self.slot(OVERFLOW_METRIC)
        offset = (self._start + slot) * _NAME_SIZE
        self._names[offset : offset + _NAME_SIZE] = data.ljust(_NAME_SIZE, b"\0")
        self.values[0] = slot
        self._slots[name] = slot
        return slot

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield the name and value of each sample."""
        for slot in range(1, int(self.values[0]) + 1):
            offset = (self._start + slot) * _NAME_SIZE
            yield self._names[offset : offset + _NAME_SIZE].rstrip(b"\0").decode(), self.values[slot]


class LossStore:
    """Loss reports of recent exchanges: a worker adds its own, and finds those of all workers.

    Each worker has a ring of entries and a ring of reports. A checksum detects a report that is being overwritten.
    """

    def __init__(self, entry_memory: mmap.mmap, loss_memory: mmap.mmap, worker: int, workers: int) -> None:
        self._entry_memory = entry_memory
        self._loss_memory = loss_memory
        self._losses_size = len(loss_memory) // workers
        self._losses_start = worker * self._losses_size
        self._report_offset = 0
        self._ring_start = self._next_entry = worker * len(entry_memory) // workers
        self._ring_end = (worker + 1) * len(entry_memory) // workers

    def add(self, id: str, principal: Principal, losses: bytes = b"", replaced_entry: int | None = None) -> int:
        """Add an exchange of this caller with its losses (JSON), and return the position of its entry.

        `replaced_entry` is the position of an earlier entry of the same exchange, unless others have overwritten that.
        """
        offset = checksum = 0
        if losses:
            if self._report_offset + len(losses) > self._losses_size:
                self._report_offset = 0
            offset, checksum = self._losses_start + self._report_offset, crc32(losses)
            self._loss_memory[offset : offset + len(losses)] = losses
            self._report_offset += len(losses)
        key, entry = id.encode(), self._next_entry
        if replaced_entry is not None and self._entry_memory.find(key, replaced_entry, replaced_entry + len(key)) >= 0:
            entry = replaced_entry
        else:
            self._next_entry = self._ring_start if entry + _ENTRY_SIZE == self._ring_end else entry + _ENTRY_SIZE
        _pack_entry(self._entry_memory, entry, key, principal.tenant.encode(), offset, len(losses), checksum)
        return entry

    def find_losses(self, id: str, principal: Principal) -> bytes | None:
        """Return the losses of an exchange as JSON; None if it is unknown, too old, or of another key."""
        if _EXCHANGE_ID.fullmatch(id) is None:
            return None
        entries = list(self._entries(id, principal))
        reports = [
            (self._loss_memory[offset : offset + length], checksum) for offset, length, checksum in entries if length
        ]
        if entries and not reports:
            return _NO_LOSSES
        return next((report for report, checksum in reports if crc32(report) == checksum), None)

    def _entries(self, id: str, principal: Principal) -> Iterator[tuple[int, int, int]]:
        """Yield, for each entry of an exchange, offset, length and checksum of its loss report."""
        key, entry_offset = id.encode(), -1
        owner = principal.tenant.encode().ljust(16, b"\0")[:16]
        while (entry_offset := self._entry_memory.find(key, entry_offset + 1)) != -1:
            if entry_offset % _ENTRY_SIZE:
                continue
            _, tenant, offset, length, checksum = _ENTRY.unpack_from(self._entry_memory, entry_offset)
            if tenant == owner:
                yield offset, length, checksum


LIMIT_BATCH = 100
LIMIT_LABEL = 200
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_REQUESTS = "toolwire_requests_total"
_TOKENS = "toolwire_tokens_total"
_COST = "toolwire_cost_dollars_total"
_LOSSES = "toolwire_losses_total"
_REFUSED_SETTINGS = "toolwire_refused_settings_total"
_FAILOVERS = "toolwire_failovers_total"
_BREAKERS = "toolwire_breakers_open"
_CALLS = "toolwire_calls_total"
_STREAMS = "toolwire_streams"
_WRITTEN = "toolwire_journal_written_total"
_DROPPED = "toolwire_journal_dropped_total"
_SECONDS = "toolwire_request_seconds"
_FIRST = "toolwire_first_token_seconds"
_LAG = "toolwire_event_loop_lag_seconds"
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LAG_INTERVAL = 0.5
_RARE_FAMILIES = (
    (_COST, "counter"),
    (_REFUSED_SETTINGS, "counter"),
    (_FAILOVERS, "counter"),
    (_BREAKERS, "gauge"),
    (_CALLS, "counter"),
    (OVERFLOW_METRIC, "counter"),
)
"""Metrics that are shown once they have a sample."""

_OPEN_BREAKER = re.compile(rf'^{_BREAKERS}{{provider="(.*)",model="(.*)"}} (\d+)$', re.MULTILINE)


class Metrics:
    """The metrics of one worker, and the text form of all workers' sums."""

    def __init__(self, scoreboard: Scoreboard, worker: int = 0) -> None:
        self._scoreboard = scoreboard
        counters = scoreboard.counters(worker)
        self._values, self._slot = counters.values, counters.slot
        self._requests: dict[tuple[str, str, int], int] = {}
        self._tokens: dict[str, tuple[int, int]] = {}
        self._loss_error_slot = self._slot(f'{_LOSSES}{{severity="error"}}')
        self._loss_warning_slot = self._slot(f'{_LOSSES}{{severity="warning"}}')
        self._streams_slot = self._slot(_STREAMS)
        self._bucket_slots = [self._slot(f'{_SECONDS}_bucket{{le="{le}"}}') for le in _bucket_labels(_BUCKETS)]
        self._seconds_slot = self._slot(f"{_SECONDS}_sum")
        self._first_slots = [self._slot(f'{_FIRST}_bucket{{le="{le}"}}') for le in _bucket_labels(_BUCKETS)]
        self._first_sum_slot = self._slot(f"{_FIRST}_sum")
        self._lag_slots = [self._slot(f'{_LAG}_bucket{{le="{le}"}}') for le in _bucket_labels(_LAG_BUCKETS)]
        self._lag_sum_slot = self._slot(f"{_LAG}_sum")
        self._values[self._streams_slot] = 0  # streams of a previous worker have ended
        for name, _ in list(counters.samples()):
            if name.startswith(_BREAKERS):
                self._values[self._slot(name)] = 0  # as are its breakers
        self._journal_start = self._values[self._slot(_WRITTEN)], self._values[self._slot(_DROPPED)]
        self._pending_records: list[RequestRecord] = []
        self._batch_size = LIMIT_BATCH if scoreboard.workers == 1 else 1  # other workers may read at any time

    def count_request(self, record: RequestRecord) -> None:
        """Queue a request to be counted in a batch, which costs less."""
        self._pending_records.append(record)
        if len(self._pending_records) >= self._batch_size:
            self._flush_pending()

    def count_refused_setting(self, provider: str, model: str, setting: str) -> None:
        """Count an optional setting that a provider refused, so that a request was sent once more without it."""
        labels = f'provider="{_escape_label(provider)}",model="{_escape_label(model)}",setting="{setting}"'
        self._values[self._slot(f"{_REFUSED_SETTINGS}{{{labels}}}")] += 1

    def count_cost(self, provider: str, dollars: float) -> None:
        """Count the money that requests to a provider cost."""
        self._values[self._slot(f'{_COST}{{provider="{_escape_label(provider)}"}}')] += dollars

    def count_failover(self, provider: str, reason: str) -> None:
        """Count a failure of a provider after which the next backend of the route was tried."""
        labels = f'provider="{_escape_label(provider)}",reason="{reason}"'
        self._values[self._slot(f"{_FAILOVERS}{{{labels}}}")] += 1

    def count_call(self, provider: str, model: str, outcome: str) -> None:
        """Count a call of a model, by whether it is valid."""
        self._values[self._slot(_call_sample(provider, model, outcome))] += 1

    def set_breaker(self, provider: str, model: str, *, is_open: bool) -> None:
        """Set whether the circuit breaker of a backend is open in this worker."""
        labels = f'provider="{_escape_label(provider)}",model="{_escape_label(model)}"'
        self._values[self._slot(f"{_BREAKERS}{{{labels}}}")] = is_open

    def set_streams(self, streams: int) -> None:
        """Set the number of open streams."""
        self._values[self._streams_slot] = streams

    @property
    def open_streams(self) -> int:
        """Return the number of open streams of this worker."""
        return int(self._values[self._streams_slot])

    async def measure_lag(self) -> None:
        """Measure twice a second how late the event loop wakes up, until cancelled."""
        while True:
            due = time.monotonic() + _LAG_INTERVAL
            await asyncio.sleep(_LAG_INTERVAL)
            lag = max(0.0, time.monotonic() - due)
            self._values[self._lag_slots[bisect_left(_LAG_BUCKETS, lag)]] += 1
            self._values[self._lag_sum_slot] += lag

    def set_journal_counts(self, written: int, dropped: int) -> None:
        """Publish the journal's counts, which start at zero in each process."""
        initial_written, initial_dropped = self._journal_start
        self._values[self._slot(_WRITTEN)] = initial_written + written
        self._values[self._slot(_DROPPED)] = initial_dropped + dropped

    def totals(self) -> dict[str, float]:
        """Return each sample, summed over all workers."""
        self._flush_pending()
        return self._scoreboard.totals()

    def _flush_pending(self) -> None:
        """Count all queued requests."""
        added: defaultdict[int, float] = defaultdict(float)  # shared memory is written once for all records
        for record in self._pending_records:
            if record.client:
                self._add_record(record, added)
        self._pending_records.clear()
        for slot, value in added.items():
            self._values[slot] += value

    def _add_record(self, record: RequestRecord, added: defaultdict[int, float]) -> None:
        """Add the counts, times and tokens of one request to `added`, the sums by slot."""
        key, seconds = (record.client, record.provider, record.status), record.duration
        slot = self._requests.get(key)
        added[self._request_slot(*key) if slot is None else slot] += 1
        if record.losses:
            added[self._loss_error_slot] += record.loss_errors
            added[self._loss_warning_slot] += record.losses - record.loss_errors
        added[self._seconds_slot] += seconds
        added[self._bucket_slots[bisect_left(_BUCKETS, seconds)]] += 1
        if record.streamed and record.responded_at is not None:
            first = record.responded_at - record.started_at
            added[self._first_slots[bisect_left(_BUCKETS, first)]] += 1
            added[self._first_sum_slot] += first
        if (usage := record.usage) is not None:
            input_slot, output_slot = self._tokens.get(record.provider) or self._token_slots(record.provider)
            added[input_slot] += usage.input_tokens or 0
            added[output_slot] += usage.output_tokens or 0

    def _request_slot(self, client: str, provider: str, status: int) -> int:
        """Return the index of the counter for requests with these labels."""
        labels = f'client="{client}",provider="{_escape_label(provider)}",status="{status}"'
        slot = self._requests[client, provider, status] = self._slot(f"{_REQUESTS}{{{labels}}}")
        return slot

    def _token_slots(self, provider: str) -> tuple[int, int]:
        """Return the indexes of the counters for a provider's input and output tokens."""
        name = f'{_TOKENS}{{provider="{_escape_label(provider)}",kind="%s"}}'
        slots = self._tokens[provider] = self._slot(name % "input"), self._slot(name % "output")
        return slots

    def render(self, journal: JournalWriter | None = None) -> bytes:
        """Return the text of `/metrics`, in Prometheus format, with the sums of all workers."""
        self._flush_pending()
        if journal is not None:
            self.set_journal_counts(journal.written_count, journal.dropped_count)
        totals = self._scoreboard.totals()
        lines = []
        for family, kind in ((_REQUESTS, "counter"), (_TOKENS, "counter"), (_LOSSES, "counter"), (_STREAMS, "gauge")):
            lines += _render_family(family, kind, totals)
        for family, kind in _RARE_FAMILIES:
            if any(sample.startswith(family) for sample in totals):
                lines += _render_family(family, kind, totals)
        if journal is not None:
            lines += _render_family(_WRITTEN, "counter", totals) + _render_family(_DROPPED, "counter", totals)
        lines += _render_histogram(_SECONDS, _BUCKETS, totals)
        lines += _render_histogram(_FIRST, _BUCKETS, totals)
        lines += _render_histogram(_LAG, _LAG_BUCKETS, totals)
        return ("\n".join(lines) + "\n").encode()


@lru_cache(maxsize=256)
def _call_sample(provider: str, model: str, outcome: str) -> str:
    """Return the name of the counter of calls with these labels."""
    return f'{_CALLS}{{provider="{_escape_label(provider)}",model="{_escape_label(model)}",outcome="{outcome}"}}'


def _bucket_labels(bounds: Sequence[float]) -> list[str]:
    """Return the labels of the buckets of a histogram."""
    return [*(f"{bound:g}" for bound in bounds), "+Inf"]


def _render_histogram(name: str, bounds: Sequence[float], totals: dict[str, float]) -> list[str]:
    """Return the lines of a histogram: its type, the buckets, sum and count."""
    buckets = [f'{name}_bucket{{le="{le}"}}' for le in _bucket_labels(bounds)]
    counts = list(accumulate(totals[bucket] for bucket in buckets))
    lines = [f"{bucket} {count:.0f}" for bucket, count in zip(buckets, counts, strict=True)]
    return [
        f"# TYPE {name} histogram",
        *lines,
        f"{name}_sum {totals[f'{name}_sum']:.6f}",
        f"{name}_count {counts[-1]:.0f}",
    ]


def _render_family(name: str, kind: str, totals: dict[str, float]) -> list[str]:
    """Return the lines of one metric: its type, then all its samples."""
    samples = sorted(sample for sample in totals if sample.partition("{")[0] == name)
    digits = 6 if name == _COST else 0
    return [f"# TYPE {name} {kind}", *(f"{sample} {totals[sample]:.{digits}f}" for sample in samples)]


def open_breakers(metrics: str) -> list[str]:
    """Return the backends whose circuit breaker is open according to the text of `/metrics`, as `provider/model`."""
    return [
        f"{labels[1]}/{labels[2]}".removesuffix("/") for labels in _OPEN_BREAKER.finditer(metrics) if float(labels[3])
    ]


def _escape_label(text: str) -> str:
    """Return a label value, escaped and truncated."""
    return text[:LIMIT_LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
