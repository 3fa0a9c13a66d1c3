"""Complete tool cycles: the official SDKs accept every step, and ids are stable over several turns."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_call, gemini_response, gemini_stream, interactions_request
from tests.support.bodies.minimal import (
    chat_assistant,
    chat_call,
    chat_response,
    chat_tool,
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
from toolwire.runtime.run import stops

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Kyiv")
OUTPUTS: list[Any] = ["18C", {"temperature": 25, "wind": None}, [1, 2.5], 0, "No such city."]


def assert_accepted(protocol: str, body: Any) -> None:
    """Assert that the SDK's types and `check` accept a request."""
    assert accept_request(protocol, body) is None
    findings = toolwire.check(body, protocol, model=ROUTE_MODELS.get(protocol))
    assert [finding for finding in findings if finding.level == "error"] == []


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_tool_cycle_is_accepted_by_the_sdk(protocol: str, count: int) -> None:
    request = request_with_tools(protocol, {"get_weather": None})
    assert_accepted(protocol, request)
    response = response_body(protocol, "I'll look.", *((f"call_{n}", city) for n, city in enumerate(CITIES[:count])))
    calls = toolwire.parse_tool_calls(response, protocol)
    assert [(call["id"], json.loads(call["arguments"])["city"]) for call in calls] == [
        (f"call_{n}", city) for n, city in enumerate(CITIES[:count])
    ]
    outputs = [{"id": f"call_{n}", "output": OUTPUTS[n], "is_error": n == 4} for n in reversed(range(count))]
    following = toolwire.continue_request(request, response, outputs, protocol)
    assert_accepted(protocol, following)
    assert [call["id"] for call in tool_calls_in(protocol, following)] == [f"call_{n}" for n in range(count)]
    results = tool_results_in(protocol, following)
    assert [id for id, _ in results] == [f"call_{n}" for n in range(count)]
    values = [parse_json_or_text(text.removeprefix("[tool error] ")) for _, text in results]
    assert values == OUTPUTS[:count]
    assert declared_schemas(protocol, following) == declared_schemas(protocol, request)
    written = toolwire.format_tool_results(calls, outputs, protocol)
    history = following.get("messages") or following.get("contents") or following["input"]
    assert history[-len(written) :] == written


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_every_call_requires_one_output(protocol: str) -> None:
    calls = toolwire.parse_tool_calls(response_body(protocol, "", ("call_1", "Paris"), ("call_2", "Rome")), protocol)
    with pytest.raises(ValueError, match="missing output for call 'call_2'"):
        toolwire.format_tool_results(calls, [{"id": "call_1", "output": "18C"}], protocol)
    extra_outputs = [{"id": id, "output": "18C"} for id in ("call_1", "call_2", "call_9")]
    with pytest.raises(ValueError, match="output for unknown call 'call_9'"):
        toolwire.format_tool_results(calls, extra_outputs, protocol)


def chat_call_without_id() -> dict[str, Any]:
    call = chat_call("", arguments='{"city":"Paris"}')
    del call["id"]
    return call


# Each server responds every time with the same call, without an id.
RESPONSES_WITHOUT_IDS: dict[str, tuple[Any, bytes]] = {
    OLLAMA: (
        ollama_response(ollama_assistant(ollama_call())),
        ollama_stream(ollama_assistant(ollama_call())),
    ),
    GEMINI: (gemini_response(gemini_call()), gemini_stream(gemini_call())),
    CHAT: (
        chat_response(chat_assistant(chat_call_without_id())),
        response_stream(CHAT, "", ("", "Paris")).replace(b'"id": "", ', b""),
    ),
}
PAIRS = [(server, client) for server in RESPONSES_WITHOUT_IDS for client in ALL_PROTOCOLS if client != server]


def response_variants(server: str, suffix: str) -> tuple[Any, bytes]:
    """Return a body and a stream with a response id of their own, except for Ollama, which has none."""
    body, wire = RESPONSES_WITHOUT_IDS[server]
    for id_prefix in ("chatcmpl-1", "r1"):
        body = json.loads(json.dumps(body).replace(f'"{id_prefix}"', f'"{id_prefix}{suffix}"'))
        wire = wire.replace(f'"{id_prefix}"'.encode(), f'"{id_prefix}{suffix}"'.encode())
    return body, wire


