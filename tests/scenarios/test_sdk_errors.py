"""Upstream errors are raised by each SDK as its exception, with the status of the upstream."""

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
# Words that make the simulated upstream fail, with status and message.
FAILURES = [
    ("senseless", 400, "makes no sense"),
    ("what is that", 404, "No such model"),
    ("too fast", 429, "Slow down"),
]
# Ollama's SDK drops headers.
WITHOUT_HEADERS = ("ollama",)


def raised_by(client: str, base_url: str, model: str, trigger: str, *, stream: bool, status: int) -> Any:
    talk = SDK_CLIENTS[client][0](base_url, model, stream=stream)
    with pytest.raises(EXCEPTIONS[client][status]) as raised:
        talk.send_text(trigger)
    error: Any = raised.value
    assert getattr(error, "status_code", getattr(error, "code", None)) == status
    return error


def headers_of(error: Any) -> Any:
    response = getattr(error, "response", None) or error.raw_response
    return response.headers


@for_every_pair
@buffered_and_streamed
def test_upstream_error_is_raised_by_every_sdk(
    gateway_setup: GatewaySetup, client: str, upstream: str, stream: bool
) -> None:
    for trigger, status, message in FAILURES:
        error = raised_by(client, gateway_setup.base_url, routed_model(upstream), trigger, stream=stream, status=status)
        assert message in str(error)
        assert gateway_setup.gateway.exchanges[-1].headers.get("retry-after") == ("33" if status == 429 else None)
        if status == 429 and client not in WITHOUT_HEADERS:
            assert headers_of(error)["retry-after"] == "33"
    assert len(gateway_setup.upstream.exchanges) == len(FAILURES)


@pytest.mark.parametrize("upstream", SDK_CLIENTS)
def test_google_client_raises_for_a_truncated_stream(gateway_setup: GatewaySetup, upstream: str) -> None:
    """Google's Node SDK ignores an in-band error, so the gateway cuts the stream as Google does."""
    talk = SDK_CLIENTS["gemini"][0](gateway_setup.base_url, routed_model(upstream), stream=True)
    with pytest.raises(genai.errors.ServerError) as raised:
        talk.send_text("half of it")
    assert raised.value.code == 500
    assert gateway_setup.gateway.exchanges[-1].response_body.split(b"\n\n")[-2].startswith(b'{"error":')


@pytest.mark.parametrize("client", SDK_CLIENTS)
@buffered_and_streamed
def test_unknown_model_is_raised_by_every_sdk(gateway_setup: GatewaySetup, client: str, stream: bool) -> None:
    error = raised_by(client, gateway_setup.base_url, "nobody-knows", "Hi", stream=stream, status=404)
    assert "unknown model 'nobody-knows'" in str(error)
    assert gateway_setup.upstream.exchanges == []


@pytest.fixture(scope="module")
def locked() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(), '[server]\nkeys = ["a-key-of-the-gateway"]') as gateway_setup:
        yield gateway_setup


@pytest.mark.parametrize("client", SDK_CLIENTS)
@buffered_and_streamed
def test_invalid_key_is_raised_by_every_sdk(locked: GatewaySetup, client: str, stream: bool) -> None:
    error = raised_by(client, locked.base_url, routed_model("anthropic"), "Hi", stream=stream, status=401)
    assert "API key: this gateway needs one of its own keys" in str(error)
    assert locked.upstream.exchanges == []
