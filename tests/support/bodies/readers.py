"""Readers of plain bodies and streams that use none of toolwire's code."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.protocols import GEMINI, OLLAMA, RESPONSES
from tests.support.sdk.validation import Call


def stream_frames(wire: bytes) -> list[Any]:
    """Return the JSON payloads of an event stream in order.

    `[DONE]` and comments are skipped. Gemini's errors are bare JSON without SSE framing.
    """
    if wire.startswith(b"{"):
        return [json.loads(line) for line in wire.splitlines() if line]
    payloads = [
        line.removeprefix("data:").strip() for line in wire.decode().split("\n") if line.startswith(("data:", "{"))
    ]
    return [json.loads(payload) for payload in payloads if payload != "[DONE]"]


def frame_types(wire: bytes) -> list[str]:
    return [frame["type"] for frame in stream_frames(wire)]


def tool_calls_in(protocol: str, body: Any) -> list[Call]:
    """Return every client-side call of a request or response, in order."""
    match protocol:
        case "anthropic":
            return [
                {"id": block["id"], "name": block["name"], "arguments": block["input"]}
                for block in _blocks(body)
                if block["type"] == "tool_use"
            ]
        case "openai-chat" | "openrouter":
            return [_chat_call(call) for message in _messages(body) for call in message.get("tool_calls") or ()]
        case "openai-responses":
            return [
                {"id": item["call_id"], "name": item["name"], "arguments": _responses_arguments(item)}
                for item in responses_items(body)
                if item.get("type") in ("function_call", "custom_tool_call")
            ]
        case "gemini":
            calls = [part["functionCall"] for part in gemini_parts(body) if "functionCall" in part]
            return [{"id": call.get("id"), "name": call["name"], "arguments": call.get("args")} for call in calls]
        case "gemini-interactions":
            return [
                {"id": step["id"], "name": step["name"], "arguments": step["arguments"]}
                for step in interaction_steps(body)
                if step["type"] == "function_call"
            ]
        case _:
            calls = [call for message in _messages(body) for call in message.get("tool_calls") or ()]
            return [_ollama_call(call) for call in calls]


def tool_results_in(protocol: str, body: Any) -> list[tuple[Any, str]]:
    """Return the id and text of every tool result of a request, in order."""
    match protocol:
        case "anthropic":
            blocks = [block for block in _blocks(body) if block["type"] == "tool_result"]
            return [(block["tool_use_id"], content_text(block.get("content"))) for block in blocks]
        case "openai-chat" | "openrouter" | "ollama":
            answers = [message for message in body["messages"] if message["role"] == "tool"]
            return [(message.get("tool_call_id"), content_text(message["content"])) for message in answers]
        case "openai-responses":
            outputs = [item for item in responses_items(body) if str(item.get("type")).endswith("_call_output")]
            return [(item["call_id"], content_text(item["output"])) for item in outputs]
        case "gemini":
            results = [part["functionResponse"] for part in gemini_parts(body) if "functionResponse" in part]
            return [(result.get("id"), _gemini_text(result["response"])) for result in results]
        case _:
            results = [step for step in interaction_steps(body) if step["type"] == "function_result"]
            return [(step["call_id"], _object_text(step["result"])) for step in results]


def declared_schemas(protocol: str, body: Any) -> dict[str, Any]:
    """Return name and schema of every declared function; None if a tool takes raw text or has no schema."""
    match protocol:
        case "anthropic":
            return {tool["name"]: tool.get("input_schema") for tool in body.get("tools") or ()}
        case "openai-chat" | "openrouter" | "ollama":
            declared = [tool[tool["type"]] for tool in body.get("tools") or ()]
            return {tool["name"]: tool.get("parameters") for tool in declared}
        case "gemini":
            bags = [bag.get("functionDeclarations", ()) for bag in body.get("tools") or ()]
            return {tool["name"]: tool.get("parametersJsonSchema") for bag in bags for tool in bag}
        case _:
            declared = [tool for tool in body.get("tools") or () if "name" in tool]
            return {tool["name"]: tool.get("parameters") for tool in declared}


def declared_names(protocol: str, body: Any) -> list[Any]:
    """Return the tool name that each result of a request states; None if the protocol has no such field."""
    match protocol:
        case "gemini":
            return [part["functionResponse"]["name"] for part in gemini_parts(body) if "functionResponse" in part]
        case "gemini-interactions":
            return [step["name"] for step in interaction_steps(body) if step["type"] == "function_result"]
        case "ollama":
            return [message["tool_name"] for message in body["messages"] if message["role"] == "tool"]
        case _:
            return [None for _ in tool_results_in(protocol, body)]


def gemini_parts(body: Any) -> list[Any]:
    """Return the parts of Gemini's contents or candidates, or of a single content."""
    if "candidates" in body:
        holders = [candidate["content"] for candidate in body["candidates"]]
    else:
        holders = body.get("contents", [body])
    return [part for content in holders for part in content.get("parts", ())]


