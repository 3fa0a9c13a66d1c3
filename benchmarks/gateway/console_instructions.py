"""Instructions that the console adds to an exchange, counted by valgrind: other load does not change them.

Exchanges of real traffic differ by more than a console costs. So the work of the console is counted alone, repeated
many times, and compared with the instructions of an exchange of the same workload without a console.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from benchmarks.gateway import peers
from benchmarks.gateway.bench import SATURATED, Bench, measured_core
from benchmarks.gateway.console import LIMIT_CLOSED, LIMIT_OPEN
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.programs import ROOT, on_core, stop
from benchmarks.gateway.traffic import Workload
from benchmarks.instructions import MARK
from toolwire.canonical.errors import Loss
from toolwire.canonical.response import Usage
from toolwire.codec.interface import Route
from toolwire.gateway.config import parse_config
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.gateway.console.exchange_feed import INTERVAL, MAX_ROWS, ExchangeFeed, FeedPosition
from toolwire.gateway.console.session import Viewer
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import RequestObserver
from toolwire.gateway.server.auth import ANONYMOUS
from toolwire.gateway.server.gateway import build_gateway
from toolwire.protocols import PROTOCOLS

ROWS_PER_SECOND = MAX_ROWS / INTERVAL
REPEATED = 40 * MAX_ROWS
"""Exchanges over which the work of the console is counted."""

SLICES = {"stream": 60}
"""Exchanges of a slice, by workload; else `SLICE`."""

SLICE = 300
_OFF = "[console]\nenabled = false\n"
_CONFIG = """
[providers.up]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
api_key = "key-of-the-upstream"
"""
_LOSSES = [
    Loss(severity="warning", kind="dropped", path="/top_k", reason="the target has no such field", direction="request"),
    Loss(severity="info", kind="dropped", path="/created", reason="the target has no such field", direction="response"),
]


class ConsoleCosts(Struct):
    """Instructions of the console's work for one exchange."""

    added: float
    """With no page open."""
    followed: float
    """With a page open."""
    row: float
    """Of the row that is sent to a page, with its share of a batch."""


def count_console(bench: Bench, workloads: list[Workload]) -> None:
    """Check the instructions that the console adds to exchanges."""
    with tempfile.TemporaryDirectory() as folder:
        costs = _count_costs(Path(folder))
    print("\nthousand instructions for an exchange")
    print(f"no page open {costs.added / 1e3:.2f}, page open {costs.followed / 1e3:.2f}, a row {costs.row / 1e3:.2f}")
    print(f"\na page gets at most {ROWS_PER_SECOND:.0f} rows a second; what the console adds, in %\n")
    print(f"{'':8} {'exchange':>9} {'no page':>8} {'page, every row':>16} {'page, busy core':>16}")
    with tempfile.TemporaryDirectory() as folder:
        for workload in workloads:
            _report(bench, workload, _count_exchange(bench, workload, Path(folder)), costs)


def _report(bench: Bench, workload: Workload, exchange: float, costs: ConsoleCosts) -> None:
    """Print what the console adds to an exchange, and check it."""
    figure = bench.measure(bench.gateway, workload, max(2 * SATURATED, workload.warm_up), SATURATED)
    if figure is None:
        raise SystemExit(f"the gateway failed: {bench.failures}")
    share = min(1.0, ROWS_PER_SECOND * figure.microseconds / 1e6)
    closed, every = costs.added / exchange * 100, (costs.followed + costs.row) / exchange * 100
    busy = (costs.followed + costs.row * share) / exchange * 100
    verdicts = [
        bench.check_limit(f"{workload.name}: no page open", closed, LIMIT_CLOSED),
        bench.check_limit(f"{workload.name}: one page open", busy, LIMIT_OPEN),
    ]
    print(f"{workload.name:8} {exchange / 1e3:9,.0f} {closed:8.2f} {every:16.2f} {busy:16.2f}", end="  ")
    print(f"{', '.join(verdicts)}; {1e6 / figure.microseconds:,.0f} a second, {share:.0%} with a row", flush=True)


