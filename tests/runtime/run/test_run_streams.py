"""The handles of runs and steps: each leads to the run or its failure, and none shows an unfinished state."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from toolwire.testing import ScriptedModel, call, fail


@tw.tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def agent(*turns: Any, **options: Any) -> tw.Agent:
    return tw.Agent(ScriptedModel(*turns), tools=[look], **options)


def test_text_of_a_failed_run_ends_with_its_error() -> None:
    failing = fail("rate_limit", "come back", after="It ra")
    texts: list[str] = []
    with pytest.raises(tw.RunFailed, match="come back") as raised:
        texts.extend(agent(failing).stream("Hi").stream_text())
    assert (texts, raised.value.run.stopped) == (["It ra"], "failed")

    async def read() -> list[str]:
        return [text async for text in agent(failing).stream("Hi").stream_text()]

    with pytest.raises(tw.RunFailed, match="come back"):
        asyncio.run(read())
    stream = agent(failing).stream("Hi")
    assert list(stream.stream_text(check=False)) == ["It ra"]
    assert stream.run.reason == "come back"


def waiting_run(journal: Path) -> tw.Run[str]:
    class Later:
        name = "later"

        async def approve(self, _: tw.ApprovalRequest) -> Any:
            return "later"

        async def answer(self, _: str, __: tuple[str, ...] = ()) -> None:
            return None

    policy = tw.Policy(ask=["look"])
    run = agent(call("look"), journal=journal, policy=policy, approver=Later()).run("Look.")
    assert run.stopped == "waiting"
    return run


def test_resumed_run_is_finished_with_one_call(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    run = agent("Seen.", journal=journal).resume(waiting_run(journal).id).finish()
    assert (run.text, run.ok) == ("Seen.", True)
    failing = agent(fail(message="come back"), journal=journal)
    with pytest.raises(tw.RunFailed, match="come back"):
        failing.resume(waiting_run(journal).id).finish()
    assert failing.resume(waiting_run(journal).id).finish(check=False).stopped == "failed"


def test_stream_can_be_awaited_for_its_run(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    waiting = waiting_run(journal)

    async def resume() -> tw.Run[str]:
        return await agent("Seen.", journal=journal).resume(waiting.id)

    assert asyncio.run(resume()).text == "Seen."

    async def fail_run() -> None:
        await agent(fail(message="come back")).stream("Hi")

    with pytest.raises(tw.RunFailed, match="come back"):
        asyncio.run(fail_run())


def test_attributes_of_a_run_are_explained_at_its_stream() -> None:
    stream: Any = agent("Hello.").stream("Hi")
    with pytest.raises(AttributeError, match=r"no attribute 'text': use `.run.text` once the events are read"):
        stream.text  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'txet'$"):
        stream.txet  # noqa: B018


def test_step_that_is_not_awaited_shows_no_state() -> None:
    async def step() -> None:
        stepping = agent(call("look"), "Seen.")
        state = stepping.step("Look.")
        with pytest.raises(tw.ToolwireError, match="the step has not ended; await it first"):
            state.pending  # noqa: B018
        with pytest.raises(tw.ToolwireError, match="the step has not ended; await it first"):
            stepping.step(state)
        state = await state
        assert [pending.call.name for pending in state.pending] == ["look"]
        state = await stepping.step(state)
        assert state.text == "Seen."

    asyncio.run(step())


def test_agent_in_asynchronous_code_needs_async_with() -> None:
    async def use() -> None:
        with pytest.raises(tw.ToolwireError, match="use `async with`"), agent("Hello."):
            raise AssertionError("the block runs")

    asyncio.run(use())
