"""Validation of Interactions with google-genai: bodies by its types, streams by its reader.

The SDK has no accumulator and yields events. They are folded here as its documentation describes.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpx
from google.genai._gaos.types.basemodel import UnrecognizedStr
from google.genai._gaos.types.interactions.createagentinteraction import CreateAgentInteractionParam
from google.genai._gaos.types.interactions.createmodelinteraction import CreateModelInteractionParam
from google.genai._gaos.types.interactions.error import Error
from google.genai._gaos.types.interactions.interaction import Interaction, InteractionTypedDict
from google.genai._gaos.types.interactions.interactionssestreamevent import InteractionSSEStreamEvent
from google.genai._gaos.utils.eventstreaming import Stream
from google.genai._gaos.utils.serializers import ALLOW_UNKNOWN_UNION_VARIANTS
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypeAliasType, get_type_hints

from tests.support.sdk.rejections import explain_rejection
from tests.support.sdk.request_types import RequestTypeBuilder
from tests.support.sdk.summaries import Call, Summary

STOPS = {
    "completed": "end_turn",
    "requires_action": "tool_use",
    "incomplete": "max_tokens",
    "requires_continuation": "continuation",
    "failed": "error",
}
SENTINEL = "[DONE]"
# A dictionary that the SDK sends unchanged.
OPEN_TYPE = "DynamicAgentConfigParam"


class InvalidStream(ValueError):
    """A stream that a client would not read to its end."""


class _ErrorBody(BaseModel):
    error: Error


class _InteractionsTypeBuilder(RequestTypeBuilder):
    """A type builder that also supports type aliases, open enumerations and dictionaries without declared keys."""

    def rebuild(self, annotation: Any) -> Any:
        if isinstance(annotation, TypeAliasType):
            return self.rebuild(annotation.__value__)
        return str if annotation is UnrecognizedStr else super().rebuild(annotation)

    def _dictionary(self, annotation: Any) -> Any:
        if not get_type_hints(annotation) or annotation.__name__ == OPEN_TYPE:
            return dict[str, Any]
        return super()._dictionary(annotation)

    def _union(self, members: Iterable[Any]) -> Any:
        return super()._union(
            member for member in _resolve_members(members) if getattr(member, "__name__", "") != OPEN_TYPE
        )


def _resolve_members(members: Iterable[Any]) -> Iterable[Any]:
    for member in members:
        value = member
        while isinstance(value, TypeAliasType):
            value = value.__value__
        yield value


@cache
def _adapter(annotation: Any, unknown_fields: bool) -> TypeAdapter[Any]:
    return _InteractionsTypeBuilder(unknown_fields=unknown_fields).adapter(annotation)


def accept_request(body: Any) -> str | None:
    """Return None if the SDK's request type accepts the body at every level, otherwise the first error."""
    agent = isinstance(body, dict) and "agent" in body
    if agent and body.get("agent_config", {}).get("type") == "dynamic":
        body = {name: value for name, value in body.items() if name != "agent_config"}
    return _accept(_adapter(CreateAgentInteractionParam if agent else CreateModelInteractionParam, False), body)


def accept_response(body: Any) -> str | None:
    """Return None if both the SDK's dictionary type and its model accept the body."""
    if (refusal := _accept(_adapter(InteractionTypedDict, True), body)) is not None:
        return refusal
    try:
        Interaction.model_validate(body)
    except ValidationError as error:
        return explain_rejection(error)
    return None


def accept_error(body: Any) -> str | None:
    try:
        _ErrorBody.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return explain_rejection(error)
    return None


def _accept(adapter: TypeAdapter[Any], body: Any) -> str | None:
    try:
        adapter.validate_python(body, strict=True)
    except ValidationError as error:
        return explain_rejection(error)
    return None


# ---- streams


def fold_stream(wire: bytes, *, tolerant: bool = False) -> Summary:
    return summary(fold_body(wire, tolerant=tolerant))


