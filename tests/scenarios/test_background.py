"""Background responses and interactions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.deadlines import wait_until
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.gateway.stateful_clients import (
    CLIENT_KEYS,
    RestartableGateway,
    create_interaction,
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
when = "take your time"
repeat = 0
text = "at last"

[[turns]]
when = "for very long"
repeat = 0
text = "never"
delay = 3600

[[turns]]
when = "senseless"
repeat = 0
error = {kind = "invalid_request", message = "That makes no sense."}
"""


@pytest.fixture(scope="module")
def only_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    state = tmp_path_factory.mktemp("state") / "state.db"
    more = f'[server]\nkeys = ["{CLIENT_KEYS[0]}", "{CLIENT_KEYS[1]}"]\n[state]\npath = "{state}"\n'
    with serve_gateway(Simulator(script=parse_script(SCRIPT, "script")), more) as place:
        yield place


@pytest.fixture
def place(only_place: GatewaySetup) -> GatewaySetup:
    only_place.reset()
    return only_place


def waited(look: Any, id: str, *running: str) -> Any:
    found: list[Any] = []

    def over() -> bool:
        found.append(look(id))
        return found[-1].status not in running

    wait_until(over)
    return found[-1]


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_response(place: GatewaySetup, upstream: str) -> None:
    released = place.upstream.hold(lambda _, body: b"last" in body)
    with openai_client(place) as client:
        made = create_response(place, upstream, "take your time", background=True)
        assert (made.status, made.output, made.background) == ("queued", [], True)
        with pytest.raises(openai.BadRequestError, match="still in progress"):
            create_response(place, upstream, "And?", previous_response_id=made.id)
        released.set()
        done = waited(client.responses.retrieve, made.id, "queued", "in_progress")
        assert (done.id, done.status, done.output_text, done.background) == (made.id, "completed", "at last", True)
        assert client.responses.cancel(made.id).status == "completed"
        assert create_response(place, upstream, "What is the weather in Oslo?", previous_response_id=made.id).output
    assert b"at last" in place.upstream.exchanges[-1].request_body
    assert b'"background"' not in place.upstream.exchanges[0].request_body


def test_it_can_be_read_as_a_stream_once_it_is_there(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        made = create_response(place, "anthropic", "take your time", background=True)
        events: list[Any] = list(client.responses.retrieve(made.id, stream=True))
    assert events[-1].response.output_text == "at last"


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_an_interaction(place: GatewaySetup, upstream: str) -> None:
    with google_client(place) as client:
        released = place.upstream.hold(lambda _, body: b"last" in body)
        made = create_interaction(place, upstream, "take your time", background=True)
        assert made.status == "in_progress"
        assert client.interactions.get(made.id).status == "in_progress"
        released.set()
        done = waited(client.interactions.get, made.id, "in_progress")
        assert (done.status, done.output_text) == ("completed", "at last")
        following = create_interaction(place, upstream, "What is the weather in Oslo?", previous_interaction_id=made.id)
        assert function_results_for(following, "snow")


def test_one_that_is_cancelled_lets_go_of_the_upstream(place: GatewaySetup) -> None:
    with openai_client(place) as client, openai_client(place, CLIENT_KEYS[1]) as stranger:
        made = create_response(place, "anthropic", "for very long", background=True)
        wait_until(lambda: place.upstream.exchanges)
        with pytest.raises(openai.NotFoundError):
            stranger.responses.cancel(made.id)
        assert client.responses.retrieve(made.id).status == "queued"
        assert client.responses.cancel(made.id).status == "cancelled"
        assert client.responses.retrieve(made.id).status == "cancelled"
        wait_until(lambda: place.upstream.exchanges[0].released)
        assert client.responses.cancel(made.id).status == "cancelled"


def test_one_that_another_process_cancels_or_deletes_is_given_up(place: GatewaySetup, tmp_path: Path) -> None:
    with openai_client(place) as client:
        for deed in (client.responses.cancel, client.responses.delete):
            place.reset()
            made = create_response(place, "anthropic", "for very long", background=True)
            # A second gateway with the same file, which does not run the job.
            state = place.state_path
            more = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[state]\npath = "{state}"\n'
            with serve_gateway(Simulator(), more) as other, openai_client(other) as elsewhere:
                getattr(elsewhere.responses, deed.__name__)(made.id)
            wait_until(lambda: place.upstream.exchanges and place.upstream.exchanges[0].released)


def test_one_that_fails_says_so(place: GatewaySetup) -> None:
    with openai_client(place) as client:
        made = create_response(place, "anthropic", "senseless", background=True)
        failed = waited(client.responses.retrieve, made.id, "queued", "in_progress")
        assert failed.status == "failed"
        assert failed.error is not None
        assert "makes no sense" in failed.error.message
    with google_client(place) as client:
        other = create_interaction(place, "anthropic", "senseless", background=True)
        assert waited(client.interactions.get, other.id, "in_progress").status == "failed"


def test_one_that_was_under_way_when_the_gateway_stopped_has_failed(tmp_path: Path) -> None:
    restarting = RestartableGateway(tmp_path / "state.db", Simulator(script=parse_script(SCRIPT, "script")))
    made = create_response(restarting.start(), "anthropic", "for very long", background=True)
    with openai_client(restarting.start()) as client:
        assert client.responses.retrieve(made.id).status == "failed"
    restarting.stop()


def test_what_is_not_stored_can_not_run_in_the_background(place: GatewaySetup) -> None:
    with openai_client(place) as client, pytest.raises(openai.BadRequestError, match="store"):
        client.responses.create(model=routed_model("anthropic"), input="Hi", store=False, background=True)