def folded(client: str, wire: bytes) -> Any:
    """Return the complete response body of a stream."""
    decoder = PROTOCOLS[client].stream_decoder(ResponseContext())
    response = fold(decoder.feed(wire) + decoder.close())
    return json.loads(PROTOCOLS[client].encode_response(response, ResponseContext()).to_bytes())


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize(("server", "client"), PAIRS)
def test_repeated_call_has_unique_and_stable_ids(server: str, client: str, as_stream: bool) -> None:
    """The client echoes the response as its SDK would, so the next request holds the entire history."""
    request = request_with_tools(client, {"get_weather": None})
    sent = []
    for text in ("22C", "23C"):
        body, wire = response_variants(server, text)
        if as_stream:
            response = folded(client, translate_stream_bytes(wire, server, client, request))
        else:
            response = translated_body(body, server, client, "response", request=request)
        (call,) = toolwire.parse_tool_calls(response, client)
        assert call["id"]
        request = toolwire.continue_request(request, response, [{"id": call["id"], "output": text}], client)
        assert_accepted(client, request)
        sent.append(translated_body(request, client, server))
    ids = [call["id"] for call in tool_calls_in(client, request)]
    results = tool_results_in(client, request)
    assert results == list(zip(ids, ("22C", "23C"), strict=True))
    if client in (GEMINI, OLLAMA):  # they pair by name and order, so no ids are derived
        assert ids == [None, None]
    else:
        assert len(set(ids) - {None, ""}) == 2
    first, second = (body.get("messages") or body["contents"] for body in sent)
    assert second[: len(first)] == first
    last_request = sent[1]
    assert [text for _, text in tool_results_in(server, last_request)] == ["22C", "23C"]
    if server != CHAT:
        assert [call["id"] for call in tool_calls_in(server, last_request)] == [None, None]
        assert declared_names(server, last_request) == ["get_weather", "get_weather"]


def test_previous_interaction_id_is_reported_elsewhere() -> None:
    """Other providers do not have the stored conversation, so the id must not reach them."""
    body = interactions_request(previous_interaction_id="v1_x", store=True)
    assert translated_body(body, INTERACTIONS, INTERACTIONS) == body
    for target in ALL_PROTOCOLS:
        if target != INTERACTIONS:
            assert loss_kinds(body, INTERACTIONS, target)["/previous_interaction_id"] == "dropped"
            assert "v1_x" not in json.dumps(translated_body(body, INTERACTIONS, target))


def stopped(protocol: str, reason: str) -> dict[str, Any]:
    """Return a response with one call and this stop reason."""
    body = response_body(protocol, "", ("call_1", "Paris"))
    match protocol:
        case "anthropic":
            body["stop_reason"] = reason
        case "openai-chat" | "openrouter":
            body["choices"][0]["finish_reason"] = reason
        case "gemini":
            body["candidates"][0]["finishReason"] = reason
        case "ollama":
            body["done_reason"] = reason
        case "openai-responses":
            body |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        case _:
            body["status"] = reason
    return body


TRUNCATING_REASONS = {
    "anthropic": ("max_tokens", "refusal", "model_context_window_exceeded"),
    CHAT: ("length", "content_filter"),
    "openrouter": ("length", "content_filter", "error"),
    "openai-responses": ("max_output_tokens", "content_filter"),
    GEMINI: ("MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"),
    INTERACTIONS: ("incomplete", "failed", "cancelled"),
    OLLAMA: ("length",),
}


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [(protocol, reason) for protocol in ALL_PROTOCOLS for reason in TRUNCATING_REASONS[protocol]],
)
def test_call_of_a_truncated_response_is_incomplete(protocol: str, reason: str) -> None:
    (call,) = toolwire.parse_tool_calls(stopped(protocol, reason), protocol)
    assert (call["name"], call["complete"]) == ("get_weather", False)


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
def test_truncated_call_stays_incomplete_after_translation(target: str) -> None:
    body = stopped("anthropic", "max_tokens")
    (call,) = toolwire.parse_tool_calls(translated_body(body, "anthropic", target, "response"), target)
    assert call["complete"] is False


@pytest.mark.parametrize(("protocol", "reason"), [("anthropic", "end_turn"), (CHAT, "stop"), ("openrouter", "stop")])
def test_strict_parsing_requires_a_tool_stop_reason(protocol: str, reason: str) -> None:
    (call,) = toolwire.parse_tool_calls(stopped(protocol, reason), protocol)
    (strict,) = toolwire.parse_tool_calls(stopped(protocol, reason), protocol, strict=True)
    assert (call["complete"], strict["complete"]) == (True, False)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_strict_parsing_accepts_a_complete_call(protocol: str) -> None:
    (call,) = toolwire.parse_tool_calls(response_body(protocol, "", ("call_1", "Paris")), protocol, strict=True)
    assert call["complete"] is True


def test_runtime_uses_the_same_incomplete_stops() -> None:
    assert stops.INCOMPLETE_STOPS.keys() == INCOMPLETE_STOPS


