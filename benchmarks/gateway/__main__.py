"""`make bench-gateway`: CPU time of an exchange through the gateway, its delays and its memory.

Each program runs alone on one core; clients and upstream share the others. Traffic is drawn from a seed that changes
with each run. Only figures of the same run are comparable. Exits 1 if one exceeds its limit.
"""

import argparse
import os
import secrets
import signal
import sys

from benchmarks.gateway import console, console_instructions, delays, report
from benchmarks.gateway.bench import SATURATED, Bench, start_bench
from benchmarks.gateway.noise import measure_journal
from benchmarks.gateway.peers import OTHERS
from benchmarks.gateway.traffic import HEAVY, LASTING, MEASURED, Workload

QUICK = ("growing", "first", "turns-100", "stream", "small", "chat")
QUICK_HEAVY = ("heavy-messages", "heavy-tools", "heavy-values")


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # exit handlers stop the started processes
    if options.console:
        options.delays, options.slice = False, console.SLICE_SECONDS
        options.only = options.only or ",".join(console.WORKLOADS)
    chosen = options.only.split(",") if options.only else QUICK if options.quick else [item.name for item in MEASURED]
    workloads = [workload for workload in MEASURED if workload.name in chosen]
    heavy = list(QUICK_HEAVY if options.quick else HEAVY)
    names = {workload.name for workload in workloads}
    if options.delays or options.growth:
        names |= {"small", *(item.name for item in LASTING)}
    if options.delays:
        names |= {*heavy}
    others = [name for name in OTHERS if name == "nginx" or (options.peers and not options.quick)]
    if options.console:
        others = []
    print(f"seed {options.seed} (repeat with --seed {options.seed})", flush=True)
    sizes = {"scale": options.scale, "slice_seconds": options.slice}
    with start_bench(options.seed, names, options.path, others, **sizes) as bench:
        if options.instructions:
            console_instructions.count_console(bench, workloads)
        elif options.console:
            console.measure_console(bench, workloads, options.rounds or console.ROUNDS, options.starts)
        else:
            _run(bench, workloads, heavy, options)
        exceeded = bench.exceeded
    print(f"\n{len(exceeded)} over the limit: {', '.join(exceeded)}" if exceeded else "\nall within their limits")
    return 1 if exceeded else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer workloads and rounds, only nginx; under 3 minutes")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="repeat the traffic of a run")
    parser.add_argument("--rounds", type=int, help="interleaved rounds; default 7, quick 3")
    parser.add_argument("--only", help=f"workloads, separated by commas: {', '.join(item.name for item in MEASURED)}")
    parser.add_argument("--path", default=os.environ.get("PATH", ""), help="folders of other gateways; default: PATH")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of agents; default 1")
    parser.add_argument("--slice", type=float, default=0.5, help="CPU seconds of one measurement; default 0.5")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="compare with nginx only")
    parser.add_argument("--no-delays", dest="delays", action="store_false", help="skip stalls, first tokens and memory")
    parser.add_argument("--journal", action="store_true", help="also measure with the journal; takes some minutes")
    parser.add_argument("--console", action="store_true", help="measure the console instead; takes four minutes")
    parser.add_argument(
        "--instructions", action="store_true", help="with --console, count instructions in valgrind; five minutes"
    )
    parser.add_argument("--starts", type=int, default=console.STARTS, help="starts of the gateway with --console")
    parser.add_argument(
        "--markdown", action="store_true", help="also print the costs as in docs/reference/performance.md"
    )
    parser.add_argument("--growth", action="store_true", help="also measure memory growth; takes a minute")
    return parser.parse_args()


def _run(bench: Bench, workloads: list[Workload], heavy: list[str], options: argparse.Namespace) -> None:
    if not bench.compiled:
        print("NO C COMPILER: clients and upstream are Python and slower than the measured programs.")
        print("The ratios are not comparable with those of compiled ones, and delays are not measured.\n")
    rounds = options.rounds or (3 if options.quick else 7)
    connections = (SATURATED, 1)
    bench.measure_rounds(workloads, rounds, connections)
    print(f"medians of {rounds} interleaved rounds; {bench.checked} responses checked completely, all by their markers")
    for number in connections:
        report.print_costs(bench, workloads, number)
    if options.markdown:
        report.print_markdown(bench, workloads, SATURATED)
    report.print_saturation(bench, workloads, SATURATED)
    report.print_failures(bench)
    delays.report_memory(bench)
    if options.delays and bench.compiled:
        streams = ["paced"] if options.quick else ["paced", "paced-first"]
        delays.measure_delays(bench, heavy, streams)
    if options.growth and bench.compiled:
        delays.measure_growth(bench)
    if options.journal:
        measure_journal(bench, workloads)


if __name__ == "__main__":
    sys.exit(main())
