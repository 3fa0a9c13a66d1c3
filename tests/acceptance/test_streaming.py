"""Streams, event by event (ST-1 to ST-18, ST-24 to ST-26 and ST-29 to ST-31)."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.google import gemini_call, gemini_stream
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    anthropic_block,
    anthropic_call_block,
    anthropic_stream,
    anthropic_text_block,
    chat_chunk,
    chat_events,
    chat_fragment,
    chat_stream,
    response_stream,
    responses_call,
    responses_item_events,
    responses_message,
    responses_stream,
)
from tests.support.bodies.ollama import ollama_assistant, ollama_call, ollama_stream
from tests.support.bodies.readers import frame_types, stream_error_message, stream_frames
from tests.support.protocols import ALL_PAIRS, ALL_PROTOCOLS, ANTHROPIC, CHAT, GEMINI, OLLAMA, OPENROUTER, RESPONSES
from tests.support.sdk.validation import fold_body, fold_stream
from tests.support.translation import translate_stream_bytes

PARIS: dict[str, Any] = {"id": "call_1", "name": "get_weather", "arguments": {"city": "Paris"}}
CALL_ITEM = responses_call("call_1", id="fc_1", status="completed")
COMPLETE_CALL = chat_fragment(0, CITY_ARGUMENTS, id="call_1", name="get_weather")
STREAMS = {protocol: response_stream(protocol, "Well.", ("call_1", "Paris")) for protocol in ALL_PROTOCOLS}
NOT_ANTHROPIC = [protocol for protocol in ALL_PROTOCOLS if protocol != ANTHROPIC]
NOT_CHAT = [protocol for protocol in ALL_PROTOCOLS if protocol != CHAT]
NOT_RESPONSES = [protocol for protocol in ALL_PROTOCOLS if protocol != RESPONSES]


def starts(wire: bytes) -> list[str]:
    return [frame["content_block"]["type"] for frame in stream_frames(wire) if frame["type"] == "content_block_start"]


def test_st_1_message_start_comes_first_even_before_a_call() -> None:
    translated = translate_stream_bytes(
        chat_events(chat_chunk({"content": None, **COMPLETE_CALL}), chat_chunk({}, "tool_calls")),
        CHAT,
        ANTHROPIC,
    )
    assert frame_types(translated)[:2] == ["message_start", "content_block_start"]


@pytest.mark.parametrize("source", NOT_ANTHROPIC)
def test_st_2_there_is_one_message_start(source: str) -> None:
    types = frame_types(translate_stream_bytes(STREAMS[source], source, ANTHROPIC))
    assert (types[0], types.count("message_start")) == ("message_start", 1)


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_st_3_a_chunk_with_a_complete_call_is_not_lost(source: str, target: str) -> None:
    folded = fold_stream(target, translate_stream_bytes(STREAMS[source], source, target))
    assert (folded["text"], folded["calls"], folded["stop"]) == ("Well.", [PARIS], "tool_use")
    alone = fold_stream(
        target,
        translate_stream_bytes(response_stream(source, "", ("call_1", "Paris"), ("call_2", "Rome")), source, target),
    )
    assert (alone["text"], [call["arguments"]["city"] for call in alone["calls"]]) == ("", ["Paris", "Rome"])


THINKING = {
    CHAT: chat_stream({"reasoning_content": "Think"}, {"content": "First"}, {"content": " token"}, COMPLETE_CALL),
    GEMINI: gemini_stream(
        {"text": "Think", "thought": True}, {"text": "First"}, {"text": " token"}, gemini_call("call_1")
    ),
    OLLAMA: ollama_stream(
        {"role": "assistant", "content": "", "thinking": "Think"},
        {"role": "assistant", "content": "First"},
        {"role": "assistant", "content": " token"},
        ollama_assistant(ollama_call("call_1")),
    ),
}


FROM_THINKING = [(source, target) for source, target in ALL_PAIRS if source in THINKING]


@pytest.mark.parametrize(("source", "target"), FROM_THINKING)
def test_st_4_the_first_token_after_a_change_of_kind_is_kept(source: str, target: str) -> None:
    folded = fold_stream(target, translate_stream_bytes(THINKING[source], source, target))
    assert (folded["reasoning"], folded["text"], folded["calls"]) == ("Think", "First token", [PARIS])


def test_st_5_the_first_block_has_the_type_of_the_first_delta() -> None:
    wire = chat_stream(
        {"content": ""},
        {"reasoning_content": "Think", "content": ""},
        {"content": "Well."},
        finish_reason="stop",
    )
    translated = translate_stream_bytes(wire, CHAT, ANTHROPIC)
    assert starts(translated) == ["thinking", "text"]
    assert fold_stream(ANTHROPIC, translated)["reasoning"] == "Think"


def test_st_6_an_empty_list_of_calls_is_no_call() -> None:
    wire = chat_stream({"content": "Well", "tool_calls": []}, {"content": ".", "tool_calls": []}, finish_reason="stop")
    translated = translate_stream_bytes(wire, CHAT, ANTHROPIC)
    assert starts(translated) == ["text"]
    assert fold_stream(ANTHROPIC, translated)["text"] == "Well."


@pytest.mark.parametrize("source", NOT_ANTHROPIC)
def test_st_7_every_delta_has_an_open_block_and_every_block_is_closed(source: str) -> None:
    frames = stream_frames(translate_stream_bytes(STREAMS[source], source, ANTHROPIC))
    open_blocks: set[int] = set()
    for frame in frames:
        if frame["type"] == "content_block_start":
            open_blocks.add(frame["index"])
        elif frame["type"] == "content_block_delta":
            assert frame["index"] in open_blocks
        elif frame["type"] == "content_block_stop":
            open_blocks.remove(frame["index"])
    assert not open_blocks
    assert [frame["type"] for frame in frames].count("content_block_stop") == 2
    assert [frame["type"] for frame in frames].count("content_block_delta") >= 2


def test_st_8_the_name_of_a_call_is_sent_once() -> None:
    wire = anthropic_stream(*anthropic_call_block(0, "call_1", '{"city":', '"Paris"}'))
    deltas = [
        choice["delta"]
        for chunk in stream_frames(translate_stream_bytes(wire, ANTHROPIC, CHAT))
        for choice in chunk["choices"]
    ]
    functions = [fragment["function"] for delta in deltas for fragment in delta.get("tool_calls") or ()]
    assert [function["name"] for function in functions if "name" in function] == ["get_weather"]


def test_st_9_a_late_name_is_awaited() -> None:
    wire = chat_stream(
        chat_fragment(0, '{"city":', id="call_1"),
        chat_fragment(0, "", name="get_weather"),
        chat_fragment(0, '"Paris"}'),
    )
    translated = translate_stream_bytes(wire, CHAT, ANTHROPIC)
    opened = [
        frame["content_block"]["name"] for frame in stream_frames(translated) if frame["type"] == "content_block_start"
    ]
    assert opened == ["get_weather"]
    assert fold_stream(ANTHROPIC, translated)["calls"] == [PARIS]


@pytest.mark.parametrize("target", NOT_RESPONSES)
def test_st_10_arguments_that_arrive_as_an_object_are_decoded(target: str) -> None:
    item = {**CALL_ITEM, "arguments": {"city": "Paris"}}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**CALL_ITEM, "arguments": ""}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    translated = translate_stream_bytes(responses_stream(added, done, output=[item]), RESPONSES, target)
    assert fold_stream(target, translated)["calls"] == [PARIS]


def test_st_11_the_completed_output_holds_every_finished_item() -> None:
    wire = chat_stream({"content": "Well."}, COMPLETE_CALL, chat_fragment(1, "", id="call_2", name="now"))
    translated = translate_stream_bytes(wire, CHAT, RESPONSES)
    done = [frame["item"] for frame in stream_frames(translated) if frame["type"] == "response.output_item.done"]
    assert stream_frames(translated)[-1]["response"]["output"] == done
    assert [item["type"] for item in done] == ["message", "function_call", "function_call"]
    assert [json.loads(item["arguments"]) for item in done[1:]] == [{"city": "Paris"}, {}]


@pytest.mark.parametrize("target", NOT_RESPONSES)
def test_st_12_arguments_done_is_sent_once_and_suffices_alone(target: str) -> None:
    types = frame_types(translate_stream_bytes(STREAMS[target], target, RESPONSES))
    assert types.count("response.function_call_arguments.done") == 1
    added, _, done, item_done = responses_item_events(0, CALL_ITEM)
    only_done = responses_stream(added, done, item_done, output=[CALL_ITEM])
    assert fold_stream(target, translate_stream_bytes(only_done, RESPONSES, target))["calls"] == [PARIS]


@pytest.mark.parametrize("target", NOT_CHAT)
def test_st_13_a_stream_without_finish_reason_still_ends(target: str) -> None:
    opened = chat_chunk({"role": "assistant", **COMPLETE_CALL})
    translated = translate_stream_bytes(chat_events(opened), CHAT, target)
    folded = fold_stream(target, translated)
    assert (folded["calls"], folded["stop"]) == ([PARIS], "tool_use")
    broken = chat_chunk({"role": "assistant", **chat_fragment(0, '{"city":', id="call_1", name="get_weather")})
    cut = translate_stream_bytes(chat_events(broken), CHAT, target)
    assert stream_error_message(target, cut) == "the stream ended before the response was complete"
    if target == RESPONSES:
        assert frame_types(translated)[-2:] == ["response.output_item.done", "response.completed"]


def test_st_14_chunks_after_done_are_ignored() -> None:
    wire = STREAMS[CHAT] + chat_events(chat_chunk({"content": "Ghost"}))
    assert b"Ghost" in wire
    for target in NOT_CHAT:
        assert translate_stream_bytes(wire, CHAT, target) == translate_stream_bytes(STREAMS[CHAT], CHAT, target)


def test_st_15_arguments_that_parse_early_are_not_final() -> None:
    wire = chat_stream(
        chat_fragment(0, "1", id="call_1", name="get_weather"), chat_fragment(0, "2"), chat_fragment(0, "3")
    )
    frames = stream_frames(translate_stream_bytes(wire, CHAT, RESPONSES))
    finals = [frame["arguments"] for frame in frames if frame["type"] == "response.function_call_arguments.done"]
    assert finals == ["123"]


@pytest.mark.parametrize("target", NOT_CHAT)
def test_st_16_fragments_without_an_index_are_joined_by_id_and_order(target: str) -> None:
    wire = chat_stream(
        chat_fragment(None, '{"city":', id="call_1", name="get_weather"),
        chat_fragment(None, '"Paris"}'),
        chat_fragment(None, '{"city":"Rome"}', id="call_2", name="get_weather"),
    )
    calls = fold_stream(target, translate_stream_bytes(wire, CHAT, target))["calls"]
    assert calls == [PARIS, {"id": "call_2", "name": "get_weather", "arguments": {"city": "Rome"}}]


@pytest.mark.parametrize("fragments", [[CITY_ARGUMENTS], ['{"city', '":"Paris"}'], list(CITY_ARGUMENTS)])
def test_st_17_arguments_may_arrive_complete_or_in_pieces(fragments: list[str]) -> None:
    opened = chat_fragment(0, fragments[0], id="call_1", name="get_weather")
    wire = chat_stream(opened, *(chat_fragment(0, fragment) for fragment in fragments[1:]))
    assert fold_stream(ANTHROPIC, translate_stream_bytes(wire, CHAT, ANTHROPIC))["calls"] == [PARIS]


@pytest.mark.parametrize("target", NOT_ANTHROPIC)
def test_st_18_a_ping_is_forwarded_to_the_other_protocol(target: str) -> None:
    started, *rest = anthropic_stream({"type": "ping"}, *anthropic_call_block(0, "call_1")).split(b"\n\n")
    chunks = [piece + b"\n\n" for piece in (started, *rest)]
    pieces = list(toolwire.translate_stream(chunks, ANTHROPIC, target))
    if target == OLLAMA:  # NDJSON has no comments: an empty line of content
        (frame,) = stream_frames(pieces[0])
        assert frame["message"]["content"] == ""
    elif target == GEMINI:  # the SDK takes a comment for a response, and skips an empty line
        assert pieces[0] == b"\n\n"
    else:
        assert pieces[1] == b": ping\n\n"
    assert fold_stream(target, b"".join(pieces))["calls"] == [PARIS]


@pytest.mark.parametrize("source", NOT_CHAT)
def test_st_24_the_first_chunk_has_the_role(source: str) -> None:
    first = stream_frames(translate_stream_bytes(STREAMS[source], source, CHAT))[0]
    assert first["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("source", NOT_RESPONSES)
def test_st_25_no_usage_before_the_terminal_event(source: str) -> None:
    frames = stream_frames(translate_stream_bytes(STREAMS[source], source, RESPONSES))
    early = [frame["response"].get("usage") for frame in frames[:-1] if "response" in frame]
    assert early
    assert set(early) == {None}
    assert frames[-1]["response"]["usage"]["output_tokens"] == (0 if source in (CHAT, OPENROUTER) else 7)


@pytest.mark.parametrize("target", NOT_RESPONSES)
def test_st_26_done_events_do_not_repeat_the_text(target: str) -> None:
    translated = translate_stream_bytes(STREAMS[RESPONSES], RESPONSES, target)
    assert fold_stream(target, translated)["text"] == "Well."
    assert translated.count(b"Well.") == 1


def test_st_29_a_reasoning_item_of_several_parts_is_one_thinking_block() -> None:
    parts = [{"type": "summary_text", "text": text} for text in ("First.", "Second.")]
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": parts,
        "encrypted_content": "gAAAA",
        "status": "completed",
    }
    item = responses_call("call_1", id="fc_1", status="completed")
    wire = responses_stream(*responses_item_events(0, thought), *responses_item_events(1, item), output=[thought, item])
    translated = translate_stream_bytes(wire, RESPONSES, ANTHROPIC)
    assert starts(translated) == ["thinking", "tool_use"]
    reasoning = fold_stream(ANTHROPIC, translated)["reasoning"]
    assert reasoning.index("First.") < reasoning.index("Second.")
    signatures = [
        frame for frame in stream_frames(translated) if frame.get("delta", {}).get("type") == "signature_delta"
    ]
    assert signatures == []  # without an envelope key, no signature is invented


@pytest.mark.parametrize("target", NOT_RESPONSES)
def test_st_30_an_item_announced_twice_is_one_item(target: str) -> None:
    message = responses_message("Well.")
    events = list(responses_item_events(0, message))
    translated = translate_stream_bytes(responses_stream(events[0], *events, output=[message]), RESPONSES, target)
    assert fold_stream(target, translated)["text"] == "Well."


def test_st_31_block_indices_are_contiguous_across_server_tools() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    query = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    blocks = [
        *anthropic_block(0, search, query),
        *anthropic_block(1, result),
        *anthropic_text_block(2, "Found."),
    ]
    frames = stream_frames(
        translate_stream_bytes(anthropic_stream(*blocks, stop_reason="end_turn"), ANTHROPIC, ANTHROPIC)
    )
    assert [frame["index"] for frame in frames if frame["type"] == "content_block_start"] == [0, 1, 2]
    hosted = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    message = responses_message("Found.")
    wire = responses_stream(
        *responses_item_events(0, hosted), *responses_item_events(1, message), output=[hosted, message]
    )
    crossed = translate_stream_bytes(wire, RESPONSES, ANTHROPIC)
    indices = [frame["index"] for frame in stream_frames(crossed) if frame["type"] == "content_block_start"]
    assert indices == list(range(len(indices)))
    assert fold_body(ANTHROPIC, crossed)["content"][-1]["text"] == "Found."
