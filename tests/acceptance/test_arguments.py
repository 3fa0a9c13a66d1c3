"""Argument JSON: AR-1 to AR-13."""

import json
from typing import Any

import pytest

import toolwire
from tests.bodies import (
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_response,
    chat_result,
    chat_turn,
    responses_call,
    responses_output,
    responses_turn,
)
from tests.wire import ANTHROPIC, CHAT, PAIRS, RESPONSES, calls, lost, results, translated

BIG = 10_000_000_000_000_001  # above 2**53: a float would make it even
HUGE = 123_456_789_012_345_678_901_234_567_890


def with_arguments(protocol: str, text: str) -> dict[str, Any]:
    """A request that holds one answered call with these arguments."""
    match protocol:
        case "anthropic":
            asked = anthropic_call("call_1", arguments=json.loads(text))
            return anthropic_turn([asked], [anthropic_result("call_1")])
        case "openai-chat":
            return chat_turn([chat_call("call_1", arguments=text)], [chat_result("call_1")])
        case _:
            return responses_turn([responses_call("call_1", arguments=text)], [responses_output("call_1")])


@pytest.mark.parametrize("empty", ["", " \n", None])
def test_ar_1_no_arguments_are_an_empty_object(empty: str | None) -> None:
    body = chat_turn([chat_call("call_1", arguments=empty)], [chat_result("call_1")])
    assert calls(ANTHROPIC, translated(body, CHAT, ANTHROPIC))[0]["arguments"] == {}
    made = translated(anthropic_response(anthropic_call("call_1", arguments={})), ANTHROPIC, CHAT, "response")
    assert made["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("number", [BIG, HUGE, -BIG])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_ar_3_integers_of_any_size_are_exact(source: str, target: str, number: int) -> None:
    wire = json.dumps(with_arguments(source, f'{{"n":{number}}}')).encode()
    made = toolwire.translate(wire, source=source, target=target, kind="request")
    assert calls(target, json.loads(made.to_bytes()))[0]["arguments"] == {"n": number}
    assert str(number).encode() in made.to_bytes()
    assert calls(target, made.value)[0]["arguments"] == {"n": number}


@pytest.mark.parametrize("broken", ['{"city":', "[1,2]", "5", "not json"])
@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_ar_6_arguments_that_are_no_object_are_wrapped_reported_and_come_back(source: str, broken: str) -> None:
    body = with_arguments(source, broken)
    made = translated(body, source, ANTHROPIC)
    wrapped = calls(ANTHROPIC, made)[0]["arguments"]
    assert isinstance(wrapped, dict)
    assert broken in wrapped.values() or json.dumps(wrapped).count(json.dumps(broken))
    assert any("arguments" in path for path in lost(body, source, ANTHROPIC))
    back = translated(made, ANTHROPIC, source)
    assert json.dumps(broken) in json.dumps(back)


@pytest.mark.parametrize("finish_reason", ["length", "tool_calls"])
def test_ar_7_truncated_arguments_are_marked_and_not_mended(finish_reason: str) -> None:
    asked = chat_assistant(chat_call("call_1", arguments='{"path":"/tmp/a","content":"hel'))
    (call,) = toolwire.parse_tool_calls(chat_response(asked, finish_reason), CHAT)
    assert call["arguments"] == '{"path":"/tmp/a","content":"hel'
    assert call["complete"] is False


def test_ar_10_null_arguments_are_an_empty_object() -> None:
    answer = chat_response(chat_assistant(chat_call("call_1", arguments=None)))
    assert calls(ANTHROPIC, translated(answer, CHAT, ANTHROPIC, "response"))[0]["arguments"] == {}
    assert toolwire.parse_tool_calls(answer, CHAT)[0]["arguments"] in ("", "{}")


FALSY: dict[str, Any] = {"zero": 0, "no": False, "nothing": None, "text": "", "list": [], "object": {}}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_ar_11_falsy_values_are_values(source: str, target: str) -> None:
    made = translated(with_arguments(source, json.dumps(FALSY)), source, target)
    assert calls(target, made)[0]["arguments"] == FALSY
    zero = {
        ANTHROPIC: anthropic_turn([anthropic_call("call_1")], [anthropic_result("call_1", "0")]),
        CHAT: chat_turn([chat_call("call_1")], [chat_result("call_1", "0")]),
        RESPONSES: responses_turn([responses_call("call_1")], [responses_output("call_1", "0")]),
    }[source]
    assert results(target, translated(zero, source, target)) == [("call_1", "0")]


def test_ar_12_odd_keys_are_data_and_doubled_keys_are_kept_or_reported() -> None:
    odd = '{"__proto__":{"polluted":true},"__class__":"x"}'
    made = translated(with_arguments(CHAT, odd), CHAT, ANTHROPIC)
    assert calls(ANTHROPIC, made)[0]["arguments"] == json.loads(odd)
    doubled = '{"a":1,"a":2}'
    body = with_arguments(CHAT, doubled)
    assert translated(body, CHAT, RESPONSES)["input"][1]["arguments"] == doubled
    made = toolwire.translate(body, source=CHAT, target=ANTHROPIC, kind="request")
    carried = doubled.encode() in made.to_bytes()
    assert carried or any("arguments" in loss.path for loss in made.losses)


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_ar_13_a_tool_with_an_open_map_is_not_marked_strict(target: str) -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"labels": labels}, "required": ["labels"]}
    made = translated(anthropic_request(tools=[anthropic_tool(schema=schema)]), ANTHROPIC, target)["tools"][0]
    declared = made["function"] if target == CHAT else made
    assert not declared.get("strict")
    assert declared["parameters"] == schema
