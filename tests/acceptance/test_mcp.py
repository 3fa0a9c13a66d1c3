"""Failures between an agent and the MCP servers whose tools it uses."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.support.deadlines import wait_until_async
from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.tool_server import build_tool_server, serve_tools
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    call_tool,
    find_tool,
    open_toolset,
    read_message_log,
    scripted_server,
    text_of_output,
)
from tests.support.runtime.scripted_agent import ScriptedModel, last_results, model_call, model_turn, text_turn
from tests.support.runtime.scripted_agent import result_text as said
from toolwire import Agent, Policy
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.toolset import McpToolset, build_toolsets
from toolwire.runtime.run.events import RunWarning
from toolwire.runtime.tool import Annotations

ALL = Policy(allow=["*"])
both = pytest.mark.parametrize("version", MCP_VERSIONS)


@both
def test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model(version: str) -> None:
    async def work() -> None:
        model = ScriptedModel(
            model_turn(model_call("far__fail", id="c1"), model_call("far__fault", id="c2")), text_turn("It failed.")
        )
        agent = Agent(model, tools=[McpToolset("far", scripted_server(version))], policy=ALL)
        run = await agent.run("do it")
        failed, broken = last_results(model.requests[1])
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
            "gone": McpServerConfig(command="no-such-program-anywhere"),
            "good": scripted_server(tools=[tool_definition("echo")]),
            "mute": McpServerConfig(command=scripted_server().command, args=("-c", "pass"), connect_timeout=120),
        }
        model = ScriptedModel(model_turn(model_call("good__echo", {"a": 1})), text_turn("done"))
        agent = Agent(model, tools=build_toolsets(servers), policy=ALL)
        stream = agent.stream("go")
        warned = [event.text async for event in stream if isinstance(event, RunWarning)]
        assert [one.name for one in model.requests[0].tools or ()] == ["good__echo"]
        assert said(last_results(model.requests[1])[0]) == '{"a": 1}'
        assert [text.partition(" failed to start")[0] for text in warned] == ["MCP server 'gone'", "MCP server 'mute'"]
        await agent.aclose()

    asyncio.run(work())


@both
def test_sv_15_cursors_are_followed_to_the_end(version: str) -> None:
    async def work() -> None:
        listed = [tool_definition(f"tool{number}") for number in range(7)]
        async with open_toolset(scripted_server(version, tools=listed, page=2)) as toolset:
            assert len(await toolset.tools()) == 7

    asyncio.run(work())


@both
def test_sv_16_a_hint_that_is_false_stays_false(version: str) -> None:
    async def work() -> None:
        hints = {"destructiveHint": False, "openWorldHint": False, "idempotentHint": False, "readOnlyHint": False}
        far = McpToolset(
            "far", scripted_server(tools=[tool_definition("safe", annotations=hints), tool_definition("silent")])
        )
        async with serve_tools(build_tool_server([far])) as offered:
            async with open_toolset(McpServerConfig(url=offered.url, version=version), "near") as near:  # type: ignore[arg-type]
                safe = await find_tool(near, "far__safe")
                silent = await find_tool(near, "far__silent")
            await far.close()
        assert safe.annotations == Annotations()
        assert silent.annotations == Annotations(destructive=True, open_world=True)

    asyncio.run(work())


def test_na_6_a_call_reaches_the_server_that_was_meant_whatever_is_in_its_name(tmp_path: Path) -> None:
    async def work() -> None:
        servers = {
            name: scripted_server(tools=[tool_definition(one)], plays={one: "echo"}, log=str(tmp_path / name))
            for name, one in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c"))
        }
        sets = build_toolsets(servers)
        names = [(await one.tools())[0].name for one in sets]
        assert len(set(names)) == 3
        for one in sets:
            (found,) = await one.tools()
            model = ScriptedModel(model_turn(model_call(found.name)), text_turn("done"))
            agent = Agent(model, tools=sets, policy=ALL)
            await agent.run("go")
            await agent.aclose()

    asyncio.run(work())
    for name, one in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c")):
        called = [
            sent["params"]["name"] for sent in read_message_log(tmp_path / name) if sent.get("method") == "tools/call"
        ]
        assert called == [one]


def made_calls(log: Path, count: int) -> bool:
    return log.exists() and [sent.get("method") for sent in read_message_log(log)].count("tools/call") == count


@both
def test_ca_6_a_call_that_is_aborted_is_cancelled_and_holds_nothing(version: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        async with open_toolset(scripted_server(version, log=str(log))) as toolset:
            await toolset.tools()
            for tried in range(1, 4):
                waiting = asyncio.create_task(call_tool(toolset, "wait"))
                await wait_until_async(partial(made_calls, log, tried))
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert toolset._active_contexts == []
            client = await toolset._connection.client()
            assert client.session._dispatcher._pending == {}  # type: ignore[attr-defined]
            assert text_of_output(await call_tool(toolset, "echo")) == "{}"

    asyncio.run(work())
    methods = [sent.get("method") for sent in read_message_log(log)]
    assert methods.count("notifications/cancelled") == 3
