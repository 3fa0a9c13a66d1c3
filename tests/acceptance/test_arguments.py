"""JSON of tool arguments (AR-1 to AR-13)."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_response
from tests.support.bodies.minimal import (
    anthropic_request,
    anthropic_tool,
    chat_assistant,
    chat_call,
    chat_fragment,
    chat_response,
    chat_result,
    chat_stream,
    chat_turn,
    request_with_arguments,
    request_with_tools,
    tool_cycle_request,
)
from tests.support.bodies.readers import gemini_parts, stream_frames, tool_calls_in, tool_results_in
from tests.support.protocols import (
    ALL_PAIRS,
    ALL_PROTOCOLS,
    ANTHROPIC,
    CHAT,
    GEMINI,
    INTERACTIONS,
    OLLAMA,
    OPENROUTER,
    RESPONSES,
)
from tests.support.translation import loss_kinds, translate_body, translated_body

OBJECT_PROTOCOLS = (ANTHROPIC, GEMINI, INTERACTIONS, OLLAMA)
"""Protocols with arguments as an object, not as text."""

BIG_INTEGER = 10_000_000_000_000_001  # above 2**53: a float would round it
HUGE_INTEGER = 123_456_789_012_345_678_901_234_567_890


@pytest.mark.parametrize("empty", ["", " \n", None, "null"])
@pytest.mark.parametrize("target", OBJECT_PROTOCOLS)
def test_ar_1_missing_arguments_are_an_empty_object(empty: str | None, target: str) -> None:
    body = chat_turn([chat_call("call_1", arguments=empty)], [chat_result("call_1")])
    assert tool_calls_in(target, translated_body(body, CHAT, target))[0]["arguments"] == {}
    source = request_with_arguments(target, "{}")
    assert translated_body(source, target, CHAT)["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert translated_body(source, target, RESPONSES)["input"][1]["arguments"] == "{}"


@pytest.mark.parametrize("number", [BIG_INTEGER, HUGE_INTEGER, -BIG_INTEGER])
@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_ar_3_integers_of_any_size_are_exact(source: str, target: str, number: int) -> None:
    wire = json.dumps(request_with_arguments(source, f'{{"n":{number}}}')).encode()
    translated = translate_body(wire, source, target)
    assert str(number).encode() in translated.to_bytes()
    assert tool_calls_in(target, translated.value)[0]["arguments"] == {"n": number}


INTEGER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "timeout": {"type": "integer"},
        "ratio": {"type": "number"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        "text": {"type": "string"},
        "maybe": {"type": ["integer", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "by_name": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"at": {"type": "integer"}, "score": {"type": "number"}}}},
}
FLOATS = (
    '{"timeout":120000.0,"ratio":10.0,"either":3.0,"text":"say 7.0, \\"8.0\\"","maybe":-1.00,'
    '"lines":[{"at":1.0,"score":2.0},{"at":2.5}],"by_name":{"a":4.0},"unknown":5.0}'
)
INTEGERS = (
    '{"timeout":120000,"ratio":10.0,"either":3.0,"text":"say 7.0, \\"8.0\\"","maybe":-1,'
    '"lines":[{"at":1,"score":2.0},{"at":2.5}],"by_name":{"a":4},"unknown":5.0}'
)


def arguments_text(protocol: str, response: bytes) -> str:
    """Return the arguments of the only call of a response as text."""
    (call,) = toolwire.parse_tool_calls(response, protocol)
    return str(call["arguments"])


@pytest.mark.parametrize("client", [client for client in ALL_PROTOCOLS if client != GEMINI])
def test_ar_4_integral_floats_become_integers_where_the_schema_has_integers(client: str) -> None:
    request = request_with_tools(client, {"run": INTEGER_SCHEMA})
    parts = f'{{"functionCall":{{"id":"call_1","name":"run","args":{FLOATS}}}}}'
    response = json.dumps(gemini_response({"text": "?"})).replace('{"text": "?"}', parts).encode()
    translated = toolwire.translate(response, GEMINI, client, "response", request=request)
    assert arguments_text(client, translated.to_bytes()) == INTEGERS
    without_request = toolwire.translate(response, GEMINI, client, "response")
    assert arguments_text(client, without_request.to_bytes()) == FLOATS
    gemini_request = request_with_tools(GEMINI, {"run": INTEGER_SCHEMA})
    assert toolwire.translate(response, GEMINI, GEMINI, "response", request=gemini_request).value == json.loads(
        response
    )
    for size in (1, 7, 1000):
        pieces = [FLOATS[at : at + size] for at in range(0, len(FLOATS), size)]
        first_fragment = chat_fragment(0, pieces[0], id="call_1", name="run")
        wire = chat_stream(first_fragment, *(chat_fragment(0, piece) for piece in pieces[1:]))
        if client != CHAT:
            streamed = b"".join(toolwire.translate_stream([wire], CHAT, client, request))
            assert "".join(argument_pieces(client, streamed)) == INTEGERS


def argument_pieces(protocol: str, wire: bytes) -> list[str]:
    """Return the argument fragments of a stream with one call."""
    match protocol:
        case "anthropic":
            deltas = [frame.get("delta", {}) for frame in stream_frames(wire)]
            return [delta["partial_json"] for delta in deltas if "partial_json" in delta]
        case "openai-responses":
            kind = "response.function_call_arguments.delta"
            return [frame["delta"] for frame in stream_frames(wire) if frame["type"] == kind]
        case "gemini-interactions":
            return [frame["delta"]["arguments"] for frame in stream_frames(wire) if frame["event_type"] == "step.delta"]
        case "ollama":
            (line,) = [line for line in wire.split(b"\n") if b"tool_calls" in line]
            return [line.decode().partition('"arguments":')[2].partition("}}]}")[0]]
        case _:
            deltas = [choice["delta"] for frame in stream_frames(wire) for choice in frame["choices"]]
            parts = [part["function"] for delta in deltas for part in delta.get("tool_calls") or ()]
            return [part.get("arguments", "") for part in parts]


@pytest.mark.parametrize("broken", ['{"city":', "[1,2]", "5", "not json"])
@pytest.mark.parametrize("source", [CHAT, RESPONSES, OPENROUTER])
@pytest.mark.parametrize("target", OBJECT_PROTOCOLS)
def test_ar_6_arguments_that_are_not_an_object_are_wrapped_reported_and_restored(
    source: str, target: str, broken: str
) -> None:
    body = request_with_arguments(source, broken)
    translated = translated_body(body, source, target)
    assert tool_calls_in(target, translated)[0]["arguments"] == {"_raw": broken}
    path = "/input/1/arguments" if source == RESPONSES else "/messages/1/tool_calls/0/function/arguments"
    assert loss_kinds(body, source, target)[path] == "approximated"
    restored = translated_body(translated, target, source)
    call = restored["input"][1] if source == RESPONSES else restored["messages"][1]["tool_calls"][0]["function"]
    assert call["arguments"] == broken


@pytest.mark.parametrize("finish_reason", ["length", "tool_calls"])
def test_ar_7_truncated_arguments_are_marked_and_not_repaired(finish_reason: str) -> None:
    message = chat_assistant(chat_call("call_1", arguments='{"path":"/tmp/a","content":"hel'))
    (call,) = toolwire.parse_tool_calls(chat_response(message, finish_reason), CHAT)
    assert call["arguments"] == '{"path":"/tmp/a","content":"hel'
    assert call["complete"] is False


def test_ar_10_null_arguments_are_an_empty_object() -> None:
    response = chat_response(chat_assistant(chat_call("call_1", arguments=None)))
    assert tool_calls_in(ANTHROPIC, translated_body(response, CHAT, ANTHROPIC, "response"))[0]["arguments"] == {}
    for protocol in (CHAT, OPENROUTER):
        assert toolwire.parse_tool_calls(response, protocol)[0]["arguments"] == ""
    for target in OBJECT_PROTOCOLS:
        assert tool_calls_in(target, translated_body(response, OPENROUTER, target, "response"))[0]["arguments"] == {}


FALSY: dict[str, Any] = {"zero": 0, "no": False, "nothing": None, "text": "", "list": [], "object": {}}


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_ar_11_falsy_values_are_values(source: str, target: str) -> None:
    translated = translated_body(request_with_arguments(source, json.dumps(FALSY)), source, target)
    assert tool_calls_in(target, translated)[0]["arguments"] == FALSY
    zero = json.loads(json.dumps(tool_cycle_request(source, "call_1")).replace("result 0", "0"))
    assert tool_results_in(target, translated_body(zero, source, target)) == [("call_1", "0")]


UNUSUAL_KEYS = '{"__proto__":{"polluted":true},"__class__":"x"}'
DUPLICATE_KEYS = '{"a":1,"a":2}'


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_ar_12_unusual_keys_are_data_and_duplicate_keys_are_kept(source: str, target: str) -> None:
    translated = translated_body(request_with_arguments(source, UNUSUAL_KEYS), source, target)
    assert tool_calls_in(target, translated)[0]["arguments"] == json.loads(UNUSUAL_KEYS)
    arguments = DUPLICATE_KEYS if source in (CHAT, RESPONSES, OPENROUTER) else '{"a":1}'
    wire = json.dumps(request_with_arguments(source, arguments), separators=(",", ":"))
    encoded = translate_body(wire.replace('{"a":1}', DUPLICATE_KEYS).encode(), source, target).to_bytes().decode()
    assert (DUPLICATE_KEYS if target in OBJECT_PROTOCOLS else json.dumps(DUPLICATE_KEYS)) in encoded


NOT_JSON = ['{"cut": [1, 2', "{plist = 1;}", "[not json", '{"a": 1}', "[1]"]


@pytest.mark.parametrize("output", NOT_JSON)
@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source != GEMINI])
def test_ar_8_output_that_looks_like_json_is_sent_as_text(source: str, output: str) -> None:
    body = json.loads(json.dumps(tool_cycle_request(source, "call_1")).replace('"result 0"', json.dumps(output)))
    translated = translated_body(body, source, GEMINI)
    assert gemini_parts(translated)[2]["functionResponse"]["response"] == {"output": output}
    assert tool_results_in(INTERACTIONS, translated_body(translated, GEMINI, INTERACTIONS)) == [("call_1", output)]


OUTPUT_WITH_REFERENCE = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}


@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source != GEMINI])
def test_ar_9_references_in_an_output_are_text(source: str) -> None:
    text = json.dumps(OUTPUT_WITH_REFERENCE, separators=(",", ":"))
    output: Any = OUTPUT_WITH_REFERENCE if source == INTERACTIONS else text
    body = json.loads(json.dumps(tool_cycle_request(source, "call_1")).replace('"result 0"', json.dumps(output)))
    translated = translated_body(body, source, GEMINI)
    assert gemini_parts(translated)[2]["functionResponse"]["response"] == {"output": text}
    plain = json.loads(json.dumps(tool_cycle_request(INTERACTIONS, "call_1")).replace('"result 0"', '{"temp": 18}'))
    response = gemini_parts(translated_body(plain, INTERACTIONS, GEMINI))[2]["functionResponse"]["response"]
    assert response == {"output": {"temp": 18}}


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_ar_13_a_tool_with_an_open_map_is_not_marked_strict(target: str) -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"labels": labels}, "required": ["labels"]}
    tool = translated_body(anthropic_request(tools=[anthropic_tool(schema=schema)]), ANTHROPIC, target)["tools"][0]
    declared = tool["function"] if target == CHAT else tool
    assert declared.get("strict") is (None if target == CHAT else False)
    assert declared["parameters"] == schema
