"""The estimated share of a request that could be read from the prompt cache."""

import json
from typing import Any

import pytest

from toolwire.protocols import PROTOCOLS
from toolwire.translation.cache_share import CacheShare, estimate_cache_share

LONG = "A long text. " * 300
MARK = {"cache_control": {"type": "ephemeral"}}


def share(body: Any, *earlier: Any, protocol: str = "openai-chat") -> float:
    return estimate_cache_share(
        json.dumps(body).encode(), [json.dumps(other).encode() for other in earlier], PROTOCOLS[protocol]
    ).share


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def test_everything_sent_before_could_be_read() -> None:
    assert share(chat(LONG), chat(LONG)) == 1
    assert share(chat(LONG, LONG), chat(LONG)) == pytest.approx(0.5, abs=0.01)
    assert share(chat(LONG, LONG)) == 0
    assert share(chat(LONG, LONG), chat("Other"), chat(LONG, LONG)) == 1


def test_changed_beginning_parts_the_cache() -> None:
    assert share(chat("Now: 1", LONG), chat("Now: 2", LONG)) < 0.01
    assert share(chat(LONG, tools=[{"name": "f"}]), chat(LONG, tools=[{"name": "g"}])) < 0.02
    assert share(chat(LONG + "1", LONG), chat(LONG + "2", LONG)) == pytest.approx(0.5, abs=0.02)


def test_anthropic_reads_up_to_a_mark_of_the_earlier_request() -> None:
    system = [{"type": "text", "text": LONG, **MARK}]
    first, later = chat("Hi", system=system), chat("Hi", LONG, system=system)
    assert share(later, chat("Hi", system=LONG), protocol="anthropic") == 0
    assert share(later, first, protocol="anthropic") == pytest.approx(0.49, abs=0.01)
    automatic = {**first, **MARK}
    assert share({**later, **MARK}, automatic, protocol="anthropic") > share(later, first, protocol="anthropic")


def test_moved_marks_do_not_count() -> None:
    marked = [{"type": "text", "text": LONG, **MARK}]
    first = {"model": "m", "messages": [{"role": "user", "content": marked}]}
    later = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]}
    assert share(later, first, protocol="anthropic") == 1


def test_claude_at_openrouter_needs_marks() -> None:
    claude = {"model": "anthropic/claude-opus-5-5"}
    assert share(chat(LONG, **claude), chat(LONG, **claude), protocol="openrouter") == 0
    assert share(chat(LONG, **claude), chat(LONG, **claude, **MARK), protocol="openrouter") == 1
    assert share(chat(LONG), chat(LONG), protocol="openrouter") == 1


def test_functions_of_gemini_are_compared_one_by_one() -> None:
    function: dict[str, Any] = {"name": "f", "description": LONG}
    search: dict[str, Any] = {"googleSearch": {}}
    first = {"tools": [{"functionDeclarations": [function]}, search]}
    later = {"tools": [{"functionDeclarations": [function, {"name": "g"}]}, search]}
    assert share(later, first, protocol="gemini") > 0.99


def test_empty_request_has_no_share() -> None:
    assert CacheShare(0, 0).share == 0
