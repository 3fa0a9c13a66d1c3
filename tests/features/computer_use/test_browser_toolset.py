"""Anthropic's browser toolset in other protocols: members and fields with an equivalent, and losses for the others."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.computer_use import (
    IMAGE_BLOCK,
    computer_calls_in,
    computer_request,
    computer_response,
    computer_turn,
    tool_use,
)
from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, RESPONSES

BROWSER = {"type": "browser_toolset_20260801"}
MODELS = {RESPONSES: "gpt-5.5", GEMINI: "gemini-3.8-flash"}
POINT = {"type": "coordinate", "x": 640, "y": 400}
ELEMENT = {"type": "ref", "ref": "ref_7"}
INPUT = "/messages/1/content/0/input"
TOOLSET = "dropped /messages/1/content/0/toolset_name"

# Each member: its input, then the call and the losses in OpenAI, and in Google.
TRANSLATED_MEMBERS: list[tuple[str, dict[str, Any], Any, set[str], Any, set[str]]] = [
    ("navigate", {"url": "example.com:8080/a"},
     [{"type": "keypress", "keys": ["CTRL", "l"]}, {"type": "type", "text": "https://example.com:8080/a"},
      {"type": "keypress", "keys": ["ENTER"]}], {f"approximated {INPUT}"},
     [("navigate", {"url": "https://example.com:8080/a"})], set()),
    ("navigate", {"url": "reload"}, [{"type": "keypress", "keys": ["F5"]}], {f"approximated {INPUT}"},
     [("press_key", {"key": "F5"})], {f"approximated {INPUT}"}),
    ("get_page_text", {}, [{"type": "screenshot"}], {f"approximated {INPUT}"},
     [("take_screenshot", {})], {f"approximated {INPUT}"}),
    ("zoom", {"region": [0, 0, 10, 10]}, [{"type": "screenshot"}], {f"approximated {INPUT}"},
     [("take_screenshot", {})], {f"approximated {INPUT}"}),
    ("left_click", {"target": POINT, "modifiers": "ctrl", "tab_id": "t1"},
     [{"type": "click", "button": "left", "x": 640, "y": 400, "keys": ["CTRL"]}], {f"dropped {INPUT}/tab_id"},
     [("click", {"x": 500, "y": 500})], {f"approximated {INPUT}", f"dropped {INPUT}/tab_id"}),
    ("hover", {"target": POINT}, [{"type": "move", "x": 640, "y": 400}], set(),
     [("move", {"x": 500, "y": 500})], set()),
    ("left_mouse_down", {"target": POINT}, None, {"approximated /messages/1/content/0", TOOLSET},
     [("mouse_down", {"x": 500, "y": 500})], set()),
    ("wait", {"duration": 0.5}, [{"type": "wait"}], {f"approximated {INPUT}"},
     [("wait", {"seconds": 1})], {f"approximated {INPUT}"}),
    ("wait", {"duration": 2}, [{"type": "wait"}], {f"approximated {INPUT}"}, [("wait", {"seconds": 2})], set()),
    ("hold_key", {"text": "shift", "duration": 1.5}, [{"type": "keypress", "keys": ["SHIFT"]}],
     {f"approximated {INPUT}"},
     [("key_down", {"key": "Shift"}), ("wait", {"seconds": 2}), ("key_up", {"key": "Shift"})],
     {f"approximated {INPUT}"}),
]  # fmt: skip
# Members that stay function calls with their arguments; only the toolset is lost.
FUNCTION_MEMBERS: list[tuple[str, dict[str, Any]]] = [
    ("list_tabs", {}),
    ("new_tab", {}),
    ("switch_tab", {"tab_id": "t1"}),
    ("close_tab", {"tab_id": "t1"}),
    ("read_page", {"depth": 3, "filter": "all", "ref": "ref_1", "tab_id": "t1"}),
    ("read_console", {"tab_id": "t1"}),
    ("read_network", {}),
    ("find", {"query": "the search bar"}),
    ("form_input", {"target": ELEMENT, "value": True}),
    ("file_upload", {"target": ELEMENT, "paths": ["/a"]}),
    ("scroll_to", {"target": ELEMENT}),
    ("javascript_exec", {"text": "1 + 1"}),
    ("left_click", {"target": ELEMENT}),
    ("hover", {"target": ELEMENT}),
]


def translate_member(target: str, name: str, members: dict[str, Any]) -> tuple[list[Any], set[str]]:
    """Return the call as the target receives it, and its losses."""
    request = computer_request(
        ANTHROPIC, *computer_turn(ANTHROPIC, [tool_use("a1", name, "browser", **members)]), tool=BROWSER
    )
    encoded = tw.translate(request, ANTHROPIC, target, model=MODELS[target])
    if target == RESPONSES:
        calls = [item for item in encoded.value["input"] if item.get("type", "").endswith("_call")]
    else:
        parts = [part for content in encoded.value["contents"] for part in content["parts"]]
        calls = [(call["name"], call["args"]) for part in parts if (call := part.get("functionCall"))]
    losses = {f"{loss.kind} {loss.path}" for loss in encoded.losses if loss.kind != "added"}
    return calls, {loss for loss in losses if "/messages/1/" in loss}


@pytest.mark.parametrize("case", TRANSLATED_MEMBERS, ids=lambda case: case[0])
def test_members_translate_to_other_vendors(case: tuple[str, dict[str, Any], Any, set[str], Any, set[str]]) -> None:
    name, members, openai, openai_losses, google, google_losses = case
    calls, reported = translate_member(RESPONSES, name, members)
    assert ([call.get("actions") for call in calls], reported) == ([openai], openai_losses)
    assert translate_member(GEMINI, name, members) == (google, google_losses)


@pytest.mark.parametrize(("name", "members"), FUNCTION_MEMBERS)
def test_members_without_equivalent_stay_function_calls(name: str, members: dict[str, Any]) -> None:
    (call,), reported = translate_member(RESPONSES, name, members)
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", name, members)
    assert reported == {TOOLSET}
    assert translate_member(GEMINI, name, members) == ([(name, members)], {TOOLSET})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("example.com", "https://example.com"),
        ("localhost:3000/a", "https://localhost:3000/a"),
        ("http://a/", "http://a/"),
        ("about:blank", "about:blank"),
    ],
)
def test_a_url_may_lack_its_scheme(url: str, expected: str) -> None:
    response = computer_response(ANTHROPIC, tool_use("a", "navigate", "browser", url=url))
    (call,) = computer_calls_in(
        GEMINI, tw.translate(response, ANTHROPIC, GEMINI, "response", request=computer_request(GEMINI)).value
    )
    assert call["functionCall"]["args"] == {"url": expected}


STATE = {
    "type": "browser_state",
    "tabs": [
        {"tab_id": "t1", "title": "Shop", "url": "http://a/"},
        {"tab_id": "t2", "title": "Cart", "url": "http://b/", "active": True},
    ],
    "state_changes": [{"type": "tab_opened", "tab_id": "t2"}],
}
STATE_TEXT = "Tab t1: Shop http://a/\nTab t2 (in view): Cart http://b/\ntab_opened t2"


def translate_state(target: str, *before: dict[str, Any]) -> tuple[Any, list[tuple[str, str]]]:
    """Return the body with a browser state as the target receives it, and the losses of its content."""
    turn = computer_turn(ANTHROPIC, [tool_use("a1", "screenshot", "browser")])
    turn[1]["content"][0]["content"] = [*before, IMAGE_BLOCK, STATE]
    encoded = tw.translate(
        computer_request(ANTHROPIC, *turn, tool=BROWSER), ANTHROPIC, target, model=MODELS.get(target, "m")
    )
    losses = [(loss.kind, loss.path.removeprefix("/messages/2/content/0")) for loss in encoded.losses]
    return encoded.value, [loss for loss in losses if loss[1].startswith("/content/")]


@pytest.mark.parametrize("before", [(), ({"type": "text", "text": "Done."},)], ids=["alone", "beside a text"])
def test_the_browser_state_is_sent_as_text(before: tuple[dict[str, Any], ...]) -> None:
    text = "\n".join([*(block["text"] for block in before), STATE_TEXT])
    state_loss = ("approximated", f"/content/{1 + len(before)}")
    body, losses = translate_state(GEMINI, *before)
    assert body["contents"][-1]["parts"][0]["functionResponse"]["response"] == {"url": "http://b/", "output": text}
    assert losses == [state_loss]
    body, losses = translate_state(INTERACTIONS, *before)
    assert json.loads(body["input"][-1]["result"][0]["text"]) == {"url": "http://b/", "output": text}
    assert losses == [state_loss]
    body, losses = translate_state(RESPONSES, *before)
    assert body["input"][-1]["output"] == text
    assert losses == [*[("approximated", "/content/0") for _ in before], state_loss]
    body, losses = translate_state(OLLAMA, *before)
    assert body["messages"][-1]["content"] == text
    body, losses = translate_state(CHAT, *before)
    assert STATE_TEXT in [part["text"] for part in body["messages"][-2]["content"]]


@pytest.mark.parametrize("state", [{}, {"tabs": "none"}, {"tabs": [3, {}], "state_changes": {}}])
def test_an_unreadable_browser_state_is_harmless(state: dict[str, Any]) -> None:
    turn = computer_turn(ANTHROPIC, [tool_use("a1", "screenshot", "browser")])
    turn[1]["content"][0]["content"] = [IMAGE_BLOCK, {"type": "browser_state", **state}]
    request = computer_request(ANTHROPIC, *turn, tool=BROWSER)
    assert tw.translate(request, ANTHROPIC, ANTHROPIC).value == request
    for target in (GEMINI, RESPONSES):
        losses = tw.translate(request, ANTHROPIC, target, model=MODELS[target]).losses
        assert "/messages/2/content/0/content/1" in {loss.path for loss in losses}
