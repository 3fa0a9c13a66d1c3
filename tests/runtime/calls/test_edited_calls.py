"""Approval with edited arguments: the approved arguments run, and the model is informed."""

import json
from pathlib import Path

import pytest

from tests.support.runtime.scripted_agent import (
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, ToolwireError
from toolwire.journal.runs import RunStore
from toolwire.runtime.run.recorded_run import read_turns
from toolwire.runtime.run.state import RunState

paid: list[object] = []


def pay(amount: int, to: list[str]) -> str:
    paid.append((amount, tuple(to)))
    return f"paid {amount}"


ASKED = {"amount": 5, "to": ["ada"]}


def proposed(model: ScriptedModel, policy: Policy | None = None) -> tuple[Agent, RunState]:
    paid.clear()
    agent = Agent(model, tools=[pay], policy=policy)
    return agent, agent.step("go")


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("policy", [Policy(), Policy(allow=["pay"])])
def test_mutating_arguments_has_no_effect(before: bool, policy: Policy) -> None:
    """The approval was bound to the model's text, but the mutated arguments ran."""
    model = ScriptedModel(model_turn(model_call("pay", ASKED)), text_turn("ok"))
    agent, state = proposed(model, policy)
    (pending,) = state.pending
    if before:
        pending.arguments["amount"] = 5000
        pending.arguments["to"].append("eve")
    state.approve("c1")
    if not before:
        pending.arguments["amount"] = 5000
        pending.arguments["to"].append("eve")
    assert pending.arguments == ASKED
    agent.step(state)
    assert paid == [(5, ("ada",))]


def test_model_is_informed_of_edited_arguments() -> None:
    model = ScriptedModel(model_turn(model_call("pay", ASKED)), text_turn("ok"))
    agent, state = proposed(model)
    state.approve("c1", arguments={"amount": 3, "to": ["bob"]})
    state = agent.step(state)
    assert paid == [(3, ("bob",))]
    (result,) = last_results(model.requests[1])
    result_message = result_text(result)
    assert result_message.startswith("[The arguments were edited before approval. The tool was called with ")
    assert json.loads(result_message.partition(" called with ")[2].partition("]\n")[0]) == {"amount": 3, "to": ["bob"]}
    assert result_message.endswith("paid 3")


def test_record_has_the_edited_arguments(tmp_path: Path) -> None:
    model = ScriptedModel(model_turn(model_call("pay", ASKED), model_call("pay", ASKED, id="c2")), text_turn("ok"))
    runs = RunStore(tmp_path / "runs.db")
    agent = Agent(model, tools=[pay], journal=runs)
    state = agent.step("go")
    state.approve("c1", arguments={"amount": 3, "to": []})
    state.approve("c2")
    agent.step(state)
    first, *_ = read_turns(runs.steps(state.run))
    outcomes = [one.outcome for one in first.calls.values() if one.outcome is not None]
    recorded_arguments = [(one.record.arguments["amount"], one.record.edited) for one in outcomes]
    assert recorded_arguments == [(3, True), (5, False)]
    runs.close()


def test_edited_arguments_must_be_valid() -> None:
    _, state = proposed(ScriptedModel(model_turn(model_call("pay", ASKED))))
    with pytest.raises(ToolwireError, match="/amount"):
        state.approve("c1", arguments={"amount": "much", "to": []})
    assert state.approval_requests


def test_deny_rule_applies_to_edited_arguments() -> None:
    model = ScriptedModel(model_turn(model_call("pay", ASKED)), text_turn("ok"))
    agent, state = proposed(model, Policy(ask=["pay"], deny=["pay(amount=666)"]))
    state.approve("c1", arguments={"amount": 666, "to": []})
    agent.step(state)
    assert paid == []
    assert last_results(model.requests[1])[0].status == "denied"


def test_approval_does_not_override_a_deny_rule() -> None:
    model = ScriptedModel(model_turn(model_call("pay", ASKED)), text_turn("ok"))
    agent, state = proposed(model, Policy(deny=["pay"]))
    state.approve("c1")
    agent.step(state)
    assert paid == []