DOTTED_TOOLS = [
    {"name": "uber.ride", "parameters": {"type": "dict", "properties": {"loc": {"type": "float"}}}},
    {"name": "uber_ride", "parameters": {"type": "object", "properties": {}}},
]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_names_that_a_protocol_does_not_allow_come_back(protocol: str) -> None:
    tools = toolwire.format_tools(DOTTED_TOOLS, protocol)
    request = request_with_tools(protocol, {}) | {"tools": tools}
    assert_accepted(protocol, request)
    schemas = declared_schemas(protocol, request)
    sent = next(iter(tools.names), "uber.ride")
    assert schemas.keys() == {sent, "uber_ride"}
    assert schemas[sent]["type"] == "object"
    assert schemas[sent]["properties"]["loc"]["type"] == "number"
    body = json.dumps(response_body(protocol, "", ("call_1", "Paris"))).replace("get_weather", sent)
    (call,) = toolwire.parse_tool_calls(body.encode(), protocol, tools=DOTTED_TOOLS)
    assert call["name"] == "uber.ride"
    assert [loss.path for loss in tools.losses if loss.path == "/0/name"] == ["/0/name"] * len(tools.names)


def test_losses_of_tools_point_into_the_tools() -> None:
    tools = toolwire.format_tools([*DOTTED_TOOLS, chat_tool("a.b")], "anthropic")
    assert list(tools.names.values()) == ["uber.ride", "a.b"]
    assert {loss.path for loss in tools.losses} == {"/0/name", "/0/parameters", "/2/function/name"}


CHAT_REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
CHAT_CALL = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CHAT_RESPONSE: dict[str, Any] = {
    "id": "r",
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [CHAT_CALL]}}
    ],
}


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ([{"id": "t1", "result": 5}], ValueError, r"outputs\[0\] lacks 'output'; it has 'id', 'result'"),
        ([{"output": 5}], ValueError, r"outputs\[0\] lacks 'id'; it has 'output'"),
        (["seen"], TypeError, r"outputs\[0\]='seen' is invalid: use an object {'id', 'output'}"),
        ("seen", TypeError, "outputs='seen' is invalid: use a list of {'id', 'output'}"),
        ({"id": "t1", "output": 5}, TypeError, "use a list of {'id', 'output'}"),
        (None, TypeError, "outputs=None is invalid: use a list"),
        ([{"id": "t1", "output": object()}], TypeError, "the output of call 't1' is invalid: use a text or JSON data"),
    ],
)
def test_outputs_of_another_form_are_errors_that_show_the_form(
    outputs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        toolwire.continue_request(CHAT_REQUEST, CHAT_RESPONSE, outputs, "openai-chat")
    with pytest.raises(error, match=message):
        toolwire.format_tool_results([{"id": "t1", "name": "look"}], outputs, "openai-chat")


WRONG_CYCLE_OPTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "calls without ids": (
        lambda: toolwire.format_tool_results([{"name": "look"}], [], "openai-chat"),
        r"calls\[0\] lacks 'id'; it has 'name'",
    ),
    "name": (
        lambda: any_function(toolwire.format_tool_result)("t1", 5, "", "openai-chat"),
        "name=5 is invalid: use a string",
    ),
    "id": (
        lambda: any_function(toolwire.format_tool_result)(5, "look", "", "openai-chat"),
        "id=5 is invalid: use a string",
    ),
    "one tool": (lambda: any_function(toolwire.format_tools)(5, "openai-chat"), "tools=5 is invalid: use a list"),
    "strict": (
        lambda: any_function(toolwire.parse_tool_calls)(CHAT_RESPONSE, "openai-chat", strict="yes"),
        "strict='yes' is invalid: use True or False",
    ),
    "parser": (
        lambda: any_function(toolwire.parse_tool_calls)(CHAT_RESPONSE, "openai-chat", tool_call_parser=[]),
        r"tool_call_parser=\[\] is invalid: use a string",
    ),
    "protocol": (
        lambda: any_function(toolwire.parse_tool_calls)(CHAT_RESPONSE, []),
        r"unknown protocol \[\]; expected one of",
    ),
    "model": (
        lambda: any_function(toolwire.check)(CHAT_REQUEST, "openai-chat", model=5),
        "model=5 is invalid: use a string",
    ),
    "compatible": (
        lambda: any_function(toolwire.check)(CHAT_REQUEST, "openai-chat", compatible="no"),
        "compatible='no' is invalid: use True or False",
    ),
}


def any_function(function: Any) -> Any:
    return function


@pytest.mark.parametrize("option", WRONG_CYCLE_OPTIONS)
def test_options_of_another_type_are_errors_that_say_what_to_write(option: str) -> None:
    make, message = WRONG_CYCLE_OPTIONS[option]
    with pytest.raises((TypeError, ValueError), match=message):
        make()
