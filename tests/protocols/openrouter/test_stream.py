"""OpenRouter streams: entries as they grow, errors that are chunks, and what is sent beside them."""

import json
from typing import Any

import pytest

from tests import sdk_openrouter
from tests.protocols.openrouter.through import ROUTER, chunk, chunks, codec, folded, sse, stream
from tests.sdk_stream import StreamRefused
from toolwire.canonical.content import Reasoning, ReasoningText, Text
from toolwire.canonical.events import PartDelta
from toolwire.codec.interface import Context

CLAUDE = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SUMMARY = {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "gAAA/+==", "id": "rs_1", "format": "openai-responses-v1", "index": 0}


def thought(text: str, **entry: Any) -> dict[str, Any]:
    return chunk({"content": "", "reasoning": text, "reasoning_details": [{**CLAUDE, "text": text, **entry}]})


SIGNATURE = chunk({"content": "", "reasoning_details": [{**CLAUDE, "signature": "c2ln/+=="}]})
SIGNED = sse(thought("Lo"), thought("ok."), SIGNATURE, chunk({"content": "18C"}), chunk({"content": ""}, "stop"))
ENCRYPTED = sse(
    chunk({"reasoning": "Look.", "reasoning_details": [{**SUMMARY, "summary": "Look."}]}),
    chunk({"reasoning_details": [SEALED]}),
    chunk({"content": "18C"}),
    chunk({}, "stop"),
)


def said(wire: bytes) -> tuple[Any, ...]:
    return folded(wire).candidates[0].messages[0].parts


def test_fragments_of_an_entry_are_one_signed_thought() -> None:
    first, text = said(SIGNED)
    assert isinstance(first, Reasoning)
    assert [one.text for one in first.content if isinstance(one, ReasoningText)] == ["Look."]
    assert first.seal is not None
    assert (first.seal.issuer, first.seal.data) == ("anthropic", "c2ln/+==")
    assert isinstance(text, Text)


def test_entries_of_one_index_and_two_types_are_two() -> None:
    summary, sealed, _ = said(ENCRYPTED)
    assert summary.content[0].text == "Look."
    assert (sealed.seal.data, sealed.id, sealed.content) == ("gAAA/+==", "rs_1", ())


@pytest.mark.parametrize("wire", [SIGNED, ENCRYPTED])
def test_at_home_it_folds_to_the_same(wire: bytes) -> None:
    assert folded(stream(wire, ROUTER, ROUTER)) == folded(wire)


def test_at_home_the_fragments_are_sent_as_they_came() -> None:
    again = [one["choices"][0]["delta"] for one in chunks(stream(SIGNED, ROUTER, ROUTER))]
    told = [one["choices"][0]["delta"] for one in chunks(SIGNED)]
    fragments = [[entry for delta in wire for entry in delta.get("reasoning_details") or ()] for wire in (again, told)]
    assert fragments[0] == fragments[1]
    assert "".join(delta.get("reasoning") or "" for delta in again) == "Look."


def test_a_signature_reaches_an_anthropic_client_once_and_on_its_block() -> None:
    frames = chunks(stream(SIGNED, ROUTER, "anthropic"))
    signatures = [one for one in frames if one.get("delta", {}).get("type") == "signature_delta"]
    assert signatures == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln/+=="}}
    ]


def test_an_encrypted_item_reaches_a_responses_client() -> None:
    frames = chunks(stream(ENCRYPTED, ROUTER, "openai-responses"))
    done = [one["item"] for one in frames if one["type"] == "response.output_item.done"]
    assert [item.get("encrypted_content") for item in done] == [None, "gAAA/+==", None]


@pytest.mark.parametrize(("wire", "other"), [(SIGNED, "anthropic"), (ENCRYPTED, "openai-responses")])
def test_there_and_back_the_proof_is_the_same(wire: bytes, other: str) -> None:
    back = stream(stream(wire, ROUTER, other), other, ROUTER)
    proofs = [(part.seal.issuer, part.seal.data) for part in said(wire) if isinstance(part, Reasoning) and part.seal]
    again = [(part.seal.issuer, part.seal.data) for part in said(back) if isinstance(part, Reasoning) and part.seal]
    assert again == proofs
    entries = sdk_openrouter.fold_body(back)["choices"][0]["message"]["reasoning_details"]
    text = "".join(entry.get("text") or entry.get("summary") or "" for entry in entries)
    assert text == "Look."


