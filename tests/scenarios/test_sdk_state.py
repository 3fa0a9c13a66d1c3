"""Clients that send only new input: three turns with tools on every upstream, before and after a restart.

The upstreams store nothing: they reject a result without its call, and a call without its signature.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from google.genai._gaos.lib import compat_errors

from tests.support.gateway.setup import (
    SIGNING_PROTOCOLS,
    GatewaySetup,
    buffered_and_streamed,
    routed_model,
    signatures_in,
)
from tests.support.gateway.stateful_clients import (
    CLIENT_KEYS,
    SYSTEM_PROMPT,
    RestartableGateway,
    create_interaction,
    create_response,
    function_results_for,
    google_client,
    openai_client,
)
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import http_client


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[RestartableGateway]:
    found = RestartableGateway(tmp_path / "state.db")
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def only_keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    state = tmp_path_factory.mktemp("state") / "state.db"
    found = RestartableGateway(state)
    yield found.start()
    found.stop()


@pytest.fixture
def keyed(only_keyed: GatewaySetup) -> GatewaySetup:
    only_keyed.reset()
    return only_keyed


def outputs(response: Any, result: str) -> list[dict[str, Any]]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["get_weather"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": result} for call in calls]


def check_last(place: GatewaySetup, upstream: str, cities: list[str]) -> None:
    """Check that the upstream got the complete conversation, its signatures, and each system text and tool once."""
    seen = place.upstream.exchanges[-1]
    assert seen.status == 200
    assert [call.arguments.replace(" ", "") for call in seen.calls(upstream)] == [
        f'{{"city":"{city}"}}' for city in cities
    ]
    assert [call.id for call in seen.calls(upstream)] == [result.call_id for result in seen.results(upstream)]
    assert seen.request_body.count(SYSTEM_PROMPT.encode()) == 1
    assert len(seen.request(upstream).tools or ()) == 1
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(seen.request_body)) >= len(cities)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_responses_go_on_from_an_id(restarting: RestartableGateway, upstream: str, stream: bool) -> None:
    place = restarting.setup
    first = create_response(place, upstream, "What is the weather in Oslo?", stream=stream)
    second = create_response(place, upstream, outputs(first, "snow"), stream=stream, previous_response_id=first.id)
    assert "snow" in second.output_text
    if upstream != "openai-responses":  # at home the answer is passed on as it is
        assert second.previous_response_id == first.id
    place = restarting.start()
    third = create_response(place, upstream, "And the weather in Rome?", stream=stream, previous_response_id=second.id)
    fourth = create_response(place, upstream, outputs(third, "sun"), stream=stream, previous_response_id=third.id)
    assert "sun" in fourth.output_text
    assert len({first.id, second.id, third.id, fourth.id}) == 4
    check_last(place, upstream, ["Oslo", "Rome"])


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_responses_in_a_conversation(restarting: RestartableGateway, upstream: str, stream: bool) -> None:
    place = restarting.setup
    with openai_client(place) as client:
        conversation = client.conversations.create(metadata={"topic": "rain"}).id
    first = create_response(place, upstream, "What is the weather in Oslo?", stream=stream, conversation=conversation)
    second = create_response(place, upstream, outputs(first, "snow"), stream=stream, conversation={"id": conversation})
    if upstream != "openai-responses":
        assert second.conversation.id == conversation
    place = restarting.start()
    third = create_response(place, upstream, "And the weather in Rome?", stream=stream, conversation=conversation)
    fourth = create_response(place, upstream, outputs(third, "sun"), stream=stream, conversation=conversation)
    assert "sun" in fourth.output_text
    check_last(place, upstream, ["Oslo", "Rome"])


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_interactions_go_on_from_an_id(restarting: RestartableGateway, upstream: str, stream: bool) -> None:
    place = restarting.setup
    first = create_interaction(place, upstream, "What is the weather in Oslo?", stream=stream)
    second = create_interaction(
        place, upstream, function_results_for(first, "snow"), stream=stream, previous_interaction_id=first.id
    )
    assert "snow" in second.output_text
    if upstream != "gemini-interactions":
        assert second.previous_interaction_id == first.id
    place = restarting.start()
    question = [{"type": "text", "text": "And the weather in Rome?"}]
    third = create_interaction(place, upstream, question, stream=stream, previous_interaction_id=second.id)
    fourth = create_interaction(
        place, upstream, function_results_for(third, "sun"), stream=stream, previous_interaction_id=third.id
    )
    assert "sun" in fourth.output_text
    check_last(place, upstream, ["Oslo", "Rome"])


# ---- operations on an id


def test_a_response_by_its_id(keyed: GatewaySetup) -> None:
    with openai_client(keyed) as client:
        made = create_response(keyed, "anthropic", "What is the weather in Oslo?")
        assert client.responses.retrieve(made.id).model_dump() == made.model_dump()
        (item,) = client.responses.input_items.list(made.id).data
        shown = item.model_dump(exclude_none=True)
        assert shown["content"] == [{"type": "input_text", "text": "What is the weather in Oslo?"}]
        assert shown["role"] == "user"
        replayed: list[Any] = list(client.responses.retrieve(made.id, stream=True))
        assert replayed[-1].response.model_dump()["output"] == made.model_dump()["output"]
        rest = list(client.responses.retrieve(made.id, stream=True, starting_after=replayed[2].sequence_number))
        assert [event.model_dump() for event in rest] == [event.model_dump() for event in replayed[3:]]
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
            client.responses.cancel(made.id)
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.delete(made.id)
        with pytest.raises(openai.BadRequestError) as refused:
            create_response(keyed, "anthropic", "And then?", previous_response_id=made.id)
        assert refused.value.code == "previous_response_not_found"


def test_an_interaction_by_its_id(keyed: GatewaySetup) -> None:
    with google_client(keyed) as client:
        made = create_interaction(keyed, "anthropic", "What is the weather in Oslo?")
        assert client.interactions.get(made.id).steps == made.steps
        whole = client.interactions.get(made.id, include_input=True)
        assert [step.type for step in whole.steps or ()] == ["user_input", *(step.type for step in made.steps)]
        replayed: Any = client.interactions.get(made.id, stream=True)
        kinds = [event.event_type for event in replayed]
        assert (kinds[0], kinds[-1]) == ("interaction.created", "interaction.completed")
        assert kinds.count("step.start") == len(made.steps)
        client.interactions.delete(made.id)
        for gone in (client.interactions.get, client.interactions.delete, client.interactions.cancel):
            with pytest.raises(compat_errors.NotFoundError):
                gone(made.id)
        with pytest.raises(compat_errors.NotFoundError):
            create_interaction(keyed, "anthropic", "And then?", previous_interaction_id=made.id)


def test_a_conversation_by_its_id(keyed: GatewaySetup) -> None:
    with openai_client(keyed) as client:
        said = [{"type": "message", "role": "user", "content": f"number {number}"} for number in range(3)]
        made = client.conversations.create(items=said[:1], metadata={"topic": "numbers"})  # type: ignore[arg-type]
        assert client.conversations.retrieve(made.id) == made
        assert client.conversations.update(made.id, metadata={"topic": "more"}).metadata == {"topic": "more"}
        added = client.conversations.items.create(made.id, items=said[1:]).data  # type: ignore[arg-type]
        items = list(client.conversations.items.list(made.id, order="asc", limit=2))  # pages follow
        assert [item.model_dump()["content"][0]["text"] for item in items] == ["number 0", "number 1", "number 2"]
        assert [item.id for item in client.conversations.items.list(made.id).data] == [
            item.id for item in reversed(items)
        ]
        assert client.conversations.items.retrieve(added[0].id or "", conversation_id=made.id) == items[1]
        client.conversations.items.delete(added[0].id or "", conversation_id=made.id)
        assert len(client.conversations.items.list(made.id).data) == 2
        create_response(keyed, "gemini", "What is the weather in Oslo?", conversation=made.id)
        kinds = [item.type for item in client.conversations.items.list(made.id, order="asc").data]
        assert kinds[:3] == ["message", "message", "message"]
        assert kinds[-1] == "function_call"
        assert client.conversations.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(made.id)
        with pytest.raises(openai.NotFoundError, match="Conversation with id"):
            create_response(keyed, "gemini", "And now?", conversation=made.id)


# ---- ownership


def test_another_key_sees_no_response(keyed: GatewaySetup) -> None:
    made = create_response(keyed, "anthropic", "What is the weather in Oslo?")
    asked = len(keyed.upstream.exchanges)
    with openai_client(keyed, CLIENT_KEYS[1]) as stranger:
        for deed in (
            stranger.responses.retrieve,
            stranger.responses.delete,
            stranger.responses.cancel,
            stranger.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError):
                deed(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        create_response(keyed, "anthropic", "What did I say?", key=CLIENT_KEYS[1], previous_response_id=made.id)
    assert refused.value.code == "previous_response_not_found"
    home = create_response(keyed, "openai-responses", "Hi")  # the upstream itself would know this one
    asked += 1
    with pytest.raises(openai.BadRequestError):
        create_response(keyed, "openai-responses", "What did I say?", key=CLIENT_KEYS[1], previous_response_id=home.id)
    assert len(keyed.upstream.exchanges) == asked
    assert create_response(keyed, "anthropic", outputs(made, "snow"), previous_response_id=made.id).output_text


def test_another_key_sees_no_interaction(keyed: GatewaySetup) -> None:
    made = create_interaction(keyed, "anthropic", "What is the weather in Oslo?")
    with google_client(keyed, CLIENT_KEYS[1]) as stranger:
        for deed in (stranger.interactions.get, stranger.interactions.delete, stranger.interactions.cancel):
            with pytest.raises(compat_errors.NotFoundError):
                deed(made.id)
    with pytest.raises(compat_errors.NotFoundError):
        create_interaction(keyed, "anthropic", "What did I say?", key=CLIENT_KEYS[1], previous_interaction_id=made.id)
    assert create_interaction(
        keyed, "anthropic", function_results_for(made, "snow"), previous_interaction_id=made.id
    ).output_text


def test_another_key_sees_no_conversation(keyed: GatewaySetup) -> None:
    with openai_client(keyed) as client:
        made = client.conversations.create(items=[{"type": "message", "role": "user", "content": "a secret"}])
        (item,) = client.conversations.items.list(made.id).data
    with openai_client(keyed, CLIENT_KEYS[1]) as stranger:
        items = stranger.conversations.items
        for deed in (
            lambda: stranger.conversations.retrieve(made.id),
            lambda: stranger.conversations.update(made.id, metadata={}),
            lambda: stranger.conversations.delete(made.id),
            lambda: items.list(made.id),
            lambda: items.create(made.id, items=[]),
            lambda: items.retrieve(item.id or "", conversation_id=made.id),
            lambda: items.delete(item.id or "", conversation_id=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                deed()
    with pytest.raises(openai.NotFoundError):
        create_response(keyed, "anthropic", "What did I say?", key=CLIENT_KEYS[1], conversation=made.id)
    with openai_client(keyed) as client:
        assert [one.id for one in client.conversations.items.list(made.id).data] == [item.id]


def test_what_is_not_stored_is_not_there(keyed: GatewaySetup) -> None:
    made = create_response(keyed, "anthropic", "What is the weather in Oslo?", store=False)
    with openai_client(keyed) as client, pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        create_response(keyed, "anthropic", "And then?", previous_response_id=made.id)


# ---- item references


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_an_item_that_is_only_named_is_sent_whole(keyed: GatewaySetup, upstream: str) -> None:
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    first = create_response(keyed, upstream, [question])
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    second = create_response(keyed, upstream, [question, *named, *outputs(first, "snow")])
    assert "snow" in second.output_text
    check_last(keyed, upstream, ["Oslo"])
    assert b"item_reference" not in keyed.upstream.exchanges[-1].request_body


def test_an_item_of_another_key_or_of_a_deleted_answer_is_not_there(keyed: GatewaySetup) -> None:
    first = create_response(keyed, "openai-responses", "What is the weather in Oslo?")
    named = [{"type": "item_reference", "id": first.output[-1].id}]
    asked = len(keyed.upstream.exchanges)
    for store in (True, False):
        with pytest.raises(openai.NotFoundError, match="Item with id"):
            create_response(keyed, "openai-responses", named, key=CLIENT_KEYS[1], store=store)
    with openai_client(keyed) as client:
        client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="Item with id"):
        create_response(keyed, "openai-responses", named)
    assert len(keyed.upstream.exchanges) == asked


# ---- losses of stored history


def test_losses_of_what_came_before_point_to_the_id_that_brought_it(keyed: GatewaySetup) -> None:
    odd = {"role": "user", "content": [{"type": "input_text", "text": "What is the weather in Oslo?", "mood": "sunny"}]}
    first = create_response(keyed, "anthropic", [odd], store=True)
    assert "/input/0/content/0/mood" in [loss["path"] for loss in losses(keyed)]
    create_response(keyed, "anthropic", outputs(first, "snow"), previous_response_id=first.id)
    paths = [loss["path"] for loss in losses(keyed)]
    assert "/previous_response_id/0/content/0/mood" in paths
    assert not [
        path for path in paths if path.startswith(("/input/0/content", "/store")) or path == "/previous_response_id"
    ]


def losses(place: GatewaySetup) -> list[dict[str, str]]:
    exchange = place.gateway.exchanges[-1].headers["toolwire-exchange"]
    headers = {"authorization": f"Bearer {CLIENT_KEYS[0]}"}
    answer = http_client.get(f"{place.base_url}/toolwire/exchanges/{exchange}/losses", headers=headers)
    found: list[dict[str, str]] = answer.json()["losses"]
    return found


@pytest.mark.parametrize("id", ["' OR 1=1 --", "%", "..", "a/b", "\0", "x" * 10_000, "\ud83d\ude00"])
def test_whatever_an_id_says_it_is_just_not_there(keyed: GatewaySetup, id: str) -> None:
    body = {"model": routed_model("anthropic"), "input": "Hi", "previous_response_id": id}
    for key in (*CLIENT_KEYS, "' OR 1=1 --"):
        answer = http_client.post(
            f"{keyed.base_url}/v1/responses",
            content=json.dumps(body).encode(),
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        assert answer.status_code == (400 if key in CLIENT_KEYS else 401)
        if key in CLIENT_KEYS:
            assert answer.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_what_was_streamed_is_kept_as_it_was_told(keyed: GatewaySetup, upstream: str) -> None:
    told = create_response(keyed, upstream, "What is the weather in Oslo?", stream=True)
    with openai_client(keyed) as client:
        kept = client.responses.retrieve(told.id)
    items = [
        {name: value for name, value in item.items() if name != "parsed_arguments"}
        for item in told.model_dump(exclude_none=True)["output"]
    ]
    assert [item.model_dump(exclude_none=True) for item in kept.output] == items
    assert (kept.id, kept.status, kept.usage) == (told.id, told.status, told.usage)
