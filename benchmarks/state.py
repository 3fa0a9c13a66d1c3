"""Cost of stored state: `python -m benchmarks.state` compares SQLite and PostgreSQL with requests that store nothing.

Each gateway is a process in front of a simulated model. Requests are sent one after the other, by turns, so that all
gateways meet the same load of the machine. Then the CPU time of a request is compared between one gateway and two that
share a database.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg

from tests.support.postgres import PostgresServer, run_postgres
from toolwire.gateway.keys.client_key import create_secret, hash_secret

_BODY: dict[str, Any] = {"model": "m", "input": "Say heliotrope."}
_CASES: dict[str, dict[str, Any]] = {
    "stateless": {"store": False},
    "stored": {"store": True},
    "continued": {"store": True, "previous_response_id": ...},
    "limited key": {"store": False},
}
_COMMIT = "one INSERT alone"
_BURST = 25
_SECRET, _LIMITED_SECRET = create_secret(), create_secret()
_CONFIG = f"""
[server]
seal_keys = ["a key of the benchmark"]
[keys.open]
hash = "{hash_secret(_SECRET)}"
[keys.limited]
hash = "{hash_secret(_LIMITED_SECRET)}"
dollars_per_day = 1_000_000
dollars_per_month = 1_000_000
[models."*"]
prices = {{input = 1, output = 1}}
"""


class _Gateway(NamedTuple):
    """A running gateway and a client of it."""

    pid: int
    client: httpx.Client

    def cpu_seconds(self) -> float:
        """Return the CPU time that the gateway has used."""
        return time.clock_gettime(~self.pid << 3 | 2)  # Linux: the CPU clock of another process


@contextmanager
def _serve(folder: Path, state: str) -> Iterator[_Gateway]:
    """Run a gateway with this state section."""
    folder.mkdir()
    config = folder / "toolwire.toml"
    config.write_text(f"{_CONFIG}[state]\n{state}\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, "-c", "from toolwire.cli import main; main()", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"XDG_STATE_HOME": str(folder)},
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the gateway
        with httpx.Client(base_url=found[0], timeout=60) as client:
            yield _Gateway(process.pid, client)
    finally:
        process.terminate()
        process.wait()


def _send(client: httpx.Client, case: str, previous: str) -> tuple[float, str]:
    """Send one request; return its milliseconds and the id of the response."""
    resolved = {name: previous if value is ... else value for name, value in _CASES[case].items()}
    headers = {"authorization": f"Bearer {_LIMITED_SECRET if case == 'limited key' else _SECRET}"}
    began = time.perf_counter()
    response = client.post("/v1/responses", json=_BODY | resolved, headers=headers)
    milliseconds = 1000 * (time.perf_counter() - began)
    response.raise_for_status()
    return milliseconds, response.json()["id"]


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300, help="requests of each kind to each gateway")
    parser.add_argument("--without-fsync", action="store_true", help="do not let PostgreSQL wait for the disk")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(run_postgres())
        database = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        if arguments.without_fsync:
            database.execute("ALTER SYSTEM SET fsync = off")
            database.execute("SELECT pg_reload_conf()")
        database.execute("CREATE TABLE probe (body text)")
        _compare_stores(folder, server.url, database, arguments.requests)
        _compare_replicas(folder, server, arguments.requests)


def _compare_stores(folder: Path, url: str, database: "psycopg.Connection[Any]", count: int) -> None:
    """Print the durations of requests with each store, and that of an INSERT into another table."""
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(_serve(folder / name, state)).client
            for name, state in (
                ("memory", 'path = ":memory:"'),
                ("sqlite", f'path = "{folder}/state.db"'),
                ("postgresql", f'url = "{url}"'),
            )
        }
        previous = {name: _send(client, "stored", "")[1] for name, client in clients.items()}
        times: dict[tuple[str, str], list[float]] = {
            (case, name): [] for case in _CASES for name in (*clients, _COMMIT)
        }
        for number in range(count + 20):
            for case in _CASES:
                for name, client in clients.items():
                    milliseconds, _ = _send(client, case, previous[name])
                    if number >= 20:
                        times[case, name].append(milliseconds)
                began = time.perf_counter()
                database.execute("INSERT INTO probe VALUES ('x')")
                if number >= 20:
                    times[case, _COMMIT].append(1000 * (time.perf_counter() - began))
    columns = [*clients, _COMMIT]
    sys.stdout.write(f"{'median (90th percentile), ms':30}" + "".join(f"{name:>20}" for name in columns) + "\n")
    for case in _CASES:
        cells = [times[case, name] for name in columns]
        texts = [f"{statistics.median(cell):.2f} ({statistics.quantiles(cell, n=10)[8]:.2f})" for cell in cells]
        added = statistics.median(cells[2]) - statistics.median(cells[0])
        sys.stdout.write(f"{case:30}" + "".join(f"{text:>20}" for text in texts) + f"   PostgreSQL adds {added:+.2f}\n")


def _compare_replicas(folder: Path, server: PostgresServer, count: int) -> None:
    """Print the CPU time of requests to one gateway and to two, which share a database.

    Each request continues a conversation, which the other replica continued last. Each gateway gets a burst of requests
    at a time, because a process that serves fewer requests per second needs more CPU time for each.
    """
    with ExitStack() as stack:
        urls = {"alone": server.create_database("alone"), "shared": server.create_database("shared")}
        one, first, second = (
            stack.enter_context(_serve(folder / name, f'url = "{urls[database]}"'))
            for name, database in (("one", "alone"), ("first", "shared"), ("second", "shared"))
        )
        groups = {"one": [one, one], "two": [first, second]}
        conversations = {name: [""] * _BURST for name in groups}
        used: dict[str, list[float]] = {name: [] for name in groups}
        rounds = max(10, 6 * count // _BURST)
        for number in range(-4, rounds):
            for name in ["one", "two"] if number % 2 else ["two", "one"]:
                seconds = 0.0
                for gateway in groups[name]:
                    began = gateway.cpu_seconds()
                    for index, last in enumerate(conversations[name]):
                        case = "continued" if number % 5 and last else "stored"
                        _, conversations[name][index] = _send(gateway.client, case, last)
                    seconds += gateway.cpu_seconds() - began
                if number >= 0:
                    used[name].append(1000 * seconds / (2 * _BURST))
    totals = {name: statistics.mean(times) for name, times in used.items()}
    ratios = [100 * (two / one - 1) for one, two in zip(used["one"], used["two"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    sys.stdout.write(
        f"CPU time of a request that stores its response: {totals['one']:.3f} ms at one gateway, "
        f"{totals['two']:.3f} ms at two ({100 * (totals['two'] / totals['one'] - 1):+.1f} %; "
        f"{rounds} rounds, median {middle:+.1f} %, quartiles {low:+.1f} and {high:+.1f})\n"
    )


if __name__ == "__main__":
    main()
