"""Simulated hosts answer in their dialect, complete and streamed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.app import Simulator

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def ask(host: str, model: str, text: str = "Call weather {}", **settings: Any) -> Any:
    """Return the body of a response, or the chunks of a stream."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "tools": [TOOL], **settings}
    with serve_app(Simulator(("openai-chat",), profiles=[profile_named(host)])) as url:
        response = http_client.post(f"{url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return list(_chunks(response.text)) if settings.get("stream") else response.json()


def _chunks(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line[len("data: ") :])


@pytest.mark.parametrize(
    ("host", "model", "member"),
    [("deepseek", "deepseek-v4-pro", "reasoning_content"), ("groq", "openai/gpt-oss-120b", "reasoning")],
)
def test_models_think_by_default_in_the_member_of_the_host(host: str, model: str, member: str) -> None:
    assert ask(host, model)["choices"][0]["message"][member]
    deltas = [choice["delta"] for chunk in ask(host, model, stream=True) for choice in chunk["choices"]]
    assert "".join(delta.get(member, "") for delta in deltas) == ask(host, model)["choices"][0]["message"][member]


def test_thinking_can_be_turned_off() -> None:
    answer = ask("deepseek", "deepseek-v4-pro", thinking={"type": "disabled"})
    assert "reasoning_content" not in answer["choices"][0]["message"]


def test_mistral_thinks_in_parts_and_issues_short_ids() -> None:
    message = ask("mistral", "magistral-small-latest")["choices"][0]["message"]
    assert message["content"][0]["type"] == "thinking"
    assert message["content"][0]["thinking"][0]["type"] == "text"
    (call,) = message["tool_calls"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", call["id"])


def test_mistral_streams_usage_without_being_asked() -> None:
    assert ask("mistral", "devstral-medium-latest", stream=True)[-1]["usage"]["prompt_tokens"] > 0


def test_minimax_thinks_between_tags() -> None:
    content = ask("minimax", "MiniMax-M2", "Hi")["choices"][0]["message"]["content"]
    assert re.fullmatch(r"<think>.+</think>.+", content, re.DOTALL)
    deltas = [
        choice["delta"] for chunk in ask("minimax", "MiniMax-M2", "Hi", stream=True) for choice in chunk["choices"]
    ]
    assert "".join(delta.get("content") or "" for delta in deltas) == content


def test_usage_has_the_form_of_the_host() -> None:
    usage = ask("deepseek", "deepseek-chat")["usage"]
    assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"]
    last = ask("groq", "openai/gpt-oss-120b", stream=True, stream_options={"include_usage": True})[-1]
    assert last["x_groq"]["usage"] == last["usage"]
    assert "timings" in ask("llamacpp", "qwen")
