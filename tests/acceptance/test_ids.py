"""Tool call ids (ID-1 to ID-6, ID-11 to ID-16). A legal id passes unchanged, so ID-3 takes precedence over ID-5."""

import re
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    USER_MESSAGE,
    anthropic_call,
    anthropic_result,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_fragment,
    chat_request,
    chat_response,
    chat_result,
    chat_stream,
    responses_call,
    responses_stream,
    tool_cycle_request,
)
from tests.support.bodies.readers import responses_items, tool_calls_in, tool_results_in
from tests.support.protocols import ALL_PAIRS, ALL_PROTOCOLS, ANTHROPIC, CHAT, INTERACTIONS, OPENROUTER, RESPONSES
from tests.support.sdk.validation import fold_stream
from tests.support.translation import translate_stream_bytes, translated_body

PROTOCOLS_WITH_ID_LIMITS = (ANTHROPIC, CHAT, RESPONSES, OPENROUTER)
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def call_ids_in(protocol: str, body: Any) -> list[str]:
    return [str(call["id"]) for call in tool_calls_in(protocol, body)]


OTHER_SOURCES = [source for source in ALL_PROTOCOLS if source != ANTHROPIC]


@pytest.mark.parametrize("source", OTHER_SOURCES)
def test_id_1_illegal_ids_are_escaped_the_same_on_call_and_result(source: str) -> None:
    translated = translated_body(tool_cycle_request(source, "functions.get:0", "functions/get:0"), source, ANTHROPIC)
    aliases = call_ids_in(ANTHROPIC, translated)
    assert all(ANTHROPIC_ID.fullmatch(alias) for alias in aliases)
    assert len(set(aliases)) == 2
    assert tool_results_in(ANTHROPIC, translated) == [(aliases[0], "result 0"), (aliases[1], "result 1")]


@pytest.mark.parametrize("character", [":", ".", "/"])
@pytest.mark.parametrize("source", OTHER_SOURCES)
def test_id_2_illegal_ids_are_escaped_on_both_sides_and_reported_on_the_native_path(
    source: str, character: str
) -> None:
    illegal = f"call{character}1"
    translated = translated_body(tool_cycle_request(source, illegal), source, ANTHROPIC)
    assert [ANTHROPIC_ID.fullmatch(alias) is not None for alias in call_ids_in(ANTHROPIC, translated)] == [True]
    assert [call_id for call_id, _ in tool_results_in(ANTHROPIC, translated)] == call_ids_in(ANTHROPIC, translated)
    assert any(
        "/content/0" in finding.path for finding in toolwire.check(tool_cycle_request(ANTHROPIC, illegal), ANTHROPIC)
    )


@pytest.mark.parametrize("legal", ["toolu_01A", "call_123", "fc_123", "chatcmpl-tool-9", "a" * 40])
@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_id_3_legal_ids_pass_unchanged_and_aliases_are_deterministic(legal: str, source: str, target: str) -> None:
    translated = translated_body(tool_cycle_request(source, legal), source, target)
    assert call_ids_in(target, translated) == [legal]
    assert tool_results_in(target, translated) == [(legal, "result 0")]
    first = call_ids_in(ANTHROPIC, translated_body(tool_cycle_request(CHAT, "a:b"), CHAT, ANTHROPIC))
    longer = call_ids_in(ANTHROPIC, translated_body(tool_cycle_request(CHAT, "a:b", "call_2"), CHAT, ANTHROPIC))
    assert longer[:1] == first


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_id_4_long_ids_with_a_common_prefix_do_not_collide(source: str, target: str) -> None:
    prefix = "call_" + "x" * 120
    ids = [f"{prefix}_ts_a", f"{prefix}_ts_b"]
    translated = translated_body(tool_cycle_request(source, *ids), source, target)
    aliases = call_ids_in(target, translated)
    if target in PROTOCOLS_WITH_ID_LIMITS:
        assert len(set(aliases)) == 2
        assert all(len(alias) <= 64 for alias in aliases)
    else:
        assert aliases == ids
    assert [call_id for call_id, _ in tool_results_in(target, translated)] == aliases


def test_id_5_ids_of_a_chat_provider_return_to_it_unchanged() -> None:
    upstream_ids = ["call_123", "fc_123", "chatcmpl-tool-1", "functions.get:0"]
    response = chat_response(chat_assistant(*map(chat_call, upstream_ids)))
    client_ids = call_ids_in(ANTHROPIC, translated_body(response, CHAT, ANTHROPIC, "response"))
    assert len(set(client_ids)) == 4
    assert client_ids[:3] == upstream_ids[:3]
    assert ANTHROPIC_ID.fullmatch(client_ids[3])
    next_request = anthropic_turn([*map(anthropic_call, client_ids)], [*map(anthropic_result, client_ids)])
    restored = translated_body(next_request, ANTHROPIC, CHAT)
    assert call_ids_in(CHAT, restored) == upstream_ids
    assert [call_id for call_id, _ in tool_results_in(CHAT, restored)] == upstream_ids


