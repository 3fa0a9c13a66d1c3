"""Tools that run as tasks, in both protocol versions."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import wait_until_async
from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    OLD_VERSION,
    RecordingApprover,
    call_context,
    call_tool,
    find_tool,
    open_toolset,
    read_message_log,
    scripted_server,
    text_of_output,
)
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.tool import ToolError

both = pytest.mark.parametrize("version", MCP_VERSIONS)


def task_server(version: str, **options: Any) -> McpServerConfig:
    return scripted_server(version, tools=[tool_definition("work", execution={"taskSupport": "required"})], **options)


@both
def test_tool_that_wants_a_task_returns_its_result(version: str) -> None:
    notices: list[str] = []

    async def work() -> str:
        async with open_toolset(task_server(version)) as toolset:
            tool = await find_tool(toolset, "work")
            assert tool.timeout == 3600
            return text_of_output(await tool.run({}, call_context(progress=notices.append)))

    assert asyncio.run(work()) == "worked: None"
    assert notices == ["started", "poll 1", "poll 2"]


@both
def test_task_asks_the_user(version: str) -> None:
    async def work() -> str:
        async with open_toolset(task_server(version)) as toolset:
            person = RecordingApprover("accept")
            return text_of_output(await call_tool(toolset, "work", {"ending": "question"}, person))

    assert '"accept"' in (text := asyncio.run(work())) or text == "worked: accept"


@both
def test_failed_task_is_a_protocol_error(version: str) -> None:
    async def work() -> None:
        async with open_toolset(task_server(version)) as toolset:
            with pytest.raises(ToolError, match="the task broke"):
                await call_tool(toolset, "work", {"ending": "failed"})
            with pytest.raises(ToolError, match="without a result: stopped by the server"):
                await call_tool(toolset, "work", {"ending": "cancelled"})

    asyncio.run(work())


@both
def test_cancelled_call_cancels_its_task(version: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def has(method: str) -> bool:
        return log.exists() and any(message.get("method") == method for message in read_message_log(log))

    async def work() -> None:
        async with open_toolset(task_server(version, log=str(log))) as toolset:
            call = asyncio.create_task(call_tool(toolset, "work", {"ending": "never"}))
            await wait_until_async(partial(has, "tasks/get"))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert has("tasks/cancel")

    asyncio.run(work())


def test_tool_without_tasks_is_called_directly(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        tools = [tool_definition("echo", execution={"taskSupport": "optional"})]
        async with open_toolset(scripted_server(OLD_VERSION, tools=tools, log=str(log))) as toolset:
            assert (await find_tool(toolset, "echo")).timeout != 3600
            await call_tool(toolset, "echo")

    asyncio.run(work())
    assert '"task"' not in log.read_text()