def test_a_proof_that_comes_after_the_text_is_an_entry_of_its_own() -> None:
    late = {"type": "reasoning.text", "signature": "Z29v/+==", "format": "google-gemini-v1", "index": 0}
    wire = sse(chunk({"content": "18"}), chunk({"content": "C", "reasoning_details": [late]}), chunk({}, "stop"))
    parts = said(wire)
    assert [type(part) for part in parts] == [Text, Reasoning]
    assert parts[0].text == "18C"
    assert folded(stream(wire, ROUTER, ROUTER)) == folded(wire)


def test_plain_reasoning_without_entries_is_told_as_in_chat() -> None:
    wire = sse(chunk({"reasoning": "Hm."}), chunk({"content": "Hi"}), chunk({}, "stop"))
    assert folded(wire).candidates == folded(wire, "openai-chat").candidates


def test_text_deltas_are_plain_also_when_parts_were_numbered_anew() -> None:
    decoder = codec(ROUTER).stream_decoder(Context())
    deltas = [event for event in decoder.feed(SIGNED) if isinstance(event, PartDelta) and event.text == "18C"]
    assert [(delta.index, delta.plain) for delta in deltas] == [(1, True)]


def test_comments_are_skipped_and_an_idle_usage_chunk_keeps_the_finish_reason() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}
    wire = b": OPENROUTER PROCESSING\n\n" + sse(
        chunk({"content": "Hi"}), chunk({"content": ""}, "stop"), chunk({"content": ""}, None, usage=usage)
    )
    whole = folded(wire)
    assert whole.candidates[0].stop is not None
    assert whole.candidates[0].stop.reason == "end_turn"
    assert whole.usage is not None
    assert whole.usage.total == 3


def test_ex_3_an_error_in_a_chunk_is_a_failure_everywhere() -> None:
    """EX-3: a 200 stream chunk `{error}` with empty choices became `response.completed`."""
    error = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
    for choices in ([], [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]):
        wire = sse(chunk({"content": "We"}), {**chunk(), "choices": choices, "error": error})
        assert folded(wire).error is not None
        assert chunks(stream(wire, ROUTER, "openai-responses"))[-1]["type"] == "response.failed"
        assert chunks(stream(wire, ROUTER, "anthropic"))[-1]["error"]["type"] == "overloaded_error"


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
    made = stream(wire, "anthropic", ROUTER)
    last = chunks(made)[-1]
    assert last["error"] == {"message": "busy", "code": 529, "metadata": {"error_type": "provider_overloaded"}}
    assert (last["id"], last["choices"][0]["finish_reason"]) == ("msg_1", "error")
    assert made.endswith(b"data: [DONE]\n\n")
    with pytest.raises(StreamRefused, match="error 529: busy"):
        sdk_openrouter.fold_body(made)


def test_a_cut_stream_still_ends_with_an_error() -> None:
    cut = stream(SIGNED[:150], ROUTER, ROUTER)
    assert b'"error":{' in cut
    assert cut.endswith(b"data: [DONE]\n\n")


def test_bytes_that_are_no_text_deep_in_a_chunk_break_the_stream() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "https://example.com/"}}
    wire = sse(chunk({"content": "Hi"}), chunk({"annotations": [cited]}), chunk({}, "stop"))
    spoilt = wire.replace(b"example", b"ex\x80mple")
    assert folded(spoilt).error is not None
    assert stream(spoilt, ROUTER, ROUTER).endswith(b"data: [DONE]\n\n")


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
    (call,) = sdk_openrouter.fold_stream(stream(sse(*numbered), "openai-responses", ROUTER))["calls"]
    assert (call["name"], call["arguments"]) == ("shell", {"input": 'a "b\n"'})