def test_id_6_the_result_is_paired_by_tool_use_id() -> None:
    translated = translated_body(tool_cycle_request(ANTHROPIC, "toolu_1"), ANTHROPIC, CHAT)
    assert translated["messages"][-1] == {"role": "tool", "tool_call_id": "toolu_1", "content": "result 0"}


@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES, INTERACTIONS])
def test_id_11_calls_without_an_id_get_one(target: str) -> None:
    wire = chat_stream(
        chat_fragment(0, "", name="get_weather"),
        chat_fragment(0, CITY_ARGUMENTS),
        chat_fragment(1, CITY_ARGUMENTS, name="get_weather"),
    )
    calls = fold_stream(target, translate_stream_bytes(wire, CHAT, target))["calls"]
    assert [call["arguments"] for call in calls] == [{"city": "Paris"}] * 2
    assert len({call["id"] for call in calls} - {""}) == 2
    nameless = [{key: value for key, value in chat_call("").items() if key != "id"}] * 2
    full_body = translated_body(chat_response(chat_assistant(*nameless)), CHAT, target, "response")
    assert len({*call_ids_in(target, full_body)} - {"", "None"}) == 2


def test_id_12_empty_ids_count_as_missing() -> None:
    continued = chat_stream(
        chat_fragment(0, '{"city":', id="call_1", name="get_weather"), chat_fragment(0, '"Paris"}', id="")
    )
    calls = fold_stream(ANTHROPIC, translate_stream_bytes(continued, CHAT, ANTHROPIC))["calls"]
    assert calls == [{"id": "call_1", "name": "get_weather", "arguments": {"city": "Paris"}}]
    wire = chat_stream(chat_fragment(0, CITY_ARGUMENTS, id="", name="get_weather"))
    (call,) = fold_stream(ANTHROPIC, translate_stream_bytes(wire, CHAT, ANTHROPIC))["calls"]
    assert str(call["id"]).startswith("call_tw")


def test_id_13_items_whose_id_changes_are_one_call() -> None:
    def item(item_id: str, arguments: str, status: str) -> dict[str, Any]:
        return responses_call("call_1", arguments=arguments, id=item_id, status=status)

    wire = responses_stream(
        {"type": "response.output_item.added", "output_index": 0, "item": item("fc_a", "", "in_progress")},
        {
            "type": "response.function_call_arguments.delta",
            "item_id": "fc_b",
            "output_index": 0,
            "delta": CITY_ARGUMENTS,
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item("fc_c", CITY_ARGUMENTS, "completed")},
        output=[item("fc_d", CITY_ARGUMENTS, "completed")],
    )
    calls = fold_stream(CHAT, translate_stream_bytes(wire, RESPONSES, CHAT))["calls"]
    assert calls == [{"id": "call_1", "name": "get_weather", "arguments": {"city": "Paris"}}]


def test_id_14_repeated_ids_are_paired_within_their_turn() -> None:
    body = chat_request(
        USER_MESSAGE,
        chat_assistant(chat_call("call_1")),
        chat_result("call_1", "first"),
        chat_assistant(chat_call("call_1")),
        chat_result("call_1", "second"),
    )
    translated = translated_body(body, CHAT, ANTHROPIC)
    call_ids = call_ids_in(ANTHROPIC, translated)
    assert tool_results_in(ANTHROPIC, translated) == [(call_ids[0], "first"), (call_ids[1], "second")]
    assert [message["role"] for message in translated["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]


def test_id_15_a_call_in_both_spellings_is_one_call() -> None:
    both = chat_assistant(chat_call("call_1"), content=[anthropic_call("call_1")])
    translated = translated_body(chat_request(USER_MESSAGE, both, chat_result("call_1")), CHAT, ANTHROPIC)
    assert call_ids_in(ANTHROPIC, translated) == ["call_1"]
    assert tool_results_in(ANTHROPIC, translated) == [("call_1", "18C")]


@pytest.mark.parametrize("source", [source for source in ALL_PROTOCOLS if source != RESPONSES])
def test_id_16_no_foreign_item_ids_reach_responses(source: str) -> None:
    translated = translated_body(tool_cycle_request(source, "toolu_1"), source, RESPONSES)
    prefixes = {"function_call": "fc", "function_call_output": "fc", "message": "msg", "reasoning": "rs"}
    foreign = [
        item
        for item in responses_items(translated)
        if "id" in item and not item["id"].startswith(prefixes[item.get("type", "message")])
    ]
    assert foreign == []
    assert call_ids_in(RESPONSES, translated) == ["toolu_1"]
