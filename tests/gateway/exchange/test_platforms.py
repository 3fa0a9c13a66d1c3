"""Clients of every protocol at cloud platforms: Claude on Bedrock and Vertex, and Gemini on Vertex."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.assertions import non_empty
from tests.support.gateway.in_process import build_silent_app
from tests.support.gateway.setup import GatewaySetup, ObservedApp
from tests.support.sdk.clients import SDK_CLIENTS, SdkClient
from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, ScriptedError, ScriptedTurn

PLATFORMS = {
    "bedrock": ("anthropic", "bedrock", "eu.anthropic.claude-opus-5-5-v1:0"),
    "vertex-claude": ("anthropic", "vertex", "claude-opus-5-5@20260901"),
    "vertex-gemini": ("gemini", "vertex", "gemini-3-pro"),
}
SETTINGS = 'region = "eu-central-1"\nproject = "a-project"'
QUESTION = 'Call get_weather {"city": "Oslo"} and get_weather {"city": "Rome"}, please.'


@contextmanager
def serve_platform(name: str, **options: Any) -> Iterator[GatewaySetup]:
    """Serve a gateway with a platform as its only upstream."""
    protocol, host, model = PLATFORMS[name]
    simulator = Simulator((protocol,), profiles=[profile_named(host, protocol)], require_key=True, **options)
    upstream = ObservedApp(simulator)
    with serve_app(upstream) as url:
        config = (
            f'[providers.cloud]\nprotocol = "{protocol}"\nhost = "{host}"\nbase_url = "{url}"\n{SETTINGS}\n'
            f'api_key = "a-token"\n[[routes]]\nprovider = "cloud"\nmodel = "{model}"'
        )
        gateway = ObservedApp(build_silent_app(config))
        with serve_app(gateway) as base_url:
            yield GatewaySetup(base_url, gateway, upstream)


@pytest.fixture(scope="module", params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> Iterator[GatewaySetup]:
    with serve_platform(request.param) as setup:
        yield setup


@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
@pytest.mark.parametrize("client", SDK_CLIENTS)
def test_clients_of_every_protocol_run_a_tool_cycle(platform: GatewaySetup, client: str, stream: bool) -> None:
    kind, model = SDK_CLIENTS[client]
    talk: SdkClient = kind(platform.base_url, model, stream=stream)
    first = talk.send_text(QUESTION)
    assert [call.arguments for call in first.calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    second = talk.send_results(first.calls, ["snow, 40 cm", "29 degrees"])
    assert "snow, 40 cm" in second.text


def _post(setup: GatewaySetup, body: dict[str, Any], **headers: str) -> Any:
    return http_client.post(f"{setup.base_url}/v1/messages", json=body, headers={"x-api-key": "k", **headers})


MESSAGE = {
    "model": "claude",
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "Hi"}],
}


def test_bedrock_gets_model_and_stream_in_the_path_and_betas_in_the_body() -> None:
    betas = "interleaved-thinking-2025-05-14,oauth-2025-04-20,context-1m-2025-08-07"
    with serve_platform("bedrock") as setup:
        assert _post(setup, MESSAGE | {"stream": True}, **{"anthropic-beta": betas}).status_code == 200
        (sent,) = setup.upstream.exchanges
        assert sent.path == "/model/eu.anthropic.claude-opus-5-5-v1:0/invoke-with-response-stream"
        assert json.loads(sent.request_body) == {
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 10,
            "messages": MESSAGE["messages"],
            "anthropic_beta": ["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"],
        }
        assert [loss["reason"] for loss in setup.losses()] == ["bedrock rejects the beta oauth-2025-04-20"]


def test_top_level_cache_control_becomes_a_mark_at_the_last_block() -> None:
    mark = {"type": "ephemeral"}
    with serve_platform("bedrock") as setup:
        assert _post(setup, MESSAGE | {"cache_control": mark}).status_code == 200
        (sent,) = setup.upstream.exchanges
    body = json.loads(sent.request_body)
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": mark}]}]
    assert "cache_control" not in body


def test_members_that_bedrock_rejects_are_dropped_and_reported() -> None:
    body = MESSAGE | {"service_tier": "auto", "context_management": {"edits": []}}
    with serve_platform("bedrock") as setup:
        assert _post(setup, body).status_code == 200
        assert {loss["path"] for loss in setup.losses()} == {"/service_tier", "/context_management"}


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_key_of_a_platform_is_a_bearer_token(name: str) -> None:
    with serve_platform(name) as setup:
        assert _post(setup, MESSAGE).status_code == 200
        (sent,) = setup.upstream.exchanges
    assert sent.request_headers["authorization"] == "Bearer a-token"
    assert not {"x-api-key", "x-goog-api-key"} & sent.request_headers.keys()


def test_vertex_gets_the_model_in_the_path_and_keeps_the_rest() -> None:
    with serve_platform("vertex-claude") as setup:
        assert _post(setup, MESSAGE | {"stream": True}).status_code == 200
        (sent,) = setup.upstream.exchanges
    assert sent.path == (
        "/v1/projects/a-project/locations/eu-central-1/publishers/anthropic/models/"
        "claude-opus-5-5@20260901:streamRawPredict"
    )
    assert json.loads(sent.request_body) == {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 10,
        "messages": MESSAGE["messages"],
        "stream": True,
    }


@pytest.mark.parametrize("name", ["bedrock", "vertex-claude"])
def test_errors_of_a_platform_reach_the_client_in_its_protocol(name: str) -> None:
    script = Script((ScriptedTurn(error=ScriptedError(kind="rate_limit", message="Slow down.", retry_after=60)),))
    with serve_platform(name, script=script) as setup:
        response = _post(setup, MESSAGE)
    assert response.status_code == 429
    assert response.json()["error"] == {"type": "rate_limit_error", "message": "Slow down."}


def test_exceptions_within_a_stream_of_bedrock_end_the_stream_with_an_error() -> None:
    script = Script((ScriptedTurn(text="Hello there", error=ScriptedError(message="No more.")),))
    with serve_platform("bedrock", script=script) as setup:
        text = _post(setup, MESSAGE | {"stream": True}).text
    assert "event: error" in text
    assert "No more." in text


def test_truncated_event_stream_ends_with_an_error() -> None:
    script = Script((ScriptedTurn(text="Hello there, friend", cut=2),))
    with serve_platform("bedrock", script=script) as setup:
        text = _post(setup, MESSAGE | {"stream": True}).text
    assert "Hello" in text
    assert "event: error" in text


def test_tokens_are_counted_by_the_platform_or_estimated() -> None:
    for name in non_empty(PLATFORMS):
        with serve_platform(name) as setup:
            response = http_client.post(f"{setup.base_url}/v1/messages/count_tokens", json=MESSAGE)
            assert response.status_code == 200
            assert response.json()["input_tokens"] > 0
            paths = [exchange.path for exchange in setup.upstream.exchanges]
            suffix = {"bedrock": (), "vertex-claude": ("count-tokens:rawPredict",), "vertex-gemini": (":countTokens",)}
            assert [exchange.status for exchange in setup.upstream.exchanges] == [200] * len(suffix[name])
            assert all(path.endswith(suffix[name]) for path in paths)


def test_models_that_have_no_path_are_refused() -> None:
    with serve_any_model() as setup:
        response = _post(setup, MESSAGE | {"model": ".."})
    assert response.status_code == 400
    assert "no path for the model '..'" in response.json()["error"]["message"]


@pytest.mark.parametrize("model", ["claude?x=1", "claude#x", "../../admin", "a b"])
def test_names_of_models_are_one_segment_of_the_path(model: str) -> None:
    with serve_any_model() as setup:
        _post(setup, MESSAGE | {"model": model})
        assert [exchange.path for exchange in setup.upstream.exchanges] == [f"/model/{model}/invoke"]


@contextmanager
def serve_any_model() -> Iterator[GatewaySetup]:
    """Serve a gateway that sends the client's name of a model to Bedrock."""
    protocol, host, _ = PLATFORMS["bedrock"]
    upstream = ObservedApp(Simulator((protocol,), profiles=[profile_named(host, protocol)]))
    with serve_app(upstream) as url:
        config = f'[providers.cloud]\nprotocol = "{protocol}"\nhost = "{host}"\nbase_url = "{url}"\n[[routes]]\n'
        gateway = ObservedApp(build_silent_app(config + 'provider = "cloud"'))
        with serve_app(gateway) as base_url:
            yield GatewaySetup(base_url, gateway, upstream)
