"""The MCP rows of the threat model: program start, credentials and policy."""

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import toolwire.runtime.mcp
from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import run_async, run_gateway_with
from tests.support.mcp.oauth_server import serve_oauth
from tests.support.mcp.raw_client import ELICITATION_META, RawMcpClient
from tests.support.mcp.tool_server import ADD_TOOL, build_tool_server, executed_tools, serve_tools
from tests.support.mcp.toolsets import NEW_VERSION, open_toolset, scripted_server
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.policy import Policy

SOURCES = Path(toolwire.runtime.mcp.__file__).parent


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/chat/completions", "/api/chat", "/mcp"])
def test_requests_cannot_start_programs_or_add_servers(path: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    server = {"name": "x", "type": "stdio", "command": "touch", "args": [str(mark)], "env": {"A": "1"}}
    hostile = {
        "mcp_servers": [server],
        "mcpServers": {"x": server},
        "mcp": {"servers": {"x": server}},
        "tools": [{"type": "mcp", "server_label": "x", "server_url": f"file://{mark}", **server}],
    }
    said = [{"role": "user", "content": "hello"}]
    body = {"model": "m", "max_tokens": 9, "messages": said, "input": "hello", **hostile}

    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            answer = await gateway.post(path, json.dumps(body).encode())
            assert answer.status < 500
            await asyncio.sleep(0.1)

    run_async(work())
    assert not mark.exists()


def test_programs_start_in_one_place_without_a_shell() -> None:
    starts = {}
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        starts[path.name] = [one for one in calls if "subprocess" in one or one.endswith(("system", "popen"))]
    assert {name: found for name, found in starts.items() if found} == {
        "transports.py": ["asyncio.create_subprocess_exec if os.name == 'nt' else start_subprocess"]
    }


@pytest.mark.parametrize(
    "call",
    [
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "add", "arguments": {"a": 1, "b": 2}, "inputResponses": {"question_1": {"action": "accept"}}},
        {"name": "add", "arguments": {"a": 1, "b": 2}, "requestState": "made up"},
        {"name": "Add", "arguments": {"a": 1, "b": 2}},
        {"name": "__proto__", "arguments": {}},
        {"name": "constructor", "arguments": {}},
    ],
)
def test_every_path_to_a_tool_applies_the_policy(call: dict[str, Any]) -> None:
    async def work() -> None:
        served = build_tool_server([ADD_TOOL], Policy(deny=["add"]))
        async with serve_tools(served) as offered, RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain:
            answer = await plain.request("tools/call", call)
        assert "error" in answer or answer["result"]["isError"] is True
        assert executed_tools == []

    executed_tools.clear()
    asyncio.run(work())


def test_approval_covers_only_the_requested_call() -> None:
    async def work() -> None:
        served = build_tool_server([ADD_TOOL], Policy(ask=["add"]))
        async with serve_tools(served) as offered, RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain:
            first = await plain.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            state = first["result"]["requestState"]
            yes = {"question_1": {"action": "accept", "content": {"answer": "yes"}}}
            other = {"name": "add", "arguments": {"a": 1, "b": 3}, "inputResponses": yes, "requestState": state}
            assert (await plain.request("tools/call", other))["error"]["code"] == -32602
            assert executed_tools == []
            same = {**other, "arguments": {"a": 1, "b": 2}}
            assert (await plain.request("tools/call", same))["result"]["isError"] is False
        assert executed_tools == ["add"]

    executed_tools.clear()
    asyncio.run(work())


def test_failure_messages_contain_no_credentials() -> None:
    secret = "Bearer sk-live-0123456789abcdef"

    async def work() -> None:
        async with serve_oauth() as given:
            settings = McpServerConfig(url=given.url, headers={"Authorization": secret}, connect_timeout=DEADLINE)
            async with open_toolset(settings, "far") as toolset:
                await toolset.tools()
                told = " ".join([*toolset.take_warnings(), toolset.error])
        assert toolset.state == "down"
        assert told
        assert "sk-live" not in told

    asyncio.run(work())


def test_changed_url_gets_no_tokens_of_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with serve_oauth() as first, serve_oauth() as second:
            for given in (first, second):
                settings = McpServerConfig(url=given.url, connect_timeout=DEADLINE)
                toolset = McpToolset("far", settings, token_folder=tmp_path)
                await toolset.tools()
                await toolset.close()
            assert second.grants == []

    asyncio.run(work())


def test_secrets_in_server_output_are_redacted_for_the_client() -> None:
    """Text and structured content are redacted as for a model."""
    from toolwire.journal.redaction import Redactor
    from toolwire.runtime.mcp.server import ToolServer
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.toolbox import Toolbox

    async def work() -> None:
        from tests.support.mcp.scripted_server import tool_definition

        promise = {"type": "object"}
        far = McpToolset(
            "far", scripted_server(tools=[tool_definition("structured", outputSchema=promise), tool_definition("echo")])
        )
        toolbox = Toolbox([far])

        async def offered() -> list[Any]:
            return list((await toolbox.catalog()).tools.values())

        carry = ToolRunner(toolbox, Policy(allow=["*"]), redactor=Redactor(["the-server-key-1"]))
        async with (
            serve_tools(ToolServer(offered, carry)) as given,
            RawMcpClient(given.url, NEW_VERSION, ELICITATION_META) as plain,
        ):
            for name in ("far__structured", "far__echo"):
                call = {"name": name, "arguments": {"key": "the-server-key-1"}}
                answer = await plain.request("tools/call", call)
                assert "the-server-key-1" not in json.dumps(answer)
                assert answer["result"]["isError"] is False
        await far.close()

    asyncio.run(work())
