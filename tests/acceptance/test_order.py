"""Order and adjacency of calls and results (OR-1 to OR-16)."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import (
    gemini_call,
    gemini_result,
    gemini_turn,
    interactions_call,
    interactions_input,
    interactions_request,
    interactions_result,
    interactions_text,
)
from tests.support.bodies.minimal import (
    USER_MESSAGE,
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
    responses_message,
    responses_output,
    responses_request,
    responses_turn,
    tool_cycle_request,
)
from tests.support.bodies.readers import (
    content_text,
    interaction_steps,
    message_roles,
    responses_items,
    tool_calls_in,
    tool_results_in,
)
from tests.support.protocols import (
    ALL_PAIRS,
    ALL_PROTOCOLS,
    ANTHROPIC,
    CHAT,
    GEMINI,
    INTERACTIONS,
    OPENROUTER,
    RESPONSES,
)
from tests.support.translation import has_loss_at, loss_kinds, loss_paths, translated_body

SEARCH: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
SEARCH_RESULT: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ADVISOR_CALL: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "advisor", "input": {}}
ADVISOR_RESULT: dict[str, Any] = {
    "type": "advisor_tool_result",
    "tool_use_id": "srvtoolu_2",
    "content": {"type": "advisor_result", "text": "Yes."},
}
NOTE: dict[str, Any] = {"type": "text", "text": "A note."}
OTHER_PROTOCOLS = [protocol for protocol in ALL_PROTOCOLS if protocol != ANTHROPIC]


@pytest.mark.parametrize("target", [CHAT, "ollama", OPENROUTER])
def test_or_1_tool_messages_precede_the_text_of_the_user(target: str) -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [NOTE, anthropic_result("toolu_1")])
    translated = translated_body(body, ANTHROPIC, target)
    assert message_roles(translated) == ["user", "assistant", "tool", "user"]
    assert content_text(translated["messages"][-1]["content"]) == "A note."


def test_or_2_results_around_a_text_stay_together() -> None:
    results = [anthropic_result("toolu_1", "one"), NOTE, anthropic_result("toolu_2", "two")]
    body = anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], results)
    chat = translated_body(body, ANTHROPIC, CHAT)
    assert message_roles(chat) == ["user", "assistant", "tool", "tool", "user"]
    translated = translated_body(body, ANTHROPIC, RESPONSES)
    kinds = [item.get("type", "message") for item in responses_items(translated)]
    assert kinds == [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert tool_results_in(RESPONSES, translated) == [("toolu_1", "one"), ("toolu_2", "two")]
    kinds_of_steps = [step["type"] for step in interaction_steps(translated_body(body, ANTHROPIC, INTERACTIONS))]
    assert kinds_of_steps == ["user_input", "function_call", "function_call", *["function_result"] * 2, "user_input"]


def test_or_3_nothing_is_inserted_before_the_results() -> None:
    reminder = {"role": "system", "content": "Today is Monday."}
    history = [
        USER_MESSAGE,
        chat_assistant(chat_call("call_1")),
        chat_result("call_1"),
        reminder,
        {"role": "user", "content": "And?"},
    ]
    translated = translated_body(chat_request(*history), CHAT, ANTHROPIC)
    result_message = translated["messages"][2]
    assert (result_message["role"], result_message["content"][0]["type"]) == ("user", "tool_result")
    assert [block["type"] for block in result_message["content"]] == ["tool_result"]
    assert "Today is Monday." in content_text(translated["messages"][3]["content"])


# The list that holds the second result, and the path of the second call.
UNANSWERED_CALLS: dict[str, tuple[list[str | int], str]] = {
    ANTHROPIC: (["messages", 2, "content"], "/messages/1/content/1"),
    CHAT: (["messages"], "/messages/1/tool_calls/1"),
    RESPONSES: (["input"], "/input/2"),
    GEMINI: (["contents", 2, "parts"], "/contents/1/parts/1"),
    INTERACTIONS: (["input"], "/input/2"),
    "ollama": (["messages"], "/messages/1/tool_calls/1"),
    OPENROUTER: (["messages"], "/messages/1/tool_calls/1"),
}


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_or_4_results_share_one_turn_and_unanswered_calls_get_a_placeholder(source: str, target: str) -> None:
    translated = translated_body(tool_cycle_request(source, "call_1", "call_2"), source, target)
    if target == ANTHROPIC:
        assert message_roles(translated) == ["user", "assistant", "user"]
    orphan = tool_cycle_request(source, "call_1", "call_2")
    steps, path = UNANSWERED_CALLS[source]
    result_list: Any = orphan
    for step in steps:
        result_list = result_list[step]
    result_list.pop()
    results = tool_results_in(target, translated_body(orphan, source, target))
    assert results == [("call_1", "result 0"), ("call_2", "[no result was recorded for this call]")]
    repaired = toolwire.translate(orphan, source, target, model="gemini-2.5-flash" if source == GEMINI else None)
    (invented,) = [loss for loss in repaired.losses if loss.kind == "added" and loss.path == path]
    assert (
        json.dumps(resolve_pointer(repaired.value, invented.target or "")) == '"[no result was recorded for this call]"'
    )


def resolve_pointer(body: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer."""
    for step in pointer.split("/")[1:]:
        body = body[int(step)] if isinstance(body, list) else body[step]
    return body


