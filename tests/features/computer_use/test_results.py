"""Results of computer use: screenshots, and text beside them."""

import toolwire as tw
from tests.support.bodies.computer_use import (
    COMPUTER_CALLS,
    COMPUTER_SCREENSHOT,
    computer_calls_in,
    computer_request,
    computer_response,
    computer_turn,
    tool_use,
)
from tests.support.protocols import ANTHROPIC, RESPONSES


def test_a_result_without_a_screenshot_repeats_the_last_one_and_adds_text() -> None:
    turn = computer_turn(ANTHROPIC, [tool_use("a1", "cursor_position"), tool_use("a2", "screenshot")])
    turn[1]["content"][0] |= {"content": "X=1,Y=2", "is_error": True}
    encoded = tw.translate(computer_request(ANTHROPIC, *turn), ANTHROPIC, RESPONSES)
    items = encoded.value["input"]
    outputs = [item for item in items if item.get("type") == "computer_call_output"]
    assert outputs == [
        {"type": "computer_call_output", "call_id": id, "output": COMPUTER_SCREENSHOT} for id in ("a1", "a2")
    ]
    text_call = {"type": "function_call", "call_id": "a1_said", "name": "computer_said", "arguments": "{}"}
    text_result = {"type": "function_call_output", "call_id": "a1_said", "output": "[tool error] X=1,Y=2"}
    assert [items[-2], {name: items[-1][name] for name in text_result}] == [text_call, text_result]
    paths = {loss.path for loss in encoded.losses if loss.kind == "approximated"}
    assert {"/messages/2/content/0/content", "/messages/2/content/0/is_error"} <= paths


def test_a_result_of_several_parts_has_the_last_screenshot_and_all_text() -> None:
    translated = tw.translate(
        computer_response(RESPONSES, *COMPUTER_CALLS[RESPONSES]),
        RESPONSES,
        ANTHROPIC,
        "response",
        request=computer_request(ANTHROPIC),
    )
    turn = computer_turn(ANTHROPIC, computer_calls_in(ANTHROPIC, translated.value))
    turn[1]["content"][0]["content"] = "clicked"
    encoded = tw.translate(computer_request(ANTHROPIC, *turn), ANTHROPIC, RESPONSES)
    items = [item for item in encoded.value["input"] if item.get("type") != "message"]
    assert [item.get("type") for item in items[1:3]] == ["computer_call", "computer_call_output"]
    assert [item.get("output") for item in items[3:]] == [None, "clicked"]
    assert "/messages/2/content/1/content/0" in {loss.path for loss in encoded.losses if loss.kind == "dropped"}
