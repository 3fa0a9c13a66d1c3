"""Simulated cloud platforms: the vendors' clients are served, and requests that the platform refuses are refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest

from tests.support.assertions import non_empty
from tests.support.sdk.clients import SdkClient
from tests.support.sdk.platform_clients import PLATFORM_CLIENTS
from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, ScriptedError, ScriptedTurn

pytest.importorskip("botocore", reason="anthropic reads Bedrock's streams with botocore")
QUESTION = 'Call get_weather {"city": "Oslo"} and get_weather {"city": "Rome"}, please.'
INVOKE = "/model/claude/invoke"
RAW_PREDICT = "/v1/projects/p/locations/global/publishers/anthropic/models/claude:rawPredict"
GENERATE = "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3-pro:generateContent"
BODY = {
    "anthropic_version": "v",
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "Hi"}],
}


@contextmanager
def serve_platform(host: str, protocol: str, **options: Any) -> Iterator[str]:
    with serve_app(Simulator((protocol,), profiles=[profile_named(host, protocol)], **options)) as url:
        yield url


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
@pytest.mark.parametrize("name", PLATFORM_CLIENTS)
def test_clients_of_the_vendors_run_a_tool_cycle(name: str, stream: bool, thinking: bool) -> None:
    host, protocol, kind, model = PLATFORM_CLIENTS[name]
    with serve_platform(host, protocol, require_key=True) as url:
        client: SdkClient = kind(url, model, stream=stream, thinking=thinking)
        first = client.send_text(QUESTION)
        assert [call.arguments for call in first.calls] == [{"city": "Oslo"}, {"city": "Rome"}]
        assert bool(first.thinking) == thinking
        second = client.send_results(first.calls, ["snow, 40 cm", "29 degrees"])
        assert "snow, 40 cm" in second.text
        if stream:
            assert second.event_count > 1


@pytest.mark.parametrize("name", PLATFORM_CLIENTS)
def test_refusals_reach_the_clients_of_the_vendors_as_errors(name: str) -> None:
    host, protocol, kind, model = PLATFORM_CLIENTS[name]
    with serve_platform(host, protocol) as url:
        client = kind(url, model, tools=(), options={"extra_body": {"bogus": 1}} if protocol == "anthropic" else {})
        if protocol == "gemini":
            client.history = [{"role": "user", "parts": [{"function_response": {"name": "f", "response": {}}}]}]
        with pytest.raises(kind.rejection):
            client.send_text("Hi")


def test_errors_within_a_stream_of_bedrock_are_exceptions() -> None:
    host, protocol, kind, model = PLATFORM_CLIENTS["bedrock"]
    script = Script((ScriptedTurn(text="Hello there", error=ScriptedError(message="No more.")),))
    with serve_platform(host, protocol, script=script) as url, pytest.raises(anthropic.APIStatusError, match="No more"):
        kind(url, model, stream=True).send_text("Hi")


REFUSED: dict[str, tuple[str, str, str, dict[str, Any], str]] = {
    "bedrock-no-version": ("bedrock", "anthropic", INVOKE, {"anthropic_version": None}, "anthropic_version"),
    "bedrock-model": ("bedrock", "anthropic", INVOKE, {"model": "claude"}, "model: Extra inputs"),
    "bedrock-stream": ("bedrock", "anthropic", INVOKE, {"stream": True}, "stream: Extra inputs"),
    "bedrock-cache": ("bedrock", "anthropic", INVOKE, {"cache_control": {"type": "ephemeral"}}, "cache_control: Extra"),
    "bedrock-tier": ("bedrock", "anthropic", INVOKE, {"service_tier": "auto"}, "service_tier: Extra inputs"),
    "bedrock-beta": ("bedrock", "anthropic", INVOKE, {"anthropic_beta": ["oauth-2025-04-20"]}, "invalid beta flag"),
    "bedrock-search": (
        "bedrock",
        "anthropic",
        INVOKE,
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "is not supported for this model",
    ),
    "vertex-model": ("vertex", "anthropic", RAW_PREDICT, {"model": "claude"}, "model: Extra inputs"),
    "vertex-no-version": ("vertex", "anthropic", RAW_PREDICT, {"anthropic_version": None}, "anthropic_version"),
    "vertex-invocations": (
        "vertex",
        "gemini",
        GENERATE,
        {"contents": [{"parts": [{"text": "Hi"}]}], "toolConfig": {"includeServerSideToolInvocations": True}},
        "Unknown name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_platform_refuses_is_refused_in_its_words(case: str) -> None:
    host, protocol, path, changes, expected = REFUSED[case]
    body = {**(BODY if protocol == "anthropic" else {}), **changes}
    with serve_platform(host, protocol) as url:
        response = http_client.post(url + path, json={name: value for name, value in body.items() if value is not None})
    assert response.status_code == 400
    assert expected in response.text
    if host == "bedrock":
        assert response.headers["x-amzn-errortype"].startswith("ValidationException")
        assert list(json.loads(response.text)) == ["message"]


def test_beta_header_is_checked_by_vertex() -> None:
    with serve_platform("vertex", "anthropic") as url:
        headers = {"anthropic-beta": "context-1m-2025-08-07, effort-2025-11-24"}
        response = http_client.post(url + RAW_PREDICT, json=BODY, headers=headers)
    assert response.status_code == 400
    assert "Unexpected value(s) `effort-2025-11-24`" in response.text


def test_paths_of_the_vendor_do_not_exist_at_a_platform() -> None:
    for name in non_empty(PLATFORM_CLIENTS):
        host, protocol, _, _ = PLATFORM_CLIENTS[name]
        with serve_platform(host, protocol) as url:
            path = "/v1/messages" if protocol == "anthropic" else "/v1beta/models/gemini-3-pro:generateContent"
            assert http_client.post(url + path, json=BODY).status_code == 404
