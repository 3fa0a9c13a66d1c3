"""Delays and memory: stalls by large requests, added time to the first token, memory of streams, growth."""

import time
import urllib.request

from benchmarks.gateway.bench import SATURATED, Bench
from benchmarks.gateway.peers import Peer
from benchmarks.gateway.programs import DELTA_MS, Order, Outcome
from benchmarks.gateway.traffic import HEAVY

# One probe every 5 ms takes a tenth of a core.
PROBE_US, PROBE_SECONDS = 5000, 4.0
STALL_LIMIT_MS = 20.0
STREAMS, RAMP_US, STREAM_SECONDS = 200, 5000, 8.0
FIRST_TOKEN_LIMIT_MS = 2.0
IDLE_STREAMS, IDLE_LIMIT_KB = 400, 60.0
RESIDENT_LIMIT = 80.0
# A leak of 100 bytes per request would reach this after 20,000 requests.
GROWTH_LIMIT = 2.0
REQUESTS, CANCELLED = 20_000, 2_000


def measure_delays(bench: Bench, heavy: list[str], streams: list[str]) -> None:
    with bench.fresh_gateway() as gateway, bench.raised_priority(gateway) as raised:
        if not raised:
            print("\nthe following times include delays by other programs; root may raise the priority")
        _measure_idle_streams(bench, gateway)
        _measure_first_tokens(bench, gateway, streams)
        _measure_stalls(bench, gateway, heavy)


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


def _measure_first_tokens(bench: Bench, gateway: Peer, names: list[str]) -> None:
    """Measure the time to the first token while 200 streams get a delta every 50 ms each."""
    print(f"\nms to the first token while {STREAMS} streams get a delta every {DELTA_MS} ms, p50 and p99")
    for name in names:
        order = Order(workload=name, mode="streams", connections=STREAMS, seconds=STREAM_SECONDS, interval_us=RAMP_US)
        direct = bench.send(bench.upstream, order).first_token_ms
        through = bench.send(gateway, order).first_token_ms
        added = through.p99 - direct.p99
        limit = bench.check_limit("first token", added, FIRST_TOKEN_LIMIT_MS) if name == "paced" else "no limit"
        print(
            f"  {name:12} upstream {direct.p50:6.2f} {direct.p99:6.2f}   toolwire {through.p50:6.2f} {through.p99:6.2f}"
            f"   adds {added:6.2f} ({limit}); {through.count} streams",
            flush=True,
        )


def _measure_stalls(bench: Bench, gateway: Peer, names: list[str]) -> None:
    """Measure small exchanges while another client sends requests near its limits."""

    def probe(heavy: str) -> Outcome:
        order = Order(workload="small", mode="probe", seconds=PROBE_SECONDS, interval_us=PROBE_US, heavy=heavy)
        return bench.send(gateway, order)

    print("\nms of a small exchange while another client sends large requests, p50, p99 and most")
    idle = probe("-").latency_ms
    print(f"  {'nothing':40} {idle.p50:7.1f} {idle.p99:7.1f} {idle.most:7.1f}")
    for name in names:
        outcome = probe(name)
        times, added = outcome.latency_ms, outcome.latency_ms.p99 - idle.p99
        limit = bench.check_limit(f"stall by {name}", added, STALL_LIMIT_MS)
        print(
            f"  {HEAVY[name]:40} {times.p50:7.1f} {times.p99:7.1f} {times.most:7.1f}   adds {added:6.1f} ({limit});"
            f" {outcome.heavy} sent",
            flush=True,
        )


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
