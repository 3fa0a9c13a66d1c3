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
    gateway = RestartableGateway(tmp_path / "state.db")
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    state = tmp_path_factory.mktemp("state") / "state.db"
    gateway = RestartableGateway(state)
    yield gateway.start()
    gateway.stop()


@pytest.fixture
def gateway_setup(shared_gateway: GatewaySetup) -> GatewaySetup:
    shared_gateway.reset()
    return shared_gateway


def outputs(response: Any, result: str) -> list[dict[str, Any]]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["get_weather"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": result} for call in calls]


def check_last(gateway_setup: GatewaySetup, upstream: str, cities: list[str]) -> None:
    """Check that the upstream got the complete conversation, its signatures, and each system text and tool once."""
    exchange = gateway_setup.upstream.exchanges[-1]
    assert exchange.status == 200
    assert [call.arguments.replace(" ", "") for call in exchange.calls(upstream)] == [
        f'{{"city":"{city}"}}' for city in cities
    ]
    assert [call.id for call in exchange.calls(upstream)] == [result.call_id for result in exchange.results(upstream)]
    assert exchange.request_body.count(SYSTEM_PROMPT.encode()) == 1
    assert len(exchange.request(upstream).tools or ()) == 1
    if upstream in SIGNING_PROTOCOLS:
        assert len(signatures_in(exchange.request_body)) >= len(cities)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_responses_continue_from_a_previous_response_id(
    restarting: RestartableGateway, upstream: str, stream: bool
) -> None:
    gateway_setup = restarting.setup
    first = create_response(gateway_setup, upstream, "What is the weather in Oslo?", stream=stream)
    second = create_response(
        gateway_setup, upstream, outputs(first, "snow"), stream=stream, previous_response_id=first.id
    )
    assert "snow" in second.output_text
    if upstream != "openai-responses":  # at home the answer is passed on as it is
        assert second.previous_response_id == first.id
    gateway_setup = restarting.start()
    third = create_response(
        gateway_setup, upstream, "And the weather in Rome?", stream=stream, previous_response_id=second.id
    )
    fourth = create_response(
        gateway_setup, upstream, outputs(third, "sun"), stream=stream, previous_response_id=third.id
    )
    assert "sun" in fourth.output_text
    assert len({first.id, second.id, third.id, fourth.id}) == 4
    check_last(gateway_setup, upstream, ["Oslo", "Rome"])


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_responses_continue_in_a_conversation(restarting: RestartableGateway, upstream: str, stream: bool) -> None:
    gateway_setup = restarting.setup
    with openai_client(gateway_setup) as client:
        conversation = client.conversations.create(metadata={"topic": "rain"}).id
    first = create_response(
        gateway_setup, upstream, "What is the weather in Oslo?", stream=stream, conversation=conversation
    )
    second = create_response(
        gateway_setup, upstream, outputs(first, "snow"), stream=stream, conversation={"id": conversation}
    )
    if upstream != "openai-responses":
        assert second.conversation.id == conversation
    gateway_setup = restarting.start()
    third = create_response(
        gateway_setup, upstream, "And the weather in Rome?", stream=stream, conversation=conversation
    )
    fourth = create_response(gateway_setup, upstream, outputs(third, "sun"), stream=stream, conversation=conversation)
    assert "sun" in fourth.output_text
    check_last(gateway_setup, upstream, ["Oslo", "Rome"])


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@buffered_and_streamed
def test_interactions_continue_from_a_previous_interaction_id(
    restarting: RestartableGateway, upstream: str, stream: bool
) -> None:
    gateway_setup = restarting.setup
    first = create_interaction(gateway_setup, upstream, "What is the weather in Oslo?", stream=stream)
    second = create_interaction(
        gateway_setup, upstream, function_results_for(first, "snow"), stream=stream, previous_interaction_id=first.id
    )
    assert "snow" in second.output_text
    if upstream != "gemini-interactions":
        assert second.previous_interaction_id == first.id
    gateway_setup = restarting.start()
    question = [{"type": "text", "text": "And the weather in Rome?"}]
    third = create_interaction(gateway_setup, upstream, question, stream=stream, previous_interaction_id=second.id)
    fourth = create_interaction(
        gateway_setup, upstream, function_results_for(third, "sun"), stream=stream, previous_interaction_id=third.id
    )
    assert "sun" in fourth.output_text
    check_last(gateway_setup, upstream, ["Oslo", "Rome"])


# ---- operations on an id


def test_stored_response_can_be_retrieved_replayed_and_deleted(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        created = create_response(gateway_setup, "anthropic", "What is the weather in Oslo?")
        assert client.responses.retrieve(created.id).model_dump() == created.model_dump()
        (item,) = client.responses.input_items.list(created.id).data
        item_body = item.model_dump(exclude_none=True)
        assert item_body["content"] == [{"type": "input_text", "text": "What is the weather in Oslo?"}]
        assert item_body["role"] == "user"
        replayed: list[Any] = list(client.responses.retrieve(created.id, stream=True))
        assert replayed[-1].response.model_dump()["output"] == created.model_dump()["output"]
        remaining = list(client.responses.retrieve(created.id, stream=True, starting_after=replayed[2].sequence_number))
        assert [event.model_dump() for event in remaining] == [event.model_dump() for event in replayed[3:]]
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
            client.responses.cancel(created.id)
        client.responses.delete(created.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(created.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.delete(created.id)
        with pytest.raises(openai.BadRequestError) as error:
            create_response(gateway_setup, "anthropic", "And then?", previous_response_id=created.id)
        assert error.value.code == "previous_response_not_found"


def test_stored_interaction_can_be_retrieved_and_deleted(gateway_setup: GatewaySetup) -> None:
    with google_client(gateway_setup) as client:
        created = create_interaction(gateway_setup, "anthropic", "What is the weather in Oslo?")
        assert client.interactions.get(created.id).steps == created.steps
        interaction = client.interactions.get(created.id, include_input=True)
        assert [step.type for step in interaction.steps or ()] == ["user_input", *(step.type for step in created.steps)]
        replayed: Any = client.interactions.get(created.id, stream=True)
        kinds = [event.event_type for event in replayed]
        assert (kinds[0], kinds[-1]) == ("interaction.created", "interaction.completed")
        assert kinds.count("step.start") == len(created.steps)
        client.interactions.delete(created.id)
        for operation in (client.interactions.get, client.interactions.delete, client.interactions.cancel):
            with pytest.raises(compat_errors.NotFoundError):
                operation(created.id)
        with pytest.raises(compat_errors.NotFoundError):
            create_interaction(gateway_setup, "anthropic", "And then?", previous_interaction_id=created.id)


def test_stored_conversation_can_be_edited_and_deleted(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        new_items = [{"type": "message", "role": "user", "content": f"number {number}"} for number in range(3)]
        created = client.conversations.create(items=new_items[:1], metadata={"topic": "numbers"})  # type: ignore[arg-type]
        assert client.conversations.retrieve(created.id) == created
        assert client.conversations.update(created.id, metadata={"topic": "more"}).metadata == {"topic": "more"}
        added = client.conversations.items.create(created.id, items=new_items[1:]).data  # type: ignore[arg-type]
        items = list(client.conversations.items.list(created.id, order="asc", limit=2))  # pages follow
        assert [item.model_dump()["content"][0]["text"] for item in items] == ["number 0", "number 1", "number 2"]
        assert [item.id for item in client.conversations.items.list(created.id).data] == [
            item.id for item in reversed(items)
        ]
        assert client.conversations.items.retrieve(added[0].id or "", conversation_id=created.id) == items[1]
        client.conversations.items.delete(added[0].id or "", conversation_id=created.id)
        assert len(client.conversations.items.list(created.id).data) == 2
        create_response(gateway_setup, "gemini", "What is the weather in Oslo?", conversation=created.id)
        kinds = [item.type for item in client.conversations.items.list(created.id, order="asc").data]
        assert kinds[:3] == ["message", "message", "message"]
        assert kinds[-1] == "function_call"
        assert client.conversations.delete(created.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(created.id)
        with pytest.raises(openai.NotFoundError, match="Conversation with id"):
            create_response(gateway_setup, "gemini", "And now?", conversation=created.id)


# ---- ownership


def test_another_key_cannot_access_a_response(gateway_setup: GatewaySetup) -> None:
    created = create_response(gateway_setup, "anthropic", "What is the weather in Oslo?")
    request_count = len(gateway_setup.upstream.exchanges)
    with openai_client(gateway_setup, CLIENT_KEYS[1]) as stranger:
        for deed in (
            stranger.responses.retrieve,
            stranger.responses.delete,
            stranger.responses.cancel,
            stranger.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError):
                deed(created.id)
    with pytest.raises(openai.BadRequestError) as error:
        create_response(
            gateway_setup, "anthropic", "What did I say?", key=CLIENT_KEYS[1], previous_response_id=created.id
        )
    assert error.value.code == "previous_response_not_found"
    upstream_response = create_response(
        gateway_setup, "openai-responses", "Hi"
    )  # the upstream itself would know this one
    request_count += 1
    with pytest.raises(openai.BadRequestError):
        create_response(
            gateway_setup,
            "openai-responses",
            "What did I say?",
            key=CLIENT_KEYS[1],
            previous_response_id=upstream_response.id,
        )
    assert len(gateway_setup.upstream.exchanges) == request_count
    assert create_response(
        gateway_setup, "anthropic", outputs(created, "snow"), previous_response_id=created.id
    ).output_text


def test_another_key_cannot_access_an_interaction(gateway_setup: GatewaySetup) -> None:
    created = create_interaction(gateway_setup, "anthropic", "What is the weather in Oslo?")
    with google_client(gateway_setup, CLIENT_KEYS[1]) as stranger:
        for deed in (stranger.interactions.get, stranger.interactions.delete, stranger.interactions.cancel):
            with pytest.raises(compat_errors.NotFoundError):
                deed(created.id)
    with pytest.raises(compat_errors.NotFoundError):
        create_interaction(
            gateway_setup, "anthropic", "What did I say?", key=CLIENT_KEYS[1], previous_interaction_id=created.id
        )
    assert create_interaction(
        gateway_setup, "anthropic", function_results_for(created, "snow"), previous_interaction_id=created.id
    ).output_text


def test_another_key_cannot_access_a_conversation(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        created = client.conversations.create(items=[{"type": "message", "role": "user", "content": "a secret"}])
        (item,) = client.conversations.items.list(created.id).data
    with openai_client(gateway_setup, CLIENT_KEYS[1]) as stranger:
        items = stranger.conversations.items
        for deed in (
            lambda: stranger.conversations.retrieve(created.id),
            lambda: stranger.conversations.update(created.id, metadata={}),
            lambda: stranger.conversations.delete(created.id),
            lambda: items.list(created.id),
            lambda: items.create(created.id, items=[]),
            lambda: items.retrieve(item.id or "", conversation_id=created.id),
            lambda: items.delete(item.id or "", conversation_id=created.id),
        ):
            with pytest.raises(openai.NotFoundError):
                deed()
    with pytest.raises(openai.NotFoundError):
        create_response(gateway_setup, "anthropic", "What did I say?", key=CLIENT_KEYS[1], conversation=created.id)
    with openai_client(gateway_setup) as client:
        assert [one.id for one in client.conversations.items.list(created.id).data] == [item.id]


def test_unstored_response_is_not_found(gateway_setup: GatewaySetup) -> None:
    created = create_response(gateway_setup, "anthropic", "What is the weather in Oslo?", store=False)
    with openai_client(gateway_setup) as client, pytest.raises(openai.NotFoundError):
        client.responses.retrieve(created.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        create_response(gateway_setup, "anthropic", "And then?", previous_response_id=created.id)


# ---- item references


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_item_reference_is_expanded(gateway_setup: GatewaySetup, upstream: str) -> None:
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    first = create_response(gateway_setup, upstream, [question])
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    second = create_response(gateway_setup, upstream, [question, *references, *outputs(first, "snow")])
    assert "snow" in second.output_text
    check_last(gateway_setup, upstream, ["Oslo"])
    assert b"item_reference" not in gateway_setup.upstream.exchanges[-1].request_body


def test_item_of_another_key_or_a_deleted_response_is_not_found(gateway_setup: GatewaySetup) -> None:
    first = create_response(gateway_setup, "openai-responses", "What is the weather in Oslo?")
    references = [{"type": "item_reference", "id": first.output[-1].id}]
    request_count = len(gateway_setup.upstream.exchanges)
    for store in (True, False):
        with pytest.raises(openai.NotFoundError, match="Item with id"):
            create_response(gateway_setup, "openai-responses", references, key=CLIENT_KEYS[1], store=store)
    with openai_client(gateway_setup) as client:
        client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="Item with id"):
        create_response(gateway_setup, "openai-responses", references)
    assert len(gateway_setup.upstream.exchanges) == request_count


# ---- losses of stored history


def test_losses_in_stored_history_point_to_the_previous_id(gateway_setup: GatewaySetup) -> None:
    odd = {"role": "user", "content": [{"type": "input_text", "text": "What is the weather in Oslo?", "mood": "sunny"}]}
    first = create_response(gateway_setup, "anthropic", [odd], store=True)
    assert "/input/0/content/0/mood" in [loss["path"] for loss in losses(gateway_setup)]
    create_response(gateway_setup, "anthropic", outputs(first, "snow"), previous_response_id=first.id)
    paths = [loss["path"] for loss in losses(gateway_setup)]
    assert "/previous_response_id/0/content/0/mood" in paths
    assert not [
        path for path in paths if path.startswith(("/input/0/content", "/store")) or path == "/previous_response_id"
    ]


def losses(gateway_setup: GatewaySetup) -> list[dict[str, str]]:
    exchange = gateway_setup.gateway.exchanges[-1].headers["toolwire-exchange"]
    headers = {"authorization": f"Bearer {CLIENT_KEYS[0]}"}
    answer = http_client.get(f"{gateway_setup.base_url}/toolwire/exchanges/{exchange}/losses", headers=headers)
    gateway: list[dict[str, str]] = answer.json()["losses"]
    return gateway


@pytest.mark.parametrize("id", ["' OR 1=1 --", "%", "..", "a/b", "\0", "x" * 10_000, "\ud83d\ude00"])
def test_malformed_id_is_not_found(gateway_setup: GatewaySetup, id: str) -> None:
    body = {"model": routed_model("anthropic"), "input": "Hi", "previous_response_id": id}
    for key in (*CLIENT_KEYS, "' OR 1=1 --"):
        answer = http_client.post(
            f"{gateway_setup.base_url}/v1/responses",
            content=json.dumps(body).encode(),
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        assert answer.status_code == (400 if key in CLIENT_KEYS else 401)
        if key in CLIENT_KEYS:
            assert answer.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_streamed_response_is_stored_as_it_was_sent(gateway_setup: GatewaySetup, upstream: str) -> None:
    streamed = create_response(gateway_setup, upstream, "What is the weather in Oslo?", stream=True)
    with openai_client(gateway_setup) as client:
        stored = client.responses.retrieve(streamed.id)
    items = [
        {name: value for name, value in item.items() if name != "parsed_arguments"}
        for item in streamed.model_dump(exclude_none=True)["output"]
    ]
    assert [item.model_dump(exclude_none=True) for item in stored.output] == items
    assert (stored.id, stored.status, stored.usage) == (streamed.id, streamed.status, streamed.usage)
