"""Whole tool cycles: every step is taken by the official SDK's types, and ids hold over several turns."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_call, gemini_response, gemini_stream, interactions_request
from tests.support.bodies.minimal import (
    chat_assistant,
    chat_call,
    chat_response,
    request_with_tools,
    response_body,
    response_stream,
)
from tests.support.bodies.ollama import ollama_assistant, ollama_call, ollama_response, ollama_stream
from tests.support.bodies.readers import (
    declared_names,
    declared_schemas,
    parse_json_or_text,
    tool_calls_in,
    tool_results_in,
)
from tests.support.protocols import ALL_PROTOCOLS, CHAT, GEMINI, INTERACTIONS, OLLAMA, ROUTE_MODELS
from tests.support.sdk.validation import accept_request
from tests.support.translation import loss_kinds, translate_stream_bytes, translated_body
from toolwire.canonical.fold import fold
from toolwire.canonical.response import INCOMPLETE_STOPS
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.run.loop import _INCOMPLETE_STOPS

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Kyiv")
OUTPUTS: list[Any] = ["18C", {"temperature": 25, "wind": None}, [1, 2.5], 0, "No such city."]


def accepted(protocol: str, body: Any) -> None:
    """The SDK's types take it, and `check` has nothing against it."""
    assert accept_request(protocol, body) is None
    findings = toolwire.check(body, protocol, model=ROUTE_MODELS.get(protocol))
    assert [finding for finding in findings if finding.level == "error"] == []


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_a_cycle_of_several_calls_is_what_the_sdk_takes(protocol: str, count: int) -> None:
    request = request_with_tools(protocol, {"get_weather": None})
    accepted(protocol, request)
    response = response_body(protocol, "I'll look.", *((f"call_{n}", city) for n, city in enumerate(CITIES[:count])))
    asked = toolwire.parse_tool_calls(response, protocol)
    assert [(call["id"], json.loads(call["arguments"])["city"]) for call in asked] == [
        (f"call_{n}", city) for n, city in enumerate(CITIES[:count])
    ]
    outputs = [{"id": f"call_{n}", "output": OUTPUTS[n], "is_error": n == 4} for n in reversed(range(count))]
    following = toolwire.continue_request(request, response, outputs, protocol)
    accepted(protocol, following)
    assert [call["id"] for call in tool_calls_in(protocol, following)] == [f"call_{n}" for n in range(count)]
    told = tool_results_in(protocol, following)
    assert [answered for answered, _ in told] == [f"call_{n}" for n in range(count)]
    said = [parse_json_or_text(text.removeprefix("[tool error] ")) for _, text in told]
    assert said == OUTPUTS[:count]
    assert declared_schemas(protocol, following) == declared_schemas(protocol, request)
    written = toolwire.format_tool_results(asked, outputs, protocol)
    history = following.get("messages") or following.get("contents") or following["input"]
    assert history[-len(written) :] == written


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_every_call_wants_one_output(protocol: str) -> None:
    asked = toolwire.parse_tool_calls(response_body(protocol, "", ("call_1", "Paris"), ("call_2", "Rome")), protocol)
    with pytest.raises(ValueError, match="missing output for call 'call_2'"):
        toolwire.format_tool_results(asked, [{"id": "call_1", "output": "18C"}], protocol)
    unasked = [{"id": id, "output": "18C"} for id in ("call_1", "call_2", "call_9")]
    with pytest.raises(ValueError, match="output for unknown call 'call_9'"):
        toolwire.format_tool_results(asked, unasked, protocol)


def nameless_chat() -> dict[str, Any]:
    call = chat_call("", arguments='{"city":"Paris"}')
    del call["id"]
    return call


# Each server answers every time with the same call, without an id.
NAMELESS: dict[str, tuple[Any, bytes]] = {
    OLLAMA: (
        ollama_response(ollama_assistant(ollama_call())),
        ollama_stream(ollama_assistant(ollama_call())),
    ),
    GEMINI: (gemini_response(gemini_call()), gemini_stream(gemini_call())),
    CHAT: (
        chat_response(chat_assistant(nameless_chat())),
        response_stream(CHAT, "", ("", "Paris")).replace(b'"id": "", ', b""),
    ),
}
PAIRS = [(server, client) for server in NAMELESS for client in ALL_PROTOCOLS if client != server]


def answers(server: str, name: str) -> tuple[Any, bytes]:
    """The answer, whole and as a stream, under an id of its own where the server gives it one; Ollama does not."""
    body, wire = NAMELESS[server]
    for given in ("chatcmpl-1", "r1"):
        body = json.loads(json.dumps(body).replace(f'"{given}"', f'"{given}{name}"'))
        wire = wire.replace(f'"{given}"'.encode(), f'"{given}{name}"'.encode())
    return body, wire


