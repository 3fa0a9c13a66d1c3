"""Collects the evidence at the end of a chaos run: reads it from the replicas, the database and the files."""

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import msgspec
from click.testing import CliRunner

from tests.chaos.agent_runs import PlannedRun
from tests.chaos.cluster import Cluster, connect
from tests.chaos.load import Client, Load
from tests.chaos.records import Answer, CallReport, Effect, Evidence, LedgerRow, RunReport, Served
from toolwire.cli import main
from toolwire.journal.runs import RunStore
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import RecordedCall, read_turns

_MAX_CONTINUATIONS = 30
_READERS = 4


async def read_answers(cluster: Cluster, load: Load, evidence: Evidence) -> None:
    """Read each acknowledged response through every replica, and continue some of them through one."""
    stored = [answer for answer in load.answers if answer.is_stored]
    chance = random.Random(f"{load.seed} evidence")
    single = [answer for answer in stored if not answer.conversation]
    continued = chance.sample(single, k=min(_MAX_CONTINUATIONS, len(single)))
    places = asyncio.Semaphore(_READERS)

    async def read(http: httpx.AsyncClient, answer: Answer) -> None:
        async with places:
            headers = {"authorization": f"Bearer {load.secrets[answer.key]}"}
            response = await http.get(f"/v1/responses/{answer.id}", headers=headers)
            evidence.reads += 1
            if response.status_code != 200 or response.json().get("status") != "completed":
                evidence.unread.append(f"{answer.tag} ({answer.kind}) at {http.base_url}: {response.text[:200]}")

    async def continue_from(http: httpx.AsyncClient, answer: Answer) -> None:
        async with places:
            next_answer = await Client(load, http, chance).continue_from(answer)
            evidence.reads += 1
            if next_answer.outcome != "complete":
                evidence.unread.append(f"{answer.tag} can't be continued at {http.base_url}: {next_answer.error}")

    async with AsyncExitStack() as stack:
        opened = [httpx.AsyncClient(base_url=root, timeout=60) for root in cluster.gateway_roots]
        replicas = [await stack.enter_async_context(http) for http in opened]
        await asyncio.gather(
            *[read(http, answer) for answer in stored for http in replicas],
            *[continue_from(chance.choice(replicas), answer) for answer in continued],
        )


def read_files(cluster: Cluster, evidence: Evidence) -> None:
    """Read what providers and tools wrote, and the logs."""
    evidence.served = read_served(cluster.upstream_file)
    evidence.effects = [Effect(*line.split(maxsplit=3)) for line in cluster.effects_file.read_text().splitlines()]
    evidence.logs = cluster.logs()


def read_served(path: Path) -> list[Served]:
    """Return the requests that the providers got, also those that they could not answer to the end."""
    requests: dict[int, dict[str, object]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        requests.setdefault(event["number"], {}).update(event)
    return [
        Served(
            tags=tuple(fields["tags"]),  # type: ignore[arg-type]
            path=str(fields["path"]),
            status=int(fields.get("status", 0)),  # type: ignore[call-overload]
            is_complete=bool(fields.get("complete")),
            text=str(fields.get("text", "")),
            input_tokens=int(fields.get("input", 0)),  # type: ignore[call-overload]
            output_tokens=int(fields.get("output", 0)),  # type: ignore[call-overload]
        )
        for fields in requests.values()
        if "tags" in fields
    ]


def read_runs(store: RunStore, planned: Sequence[PlannedRun]) -> list[RunReport]:
    """Return the reports of all runs."""
    return [_report_run(store, run) for run in planned]


def _report_run(store: RunStore, planned: PlannedRun) -> RunReport:
    """Return the report of a run, as `toolwire runs show` reads it."""
    stored = store.find(planned.run)
    end = None if stored.end_event is None else msgspec.json.decode(stored.end_event, type=RunEnded)
    calls = [call for turn in read_turns(store.steps(planned.run)) for call in turn.calls.values()]
    return RunReport(
        run=planned.run,
        stopped="" if end is None else end.stopped,
        reason="" if end is None else end.reason,
        plan=planned.plan,
        calls=tuple(_report_call(call) for call in calls if call.intent is not None),
    )


def _report_call(call: RecordedCall) -> CallReport:
    assert call.intent is not None
    entry = json.loads(call.intent.arguments)["entry"]
    if call.is_in_doubt:
        error = "in_doubt"
    elif call.outcome is None:
        error = "unfinished"
    else:
        error = call.outcome.record.error or ""
    return CallReport(call.intent.tool, entry, error)


def read_ledger(cluster: Cluster, evidence: Evidence) -> None:
    """Read the usage that was booked, and the reservations without an end."""
    with connect(cluster.database.url) as connection:
        rows = connection.execute(
            "SELECT owner, provider, sum(requests), sum(input_tokens), sum(output_tokens), sum(nanodollars)"
            " FROM toolwire.usage GROUP BY owner, provider"
        ).fetchall()
        evidence.ledger = [LedgerRow(str(row[0]), str(row[1]), *map(_integer, row[2:])) for row in rows]
        reservations = connection.execute("SELECT id, owner, nanodollars FROM toolwire.reservations").fetchall()
        evidence.unsettled = {str(id): (str(owner), _integer(nanodollars)) for id, owner, nanodollars in reservations}
    usage = CliRunner().invoke(main, ["usage", "--config", str(cluster.folder / "gateway.toml"), "--json"])
    printed = json.loads(usage.stdout)
    evidence.listed_unsettled = printed["in_progress"]["requests"] + len(printed["unsettled"])


def _integer(value: object) -> int:
    return int(str(value))
