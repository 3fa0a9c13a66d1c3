"""`make bench-gateway`: CPU time of one exchange, compared with nginx and LiteLLM.

Each program runs alone on one core; clients and upstream share the other. Only figures of the same run are comparable.
Exits 1 if one exceeds its limit.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field

from benchmarks.gateway import peers
from benchmarks.gateway.load import Order, Outcome
from benchmarks.gateway.noise import STARTS, overhead, stop, with_and_without
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.workloads import STALLED, Workload, workloads

ROOT = Path(__file__).parents[2]
RESIDENT_LIMIT = 80.0
# A leak of 100 bytes per request would reach this after 20,000 requests.
GROWTH_LIMIT = 2.0
REQUESTS, CANCELLED = 20_000, 2_000
CONCURRENCY = 8


class Bench(Struct):
    """A running benchmark: load generator, upstream and measured programs."""

    load: "subprocess.Popen[bytes]"
    upstream: int
    peers: list[Peer]
    # Microseconds per request, by workload and program, one figure per round.
    figures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    exceeded: list[str] = field(default_factory=list)

    def order(self, order: Order) -> None:
        assert self.load.stdin is not None
        assert self.load.stdout is not None
        self.load.stdin.write(msgspec.json.encode(order) + b"\n")
        self.load.stdin.flush()
        outcome = msgspec.json.decode(self.load.stdout.readline(), type=Outcome)
        if outcome.bad or outcome.good != order.count:
            raise SystemExit(
                f"{order}: {outcome.good} valid responses, {outcome.bad} invalid; the first one: {outcome.first_error}"
            )

    def slice(self, peer: Peer, workload: Workload, count: int) -> float:
        """Return CPU microseconds per request."""
        before = peer.seconds()
        self.order(Order(peer.port, workload.name, count, min(CONCURRENCY, count), translated=peer.translates))
        return (peer.seconds() - before) / count * 1e6

    def check_limit(self, label: str, figure: float, limit: float, *, least: bool = False) -> str:
        if figure < limit if least else figure > limit:
            self.exceeded.append(label)
            return f"{figure:7.1f} OVER {limit:g}"
        return f"{figure:7.1f} ({'at least' if least else 'at most'} {limit:g})"

    def ratio(self, workload: Workload, above: str, below: str) -> float | None:
        """Return the median ratio of slices of the same round."""
        pairs = zip(
            self.figures.get((workload.name, above), ()), self.figures.get((workload.name, below), ()), strict=False
        )
        ratios = [numerator / denominator for numerator, denominator in pairs]
        return statistics.median(ratios) if ratios else None


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # exit handlers stop the started processes
    names = None if options.only is None else set(options.only.split(","))
    selected = [
        workload for workload in workloads() if workload.name != STALLED and (names is None or workload.name in names)
    ]
    with _bench(options.litellm) as bench:
        _measure(bench, selected, options.rounds)
        if options.journal:
            _with_journal(bench, selected)
        if options.growth:
            _growth(bench)
        exceeded = bench.exceeded
    print(f"\n{len(exceeded)} over the limit: {', '.join(exceeded)}" if exceeded else "\nall within their limits")
    return 1 if exceeded else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds; default 7")
    parser.add_argument("--only", help="workloads, separated by commas")
    parser.add_argument("--litellm", help="LiteLLM's executable; default: the one on PATH, if any")
    parser.add_argument("--journal", action="store_true", help="also measure with the journal; takes two minutes")
    parser.add_argument("--growth", action="store_true", help="also measure memory growth; takes a minute")
    return parser.parse_args()


@contextlib.contextmanager
def _bench(litellm: str | None) -> Iterator[Bench]:
    near, far = _cores()
    upstream = peers.free_port()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with peers.on_core(far):
            model = subprocess.Popen([sys.executable, "-m", "benchmarks.gateway.upstream", str(upstream)], cwd=ROOT)
            stack.callback(stop, model)
            load = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gateway.load"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.callback(stop, load)
        running: list[Peer] = []
        with peers.on_core(near):
            starts: list[Callable[[Path, int], Peer | None]] = [peers.toolwire, peers.nginx]
            starts.append(partial(peers.litellm, executable=litellm))
            for start in starts:
                if (peer := start(folder, upstream)) is not None:
                    stack.callback(stop, peer.process)
                    running.append(peer)
        for missing in {"nginx", "litellm"} - {peer.name for peer in running}:
            print(f"{missing} is not installed: its figures and ratios are skipped")
        yield Bench(load, upstream, running)


def _measure(bench: Bench, selected: list[Workload], rounds: int) -> None:
    for workload in selected:
        for peer in bench.peers:
            bench.slice(peer, workload, _count(peer, workload) // 2)
    for _ in range(rounds):
        for workload in selected:
            for peer in bench.peers:
                figure = bench.slice(peer, workload, _count(peer, workload))
                bench.figures.setdefault((workload.name, peer.name), []).append(figure)
    print(f"CPU µs per request, medians of {rounds} interleaved rounds; every response was checked\n")
    print("      " + "".join(f"{peer.name:>12}" for peer in bench.peers) + "   toolwire / nginx    litellm / toolwire")
    for workload in selected:
        medians = [statistics.median(bench.figures[workload.name, peer.name]) for peer in bench.peers]
        line = f"{workload.name:6}" + "".join(f"{figure:12,.0f}" for figure in medians)
        line += f"   {_format_ratio(bench, workload, 'nginx', workload.limit):18}"
        line += f"  {_format_ratio(bench, workload, 'litellm', workload.field)}"
        print(line.rstrip(), flush=True)
    print()
    for peer in bench.peers:
        size = peer.megabytes()
        checked = bench.check_limit("resident", size, RESIDENT_LIMIT) if peer.name == "toolwire" else f"{size:7.1f}"
        print(f"MB resident, {peer.name:10} {checked}", flush=True)


def _format_ratio(bench: Bench, workload: Workload, peer_name: str, limit: float | None) -> str:
    field = peer_name == "litellm"
    ratio = bench.ratio(workload, peer_name, "toolwire") if field else bench.ratio(workload, "toolwire", peer_name)
    if ratio is None:
        return ""
    return (
        f"{ratio:7.1f}"
        if limit is None
        else bench.check_limit(f"{workload.name} / {peer_name}", ratio, limit, least=field)
    )


def _count(peer: Peer, workload: Workload) -> int:
    return workload.field_count if peer.name == "litellm" else workload.count


def _cores() -> tuple[int | None, int | None]:
    """Return one core for the measured program and one for everything else."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) > 1 else (None, None)


