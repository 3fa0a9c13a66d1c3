"""Streams of the Responses API: irregularities that the decoder accepts, and guarantees of the encoder."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    RESPONSES_USAGE,
    anthropic_block,
    anthropic_call_block,
    anthropic_stream,
    anthropic_text_block,
    responses_call,
    responses_events,
    responses_item_events,
    responses_message,
    responses_request,
    responses_response,
    responses_stream,
)
from tests.support.bodies.readers import frame_types, stream_frames
from tests.support.protocols import ANTHROPIC, RESPONSES
from tests.support.sdk.validation import fold_body, fold_stream
from tests.support.translation import translate_stream_bytes, translated_body
from toolwire.canonical.events import Event, PartDelta, ResponseEnd, ResponseFailed, ResponseStart, UsageReport
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_responses import CODEC

CALL = responses_call("call_1", id="fc_1", status="completed")
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "complete",
}


def decode_events(wire: bytes) -> list[Event]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def fold_wire(wire: bytes) -> Response:
    return fold(decode_events(wire))


def delta_texts(wire: bytes) -> str:
    return "".join(event.text for event in decode_events(wire) if isinstance(event, PartDelta))


# ---- decode


@pytest.mark.parametrize("reasoning", [REASONING, {**REASONING, "summary": []}])
def test_reasoning_is_the_same_in_an_anthropic_stream_and_body(reasoning: Any) -> None:
    items = [reasoning, responses_message("Hi.")]
    wire = responses_stream(
        *(event for index, item in enumerate(items) for event in responses_item_events(index, item)), output=items
    )
    translated = translated_body(responses_response(*items), RESPONSES, ANTHROPIC, "response")
    frames = stream_frames(translate_stream_bytes(wire, RESPONSES, ANTHROPIC))
    block_types = [frame["content_block"]["type"] for frame in frames if frame["type"] == "content_block_start"]
    assert block_types == [block["type"] for block in translated["content"]]
    thinking = "".join(frame["delta"].get("thinking", "") for frame in frames if frame["type"] == "content_block_delta")
    assert (
        thinking == translated["content"][0].get("thinking", "") == ("One.\n\nTwo." if reasoning is REASONING else "")
    )


def test_stream_folds_to_the_decoded_body() -> None:
    items = [REASONING, responses_message("Hi."), CALL]
    wire = responses_stream(
        *(event for index, item in enumerate(items) for event in responses_item_events(index, item)), output=items
    )
    terminal = stream_frames(wire)[-1]["response"]
    body = CODEC.decode_response(json.dumps(terminal).encode(), ResponseContext())
    assert fold_wire(wire).candidates[0].messages == body.candidates[0].messages
    assert fold_wire(wire).candidates[0].stop == body.candidates[0].stop


@pytest.mark.parametrize("item", [CALL, responses_message("Hi."), REASONING], ids=lambda item: item["type"])
@pytest.mark.parametrize("final_event", ["done", "completed"])
def test_item_without_deltas_is_emitted_once(item: Any, final_event: str) -> None:
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    wire = responses_stream(*([done] if final_event == "done" else []), output=[item])
    expected = {"function_call": CITY_ARGUMENTS, "message": "Hi.", "reasoning": "One.Two."}[item["type"]]
    assert delta_texts(wire) == expected
    assert len(fold_wire(wire).candidates[0].messages) == 1


def test_arguments_are_emitted_once_with_or_without_deltas() -> None:
    added, delta, args_done, item_done = responses_item_events(0, CALL)
    assert delta_texts(responses_stream(added, args_done, item_done, output=[CALL])) == CITY_ARGUMENTS
    assert delta_texts(responses_stream(added, delta, args_done, item_done, output=[CALL])) == CITY_ARGUMENTS


def test_items_with_a_repeated_index_stay_separate() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2"}
    wire = responses_stream(*responses_item_events(0, CALL), *responses_item_events(0, other), output=[CALL, other])
    calls = [part for message in fold_wire(wire).candidates[0].messages for part in message.parts]
    assert [getattr(call, "id", None) for call in calls] == ["call_1", "call_2"]


def test_events_without_an_index_are_matched_by_item_id() -> None:
    wire = responses_stream(
        *(
            {key: value for key, value in event.items() if key != "output_index"}
            for event in responses_item_events(0, CALL)
        ),
        output=[CALL],
    )
    assert fold_stream(ANTHROPIC, translate_stream_bytes(wire, RESPONSES, ANTHROPIC))["calls"] == [
        {"id": "call_1", "name": "get_weather", "arguments": json.loads(CITY_ARGUMENTS)}
    ]


def test_signature_is_taken_from_the_done_item() -> None:
    added, *later_events = responses_item_events(0, {**REASONING, "summary": []})
    partial = {**added, "item": {**added["item"], "encrypted_content": "partial"}}
    part = fold_wire(responses_stream(partial, *later_events, output=[])).candidates[0].messages[0].parts[0]
    assert part.signature.data == "complete"  # type: ignore[union-attr]


def test_call_without_done_event_is_incomplete() -> None:
    added, delta, *_ = responses_item_events(0, CALL)
    wire = responses_events(
        {"type": "response.created", "response": responses_response(status="in_progress")}, added, delta
    )
    *_, last = decode_events(wire)
    assert isinstance(last, ResponseFailed)
    part = fold_wire(wire).candidates[0].messages[0].parts[0]
    assert part.complete is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}, "rate_limit"),
        ({"error": {"message": "m", "type": "server_error"}}, "server"),
    ],
)
def test_error_of_any_shape_ends_the_stream(frame: Any, kind: str) -> None:
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    wire = responses_events(created) + f"data: {json.dumps(frame)}\n\n".encode()
    *_, last = decode_events(wire + responses_events({"type": "response.completed", "response": responses_response()}))
    assert isinstance(last, ResponseFailed)
    assert (last.error.kind, last.error.message) == (kind, "m")


def test_failed_response_has_usage() -> None:
    failed = responses_response(status="failed", error={"code": "server_error", "message": "m"}, usage=RESPONSES_USAGE)
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    response = fold_wire(responses_events(created, {"type": "response.failed", "response": failed}))
    assert response.error is not None
    assert response.usage is not None
    assert response.usage.output_tokens == 7


def test_usage_is_only_read_from_the_terminal_event() -> None:
    created = responses_response(status="in_progress", usage=RESPONSES_USAGE)
    decoded = decode_events(responses_events({"type": "response.created", "response": created}))
    assert not any(isinstance(event, UsageReport) for event in decoded)


def test_resumed_stream_without_its_start_is_decoded() -> None:
    _, delta, *later_events = responses_item_events(0, responses_message("Hi."))
    wire = responses_events(delta, *later_events, {"type": "response.completed", "response": responses_response()})
    decoded = decode_events(wire)
    assert isinstance(decoded[0], ResponseStart)
    assert isinstance(decoded[-1], ResponseEnd)
    assert delta_texts(wire) == "Hi."


# ---- encode

CONVERSATION = anthropic_stream(
    *anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Look "},
        {"type": "thinking_delta", "thinking": "it up."},
        {"type": "signature_delta", "signature": "c2ln"},
    ),
    *anthropic_text_block(1, "Let me ", "see."),
    *anthropic_call_block(2, "toolu_1", '{"city":', '"Paris"}'),
    *anthropic_call_block(3, "toolu_2", ""),
)


def test_sdk_reads_a_foreign_stream() -> None:
    fold_wire = fold_stream(RESPONSES, translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES))
    assert fold_wire["text"] == "Let me see."
    assert [(call["id"], call["arguments"]) for call in fold_wire["calls"]] == [
        ("toolu_1", {"city": "Paris"}),
        ("toolu_2", {}),
    ]


def test_each_item_has_all_its_events_in_order() -> None:
    wire = translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES)
    kinds = [kind.removeprefix("response.") for kind in frame_types(wire)]
    assert kinds == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.delta", "reasoning_summary_text.done"),
        *("reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [frame["sequence_number"] for frame in stream_frames(wire)] == list(range(len(kinds)))


def test_item_is_the_same_when_added_done_and_in_the_output() -> None:
    frames = stream_frames(translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES))
    added = [frame["item"] for frame in frames if frame["type"] == "response.output_item.added"]
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert done == frames[-1]["response"]["output"]
    assert [(item["type"], item["id"], item.get("call_id")) for item in added] == [
        (item["type"], item["id"], item.get("call_id")) for item in done
    ]


def test_terminal_event_equals_the_buffered_response() -> None:
    response = translated_body(fold_body(ANTHROPIC, CONVERSATION), ANTHROPIC, RESPONSES, "response")
    assert stream_frames(translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES))[-1]["response"] == response


def test_usage_is_only_sent_in_the_terminal_event() -> None:
    frames = stream_frames(translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES))
    assert [frame["response"]["usage"] for frame in frames if "response" in frame][:-1] == [None, None]
    assert frames[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_truncated_response_is_incomplete_and_broken_stream_fails() -> None:
    truncated = anthropic_stream(*anthropic_text_block(0, "Let me"), stop_reason="max_tokens")
    last = stream_frames(translate_stream_bytes(truncated, ANTHROPIC, RESPONSES))[-1]
    assert (last["type"], last["response"]["incomplete_details"]) == (
        "response.incomplete",
        {"reason": "max_output_tokens"},
    )
    broken = translate_stream_bytes(CONVERSATION[: len(CONVERSATION) // 2], ANTHROPIC, RESPONSES)
    assert stream_frames(broken)[-1]["type"] == "response.failed"
    assert stream_frames(broken)[-1]["response"]["error"]["code"] == "server_error"


def done_items(wire: bytes) -> list[Any]:
    return [frame["item"] for frame in stream_frames(wire) if frame["type"] == "response.output_item.done"]


@pytest.mark.parametrize(
    "block",
    [
        anthropic_text_block(0, "Let me"),
        anthropic_call_block(0, "toolu_1", '{"city":"Pa'),
        anthropic_call_block(0, "toolu_1", '{"city":"Paris"}'),
    ],
)
def test_truncated_item_is_done_as_incomplete(block: Any) -> None:
    complete_block = anthropic_text_block(0, "First.")
    truncated = anthropic_stream(*complete_block, *[{**event, "index": 1} for event in block], stop_reason="max_tokens")
    translated = translate_stream_bytes(truncated, ANTHROPIC, RESPONSES)
    assert done_items(translated)[-1]["status"] == "incomplete"
    assert done_items(translated) == stream_frames(translated)[-1]["response"]["output"]


def test_call_before_the_truncated_item_is_completed() -> None:
    truncated = anthropic_stream(
        *anthropic_call_block(0, "toolu_1", "{}"), *anthropic_text_block(1, "And"), stop_reason="max_tokens"
    )
    assert [item["status"] for item in done_items(translate_stream_bytes(truncated, ANTHROPIC, RESPONSES))] == [
        "completed",
        "incomplete",
    ]


def test_failure_keeps_complete_items() -> None:
    complete_block = anthropic_call_block(0, "toolu_1", "{}")
    failed = anthropic_stream(*complete_block, *anthropic_text_block(1, "And")).partition(b"event: message_delta")[0]
    translated = translate_stream_bytes(failed, ANTHROPIC, RESPONSES)
    assert stream_frames(translated)[-1]["type"] == "response.failed"
    assert [item["type"] for item in done_items(translated)] == ["function_call", "message"]


def test_call_starts_with_empty_arguments_for_clients_that_append_deltas() -> None:
    frames = stream_frames(translate_stream_bytes(CONVERSATION, ANTHROPIC, RESPONSES))
    calls: dict[int, str] = {}
    for frame in frames:
        if frame["type"] == "response.output_item.added" and frame["item"]["type"] == "function_call":
            calls[frame["output_index"]] = frame["item"]["arguments"]
        elif frame["type"] == "response.function_call_arguments.delta":
            calls[frame["output_index"]] += frame["delta"]
    assert list(calls.values()) == ['{"city":"Paris"}', "{}"]


def test_citations_are_sent_before_their_text_is_done() -> None:
    page = {"url": "https://a.test", "title": "A", "cited_text": "x", "encrypted_index": "E"}
    citation_delta = {"type": "citations_delta", "citation": {"type": "web_search_result_location", **page}}
    text_delta = {"type": "text_delta", "text": "It rains."}
    wire = anthropic_stream(
        *anthropic_block(0, {"type": "text", "text": "", "citations": []}, text_delta, citation_delta)
    )
    frames = stream_frames(translate_stream_bytes(wire, ANTHROPIC, RESPONSES))
    (annotation_frame,) = [frame for frame in frames if frame["type"] == "response.output_text.annotation.added"]
    assert [annotation_frame["annotation"]] == frames[-1]["response"]["output"][0]["content"][0]["annotations"]
    assert (annotation_frame["annotation"]["end_index"], annotation_frame["annotation_index"]) == (len("It rains."), 0)
    assert frames[frames.index(annotation_frame) + 1]["type"] == "response.output_text.done"


def test_custom_call_streams_its_input() -> None:
    tool = {"type": "custom", "name": "patch", "description": "d"}
    wire = anthropic_stream(*anthropic_call_block(0, "toolu_1", '{"input":"*** a', '\\nb"}', name="patch"))
    translated = translate_stream_bytes(wire, ANTHROPIC, RESPONSES, responses_request(tools=[tool]))
    deltas = [
        frame["delta"]
        for frame in stream_frames(translated)
        if frame["type"] == "response.custom_tool_call_input.delta"
    ]
    assert deltas == ["*** a", "\nb"]
    (item,) = fold_body(RESPONSES, translated)["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** a\nb")


def test_interleaved_items_and_progress_pass_through() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    progress = {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 0}
    first, second, last = (
        list(responses_item_events(n, item)) for n, item in enumerate((search, CALL, {**CALL, "id": "fc_2"}))
    )
    last = [json.loads(json.dumps(event).replace("call_1", "call_2")) for event in last]
    output = [search, CALL, {**CALL, "id": "fc_2", "call_id": "call_2"}]
    wire = responses_stream(
        first[0], progress, first[-1], second[0], last[0], last[1], second[1], *second[2:], *last[2:], output=output
    )
    translated = translate_stream_bytes(wire, RESPONSES, RESPONSES)
    assert fold_body(RESPONSES, translated)["output"] == fold_body(RESPONSES, wire)["output"]
    assert "response.web_search_call.searching" in frame_types(translated)
    assert fold_wire(translated) == fold_wire(wire)


def test_failed_stream_reports_the_usage_so_far() -> None:
    usage = {"input_tokens": 25, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, error]
    wire = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    failed = stream_frames(translate_stream_bytes(wire, ANTHROPIC, RESPONSES))[-1]
    assert (failed["type"], failed["response"]["usage"]["input_tokens"]) == ("response.failed", 25)


def test_failed_stream_without_usage_reports_none() -> None:
    wire = b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    failed = stream_frames(translate_stream_bytes(wire, "openai-chat", RESPONSES))[-1]
    assert (failed["type"], failed["response"]["usage"]) == ("response.failed", None)
