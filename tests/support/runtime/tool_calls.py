"""Single tools, called as the runtime calls them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolwire.canonical.content import Text
from toolwire.runtime.calls.approval import Approver, NoApprover
from toolwire.runtime.sandbox.bubblewrap import Sandbox
from toolwire.runtime.tool import Tool, ToolContext, ToolOutput
from toolwire.runtime.tools import built_in_tools

NO_SANDBOX = Sandbox(unavailable_reason="the tests run without one")


def built_in_tool(workspace: Path, name: str, **settings: Any) -> Tool:
    """Return a built-in tool, without bubblewrap unless the test selects it."""
    return tool_named(built_in_tools(workspace, **{"sandbox": NO_SANDBOX, **settings}), name)


def tool_named(tools: Sequence[Tool], name: str) -> Tool:
    return next(tool for tool in tools if tool.name == name)


def tool_context(tool: Tool, person: Approver | None = None) -> ToolContext:
    return ToolContext(
        run="run", id="call", tool=tool.name, idempotency_key="run/call", approver=person or NoApprover()
    )


async def run_tool_async(tool: Tool, person: Approver | None = None, /, **arguments: Any) -> ToolOutput:
    output = await tool.run(arguments, tool_context(tool, person))
    return ToolOutput(content=(Text(text=output),)) if isinstance(output, str) else msgspec.convert(output, ToolOutput)


def run_tool(tool: Tool, person: Approver | None = None, /, **arguments: Any) -> ToolOutput:
    return asyncio.run(run_tool_async(tool, person, **arguments))


def single_text(output: ToolOutput) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def run_tool_for_text(tool: Tool, person: Approver | None = None, /, **arguments: Any) -> str:
    return single_text(run_tool(tool, person, **arguments))
