"""The token estimate covers the entire request and errs on the high side."""

import json
from typing import Any

import pytest

from tests.support.samples.corpus import Recording, needs_recordings, recordings
from toolwire.codec.token_count import estimate_tokens, select_fields


def test_estimate_covers_messages_system_and_tools() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    small = estimate_tokens(json.dumps(body).encode())
    assert 1 <= small <= 20
    system = estimate_tokens(json.dumps({**body, "system": "x" * 300}).encode())
    assert small + 100 <= system <= small + 105
    tools = estimate_tokens(json.dumps({**body, "tools": [{"name": "t", "description": "x" * 300}]}).encode())
    assert small + 700 <= tools <= small + 720


def test_multibyte_characters_count_more_tokens() -> None:
    ascii_count, multibyte = (
        estimate_tokens(json.dumps({"input": character * 300}, ensure_ascii=False).encode())
        for character in ("a", "字")
    )
    assert (ascii_count, multibyte) == (102, 302)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 90_000}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/" + "a" * 90_000}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}},
        {"type": "input_file", "file_data": "data:application/pdf;base64," + "A" * 90_000},
        {"inlineData": {"mimeType": "image/png", "data": "A" * 90_000}},
        {"type": "image", "mime_type": "image/png", "data": "A" * 90_000},
        {"images": ["A" * 90_000]},
    ],
)
def test_media_has_a_flat_token_estimate(part: dict[str, Any]) -> None:
    assert 1600 <= estimate_tokens(json.dumps({"messages": [part]}).encode()) <= 1630


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"[1,2]"])
def test_invalid_bodies_have_an_estimate(body: bytes) -> None:
    assert 0 <= estimate_tokens(body) <= len(body) + 2


def test_selected_fields_stay_verbatim() -> None:
    assert select_fields(b'{"a": 1.0, "b": 2, "c": {"x":  1e400}}', frozenset("ac")) == b'{"a":1.0,"c":{"x":  1e400}}'


# Features whose tokens are not in the body: run or stored by the server, or removed from the recording.
UNCOUNTABLE_FEATURES = {"server_tools", "mcp", "previous_response_id", "tool_search", "media", "client_builtin_tools"}
USAGE_FIELDS = {
    "anthropic": ("usage", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "openai-chat": ("usage", "prompt_tokens"),
    "openai-responses": ("usage", "input_tokens"),
    "gemini": ("usageMetadata", "promptTokenCount"),
}


def real_count(exchange: Recording) -> int:
    usage_field, *names = USAGE_FIELDS[exchange.protocol]
    if (
        not exchange.accepted
        or exchange.kind != "generate"
        or exchange.blob_shrunk
        or exchange.features & UNCOUNTABLE_FEATURES
    ):
        return 0
    usage = exchange.response.get(usage_field) if isinstance(exchange.response, dict) else None
    return sum(usage.get(name) or 0 for name in names) if isinstance(usage, dict) else 0


# Anthropic adds prompts of its own for citations and output formats.
MAX_LOW_PERCENT = {"anthropic": 25, "openai-chat": 2, "openai-responses": 2, "gemini": 2}


@needs_recordings
@pytest.mark.parametrize("protocol", USAGE_FIELDS)
def test_estimate_is_rarely_below_recorded_counts(protocol: str) -> None:
    counted = [(exchange, real) for exchange in recordings(protocol) if (real := real_count(exchange))]
    low = [real for exchange, real in counted if estimate_tokens(json.dumps(exchange.request).encode()) < real]
    assert counted
    assert len(low) * 100 <= len(counted) * MAX_LOW_PERCENT[protocol]
