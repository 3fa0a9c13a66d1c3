"""Errors in tool results, and errors of providers (ER-1 to ER-3, EX-2 to EX-4, EX-11, EX-12)."""

from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_result, interactions_result
from tests.support.bodies.minimal import (
    anthropic_call,
    anthropic_result,
    anthropic_turn,
    chat_chunk,
    chat_events,
    chat_result,
    response_stream,
    responses_call,
    responses_events,
    responses_output,
    responses_response,
    tool_cycle_request,
)
from tests.support.bodies.ollama import ollama_result
from tests.support.bodies.readers import stream_error_message
from tests.support.protocols import (
    ALL_PAIRS,
    ALL_PROTOCOLS,
    ANTHROPIC,
    CHAT,
    GEMINI,
    INTERACTIONS,
    OLLAMA,
    OPENROUTER,
    RESPONSES,
)
from tests.support.translation import loss_kinds, translate_stream_bytes, translated_body

FAILED_REQUEST = anthropic_turn(
    [anthropic_call("toolu_1")], [anthropic_result("toolu_1", "No such city.", is_error=True)]
)


MARKED_TEXT = "[tool error] No such city."
# The failed result in each protocol: with a flag, or with a text marker that decodes to one.
FAILED_RESULTS: dict[str, Any] = {
    ANTHROPIC: FAILED_REQUEST["messages"][2],
    CHAT: chat_result("toolu_1", MARKED_TEXT),
    RESPONSES: {**responses_output("toolu_1", MARKED_TEXT), "status": "incomplete"},
    GEMINI: {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "toolu_1", "name": "get_weather", "response": {"error": "No such city."}}}
        ],
    },
    INTERACTIONS: interactions_result("toolu_1", "No such city.", is_error=True),
    OLLAMA: ollama_result("toolu_1", MARKED_TEXT),
    OPENROUTER: chat_result("toolu_1", MARKED_TEXT),
}
PROTOCOLS_WITHOUT_FLAG = (CHAT, RESPONSES, OLLAMA, OPENROUTER)


def last_item(body: Any) -> Any:
    """Return the last message, content or item of a request."""
    return (body.get("messages") or body.get("input") or body["contents"])[-1]


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != ANTHROPIC])
def test_er_1_an_error_result_is_flagged_or_marked_and_restored_in_its_protocol(target: str) -> None:
    translated = translated_body(FAILED_REQUEST, ANTHROPIC, target)
    assert last_item(translated) == FAILED_RESULTS[target]
    reported = loss_kinds(FAILED_REQUEST, ANTHROPIC, target).get("/messages/2/content/0/is_error")
    assert reported == ("approximated" if target in PROTOCOLS_WITHOUT_FLAG else None)
    assert translated_body(translated, target, ANTHROPIC)["messages"][2] == FAILED_REQUEST["messages"][2]


@pytest.mark.parametrize(("first", "second"), [*ALL_PAIRS, *((protocol, protocol) for protocol in ALL_PROTOCOLS)])
def test_er_2_the_error_flag_survives_every_round_trip(first: str, second: str) -> None:
    body = translated_body(translated_body(FAILED_REQUEST, ANTHROPIC, first), first, second)
    assert last_item(body) == FAILED_RESULTS[second]
    assert translated_body(body, second, ANTHROPIC)["messages"][2] == FAILED_REQUEST["messages"][2]
    fine = translated_body(
        translated_body(tool_cycle_request(ANTHROPIC, "toolu_1"), ANTHROPIC, first), first, ANTHROPIC
    )
    assert "is_error" not in fine["messages"][2]["content"][0]


@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source != GEMINI])
def test_er_3_an_error_is_sent_under_the_error_key(source: str) -> None:
    body = translated_body(FAILED_REQUEST, ANTHROPIC, source)
    (part,) = last_item(translated_body(body, source, GEMINI))["parts"]
    assert part["functionResponse"]["response"] == {"error": "No such city."}
    (fine,) = last_item(translated_body(tool_cycle_request(source, "toolu_1"), source, GEMINI))["parts"]
    assert fine == gemini_result("toolu_1", "result 0")


