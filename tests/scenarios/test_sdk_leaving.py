"""A program that stops reading: the upstream is let go at once, whatever the SDK and the upstream."""

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

from tests.gateway.running import question
from tests.patience import wait_until
from tests.scenarios.watching import Place, Seen, model_of
from tests.upstream.clients import CLIENTS, KEY

FOR_EVER: Any = [{"role": "user", "content": "for ever"}]


@contextmanager
def from_anthropic(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        anthropic.Anthropic(base_url=base_url, api_key=KEY) as client,
        client.messages.stream(model=model, max_tokens=2000, messages=FOR_EVER) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_openai_chat(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY) as client,
        client.chat.completions.create(model=model, messages=FOR_EVER, stream=True) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_openai_responses(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY) as client,
        client.responses.create(model=model, input="for ever", stream=True) as stream,
    ):
        yield iter(stream)


@contextmanager
def from_gemini(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with genai.Client(api_key=KEY, http_options={"base_url": base_url}) as client:
        yield client.models.generate_content_stream(model=model, contents="for ever")


@contextmanager
def from_gemini_interactions(base_url: str, model: str) -> Iterator[Iterator[Any]]:
    with (
        genai.Client(api_key=KEY, http_options={"base_url": base_url}) as client,
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
        openrouter.OpenRouter(api_key=KEY, server_url=f"{base_url}/api/v1") as client,
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


def check_let_go(seen: Seen) -> None:
    wait_until(lambda: seen.let_go)
    assert not seen.whole


@pytest.mark.parametrize("client", CLIENTS)
def test_in_the_middle_of_a_stream(place: Place, client: str) -> None:
    with STREAMS[client](place.base_url, model_of("anthropic")) as events:
        for _ in range(4):
            next(events)
        (seen,) = place.upstream.seen
        assert not seen.let_go
    check_let_go(seen)


@pytest.mark.parametrize("upstream", CLIENTS)
def test_whatever_the_upstream(place: Place, upstream: str) -> None:
    with from_anthropic(place.base_url, model_of(upstream)) as events:
        for _ in range(4):
            next(events)
        (seen,) = place.upstream.seen
        assert not seen.let_go
    check_let_go(seen)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_before_the_first_byte(place: Place, client: str, stream: bool) -> None:
    path, body = question(client, stream=stream, model=CLIENTS["gemini"][1], text="think long")
    address = place.base_url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: place.upstream.seen and place.upstream.seen[0].asked)
    (seen,) = place.upstream.seen
    assert seen.status == 0
    check_let_go(seen)
