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
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    state = tmp_path_factory.mktemp("state") / "state.db"
    config = f'[server]\nkeys = ["{CLIENT_KEYS[0]}", "{CLIENT_KEYS[1]}"]\n[state]\npath = "{state}"\n'
    with serve_gateway(Simulator(script=parse_script(SCRIPT, "script")), config) as gateway_setup:
        yield gateway_setup


@pytest.fixture
def gateway_setup(shared_gateway: GatewaySetup) -> GatewaySetup:
    shared_gateway.reset()
    return shared_gateway


def waited(look: Any, id: str, *running: str) -> Any:
    results: list[Any] = []

    def is_finished() -> bool:
        results.append(look(id))
        return results[-1].status not in running

    wait_until(is_finished)
    return results[-1]


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_response_completes_in_the_background(gateway_setup: GatewaySetup, upstream: str) -> None:
    released = gateway_setup.upstream.hold(lambda _, body: b"last" in body)
    with openai_client(gateway_setup) as client:
        created = create_response(gateway_setup, upstream, "take your time", background=True)
        assert (created.status, created.output, created.background) == ("queued", [], True)
        with pytest.raises(openai.BadRequestError, match="still in progress"):
            create_response(gateway_setup, upstream, "And?", previous_response_id=created.id)
        released.set()
        finished = waited(client.responses.retrieve, created.id, "queued", "in_progress")
        assert (finished.id, finished.status, finished.output_text, finished.background) == (
            created.id,
            "completed",
            "at last",
            True,
        )
        assert client.responses.cancel(created.id).status == "completed"
        assert create_response(
            gateway_setup, upstream, "What is the weather in Oslo?", previous_response_id=created.id
        ).output
    assert b"at last" in gateway_setup.upstream.exchanges[-1].request_body
    assert b'"background"' not in gateway_setup.upstream.exchanges[0].request_body


def test_completed_response_can_be_streamed(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        created = create_response(gateway_setup, "anthropic", "take your time", background=True)
        events: list[Any] = list(client.responses.retrieve(created.id, stream=True))
    assert events[-1].response.output_text == "at last"


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_interaction_completes_in_the_background(gateway_setup: GatewaySetup, upstream: str) -> None:
    with google_client(gateway_setup) as client:
        released = gateway_setup.upstream.hold(lambda _, body: b"last" in body)
        created = create_interaction(gateway_setup, upstream, "take your time", background=True)
        assert created.status == "in_progress"
        assert client.interactions.get(created.id).status == "in_progress"
        released.set()
        finished = waited(client.interactions.get, created.id, "in_progress")
        assert (finished.status, finished.output_text) == ("completed", "at last")
        following = create_interaction(
            gateway_setup, upstream, "What is the weather in Oslo?", previous_interaction_id=created.id
        )
        assert function_results_for(following, "snow")


def test_cancelled_response_releases_the_upstream(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client, openai_client(gateway_setup, CLIENT_KEYS[1]) as stranger:
        created = create_response(gateway_setup, "anthropic", "for very long", background=True)
        wait_until(lambda: gateway_setup.upstream.exchanges)
        with pytest.raises(openai.NotFoundError):
            stranger.responses.cancel(created.id)
        assert client.responses.retrieve(created.id).status == "queued"
        assert client.responses.cancel(created.id).status == "cancelled"
        assert client.responses.retrieve(created.id).status == "cancelled"
        wait_until(lambda: gateway_setup.upstream.exchanges[0].released)
        assert client.responses.cancel(created.id).status == "cancelled"


def test_job_cancelled_or_deleted_by_another_process_is_stopped(gateway_setup: GatewaySetup, tmp_path: Path) -> None:
    with openai_client(gateway_setup) as client:
        for deed in (client.responses.cancel, client.responses.delete):
            gateway_setup.reset()
            created = create_response(gateway_setup, "anthropic", "for very long", background=True)
            # A second gateway with the same file, which does not run the job.
            state = gateway_setup.state_path
            config = f'[server]\nkeys = ["{CLIENT_KEYS[0]}"]\n[state]\npath = "{state}"\n'
            with serve_gateway(Simulator(), config) as second, openai_client(second) as elsewhere:
                getattr(elsewhere.responses, deed.__name__)(created.id)
            wait_until(lambda: gateway_setup.upstream.exchanges and gateway_setup.upstream.exchanges[0].released)


def test_failed_job_reports_its_error(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client:
        created = create_response(gateway_setup, "anthropic", "senseless", background=True)
        failed = waited(client.responses.retrieve, created.id, "queued", "in_progress")
        assert failed.status == "failed"
        assert failed.error is not None
        assert "makes no sense" in failed.error.message
    with google_client(gateway_setup) as client:
        second = create_interaction(gateway_setup, "anthropic", "senseless", background=True)
        assert waited(client.interactions.get, second.id, "in_progress").status == "failed"


def test_job_interrupted_by_a_restart_has_failed(tmp_path: Path) -> None:
    restarting = RestartableGateway(tmp_path / "state.db", Simulator(script=parse_script(SCRIPT, "script")))
    created = create_response(restarting.start(), "anthropic", "for very long", background=True)
    with openai_client(restarting.start()) as client:
        assert client.responses.retrieve(created.id).status == "failed"
    restarting.stop()


def test_background_requires_store(gateway_setup: GatewaySetup) -> None:
    with openai_client(gateway_setup) as client, pytest.raises(openai.BadRequestError, match="store"):
        client.responses.create(model=routed_model("anthropic"), input="Hi", store=False, background=True)
