"""Cost of stored state: `python -m benchmarks.state` compares SQLite and PostgreSQL with requests that store nothing.

Each gateway is a process in front of a simulated model. Requests are sent one after the other, by turns, so that all
gateways meet the same load of the machine.
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
from typing import Any

import httpx
import psycopg

from tests.support.postgres import run_postgres

_BODY: dict[str, Any] = {"model": "m", "input": "Say heliotrope."}
_CASES: dict[str, dict[str, Any]] = {
    "stateless": {"store": False},
    "stored": {"store": True},
    "continued": {"store": True, "previous_response_id": ...},
}


@contextmanager
def _serve(folder: Path, state: str) -> Iterator[httpx.Client]:
    """Run a gateway with this state section, and yield a client of it."""
    folder.mkdir()
    config = folder / "toolwire.toml"
    config.write_text(f'[server]\nseal_keys = ["a key of the benchmark"]\n[state]\n{state}\n', encoding="utf-8")
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
            yield client
    finally:
        process.terminate()
        process.wait()


def _send(client: httpx.Client, fields: dict[str, Any], previous: str) -> tuple[float, str]:
    """Send one request; return its milliseconds and the id of the response."""
    resolved = {name: previous if value is ... else value for name, value in fields.items()}
    began = time.perf_counter()
    response = client.post("/v1/responses", json=_BODY | resolved)
    milliseconds = 1000 * (time.perf_counter() - began)
    response.raise_for_status()
    return milliseconds, response.json()["id"]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300, help="requests of each kind to each gateway")
    parser.add_argument("--without-fsync", action="store_true", help="do not let PostgreSQL wait for the disk")
    arguments = parser.parse_args()
    count = arguments.requests
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(run_postgres())
        database = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        if arguments.without_fsync:
            database.execute("ALTER SYSTEM SET fsync = off")
            database.execute("SELECT pg_reload_conf()")
        database.execute("CREATE TABLE probe (body text)")
        commits: list[float] = []
        clients = {
            "memory": stack.enter_context(_serve(folder / "memory", 'path = ":memory:"')),
            "sqlite": stack.enter_context(_serve(folder / "sqlite", f'path = "{folder}/state.db"')),
            "postgresql": stack.enter_context(_serve(folder / "postgresql", f'url = "{server.url}"')),
        }
        previous = {name: _send(client, {"store": True}, "")[1] for name, client in clients.items()}
        times: dict[tuple[str, str], list[float]] = {(case, name): [] for case in _CASES for name in clients}
        for number in range(count + 20):
            began = time.perf_counter()
            database.execute("INSERT INTO probe VALUES ('x')")
            commits.append(1000 * (time.perf_counter() - began))
            for case, fields in _CASES.items():
                for name, client in clients.items():
                    milliseconds, _ = _send(client, fields, previous[name])
                    if number >= 20:
                        times[case, name].append(milliseconds)
    sys.stdout.write(f"{'median (90th percentile), ms':30}" + "".join(f"{name:>20}" for name in clients) + "\n")
    sys.stdout.write(f"one INSERT alone takes {statistics.median(commits):.2f} ms on this server\n")
    for case in _CASES:
        cells = [times[case, name] for name in clients]
        texts = [f"{statistics.median(cell):.2f} ({statistics.quantiles(cell, n=10)[8]:.2f})" for cell in cells]
        added = statistics.median(cells[2]) - statistics.median(cells[0])
        sys.stdout.write(f"{case:30}" + "".join(f"{text:>20}" for text in texts) + f"   PostgreSQL adds {added:+.2f}\n")


if __name__ == "__main__":
    main()
