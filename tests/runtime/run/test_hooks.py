"""Hooks before and after model requests and tool calls: changes, denials, approvals and resumption."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.protocols import ALL_PROTOCOLS
from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedApprover
from toolwire import Agent, Denied, Hooks, Policy, RunContext, RunFailed, ToolError, ToolwireError, tool
from toolwire.canonical.content import Text
from toolwire.canonical.request import Request
from toolwire.runtime.run.events import CallProposed
from toolwire.runtime.run.hooks import ModelTurn, ProposedCall
from toolwire.runtime.tool import ToolOutput
from toolwire.testing import ScriptedModel, call, fail, respond

PROVIDERS = {protocol: protocol for protocol in ALL_PROTOCOLS} | {"openai-responses": "openai"}


@tool
def pay(amount: int, currency: str = "euro") -> str:
    return f"paid {amount} {currency}"


def capped(_: RunContext[Any], proposed: ProposedCall) -> Any:
    if proposed.arguments["amount"] > 1000:
        raise Denied("more than 1000 is too much")
    return {**proposed.arguments, "amount": min(proposed.arguments["amount"], 100)}


async def upper(_: RunContext[Any], __: ProposedCall, output: ToolOutput) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text.upper()


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_hooks_change_request_call_result_and_response(protocol: str) -> None:
    """On the strict simulators: the model gets the changed request and result, the tool the changed arguments."""
    seen = list[str]()

    def add_marker(context: RunContext[Any], request: Request) -> Request:
        seen.append(f"{context.agent}, turn {context.turn}")
        return replace(request, system=(Text(text="You are careful."),))

    def sign(_: RunContext[Any], turn: ModelTurn) -> str | None:
        return None if turn.calls else f"{turn.text} -- checked"

    hooks = Hooks(before_model=add_marker, after_model=sign, before_tool=capped, after_tool=upper)
    with Agent(f"{PROVIDERS[protocol]}/simulated", tools=[pay], policy=ALLOW_ALL, hooks=[hooks]) as agent:
        run = agent.run('pay {"amount": 500}')
    assert run.text == "pay returned: PAID 100 EURO -- checked"
    assert [(record.arguments, record.hook_changes) for record in run.calls] == [
        ({"amount": 100}, ("arguments", "result"))
    ]
    assert seen == ["agent, turn 1", "agent, turn 2"]


def test_hooks_run_in_order_before_and_in_reverse_order_after() -> None:
    log = list[str]()

    def noting(name: str) -> Hooks:
        return Hooks(
            before_model=lambda _, __: log.append(f"{name} before model"),
            after_model=lambda _, __: log.append(f"{name} after model"),
            before_tool=lambda _, __: log.append(f"{name} before tool"),
            after_tool=lambda _, __, ___: log.append(f"{name} after tool"),
        )

    agent = Agent(
        ScriptedModel(call("pay", amount=5), "done"),
        tools=[pay],
        policy=ALLOW_ALL,
        hooks=[noting("outer"), noting("inner")],
    )
    assert agent.run("Pay.").calls[0].hook_changes == ()
    model = ["outer before model", "inner before model", "inner after model", "outer after model"]
    tools = ["outer before tool", "inner before tool", "inner after tool", "outer after tool"]
    assert log == [*model, *tools, *model]


def test_refused_call_does_not_run_and_the_model_learns_why() -> None:
    model = ScriptedModel(call("pay", amount=5000), "done")
    run = Agent(model, tools=[pay], policy=ALLOW_ALL, hooks=[Hooks(before_tool=capped)]).run("Pay.")
    assert (run.calls[0].error, run.calls[0].summary) == (
        "denied",
        "denied: pay was not run (more than 1000 is too much). Do not try to do the same in another way.",
    )


def test_nobody_is_asked_about_a_call_that_a_hook_refused() -> None:
    approver = ScriptedApprover()
    agent = Agent(
        ScriptedModel(call("pay", amount=5000), "done"),
        tools=[pay],
        approver=approver,
        hooks=[Hooks(before_tool=capped)],
    )
    assert (agent.run("Pay.").calls[0].error, approver.requests) == ("denied", [])


def test_withheld_result_does_not_reach_the_model() -> None:
    def check(_: RunContext[Any], __: ProposedCall, output: ToolOutput) -> None:
        if "paid" in str(output.content):
            raise Denied("it holds payment data")

    model = ScriptedModel(call("pay", amount=5), "done")
    run = Agent(model, tools=[pay], policy=ALLOW_ALL, hooks=[Hooks(after_tool=check)]).run("Pay.")
    assert (run.calls[0].error, run.calls[0].summary) == (
        "withheld",
        "the result of pay was withheld (it holds payment data)",
    )
    assert "paid" not in str(model.requests[1].messages[-1])


def test_denied_request_and_response_stop_the_run() -> None:
    def block_request(_: RunContext[Any], request: Request) -> None:
        if "secret" in str(request.messages):
            raise Denied("the prompt holds a secret")

    def block_response(_: RunContext[Any], turn: ModelTurn) -> None:
        if "secret" in turn.text:
            raise Denied("the answer holds a secret")

    model = ScriptedModel("a secret")
    agent = Agent(model, hooks=[Hooks(before_model=block_request, after_model=block_response)])
    with pytest.raises(RunFailed, match=r"stopped \(denied\): the prompt holds a secret"):
        agent.run("My secret.")
    assert model.requests == []
    run = agent.run("Tell me.", check=False)
    assert (run.stopped, run.reason, run.ok) == ("denied", "the answer holds a secret", False)
    assert run.usage.requests == 1
    state = Agent(ScriptedModel("unused"), hooks=[Hooks(before_model=block_request)]).step("My secret.")
    assert (state.stopped, state.reason) == ("denied", "the prompt holds a secret")


def test_person_approves_exactly_what_runs() -> None:
    approver = ScriptedApprover("yes")
    model = ScriptedModel(call("pay", amount=500), "done")
    agent = Agent(model, tools=[pay], approver=approver, hooks=[Hooks(before_tool=capped)])
    stream = agent.stream("Pay.")
    proposed = [event.arguments for event in stream if isinstance(event, CallProposed)]
    assert [request.arguments for request in approver.requests] == proposed == ['{"amount": 100}']
    assert stream.run.calls[0].summary == "paid 100 euro"


def test_policy_applies_to_changed_arguments() -> None:
    policy = Policy(allow=["pay"], deny=["pay(currency=dollar)"])
    hooks = Hooks(before_tool=lambda _, proposed: {**proposed.arguments, "currency": "dollar"})
    run = Agent(ScriptedModel(call("pay", amount=5), "done"), tools=[pay], policy=policy, hooks=[hooks]).run("Pay.")
    assert (run.calls[0].error, run.calls[0].approval) == ("denied", "deny: matches rule 'deny pay(currency=dollar)'")


def test_hooks_check_arguments_that_a_person_edited() -> None:
    """An approval of edited arguments does not cover what a hook makes of them: the person is asked again."""
    agent = Agent(ScriptedModel(call("pay", amount=5), "done"), tools=[pay], hooks=[Hooks(before_tool=capped)])
    state = agent.step("Pay.")
    state.approve(state.pending[0].id, arguments={"amount": 2000})
    assert "more than 1000 is too much" in str(agent.step(state).messages)

    approver = ScriptedApprover("yes")
    agent = Agent(
        ScriptedModel(call("pay", amount=5), "done"),
        tools=[pay],
        hooks=[Hooks(before_tool=capped)],
        approver=approver,
    )
    state = agent.step("Pay.")
    state.approve(state.pending[0].id, arguments={"amount": 500})
    agent.step(state)
    assert [request.arguments for request in approver.requests] == ['{"amount": 100}']


def test_resumed_run_takes_the_recorded_outcome_of_its_hooks(tmp_path: Path) -> None:
    """The approval is bound to the arguments that the hook chose, so it must not choose others."""
    journal, counts = tmp_path / "runs.db", list[int]()

    def count(_: RunContext[Any], proposed: ProposedCall) -> Any:
        counts.append(1)
        return {**proposed.arguments, "amount": len(counts)}

    hooks = [Hooks(before_tool=count)]
    first = Agent(
        ScriptedModel(call("pay", amount=5)),
        tools=[pay],
        hooks=hooks,
        approver=ScriptedApprover("later"),
        journal=journal,
    )
    run = first.run("Pay.", check=False)
    assert run.stopped == "waiting"
    approver = ScriptedApprover("yes")
    agent = Agent(ScriptedModel("done"), tools=[pay], hooks=hooks, approver=approver, journal=journal)
    stream = agent.resume(run.id)
    assert [*stream]
    assert (stream.run.calls[0].summary, len(counts)) == ("paid 1 euro", 1)
    assert [request.arguments for request in approver.requests] == ['{"amount": 1}']
    again = Agent(ScriptedModel(), tools=[pay], journal=journal).resume(run.id)  # without the hooks
    assert [*again]
    assert again.run.text == "done"


def test_resumed_run_keeps_changed_responses_and_results(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    hooks = Hooks(after_tool=upper, after_model=lambda _, turn: None if turn.calls else f"<{turn.text}>")
    model = ScriptedModel(respond("Paying.", call("pay", amount=5)), fail("server"))
    run = Agent(model, tools=[pay], policy=ALLOW_ALL, hooks=[hooks], journal=journal).run("Pay.", check=False)
    more = ScriptedModel("done")
    stream = Agent(more, tools=[pay], policy=ALLOW_ALL, hooks=[hooks], journal=journal).resume(run.id)
    assert [*stream]
    assert "PAID 5 EURO" in str(more.requests[0].messages)
    assert stream.run.text == "<done>"


def test_calls_made_by_programs_pass_the_hooks() -> None:
    model = ScriptedModel(call("run_code", code="await pay(amount=500)"), "done")
    agent = Agent(model, tools=[pay], policy=ALLOW_ALL, code=True, hooks=[Hooks(before_tool=_only_pay)])
    assert "paid 100 euro" in str(agent.run("Pay.").messages)


def _only_pay(context: RunContext[Any], proposed: ProposedCall) -> Any:
    return capped(context, proposed) if proposed.tool == "pay" else None


def test_invalid_arguments_and_exceptions_of_a_hook_end_the_run() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel(call("pay", amount=5), "done")

    wrong = Hooks(before_tool=lambda _, __: {"amount": "much"})
    with pytest.raises(ToolwireError, match="a hook before pay returned invalid arguments"):
        Agent(script(), tools=[pay], policy=ALLOW_ALL, hooks=[wrong]).run("Pay.")

    def broken(*_: object) -> None:
        raise ToolError("broken")

    with pytest.raises(ToolError, match="broken"):
        Agent(script(), tools=[pay], policy=ALLOW_ALL, hooks=[Hooks(after_tool=broken)]).run("Pay.")
