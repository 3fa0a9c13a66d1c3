"""What tests read out of plain bodies, without any of toolwire's code, and how they ask for a translation."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import toolwire
from tests.sdk import Call

ANTHROPIC, CHAT, RESPONSES = "anthropic", "openai-chat", "openai-responses"
GEMINI, INTERACTIONS, OLLAMA, OPENROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
PROTOCOLS = (ANTHROPIC, CHAT, RESPONSES)
PAIRS = [(source, target) for source in PROTOCOLS for target in PROTOCOLS if source != target]
SEVEN = (*PROTOCOLS, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER)
ALL_PAIRS = [(source, target) for source in SEVEN for target in SEVEN if source != target]
MODELS = {GEMINI: "gemini-2.5-flash"}
"""What a protocol has in its address instead of the body."""

Kind = Literal["request", "response", "error"]


def translation(body: Any, source: str, target: str, kind: Kind = "request", **options: Any) -> toolwire.Encoded:
    addressed = {"model": MODELS[source]} if source in MODELS and kind == "request" else {}
    return toolwire.translate(body, source=source, target=target, kind=kind, **addressed | options)


def translated(body: Any, source: str, target: str, kind: Kind = "request", **options: Any) -> Any:
    return translation(body, source, target, kind, **options).value


def lost(body: Any, source: str, target: str, kind: Kind = "request", **options: Any) -> set[str]:
    """The source paths that the loss report names."""
    return {loss.path for loss in translation(body, source, target, kind, **options).losses}


def kinds(body: Any, source: str, target: str, kind: Kind = "request", **options: Any) -> dict[str, str]:
    """What became of each path that the loss report names."""
    return {loss.path: loss.kind for loss in translation(body, source, target, kind, **options).losses}


def named(paths: set[str], path: str) -> bool:
    """Whether a report names this value or something inside it; naming what holds it is not reporting."""
    return any(found == path or found.startswith(path + "/") for found in paths)


def streamed(wire: bytes | Iterable[bytes], source: str, target: str, request: Any = None) -> bytes:
    chunks = [wire] if isinstance(wire, bytes) else wire
    return b"".join(toolwire.translate_stream(chunks, source=source, target=target, request=request))


def frames(wire: bytes) -> list[Any]:
    """The JSON payloads of an event stream, in order; `[DONE]` and comments are none, and Gemini's errors are bare."""
    if wire.startswith(b"{"):
        return [json.loads(line) for line in wire.splitlines() if line]
    payloads = [
        line.removeprefix("data:").strip() for line in wire.decode().split("\n") if line.startswith(("data:", "{"))
    ]
    return [json.loads(payload) for payload in payloads if payload != "[DONE]"]


def types(wire: bytes) -> list[str]:
    return [frame["type"] for frame in frames(wire)]


def calls(protocol: str, body: Any) -> list[Call]:
    """Every client call of a request or a response, in order."""
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
                for item in items(body)
                if item.get("type") in ("function_call", "custom_tool_call")
            ]
        case "gemini":
            asked = [part["functionCall"] for part in parts(body) if "functionCall" in part]
            return [{"id": call.get("id"), "name": call["name"], "arguments": call.get("args")} for call in asked]
        case "gemini-interactions":
            return [
                {"id": step["id"], "name": step["name"], "arguments": step["arguments"]}
                for step in steps(body)
                if step["type"] == "function_call"
            ]
        case _:
            asked = [call for message in _messages(body) for call in message.get("tool_calls") or ()]
            return [_ollama_call(call) for call in asked]


def results(protocol: str, body: Any) -> list[tuple[Any, str]]:
    """The id and the text of every tool result of a request, in order."""
    match protocol:
        case "anthropic":
            blocks = [block for block in _blocks(body) if block["type"] == "tool_result"]
            return [(block["tool_use_id"], text_of(block.get("content"))) for block in blocks]
        case "openai-chat" | "openrouter" | "ollama":
            answers = [message for message in body["messages"] if message["role"] == "tool"]
            return [(message.get("tool_call_id"), text_of(message["content"])) for message in answers]
        case "openai-responses":
            outputs = [item for item in items(body) if str(item.get("type")).endswith("_call_output")]
            return [(item["call_id"], text_of(item["output"])) for item in outputs]
        case "gemini":
            told = [part["functionResponse"] for part in parts(body) if "functionResponse" in part]
            return [(result.get("id"), _gemini_text(result["response"])) for result in told]
        case _:
            told = [step for step in steps(body) if step["type"] == "function_result"]
            return [(step["call_id"], _object_text(step["result"])) for step in told]


