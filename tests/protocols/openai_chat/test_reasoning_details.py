"""`reasoning_details` of servers that are configured as plain Chat servers."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.codec.envelope import EnvelopeKey

KEY = EnvelopeKey([b"k" * 32])
DETAILS = [
    {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "c2VhbGVk", "format": "unknown", "id": "x1", "index": 1},
]
USER = {"role": "user", "content": "Hi"}
FIRST = {"model": "m", "max_tokens": 9, "messages": [USER]}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chat_response() -> dict[str, Any]:
    message = {"role": "assistant", "content": "So.", "reasoning": "Hm.", "reasoning_details": DETAILS}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chat_stream() -> bytes:
    fragments = [
        {"reasoning": "H", "reasoning_details": [{"type": "reasoning.text", "text": "H", "index": 0}]},
        {"reasoning": "m.", "reasoning_details": [{"type": "reasoning.text", "text": "m.", "index": 0}]},
        {"reasoning_details": [{key: value for key, value in DETAILS[0].items() if key != "text"}]},
        {"reasoning_details": [DETAILS[1]]},
        {"content": "So."},
    ]
    frames = [CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in fragments]
    frames.append(CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"


def anthropic_blocks(wire: bytes) -> list[dict[str, Any]]:
    """Return the thinking blocks of a stream, with their deltas joined."""
    blocks: list[dict[str, Any]] = []
    for line in wire.decode().splitlines():
        event = json.loads(line[6:]) if line.startswith("data: ") else {}
        if event.get("type") == "content_block_start":
            blocks.append(event["content_block"])
        elif event.get("type") == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name in ("thinking", "signature", "text"):
                block[name] = block.get(name, "") + delta[name] if name in delta else block.get(name)
    return blocks


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("host", ["generic", "openrouter"])
def test_sealed_reasoning_returns_to_the_server_that_issued_it(host: str, streamed: bool) -> None:
    if streamed:
        stream = tw.translate_stream([chat_stream()], "openai-chat", "anthropic", envelope_key=KEY, request=FIRST)
        content = [
            {name: value for name, value in block.items() if value is not None}
            for block in anthropic_blocks(b"".join(stream))
        ]
    else:
        content = tw.translate(
            chat_response(), "openai-chat", "anthropic", "response", envelope_key=KEY, request=FIRST
        ).value["content"]
    body = {"model": "m", "max_tokens": 9, "messages": [USER, {"role": "assistant", "content": content}, USER]}
    sent = tw.translate(body, "anthropic", "openai-chat", host=host, envelope_key=KEY)
    message = sent.value["messages"][1]
    entries = [{name: entry[name] for name in ("type", "signature", "data") if name in entry} for entry in DETAILS]
    received = message["reasoning_details"]
    assert [
        {name: entry[name] for name in entry if name in ("type", "signature", "data")} for entry in received
    ] == entries
    assert received[0]["text"] == "Hm."
    assert received[1]["id"] == "x1"


def test_signatures_of_other_vendors_are_not_sent_to_a_plain_server() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    content = [thinking, {"type": "text", "text": "So."}]
    body = {"model": "m", "max_tokens": 9, "messages": [USER, {"role": "assistant", "content": content}, USER]}
    sent = tw.translate(body, "anthropic", "openai-chat", host="generic")
    assert "reasoning_details" not in sent.value["messages"][1]


def test_details_pass_unchanged_between_chat_client_and_server() -> None:
    assert tw.translate(chat_response(), "openai-chat", "openai-chat", "response").value == chat_response()
    wire = b"".join(tw.translate_stream([chat_stream()], "openai-chat", "openai-chat")).decode()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in wire.splitlines() if line.startswith("data: {")]
    fragments = [fragment for delta in deltas for fragment in delta.get("reasoning_details", ())]
    assert [fragment.get("text") for fragment in fragments] == ["H", "m.", None, None]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "Hm."


def test_details_without_plain_text_are_reasoning() -> None:
    body = chat_response()
    del body["choices"][0]["message"]["reasoning"]
    content = tw.translate(body, "openai-chat", "anthropic", "response").value["content"]
    assert content[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def test_entries_with_a_recurring_index_start_again_after_text() -> None:
    deltas = [
        {"reasoning_details": [{"type": "reasoning.text", "text": "One.", "index": 0}]},
        {"content": "So."},
        {"reasoning_details": [{"type": "reasoning.text", "text": "Two.", "index": 0}]},
    ]
    frames = [CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    frames.append(CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    wire = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"
    blocks = anthropic_blocks(b"".join(tw.translate_stream([wire], "openai-chat", "anthropic")))
    assert [block.get("thinking") for block in blocks if block["type"] == "thinking"] == ["One.", "Two."]
