"""Ordering and adjacency: OR-1 to OR-16."""

from typing import Any

import pytest

import toolwire
from tests.bodies import (
    GO,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_result,
    chat_turn,
    responses_call,
    responses_output,
    responses_turn,
    turn,
)
from tests.wire import (
    ANTHROPIC,
    CHAT,
    PROTOCOLS,
    RESPONSES,
    calls,
    items,
    lost,
    named,
    results,
    roles,
    text_of,
    translated,
)

SEARCH: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ASKED: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "advisor", "input": {}}
ADVISED: dict[str, Any] = {
    "type": "advisor_tool_result",
    "tool_use_id": "srvtoolu_2",
    "content": {"type": "advisor_result", "text": "Yes."},
}
NOTE: dict[str, Any] = {"type": "text", "text": "A note."}


def test_or_1_tool_messages_come_before_the_users_text() -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [NOTE, anthropic_result("toolu_1")])
    made = translated(body, ANTHROPIC, CHAT)
    assert roles(made) == ["user", "assistant", "tool", "user"]
    assert text_of(made["messages"][-1]["content"]) == "A note."


def test_or_2_results_around_a_text_stay_together() -> None:
    answers = [anthropic_result("toolu_1", "one"), NOTE, anthropic_result("toolu_2", "two")]
    body = anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], answers)
    chat = translated(body, ANTHROPIC, CHAT)
    assert roles(chat) == ["user", "assistant", "tool", "tool", "user"]
    made = translated(body, ANTHROPIC, RESPONSES)
    kinds = [item.get("type", "message") for item in items(made)]
    assert kinds == [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert results(RESPONSES, made) == [("toolu_1", "one"), ("toolu_2", "two")]


def test_or_3_nothing_is_put_before_the_results() -> None:
    reminder = {"role": "system", "content": "Today is Monday."}
    history = [
        GO,
        chat_assistant(chat_call("call_1")),
        chat_result("call_1"),
        reminder,
        {"role": "user", "content": "And?"},
    ]
    made = translated(chat_request(*history), CHAT, ANTHROPIC)
    answer = made["messages"][2]
    assert (answer["role"], answer["content"][0]["type"]) == ("user", "tool_result")
    assert "Today is Monday." in str(made["messages"][2:])


def test_or_4_results_share_one_turn_and_an_unanswered_call_gets_a_placeholder() -> None:
    made = translated(turn(CHAT, "call_1", "call_2"), CHAT, ANTHROPIC)
    assert roles(made) == ["user", "assistant", "user"]
    orphan = chat_turn([chat_call("call_1"), chat_call("call_2")], [chat_result("call_1")])
    repaired = toolwire.translate(orphan, source=CHAT, target=ANTHROPIC, kind="request")
    assert [answered for answered, _ in results(ANTHROPIC, repaired.value)] == ["call_1", "call_2"]
    assert "invented" in {loss.kind for loss in repaired.losses}


def test_or_5_of_two_results_the_last_stands_at_the_place_of_the_first() -> None:
    answers = [chat_result("call_1", "first"), chat_result("call_2", "other"), chat_result("call_1", "last")]
    body = chat_turn([chat_call("call_1"), chat_call("call_2")], answers)
    assert results(ANTHROPIC, translated(body, CHAT, ANTHROPIC)) == [("call_1", "last"), ("call_2", "other")]
    assert any(path.startswith("/messages/") for path in lost(body, CHAT, ANTHROPIC))


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (
            CHAT,
            chat_turn(
                [chat_call("call_1"), chat_call("call_2")],
                [chat_result("call_2", "b"), chat_result("call_1", "a")],
            ),
        ),
        (
            RESPONSES,
            responses_turn(
                [responses_call("call_1"), responses_call("call_2")],
                [responses_output("call_2", "b"), responses_output("call_1", "a")],
            ),
        ),
    ],
)
def test_or_6_results_stand_in_call_order(source: str, body: dict[str, Any]) -> None:
    assert results(ANTHROPIC, translated(body, source, ANTHROPIC)) == [("call_1", "a"), ("call_2", "b")]


def test_or_10_client_and_server_calls_keep_their_order() -> None:
    body = anthropic_turn([SEARCH, FOUND, anthropic_call("toolu_1"), ASKED, ADVISED], [anthropic_result("toolu_1")])
    assert translated(body, ANTHROPIC, ANTHROPIC) == body


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_or_12_a_server_call_and_its_result_go_together(target: str) -> None:
    body = anthropic_request(GO, {"role": "assistant", "content": [ASKED, ADVISED, NOTE]}, GO)
    made = translated(body, ANTHROPIC, target)
    assert "srvtoolu_2" not in str(made)
    paths = lost(body, ANTHROPIC, target)
    assert named(paths, "/messages/1/content/0")
    assert named(paths, "/messages/1/content/1")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_or_14_results_are_written_in_call_order_not_in_completion_order(protocol: str) -> None:
    asked = [{"id": f"call_{n}", "name": "get_weather", "arguments": "{}"} for n in (1, 2, 3)]
    outputs = [{"id": f"call_{n}", "output": f"result {n}"} for n in (3, 1, 2)]
    written = toolwire.format_tool_results(asked, outputs, protocol)
    body = written if protocol == RESPONSES else {"messages": written}
    assert [text for _, text in results(protocol, body)] == ["result 1", "result 2", "result 3"]


def test_or_15_turns_of_one_role_are_coalesced() -> None:
    body = chat_request(GO, {"role": "user", "content": "Please."}, {"role": "assistant", "content": "Well."}, GO)
    made = translated(body, CHAT, ANTHROPIC)
    assert roles(made) == ["user", "assistant", "user"]
    assert "Go on." in str(made["messages"][0])
    assert "Please." in str(made["messages"][0])


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_or_16_a_history_with_calls_needs_no_declared_tools(target: str) -> None:
    """Only Bedrock demands declarations here; for the others none is made up."""
    made = translated(turn(ANTHROPIC, "toolu_1"), ANTHROPIC, target)
    assert not made.get("tools")
    assert [call["id"] for call in calls(target, made)] == ["toolu_1"]
