"""The vendors' clients for cloud platforms, with the interface of the other SDK clients."""

from functools import cache
from typing import Any

import anthropic
from google import genai
from google.oauth2.credentials import Credentials

from tests.support.sdk.client_interface import API_KEY, SdkClient
from tests.support.sdk.clients import Anthropic
from tests.support.sdk.google_clients import Gemini

REGION = "eu-central-1"
PROJECT = "a-project"


@cache
def _bedrock(base_url: str) -> anthropic.AnthropicBedrock:
    return anthropic.AnthropicBedrock(base_url=base_url, api_key=API_KEY, aws_region=REGION, max_retries=0)


@cache
def _vertex(base_url: str) -> anthropic.AnthropicVertex:
    return anthropic.AnthropicVertex(
        base_url=f"{base_url}/v1", access_token=API_KEY, region=REGION, project_id=PROJECT, max_retries=0
    )


@cache
def _google(base_url: str) -> genai.Client:
    return genai.Client(
        vertexai=True,
        project=PROJECT,
        location=REGION,
        credentials=Credentials(API_KEY),  # type: ignore[no-untyped-call]
        http_options={"base_url": base_url, "retry_options": {"attempts": 1}},
    )


class Bedrock(Anthropic):
    def _client(self) -> Any:
        return _bedrock(self.base_url)


class VertexClaude(Anthropic):
    def _client(self) -> Any:
        return _vertex(self.base_url)


class VertexGemini(Gemini):
    def _client(self) -> genai.Client:
        return _google(self.base_url)


PLATFORM_CLIENTS: dict[str, tuple[str, str, type[SdkClient], str]] = {
    "bedrock": ("bedrock", "anthropic", Bedrock, "eu.anthropic.claude-opus-5-5-v1:0"),
    "vertex-claude": ("vertex", "anthropic", VertexClaude, "claude-opus-5-5@20260901"),
    "vertex-gemini": ("vertex", "gemini", VertexGemini, "gemini-3-pro"),
}
"""By name: the host, its protocol, the client and a model."""
