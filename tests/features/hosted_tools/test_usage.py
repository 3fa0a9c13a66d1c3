"""Counts of hosted tool calls: in the usage of each protocol that has them, in bodies and streams, or reported."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

GEMINI, INTERACTIONS, OLLAMA, ROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
NO_IMAGES = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop"}
RESPONSE_BODIES: dict[str, dict[str, Any]] = {
    ANTHROPIC: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Rain."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "output_tokens": 2,
            "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0},
        },
    },
    RESPONSES: {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        "tool_usage": {"image_gen": NO_IMAGES, "web_search": {"num_requests": 3}},
    },
    INTERACTIONS: {
        "id": "i",
        "status": "completed",
        "steps": [],
        "usage": {
            "total_input_tokens": 5,
            "total_output_tokens": 2,
            "total_tokens": 7,
            "grounding_tool_count": [{"type": "google_maps", "count": 9}, {"type": "google_search", "count": 3}],
        },
    },
    ROUTER: {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [CHOICE],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "total_tokens": 7,
            "server_tool_use_details": {"tool_calls_requested": 4, "web_search_requests": 3},
        },
    },
}
PLACES = {
    ANTHROPIC: "/usage/server_tool_use/web_search_requests",
    RESPONSES: "/tool_usage/web_search/num_requests",
    INTERACTIONS: "/usage/grounding_tool_count/1",
    ROUTER: "/usage/server_tool_use_details/web_search_requests",
}
PAIRS = [(source, target) for source in RESPONSE_BODIES for target in RESPONSE_BODIES if source != target]


def searches(protocol: str, body: dict[str, Any]) -> Any:
    match protocol:
        case "anthropic":
            return body["usage"]["server_tool_use"]["web_search_requests"]
        case "openai-responses":
            return body["tool_usage"]["web_search"]["num_requests"]
        case "gemini-interactions":
            (count,) = body["usage"]["grounding_tool_count"]
            return count["count"] if count["type"] == "google_search" else None
        case _:
            return body["usage"]["server_tool_use_details"]["web_search_requests"]


def streamed(source: str, target: str) -> tuple[bytes, list[str]]:
    codec = PROTOCOLS[source]
    encoder = codec.stream_encoder(ResponseContext())
    response = codec.decode_response(json.dumps(RESPONSE_BODIES[source]).encode(), ResponseContext())
    stream = tw.translate_stream([encoder.encode(list(unfold(response))) + encoder.close()], source, target)
    return b"".join(stream), [loss.path for loss in stream.losses]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_client_reads_how_often_the_provider_searched(source: str, target: str) -> None:
    translated = tw.translate(RESPONSE_BODIES[source], source, target, "response")
    assert searches(target, translated.value) == 3
    assert PLACES[source] not in [loss.path for loss in translated.losses]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_client_reads_the_search_count_of_a_stream(source: str, target: str) -> None:
    wire, losses = streamed(source, target)
    events = stream_frames(wire)
    match target:
        case "anthropic":
            body = next(event for event in events if event["type"] == "message_delta")
        case "openai-responses":
            body = events[-1]["response"]
        case "gemini-interactions":
            body = events[-1]["interaction"]
        case _:
            body = events[-1]
    assert searches(target, body) == 3
    assert PLACES[source] not in losses


@pytest.mark.parametrize("target", [CHAT, GEMINI, OLLAMA])
@pytest.mark.parametrize("source", RESPONSE_BODIES)
def test_counts_without_equivalent_are_reported(source: str, target: str) -> None:
    assert PLACES[source] in [
        loss.path for loss in tw.translate(RESPONSE_BODIES[source], source, target, "response").losses
    ]
    assert PLACES[source] in streamed(source, target)[1]


@pytest.mark.parametrize("source", RESPONSE_BODIES)
def test_counts_are_unchanged_within_their_protocol(source: str) -> None:
    translated = tw.translate(RESPONSE_BODIES[source], source, source, "response")
    assert (translated.value, list(translated.losses)) == (RESPONSE_BODIES[source], [])


def test_other_counts_are_reported() -> None:
    others = {
        ROUTER: "/usage/server_tool_use_details/tool_calls_requested",
        INTERACTIONS: "/usage/grounding_tool_count/0",
    }
    for source, path in non_empty(others.items()):
        assert path in [
            loss.path for loss in tw.translate(RESPONSE_BODIES[source], source, ANTHROPIC, "response").losses
        ]


@pytest.mark.parametrize("target", [RESPONSES, INTERACTIONS, ROUTER])
def test_only_anthropic_counts_fetches(target: str) -> None:
    losses = tw.translate(RESPONSE_BODIES[ANTHROPIC], ANTHROPIC, target, "response").losses
    assert "/usage/server_tool_use/web_fetch_requests" in [loss.path for loss in losses]


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, [], {}])
def test_an_invalid_count_is_kept_and_reported(count: Any) -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "server_tool_use": {"web_search_requests": count}}
    body = {**RESPONSE_BODIES[ANTHROPIC], "usage": usage}
    assert tw.translate(body, ANTHROPIC, ANTHROPIC, "response").value == body
    translated = tw.translate(body, ANTHROPIC, ROUTER, "response")
    assert "server_tool_use_details" not in translated.value["usage"]
