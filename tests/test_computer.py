"""Computer use between the vendors' forms: what is declared, called, answered, and what must not be lost on the way."""

import json
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

import toolwire as tw
from tests.screens import (
    ASKED,
    CLICK,
    ENTER,
    FORMS,
    HEIGHT,
    PENDING,
    PNG,
    SAFETY,
    SHOT,
    SINGLE,
    TYPED,
    WIDTH,
    answer,
    calls_of,
    computer_call,
    function_call,
    request,
    step,
    tool_use,
    turn,
)
from tests.wire import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES, frames
from toolwire.canonical.content import Inline, Media, Message, ScreenSeen, Text, ToolCall, ToolResult
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.request import Request
from toolwire.codec.computer import with_screens
from toolwire.codec.interface import Context, Route, Target
from toolwire.codec.raising import raise_response
from toolwire.codec.screen_function import COMMON, computer_tool
from toolwire.protocols import PROTOCOLS

PREVIEW = {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "mac"}
OFF = {"enabled": False}
NO_TABS = dict.fromkeys(
    [
        "list_tabs",
        "new_tab",
        "switch_tab",
        "close_tab",
        "read_page",
        "read_console",
        "read_network",
        "find",
        "form_input",
        "file_upload",
        "scroll_to",
        "javascript_exec",
        "zoom",
        "get_page_text",
    ],
    OFF,
)
UNTOLD_BY_OPENAI = dict.fromkeys(("zoom", "left_mouse_down", "left_mouse_up", "cursor_position"), OFF)


# ---- declarations