def test_or_5_of_two_results_the_last_replaces_the_first() -> None:
    results = [chat_result("call_1", "first"), chat_result("call_2", "other"), chat_result("call_1", "last")]
    body = chat_turn([chat_call("call_1"), chat_call("call_2")], results)
    assert tool_results_in(ANTHROPIC, translated_body(body, CHAT, ANTHROPIC)) == [
        ("call_1", "last"),
        ("call_2", "other"),
    ]
    assert loss_kinds(body, CHAT, ANTHROPIC)["/messages/2"] == "dropped"


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
    for target in ALL_PROTOCOLS:
        if source != target:
            assert tool_results_in(target, translated_body(body, source, target)) == [("call_1", "a"), ("call_2", "b")]


TO_GEMINI = [source for source in ALL_PROTOCOLS if source != GEMINI]


def roles_and_parts(body: Any) -> list[tuple[str, list[str]]]:
    """Return the role of each content and the kinds of its parts."""
    return [(block["role"], [next(iter(part)) for part in block["parts"]]) for block in body["contents"]]


@pytest.mark.parametrize("source", TO_GEMINI)
def test_or_7_all_results_of_a_turn_are_in_one_content(source: str) -> None:
    translated = translated_body(tool_cycle_request(source, "call_1", "call_2", "call_3"), source, GEMINI)
    assert roles_and_parts(translated) == [
        ("user", ["text"]),
        ("model", ["functionCall"] * 3),
        ("user", ["functionResponse"] * 3),
    ]
    assert tool_results_in(GEMINI, translated) == [
        ("call_1", "result 0"),
        ("call_2", "result 1"),
        ("call_3", "result 2"),
    ]


@pytest.mark.parametrize("source", TO_GEMINI)
def test_or_8_nothing_stands_beside_the_results(source: str) -> None:
    body = tool_cycle_request(source, "call_1")
    if source == ANTHROPIC:
        body["messages"][2]["content"].append(NOTE)
    elif source == RESPONSES:
        body["input"].append({"role": "user", "content": "A note."})
    elif source == INTERACTIONS:
        body["input"].append(interactions_input("A note."))
    else:
        body["messages"].append({"role": "user", "content": "A note."})
    translated = translated_body(body, source, GEMINI)
    assert roles_and_parts(translated)[2:] == [("user", ["functionResponse"]), ("user", ["text"])]
    assert translated["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "result 0"}
    assert translated["contents"][3]["parts"] == [{"text": "A note."}]


CALLS_BEFORE_TEXT = {
    ANTHROPIC: anthropic_turn(
        [anthropic_call("call_1"), {"type": "text", "text": "I called."}], [anthropic_result("call_1")]
    ),
    RESPONSES: responses_request(
        USER_MESSAGE, responses_call("call_1"), responses_message("I called."), responses_output("call_1")
    ),
    INTERACTIONS: interactions_request(
        interactions_input(),
        interactions_call("call_1"),
        interactions_text("I called."),
        interactions_result("call_1"),
    ),
}


@pytest.mark.parametrize("source", list(CALLS_BEFORE_TEXT))
def test_or_9_calls_come_last_in_the_turn_of_the_model(source: str) -> None:
    translated = translated_body(CALLS_BEFORE_TEXT[source], source, GEMINI)
    assert roles_and_parts(translated)[1] == ("model", ["text", "functionCall"])
    turn = gemini_turn([gemini_call("call_1"), {"text": "I called."}], [gemini_result("call_1")])
    assert translated_body(turn, GEMINI, GEMINI) == turn


def test_or_10_client_and_server_calls_keep_their_order() -> None:
    body = anthropic_turn(
        [SEARCH, SEARCH_RESULT, anthropic_call("toolu_1"), ADVISOR_CALL, ADVISOR_RESULT], [anthropic_result("toolu_1")]
    )
    assert translated_body(body, ANTHROPIC, ANTHROPIC) == body


@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_or_12_server_calls_and_their_results_are_dropped_together(target: str) -> None:
    body = anthropic_request(
        USER_MESSAGE, {"role": "assistant", "content": [ADVISOR_CALL, ADVISOR_RESULT, NOTE]}, USER_MESSAGE
    )
    translated = translated_body(body, ANTHROPIC, target)
    assert "srvtoolu_2" not in str(translated)
    paths = loss_paths(body, ANTHROPIC, target)
    assert has_loss_at(paths, "/messages/1/content/0")
    assert has_loss_at(paths, "/messages/1/content/1")


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_or_14_results_are_written_in_call_order_not_in_completion_order(protocol: str) -> None:
    calls = [{"id": f"call_{n}", "name": "get_weather", "arguments": "{}"} for n in (1, 2, 3)]
    outputs = [{"id": f"call_{n}", "output": f"result {n}"} for n in (3, 1, 2)]
    results = toolwire.format_tool_results(calls, outputs, protocol)
    field = {RESPONSES: "input", INTERACTIONS: "input", GEMINI: "contents"}.get(protocol, "messages")
    body = {field: results}
    assert [text for _, text in tool_results_in(protocol, body)] == ["result 1", "result 2", "result 3"]


def test_or_15_consecutive_turns_of_one_role_are_merged() -> None:
    body = chat_request(
        USER_MESSAGE, {"role": "user", "content": "Please."}, {"role": "assistant", "content": "Well."}, USER_MESSAGE
    )
    translated = translated_body(body, CHAT, ANTHROPIC)
    assert message_roles(translated) == ["user", "assistant", "user"]
    assert [block["text"] for block in translated["messages"][0]["content"]] == ["Go on.", "Please."]


@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_or_16_a_history_with_calls_needs_no_declared_tools(target: str) -> None:
    """Only Bedrock requires declarations, and none are invented for the others."""
    translated = translated_body(tool_cycle_request(ANTHROPIC, "toolu_1"), ANTHROPIC, target)
    assert "tools" not in translated
    assert [call["id"] for call in tool_calls_in(target, translated)] == ["toolu_1"]
