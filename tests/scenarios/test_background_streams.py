"""Background streams that continue without a reader and can be resumed from any event."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from google.genai._gaos.lib import compat_errors

from tests.support.deadlines import wait_until
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.gateway.stateful_clients import (
    CLIENT_KEYS,
    RestartableGateway,
    create_response,
    function_results_for,
    google_client,
    openai_client,
)
from tests.support.sdk.clients import SDK_CLIENTS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

SCRIPT = b"""
[[turns]]
when = "count slowly"
repeat = 0
text = "one two three four five six seven eight nine ten eleven twelve"
pace = 0.001

[[turns]]
when = "for ever"
repeat = 0
text = "on and on "
endless = true
pace = 0.001

[[turns]]
when = "senseless"
repeat = 0
error = {kind = "invalid_request", message = "That makes no sense."}
"""
WHOLE = "one two three four five six seven eight nine ten eleven twelve"


@pytest.fixture(scope="module")
def restarting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableGateway]:
    state = tmp_path_factory.mktemp("state") / "state.db"
    collected = RestartableGateway(state, Simulator(script=parse_script(SCRIPT, "script")))
    collected.start()
    yield collected
    collected.stop()


@pytest.fixture
def gateway_setup(restarting: RestartableGateway) -> GatewaySetup:
    restarting.setup.reset()
    return restarting.setup


def start_stream(client: openai.OpenAI, upstream: str, text: str = "count slowly", **config: Any) -> Any:
    return client.responses.create(model=routed_model(upstream), input=text, background=True, stream=True, **config)


def first_events(stream: Any, count: int) -> list[Any]:
    """Return the first events, then stop reading."""
    collected = [event for event, _ in zip(stream, range(count), strict=False)]
    stream.close()
    return collected


def waited(look: Any, id: str) -> Any:
    collected: list[Any] = []

    def is_finished() -> bool:
        collected.append(look(id))
        return collected[-1].status not in ("queued", "in_progress")

    wait_until(is_finished)
    return collected[-1]


def hold_last_event(gateway_setup: GatewaySetup) -> threading.Event:
    return gateway_setup.upstream.hold(lambda _, body: b"twelve" in body)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_response_continues_without_its_reader(gateway_setup: GatewaySetup, upstream: str) -> None:
    released = hold_last_event(gateway_setup)
    with openai_client(gateway_setup) as client:
        first = first_events(start_stream(client, upstream), 6)
        assert [event.type for event in first[:2]] == ["response.created", "response.queued"]
        id = first[0].response.id
        assert (first[0].response.status, first[0].response.background) == ("queued", True)
        running = client.responses.retrieve(id)
        assert running.status == "in_progress"
        released.set()
        remaining = list(client.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number))
        events: list[Any] = [*first, *remaining]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == WHOLE
        ids = {event.response.id for event in events if hasattr(event, "response")}
        assert ids == {id}
        final = events[-1].response
        assert (events[-1].type, final.status, final.output_text, final.background) == (
            "response.completed",
            "completed",
            WHOLE,
            True,
        )
        stored = waited(client.responses.retrieve, id)
        assert (stored.id, stored.output, stored.background) == (id, final.output, True)
        replayed = list(client.responses.retrieve(id, stream=True))
        assert [event.model_dump() for event in replayed] == [event.model_dump() for event in events]
    assert [exchange.complete for exchange in gateway_setup.upstream.exchanges] == [True]
    assert b'"background"' not in gateway_setup.upstream.exchanges[0].request_body


def test_reader_receives_events_immediately(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        released = hold_last_event(gateway_setup)
        stream = start_stream(client, "anthropic")
        text = ""
        while "eleven" not in text:
            text += getattr(next(stream), "delta", "")
        released.set()
        assert text + "".join(getattr(event, "delta", "") for event in stream) == WHOLE


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_interaction_is_streamed_by_its_id_and_resumed(gateway_setup: GatewaySetup, upstream: str) -> None:
    with google_client(gateway_setup) as client:
        released = hold_last_event(gateway_setup)
        created: Any = client.interactions.create(model=routed_model(upstream), input="count slowly", background=True)
        followed: Any = client.interactions.get(created.id, stream=True)
        first = first_events(followed, 4)
        assert client.interactions.get(created.id).status == "in_progress"
        released.set()
        further: Any = client.interactions.get(created.id, stream=True, last_event_id=first[-1].event_id)
        events = [*first, *further]
        assert (events[0].event_type, events[0].interaction.id) == ("interaction.created", created.id)
        assert (events[-1].event_type, events[-1].interaction.id) == ("interaction.completed", created.id)
        assert len({event.event_id for event in events}) == len(events)
        deltas = [event.delta for event in events if event.event_type == "step.delta"]
        assert "".join(delta.text for delta in deltas if delta.type == "text") == WHOLE
        replayed: Any = client.interactions.get(created.id, stream=True)
        assert list(replayed) == events
        assert client.interactions.get(created.id).output_text == WHOLE


def test_unstreamed_interaction_can_be_resumed_from_its_replay(gateway_setup: GatewaySetup) -> None:
    with google_client(gateway_setup) as client:
        created: Any = client.interactions.create(model=routed_model("anthropic"), input="Hi")
        replayed: Any = client.interactions.get(created.id, stream=True)
        events = list(replayed)
        remaining: Any = client.interactions.get(created.id, stream=True, last_event_id=events[1].event_id)
        assert list(remaining) == events[2:]
        with pytest.raises(compat_errors.BadRequestError):
            client.interactions.get(created.id, stream=True, last_event_id="what?")


def test_foreground_stream_cannot_be_resumed_by_sequence_number(gateway_setup: GatewaySetup) -> None:
    created = create_response(gateway_setup, "anthropic", "Hi", stream=True)
    with openai_client(gateway_setup) as client:
        with pytest.raises(openai.BadRequestError, match="only background responses can be resumed"):
            client.responses.retrieve(created.id, stream=True, starting_after=3)
        events: list[Any] = list(client.responses.retrieve(created.id, stream=True))
    assert events[-1].response.output_text == created.output_text


def test_streamed_background_response_can_be_continued(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        id = first_events(start_stream(client, "gemini"), 1)[0].response.id
        waited(client.responses.retrieve, id)
    following = create_response(gateway_setup, "anthropic", "What is the weather in Oslo?", previous_response_id=id)
    assert following.output[-1].type == "function_call"
    assert WHOLE.encode() in gateway_setup.upstream.exchanges[-1].request_body


def test_another_process_and_a_restarted_one_stream_the_job(restarting: RestartableGateway, tmp_path: Path) -> None:
    gateway_setup = restarting.setup
    config = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[state]\npath = "{gateway_setup.state_path}"\n'
    with serve_gateway(Simulator(), config) as second, openai_client(gateway_setup) as client:
        stream = start_stream(client, "anthropic")
        id = next(iter(stream)).response.id
        with openai_client(second) as elsewhere:
            followed: list[Any] = list(elsewhere.responses.retrieve(id, stream=True))
        stream.close()
    assert followed[-1].response.output_text == WHOLE
    with openai_client(restarting.start()) as client:
        later: list[Any] = list(client.responses.retrieve(id, stream=True, starting_after=4))
        assert [event.model_dump() for event in later] == [event.model_dump() for event in followed[5:]]


def test_cancelled_job_ends_the_stream_of_its_readers(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        stream = start_stream(client, "anthropic", "for ever")
        id = next(iter(stream)).response.id
        assert client.responses.cancel(id).status == "cancelled"
        remaining = list(stream)
        assert (remaining[-1].type, remaining[-1].response.status) == ("response.failed", "cancelled")
        replayed: list[Any] = list(client.responses.retrieve(id, stream=True))
        assert (replayed[-1].type, replayed[-1].response.status) == ("response.failed", "cancelled")
        client.responses.delete(id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id, stream=True)


def test_failed_job_ends_its_stream_with_the_error(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        events = list(start_stream(client, "anthropic", "senseless"))
        assert [event.type for event in events] == ["response.created", "response.queued", "response.failed"]
        assert "makes no sense" in events[-1].response.error.message
        assert waited(client.responses.retrieve, events[0].response.id).status == "failed"


def test_stream_of_a_job_interrupted_by_a_restart_ends_with_a_failure(tmp_path: Path) -> None:
    restarting = RestartableGateway(tmp_path / "state.db", Simulator(script=parse_script(SCRIPT, "script")))
    with openai_client(restarting.start()) as client:
        first = first_events(start_stream(client, "anthropic", "for ever"), 8)
        id = first[0].response.id
    with openai_client(restarting.start()) as client:
        events: list[Any] = list(client.responses.retrieve(id, stream=True))
        assert [event.model_dump() for event in events[:8]] == [event.model_dump() for event in first]
        assert (events[-1].type, events[-1].response.status) == ("response.failed", "failed")
    restarting.stop()


def test_number_and_size_of_background_streams_are_limited() -> None:
    script = parse_script(SCRIPT, "script")
    config = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[limits]\nstreams = 1\nanswer = 20000\n'
    with serve_gateway(Simulator(script=script), config) as gateway_setup, openai_client(gateway_setup) as client:
        released = gateway_setup.upstream.hold(lambda exchange, _: len(exchange.response_body) > 1000)
        created = create_response(gateway_setup, "anthropic", "for ever", background=True)
        with pytest.raises(openai.InternalServerError, match="too many background responses"):
            create_response(gateway_setup, "anthropic", "for ever", background=True)
        released.set()
        failed = waited(client.responses.retrieve, created.id)
        assert (failed.status, failed.error.message) == ("failed", "the response is larger than 20000 bytes")


def test_another_key_cannot_follow_a_job(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client, openai_client(gateway_setup, CLIENT_KEYS[1]) as stranger:
        id = first_events(start_stream(client, "anthropic"), 1)[0].response.id
        with pytest.raises(openai.NotFoundError):
            stranger.responses.retrieve(id, stream=True)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_call_of_a_background_interaction_is_answered_by_its_id(gateway_setup: GatewaySetup, upstream: str) -> None:
    tool: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    with google_client(gateway_setup) as client:
        options: dict[str, Any] = {"model": routed_model(upstream), "tools": [tool], "background": True}
        created = client.interactions.create(input="What is the weather?", **options)
        called = waited(client.interactions.get, created.id)
        assert called.status == "requires_action"
        final: Any = client.interactions.create(
            input=function_results_for(called, "snow"),
            previous_interaction_id=created.id,
            **options | {"background": False},
        )
        assert "snow" in final.output_text
