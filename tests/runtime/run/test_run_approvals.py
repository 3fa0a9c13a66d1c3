"""Approvals in a run: before any call of the batch, for one call or for the tool."""

import asyncio

from tests.support.runtime.scripted_agent import (
    ScriptedApprover,
    ScriptedModel,
    add,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, tool
from toolwire.runtime.calls.approval import Approval, ApprovalAnswer, ApprovalRequest, NoApprover


def test_approvals_are_requested_before_any_call_of_the_batch_runs() -> None:
    ran: list[int] = []

    @tool(read_only=True)
    def look(n: int) -> int:
        ran.append(n)
        return n

    class Watching(ScriptedApprover):
        async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
            assert ran == []
            return await super().approve(ask)

    person = Watching("yes", "no")
    calls = [
        model_call("look", {"n": 1}, id="r"),
        model_call("add", {"a": 1, "b": 2}, id="y"),
        model_call("add", {"a": 3, "b": 4}, id="n"),
    ]
    model = ScriptedModel(model_turn(*calls), text_turn("ok"))
    run = Agent(model, tools=[look, add], approver=person).run("go")
    looked, yes, no = last_results(model.requests[1])
    assert (result_text(looked), result_text(yes), no.status) == ("1", "3", "denied")
    assert "denied by person" in result_text(no)
    assert [ask.arguments for ask in person.requests] == ['{"a": 1, "b": 2}', '{"a": 3, "b": 4}']
    assert person.requests[0].reason == "no rule allows it"
    assert {one.call_id: one.approval for one in run.calls}["y"] == "approved by person"


def test_always_answer_covers_the_tool_for_the_run() -> None:
    person = ScriptedApprover("always", "no", "no", "no")
    turns = [model_turn(model_call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(3)]
    agent = Agent(ScriptedModel(*turns, text_turn("ok"), *turns, text_turn("ok")), tools=[add], approver=person)
    assert [one.error for one in agent.run("go").calls] == ["", "", ""]
    assert len(person.requests) == 1
    assert agent.run("again").calls[0].error == "denied"  # another run asks again


def test_always_answer_does_not_override_a_deny_rule() -> None:
    person = ScriptedApprover("always")
    turns = [model_turn(model_call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(2)]
    agent = Agent(
        ScriptedModel(*turns, text_turn("ok")), tools=[add], approver=person, policy=Policy(deny=["add(a=1)"])
    )
    assert [one.error for one in agent.run("go").calls] == ["", "denied"]


def test_later_answer_pauses_the_run() -> None:
    run = Agent(
        ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2}))),
        tools=[add],
        approver=ScriptedApprover("later"),
    ).run("go")
    assert (run.stopped, run.calls) == ("waiting", [])
    assert [ask.call_id for ask in run.state.approval_requests] == ["c1"]


def test_approval_covers_one_call_only() -> None:
    ask = ApprovalRequest(run="r", call_id="c", tool="t", arguments='{"a":1}', reason="")
    approval = Approval(answer="yes", digest=ask.digest, decided_by="person")
    assert approval.covers("r", "c", "t", '{"a":1}')
    for other in [
        ("q", "c", "t", '{"a":1}'),
        ("r", "d", "t", '{"a":1}'),
        ("r", "c", "u", '{"a":1}'),
        ("r", "c", "t", '{"a": 1}'),
    ]:
        assert not approval.covers(*other)
    assert not Approval(answer="no", digest=ask.digest, decided_by="person").covers("r", "c", "t", '{"a":1}')


def test_approval_digests_of_different_calls_differ() -> None:
    from toolwire.runtime.calls.approval import approval_digest

    assert approval_digest("r", "c", 't","x', "y") != approval_digest("r", "c", "t", 'x","y')
    assert approval_digest("r", "cd", "t", "y") != approval_digest("r", "c", "dt", "y")


def test_approval_of_another_call_does_not_run_this_one() -> None:
    agent = Agent(ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("ok")), tools=[add])
    state = agent.step("go")
    (pending,) = state.pending
    state.approve("c1")
    pending.validated_text = '{"a": 666, "b": 2}'  # changed after it was approved
    agent.step(state)
    assert state.messages[-2].parts[0].status == "denied"  # type: ignore[union-attr]


def test_no_approver_denies_and_gives_no_answer() -> None:
    ask = ApprovalRequest(run="r", call_id="c", tool="t", arguments="", reason="")
    assert asyncio.run(NoApprover().approve(ask)) == "no"
    assert asyncio.run(NoApprover().answer("?")) is None
