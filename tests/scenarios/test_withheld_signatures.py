"""Signatures that the gateway keeps for Chat and Ollama clients, returned only to their issuer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.setup import SIGNING_PROTOCOLS, GatewaySetup, routed_model, signatures_in
from tests.support.gateway.stateful_clients import CLIENT_KEYS, RestartableGateway
from tests.support.sdk.clients import WEATHER_TOOL
from tests.support.servers.asgi import http_client

FUNCTION = {"type": "function", "function": {"name": WEATHER_TOOL.name, "parameters": WEATHER_TOOL.schema}}
PLACES = {"openai-chat": "/v1/chat/completions", "ollama": "/api/chat"}
QUESTION = {"role": "user", "content": "What is the weather in Oslo?"}
# Effort without thinking.
PAIRS = [
    (client, upstream)
    for client in PLACES
    for upstream in SIGNING_PROTOCOLS
    if (client, upstream) not in {("openai-chat", "anthropic"), ("ollama", "openai-responses")}
]
every_pair = pytest.mark.parametrize(("client", "upstream"), PAIRS)


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[RestartableGateway]:
    found = RestartableGateway(tmp_path / "state.db")
    found.start()
    yield found
    found.stop()


def ask(
    place: GatewaySetup, client: str, upstream: str, messages: list[Any], key: str = CLIENT_KEYS[0]
) -> dict[str, Any]:
    body: dict[str, Any] = {"model": routed_model(upstream), "messages": messages, "tools": [FUNCTION], "stream": False}
    body |= {"reasoning_effort": "high"} if client == "openai-chat" else {"think": True}
    answer = http_client.post(place.base_url + PLACES[client], json=body, headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    told: Any = answer.json()
    message: dict[str, Any] = told["message"] if client == "ollama" else told["choices"][0]["message"]
    return message


def result_of(message: dict[str, Any], client: str, text: str) -> dict[str, Any]:
    (call,) = message["tool_calls"]
    if client == "ollama":
        return {"role": "tool", "tool_name": call["function"]["name"], "content": text}
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def bare(message: dict[str, Any]) -> dict[str, Any]:
    """Return the turn of a client that echoes as little as possible: no reasoning, reformatted arguments."""
    (call,) = message["tool_calls"]
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=2)
        return {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


def issued_and_returned(place: GatewaySetup) -> tuple[set[str], set[str]]:
    return signatures_in(place.upstream.exchanges[0].response_body), signatures_in(
        place.upstream.exchanges[-1].request_body
    )


@every_pair
def test_they_outlive_the_gateway_and_a_client_that_repeats_little(
    restarting: RestartableGateway, client: str, upstream: str
) -> None:
    first = ask(restarting.setup, client, upstream, [QUESTION])
    issued = signatures_in(restarting.setup.upstream.exchanges[0].response_body)
    assert issued
    place = restarting.start()
    history = [QUESTION, bare(first), result_of(first, client, "snow")]
    ask(place, client, upstream, history)
    assert signatures_in(place.upstream.exchanges[-1].request_body) == issued
    # The signatures remain when the conversation continues.
    ask(
        place,
        client,
        upstream,
        [*history, {"role": "assistant", "content": "It snows."}, {**QUESTION, "content": "Hm?"}],
    )
    assert signatures_in(place.upstream.exchanges[-1].request_body) == issued


@every_pair
def test_they_are_for_the_key_that_they_were_kept_for(
    restarting: RestartableGateway, client: str, upstream: str
) -> None:
    place = restarting.setup
    first = ask(place, client, upstream, [QUESTION])
    history = [QUESTION, first, result_of(first, client, "snow")]
    answer = http_client.post(
        place.base_url + PLACES[client],
        json={"model": routed_model(upstream), "messages": history, "tools": [FUNCTION], "stream": False},
        headers={"authorization": f"Bearer {CLIENT_KEYS[1]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued), answer.text


@every_pair
def test_they_are_for_the_conversation_that_they_were_issued_in(
    restarting: RestartableGateway, client: str, upstream: str
) -> None:
    place = restarting.setup
    first = ask(place, client, upstream, [QUESTION])
    other = {"role": "user", "content": "What is the weather in Rome?"}
    http_client.post(
        place.base_url + PLACES[client],
        json={
            "model": routed_model(upstream),
            "messages": [other, first, result_of(first, client, "snow")],
            "tools": [FUNCTION],
            "stream": False,
        },
        headers={"authorization": f"Bearer {CLIENT_KEYS[0]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued)


def test_a_turn_that_was_said_twice_in_the_same_words_is_known_by_its_calls(restarting: RestartableGateway) -> None:
    place = restarting.setup
    first = ask(place, "openai-chat", "gemini", [QUESTION])
    again = json.loads(json.dumps(first))
    again["tool_calls"][0]["id"] = "call_of_another_answer"
    http_client.post(
        place.base_url + PLACES["openai-chat"],
        json={
            "model": routed_model("gemini"),
            "messages": [QUESTION, again, result_of(again, "openai-chat", "snow")],
            "tools": [FUNCTION],
        },
        headers={"authorization": f"Bearer {CLIENT_KEYS[0]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued)


def test_what_the_client_adds_to_a_turn_is_still_reported(restarting: RestartableGateway) -> None:
    place = restarting.setup
    first = ask(place, "openai-chat", "gemini", [QUESTION])
    odd = first | {"mood": "sunny"}
    ask(place, "openai-chat", "gemini", [QUESTION, odd, result_of(first, "openai-chat", "snow")])
    losses = json.loads(place.gateway.exchanges[-1].headers["toolwire-losses"])["losses"]
    assert "/messages/1/mood" in [loss["path"] for loss in losses]
    issued, returned = issued_and_returned(place)
    assert returned == issued
