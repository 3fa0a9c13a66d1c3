"""A response that failed midway does not look like a successful one."""

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
def test_failed_stream_ends_with_an_error(source: str, name: str, target: str) -> None:
    body = recorded_bodies.fixture_responses(source)[name]
    stream = tw.translate_stream(body_as_stream(body, source), source, target)
    out = b"".join(stream)
    assert stream.error is not None
    again = tw.translate_stream(out, target, target)
    assert b"".join(again)
    assert again.error is not None
    assert again.error.message == stream.error.message


@pytest.mark.parametrize(("source", "name", "target"), PAIRS)
def test_failed_body_keeps_or_reports_its_failure(source: str, name: str, target: str) -> None:
    body = recorded_bodies.fixture_responses(source)[name]
    translation = tw.translate(body, source, target, "response")
    decoded = PROTOCOLS[target].decode_response(translation.to_bytes(), ResponseContext())
    if PROTOCOLS[target].errors_in_body:
        assert response_error(decoded) is not None
    elif response_error(decoded) is None:
        pointers = {"choices": "/choices/0/finish_reason", "candidates": "/candidates/0/finishReason"}
        pointer = next((pointer for member, pointer in pointers.items() if member in body), "/status")
        assert ("approximated", pointer) in [(loss.kind, loss.path) for loss in translation.losses]


def test_one_successful_candidate_is_no_failure() -> None:
    choices: list[dict[str, Any]] = [
        {"index": index, "message": {"role": "assistant", "content": "It is"}, "finish_reason": reason}
        for index, reason in enumerate(["error", "stop"])
    ]
    response = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    decoded = PROTOCOLS["openrouter"].decode_response(json.dumps(response).encode(), ResponseContext())
    assert response_error(decoded) is None
    stream = tw.translate_stream(body_as_stream(response, "openrouter"), "openrouter", "openai-chat")
    assert b'"finish_reason":"stop"' in b"".join(stream)
    assert stream.error is None
