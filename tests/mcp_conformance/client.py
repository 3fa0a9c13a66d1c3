"""The client that the conformance suite starts: `McpToolset`, used as an agent would, on the given URL."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest
from toolwire.runtime.mcp.config import McpServerConfig, OAuthConfig
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.tool import Tool, ToolContext, ToolError

METADATA = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite's authorization servers know."""

VALUES = {"string": "text", "integer": 3, "number": 5, "boolean": True, "array": [], "object": {}}


class AgreeingApprover:
    """An approver that selects the first choice or the default."""

    name = "a person"

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        return "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return "" if "[" in question else choices[0] if choices else "text"


async def browse(url: str) -> None:
    """Follow the redirect as a browser whose user agrees to everything."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, timeout=60) as browser:
        await browser.get(url)


def settings(url: str, context: Mapping[str, Any]) -> McpServerConfig:
    is_machine = context.get("name", "").startswith("auth/client-credentials-")
    oauth = OAuthConfig(
        grant="client_credentials" if is_machine else "authorization_code",
        private_key=context.get("private_key_pem"),
        algorithm=context.get("signing_algorithm", "RS256"),
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        client_metadata_url=None if "client_id" in context else METADATA,
    )
    return McpServerConfig(url=url, oauth=oauth, connect_timeout=60, timeout=60)


def arguments(tool: Tool) -> dict[str, Any]:
    fields = tool.parameters.get("properties", {})
    return {name: VALUES.get(field.get("type"), "text") for name, field in fields.items()}


async def call(tool: Tool, arguments: dict[str, Any], number: int) -> None:
    approver = AgreeingApprover()
    calling = ToolContext(
        run="conformance", id=str(number), tool=tool.name, idempotency_key=str(number), approver=approver
    )
    try:
        output = await tool.run(arguments, calling)
    except ToolError as fault:
        sys.stderr.write(f"{tool.name}: {fault.kind}: {fault}\n")
    else:
        sys.stderr.write(f"{tool.name}: {output}\n")


def required_calls(tools: Sequence[Tool], context: Mapping[str, Any]) -> list[tuple[Tool, dict[str, Any]]]:
    by_name = {tool.name.removeprefix("suite__"): tool for tool in tools}
    if (calls := context.get("toolCalls")) is not None:
        return [(by_name[item["name"]], item["arguments"]) for item in calls]
    if "json_schema_echo" in by_name:
        schema = by_name["json_schema_2020_12_tool"].parameters
        return [(by_name["json_schema_echo"], {"schema": schema})]
    return [(tool, arguments(tool)) for tool in tools]


async def main(url: str) -> int:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    toolset = McpToolset("suite", settings(url, context), open_browser=browse)
    try:
        tools = await toolset.tools()
        calls = required_calls(tools, context)
        await asyncio.gather(*(call(tool, arguments, number) for number, (tool, arguments) in enumerate(calls)))
        reached = toolset.state == "up"
    finally:
        await toolset.close()
    sys.stderr.write("".join(f"{warning}\n" for warning in toolset.take_warnings()))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
