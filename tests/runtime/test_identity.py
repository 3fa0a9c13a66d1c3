"""Which call is which, where ids come twice; and runs that failed, or went in circles, and are taken up again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.playing import Played, call, results, says, turn, words
from tests.runtime.test_loop import ALL, Asked, add
from toolwire import Agent, Calling, Caps, check, tool
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Response
from toolwire.codec.interface import Target
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.approval import Answer, Ask
from toolwire.runtime.recorded import conversation, turns_of
from toolwire.runtime.run import Run


def resumed(agent: Agent, run: Run) -> Run:
    stream = agent.resume(run.id)
    for _ in stream:
        pass
    return stream.run


# ---- ids that are given twice


def test_two_calls_of_a_turn_with_one_id_are_both_run(tmp_path: Path) -> None:
    both = call("add", {"a": 1, "b": 1}, id="x"), call("add", {"a": 2, "b": 2}, id="x")
    model = Played(turn(*both), says("ok"))
    agent = Agent(model, tools=[add], policy=ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    assert [(one.call_id, words(one)) for one in results(model.asked[1])] == [("x", "2"), ("x_1", "4")]
    assert agent._runs is not None
    assert conversation(run.messages[:1], turns_of(agent._runs.steps(run.id))) == run.messages


def test_r_12_calls_with_one_id_go_back_with_ids_of_their_own() -> None:
    """R-12: Anthropic refuses a turn in which two calls have one id."""
    both = call("add", {"a": 1, "b": 1}, id="toolu_1"), call("add", {"a": 2, "b": 2}, id="toolu_1")
    model = Played(turn(*both, call("add", {"a": 3, "b": 3}, id="toolu_1_1")), says("ok"))
    Agent(model, tools=[add], policy=ALL).run("go")
    body = json.loads(PROTOCOLS["anthropic"].encode_request(model.asked[1], Target()).to_bytes())
    *_, said, answered = body["messages"]
    uses = [part["id"] for part in said["content"]]
    assert len(set(uses)) == 3
    assert [part["tool_use_id"] for part in answered["content"]] == uses
    assert [words(result) for result in results(model.asked[1])] == ["2", "4", "6"]
    assert [finding for finding in check(body, "anthropic") if finding.level == "error"] == []


def test_an_id_that_comes_again_in_another_turn_is_another_call(tmp_path: Path) -> None:
    keys: list[str] = []

    @tool
    def note(calling: Calling, n: int) -> int:
        keys.append(calling.key)
        return n

    turns = [turn(call("note", {"n": n}, id="x")) for n in range(3)]
    Agent(Played(*turns, says("ok")), tools=[note], policy=ALL).run("go")
    assert len(set(keys)) == 3

    programs = [turn(call("run_code", {"code": f"await add(a={n}, b={n})"}, id="x")) for n in range(1, 4)]
    model = Played(*programs, says("ok"))
    Agent(model, tools=[add], policy=ALL, code=True, journal=tmp_path / "runs.db").run("go")
    assert [words(results(request)[0]) for request in model.asked[1:]] == ["2", "4", "6"]

    helper = Agent(Played(says("one"), says("two")), name="helper", journal=tmp_path / "runs.db")
    model = Played(*[turn(call("helper", {"task": word}, id="x")) for word in "ab"], says("ok"))
    Agent(model, tools=[helper], policy=ALL).run("go")
    assert [words(results(request)[0]) for request in model.asked[1:]] == ["one", "two"]


# ---- one question after the other


def test_always_is_asked_once_by_calls_that_are_gathered() -> None:
    code = "import asyncio\nawait asyncio.gather(add(a=1, b=1), add(a=2, b=2), add(a=3, b=3))"
    model = Played(turn(call("run_code", {"code": code})), says("ok"))
    Agent(model, tools=[add], person=_Slow("always", "no", "no"), code=True).run("go")
    assert words(results(model.asked[1])[0]) == "[2,4,6]"


class _Slow(Asked):
    """Says yes to the program, and takes a moment for what it calls."""

    async def approve(self, ask: Ask) -> Answer:
        if ask.tool == "run_code":
            return "yes"
        await asyncio.sleep(0.02)
        return await super().approve(ask)


# ---- taken up again

BROKEN = [
    Response(origin="", error=ApiError(kind="server", message="the provider broke off")),
    turn(stop="malformed_call"),
    turn(stop="error"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_an_answer_that_failed_is_asked_for_again(broken: Any, tmp_path: Path) -> None:
    agent = Agent(Played(broken, says("now it works")), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert run.stopped == "failed"
    again = resumed(agent, run)
    assert (again.stopped, again.text) == ("finished", "now it works")


def test_a_run_that_went_in_circles_goes_on_if_somebody_wants_it(tmp_path: Path) -> None:
    turns = [turn(call("add", {"a": 1, "b": 1}, id=f"c{n}")) for n in range(5)]
    model = Played(*turns, says("done"))
    agent = Agent(model, tools=[add], policy=ALL, caps=Caps(repeats=2), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert (run.stopped, len(model.asked), len(run.calls)) == ("repetition", 3, 2)
    again = resumed(agent, run)
    assert (again.stopped, len(model.asked), len(again.calls)) == ("repetition", 4, 1)
