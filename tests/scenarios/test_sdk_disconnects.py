"""Clients that stop reading release the upstream at once, for every SDK and upstream."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import anthropic
import ollama
import openai
import openrouter
import pytest
from google import genai

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.gateway.in_process import question_request
from tests.support.gateway.setup import GatewaySetup, ObservedExchange, routed_model
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS

FOR_EVER: Any = [{"role": "user", "content": "for ever"}]


@contextmanager
def from_anthropic(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        anthropic.Anthropic(base_url=base_url, api_key=API_KEY, timeout=DEADLINE) as client,
        client.messages.stream(model=model, max_tokens=2000, messages=FOR_EVER) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_openai_chat(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, timeout=DEADLINE) as client,
        client.chat.completions.create(model=model, messages=FOR_EVER, stream=True) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_openai_responses(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, timeout=DEADLINE) as client,
        client.responses.create(model=model, input="for ever", stream=True) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_gemini(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as client:
        yield client.models.generate_content_stream(model=model, contents="for ever")


@contextmanager
def from_gemini_interactions(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as client,
        closing(
            cast("Any", client.interactions.create(model=model, input="for ever", store=False, stream=True))
        ) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_ollama(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with ollama.Client(host=base_url) as client:
        stream: Any = client.chat(model=model, messages=FOR_EVER, stream=True)
        with closing(stream):
            yield stream


@contextmanager
def from_openrouter(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        openrouter.OpenRouter(api_key=API_KEY, server_url=f"{base_url}/api/v1") as client,
        client.chat.send(model=model, messages=FOR_EVER, stream=True) as stream,
    ):
        yield iter(stream)


STREAMS: dict[str, Callable[[str, str], Any]] = {
    "anthropic": from_anthropic,
    "openai-chat": from_openai_chat,
    "openai-responses": from_openai_responses,
    "gemini": from_gemini,
    "gemini-interactions": from_gemini_interactions,
    "ollama": from_ollama,
    "openrouter": from_openrouter,
}


def check_released(exchange: ObservedExchange) -> None:
    wait_until(lambda: exchange.released)
    assert not exchange.complete


@pytest.mark.parametrize("client", SDK_CLIENTS)
def test_disconnect_during_a_stream_releases_the_upstream(gateway_setup: GatewaySetup, client: str) -> None:
    with STREAMS[client](gateway_setup.base_url, routed_model("anthropic")) as events:
        for _ in range(4):
            next(events)
        (exchange,) = gateway_setup.upstream.exchanges
        assert not exchange.released
    check_released(exchange)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_disconnect_releases_every_upstream(gateway_setup: GatewaySetup, upstream: str) -> None:
    with from_anthropic(gateway_setup.base_url, routed_model(upstream)) as events:
        for _ in range(4):
            next(events)
        (exchange,) = gateway_setup.upstream.exchanges
        assert not exchange.released
    check_released(exchange)


@pytest.mark.parametrize("client", SDK_CLIENTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_disconnect_before_the_first_byte_releases_the_upstream(
    gateway_setup: GatewaySetup, client: str, stream: bool
) -> None:
    path, body = question_request(client, stream=stream, model=SDK_CLIENTS["gemini"][1], text="think long")
    address = gateway_setup.base_url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: gateway_setup.upstream.exchanges and gateway_setup.upstream.exchanges[0].request_body)
    (exchange,) = gateway_setup.upstream.exchanges
    assert exchange.status == 0
    check_released(exchange)
