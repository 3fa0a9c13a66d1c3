"""Failures between an agent and its MCP servers (ER-4, SV-14 to SV-16, NA-6, CA-6)."""

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
from tests.support.runtime.scripted_agent import (
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.toolset import McpToolset, build_toolsets
from toolwire.runtime.run.events import RunWarning
from toolwire.runtime.tool import Annotations

ALLOW_ALL = Policy(allow=["*"])
both_versions = pytest.mark.parametrize("version", MCP_VERSIONS)


@both_versions
def test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model(version: str) -> None:
    async def scenario() -> None:
        model = ScriptedModel(
            model_turn(model_call("far__fail", id="c1"), model_call("far__fault", id="c2")), text_turn("It failed.")
        )
        agent = Agent(model, tools=[McpToolset("far", scripted_server(version))], policy=ALLOW_ALL)
        run = await agent.run("do it")
        failed, broken = last_results(model.requests[1])
        assert (failed.status, result_text(failed)) == ("error", "the disk is full")
        assert broken.status == "error"
        assert [(record.error, record.locus, record.source) for record in run.calls] == [
            ("tool", "mcp", "far"),
            ("protocol", "mcp", "far"),
        ]
        await agent.aclose()

    asyncio.run(scenario())


def test_sv_14_one_failing_server_leaves_the_others_and_is_reported() -> None:
    async def scenario() -> None:
        servers = {
            "gone": McpServerConfig(command="no-such-program-anywhere"),
            "good": scripted_server(tools=[tool_definition("echo")]),
            "mute": McpServerConfig(command=scripted_server().command, args=("-c", "pass"), connect_timeout=120),
        }
        model = ScriptedModel(model_turn(model_call("good__echo", {"a": 1})), text_turn("done"))
        agent = Agent(model, tools=build_toolsets(servers), policy=ALLOW_ALL)
        stream = agent.stream("go")
        warnings = [event.text async for event in stream if isinstance(event, RunWarning)]
        assert [tool.name for tool in model.requests[0].tools or ()] == ["good__echo"]
        assert result_text(last_results(model.requests[1])[0]) == '{"a": 1}'
        assert [text.partition(" failed to start")[0] for text in warnings] == [
            "MCP server 'gone'",
            "MCP server 'mute'",
        ]
        await agent.aclose()

    asyncio.run(scenario())


@both_versions
def test_sv_15_cursors_are_followed_to_the_end(version: str) -> None:
    async def scenario() -> None:
        definitions = [tool_definition(f"tool{number}") for number in range(7)]
        async with open_toolset(scripted_server(version, tools=definitions, page=2)) as toolset:
            assert len(await toolset.tools()) == 7

    asyncio.run(scenario())


@both_versions
def test_sv_16_a_hint_that_is_false_stays_false(version: str) -> None:
    async def scenario() -> None:
        hints = {"destructiveHint": False, "openWorldHint": False, "idempotentHint": False, "readOnlyHint": False}
        far = McpToolset(
            "far", scripted_server(tools=[tool_definition("safe", annotations=hints), tool_definition("silent")])
        )
        async with serve_tools(build_tool_server([far])) as server:
            async with open_toolset(McpServerConfig(url=server.url, version=version), "near") as near:  # type: ignore[arg-type]
                safe = await find_tool(near, "far__safe")
                without_hints = await find_tool(near, "far__silent")
            await far.close()
        assert safe.annotations == Annotations()
        assert without_hints.annotations == Annotations(destructive=True, open_world=True)

    asyncio.run(scenario())


def test_na_6_a_call_reaches_its_server_whatever_the_name_contains(tmp_path: Path) -> None:
    async def scenario() -> None:
        servers = {
            name: scripted_server(
                tools=[tool_definition(tool_name)], plays={tool_name: "echo"}, log=str(tmp_path / name)
            )
            for name, tool_name in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c"))
        }
        toolsets = build_toolsets(servers)
        names = [(await toolset.tools())[0].name for toolset in toolsets]
        assert len(set(names)) == 3
        for toolset in toolsets:
            (tool,) = await toolset.tools()
            model = ScriptedModel(model_turn(model_call(tool.name)), text_turn("done"))
            agent = Agent(model, tools=toolsets, policy=ALLOW_ALL)
            await agent.run("go")
            await agent.aclose()

    asyncio.run(scenario())
    for name, tool_name in (("a", "b__c"), ("a__b", "c"), ("a_", "_b__c")):
        called = [
            message["params"]["name"]
            for message in read_message_log(tmp_path / name)
            if message.get("method") == "tools/call"
        ]
        assert called == [tool_name]


def has_calls(log: Path, count: int) -> bool:
    return log.exists() and [message.get("method") for message in read_message_log(log)].count("tools/call") == count


@both_versions
def test_ca_6_an_aborted_call_is_cancelled_and_released(version: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with open_toolset(scripted_server(version, log=str(log))) as toolset:
            await toolset.tools()
            for count in range(1, 4):
                call = asyncio.create_task(call_tool(toolset, "wait"))
                await wait_until_async(partial(has_calls, log, count))
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            assert toolset._requests._active == []
            session = await toolset._connection.session()
            assert session.dispatcher._pending == {}
            assert text_of_output(await call_tool(toolset, "echo")) == "{}"

    asyncio.run(scenario())
    methods = [message.get("method") for message in read_message_log(log)]
    assert methods.count("notifications/cancelled") == 3
