"""Several calls of one turn: parallel, in order, and one by one for a common resource."""

import asyncio
from pathlib import Path
from typing import Any

from tests.support.deadlines import run_event_loop as turn_loop
from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, RunLimits, ToolContext, tool
from toolwire.runtime.run.result import Run
from toolwire.runtime.tool import Tool, ToolOutput
from toolwire.runtime.tools import built_in_tools


def test_independent_calls_run_in_parallel_with_results_in_order() -> None:
    running, most = 0, 0
    full = asyncio.Event()

    @tool
    async def wait(last: bool) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        if not last:
            await turn_loop()  # so the last is done first
        running -= 1

    calls = [model_call("wait", {"last": n == 2}, id=f"c{n}") for n in range(5)]
    model = ScriptedModel(model_turn(*calls), text_turn("ok"))
    Agent(model, tools=[wait], policy=ALLOW_ALL, limits=RunLimits(parallel=3)).run("go")
    assert most == 3
    assert [one.call_id for one in last_results(model.requests[1])] == [f"c{n}" for n in range(5)]


def test_parallel_calls_can_be_disabled() -> None:
    running, most = 0, 0

    @tool
    async def wait(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turn_loop()
        running -= 1

    model = ScriptedModel(model_turn(*[model_call("wait", {"n": n}, id=f"c{n}") for n in range(3)]), text_turn("ok"))
    Agent(model, tools=[wait], policy=ALLOW_ALL, parallel=False).run("go")
    assert most == 1
    choice = model.requests[0].tool_choice
    assert choice is not None
    assert choice.parallel is False


def test_calls_with_a_common_resource_run_one_by_one() -> None:
    order: list[str] = []
    third = asyncio.Event()

    async def write(arguments: Any, calling: ToolContext) -> None:
        order.append(f"start {arguments['n']}")
        if arguments["n"] == 3:
            third.set()
        if arguments["n"] == 1:
            await third.wait()
            await turn_loop()
        order.append(f"end {arguments['n']}")

    proposed = Tool(
        name="write", run=write, parameters={"type": "object"}, resources=lambda given: frozenset({given["file"]})
    )
    calls = [model_call("write", {"n": n + 1, "file": "a" if n < 2 else "b"}, id=f"c{n}") for n in range(3)]
    Agent(ScriptedModel(model_turn(*calls), text_turn("ok")), tools=[proposed], policy=ALLOW_ALL).run("go")
    assert order.index("end 1") < order.index("start 2")
    assert order.index("start 3") < order.index("end 1")


async def _awaited(run: Run) -> None:
    await run


def test_resource_locks_cover_nested_calls_and_other_runs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(8)), encoding="utf-8")
    each = "replace(file_path='a.txt', old_string=f'{n}\\n', new_string=f'{n}!\\n')"
    code = f"import asyncio\nlen(await asyncio.gather(*[{each} for n in range(8)]))"
    model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("ok"))
    Agent(model, tools=built_in_tools(tmp_path), policy=ALLOW_ALL, code=True).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "8"
    assert (tmp_path / "a.txt").read_text() == "".join(f"{n}!\n" for n in range(8))

    async def two_runs() -> None:
        each = [{"file_path": "a.txt", "old_string": f"{n}!", "new_string": f"{n}?"} for n in range(2)]
        model = ScriptedModel(
            *[model_turn(model_call("replace", one)) for one in each], text_turn("ok"), text_turn("ok")
        )
        agent = Agent(model, tools=built_in_tools(tmp_path), policy=ALLOW_ALL)
        await asyncio.gather(*[_awaited(agent.run("go")) for _ in each])

    for _ in range(5):
        (tmp_path / "a.txt").write_text("0!\n1!\n", encoding="utf-8")
        asyncio.run(two_runs())
        assert (tmp_path / "a.txt").read_text() == "0?\n1?\n"

    async def outer(arguments: Any, calling: ToolContext) -> ToolOutput:
        assert calling.call is not None
        return await calling.call("inner", {})

    async def inner(arguments: Any, calling: ToolContext) -> str:
        return "done"

    both = [Tool(name=one.__name__, run=one, resources=lambda _: None) for one in (outer, inner)]
    model = ScriptedModel(model_turn(model_call("outer")), text_turn("ok"))
    Agent(model, tools=both, policy=ALLOW_ALL, limits=RunLimits(seconds=120)).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "done"
