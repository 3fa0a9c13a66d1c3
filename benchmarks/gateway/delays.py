"""Delays and memory: stalls by large requests, added time to the first token, memory of streams, growth."""

import time
import urllib.request

from msgspec import structs

from benchmarks.gateway.bench import SATURATED, Bench
from benchmarks.gateway.peers import Peer, usage_of
from benchmarks.gateway.programs import DELTA_MS, Order, Outcome
from benchmarks.gateway.traffic import HEAVY

# One probe every 5 ms takes a tenth of a core.
PROBE_US, PROBE_SECONDS = 5000, 4.0
STALL_LIMIT_MS = 20.0
STREAMS, RAMP_US, STREAM_SECONDS = 200, 5000, 8.0
FIRST_TOKEN_LIMIT_MS = 2.0
IDLE_STREAMS, IDLE_LIMIT_KB = 400, 60.0
RESIDENT_LIMIT = 80.0
# Share of the time in which the programs may wait for their cores before elapsed times say little.
DISTURBED = 0.03
# A leak of 100 bytes per request would reach this after 20,000 requests.
GROWTH_LIMIT = 2.0
REQUESTS, CANCELLED = 20_000, 2_000


def measure_delays(bench: Bench, heavy: list[str], streams: list[str]) -> None:
    """Measure a gateway that has served nothing yet.

    Elapsed times are judged if no other program disturbs them. Otherwise the CPU time that the gateway itself spent
    while the client waited is: on an idle machine the two are equal but for wake-ups. On a busy one it is an upper
    bound, since requests pile up while the gateway waits for its core: only a figure within its limit decides anything.
    """
    with bench.fresh_gateway() as gateway:
        _measure_idle_streams(bench, gateway)
        disturbed = _is_disturbed(bench, gateway)
        _measure_first_tokens(bench, gateway, streams, disturbed=disturbed)
        _measure_stalls(bench, gateway, heavy, disturbed=disturbed)


def _probe(bench: Bench, gateway: Peer, heavy: str) -> Outcome:
    order = Order(
        workload="small",
        mode="probe",
        seconds=PROBE_SECONDS,
        interval_us=PROBE_US,
        heavy=heavy,
        pid=gateway.process.pid,
    )
    return bench.send(gateway, order)


def _is_disturbed(bench: Bench, gateway: Peer) -> bool:
    """Return whether the programs had to wait for their cores during small exchanges."""
    pids = (gateway.process.pid, bench.load.process.pid, bench.upstream.process.pid)
    before = [usage_of(pid).waited for pid in pids]
    outcome = _probe(bench, gateway, "-")
    waited = sum(usage_of(pid).waited for pid in pids) - sum(before)
    share = waited / 1e9 / outcome.seconds
    print(f"\nother programs held the cores of this benchmark {share:.1%} of the time: ", end="")
    print("CPU times are judged, upper bounds of the delays" if share > DISTURBED else "elapsed times are judged")
    return share > DISTURBED


def _judge(bench: Bench, label: str, added: float, limit: float, *, disturbed: bool) -> str:
    if disturbed and added > limit:
        return f"undecided, at most {limit:g}"
    return bench.check_limit(label, added, limit)


def _measure_idle_streams(bench: Bench, gateway: Peer) -> None:
    """Measure resident memory after small exchanges, and of streams that wait for their upstream."""
    bench.send(gateway, Order(workload="small", count=2000, connections=SATURATED))
    bench.send(gateway, Order(workload="stalled", mode="hold", connections=1))
    before = gateway.megabytes()
    bench.send(gateway, Order(workload="stalled", mode="hold", connections=IDLE_STREAMS))
    held = (gateway.megabytes() - before) * 1000 / IDLE_STREAMS
    bench.load.release()
    limit = bench.check_limit("resident", before, RESIDENT_LIMIT)
    print(f"\nMB resident after 2,000 small exchanges: {before:6.1f} ({limit})")
    limit = bench.check_limit("idle stream", held, IDLE_LIMIT_KB)
    print(f"KB per idle stream, of {IDLE_STREAMS}:              {held:6.1f} ({limit})", flush=True)