DECLARED: list[tuple[str, Any, str, str | None, Any]] = [
    (ANTHROPIC, SINGLE, RESPONSES, None, {"type": "computer"}),
    (ANTHROPIC, SINGLE, RESPONSES, "computer-use-preview", {
        "type": "computer_use_preview", "display_width": WIDTH, "display_height": HEIGHT, "environment": "linux"}),
    (ANTHROPIC, SINGLE, GEMINI, "gemini-3.5-flash", {"computerUse": {"environment": "ENVIRONMENT_DESKTOP"}}),
    (ANTHROPIC, SINGLE, GEMINI, "gemini-2.5-computer-use-preview-10-2025", {"computerUse": {
        "environment": "ENVIRONMENT_BROWSER",
        "excludedPredefinedFunctions": ["search", "navigate", "go_back", "go_forward"]}}),
    (ANTHROPIC, {"type": "browser_toolset_20260801"}, GEMINI, "gemini-3.5-flash", {"computerUse": {
        "environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["key_down", "key_up"]}}),
    (ANTHROPIC, SINGLE, INTERACTIONS, "gemini-3.5-flash", {"type": "computer_use", "environment": "desktop"}),
    (RESPONSES, {"type": "computer"}, ANTHROPIC, "claude-opus-5-5", {
        "type": "computer_toolset_20260801", "configs": UNTOLD_BY_OPENAI}),
    (RESPONSES, PREVIEW, ANTHROPIC, "claude-opus-4-8", {
        "type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600}),
    (RESPONSES, PREVIEW, ANTHROPIC, "claude-opus-5-5", {
        "type": "computer_toolset_20260801", "configs": UNTOLD_BY_OPENAI}),
    (RESPONSES, {"type": "computer"}, GEMINI, "gemini-3.5-flash", {
        "computerUse": {"environment": "ENVIRONMENT_DESKTOP"}}),
    (GEMINI, None, RESPONSES, None, {"type": "computer"}),
    (GEMINI, None, ANTHROPIC, "claude-opus-5-5", {"type": "browser_toolset_20260801", "configs": NO_TABS}),
    (INTERACTIONS, None, ANTHROPIC, "claude-opus-5-5", {"type": "browser_toolset_20260801", "configs": NO_TABS}),
    (INTERACTIONS, None, GEMINI, None, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "tool", "target", "model", "declared"), DECLARED)
def test_the_tool_is_declared_in_the_targets_form(
    source: str, tool: Any, target: str, model: str | None, declared: Any
) -> None:
    encoded = tw.translate(request(source, tool=tool), source, target, model=model)
    assert encoded.value["tools"] == [declared]
    if target != GEMINI:
        assert tw.check({**encoded.value, "model": model or "m"}, target) == []


def test_the_tool_that_is_no_toolset_needs_a_header() -> None:
    headers = tw.translate(
        request(RESPONSES, tool=PREVIEW), RESPONSES, ANTHROPIC, model="claude-opus-4-8"
    ).route.headers
    assert headers == (("anthropic-beta", "computer-use-2025-11-24"),)
    assert tw.translate(request(RESPONSES), RESPONSES, ANTHROPIC, model="claude-opus-5-5").route.headers == ()


def test_what_a_declaration_can_not_say_is_reported() -> None:
    own = request(ANTHROPIC, tool=SINGLE | {"enable_zoom": True, "display_number": 1})
    lost = {(loss.kind, loss.path) for loss in tw.translate(own, ANTHROPIC, RESPONSES).losses}
    names = ("display_width_px", "display_height_px", "enable_zoom", "display_number")
    assert lost == {("dropped", f"/tools/0/{name}") for name in names}
    bounded = {"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["navigate"]}}
    lost = {(loss.kind, loss.path) for loss in tw.translate(request(GEMINI, tool=bounded), GEMINI, RESPONSES).losses}
    assert lost == {
        ("dropped", "/tools/0/computerUse/environment"),
        ("dropped", "/tools/0/computerUse/excludedPredefinedFunctions/0"),
    }


def test_what_a_client_excludes_is_not_offered() -> None:
    bounded = {"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["navigate"]}}
    (tool,) = tw.translate(request(GEMINI, tool=bounded), GEMINI, ANTHROPIC, model="claude-opus-5-5").value["tools"]
    assert tool["configs"] == NO_TABS | {"navigate": OFF}
    toolset = {"type": "computer_toolset_20260801", "configs": {"wait": OFF, "left_click": OFF}}
    (tool,) = tw.translate(request(ANTHROPIC, tool=toolset), ANTHROPIC, CHAT).value["tools"]
    kinds = tool["function"]["parameters"]["properties"]["actions"]["items"]["properties"]["kind"]["enum"]
    assert ("wait" in kinds, "click" in kinds) == (False, True)


@pytest.mark.parametrize("target", [CHAT, OLLAMA, OPENROUTER])
@pytest.mark.parametrize("source", FORMS)
def test_without_a_computer_tool_it_is_a_function_of_the_common_actions(source: str, target: str) -> None:
    encoded = tw.translate(request(source, *turn(source, ASKED[source])), source, target)
    (tool,) = encoded.value["tools"]
    kinds = tool["function"]["parameters"]["properties"]["actions"]["items"]["properties"]["kind"]["enum"]
    assert tool["function"]["name"] == "computer"
    assert {"screenshot", "click", "type", "keys", "scroll", "drag"} <= set(kinds)
    assert any(loss.kind == "approximated" and loss.path.startswith("/tools/0") for loss in encoded.losses)
    called = [call["function"] for one in encoded.value["messages"] for call in one.get("tool_calls", ())]
    said = [call["arguments"] for call in called]
    actions = [one for text in said for one in (json.loads(text) if isinstance(text, str) else text)["actions"]]
    assert actions == json.loads(ASKED[CHAT][0]["function"]["arguments"])["actions"]


def test_a_choice_of_the_tool_asks_for_some_call() -> None:
    own = request(ANTHROPIC) | {"tool_choice": {"type": "tool", "name": "computer"}}
    encoded = tw.translate(own, ANTHROPIC, RESPONSES)
    assert encoded.value["tool_choice"] == "required"
    assert ("approximated", "/tool_choice/name") in {(loss.kind, loss.path) for loss in encoded.losses}


# ---- actions, one by one: in Anthropic's words, OpenAI's, Gemini's of 3.5, and of 2.5

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
    ({"action": "key", "text": "Return"}, [ENTER], [("press_key", {"key": "Enter"})],
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
def test_an_action_of_anthropics_in_the_others_words(
    members: dict[str, Any], openai: Any, current: Any, earlier: Any
) -> None:
    own = request(ANTHROPIC, *turn(ANTHROPIC, [{"type": "tool_use", "id": "a", "name": "computer", "input": members}]))
    items = tw.translate(own, ANTHROPIC, RESPONSES).value["input"]
    told = [item["actions"] for item in items if item.get("type") == "computer_call"]
    assert told == ([] if openai is None else [openai])
    for model, wanted in (("gemini-3.5-flash", current), ("gemini-2.5-computer-use-preview-10-2025", earlier)):
        contents = tw.translate(own, ANTHROPIC, GEMINI, model=model).value["contents"]
        called = [part["functionCall"] for one in contents for part in one["parts"] if "functionCall" in part]
        shown = [(call["name"], call["args"]) for call in called if call["name"] != "computer"]
        assert shown == ([] if wanted is None else wanted)


@pytest.mark.parametrize(("members", "openai", "current", "earlier"), ACTIONS)
def test_the_same_action_back_in_anthropics_words(
    members: dict[str, Any], openai: Any, current: Any, earlier: Any
) -> None:
    """Only where the other form says all of it."""
    approximate = {"triple_click", "hold_key", "wait", "left_mouse_down"}
    if openai is not None and len(openai) == 1 and members["action"] not in approximate:
        own = answer(RESPONSES, computer_call("call_1", *openai))
        back = tw.translate(own, RESPONSES, ANTHROPIC, "response", request=request(ANTHROPIC)).value
        assert [call["input"] for call in calls_of(ANTHROPIC, back)] == [members]
    if current is not None and len(current) == 1 and "ctrl+shift" not in members.values():
        ((name, args),) = current
        own = answer(GEMINI, function_call("f", name, **args))
        back = tw.translate(own, GEMINI, ANTHROPIC, "response", request=request(ANTHROPIC)).value
        near = members | ({"coordinate": [1278, 799]} if members.get("coordinate") == [1279, 799] else {})
        assert [call["input"] for call in calls_of(ANTHROPIC, back)] == [near]


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
def test_a_browser_between_google_and_anthropic(name: str, args: Any, member: str, members: Any) -> None:
    asked = request(ANTHROPIC, tool=BROWSER)
    told = tw.translate(answer(GEMINI, function_call("f", name, **args)), GEMINI, ANTHROPIC, "response", request=asked)
    (call,) = calls_of(ANTHROPIC, told.value)
    assert (call["name"], call["input"], call["toolset_name"]) == (member, members, "browser")
    own = answer(ANTHROPIC, tool_use("a", member, "browser", **members))
    (back,) = calls_of(GEMINI, tw.translate(own, ANTHROPIC, GEMINI, "response", request=request(GEMINI)).value)
    assert (back["functionCall"]["name"], back["functionCall"]["args"]) == (name, args)


def test_what_a_form_lacks_is_told_by_what_comes_nearest() -> None:
    own = answer(GEMINI, function_call("f", "navigate", url="http://a/", intent="Look."))
    told = tw.translate(own, GEMINI, RESPONSES, "response", request=request(RESPONSES))
    (call,) = calls_of(RESPONSES, told.value)
    assert call["actions"] == [
        {"type": "keypress", "keys": ["CTRL", "l"]},
        {"type": "type", "text": "http://a/"},
        ENTER,
    ]
    args = "/candidates/0/content/parts/0/functionCall/args"
    assert {(loss.kind, loss.path) for loss in told.losses if loss.path.startswith(args)} == {
        ("approximated", args),
        ("dropped", f"{args}/intent"),
    }


def test_a_point_on_a_screen_of_unknown_size_is_not_guessed() -> None:
    asked = request(RESPONSES)
    asked["input"][0] = {"role": "user", "content": "Go"}
    own = answer(GEMINI, function_call("f", "click", x=500, y=500))
    (call,) = calls_of(RESPONSES, tw.translate(own, GEMINI, RESPONSES, "response", request=asked).value)
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "click",
        {"x": 500, "y": 500},
    )


def test_a_clients_own_function_is_never_taken_for_one_of_googles() -> None:
    asked = request(RESPONSES)
    asked["tools"].append({"type": "function", "name": "navigate", "parameters": {"type": "object", "properties": {}}})
    own = answer(GEMINI, function_call("f", "navigate", url="http://a/"))
    (call,) = calls_of(RESPONSES, tw.translate(own, GEMINI, RESPONSES, "response", request=asked).value)
    assert (call["type"], call["name"]) == ("function_call", "navigate")


# ---- answers

TOLD: dict[str, list[Any]] = {
    ANTHROPIC: [
        {"action": "left_click", "coordinate": [640, 400]},
        {"action": "type", "text": "Oslo"},
        {"action": "key", "text": "Return"},
    ],
    GEMINI: [("click", {"x": 500, "y": 500}), ("type", {"text": "Oslo", "press_enter": True})],
}
CROSSED = [(upstream, client) for upstream in (*FORMS, CHAT) for client in FORMS if upstream != client]
CROSSED = [pair for pair in CROSSED if set(pair) != {GEMINI, INTERACTIONS}]


def _told(client: str, calls: list[Any]) -> list[Any]:
    match client:
        case "anthropic":
            assert {call["name"] for call in calls} == {"computer"}
            return [call["input"] for call in calls]
        case "openai-responses":
            assert all(call["pending_safety_checks"] == [] for call in calls)
            return [action for call in calls for action in call["actions"]]
        case "gemini":
            return [(call["functionCall"]["name"], call["functionCall"]["args"]) for call in calls]
        case _:
            return [(call["name"], call["arguments"]) for call in calls]


@pytest.mark.parametrize(("upstream", "client"), CROSSED)
def test_calls_come_in_the_clients_form(upstream: str, client: str) -> None:
    told = tw.translate(answer(upstream, *ASKED[upstream]), upstream, client, "response", request=request(client))
    said = _told(client, calls_of(client, told.value))
    wanted = {**TOLD, INTERACTIONS: TOLD[GEMINI], RESPONSES: [CLICK, TYPED, ENTER]}[client]
    if upstream == ANTHROPIC and client in (GEMINI, INTERACTIONS):
        wanted = [wanted[0], ("type", {"text": "Oslo"}), ("press_key", {"key": "Enter"})]  # three calls stay three
    assert said == wanted


@pytest.mark.parametrize(("upstream", "client"), CROSSED)
def test_a_stream_tells_the_same_calls(upstream: str, client: str) -> None:
    asked = request(client)
    body = answer(upstream, *ASKED[upstream])
    source = PROTOCOLS[upstream]
    encoder = source.stream_encoder(Context())
    wire = encoder.encode(unfold(source.decode_response(json.dumps(body).encode(), Context()))) + encoder.close()
    stream = tw.translate_stream([wire[:100], wire[100:]], upstream, client, asked)
    decoder = PROTOCOLS[client].stream_decoder(Context())
    told = fold(decoder.feed(b"".join(stream)) + decoder.close())
    whole = tw.translate(body, upstream, client, "response", request=asked)
    expected = PROTOCOLS[client].decode_response(whole.to_bytes(), Context())
    calls = [[part for one in each.candidates[0].messages for part in one.parts] for each in (told, expected)]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls[0]] == [  # type: ignore[union-attr]
        (call.id, call.name, json.loads(call.arguments))  # type: ignore[union-attr]
        for call in calls[1]
    ]


@pytest.mark.parametrize(("upstream", "client"), CROSSED)
def test_the_upstream_sees_its_own_calls_again_each_with_its_result(upstream: str, client: str) -> None:
    """What was split for the client is joined again: ids, actions and how many there are come back as they were."""
    asked = request(client)
    told = tw.translate(answer(upstream, *ASKED[upstream]), upstream, client, "response", request=asked).value
    following = request(client, *turn(client, calls_of(client, told)))
    sent = tw.translate(following, client, upstream, model="gemini-3.5-flash" if upstream == GEMINI else None).value
    match upstream:
        case "anthropic":
            called, results = sent["messages"][-2]["content"], sent["messages"][-1]["content"]
            toolset = "browser" if client in (GEMINI, INTERACTIONS) else "computer"
            assert [(call["id"], call["name"], call["toolset_name"]) for call in called] == [
                ("a1", "left_click", toolset),
                ("a2", "type", toolset),
                ("a3", "key", toolset),
            ]
            assert [(one["tool_use_id"], one["toolset_name"]) for one in results] == [
                (id, toolset) for id in ("a1", "a2", "a3")
            ]
            assert all(one["content"][-1]["type"] == "image" for one in results)
        case "openai-responses":
            items = [item for item in sent["input"] if "type" in item]
            assert [(item["call_id"], item["actions"]) for item in items[:1]] == [("call_1", [CLICK, TYPED, ENTER])]
            assert items[1] == {"type": "computer_call_output", "call_id": "call_1", "output": SHOT}
        case "gemini":
            called = [part["functionCall"] for part in sent["contents"][-2]["parts"]]
            assert called == [call["functionCall"] for call in ASKED[GEMINI]]
            results = [part["functionResponse"] for part in sent["contents"][-1]["parts"]]
            assert [(one["id"], one["name"]) for one in results] == [("f1", "click"), ("f2", "type")]
            assert all(one["parts"][0]["inlineData"]["data"] == PNG for one in results)
        case "gemini-interactions":
            assert sent["input"][1:3] == ASKED[INTERACTIONS]
            assert [(one["call_id"], one["name"]) for one in sent["input"][3:5]] == [("s1", "click"), ("s2", "type")]
        case _:
            (message,) = [one for one in sent["messages"] if one.get("tool_calls")]
            assert message["tool_calls"] == ASKED[CHAT]


def test_a_call_without_an_id_gets_none_at_google() -> None:
    asked = request(ANTHROPIC)
    own = answer(GEMINI, {"functionCall": {"name": "type", "args": {"text": "Oslo", "press_enter": True}}})
    told = tw.translate(own, GEMINI, ANTHROPIC, "response", request=asked).value
    calls = calls_of(ANTHROPIC, told)
    assert len({call["id"] for call in calls}) == 2
    sent = tw.translate(request(ANTHROPIC, *turn(ANTHROPIC, calls)), ANTHROPIC, GEMINI, model="gemini-3.5-flash").value
    (call,) = sent["contents"][-2]["parts"]
    assert call["functionCall"] == {"name": "type", "args": {"text": "Oslo", "press_enter": True}}
    (result,) = sent["contents"][-1]["parts"]
    assert "id" not in result["functionResponse"]


def test_pieces_of_which_one_is_missing_stay_what_they_are() -> None:
    told = tw.translate(
        answer(RESPONSES, *ASKED[RESPONSES]), RESPONSES, ANTHROPIC, "response", request=request(ANTHROPIC)
    )
    calls = calls_of(ANTHROPIC, told.value)[:2]
    items = tw.translate(request(ANTHROPIC, *turn(ANTHROPIC, calls)), ANTHROPIC, RESPONSES).value["input"]
    assert [item["call_id"] for item in items if item.get("type") == "computer_call"] == [call["id"] for call in calls]


# ---- results


def test_a_result_that_is_no_picture_repeats_the_last_one_and_is_told_as_text() -> None:
    said = turn(ANTHROPIC, [tool_use("a1", "cursor_position"), tool_use("a2", "screenshot")])
    said[1]["content"][0] |= {"content": "X=1,Y=2", "is_error": True}
    encoded = tw.translate(request(ANTHROPIC, *said), ANTHROPIC, RESPONSES)
    items = encoded.value["input"]
    outputs = [item for item in items if item.get("type") == "computer_call_output"]
    assert outputs == [{"type": "computer_call_output", "call_id": id, "output": SHOT} for id in ("a1", "a2")]
    aside = {"type": "function_call", "call_id": "a1_said", "name": "computer_said", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "a1_said", "output": "[tool error] X=1,Y=2"}
    assert [items[-2], {name: items[-1][name] for name in told}] == [aside, told]
    paths = {loss.path for loss in encoded.losses if loss.kind == "approximated"}
    assert {"/messages/2/content/0/content", "/messages/2/content/0/is_error"} <= paths


def test_a_result_of_several_pieces_has_the_last_picture_and_all_that_was_said() -> None:
    told = tw.translate(
        answer(RESPONSES, *ASKED[RESPONSES]), RESPONSES, ANTHROPIC, "response", request=request(ANTHROPIC)
    )
    said = turn(ANTHROPIC, calls_of(ANTHROPIC, told.value))
    said[1]["content"][0]["content"] = "clicked"
    encoded = tw.translate(request(ANTHROPIC, *said), ANTHROPIC, RESPONSES)
    items = [item for item in encoded.value["input"] if item.get("type") != "message"]
    assert [item.get("type") for item in items[1:3]] == ["computer_call", "computer_call_output"]
    assert [item.get("output") for item in items[3:]] == [None, "clicked"]
    assert "/messages/2/content/1/content/0" in {loss.path for loss in encoded.losses if loss.kind == "dropped"}


# ---- safety checks


def test_a_safety_check_of_googles_is_one_of_openais_and_so_is_the_agreement() -> None:
    asked = request(RESPONSES)
    own = answer(GEMINI, function_call("f1", "click", x=500, y=500, safety_decision=SAFETY))
    (call,) = calls_of(RESPONSES, tw.translate(own, GEMINI, RESPONSES, "response", request=asked).value)
    check = {"id": "sc_f1", "code": "require_confirmation", "message": "It buys something."}
    assert call["pending_safety_checks"] == [check]
    agreed = request(RESPONSES, *turn(RESPONSES, [call], acknowledged_safety_checks=[check]))
    sent = tw.translate(agreed, RESPONSES, GEMINI, model="gemini-3.5-flash").value["contents"]
    decision = sent[-2]["parts"][0]["functionCall"]["args"]["safety_decision"]
    assert (decision["decision"], decision["explanation"]) == ("require_confirmation", "It buys something.")
    assert sent[-1]["parts"][0]["functionResponse"]["response"] == {"safety_acknowledgement": "true"}


def test_a_safety_check_of_openais_is_one_of_googles_and_so_is_the_agreement() -> None:
    asked = request(GEMINI)
    own = answer(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING]))
    (call,) = calls_of(GEMINI, tw.translate(own, RESPONSES, GEMINI, "response", request=asked).value)
    decision = call["functionCall"]["args"]["safety_decision"]
    assert (decision["decision"], decision["explanation"]) == ("require_confirmation", "It buys something.")
    agreed = request(GEMINI, *turn(GEMINI, [call], safety_acknowledgement="true"))
    items = tw.translate(agreed, GEMINI, RESPONSES).value["input"]
    (again,) = [item for item in items if item.get("type") == "computer_call"]
    (output,) = [item for item in items if item.get("type") == "computer_call_output"]
    assert (again["call_id"], again["pending_safety_checks"]) == ("call_1", [PENDING])
    assert output["acknowledged_safety_checks"] == [PENDING]


def test_nobody_agrees_in_place_of_a_person() -> None:
    """Neither without a word from the client, nor to more than what it named."""
    own = answer(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING]))
    (call,) = calls_of(GEMINI, tw.translate(own, RESPONSES, GEMINI, "response", request=request(GEMINI)).value)
    items = tw.translate(request(GEMINI, *turn(GEMINI, [call])), GEMINI, RESPONSES).value["input"]
    assert all("acknowledged_safety_checks" not in item for item in items)
    two = computer_call("call_1", CLICK, pending=[PENDING, PENDING | {"id": "sc_2"}])
    partly = request(RESPONSES, *turn(RESPONSES, [two], acknowledged_safety_checks=[{"id": "sc_1"}]))
    sent = tw.translate(partly, RESPONSES, GEMINI, model="gemini-3.5-flash").value["contents"]
    assert "safety_acknowledgement" not in sent[-1]["parts"][0]["functionResponse"]["response"]


CHECKED = [
    (GEMINI, function_call("f1", "click", x=500, y=500, safety_decision=SAFETY)),
    (INTERACTIONS, step("s1", "click", x=500, y=500, safety_decision=SAFETY)),
    (RESPONSES, computer_call("call_1", CLICK, pending=[PENDING])),
]


@pytest.mark.parametrize(("upstream", "call"), CHECKED)
def test_a_safety_check_that_can_not_be_told_is_refused(upstream: str, call: Any) -> None:
    asked, body = request(ANTHROPIC), answer(upstream, call)
    with pytest.raises(tw.LossRefused):
        tw.translate(body, upstream, ANTHROPIC, "response", request=asked)
    source = PROTOCOLS[upstream]
    encoder = source.stream_encoder(Context())
    wire = encoder.encode(unfold(source.decode_response(json.dumps(body).encode(), Context()))) + encoder.close()
    stream = tw.translate_stream(wire, upstream, ANTHROPIC, asked)
    told = frames(b"".join(stream))
    assert not any(frame.get("content_block", {}).get("type") == "tool_use" for frame in told)
    assert stream.error is not None
    assert "may not be dropped" in stream.error.message


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT, OLLAMA, OPENROUTER])
@pytest.mark.parametrize(("source", "call"), CHECKED)
def test_a_request_with_an_open_check_is_refused_where_it_can_not_be_told(source: str, call: Any, target: str) -> None:
    with pytest.raises(tw.LossRefused):
        tw.translate(request(source, *turn(source, [call])), source, target)
    agreed: dict[str, Any] = {"safety_acknowledgement": "true"}
    if source == RESPONSES:
        agreed = {"acknowledged_safety_checks": [{"id": "sc_1"}]}
    encoded = tw.translate(request(source, *turn(source, [call], **agreed)), source, target)
    assert any("safety" in loss.path and loss.kind == "dropped" for loss in encoded.losses)


