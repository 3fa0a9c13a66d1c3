"""Accessors for parts, texts, calls and results of canonical requests."""

import json
from collections.abc import Iterator
from typing import Any

from toolwire.canonical.content import Part, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request


def request_parts(request: Request) -> Iterator[Part]:
    for message in request.messages:
        yield from message.parts


def conversation_texts(request: Request) -> list[str]:
    """Return the non-blank texts of user and assistant. Some protocols cannot express blank text."""
    messages = [message for message in request.messages if message.role in ("user", "assistant")]
    return [part.text for message in messages for part in message.parts if isinstance(part, Text) and part.text.strip()]


def function_calls(request: Request) -> list[Any]:
    return [(call.name, json.loads(call.arguments or "{}")) for call in client_function_calls(request)]


def function_results(request: Request) -> list[Any]:
    """Return each result with name and arguments of its call, since ids may be renamed but never mispaired."""
    calls = {
        call.id: (call.name, json.loads(call.arguments or "{}")) for call in client_function_calls(request) if call.id
    }
    results = [part for part in request_parts(request) if isinstance(part, ToolResult) and part.call_id in calls]
    return [(calls[str(result.call_id)], text_only_result(result)) for result in results if text_only_result(result)]


def client_function_calls(request: Request) -> list[ToolCall]:
    """Return client-side function calls whose arguments are JSON objects, which every protocol can express."""
    calls = [part for part in request_parts(request) if isinstance(part, ToolCall) and part.executor == "client"]
    computer_call_ids = {call.id for call in calls if call.screen is not None}
    functions = [call for call in calls if call.id not in computer_call_ids]
    return [call for call in functions if not call.native and call.namespace is None and _is_object(call)]


def _is_object(call: ToolCall) -> bool:
    try:
        return call.shape == "json" and isinstance(json.loads(call.arguments or "{}"), dict)
    except ValueError:
        return False


def text_only_result(result: ToolResult) -> str:
    """Return the text of a result that contains only text."""
    content = result.content or ()
    return "\n".join(part.text for part in content if isinstance(part, Text)) if is_text_only(content) else ""


def is_text_only(content: tuple[Part, ...]) -> bool:
    return all(isinstance(part, Text) for part in content)