def folded(client: str, wire: bytes) -> Any:
    """The whole answer that a stream tells."""
    decoder = PROTOCOLS[client].stream_decoder(ResponseContext())
    told = fold(decoder.feed(wire) + decoder.close())
    return json.loads(PROTOCOLS[client].encode_response(told, ResponseContext()).to_bytes())


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_the_same_call_in_turns_1_and_3_has_unique_and_stable_ids(server: str, client: str, as_stream: bool) -> None:
    """The client echoes what it got, as its own SDK would: the next request holds the whole conversation."""
    asking = request_with_tools(client, {"get_weather": None})
    sent = []
    for text in ("22C", "23C"):
        body, wire = answers(server, text)
        if as_stream:
            whole = folded(client, translate_stream_bytes(wire, server, client, asking))
        else:
            whole = translated_body(body, server, client, "response", request=asking)
        (call,) = toolwire.parse_tool_calls(whole, client)
        assert call["id"]
        asking = toolwire.continue_request(asking, whole, [{"id": call["id"], "output": text}], client)
        accepted(client, asking)
        sent.append(translated_body(asking, client, server))
    ids = [call["id"] for call in tool_calls_in(client, asking)]
    told = tool_results_in(client, asking)
    assert told == list(zip(ids, ("22C", "23C"), strict=True))
    if client in (GEMINI, OLLAMA):  # they pair without: none is made up
        assert ids == [None, None]
    else:
        assert len(set(ids) - {None, ""}) == 2
    first, second = (one.get("messages") or one["contents"] for one in sent)
    assert second[: len(first)] == first
    back = sent[1]
    assert [text for _, text in tool_results_in(server, back)] == ["22C", "23C"]
    if server != CHAT:
        assert [call["id"] for call in tool_calls_in(server, back)] == [None, None]
        assert declared_names(server, back) == ["get_weather", "get_weather"]


def test_a_previous_interaction_is_the_providers_to_continue_and_reported_elsewhere() -> None:
    """What only the provider holds is no memory of anyone else: no other protocol is sent to as if it knew."""
    body = interactions_request(previous_interaction_id="v1_x", store=True)
    assert translated_body(body, INTERACTIONS, INTERACTIONS) == body
    for target in ALL_PROTOCOLS:
        if target != INTERACTIONS:
            assert loss_kinds(body, INTERACTIONS, target)["/previous_interaction_id"] == "dropped"
            assert "v1_x" not in json.dumps(translated_body(body, INTERACTIONS, target))


def stopped(protocol: str, word: str) -> dict[str, Any]:
    """A response with one call that ended by this word of the protocol."""
    body = response_body(protocol, "", ("call_1", "Paris"))
    match protocol:
        case "anthropic":
            body["stop_reason"] = word
        case "openai-chat" | "openrouter":
            body["choices"][0]["finish_reason"] = word
        case "gemini":
            body["candidates"][0]["finishReason"] = word
        case "ollama":
            body["done_reason"] = word
        case "openai-responses":
            body |= {"status": "incomplete", "incomplete_details": {"reason": word}}
        case _:
            body["status"] = word
    return body


CUT_OFF_BY = {
    "anthropic": ("max_tokens", "refusal", "model_context_window_exceeded"),
    CHAT: ("length", "content_filter"),
    "openrouter": ("length", "content_filter", "error"),
    "openai-responses": ("max_output_tokens", "content_filter"),
    GEMINI: ("MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"),
    INTERACTIONS: ("incomplete", "failed", "cancelled"),
    OLLAMA: ("length",),
}


@pytest.mark.parametrize(
    ("protocol", "word"), [(protocol, word) for protocol in ALL_PROTOCOLS for word in CUT_OFF_BY[protocol]]
)
def test_q_10_a_call_of_a_response_that_was_cut_off_is_not_complete(protocol: str, word: str) -> None:
    (call,) = toolwire.parse_tool_calls(stopped(protocol, word), protocol)
    assert (call["name"], call["complete"]) == ("get_weather", False)


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
def test_q_10_a_cut_off_call_is_not_complete_after_translation(target: str) -> None:
    body = stopped("anthropic", "max_tokens")
    (call,) = toolwire.parse_tool_calls(translated_body(body, "anthropic", target, "response"), target)
    assert call["complete"] is False


@pytest.mark.parametrize(("protocol", "word"), [("anthropic", "end_turn"), (CHAT, "stop"), ("openrouter", "stop")])
def test_q_10_strict_parsing_wants_the_stop_for_tools(protocol: str, word: str) -> None:
    (call,) = toolwire.parse_tool_calls(stopped(protocol, word), protocol)
    (strict,) = toolwire.parse_tool_calls(stopped(protocol, word), protocol, strict=True)
    assert (call["complete"], strict["complete"]) == (True, False)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_q_10_strict_parsing_takes_a_finished_call(protocol: str) -> None:
    (call,) = toolwire.parse_tool_calls(response_body(protocol, "", ("call_1", "Paris")), protocol, strict=True)
    assert call["complete"] is True


def test_the_runtime_runs_nothing_after_the_same_stops() -> None:
    assert _INCOMPLETE_STOPS.keys() == INCOMPLETE_STOPS
