"""What is particular to the streams of Responses: what decoders forgive, and what encoders never do."""

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
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "whole",
}


def events(wire: bytes) -> list[Event]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def folded(wire: bytes) -> Response:
    return fold(events(wire))


def texts(wire: bytes) -> str:
    return "".join(event.text for event in events(wire) if isinstance(event, PartDelta))


# ---- decode


@pytest.mark.parametrize("thought", [THOUGHT, {**THOUGHT, "summary": []}])
def test_a_thought_reads_the_same_in_a_stream_of_anthropic_as_in_a_body(thought: Any) -> None:
    items = [thought, responses_message("Hi.")]
    wire = responses_stream(
        *(event for index, item in enumerate(items) for event in responses_item_events(index, item)), output=items
    )
    made = translated_body(responses_response(*items), RESPONSES, ANTHROPIC, "response")
    told = stream_frames(translate_stream_bytes(wire, RESPONSES, ANTHROPIC))
    started = [frame["content_block"]["type"] for frame in told if frame["type"] == "content_block_start"]
    assert started == [block["type"] for block in made["content"]]
    thinking = "".join(frame["delta"].get("thinking", "") for frame in told if frame["type"] == "content_block_delta")
    assert thinking == made["content"][0].get("thinking", "") == ("One.\n\nTwo." if thought is THOUGHT else "")


def test_a_stream_folds_to_what_its_body_decodes_to() -> None:
    items = [THOUGHT, responses_message("Hi."), CALL]
    wire = responses_stream(
        *(event for index, item in enumerate(items) for event in responses_item_events(index, item)), output=items
    )
    terminal = stream_frames(wire)[-1]["response"]
    body = CODEC.decode_response(json.dumps(terminal).encode(), ResponseContext())
    assert folded(wire).candidates[0].messages == body.candidates[0].messages
    assert folded(wire).candidates[0].stop == body.candidates[0].stop


@pytest.mark.parametrize("item", [CALL, responses_message("Hi."), THOUGHT], ids=lambda item: item["type"])
@pytest.mark.parametrize("told_by", ["done", "completed"])
def test_an_item_that_only_its_end_tells_is_told_once(item: Any, told_by: str) -> None:
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    wire = responses_stream(*([done] if told_by == "done" else []), output=[item])
    expected = {"function_call": CITY_ARGUMENTS, "message": "Hi.", "reasoning": "One.Two."}[item["type"]]
    assert texts(wire) == expected
    assert len(folded(wire).candidates[0].messages) == 1


def test_arguments_that_come_with_done_alone_are_told_and_those_after_deltas_are_not_told_again() -> None:
    added, delta, args_done, item_done = responses_item_events(0, CALL)
    assert texts(responses_stream(added, args_done, item_done, output=[CALL])) == CITY_ARGUMENTS
    assert texts(responses_stream(added, delta, args_done, item_done, output=[CALL])) == CITY_ARGUMENTS


def test_items_whose_index_is_taken_again_stay_apart() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2"}
    wire = responses_stream(*responses_item_events(0, CALL), *responses_item_events(0, other), output=[CALL, other])
    calls = [part for message in folded(wire).candidates[0].messages for part in message.parts]
    assert [getattr(call, "id", None) for call in calls] == ["call_1", "call_2"]


def test_events_without_an_index_follow_the_item_id() -> None:
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


def test_the_seal_is_the_one_of_the_done_item() -> None:
    added, *rest = responses_item_events(0, {**THOUGHT, "summary": []})
    partial = {**added, "item": {**added["item"], "encrypted_content": "partial"}}
    part = folded(responses_stream(partial, *rest, output=[])).candidates[0].messages[0].parts[0]
    assert part.signature.data == "whole"  # type: ignore[union-attr]


