"""Counters in Prometheus' text form, summed over the workers."""

from bisect import bisect_left
from itertools import accumulate

from toolwire.journal.writer import Journal

from .log import Line
from .scoreboard import OVERFLOW, Scoreboard

LIMIT_UNCOUNTED = 100
LIMIT_LABEL = 200
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LE = [*(f"{bucket:g}" for bucket in _BUCKETS), "+Inf"]
_REQUESTS = "toolwire_requests_total"
_TOKENS = "toolwire_tokens_total"
_LOSSES = "toolwire_losses_total"
_STREAMS = "toolwire_streams"
_WRITTEN = "toolwire_journal_written_total"
_DROPPED = "toolwire_journal_dropped_total"
_SECONDS = "toolwire_request_seconds"


class Metrics:
    """The counters of one worker, and the text that sums up all of them."""

    def __init__(self, scoreboard: Scoreboard, worker: int = 0) -> None:
        self._scoreboard = scoreboard
        counters = scoreboard.counters(worker)
        self._values, self._slot = counters.values, counters.slot
        self._requests: dict[tuple[str, str, int], int] = {}
        self._tokens: dict[str, tuple[int, int]] = {}
        self._losses = self._slot(_LOSSES)
        self._streams = self._slot(_STREAMS)
        self._times = [self._slot(f'{_SECONDS}_bucket{{le="{le}"}}') for le in _LE]
        self._seconds = self._slot(f"{_SECONDS}_sum")
        self._values[self._streams] = 0  # those of a worker before this one are over
        self._journal = self._values[self._slot(_WRITTEN)], self._values[self._slot(_DROPPED)]
        self._uncounted: list[Line] = []
        self._batch = LIMIT_UNCOUNTED if scoreboard.workers == 1 else 1  # others may read at any time

    def count(self, line: Line) -> None:
        """Sooner or later: counting many at once costs less."""
        self._uncounted.append(line)
        if len(self._uncounted) >= self._batch:
            self._add_up()

    def count_streams(self, streams: int) -> None:
        self._values[self._streams] = streams

    def count_journal(self, written: int, dropped: int) -> None:
        """Publish the journal's counts, which begin at zero in each process."""
        before_written, before_dropped = self._journal
        self._values[self._slot(_WRITTEN)] = before_written + written
        self._values[self._slot(_DROPPED)] = before_dropped + dropped

    def _add_up(self) -> None:
        for line in self._uncounted:
            if line.client:
                self._add(line)
        self._uncounted.clear()

    def _add(self, line: Line) -> None:
        values, seconds = self._values, line.seconds
        values[self._request_slot(line.client, line.provider, line.status)] += 1
        values[self._losses] += line.losses
        values[self._seconds] += seconds
        values[self._times[bisect_left(_BUCKETS, seconds)]] += 1
        if line.usage is not None:
            received, sent = self._token_slots(line.provider)
            values[received] += line.usage.input_tokens or 0
            values[sent] += line.usage.output_tokens or 0

    def _request_slot(self, client: str, provider: str, status: int) -> int:
        key = client, provider, status
        if (slot := self._requests.get(key)) is None:
            labels = f'client="{client}",provider="{_label(provider)}",status="{status}"'
            slot = self._requests[key] = self._slot(f"{_REQUESTS}{{{labels}}}")
        return slot

    def _token_slots(self, provider: str) -> tuple[int, int]:
        if (slots := self._tokens.get(provider)) is None:
            name = f'{_TOKENS}{{provider="{_label(provider)}",kind="%s"}}'
            slots = self._tokens[provider] = self._slot(name % "input"), self._slot(name % "output")
        return slots

    def render(self, journal: Journal | None = None) -> bytes:
        """Return what `/metrics` answers."""
        self._add_up()
        if journal is not None:
            self.count_journal(journal.written, journal.dropped)
        totals = self._scoreboard.totals()
        lines = []
        for family, kind in ((_REQUESTS, "counter"), (_TOKENS, "counter"), (_LOSSES, "counter"), (_STREAMS, "gauge")):
            lines += _family(family, kind, totals)
        if OVERFLOW in totals:
            lines += _family(OVERFLOW, "counter", totals)
        if journal is not None:
            lines += _family(_WRITTEN, "counter", totals) + _family(_DROPPED, "counter", totals)
        lines.append(f"# TYPE {_SECONDS} histogram")
        buckets = [f'{_SECONDS}_bucket{{le="{le}"}}' for le in _LE]
        counts = list(accumulate(totals[bucket] for bucket in buckets))
        lines += [f"{bucket} {count:.0f}" for bucket, count in zip(buckets, counts, strict=True)]
        lines += [f"{_SECONDS}_sum {totals[f'{_SECONDS}_sum']:.6f}", f"{_SECONDS}_count {counts[-1]:.0f}"]
        return ("\n".join(lines) + "\n").encode()


def _family(name: str, kind: str, totals: dict[str, float]) -> list[str]:
    samples = sorted(sample for sample in totals if sample.partition("{")[0] == name)
    return [f"# TYPE {name} {kind}", *(f"{sample} {totals[sample]:.0f}" for sample in samples)]


def _label(text: str) -> str:
    return text[:LIMIT_LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
