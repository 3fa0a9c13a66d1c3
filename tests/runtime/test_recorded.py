"""Runs as they were recorded: read again, gone on with, and replayed."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.runtime.playing import Played, call, says, turn, words
from tests.runtime.test_loop import Asked
from toolwire import Agent, Policy, tool
from toolwire.canonical.content import Text
from toolwire.journal.runs import Runs
from toolwire.runtime.approval import Answer, Consenting
from toolwire.runtime.events import RunEnded
from toolwire.runtime.execute import IN_DOUBT, Intent
from toolwire.runtime.functions import as_tool
from toolwire.runtime.recorded import NOT_RUN, conversation, turns_of
from toolwire.runtime.replaying import PlayedModel, PlayedPerson, compared, played_tools
from toolwire.runtime.toolset import Tool

ALL = Policy(allow=["*"])
COUNT = {"runs": 0}


@tool
def count(by: int = 1) -> str:
    """Counts."""
    COUNT["runs"] += by
    return f"counted {by}"


def recorded(path: Path, model: Played, **more: Any) -> tuple[Runs, str]:
    runs = Runs(path / "runs.db")
    run = Agent(model, tools=[count], journal=runs, **({"policy": ALL} | more)).run("go", facts={})
    return runs, run.id


def test_an_agent_that_is_a_tool_waits_with_the_run_and_goes_on_with_it(tmp_path: Path) -> None:
    COUNT["runs"] = 0
    runs = Runs(tmp_path / "runs.db")
    counted = turn(call("count", {"by": 1})), turn(call("count", {"by": 2}, id="c2")), says("counted")
    helps, asks = Played(*counted), Played(turn(call("helper", {"task": "count"})), says("Done."))

    def agent(*answers: Answer) -> Agent:
        helper = Agent(helps, tools=[count], person=Asked(*answers), journal=runs, name="helper")
        return Agent(asks, tools=[helper], policy=ALL, journal=runs)

    run = agent("yes", "later").run("go")
    assert (run.stopped, COUNT["runs"]) == ("waiting", 1)
    assert runs.find(run.id).id == run.id  # the id of the other one begins with it
    stream = agent("yes").resume(run.id)
    assert [type(event) for event in stream][-1] is RunEnded
    assert (stream.run.stopped, COUNT["runs"]) == ("finished", 1 + 2)
    assert words(stream.run.messages[-2].parts[0]) == "counted"
    assert len(helps.asked) == 3


def test_what_was_said_is_read_again_as_it_was(tmp_path: Path) -> None:
    model = Played(turn(Text(text="I count."), call("count", {"by": 2})), says("Done."))
    agent = Agent(model, tools=[count], policy=ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    turns = turns_of(Runs(tmp_path / "runs.db").steps(run.id))
    assert conversation(run.messages[:1], turns) == run.messages
    (recorded_call,) = turns[0].calls.values()
    assert (recorded_call.intent, recorded_call.is_in_doubt, recorded_call.is_waiting) == (
        Intent("count", '{"by": 2}'),
        False,
        False,
    )


def test_calls_within_one_call_are_told_apart(tmp_path: Path) -> None:
    uses = [{"recipient_name": "functions.count", "parameters": {"by": number}} for number in (1, 2)]
    model = Played(turn(call("multi_tool_use.parallel", {"tool_uses": uses})), says("Done."))
    agent = Agent(model, tools=[count], policy=ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    turns = turns_of(Runs(tmp_path / "runs.db").steps(run.id))
    assert conversation(run.messages[:1], turns) == run.messages
    assert [id for id, _ in turns[0].proposed] == ["c1", "c1_1"]


def test_what_was_not_run_and_what_is_in_doubt_have_results_of_their_own(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    steps = runs.begin("run", b"{}")
    answer = turn(call("count", id="a"), call("count", id="b"), call("count", id="c"))
    steps.begin("turn/1", b"")
    steps.finish("turn/1", msgspec.json.encode(answer))
    steps.begin("call/1/b", msgspec.json.encode(["count", "{}"]))
    turns = turns_of(runs.steps("run"))
    *_, last = conversation((), turns)
    assert [words(part) for part in last.parts] == [NOT_RUN, IN_DOUBT, NOT_RUN]
    assert [one.is_in_doubt for one in turns[0].calls.values()] == [True]


def test_a_run_that_is_left_is_no_finished_one(tmp_path: Path) -> None:
    async def work() -> str:
        agent = Agent(Played(says("Done.")), journal=tmp_path / "runs.db")
        stream = agent.stream("go")
        async for _ in stream:
            break
        await stream.__aiter__().aclose()  # type: ignore[attr-defined]
        return stream.run.id

    kept = Runs(tmp_path / "runs.db").find(asyncio.run(work()))
    assert kept.ended is not None
    assert msgspec.json.decode(kept.ended, type=RunEnded).stopped == "cancelled"


def replayed(runs: Runs, id: str, tools: list[Any], *, live: bool = False, **more: Any) -> list[list[str]]:
    turns = turns_of(runs.steps(id))
    settings: dict[str, Any] = {"policy": ALL, "person": PlayedPerson(turns), **more}
    agent = Agent(PlayedModel("played", turns), tools=tools if live else played_tools(tools, turns), **settings)
    run = agent.run("go")
    found = compared(turns, run.messages[1:], None if live else run.calls)
    return [[f"{one.id} {difference}" for difference in one.differences] for one in found]


def test_a_replay_executes_nothing_and_tells_what_would_be_otherwise(tmp_path: Path) -> None:
    model = Played(turn(call("count", {"by": 2})), turn(call("count", {"by": 3}, id="c2")), says("Done."))
    runs, id = recorded(tmp_path, model)
    before = COUNT["runs"]
    assert replayed(runs, id, [count]) == []
    denied, gone = replayed(runs, id, [count], policy=Policy(deny=["count"])), replayed(runs, id, [])
    assert [one[0] for one in denied] == [
        'c1 changed /status: "ok" -> "denied"',
        'c2 changed /status: "ok" -> "denied"',
    ]
    assert "there is no tool 'count'" in gone[0][1]
    asked = replayed(runs, id, [count], policy=Policy())
    assert asked[0] == ['c1 changed /approval: "allow: the rule allow *" -> "yes by nobody yet"']
    other = Tool(name="count", run=as_tool(count).run, parameters={"type": "object", "required": ["of"]})
    assert "is a required property (required)" in replayed(runs, id, [other])[0][1]
    assert COUNT["runs"] == before


def test_a_live_replay_runs_the_tools_and_tells_which_result_differs(tmp_path: Path) -> None:
    model = Played(turn(call("count", {"by": 2}), call("count", {"by": 5}, id="c2")), says("Done."))
    runs, id = recorded(tmp_path, model)
    before = COUNT["runs"]
    assert replayed(runs, id, [count], live=True) == []
    assert COUNT["runs"] == before + 7

    async def run(arguments: Any, calling: Any) -> str:
        return f"counted {min(arguments['by'], 4)}"

    capped = Tool(name="count", run=run, parameters=as_tool(count).parameters)
    (found,) = replayed(runs, id, [capped], live=True)
    assert found == ['c2 changed /content/0/text: "counted 5" -> "counted 4"']


def test_what_was_decided_then_is_decided_again(tmp_path: Path) -> None:
    model = Played(turn(call("count")), says("Done."))
    runs, id = recorded(tmp_path, model, policy=Policy(), person=Consenting())
    assert replayed(runs, id, [count], policy=Policy()) == []
    nobody, other = recorded(tmp_path, Played(turn(call("count")), says("Done.")), policy=Policy())
    assert replayed(nobody, other, [count], policy=Policy()) == []
    allowed = replayed(nobody, other, [count])
    assert allowed[0][0] == 'c1 changed /status: "denied" -> "error"'
    assert "no result was recorded" in allowed[0][1]


def test_a_question_says_which_rule_would_have_spared_it() -> None:
    model = Played(turn(call("count", {"by": 2})), says("Done."))
    state = Agent(model, tools=[count]).step("go")
    (ask,) = state.asks
    assert ask.allow == ("count",)
    by_rule = Agent(Played(turn(call("count"))), tools=[count], policy=Policy(ask=["count"])).step("go")
    assert by_rule.asks[0].allow == ()
