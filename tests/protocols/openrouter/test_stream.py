"""OpenRouter streams: entries as they grow, errors that are chunks, and what is sent beside them."""

import json
from typing import Any

import pytest

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
from toolwire.canonical.events import PartDelta
from toolwire.codec.interface import ResponseContext

CLAUDE = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SUMMARY = {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "gAAA/+==", "id": "rs_1", "format": "openai-responses-v1", "index": 0}


def thought(text: str, **entry: Any) -> dict[str, Any]:
    return chat_chunk_body({"content": "", "reasoning": text, "reasoning_details": [{**CLAUDE, "text": text, **entry}]})


SIGNATURE = chat_chunk_body({"content": "", "reasoning_details": [{**CLAUDE, "signature": "c2ln/+=="}]})
SIGNED = sse_frames(
    thought("Lo"),
    thought("ok."),
    SIGNATURE,
    chat_chunk_body({"content": "18C"}),
    chat_chunk_body({"content": ""}, "stop"),
)
ENCRYPTED = sse_frames(
    chat_chunk_body({"reasoning": "Look.", "reasoning_details": [{**SUMMARY, "summary": "Look."}]}),
    chat_chunk_body({"reasoning_details": [SEALED]}),
    chat_chunk_body({"content": "18C"}),
    chat_chunk_body({}, "stop"),
)


def said(wire: bytes) -> tuple[Any, ...]:
    return fold_wire(wire).candidates[0].messages[0].parts


def test_fragments_of_an_entry_are_one_signed_thought() -> None:
    first, text = said(SIGNED)
    assert isinstance(first, Reasoning)
    assert [one.text for one in first.content if isinstance(one, ReasoningText)] == ["Look."]
    assert first.signature is not None
    assert (first.signature.issuer, first.signature.data) == ("anthropic", "c2ln/+==")
    assert isinstance(text, Text)


def test_entries_of_one_index_and_two_types_are_two() -> None:
    summary, sealed, _ = said(ENCRYPTED)
    assert summary.content[0].text == "Look."
    assert (sealed.signature.data, sealed.id, sealed.content) == ("gAAA/+==", "rs_1", ())


@pytest.mark.parametrize("wire", [SIGNED, ENCRYPTED])
def test_at_home_it_folds_to_the_same(wire: bytes) -> None:
    assert fold_wire(translate_wire(wire, OPENROUTER, OPENROUTER)) == fold_wire(wire)


def test_at_home_the_fragments_are_sent_as_they_came() -> None:
    again = [one["choices"][0]["delta"] for one in read_chunks(translate_wire(SIGNED, OPENROUTER, OPENROUTER))]
    told = [one["choices"][0]["delta"] for one in read_chunks(SIGNED)]
    fragments = [[entry for delta in wire for entry in delta.get("reasoning_details") or ()] for wire in (again, told)]
    assert fragments[0] == fragments[1]
    assert "".join(delta.get("reasoning") or "" for delta in again) == "Look."


def test_a_signature_reaches_an_anthropic_client_once_and_on_its_block() -> None:
    frames = read_chunks(translate_wire(SIGNED, OPENROUTER, "anthropic"))
    signatures = [one for one in frames if one.get("delta", {}).get("type") == "signature_delta"]
    assert signatures == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln/+=="}}
    ]


def test_an_encrypted_item_reaches_a_responses_client() -> None:
    frames = read_chunks(translate_wire(ENCRYPTED, OPENROUTER, "openai-responses"))
    done = [one["item"] for one in frames if one["type"] == "response.output_item.done"]
    assert [item.get("encrypted_content") for item in done] == [None, "gAAA/+==", None]


@pytest.mark.parametrize(("wire", "other"), [(SIGNED, "anthropic"), (ENCRYPTED, "openai-responses")])
def test_there_and_back_the_proof_is_the_same(wire: bytes, other: str) -> None:
    back = translate_wire(translate_wire(wire, OPENROUTER, other), other, OPENROUTER)
    proofs = [
        (part.signature.issuer, part.signature.data)
        for part in said(wire)
        if isinstance(part, Reasoning) and part.signature
    ]
    again = [
        (part.signature.issuer, part.signature.data)
        for part in said(back)
        if isinstance(part, Reasoning) and part.signature
    ]
    assert again == proofs
    entries = openrouter.fold_body(back)["choices"][0]["message"]["reasoning_details"]
    text = "".join(entry.get("text") or entry.get("summary") or "" for entry in entries)
    assert text == "Look."


