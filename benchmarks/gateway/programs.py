"""Load generator and upstream: compiled when there is a C compiler, otherwise their slower Python versions."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[1]
# Between two deltas of a paced stream.
DELTA_MS = 50


class Times(Struct):
    """Percentiles in milliseconds."""

    count: int
    p50: float
    p99: float
    most: float


class Outcome(Struct):
    good: int
    bad: int
    error: str
    seconds: float
    # Completed heavy requests.
    heavy: int
    latency_ms: Times
    first_token_ms: Times
    # CPU time of the measured process between the request and the same events.
    cpu_ms: Times
    first_token_cpu_ms: Times


class Order(Struct, kw_only=True):
    """What the load generator is to send; `load.c` describes the modes."""

    workload: str
    mode: str = "run"
    count: int = 0
    connections: int = 0
    seconds: float = 0.0
    interval_us: int = 0
    heavy: str = "-"
    # The process whose CPU time is compared with the elapsed time.
    pid: int = 0


class Load:
    """A running load generator."""

    def __init__(self, process: "subprocess.Popen[bytes]", samples: Path) -> None:
        self.process = process
        self.samples = samples

    def add_header(self, peer: int, header: str) -> None:
        self._write(f"header {peer} {header}")

    def release(self) -> None:
        """Close the streams that are held open."""
        self._exchange("release")

    def run(self, order: Order, peer: int, port: int) -> Outcome:
        size = f"{order.count} {order.connections} {order.seconds} {order.interval_us}"
        return self._exchange(f"{order.mode} {peer} {port} {order.workload} {size} {order.heavy} {order.pid}")

    def _exchange(self, line: str) -> Outcome:
        self._write(line)
        assert self.process.stdout is not None
        return msgspec.json.decode(self.process.stdout.readline(), type=Outcome)

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


def program(name: str, folder: Path, *, compiled: bool) -> list[str]:
    """Return the command of `load` or `upstream`, compiling it if it is to be compiled."""
    cc = compiler()
    if not compiled or cc is None:
        return [sys.executable, "-m", f"benchmarks.gateway.{name}"]
    subprocess.run([cc, "-O2", "-o", folder / name, SOURCES / f"{name}.c"], check=True)
    return [str(folder / name)]


@contextlib.contextmanager
def start_programs(
    folder: Path,
    port: int,
    seed: int,
    *,
    compiled: bool,
    cores: tuple[int | None, int | None],
    delta_ms: int = DELTA_MS,
) -> Iterator[tuple[Load, "subprocess.Popen[bytes]"]]:
    """Start the load generator and the upstream on the traffic in a folder, each on its core."""
    samples = folder / "samples"
    load_command = [*program("load", folder, compiled=compiled), str(folder / "requests"), str(samples), str(seed)]
    upstream_command = [
        *program("upstream", folder, compiled=compiled),
        str(port),
        str(folder / "answers"),
        str(delta_ms),
    ]
    with contextlib.ExitStack() as stack:
        with on_core(cores[1]):
            upstream = subprocess.Popen(upstream_command, cwd=ROOT)
        stack.callback(stop, upstream)
        with on_core(cores[0]):
            load = subprocess.Popen(load_command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stack.callback(stop, load)
        stack.callback(_close_pipes, load)
        yield Load(load, samples), upstream


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run processes started inside on this core; None leaves it to the system."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
