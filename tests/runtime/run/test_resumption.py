"""Resumed runs: one holder at a time, changed tools and damaged journals."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.runtime.scripted_agent import (
    ScriptedApprover,
    ScriptedModel,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, tool
from toolwire.journal.leases import LeaseTerms
from toolwire.journal.runs import LeaseLost, RunInUse, RunStore
from toolwire.journal.store import JournalError
from toolwire.runtime.calls.executor import CallIntent
from toolwire.runtime.function_tool import as_tool
from toolwire.runtime.run.events import RunEnded, RunWarning
from toolwire.runtime.run.recorded_run import read_turns
from toolwire.runtime.tool import Annotations, Tool

ALL, ASK = Policy(allow=["*"]), Policy(ask=["*"])
PATIENCE = 60


def waiting(path: Path, *tools: Any) -> str:
    """A run whose first call waits for approval."""
    model = ScriptedModel(model_turn(model_call("pay", {"amount": 5})), text_turn("ok"))
    agent = Agent(
        model, tools=tools or [pay_into([])], policy=ASK, approver=ScriptedApprover("later"), journal=path / "runs.db"
    )
    run = agent.run("pay 5")
    assert run.stopped == "waiting"
    return run.id


def pay_into(done: list[int], during: Any = None) -> Any:
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        done.append(amount)
        if during is not None:
            during()
        return "paid"

    return pay


def resuming(path: Path, tools: list[Any], *more: Any) -> Agent:
    model = ScriptedModel(text_turn("this one is in the journal"), *(more or (text_turn("ok"),)))
    model.requests.append(None)  # type: ignore[arg-type]
    return Agent(model, tools=tools, policy=ASK, approver=ScriptedApprover("yes"), journal=path / "runs.db")


def test_only_one_of_two_threads_resumes_a_run(tmp_path: Path) -> None:
    """Of two concurrent approvals in one service, one resumes the run, and the payment happens once."""
    run, done, refused = waiting(tmp_path), list[int](), list[str]()
    under_way, go = threading.Event(), threading.Event()

    def during() -> None:
        under_way.set()
        assert go.wait(PATIENCE)

    agent = resuming(tmp_path, [pay_into(done, during)])
    first = threading.Thread(target=lambda: [*agent.resume(run)])
    first.start()
    assert under_way.wait(PATIENCE)

    def again() -> None:
        for one in (agent, resuming(tmp_path, [pay_into(done)])):
            try:
                for _ in one.resume(run):
                    pass
            except RunInUse as error:
                refused.append(str(error))

    second = threading.Thread(target=again)
    second.start()
    second.join(PATIENCE)
    go.set()
    first.join(PATIENCE)
    assert (done, len(refused)) == ([5], 2)
    assert "is still running" in refused[0]
    assert msgspec.json.decode(RunStore(tmp_path / "runs.db").find(run).end_event or b"{}")["stopped"] == "finished"


def test_only_one_of_two_tasks_resumes_a_run(tmp_path: Path) -> None:
    """The same holds within one event loop."""
    run, done = waiting(tmp_path), list[int]()

    async def work() -> tuple[Any, ...]:
        other_refused = asyncio.Event()

        @tool
        async def pay(amount: int) -> str:
            """Pays."""
            done.append(amount)
            await asyncio.wait_for(other_refused.wait(), PATIENCE)
            return "paid"

        async def resume() -> str | None:
            stream = resuming(tmp_path, [pay]).resume(run)
            try:
                async for _ in stream:
                    pass
            except RunInUse:
                other_refused.set()
                raise
            return stream.run.stopped

        return await asyncio.gather(resume(), resume(), return_exceptions=True)

    came = asyncio.run(work())
    assert done == [5]
    assert sorted(type(one).__name__ for one in came) == ["RunInUse", "str"]


def test_process_that_lost_its_lease_stops_before_the_next_effect(tmp_path: Path) -> None:
    """A process suspended for longer than its lease has lost its run."""
    done: list[int] = []
    later = LeaseTerms(clock=lambda: time.time() + 1000)
    stolen: list[Any] = []

    def steal() -> None:
        if not stolen:
            other = RunStore(tmp_path / "runs.db", lease_terms=later)
            stolen.append(other.resume(other.latest(1)[0].id))

    model = ScriptedModel(
        model_turn(model_call("pay", {"amount": 1})),
        model_turn(model_call("pay", {"amount": 2}, id="c2")),
        text_turn("ok"),
    )
    agent = Agent(model, tools=[pay_into(done, steal)], policy=ALL, journal=tmp_path / "runs.db")
    with pytest.raises(LeaseLost, match="it continues there and stops here"):
        agent.run("pay")
    assert done == [1]
    runs = RunStore(tmp_path / "runs.db", lease_terms=later)
    (kept,) = runs.latest()
    assert (kept.end_event, runs.is_held(kept.id)) == (None, True)
    assert [step.name for step in runs.steps(kept.id) if step.outcome is None] == ["tools", "call/1/c1"]


def test_each_step_of_a_run_takes_and_releases_the_lease(tmp_path: Path) -> None:
    runs = RunStore(tmp_path / "runs.db")
    model = ScriptedModel(model_turn(model_call("pay", {"amount": 1})), text_turn("ok"))
    done: list[int] = []
    agent = Agent(model, tools=[pay_into(done)], policy=ALL, journal=runs)
    state = agent.step("pay")
    assert not runs.is_held(state.run)
    state = agent.step(state)
    assert (state.stopped, done) == ("finished", [1])


# ---- tools that changed


def test_resume_warns_about_changed_tools(tmp_path: Path) -> None:
    """Recorded calls stay as they are, and the user is warned about changed tools."""

    @tool
    def look(place: str) -> str:
        """Looks."""
        return place

    @tool
    def pay(amount: int, currency: str = "EUR") -> str:
        """Pays."""
        return f"paid in {currency}"

    run = waiting(tmp_path, pay_into([]), look)
    agent = resuming(tmp_path, [pay])
    warnings = [event.text for event in agent.resume(run) if isinstance(event, RunWarning)]
    assert warnings == [
        "tool pay has changed since this run began: new calls use its current definition",
        "tool look is no longer available: calls of it will fail",
    ]


def test_resume_does_not_warn_about_unchanged_tools(tmp_path: Path) -> None:
    run = waiting(tmp_path)
    assert [event for event in resuming(tmp_path, [pay_into([])]).resume(run) if isinstance(event, RunWarning)] == []


# ---- calls that were interrupted


@pytest.mark.parametrize(
    ("annotations", "again"),
    [(Annotations(read_only=True), True), (Annotations(idempotent=True), True), (Annotations(), False)],
    ids=["read only", "idempotent", "neither"],
)
def test_interrupted_repeatable_call_runs_again(annotations: Annotations, again: bool, tmp_path: Path) -> None:
    """Only calls that may not be repeated are in doubt; the others are also retried within a process."""
    done: list[int] = []
    pay = msgspec.structs.replace(as_tool(pay_into(done)), annotations=annotations)
    run = waiting(tmp_path, pay)
    runs = RunStore(tmp_path / "runs.db")
    steps = runs.resume(run)
    steps.begin("call/1/c1", msgspec.json.encode(CallIntent("pay", '{"amount": 5}', again)))
    steps.release()  # as if its process had died
    (recorded,) = read_turns(runs.steps(run))
    assert recorded.calls["c1"].is_in_doubt is not again
    stream = resuming(tmp_path, [pay]).resume(run)
    assert isinstance([*stream][-1], RunEnded)
    assert done == ([5] if again else [])
    assert result_text(stream.run.messages[-2].parts[0]).startswith("paid" if again else "in doubt:")


@pytest.mark.parametrize("annotations", [Annotations(read_only=True), Annotations(idempotent=True), Annotations()])
def test_intent_records_whether_a_call_is_repeatable(annotations: Annotations, tmp_path: Path) -> None:
    pay: Tool = msgspec.structs.replace(as_tool(pay_into([])), annotations=annotations)
    model = ScriptedModel(model_turn(model_call("pay", {"amount": 5})), text_turn("ok"))
    run = Agent(model, tools=[pay], policy=ALL, journal=tmp_path / "runs.db").run("pay")
    (recorded, _) = read_turns(RunStore(tmp_path / "runs.db").steps(run.id))
    intent = recorded.calls["c1"].intent
    assert intent is not None
    assert intent.resumable is (annotations != Annotations())


# ---- a damaged journal


@pytest.mark.parametrize("step", ["turn/1", "approval/1/c1", "call/1/c1", "tools"])
def test_error_names_the_damaged_step(step: str, tmp_path: Path) -> None:
    """No msgspec traceback reaches the user."""
    run = waiting(tmp_path)
    runs = RunStore(tmp_path / "runs.db")
    steps = runs.resume(run)
    steps.begin(step, b'{"cut')
    steps.finish(step, b'{"cut')
    steps.release()
    with pytest.raises(JournalError, match=f"the journal is damaged: step {step}"):
        for _ in resuming(tmp_path, [pay_into([])]).resume(run):
            pass
    if step != "tools":
        with pytest.raises(JournalError, match=f"the journal is damaged: step {step}"):
            read_turns(runs.steps(run))
