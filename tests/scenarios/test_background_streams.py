"""Streams that go on without whoever reads them, and can be read on from any event."""

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
    found = RestartableGateway(state, Simulator(script=parse_script(SCRIPT, "script")))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def place(restarting: RestartableGateway) -> GatewaySetup:
    restarting.setup.reset()
    return restarting.setup


def begun(client: openai.OpenAI, upstream: str, said: str = "count slowly", **more: Any) -> Any:
    return client.responses.create(model=routed_model(upstream), input=said, background=True, stream=True, **more)


def some(stream: Any, count: int) -> list[Any]:
    """The first events, and then nobody listens any more."""
    found = [event for event, _ in zip(stream, range(count), strict=False)]
    stream.close()
    return found


def waited(look: Any, id: str) -> Any:
    found: list[Any] = []

    def over() -> bool:
        found.append(look(id))
        return found[-1].status not in ("queued", "in_progress")

    wait_until(over)
    return found[-1]


def hold_the_end(place: GatewaySetup) -> threading.Event:
    return place.upstream.hold(lambda _, body: b"twelve" in body)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_response_goes_on_without_its_reader(place: GatewaySetup, upstream: str) -> None:
    released = hold_the_end(place)
    with openai_client(place) as client:
        first = some(begun(client, upstream), 6)
        assert [event.type for event in first[:2]] == ["response.created", "response.queued"]
        id = first[0].response.id
        assert (first[0].response.status, first[0].response.background) == ("queued", True)
        running = client.responses.retrieve(id)
        assert running.status == "in_progress"
        released.set()
        rest = list(client.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number))
        events: list[Any] = [*first, *rest]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == WHOLE
        ids = {event.response.id for event in events if hasattr(event, "response")}
        assert ids == {id}
        done = events[-1].response
        assert (events[-1].type, done.status, done.output_text, done.background) == (
            "response.completed",
            "completed",
            WHOLE,
            True,
        )
        kept = waited(client.responses.retrieve, id)
        assert (kept.id, kept.output, kept.background) == (id, done.output, True)
        again = list(client.responses.retrieve(id, stream=True))
        assert [event.model_dump() for event in again] == [event.model_dump() for event in events]
    assert [seen.complete for seen in place.upstream.exchanges] == [True]
    assert b'"background"' not in place.upstream.exchanges[0].request_body


