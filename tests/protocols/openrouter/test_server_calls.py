"""What OpenRouter's own tools did while a model thought: an entry of its reasoning, a call and a result elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.codecs import body_as_stream

ROUTER = "openrouter"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "openrouter"
ANSWER = json.loads((FIXTURES / "responses" / "server_tools.json").read_text())
HISTORY = json.loads((FIXTURES / "requests" / "server_tool_in_reasoning.json").read_text())


def entry_losses(losses: list[tw.Loss]) -> list[tuple[str, str]]:
    return [(loss.kind, loss.path.partition("reasoning_details")[2]) for loss in losses if "details/0" in loss.path]


def test_a_client_of_anthropic_reads_a_call_and_its_result() -> None:
    made = tw.translate(ANSWER, ROUTER, "anthropic", "response")
    call, result = made.value["content"][:2]
    assert (call["name"], call["input"]) == ("web_search", {"query": "Paris"})
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", call["id"])
    assert entry_losses(made.losses) == [("approximated", "/0")]


def test_a_client_of_responses_reads_an_item() -> None:
    made = tw.translate(ANSWER, ROUTER, "openai-responses", "response").value
    assert made["output"][0]["type"] == "web_search_call"
    assert made["output"][0]["action"]["query"] == "Paris"


def test_so_it_does_in_a_stream() -> None:
    stream = tw.translate_stream(body_as_stream(ANSWER, ROUTER), ROUTER, "anthropic")
    assert b"".join(stream).count(b'"type":"server_tool_use"') == 1
    assert entry_losses(stream.losses) == [("approximated", "/0")]


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "gemini", "ollama"])
def test_in_a_history_it_is_told_as_text(target: str) -> None:
    made = tw.translate(HISTORY, ROUTER, target, model="m")
    told: Any = made.to_bytes().decode()
    assert "was called with" in told
    assert entry_losses(made.losses) == [("approximated", "/0")]


def test_at_home_it_is_as_it_was() -> None:
    assert tw.translate(ANSWER, ROUTER, ROUTER, "response").value == ANSWER
    assert tw.translate(HISTORY, ROUTER, ROUTER).value == HISTORY
    wire = (FIXTURES / "streams" / "server_tools.sse").read_bytes()
    home = b"".join(tw.translate_stream(wire, ROUTER, ROUTER))
    assert home.count(b"reasoning.server_tool_call") == wire.count(b"reasoning.server_tool_call")