def _with_journal(bench: Bench, selected: list[Workload]) -> None:
    """Check that the journal changes no figure by more than a restart of the same program does."""
    figures_by_workload = with_and_without(bench.upstream, selected, bench.slice, _cores()[0])
    print(f"\noverhead of the journal in %, limited by the variation of {STARTS} starts without it:")
    for name, figures in figures_by_workload.items():
        overhead_percent, noise = overhead(figures)
        print(
            f"{name:6} {bench.check_limit(f'{name} with the journal', overhead_percent, round(noise, 1))}", flush=True
        )


def _growth(bench: Bench) -> None:
    """Measure memory and connections after many requests, and after many clients that left during a stream."""
    gateway = bench.peers[0]

    def work(requests: int, cancelled: int) -> None:
        bench.order(Order(gateway.port, "W1", requests, CONCURRENCY))
        bench.order(Order(gateway.port, STALLED, cancelled, CONCURRENCY, leave=True))
        time.sleep(1)

    # Memory grows up to here and then stays: the allocator keeps the peak of concurrent streams.
    work(REQUESTS // 10, 2 * CANCELLED)
    size, open_before = gateway.megabytes(), gateway.descriptors()
    work(REQUESTS, CANCELLED)
    grown, descriptors_grown = gateway.megabytes() - size, gateway.descriptors() - open_before
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.upstream}/", timeout=10) as answer:
        streams_open = int(answer.read())
    print(f"\nafter {REQUESTS:,} requests and {CANCELLED:,} cancelled streams:")
    print(f"MB added           {bench.check_limit('growth', grown, GROWTH_LIMIT)}")
    print(f"descriptors added  {bench.check_limit('descriptors', descriptors_grown, 0)}")
    print(f"streams left open  {bench.check_limit('streams', streams_open, 0)}")


if __name__ == "__main__":
    sys.exit(main())
