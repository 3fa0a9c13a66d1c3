"""Continuity of thinking and reasoning (TH-2 to TH-20)."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_block,
    anthropic_call,
    anthropic_call_block,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_stream,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_response,
    chat_result,
    chat_stream,
    responses_call,
    responses_item_events,
    responses_message,
    responses_output,
    responses_request,
    responses_response,
    responses_stream,
)
from tests.support.bodies.readers import responses_items, stream_frames
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.sdk.validation import fold_body, fold_stream, summary
from tests.support.translation import has_loss_at, loss_paths, translate_stream_bytes, translated_body

THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Hm, Paris.", "signature": "EqQBsig=="}
OMITTED: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": "EqQBomitted=="}
REDACTED: dict[str, Any] = {"type": "redacted_thinking", "data": "EmwKAhgB"}
REASONING_ITEM: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm, Paris."}],
    "encrypted_content": "gAAAAABencrypted",
}
CALL_ITEM = responses_call("call_1", id="fc_1", status="completed")
REASONING_HISTORY = chat_request(
    USER_MESSAGE, chat_assistant(chat_call("call_1"), reasoning_content="Hm, Paris."), chat_result("call_1")
)


def thinking_blocks(body: Any) -> list[Any]:
    contents = [message["content"] for message in body.get("messages", [body])]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]


def test_th_2_no_signature_is_invented_for_anthropic() -> None:
    assert thinking_blocks(translated_body(REASONING_HISTORY, CHAT, ANTHROPIC)) == []
    assert has_loss_at(loss_paths(REASONING_HISTORY, CHAT, ANTHROPIC), "/messages/1/reasoning_content")


def test_th_5_reasoning_of_another_provider_is_not_sent_as_native() -> None:
    body = responses_request(USER_MESSAGE, REASONING_ITEM, CALL_ITEM, responses_output("call_1"))
    translated = translated_body(body, RESPONSES, ANTHROPIC)
    assert thinking_blocks(translated) == []
    assert "gAAAAABencrypted" not in json.dumps(translated)
    assert has_loss_at(loss_paths(body, RESPONSES, ANTHROPIC), "/input/1")
    signed = anthropic_turn([THOUGHT, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    assert "EqQBsig==" not in json.dumps(translated_body(signed, ANTHROPIC, RESPONSES))
    assert has_loss_at(loss_paths(signed, ANTHROPIC, RESPONSES), "/messages/1/content/0")


def test_th_6_signed_blocks_pass_byte_for_byte() -> None:
    block = {
        "type": "thinking",
        "thinking": 'Line\n\ttab "quote" \\ é \u2028 \U0001f600 </b>',
        "signature": "a+/=" * 50,
    }
    body = anthropic_turn([block, REDACTED, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    wire = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    translated = toolwire.translate(wire, source=ANTHROPIC, target=ANTHROPIC, kind="request")
    assert json.loads(translated.to_bytes()) == body
    assert translated.losses == []
    assert list(json.loads(translated.to_bytes())["messages"][1]["content"][0]) == ["type", "thinking", "signature"]


def test_th_7_empty_thinking_text_with_a_signature_is_kept() -> None:
    body = anthropic_turn([OMITTED, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    assert translated_body(body, ANTHROPIC, ANTHROPIC) == body
    start = {"type": "thinking", "thinking": "", "signature": ""}
    signed = {"type": "signature_delta", "signature": "EqQBomitted=="}
    wire = anthropic_stream(*anthropic_block(0, start, signed), *anthropic_call_block(1, "toolu_1"))
    assert fold_body(ANTHROPIC, translate_stream_bytes(wire, ANTHROPIC, ANTHROPIC))["content"][0] == OMITTED


def test_th_8_thinking_is_not_required_of_a_history_without_it() -> None:
    body = chat_request(
        USER_MESSAGE, chat_assistant(chat_call("call_1")), chat_result("call_1"), reasoning_effort="high"
    )
    translated = translated_body(body, CHAT, ANTHROPIC)
    assert translated.get("thinking", {}).get("type") != "enabled"
    refused = anthropic_turn(
        [anthropic_call("toolu_1")],
        [anthropic_result("toolu_1")],
        thinking={"type": "enabled", "budget_tokens": 1024},
        max_tokens=4096,
        tools=[anthropic_tool()],
    )
    assert any(finding.path.startswith("/messages/1/content/0") for finding in toolwire.check(refused, ANTHROPIC))


@pytest.mark.parametrize("thought", [THOUGHT, OMITTED])
def test_th_11_no_reasoning_item_is_referenced_that_the_provider_does_not_store(thought: dict[str, Any]) -> None:
    body = anthropic_turn([thought, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    reasoning = [
        item for item in responses_items(translated_body(body, ANTHROPIC, RESPONSES)) if item.get("type") == "reasoning"
    ]
    assert [item for item in reasoning if "id" in item and not item.get("encrypted_content")] == []
    response = responses_response(REASONING_ITEM, CALL_ITEM)
    outputs = [{"id": "call_1", "output": "18C"}]
    next_request = toolwire.continue_request(responses_request(store=False), response, outputs, RESPONSES)
    assert REASONING_ITEM in next_request["input"]


@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES])
def test_th_14_unsigned_reasoning_is_shown_and_null_is_no_reasoning(target: str) -> None:
    response = chat_response(chat_assistant(chat_call("call_1"), reasoning_content="Hm, Paris."))
    assert summary(target, translated_body(response, CHAT, target, "response"))["reasoning"] == "Hm, Paris."
    silent = chat_response(chat_assistant(chat_call("call_1"), reasoning_content=None))
    content = summary(target, translated_body(silent, CHAT, target, "response"))
    assert (content["reasoning"], len(content["calls"])) == ("", 1)


def test_th_15_text_and_signature_may_arrive_together() -> None:
    wire = anthropic_stream(*anthropic_block(0, THOUGHT), *anthropic_call_block(1, "toolu_1"))
    assert fold_body(ANTHROPIC, translate_stream_bytes(wire, ANTHROPIC, ANTHROPIC))["content"][0] == THOUGHT
    assert fold_stream(RESPONSES, translate_stream_bytes(wire, ANTHROPIC, RESPONSES))["reasoning"] == "Hm, Paris."


def test_th_16_thinking_between_server_calls_keeps_its_position() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    text = {"type": "text", "text": "Done."}
    body = anthropic_response(THOUGHT, search, result, OMITTED, text, stop_reason="end_turn")
    assert translated_body(body, ANTHROPIC, ANTHROPIC, "response") == body


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("low", "low"), ("high", "high"), ("xhigh", "xhigh"), ("max", "max"), ("minimal", None)],
)
def test_th_17_an_effort_is_mapped_exactly_or_its_change_is_reported(effort: str, expected: str | None) -> None:
    body = chat_request(reasoning_effort=effort)
    translated = translated_body(body, CHAT, ANTHROPIC).get("output_config", {}).get("effort")
    reported = has_loss_at(loss_paths(body, CHAT, ANTHROPIC), "/reasoning_effort")
    assert (translated == expected and not reported) if expected else reported
    restored = anthropic_request(output_config={"effort": "max"})
    assert translated_body(restored, ANTHROPIC, RESPONSES)["reasoning"]["effort"] == "max"


def test_th_18_a_signature_is_not_carried_over_to_the_next_block() -> None:
    plain = {**REASONING_ITEM, "id": "rs_2", "encrypted_content": None}
    message = responses_message("Well.")
    output = [REASONING_ITEM, plain, message]
    events = [event for index, item in enumerate(output) for event in responses_item_events(index, item)]
    frames = stream_frames(translate_stream_bytes(responses_stream(*events, output=output), RESPONSES, ANTHROPIC))
    signatures = [
        (frame["index"], frame["delta"]["signature"]) for frame in frames if "signature" in frame.get("delta", {})
    ]
    assert len({signature for _, signature in signatures if signature}) == len([s for _, s in signatures if s])
    assert len([index for index, signature in signatures if signature]) <= 1


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.2), ("top_p", 0.9)])
def test_th_19_sampling_beside_thinking_is_dropped_and_reported(field: str, value: float) -> None:
    body = chat_request(reasoning_effort="high", **{field: value})
    assert field not in translated_body(body, CHAT, ANTHROPIC)
    assert has_loss_at(loss_paths(body, CHAT, ANTHROPIC), f"/{field}")


@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES])
def test_th_20_reasoning_never_becomes_visible_text(target: str) -> None:
    body = chat_response({"role": "assistant", "content": "Sunny.", "reasoning_content": "Hm, Paris."}, "stop")
    assert summary(target, translated_body(body, CHAT, target, "response"))["text"] == "Sunny."
    wire = chat_stream({"reasoning_content": "Hm, Paris."}, {"content": "Sunny."}, finish_reason="stop")
    assert fold_stream(target, translate_stream_bytes(wire, CHAT, target))["text"] == "Sunny."
    response = anthropic_response(THOUGHT, {"type": "text", "text": "Sunny."}, stop_reason="end_turn")
    assert summary(CHAT, translated_body(response, ANTHROPIC, CHAT, "response"))["text"] == "Sunny."
