"""Cost of the journal, compared with the variation between starts of the same program.

Memory layout makes some processes faster than others for as long as they run. So each kind is started several times, in
turns, and the difference between kinds is compared with the difference within a kind.
"""

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.gateway import peers
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.workloads import Workload

STARTS = 6
ROUNDS = 5

Figures = dict[str, list[float]]
Slice = Callable[[Peer, Workload, int], float]


def with_and_without(upstream: int, selected: list[Workload], measure: Slice, core: int | None) -> dict[str, Figures]:
    """Return microseconds per request by workload and kind, one median per start."""
    figures_by_workload: dict[str, Figures] = {workload.name: {"without": [], "with": []} for workload in selected}
    for _ in range(STARTS):
        with _pair(upstream, core) as pair:
            for workload in selected:
                for peer in pair.values():
                    measure(peer, workload, workload.count)
                rounds: Figures = {kind: [] for kind in pair}
                for _ in range(ROUNDS):
                    for kind, peer in pair.items():
                        rounds[kind].append(measure(peer, workload, workload.count))
                for kind, figures in rounds.items():
                    figures_by_workload[workload.name][kind].append(statistics.median(figures))
    return figures_by_workload


@contextlib.contextmanager
def _pair(upstream: int, core: int | None) -> Iterator[dict[str, Peer]]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        with peers.on_core(core):
            pair = {"without": peers.toolwire(Path(name), upstream), "with": peers.journal(Path(name), upstream)}
        for peer in pair.values():
            stack.callback(stop, peer.process)
        yield pair


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def overhead(figures: Figures) -> tuple[float, float]:
    """Return the overhead of the journal and the variation without it, in percent."""
    without = statistics.mean(figures["without"])
    added = statistics.mean(figures["with"]) - without
    return added / without * 100, (max(figures["without"]) - min(figures["without"])) / without * 100