# Each stream is truncated right after its call, before its end.
ENDS = {
    ANTHROPIC: b"event: content_block_stop",
    CHAT: b'data: {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", '
    b'"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"',
    RESPONSES: b"event: response.output_item.done",
    GEMINI: b'data: {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]',
    INTERACTIONS: b"event: step.stop",
    OLLAMA: b'{"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", '
    b'"message": {"role": "assistant", "content": ""}, "done": true',
}
ENDS[OPENROUTER] = ENDS[CHAT]
TRUNCATED_STREAMS = {
    protocol: response_stream(protocol, "", ("call_1", "Paris")).partition(end) for protocol, end in ENDS.items()
}


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_ex_2_a_truncated_stream_ends_with_an_error_not_with_success(source: str, target: str) -> None:
    truncated, end, _ = TRUNCATED_STREAMS[source]
    assert end
    assert stream_error_message(target, translate_stream_bytes(truncated, source, target)).startswith(
        "the stream ended "
    )


@pytest.mark.parametrize("source", [CHAT, OPENROUTER])
@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES, GEMINI, INTERACTIONS, OLLAMA])
def test_ex_3_an_error_inside_a_chat_stream_is_a_failure(source: str, target: str) -> None:
    broken = {**chat_chunk({}), "choices": [], "error": {"code": 502, "message": "Upstream is gone"}}
    wire = chat_events(chat_chunk({"role": "assistant", "content": ""}), broken)
    assert stream_error_message(target, translate_stream_bytes(wire, source, target)) == "Upstream is gone"


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != RESPONSES])
def test_ex_4_an_error_event_of_a_responses_stream_is_a_failure(target: str) -> None:
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    flat = {"type": "error", "code": "server_error", "message": "Upstream is gone", "param": None}
    assert (
        stream_error_message(target, translate_stream_bytes(responses_events(created, flat), RESPONSES, target))
        == "Upstream is gone"
    )
    error = {"code": "server_error", "message": "Upstream is gone"}
    failed = {"type": "response.failed", "response": responses_response(status="failed", error=error)}
    assert (
        stream_error_message(target, translate_stream_bytes(responses_events(created, failed), RESPONSES, target))
        == "Upstream is gone"
    )


def test_ex_11_a_context_overflow_is_reported_in_the_form_clients_recognize() -> None:
    chat_message = "This model's maximum context length is 128000 tokens. However, you asked for 130000 tokens."
    error = {
        "message": chat_message,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    translated = translated_body({"error": error}, CHAT, ANTHROPIC, "error")
    assert translated["error"]["type"] == "invalid_request_error"
    assert translated["error"]["message"] == f"prompt is too long: {chat_message}"
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    for target in (CHAT, RESPONSES):
        assert translated_body(body, ANTHROPIC, target, "error")["error"]["code"] == "context_length_exceeded"
    routed = translated_body(body, ANTHROPIC, OPENROUTER, "error")["error"]
    assert (routed["code"], routed["metadata"]["error_type"]) == (400, "context_length_exceeded")
    gemini_message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    gemini_error = {"error": {"code": 400, "message": gemini_message, "status": "INVALID_ARGUMENT"}}
    assert (
        translated_body(gemini_error, GEMINI, ANTHROPIC, "error")["error"]["message"]
        == f"prompt is too long: {gemini_message}"
    )
    assert translated_body(gemini_error, GEMINI, CHAT, "error")["error"]["code"] == "context_length_exceeded"


def test_ex_12_a_response_in_the_wrong_protocol_is_refused_with_its_reason() -> None:
    with pytest.raises(toolwire.DecodeError, match="choices"):
        translated_body(responses_response(responses_call("call_1")), CHAT, ANTHROPIC, "response")
