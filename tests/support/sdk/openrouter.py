"""Validation with OpenRouter's SDK (openrouter 1.3.84): bodies by its types, streams by its reader."""

import json
from typing import Any

import httpx
from openrouter.components import ChatRequest, ChatResult, ChatStreamChunk
from openrouter.utils.eventstreaming import EventStream
from pydantic import BaseModel, ValidationError

from tests.support.sdk.streams import InvalidStream
from tests.support.sdk.summaries import Summary
from tests.support.sdk.summaries import summary as chat_summary

# Fields that are documented, recorded or sent by OpenRouter's other clients, but missing in the generated types.
UNTYPED = {
    "ChatRequest": {"n", "verbosity", "route", "transforms", "preset", "usage"},
    "ChatRequestReasoning": {"max_tokens", "exclude", "enabled"},
    "ChatResult": {"provider", "error"},
    "ChatChoice": {"native_finish_reason"},
    "ChatAssistantMessage": {"annotations"},
    "ChatToolCall": {"index"},
    "ChatStreamChunk": {"provider"},
    "ChatStreamChoice": {"native_finish_reason"},
    "ChatStreamDelta": {"annotations"},
    "ChatUsageCompletionTokensDetails": {"image_tokens"},
    "ChatAssistantImages": {"type", "index"},
}


class _Error(BaseModel):
    code: int
    message: str
    metadata: dict[str, Any] | None = None


class _ErrorBody(BaseModel):
    """The common part of the SDK's error types, which has one type per status."""

    error: _Error
    user_id: str | None = None


def accept_request(body: Any) -> str | None:
    """Return None if the SDK's request type accepts the body and knows all of its fields, otherwise the first error."""
    return _accept(ChatRequest, body)


def accept_response(body: Any) -> str | None:
    return _accept(ChatResult, body)


def accept_error(body: Any) -> str | None:
    return _accept(_ErrorBody, body)


def _accept(model: type[BaseModel], body: Any) -> str | None:
    try:
        parsed = model.model_validate_json(json.dumps(body))
    except ValidationError as error:
        deepest = max(
            error.errors(include_url=False, include_context=False), key=lambda fields_found: len(fields_found["loc"])
        )
        return f"{'.'.join(map(str, deepest['loc']))}: {deepest['msg']}"
    return _unknown_field(parsed, body, "")


def _unknown_field(parsed: Any, body: Any, path: str) -> str | None:
    """Return the first field or variant that the types do not know; the models drop it silently."""
    if isinstance(parsed, list) and isinstance(body, list):
        fields_found = (
            _unknown_field(*pair, f"{path}.{index}") for index, pair in enumerate(zip(parsed, body, strict=True))
        )
        return next((entry for entry in fields_found if entry is not None), None)
    if not isinstance(parsed, BaseModel) or not isinstance(body, dict):
        return None
    if getattr(parsed, "is_unknown", False) or type(parsed).__name__ == "Unset":
        return f"{path}: is of no known type"
    fields = {field.alias or name: name for name, field in type(parsed).model_fields.items()}
    if parsed.model_config.get("extra") != "allow":
        extra = body.keys() - fields.keys() - UNTYPED.get(type(parsed).__name__, set())
        if extra:
            return f"{path}.{min(extra)}: is no field of {type(parsed).__name__}"
    shared_names = fields.keys() & body.keys()
    fields_found = (
        _unknown_field(vars(parsed)[fields[name]], body[name], f"{path}.{name}") for name in sorted(shared_names)
    )
    return next((entry for entry in fields_found if entry is not None), None)


def summary(body: dict[str, Any]) -> Summary:
    return chat_summary("openai-chat", body)


def fold_stream(wire: bytes, *, tolerant: bool = False) -> Summary:
    return summary(fold_body(wire, tolerant=tolerant))


def fold_body(wire: bytes, *, tolerant: bool = False) -> dict[str, Any]:
    """Fold chunks into a response, each parsed as the SDK does; it has no accumulator.

    `tolerant` skips the checks for unknown fields and for finish reasons.
    """
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=wire)
    for raw in EventStream(response, json.loads, "[DONE]"):
        body = raw["data"]
        chunk = ChatStreamChunk.model_validate(body)
        if chunk.error is not None:
            raise InvalidStream(f"error {chunk.error.code}: {chunk.error.message}")
        if not tolerant and (unknown := _unknown_field(chunk, body, "")) is not None:
            raise InvalidStream(unknown)
        answer |= {name: body[name] for name in ("id", "created", "model", "usage") if body.get(name) is not None}
        for choice in body["choices"]:
            index = choice["index"]
            _apply_delta(choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None}), choice)
    if not choices or (not tolerant and any(choice["finish_reason"] is None for choice in choices.values())):
        raise InvalidStream("no finish_reason")
    return {**answer, "choices": list(choices.values())}


def _apply_delta(choice: dict[str, Any], choice_delta: dict[str, Any]) -> None:
    message, delta = choice["message"], choice_delta["delta"]
    for name in ("content", "reasoning", "refusal"):
        if delta.get(name):
            message[name] = message.get(name, "") + delta[name]
    for entry in delta.get("reasoning_details") or ():
        _join(message.setdefault("reasoning_details", []), entry)
    for fragment in delta.get("tool_calls") or ():
        _join_call(message.setdefault("tool_calls", []), fragment)
    choice["finish_reason"] = choice_delta["finish_reason"] or choice["finish_reason"]


def _join(entries: list[dict[str, Any]], fragment: dict[str, Any]) -> None:
    """Join fragments of the same type and index into one entry; the last signature wins."""
    same = [entry for entry in entries if all(entry.get(key) == fragment.get(key) for key in ("type", "index"))]
    if not same:
        entries.append(dict(fragment))
        return
    for name, value in fragment.items():
        if name in ("text", "summary", "data") and same[0].get(name):
            same[0][name] += value or ""
        elif value is not None:
            same[0][name] = value


def _join_call(calls: list[dict[str, Any]], fragment: dict[str, Any]) -> None:
    call = next((entry for entry in calls if entry["index"] == fragment["index"]), None)
    if call is None:
        call = {"index": fragment["index"], "id": None, "function": {"name": "", "arguments": ""}}
        calls.append(call)
    function = fragment.get("function") or {}
    call["id"] = fragment.get("id") or call["id"]
    call["function"]["name"] = function.get("name") or call["function"]["name"]
    call["function"]["arguments"] += function.get("arguments") or ""
