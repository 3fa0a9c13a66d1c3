"""Programs whose calls are approved later: the run waits and resumes where it stopped."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.support.runtime.scripted_agent import (
    ScriptedApprover,
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, RunLimits, ToolContext, ToolError, tool
from toolwire.canonical.response import Response
from toolwire.journal.runs import RunStore
from toolwire.runtime.run.recorded_run import INTERRUPTED, conversation, read_turns
from toolwire.runtime.run.result import Run
from toolwire.runtime.run.settings import RunMetadata

TWO = "a = await look(n=1)\nb = await pay(n=2)\nc = await look(n=3)\nf'{a} {b} {c}'"
GATHERED = "import asyncio\nawait asyncio.gather(pay(n=1), slowly(n=2), pay(n=3))"


class RecordingAgent:
    """Tools that record their calls, and an agent that stores its runs."""

    def __init__(self, folder: Path, *turns: Response, **more: Any) -> None:
        self.done: list[str] = []
        self.model = ScriptedModel(*turns, text_turn("done"))
        self.runs = RunStore(folder / "runs.db")
        self._more: dict[str, Any] = {
            "policy": Policy(allow=["look", "slowly", "broken", "run_code", "outer"]),
            "code": True,
        } | more

    def agent(self, person: ScriptedApprover) -> Agent:
        @tool(read_only=True)
        def look(n: int) -> int:
            self.done.append(f"look {n}")
            return n

        @tool
        def pay(n: int) -> str:
            self.done.append(f"pay {n}")
            return f"paid {n}"

        @tool
        async def slowly(n: int) -> int:
            self.done.append(f"begin {n}")
            await asyncio.sleep(0.1)
            self.done.append(f"end {n}")
            return n

        @tool
        def broken() -> None:
            raise ToolError("it is broken")

        @tool
        async def outer(calling: ToolContext) -> str:
            assert calling.call is not None
            output = await calling.call("pay", {"n": 7})
            return "".join(part.text for part in output.content)  # type: ignore[union-attr]

        tools: list[Any] = [look, pay, slowly, broken, outer]
        return Agent(self.model, tools=tools, approver=person, journal=self.runs, **self._more)

    def run(self, person: ScriptedApprover) -> Run:
        return self.agent(person).run("go")

    def resume(self, run: Run, person: ScriptedApprover) -> Run:
        stream = self.agent(person).resume(run.id)
        for _ in stream:
            pass
        return stream.run

    def waiting(self, run: Run) -> list[str]:
        calls = [call for turn in read_turns(self.runs.steps(run.id)) for call in turn.calls.values()]
        assert not any(call.is_in_doubt for call in calls)
        return [call.id for call in calls if call.is_waiting]


def test_run_waits_and_resumes_without_repeating_calls(tmp_path: Path) -> None:
    sandbox_tools = RecordingAgent(tmp_path, model_turn(model_call("run_code", {"code": TWO})))
    run = sandbox_tools.run(ScriptedApprover("later"))
    assert (run.stopped, run.reason) == ("waiting", "a call made by run_code is waiting for approval")
    assert (sandbox_tools.done, sandbox_tools.waiting(run), len(sandbox_tools.model.requests)) == (
        ["look 1"],
        ["c1/1"],
        1,
    )
    person = ScriptedApprover("yes")
    resumed = sandbox_tools.resume(run, person)
    assert (resumed.stopped, resumed.text) == ("finished", "done")
    assert sandbox_tools.done == ["look 1", "pay 2", "look 3"]
    assert [(ask.call_id, ask.tool, ask.arguments) for ask in person.requests] == [("c1/1", "pay", '{"n":2}')]
    assert result_text(last_results(sandbox_tools.model.requests[1])[0]) == "1 paid 2 3"
    assert {one.call_id: one.approval for one in resumed.calls}["c1/1"] == "approved by person"


def test_program_waits_twice_and_denial_raises_in_the_code(tmp_path: Path) -> None:
    code = "try:\n    await pay(n=1)\nexcept RuntimeError as error:\n    print(error)\nawait pay(n=2)"
    sandbox_tools = RecordingAgent(tmp_path, model_turn(model_call("run_code", {"code": code})))
    run = sandbox_tools.run(ScriptedApprover("later"))
    again = sandbox_tools.resume(run, ScriptedApprover("later"))
    assert (again.stopped, sandbox_tools.done) == ("waiting", [])
    further = sandbox_tools.resume(run, ScriptedApprover("no", "later"))
    assert (further.stopped, sandbox_tools.done, sandbox_tools.waiting(run)) == ("waiting", [], ["c1/1"])
    assert sandbox_tools.resume(run, ScriptedApprover("yes")).stopped == "finished"
    assert sandbox_tools.done == ["pay 2"]
    assert "denied: pay was not run (denied by person)" in result_text(last_results(sandbox_tools.model.requests[1])[0])


def test_running_calls_finish_before_the_program_waits(tmp_path: Path) -> None:
    batch = model_turn(model_call("run_code", {"code": GATHERED}), model_call("slowly", {"n": 9}, id="c2"))
    sandbox_tools = RecordingAgent(tmp_path, batch)
    run = sandbox_tools.run(ScriptedApprover("later", "yes"))
    assert (run.stopped, sandbox_tools.waiting(run)) == ("waiting", ["c1/0"])
    assert sorted(sandbox_tools.done) == ["begin 2", "begin 9", "end 2", "end 9", "pay 3"]
    assert sandbox_tools.resume(run, ScriptedApprover("yes")).stopped == "finished"
    assert sorted(sandbox_tools.done) == ["begin 2", "begin 9", "end 2", "end 9", "pay 1", "pay 3"]
    first, second = last_results(sandbox_tools.model.requests[1])
    assert (result_text(first), result_text(second)) == ('["paid 1",2,"paid 3"]', "9")


def test_unawaited_calls_finish_before_the_program_waits(tmp_path: Path) -> None:
    code = "try:\n    await asyncio.gather(broken(), slowly(n=1))\nexcept RuntimeError:\n    pass\nawait pay(n=2)"
    sandbox_tools = RecordingAgent(tmp_path, model_turn(model_call("run_code", {"code": f"import asyncio\n{code}"})))
    run = sandbox_tools.run(ScriptedApprover("later"))
    assert (run.stopped, sandbox_tools.done) == ("waiting", ["begin 1", "end 1"])
    assert sandbox_tools.resume(run, ScriptedApprover("yes")).stopped == "finished"
    assert sandbox_tools.done == ["begin 1", "end 1", "pay 2"]


def test_tool_that_is_not_resumable_does_not_wait(tmp_path: Path) -> None:
    sandbox_tools = RecordingAgent(tmp_path, model_turn(model_call("outer")))
    run = sandbox_tools.run(ScriptedApprover("later"))
    assert (run.stopped, sandbox_tools.done) == ("finished", [])
    assert "approval was postponed, and outer can't wait for it" in result_text(
        last_results(sandbox_tools.model.requests[1])[0]
    )


def test_always_still_applies_after_resuming(tmp_path: Path) -> None:
    code = "await pay(n=1)\nawait outer()\nawait slowly(n=2)\nawait pay(n=3)"
    sandbox_tools = RecordingAgent(
        tmp_path, model_turn(model_call("run_code", {"code": code})), model_turn(model_call("pay", {"n": 4}, id="c2"))
    )
    sandbox_tools._more["policy"] = Policy(allow=["look", "run_code", "outer"])
    run = sandbox_tools.run(ScriptedApprover("always", "later"))
    assert (run.stopped, sandbox_tools.done) == ("waiting", ["pay 1", "pay 7"])
    assert sandbox_tools.resume(run, ScriptedApprover("yes")).stopped == "finished"
    assert sandbox_tools.done == ["pay 1", "pay 7", "begin 2", "end 2", "pay 3", "pay 4"]


def test_program_and_its_calls_share_a_slot(tmp_path: Path) -> None:
    sandbox_tools = RecordingAgent(
        tmp_path,
        model_turn(model_call("run_code", {"code": "await look(n=1)"})),
        limits=RunLimits(parallel=1, seconds=120),
    )
    assert sandbox_tools.run(ScriptedApprover()).stopped == "finished"
    assert sandbox_tools.done == ["look 1"]


def test_abandoned_program_is_reported_as_unfinished(tmp_path: Path) -> None:
    sandbox_tools = RecordingAgent(tmp_path, model_turn(model_call("run_code", {"code": TWO})))
    run = sandbox_tools.run(ScriptedApprover("later"))
    asked = msgspec.json.decode(sandbox_tools.runs.find(run.id).metadata, type=RunMetadata).messages
    (result,) = conversation(asked, read_turns(sandbox_tools.runs.steps(run.id)))[-1].parts
    assert result_text(result) == INTERRUPTED
