"""Streams of OpenRouter: fragments of reasoning entries, error chunks and trailing chunks."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.openrouter_translation import (
    OPENROUTER,
    chat_chunk_body,
    fold_wire,
    get_codec,
    read_chunks,
    sse_frames,
    translate_wire,
)
from tests.support.sdk import openrouter
from tests.support.sdk.streams import InvalidStream
from toolwire.canonical.content import Reasoning, ReasoningText, Text
from toolwire.canonical.events import PartDelta, PartDeltas
from toolwire.codec.interface import ResponseContext

CLAUDE_ENTRY = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SUMMARY_ENTRY = {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 0}
ENCRYPTED_ENTRY = {
    "type": "reasoning.encrypted",
    "data": "gAAA/+==",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 0,
}


def reasoning_chunk(text: str, **entry: Any) -> dict[str, Any]:
    return chat_chunk_body(
        {"content": "", "reasoning": text, "reasoning_details": [{**CLAUDE_ENTRY, "text": text, **entry}]}
    )


SIGNATURE_CHUNK = chat_chunk_body({"content": "", "reasoning_details": [{**CLAUDE_ENTRY, "signature": "c2ln/+=="}]})
SIGNED_STREAM = sse_frames(
    reasoning_chunk("Lo"),
    reasoning_chunk("ok."),
    SIGNATURE_CHUNK,
    chat_chunk_body({"content": "18C"}),
    chat_chunk_body({"content": ""}, "stop"),
)
ENCRYPTED_STREAM = sse_frames(
    chat_chunk_body({"reasoning": "Look.", "reasoning_details": [{**SUMMARY_ENTRY, "summary": "Look."}]}),
    chat_chunk_body({"reasoning_details": [ENCRYPTED_ENTRY]}),
    chat_chunk_body({"content": "18C"}),
    chat_chunk_body({}, "stop"),
)


def folded_parts(wire: bytes) -> tuple[Any, ...]:
    return fold_wire(wire).candidates[0].messages[0].parts


def test_fragments_of_an_entry_form_one_signed_reasoning() -> None:
    reasoning, text = folded_parts(SIGNED_STREAM)
    assert isinstance(reasoning, Reasoning)
    assert [block.text for block in reasoning.content if isinstance(block, ReasoningText)] == ["Look."]
    assert reasoning.signature is not None
    assert (reasoning.signature.issuer, reasoning.signature.data) == ("anthropic", "c2ln/+==")
    assert isinstance(text, Text)


def test_entries_with_one_index_and_two_types_stay_separate() -> None:
    summary, encrypted, _ = folded_parts(ENCRYPTED_STREAM)
    assert summary.content[0].text == "Look."
    assert (encrypted.signature.data, encrypted.id, encrypted.content) == ("gAAA/+==", "rs_1", ())


@pytest.mark.parametrize("wire", [SIGNED_STREAM, ENCRYPTED_STREAM])
def test_passed_stream_folds_to_the_same_response(wire: bytes) -> None:
    assert fold_wire(translate_wire(wire, OPENROUTER, OPENROUTER)) == fold_wire(wire)


def test_fragments_pass_through_unchanged() -> None:
    sent = [
        chunk["choices"][0]["delta"] for chunk in read_chunks(translate_wire(SIGNED_STREAM, OPENROUTER, OPENROUTER))
    ]
    received = [chunk["choices"][0]["delta"] for chunk in read_chunks(SIGNED_STREAM)]
    fragments = [
        [entry for delta in wire for entry in delta.get("reasoning_details") or ()] for wire in (sent, received)
    ]
    assert fragments[0] == fragments[1]
    assert "".join(delta.get("reasoning") or "" for delta in sent) == "Look."


def test_anthropic_client_gets_the_signature_once_on_its_block() -> None:
    frames = read_chunks(translate_wire(SIGNED_STREAM, OPENROUTER, "anthropic"))
    signatures = [frame for frame in frames if frame.get("delta", {}).get("type") == "signature_delta"]
    assert signatures == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln/+=="}}
    ]


def test_responses_client_gets_the_encrypted_item() -> None:
    frames = read_chunks(translate_wire(ENCRYPTED_STREAM, OPENROUTER, "openai-responses"))
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert [item.get("encrypted_content") for item in done] == [None, "gAAA/+==", None]


@pytest.mark.parametrize(("wire", "other"), [(SIGNED_STREAM, "anthropic"), (ENCRYPTED_STREAM, "openai-responses")])
def test_signatures_survive_the_round_trip(wire: bytes, other: str) -> None:
    back = translate_wire(translate_wire(wire, OPENROUTER, other), other, OPENROUTER)
    signatures = [
        (part.signature.issuer, part.signature.data)
        for part in folded_parts(wire)
        if isinstance(part, Reasoning) and part.signature
    ]
    signatures_back = [
        (part.signature.issuer, part.signature.data)
        for part in folded_parts(back)
        if isinstance(part, Reasoning) and part.signature
    ]
    assert signatures_back == signatures
    entries = openrouter.fold_body(back)["choices"][0]["message"]["reasoning_details"]
    text = "".join(entry.get("text") or entry.get("summary") or "" for entry in entries)
    assert text == "Look."


def test_signature_after_the_text_is_a_separate_entry() -> None:
    entry = {"type": "reasoning.text", "signature": "Z29v/+==", "format": "google-gemini-v1", "index": 0}
    wire = sse_frames(
        chat_chunk_body({"content": "18"}),
        chat_chunk_body({"content": "C", "reasoning_details": [entry]}),
        chat_chunk_body({}, "stop"),
    )
    parts = folded_parts(wire)
    assert [type(part) for part in parts] == [Text, Reasoning]
    assert parts[0].text == "18C"
    assert fold_wire(translate_wire(wire, OPENROUTER, OPENROUTER)) == fold_wire(wire)


def test_plain_reasoning_without_entries_decodes_as_in_chat() -> None:
    wire = sse_frames(
        chat_chunk_body({"reasoning": "Hm."}), chat_chunk_body({"content": "Hi"}), chat_chunk_body({}, "stop")
    )
    assert fold_wire(wire).candidates == fold_wire(wire, "openai-chat").candidates


def test_deltas_that_arrive_together_are_renumbered() -> None:
    decoder = get_codec(OPENROUTER).stream_decoder(ResponseContext())
    chunks = [chat_chunk_body({"content": text}) for text in ("It ", "is ", "cold ", "here.")]
    wire = sse_frames(reasoning_chunk("Look."), SIGNATURE_CHUNK, *chunks)
    deltas = [event for event in decoder.feed(wire) if isinstance(event, PartDelta | PartDeltas) and event.index]
    assert [(delta.index, delta.text) for delta in deltas] == [(1, "It "), (1, "is "), (1, "cold here.")]


def test_comments_are_skipped_and_the_usage_chunk_keeps_the_finish_reason() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}
    wire = b": OPENROUTER PROCESSING\n\n" + sse_frames(
        chat_chunk_body({"content": "Hi"}),
        chat_chunk_body({"content": ""}, "stop"),
        chat_chunk_body({"content": ""}, None, usage=usage),
    )
    response = fold_wire(wire)
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "end_turn"
    assert response.usage is not None
    assert response.usage.total == 3


def test_ex_3_error_chunk_fails_the_response_in_every_protocol() -> None:
    """EX-3: a 200 stream chunk `{error}` with empty choices became `response.completed`."""
    error = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
    for choices in ([], [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]):
        wire = sse_frames(chat_chunk_body({"content": "We"}), {**chat_chunk_body(), "choices": choices, "error": error})
        assert fold_wire(wire).error is not None
        assert read_chunks(translate_wire(wire, OPENROUTER, "openai-responses"))[-1]["type"] == "response.failed"
        assert read_chunks(translate_wire(wire, OPENROUTER, "anthropic"))[-1]["error"]["type"] == "overloaded_error"


def test_error_is_sent_in_a_chunk_that_the_sdk_reads() -> None:
    failed = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    start: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    message_start = {"type": "message_start", "message": {**start, "usage": {"input_tokens": 1, "output_tokens": 0}}}
    wire = b"event: message_start\ndata: " + json.dumps(message_start).encode() + b"\n\n" + failed
    translated = translate_wire(wire, "anthropic", OPENROUTER)
    last = read_chunks(translated)[-1]
    assert last["error"] == {"message": "busy", "code": 529, "metadata": {"error_type": "provider_overloaded"}}
    assert (last["id"], last["choices"][0]["finish_reason"]) == ("msg_1", "error")
    assert translated.endswith(b"data: [DONE]\n\n")
    with pytest.raises(InvalidStream, match="error 529: busy"):
        openrouter.fold_body(translated)


def test_truncated_stream_ends_with_an_error() -> None:
    translated = translate_wire(SIGNED_STREAM[:150], OPENROUTER, OPENROUTER)
    assert b'"error":{' in translated
    assert translated.endswith(b"data: [DONE]\n\n")


def test_invalid_utf8_inside_a_chunk_fails_the_stream() -> None:
    citation = {"type": "url_citation", "url_citation": {"url": "https://example.com/"}}
    wire = sse_frames(
        chat_chunk_body({"content": "Hi"}), chat_chunk_body({"annotations": [citation]}), chat_chunk_body({}, "stop")
    )
    invalid = wire.replace(b"example", b"ex\x80mple")
    assert fold_wire(invalid).error is not None
    assert translate_wire(invalid, OPENROUTER, OPENROUTER).endswith(b"data: [DONE]\n\n")


def test_free_text_call_is_streamed_as_a_function_call() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "shell", "input": ""}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "status": "in_progress"}
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": 'a "b'},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": '\n"'},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "input": 'a "b\n"'}},
        {"type": "response.completed", "response": {**head, "status": "completed"}},
    ]
    numbered = [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]
    (call,) = openrouter.fold_stream(translate_wire(sse_frames(*numbered), "openai-responses", OPENROUTER))["calls"]
    assert (call["name"], call["arguments"]) == ("shell", {"input": 'a "b\n"'})


@pytest.mark.parametrize("index", [[1], {"a": 1}, "first"])
def test_entries_with_an_invalid_index_are_decoded(index: Any) -> None:
    entry = {"type": "reasoning.text", "text": "Rain is likely.", "index": index}
    choice = {"index": 0, "delta": {"role": "assistant", "reasoning_details": [entry]}, "finish_reason": None}
    frame = json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
    translated = b"".join(tw.translate_stream([f"data: {frame}\n\ndata: [DONE]\n\n".encode()], OPENROUTER, "anthropic"))
    assert b'"thinking":"Rain is likely."' in translated
