"""The chaos run: `make test-chaos`, with `ARGUMENTS='--seed N --seconds S'`.

A seeded monkey kills, pauses and cuts the programs of a cluster under load. The rules of `judge.py` are applied at the
end. The exit code is 1 if one is violated.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.chaos.adoption import AdoptionWatch
from tests.chaos.agent_runs import AgentRuns
from tests.chaos.cluster import Cluster, run_cluster
from tests.chaos.evidence import read_answers, read_files, read_ledger, read_runs
from tests.chaos.faults import FAULTS
from tests.chaos.judge import ADOPTION_SECONDS, Verdict, judge
from tests.chaos.load import Load
from tests.chaos.monkey import Monkey, wake_all
from tests.chaos.records import Evidence
from tests.support.postgres import find_programs
from tests.support.servers.nginx import find_nginx
from toolwire.journal.runs import RunStore

_DRAIN_SECONDS = ADOPTION_SECONDS + 60
_MAX_SHOWN = 8


def main() -> int:
    """Run, and print the verdict."""
    parser = argparse.ArgumentParser(prog="make test-chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats the same actions")
    parser.add_argument("--seconds", type=float, default=90.0, help="time in which the monkey acts (default: 90)")
    parser.add_argument("--fault", choices=sorted(FAULTS), default="", help="breaks toolwire, to see that it is found")
    parser.add_argument("--folder", type=Path, help="a new folder where logs and evidence stay")
    arguments = parser.parse_args()
    nginx = find_nginx()
    if nginx is None or find_programs() is None:
        _print("needs nginx and the programs of PostgreSQL (apt-get install nginx postgresql)")
        return 2
    _print(
        f"seed {arguments.seed}, {arguments.seconds:g} seconds" + f", fault {arguments.fault}" * bool(arguments.fault)
    )
    with tempfile.TemporaryDirectory(prefix="toolwire-chaos-", ignore_cleanup_errors=True) as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=arguments.folder is None)
        with run_cluster(folder, nginx, arguments.fault) as cluster:
            try:
                evidence, actions = asyncio.run(_unleash(cluster, arguments.seed, arguments.seconds))
            finally:
                wake_all(cluster)
        (folder / "evidence.json").write_bytes(msgspec.json.encode(evidence))
    _print(f"{len(actions)} actions")
    return _report(judge(evidence))


async def _unleash(cluster: Cluster, seed: int, seconds: float) -> tuple[Evidence, Sequence[str]]:
    """Let clients, agents and the monkey loose; return the evidence and the actions."""
    began = time.monotonic()

    def log(text: str) -> None:
        _print(f"{time.monotonic() - began:6.1f} s  {text}")

    adoptions = AdoptionWatch(cluster.database.url, cluster.workers)
    monkey = Monkey(cluster, seed, adoptions, log)
    store = RunStore(cluster.database.url)
    load, runs = Load(cluster.root, cluster.secrets, seed), AgentRuns(store, seed)
    clients = asyncio.gather(load.run(), runs.run(load.stopping))
    try:
        await asyncio.to_thread(monkey.run, seconds)
        load.stopping.set()
        await clients
        log(f"{len(load.answers)} requests and {len(runs.planned)} runs; waiting for what is under way")
        await runs.wait_until_ended(_DRAIN_SECONDS)
        log("reading what was acknowledged, through each replica")
        await asyncio.to_thread(cluster.wait_until_ready)
        evidence = Evidence(answers=load.answers, backgrounds=load.backgrounds, kills=monkey.kills)
        await read_answers(cluster, load, evidence)
        evidence.adoptions = adoptions.close()
        evidence.runs = await asyncio.to_thread(read_runs, store, runs.planned)
    finally:
        load.stopping.set()
        store.close()
    evidence.exits = [node.name for node in (*cluster.gateways, *cluster.workers) if node.has_exited]
    stops = [threading.Thread(target=node.stop) for node in (*cluster.gateways, *cluster.workers)]
    for thread in stops:
        thread.start()
    for thread in stops:
        await asyncio.to_thread(thread.join)
    read_ledger(cluster, evidence)
    read_files(cluster, evidence)
    return evidence, monkey.actions


def _report(verdicts: Sequence[Verdict]) -> int:
    """Print the verdict of each rule; return the exit code."""
    for verdict in verdicts:
        _print(f"{'kept    ' if verdict.is_kept else 'VIOLATED'}  {verdict.rule}: {verdict.figures}")
        for violation in verdict.violations[:_MAX_SHOWN]:
            _print(f"            {violation}")
        if len(verdict.violations) > _MAX_SHOWN:
            _print(f"            and {len(verdict.violations) - _MAX_SHOWN} more")
    broken = sum(not verdict.is_kept for verdict in verdicts)
    _print("all rules are kept" if not broken else f"{broken} rules are violated")
    return 1 if broken else 0


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
