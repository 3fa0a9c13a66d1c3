"""Proofs that Chat's and Ollama's clients never see: they come back to who issued them, and to nobody else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.test_sdk_matrix import PROVING
from tests.scenarios.test_sdk_state import KEYS, Restarting
from tests.scenarios.watching import Place, model_of, proofs_in
from tests.upstream.clients import WEATHER
from tests.upstream.serving import http

FUNCTION = {"type": "function", "function": {"name": WEATHER.name, "parameters": WEATHER.schema}}
PLACES = {"openai-chat": "/v1/chat/completions", "ollama": "/api/chat"}
QUESTION = {"role": "user", "content": "What is the weather in Oslo?"}
# Effort without thinking.
PAIRS = [
    (client, upstream)
    for client in PLACES
    for upstream in PROVING
    if (client, upstream) not in {("openai-chat", "anthropic"), ("ollama", "openai-responses")}
]
every_pair = pytest.mark.parametrize(("client", "upstream"), PAIRS)


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    found = Restarting(tmp_path / "state.db")
    found.start()
    yield found
    found.stop()


def ask(place: Place, client: str, upstream: str, messages: list[Any], key: str = KEYS[0]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model_of(upstream), "messages": messages, "tools": [FUNCTION], "stream": False}
    body |= {"reasoning_effort": "high"} if client == "openai-chat" else {"think": True}
    answer = http.post(place.base_url + PLACES[client], json=body, headers={"authorization": f"Bearer {key}"})
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
    """What a client repeats that keeps no more than it must: no reasoning, arguments in another spelling."""
    (call,) = message["tool_calls"]
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=2)
        return {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


def issued_and_returned(place: Place) -> tuple[set[str], set[str]]:
    return proofs_in(place.upstream.seen[0].answered), proofs_in(place.upstream.seen[-1].asked)


@every_pair
def test_they_outlive_the_gateway_and_a_client_that_repeats_little(
    restarting: Restarting, client: str, upstream: str
) -> None:
    first = ask(restarting.place, client, upstream, [QUESTION])
    issued = proofs_in(restarting.place.upstream.seen[0].answered)
    assert issued
    place = restarting.start()
    history = [QUESTION, bare(first), result_of(first, client, "snow")]
    ask(place, client, upstream, history)
    assert proofs_in(place.upstream.seen[-1].asked) == issued
    # And still, when the conversation has gone on.
    ask(
        place,
        client,
        upstream,
        [*history, {"role": "assistant", "content": "It snows."}, {**QUESTION, "content": "Hm?"}],
    )
    assert proofs_in(place.upstream.seen[-1].asked) == issued


@every_pair
def test_they_are_for_the_key_that_they_were_kept_for(restarting: Restarting, client: str, upstream: str) -> None:
    place = restarting.place
    first = ask(place, client, upstream, [QUESTION])
    history = [QUESTION, first, result_of(first, client, "snow")]
    answer = http.post(
        place.base_url + PLACES[client],
        json={"model": model_of(upstream), "messages": history, "tools": [FUNCTION], "stream": False},
        headers={"authorization": f"Bearer {KEYS[1]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued), answer.text


@every_pair
def test_they_are_for_the_conversation_that_they_were_issued_in(
    restarting: Restarting, client: str, upstream: str
) -> None:
    place = restarting.place
    first = ask(place, client, upstream, [QUESTION])
    other = {"role": "user", "content": "What is the weather in Rome?"}
    http.post(
        place.base_url + PLACES[client],
        json={
            "model": model_of(upstream),
            "messages": [other, first, result_of(first, client, "snow")],
            "tools": [FUNCTION],
            "stream": False,
        },
        headers={"authorization": f"Bearer {KEYS[0]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued)


def test_a_turn_that_was_said_twice_in_the_same_words_is_known_by_its_calls(restarting: Restarting) -> None:
    place = restarting.place
    first = ask(place, "openai-chat", "gemini", [QUESTION])
    again = json.loads(json.dumps(first))
    again["tool_calls"][0]["id"] = "call_of_another_answer"
    http.post(
        place.base_url + PLACES["openai-chat"],
        json={
            "model": model_of("gemini"),
            "messages": [QUESTION, again, result_of(again, "openai-chat", "snow")],
            "tools": [FUNCTION],
        },
        headers={"authorization": f"Bearer {KEYS[0]}"},
    )
    issued, returned = issued_and_returned(place)
    assert issued
    assert returned.isdisjoint(issued)


def test_what_the_client_adds_to_a_turn_is_still_reported(restarting: Restarting) -> None:
    place = restarting.place
    first = ask(place, "openai-chat", "gemini", [QUESTION])
    odd = first | {"mood": "sunny"}
    ask(place, "openai-chat", "gemini", [QUESTION, odd, result_of(first, "openai-chat", "snow")])
    losses = json.loads(place.gateway.seen[-1].headers["toolwire-losses"])["losses"]
    assert "/messages/1/mood" in [loss["path"] for loss in losses]
    issued, returned = issued_and_returned(place)
    assert returned == issued
