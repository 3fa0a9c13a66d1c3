"""Tables of a run."""

import statistics

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.traffic import Workload

# A program that waits for work more than this is not saturated.
IDLE_LIMIT = 0.15


def print_costs(bench: Bench, workloads: list[Workload], connections: int) -> None:
    """Print CPU microseconds per exchange and their ratios to nginx."""
    others = [peer.name for peer in bench.peers if peer.name not in {"toolwire", "nginx"}]
    many = "s" if connections > 1 else ""
    print(f"\n{connections} connection{many}: CPU µs per exchange")
    print(
        f"{'':14}{'KB':>6}{'nginx':>8}{'toolwire':>10}   x nginx (rounds)            "
        + "".join(f"{name:>16}" for name in others)
    )
    for workload in workloads:
        cells = [f"{workload.name:14}{bench.traffic.sizes[workload.name] / 1000:6.0f}"]
        cells += [f"{_number(bench.median(workload, connections, 'nginx')):>8}"]
        cells += [f"{_number(bench.median(workload, connections, 'toolwire')):>10}"]
        cells += [f"   {_ratio(bench, workload, connections):36}"]
        cells += [f"{_other(bench, workload, connections, name):>16}" for name in others]
        print("".join(cells).rstrip(), flush=True)


def print_markdown(bench: Bench, workloads: list[Workload], saturated: int) -> None:
    """Print the costs as the table of docs/reference/performance.md."""
    print(f"\n| | nginx µs | toolwire µs | x nginx, {saturated} connections | limit | x nginx, 1 connection | limit |")
    print("|---|---|---|---|---|---|---|")
    for workload in workloads:
        figures = [_number(bench.median(workload, saturated, name)) for name in ("nginx", "toolwire")]
        for connections, limit in ((saturated, workload.limit), (1, workload.single_limit)):
            ratios = bench.ratio(workload, connections, "toolwire")
            figures += ["-" if ratios is None else f"{ratios[0]:.1f}", "" if limit is None else f"{limit:g}"]
        print(f"| `{workload.name}` | {' | '.join(figures)} |".replace("|  |", "| |"))


def _number(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.0f}"


def _ratio(bench: Bench, workload: Workload, connections: int) -> str:
    if (ratios := bench.ratio(workload, connections, "toolwire")) is None:
        return ""
    median, least, most = ratios
    text = f"{median:5.1f} ({least:.1f} to {most:.1f})"
    limit = workload.single_limit if connections == 1 else workload.limit
    if limit is None or not bench.compiled:
        return text
    return f"{text} {bench.check_limit(f'{workload.name} x nginx, {connections} connections', median, limit)}"


def _other(bench: Bench, workload: Workload, connections: int, name: str) -> str:
    if (workload.name, name) in bench.failures:
        return "wrong"
    figure, ratio = bench.median(workload, connections, name), bench.ratio(workload, connections, name)
    if figure is None:
        return "-"
    return f"{figure:,.0f}" + ("" if ratio is None else f" ({ratio[0]:.0f})")


def print_saturation(bench: Bench, workloads: list[Workload], connections: int) -> None:
    """Print whether the programs or the load were the bottleneck."""
    print(f"\n{connections} connections: share of the time without work; CPU µs per exchange of client and upstream")
    print(f"{'':14}{'nginx':>8}{'toolwire':>10}{'client + upstream':>20}{'alone':>8}")
    unsaturated = []
    for workload in workloads:
        idle = {name: _idle(bench, workload, connections, name) for name in ("nginx", "toolwire")}
        others = bench.slices[workload.name, connections, "toolwire"]
        alone = bench.measure(bench.upstream, workload, max(8, int(4 * workload.warm_up * bench.scale)), connections)
        assert alone is not None
        cells = [f"{'-' if share is None else f'{share:.0%}'}" for share in idle.values()]
        spent = statistics.median(figure.others for figure in others)
        print(f"{workload.name:14}{cells[0]:>8}{cells[1]:>10}{spent:20,.0f}{alone.others:8,.0f}")
        unsaturated += [f"{workload.name} ({name})" for name, share in idle.items() if (share or 0) > IDLE_LIMIT]
    if unsaturated:
        print(f"not saturated, so they cost more per exchange than under full load: {', '.join(unsaturated)}")


def _idle(bench: Bench, workload: Workload, connections: int, name: str) -> float | None:
    slices = bench.slices.get((workload.name, connections, name))
    return statistics.median(figure.idle for figure in slices) if slices else None


def print_failures(bench: Bench) -> None:
    """Print the first wrong response of each program."""
    printed = set()
    for (workload, name), error in bench.failures.items():
        if name not in printed:
            print(f"\n{name} gave wrong responses, first to {workload}: {error[:300]}")
            printed.add(name)
