"""Addresses that take requests, as the official clients call them."""

import pytest

from toolwire.codec.surface import EndpointMatch
from toolwire.protocols import PROTOCOLS

CALLED = [
    ("anthropic", "/v1/messages", EndpointMatch()),
    ("openai-chat", "/v1/chat/completions", EndpointMatch()),
    ("openai-responses", "/v1/responses", EndpointMatch()),
    ("gemini", "/v1beta/models/gemini-3-pro:generateContent", EndpointMatch("gemini-3-pro", stream=False)),
    ("gemini", "/v1/models/a/b:c:streamGenerateContent", EndpointMatch("a/b:c", stream=True)),
    ("gemini-interactions", "/v1beta/interactions", EndpointMatch()),
    ("ollama", "/api/chat", EndpointMatch()),
    ("openrouter", "/api/v1/chat/completions", EndpointMatch()),
]


@pytest.mark.parametrize(("protocol", "path", "said"), CALLED)
def test_an_address_belongs_to_one_protocol_and_says_what_it_says(
    protocol: str, path: str, said: EndpointMatch
) -> None:
    found = {name: address for name, codec in PROTOCOLS.items() if (address := codec.surface.match(path)) is not None}
    assert found == {protocol: said}


@pytest.mark.parametrize(
    "path", ["/", "/v1/message", "/v1/messages/", "/v1beta/models/:generateContent", "/v1/models/m"]
)
def test_any_other_address_belongs_to_none(path: str) -> None:
    assert all(codec.surface.match(path) is None for codec in PROTOCOLS.values())


def test_an_error_has_the_status_that_its_protocol_gives_it() -> None:
    assert PROTOCOLS["anthropic"].surface.status_of("overloaded") == 529
    assert PROTOCOLS["openai-chat"].surface.status_of("overloaded") == 503
    assert PROTOCOLS["anthropic"].surface.status_of("rate_limit") == 429


def test_the_key_stands_where_the_provider_looks_for_it() -> None:
    assert PROTOCOLS["anthropic"].surface.auth_header("k") == ("x-api-key", "k")
    assert PROTOCOLS["openrouter"].surface.auth_header("k") == ("authorization", "Bearer k")
