"""What the journal costs, beside what the same program costs when it is started again.

Where a process has its memory makes some of them faster than others, for as long as they run. So each kind is started
several times, in turns, and the difference between both kinds is held against the one within a kind.
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


def with_and_without(upstream: int, asked: list[Workload], measure: Slice, core: int | None) -> dict[str, Figures]:
    """Microseconds for one request, by workload and kind, a median for each start."""
    found: dict[str, Figures] = {one.name: {"without": [], "with": []} for one in asked}
    for _ in range(STARTS):
        with _pair(upstream, core) as pair:
            for workload in asked:
                for peer in pair.values():
                    measure(peer, workload, workload.count)
                rounds: Figures = {kind: [] for kind in pair}
                for _ in range(ROUNDS):
                    for kind, peer in pair.items():
                        rounds[kind].append(measure(peer, workload, workload.count))
                for kind, figures in rounds.items():
                    found[workload.name][kind].append(statistics.median(figures))
    return found


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


def told(figures: Figures) -> tuple[float, float]:
    """How much more it costs with the journal, and how much the same program differs from itself; in percent of what it
    costs without."""
    without = statistics.mean(figures["without"])
    more = statistics.mean(figures["with"]) - without
    return more / without * 100, (max(figures["without"]) - min(figures["without"])) / without * 100
