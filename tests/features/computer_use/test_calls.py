"""Computer-use calls: translated to the format of the client, and restored for the upstream."""

import json
from itertools import permutations
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.computer_use import (
    CLICK,
    COMPUTER_CALLS,
    COMPUTER_PROTOCOLS,
    COMPUTER_SCREENSHOT,
    PRESS_ENTER,
    SCREENSHOT_BASE64,
    TYPE_TEXT,
    computer_calls_in,
    computer_request,
    computer_response,
    computer_turn,
)
from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, RESPONSES
from toolwire.canonical.content import ToolCall
from toolwire.canonical.fold import fold, unfold
from toolwire.codec.interface import ResponseContext, Route
from toolwire.protocols import PROTOCOLS

CLIENT_CALLS: dict[str, list[Any]] = {
    ANTHROPIC: [
        {"action": "left_click", "coordinate": [640, 400]},
        {"action": "type", "text": "Oslo"},
        {"action": "key", "text": "Return"},
    ],
    GEMINI: [("click", {"x": 500, "y": 500}), ("type", {"text": "Oslo", "press_enter": True})],
}
PAIRS = [
    (upstream, client)
    for upstream in (*COMPUTER_PROTOCOLS, CHAT)
    for client in COMPUTER_PROTOCOLS
    if upstream != client
]
PAIRS = [pair for pair in PAIRS if set(pair) != {GEMINI, INTERACTIONS}]


def _extract_calls(client: str, calls: list[Any]) -> list[Any]:
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


@pytest.mark.parametrize(("upstream", "client"), PAIRS)
def test_calls_arrive_in_the_format_of_the_client(upstream: str, client: str) -> None:
    translated = tw.translate(
        computer_response(upstream, *COMPUTER_CALLS[upstream]),
        upstream,
        client,
        "response",
        request=computer_request(client),
    )
    calls = _extract_calls(client, computer_calls_in(client, translated.value))
    expected = {**CLIENT_CALLS, INTERACTIONS: CLIENT_CALLS[GEMINI], RESPONSES: [CLICK, TYPE_TEXT, PRESS_ENTER]}[client]
    if upstream == ANTHROPIC and client in (GEMINI, INTERACTIONS):
        expected = [
            expected[0],
            ("type", {"text": "Oslo"}),
            ("press_key", {"key": "Enter"}),
        ]  # three calls are not merged
    assert calls == expected


@pytest.mark.parametrize(("upstream", "client"), PAIRS)
def test_a_stream_has_the_same_calls(upstream: str, client: str) -> None:
    request = computer_request(client)
    body = computer_response(upstream, *COMPUTER_CALLS[upstream])
    source = PROTOCOLS[upstream]
    encoder = source.stream_encoder(ResponseContext())
    wire = (
        encoder.encode(unfold(source.decode_response(json.dumps(body).encode(), ResponseContext()))) + encoder.close()
    )
    stream = tw.translate_stream([wire[:100], wire[100:]], upstream, client, request)
    decoder = PROTOCOLS[client].stream_decoder(ResponseContext())
    streamed = fold(decoder.feed(b"".join(stream)) + decoder.close())
    full_body = tw.translate(body, upstream, client, "response", request=request)
    expected = PROTOCOLS[client].decode_response(full_body.to_bytes(), ResponseContext())
    calls = [
        [part for message in response.candidates[0].messages for part in message.parts]
        for response in (streamed, expected)
    ]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls[0]] == [  # type: ignore[union-attr]
        (call.id, call.name, json.loads(call.arguments))  # type: ignore[union-attr]
        for call in calls[1]
    ]


@pytest.mark.parametrize(("upstream", "client"), PAIRS)
def test_the_upstream_receives_its_own_calls_with_their_results(upstream: str, client: str) -> None:
    """Calls that were split for the client are joined again, with their ids and actions."""
    request = computer_request(client)
    translated = tw.translate(
        computer_response(upstream, *COMPUTER_CALLS[upstream]), upstream, client, "response", request=request
    ).value
    following = computer_request(client, *computer_turn(client, computer_calls_in(client, translated)))
    body = tw.translate(following, client, upstream, model="gemini-3.5-flash" if upstream == GEMINI else None).value
    match upstream:
        case "anthropic":
            calls, results = body["messages"][-2]["content"], body["messages"][-1]["content"]
            toolset = "browser" if client in (GEMINI, INTERACTIONS) else "computer"
            assert [(call["id"], call["name"], call["toolset_name"]) for call in calls] == [
                ("a1", "left_click", toolset),
                ("a2", "type", toolset),
                ("a3", "key", toolset),
            ]
            assert [(result["tool_use_id"], result["toolset_name"]) for result in results] == [
                (id, toolset) for id in ("a1", "a2", "a3")
            ]
            assert all(result["content"][-1]["type"] == "image" for result in results)
        case "openai-responses":
            items = [item for item in body["input"] if "type" in item]
            assert [(item["call_id"], item["actions"]) for item in items[:1]] == [
                ("call_1", [CLICK, TYPE_TEXT, PRESS_ENTER])
            ]
            assert items[1] == {"type": "computer_call_output", "call_id": "call_1", "output": COMPUTER_SCREENSHOT}
        case "gemini":
            calls = [part["functionCall"] for part in body["contents"][-2]["parts"]]
            assert calls == [call["functionCall"] for call in COMPUTER_CALLS[GEMINI]]
            results = [part["functionResponse"] for part in body["contents"][-1]["parts"]]
            assert [(result["id"], result["name"]) for result in results] == [("f1", "click"), ("f2", "type")]
            assert all(result["parts"][0]["inlineData"]["data"] == SCREENSHOT_BASE64 for result in results)
        case "gemini-interactions":
            assert body["input"][1:3] == COMPUTER_CALLS[INTERACTIONS]
            assert [(item["call_id"], item["name"]) for item in body["input"][3:5]] == [("s1", "click"), ("s2", "type")]
        case _:
            (message,) = [message for message in body["messages"] if message.get("tool_calls")]
            assert message["tool_calls"] == COMPUTER_CALLS[CHAT]


