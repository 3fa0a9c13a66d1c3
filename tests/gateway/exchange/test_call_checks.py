"""Calls are checked against the declared tools, counted by provider and model, and reported if they are broken."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.support.gateway.emulated_exchange import canonical_response, encode_http_response
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    journal_config,
    one_provider_config,
    read_journal,
    run_async,
    run_gateway,
)
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire import translate
from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, ToolGroup
from toolwire.gateway.exchange.call_checks import CallChecker, DeclaredTools
from toolwire.protocols import PROTOCOLS

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = FunctionTool(name="weather", parameters=Raw(json.dumps(SCHEMA).encode()))
VALID = '{"city": "Oslo"}'


def fault_of(call: ToolCall, *tools: Any) -> str | None:
    request = Request(origin="openai-chat", model="m", tools=tools or (WEATHER,), messages=())
    fault = DeclaredTools(request).find_fault(call)
    return None if fault is None else fault.outcome


def call(name: str = "weather", arguments: str = VALID, **fields: Any) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=arguments, **fields)


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (call(), None),
        (call(arguments="{"), "invalid_json"),
        (call(arguments='{"city": NaN}'), "invalid_json"),
        (call(arguments="[" * 100_000), "invalid_json"),
        (call(arguments=""), "schema_mismatch"),
        (call(arguments='{"city": 1}'), "schema_mismatch"),
        (call(arguments='"Oslo"'), "schema_mismatch"),
        (call("wether"), "unknown_tool"),
        (call("weather", namespace="other"), None),  # protocols without namespaces leave it to the name
        (call(native="computer_call", arguments="?"), None),
    ],
)
def test_faults_of_calls_are_found(made: ToolCall, outcome: str | None) -> None:
    assert fault_of(made) == outcome


def test_tools_of_every_kind_are_known() -> None:
    group = ToolGroup(name="maps", tools=(FunctionTool(name="route"),))
    native = NativeTool(protocol="anthropic", kind="bash", name="bash", executor="client", body=Raw(b"{}"))
    tools = (group, FreeformTool(name="patch"), native, FunctionTool(name="plain"))
    assert fault_of(call("route", "{}", namespace="maps"), *tools) is None
    assert fault_of(call("maps__route", "{}"), *tools) is None
    assert fault_of(call("patch", "*** no JSON", shape="freeform"), *tools) is None
    assert fault_of(call("bash", "{}"), *tools) is None
    assert fault_of(call("plain", "{}"), *tools) is None
    assert fault_of(call("plain", "[]"), *tools) == "schema_mismatch"


@pytest.mark.parametrize("schema", [b'{"type": 5}', b'{"$ref": "https://example.com/schema"}'])
def test_call_with_an_invalid_schema_is_not_judged(schema: bytes) -> None:
    assert fault_of(call(), FunctionTool(name="weather", parameters=Raw(schema))) is None


def test_call_that_a_limit_cut_off_is_not_counted() -> None:
    outcomes: list[str] = []
    request = Request(origin="openai-chat", model="m", tools=(WEATHER,), messages=())
    checker = CallChecker(request, PROTOCOLS["openai-chat"], outcomes.append)
    response = canonical_response(call(arguments="{"), reason="max_tokens")
    assert not checker.check_response(response)
    checker.report_outcomes()
    events = list(unfold(response))
    checker.observe(events)
    assert (outcomes, checker.losses) == ([], [])


MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def request_with_tools(client: str, *, stream: bool) -> tuple[str, bytes]:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "stream": stream}
    translation = translate(body, "openai-chat", client, model="m", stream=stream)
    return translation.route.path or "", translation.to_bytes()


@asynccontextmanager
async def gateway_for(
    upstream: str, *calls: ToolCall, stream: bool, extra: str = ""
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    answer = canonical_response(Text(text="Let me see."), *calls)
    script = ScriptedUpstream(encode_http_response(upstream, answer, stream=stream))
    async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, upstream, extra)) as gateway:
        yield gateway, script


@MODES
@pytest.mark.parametrize("client", ["anthropic", "openai-chat", "openai-responses"])
@pytest.mark.parametrize("upstream", ["openai-chat", "anthropic", "openai-responses"])
def test_calls_are_counted_by_provider_and_model(tmp_path: Path, client: str, upstream: str, stream: bool) -> None:
    calls = [call(), call("wether"), call(arguments='{"city": 1}')]
    made = [ToolCall(id=f"c{number}", name=one.name, arguments=one.arguments) for number, one in enumerate(calls)]

    async def work() -> None:
        async with gateway_for(upstream, *made, stream=stream, extra=journal_config(tmp_path, "")) as (gateway, _):
            response = await gateway.post(*request_with_tools(client, stream=stream))
            assert response.status == 200, await response.read(10_000)
            await response.read(100_000)
            _, metrics = await gateway.get("/metrics")
        for outcome in ("valid", "unknown_tool", "schema_mismatch"):
            sample = f'toolwire_calls_total{{provider="up",model="m",outcome="{outcome}"}} 1\n'
            assert sample in metrics.decode()

    run_async(work())
    (record,) = read_journal(tmp_path)
    assert record.calls == {"valid": 1, "unknown_tool": 1, "schema_mismatch": 1}


@MODES
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_broken_arguments_are_in_the_loss_report(client: str, stream: bool) -> None:
    async def work() -> None:
        async with gateway_for("openai-chat", call(arguments='{"city":'), stream=stream) as (gateway, _):
            response = await gateway.post(*request_with_tools(client, stream=stream))
            await response.read(100_000)
            exchange = response.headers["toolwire-exchange"]
            _, report = await gateway.get(f"/toolwire/exchanges/{exchange}/losses")
        losses = [loss for loss in json.loads(report)["losses"] if "JSON" in loss["reason"]]
        (loss,) = losses
        assert (loss["direction"], loss["severity"] != "info") == ("response", True)
        assert loss["path"] == "/choices/0/message/tool_calls/0/function/arguments"

    run_async(work())


def test_request_without_tools_has_no_checker() -> None:
    async def work() -> None:
        async with gateway_for("openai-chat", call(), stream=False) as (gateway, _):
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            response = await gateway.post("/v1/chat/completions", json.dumps(body).encode())
            await response.read(100_000)
            _, metrics = await gateway.get("/metrics")
        assert b"toolwire_calls_total" not in metrics

    run_async(work())


def test_message_without_calls_counts_nothing() -> None:
    checker = CallChecker(
        Request(origin="openai-chat", model="m", tools=(WEATHER,), messages=()),
        PROTOCOLS["openai-chat"],
        lambda _: pytest.fail("there is no call"),
    )
    message = Message(role="assistant", parts=(Text(text="Hi"),))
    assert not checker.check_response(canonical_response(*message.parts))