def _count_exchange(bench: Bench, workload: Workload, folder: Path) -> float:
    """Return the instructions of an exchange without a console."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/{workload.name}"]
    command += [sys.executable, str(Path(sys.executable).with_name("toolwire"))]
    with on_core(measured_core()):
        peer = peers.toolwire(folder, bench.upstream.port, "console", _OFF, command)
    bench.peers.append(peer)
    count = SLICES.get(workload.name, SLICE)
    try:
        for _ in range(2):  # the first one warms up
            _dump(peer)
            if bench.measure(peer, workload, count, SATURATED) is None:
                raise SystemExit(f"the gateway failed in valgrind: {bench.failures}")
        _dump(peer)
    finally:
        stop(peer.process)
        bench.peers.remove(peer)
    dumps = sorted(folder.glob(f"{workload.name}.*"), key=lambda path: int(path.suffix[1:]))
    return _total(dumps[2]) / count


def _dump(peer: Peer) -> None:
    """Let valgrind write the counts since the last time."""
    subprocess.run(["callgrind_control", "--dump", str(peer.process.pid)], check=True, stdout=subprocess.DEVNULL)


def _total(dump: Path) -> int:
    """Return the instructions in a file of callgrind."""
    (line,) = [line for line in dump.read_text().splitlines() if line.startswith("totals:")]
    return int(line.split()[1])


def _count_costs(folder: Path) -> ConsoleCosts:
    """Run `_work` in valgrind, and return its counts."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/work", f"--dump-before={MARK}"]
    command += [sys.executable, "-m", "benchmarks.gateway.console_instructions"]
    environment = os.environ | {"PYTHONHASHSEED": "0", "XDG_STATE_HOME": str(folder)}
    subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, check=True)
    # Marks stand before and after each of the parts.
    nothing, added, followed, rows = (_total(folder / f"work.{number}") / REPEATED for number in (2, 3, 4, 6))
    return ConsoleCosts(added - nothing, followed - nothing, rows)


def _work() -> None:
    """Do what the console does for exchanges, with marks between the parts."""
    config = parse_config(_CONFIG, {})
    app = build_gateway(config).app
    assert app.console is not None
    request = ClientRequest(codec=PROTOCOLS["anthropic"], body=b"{}", route=Route(), tenant="")
    outputs = app._observability  # noqa: SLF001 - of a gateway that serves nothing
    observers = [RequestObserver(outputs, _record(number), ANONYMOUS) for number in range(3 * REPEATED)]
    for observer in observers:
        observer.losses = _LOSSES
    buffer = app.console.buffer
    for observer in observers[:REPEATED]:  # a full buffer drops an exchange for each new one
        buffer.add(observer)
    os.getpgrp()
    for observer in observers[:REPEATED]:
        _ignore(observer)
    os.getpgrp()
    for observer in observers[REPEATED : 2 * REPEATED]:
        if buffer.is_watched:
            buffer.start(observer, request)
        buffer.add(observer)
    os.getpgrp()
    buffer.watch()
    for observer in observers[2 * REPEATED :]:
        if buffer.is_watched:
            buffer.start(observer, request)
        buffer.add(observer)
    os.getpgrp()
    asyncio.run(_send_rows(app.console._feed, buffer))  # noqa: SLF001 - without the connection of a page


def _ignore(observer: RequestObserver) -> None:
    """Do nothing, to count the loop."""


async def _send_rows(feed: ExchangeFeed, buffer: ExchangeBuffer) -> None:
    """Build the batches of a page with the last exchanges, between two marks."""
    viewer = Viewer(ANONYMOUS, is_admin=True)
    first = buffer.last_number - REPEATED
    await feed.next_batch(viewer, FeedPosition(buffer.id, first), is_first=False)  # loads the prices
    os.getpgrp()
    position = FeedPosition(buffer.id, first)
    while position.number < buffer.last_number:
        await feed.next_batch(viewer, position, is_first=False)
    os.getpgrp()


def _record(number: int) -> RequestRecord:
    """Return the record of an exchange."""
    record = RequestRecord(id=f"ex_{number:016x}", method="POST", path="/v1/messages", started_at=time.monotonic())
    record.client, record.client_model, record.provider, record.model = "anthropic", "bench", "up", "bench"
    record.status, record.streamed, record.responded_at, record.duration = 200, True, time.monotonic(), 0.5
    record.usage = Usage(input_tokens=1200 + number % 97, output_tokens=80 + number % 31)
    return record


if __name__ == "__main__":
    _work()
