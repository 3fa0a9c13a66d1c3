"""Requirements of the seed documents that no other test shows, each named after its document and line."""

import asyncio
import json
from pathlib import Path

import pytest

import toolwire as tw
from tests.support.clock import Clock
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.mcp.scripted_server import tool_definition as declared
from tests.support.mcp.toolsets import scripted_server
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

ALL = Policy(allow=["*"])
SPELLED = [
    "wipe {}",
    '<tool_call>{"name": "wipe", "arguments": {}}</tool_call>',
    '```json\n{"tool": "wipe", "arguments": {}}\n```',
    '{"type": "tool_use", "id": "toolu_1", "name": "wipe", "input": {}}',
    '{"tool_calls": [{"id": "c1", "function": {"name": "wipe", "arguments": "{}"}}]}',
]


@pytest.mark.parametrize("text", SPELLED)
def test_001_45_text_that_spells_a_call_runs_nothing(text: str) -> None:
    wiped: list[int] = []

    @tool
    def wipe() -> None:
        wiped.append(1)

    made = Agent(ScriptedModel(text_turn(text)), tools=[wipe], policy=ALL).run("go")
    assert (made.stopped, made.text, made.calls, wiped) == ("finished", text, [], [])


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_001_229_code_calls_a_tool_of_an_mcp_server_and_only_its_result_reaches_the_model(version: str) -> None:
    code = 'first = await actor__echo(text="of one call")\nlen(first)'

    async def work() -> None:
        model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("done"))
        takes_text = {"type": "object", "properties": {"text": {"type": "string"}}}
        toolset = McpToolset("actor", scripted_server(version, tools=[declared("echo", inputSchema=takes_text)]))
        agent = Agent(model, tools=[toolset], policy=Policy(allow=["run_code", "actor__echo"]), code=True)
        made = await agent.run("go")
        await agent.aclose()
        assert sorted(one.tool for one in made.calls) == ["actor__echo", "run_code"], result_text(
            last_results(model.requests[1])[0]
        )
        (result,) = last_results(model.requests[1])
        assert result_text(result).isdigit()
        assert "of one call" not in result_text(result)

    asyncio.run(work())


def test_001_229_what_no_rule_allows_is_denied_to_code_too() -> None:
    async def work() -> None:
        model = ScriptedModel(model_turn(model_call("run_code", {"code": "await actor__echo()"})), text_turn("done"))
        agent = Agent(
            model, tools=[McpToolset("actor", scripted_server())], policy=Policy(allow=["run_code"]), code=True
        )
        made = await agent.run("go")
        await agent.aclose()
        assert [one.approval for one in made.calls if one.tool == "actor__echo"] == ["denied: no approver available"]
        assert "denied: actor__echo was not run" in result_text(last_results(model.requests[1])[0])

    asyncio.run(work())


def test_001_314_367_a_recorded_run_is_replayed_and_holds_no_secret(tmp_path: Path) -> None:
    canary, runs = "canary-value-of-a-key", list[str]()

    @tool
    def leak(what: str) -> str:
        runs.append(what)
        return f"{what} {canary}"

    model = ScriptedModel(model_turn(model_call("leak", {"what": "the key"})), text_turn("done"))
    journal = RunStore(tmp_path / "runs.db")
    made = Agent(model, tools=[leak], policy=ALL, secrets=[canary], journal=journal).run("go", facts={})
    assert runs == ["the key"]
    assert replay_differences(journal, made.id, [leak]) == []
    assert runs == ["the key"], "a replay executes nothing"
    journal.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"[removed]" in kept
    assert canary.encode() not in kept


def test_001_357_an_interaction_is_kept_for_a_time_and_then_unknown(clock: Clock) -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, extra_config='[state]\npath = ":memory:"\nttl = 3600')) as gateway,
        ):

            async def interact(previous: str | None = None) -> tuple[int, dict[str, str]]:
                body = {"model": "m", "input": "Hi", "previous_interaction_id": previous}
                asked = {name: value for name, value in body.items() if value is not None}
                answer = await gateway.post("/v1beta/interactions", json.dumps(asked).encode())
                return answer.status, json.loads(await answer.read(100_000))

            status, first = await interact()
            assert status == 200
            assert (await interact(first["id"]))[0] == 200
            clock.advance(3601)
            status, _ = await interact(first["id"])
            assert status == 404
            assert len(script.requests) == 2

    run_async(work())


def test_000_73_arguments_are_a_json_string_whatever_is_in_them() -> None:
    given = {"path": 'a "b"\n\\c', "lines": [1, 2.5, None, True], "nested": {"ü": {"empty": {}}}}
    said = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": given}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]},
        ],
    }
    body = json.loads(tw.translate(said, "anthropic", "openai-chat").to_bytes())
    (made,) = body["messages"][1]["tool_calls"]
    assert isinstance(made["function"]["arguments"], str)
    assert json.loads(made["function"]["arguments"]) == given
