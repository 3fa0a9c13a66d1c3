"""Requests, upstream responses, and the responses that clients must receive."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from benchmarks.workloads import anthropic_request, small_request

MARK = b"bench-"
DELTAS = 300
STALLED = "stalled"

_TEXT = "I look for the report on the outage first."
_CALL = "call_5Xn0aTq2RrJp8vKdLm3Yw7Zb"
_ARGUMENTS = {"query": "report on the outage of last Tuesday", "limit": 5}
_HEAD = {"id": "chatcmpl-C9fX2mQ", "created": 1_790_000_000, "system_fingerprint": None, "service_tier": "default"}
_USAGE = {
    "prompt_tokens": 812,
    "completion_tokens": 64,
    "total_tokens": 876,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}

ResponseSummary = tuple[str, str, Any, str]
"""A response in any protocol: text, call id, call input and stop reason."""


class Workload(Struct, frozen=True, kw_only=True):
    """A request, the upstream's response, and the limits of its cost."""

    name: str
    path: str
    body: bytes
    answer: bytes
    streamed: bool
    expected: ResponseSummary
    parse: Callable[[bytes], ResponseSummary]
    # Bytes that the request must still contain when it reaches the upstream.
    required_bytes: tuple[bytes, ...]
    # The maximum cost as a multiple of nginx.
    limit: float | None
    # The minimum cost of LiteLLM as a multiple of toolwire.
    field: float | None = None
    # Requests per slice, and the same for LiteLLM.
    count: int
    field_count: int

    @property
    def model(self) -> str:
        return MARK.decode() + self.name


def workloads() -> list[Workload]:
    small, large = json.loads(small_request()), json.loads(anthropic_request())
    return [
        _workload("W1", small, limit=8, field=50, count=1000, field_count=20),
        _workload("W2", large, limit=15, count=40, field_count=8),
        _workload("W3b", small, streamed=True, limit=8, field=50, count=80, field_count=2),
        _workload("W4", small, same_protocol=True, limit=6, count=1000, field_count=20),
        _workload("W4L", large, same_protocol=True, count=40, field_count=8),
        _workload("W4b", small, same_protocol=True, streamed=True, limit=6, count=80, field_count=2),
        _workload(STALLED, small, streamed=True),
    ]


def _workload(
    name: str,
    request: dict[str, Any],
    *,
    same_protocol: bool = False,
    streamed: bool = False,
    limit: float | None = None,
    field: float | None = None,
    count: int = 0,
    field_count: int = 0,
) -> Workload:
    model = MARK.decode() + name
    required_bytes = [tool["name"] for tool in request["tools"]]
    required_bytes += [
        block["id"]
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_use"
    ]
    body = (chat_request(request) if same_protocol else request) | {"model": model}
    if streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}} if same_protocol else {"stream": True}
    return Workload(
        name=name,
        path="/v1/chat/completions" if same_protocol else "/v1/messages",
        body=_json(body),
        answer=_answer_stream(model) if streamed else _answer(model),
        streamed=streamed,
        expected=_delta_summary() if streamed else (_TEXT, _CALL, _ARGUMENTS, "tool_use"),
        parse=_PARSERS[same_protocol, streamed],
        required_bytes=tuple(mark.encode() for mark in required_bytes),
        limit=limit,
        field=field,
        count=count,
        field_count=field_count,
    )


def chat_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return an Anthropic request as Chat Completions."""
    messages: list[dict[str, Any]] = []
    if "system" in request:
        messages.append({"role": "system", "content": request["system"][0]["text"]})
    for message in request["messages"]:
        if isinstance(message["content"], str):
            messages.append(message)
        elif message["role"] == "assistant":
            text, call = message["content"]
            function = {"name": call["name"], "arguments": json.dumps(call["input"], separators=(",", ":"))}
            calls = [{"id": call["id"], "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": text["text"], "tool_calls": calls})
        else:
            (result,) = message["content"]
            messages.append({"role": "tool", "tool_call_id": result["tool_use_id"], "content": result["content"]})
    functions = [
        {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
        for tool in request["tools"]
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"max_completion_tokens": request["max_tokens"], "tools": tools, "messages": messages}


# ---- upstream responses in OpenAI's format


def _answer(model: str) -> bytes:
    function = {"name": "search_files", "arguments": _json(_ARGUMENTS).decode()}
    message = {
        "role": "assistant",
        "content": _TEXT,
        "tool_calls": [{"id": _CALL, "type": "function", "function": function}],
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    return _json(_HEAD | {"object": "chat.completion", "model": model, "choices": [choice], "usage": _USAGE})


def _answer_stream(model: str) -> bytes:
    first = {"index": 0, "id": _CALL, "type": "function", "function": {"name": "search_files", "arguments": ""}}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"content": word} for word in _text_deltas()]
    deltas += [{"tool_calls": [first]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": fragment}}]} for fragment in _argument_deltas()]
    choices: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": "tool_calls"})
    head = _HEAD | {"object": "chat.completion.chunk", "model": model}
    frames = [_json(head | {"choices": [{"index": 0, "logprobs": None} | choice], "usage": None}) for choice in choices]
    frames += [_json(head | {"choices": [], "usage": _USAGE}), b"[DONE]"]
    return b"".join(b"data: %b\n\n" % frame for frame in frames)


def _text_deltas() -> list[str]:
    return [f" word{number}" for number in range(DELTAS // 2)]


def _argument_deltas() -> list[str]:
    text = json.dumps({"query": "x" * (DELTAS // 2 * 8 - 13)})
    return [text[start : start + 8] for start in range(0, len(text), 8)]


def _delta_summary() -> ResponseSummary:
    return "".join(_text_deltas()), _CALL, json.loads("".join(_argument_deltas())), "tool_use"


# ---- responses for the client


def _parse_anthropic(body: bytes) -> ResponseSummary:
    value = json.loads(body)
    text, call = value["content"]
    return text["text"], call["id"], call["input"], value["stop_reason"]


def _parse_chat(body: bytes) -> ResponseSummary:
    (choice,) = json.loads(body)["choices"]
    (call,) = choice["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    return choice["message"]["content"], call["id"], arguments, _reason(choice["finish_reason"])


def _parse_anthropic_stream(body: bytes) -> ResponseSummary:
    text = arguments = call = reason = ""
    complete = False
    for event in _frames(body):
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                call += event["content_block"]["id"]
            case "content_block_delta":
                delta = event["delta"]
                text += delta.get("text", "")
                arguments += delta.get("partial_json", "")
            case "message_delta":
                reason = event["delta"]["stop_reason"]
            case "message_stop":
                complete = True
            case _:
                pass
    return text, call, json.loads(arguments), reason if complete else "no end"


def _parse_chat_stream(body: bytes) -> ResponseSummary:
    text = arguments = call = reason = ""
    for event in _frames(body):
        for choice in event["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            for fragment in delta.get("tool_calls") or ():
                call += fragment.get("id") or ""
                arguments += fragment["function"].get("arguments") or ""
            reason = choice.get("finish_reason") or reason
    complete = body.rstrip().endswith(b"[DONE]")
    return text, call, json.loads(arguments), _reason(reason) if complete else "no end"


def _reason(word: str) -> str:
    return "tool_use" if word == "tool_calls" else word


def _frames(body: bytes) -> Iterator[Any]:
    return (json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {"))


_PARSERS: dict[tuple[bool, bool], Callable[[bytes], ResponseSummary]] = {
    (False, False): _parse_anthropic,
    (True, False): _parse_chat,
    (False, True): _parse_anthropic_stream,
    (True, True): _parse_chat_stream,
}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
