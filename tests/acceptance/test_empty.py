"""Empty and null content: EM-1 to EM-9."""

from typing import Any

import pytest

from tests.bodies import (
    GO,
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_call,
    chat_request,
    chat_response,
    chat_result,
    chat_turn,
    responses_call,
    responses_output,
    responses_request,
    responses_response,
    turn,
)
from tests.wire import (
    ANTHROPIC,
    CHAT,
    PAIRS,
    RESPONSES,
    calls,
    lost,
    named,
    results,
    roles,
    text_of,
    translated,
)


@pytest.mark.parametrize("source", [ANTHROPIC, RESPONSES])
def test_em_1_an_assistant_that_only_calls_has_null_content(source: str) -> None:
    made = translated(turn(source, "call_1"), source, CHAT)
    assert made["messages"][1]["content"] is None


@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES])
def test_em_2_null_content_beside_calls_keeps_the_message(target: str) -> None:
    made = translated(turn(CHAT, "call_1"), CHAT, target)
    assert [call["id"] for call in calls(target, made)] == ["call_1"]


@pytest.mark.parametrize("empty", ["", [{"type": "text", "text": ""}]])
def test_em_3_no_empty_block_is_sent_and_the_change_is_reported(empty: Any) -> None:
    body = chat_request(GO, {"role": "assistant", "content": empty}, {"role": "user", "content": "Still there?"})
    made = translated(body, CHAT, ANTHROPIC)
    for message in made["messages"]:
        assert message["content"]
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert all(block["text"] for block in blocks if block["type"] == "text")
    assert named(lost(body, CHAT, ANTHROPIC), "/messages/1")


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_em_4_a_result_without_content_is_an_empty_one(target: str) -> None:
    answer = {"type": "tool_result", "tool_use_id": "toolu_1"}
    made = translated(anthropic_turn([anthropic_call("toolu_1")], [answer]), ANTHROPIC, target)
    assert results(target, made) == [("toolu_1", "")]
    held = made["messages"][-1]["content"] if target == CHAT else made["input"][-1]["output"]
    assert held == ""


def test_em_5_an_answer_with_nothing_in_it_is_still_one_choice() -> None:
    made = translated(anthropic_response(stop_reason="max_tokens"), ANTHROPIC, CHAT, "response")
    (choice,) = made["choices"]
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", "length")


def test_em_6_an_empty_answer_that_was_cut_says_so() -> None:
    body = chat_response({"role": "assistant", "content": ""}, "length")
    assert translated(body, CHAT, ANTHROPIC, "response")["stop_reason"] == "max_tokens"
    made = translated(body, CHAT, RESPONSES, "response")
    assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_em_7_empty_text_beside_calls_makes_no_message() -> None:
    blocks = [{"type": "text", "text": ""}, anthropic_call("toolu_1")]
    made = translated(anthropic_turn(blocks, [anthropic_result("toolu_1")]), ANTHROPIC, CHAT)
    assert roles(made) == ["user", "assistant", "tool"]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "", "annotations": []}],
    }
    body = responses_request(GO, said, responses_call("call_1"), responses_output("call_1"))
    assert roles(translated(body, RESPONSES, CHAT)) == ["user", "assistant", "tool"]


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_em_8_an_empty_description_arrives_or_is_reported(target: str) -> None:
    """Only Bedrock refuses it; nothing is made up for the others."""
    body = anthropic_request(tools=[{**anthropic_tool(), "description": ""}])
    tool = translated(body, ANTHROPIC, target)["tools"][0]
    described = tool["function"] if target == CHAT else tool
    assert described.get("description") == "" or named(lost(body, ANTHROPIC, target), "/tools/0/description")


def test_em_9_only_the_end_of_a_final_assistant_text_is_trimmed() -> None:
    earlier = {"role": "assistant", "content": "One: "}
    body = chat_request(GO, earlier, {"role": "user", "content": "More"}, {"role": "assistant", "content": "Two: \n"})
    made = translated(body, CHAT, ANTHROPIC)
    assert [text_of(message["content"]) for message in made["messages"]] == [
        "Go on.",
        "One: ",
        "More",
        "Two:",
    ]
    assert named(lost(body, CHAT, ANTHROPIC), "/messages/3/content")
    assert translated(anthropic_request(GO, earlier), ANTHROPIC, ANTHROPIC)["messages"][1] == earlier


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_empty_result_is_a_result(source: str, target: str) -> None:
    bodies = {
        ANTHROPIC: anthropic_turn([anthropic_call("call_1")], [anthropic_result("call_1", "")]),
        CHAT: chat_turn([chat_call("call_1")], [chat_result("call_1", "")]),
        RESPONSES: responses_request(GO, responses_call("call_1"), responses_output("call_1", "")),
    }
    assert results(target, translated(bodies[source], source, target)) == [("call_1", "")]


def test_a_response_without_output_is_an_answer() -> None:
    made = translated(responses_response(), RESPONSES, CHAT, "response")
    assert made["choices"][0]["finish_reason"] == "stop"
