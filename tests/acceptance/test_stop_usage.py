"""Stop reasons and usage (SR-1 to SR-6, SR-8 to SR-10, US-1 to US-7, US-9 to US-11)."""

import json
import re
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_response
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    anthropic_call,
    anthropic_call_block,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_stream,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_fragment,
    chat_request,
    chat_response,
    chat_stream,
    response_body,
    response_stream,
    responses_item_events,
    responses_message,
    responses_response,
    responses_stream,
)
from tests.support.bodies.readers import frame_types, stream_frames
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
from tests.support.sdk.validation import fold_stream, summary
from tests.support.translation import has_loss_at, loss_paths, translate_stream_bytes, translated_body

TEXT: dict[str, Any] = {"role": "assistant", "content": "Sunny."}
CALL = chat_assistant(chat_call("call_1"))
CALL_DELTA = chat_fragment(0, CITY_ARGUMENTS, id="call_1", name="get_weather")
MESSAGE = responses_message("Sunny.")
CACHED_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "total_tokens": 105,
    "prompt_tokens_details": {"cached_tokens": 80},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


# Streams that end with a normal stop in a separate chunk after the call.
NORMAL_STOPS = {
    CHAT: chat_stream(CALL_DELTA, {"content": ""}, finish_reason="stop"),
    OPENROUTER: chat_stream(CALL_DELTA, {"content": ""}, finish_reason="stop"),
    GEMINI: response_stream(GEMINI, "", ("call_1", "Paris")),
    OLLAMA: response_stream(OLLAMA, "", ("call_1", "Paris")),
}
# The stop that tells the client of each protocol to run its tools.
TOOL_STOPS = {
    ANTHROPIC: b'"stop_reason":"tool_use"',
    CHAT: b'"finish_reason":"tool_calls"',
    RESPONSES: b'"status":"completed"',
    GEMINI: b'"finishReason":"STOP"',
    INTERACTIONS: b'"status":"requires_action"',
    OLLAMA: b'"done_reason":"stop"',
    OPENROUTER: b'"finish_reason":"tool_calls"',
}
PAIRS_WITH_NORMAL_STOP = [(source, target) for source, target in ALL_PAIRS if source in NORMAL_STOPS]


@pytest.mark.parametrize(("source", "target"), PAIRS_WITH_NORMAL_STOP)
def test_sr_1_a_stop_after_a_call_is_a_tool_stop(source: str, target: str) -> None:
    translated = translate_stream_bytes(NORMAL_STOPS[source], source, target)
    assert fold_stream(target, translated)["stop"] == "tool_use"
    assert translated.count(TOOL_STOPS[target]) >= 1
    full_body = translated_body(response_body(source, "", ("call_1", "Paris")), source, target, "response")
    assert summary(target, full_body)["stop"] == "tool_use"


