"""Codex's WebSocket and that of the openai SDK, on every upstream."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.gateway.codex_websocket import (
    WEATHER_FUNCTION,
    function_outputs_for,
    open_connection,
    output_text,
    user_item,
)
from tests.support.gateway.setup import SIGNING_PROTOCOLS, GatewaySetup, routed_model, serve_gateway, signatures_in
from tests.support.gateway.stateful_clients import CLIENT_KEYS, RestartableGateway
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS
from toolwire.journal.records import decode_recorded_response
from toolwire.journal.store import open_existing_store
from toolwire.upstream.simulator.app import Simulator


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_codex_takes_three_turns_over_the_websocket(gateway_setup: GatewaySetup, upstream: str) -> None:
    with open_connection(gateway_setup, upstream) as codex:
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
        warm = codex.create_response([developer], generate=False)
        assert warm["output"] == []
        assert gateway_setup.upstream.exchanges == []
        first = codex.create_response("What is the weather in Oslo?", warm["id"])
        second = codex.create_response(function_outputs_for(first, "snow"), first["id"])
        assert "snow" in output_text(second)
        third = codex.create_response("And the weather in Rome?", second["id"])
        fourth = codex.create_response(function_outputs_for(third, "sun"), third["id"])
        assert "sun" in output_text(fourth)
    assert [exchange.status for exchange in gateway_setup.upstream.exchanges] == [200] * 4
    last = gateway_setup.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    assert last.request_body.count(b"Be brief.") == 1
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_codex_takes_three_turns_over_sse(tmp_path: Path, upstream: str) -> None:
    """Without a WebSocket, Codex sends the complete history each time, so a restart has no effect."""
    restarting = RestartableGateway(tmp_path / "state.db")
    history: list[Any] = []
    for question, result in (("What is the weather in Oslo?", "snow"), ("And the weather in Rome?", "sun")):
        gateway_setup = restarting.start()
        history.append(user_item(question))
        called = _create_streamed(gateway_setup, upstream, history)
        history += [*called["output"], *function_outputs_for(called, result)]
        response = _create_streamed(gateway_setup, upstream, history)
        assert result in output_text(response)
        history += response["output"]
    last = gateway_setup.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2
    restarting.stop()


def _create_streamed(gateway_setup: GatewaySetup, upstream: str, history: list[Any]) -> dict[str, Any]:
    with (
        openai.OpenAI(
            base_url=f"{gateway_setup.base_url}/v1", api_key=CLIENT_KEYS[0], max_retries=0, timeout=DEADLINE
        ) as client,
        client.responses.stream(
            model=routed_model(upstream),
            input=history,
            tools=[WEATHER_FUNCTION],
            store=False,
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
        ) as stream,
    ):
        response = stream.get_final_response().model_dump(exclude_none=True)
    items = [{name: value for name, value in item.items() if name != "parsed_arguments"} for item in response["output"]]
    return response | {"output": items}


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_codex_reconnects_after_a_restart(tmp_path: Path, upstream: str) -> None:
    """When the connection is lost, Codex opens another one and sends the complete history."""
    restarting = RestartableGateway(tmp_path / "state.db")
    question = user_item("What is the weather in Oslo?")
    with open_connection(restarting.start(), upstream, CLIENT_KEYS[0]) as codex:
        first = codex.create_response([question])
        results = function_outputs_for(first, "snow")
        second = codex.create_response(results, first["id"])
        assert "snow" in output_text(second)
    gateway_setup = restarting.start()
    with open_connection(gateway_setup, upstream, CLIENT_KEYS[0]) as codex:
        following = user_item("And the weather in Rome?")
        rejected = codex.create_rejected([following], second["id"])
        assert (rejected["status"], rejected["error"]["code"]) == (400, "previous_response_not_found")
        third = codex.create_response([question, *first["output"], *results, *second["output"], following])
        fourth = codex.create_response(function_outputs_for(third, "sun"), third["id"])
        assert "sun" in output_text(fourth)
    last = gateway_setup.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2
    restarting.stop()


@pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")  # the SDK's own affair
@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_openai_sdk_websocket_takes_turns(gateway_setup: GatewaySetup, upstream: str) -> None:
    text = ""
    with (
        openai.OpenAI(
            base_url=f"{gateway_setup.base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE
        ) as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model=routed_model(upstream), input="Hi", store=False)
        for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                assert event.response.output_text == text
                break
    assert "Hi" in text


def test_websocket_events_equal_those_of_the_stream(gateway_setup: GatewaySetup) -> None:
    with open_connection(gateway_setup, "anthropic") as codex:
        codex.send("What is the weather in Oslo?")
        events = codex.events()
    with openai.OpenAI(
        base_url=f"{gateway_setup.base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE
    ) as client:
        responses: Any = client.responses
        streamed = responses.create(
            model=routed_model("anthropic"),
            input=[user_item("What is the weather in Oslo?")],
            tools=[WEATHER_FUNCTION],
            store=False,
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            stream=True,
        )
        assert [event["type"] for event in events] == [event.type for event in streamed]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_websocket_exchanges_are_recorded_in_the_journal(tmp_path: Path) -> None:
    config = f'[journal]\nenabled = true\nbodies = true\npath = "{tmp_path}/journal.db"\n'
    with serve_gateway(Simulator(), config) as gateway_setup, open_connection(gateway_setup, "gemini") as codex:
        warm = codex.create_response([user_item("Be brief.")], generate=False)
        first = codex.create_response("What is the weather in Oslo?", warm["id"])
        codex.create_rejected("And?", "resp_of_nobody")
        store = open_existing_store(tmp_path / "journal.db")
        wait_until(lambda: len(store.latest(10)) == 2)
        records = store.latest(10)
        store.close()
    (completed, failed) = [record for _, record in records]
    assert (completed.client, completed.provider, completed.protocol, completed.status) == (
        "openai-responses",
        "gemini",
        "gemini",
        200,
    )
    assert (completed.stop_reasons, completed.streamed) == (["tool_use"], True)
    assert completed.usage["output_tokens"] > 0
    assert completed.bodies is not None
    assert b"Be brief." in completed.bodies.translated
    answered = decode_recorded_response(completed)
    assert answered is not None
    assert answered.id == first["id"]
    assert (failed.status, failed.error) == (400, "Previous response with id 'resp_of_nobody' not found.")