def test_who_reads_is_told_at_once(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        released = hold_the_end(place)
        stream = begun(client, "anthropic")
        text = ""
        while "eleven" not in text:
            text += getattr(next(stream), "delta", "")
        released.set()
        assert text + "".join(getattr(event, "delta", "") for event in stream) == WHOLE


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_an_interaction_is_streamed_by_its_id_and_resumed(place: GatewaySetup, upstream: str) -> None:
    with google_client(place) as client:
        released = hold_the_end(place)
        created: Any = client.interactions.create(model=routed_model(upstream), input="count slowly", background=True)
        watched: Any = client.interactions.get(created.id, stream=True)
        first = some(watched, 4)
        assert client.interactions.get(created.id).status == "in_progress"
        released.set()
        further: Any = client.interactions.get(created.id, stream=True, last_event_id=first[-1].event_id)
        events = [*first, *further]
        assert (events[0].event_type, events[0].interaction.id) == ("interaction.created", created.id)
        assert (events[-1].event_type, events[-1].interaction.id) == ("interaction.completed", created.id)
        assert len({event.event_id for event in events}) == len(events)
        deltas = [event.delta for event in events if event.event_type == "step.delta"]
        assert "".join(delta.text for delta in deltas if delta.type == "text") == WHOLE
        again: Any = client.interactions.get(created.id, stream=True)
        assert list(again) == events
        assert client.interactions.get(created.id).output_text == WHOLE


def test_one_that_came_at_once_can_be_resumed_by_the_events_that_told_it_again(place: GatewaySetup) -> None:
    with google_client(place) as client:
        made: Any = client.interactions.create(model=routed_model("anthropic"), input="Hi")
        replayed: Any = client.interactions.get(made.id, stream=True)
        events = list(replayed)
        rest: Any = client.interactions.get(made.id, stream=True, last_event_id=events[1].event_id)
        assert list(rest) == events[2:]
        with pytest.raises(compat_errors.BadRequestError):
            client.interactions.get(made.id, stream=True, last_event_id="what?")


def test_what_streamed_in_the_foreground_is_not_resumed_by_numbers_that_it_has_no_more(place: GatewaySetup) -> None:
    made = create_response(place, "anthropic", "Hi", stream=True)
    with openai_client(place) as client:
        with pytest.raises(openai.BadRequestError, match="only background responses can be resumed"):
            client.responses.retrieve(made.id, stream=True, starting_after=3)
        events: list[Any] = list(client.responses.retrieve(made.id, stream=True))
    assert events[-1].response.output_text == made.output_text


def test_it_can_be_gone_on_from(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        id = some(begun(client, "gemini"), 1)[0].response.id
        waited(client.responses.retrieve, id)
    following = create_response(place, "anthropic", "What is the weather in Oslo?", previous_response_id=id)
    assert following.output[-1].type == "function_call"
    assert WHOLE.encode() in place.upstream.exchanges[-1].request_body


def test_another_process_tells_it_too_and_so_does_the_next_one(restarting: RestartableGateway, tmp_path: Path) -> None:
    place = restarting.setup
    more = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[state]\npath = "{place.state_path}"\n'
    with serve_gateway(Simulator(), more) as other, openai_client(place) as client:
        stream = begun(client, "anthropic")
        id = next(iter(stream)).response.id
        with openai_client(other) as elsewhere:
            followed: list[Any] = list(elsewhere.responses.retrieve(id, stream=True))
        stream.close()
    assert followed[-1].response.output_text == WHOLE
    with openai_client(restarting.start()) as client:
        later: list[Any] = list(client.responses.retrieve(id, stream=True, starting_after=4))
        assert [event.model_dump() for event in later] == [event.model_dump() for event in followed[5:]]


def test_one_that_is_cancelled_ends_for_its_readers(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        stream = begun(client, "anthropic", "for ever")
        id = next(iter(stream)).response.id
        assert client.responses.cancel(id).status == "cancelled"
        rest = list(stream)
        assert (rest[-1].type, rest[-1].response.status) == ("response.failed", "cancelled")
        again: list[Any] = list(client.responses.retrieve(id, stream=True))
        assert (again[-1].type, again[-1].response.status) == ("response.failed", "cancelled")
        client.responses.delete(id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id, stream=True)


def test_one_that_fails_says_so_in_its_stream(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        events = list(begun(client, "anthropic", "senseless"))
        assert [event.type for event in events] == ["response.created", "response.queued", "response.failed"]
        assert "makes no sense" in events[-1].response.error.message
        assert waited(client.responses.retrieve, events[0].response.id).status == "failed"


def test_one_that_was_under_way_when_the_gateway_stopped_ends_in_a_failure(tmp_path: Path) -> None:
    restarting = RestartableGateway(tmp_path / "state.db", Simulator(script=parse_script(SCRIPT, "script")))
    with openai_client(restarting.start()) as client:
        first = some(begun(client, "anthropic", "for ever"), 8)
        id = first[0].response.id
    with openai_client(restarting.start()) as client:
        events: list[Any] = list(client.responses.retrieve(id, stream=True))
        assert [event.model_dump() for event in events[:8]] == [event.model_dump() for event in first]
        assert (events[-1].type, events[-1].response.status) == ("response.failed", "failed")
    restarting.stop()


def test_there_is_room_for_so_many_and_no_more_and_each_is_only_so_long() -> None:
    script = parse_script(SCRIPT, "script")
    more = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[limits]\nstreams = 1\nanswer = 20000\n'
    with serve_gateway(Simulator(script=script), more) as place, openai_client(place) as client:
        released = place.upstream.hold(lambda seen, _: len(seen.response_body) > 1000)
        made = create_response(place, "anthropic", "for ever", background=True)
        with pytest.raises(openai.InternalServerError, match="too many background responses"):
            create_response(place, "anthropic", "for ever", background=True)
        released.set()
        failed = waited(client.responses.retrieve, made.id)
        assert (failed.status, failed.error.message) == ("failed", "the response is larger than 20000 bytes")


def test_another_key_follows_nothing(place: GatewaySetup) -> None:
    with openai_client(place) as client, openai_client(place, CLIENT_KEYS[1]) as stranger:
        id = some(begun(client, "anthropic"), 1)[0].response.id
        with pytest.raises(openai.NotFoundError):
            stranger.responses.retrieve(id, stream=True)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_call_in_the_background_is_answered_by_its_id(place: GatewaySetup, upstream: str) -> None:
    tool: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    with google_client(place) as client:
        options: dict[str, Any] = {"model": routed_model(upstream), "tools": [tool], "background": True}
        made = client.interactions.create(input="What is the weather?", **options)
        called = waited(client.interactions.get, made.id)
        assert called.status == "requires_action"
        done: Any = client.interactions.create(
            input=function_results_for(called, "snow"),
            previous_interaction_id=made.id,
            **options | {"background": False},
        )
        assert "snow" in done.output_text
