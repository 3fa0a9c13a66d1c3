"""Anthropic responses that stop with `pause_turn`."""

import json
from typing import Any

from tests.support.codecs import decode_events
from tests.support.servers.http_responses import SSE_HEAD, transfer_chunk
from toolwire.canonical.content import Text
from toolwire.canonical.fold import ResponseAccumulator
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

WEB_SEARCH_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}
WEB_SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://a.example",
            "title": "A",
            "encrypted_content": "Zm9v",
            "page_age": None,
        }
    ],
}


def anthropic_message(stop: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


PAUSED_MESSAGE = anthropic_message(
    "pause_turn", {"type": "text", "text": "Let me look. "}, WEB_SEARCH_USE, WEB_SEARCH_RESULT
)
FINAL_MESSAGE = anthropic_message("end_turn", {"type": "text", "text": "It is sunny."})


def anthropic_stream_response(body: dict[str, Any]) -> bytes:
    """Encode the same response as a stream."""
    out: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {**body, "content": [], "stop_reason": None}})
    ]
    for index, block in enumerate(body["content"]):
        start = {**block, "text": ""} if block["type"] == "text" else block
        if block["type"] == "server_tool_use":
            start = {**block, "input": {}}
        out.append(("content_block_start", {"index": index, "content_block": start}))
        if block["type"] == "text":
            delta = {"type": "text_delta", "text": block["text"]}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        if block["type"] == "server_tool_use":
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        out.append(("content_block_stop", {"index": index}))
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    out += [("message_delta", {"delta": delta, "usage": body["usage"]}), ("message_stop", {})]
    wire = b"".join(b"event: %b\ndata: %b\n\n" % (k.encode(), json.dumps({"type": k, **v}).encode()) for k, v in out)
    return SSE_HEAD + transfer_chunk(wire) + b"0\r\n\r\n"


def decoded_outcome(protocol: str, wire: bytes, *, stream: bool) -> tuple[str, str, int | None]:
    if stream:
        accumulator = ResponseAccumulator()
        for event in decode_events(protocol, wire):
            accumulator.add(event)
        response = accumulator.response()
    else:
        response = PROTOCOLS[protocol].decode_response(wire, ResponseContext())
    (candidate,) = response.candidates
    texts = [part.text for message in candidate.messages for part in message.parts if isinstance(part, Text)]
    assert candidate.stop is not None
    assert response.usage is not None
    return "".join(texts), candidate.stop.reason, response.usage.output_tokens
