"""Media and errors in tool results, and errors of providers: IM-2 to IM-6, ER-1, ER-2, EX-2 to EX-12."""

import json
from typing import Any

import pytest

import toolwire
from tests.bodies import (
    CITY,
    PNG,
    anthropic_call,
    anthropic_call_block,
    anthropic_result,
    anthropic_stream,
    anthropic_turn,
    chat_chunk,
    chat_events,
    chat_fragment,
    item_events,
    responses_call,
    responses_events,
    responses_response,
    responses_stream,
    turn,
)
from tests.wire import (
    ANTHROPIC,
    CHAT,
    PAIRS,
    RESPONSES,
    frames,
    items,
    lost,
    named,
    results,
    roles,
    streamed,
    translated,
)

TEXT: dict[str, Any] = {"type": "text", "text": "A map."}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
}
PDF: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}


def with_content(*content: dict[str, Any]) -> dict[str, Any]:
    """A request whose first of two results holds these blocks."""
    answers = [anthropic_result("toolu_1", list(content)), anthropic_result("toolu_2", "18C")]
    return anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], answers)


def test_im_2_an_image_in_a_result_is_shown_after_the_tool_messages() -> None:
    body = with_content(TEXT, IMAGE)
    made = translated(body, ANTHROPIC, CHAT)
    assert roles(made) == ["user", "assistant", "tool", "tool", "user"]
    held = made["messages"][2]["content"]
    assert "A map." in str(held)
    assert PNG not in str(held)
    urls = [part["image_url"]["url"] for part in made["messages"][4]["content"] if part["type"] == "image_url"]
    assert urls == [f"data:image/png;base64,{PNG}"]
    output = items(translated(body, ANTHROPIC, RESPONSES))[3]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"] == f"data:image/png;base64,{PNG}"


def test_im_4_a_document_in_a_result_is_a_native_part() -> None:
    output = items(translated(with_content(TEXT, PDF), ANTHROPIC, RESPONSES))[3]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_file"]
    assert output[1]["file_data"].endswith("JVBERi0=")


def test_im_5_a_list_of_text_is_a_string_and_only_media_needs_a_list() -> None:
    made = items(translated(with_content(TEXT, {"type": "text", "text": " Of Paris."}), ANTHROPIC, RESPONSES))
    assert isinstance(made[3]["output"], str)
    assert "A map." in made[3]["output"]
    assert " Of Paris." in made[3]["output"]


def test_im_6_a_file_in_a_result_is_not_dropped_silently() -> None:
    body = with_content(TEXT, PDF)
    made = translated(body, ANTHROPIC, CHAT)
    assert "JVBERi0=" in json.dumps(made) or named(lost(body, ANTHROPIC, CHAT), "/messages/2/content/0/content/1")
    short = translated(body, ANTHROPIC, RESPONSES, binary_results="summary")
    assert "JVBERi0=" not in json.dumps(short)
    assert "application/pdf" in str(items(short)[3]["output"])


FAILED = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", "No such city.", is_error=True)])


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_er_1_an_error_result_is_marked_text_and_is_an_error_again_at_home(target: str) -> None:
    made = translated(FAILED, ANTHROPIC, target)
    ((answered, text),) = results(target, made)
    assert answered == "toolu_1"
    assert "No such city." in text
    assert text != "No such city."
    held = made["messages"][-1] if target == CHAT else made["input"][-1]
    assert not {"error", "is_error"} & held.keys()
    assert named(lost(FAILED, ANTHROPIC, target), "/messages/2/content/0/is_error")
    assert translated(made, target, ANTHROPIC)["messages"][2] == FAILED["messages"][2]


@pytest.mark.parametrize("way", [[CHAT], [RESPONSES], [CHAT, RESPONSES], [RESPONSES, CHAT]])
def test_er_2_the_error_flag_survives_every_way_home(way: list[str]) -> None:
    body, at = FAILED, ANTHROPIC
    for following in [*way, ANTHROPIC]:
        body, at = translated(body, at, following), following
    (block,) = body["messages"][2]["content"]
    assert (block["is_error"], block["content"]) == (True, "No such city.")
    fine = translated(translated(turn(ANTHROPIC, "toolu_1"), ANTHROPIC, CHAT), CHAT, ANTHROPIC)
    assert not fine["messages"][2]["content"][0].get("is_error")


def failure(target: str, wire: bytes) -> str:
    """The message of the in-band error that a stream ends with, as that protocol says it."""
    last = frames(wire)[-1]
    if target == ANTHROPIC:
        assert last["type"] == "error"
        return str(last["error"]["message"])
    if target == CHAT:
        assert b"[DONE]" not in wire
        return str(last["error"]["message"])
    assert last["type"] in ("response.failed", "error")
    return str(last["response"]["error"]["message"] if last["type"] == "response.failed" else last["message"])


CALL_ITEM = responses_call("call_1", id="fc_1", status="completed")
CUT = {
    ANTHROPIC: anthropic_stream(*anthropic_call_block(0, "call_1")).split(b"event: content_block_stop")[0],
    CHAT: chat_events(
        chat_chunk({"role": "assistant", **chat_fragment(0, CITY[:5], id="call_1", name="get_weather")}),
        done=False,
    ),
    RESPONSES: responses_stream(*item_events(0, CALL_ITEM), output=[CALL_ITEM]).split(
        b"event: response.output_item.done"
    )[0],
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_ex_2_a_stream_that_is_cut_ends_with_an_error_not_with_success(source: str, target: str) -> None:
    assert failure(target, streamed(CUT[source], source, target))


@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES])
def test_ex_3_an_error_inside_a_chat_stream_is_a_failure(target: str) -> None:
    broken = {**chat_chunk({}), "choices": [], "error": {"code": 502, "message": "Upstream is gone"}}
    wire = chat_events(chat_chunk({"role": "assistant", "content": ""}), broken)
    assert "Upstream is gone" in failure(target, streamed(wire, CHAT, target))


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_ex_4_an_error_event_of_a_responses_stream_is_a_failure(target: str) -> None:
    created = {"type": "response.created", "response": responses_response(status="in_progress")}
    flat = {"type": "error", "code": "server_error", "message": "Upstream is gone", "param": None}
    assert "Upstream is gone" in failure(target, streamed(responses_events(created, flat), RESPONSES, target))
    error = {"code": "server_error", "message": "Upstream is gone"}
    failed = {"type": "response.failed", "response": responses_response(status="failed", error=error)}
    assert "Upstream is gone" in failure(target, streamed(responses_events(created, failed), RESPONSES, target))


def test_ex_11_an_overflow_of_the_context_is_said_as_clients_know_it() -> None:
    said = "This model's maximum context length is 128000 tokens. However, you asked for 130000 tokens."
    error = {
        "message": said,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    made = translated({"error": error}, CHAT, ANTHROPIC, "error")
    assert made["error"]["type"] == "invalid_request_error"
    assert "prompt is too long" in made["error"]["message"]
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    for target in (CHAT, RESPONSES):
        assert translated(body, ANTHROPIC, target, "error")["error"]["code"] == "context_length_exceeded"


def test_ex_12_an_answer_of_the_wrong_protocol_is_refused_with_its_reason() -> None:
    with pytest.raises(toolwire.DecodeError, match="choices"):
        translated(responses_response(responses_call("call_1")), CHAT, ANTHROPIC, "response")
