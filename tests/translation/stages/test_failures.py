"""An answer that failed half way does not look like one that ended well."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.codecs import body_as_stream
from tests.support.samples import recorded_bodies
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.stages.failures import response_error

FAILED = [
    ("openai-responses", "failed"),
    ("openai-responses", "failed_policy"),
    ("openai-chat", "error_in_choice"),
    ("openrouter", "finish_error"),
    ("gemini-interactions", "failed"),
    ("gemini-interactions", "failed_without_errors"),
    ("gemini-interactions", "model_output_error"),
    ("gemini", "stop_malformed_function_call"),
    ("gemini", "stop_malformed_response"),
    ("gemini", "stop_unexpected_tool_call"),
    ("gemini", "stop_too_many_tool_calls"),
]
PAIRS = [(source, name, target) for source, name in FAILED for target in PROTOCOLS if target != source]


@pytest.mark.parametrize(("source", "name", "target"), PAIRS)
def test_a_stream_that_failed_ends_with_an_error(source: str, name: str, target: str) -> None:
    body = recorded_bodies.fixture_responses(source)[name]
    stream = tw.translate_stream(body_as_stream(body, source), source, target)
    told = b"".join(stream)
    assert stream.error is not None
    again = tw.translate_stream(told, target, target)
    assert b"".join(again)
    assert again.error is not None
    assert again.error.message == stream.error.message


@pytest.mark.parametrize(("source", "name", "target"), PAIRS)
def test_a_body_that_failed_says_so_or_reports_it(source: str, name: str, target: str) -> None:
    body = recorded_bodies.fixture_responses(source)[name]
    made = tw.translate(body, source, target, "response")
    told = PROTOCOLS[target].decode_response(made.to_bytes(), ResponseContext())
    if PROTOCOLS[target].errors_in_body:
        assert response_error(told) is not None
    elif response_error(told) is None:
        places = {"choices": "/choices/0/finish_reason", "candidates": "/candidates/0/finishReason"}
        place = next((place for member, place in places.items() if member in body), "/status")
        assert ("approximated", place) in [(loss.kind, loss.path) for loss in made.losses]


def test_another_candidate_that_ended_well_is_no_failure() -> None:
    choices: list[dict[str, Any]] = [
        {"index": index, "message": {"role": "assistant", "content": "It is"}, "finish_reason": reason}
        for index, reason in enumerate(["error", "stop"])
    ]
    answer = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    decoded = PROTOCOLS["openrouter"].decode_response(json.dumps(answer).encode(), ResponseContext())
    assert response_error(decoded) is None
    stream = tw.translate_stream(body_as_stream(answer, "openrouter"), "openrouter", "openai-chat")
    assert b'"finish_reason":"stop"' in b"".join(stream)
    assert stream.error is None
