"""WebSockets and the stored state that Responses clients expect (WS-1 to WS-9)."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.gateway.codex_websocket import (
    WEATHER_FUNCTION,
    function_outputs_for,
    open_connection,
    output_text,
    user_item,
)
from tests.support.gateway.setup import UPSTREAM_KEY, GatewaySetup, routed_model, serve_gateway
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import serve_app
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

KEYS = ("the-key-of-somebody", "the-key-of-another")
SCRIPT = """
[[turns]]
when = "take your time"
repeat = 0
text = "at last"

[[turns]]
when = "for very long"
repeat = 0
text = "never"
delay = 3600

[[turns]]
when = "much too long"
repeat = 0
error = {kind = "too_large", message = "That is too long."}
"""
CONFIG = f'[server]\nkeys = ["{KEYS[0]}", "{KEYS[1]}"]\n'


@pytest.fixture(scope="module")
def module_setup() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=parse_script(SCRIPT.encode(), "script")), CONFIG) as setup:
        yield setup


@pytest.fixture
def setup(module_setup: GatewaySetup) -> GatewaySetup:
    module_setup.reset()
    return module_setup


def test_ws_1_the_handshake_needs_no_model_and_a_warm_up_gets_an_empty_response(setup: GatewaySetup) -> None:
    with open_connection(setup, "anthropic", KEYS[0]) as codex:
        codex.send([], generate=False)
        created, *between, completed = codex.events()
        assert created["type"] == "response.created"
        assert [event["type"] for event in between] == ["response.in_progress"]
        assert completed["type"] == "response.completed"
        assert completed["response"]["output"] == []
        assert completed["response"]["id"] == created["response"]["id"]
        assert setup.upstream.exchanges == []
        assert "Hi" in output_text(codex.create_response("Hi", completed["response"]["id"]))


def test_ws_2_a_model_named_only_in_the_handshake_reaches_the_upstream(setup: GatewaySetup) -> None:
    for upstream in SDK_CLIENTS:
        with open_connection(setup, None, KEYS[0], f"?model={routed_model(upstream)}") as codex:
            assert "Hi" in output_text(codex.create_response("Hi"))
        assert setup.upstream.exchanges[-1].request(upstream).model == SDK_CLIENTS[upstream][1]


def test_ws_3_the_upgrade_is_accepted_and_clients_can_fall_back_without_it(setup: GatewaySetup) -> None:
    with open_connection(setup, "gemini", KEYS[0]) as codex:
        assert codex.connection.response is not None
        assert codex.connection.response.status_code == 101
    with serve_gateway(Simulator(), "[limits]\nsockets = 0") as without:
        with pytest.raises(InvalidStatus) as refused, open_connection(without, "gemini"):
            pass
        assert refused.value.response.status_code == 426
        with openai.OpenAI(base_url=f"{without.base_url}/v1", api_key="any", max_retries=0, timeout=DEADLINE) as client:
            stream = client.responses.create(model=routed_model("gemini"), input="Hi", store=False, stream=True)
            assert [event.type for event in stream][-1] == "response.completed"


def test_ws_4_another_key_reads_nothing_over_any_transport(setup: GatewaySetup) -> None:
    with (
        open_connection(setup, "anthropic", KEYS[0]) as codex,
        open_connection(setup, "anthropic", KEYS[1]) as stranger,
    ):
        stored = codex.create_response("What is the weather in Oslo?", store=True)
        unstored = codex.create_response("What is the weather in Rome?", stored["id"])
        exchange_count = len(setup.upstream.exchanges)
        for id in (stored["id"], unstored["id"]):
            error = stranger.create_rejected("What did I say?", id)
            assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
        assert len(setup.upstream.exchanges) == exchange_count
        with open_connection(setup, "anthropic", KEYS[0]) as second_connection:
            assert output_text(second_connection.create_response(function_outputs_for(stored, "snow"), stored["id"]))
    with pytest.raises(InvalidStatus) as refused, open_connection(setup, "anthropic", "no-key-of-theirs"):
        pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["error"]["type"] == "authentication_error"


def test_ws_5_incremental_turns_reach_a_stateless_upstream_complete(setup: GatewaySetup) -> None:
    with open_connection(setup, "openai-chat", KEYS[0]) as codex:
        first = codex.create_response("What is the weather in Oslo?")
        # A failed turn changes nothing: the next one continues from the same response.
        error = codex.create_rejected([*function_outputs_for(first, "snow"), user_item("much too long")], first["id"])
        assert error["status"] == 413
        second = codex.create_response(function_outputs_for(first, "snow"), first["id"])
        assert "snow" in output_text(second)
    messages = json.loads(setup.upstream.exchanges[-1].request_body)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    # Unstored responses end with their connection; the complete history over SSE works.
    with open_connection(setup, "openai-chat", KEYS[0]) as second_connection:
        error = second_connection.create_rejected("And Rome?", second["id"])
        assert error["error"]["code"] == "previous_response_not_found"
    history: list[Any] = [
        user_item("What is the weather in Oslo?"),
        *first["output"],
        *function_outputs_for(first, "snow"),
        *second["output"],
        user_item("And the weather in Rome?"),
    ]
    with openai.OpenAI(base_url=f"{setup.base_url}/v1", api_key=KEYS[0], max_retries=0, timeout=DEADLINE) as client:
        stream = client.responses.create(
            model=routed_model("openai-chat"), input=history, tools=[WEATHER_FUNCTION], store=False, stream=True
        )
        assert [event.type for event in stream][-1] == "response.completed"
    roles = [message["role"] for message in json.loads(setup.upstream.exchanges[-1].request_body)["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_ws_6_an_oversized_message_is_reported_and_the_connection_continues() -> None:
    script = parse_script(SCRIPT.encode(), "script")
    with (
        serve_gateway(Simulator(script=script), "[limits]\nbody = 5000") as small,
        open_connection(small, "anthropic") as codex,
    ):
        error = codex.create_rejected("x" * 6000)
        assert (error["status"], error["error"]["code"]) == (413, "message_too_big")
        assert small.upstream.exchanges == []
        upstream_error = codex.create_rejected("this is much too long")  # by the upstream
        assert upstream_error["status"] == 413
        assert "too long" in upstream_error["error"]["message"]
        assert "Hi" in output_text(codex.create_response("Hi"))


def test_ws_7_only_the_providers_key_and_headers_go_upstream() -> None:
    received_headers: list[dict[str, str]] = []
    simulator = Simulator()

    async def recording_app(scope: Any, receive: Any, send: Any) -> None:
        received_headers.append({name.decode(): value.decode() for name, value in scope.get("headers", ())})
        await simulator(scope, receive, send)

    with serve_app(recording_app) as url:
        extra_provider = f'[providers.extra]\nprotocol = "openai-chat"\nbase_url = "{url}"\napi_key = "the-providers"\n'
        extra_provider += 'headers = {"x-team" = "blue"}\n'
        with (
            serve_gateway(recording_app, CONFIG + extra_provider) as setup,
            open_connection(setup, None, KEYS[0]) as codex,
        ):
            codex.create_response("Hi", model=routed_model("anthropic"))
            codex.create_response("Hi", model="extra/m")
    default_headers, extra_headers = [headers for headers in received_headers if headers]
    assert default_headers["x-api-key"] == UPSTREAM_KEY
    assert extra_headers["authorization"] == "Bearer the-providers"
    assert extra_headers["x-team"] == "blue"
    assert not any(
        KEYS[0] in value or name == "openai-beta" for headers in received_headers for name, value in headers.items()
    )


def test_ws_8_items_that_are_sent_again_are_not_duplicated(setup: GatewaySetup) -> None:
    with open_connection(setup, "openai-responses", KEYS[0]) as codex:
        first = codex.create_response("What is the weather in Oslo?", store=True)
        reference = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        for repeated in (first["output"], reference):
            response = codex.create_response([*repeated, *function_outputs_for(first, "snow")], first["id"])
            assert "snow" in output_text(response)
            items = json.loads(setup.upstream.exchanges[-1].request_body)["input"]
            ids = [item["id"] for item in items if "id" in item]
            assert len(ids) == len(set(ids))
            assert [item["type"] for item in items].count("function_call") == 1


def hold_slow_turns(setup: GatewaySetup) -> threading.Event:
    """Hold the turns that say "take your time" until the event is set."""
    return setup.upstream.hold(lambda exchange, _: b"take your time" in exchange.request_body)


def test_ws_9_one_response_at_a_time_per_channel_and_connections_expire(setup: GatewaySetup) -> None:
    with open_connection(setup, "anthropic", KEYS[0]) as codex:
        released = hold_slow_turns(setup)
        codex.send("take your time")
        codex.send("Hi")
        assert "Hello" in output_text(codex.create_response("Hello", stream_id="other"))  # both were received
        assert len(setup.upstream.exchanges) == 2
        released.set()
        slow, quick = codex.events(), codex.events()
        assert "at last" in output_text(slow[-1]["response"])
        assert "Hi" in output_text(quick[-1]["response"])
        assert {event["response"]["id"] for event in slow if "response" in event} == {slow[0]["response"]["id"]}
        # Channels are independent, and each event names its channel.
        released = hold_slow_turns(setup)
        codex.send("take your time", stream_id="one")
        codex.send("Hi", stream_id="two")
        first_done = codex.events()
        released.set()
        second_done = codex.events()
        assert {event["stream_id"] for event in first_done} == {"two"}
        assert {event["stream_id"] for event in second_done} == {"one"}
        # The last response of each channel is known to the connection, an earlier one is not.
        assert "Hi" in output_text(codex.create_response("Hi", first_done[-1]["response"]["id"], stream_id="one"))
        error = codex.create_rejected("Hi", second_done[-1]["response"]["id"])
        assert error["error"]["code"] == "previous_response_not_found"


def test_a_connection_has_limits(setup: GatewaySetup) -> None:
    released = hold_slow_turns(setup)
    with open_connection(setup, "anthropic", KEYS[0]) as codex:
        for number in range(17):
            codex.send("take your time", stream_id=f"channel-{number}")
        first = codex.event()
        assert (first["stream_id"], first["error"]["code"]) == ("channel-16", "websocket_stream_limit_reached")
        released.set()
    with (
        serve_gateway(Simulator(), "[limits]\nsocket_time = 0.2") as short,
        open_connection(short, "anthropic") as codex,
    ):
        ended = codex.event()
        assert (ended["type"], ended["error"]["code"]) == ("error", "websocket_connection_limit_reached")
        with pytest.raises(ConnectionClosed):
            codex.event()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "JSON object"),
        ("no json", "JSON object"),
        ('{"type": "response.inject"}', "response.create"),
        ("{}", "response.create"),
        ('{"type": "response.create", "stream_id": "a b"}', "stream_id"),
        ('{"type": "response.create", "model": "m", "input": "Hi", "background": true}', "background"),
        ('{"type": "response.create", "model": "unknown-model", "input": "Hi"}', "unknown-model"),
        ('{"type": "response.create", "model": "unknown-model", "input": 5}', "/input"),
    ],
)
def test_an_invalid_message_is_reported_and_the_connection_continues(
    setup: GatewaySetup, text: str, reason: str
) -> None:
    with open_connection(setup, "anthropic", KEYS[0]) as codex:
        codex.connection.send(text)
        error = codex.event()
        assert error["type"] == "error"
        assert 400 <= error["status"] < 500
        assert reason in error["error"]["message"]
        assert "Hi" in output_text(codex.create_response("Hi"))


def test_a_client_that_leaves_releases_the_upstream(setup: GatewaySetup) -> None:
    with open_connection(setup, "anthropic", KEYS[0]) as codex:
        codex.send("for very long")
        wait_until(lambda: setup.upstream.exchanges)
    wait_until(lambda: setup.upstream.exchanges[0].released)
    assert not setup.upstream.exchanges[0].complete


def test_other_paths_have_no_websocket(setup: GatewaySetup) -> None:
    other = GatewaySetup(setup.base_url + "/v1/chat", setup.gateway, setup.upstream)
    with pytest.raises(InvalidStatus) as refused, open_connection(other, "anthropic", KEYS[0]):
        pass
    assert refused.value.response.status_code == 404
