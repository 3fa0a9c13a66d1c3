"""Requests of a server to its client, sampling, roots and logs, in both protocol versions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    OLD_VERSION,
    RecordingApprover,
    call_context,
    find_tool,
    open_toolset,
    read_message_log,
    scripted_server,
    text_of_output,
)
from toolwire.agent import Agent
from toolwire.canonical.response import Usage
from toolwire.runtime.calls.approval import ApprovalAnswer, Approver, NoApprover
from toolwire.runtime.mcp.config import LogLevel, McpServerConfig, SamplingConfig
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.model import Model
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.budget import Budget, ParentRun
from toolwire.runtime.run.events import CallLogged
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.tool import ToolContext, ToolError, ToolOutput
from toolwire.testing import ScriptedModel, call, fail, respond

both = pytest.mark.parametrize("version", MCP_VERSIONS)


async def run_tool(toolset: McpToolset, name: str, context: ToolContext, arguments: Any = None) -> ToolOutput:
    output = await (await find_tool(toolset, name)).run(arguments or {}, context)
    assert isinstance(output, ToolOutput)
    return output


def sampling_server(version: str, **limits: Any) -> McpServerConfig:
    return replace(scripted_server(version), sampling=SamplingConfig(**limits))


def context_with(
    model: Model | None,
    approver: Approver | None = None,
    limits: RunLimits | None = None,
    usages: list[Usage | None] | None = None,
) -> ToolContext:
    used: list[Usage | None] = [] if usages is None else usages
    run = ParentRun(budget=Budget(limits or RunLimits()), on_event=lambda _: None, add_usage=used.append)
    return replace(call_context(approver), model=model, parent_run=run)


@both
def test_sampling_is_answered_by_the_model_of_the_run_after_approval(version: str) -> None:
    model = ScriptedModel(respond("the secret", usage=Usage(input_tokens=7, output_tokens=2)))
    person, usages = RecordingApprover(), list[Usage | None]()

    async def work() -> ToolOutput:
        async with open_toolset(sampling_server(version)) as toolset:
            return await run_tool(toolset, "sample", context_with(model, person, usages=usages))

    output = asyncio.run(work())
    answer = json.loads(text_of_output(output))
    assert answer["content"] == {"type": "text", "text": "the secret"}
    assert (answer["role"], answer["model"], answer["stopReason"]) == ("assistant", "scripted", "endTurn")
    assert usages == [Usage(input_tokens=7, output_tokens=2, requests=1)]
    (request,) = model.requests
    assert request.system is not None
    assert request.system[0].text == "Be brief."
    assert request.sampling is not None
    assert (request.sampling.max_tokens, request.sampling.temperature) == (1000, 0.5)
    (asked,) = person.requests
    assert asked.reason == "MCP server 'actor' asks the model during t"
    assert asked.preview == "system: Be brief.\nuser: say the secret"
    assert json.loads(asked.arguments) == {"server": "actor", "model": "scripted", "max_tokens": 1000}


async def refusal(version: str, context: ToolContext, arguments: Any = None, **limits: Any) -> str:
    """Return why a sampling request is refused: in the older version, the server gets an error."""
    async with open_toolset(sampling_server(version, **limits)) as toolset:
        if version == OLD_VERSION:
            answer = json.loads(text_of_output(await run_tool(toolset, "sample", context, arguments)))
            return str(answer["message"])
        with pytest.raises(ToolError) as error:
            await run_tool(toolset, "sample", context, arguments)
        assert error.value.kind == "denied"
        return str(error.value)


@both
@pytest.mark.parametrize("decision", ["no", "later"])
def test_sampling_that_the_user_rejects_reaches_no_model(version: str, decision: ApprovalAnswer) -> None:
    model = ScriptedModel()
    context = context_with(model, RecordingApprover(decision=decision))
    assert "the user rejected the sampling request" in asyncio.run(refusal(version, context))
    assert model.requests == []


@both
def test_sampling_without_a_person_needs_a_configuration_that_asks_nobody(version: str) -> None:
    async def work() -> None:
        assert "rejected" in await refusal(version, context_with(ScriptedModel(), NoApprover()))
        async with open_toolset(sampling_server(version, approval="never")) as toolset:
            output = await run_tool(toolset, "sample", context_with(ScriptedModel("yes"), NoApprover()))
        assert '"yes"' in text_of_output(output)

    asyncio.run(work())


@both
@pytest.mark.parametrize(
    ("arguments", "limits", "reason"),
    [
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 200_001}}]}, None, "longer than"),
        ({"maxTokens": 0}, None, "no tokens are left"),
        ({}, RunLimits(tokens=0), "0 of 0 tokens were used"),
        ({}, RunLimits(requests=0), "limit of 0 model requests"),
        ({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}, None, "tools is not supported"),
    ],
)
def test_sampling_beyond_a_limit_is_refused(
    version: str, arguments: Any, limits: RunLimits | None, reason: str
) -> None:
    model = ScriptedModel()
    assert reason in asyncio.run(refusal(version, context_with(model, limits=limits), arguments))
    assert model.requests == []


@both
def test_sampling_with_a_failed_or_missing_model_is_refused(version: str) -> None:
    assert "the model failed" in asyncio.run(refusal(version, context_with(ScriptedModel(fail(message="busy")))))
    assert "no model is configured" in asyncio.run(refusal(version, context_with(None)))


def test_sampling_counts_toward_the_limits_of_the_run() -> None:
    used = Usage(input_tokens=10, output_tokens=20)
    model = ScriptedModel(*[respond("x", usage=used)] * 3)

    async def work() -> list[Any]:
        async with open_toolset(sampling_server(OLD_VERSION, approval="never")) as toolset:
            output = await run_tool(toolset, "sample_often", context_with(model, limits=RunLimits(tokens=65)))
        answers: list[Any] = json.loads(text_of_output(output))
        return answers

    assert [answer.get("model") for answer in asyncio.run(work())] == ["scripted"] * 3
    assert [request.sampling and request.sampling.max_tokens for request in model.requests] == [9, 9, 5]


def test_sampling_requests_of_one_call_are_limited() -> None:
    async def work() -> list[Any]:
        async with open_toolset(sampling_server(OLD_VERSION, requests=2, approval="never")) as toolset:
            output = await run_tool(toolset, "sample_often", context_with(ScriptedModel("1", "2", "3")))
        answers: list[Any] = json.loads(text_of_output(output))
        return answers

    answers = asyncio.run(work())
    assert [answer.get("model") for answer in answers] == ["scripted", "scripted", None]
    assert "2 sampling requests" in answers[2]["message"]


def test_approval_always_covers_later_sampling_of_the_run() -> None:
    person = RecordingApprover(decision="always")

    async def work() -> None:
        async with open_toolset(sampling_server(OLD_VERSION)) as toolset:
            await run_tool(toolset, "sample_often", context_with(ScriptedModel("1", "2", "3"), person))

    asyncio.run(work())
    assert len(person.requests) == 1


def test_configured_sampling_model_is_opened_once_and_closed() -> None:
    opened: list[str] = []

    class ClosingModel(ScriptedModel):
        async def close(self) -> None:
            opened.append("closed")

    async def open_model(name: str) -> Model:
        opened.append(name)
        return ClosingModel("a", "b", name=name)

    async def work() -> None:
        toolset = McpToolset("actor", sampling_server(OLD_VERSION, model="other/model"), open_model=open_model)
        for _ in range(2):
            output = await run_tool(toolset, "sample", context_with(ScriptedModel()))
            assert json.loads(text_of_output(output))["model"] == "other/model"
        await toolset.close()

    asyncio.run(work())
    assert opened == ["other/model", "closed"]


@both
def test_server_without_permission_may_not_sample(version: str, tmp_path: Path) -> None:
    async def work() -> str:
        async with open_toolset(scripted_server(version, log=str(tmp_path / "log"))) as toolset:
            try:
                return text_of_output(await run_tool(toolset, "sample", context_with(ScriptedModel())))
            except ToolError as error:
                return str(error)

    assert "not supported" in (reason := asyncio.run(work())) or "unsupported" in reason
    assert '"sampling"' not in (tmp_path / "log").read_text()


@both
def test_server_gets_the_configured_roots(version: str, tmp_path: Path) -> None:
    async def work() -> Any:
        config = scripted_server(version, log=str(tmp_path / "log"))
        async with open_toolset(replace(config, roots=(str(tmp_path / "my project"),))) as toolset:
            return json.loads(text_of_output(await run_tool(toolset, "roots", call_context())))

    assert asyncio.run(work())["roots"] == [{"uri": f"file://{tmp_path}/my%20project", "name": "my project"}]
    # `server/discover`, then `initialize` or the first request of the newer version
    for message in read_message_log(tmp_path / "log")[:2]:
        params = message["params"]
        offered = params.get("capabilities") or params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert "roots" in offered


@both
def test_logs_of_a_server_are_events_of_the_run(version: str) -> None:
    messages = [["debug", "hidden"], ["info", "shown\u200b"], ["error", {"code": 5}]]
    model = ScriptedModel(call("actor__log", messages=messages), "done")
    toolset = McpToolset("actor", scripted_server(version, capabilities=["logging"]))
    with Agent(model, tools=[toolset], policy=Policy(allow=["*"])) as agent:
        events = [event for event in agent.stream("go") if isinstance(event, CallLogged)]
    assert [(event.level, event.text) for event in events] == [("info", "db: shown"), ("error", 'db: {"code":5}')]


@both
@pytest.mark.parametrize(("level", "requested"), [("warning", "warning"), ("off", None)])
def test_server_is_asked_for_logs_of_the_configured_level(
    version: str, level: LogLevel, requested: str | None, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    logged: list[str] = []

    async def work() -> str:
        config = replace(scripted_server(version, capabilities=["logging"], log=str(log)), log_level=level)
        async with open_toolset(config) as toolset:
            context = replace(call_context(), report_log=lambda level, text: logged.append(level))
            messages = [["info", "a"], ["warning", "b"]]
            return text_of_output(await run_tool(toolset, "log", context, {"messages": messages}))

    text = asyncio.run(work())
    set_levels = [message["params"]["level"] for message in read_message_log(log) if "setLevel" in message["method"]]
    assert (set_levels if version == OLD_VERSION else [json.loads(text)]) == [requested] * bool(
        requested or version != OLD_VERSION
    )
    assert logged == ["warning"] * bool(requested)


def test_logs_of_one_call_are_limited_and_warnings_between_calls_are_kept() -> None:
    logged: list[str] = []

    async def work() -> list[str]:
        async with open_toolset(scripted_server(OLD_VERSION, start_logs=[["info", "a"], ["error", "b"]])) as toolset:
            context = replace(call_context(), report_log=lambda _, text: logged.append(text))
            await run_tool(toolset, "log", context, {"messages": [["info", str(number)] for number in range(300)]})
            return toolset.take_warnings()

    assert asyncio.run(work()) == ["MCP server 'actor': error: db: b"]
    assert 0 < len(logged) <= 200
