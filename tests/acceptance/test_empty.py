"""Empty and null content (EM-1 to EM-9)."""

import json
from typing import Any

import pytest

from tests.support.bodies.google import interactions_response
from tests.support.bodies.minimal import (
    RESPONSES_USAGE,
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_turn,
    chat_request,
    chat_response,
    chat_stream,
    request_with_tools,
    responses_call,
    responses_output,
    responses_request,
    responses_response,
    tool_cycle_request,
)
from tests.support.bodies.ollama import ollama_response
from tests.support.bodies.readers import content_text, message_roles, tool_calls_in, tool_results_in
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


@pytest.mark.parametrize("target", [CHAT, OPENROUTER])
@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source not in (CHAT, OPENROUTER)])
def test_em_1_an_assistant_turn_with_only_calls_has_null_content(source: str, target: str) -> None:
    translated = translated_body(tool_cycle_request(source, "call_1"), source, target)
    assert translated["messages"][1]["content"] is None


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != CHAT])
def test_em_2_null_content_beside_calls_keeps_the_message(target: str) -> None:
    translated = translated_body(tool_cycle_request(CHAT, "call_1"), CHAT, target)
    assert [call["id"] for call in tool_calls_in(target, translated)] == ["call_1"]


@pytest.mark.parametrize("empty", ["", [{"type": "text", "text": ""}]])
def test_em_3_empty_blocks_are_not_sent_and_the_change_is_reported(empty: Any) -> None:
    body = chat_request(
        USER_MESSAGE, {"role": "assistant", "content": empty}, {"role": "user", "content": "Still there?"}
    )
    translated = translated_body(body, CHAT, ANTHROPIC)
    for message in translated["messages"]:
        assert message["content"]
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert all(block["text"] for block in blocks if block["type"] == "text")
    assert has_loss_at(loss_paths(body, CHAT, ANTHROPIC), "/messages/1")


EMPTY_RESULTS: dict[str, Any] = {
    CHAT: {"role": "tool", "tool_call_id": "toolu_1", "content": ""},
    RESPONSES: {"type": "function_call_output", "call_id": "toolu_1", "output": ""},
    GEMINI: {
        "role": "user",
        "parts": [{"functionResponse": {"id": "toolu_1", "name": "get_weather", "response": {}}}],
    },
    INTERACTIONS: {"type": "function_result", "call_id": "toolu_1", "name": "get_weather", "result": ""},
    OLLAMA: {"role": "tool", "tool_call_id": "toolu_1", "tool_name": "get_weather", "content": ""},
    OPENROUTER: {"role": "tool", "tool_call_id": "toolu_1", "content": ""},
}


@pytest.mark.parametrize("target", list(EMPTY_RESULTS))
def test_em_4_a_result_without_content_is_an_empty_result(target: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    translated = translated_body(anthropic_turn([anthropic_call("toolu_1")], [result]), ANTHROPIC, target)
    history = translated.get("messages") or translated.get("input") or translated["contents"]
    assert history[-1] == EMPTY_RESULTS[target]


# Responses whose thinking used up all tokens.
EMPTY_TRUNCATED_RESPONSES: dict[str, Any] = {
    ANTHROPIC: anthropic_response(stop_reason="max_tokens"),
    CHAT: chat_response({"role": "assistant", "content": None}, "length"),
    RESPONSES: responses_response(
        status="incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=RESPONSES_USAGE
    ),
    GEMINI: {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}]},
    INTERACTIONS: interactions_response(status="incomplete"),
    OLLAMA: ollama_response({"role": "assistant", "content": ""}, "length"),
    OPENROUTER: chat_response({"role": "assistant", "content": ""}, "length"),
}


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_em_5_an_empty_response_that_was_cut_is_still_one_response(source: str, target: str) -> None:
    translated = translated_body(EMPTY_TRUNCATED_RESPONSES[source], source, target, "response")
    content = summary(target, translated)
    assert (content["text"], content["calls"], content["stop"]) == ("", [], "max_tokens")
    if target in (CHAT, OPENROUTER):
        (choice,) = translated["choices"]
        assert (choice["message"].get("content") or "", choice["finish_reason"]) == ("", "length")
    if target == GEMINI:
        assert [candidate["finishReason"] for candidate in translated["candidates"]] == ["MAX_TOKENS"]


def test_em_6_an_empty_truncated_response_reports_its_stop_reason() -> None:
    body = chat_response({"role": "assistant", "content": ""}, "length")
    assert translated_body(body, CHAT, ANTHROPIC, "response")["stop_reason"] == "max_tokens"
    translated = translated_body(body, CHAT, RESPONSES, "response")
    assert (translated["status"], translated["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    wire = chat_stream({"content": ""}, finish_reason="length")
    for target in ALL_PROTOCOLS:
        folded = fold_stream(target, translate_stream_bytes(wire, CHAT, target))
        assert (folded["text"], folded["stop"]) == ("", "max_tokens")


def test_em_7_empty_text_beside_calls_makes_no_message() -> None:
    blocks = [{"type": "text", "text": ""}, anthropic_call("toolu_1")]
    translated = translated_body(anthropic_turn(blocks, [anthropic_result("toolu_1")]), ANTHROPIC, CHAT)
    assert message_roles(translated) == ["user", "assistant", "tool"]
    empty_message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "", "annotations": []}],
    }
    body = responses_request(USER_MESSAGE, empty_message, responses_call("call_1"), responses_output("call_1"))
    assert message_roles(translated_body(body, RESPONSES, CHAT)) == ["user", "assistant", "tool"]


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_em_8_an_empty_description_passes_unchanged(source: str, target: str) -> None:
    """Only Bedrock rejects it, and none is invented for the others."""
    body = json.loads(json.dumps(request_with_tools(source, {"get_weather": None})).replace('"Weather."', '""'))
    tool = translated_body(body, source, target)["tools"][0]
    declared = tool["functionDeclarations"][0] if target == GEMINI else tool.get("function", tool)
    assert declared["description"] == ""
    assert not any("description" in path for path in loss_paths(body, source, target))


def test_em_9_only_the_end_of_a_final_assistant_text_is_trimmed() -> None:
    earlier = {"role": "assistant", "content": "One: "}
    body = chat_request(
        USER_MESSAGE, earlier, {"role": "user", "content": "More"}, {"role": "assistant", "content": "Two: \n"}
    )
    translated = translated_body(body, CHAT, ANTHROPIC)
    assert [content_text(message["content"]) for message in translated["messages"]] == [
        "Go on.",
        "One: ",
        "More",
        "Two:",
    ]
    assert has_loss_at(loss_paths(body, CHAT, ANTHROPIC), "/messages/3/content")
    assert translated_body(anthropic_request(USER_MESSAGE, earlier), ANTHROPIC, ANTHROPIC)["messages"][1] == earlier


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_an_empty_result_is_kept(source: str, target: str) -> None:
    body = json.loads(json.dumps(tool_cycle_request(source, "call_1")).replace("result 0", ""))
    assert tool_results_in(target, translated_body(body, source, target)) == [("call_1", "")]


def test_a_response_without_output_is_valid() -> None:
    translated = translated_body(responses_response(), RESPONSES, CHAT, "response")
    assert translated["choices"][0]["finish_reason"] == "stop"
