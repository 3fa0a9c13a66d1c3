"""Limits: tokens of sub-agents, estimated usage, repetition, and the deadline of a stream."""

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest

from tests.support.clock import Clock
from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedModel, add, model_call, model_turn, text_turn
from toolwire import Agent, RunLimits
from toolwire.canonical.content import Inline, Media, Text
from toolwire.canonical.response import Response, Usage
from toolwire.runtime.run.limits import RunTimeout, with_deadline


def used(*parts: Text, tokens: int) -> Response:
    return model_turn(*parts, usage=Usage(input_tokens=tokens, output_tokens=0))


def handing_over(count: int) -> list[Response]:
    turns = [
        model_turn(model_call("helper", {"task": f"part {n}"}), usage=Usage(input_tokens=10)) for n in range(count)
    ]
    return [*turns, used(Text(text="done"), tokens=10)]


def test_usage_of_a_sub_agent_counts_for_its_parent() -> None:
    """With a limit of 1,000 tokens a sub-agent used 600,000, and the run reported 60."""
    helper = Agent(ScriptedModel(*[used(Text(text="ok"), tokens=600) for _ in range(9)]), name="helper")
    run = Agent(ScriptedModel(*handing_over(5)), tools=[helper], policy=ALLOW_ALL).run("go")
    assert (run.usage.input_tokens, run.usage.estimated) == (5 * 610 + 10, False)

    helper = Agent(ScriptedModel(*[used(Text(text="ok"), tokens=600) for _ in range(9)]), name="helper")
    run = Agent(ScriptedModel(*handing_over(5)), tools=[helper], policy=ALLOW_ALL, limits=RunLimits(tokens=1000)).run(
        "go", check=False
    )
    assert (run.stopped, run.turns, run.reason) == ("tokens", 2, "1220 of 1000 tokens were used")


def test_sub_agent_stops_at_the_token_limit_of_its_parent() -> None:
    model = ScriptedModel(
        *[model_turn(model_call("add", {"a": n, "b": n}), usage=Usage(input_tokens=400)) for n in range(9)]
    )
    helper = Agent(model, tools=[add], policy=ALLOW_ALL, name="helper", limits=RunLimits(tokens=100_000))
    run = Agent(ScriptedModel(*handing_over(1)), tools=[helper], policy=ALLOW_ALL, limits=RunLimits(tokens=1000)).run(
        "go", check=False
    )
    assert (run.stopped, len(model.requests)) == ("tokens", 3)
    assert "the agent stopped (tokens)" in run.calls[0].summary


def test_sub_agent_called_by_a_program_stops_at_the_limit() -> None:
    helper = Agent(ScriptedModel(*[used(Text(text="ok"), tokens=600) for _ in range(9)]), name="helper")
    code = "await helper(task='a')\nawait helper(task='b')"
    model = ScriptedModel(
        model_turn(model_call("run_code", {"code": code}), usage=Usage(input_tokens=10)), used(tokens=10)
    )
    run = Agent(model, tools=[helper], policy=ALLOW_ALL, code=True).run("go")
    assert run.usage.input_tokens == 1220


def test_resumed_run_counts_sub_agent_usage_once(tmp_path: object) -> None:
    helper = Agent(ScriptedModel(used(Text(text="ok"), tokens=600)), name="helper")
    broken = [handing_over(1)[0], model_turn(stop="error"), used(Text(text="done"), tokens=10)]
    agent = Agent(ScriptedModel(*broken), tools=[helper], policy=ALLOW_ALL, journal=f"{tmp_path}/runs.db")
    stream = agent.resume(agent.run("go", check=False).id)
    assert list(stream)
    assert (stream.run.stopped, stream.run.usage.input_tokens) == ("finished", 620)


def test_usage_is_estimated_if_the_provider_reports_none() -> None:
    """With `tokens=1` the run continued to the turn limit."""
    turns = [model_turn(model_call("add", {"a": n, "b": n})) for n in range(9)]
    run = Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=RunLimits(tokens=1)).run("go", check=False)
    assert (run.stopped, run.turns) == ("tokens", 1)
    assert "tokens were used (estimated)" in run.reason
    assert run.usage.estimated
    known = Agent(ScriptedModel(used(Text(text="ok"), tokens=5))).run("go")
    assert known.usage == Usage(input_tokens=5, output_tokens=0, requests=1)


def test_image_tokens_are_estimated_as_an_image() -> None:
    data = base64.b64encode(bytes(3_000_000)).decode()
    image = Media(kind="image", media_type="image/png", source=Inline(data=data))
    run = Agent(ScriptedModel(text_turn("ok"))).run([Text(text="see"), image])
    assert 1600 < (run.usage.input_tokens or 0) < 2000


def test_equal_calls_in_one_turn_are_no_repetition() -> None:
    """Four equal calls in one turn stopped the run before any ran."""
    batch = model_turn(*[model_call("add", {"a": 1, "b": 1}, id=f"c{n}") for n in range(5)])
    run = Agent(ScriptedModel(batch, batch, batch, text_turn("ok")), tools=[add], policy=ALLOW_ALL).run("go")
    assert (run.text, len(run.calls)) == ("ok", 15)


@pytest.mark.parametrize("length", [2, 3, 8])
def test_cycle_of_turns_is_detected(length: int) -> None:
    """The cycle A, B, A, B continued to the turn limit."""
    cycle = [model_turn(model_call("add", {"a": n, "b": n})) for n in range(length)]
    model = ScriptedModel(*cycle * 9)
    run = Agent(model, tools=[add], policy=ALLOW_ALL, limits=RunLimits(repeats=2, turns=80)).run("go", check=False)
    assert (run.stopped, len(model.requests), len(run.calls)) == ("repeats", 3 * length, 3 * length - 1)
    assert f"repeated a cycle of {length} turns 3 times in a row" in run.reason


def test_different_turns_are_no_cycle() -> None:
    turns = [model_turn(model_call("add", {"a": n % 2, "b": n})) for n in range(20)]
    assert Agent(ScriptedModel(*turns, text_turn("ok")), tools=[add], policy=ALLOW_ALL).run("go").text == "ok"


async def counted(waits: "asyncio.Event | None" = None) -> AsyncIterator[int]:
    """Yield numbers; with an event, wait for it after the first one."""
    number = 0
    while True:
        yield number
        number += 1
        if waits is not None:
            await waits.wait()


@pytest.mark.parametrize("ready", [True, False])
def test_deadline_that_passes_while_an_item_is_handled_ends_the_stream(clock: Clock, *, ready: bool) -> None:
    async def consume() -> None:
        items = with_deadline(60, counted(None if ready else asyncio.Event()))
        assert await anext(items) == 0
        clock.advance(61)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RunTimeout):
            await anext(items)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # there is one

    asyncio.run(consume())


def test_deadline_interrupts_each_task_that_waits_for_an_item(clock: Clock) -> None:
    async def consume() -> None:
        items = with_deadline(60, counted(never := asyncio.Event()))
        assert await anext(items) == 0
        waiting = asyncio.ensure_future(anext(items))
        with pytest.raises(RunTimeout):
            await clock.advance_until_done(waiting)
        assert not never.is_set()

    asyncio.run(consume())


def test_cancelled_wait_for_an_item_stays_cancelled() -> None:
    async def consume() -> None:
        items = with_deadline(60, counted(asyncio.Event()))
        assert await anext(items) == 0
        waiting = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(consume())
