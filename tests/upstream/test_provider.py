"""Provider URLs: base URLs as users write them, and the request targets below them."""

import pytest

from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin, Provider, join_path, parse_origin

CHAT, MESSAGES, OPENROUTER = "/v1/chat/completions", "/v1/messages", "/api/v1/chat/completions"
GEMINI, OLLAMA = "/v1beta/models/m:generateContent", "/api/chat"

JOINED = [
    ("", CHAT, CHAT),
    ("/", CHAT, CHAT),
    ("/v1", CHAT, CHAT),
    ("/v1/", CHAT, CHAT),
    ("/openai/v1", CHAT, "/openai/v1/chat/completions"),
    ("/api/paas/v4", CHAT, "/api/paas/v4/chat/completions"),
    ("/v1beta/openai", CHAT, "/v1beta/openai/chat/completions"),
    ("/anthropic", MESSAGES, "/anthropic/v1/messages"),
    ("/api/v1", OPENROUTER, OPENROUTER),
    ("/api", OPENROUTER, OPENROUTER),
    ("/v1beta", GEMINI, GEMINI),
    ("/v1", GEMINI, "/v1/models/m:generateContent"),
    ("/api", OLLAMA, OLLAMA),
    ("", OLLAMA, OLLAMA),
]


@pytest.mark.parametrize(("base", "path", "whole"), JOINED)
def test_base_url_with_version_gets_only_the_rest_of_the_path(base: str, path: str, whole: str) -> None:
    assert join_path(base, path) == whole


def test_query_and_path_settings_change_the_request_target() -> None:
    azure = Provider(
        name="azure",
        protocol="openai-chat",
        base_url="https://x.example",
        path="/openai/deployments/d/chat/completions",
        query={"api-version": "2026-01-01"},
    )
    assert azure.request_target(CHAT) == "/openai/deployments/d/chat/completions?api-version=2026-01-01"
    gemini = Provider(name="g", protocol="gemini", base_url="https://x.example", query={"a": "b c"})
    assert gemini.request_target("/v1beta/models/m:x?alt=sse") == "/v1beta/models/m:x?alt=sse&a=b+c"


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("https://a.example", Origin("https", "a.example", 443), "a.example"),
        ("http://a.example:8080/v1", Origin("http", "a.example", 8080), "a.example:8080"),
        ("http://[::1]:9000", Origin("http", "::1", 9000), "[::1]:9000"),
    ],
)
def test_origin_is_scheme_host_and_port(url: str, origin: Origin, authority: str) -> None:
    assert parse_origin(url) == origin
    assert origin.authority == authority


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a.example", "does not start with http"),
        ("a.example", "does not start with http"),
        ("http://", "has no host"),
        ("http://user:secret@a.example", "must not contain a user name or password"),
        ("http://a.example?x=1", "use the query setting"),
        ("http://a.example/\u00e9", "characters that are not allowed in a URL"),
    ],
)
def test_invalid_base_url_is_rejected_without_echoing_a_password(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_origin(url)
    assert "secret" not in str(refused.value)


def test_configured_headers_override_protocol_headers() -> None:
    surface = PROTOCOLS["anthropic"].surface
    configured_headers = {"Anthropic-Version": "2027-01-01", "x-extra": "1"}
    provider = Provider(
        name="a", protocol="anthropic", base_url="https://x.example", api_key="k", headers=configured_headers
    )
    assert provider.request_headers(surface) == {"anthropic-version": "2027-01-01", "x-api-key": "k", "x-extra": "1"}
