"""Screen actions, one by one, in the format of each vendor."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.computer_use import (
    CLICK,
    PRESS_ENTER,
    computer_call,
    computer_calls_in,
    computer_request,
    computer_response,
    computer_turn,
    function_call,
    tool_use,
)
from tests.support.protocols import ANTHROPIC, GEMINI, RESPONSES

# Each action in the format of Anthropic, OpenAI, Gemini 3.5 and Gemini 2.5.
ACTIONS: list[tuple[dict[str, Any], list[dict[str, Any]] | None, list[Any] | None, list[Any] | None]] = [
    ({"action": "screenshot"}, [{"type": "screenshot"}], [("take_screenshot", {})], [("open_web_browser", {})]),
    ({"action": "left_click", "coordinate": [640, 400]}, [CLICK],
     [("click", {"x": 500, "y": 500})], [("click_at", {"x": 500, "y": 500})]),
    ({"action": "right_click", "coordinate": [0, 0]}, [{"type": "click", "button": "right", "x": 0, "y": 0}],
     [("right_click", {"x": 0, "y": 0})], None),
    ({"action": "middle_click", "coordinate": [1279, 799]},
     [{"type": "click", "button": "wheel", "x": 1279, "y": 799}], [("middle_click", {"x": 999, "y": 999})], None),
    ({"action": "double_click", "coordinate": [640, 400]},
     [{"type": "double_click", "x": 640, "y": 400, "keys": None}], [("double_click", {"x": 500, "y": 500})],
     [("click_at", {"x": 500, "y": 500})] * 2),
    ({"action": "triple_click", "coordinate": [640, 400]},
     [{"type": "double_click", "x": 640, "y": 400, "keys": None}, CLICK], [("triple_click", {"x": 500, "y": 500})],
     [("click_at", {"x": 500, "y": 500})] * 3),
    ({"action": "left_click", "coordinate": [640, 400], "text": "ctrl+shift"}, [CLICK | {"keys": ["CTRL", "SHIFT"]}],
     [("click", {"x": 500, "y": 500})], [("click_at", {"x": 500, "y": 500})]),
    ({"action": "mouse_move", "coordinate": [64, 80]}, [{"type": "move", "x": 64, "y": 80}],
     [("move", {"x": 50, "y": 100})], [("hover_at", {"x": 50, "y": 100})]),
    ({"action": "left_click_drag", "start_coordinate": [128, 160], "coordinate": [384, 160]},
     [{"type": "drag", "path": [{"x": 128, "y": 160}, {"x": 384, "y": 160}]}],
     [("drag_and_drop", {"start_x": 100, "start_y": 200, "end_x": 300, "end_y": 200})],
     [("drag_and_drop", {"x": 100, "y": 200, "destination_x": 300, "destination_y": 200})]),
    ({"action": "scroll", "coordinate": [640, 400], "scroll_direction": "down", "scroll_amount": 4},
     [{"type": "scroll", "x": 640, "y": 400, "scroll_x": 0, "scroll_y": 400}],
     [("scroll", {"x": 500, "y": 500, "direction": "down", "magnitude_in_pixels": 400})],
     [("scroll_at", {"x": 500, "y": 500, "direction": "down", "magnitude": 500})]),
    ({"action": "scroll", "coordinate": [640, 400], "scroll_direction": "left", "scroll_amount": 1},
     [{"type": "scroll", "x": 640, "y": 400, "scroll_x": -100, "scroll_y": 0}],
     [("scroll", {"x": 500, "y": 500, "direction": "left", "magnitude_in_pixels": 100})],
     [("scroll_at", {"x": 500, "y": 500, "direction": "left", "magnitude": 79})]),
    ({"action": "type", "text": "Ærø\n"}, [{"type": "type", "text": "Ærø\n"}], [("type", {"text": "Ærø\n"})], None),
    ({"action": "key", "text": "Return"}, [PRESS_ENTER], [("press_key", {"key": "Enter"})],
     [("key_combination", {"keys": "Enter"})]),
    ({"action": "key", "text": "ctrl+alt+Page_Down"}, [{"type": "keypress", "keys": ["CTRL", "ALT", "PAGEDOWN"]}],
     [("hotkey", {"keys": ["Control", "Alt", "PageDown"]})], [("key_combination", {"keys": "Control+Alt+PageDown"})]),
    ({"action": "key", "text": "Down", "repeat": 2}, [{"type": "keypress", "keys": ["ARROWDOWN"]}] * 2,
     [("press_key", {"key": "ArrowDown"})] * 2, [("key_combination", {"keys": "ArrowDown"})] * 2),
    ({"action": "hold_key", "text": "shift", "duration": 2}, [{"type": "keypress", "keys": ["SHIFT"]}],
     [("key_down", {"key": "Shift"}), ("wait", {"seconds": 2}), ("key_up", {"key": "Shift"})],
     [("key_combination", {"keys": "Shift"})]),
    ({"action": "wait", "duration": 5}, [{"type": "wait"}], [("wait", {"seconds": 5})], [("wait_5_seconds", {})]),
    ({"action": "left_mouse_down"}, None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("members", "openai", "current", "earlier"), ACTIONS)
def test_anthropic_actions_translate_to_other_vendors(
    members: dict[str, Any], openai: Any, current: Any, earlier: Any
) -> None:
    request = computer_request(
        ANTHROPIC, *computer_turn(ANTHROPIC, [{"type": "tool_use", "id": "a", "name": "computer", "input": members}])
    )
    items = tw.translate(request, ANTHROPIC, RESPONSES).value["input"]
    openai_actions = [item["actions"] for item in items if item.get("type") == "computer_call"]
    assert openai_actions == ([] if openai is None else [openai])
    for model, expected in (("gemini-3.5-flash", current), ("gemini-2.5-computer-use-preview-10-2025", earlier)):
        contents = tw.translate(request, ANTHROPIC, GEMINI, model=model).value["contents"]
        calls = [part["functionCall"] for content in contents for part in content["parts"] if "functionCall" in part]
        gemini_actions = [(call["name"], call["args"]) for call in calls if call["name"] != "computer"]
        assert gemini_actions == ([] if expected is None else expected)


@pytest.mark.parametrize(("members", "openai", "current", "earlier"), ACTIONS)
def test_actions_of_other_vendors_translate_to_anthropic(
    members: dict[str, Any], openai: Any, current: Any, earlier: Any
) -> None:
    """Only actions that the other vendor expresses completely."""
    approximate = {"triple_click", "hold_key", "wait", "left_mouse_down"}
    if openai is not None and len(openai) == 1 and members["action"] not in approximate:
        response = computer_response(RESPONSES, computer_call("call_1", *openai))
        restored = tw.translate(response, RESPONSES, ANTHROPIC, "response", request=computer_request(ANTHROPIC)).value
        assert [call["input"] for call in computer_calls_in(ANTHROPIC, restored)] == [members]
    if current is not None and len(current) == 1 and "ctrl+shift" not in members.values():
        ((name, args),) = current
        response = computer_response(GEMINI, function_call("f", name, **args))
        restored = tw.translate(response, GEMINI, ANTHROPIC, "response", request=computer_request(ANTHROPIC)).value
        expected = members | ({"coordinate": [1278, 799]} if members.get("coordinate") == [1279, 799] else {})
        assert [call["input"] for call in computer_calls_in(ANTHROPIC, restored)] == [expected]


BROWSER = {"type": "browser_toolset_20260801"}


@pytest.mark.parametrize(
    ("name", "args", "member", "members"),
    [
        ("navigate", {"url": "http://a/"}, "navigate", {"url": "http://a/"}),
        ("go_back", {}, "navigate", {"url": "back"}),
        ("go_forward", {}, "navigate", {"url": "forward"}),
        ("click", {"x": 500, "y": 500}, "left_click", {"target": {"type": "coordinate", "x": 640, "y": 400}}),
        ("mouse_down", {"x": 0, "y": 0}, "left_mouse_down", {"target": {"type": "coordinate", "x": 0, "y": 0}}),
    ],
)
def test_browser_actions_translate_between_google_and_anthropic(
    name: str, args: Any, member: str, members: Any
) -> None:
    request = computer_request(ANTHROPIC, tool=BROWSER)
    translated = tw.translate(
        computer_response(GEMINI, function_call("f", name, **args)), GEMINI, ANTHROPIC, "response", request=request
    )
    (call,) = computer_calls_in(ANTHROPIC, translated.value)
    assert (call["name"], call["input"], call["toolset_name"]) == (member, members, "browser")
    response = computer_response(ANTHROPIC, tool_use("a", member, "browser", **members))
    (restored,) = computer_calls_in(
        GEMINI, tw.translate(response, ANTHROPIC, GEMINI, "response", request=computer_request(GEMINI)).value
    )
    assert (restored["functionCall"]["name"], restored["functionCall"]["args"]) == (name, args)


def test_unsupported_actions_become_the_nearest_supported_ones() -> None:
    response = computer_response(GEMINI, function_call("f", "navigate", url="http://a/", intent="Look."))
    translated = tw.translate(response, GEMINI, RESPONSES, "response", request=computer_request(RESPONSES))
    (call,) = computer_calls_in(RESPONSES, translated.value)
    assert call["actions"] == [
        {"type": "keypress", "keys": ["CTRL", "l"]},
        {"type": "type", "text": "http://a/"},
        PRESS_ENTER,
    ]
    args = "/candidates/0/content/parts/0/functionCall/args"
    assert {(loss.kind, loss.path) for loss in translated.losses if loss.path.startswith(args)} == {
        ("approximated", args),
        ("dropped", f"{args}/intent"),
    }


def test_coordinates_are_not_guessed_without_the_display_size() -> None:
    request = computer_request(RESPONSES)
    request["input"][0] = {"role": "user", "content": "Go"}
    response = computer_response(GEMINI, function_call("f", "click", x=500, y=500))
    (call,) = computer_calls_in(RESPONSES, tw.translate(response, GEMINI, RESPONSES, "response", request=request).value)
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "click",
        {"x": 500, "y": 500},
    )


def test_a_client_function_is_never_taken_for_a_google_action() -> None:
    request = computer_request(RESPONSES)
    request["tools"].append(
        {"type": "function", "name": "navigate", "parameters": {"type": "object", "properties": {}}}
    )
    response = computer_response(GEMINI, function_call("f", "navigate", url="http://a/"))
    (call,) = computer_calls_in(RESPONSES, tw.translate(response, GEMINI, RESPONSES, "response", request=request).value)
    assert (call["type"], call["name"]) == ("function_call", "navigate")
