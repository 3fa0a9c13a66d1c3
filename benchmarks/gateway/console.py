"""Cost of the console: enabled with no page open compared with disabled, and with a page open compared with none.

Processes differ by their memory layout, by more than a console costs. So the configuration of one process is changed
while it serves, in turns, and each figure is compared with its neighbor. Several starts make sure that no layout
decides.
"""

import contextlib
import itertools
import os
import signal
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from math import comb
from pathlib import Path

from msgspec import Struct, field

from benchmarks.gateway import peers
from benchmarks.gateway.bench import SATURATED, Bench, measured_core
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.programs import on_core, stop
from benchmarks.gateway.traffic import Workload

WORKLOADS = ("small", "chat", "stream")
STARTS = 4
ROUNDS = 6
LIMIT_CLOSED = 1.0
"""Percent that the console may add while no page is open: what two equal configurations differ by at most."""

LIMIT_OPEN = 2.0
"""Percent that an open page may add."""

SLICE_SECONDS = 0.3

_OFF = "[console]\nenabled = false\n"
_DEADLINE = 60


class Overhead(Struct):
    """Ratios of neighboring slices."""

    noise: list[float] = field(default_factory=list)
    """Disabled, to disabled: how far equal configurations differ."""
    closed: list[float] = field(default_factory=list)
    """Enabled without a page, to disabled."""
    opened: list[float] = field(default_factory=list)
    """With a page open, to without."""


def measure_console(bench: Bench, workloads: list[Workload], rounds: int = ROUNDS, starts: int = STARTS) -> None:
    """Check that the console costs nothing while no page is open, and little while one is."""
    overheads = {workload.name: Overhead() for workload in workloads}
    started = time.monotonic()
    for number in range(starts):
        with tempfile.TemporaryDirectory() as folder, _gateway(bench, Path(folder)) as gateway:
            for workload in workloads:
                gateway.warm_up(workload)
                for _ in range(rounds):
                    gateway.measure_round(workload, overheads[workload.name])
        print(f"start {number + 1} of {starts}: {time.monotonic() - started:.0f} s", flush=True)
    print("\noverhead of the console in %: median, 95 % confidence interval of the median, and limit")
    for name, overhead in overheads.items():
        noise = _percent(overhead.noise)
        print(f"{name:14} disabled, again   {noise[1]:6.2f}  {noise[0]:6.2f} to {noise[2]:5.2f}")
        for label, ratios, limit in (
            ("no page open", overhead.closed, LIMIT_CLOSED),
            ("one page open", overhead.opened, LIMIT_OPEN),
        ):
            low, median, high = _percent(ratios)
            verdict = bench.check_limit(f"{name} with the console, {label}", median, limit)
            if low <= limit < high:
                verdict += ", not decided by this run"
            print(f"{name:14} {label:17} {median:6.2f}  {low:6.2f} to {high:5.2f}  {verdict}", flush=True)


def _percent(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median of ratios as an overhead in percent, between the ends of its confidence interval."""
    ordered = sorted((ratio - 1) * 100 for ratio in ratios)
    count, rank, share = len(ordered), 0, 0.5 ** len(ordered)
    while rank + 1 < count / 2 and share + comb(count, rank + 1) * 0.5**count <= 0.025:
        rank += 1
        share += comb(count, rank) * 0.5**count
    return ordered[rank], statistics.median(ordered), ordered[count - 1 - rank]


class SwitchedGateway(Struct):
    """A gateway whose console is enabled and disabled while it serves."""

    bench: Bench
    peer: Peer
    config: Path
    enabled_config: str
    counts: dict[str, int] = field(default_factory=dict)
    """Requests of a slice, by workload."""

    def warm_up(self, workload: Workload) -> None:
        """Fill the caches, and find the number of requests of a slice."""
        self._reload(workload, is_enabled=False)
        self._slice(workload)

    def measure_round(self, workload: Workload, overhead: Overhead) -> None:
        """Measure once with each configuration; each on both sides of the one that it is compared with."""
        disabled = self._slice(workload)
        self._reload(workload, is_enabled=True)
        closed = self._slice(workload)
        with open_page(self.peer.port):
            opened = self._slice(workload)
        closed_again = self._slice(workload)
        self._reload(workload, is_enabled=False)
        disabled_again = self._slice(workload)
        overhead.noise.append(disabled_again / disabled)
        overhead.closed.append((closed + closed_again) / (disabled + disabled_again))
        overhead.opened.append(2 * opened / (closed + closed_again))

    def _slice(self, workload: Workload) -> float:
        """Return the microseconds of an exchange."""
        count = self.counts.get(workload.name, workload.warm_up)  # the first slice is of the warm-up's size
        figure = self.bench.measure(self.peer, workload, count, SATURATED)
        if figure is None:
            raise SystemExit(f"{self.peer.name} failed: {self.bench.failures}")
        self.counts.setdefault(workload.name, max(4, int(self.bench.slice_seconds * 1e6 / figure.microseconds)))
        return figure.microseconds

    def _reload(self, workload: Workload, *, is_enabled: bool) -> None:
        """Let the gateway load its configuration, and warm up."""
        self.config.write_text(self.enabled_config + ("" if is_enabled else _OFF), encoding="ascii")
        os.kill(self.peer.process.pid, signal.SIGHUP)
        wait_until(lambda: is_page_served(self.peer.port) is is_enabled)
        self.bench.measure(self.peer, workload, workload.warm_up, SATURATED)


@contextlib.contextmanager
def _gateway(bench: Bench, folder: Path) -> Iterator[SwitchedGateway]:
    """Start a gateway."""
    with contextlib.ExitStack() as stack:
        with on_core(measured_core()):
            peer = peers.toolwire(folder, bench.upstream.port, "console")
            stack.callback(stop, peer.process)
        bench.peers.append(peer)
        stack.callback(bench.peers.remove, peer)
        config = folder / "console.toml"
        yield SwitchedGateway(bench, peer, config, config.read_text("ascii"))


def is_page_served(port: int) -> bool:
    """Return whether the console is enabled."""
    page = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"accept": "text/html"})
    with urllib.request.urlopen(page, timeout=_DEADLINE) as answer:
        return bool(answer.headers["content-type"].startswith("text/html"))


@contextlib.contextmanager
def open_page(port: int) -> Iterator[None]:
    """Read the live feed as a page does, from when it has the exchanges of before."""
    has_history = threading.Event()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /console/api/feed HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")

        def drain() -> None:
            end = b""
            with contextlib.suppress(OSError):
                while data := connection.recv(1 << 20):
                    end = end[-64:] + data
                    if b'"complete":true' in end:
                        has_history.set()

        reader = threading.Thread(target=drain)
        reader.start()
        try:
            if not has_history.wait(_DEADLINE):
                raise SystemExit("the console has no feed")
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            reader.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the gateway has loaded its configuration."""
    deadline = time.monotonic() + _DEADLINE
    for _ in itertools.takewhile(lambda _: not condition(), itertools.count()):
        if time.monotonic() > deadline:
            raise SystemExit("the gateway did not load its configuration")
        time.sleep(0.005)
