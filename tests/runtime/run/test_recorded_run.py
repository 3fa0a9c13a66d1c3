"""Recorded runs: reading, continuing and replaying them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.support.runtime.run_replay import ALLOW_ALL, replay_differences
from tests.support.runtime.scripted_agent import (
    ScriptedApprover,
    ScriptedModel,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, tool
from toolwire.canonical.content import Text
from toolwire.journal.runs import RunStore
from toolwire.runtime.calls.approval import ApprovalAnswer, AutoApprover
from toolwire.runtime.calls.executor import IN_DOUBT, CallIntent
from toolwire.runtime.function_tool import as_tool
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import NOT_RUN, conversation, read_turns
from toolwire.runtime.tool import Tool

COUNT = {"runs": 0}


@tool
def count(by: int = 1) -> str:
    """Counts."""
    COUNT["runs"] += by
    return f"counted {by}"


def recorded(path: Path, model: ScriptedModel, **more: Any) -> tuple[RunStore, str]:
    runs = RunStore(path / "runs.db")
    run = Agent(model, tools=[count], journal=runs, **({"policy": ALLOW_ALL} | more)).run("go", facts={})
    return runs, run.id


def test_sub_agent_waits_and_resumes_with_its_run(tmp_path: Path) -> None:
    COUNT["runs"] = 0
    runs = RunStore(tmp_path / "runs.db")
    counted = (
        model_turn(model_call("count", {"by": 1})),
        model_turn(model_call("count", {"by": 2}, id="c2")),
        text_turn("counted"),
    )
    helps, asks = (
        ScriptedModel(*counted),
        ScriptedModel(model_turn(model_call("helper", {"task": "count"})), text_turn("Done.")),
    )

    def agent(*answers: ApprovalAnswer) -> Agent:
        helper = Agent(helps, tools=[count], approver=ScriptedApprover(*answers), journal=runs, name="helper")
        return Agent(asks, tools=[helper], policy=ALLOW_ALL, journal=runs)

    run = agent("yes", "later").run("go")
    assert (run.stopped, COUNT["runs"]) == ("waiting", 1)
    assert runs.find(run.id).id == run.id  # the id of the other one begins with it
    stream = agent("yes").resume(run.id)
    assert [type(event) for event in stream][-1] is RunEnded
    assert (stream.run.stopped, COUNT["runs"]) == ("finished", 1 + 2)
    assert result_text(stream.run.messages[-2].parts[0]) == "counted"
    assert len(helps.requests) == 3


def test_recorded_conversation_equals_the_original(tmp_path: Path) -> None:
    model = ScriptedModel(model_turn(Text(text="I count."), model_call("count", {"by": 2})), text_turn("Done."))
    agent = Agent(model, tools=[count], policy=ALLOW_ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    turns = read_turns(RunStore(tmp_path / "runs.db").steps(run.id))
    assert conversation(run.messages[:1], turns) == run.messages
    (recorded_call,) = turns[0].calls.values()
    assert (recorded_call.intent, recorded_call.is_in_doubt, recorded_call.is_waiting) == (
        CallIntent("count", '{"by": 2}'),
        False,
        False,
    )


def test_nested_calls_are_recorded_separately(tmp_path: Path) -> None:
    uses = [{"recipient_name": "functions.count", "parameters": {"by": number}} for number in (1, 2)]
    model = ScriptedModel(model_turn(model_call("multi_tool_use.parallel", {"tool_uses": uses})), text_turn("Done."))
    agent = Agent(model, tools=[count], policy=ALLOW_ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    turns = read_turns(RunStore(tmp_path / "runs.db").steps(run.id))
    assert conversation(run.messages[:1], turns) == run.messages
    assert [id for id, _ in turns[0].proposed_calls] == ["c1", "c1_1"]


def test_unrun_and_in_doubt_calls_get_error_results(tmp_path: Path) -> None:
    runs = RunStore(tmp_path / "runs.db")
    steps = runs.begin("run", b"{}")
    answer = model_turn(model_call("count", id="a"), model_call("count", id="b"), model_call("count", id="c"))
    steps.begin("turn/1", b"")
    steps.finish("turn/1", msgspec.json.encode(answer))
    steps.begin("call/1/b", msgspec.json.encode(["count", "{}"]))
    turns = read_turns(runs.steps("run"))
    *_, last = conversation((), turns)
    assert [result_text(part) for part in last.parts] == [NOT_RUN, IN_DOUBT, NOT_RUN]
    assert [one.is_in_doubt for one in turns[0].calls.values()] == [True]


def test_abandoned_run_is_not_finished(tmp_path: Path) -> None:
    async def work() -> str:
        agent = Agent(ScriptedModel(text_turn("Done.")), journal=tmp_path / "runs.db")
        stream = agent.stream("go")
        async for _ in stream:
            break
        await stream.__aiter__().aclose()  # type: ignore[attr-defined]
        return stream.run.id

    kept = RunStore(tmp_path / "runs.db").find(asyncio.run(work()))
    assert kept.end_event is not None
    assert msgspec.json.decode(kept.end_event, type=RunEnded).stopped == "cancelled"


def test_replay_executes_nothing_and_reports_differences(tmp_path: Path) -> None:
    model = ScriptedModel(
        model_turn(model_call("count", {"by": 2})),
        model_turn(model_call("count", {"by": 3}, id="c2")),
        text_turn("Done."),
    )
    runs, id = recorded(tmp_path, model)
    before = COUNT["runs"]
    assert replay_differences(runs, id, [count]) == []
    denied, gone = (
        replay_differences(runs, id, [count], policy=Policy(deny=["count"])),
        replay_differences(runs, id, []),
    )
    assert [one[0] for one in denied] == [
        'c1 changed /status: "ok" -> "denied"',
        'c2 changed /status: "ok" -> "denied"',
    ]
    assert "unknown tool 'count'" in gone[0][1]
    asked = replay_differences(runs, id, [count], policy=Policy())
    assert asked[0] == [
        'c1 changed /approval: "allow: matches rule \'allow *\'" -> "approved by replay (no approval recorded)"'
    ]
    other = Tool(name="count", run=as_tool(count).run, parameters={"type": "object", "required": ["of"]})
    assert "is a required property (required)" in replay_differences(runs, id, [other])[0][1]
    assert COUNT["runs"] == before


def test_live_replay_runs_tools_and_reports_changed_results(tmp_path: Path) -> None:
    model = ScriptedModel(
        model_turn(model_call("count", {"by": 2}), model_call("count", {"by": 5}, id="c2")), text_turn("Done.")
    )
    runs, id = recorded(tmp_path, model)
    before = COUNT["runs"]
    assert replay_differences(runs, id, [count], live=True) == []
    assert COUNT["runs"] == before + 7

    async def run(arguments: Any, calling: Any) -> str:
        return f"counted {min(arguments['by'], 4)}"

    capped = Tool(name="count", run=run, parameters=as_tool(count).parameters)
    (found,) = replay_differences(runs, id, [capped], live=True)
    assert found == ['c2 changed /content/0/text: "counted 5" -> "counted 4"']


def test_replay_repeats_recorded_decisions(tmp_path: Path) -> None:
    model = ScriptedModel(model_turn(model_call("count")), text_turn("Done."))
    runs, id = recorded(tmp_path, model, policy=Policy(), approver=AutoApprover())
    assert replay_differences(runs, id, [count], policy=Policy()) == []
    nobody, other = recorded(
        tmp_path, ScriptedModel(model_turn(model_call("count")), text_turn("Done.")), policy=Policy()
    )
    assert replay_differences(nobody, other, [count], policy=Policy()) == []
    allowed = replay_differences(nobody, other, [count])
    assert allowed[0][0] == 'c1 changed /status: "denied" -> "error"'
    assert "no result was recorded" in allowed[0][1]


def test_approval_request_suggests_allow_rules() -> None:
    model = ScriptedModel(model_turn(model_call("count", {"by": 2})), text_turn("Done."))
    state = Agent(model, tools=[count]).step("go")
    (ask,) = state.approval_requests
    assert ask.suggested_rules == ("count",)
    by_rule = Agent(ScriptedModel(model_turn(model_call("count"))), tools=[count], policy=Policy(ask=["count"])).step(
        "go"
    )
    assert by_rule.approval_requests[0].suggested_rules == ()


def test_conversation_includes_the_messages_of_toolwire_itself(tmp_path: Path) -> None:
    """Between two answers stands the request to continue or to correct the first one."""
    cut_off = model_turn(Text(text="The answer"), stop="max_tokens")
    runs = RunStore(tmp_path / "runs.db")
    for model, output in (
        (ScriptedModel(cut_off, text_turn(" is 42.")), str),
        (ScriptedModel(text_turn("many"), text_turn('{"result": 42}')), int),
    ):
        run = Agent(model, output=output, journal=runs).run("go")
        assert [message.role for message in run.messages] == ["user", "assistant", "user", "assistant"]
        assert conversation(run.messages[:1], read_turns(runs.steps(run.id))) == run.messages
    runs.close()
