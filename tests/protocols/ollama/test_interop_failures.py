"""The acceptance list as far as it concerns Ollama: calls without ids, counts, empty arguments."""

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
from toolwire.codec.encoding.ids import is_derived_id
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS

OLLAMA = "ollama"
CLIENTS = [name for name in PROTOCOLS if name != OLLAMA]
ROME = {"city": "Rome"}


def call(name: str = "get_weather", arguments: Any = None, **fields: Any) -> Any:
    return {**fields, "function": {"name": name, "arguments": ROME if arguments is None else arguments}}


def asks(*asked: Any) -> Any:
    return {"role": "assistant", "content": "", "tool_calls": list(asked)}


def answers(text: str, name: str = "get_weather") -> Any:
    return {"role": "tool", "content": text, "tool_name": name}


def history(*messages: Any) -> Any:
    return {"model": "qwen3", "messages": [USER_MESSAGE, *messages], "stream": False}


def response(*asked: Any, **fields: Any) -> Any:
    whole = {"message": asks(*asked), "done": True, "done_reason": "stop"}
    return {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", **whole, **fields}


def stream(*lines: Any, **fields: Any) -> bytes:
    last = {**response(**fields), "message": {"role": "assistant", "content": ""}}
    said = [{**response(), "message": message, "done": False} for message in lines]
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*said, last])


def call_ids(protocol: str, body: Any) -> list[str | None]:
    return [part.id for part in _parts(protocol, body) if isinstance(part, ToolCall)]


def result_ids(protocol: str, body: Any) -> list[str | None]:
    return [part.call_id for part in _parts(protocol, body) if isinstance(part, ToolResult)]


def _parts(protocol: str, body: Any) -> list[Any]:
    request = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    return [part for message in request.messages for part in message.parts]


@pytest.mark.parametrize("target", CLIENTS)
def test_the_same_call_of_a_client_without_ids_has_unique_and_stable_ids(target: str) -> None:
    first = history(asks(call()), answers("22C"))
    again = [{"role": "assistant", "content": "22."}, USER_MESSAGE, asks(call()), answers("23C")]
    whole = history(asks(call()), answers("22C"), *again)
    before, after = translated_body(first, OLLAMA, target), translated_body(whole, OLLAMA, target)
    ids = call_ids(target, after)
    assert len(set(ids)) == 2 or ids == [None, None]
    assert result_ids(target, after) == ids
    assert call_ids(target, before) == ids[:1]
    assert call_ids(target, translated_body(whole, OLLAMA, target)) == ids


def test_pa_3_the_call_index_counts_calls_only() -> None:
    said = {"role": "assistant", "content": "Both.", "thinking": "Two cities."}
    wire = translate_stream_bytes(stream(said, asks(call()), asks(call("now", {}))), OLLAMA, CHAT)
    fragments = [part for frame in stream_frames(wire) for choice in frame["choices"] for part in _fragments(choice)]
    assert {part["index"] for part in fragments} == {0, 1}
    wire = translate_stream_bytes(
        anthropic_stream(*anthropic_call_block(0, "a", CITY_ARGUMENTS), *anthropic_call_block(1, "b", CITY_ARGUMENTS)),
        ANTHROPIC,
        OLLAMA,
    )
    asked = [one for line in wire.splitlines() for one in json.loads(line)["message"].get("tool_calls", ())]
    assert [one["function"]["index"] for one in asked] == [0, 1]


def _fragments(choice: Any) -> list[Any]:
    return list(choice["delta"].get("tool_calls") or ())


def test_pa_4_calls_that_all_say_index_0_are_several_calls() -> None:
    both = [
        {"id": "call_a", "function": {"index": 0, "name": "f", "arguments": {"n": 1}}},
        {"id": "call_b", "function": {"index": 0, "name": "f", "arguments": {"n": 2}}},
    ]
    wire = translate_stream_bytes(stream(asks(both[0]), asks(both[1])), OLLAMA, CHAT)
    fragments = [part for frame in stream_frames(wire) for choice in frame["choices"] for part in _fragments(choice)]
    assert [part["id"] for part in fragments if "id" in part] == ["call_a", "call_b"]
    assert json.loads("".join(part["function"]["arguments"] for part in fragments if part["index"] == 1)) == {"n": 2}


@pytest.mark.parametrize("empty", ["", "  ", "null"])
def test_ar_1_no_arguments_are_an_empty_object(empty: str) -> None:
    body = chat_turn([chat_call("a", arguments=empty)], [chat_result("a")])
    (asked,) = translated_body(body, CHAT, OLLAMA)["messages"][1]["tool_calls"]
    assert asked["function"]["arguments"] == {}


@pytest.mark.parametrize("empty", [{}, None])
def test_ar_1_no_arguments_of_ollama_are_an_empty_object(empty: Any) -> None:
    asked = {"id": "call_a", "function": {"name": "now", "arguments": empty}}
    (one,) = translated_body(response(asked), OLLAMA, CHAT, "response")["choices"][0]["message"]["tool_calls"]
    assert one["function"]["arguments"] == "{}"


def test_us_2_what_a_cache_gave_is_part_of_the_prompt() -> None:
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
    made = translated_body(body, ANTHROPIC, OLLAMA, "response")
    assert (made["prompt_eval_count"], made["eval_count"]) == (100, 5)
    assert {"/usage/cache_read_input_tokens", "/usage/cache_creation_input_tokens"} <= loss_paths(
        body, ANTHROPIC, OLLAMA, "response"
    )


def test_us_3_usage_that_is_repeated_is_not_summed() -> None:
    wire = translate_stream_bytes(anthropic_stream(usage={"input_tokens": 9, "output_tokens": 7}), ANTHROPIC, OLLAMA)
    last = json.loads(wire.splitlines()[-1])
    assert (last["prompt_eval_count"], last["eval_count"]) == (9, 7)


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_us_5_counts_of_the_last_line_arrive(target: str) -> None:
    wire = stream({"role": "assistant", "content": "Hi"}, prompt_eval_count=9, eval_count=7)
    told = json.dumps(stream_frames(translate_stream_bytes(wire, OLLAMA, target)))
    assert '"completion_tokens": 7' in told or '"output_tokens": 7' in told
    made = translated_body(response(prompt_eval_count=9, eval_count=7), OLLAMA, CHAT, "response")
    assert made["usage"] == {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def test_made_ids_are_never_sent() -> None:
    made = translated_body(history(asks(call()), answers("22C")), OLLAMA, CHAT)
    (id,) = [asked["id"] for asked in tool_calls_in(CHAT, made)]
    assert is_derived_id(str(id))
    assert str(id) not in json.dumps(translated_body(made, CHAT, OLLAMA))


def test_a_whole_cycle_in_its_own_words() -> None:
    asked = {"function": {"name": "add", "arguments": {"a": 11434, "b": 12341}}}
    said = {"message": asks(asked)}
    (one,) = toolwire.parse_tool_calls(said, OLLAMA)
    assert is_derived_id(one["id"])
    assert json.loads(one["arguments"]) == {"a": 11434, "b": 12341}
    assert toolwire.format_tool_result(one["id"], "add", "23775", OLLAMA) == answers("23775", "add")
    after = toolwire.continue_request(history(), said, [{"id": one["id"], "output": "23775"}], OLLAMA)
    assert after == history(asks(asked), answers("23775", "add"))
