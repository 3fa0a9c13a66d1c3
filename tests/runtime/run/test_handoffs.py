"""Hand-offs: the conversation moves to another agent, on every protocol, within limits and across resumption."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.protocols import ALL_PROTOCOLS
from tests.support.runtime.scripted_agent import ALLOW_ALL
from toolwire import Agent, Hooks, Policy, RunLimits, ToolwireError, tool
from toolwire.canonical.response import Usage
from toolwire.runtime.run.events import HandedOff
from toolwire.testing import ScriptedModel, call, fail, respond

PROVIDERS = {protocol: protocol for protocol in ALL_PROTOCOLS} | {"openai-responses": "openai"}
NEXT = dict(zip(ALL_PROTOCOLS, (*ALL_PROTOCOLS[1:], ALL_PROTOCOLS[0]), strict=True))


@tool
def refund(amount: int) -> str:
    return f"refunded {amount}"


@tool(read_only=True)
def look_up(name: str) -> str:
    return f"{name} is a customer"


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_conversation_moves_to_an_agent_on_another_provider(protocol: str) -> None:
    """The strict simulator of the other provider accepts the history, and the new agent has no tools of its own."""
    with (
        Agent(f"{PROVIDERS[NEXT[protocol]]}/simulated", name="billing", instructions="You do billing.") as billing,
        Agent(f"{PROVIDERS[protocol]}/simulated", tools=[look_up], handoffs=[billing], name="triage") as triage,
    ):
        stream = triage.stream("transfer_to_billing {}")
        moved = [event for event in stream if isinstance(event, HandedOff)]
    assert moved == [HandedOff(agent="billing", previous="triage")]
    assert (stream.run.stopped, stream.run.agent, stream.run.reason) == ("finished", "billing", "")
    assert stream.run.text == "transfer_to_billing returned: The conversation continues with billing."
    assert stream.run.usage.requests == 2


def test_agent_that_takes_over_has_its_own_instructions_tools_policy_and_hooks() -> None:
    seen = list[str]()
    billing_model = ScriptedModel(call("refund", amount=5), "Refunded.")
    billing = Agent(
        billing_model,
        name="billing",
        description="Handles refunds.",
        instructions="You do billing.",
        tools=[refund],
        policy=ALLOW_ALL,
        hooks=[Hooks(before_tool=lambda _, proposed: seen.append(proposed.tool))],
    )
    model = ScriptedModel(respond(call("look_up", name="Ada"), call("transfer_to_billing")))
    triage = Agent(model, tools=[look_up], handoffs=[billing], name="triage", instructions="You sort.")
    run = triage.run("I am Ada. I want my money back.")
    assert (run.text, run.agent, seen) == ("Refunded.", "billing", ["refund"])
    assert {record.tool: record.error for record in run.calls} == {
        "look_up": "",
        "transfer_to_billing": "",
        "refund": "",
    }
    (declared,) = [one for one in model.requests[0].tools or () if getattr(one, "name", "") != "look_up"]
    assert "Handles refunds." in str(declared)
    first = billing_model.requests[0]
    assert "You do billing." in str(first.system)
    assert "Ada is a customer" in str(first.messages)


def test_agents_may_hand_off_to_each_other_within_the_limit() -> None:
    triage_model = ScriptedModel(*[call("transfer_to_billing")] * 2, "I answer myself.")
    billing_model = ScriptedModel(*[call("transfer_to_triage")] * 2)
    billing = Agent(billing_model, name="billing")
    triage = Agent(triage_model, name="triage", handoffs=[billing], limits=RunLimits(handoffs=2))
    billing.handoffs.append(triage)
    run = triage.run("Hello")
    assert (run.text, run.agent) == ("I answer myself.", "triage")
    assert [record.error for record in run.calls] == ["", "", "denied"]
    assert run.calls[2].summary == "denied: the limit of 2 hand-offs was reached. Answer the user yourself."


def test_limits_of_the_first_agent_hold_for_the_run() -> None:
    billing = Agent(ScriptedModel("unused"), name="billing", limits=RunLimits(tokens=10_000))
    turn = respond(call("transfer_to_billing"), usage=Usage(input_tokens=60, output_tokens=0))
    triage = Agent(ScriptedModel(turn), name="triage", handoffs=[billing], limits=RunLimits(tokens=50))
    run = triage.run("Hello", check=False)
    assert (run.stopped, run.reason, run.agent) == ("tokens", "60 of 50 tokens were used", "billing")
    patient = Agent(ScriptedModel("Here I am."), name="billing", limits=RunLimits(turns=1))
    assert Agent(ScriptedModel(call("transfer_to_billing")), name="triage", handoffs=[patient]).run("Hello").turns == 2


def test_conversation_moves_to_the_first_of_two_agents_only() -> None:
    first, second = Agent(ScriptedModel("I am first."), name="first"), Agent(ScriptedModel("unused"), name="second")
    both = respond(call("transfer_to_first"), call("transfer_to_second"))
    run = Agent(ScriptedModel(both), name="triage", handoffs=[first, second]).run("Hello")
    assert (run.text, [record.error for record in run.calls]) == ("I am first.", ["", "denied"])


def test_policy_and_hooks_may_refuse_a_hand_off() -> None:
    billing = Agent(ScriptedModel("unused"), name="billing")

    def script() -> ScriptedModel:
        return ScriptedModel(call("transfer_to_billing"), "I stay.")

    denied = Agent(script(), name="a", handoffs=[billing], policy=Policy(deny=["transfer_to_billing"])).run("Hello")
    assert (denied.text, denied.agent, denied.calls[0].error) == ("I stay.", "a", "denied")
    state = Agent(script(), name="a", handoffs=[billing], policy=Policy(ask=["*"])).step("Hello")
    assert [request.tool for request in state.approval_requests] == ["transfer_to_billing"]


def test_resumed_run_continues_with_the_agent_that_took_over(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"

    def team(*turns: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(*turns)
        billing = Agent(model, name="billing", tools=[refund], policy=ALLOW_ALL)
        return Agent(
            ScriptedModel(call("transfer_to_billing")), name="triage", handoffs=[billing], journal=journal
        ), model

    triage, _ = team(call("refund", amount=5), fail("server"))
    run = triage.run("Refund 5.", check=False)
    assert run.stopped == "failed"
    triage, model = team("Done.")
    stream = triage.resume(run.id)
    moved = [event.agent for event in stream if isinstance(event, HandedOff)]
    assert (moved, stream.run.text, stream.run.agent) == (["billing"], "Done.", "billing")
    assert "refunded 5" in str(model.requests[0].messages)


def test_steps_and_sessions_stay_with_the_agent_that_took_over(tmp_path: Path) -> None:
    billing_model = ScriptedModel("One.", "Two.", "Three.")
    billing = Agent(billing_model, name="billing")
    triage = Agent(
        ScriptedModel(call("transfer_to_billing"), call("transfer_to_billing")),
        name="triage",
        handoffs=[billing],
        journal=tmp_path / "runs.db",
    )
    state = triage.step("Hello")
    state = triage.step(state)
    assert (state.text, state.agent) == ("One.", "billing")
    session = triage.session("ada")
    assert session.run("Hello").text == "Two."
    run = session.run("Hello again")
    assert (run.text, run.agent, run.turns) == ("Three.", "billing", 1)


def test_agents_of_a_team_need_different_names() -> None:
    with pytest.raises(ToolwireError, match=r"two agents of a team have the name 'agent': pass Agent\(name=...\)"):
        Agent(ScriptedModel("unused"), handoffs=[Agent(ScriptedModel("unused"))]).run("Hello")

    @tool(name="transfer_to_billing")
    def own() -> str:
        return ""

    billing = Agent(ScriptedModel("unused"), name="billing")
    with pytest.raises(ToolwireError, match="can't have the name 'transfer_to_billing'"):
        Agent(ScriptedModel("unused"), tools=[own], handoffs=[billing]).run("Hello")


def test_every_agent_of_a_team_needs_a_price_under_a_limit_on_money() -> None:
    with (
        Agent("ollama/simulated", name="billing") as billing,
        pytest.raises(ToolwireError, match="the price of ollama/simulated is unknown"),
    ):
        Agent(ScriptedModel("unused"), name="triage", handoffs=[billing], limits=RunLimits(cost=1)).run("Hello")