@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source not in (CHAT, OPENROUTER)])
@pytest.mark.parametrize("target", [CHAT, OPENROUTER])
def test_sr_2_a_response_with_calls_finishes_with_tool_calls(source: str, target: str) -> None:
    translated = translated_body(response_body(source, "", ("call_1", "Paris")), source, target, "response")
    assert translated["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (CHAT, chat_response(CALL, "length")),
        (ANTHROPIC, anthropic_response(anthropic_call("a"), stop_reason="max_tokens")),
    ],
)
def test_sr_3_a_truncated_response_is_incomplete_and_so_are_its_calls(source: str, body: dict[str, Any]) -> None:
    translated = translated_body(body, source, RESPONSES, "response")
    assert (translated["status"], translated["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in translated["output"]] == ["incomplete"]


@pytest.mark.parametrize(
    "source",
    [source for source in ALL_PROTOCOLS if source != ANTHROPIC],
)
def test_sr_4_a_response_with_calls_stops_for_tool_use(source: str) -> None:
    body = response_body(source, "Well.", ("call_1", "Paris"))
    assert translated_body(body, source, ANTHROPIC, "response")["stop_reason"] == "tool_use"
    without = translated_body(response_body(source, "Well."), source, ANTHROPIC, "response")
    assert without["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("anthropic", "chat"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
def test_sr_5_every_stop_reason_is_mapped(anthropic: str, chat: str) -> None:
    message = CALL if chat == "tool_calls" else TEXT
    assert translated_body(chat_response(message, chat), CHAT, ANTHROPIC, "response")["stop_reason"] == anthropic
    blocks = [anthropic_call("call_1")] if anthropic == "tool_use" else [{"type": "text", "text": "Sunny."}]
    body = anthropic_response(*blocks, stop_reason=anthropic)
    finish = translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["finish_reason"]
    assert finish == chat
    reported = loss_paths(body, ANTHROPIC, CHAT, "response")
    assert ("/stop_reason" in reported) is (anthropic == "refusal")  # a refusal of the model becomes a content filter


@pytest.mark.parametrize(
    ("target", "path", "failed", "unknown"),
    [
        (ANTHROPIC, ("stop_reason",), "end_turn", "end_turn"),
        (RESPONSES, ("status",), "failed", "completed"),
        ("gemini", ("candidates", 0, "finishReason"), "OTHER", "OTHER"),
        ("gemini-interactions", ("status",), "failed", "incomplete"),
        ("ollama", ("done_reason",), "stop", "stop"),
    ],
)
@pytest.mark.parametrize("reason", ["error", "malformed_tool_use", "something_new"])
def test_sr_6_an_unknown_reason_is_kept_in_its_protocol_and_reported_elsewhere(
    reason: str, target: str, path: tuple[Any, ...], failed: str, unknown: str
) -> None:
    body = chat_response(TEXT, reason)
    assert translated_body(body, CHAT, CHAT, "response")["choices"][0]["finish_reason"] == reason
    assert translated_body(body, CHAT, OPENROUTER, "response")["choices"][0]["native_finish_reason"] == reason
    translated = translated_body(body, CHAT, target, "response")
    assert "Sunny." in json.dumps(translated)
    word = translated
    for step in path:
        word = word[step]
    assert word == (failed if reason == "error" else unknown)
    # A failure stays a failure where the protocol has one.
    exact = reason == "error" and failed == "failed"
    assert has_loss_at(loss_paths(body, CHAT, target, "response"), "/choices/0/finish_reason") != exact


def test_sr_8_a_refusal_is_surfaced() -> None:
    refused = chat_response({"role": "assistant", "content": None, "refusal": "I can't."}, "stop")
    translated = translated_body(refused, CHAT, ANTHROPIC, "response")
    assert translated["stop_reason"] == "refusal"
    assert summary(ANTHROPIC, translated)["text"] == "I can't."
    assert summary(RESPONSES, translated_body(refused, CHAT, RESPONSES, "response"))["refusal"] == "I can't."
    filtered = chat_response({"role": "assistant", "content": None}, "content_filter")
    assert translated_body(filtered, CHAT, ANTHROPIC, "response")["stop_reason"] == "refusal"
    translated = translated_body(filtered, CHAT, RESPONSES, "response")
    assert translated["incomplete_details"] == {"reason": "content_filter"}


def test_sr_9_structured_output_is_not_implemented_as_a_tool() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    described = {"name": "answer", "schema": schema, "strict": True}
    body = chat_request(response_format={"type": "json_schema", "json_schema": described})
    translated = translated_body(body, CHAT, ANTHROPIC)
    assert translated["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    assert not {"tools", "tool_choice"} & translated.keys()
    assert translated_body(body, CHAT, GEMINI)["generationConfig"]["responseJsonSchema"] == schema
    assert translated_body(body, CHAT, OLLAMA)["format"] == schema


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != RESPONSES])
def test_sr_10_an_incomplete_response_is_a_response_not_a_failure(target: str) -> None:
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    wire = responses_stream(*responses_item_events(0, MESSAGE), output=[MESSAGE], status="incomplete", **cut)
    translated = translate_stream_bytes(wire, RESPONSES, target)
    folded = fold_stream(target, translated)
    assert (folded["text"], folded["stop"]) == ("Sunny.", "max_tokens")
    assert b'"error"' not in translated
    if target == ANTHROPIC:
        assert frame_types(translated)[-1] == "message_stop"


def test_us_1_the_last_usage_of_a_stream_is_correct() -> None:
    wire = chat_stream(CALL_DELTA, usage=CACHED_USAGE)
    final = [
        frame
        for frame in stream_frames(translate_stream_bytes(wire, CHAT, ANTHROPIC))
        if frame["type"] == "message_delta"
    ][-1]
    counted = final["usage"]
    assert (counted["input_tokens"], counted["cache_read_input_tokens"], counted["output_tokens"]) == (
        20,
        80,
        5,
    )


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_us_2_totals_are_conserved_under_each_convention(source: str) -> None:
    counted = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 105,
    }
    body = chat_response(CALL, usage=CACHED_USAGE) if source == CHAT else responses_response(MESSAGE, usage=counted)
    translated = translated_body(body, source, ANTHROPIC, "response")
    usage = translated["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (20, 80, 5)
    restored = translated_body(translated, ANTHROPIC, source, "response")["usage"]
    assert (restored["total_tokens"], summary(source, {**body, "usage": restored})["usage"]["cache_read"]) == (
        105,
        80,
    )


def test_us_3_repeated_usage_is_not_summed() -> None:
    later = {"input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 4}
    wire = anthropic_stream(*anthropic_call_block(0, "toolu_1"), usage=later)
    request = chat_request(stream=True, stream_options={"include_usage": True})
    folded = fold_stream(CHAT, translate_stream_bytes(wire, ANTHROPIC, CHAT, request))["usage"]
    assert (folded["input"], folded["output"], folded["cache_read"]) == (13, 7, 4)


@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source != RESPONSES])
def test_us_4_reasoning_tokens_are_always_reported(source: str) -> None:
    translated = translated_body(response_body(source, "", ("call_1", "Paris")), source, RESPONSES, "response")
    assert translated["usage"]["output_tokens_details"]["reasoning_tokens"] == 0
    assert (translated["usage"]["input_tokens"], translated["usage"]["output_tokens"]) == (9, 7)


def test_us_5_usage_is_requested_upstream_and_hidden_from_clients_that_did_not_ask() -> None:
    translated = translated_body(anthropic_request(stream=True), ANTHROPIC, CHAT)
    assert translated["stream_options"]["include_usage"] is True
    trailing = chat_stream(CALL_DELTA, usage=CACHED_USAGE)
    assert fold_stream(ANTHROPIC, translate_stream_bytes(trailing, CHAT, ANTHROPIC))["usage"]["input"] == 100
    wire = anthropic_stream(*anthropic_call_block(0, "toolu_1"))
    chunks = stream_frames(translate_stream_bytes(wire, ANTHROPIC, CHAT, chat_request(stream=True)))
    assert [chunk for chunk in chunks if chunk.get("usage")] == []


def test_us_6_thinking_tokens_are_counted() -> None:
    usage = {"input_tokens": 9, "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 5}}
    body = anthropic_response(anthropic_call("toolu_1"), usage=usage)
    translated = translated_body(body, ANTHROPIC, CHAT, "response")["usage"]
    assert (translated["completion_tokens"], translated["completion_tokens_details"]["reasoning_tokens"]) == (7, 5)
    restored = translated_body(chat_response(CALL, usage=CACHED_USAGE), CHAT, ANTHROPIC, "response")["usage"]
    assert restored["output_tokens_details"]["thinking_tokens"] == 3
    thought = {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": 16}
    body = gemini_response({"text": "Sunny."}, usageMetadata=thought)
    translated = translated_body(body, GEMINI, CHAT, "response")["usage"]
    assert (translated["completion_tokens"], translated["completion_tokens_details"]["reasoning_tokens"]) == (7, 5)
    assert translated["total_tokens"] == 16
    gemini_usage = translated_body(chat_response(CALL, usage=CACHED_USAGE), CHAT, GEMINI, "response")["usageMetadata"]
    assert (gemini_usage["candidatesTokenCount"], gemini_usage["thoughtsTokenCount"]) == (2, 3)


def test_us_7_the_usage_of_an_incomplete_response_is_captured() -> None:
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    wire = responses_stream(*responses_item_events(0, MESSAGE), output=[MESSAGE], status="incomplete", **cut)
    folded = fold_stream(ANTHROPIC, translate_stream_bytes(wire, RESPONSES, ANTHROPIC))["usage"]
    assert (folded["input"], folded["output"]) == (9, 7)


def test_us_9_at_most_four_cache_marks_are_sent() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    parts = [{"type": "text", "text": f"Part {n}.", **mark} for n in range(6)]
    body = chat_request({"role": "user", "content": parts})
    assert str(translated_body(body, CHAT, ANTHROPIC)).count("cache_control") == 4
    reported = {path for path in loss_paths(body, CHAT, ANTHROPIC) if "prompt_cache_breakpoint" in path}
    assert {path.split("/prompt_cache_breakpoint")[0] for path in reported} == {
        "/messages/0/content/4",
        "/messages/0/content/5",
    }
    marked = [{"type": "text", "text": f"Part {n}.", "cache_control": {"type": "ephemeral"}} for n in range(5)]
    findings = toolwire.check(anthropic_request({"role": "user", "content": marked}), ANTHROPIC)
    assert [finding.level for finding in findings] == ["error"]


@pytest.mark.parametrize("target", [CHAT, RESPONSES, GEMINI, INTERACTIONS, OLLAMA])
def test_us_10_a_cache_mark_without_equivalent_is_reported_at_its_position(target: str) -> None:
    mark: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    result = anthropic_result("toolu_1", **mark)
    body = anthropic_turn([anthropic_call("toolu_1")], [result], tools=[anthropic_tool(**mark)])
    assert "cache_control" not in str(translated_body(body, ANTHROPIC, target))
    paths = loss_paths(body, ANTHROPIC, target)
    assert has_loss_at(paths, "/tools/0/cache_control")
    assert has_loss_at(paths, "/messages/2/content/0/cache_control")


@pytest.mark.parametrize("number", [b"", b'"sequence_number": 0, '])
def test_us_11_usage_does_not_depend_on_sequence_numbers(number: bytes) -> None:
    numbered = responses_stream(*responses_item_events(0, MESSAGE), output=[MESSAGE])
    wire = re.sub(rb'"sequence_number": \d+, ', number, numbered)
    assert wire != numbered
    folded = fold_stream(ANTHROPIC, translate_stream_bytes(wire, RESPONSES, ANTHROPIC))
    assert (folded["text"], folded["usage"]["input"], folded["usage"]["output"]) == ("Sunny.", 9, 7)
