"""Steering: user messages for a response in progress, over the WebSocket of the openai SDK."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.deadlines import DEADLINE
from tests.support.gateway.codex_websocket import WEATHER_FUNCTION, open_connection
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")  # the SDK's own affair

SCRIPT = b"""
[[turns]]
when = "in Rome"
repeat = 0
text = "It is warm."

[[turns]]
when = "be brief"
repeat = 0
error = {kind = "invalid_request", message = "No."}

[[turns]]
when = "Count"
repeat = 0
text = "one two three four five six"

[[turns]]
when = "Slowly"
text = "one two three four five six seven eight nine ten"

[[turns]]
when = "break"
repeat = 0
text = "one two three four five six seven eight nine ten"
cut = 8

[[turns]]
when = "in Oslo"
repeat = 0
text = "I will have a look at it."
calls = [{name = "get_weather", arguments = {city = "Oslo"}}]
"""


@pytest.fixture(scope="module")
def shared_gateway() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=parse_script(SCRIPT, "script"))) as gateway_setup:
        yield gateway_setup


@pytest.fixture
def gateway_setup(shared_gateway: GatewaySetup) -> GatewaySetup:
    shared_gateway.reset()
    return shared_gateway


@pytest.fixture
def upstream_held(gateway_setup: GatewaySetup) -> threading.Event:
    """Hold the rest of each upstream response until the event is set."""
    return gateway_setup.upstream.hold(lambda _, body: any(word in body for word in (b"three", b"look")))


@pytest.fixture
def connection(gateway_setup: GatewaySetup) -> Iterator[Any]:
    with (
        openai.OpenAI(
            base_url=f"{gateway_setup.base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE
        ) as client,
        client.responses.connect() as opened_connection,
    ):
        yield opened_connection


def events(connection: Any, until: str, failing: str = "") -> list[Any]:
    """Receive events up to one of this type; fail on errors, except for one kind."""
    opened_connection: list[Any] = []
    while not opened_connection or opened_connection[-1].type != until:
        opened_connection.append(connection.recv())
        if opened_connection[-1].type in ("error", "response.failed", "response.steer.failed"):
            assert opened_connection[-1].type in (until, failing), opened_connection[-1]
    return opened_connection


def start_response(connection: Any, upstream: str, text: str, **more: Any) -> str:
    """Return the id of a response once it has started its text."""
    connection.response.create(model=routed_model(upstream), input=text, store=False, tools=[WEATHER_FUNCTION], **more)
    first = events(connection, "response.output_item.added")[0]
    id: str = first.response.id
    return id


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_steering_starts_a_successor_response(
    gateway_setup: GatewaySetup, connection: Any, upstream_held: threading.Event, upstream: str
) -> None:
    id = start_response(connection, upstream, "Count.", instructions="Be kind.")
    connection.response.steer(previous_response_id=id, input="And in Rome?")
    accepted = events(connection, "response.steer.accepted")[-1]
    upstream_held.set()
    received = events(connection, "response.completed")
    assert accepted.steer.previous_response_id == id
    assert accepted.steer.id
    assert received[-1].response.output_text == "one two three four five six"
    following = events(connection, "response.completed")
    assert following[0].type == "response.created"
    assert following[0].response.id != id
    assert following[-1].response.output_text == "It is warm."
    last = gateway_setup.upstream.exchanges[-1].request_body
    assert (b"one two three four five six" in last, b"And in Rome?" in last) == (True, True)
    assert (last.count(b"Be kind."), last.count(b'"get_weather"')) == (1, 1)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_steering_before_a_call_waits_for_the_result(
    gateway_setup: GatewaySetup, connection: Any, upstream_held: threading.Event, upstream: str
) -> None:
    id = start_response(connection, upstream, "What is the weather in Oslo?")
    parts = [{"type": "input_text", "text": "And in Rome?"}]
    connection.response.steer(previous_response_id=id, input=[{"type": "message", "role": "user", "content": parts}])
    received = events(connection, "response.steer.accepted")
    upstream_held.set()
    received += events(connection, "response.steer.pending")
    assert [event.type for event in received if event.type.startswith("response.steer")] == [
        "response.steer.accepted",
        "response.steer.pending",
    ]
    pending = received[-1]
    assert pending.reason == "waiting_for_required_input"
    (required,) = pending.required_input
    assert (required.type, required.name) == ("function_call_output", "get_weather")
    result = required.to_dict() | {"output": "snow"}
    connection.response.create(
        model=routed_model(upstream), input=[result], previous_response_id=id, store=False, tools=[WEATHER_FUNCTION]
    )
    following = events(connection, "response.completed")
    assert following[-1].response.output_text == "It is warm."
    exchange = gateway_setup.upstream.exchanges[-1]
    assert [part.call_id for part in exchange.results(upstream)] == [part.id for part in exchange.calls(upstream)]
    assert b"And in Rome?" in exchange.request_body


def test_rejected_steering_is_returned(connection: Any, upstream_held: threading.Event) -> None:
    def steer_error(id: str, text: Any = "And?") -> tuple[str, Any]:
        connection.response.steer(previous_response_id=id, input=text)
        failed = events(connection, "response.steer.failed")[-1]
        assert failed.steer.previous_response_id == id
        return failed.error.code, json.loads(json.dumps(failed.steer.input, default=vars))

    assert steer_error("resp_of_nobody") == ("response_not_found", "And?")
    id = start_response(connection, "anthropic", "Slowly.")
    assert steer_error(id, []) == ("invalid_input", [])
    assistant = [{"type": "message", "role": "assistant", "content": "I say."}]
    assert steer_error(id, assistant) == ("invalid_input", assistant)
    odd = [{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "I say."}]}]
    assert steer_error(id, odd) == ("invalid_input", odd)
    for _ in range(16):
        connection.response.steer(previous_response_id=id, input="x")
    assert steer_error(id)[0] == "too_many_pending_steers"
    upstream_held.set()
    events(connection, "response.completed")
    events(connection, "response.completed")
    response_id = start_response(connection, "anthropic", "Count.")
    events(connection, "response.completed")
    assert steer_error(response_id) == ("response_already_completed", "And?")


def test_rejected_successor_returns_the_steering_and_keeps_the_connection(
    connection: Any, upstream_held: threading.Event
) -> None:
    id = start_response(connection, "anthropic", "Count.")
    connection.response.steer(previous_response_id=id, input="be brief")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    events(connection, "response.completed")
    failed = events(connection, "response.steer.failed")[-1]
    assert (failed.error.code, failed.steer.input) == ("successor_creation_failed", "be brief")
    assert "No." in failed.error.message
    assert start_response(connection, "anthropic", "Count.")


def test_failed_response_returns_the_steering(connection: Any, upstream_held: threading.Event) -> None:
    id = start_response(connection, "anthropic", "break")
    connection.response.steer(previous_response_id=id, input="And?")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    failed = events(connection, "response.steer.failed", "response.failed")[-1]
    assert (failed.error.code, failed.steer.input) == ("response_not_active", "And?")


def test_request_to_another_model_returns_the_steering(connection: Any, upstream_held: threading.Event) -> None:
    id = start_response(connection, "anthropic", "What is the weather in Oslo?")
    connection.response.steer(previous_response_id=id, input="And in Rome?")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    events(connection, "response.steer.pending")
    connection.response.create(model=routed_model("anthropic"), input="Count.", store=False)
    received = events(connection, "response.completed", "response.steer.failed")
    assert (received[0].type, received[0].error.code) == ("response.steer.failed", "response_not_active")
    assert received[-1].response.output_text == "one two three four five six"


def test_response_in_a_conversation_cannot_be_steered(
    gateway_setup: GatewaySetup, connection: Any, upstream_held: threading.Event
) -> None:
    with openai.OpenAI(base_url=f"{gateway_setup.base_url}/v1", api_key=API_KEY, timeout=DEADLINE) as client:
        conversation = client.conversations.create().id
    connection.response.create(model=routed_model("anthropic"), input="Count.", conversation=conversation)
    id = events(connection, "response.output_item.added")[0].response.id
    connection.response.steer(previous_response_id=id, input="And?")
    assert events(connection, "response.steer.failed")[-1].error.code == "steering_not_supported"
    upstream_held.set()


def test_steering_events_arrive_in_the_channel_of_their_response(
    gateway_setup: GatewaySetup, upstream_held: threading.Event
) -> None:
    with open_connection(gateway_setup, "anthropic") as codex:
        codex.send("Count.", stream_id="left")
        id = codex.event()["response"]["id"]
        steer = {"type": "response.steer", "previous_response_id": id, "input": "And in Rome?"}
        codex.connection.send(json.dumps(steer))
        received = [codex.event()]
        while received[-1]["type"] != "response.steer.accepted":
            received.append(codex.event())
        upstream_held.set()
        received += [*codex.events(), *codex.events()]
        assert {event["stream_id"] for event in received} == {"left"}
        assert received[-1]["response"]["output"][-1]["content"][0]["text"] == "It is warm."