def fold_body(wire: bytes, *, tolerant: bool = False) -> dict[str, Any]:
    """Fold the SDK's events into an interaction; `tolerant` reads invalid events as the SDK does by default."""
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=wire)
    stream: Any = Stream(response, parse_leniently if tolerant else _parse_strictly, SENTINEL)
    folded: dict[str, Any] = {}
    steps: dict[int, dict[str, Any]] = {}
    open_steps: set[int] = set()
    for event in stream:
        payload = event.data.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
        match payload.get("event_type"):
            case "interaction.created":
                folded |= payload["interaction"]
            case "step.start":
                _require(tolerant or payload["index"] not in steps, "a step starts twice")
                steps[payload["index"]] = dict(payload["step"])
                open_steps.add(payload["index"])
            case "step.delta":
                _require(tolerant or payload["index"] in open_steps, "a delta of no open step")
                _apply_delta(steps.setdefault(payload["index"], {"type": "model_output"}), payload["delta"])
            case "step.stop":
                _require(tolerant or payload["index"] in open_steps, "the stop of no open step")
                open_steps.discard(payload["index"])
            case "interaction.completed":
                folded |= payload["interaction"]
                _require(not folded.get("errors"), f"failed: {folded.get('errors')}")
                return _complete_body(folded, steps)
            case "error":
                raise InvalidStream(f"error event: {payload.get('error')}")
            case _:
                pass
    raise InvalidStream("no interaction.completed")


def _parse_strictly(text: str) -> Any:
    return InteractionSSEStreamEvent.model_validate_json(text)


def parse_leniently(text: str) -> Any:
    """Parse as the SDK's `unmarshal_json` does, without its cost of building a model for each event."""
    return InteractionSSEStreamEvent.model_validate(from_json(text), context={ALLOW_UNKNOWN_UNION_VARIANTS: True})


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidStream(message)


def _apply_delta(step: dict[str, Any], delta: dict[str, Any]) -> None:
    kind = delta.get("type")
    content: list[Any] = step.setdefault("content", []) if step["type"] == "model_output" else []
    match kind:
        case "text":
            if not content or content[-1]["type"] != "text":
                content.append({"type": "text", "text": ""})
            content[-1]["text"] += delta["text"]
        case "text_annotation_delta" if content:
            content[-1].setdefault("annotations", []).extend(delta.get("annotations", []))
        case "thought_summary":
            step.setdefault("summary", []).append(delta["content"])
        case "thought_signature":
            step["signature"] = delta["signature"]
        case "arguments_delta":
            step["text"] = step.get("text", "") + delta["arguments"]
        case "image" | "audio" | "video" | "document":
            content.append(delta)
        case _ if kind == step["type"]:
            step |= delta
        case _:
            pass


def _complete_body(folded: dict[str, Any], steps: dict[int, dict[str, Any]]) -> dict[str, Any]:
    for step in steps.values():
        if (text := step.pop("text", None)) is not None and step["type"] == "function_call":
            step["arguments"] = _arguments(text)
    return {**folded, "steps": [steps[index] for index in sorted(steps)] or folded.get("steps", [])}


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---- summaries


def summary(body: dict[str, Any]) -> Summary:
    steps = [step for step in body.get("steps", []) if step["type"] != "user_input"]
    parts = [part for step in steps if step["type"] == "model_output" for part in step.get("content") or ()]
    thoughts = [part for step in steps if step["type"] == "thought" for part in step.get("summary") or ()]
    calls: list[Call] = [
        {"id": step["id"], "name": step["name"], "arguments": step["arguments"]}
        for step in steps
        if step["type"] == "function_call"
    ]
    stop = STOPS.get(body["status"], body["status"])
    return {
        "text": "".join(part["text"] for part in parts if part["type"] == "text"),
        "refusal": "",
        "reasoning": "".join(part["text"] for part in thoughts if part["type"] == "text"),
        "calls": calls,
        "stop": "tool_use" if stop == "end_turn" and calls else stop,
        "usage": usage_of(body.get("usage")),
        "other_choices": [],
    }


def usage_of(usage: dict[str, Any] | None) -> dict[str, int]:
    if not usage:
        return {}
    thoughts = usage.get("total_thought_tokens") or 0
    return {
        "input": usage.get("total_input_tokens") or 0,
        "output": (usage.get("total_output_tokens") or 0) + thoughts,
        "cache_read": usage.get("total_cached_tokens") or 0,
        "cache_write": 0,
        "reasoning": thoughts,
    }
