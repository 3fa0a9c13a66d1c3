"""The MCP rows of the security table: who starts programs, who hears what, and through which door."""

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import toolwire.runtime.mcp
from tests.gateway.running import run
from tests.gateway.test_exchange import GOOD, Script, in_front
from tests.patience import PATIENCE
from tests.runtime.mcp.authority import authority
from tests.runtime.mcp.offering import made, offering
from tests.runtime.mcp.playing import NEW, actor, playing
from tests.runtime.mcp.test_serving import ADD, CAN_ASK, Plain, ran
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.policy import Policy

SOURCES = Path(toolwire.runtime.mcp.__file__).parent


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/chat/completions", "/api/chat", "/mcp"])
def test_no_request_starts_a_program_or_adds_a_server(path: str, tmp_path: Path) -> None:
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
        async with in_front(Script(GOOD)) as gateway:
            answer = await gateway.post(path, json.dumps(body).encode())
            assert answer.status < 500
            await asyncio.sleep(0.1)

    run(work())
    assert not mark.exists()


def test_a_program_is_started_in_one_place_and_never_through_a_shell() -> None:
    starts = {}
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        starts[path.name] = [one for one in calls if "subprocess" in one or one.endswith(("system", "popen"))]
    assert {name: found for name, found in starts.items() if found} == {
        "process.py": ["asyncio.create_subprocess_exec"]
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
def test_there_is_no_way_round_a_rule(call: dict[str, Any]) -> None:
    async def work() -> None:
        served = made([ADD], Policy(deny=["add"]))
        async with offering(served) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
            answer = await plain.request("tools/call", call)
        assert "error" in answer or answer["result"]["isError"] is True
        assert ran == []

    ran.clear()
    asyncio.run(work())


def test_an_approval_is_for_the_call_that_was_asked_about() -> None:
    async def work() -> None:
        served = made([ADD], Policy(ask=["add"]))
        async with offering(served) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
            first = await plain.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            state = first["result"]["requestState"]
            yes = {"question_1": {"action": "accept", "content": {"answer": "yes"}}}
            other = {"name": "add", "arguments": {"a": 1, "b": 3}, "inputResponses": yes, "requestState": state}
            assert (await plain.request("tools/call", other))["error"]["code"] == -32602
            assert ran == []
            same = {**other, "arguments": {"a": 1, "b": 2}}
            assert (await plain.request("tools/call", same))["result"]["isError"] is False
        assert ran == ["add"]

    ran.clear()
    asyncio.run(work())


def test_no_credential_is_in_what_is_told_of_a_failure() -> None:
    secret = "Bearer sk-live-0123456789abcdef"

    async def work() -> None:
        async with authority() as given:
            settings = Server(url=given.url, headers={"Authorization": secret}, connect_timeout=PATIENCE)
            async with playing(settings, "far") as toolset:
                await toolset.tools()
                told = " ".join([*toolset.warned(), toolset.why])
        assert toolset.state == "down"
        assert told
        assert "sk-live" not in told

    asyncio.run(work())


def test_an_address_that_was_changed_gets_no_token_of_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with authority() as first, authority() as second:
            for given in (first, second):
                settings = Server(url=given.url, connect_timeout=PATIENCE)
                toolset = McpToolset("far", settings, folder=tmp_path)
                await toolset.tools()
                await toolset.close()
            assert second.grants == []

    asyncio.run(work())


def test_a_secret_in_what_a_server_says_does_not_reach_the_client() -> None:
    """The same redaction as for a model: in text and in structured content."""
    from toolwire.journal.secrets import Redactor
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.mcp.serving import Served
    from toolwire.runtime.toolbox import Toolbox

    async def work() -> None:
        from tests.runtime.mcp.actor import tool

        promise = {"type": "object"}
        far = McpToolset("far", actor(tools=[tool("structured", outputSchema=promise), tool("echo")]))
        toolbox = Toolbox([far])

        async def offered() -> list[Any]:
            return list((await toolbox.catalog()).tools.values())

        carry = Carrying(toolbox, Policy(allow=["*"]), redactor=Redactor(["the-server-key-1"]))
        async with offering(Served(offered, carry)) as given, Plain(given.url, NEW, CAN_ASK) as plain:
            for name in ("far__structured", "far__echo"):
                call = {"name": name, "arguments": {"key": "the-server-key-1"}}
                answer = await plain.request("tools/call", call)
                assert "the-server-key-1" not in json.dumps(answer)
                assert answer["result"]["isError"] is False
        await far.close()

    asyncio.run(work())
