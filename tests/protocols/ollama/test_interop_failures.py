"""Interop failures reported for other gateways that concern Ollama; the test ids name them."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    USER_MESSAGE,
    anthropic_call_block,
    anthropic_stream,
    chat_call,
    chat_result,
    chat_turn,
)
from tests.support.bodies.readers import stream_frames, tool_calls_in
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.translation import loss_paths, translate_stream_bytes, translated_body
from toolwire.canonical.content import ToolCall, ToolResult
from toolwire.codec.encoding.turns import is_derived_id
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS

OLLAMA = "ollama"
CLIENTS = [name for name in PROTOCOLS if name != OLLAMA]
ROME = {"city": "Rome"}


def call(name: str = "get_weather", arguments: Any = None, **fields: Any) -> Any:
    return {**fields, "function": {"name": name, "arguments": ROME if arguments is None else arguments}}


def call_message(*calls: Any) -> Any:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result_message(text: str, name: str = "get_weather") -> Any:
    return {"role": "tool", "content": text, "tool_name": name}


def history(*messages: Any) -> Any:
    return {"model": "qwen3", "messages": [USER_MESSAGE, *messages], "stream": False}


def response(*calls: Any, **fields: Any) -> Any:
    body = {"message": call_message(*calls), "done": True, "done_reason": "stop"}
    return {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", **body, **fields}


def stream(*lines: Any, **fields: Any) -> bytes:
    last = {**response(**fields), "message": {"role": "assistant", "content": ""}}
    earlier = [{**response(), "message": message, "done": False} for message in lines]
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*earlier, last])


def call_ids(protocol: str, body: Any) -> list[str | None]:
    return [part.id for part in _parts(protocol, body) if isinstance(part, ToolCall)]


def result_ids(protocol: str, body: Any) -> list[str | None]:
    return [part.call_id for part in _parts(protocol, body) if isinstance(part, ToolResult)]


def _parts(protocol: str, body: Any) -> list[Any]:
    request = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    return [part for message in request.messages for part in message.parts]


@pytest.mark.parametrize("target", CLIENTS)
def test_repeated_calls_without_ids_get_unique_stable_ids(target: str) -> None:
    first_turn = history(call_message(call()), result_message("22C"))
    second_turn = [{"role": "assistant", "content": "22."}, USER_MESSAGE, call_message(call()), result_message("23C")]
    both_turns = history(call_message(call()), result_message("22C"), *second_turn)
    first_body, both_bodies = translated_body(first_turn, OLLAMA, target), translated_body(both_turns, OLLAMA, target)
    ids = call_ids(target, both_bodies)
    assert len(set(ids)) == 2 or ids == [None, None]
    assert result_ids(target, both_bodies) == ids
    assert call_ids(target, first_body) == ids[:1]
    assert call_ids(target, translated_body(both_turns, OLLAMA, target)) == ids


def test_pa_3_the_call_index_counts_calls_only() -> None:
    message = {"role": "assistant", "content": "Both.", "thinking": "Two cities."}
    wire = translate_stream_bytes(stream(message, call_message(call()), call_message(call("now", {}))), OLLAMA, CHAT)
    fragments = [part for frame in stream_frames(wire) for choice in frame["choices"] for part in _fragments(choice)]
    assert {part["index"] for part in fragments} == {0, 1}
    wire = translate_stream_bytes(
        anthropic_stream(*anthropic_call_block(0, "a", CITY_ARGUMENTS), *anthropic_call_block(1, "b", CITY_ARGUMENTS)),
        ANTHROPIC,
        OLLAMA,
    )
    calls = [call for line in wire.splitlines() for call in json.loads(line)["message"].get("tool_calls", ())]
    assert [call["function"]["index"] for call in calls] == [0, 1]


def _fragments(choice: Any) -> list[Any]:
    return list(choice["delta"].get("tool_calls") or ())


def test_pa_4_calls_that_all_have_index_0_are_several_calls() -> None:
    calls = [
        {"id": "call_a", "function": {"index": 0, "name": "f", "arguments": {"n": 1}}},
        {"id": "call_b", "function": {"index": 0, "name": "f", "arguments": {"n": 2}}},
    ]
    wire = translate_stream_bytes(stream(call_message(calls[0]), call_message(calls[1])), OLLAMA, CHAT)
    fragments = [part for frame in stream_frames(wire) for choice in frame["choices"] for part in _fragments(choice)]
    assert [part["id"] for part in fragments if "id" in part] == ["call_a", "call_b"]
    assert json.loads("".join(part["function"]["arguments"] for part in fragments if part["index"] == 1)) == {"n": 2}


@pytest.mark.parametrize("empty", ["", "  ", "null"])
def test_ar_1_missing_arguments_are_an_empty_object(empty: str) -> None:
    body = chat_turn([chat_call("a", arguments=empty)], [chat_result("a")])
    (encoded_call,) = translated_body(body, CHAT, OLLAMA)["messages"][1]["tool_calls"]
    assert encoded_call["function"]["arguments"] == {}


@pytest.mark.parametrize("empty", [{}, None])
def test_ar_1_no_arguments_of_ollama_are_an_empty_object(empty: Any) -> None:
    request = {"id": "call_a", "function": {"name": "now", "arguments": empty}}
    (encoded_call,) = translated_body(response(request), OLLAMA, CHAT, "response")["choices"][0]["message"][
        "tool_calls"
    ]
    assert encoded_call["function"]["arguments"] == "{}"


def test_us_2_cached_tokens_count_as_prompt_tokens() -> None:
    usage = {"input_tokens": 15, "output_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5}
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    encoded = translated_body(body, ANTHROPIC, OLLAMA, "response")
    assert (encoded["prompt_eval_count"], encoded["eval_count"]) == (100, 5)
    assert {"/usage/cache_read_input_tokens", "/usage/cache_creation_input_tokens"} <= loss_paths(
        body, ANTHROPIC, OLLAMA, "response"
    )


def test_us_3_repeated_usage_is_not_summed() -> None:
    wire = translate_stream_bytes(anthropic_stream(usage={"input_tokens": 9, "output_tokens": 7}), ANTHROPIC, OLLAMA)
    last = json.loads(wire.splitlines()[-1])
    assert (last["prompt_eval_count"], last["eval_count"]) == (9, 7)


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_us_5_token_counts_of_the_last_line_are_translated(target: str) -> None:
    wire = stream({"role": "assistant", "content": "Hi"}, prompt_eval_count=9, eval_count=7)
    frames = json.dumps(stream_frames(translate_stream_bytes(wire, OLLAMA, target)))
    assert '"completion_tokens": 7' in frames or '"output_tokens": 7' in frames
    encoded = translated_body(response(prompt_eval_count=9, eval_count=7), OLLAMA, CHAT, "response")
    assert encoded["usage"] == {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def test_derived_ids_are_never_sent() -> None:
    encoded = translated_body(history(call_message(call()), result_message("22C")), OLLAMA, CHAT)
    (id,) = [call["id"] for call in tool_calls_in(CHAT, encoded)]
    assert is_derived_id(str(id))
    assert str(id) not in json.dumps(translated_body(encoded, CHAT, OLLAMA))


def test_parse_format_and_continue_round_trip() -> None:
    request = {"function": {"name": "add", "arguments": {"a": 11434, "b": 12341}}}
    response_body = {"message": call_message(request)}
    (parsed_call,) = toolwire.parse_tool_calls(response_body, OLLAMA)
    assert is_derived_id(parsed_call["id"])
    assert json.loads(parsed_call["arguments"]) == {"a": 11434, "b": 12341}
    assert toolwire.format_tool_result(parsed_call["id"], "add", "23775", OLLAMA) == result_message("23775", "add")
    continued = toolwire.continue_request(
        history(), response_body, [{"id": parsed_call["id"], "output": "23775"}], OLLAMA
    )
    assert continued == history(call_message(request), result_message("23775", "add"))