def tools(protocol: str, body: Any) -> dict[str, Any]:
    """Name and schema of every declared function; None where a tool takes raw text or has no schema."""
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


def names(protocol: str, body: Any) -> list[Any]:
    """The tool that each result of a request says it is from; None where the protocol has no such word."""
    match protocol:
        case "gemini":
            return [part["functionResponse"]["name"] for part in parts(body) if "functionResponse" in part]
        case "gemini-interactions":
            return [step["name"] for step in steps(body) if step["type"] == "function_result"]
        case "ollama":
            return [message["tool_name"] for message in body["messages"] if message["role"] == "tool"]
        case _:
            return [None for _ in results(protocol, body)]


def parts(body: Any) -> list[Any]:
    """The parts of Gemini's contents or candidates, or of a content alone."""
    if "candidates" in body:
        holders = [candidate["content"] for candidate in body["candidates"]]
    else:
        holders = body.get("contents", [body])
    return [part for content in holders for part in content.get("parts", ())]


def steps(body: Any) -> list[Any]:
    """The steps of an interaction, asked or answered."""
    found = body.get("steps", body.get("input"))
    return found if isinstance(found, list) else []


def items(body: Any) -> list[Any]:
    found = body if isinstance(body, list) else body.get("output", body.get("input"))
    return found if isinstance(found, list) else []


def text_of(content: Any) -> str:
    """The text of a content, whether it is a string or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def roles(body: Any) -> list[str]:
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
    return {"id": call["id"], "name": function["name"], "arguments": parsed(function["arguments"])}


def _responses_arguments(item: Any) -> Any:
    return item["input"] if item["type"] == "custom_tool_call" else parsed(item["arguments"])


def _ollama_call(call: Any) -> Call:
    function = call["function"]
    return {"id": call.get("id"), "name": function["name"], "arguments": function["arguments"]}


def _gemini_text(response: Any) -> str:
    """By Gemini's convention `output` or `error` holds what the function gave; other objects are the whole of it."""
    if not response:
        return ""
    (held,) = response.values() if response.keys() in ({"output"}, {"error"}) else (response,)
    return _object_text(held)


def _object_text(value: Any) -> str:
    return text_of(value) if isinstance(value, str | list) else json.dumps(value)


def parsed(text: str) -> Any:
    """The value of a JSON text; the text itself where it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def failure(protocol: str, wire: bytes) -> str:
    """The message of the in-band error that a stream ends with, as that protocol says it."""
    last = frames(wire)[-1]
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


def streamed_calls(protocol: str, wire: bytes) -> list[Call]:
    """The calls of a stream as far as it went, for streams that don't end as the SDKs want."""
    if protocol == RESPONSES:
        done = [frame["item"] for frame in frames(wire) if frame["type"] == "response.output_item.done"]
        return calls(RESPONSES, done)
    if protocol in (GEMINI, OLLAMA):
        return [call for frame in frames(wire) if "error" not in frame for call in calls(protocol, frame)]
    opened: dict[int, dict[str, str]] = {}
    for index, call_id, name, arguments in _fragments(protocol, wire):
        call = opened.setdefault(index, {"id": "", "name": "", "arguments": ""})
        call["id"] += call_id
        call["name"] += name
        call["arguments"] += arguments
    return [
        {"id": call["id"], "name": call["name"], "arguments": parsed(call["arguments"])} for call in opened.values()
    ]


def _fragments(protocol: str, wire: bytes) -> Iterator[tuple[int, str, str, str]]:
    for frame in frames(wire):
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
                        said = part.get("function", {})
                        yield part["index"], part.get("id", ""), said.get("name", ""), said.get("arguments", "")
            case "gemini-interactions" if frame["event_type"] == "step.start":
                if frame["step"]["type"] == "function_call":
                    yield frame["index"], frame["step"]["id"], frame["step"]["name"], ""
            case "gemini-interactions" if frame["event_type"] == "step.delta":
                if "arguments" in frame["delta"]:
                    yield frame["index"], "", "", frame["delta"]["arguments"]
            case _:
                pass