def test_a_call_that_is_never_done_is_not_complete() -> None:
    added, delta, *_ = responses_item_events(0, CALL)
    wire = responses_events(
        {"type": "response.created", "response": responses_response(status="in_progress")}, added, delta
    )
    *_, last = events(wire)
    assert isinstance(last, ResponseFailed)
    part = folded(wire).candidates[0].messages[0].parts[0]
    assert part.complete is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}, "rate_limit"),
        ({"error": {"message": "m", "type": "server_error"}}, "server"),
    ],
)
def test_an_error_ends_the_stream_whatever_its_shape(frame: Any, kind: str) -> None:
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    wire = responses_events(created) + f"data: {json.dumps(frame)}\n\n".encode()
    *_, last = events(wire + responses_events({"type": "response.completed", "response": responses_response()}))
    assert isinstance(last, ResponseFailed)
    assert (last.error.kind, last.error.message) == (kind, "m")


def test_a_failure_carries_its_usage() -> None:
    failed = responses_response(status="failed", error={"code": "server_error", "message": "m"}, usage=RESPONSES_USAGE)
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    response = folded(responses_events(created, {"type": "response.failed", "response": failed}))
    assert response.error is not None
    assert response.usage is not None
    assert response.usage.output_tokens == 7


def test_usage_is_read_from_the_end_only() -> None:
    created = responses_response(status="in_progress", usage=RESPONSES_USAGE)
    first = events(responses_events({"type": "response.created", "response": created}))
    assert not any(isinstance(event, UsageReport) for event in first)


def test_a_resumed_stream_without_its_beginning_is_read() -> None:
    _, delta, *rest = responses_item_events(0, responses_message("Hi."))
    wire = responses_events(delta, *rest, {"type": "response.completed", "response": responses_response()})
    found = events(wire)
    assert isinstance(found[0], ResponseStart)
    assert isinstance(found[-1], ResponseEnd)
    assert texts(wire) == "Hi."


# ---- encode

