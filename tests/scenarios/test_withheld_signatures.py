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
    gateway = RestartableGateway(tmp_path / "state.db")
    gateway.start()
    yield gateway
    gateway.stop()


def ask(
    gateway_setup: GatewaySetup, client: str, upstream: str, messages: list[Any], key: str = CLIENT_KEYS[0]
) -> dict[str, Any]:
    body: dict[str, Any] = {"model": routed_model(upstream), "messages": messages, "tools": [FUNCTION], "stream": False}
    body |= {"reasoning_effort": "high"} if client == "openai-chat" else {"think": True}
    answer = http_client.post(
        gateway_setup.base_url + PLACES[client], json=body, headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 200, answer.text
    response_body: Any = answer.json()
    message: dict[str, Any] = response_body["message"] if client == "ollama" else response_body["choices"][0]["message"]
    return message


def result_of(message: dict[str, Any], client: str, text: str) -> dict[str, Any]:
    (call,) = message["tool_calls"]
    if client == "ollama":
        return {"role": "tool", "tool_name": call["function"]["name"], "content": text}
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def minimal_echo(message: dict[str, Any]) -> dict[str, Any]:
    """Return the turn of a client that echoes as little as possible: no reasoning, reformatted arguments."""
    (call,) = message["tool_calls"]
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=2)
        return {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


def issued_and_returned(gateway_setup: GatewaySetup) -> tuple[set[str], set[str]]:
    return signatures_in(gateway_setup.upstream.exchanges[0].response_body), signatures_in(
        gateway_setup.upstream.exchanges[-1].request_body
    )


@every_pair
def test_kept_signatures_survive_a_restart_and_a_minimal_echo(
    restarting: RestartableGateway, client: str, upstream: str
) -> None:
    first = ask(restarting.setup, client, upstream, [QUESTION])
    issued = signatures_in(restarting.setup.upstream.exchanges[0].response_body)
    assert issued
    gateway_setup = restarting.start()
    history = [QUESTION, minimal_echo(first), result_of(first, client, "snow")]
    ask(gateway_setup, client, upstream, history)
    assert signatures_in(gateway_setup.upstream.exchanges[-1].request_body) == issued
    # The signatures remain when the conversation continues.
    ask(
        gateway_setup,
        client,
        upstream,
        [*history, {"role": "assistant", "content": "It snows."}, {**QUESTION, "content": "Hm?"}],
    )
    assert signatures_in(gateway_setup.upstream.exchanges[-1].request_body) == issued


@every_pair
def test_kept_signatures_belong_to_one_client_key(restarting: RestartableGateway, client: str, upstream: str) -> None:
    gateway_setup = restarting.setup
    first = ask(gateway_setup, client, upstream, [QUESTION])
    history = [QUESTION, first, result_of(first, client, "snow")]
    answer = http_client.post(
        gateway_setup.base_url + PLACES[client],
        json={"model": routed_model(upstream), "messages": history, "tools": [FUNCTION], "stream": False},
        headers={"authorization": f"Bearer {CLIENT_KEYS[1]}"},
    )
    issued, returned = issued_and_returned(gateway_setup)
    assert issued
    assert returned.isdisjoint(issued), answer.text


@every_pair
def test_kept_signatures_belong_to_their_conversation(
    restarting: RestartableGateway, client: str, upstream: str
) -> None:
    gateway_setup = restarting.setup
    first = ask(gateway_setup, client, upstream, [QUESTION])
    second_question = {"role": "user", "content": "What is the weather in Rome?"}
    http_client.post(
        gateway_setup.base_url + PLACES[client],
        json={
            "model": routed_model(upstream),
            "messages": [second_question, first, result_of(first, client, "snow")],
            "tools": [FUNCTION],
            "stream": False,
        },
        headers={"authorization": f"Bearer {CLIENT_KEYS[0]}"},
    )
    issued, returned = issued_and_returned(gateway_setup)
    assert issued
    assert returned.isdisjoint(issued)


def test_repeated_turn_is_identified_by_its_calls(restarting: RestartableGateway) -> None:
    gateway_setup = restarting.setup
    first = ask(gateway_setup, "openai-chat", "gemini", [QUESTION])
    repeated = json.loads(json.dumps(first))
    repeated["tool_calls"][0]["id"] = "call_of_another_answer"
    http_client.post(
        gateway_setup.base_url + PLACES["openai-chat"],
        json={
            "model": routed_model("gemini"),
            "messages": [QUESTION, repeated, result_of(repeated, "openai-chat", "snow")],
            "tools": [FUNCTION],
        },
        headers={"authorization": f"Bearer {CLIENT_KEYS[0]}"},
    )
    issued, returned = issued_and_returned(gateway_setup)
    assert issued
    assert returned.isdisjoint(issued)


def test_content_added_by_the_client_is_reported(restarting: RestartableGateway) -> None:
    gateway_setup = restarting.setup
    first = ask(gateway_setup, "openai-chat", "gemini", [QUESTION])
    odd = first | {"mood": "sunny"}
    ask(gateway_setup, "openai-chat", "gemini", [QUESTION, odd, result_of(first, "openai-chat", "snow")])
    losses = json.loads(gateway_setup.gateway.exchanges[-1].headers["toolwire-losses"])["losses"]
    assert "/messages/1/mood" in [loss["path"] for loss in losses]
    issued, returned = issued_and_returned(gateway_setup)
    assert returned == issued
