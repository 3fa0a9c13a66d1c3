"""Resources of a server as content of a prompt, and as tools, in both protocol versions."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    NEW_VERSION,
    RecordingApprover,
    call_tool,
    open_toolset,
    scripted_server,
    text_of_output,
)
from toolwire.agent import Agent
from toolwire.canonical.content import Media, PlainText, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.resources import Resource
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.tool import ToolError
from toolwire.testing import ScriptedModel

both = pytest.mark.parametrize("version", MCP_VERSIONS)


def note(uri: str) -> Media:
    return Media(kind="document", source=PlainText(text=f"text of {uri}"), media_type="text/plain", name=uri)


def note_server(version: str, **options: Any) -> McpServerConfig:
    return scripted_server(version, capabilities=["resources"], **options)


@both
def test_resources_and_templates_are_listed_and_read(version: str) -> None:
    async def work() -> None:
        async with open_toolset(note_server(version)) as toolset:
            assert not any(tool.name.endswith("_resource") for tool in await toolset.tools())
            listed = await toolset.list_resources()
            assert listed[0] == Resource(uri="note:///0", name="note 0", media_type="text/plain", size=6)
            assert [resource.uri for resource in listed] == ["note:///0", "note:///1", "note:///2", "note:///{number}"]
            assert [resource.is_template for resource in listed] == [False, False, False, True]
            assert await toolset.read_resource("note:///7") == (note("note:///7"),)
            with pytest.raises(ToolwireError, match=r"MCP server 'actor': Resource not found"):
                await toolset.read_resource("other:///7")
            with pytest.raises(ToolwireError, match=r"await toolset\.read_resource"):
                toolset.resource("note:///7")

    asyncio.run(work())


def test_endless_list_of_resources_is_cut() -> None:
    async def work() -> int:
        async with open_toolset(note_server(NEW_VERSION, endless=True)) as toolset:
            return len(await toolset.list_resources())

    assert asyncio.run(work()) == 101  # one per page, and a template


def test_server_without_resources_lists_none() -> None:
    async def work() -> None:
        async with open_toolset(replace(scripted_server(NEW_VERSION), resources=True)) as toolset:
            assert await toolset.list_resources() == []
            assert not any(tool.name.endswith("_resource") for tool in await toolset.tools())

    asyncio.run(work())


def test_resource_is_content_of_a_prompt() -> None:
    toolset = McpToolset("actor", note_server(NEW_VERSION))
    model = ScriptedModel("short")
    with Agent(model, tools=[toolset]) as agent:
        agent.run([Text(text="Summarize."), *toolset.resource("note:///1")])
    assert model.requests[0].messages[0].parts == (Text(text="Summarize."), note("note:///1"))


@both
def test_resources_are_offered_as_tools_if_configured(version: str) -> None:
    async def work() -> None:
        config = replace(note_server(version, tools=[tool_definition("echo")]), resources=True)
        async with open_toolset(config) as toolset:
            names = [tool.name for tool in await toolset.tools()]
            assert names == ["actor__echo", "actor__list_resources", "actor__read_resource"]
            listed = json.loads(text_of_output(await call_tool(toolset, "list_resources")))
            assert [resource["uri"] for resource in listed][-1] == "note:///{number}"
            assert (await call_tool(toolset, "read_resource", {"uri": "note:///1"})).content == (note("note:///1"),)
            with pytest.raises(ToolError, match="Resource not found") as error:
                await call_tool(toolset, "read_resource", {"uri": "x"})
            assert error.value.kind == "protocol"

    asyncio.run(work())


def test_tool_of_the_server_keeps_its_name() -> None:
    async def work() -> None:
        config = replace(note_server(NEW_VERSION, tools=[tool_definition("read_resource")]), resources=True)
        async with open_toolset(config) as toolset:
            assert [tool.name for tool in await toolset.tools()] == ["actor__read_resource", "actor__list_resources"]
            assert toolset.take_warnings() == [
                "MCP server 'actor': skipped actor__read_resource: the server has a tool of that name"
            ]

    asyncio.run(work())


def test_question_before_a_resource_goes_to_the_user_of_a_call() -> None:
    async def work() -> None:
        config = replace(note_server(NEW_VERSION, tools=[]), resources=True)
        async with open_toolset(config) as toolset:
            person = RecordingApprover("accept")
            output = await call_tool(toolset, "read_resource", {"uri": "note:///locked"}, person)
            assert output.content == (note("note:///locked"),)
            assert "Password?" in person.questions[0][0]
            with pytest.raises(ToolwireError, match="asks for input"):
                await toolset.read_resource("note:///locked")

    asyncio.run(work())
