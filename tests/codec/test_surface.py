"""Endpoints, as the official clients call them."""

import pytest

from toolwire.codec.surface import EndpointMatch
from toolwire.protocols import PROTOCOLS

ENDPOINTS = [
    ("anthropic", "/v1/messages", EndpointMatch()),
    ("openai-chat", "/v1/chat/completions", EndpointMatch()),
    ("openai-responses", "/v1/responses", EndpointMatch()),
    ("gemini", "/v1beta/models/gemini-3-pro:generateContent", EndpointMatch("gemini-3-pro", stream=False)),
    ("gemini", "/v1/models/a/b:c:streamGenerateContent", EndpointMatch("a/b:c", stream=True)),
    ("gemini-interactions", "/v1beta/interactions", EndpointMatch()),
    ("ollama", "/api/chat", EndpointMatch()),
    ("openrouter", "/api/v1/chat/completions", EndpointMatch()),
]


@pytest.mark.parametrize(("protocol", "path", "expected"), ENDPOINTS)
def test_path_matches_exactly_one_protocol(protocol: str, path: str, expected: EndpointMatch) -> None:
    matches = {name: match for name, codec in PROTOCOLS.items() if (match := codec.surface.match(path)) is not None}
    assert matches == {protocol: expected}


@pytest.mark.parametrize(
    "path", ["/", "/v1/message", "/v1/messages/", "/v1beta/models/:generateContent", "/v1/models/m"]
)
def test_unknown_path_matches_no_protocol(path: str) -> None:
    assert all(codec.surface.match(path) is None for codec in PROTOCOLS.values())


def test_error_status_depends_on_the_protocol() -> None:
    assert PROTOCOLS["anthropic"].surface.status_of("overloaded") == 529
    assert PROTOCOLS["openai-chat"].surface.status_of("overloaded") == 503
    assert PROTOCOLS["anthropic"].surface.status_of("rate_limit") == 429


def test_auth_header_depends_on_the_protocol() -> None:
    assert PROTOCOLS["anthropic"].surface.auth_header("k") == ("x-api-key", "k")
    assert PROTOCOLS["openrouter"].surface.auth_header("k") == ("authorization", "Bearer k")