def interaction_steps(body: Any) -> list[Any]:
    """Return the steps of an interaction, of a request or a response."""
    items = body.get("steps", body.get("input"))
    return items if isinstance(items, list) else []


def responses_items(body: Any) -> list[Any]:
    items = body if isinstance(body, list) else body.get("output", body.get("input"))
    return items if isinstance(items, list) else []


def content_text(content: Any) -> str:
    """Return the text of a content, given as a string or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def message_roles(body: Any) -> list[str]:
    return [message["role"] for message in body["messages"]]


def _messages(body: Any) -> list[Any]:
    if "choices" in body:
        return [choice["message"] for choice in body["choices"]]
    if "message" in body:
        return [body["message"]]
    return list(body["messages"]) if "messages" in body else [body]


def _blocks(body: Any) -> Iterator[Any]:
    for message in _messages(body):
        content = message["content"]
        yield from content if isinstance(content, list) else ()


def _chat_call(call: Any) -> Call:
    if call.get("type") == "custom":
        return {"id": call["id"], "name": call["custom"]["name"], "arguments": call["custom"]["input"]}
    function = call["function"]
    return {"id": call["id"], "name": function["name"], "arguments": parse_json_or_text(function["arguments"])}


def _responses_arguments(item: Any) -> Any:
    return item["input"] if item["type"] == "custom_tool_call" else parse_json_or_text(item["arguments"])


def _ollama_call(call: Any) -> Call:
    function = call["function"]
    return {"id": call.get("id"), "name": function["name"], "arguments": function["arguments"]}


def _gemini_text(response: Any) -> str:
    """Return the text of a function response: its `output` or `error` by convention, else the object itself."""
    if not response:
        return ""
    (value,) = response.values() if response.keys() in ({"output"}, {"error"}) else (response,)
    return _object_text(value)


def _object_text(value: Any) -> str:
    return content_text(value) if isinstance(value, str | list) else json.dumps(value)


def parse_json_or_text(text: str) -> Any:
    """Parse a JSON text; return the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def stream_error_message(protocol: str, wire: bytes) -> str:
    """Return the message of the in-band error that ends a stream."""
    last = stream_frames(wire)[-1]
    match protocol:
        case "anthropic":
            assert last["type"] == "error"
        case "openai-chat":
            assert b"[DONE]" not in wire
        case "openai-responses":
            assert last["type"] == "response.failed"
            return str(last["response"]["error"]["message"])
        case "gemini-interactions":
            assert last["event_type"] == "error"
        case "openrouter":
            assert last["choices"][0]["finish_reason"] == "error"
        case "ollama":
            return str(last["error"])
        case _:
            assert last.keys() == {"error"}
    return str(last["error"]["message"])


def tool_calls_in_stream(protocol: str, wire: bytes) -> list[Call]:
    """Return the calls of a stream that may be incomplete and that the SDKs would reject."""
    if protocol == RESPONSES:
        items = [frame["item"] for frame in stream_frames(wire) if frame["type"] == "response.output_item.done"]
        return tool_calls_in(RESPONSES, items)
    if protocol in (GEMINI, OLLAMA):
        return [
            call for frame in stream_frames(wire) if "error" not in frame for call in tool_calls_in(protocol, frame)
        ]
    calls: dict[int, dict[str, str]] = {}
    for index, call_id, name, arguments in _fragments(protocol, wire):
        call = calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
        call["id"] += call_id
        call["name"] += name
        call["arguments"] += arguments
    return [
        {"id": call["id"], "name": call["name"], "arguments": parse_json_or_text(call["arguments"])}
        for call in calls.values()
    ]


def _fragments(protocol: str, wire: bytes) -> Iterator[tuple[int, str, str, str]]:
    for frame in stream_frames(wire):
        match protocol:
            case "anthropic" if frame["type"] == "content_block_start":
                block = frame["content_block"]
                if block["type"] == "tool_use":
                    yield frame["index"], block["id"], block["name"], ""
            case "anthropic" if frame["type"] == "content_block_delta":
                if "partial_json" in frame["delta"]:
                    yield frame["index"], "", "", frame["delta"]["partial_json"]
            case "openai-chat" | "openrouter":
                for choice in frame.get("choices", ()):
                    for part in choice["delta"].get("tool_calls") or ():
                        function = part.get("function", {})
                        yield part["index"], part.get("id", ""), function.get("name", ""), function.get("arguments", "")
            case "gemini-interactions" if frame["event_type"] == "step.start":
                if frame["step"]["type"] == "function_call":
                    yield frame["index"], frame["step"]["id"], frame["step"]["name"], ""
            case "gemini-interactions" if frame["event_type"] == "step.delta":
                if "arguments" in frame["delta"]:
                    yield frame["index"], "", "", frame["delta"]["arguments"]
            case _:
                pass