def test_a_proof_that_comes_after_the_text_is_an_entry_of_its_own() -> None:
    late = {"type": "reasoning.text", "signature": "Z29v/+==", "format": "google-gemini-v1", "index": 0}
    wire = sse_frames(
        chat_chunk_body({"content": "18"}),
        chat_chunk_body({"content": "C", "reasoning_details": [late]}),
        chat_chunk_body({}, "stop"),
    )
    parts = said(wire)
    assert [type(part) for part in parts] == [Text, Reasoning]
    assert parts[0].text == "18C"
    assert fold_wire(translate_wire(wire, OPENROUTER, OPENROUTER)) == fold_wire(wire)


def test_plain_reasoning_without_entries_is_told_as_in_chat() -> None:
    wire = sse_frames(
        chat_chunk_body({"reasoning": "Hm."}), chat_chunk_body({"content": "Hi"}), chat_chunk_body({}, "stop")
    )
    assert fold_wire(wire).candidates == fold_wire(wire, "openai-chat").candidates


def test_text_deltas_are_plain_also_when_parts_were_numbered_anew() -> None:
    decoder = get_codec(OPENROUTER).stream_decoder(ResponseContext())
    deltas = [event for event in decoder.feed(SIGNED) if isinstance(event, PartDelta) and event.text == "18C"]
    assert [(delta.index, delta.plain) for delta in deltas] == [(1, True)]


def test_comments_are_skipped_and_an_idle_usage_chunk_keeps_the_finish_reason() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}
    wire = b": OPENROUTER PROCESSING\n\n" + sse_frames(
        chat_chunk_body({"content": "Hi"}),
        chat_chunk_body({"content": ""}, "stop"),
        chat_chunk_body({"content": ""}, None, usage=usage),
    )
    whole = fold_wire(wire)
    assert whole.candidates[0].stop is not None
    assert whole.candidates[0].stop.reason == "end_turn"
    assert whole.usage is not None
    assert whole.usage.total == 3


def test_ex_3_an_error_in_a_chunk_is_a_failure_everywhere() -> None:
    """EX-3: a 200 stream chunk `{error}` with empty choices became `response.completed`."""
    error = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
    for choices in ([], [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]):
        wire = sse_frames(chat_chunk_body({"content": "We"}), {**chat_chunk_body(), "choices": choices, "error": error})
        assert fold_wire(wire).error is not None
        assert read_chunks(translate_wire(wire, OPENROUTER, "openai-responses"))[-1]["type"] == "response.failed"
        assert read_chunks(translate_wire(wire, OPENROUTER, "anthropic"))[-1]["error"]["type"] == "overloaded_error"


def test_an_error_is_sent_in_a_chunk_that_the_sdk_reads() -> None:
    failed = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    start: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    begun = {"type": "message_start", "message": {**start, "usage": {"input_tokens": 1, "output_tokens": 0}}}
    wire = b"event: message_start\ndata: " + json.dumps(begun).encode() + b"\n\n" + failed
    made = translate_wire(wire, "anthropic", OPENROUTER)
    last = read_chunks(made)[-1]
    assert last["error"] == {"message": "busy", "code": 529, "metadata": {"error_type": "provider_overloaded"}}
    assert (last["id"], last["choices"][0]["finish_reason"]) == ("msg_1", "error")
    assert made.endswith(b"data: [DONE]\n\n")
    with pytest.raises(InvalidStream, match="error 529: busy"):
        openrouter.fold_body(made)


def test_a_cut_stream_still_ends_with_an_error() -> None:
    cut = translate_wire(SIGNED[:150], OPENROUTER, OPENROUTER)
    assert b'"error":{' in cut
    assert cut.endswith(b"data: [DONE]\n\n")


def test_bytes_that_are_no_text_deep_in_a_chunk_break_the_stream() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "https://example.com/"}}
    wire = sse_frames(
        chat_chunk_body({"content": "Hi"}), chat_chunk_body({"annotations": [cited]}), chat_chunk_body({}, "stop")
    )
    spoilt = wire.replace(b"example", b"ex\x80mple")
    assert fold_wire(spoilt).error is not None
    assert translate_wire(spoilt, OPENROUTER, OPENROUTER).endswith(b"data: [DONE]\n\n")


def test_free_text_is_streamed_as_the_argument_of_a_function() -> None:
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
