"""Failures between an agent and the MCP servers whose tools it uses."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.patience import wait_until_async
from tests.runtime.mcp.actor import tool
from tests.runtime.mcp.offering import made, offering
from tests.runtime.mcp.playing import VERSIONS, actor, called, playing, tool_of, words, written
from tests.runtime.playing import Played, call, results, says, turn
from tests.runtime.playing import words as said
from toolwire import Agent, Policy
from toolwire.runtime.events import Warned
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.mcp.toolset import McpToolset, toolsets
from toolwire.runtime.toolset import Annotations

ALL = Policy(allow=["*"])
both = pytest.mark.parametrize("version", VERSIONS)


@both
def test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model(version: str) -> None:
    async def work() -> None:
        model = Played(turn(call("far__fail", id="c1"), call("far__fault", id="c2")), says("It failed."))
        agent = Agent(model, tools=[McpToolset("far", actor(version))], policy=ALL)
        run = await agent.run("do it")
        failed, broken = results(model.asked[1])
        assert (failed.status, said(failed)) == ("error", "the disk is full")
        assert broken.status == "error"
        assert [(record.error, record.locus, record.source) for record in run.calls] == [
            ("tool", "mcp", "far"),
            ("protocol", "mcp", "far"),
        ]
        await agent.aclose()

    asyncio.run(work())


def test_sv_14_one_server_that_fails_leaves_the_others_and_is_reported() -> None:
    async def work() -> None:
        servers = {
            "gone": Server(command="no-such-program-anywhere"),
            "good": actor(tools=[tool("echo")]),
            "mute": Server(command=actor().command, args=("-c", "pass"), connect_timeout=120),
        }
        model = Played(turn(call("good__echo", {"a": 1})), says("done"))
        agent = Agent(model, tools=toolsets(servers), policy=ALL)
        stream = agent.stream("go")
        warned = [event.text async for event in stream if isinstance(event, Warned)]
        assert [one.name for one in model.asked[0].tools or ()] == ["good__echo"]
        assert said(results(model.asked[1])[0]) == '{"a": 1}'
        assert [text.partition(" is not there")[0] for text in warned] == ["the MCP server gone", "the MCP server mute"]
        await agent.aclose()

    asyncio.run(work())


@both
def test_sv_15_cursors_are_followed_to_the_end(version: str) -> None:
    async def work() -> None:
        listed = [tool(f"tool{number}") for number in range(7)]
        async with playing(actor(version, tools=listed, page=2)) as toolset:
            assert len(await toolset.tools()) == 7

    asyncio.run(work())


@both
def test_sv_16_a_hint_that_is_false_stays_false(version: str) -> None:
    async def work() -> None:
        hints = {"destructiveHint": False, "openWorldHint": False, "idempotentHint": False, "readOnlyHint": False}
        far = McpToolset("far", actor(tools=[tool("safe", annotations=hints), tool("silent")]))
        async with offering(made([far])) as offered:
            async with playing(Server(url=offered.url, version=version), "near") as near:  # type: ignore[arg-type]
                safe = await tool_of(near, "far__safe")
                silent = await tool_of(near, "far__silent")
            await far.close()
        assert safe.annotations == Annotations()
        assert silent.annotations == Annotations(destructive=True, open_world=True)

    asyncio.run(work())


def test_na_6_a_call_reaches_the_server_that_was_meant_whatever_is_in_its_name(tmp_path: Path) -> None:
    async def work() -> None:
        servers = {
            name: actor(tools=[tool(one)], plays={one: "echo"}, log=str(tmp_path / name))
            for name, one in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c"))
        }
        sets = toolsets(servers)
        names = [(await one.tools())[0].name for one in sets]
        assert len(set(names)) == 3
        for one in sets:
            (found,) = await one.tools()
            model = Played(turn(call(found.name)), says("done"))
            agent = Agent(model, tools=sets, policy=ALL)
            await agent.run("go")
            await agent.aclose()

    asyncio.run(work())
    for name, one in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c")):
        called = [sent["params"]["name"] for sent in written(tmp_path / name) if sent.get("method") == "tools/call"]
        assert called == [one]


def made_calls(log: Path, count: int) -> bool:
    return log.exists() and [sent.get("method") for sent in written(log)].count("tools/call") == count


@both
def test_ca_6_a_call_that_is_aborted_is_cancelled_and_holds_nothing(version: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        async with playing(actor(version, log=str(log))) as toolset:
            await toolset.tools()
            for tried in range(1, 4):
                waiting = asyncio.create_task(called(toolset, "wait"))
                await wait_until_async(partial(made_calls, log, tried))
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert toolset._callings == []
            client = await toolset._connection.client()
            assert client.session._dispatcher._pending == {}  # type: ignore[attr-defined]
            assert words(await called(toolset, "echo")) == "{}"

    asyncio.run(work())
    methods = [sent.get("method") for sent in written(log)]
    assert methods.count("notifications/cancelled") == 3
