"""Calls with duplicate ids, and resumption of failed or repetitive runs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedApprover,
    ScriptedModel,
    add,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, RunLimits, ToolContext, check, tool
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Response
from toolwire.codec.interface import Target
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest
from toolwire.runtime.run.recorded_run import conversation, read_turns
from toolwire.runtime.run.result import Run


def resumed(agent: Agent, run: Run) -> Run:
    stream = agent.resume(run.id)
    for _ in stream:
        pass
    return stream.run


# ---- ids that are given twice


def test_two_calls_with_the_same_id_both_run(tmp_path: Path) -> None:
    both = model_call("add", {"a": 1, "b": 1}, id="x"), model_call("add", {"a": 2, "b": 2}, id="x")
    model = ScriptedModel(model_turn(*both), text_turn("ok"))
    agent = Agent(model, tools=[add], policy=ALLOW_ALL, journal=tmp_path / "runs.db")
    run = agent.run("go")
    assert [(one.call_id, result_text(one)) for one in last_results(model.requests[1])] == [("x", "2"), ("x_1", "4")]
    assert agent._runs is not None
    assert conversation(run.messages[:1], read_turns(agent._runs.steps(run.id))) == run.messages


def test_duplicate_call_ids_are_made_unique() -> None:
    """Anthropic rejects a turn in which two calls have the same id."""
    both = model_call("add", {"a": 1, "b": 1}, id="toolu_1"), model_call("add", {"a": 2, "b": 2}, id="toolu_1")
    model = ScriptedModel(model_turn(*both, model_call("add", {"a": 3, "b": 3}, id="toolu_1_1")), text_turn("ok"))
    Agent(model, tools=[add], policy=ALLOW_ALL).run("go")
    body = json.loads(PROTOCOLS["anthropic"].encode_request(model.requests[1], Target()).to_bytes())
    *_, said, answered = body["messages"]
    uses = [part["id"] for part in said["content"]]
    assert len(set(uses)) == 3
    assert [part["tool_use_id"] for part in answered["content"]] == uses
    assert [result_text(result) for result in last_results(model.requests[1])] == ["2", "4", "6"]
    assert [finding for finding in check(body, "anthropic") if finding.level == "error"] == []


def test_same_id_in_another_turn_is_another_call(tmp_path: Path) -> None:
    keys: list[str] = []

    @tool
    def note(calling: ToolContext, n: int) -> int:
        keys.append(calling.idempotency_key)
        return n

    turns = [model_turn(model_call("note", {"n": n}, id="x")) for n in range(3)]
    Agent(ScriptedModel(*turns, text_turn("ok")), tools=[note], policy=ALLOW_ALL).run("go")
    assert len(set(keys)) == 3

    programs = [model_turn(model_call("run_code", {"code": f"await add(a={n}, b={n})"}, id="x")) for n in range(1, 4)]
    model = ScriptedModel(*programs, text_turn("ok"))
    Agent(model, tools=[add], policy=ALLOW_ALL, code=True, journal=tmp_path / "runs.db").run("go")
    assert [result_text(last_results(request)[0]) for request in model.requests[1:]] == ["2", "4", "6"]

    helper = Agent(ScriptedModel(text_turn("one"), text_turn("two")), name="helper", journal=tmp_path / "runs.db")
    model = ScriptedModel(*[model_turn(model_call("helper", {"task": word}, id="x")) for word in "ab"], text_turn("ok"))
    Agent(model, tools=[helper], policy=ALLOW_ALL).run("go")
    assert [result_text(last_results(request)[0]) for request in model.requests[1:]] == ["one", "two"]


# ---- one question after the other


def test_always_answer_covers_concurrent_nested_calls() -> None:
    code = "import asyncio\nawait asyncio.gather(add(a=1, b=1), add(a=2, b=2), add(a=3, b=3))"
    model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("ok"))
    Agent(model, tools=[add], approver=_Slow("always", "no", "no"), code=True).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "[2,4,6]"


class _Slow(ScriptedApprover):
    """Approves the program at once, and its nested calls after a moment."""

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        if ask.tool == "run_code":
            return "yes"
        await asyncio.sleep(0.02)
        return await super().approve(ask)


# ---- taken up again

BROKEN = [
    Response(origin="", error=ApiError(kind="server", message="the provider broke off")),
    model_turn(stop="malformed_call"),
    model_turn(stop="error"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_failed_response_is_requested_again_on_resume(broken: Any, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(broken, text_turn("now it works")), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert run.stopped == "failed"
    again = resumed(agent, run)
    assert (again.stopped, again.text) == ("finished", "now it works")


def test_run_stopped_for_repetition_can_be_resumed(tmp_path: Path) -> None:
    turns = [model_turn(model_call("add", {"a": 1, "b": 1}, id=f"c{n}")) for n in range(5)]
    model = ScriptedModel(*turns, text_turn("done"))
    agent = Agent(model, tools=[add], policy=ALLOW_ALL, limits=RunLimits(repeats=2), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert (run.stopped, len(model.requests), len(run.calls)) == ("repeats", 3, 2)
    again = resumed(agent, run)
    assert (again.stopped, len(model.requests), len(again.calls)) == ("repeats", 4, 1)
