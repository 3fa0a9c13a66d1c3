"""Tests of requirements that no other test covers."""

import asyncio
import json
import re
import tomllib
from pathlib import Path

import pytest

import toolwire as tw
from tests.support.clock import Clock
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.toolsets import scripted_server
from tests.support.paths import ROOT
from tests.support.runtime.run_replay import replay_differences
from tests.support.runtime.scripted_agent import (
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire import Agent, Policy, tool
from toolwire.journal.runs import RunStore
from toolwire.runtime.mcp.toolset import McpToolset

ALLOW_ALL = Policy(allow=["*"])
TEXT_CALLS = [
    "wipe {}",
    '<tool_call>{"name": "wipe", "arguments": {}}</tool_call>',
    '```json\n{"tool": "wipe", "arguments": {}}\n```',
    '{"type": "tool_use", "id": "toolu_1", "name": "wipe", "input": {}}',
    '{"tool_calls": [{"id": "c1", "function": {"name": "wipe", "arguments": "{}"}}]}',
]


@pytest.mark.parametrize("text", TEXT_CALLS)
def test_text_that_spells_a_call_runs_nothing(text: str) -> None:
    wiped: list[int] = []

    @tool
    def wipe() -> None:
        wiped.append(1)

    run = Agent(ScriptedModel(text_turn(text)), tools=[wipe], policy=ALLOW_ALL).run("go")
    assert (run.stopped, run.text, run.calls, wiped) == ("finished", text, [], [])


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_code_calls_an_mcp_tool_and_only_its_result_reaches_the_model(version: str) -> None:
    code = 'first = await actor__echo(text="of one call")\nlen(first)'

    async def scenario() -> None:
        model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("done"))
        text_schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        toolset = McpToolset(
            "actor", scripted_server(version, tools=[tool_definition("echo", inputSchema=text_schema)])
        )
        agent = Agent(model, tools=[toolset], policy=Policy(allow=["run_code", "actor__echo"]), code=True)
        run = await agent.run("go")
        await agent.aclose()
        assert sorted(call.tool for call in run.calls) == ["actor__echo", "run_code"], result_text(
            last_results(model.requests[1])[0]
        )
        (result,) = last_results(model.requests[1])
        assert result_text(result).isdigit()
        assert "of one call" not in result_text(result)

    asyncio.run(scenario())


def test_code_cannot_call_tools_that_no_rule_allows() -> None:
    async def scenario() -> None:
        model = ScriptedModel(model_turn(model_call("run_code", {"code": "await actor__echo()"})), text_turn("done"))
        agent = Agent(
            model, tools=[McpToolset("actor", scripted_server())], policy=Policy(allow=["run_code"]), code=True
        )
        run = await agent.run("go")
        await agent.aclose()
        assert [call.approval for call in run.calls if call.tool == "actor__echo"] == ["denied: no approver available"]
        assert "denied: actor__echo was not run" in result_text(last_results(model.requests[1])[0])

    asyncio.run(scenario())


def test_a_recorded_run_is_replayed_and_holds_no_secret(tmp_path: Path) -> None:
    canary, arguments = "canary-value-of-a-key", list[str]()

    @tool
    def leak(topic: str) -> str:
        arguments.append(topic)
        return f"{topic} {canary}"

    model = ScriptedModel(model_turn(model_call("leak", {"topic": "the key"})), text_turn("done"))
    journal = RunStore(tmp_path / "runs.db")
    run = Agent(model, tools=[leak], policy=ALLOW_ALL, secrets=[canary], journal=journal).run("go", facts={})
    assert arguments == ["the key"]
    assert replay_differences(journal, run.id, [leak]) == []
    assert arguments == ["the key"], "a replay executes nothing"
    journal.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"[removed]" in stored
    assert canary.encode() not in stored


def test_a_stored_interaction_expires(clock: Clock) -> None:
    async def scenario() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, extra_config='[state]\npath = ":memory:"\nttl = 3600')) as gateway,
        ):

            async def interact(previous: str | None = None) -> tuple[int, dict[str, str]]:
                body = {"model": "m", "input": "Hi", "previous_interaction_id": previous}
                fields = {name: value for name, value in body.items() if value is not None}
                response = await gateway.post("/v1beta/interactions", json.dumps(fields).encode())
                return response.status, json.loads(await response.read(100_000))

            status, first = await interact()
            assert status == 200
            assert (await interact(first["id"]))[0] == 200
            clock.advance(3601)
            status, _ = await interact(first["id"])
            assert status == 404
            assert len(script.requests) == 2

    run_async(scenario())


def test_arguments_are_always_a_json_string() -> None:
    arguments = {"path": 'a "b"\n\\c', "lines": [1, 2.5, None, True], "nested": {"ü": {"empty": {}}}}
    request = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": arguments}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]},
        ],
    }
    body = json.loads(tw.translate(request, "anthropic", "openai-chat").to_bytes())
    (call,) = body["messages"][1]["tool_calls"]
    assert isinstance(call["function"]["arguments"], str)
    assert json.loads(call["function"]["arguments"]) == arguments


def test_the_package_has_few_dependencies_and_no_startup_hook() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]} == {
        "msgspec",
        "click",
        "rich",
        "uvicorn",
        "uvloop",
        "httptools",
        "websockets",
        "jsonschema-rs",
        "google-re2",
        "pathspec",
    }
    pinned = [
        *project["dependencies"],
        *(name for group in project["optional-dependencies"].values() for name in group),
    ]
    assert [requirement for requirement in pinned if "<" not in requirement and "toolwire" not in requirement] == []
    hooks = {"sitecustomize.py", "usercustomize.py"}
    assert [path for path in (ROOT / "src").rglob("*") if path.suffix == ".pth" or path.name in hooks] == []
