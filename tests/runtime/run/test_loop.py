"""The agent loop: complete runs, steps, streams and cancellation."""

import asyncio

import pytest

from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedModel,
    add,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, tool
from toolwire.canonical.content import Text
from toolwire.runtime.run.events import CallEnded, CallProposed, CallStarted, RunEnded, TextDelta


def test_complete_run_with_one_tool_call() -> None:
    model = ScriptedModel(
        model_turn(Text(text="Let me add."), model_call("add", {"a": 2, "b": 3})), text_turn("It is 5.")
    )
    run = Agent(model, tools=[add], policy=ALLOW_ALL, instructions="Be brief.").run("2 + 3?")
    assert (run.text, run.stopped, run.turns) == ("It is 5.", "finished", 2)
    first, second = model.requests
    assert first.system is not None
    assert first.system[0].text == "Be brief."
    assert first.tools is not None
    assert [one.name for one in first.tools] == ["add"]
    (result,) = last_results(second)
    assert (result.call_id, result.name, result.status, result_text(result)) == ("c1", "add", "ok", "5")
    assert second.messages[: len(first.messages)] == first.messages
    (record,) = run.calls
    assert (record.tool, record.arguments, record.summary, record.source) == ("add", {"a": 2, "b": 3}, "5", "python")
    assert record.approval == "allow: matches rule 'allow *'"


def test_step_stops_before_execution() -> None:
    ran: list[int] = []

    def touch(n: int) -> str:
        ran.append(n)
        return "touched"

    model = ScriptedModel(
        model_turn(
            model_call("touch", {"n": 1}, id="a"),
            model_call("touch", {"n": 2}, id="b"),
            model_call("touch", {"n": 3}, id="c"),
        ),
        text_turn("done"),
    )
    agent = Agent(model, tools=[touch])
    state = agent.step("go")
    assert ran == []
    assert [(one.id, one.verdict) for one in state.pending] == [("a", "ask"), ("b", "ask"), ("c", "ask")]
    with pytest.raises(Exception, match="awaits approval: approve, deny or answer it"):
        agent.step(state)
    state.approve("a")
    state.deny("b", "not that one")
    state.answer("c", {"by": "hand"})
    agent.step(state)
    assert ran == [1]
    first, second, third = last_results(model.requests[1])
    assert result_text(first) == "touched"
    assert second.status == "denied"
    assert "not that one" in result_text(second)
    assert result_text(third) == '{"by": "hand"}'
    assert (state.stopped, state.text) == ("finished", "done")
    with pytest.raises(Exception, match="the run has already ended"):
        agent.step(state)


def test_run_and_step_work_in_asynchronous_code() -> None:
    async def main() -> None:
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        async with Agent(model, tools=[add], policy=ALLOW_ALL) as agent:
            run = agent.run("go")
            with pytest.raises(Exception, match="await it first"):
                run.text  # noqa: B018
            assert (await run).text == "3"
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        agent = Agent(model, tools=[add], policy=ALLOW_ALL)
        events = [event async for event in agent.stream("go")]
        kinds = [type(event) for event in events]
        assert kinds.index(CallProposed) < kinds.index(CallStarted) < kinds.index(CallEnded) < kinds.index(TextDelta)
        assert isinstance(events[-1], RunEnded)
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        state = await Agent(model, tools=[add], policy=ALLOW_ALL).step("go")
        assert [one.id for one in state.pending] == ["c1"]

    asyncio.run(main())


def test_stream_works_without_an_event_loop() -> None:
    stream = Agent(ScriptedModel(text_turn("hello")), policy=ALLOW_ALL).stream("go")
    assert [event.text for event in stream if isinstance(event, TextDelta)] == ["hello"]
    assert stream.run.stopped == "finished"


def test_cancelling_a_run_cancels_its_tools() -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        seen.append("started")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        agent = Agent(ScriptedModel(model_turn(model_call("slow"))), tools=[slow], policy=ALLOW_ALL)

        async def work() -> None:
            async for _ in agent.stream("go"):
                pass

        task = asyncio.ensure_future(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["started", "cancelled"]


def test_agent_as_a_tool_has_its_own_policy() -> None:
    inner = Agent(
        ScriptedModel(model_turn(model_call("add", {"a": 4, "b": 4})), text_turn("eight")),
        tools=[add],
        policy=ALLOW_ALL,
        name="helper",
        description="Adds.",
    )
    model = ScriptedModel(model_turn(model_call("helper", {"task": "add 4 and 4"})), text_turn("It is eight."))
    run = Agent(model, tools=[inner], policy=Policy(allow=["helper"])).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "eight"
    assert run.calls[0].source == "agent:helper"


def test_duplicate_tool_names_are_refused() -> None:
    with pytest.raises(Exception, match="duplicate tool name 'add'"):
        Agent(tools=[add, add])
