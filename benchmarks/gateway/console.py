"""Cost of the console: enabled with no page open compared with disabled, and with a page open compared with none.

The page is opened and closed in turns on the same process, as processes differ by their memory layout. For the same
reason the first comparison needs several starts, and is limited by their variation.
"""

import contextlib
import socket
import statistics
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gateway import peers
from benchmarks.gateway.bench import SATURATED, Bench, measured_core
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.programs import on_core, stop
from benchmarks.gateway.traffic import Workload

STARTS = 4
ROUNDS = 5
LIMIT_OPEN = 2.0
"""Percent that an open page may add."""

_OFF = "[console]\nenabled = false\n"


def measure_console(bench: Bench, workloads: list[Workload]) -> None:
    """Check that the console costs nothing while no page is open, and little while one is."""
    disabled: dict[str, list[float]] = {}
    enabled: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for _ in range(STARTS):
        with _pair(bench) as (off, on):
            for workload in workloads:
                _measure_start(bench, workload, off, on, (disabled, enabled, ratios))
    print(f"\noverhead of the console in % (limit): no page open, limited by {STARTS} starts without it; one page open")
    for workload in workloads:
        name = workload.name
        without, added = statistics.mean(disabled[name]), statistics.mean(enabled[name])
        noise = (max(disabled[name]) - min(disabled[name])) / without * 100
        closed = (added - without) / without * 100
        opened = (statistics.median(ratios[name]) - 1) * 100
        limit = bench.check_limit(f"{name} with the console", closed, round(noise, 1))
        limit_open = bench.check_limit(f"{name} with a page open", opened, LIMIT_OPEN)
        spread = statistics.quantiles(ratios[name], n=4)
        print(
            f"{name:14} {without:8.1f} us {closed:6.1f} ({limit}) {opened:6.1f} ({limit_open}), "
            f"quartiles {(spread[0] - 1) * 100:.1f} and {(spread[2] - 1) * 100:.1f}",
            flush=True,
        )


def _measure_start(
    bench: Bench,
    workload: Workload,
    off: Peer,
    on: Peer,
    figures: tuple[dict[str, list[float]], dict[str, list[float]], dict[str, list[float]]],
) -> None:
    disabled, enabled, ratios = figures
    rounds: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(ROUNDS + 1):
        without = _microseconds(bench, off, workload)
        closed = _microseconds(bench, on, workload)
        with _open_page(on.port):
            opened = _microseconds(bench, on, workload)
        if number:  # the first one warms up
            rounds["off"].append(without)
            rounds["on"].append(closed)
            ratios.setdefault(workload.name, []).append(opened / closed)
    disabled.setdefault(workload.name, []).append(statistics.median(rounds["off"]))
    enabled.setdefault(workload.name, []).append(statistics.median(rounds["on"]))


def _microseconds(bench: Bench, peer: Peer, workload: Workload) -> float:
    figure = bench.measure(peer, workload, workload.warm_up, SATURATED)
    if figure is None:
        raise SystemExit(f"{peer.name} failed: {bench.failures}")
    return figure.microseconds


@contextlib.contextmanager
def _open_page(port: int) -> Iterator[None]:
    """Read the live feed as a page does."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /console/api/feed HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
            raise SystemExit("the console has no feed")

        def drain() -> None:
            with contextlib.suppress(OSError):
                while connection.recv(1 << 20):
                    pass

        reader = threading.Thread(target=drain)
        reader.start()
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            reader.join()


@contextlib.contextmanager
def _pair(bench: Bench) -> Iterator[tuple[Peer, Peer]]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        with on_core(measured_core()):
            off = peers.toolwire(Path(name), bench.upstream.port, "console-off", _OFF)
            stack.callback(stop, off.process)
            on = peers.toolwire(Path(name), bench.upstream.port, "console")
            stack.callback(stop, on.process)
        before = bench.peers
        bench.peers = [*before, off, on]
        stack.callback(setattr, bench, "peers", before)
        yield off, on
