"""Instructions of exchanges through the gateway, counted by valgrind, compared with a revision.

`make bench-instructions ARGUMENTS=--exchanges`. The gateway serves the same varied traffic with the code of each
revision, under callgrind, with 16 connections. Unlike times, the counts hardly depend on other load.
"""

import compileall
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.gateway import peers
from benchmarks.gateway.bench import SATURATED
from benchmarks.gateway.programs import Load, Order, compiler, start_programs, stop
from benchmarks.gateway.traffic import write_traffic

ROOT = Path(__file__).parents[2]
# Workloads, with their requests before and during the measurement: enough that each agent has begun.
COUNTS = {"growing": (300, 160), "first": (160, 80), "turns-100": (120, 80), "small": (40, 160), "chat": (40, 160)}
_START = 300  # small requests, after which everything that is loaded late is loaded
_SCALE = 0.2  # of the agents
# callgrind writes its counts whenever the program calls this function of libc.
MARK = "getpgrp"
_PATIENCE = 1200.0


def count_exchanges(tree: Path, folder: Path, seed: int, names: list[str]) -> dict[str, float]:
    """Return the instructions per exchange of each workload, with the toolwire in this tree."""
    if compiler() is None:
        raise SystemExit("needs a C compiler: clients in Python would be too slow")
    compileall.compile_dir(tree / "src", quiet=2)  # to compile under valgrind would take minutes
    write_traffic(seed, folder, {"small", *names}, _SCALE)
    upstream, figures = peers.free_port(), dict[str, float]()
    programs = start_programs(folder, upstream, seed, compiled=True, cores=(None, None))
    with programs as (load, _), _gateway(tree, folder, upstream) as (port, take_count):
        _send(load, port, "small", _START)
        for name in names:
            warm_up, measured = COUNTS[name]
            _send(load, port, name, warm_up)
            take_count()
            _send(load, port, name, measured)
            figures[name] = take_count() / measured
    return figures


def _send(load: Load, port: int, name: str, count: int) -> None:
    outcome = load.run(Order(workload=name, count=count, connections=SATURATED), 1, port)
    if outcome.bad:
        raise SystemExit(f"{name}: {outcome.bad} invalid responses; the first one: {outcome.error}")


@contextlib.contextmanager
def _gateway(tree: Path, folder: Path, upstream: int) -> Iterator[tuple[int, Callable[[], int]]]:
    """Start a gateway under callgrind; yield its port, and a counter of instructions since the last call."""
    port, counts = peers.free_port(), folder / "counts"
    for old in folder.glob("counts*"):
        old.unlink()
    (folder / "gateway.toml").write_text(peers.TOOLWIRE.format(port=port, upstream=upstream), encoding="ascii")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", f"--dump-before={MARK}"]
    command += [sys.executable, "-m", "benchmarks.gateway.instructions", str(folder / "gateway.toml")]
    environment = {"PYTHONPATH": f"{tree / 'src'}:{ROOT}", "PYTHONHASHSEED": "0"}
    process = peers.start("toolwire", command, port, folder, environment, seconds=_PATIENCE)
    taken = 0

    def take_count() -> int:
        nonlocal taken
        taken += 1
        process.send_signal(signal.SIGUSR1)
        dump, deadline = Path(f"{counts}.{taken}"), time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if dump.exists() and (totals := [line for line in _lines(dump) if line.startswith("totals:")]):
                return int(totals[0].split()[1])
            time.sleep(0.1)
        raise SystemExit("callgrind wrote no counts")

    try:
        yield port, take_count
    finally:
        stop(process)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines()


def serve_marked(config: Path) -> None:
    """Serve; each SIGUSR1 is a mark for callgrind."""
    from toolwire.cli import main  # noqa: PLC0415 - of the revision, as the following
    from toolwire.gateway.keys import accounting  # noqa: PLC0415
    from toolwire.gateway.observability import access_log, metrics  # noqa: PLC0415
    from toolwire.gateway.server import request  # noqa: PLC0415

    # Everything takes fifty times as long: what happens by the clock would happen fifty times as often per exchange.
    for module, name in (
        (request, "CHECK_INTERVAL"),
        (access_log, "FLUSH_INTERVAL"),
        (metrics, "_LAG_INTERVAL"),
        (accounting, "_FLUSH_INTERVAL"),
    ):
        setattr(module, name, 50 * getattr(module, name))
    signal.signal(signal.SIGUSR1, lambda *_: os.getpgrp())
    sys.argv = ["toolwire", "serve", "--config", str(config)]
    main()


if __name__ == "__main__":
    serve_marked(Path(sys.argv[1]))
