"""Parallel tool calls (PA-1 to PA-9, PA-11)."""

from typing import Any

import pytest

from tests.support.bodies.google import (
    gemini_call,
    gemini_events,
    gemini_response,
    gemini_stream,
    interactions_call,
    interactions_stream,
    interactions_text,
)
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    anthropic_block,
    anthropic_call_block,
    anthropic_stream,
    anthropic_text_block,
    chat_fragment,
    chat_stream,
    response_body,
    responses_call,
    responses_item_events,
    responses_stream,
)
from tests.support.bodies.ollama import ollama_assistant, ollama_call, ollama_stream
from tests.support.bodies.readers import frame_types, stream_frames, tool_calls_in
from tests.support.protocols import ALL_PAIRS, ALL_PROTOCOLS, ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, RESPONSES
from tests.support.sdk.validation import fold_body, fold_stream
from tests.support.translation import translate_stream_bytes, translated_body

ROME = '{"city":"Rome"}'
BOTH_CALLS: list[Any] = [
    {"id": "call_1", "name": "get_weather", "arguments": {"city": "Paris"}},
    {"id": "call_2", "name": "get_weather", "arguments": {"city": "Rome"}},
]
CHAT_BOTH_CALLS = chat_stream(
    chat_fragment(0, CITY_ARGUMENTS, id="call_1", name="get_weather"),
    chat_fragment(1, ROME, id="call_2", name="get_weather"),
)
GEMINI_BOTH_CALLS = [gemini_call("call_1"), gemini_call("call_2", arguments={"city": "Rome"})]
CALL_ITEMS = [
    responses_call("call_1", id="fc_1", status="completed"),
    responses_call("call_2", arguments=ROME, id="fc_2", status="completed"),
]


def test_pa_1_each_call_has_its_own_block() -> None:
    wire = translate_stream_bytes(CHAT_BOTH_CALLS, CHAT, ANTHROPIC)
    starts = [frame for frame in stream_frames(wire) if frame["type"] == "content_block_start"]
    assert [(start["index"], start["content_block"]["id"]) for start in starts] == [
        (0, "call_1"),
        (1, "call_2"),
    ]
    assert fold_stream(ANTHROPIC, wire)["calls"] == BOTH_CALLS


ANTHROPIC_BOTH_CALLS = [*anthropic_call_block(0, "call_1"), *anthropic_call_block(1, "call_2", ROME)]


def test_pa_2_parallel_calls_are_one_choice_without_empty_call_objects() -> None:
    wire = translate_stream_bytes(anthropic_stream(*ANTHROPIC_BOTH_CALLS), ANTHROPIC, CHAT)
    assert fold_stream(CHAT, wire)["calls"] == BOTH_CALLS
    chunks = stream_frames(wire)
    assert {choice["index"] for chunk in chunks for choice in chunk["choices"]} == {0}
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    fragments = [fragment for delta in deltas for fragment in delta.get("tool_calls") or ()]
    assert [fragment["index"] for fragment in fragments if "id" in fragment] == [0, 1]
    assert {fragment["index"] for fragment in fragments} == {0, 1}
    assert all(fragment.get("id") != "" and fragment.get("type") != "" for fragment in fragments)


@pytest.mark.parametrize("source", [ANTHROPIC, GEMINI, INTERACTIONS, OLLAMA])
def test_pa_3_the_call_index_counts_calls_only(source: str) -> None:
    thought = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
    )
    later = [*anthropic_call_block(2, "call_1"), *anthropic_call_block(3, "call_2", ROME)]
    thinking = {
        ANTHROPIC: anthropic_stream(*thought, *anthropic_text_block(1, "Well."), *later),
        GEMINI: gemini_stream({"text": "Hm.", "thought": True}, {"text": "Well."}, *GEMINI_BOTH_CALLS),
        INTERACTIONS: interactions_stream(
            {"type": "thought", "summary": [{"type": "text", "text": "Hm."}]},
            interactions_text("Well."),
            interactions_call("call_1"),
            interactions_call("call_2", arguments={"city": "Rome"}),
        ),
        OLLAMA: ollama_stream(
            {"role": "assistant", "content": "", "thinking": "Hm."},
            {"role": "assistant", "content": "Well."},
            ollama_assistant(ollama_call("call_1")),
            ollama_assistant(ollama_call("call_2", arguments={"city": "Rome"})),
        ),
    }
    wire = translate_stream_bytes(thinking[source], source, CHAT)
    deltas = [choice["delta"] for chunk in stream_frames(wire) for choice in chunk["choices"]]
    opened = [part["index"] for delta in deltas for part in delta.get("tool_calls") or () if part.get("id")]
    assert opened == [0, 1]
    assert fold_stream(CHAT, wire)["calls"] == BOTH_CALLS


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != CHAT])
def test_pa_4_a_new_id_at_the_same_index_is_a_new_call(target: str) -> None:
    wire = chat_stream(
        chat_fragment(0, CITY_ARGUMENTS, id="call_1", name="get_weather"),
        chat_fragment(0, ROME, id="call_2", name="get_weather"),
    )
    assert fold_stream(target, translate_stream_bytes(wire, CHAT, target))["calls"] == BOTH_CALLS


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != CHAT])
def test_pa_5_interleaved_fragments_follow_their_index(target: str) -> None:
    wire = chat_stream(
        chat_fragment(0, '{"city":', id="call_1", name="get_weather"),
        chat_fragment(1, '{"city":', id="call_2", name="get_weather"),
        chat_fragment(0, '"Paris"}'),
        chat_fragment(1, '"Rome"}'),
    )
    assert fold_stream(target, translate_stream_bytes(wire, CHAT, target))["calls"] == BOTH_CALLS


