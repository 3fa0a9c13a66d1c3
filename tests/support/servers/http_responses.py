"""Raw HTTP responses and SSE events for scripted upstreams."""

import json
from typing import Any


def chat_sse_event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


STREAM_START = chat_sse_event({"role": "assistant", "content": "It is"}) + chat_sse_event({"content": " sunny"})
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def transfer_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def http_response(status: str, body: bytes, content_type: str = "application/json", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def openai_error_body(message: str, kind: str = "server_error") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()


_CHAT_RESPONSE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
}
_CHAT_USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
CHAT_BODY_WITHOUT_USAGE = json.dumps(_CHAT_RESPONSE).encode()
CHAT_BODY = json.dumps({**_CHAT_RESPONSE, "usage": _CHAT_USAGE}).encode()
CHAT_RESPONSE = http_response("200 OK", CHAT_BODY)
CHAT_STREAM = (
    SSE_HEAD
    + transfer_chunk(STREAM_START)
    + transfer_chunk(chat_sse_event({}, "stop") + b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)
BUSY_RESPONSE = http_response("503 Busy", openai_error_body("busy"), headers="retry-after: 0\r\n")
