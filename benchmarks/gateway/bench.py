"""A running benchmark: traffic, load generator, upstream and the measured programs."""

import contextlib
import os
import statistics
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from benchmarks.gateway import peers
from benchmarks.gateway.checks import Difference, check_request, check_samples
from benchmarks.gateway.peers import Peer, StartError
from benchmarks.gateway.programs import Load, Order, Outcome, compiler, on_core, start_programs, stop
from benchmarks.gateway.traffic import ANTHROPIC, Traffic, Workload, write_traffic

# Requests of the shortest slice.
FEWEST = 4
# The upstream keeps one of this many requests for a complete check.
KEPT = 16
# Connections that keep a program busy.
SATURATED = 16


class Slice(Struct):
    """One measurement: CPU microseconds per exchange, and how much the program waited for work."""

    microseconds: float
    # Share of the time in which the program had nothing to do.
    idle: float
    # CPU microseconds per exchange of load generator and upstream.
    others: float


class Bench(Struct):
    load: Load
    upstream: Peer
    peers: list[Peer]
    traffic: Traffic
    compiled: bool
    scale: float
    # CPU seconds of a slice.
    slice_seconds: float
    # Slices by workload, connections and program, one per round.
    slices: dict[tuple[str, int, str], list[Slice]] = field(default_factory=dict)
    # Why a program has no figures, by workload and program.
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    checked: int = 0
    exceeded: list[str] = field(default_factory=list)

    @property
    def gateway(self) -> Peer:
        return self.peers[0]

    def send(self, peer: Peer, order: Order, *, required: bool = True) -> Outcome:
        number = 0 if peer is self.upstream else self.peers.index(peer) + 1
        outcome = self.load.run(order, number, peer.port)
        if required and outcome.bad:
            raise SystemExit(f"{peer.name}, {order}: {outcome.bad} invalid responses; the first one: {outcome.error}")
        return outcome

    def measure(self, peer: Peer, workload: Workload, count: int, connections: int) -> Slice | None:
        """Send requests; return None if the program can't serve them, which the gateway and nginx have to."""
        required = peer.name in {"toolwire", "journal", "nginx"}
        helpers = (self.load.process.pid, self.upstream.process.pid)
        before, helpers_before = peer.usage(), [peers.usage_of(pid).ran for pid in helpers]
        order = Order(workload=workload.name, count=count, connections=min(connections, count))
        outcome = self.send(peer, order, required=required)
        usage, helpers_after = peer.usage() - before, [peers.usage_of(pid).ran for pid in helpers]
        try:
            self.checked += check_samples(self.load.samples, self.traffic)
            if peer.name == "toolwire" and workload.path == ANTHROPIC and count >= KEPT:
                self._check_request()
        except (Difference, ValueError, KeyError, TypeError) as difference:
            if required:
                raise SystemExit(f"{peer.name}, {order}: {difference}") from difference
            outcome.bad, outcome.error = 1, str(difference)
        if outcome.bad:
            self.failures[workload.name, peer.name] = outcome.error
            return None
        idle = 1 - min(1.0, (usage.ran + usage.waited) / 1e9 / outcome.seconds)
        return Slice(usage.ran / count / 1e3, idle, (sum(helpers_after) - sum(helpers_before)) / count / 1e3)

    def _check_request(self) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.upstream.port}/last", timeout=10) as answer:
            check_request(answer.read(), self.traffic)

    def measure_rounds(self, workloads: list[Workload], rounds: int, connections: tuple[int, ...]) -> None:
        """Let all programs take turns in each round."""
        counts: dict[tuple[str, str], int] = {}
        for workload in workloads:
            for peer in self._servers(workload):
                counts[workload.name, peer.name] = self._warm_up(peer, workload)
        for _ in range(rounds):
            for workload in workloads:
                for number in connections:
                    for peer in self._servers(workload):
                        count = max(FEWEST, counts[workload.name, peer.name] // (1 if number > 1 else 2))
                        if (figure := self.measure(peer, workload, count, number)) is not None:
                            self.slices.setdefault((workload.name, number, peer.name), []).append(figure)

    def _servers(self, workload: Workload) -> list[Peer]:
        return [
            peer
            for peer in self.peers
            if workload.path in peer.paths and (workload.name, peer.name) not in self.failures
        ]

    def _warm_up(self, peer: Peer, workload: Workload) -> int:
        """Return the number of requests per slice, which is larger the faster the program is."""
        figure = self.measure(peer, workload, 2 * FEWEST, FEWEST)
        warm_up = max(2 * FEWEST, int(workload.warm_up * self.scale))
        if figure is not None and figure.microseconds * warm_up < 3e6:
            figure = self.measure(peer, workload, warm_up, SATURATED)
        return 0 if figure is None else max(FEWEST, int(self.slice_seconds * 1e6 / figure.microseconds))

    def median(self, workload: Workload, connections: int, name: str) -> float | None:
        slices = self.slices.get((workload.name, connections, name))
        return statistics.median(figure.microseconds for figure in slices) if slices else None

    def ratio(self, workload: Workload, connections: int, name: str) -> tuple[float, float, float] | None:
        """Return median, least and greatest ratio to nginx of slices of the same round."""
        pairs = zip(
            self.slices.get((workload.name, connections, name), ()),
            self.slices.get((workload.name, connections, "nginx"), ()),
            strict=False,
        )
        ratios = [above.microseconds / below.microseconds for above, below in pairs]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    @contextlib.contextmanager
    def fresh_gateway(self) -> Iterator[Peer]:
        """Start a gateway that has served nothing yet."""
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            with on_core(measured_core()):
                gateway = peers.toolwire(Path(name), self.upstream.port)
            stack.callback(stop, gateway.process)
            self.peers.append(gateway)
            stack.callback(self.peers.remove, gateway)
            yield gateway

    def check_limit(self, label: str, figure: float, limit: float) -> str:
        if figure > limit:
            self.exceeded.append(label)
            return f"OVER {limit:g}"
        return f"at most {limit:g}"


@contextlib.contextmanager
def start_bench(
    seed: int, names: set[str], path: str, others: list[str], *, scale: float, slice_seconds: float
) -> Iterator[Bench]:
    """Start everything: the measured programs on one core, load generator and upstream on the others."""
    compiled = compiler() is not None
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        traffic = write_traffic(seed, folder, names, scale)
        port = peers.free_port()
        load, upstream = stack.enter_context(start_programs(folder, port, seed, compiled=compiled, cores=_load_cores()))
        bench = Bench(load, Peer("upstream", port, upstream), [], traffic, compiled, scale, slice_seconds)
        with on_core(measured_core()):
            bench.peers.append(peers.toolwire(folder, port))
            stack.callback(stop, bench.gateway.process)
            for other in others:
                try:
                    peer = peers.OTHERS[other](folder, port, path)
                except StartError as error:
                    print(error)
                    continue
                if peer is None:
                    print(f"{other} is not installed: its figures are skipped")
                    continue
                stack.callback(stop, peer.process)
                bench.peers.append(peer)
        for number, peer in enumerate([bench.upstream, *bench.peers]):
            for header in peer.headers:
                load.add_header(number, header)
        yield bench


def measured_core() -> int | None:
    """Return the core of the measured programs, None if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0] if len(cores) > 1 else None


def _load_cores() -> tuple[int | None, int | None]:
    """Return the cores of load generator and upstream, two if there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[1], cores[-1]) if len(cores) > 1 else (None, None)