def argument_delta(index: int, delta: str) -> dict[str, Any]:
    at = {"item_id": f"fc_{index + 1}", "output_index": index}
    return {"type": "response.function_call_arguments.delta", **at, "delta": delta}


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
@pytest.mark.parametrize("late", [False, True])
def test_pa_6_deltas_are_routed_by_item_even_before_the_item_is_added(target: str, late: bool) -> None:
    first, _, _, first_done = responses_item_events(0, CALL_ITEMS[0])
    second, _, _, second_done = responses_item_events(1, CALL_ITEMS[1])
    early = [argument_delta(1, '{"city":'), second] if late else [second, argument_delta(1, '{"city":')]
    wire = responses_stream(
        *(
            first,
            argument_delta(0, '{"city":'),
            *early,
            argument_delta(0, '"Paris"}'),
            argument_delta(1, '"Rome"}'),
        ),
        *(first_done, second_done),
        output=CALL_ITEMS,
    )
    assert fold_stream(target, translate_stream_bytes(wire, RESPONSES, target))["calls"] == BOTH_CALLS


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != GEMINI])
def test_pa_7_parallel_calls_in_one_chunk_stay_separate(target: str) -> None:
    calls = GEMINI_BOTH_CALLS
    assert tool_calls_in(target, translated_body(gemini_response(*calls), GEMINI, target, "response")) == BOTH_CALLS
    at_once = gemini_events(gemini_response(*calls))
    for wire in (at_once, gemini_stream(*calls)):
        assert fold_stream(target, translate_stream_bytes(wire, GEMINI, target))["calls"] == BOTH_CALLS


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_pa_8_every_call_of_a_response_is_kept(source: str, target: str) -> None:
    body = response_body(source, "", ("call_1", "Paris"), ("call_2", "Rome"))
    assert tool_calls_in(target, translated_body(body, source, target, "response")) == BOTH_CALLS


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_pa_9_the_stream_ends_with_the_response_not_with_its_first_item(target: str) -> None:
    wire = responses_stream(
        *responses_item_events(0, CALL_ITEMS[0]), *responses_item_events(1, CALL_ITEMS[1]), output=CALL_ITEMS
    )
    translated = translate_stream_bytes(wire, RESPONSES, target)
    assert fold_stream(target, translated)["calls"] == BOTH_CALLS
    if target == ANTHROPIC:
        assert frame_types(translated)[-2:] == ["message_delta", "message_stop"]
    else:
        reasons = [choice["finish_reason"] for chunk in stream_frames(translated) for choice in chunk["choices"]]
        assert reasons[-1] == "tool_calls"
        assert set(reasons[:-1]) == {None}


def test_pa_11_output_indices_count_all_kinds_of_items() -> None:
    wire = chat_stream(
        {"reasoning_content": "Hm."},
        {"content": "Well."},
        chat_fragment(0, CITY_ARGUMENTS, id="call_1", name="get_weather"),
        chat_fragment(1, ROME, id="call_2", name="get_weather"),
    )
    translated = translate_stream_bytes(wire, CHAT, RESPONSES)
    added = [
        frame["output_index"] for frame in stream_frames(translated) if frame["type"] == "response.output_item.added"
    ]
    assert added == [0, 1, 2, 3]
    output = fold_body(RESPONSES, translated)["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