def test_a_check_of_a_call_that_stays_a_function_is_refused_or_reported() -> None:
    """Google's `click` on a screen of unknown size can't be told, and then neither can its check."""
    call = computer_call("call_1", CLICK, pending=[PENDING])
    asked = {"model": "gpt-5.5", "input": [{"role": "user", "content": "Go"}], "tools": [{"type": "computer"}]}
    with pytest.raises(tw.LossRefused):
        tw.translate(asked | {"input": [*asked["input"], *turn(RESPONSES, [call])]}, RESPONSES, GEMINI)
    agreed = turn(RESPONSES, [call], acknowledged_safety_checks=[{"id": "sc_1"}])
    encoded = tw.translate(asked | {"input": [*asked["input"], *agreed]}, RESPONSES, GEMINI)
    assert encoded.value["contents"][-1]["parts"][0]["functionResponse"]["response"] == {}
    assert {loss.path for loss in encoded.losses if "safety" in loss.path and loss.kind == "dropped"} == {
        "/input/1/pending_safety_checks/0",
        "/input/2/acknowledged_safety_checks/0",
    }


# ---- a client that runs common actions


@pytest.mark.parametrize("upstream", [*FORMS, CHAT])
def test_a_client_of_common_actions_works_on_every_form(upstream: str) -> None:
    seen = Media(kind="image", media_type="image/png", source=Inline(data=PNG))
    asked = Request(
        origin="toolwire",
        model="m",
        tools=(computer_tool(WIDTH, HEIGHT),),
        messages=(Message(role="user", parts=(Text(text="Go"), seen)),),
    )
    codec = PROTOCOLS[upstream]
    encoded = codec.encode_request(asked, Target())
    body = json.dumps(answer(upstream, *ASKED[upstream])).encode()
    given = codec.decode_response(body, Context(request=asked, undo=encoded.undo))
    told = raise_response(given, encoded.undo, COMMON, codec.names)
    (candidate,) = told.candidates
    calls = [part for message in candidate.messages for part in message.parts if isinstance(part, ToolCall)]
    assert {call.name for call in calls} == {"computer"}
    done = [action for call in calls for action in json.loads(call.arguments)["actions"]]
    assert done == json.loads(ASKED[CHAT][0]["function"]["arguments"])["actions"]
    results = tuple(ToolResult(call_id=call.id, content=(seen,), screen=ScreenSeen(url="http://a/")) for call in calls)
    following = with_screens(
        replace(asked, messages=(*asked.messages, *candidate.messages, Message(role="user", parts=results))), COMMON
    )
    sent = json.loads(codec.encode_request(following, Target()).to_bytes())
    again = codec.decode_request(json.dumps(sent).encode(), Route())
    ids = [part.id for message in again.messages for part in message.parts if isinstance(part, ToolCall)]
    own = [part for message in given.candidates[0].messages for part in message.parts if isinstance(part, ToolCall)]
    assert ids == [call.id for call in own], "the upstream sees its own calls again"


