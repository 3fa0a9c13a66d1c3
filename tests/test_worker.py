"""Workers: detached runs, leases, deaths, pauses, approvals and cancellation, on both stores."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.postgres import POSTGRES
from tests.support.runtime.worker_program import LEASE_SECONDS, QUEUE, lease_terms, paying_agent
from toolwire import Policy
from toolwire.agent import Agent
from toolwire.journal import listener
from toolwire.journal.runs import RunStore, StoredDecision, TakenRun
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import read_turns
from toolwire.runtime.run.settings import RunMetadata
from toolwire.worker import MAX_ATTEMPTS, Worker


@pytest.fixture(params=["file", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else str(tmp_path / "runs.db")


@pytest.fixture
def store(location: str) -> Iterator[RunStore]:
    store = RunStore(location, lease_terms=lease_terms())
    yield store
    store.close()


def worker_for(store: RunStore, agent: Agent) -> Worker:
    return Worker(store, lambda *_: nullcontext(agent), [QUEUE], log=lambda _: None)


@contextlib.contextmanager
def worker_process(
    location: str, folder: Path, lease_seconds: float = LEASE_SECONDS
) -> Iterator["subprocess.Popen[str]"]:
    program = "tests.support.runtime.worker_program"
    command = [sys.executable, "-m", program, location, str(folder), str(lease_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            yield process
        finally:
            process.kill()


def ended(store: RunStore, run: str) -> RunEnded:
    wait_until(lambda: store.find(run).end_event is not None)
    return msgspec.json.decode(store.find(run).end_event or b"", type=RunEnded)


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().splitlines()


def call_errors(store: RunStore, run: str) -> dict[str, str]:
    turns = read_turns(store.steps(run))
    return {id: call.outcome.record.error for turn in turns for id, call in turn.calls.items() if call.outcome}


def test_worker_executes_detached_runs_of_its_queues(store: RunStore, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    runs = [agent.run_detached("1 2"), agent.run_detached("3")]
    elsewhere = agent.run_detached("4", queue="agent:other")
    assert [store.find(run).end_event for run in runs] == [None, None]
    asyncio.run(worker_for(store, agent).drain())
    assert [ended(store, run).text for run in runs] == ["done", "done"]
    assert sorted(effects(tmp_path)) == ["look", "look", "pay 1", "pay 2", "pay 3"]
    assert store.find(elsewhere).end_event is None


def test_two_workers_share_a_queue_without_repeating_anything(store: RunStore, location: str, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    runs = [agent.run_detached(str(number)) for number in range(12)]
    with contextlib.closing(RunStore(location, lease_terms=lease_terms())) as other:
        workers = [worker_for(store, agent), worker_for(other, paying_agent(other, tmp_path))]

        async def work() -> None:
            await asyncio.gather(*[worker.drain() for worker in workers])

        asyncio.run(work())
    assert {ended(store, run).stopped for run in runs} == {"finished"}
    assert sorted(line for line in effects(tmp_path) if line != "look") == sorted(f"pay {n}" for n in range(12))


def test_killed_worker_leaves_its_call_in_doubt(store: RunStore, location: str, tmp_path: Path) -> None:
    """Another worker continues the run at once, as the process is known to be dead, and does not pay again."""
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5 6")
    (tmp_path / "hold-pay").touch()
    with worker_process(location, tmp_path) as process:
        wait_until((tmp_path / "began-pay").exists)
        process.kill()
        process.wait()
    (tmp_path / "hold-pay").unlink()
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "finished"
    assert effects(tmp_path) == ["look", "pay 5", "pay 6"]
    assert call_errors(store, run) == {"look": "", "pay-1": "in_doubt", "pay-2": ""}


def test_read_only_call_of_a_killed_worker_is_repeated(store: RunStore, location: str, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5")
    (tmp_path / "hold-look").touch()
    with worker_process(location, tmp_path) as process:
        wait_until((tmp_path / "began-look").exists)
        process.kill()
        process.wait()
    (tmp_path / "hold-look").unlink()
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "finished"
    assert effects(tmp_path) == ["look", "look", "pay 5"]
    assert call_errors(store, run) == {"look": "", "pay-1": ""}


def test_paused_worker_loses_its_run_and_cannot_write(store: RunStore, location: str, tmp_path: Path) -> None:
    """The process lives, so that only the end of the lease shows that it does not work."""
    run = paying_agent(store, tmp_path).run_detached("5 6")
    (tmp_path / "hold-pay").touch()
    with worker_process(location, tmp_path, lease_seconds=2) as paused:
        wait_until((tmp_path / "began-pay").exists)
        paused.send_signal(signal.SIGSTOP)
        (tmp_path / "hold-pay").unlink()
        with worker_process(location, tmp_path):
            assert ended(store, run).stopped == "finished"
        steps = store.steps(run)
        paused.send_signal(signal.SIGCONT)
        assert paused.stdout is not None
        for line in paused.stdout:
            if "another process resumed" in line or line.endswith(": stopped\n"):
                break
    assert effects(tmp_path) == ["look", "pay 5", "pay 6"]
    assert call_errors(store, run)["pay-1"] == "in_doubt"
    assert store.steps(run) == steps


def test_stopped_worker_leaves_its_run_after_the_turn(store: RunStore, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5 6")
    (tmp_path / "hold-pay").touch()

    async def work() -> None:
        worker = worker_for(store, agent)
        serving = asyncio.create_task(worker.serve())
        await until((tmp_path / "began-pay").exists)
        worker.stop()
        await asyncio.sleep(0)
        (tmp_path / "hold-pay").unlink()
        await serving

    asyncio.run(work())
    assert store.find(run).end_event is None
    assert not store.is_held(run)
    assert effects(tmp_path) == ["look", "pay 5"]
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "finished"
    assert effects(tmp_path) == ["look", "pay 5", "pay 6"]
    assert call_errors(store, run) == {"look": "", "pay-1": "", "pay-2": ""}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the tool announces itself by a file
        await asyncio.sleep(0.01)


def pending(store: RunStore, run: str) -> list[ApprovalRequest]:
    calls = [call for turn in read_turns(store.steps(run)) for call in turn.calls.values() if call.is_waiting]
    return [call.approval_request for call in calls if call.approval_request is not None]


@pytest.mark.parametrize(("answer", "paid"), [("yes", ["pay 5"]), ("no", [])])
def test_approval_from_anywhere_continues_the_run(
    answer: str, paid: list[str], store: RunStore, location: str, tmp_path: Path
) -> None:
    agent = paying_agent(store, tmp_path, Policy(allow=["look"], ask=["pay"]))
    run = agent.run_detached("5")
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "waiting"
    with contextlib.closing(RunStore(location)) as elsewhere:
        (request,) = pending(elsewhere, run)
        elsewhere.decide(run, "of another call", StoredDecision("yes", "somebody"))
        asyncio.run(worker_for(store, agent).drain())
        assert ended(store, run).stopped == "waiting"
        elsewhere.decide(run, request.digest, StoredDecision(answer, "somebody"))
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "finished"
    assert effects(tmp_path) == ["look", *paid]
    assert f"{'approved' if answer == 'yes' else 'denied'} by somebody" in store.steps(run)[-2].outcome.decode()  # type: ignore[union-attr]


def test_running_run_is_cancelled_from_anywhere(store: RunStore, location: str, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5 6")
    (tmp_path / "hold-pay").touch()

    async def work() -> None:
        worker = worker_for(store, agent)
        serving = asyncio.create_task(worker.serve())
        await until((tmp_path / "began-pay").exists)
        with contextlib.closing(RunStore(location)) as elsewhere:
            elsewhere.cancel(run)
            await until(lambda: elsewhere.find(run).end_event is not None)
        (tmp_path / "hold-pay").unlink()
        worker.stop()
        await serving

    asyncio.run(work())
    assert ended(store, run).stopped == "cancelled"
    assert effects(tmp_path) == ["look", "pay 5"]


def test_queued_run_is_cancelled(store: RunStore, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5")
    store.cancel(run)
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "cancelled"
    assert not (tmp_path / "effects").exists()


def test_run_that_ends_its_workers_is_given_up(store: RunStore, tmp_path: Path) -> None:
    agent = paying_agent(store, tmp_path)
    run = agent.run_detached("5")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        taken = store.take_next([QUEUE])
        assert isinstance(taken, TakenRun)
        assert taken.attempts == attempt
        taken.lease.release()
    asyncio.run(worker_for(store, agent).drain())
    assert ended(store, run).stopped == "failed"
    assert "workers ended during the same step" in ended(store, run).reason


def test_agent_that_cannot_be_opened_fails_its_run(store: RunStore, tmp_path: Path) -> None:
    run = paying_agent(store, tmp_path).run_detached("5")

    def refuse(*_: Any) -> Any:
        raise ValueError("no such workspace")

    log: list[str] = []
    asyncio.run(Worker(store, refuse, [QUEUE], log=log.append).drain())
    assert ended(store, run).reason == "ValueError: no such workspace"
    assert any("no such workspace" in line for line in log)


def test_waiting_worker_is_woken_by_a_new_run(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_WAIT_TIMEOUT", 2 * DEADLINE)  # so that only an announcement can wake it
    agent = paying_agent(store, tmp_path)

    async def work() -> None:
        worker = worker_for(store, agent)
        serving = asyncio.create_task(worker.serve())
        await asyncio.sleep(0.2)
        run = agent.run_detached("5")
        async with asyncio.timeout(DEADLINE):
            with store.watch_run(run) as changed:
                while store.find(run).end_event is None:
                    await changed()
        worker.stop()
        await serving

    asyncio.run(work())


def test_agent_of_an_ended_run_is_closed_in_peace(store: RunStore, tmp_path: Path) -> None:
    """The worker cancelled the task of a run that had released its lease, and the next run found a broken model."""
    agent, interrupted = paying_agent(store, tmp_path), list[str]()

    async def work() -> None:
        later_run_ended = asyncio.Event()

        @contextlib.asynccontextmanager
        async def closing_slowly(metadata: RunMetadata, _: Any) -> AsyncIterator[Agent]:
            yield agent
            if metadata.messages[-1].parts == first_prompt:
                try:
                    await later_run_ended.wait()
                except asyncio.CancelledError:
                    interrupted.append(metadata.agent)

        worker = Worker(store, closing_slowly, [QUEUE], log=lambda _: None)
        first = agent.run_detached("5")
        first_prompt = agent.start("5").messages[-1].parts
        serving = asyncio.create_task(worker.serve())
        await until(lambda: store.find(first).end_event is not None)
        second = agent.run_detached("6")
        await until(lambda: store.find(second).end_event is not None)
        await asyncio.to_thread(store.requeue, "no run")  # the worker looks once more
        third = agent.run_detached("7")
        await until(lambda: store.find(third).end_event is not None)
        later_run_ended.set()
        worker.stop()
        await serving

    asyncio.run(work())
    assert interrupted == []
