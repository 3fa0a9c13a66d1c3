"""Server tools in `reasoning_details`: call and result in other protocols."""

import json
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.codecs import body_as_stream

OPENROUTER = "openrouter"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "openrouter"
RESPONSE = json.loads((FIXTURES / "responses" / "server_tools.json").read_text())
HISTORY = json.loads((FIXTURES / "requests" / "server_tool_in_reasoning.json").read_text())


def entry_losses(losses: list[tw.Loss]) -> list[tuple[str, str]]:
    return [(loss.kind, loss.path.partition("reasoning_details")[2]) for loss in losses if "details/0" in loss.path]


def test_anthropic_client_gets_a_call_and_its_result() -> None:
    translated = tw.translate(RESPONSE, OPENROUTER, "anthropic", "response")
    call, result = translated.value["content"][:2]
    assert (call["name"], call["input"]) == ("web_search", {"query": "Paris"})
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", call["id"])
    assert entry_losses(translated.losses) == [("approximated", "/0")]


def test_responses_client_gets_an_item() -> None:
    translated = tw.translate(RESPONSE, OPENROUTER, "openai-responses", "response").value
    assert translated["output"][0]["type"] == "web_search_call"
    assert translated["output"][0]["action"]["query"] == "Paris"


def test_anthropic_client_gets_a_call_in_a_stream() -> None:
    stream = tw.translate_stream(body_as_stream(RESPONSE, OPENROUTER), OPENROUTER, "anthropic")
    assert b"".join(stream).count(b'"type":"server_tool_use"') == 1
    assert entry_losses(stream.losses) == [("approximated", "/0")]


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "gemini", "ollama"])
def test_server_tool_in_history_is_sent_as_text(target: str) -> None:
    translated = tw.translate(HISTORY, OPENROUTER, target, model="m")
    wire: Any = translated.to_bytes().decode()
    assert "was called with" in wire
    assert entry_losses(translated.losses) == [("approximated", "/0")]


def test_server_tool_entry_passes_through_unchanged() -> None:
    assert tw.translate(RESPONSE, OPENROUTER, OPENROUTER, "response").value == RESPONSE
    assert tw.translate(HISTORY, OPENROUTER, OPENROUTER).value == HISTORY
    wire = (FIXTURES / "streams" / "server_tools.sse").read_bytes()
    passed = b"".join(tw.translate_stream(wire, OPENROUTER, OPENROUTER))
    assert passed.count(b"reasoning.server_tool_call") == wire.count(b"reasoning.server_tool_call")