TALK = anthropic_stream(
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


def test_the_sdk_reads_what_another_protocol_said() -> None:
    made = fold_stream(RESPONSES, translate_stream_bytes(TALK, ANTHROPIC, RESPONSES))
    assert made["text"] == "Let me see."
    assert [(call["id"], call["arguments"]) for call in made["calls"]] == [
        ("toolu_1", {"city": "Paris"}),
        ("toolu_2", {}),
    ]


def test_the_events_of_each_item_are_all_there_in_order() -> None:
    wire = translate_stream_bytes(TALK, ANTHROPIC, RESPONSES)
    short = [kind.removeprefix("response.") for kind in frame_types(wire)]
    assert short == [
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
    assert [frame["sequence_number"] for frame in stream_frames(wire)] == list(range(len(short)))


def test_an_item_is_the_same_when_it_is_added_done_and_in_the_final_output() -> None:
    found = stream_frames(translate_stream_bytes(TALK, ANTHROPIC, RESPONSES))
    added = [frame["item"] for frame in found if frame["type"] == "response.output_item.added"]
    done = [frame["item"] for frame in found if frame["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    assert [(item["type"], item["id"], item.get("call_id")) for item in added] == [
        (item["type"], item["id"], item.get("call_id")) for item in done
    ]


def test_a_streamed_answer_is_the_answer() -> None:
    whole = translated_body(fold_body(ANTHROPIC, TALK), ANTHROPIC, RESPONSES, "response")
    assert stream_frames(translate_stream_bytes(TALK, ANTHROPIC, RESPONSES))[-1]["response"] == whole


def test_no_usage_before_the_end() -> None:
    found = stream_frames(translate_stream_bytes(TALK, ANTHROPIC, RESPONSES))
    assert [frame["response"]["usage"] for frame in found if "response" in frame][:-1] == [None, None]
    assert found[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_a_cut_answer_is_incomplete_and_a_broken_one_failed() -> None:
    cut = anthropic_stream(*anthropic_text_block(0, "Let me"), stop_reason="max_tokens")
    last = stream_frames(translate_stream_bytes(cut, ANTHROPIC, RESPONSES))[-1]
    assert (last["type"], last["response"]["incomplete_details"]) == (
        "response.incomplete",
        {"reason": "max_output_tokens"},
    )
    broken = translate_stream_bytes(TALK[: len(TALK) // 2], ANTHROPIC, RESPONSES)
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
def test_the_item_that_was_cut_is_done_as_incomplete(block: Any) -> None:
    whole = anthropic_text_block(0, "First.")
    cut = anthropic_stream(*whole, *[{**event, "index": 1} for event in block], stop_reason="max_tokens")
    made = translate_stream_bytes(cut, ANTHROPIC, RESPONSES)
    assert done_items(made)[-1]["status"] == "incomplete"
    assert done_items(made) == stream_frames(made)[-1]["response"]["output"]


def test_a_call_before_the_cut_is_whole() -> None:
    cut = anthropic_stream(
        *anthropic_call_block(0, "toolu_1", "{}"), *anthropic_text_block(1, "And"), stop_reason="max_tokens"
    )
    assert [item["status"] for item in done_items(translate_stream_bytes(cut, ANTHROPIC, RESPONSES))] == [
        "completed",
        "incomplete",
    ]


def test_a_failure_leaves_what_was_whole() -> None:
    whole = anthropic_call_block(0, "toolu_1", "{}")
    failed = anthropic_stream(*whole, *anthropic_text_block(1, "And")).partition(b"event: message_delta")[0]
    made = translate_stream_bytes(failed, ANTHROPIC, RESPONSES)
    assert stream_frames(made)[-1]["type"] == "response.failed"
    assert [item["type"] for item in done_items(made)] == ["function_call", "message"]


def test_a_call_starts_without_arguments_since_clients_add_the_deltas_to_them() -> None:
    found = stream_frames(translate_stream_bytes(TALK, ANTHROPIC, RESPONSES))
    calls: dict[int, str] = {}
    for frame in found:
        if frame["type"] == "response.output_item.added" and frame["item"]["type"] == "function_call":
            calls[frame["output_index"]] = frame["item"]["arguments"]
        elif frame["type"] == "response.function_call_arguments.delta":
            calls[frame["output_index"]] += frame["delta"]
    assert list(calls.values()) == ['{"city":"Paris"}', "{}"]


def test_citations_are_told_before_their_text_is_done() -> None:
    page = {"url": "https://a.test", "title": "A", "cited_text": "x", "encrypted_index": "E"}
    note = {"type": "citations_delta", "citation": {"type": "web_search_result_location", **page}}
    said = {"type": "text_delta", "text": "It rains."}
    wire = anthropic_stream(*anthropic_block(0, {"type": "text", "text": "", "citations": []}, said, note))
    found = stream_frames(translate_stream_bytes(wire, ANTHROPIC, RESPONSES))
    (told,) = [frame for frame in found if frame["type"] == "response.output_text.annotation.added"]
    assert [told["annotation"]] == found[-1]["response"]["output"][0]["content"][0]["annotations"]
    assert (told["annotation"]["end_index"], told["annotation_index"]) == (len("It rains."), 0)
    assert found[found.index(told) + 1]["type"] == "response.output_text.done"


def test_a_custom_call_streams_its_text() -> None:
    tool = {"type": "custom", "name": "patch", "description": "d"}
    wire = anthropic_stream(*anthropic_call_block(0, "toolu_1", '{"input":"*** a', '\\nb"}', name="patch"))
    made = translate_stream_bytes(wire, ANTHROPIC, RESPONSES, responses_request(tools=[tool]))
    deltas = [
        frame["delta"] for frame in stream_frames(made) if frame["type"] == "response.custom_tool_call_input.delta"
    ]
    assert deltas == ["*** a", "\nb"]
    (item,) = fold_body(RESPONSES, made)["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** a\nb")


def test_at_home_interleaved_items_and_progress_stay_readable_for_the_sdk() -> None:
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
    made = translate_stream_bytes(wire, RESPONSES, RESPONSES)
    assert fold_body(RESPONSES, made)["output"] == fold_body(RESPONSES, wire)["output"]
    assert "response.web_search_call.searching" in frame_types(made)
    assert folded(made) == folded(wire)
