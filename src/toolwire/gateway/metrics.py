"""Counters in Prometheus' text form."""

from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from toolwire.journal.writer import Journal

from .log import Line

LIMIT_UNCOUNTED = 100
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._losses = 0
        self._times = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self._count = 0
        self._uncounted: list[Line] = []

    def count(self, line: Line) -> None:
        """Sooner or later: counting many at once costs less."""
        self._uncounted.append(line)
        if len(self._uncounted) >= LIMIT_UNCOUNTED:
            self._add_up()

    def _add_up(self) -> None:
        for line in self._uncounted:
            if line.client:
                self._add(line)
        self._uncounted.clear()

    def _add(self, line: Line) -> None:
        seconds = line.seconds
        self._requests[line.client, line.provider, line.status] += 1
        self._losses += line.losses
        self._count += 1
        self._seconds += seconds
        self._times[bisect_left(_BUCKETS, seconds)] += 1
        if line.usage is not None:
            self._tokens[line.provider, "input"] += line.usage.input_tokens or 0
            self._tokens[line.provider, "output"] += line.usage.output_tokens or 0

    def told(self, streams: int, journal: Journal | None = None) -> bytes:
        self._add_up()
        lines = ["# TYPE toolwire_requests_total counter"]
        for (client, provider, status), count in sorted(self._requests.items()):
            labels = f'client="{client}",provider="{_escaped(provider)}",status="{status}"'
            lines.append(f"toolwire_requests_total{{{labels}}} {count}")
        lines.append("# TYPE toolwire_tokens_total counter")
        for (provider, kind), count in sorted(self._tokens.items()):
            lines.append(f'toolwire_tokens_total{{provider="{_escaped(provider)}",kind="{kind}"}} {count}')
        lines += ["# TYPE toolwire_losses_total counter", f"toolwire_losses_total {self._losses}"]
        lines += ["# TYPE toolwire_streams gauge", f"toolwire_streams {streams}"]
        if journal is not None:
            lines += ["# TYPE toolwire_journal_written_total counter"]
            lines += [f"toolwire_journal_written_total {journal.written}"]
            lines += ["# TYPE toolwire_journal_dropped_total counter"]
            lines += [f"toolwire_journal_dropped_total {journal.dropped}"]
        lines.append("# TYPE toolwire_request_seconds histogram")
        for bucket, count in zip(_BUCKETS, accumulate(self._times), strict=False):
            lines.append(f'toolwire_request_seconds_bucket{{le="{bucket:g}"}} {count}')
        lines.append(f'toolwire_request_seconds_bucket{{le="+Inf"}} {self._count}')
        lines += [f"toolwire_request_seconds_sum {self._seconds:.6f}", f"toolwire_request_seconds_count {self._count}"]
        return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
