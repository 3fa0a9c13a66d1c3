"""The essentials of a request, read from its JSON without a codec: texts, calls, results, pictures and tools."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

Body = dict[str, Any]

_TEXT_KINDS = ("text", "input_text", "output_text")


class Call(Struct, frozen=True):
    """A call in the history."""

    id: str
    name: str
    arguments: Any


class Essentials(Struct):
    """Content that must reach the host, whatever its form."""

    texts: list[str]
    calls: list[Call]
    # Texts of the result of each call, by the call's id.
    results: dict[str, list[str]]
    # Pictures as base64.
    pictures: list[str]
    # Descriptions of the tools that the client runs, by name.
    tools: dict[str, str]


def parse_arguments(arguments: Any) -> Any:
    """Return arguments as a value; freeform text stays text."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def strings_in(value: Any) -> Iterator[str]:
    """Return every string in a JSON value, also in JSON within strings."""
    if isinstance(value, str):
        yield value
        inner = parse_arguments(value) if value[:1] in ("{", "[") else None
        yield from strings_in(inner if isinstance(inner, dict | list) else None)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def _empty() -> Essentials:
    return Essentials([], [], {}, [], {})


def read_essentials(protocol: str, body: Body) -> Essentials:
    """Return the essentials of a request."""
    return _READERS[protocol](body)


def _texts(content: Any) -> list[str]:
    """Return the texts of a content that is a string or a list of parts."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part.get("type") in _TEXT_KINDS]


def _picture(url: str) -> str:
    """Return the base64 of a data URL."""
    return url.partition("base64,")[2] or url


def _read_anthropic(body: Body) -> Essentials:
    found = _empty()
    found.texts += _texts(body.get("system"))
    for message in body["messages"]:
        content = message["content"]
        blocks: list[Body] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    found.texts.append(block["text"])
                case "image":
                    found.pictures.append(block["source"].get("data") or block["source"].get("url"))
                case "tool_use":
                    found.calls.append(Call(block["id"], block["name"], block["input"]))
                case "tool_result":
                    parts = block.get("content") or []
                    found.results[block["tool_use_id"]] = _texts(parts)
                    found.pictures += [
                        part["source"]["data"] for part in parts if isinstance(part, dict) and part["type"] == "image"
                    ]
                case _:
                    pass
    for tool in body.get("tools", ()):
        # A deferred tool that nothing has loaded is a placeholder for Anthropic's search.
        if tool.get("type", "custom") == "custom" and not tool.get("defer_loading"):
            found.tools[tool["name"]] = tool.get("description", "")
    return found


def _read_chat(body: Body) -> Essentials:
    found = _empty()
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "tool":
            found.results[message["tool_call_id"]] = _texts(content)
        else:
            found.texts += _texts(content)
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "image_url":
                url = part["image_url"]
                found.pictures.append(_picture(url if isinstance(url, str) else url["url"]))
        for call in message.get("tool_calls") or ():
            declared = call.get(call.get("type", "function"), {})
            arguments = parse_arguments(declared.get("arguments", declared.get("input")))
            found.calls.append(Call(call["id"], declared["name"], arguments))
    for tool in body.get("tools", ()):
        declared = tool.get(tool["type"], {})
        found.tools[declared.get("name", "")] = declared.get("description", "")
    return found


def _read_responses(body: Body) -> Essentials:
    found = _empty()
    found.texts += _texts(body.get("instructions"))
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        match item.get("type", "message"):
            case "message":
                found.texts += _texts(item["content"])
                found.pictures += [
                    _picture(part["image_url"])
                    for part in item["content"]
                    if isinstance(part, dict) and part.get("type") == "input_image"
                ]
            case "function_call":
                found.calls.append(Call(item["call_id"], item["name"], parse_arguments(item["arguments"])))
            case "custom_tool_call":
                found.calls.append(Call(item["call_id"], item["name"], item["input"]))
            case "function_call_output" | "custom_tool_call_output":
                output = item["output"]
                found.results[item["call_id"]] = _texts(output)
                found.pictures += [
                    _picture(part["image_url"])
                    for part in output
                    if isinstance(part, dict) and part["type"] == "input_image"
                ]
            case "additional_tools":
                found.tools |= _responses_tools(item["tools"])
            case _:
                pass
    found.tools |= _responses_tools(body.get("tools", ()))
    return found


def _responses_tools(tools: Any) -> dict[str, str]:
    """Return functions and freeform tools, also those in namespaces."""
    declared: dict[str, str] = {}
    for tool in tools:
        if tool["type"] in ("function", "custom"):
            declared[tool["name"]] = tool.get("description", "")
        elif tool["type"] == "namespace":
            declared |= _responses_tools(tool["tools"])
    return declared


def _read_gemini(body: Body) -> Essentials:
    found = _empty()
    contents = [body["systemInstruction"]] if "systemInstruction" in body else []
    for content in contents + body["contents"]:
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                found.calls.append(Call(call.get("id", call["name"]), call["name"], call.get("args", {})))
            elif "functionResponse" in part:
                result = part["functionResponse"]
                found.results[result.get("id", result["name"])] = list(strings_in(result["response"].get("output")))
            elif "inlineData" in part:
                found.pictures.append(part["inlineData"]["data"])
            elif "text" in part and not part.get("thought"):
                found.texts.append(part["text"])
    for tool in body.get("tools", ()):
        for declared in tool.get("functionDeclarations", ()):
            found.tools[declared["name"]] = declared.get("description", "")
    return found


_READERS = {
    "anthropic": _read_anthropic,
    "openai-chat": _read_chat,
    "openai-responses": _read_responses,
    "gemini": _read_gemini,
}