def test_it_is_told_of_safety_checks_and_its_agreement_goes_back() -> None:
    asked = Request(origin="toolwire", model="m", tools=(computer_tool(WIDTH, HEIGHT),))
    codec = PROTOCOLS[RESPONSES]
    encoded = codec.encode_request(asked, Target())
    given = codec.decode_response(
        json.dumps(answer(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING]))).encode(), Context()
    )
    (message,) = raise_response(given, encoded.undo, COMMON, codec.names).candidates[0].messages
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments)["checks"] == [PENDING]
    seen = ScreenSeen(acknowledged=True)
    result = Message(role="user", parts=(ToolResult(call_id=call.id, content=(), screen=seen),))
    following = with_screens(replace(asked, messages=(message, result)), COMMON)
    items = json.loads(codec.encode_request(following, Target()).to_bytes())["input"]
    assert [item.get("acknowledged_safety_checks") for item in items] == [None, [PENDING]]


# ---- home


@pytest.mark.parametrize("protocol", FORMS)
def test_at_home_nothing_changes(protocol: str) -> None:
    body = request(protocol, *turn(protocol, ASKED[protocol]))
    encoded = tw.translate(body, protocol, protocol)
    assert (encoded.value, encoded.losses) == (body, [])
    own = answer(protocol, *ASKED[protocol])
    assert tw.translate(own, protocol, protocol, "response", request=body).value == own


