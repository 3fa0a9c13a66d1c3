"""What goes wrong is raised by each SDK as its own exception, with its status, whoever the upstream is."""

from collections.abc import Iterator
from typing import Any

import anthropic
import ollama
import openai
import openrouter
import pytest
from google import genai
from google.genai._gaos.lib import compat_errors

from tests.support.gateway.setup import GatewaySetup, buffered_and_streamed, for_every_pair, routed_model, serve_gateway
from tests.support.sdk.clients import SDK_CLIENTS
from toolwire.upstream.simulator.app import Simulator

EXCEPTIONS: dict[str, dict[int, type[Exception]]] = {
    "anthropic": {
        400: anthropic.BadRequestError,
        401: anthropic.AuthenticationError,
        404: anthropic.NotFoundError,
        429: anthropic.RateLimitError,
    },
    "openai-chat": {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        404: openai.NotFoundError,
        429: openai.RateLimitError,
    },
    "gemini": dict.fromkeys((400, 401, 404, 429), genai.errors.ClientError),
    "gemini-interactions": {
        400: compat_errors.BadRequestError,
        401: compat_errors.AuthenticationError,
        404: compat_errors.NotFoundError,
        429: compat_errors.RateLimitError,
    },
    "ollama": dict.fromkeys((400, 401, 404, 429), ollama.ResponseError),
    "openrouter": {
        400: openrouter.errors.BadRequestResponseError,
        401: openrouter.errors.UnauthorizedResponseError,
        404: openrouter.errors.NotFoundResponseError,
        429: openrouter.errors.TooManyRequestsResponseError,
    },
}
EXCEPTIONS["openai-responses"] = EXCEPTIONS["openai-chat"]
# The words at which the simulated upstream fails, the status it fails with, and what it says.
FAILURES = [
    ("senseless", 400, "makes no sense"),
    ("what is that", 404, "No such model"),
    ("too fast", 429, "Slow down"),
]
# Ollama's SDK keeps no headers.
WITHOUT_HEADERS = ("ollama",)


def raised_by(client: str, base_url: str, model: str, words: str, *, stream: bool, status: int) -> Any:
    talk = SDK_CLIENTS[client][0](base_url, model, stream=stream)
    with pytest.raises(EXCEPTIONS[client][status]) as raised:
        talk.send_text(words)
    error: Any = raised.value
    assert getattr(error, "status_code", getattr(error, "code", None)) == status
    return error


def headers_of(error: Any) -> Any:
    response = getattr(error, "response", None) or error.raw_response
    return response.headers


@for_every_pair
@buffered_and_streamed
def test_what_an_upstream_refuses(place: GatewaySetup, client: str, upstream: str, stream: bool) -> None:
    for words, status, said in FAILURES:
        error = raised_by(client, place.base_url, routed_model(upstream), words, stream=stream, status=status)
        assert said in str(error)
        assert place.gateway.exchanges[-1].headers.get("retry-after") == ("33" if status == 429 else None)
        if status == 429 and client not in WITHOUT_HEADERS:
            assert headers_of(error)["retry-after"] == "33"
    assert len(place.upstream.exchanges) == len(FAILURES)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_a_stream_that_breaks_off_is_no_answer_to_googles_clients(place: GatewaySetup, upstream: str) -> None:
    """Their Node SDK reads over an error within an event: as Google does, it is written without one."""
    talk = SDK_CLIENTS["gemini"][0](place.base_url, routed_model(upstream), stream=True)
    with pytest.raises(genai.errors.ServerError) as raised:
        talk.send_text("half of it")
    assert raised.value.code == 500
    assert place.gateway.exchanges[-1].response_body.split(b"\n\n")[-2].startswith(b'{"error":')


@pytest.mark.parametrize("client", SDK_CLIENTS)
@buffered_and_streamed
def test_a_model_that_nobody_is_configured_for(place: GatewaySetup, client: str, stream: bool) -> None:
    error = raised_by(client, place.base_url, "nobody-knows", "Hi", stream=stream, status=404)
    assert "unknown model 'nobody-knows'" in str(error)
    assert place.upstream.exchanges == []


@pytest.fixture(scope="module")
def locked() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(), '[server]\nkeys = ["a-key-of-the-gateway"]') as place:
        yield place


@pytest.mark.parametrize("client", SDK_CLIENTS)
@buffered_and_streamed
def test_a_key_that_is_not_the_gateways(locked: GatewaySetup, client: str, stream: bool) -> None:
    error = raised_by(client, locked.base_url, routed_model("anthropic"), "Hi", stream=stream, status=401)
    assert "missing or invalid API key" in str(error)
    assert locked.upstream.exchanges == []
