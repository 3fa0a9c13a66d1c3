"""Validation with Ollama's SDK: bodies by its types, streams by its reader.

Its types lack fields that the server has (ids, indices, context overflow), and its `messages` accept any mapping. The
models here add these fields and read every message as the SDK's `Message`.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
from ollama import ChatResponse, Client, Message, Tool
from ollama._types import ChatRequest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tests.support.sdk.streams import InvalidStream
from tests.support.sdk.summaries import Call, Summary

STOPS = {"stop": "end_turn", "length": "max_tokens", "": "cancelled"}


class _Function(Message.ToolCall.Function):
    model_config = ConfigDict(extra="forbid")
    index: int | None = None


class _ToolCall(Message.ToolCall):
    model_config = ConfigDict(extra="forbid")
    function: _Function
    id: str | None = None
    type: str | None = None


class _Message(Message):
    model_config = ConfigDict(extra="forbid")
    images: list[str] | None = None  # type: ignore[assignment]  # as they are on the wire
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _ToolFunction(Tool.Function):
    # The server ignores schema keywords that the SDK does not know.
    model_config = ConfigDict(extra="forbid")
    name: str


class _Tool(Tool):
    model_config = ConfigDict(extra="forbid")
    function: _ToolFunction


class _Request(ChatRequest):
    model_config = ConfigDict(extra="forbid")
    messages: list[_Message] | None = None
    tools: list[_Tool] | None = None
    truncate: bool | None = None
    shift: bool | None = None
    debug_render_only: bool | None = Field(None, alias="_debug_render_only")


class _Response(ChatResponse):
    message: _Message


class _Error(BaseModel):
    model_config = ConfigDict(strict=True)
    error: str


def accept_request(body: Any, *, unknown_fields: bool = False) -> str | None:
    """Return None if the SDK's types accept the body at every level, otherwise the first error."""
    known = {name: value for name, value in body.items() if not unknown_fields or name in _Request.model_fields}
    if (refusal := _validation_error(_Request, known)) is not None:
        return refusal
    for message in body.get("messages") or ():
        for image in message.get("images") or ():
            try:
                base64.b64decode(image, validate=True)
            except ValueError as error:
                return f"images: {error}"
    return None


def accept_response(body: Any) -> str | None:
    return _validation_error(_Response, body)


def accept_error(body: Any) -> str | None:
    return _validation_error(_Error, body)


def _validation_error(model: type[BaseModel], body: Any) -> str | None:
    try:
        model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        deepest = max(error.errors(include_url=False, include_context=False), key=lambda found: len(found["loc"]))
        return f"{'.'.join(map(str, deepest['loc']))}: {deepest['msg']}"
    return None


def fold_stream(wire: bytes, *, tolerant: bool = False) -> Summary:
    """Fold a raw stream as the SDK's examples do; raise the SDK's error."""
    content = thinking = ""
    calls: list[Any] = []
    last: dict[str, Any] = {}
    for part in _parts(wire):
        if last.get("done"):
            raise InvalidStream("a line after the one that is done")
        last = part.model_dump(exclude_unset=True)
        content += part.message.content or ""
        thinking += part.message.thinking or ""
        calls += last["message"].get("tool_calls") or []
        if not tolerant and part.message.role != "assistant":
            raise InvalidStream("a line that is not the assistant's")
    if not last.get("done"):
        raise InvalidStream("no line is done")
    message = {"role": "assistant", "content": content, "thinking": thinking, "tool_calls": calls}
    return summary({**last, "message": message})


def _parts(wire: bytes) -> Iterator[_Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=wire)

    client = Client(host="http://ollama.invalid", transport=httpx.MockTransport(answer))
    parts: Iterator[_Response] = client._request(_Response, "POST", "/api/chat", json={}, stream=True)
    yield from parts


def summary(body: dict[str, Any]) -> Summary:
    message = body.get("message") or {}
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    reason: str | None = body.get("done_reason", "stop" if body.get("done") else None)
    stop = None if reason is None else STOPS.get(reason, reason)
    return {
        "text": message.get("content") or "",
        "refusal": "",
        "reasoning": message.get("thinking") or "",
        "calls": calls,
        "stop": "tool_use" if stop == "end_turn" and calls else stop,
        "usage": _usage(body),
        "other_choices": [],
    }


def _call(call: dict[str, Any]) -> Call:
    function = call["function"]
    return {"id": call.get("id"), "name": function["name"], "arguments": function["arguments"]}


def _usage(body: dict[str, Any]) -> dict[str, int]:
    """Return the usage; the wire omits counts of zero."""
    if body.get("prompt_eval_count") is None and body.get("eval_count") is None:
        return {}
    counts = {"input": body.get("prompt_eval_count") or 0, "output": body.get("eval_count") or 0}
    return {**counts, "cache_read": 0, "cache_write": 0, "reasoning": 0}
