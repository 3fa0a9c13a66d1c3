"""Steering: user messages for a response in progress, over the WebSocket of the openai SDK."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

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
def only_place() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=parse_script(SCRIPT, "script"))) as place:
        yield place


@pytest.fixture
def place(only_place: GatewaySetup) -> GatewaySetup:
    only_place.reset()
    return only_place


@pytest.fixture
def upstream_held(place: GatewaySetup) -> threading.Event:
    """Hold the rest of each upstream response until the event is set."""
    return place.upstream.hold(lambda _, body: any(word in body for word in (b"three", b"look")))


@pytest.fixture
def connection(place: GatewaySetup) -> Iterator[Any]:
    with (
        openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=API_KEY, max_retries=0) as client,
        client.responses.connect() as found,
    ):
        yield found


def events(connection: Any, until: str, failing: str = "") -> list[Any]:
    """Receive events up to one of this type; fail on errors, except for one kind."""
    found: list[Any] = []
    while not found or found[-1].type != until:
        found.append(connection.recv())
        if found[-1].type in ("error", "response.failed", "response.steer.failed"):
            assert found[-1].type in (until, failing), found[-1]
    return found


def begun(connection: Any, upstream: str, said: str, **more: Any) -> str:
    """Return the id of a response once it has started its text."""
    connection.response.create(model=routed_model(upstream), input=said, store=False, tools=[WEATHER_FUNCTION], **more)
    first = events(connection, "response.output_item.added")[0]
    id: str = first.response.id
    return id


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_successor_follows_by_itself(
    place: GatewaySetup, connection: Any, upstream_held: threading.Event, upstream: str
) -> None:
    id = begun(connection, upstream, "Count.", instructions="Be kind.")
    connection.response.steer(previous_response_id=id, input="And in Rome?")
    accepted = events(connection, "response.steer.accepted")[-1]
    upstream_held.set()
    told = events(connection, "response.completed")
    assert accepted.steer.previous_response_id == id
    assert accepted.steer.id
    assert told[-1].response.output_text == "one two three four five six"
    following = events(connection, "response.completed")
    assert following[0].type == "response.created"
    assert following[0].response.id != id
    assert following[-1].response.output_text == "It is warm."
    last = place.upstream.exchanges[-1].request_body
    assert (b"one two three four five six" in last, b"And in Rome?" in last) == (True, True)
    assert (last.count(b"Be kind."), last.count(b'"get_weather"')) == (1, 1)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_what_is_said_before_a_call_waits_for_its_result(
    place: GatewaySetup, connection: Any, upstream_held: threading.Event, upstream: str
) -> None:
    id = begun(connection, upstream, "What is the weather in Oslo?")
    parts = [{"type": "input_text", "text": "And in Rome?"}]
    connection.response.steer(previous_response_id=id, input=[{"type": "message", "role": "user", "content": parts}])
    told = events(connection, "response.steer.accepted")
    upstream_held.set()
    told += events(connection, "response.steer.pending")
    assert [event.type for event in told if event.type.startswith("response.steer")] == [
        "response.steer.accepted",
        "response.steer.pending",
    ]
    pending = told[-1]
    assert pending.reason == "waiting_for_required_input"
    (required,) = pending.required_input
    assert (required.type, required.name) == ("function_call_output", "get_weather")
    result = required.to_dict() | {"output": "snow"}
    connection.response.create(
        model=routed_model(upstream), input=[result], previous_response_id=id, store=False, tools=[WEATHER_FUNCTION]
    )
    following = events(connection, "response.completed")
    assert following[-1].response.output_text == "It is warm."
    seen = place.upstream.exchanges[-1]
    assert [one.call_id for one in seen.results(upstream)] == [one.id for one in seen.calls(upstream)]
    assert b"And in Rome?" in seen.request_body


def test_what_is_given_back(connection: Any, upstream_held: threading.Event) -> None:
    def refused(id: str, said: Any = "And?") -> tuple[str, Any]:
        connection.response.steer(previous_response_id=id, input=said)
        failed = events(connection, "response.steer.failed")[-1]
        assert failed.steer.previous_response_id == id
        return failed.error.code, json.loads(json.dumps(failed.steer.input, default=vars))

    assert refused("resp_of_nobody") == ("response_not_found", "And?")
    id = begun(connection, "anthropic", "Slowly.")
    assert refused(id, []) == ("invalid_input", [])
    assistant = [{"type": "message", "role": "assistant", "content": "I say."}]
    assert refused(id, assistant) == ("invalid_input", assistant)
    odd = [{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "I say."}]}]
    assert refused(id, odd) == ("invalid_input", odd)
    for _ in range(16):
        connection.response.steer(previous_response_id=id, input="x")
    assert refused(id)[0] == "too_many_pending_steers"
    upstream_held.set()
    events(connection, "response.completed")
    events(connection, "response.completed")
    done = begun(connection, "anthropic", "Count.")
    events(connection, "response.completed")
    assert refused(done) == ("response_already_completed", "And?")


def test_a_successor_that_is_refused_gives_it_back_and_the_connection_goes_on(
    connection: Any, upstream_held: threading.Event
) -> None:
    id = begun(connection, "anthropic", "Count.")
    connection.response.steer(previous_response_id=id, input="be brief")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    events(connection, "response.completed")
    failed = events(connection, "response.steer.failed")[-1]
    assert (failed.error.code, failed.steer.input) == ("successor_creation_failed", "be brief")
    assert "No." in failed.error.message
    assert begun(connection, "anthropic", "Count.")


def test_an_answer_that_fails_gives_it_back(connection: Any, upstream_held: threading.Event) -> None:
    id = begun(connection, "anthropic", "break")
    connection.response.steer(previous_response_id=id, input="And?")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    failed = events(connection, "response.steer.failed", "response.failed")[-1]
    assert (failed.error.code, failed.steer.input) == ("response_not_active", "And?")


def test_a_request_that_goes_elsewhere_gives_it_back(connection: Any, upstream_held: threading.Event) -> None:
    id = begun(connection, "anthropic", "What is the weather in Oslo?")
    connection.response.steer(previous_response_id=id, input="And in Rome?")
    events(connection, "response.steer.accepted")
    upstream_held.set()
    events(connection, "response.steer.pending")
    connection.response.create(model=routed_model("anthropic"), input="Count.", store=False)
    told = events(connection, "response.completed", "response.steer.failed")
    assert (told[0].type, told[0].error.code) == ("response.steer.failed", "response_not_active")
    assert told[-1].response.output_text == "one two three four five six"


def test_what_is_in_a_conversation_is_not_steered(
    place: GatewaySetup, connection: Any, upstream_held: threading.Event
) -> None:
    with openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=API_KEY) as client:
        conversation = client.conversations.create().id
    connection.response.create(model=routed_model("anthropic"), input="Count.", conversation=conversation)
    id = events(connection, "response.output_item.added")[0].response.id
    connection.response.steer(previous_response_id=id, input="And?")
    assert events(connection, "response.steer.failed")[-1].error.code == "steering_not_supported"
    upstream_held.set()


def test_it_is_told_in_the_lane_of_its_answer(place: GatewaySetup, upstream_held: threading.Event) -> None:
    with open_connection(place, "anthropic") as codex:
        codex.send("Count.", stream_id="left")
        id = codex.event()["response"]["id"]
        steer = {"type": "response.steer", "previous_response_id": id, "input": "And in Rome?"}
        codex.connection.send(json.dumps(steer))
        told = [codex.event()]
        while told[-1]["type"] != "response.steer.accepted":
            told.append(codex.event())
        upstream_held.set()
        told += [*codex.events(), *codex.events()]
        assert {event["stream_id"] for event in told} == {"left"}
        assert told[-1]["response"]["output"][-1]["content"][0]["text"] == "It is warm."
