"""Codex's WebSocket and that of the openai SDK, on every upstream."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.deadlines import wait_until
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
def test_three_turns_as_codex_takes_them(place: GatewaySetup, upstream: str) -> None:
    with open_connection(place, upstream) as codex:
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
        warm = codex.create_response([developer], generate=False)
        assert warm["output"] == []
        assert place.upstream.exchanges == []
        first = codex.create_response("What is the weather in Oslo?", warm["id"])
        second = codex.create_response(function_outputs_for(first, "snow"), first["id"])
        assert "snow" in output_text(second)
        third = codex.create_response("And the weather in Rome?", second["id"])
        fourth = codex.create_response(function_outputs_for(third, "sun"), third["id"])
        assert "sun" in output_text(fourth)
    assert [seen.status for seen in place.upstream.exchanges] == [200] * 4
    last = place.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    assert last.request_body.count(b"Be brief.") == 1
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_the_same_over_sse(tmp_path: Path, upstream: str) -> None:
    """Without a WebSocket, Codex sends the complete history each time, so a restart has no effect."""
    restarting = RestartableGateway(tmp_path / "state.db")
    history: list[Any] = []
    for question, result in (("What is the weather in Oslo?", "snow"), ("And the weather in Rome?", "sun")):
        place = restarting.start()
        history.append(user_item(question))
        called = _streamed(place, upstream, history)
        history += [*called["output"], *function_outputs_for(called, result)]
        told = _streamed(place, upstream, history)
        assert result in output_text(told)
        history += told["output"]
    last = place.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2
    restarting.stop()


def _streamed(place: GatewaySetup, upstream: str, history: list[Any]) -> dict[str, Any]:
    with (
        openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=CLIENT_KEYS[0], max_retries=0) as client,
        client.responses.stream(
            model=routed_model(upstream),
            input=history,
            tools=[WEATHER_FUNCTION],
            store=False,
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
        ) as stream,
    ):
        told = stream.get_final_response().model_dump(exclude_none=True)
    items = [{name: value for name, value in item.items() if name != "parsed_arguments"} for item in told["output"]]
    return told | {"output": items}


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_restart_is_a_reconnection(tmp_path: Path, upstream: str) -> None:
    """When the connection is lost, Codex opens another one and sends the complete history."""
    restarting = RestartableGateway(tmp_path / "state.db")
    question = user_item("What is the weather in Oslo?")
    with open_connection(restarting.start(), upstream, CLIENT_KEYS[0]) as codex:
        first = codex.create_response([question])
        results = function_outputs_for(first, "snow")
        second = codex.create_response(results, first["id"])
        assert "snow" in output_text(second)
    place = restarting.start()
    with open_connection(place, upstream, CLIENT_KEYS[0]) as codex:
        following = user_item("And the weather in Rome?")
        gone = codex.create_rejected([following], second["id"])
        assert (gone["status"], gone["error"]["code"]) == (400, "previous_response_not_found")
        third = codex.create_response([question, *first["output"], *results, *second["output"], following])
        fourth = codex.create_response(function_outputs_for(third, "sun"), third["id"])
        assert "sun" in output_text(fourth)
    last = place.upstream.exchanges[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(last.request_body)) >= 2
    restarting.stop()


@pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")  # the SDK's own affair
@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_the_websocket_of_the_sdk(place: GatewaySetup, upstream: str) -> None:
    text = ""
    with (
        openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=API_KEY, max_retries=0) as client,
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


def test_the_events_are_those_of_the_stream(place: GatewaySetup) -> None:
    with open_connection(place, "anthropic") as codex:
        codex.send("What is the weather in Oslo?")
        events = codex.events()
    with openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=API_KEY, max_retries=0) as client:
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


def test_what_goes_over_it_is_recorded(tmp_path: Path) -> None:
    more = f'[journal]\nenabled = true\nbodies = true\npath = "{tmp_path}/journal.db"\n'
    with serve_gateway(Simulator(), more) as place, open_connection(place, "gemini") as codex:
        warm = codex.create_response([user_item("Be brief.")], generate=False)
        first = codex.create_response("What is the weather in Oslo?", warm["id"])
        codex.create_rejected("And?", "resp_of_nobody")
        store = open_existing_store(tmp_path / "journal.db")
        wait_until(lambda: len(store.latest(10)) == 2)
        found = store.latest(10)
        store.close()
    (done, refused) = [record for _, record in found]
    assert (done.client, done.provider, done.protocol, done.status) == ("openai-responses", "gemini", "gemini", 200)
    assert (done.stop_reasons, done.streamed) == (["tool_use"], True)
    assert done.usage["output_tokens"] > 0
    assert done.bodies is not None
    assert b"Be brief." in done.bodies.translated
    answered = decode_recorded_response(done)
    assert answered is not None
    assert answered.id == first["id"]
    assert (refused.status, refused.error) == (400, "Previous response with id 'resp_of_nobody' not found.")
