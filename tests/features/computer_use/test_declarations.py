"""Declarations of the computer-use tool in the format of each target."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.computer_use import (
    COMPUTER_CALLS,
    COMPUTER_PROTOCOLS,
    COMPUTER_TOOL,
    HEIGHT,
    WIDTH,
    computer_request,
    computer_turn,
)
from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES

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
NOT_IN_OPENAI = dict.fromkeys(("zoom", "left_mouse_down", "left_mouse_up", "cursor_position"), OFF)


DECLARED: list[tuple[str, Any, str, str | None, Any]] = [
    (ANTHROPIC, COMPUTER_TOOL, RESPONSES, None, {"type": "computer"}),
    (ANTHROPIC, COMPUTER_TOOL, RESPONSES, "computer-use-preview", {
        "type": "computer_use_preview", "display_width": WIDTH, "display_height": HEIGHT, "environment": "linux"}),
    (ANTHROPIC, COMPUTER_TOOL, GEMINI, "gemini-3.5-flash", {"computerUse": {"environment": "ENVIRONMENT_DESKTOP"}}),
    (ANTHROPIC, COMPUTER_TOOL, GEMINI, "gemini-2.5-computer-use-preview-10-2025", {"computerUse": {
        "environment": "ENVIRONMENT_BROWSER",
        "excludedPredefinedFunctions": ["search", "navigate", "go_back", "go_forward"]}}),
    (ANTHROPIC, {"type": "browser_toolset_20260801"}, GEMINI, "gemini-3.5-flash", {"computerUse": {
        "environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["key_down", "key_up"]}}),
    (ANTHROPIC, COMPUTER_TOOL, INTERACTIONS, "gemini-3.5-flash", {"type": "computer_use", "environment": "desktop"}),
    (RESPONSES, {"type": "computer"}, ANTHROPIC, "claude-opus-5-5", {
        "type": "computer_toolset_20260801", "configs": NOT_IN_OPENAI}),
    (RESPONSES, PREVIEW, ANTHROPIC, "claude-opus-4-8", {
        "type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600}),
    (RESPONSES, PREVIEW, ANTHROPIC, "claude-opus-5-5", {
        "type": "computer_toolset_20260801", "configs": NOT_IN_OPENAI}),
    (RESPONSES, {"type": "computer"}, GEMINI, "gemini-3.5-flash", {
        "computerUse": {"environment": "ENVIRONMENT_DESKTOP"}}),
    (GEMINI, None, RESPONSES, None, {"type": "computer"}),
    (GEMINI, None, ANTHROPIC, "claude-opus-5-5", {"type": "browser_toolset_20260801", "configs": NO_TABS}),
    (INTERACTIONS, None, ANTHROPIC, "claude-opus-5-5", {"type": "browser_toolset_20260801", "configs": NO_TABS}),
    (INTERACTIONS, None, GEMINI, None, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "tool", "target", "model", "declared"), DECLARED)
def test_the_tool_is_declared_in_the_format_of_the_target(
    source: str, tool: Any, target: str, model: str | None, declared: Any
) -> None:
    encoded = tw.translate(computer_request(source, tool=tool), source, target, model=model)
    assert encoded.value["tools"] == [declared]
    if target != GEMINI:
        assert tw.check({**encoded.value, "model": model or "m"}, target) == []


def test_the_single_computer_tool_needs_a_beta_header() -> None:
    headers = tw.translate(
        computer_request(RESPONSES, tool=PREVIEW), RESPONSES, ANTHROPIC, model="claude-opus-4-8"
    ).route.headers
    assert headers == (("anthropic-beta", "computer-use-2025-11-24"),)
    assert tw.translate(computer_request(RESPONSES), RESPONSES, ANTHROPIC, model="claude-opus-5-5").route.headers == ()


def test_settings_that_a_declaration_cannot_hold_are_reported() -> None:
    request = computer_request(ANTHROPIC, tool=COMPUTER_TOOL | {"enable_zoom": True, "display_number": 1})
    lost = {(loss.kind, loss.path) for loss in tw.translate(request, ANTHROPIC, RESPONSES).losses}
    names = ("display_width_px", "display_height_px", "enable_zoom", "display_number")
    assert lost == {("dropped", f"/tools/0/{name}") for name in names}
    bounded = {"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["navigate"]}}
    lost = {
        (loss.kind, loss.path)
        for loss in tw.translate(computer_request(GEMINI, tool=bounded), GEMINI, RESPONSES).losses
    }
    assert lost == {
        ("dropped", "/tools/0/computerUse/environment"),
        ("dropped", "/tools/0/computerUse/excludedPredefinedFunctions/0"),
    }


def test_excluded_actions_are_not_offered() -> None:
    bounded = {"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["navigate"]}}
    (tool,) = tw.translate(computer_request(GEMINI, tool=bounded), GEMINI, ANTHROPIC, model="claude-opus-5-5").value[
        "tools"
    ]
    assert tool["configs"] == NO_TABS | {"navigate": OFF}
    toolset = {"type": "computer_toolset_20260801", "configs": {"wait": OFF, "left_click": OFF}}
    (tool,) = tw.translate(computer_request(ANTHROPIC, tool=toolset), ANTHROPIC, CHAT).value["tools"]
    kinds = tool["function"]["parameters"]["properties"]["actions"]["items"]["properties"]["kind"]["enum"]
    assert ("wait" in kinds, "click" in kinds) == (False, True)


@pytest.mark.parametrize("target", [CHAT, OLLAMA, OPENROUTER])
@pytest.mark.parametrize("source", COMPUTER_PROTOCOLS)
def test_targets_without_a_computer_tool_get_a_function_of_common_actions(source: str, target: str) -> None:
    encoded = tw.translate(computer_request(source, *computer_turn(source, COMPUTER_CALLS[source])), source, target)
    (tool,) = encoded.value["tools"]
    kinds = tool["function"]["parameters"]["properties"]["actions"]["items"]["properties"]["kind"]["enum"]
    assert tool["function"]["name"] == "computer"
    assert {"screenshot", "click", "type", "keys", "scroll", "drag"} <= set(kinds)
    assert any(loss.kind == "approximated" and loss.path.startswith("/tools/0") for loss in encoded.losses)
    calls = [call["function"] for message in encoded.value["messages"] for call in message.get("tool_calls", ())]
    arguments = [call["arguments"] for call in calls]
    actions = [
        action for text in arguments for action in (json.loads(text) if isinstance(text, str) else text)["actions"]
    ]
    assert actions == json.loads(COMPUTER_CALLS[CHAT][0]["function"]["arguments"])["actions"]


def test_a_choice_of_the_computer_tool_requires_some_call() -> None:
    request = computer_request(ANTHROPIC) | {"tool_choice": {"type": "tool", "name": "computer"}}
    encoded = tw.translate(request, ANTHROPIC, RESPONSES)
    assert encoded.value["tool_choice"] == "required"
    assert ("approximated", "/tool_choice/name") in {(loss.kind, loss.path) for loss in encoded.losses}
