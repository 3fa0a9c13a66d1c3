"""Cost of the journal, compared with the variation between starts of the same program.

Memory layout makes some processes faster than others for as long as they run. So each kind is started several times, in
turns, and the difference between kinds is compared with the difference within a kind.
"""

import contextlib
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gateway import peers
from benchmarks.gateway.bench import SATURATED, Bench, measured_core
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.programs import on_core, stop
from benchmarks.gateway.traffic import Workload

STARTS = 6
ROUNDS = 5

Figures = dict[str, list[float]]


def measure_journal(bench: Bench, workloads: list[Workload]) -> None:
    """Check that the journal changes no figure by more than a restart of the same program does."""
    figures_by_workload = _measure_starts(bench, workloads)
    print(f"\noverhead of the journal in %, limited by the variation of {STARTS} starts without it:")
    for name, figures in figures_by_workload.items():
        added, noise = _overhead(figures)
        limit = bench.check_limit(f"{name} with the journal", added, round(noise, 1))
        print(f"{name:14} {added:6.1f} ({limit})", flush=True)


def _measure_starts(bench: Bench, workloads: list[Workload]) -> dict[str, Figures]:
    """Return microseconds per request by workload and kind, one median per start."""
    figures_by_workload: dict[str, Figures] = {workload.name: {"without": [], "with": []} for workload in workloads}
    for _ in range(STARTS):
        with _pair(bench) as pair:
            for workload in workloads:
                rounds: Figures = {kind: [] for kind in pair}
                for number in range(ROUNDS + 1):
                    for kind, peer in pair.items():
                        figure = bench.measure(peer, workload, workload.warm_up, SATURATED)
                        if number and figure is not None:  # the first one warms up
                            rounds[kind].append(figure.microseconds)
                for kind, figures in rounds.items():
                    figures_by_workload[workload.name][kind].append(statistics.median(figures))
    return figures_by_workload


@contextlib.contextmanager
def _pair(bench: Bench) -> Iterator[dict[str, Peer]]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        with on_core(measured_core()):
            pair = {}
            for kind, start in {"without": peers.toolwire, "with": peers.journal}.items():
                pair[kind] = start(Path(name), bench.upstream.port)
                stack.callback(stop, pair[kind].process)
        bench.peers += pair.values()
        stack.callback(_forget, bench, pair)
        yield pair


def _forget(bench: Bench, pair: dict[str, Peer]) -> None:
    bench.peers = [peer for peer in bench.peers if peer not in pair.values()]


def _overhead(figures: Figures) -> tuple[float, float]:
    """Return the overhead of the journal and the variation without it, in percent."""
    without = statistics.mean(figures["without"])
    added = statistics.mean(figures["with"]) - without
    return added / without * 100, (max(figures["without"]) - min(figures["without"])) / without * 100