def _measure_first_tokens(bench: Bench, gateway: Peer, names: list[str], *, disturbed: bool) -> None:
    """Measure the time to the first token while 200 streams get a delta every 50 ms each."""
    print(f"\nms to the first token while {STREAMS} streams get a delta every {DELTA_MS} ms, p50 and p99")
    for name in names:
        order = Order(
            workload=name, mode="streams", count=100, connections=STREAMS, seconds=STREAM_SECONDS, interval_us=RAMP_US
        )
        direct = bench.send(bench.upstream, order).first_token_ms
        outcome = bench.send(gateway, structs.replace(order, pid=gateway.process.pid))
        elapsed, cpu = outcome.first_token_ms, outcome.first_token_cpu_ms
        added = cpu.p99 if disturbed else elapsed.p99 - direct.p99
        limit = "no limit"
        if name == "paced":
            limit = _judge(bench, "first token", added, FIRST_TOKEN_LIMIT_MS, disturbed=disturbed)
        print(
            f"  {name:12} upstream {direct.p50:6.2f} {direct.p99:6.2f}   toolwire {elapsed.p50:6.2f} {elapsed.p99:6.2f}"
            f"   its CPU time {cpu.p50:6.2f} {cpu.p99:6.2f}   adds {added:6.2f} ({limit}); {elapsed.count} streams",
            flush=True,
        )


def _measure_stalls(bench: Bench, gateway: Peer, names: list[str], *, disturbed: bool) -> None:
    """Measure small exchanges while another client sends requests near its limits."""
    print(
        "\nms of a small exchange while another client sends large requests: elapsed p50, p99, most; CPU time p99, most"
    )
    idle = _probe(bench, gateway, "-")
    print(f"  {'nothing':40}{_delays(idle)}")
    for name in names:
        outcome = _probe(bench, gateway, name)
        elapsed, cpu = outcome.latency_ms.p99 - idle.latency_ms.p99, outcome.cpu_ms.p99 - idle.cpu_ms.p99
        added = cpu if disturbed else elapsed
        limit = _judge(bench, f"stall by {name}", added, STALL_LIMIT_MS, disturbed=disturbed)
        print(f"  {HEAVY[name]:40}{_delays(outcome)}   adds {added:6.1f} ({limit}); {outcome.heavy} sent", flush=True)


def _delays(outcome: Outcome) -> str:
    elapsed, cpu = outcome.latency_ms, outcome.cpu_ms
    return f"{elapsed.p50:7.1f} {elapsed.p99:7.1f} {elapsed.most:7.1f}  {cpu.p99:7.1f} {cpu.most:7.1f}"


def report_memory(bench: Bench) -> None:
    """Print the memory of programs that have served all workloads."""
    sizes = ", ".join(f"{peer.name} {peer.megabytes():.0f}" for peer in bench.peers)
    print(f"\nMB resident after all of this: {sizes}", flush=True)


def measure_growth(bench: Bench) -> None:
    """Measure memory and connections after many requests, and after many clients that left during a stream."""
    gateway = bench.gateway

    def work(requests: int, cancelled: int) -> None:
        bench.send(gateway, Order(workload="small", count=requests, connections=8))
        bench.send(gateway, Order(workload="stalled", mode="leave", count=cancelled, connections=8))
        time.sleep(1)

    # Memory grows up to here and then stays: the allocator keeps the peak of concurrent streams.
    work(REQUESTS // 10, 2 * CANCELLED)
    size, open_before = gateway.megabytes(), gateway.descriptors()
    work(REQUESTS, CANCELLED)
    grown, descriptors_grown = gateway.megabytes() - size, gateway.descriptors() - open_before
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.upstream.port}/", timeout=10) as answer:
        streams_open = int(answer.read())
    print(f"\nafter {REQUESTS:,} requests and {CANCELLED:,} cancelled streams:")
    print(f"MB added           {grown:6.1f} ({bench.check_limit('growth', grown, GROWTH_LIMIT)})")
    print(f"descriptors added  {descriptors_grown:6} ({bench.check_limit('descriptors', descriptors_grown, 0)})")
    print(f"streams left open  {streams_open:6} ({bench.check_limit('streams', streams_open, 0)})")
