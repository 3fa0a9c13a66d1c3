"""Minimal valid bodies and streams of Ollama's native chat API."""

import json
from collections.abc import Sequence
from typing import Any

Body = dict[str, Any]

USER_MESSAGE: Body = {"role": "user", "content": "Go on."}
PARIS_ARGUMENTS: Body = {"city": "Paris"}


def ollama_request(*messages: Body, **fields: Any) -> Body:
    return {"model": "qwen3", "messages": list(messages or (USER_MESSAGE,)), "stream": False, **fields}


def ollama_call(call_id: str | None = None, name: str = "get_weather", arguments: Any = None) -> Body:
    issued = {} if call_id is None else {"id": call_id}
    return {**issued, "function": {"name": name, "arguments": PARIS_ARGUMENTS if arguments is None else arguments}}


def ollama_assistant(*calls: Body, **fields: Any) -> Body:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **fields}


def ollama_result(call_id: str | None = None, content: str = "18C", name: str = "get_weather") -> Body:
    answered = {} if call_id is None else {"tool_call_id": call_id}
    return {"role": "tool", "content": content, "tool_name": name, **answered}


def ollama_turn(calls: Sequence[Body], results: Sequence[Body], **fields: Any) -> Body:
    return ollama_request(USER_MESSAGE, ollama_assistant(*calls), *results, **fields)


def ollama_line(message: Body, **fields: Any) -> Body:
    return {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False, **fields}


def ollama_response(message: Body, done_reason: str = "stop", **fields: Any) -> Body:
    last_fields = {"done": True, "done_reason": done_reason, "prompt_eval_count": 9, "eval_count": 7}
    return ollama_line(message, **last_fields, **fields)


def ollama_stream(*messages: Body, done_reason: str = "stop") -> bytes:
    last = ollama_response({"role": "assistant", "content": ""}, done_reason)
    lines = [*(ollama_line(message) for message in messages), last]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
