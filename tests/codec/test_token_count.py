"""The estimate of what a request takes: of all of it, and rather too high."""

import json
from typing import Any

import pytest

from tests.support.samples.corpus import Recording, needs_recordings, recordings
from toolwire.codec.token_count import estimate_tokens, select_fields


def test_it_counts_everything_that_would_be_sent() -> None:
    said = {"messages": [{"role": "user", "content": "Hi"}]}
    small = estimate_tokens(json.dumps(said).encode())
    assert 1 <= small <= 20
    system = estimate_tokens(json.dumps({**said, "system": "x" * 300}).encode())
    assert small + 100 <= system <= small + 105
    tools = estimate_tokens(json.dumps({**said, "tools": [{"name": "t", "description": "x" * 300}]}).encode())
    assert small + 700 <= tools <= small + 720


def test_letters_that_take_more_bytes_take_more_tokens() -> None:
    plain, other = (
        estimate_tokens(json.dumps({"input": one * 300}, ensure_ascii=False).encode()) for one in ("a", "字")
    )
    assert (plain, other) == (102, 302)


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
def test_what_is_no_text_is_not_counted_by_its_letters(part: dict[str, Any]) -> None:
    assert 1600 <= estimate_tokens(json.dumps({"messages": [part]}).encode()) <= 1630


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"[1,2]"])
def test_whatever_it_is_there_is_an_estimate(body: bytes) -> None:
    assert 0 <= estimate_tokens(body) <= len(body) + 2


def test_fields_are_kept_as_they_are_written() -> None:
    assert select_fields(b'{"a": 1.0, "b": 2, "c": {"x":  1e400}}', frozenset("ac")) == b'{"a":1.0,"c":{"x":  1e400}}'


# Not in the body: what a server runs or remembers by itself, and what the recording replaced.
UNSEEN = {"server_tools", "mcp", "previous_response_id", "tool_search", "media", "client_builtin_tools"}
TOLD = {
    "anthropic": ("usage", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "openai-chat": ("usage", "prompt_tokens"),
    "openai-responses": ("usage", "input_tokens"),
    "gemini": ("usageMetadata", "promptTokenCount"),
}


def real_count(exchange: Recording) -> int:
    place, *names = TOLD[exchange.protocol]
    if not exchange.accepted or exchange.kind != "generate" or exchange.blob_shrunk or exchange.features & UNSEEN:
        return 0
    usage = exchange.response.get(place) if isinstance(exchange.response, dict) else None
    return sum(usage.get(name) or 0 for name in names) if isinstance(usage, dict) else 0


# Of a hundred. Anthropic's models are told more than is in the body, for citations and for formats of output.
SELDOM = {"anthropic": 25, "openai-chat": 2, "openai-responses": 2, "gemini": 2}


@needs_recordings
@pytest.mark.parametrize("protocol", TOLD)
def test_it_is_seldom_below_what_providers_really_counted(protocol: str) -> None:
    counted = [(exchange, real) for exchange in recordings(protocol) if (real := real_count(exchange))]
    low = [real for exchange, real in counted if estimate_tokens(json.dumps(exchange.request).encode()) < real]
    assert counted
    assert len(low) * 100 <= len(counted) * SELDOM[protocol]