def test_a_call_without_an_id_gets_none_at_google() -> None:
    request = computer_request(ANTHROPIC)
    response = computer_response(
        GEMINI, {"functionCall": {"name": "type", "args": {"text": "Oslo", "press_enter": True}}}
    )
    translated = tw.translate(response, GEMINI, ANTHROPIC, "response", request=request).value
    calls = computer_calls_in(ANTHROPIC, translated)
    assert len({call["id"] for call in calls}) == 2
    body = tw.translate(
        computer_request(ANTHROPIC, *computer_turn(ANTHROPIC, calls)), ANTHROPIC, GEMINI, model="gemini-3.5-flash"
    ).value
    (call,) = body["contents"][-2]["parts"]
    assert call["functionCall"] == {"name": "type", "args": {"text": "Oslo", "press_enter": True}}
    (result,) = body["contents"][-1]["parts"]
    assert "id" not in result["functionResponse"]


def test_an_incomplete_group_of_split_calls_is_not_joined() -> None:
    translated = tw.translate(
        computer_response(RESPONSES, *COMPUTER_CALLS[RESPONSES]),
        RESPONSES,
        ANTHROPIC,
        "response",
        request=computer_request(ANTHROPIC),
    )
    calls = computer_calls_in(ANTHROPIC, translated.value)[:2]
    items = tw.translate(computer_request(ANTHROPIC, *computer_turn(ANTHROPIC, calls)), ANTHROPIC, RESPONSES).value[
        "input"
    ]
    assert [item["call_id"] for item in items if item.get("type") == "computer_call"] == [call["id"] for call in calls]


@pytest.mark.parametrize("protocol", COMPUTER_PROTOCOLS)
def test_calls_are_unchanged_within_their_protocol(protocol: str) -> None:
    body = computer_request(protocol, *computer_turn(protocol, COMPUTER_CALLS[protocol]))
    encoded = tw.translate(body, protocol, protocol)
    assert (encoded.value, encoded.losses) == (body, [])
    response = computer_response(protocol, *COMPUTER_CALLS[protocol])
    assert tw.translate(response, protocol, protocol, "response", request=body).value == response


@pytest.mark.parametrize(("source", "target"), list(permutations((GEMINI, INTERACTIONS))))
def test_calls_are_unchanged_between_the_google_protocols(source: str, target: str) -> None:
    translated = tw.translate(
        computer_response(source, *COMPUTER_CALLS[source]), source, target, "response", request=computer_request(target)
    ).value
    assert _extract_calls(target, computer_calls_in(target, translated)) == CLIENT_CALLS[GEMINI]


@pytest.mark.parametrize("protocol", COMPUTER_PROTOCOLS)
def test_decoders_recognize_the_actions(protocol: str) -> None:
    body = computer_request(protocol, *computer_turn(protocol, COMPUTER_CALLS[protocol]))
    if protocol == ANTHROPIC:
        body["tools"] = [{"type": "computer_toolset_20260801"}]
    decoded = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    uses = [getattr(part, "screen", None) for message in decoded.messages for part in message.parts]
    kinds = [type(action).__name__ for use in uses for action in getattr(use, "actions", ())]
    assert kinds == ["Click", "Type", "Keys"]


def test_the_pointer_stays_where_the_previous_call_left_it() -> None:
    """Before Gemini 3.5, typing needs coordinates."""
    request = computer_request(INTERACTIONS) | {"model": "gemini-2.5-computer-use-preview-10-2025"}
    body, source = computer_response(ANTHROPIC, *COMPUTER_CALLS[ANTHROPIC]), PROTOCOLS[ANTHROPIC]
    typed = {"x": 500, "y": 500, "text": "Oslo", "press_enter": False, "clear_before_typing": False}
    expected = [("click_at", {"x": 500, "y": 500}), ("type_text_at", typed), ("key_combination", {"keys": "Enter"})]
    translated = tw.translate(body, ANTHROPIC, INTERACTIONS, "response", request=request)
    assert _extract_calls(INTERACTIONS, computer_calls_in(INTERACTIONS, translated.value)) == expected
    assert ("approximated", "/content/1/input") in {(loss.kind, loss.path) for loss in translated.losses}
    encoder = source.stream_encoder(ResponseContext())
    wire = (
        encoder.encode(unfold(source.decode_response(json.dumps(body).encode(), ResponseContext()))) + encoder.close()
    )
    decoder = PROTOCOLS[INTERACTIONS].stream_decoder(ResponseContext())
    streamed = fold(
        decoder.feed(b"".join(tw.translate_stream(wire, ANTHROPIC, INTERACTIONS, request))) + decoder.close()
    )
    calls = [
        part for candidate in streamed.candidates[0].messages for part in candidate.parts if isinstance(part, ToolCall)
    ]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == expected
