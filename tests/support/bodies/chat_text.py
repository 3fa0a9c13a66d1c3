"""Chat Completions and Ollama responses with a given text, whole and as streams."""

import json
from collections.abc import Iterable
from typing import Any


def chat_body(text: str, *, finish: str = "stop", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls is not None:
        message["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "local",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def chat_call(name: str, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_chunk(delta: dict[str, Any], finish: str | None = None, *, index: int = 0) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "local", "choices": choices}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chat_stream(pieces: Iterable[str], *, finish: str = "stop") -> list[bytes]:
    chunks = [chat_chunk({"role": "assistant", "content": ""})]
    chunks += [chat_chunk({"content": piece}) for piece in pieces]
    return [*chunks, chat_chunk({}, finish), b"data: [DONE]\n\n"]


def ollama_stream(pieces: Iterable[str]) -> list[bytes]:
    def line(content: str, **more: Any) -> bytes:
        message = {"role": "assistant", "content": content}
        return (
            json.dumps({"model": "local", "created_at": "2026-01-01T00:00:00Z", "message": message, **more}).encode()
            + b"\n"
        )

    lines = [line(piece, done=False) for piece in pieces]
    return [*lines, line("", done=True, done_reason="stop", prompt_eval_count=1, eval_count=2)]
