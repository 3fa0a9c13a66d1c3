"""Tool cycles of each protocol: the request, the provider's response, and the client's next request."""

import json
from typing import Any

from toolwire.canonical.fold import fold, unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

TOOL_NAME, TOOL_ARGUMENTS, TOOL_OUTPUT = "get_weather", {"city": "Paris"}, "18 degrees"

_CHAT: dict[str, Any] = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m"}


def openrouter_call_response(*details: dict[str, Any]) -> dict[str, Any]:
    function = {"name": TOOL_NAME, "arguments": '{"city":"Paris"}'}
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_details": list(details),
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    return {**_CHAT, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def anthropic_call_response(*blocks: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "toolu_1", "name": TOOL_NAME, "input": TOOL_ARGUMENTS}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [*blocks, call],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 7},
    }


def responses_call_response(*items: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "call_1", "name": TOOL_NAME, "arguments": '{"city":"Paris"}'}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [*items, call],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def gemini_call_response(*parts: dict[str, Any]) -> dict[str, Any]:
    content = {"parts": list(parts), "role": "model"}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "responseId": "r1"}


def interactions_call_response(*steps: dict[str, Any]) -> dict[str, Any]:
    call = {"type": "function_call", "id": "call_1", "name": TOOL_NAME, "arguments": TOOL_ARGUMENTS}
    return {"id": "v1_x", "object": "interaction", "status": "requires_action", "steps": [*steps, call]}


def gemini_call_part(**fields: Any) -> dict[str, Any]:
    return {"functionCall": {"id": "call_1", "name": TOOL_NAME, "args": TOOL_ARGUMENTS}, **fields}


FIRST_REQUESTS: dict[str, dict[str, Any]] = {
    "anthropic": {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Weather?"}]},
    "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]},
    "openai-responses": {"model": "m", "input": [{"type": "message", "role": "user", "content": "Weather?"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Weather?"}]}]},
    "gemini-interactions": {
        "model": "m",
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "Weather?"}]}],
    },
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]},
    "openrouter": {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]},
}
HISTORY_FIELDS = {"openai-responses": "input", "gemini": "contents", "gemini-interactions": "input"}


def encode_response_stream(body: dict[str, Any], protocol: str) -> bytes:
    """Encode a response body as the stream that its provider would send."""
    codec = PROTOCOLS[protocol]
    encoder = codec.stream_encoder(ResponseContext())
    response = codec.decode_response(json.dumps(body).encode(), ResponseContext())
    return encoder.encode(unfold(response)) + encoder.close()


def decode_response_stream(stream: bytes, protocol: str) -> dict[str, Any]:
    """Decode the response that a client accumulates from a stream."""
    codec = PROTOCOLS[protocol]
    decoder = codec.stream_decoder(ResponseContext())
    response = fold([*decoder.feed(stream), *decoder.close()])
    body: dict[str, Any] = json.loads(codec.encode_response(response, ResponseContext()).to_bytes())
    return body


def next_request(request: dict[str, Any], response: dict[str, Any], protocol: str) -> dict[str, Any]:
    """Return the client's next request: the echoed response and the results of its calls."""
    name = HISTORY_FIELDS.get(protocol, "messages")
    return {**request, name: [*request[name], *_ECHOES[protocol](response)]}


def _echo_anthropic(response: dict[str, Any]) -> list[Any]:
    content = response["content"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": TOOL_OUTPUT}
        for block in content
        if block["type"] == "tool_use"
    ]
    messages = [{"role": "assistant", "content": content}]
    return [*messages, {"role": "user", "content": results or "Go on."}]


def _echo_responses(response: dict[str, Any]) -> list[Any]:
    """Echo each item with its id, and reasoning without a status, as Codex does."""
    items = [
        {name: value for name, value in item.items() if name != "status" or item["type"] != "reasoning"}
        for item in response["output"]
    ]
    calls = [item for item in items if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": TOOL_OUTPUT} for call in calls]
    return [*items, *(results or [{"type": "message", "role": "user", "content": "Go on."}])]


def _echo_gemini(response: dict[str, Any]) -> list[Any]:
    """Echo as Gemini CLI does: drop thoughts, keep signatures on their parts, and give each call an id."""
    received = [part for part in response["candidates"][0]["content"]["parts"] if not part.get("thought")]
    parts: list[Any] = []
    results: list[Any] = []
    for index, part in enumerate(received):
        echoed = part
        if call := part.get("functionCall"):
            call = {**call, "id": call.get("id") or f"{call['name']}_{index}"}
            echoed = {**part, "functionCall": call}
            result = {"id": call["id"], "name": call["name"], "response": {"output": TOOL_OUTPUT}}
            results.append({"functionResponse": result})
        parts.append(echoed)
    return [{"role": "model", "parts": parts}, {"role": "user", "parts": results or [{"text": "Go on."}]}]


def _echo_interactions(response: dict[str, Any]) -> list[Any]:
    calls = [step for step in response["steps"] if step["type"] == "function_call"]
    results = [
        {"type": "function_result", "call_id": call["id"], "name": call["name"], "result": TOOL_OUTPUT}
        for call in calls
    ]
    user_input = {"type": "user_input", "content": [{"type": "text", "text": "Go on."}]}
    return [*response["steps"], *(results or [user_input])]


def _echo_chat(response: dict[str, Any]) -> list[Any]:
    message = response["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": TOOL_OUTPUT} for call in message.get("tool_calls") or ()
    ]
    return [message, *(results or [{"role": "user", "content": "Go on."}])]


def _echo_ollama(response: dict[str, Any]) -> list[Any]:
    message = response["message"]
    results = [
        {"role": "tool", "tool_name": call["function"]["name"], "content": TOOL_OUTPUT}
        for call in message.get("tool_calls") or ()
    ]
    return [message, *(results or [{"role": "user", "content": "Go on."}])]


_ECHOES = {
    "anthropic": _echo_anthropic,
    "openai-chat": _echo_chat,
    "openai-responses": _echo_responses,
    "gemini": _echo_gemini,
    "gemini-interactions": _echo_interactions,
    "ollama": _echo_ollama,
    "openrouter": _echo_chat,
}
