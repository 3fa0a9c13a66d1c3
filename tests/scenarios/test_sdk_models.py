"""The gateway's models, listed and retrieved with each SDK."""

from typing import Any

import anthropic
import ollama
import openai
import openrouter
import pytest
from google import genai

from tests.support.deadlines import DEADLINE
from tests.support.gateway.setup import GatewaySetup, routed_model
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS

OFFERED = [routed_model(name) for name in SDK_CLIENTS]


def test_anthropic_sdk_lists_models(gateway_setup: GatewaySetup) -> None:
    with anthropic.Anthropic(
        base_url=gateway_setup.base_url, api_key=API_KEY, max_retries=0, timeout=DEADLINE
    ) as client:
        assert {model.id for model in client.models.list()} >= set(OFFERED)
        assert [client.models.retrieve(name).id for name in OFFERED] == OFFERED
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("nobody-knows")


def test_openai_sdk_lists_models(gateway_setup: GatewaySetup) -> None:
    with openai.OpenAI(
        base_url=f"{gateway_setup.base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE
    ) as client:
        assert {model.id for model in client.models.list()} >= set(OFFERED)
        assert [client.models.retrieve(name).id for name in OFFERED] == OFFERED
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nobody-knows")


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_google_sdk_lists_models(gateway_setup: GatewaySetup, version: str) -> None:
    options: Any = {"base_url": gateway_setup.base_url, "api_version": version}
    with genai.Client(api_key=API_KEY, http_options=options) as client:
        assert {model.name for model in client.models.list()} >= {f"models/{name}" for name in OFFERED}
        assert [client.models.get(model=name).name for name in OFFERED] == [f"models/{name}" for name in OFFERED]
        with pytest.raises(genai.errors.ClientError, match="404"):
            client.models.get(model="nobody-knows")


def test_ollama_sdk_lists_models(gateway_setup: GatewaySetup) -> None:
    with ollama.Client(host=gateway_setup.base_url) as client:
        assert {model.model for model in client.list().models} >= set(OFFERED)
        assert all("tools" in (client.show(name).capabilities or ()) for name in OFFERED)
        with pytest.raises(ollama.ResponseError) as raised:
            client.show("nobody-knows")
        assert raised.value.status_code == 404


def test_openrouter_sdk_lists_models(gateway_setup: GatewaySetup) -> None:
    with openrouter.OpenRouter(api_key=API_KEY, server_url=f"{gateway_setup.base_url}/api/v1") as client:
        assert {model.id for model in client.models.list().result.data} >= set(OFFERED)
        for name in OFFERED:
            author, _, slug = name.partition("/")
            assert client.models.get(author=author, slug=slug).data.id == name
        with pytest.raises(openrouter.errors.NotFoundResponseError):
            client.models.get(author="nobody", slug="knows")
