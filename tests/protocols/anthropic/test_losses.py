"""Fields that Anthropic lacks are reported, in a body and in a stream."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies


def dropped_paths(losses: list[tw.Loss]) -> set[str]:
    """Return the paths of dropped values."""
    return {loss.path for loss in losses if loss.kind == "dropped"}


def test_asynchronous_flag_of_a_call_is_dropped() -> None:
    call: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "name": "later", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "started"}
    body = {"model": "m", "input": [{"role": "user", "content": "Go"}, {**call, "async": True}, result]}
    assert "/input/1/async" in dropped_paths(tw.translate(body, "openai-responses", "anthropic").losses)


def test_asynchronous_call_stops_with_tool_use() -> None:
    source = "openai-responses"
    body = tw.translate(recorded_bodies.fixture_responses(source)["async_call"], source, "anthropic", "response").value
    assert [block["type"] for block in body["content"]] == ["tool_use", "text"]
    assert body["stop_reason"] == "tool_use"
    stream = b"".join(tw.translate_stream([recorded_bodies.fixture_streams(source)["async_call"]], source, "anthropic"))
    assert b'"stop_reason":"tool_use"' in stream


@pytest.mark.parametrize(
    ("source", "name", "path"),
    [
        ("openai-chat", "text", "/created"),
        ("gemini-interactions", "google_search", "/usage/total_tokens"),
        ("gemini-interactions", "google_search", "/usage/total_tool_use_tokens"),
    ],
)
def test_stream_reports_the_losses_of_the_body(source: str, name: str, path: str) -> None:
    body = tw.translate(recorded_bodies.fixture_responses(source)[name], source, "anthropic", "response")
    stream = tw.translate_stream([recorded_bodies.fixture_streams(source)[name]], source, "anthropic")
    b"".join(stream)
    assert path in dropped_paths(body.losses)
    assert path in dropped_paths(stream.losses)
