"""Sub-agents: their usage, limits, events and approvals belong to the run that calls them."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.protocols import ALL_PROTOCOLS
from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedApprover
from toolwire import Agent, RunLimits, tool
from toolwire.canonical.response import Usage
from toolwire.runtime.run.events import CallEnded, CallStarted, RunEnded, RunEvent, SubAgentEvent, TextDelta
from toolwire.testing import ScriptedModel, call, respond

PROVIDERS = {protocol: protocol for protocol in ALL_PROTOCOLS} | {"openai-responses": "openai"}


@tool(read_only=True)
def look(word: str) -> str:
    return f"saw {word}"


def unwrap(events: list[RunEvent]) -> Iterator[tuple[list[str], RunEvent]]:
    """Yield each event without its wrappers, with the names of the agents that it passed through."""
    for event in events:
        names, inner = list[str](), event
        while isinstance(inner, SubAgentEvent):
            names.append(inner.agent)
            inner = inner.inner
        yield names, inner


def test_events_of_sub_agents_are_nested_in_those_of_their_callers() -> None:
    inner = Agent(ScriptedModel(call("look", word="sea"), "inner done"), tools=[look], name="inner")
    outer = Agent(ScriptedModel(call("inner", task="Look."), "outer done"), tools=[inner], policy=ALLOW_ALL, name="b")
    agent = Agent(ScriptedModel(respond(call("b", task="Ask.")), "all done"), tools=[outer], policy=ALLOW_ALL)
    stream = agent.stream("Go.")
    events = list(unwrap([*stream.stream_events()]))
    assert [(names, event.tool) for names, event in events if isinstance(event, CallStarted)] == [
        ([], "b"),
        (["b"], "inner"),
        (["b", "inner"], "look"),
    ]
    assert [(names, event.text) for names, event in events if isinstance(event, TextDelta)] == [
        (["b", "inner"], "inner done"),
        (["b"], "outer done"),
        ([], "all done"),
    ]
    assert [names for names, event in events if isinstance(event, RunEnded)] == [["b", "inner"], ["b"], []]
    assert [record.tool for record in stream.run.calls] == ["b"]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_sub_agents_and_streams_on_every_protocol(protocol: str) -> None:
    model = f"{PROVIDERS[protocol]}/simulated"
    with (
        Agent(model, tools=[look], name="helper") as helper,
        Agent(model, tools=[helper], policy=ALLOW_ALL) as agent,
    ):
        stream = agent.stream('helper {"task": "look {\\"word\\": \\"sea\\"}"}')
        events = list(unwrap([*stream.stream_events()]))
        text = "".join(agent.stream("Hello").stream_text())
    assert [(names, event.record.summary) for names, event in events if isinstance(event, CallEnded)] == [
        (["helper"], "saw sea"),
        ([], "look returned: saw sea"),
    ]
    assert stream.run.text == "helper returned: look returned: saw sea"
    assert stream.run.usage.requests == 4
    assert "Hello" in text


def test_text_of_a_sub_agent_is_not_part_of_the_answer() -> None:
    helper = Agent(ScriptedModel("secret thoughts"), name="helper")
    stream = Agent(ScriptedModel(call("helper", task="Think."), "done"), tools=[helper], policy=ALLOW_ALL).stream("Go.")
    assert "".join(stream.stream_text()) == "done"


def test_parallel_sub_agents_share_the_budget_of_their_caller() -> None:
    """Each of them got all that was left, so that together they could use a multiple of the limit."""

    async def main() -> tuple[str, int, str]:
        both_started = asyncio.Barrier(2)

        @tool(read_only=True)
        async def meet() -> str:
            await both_started.wait()
            return "met"

        def helper(name: str) -> tuple[Agent, ScriptedModel]:
            turn = respond(call("meet"), usage=Usage(input_tokens=60, output_tokens=0))
            model = ScriptedModel(turn, respond("done", usage=Usage(input_tokens=60, output_tokens=0)))
            return Agent(model, tools=[meet], name=name), model

        (first, first_model), (second, second_model) = helper("first"), helper("second")
        both = respond(call("first", task="a"), call("second", task="b"), usage=Usage(input_tokens=10, output_tokens=0))
        agent = Agent(
            ScriptedModel(both), tools=[first, second], policy=ALLOW_ALL, limits=RunLimits(tokens=130), name="caller"
        )
        run = await agent.run("Go.", check=False)
        return run.stopped, len(first_model.requests) + len(second_model.requests), run.reason

    assert asyncio.run(main()) == ("tokens", 2, "130 of 130 tokens were used")


def test_requests_of_sub_agents_count_for_their_caller() -> None:
    helper_model = ScriptedModel(call("look", word="sea"), call("look", word="sky"), "done")
    helper = Agent(helper_model, tools=[look], name="helper")
    agent = Agent(
        ScriptedModel(call("helper", task="Look.")), tools=[helper], policy=ALLOW_ALL, limits=RunLimits(requests=3)
    )
    run = agent.run("Go.", check=False)
    assert (run.stopped, run.reason) == ("requests", "the limit of 3 model requests was reached")
    assert len(helper_model.requests) == 2
    assert run.usage.requests == 3


def test_usage_of_a_sub_agent_that_fails_counts_too() -> None:
    script = ScriptedModel(respond(call("look", word="sea"), usage=Usage(input_tokens=70, output_tokens=0)))
    helper = Agent(script, tools=[look], name="helper")
    run = Agent(ScriptedModel(call("helper", task="Look."), "done"), tools=[helper], policy=ALLOW_ALL).run("Go.")
    assert run.calls[0].error == "tool"
    assert run.usage.requests == 3
    assert (run.usage.input_tokens or 0) >= 70


def test_sub_agent_without_an_approver_uses_that_of_its_caller() -> None:
    @tool
    def pay(amount: int) -> str:
        return f"paid {amount}"

    helper = Agent(ScriptedModel(call("pay", amount=5), "done"), tools=[pay], name="helper")
    approver = ScriptedApprover("yes", "yes")
    agent = Agent(ScriptedModel(call("helper", task="Pay."), "done"), tools=[helper], approver=approver)
    events = list(unwrap([*agent.stream("Go.")]))
    assert [request.tool for request in approver.requests] == ["helper", "pay"]
    assert [event.record.summary for names, event in events if isinstance(event, CallEnded) and names] == ["paid 5"]


def test_cancellation_reaches_the_tools_of_a_sub_agent() -> None:
    async def main() -> list[str]:
        started, log = asyncio.Event(), list[str]()

        @tool(read_only=True)
        async def wait() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                log.append("tool cancelled")
                raise
            return ""

        helper = Agent(ScriptedModel(call("wait")), tools=[wait], name="helper")
        agent = Agent(ScriptedModel(call("helper", task="Wait.")), tools=[helper], policy=ALLOW_ALL)
        running = asyncio.ensure_future(_finish(agent))
        await started.wait()
        running.cancel()
        await asyncio.wait([running])
        return [*log, "run cancelled" if running.cancelled() else "run finished"]

    assert asyncio.run(main()) == ["tool cancelled", "run cancelled"]


async def _finish(agent: Agent) -> None:
    async for _ in agent.stream("Go."):
        pass