@pytest.mark.parametrize(("one", "other"), list(permutations((GEMINI, INTERACTIONS))))
def test_between_googles_protocols_calls_stay_as_they_are(one: str, other: str) -> None:
    told = tw.translate(answer(one, *ASKED[one]), one, other, "response", request=request(other)).value
    assert _told(other, calls_of(other, told)) == TOLD[GEMINI]


def test_an_agreement_passes_between_googles_protocols() -> None:
    call = step("s1", "click", x=500, y=500, safety_decision=SAFETY)
    agreed = request(INTERACTIONS, *turn(INTERACTIONS, [call], safety_acknowledgement="true"))
    contents = tw.translate(agreed, INTERACTIONS, GEMINI).value["contents"]
    assert contents[-2]["parts"][0]["functionCall"]["args"]["safety_decision"] == SAFETY
    response = contents[-1]["parts"][0]["functionResponse"]["response"]
    assert response == {"url": "http://a/", "safety_acknowledgement": "true"}


@pytest.mark.parametrize("protocol", FORMS)
def test_a_decoder_reads_what_is_done(protocol: str) -> None:
    body = request(protocol, *turn(protocol, ASKED[protocol]))
    if protocol == ANTHROPIC:
        body["tools"] = [{"type": "computer_toolset_20260801"}]
    decoded = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    uses = [getattr(part, "screen", None) for message in decoded.messages for part in message.parts]
    kinds = [type(action).__name__ for use in uses for action in getattr(use, "actions", ())]
    assert kinds == ["Click", "Type", "Keys"]
