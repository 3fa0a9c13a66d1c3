"""Validation with Google's SDK: bodies by its types, streams by its chunk reader.

The SDK does not join the chunks of a streamed response. The reader here joins texts of one kind, as the SDK does for
`text` and `function_calls` of one chunk. Its types accept both spellings of a name and reject unknown fields.
"""

import json
import warnings
from itertools import pairwise
from typing import Any

import httpx
from google.genai import types
from google.genai._api_client import HttpResponse
from google.genai._common import _remove_extra_fields
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tests.support.sdk.summaries import Call, Summary


class InvalidStream(ValueError):
    """A stream that an official client would not read to its end."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class _Generation(types.GenerationConfig):
    """The generation config, with fields that the SDK's converters add and its type lacks."""

    image_config: types.ImageConfig | None = None


class _Request(_Body):
    """The body of `generateContent`, composed of SDK types; the SDK has no type for it."""

    contents: list[types.Content] = Field(min_length=1)
    system_instruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    safety_settings: list[types.SafetySetting] | None = None
    generation_config: _Generation | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: types.ServiceTier | None = None
    store: bool | None = None
    continuation_token: bytes | None = None
    model_armor_config: types.ModelArmorConfig | None = None
    generation_output_config: Any = None


class _Status(_Body):
    code: int
    message: str
    status: str
    details: list[Any] | None = None
    errors: list[Any] | None = None


class _Error(_Body):
    error: _Status


FILTERED = (
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
)
MALFORMED = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE")
STOPS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "CONTINUATION": "continuation",
    **dict.fromkeys(FILTERED, "filtered"),
    **dict.fromkeys(MALFORMED, "malformed_call"),
}


def accept_request(body: Any) -> str | None:
    """Return None if the SDK's types accept the body at every level, otherwise the first error."""
    if isinstance(body, dict) and "config" in body:
        return _accept_call(body)
    return _accept(_Request, body)


def _accept_call(body: dict[str, Any]) -> str | None:
    """Check the arguments of the SDK's method, which validates other forms of contents."""
    return _accept(types.GenerateContentConfig, body["config"])


def accept_response(body: Any) -> str | None:
    return _accept(types.GenerateContentResponse, _with_known_fields(body))


def _with_known_fields(body: Any) -> Any:
    """Remove fields unknown to the SDK, as it does before it validates."""
    copy = json.loads(json.dumps(body))
    _remove_extra_fields(types.GenerateContentResponse, copy)
    return copy


def _read(body: Any) -> types.GenerateContentResponse:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of words that are newer than it, and takes them
        return types.GenerateContentResponse.model_validate_json(json.dumps(_with_known_fields(body)))


def accept_error(body: Any) -> str | None:
    if isinstance(body, list):
        return _accept(_Error, body[0]) if len(body) == 1 else "a list of one"
    return _accept(_Error, body)


def _accept(model: type[BaseModel], body: Any) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of words that are newer than it, and takes them
            # Validate from JSON, because only then are bytes read as base64.
            model.model_validate_json(json.dumps(body))
    except ValidationError as error:
        deepest = max(error.errors(include_url=False, include_context=False), key=lambda error: len(error["loc"]))
        return f"{'.'.join(map(str, deepest['loc']))}: {deepest['msg']}"
    except AttributeError as error:  # its own, for the number of an enumeration in place of the word
        return str(error)
    return None


def fold_stream(wire: bytes, *, tolerant: bool = False) -> Summary:
    """Fold the chunks of a stream into a summary; raise the SDK's error or `InvalidStream`."""
    return summary(fold_body(wire, tolerant=tolerant))


def fold_body(wire: bytes, *, tolerant: bool = False) -> dict[str, Any]:
    """Fold the chunks into one body: consecutive texts of one kind are one part, unless one is signed.

    `tolerant` also accepts a stream without a finish reason.
    """
    candidates: dict[int, dict[str, Any]] = {}
    body: dict[str, Any] = {}
    for chunk in _chunks(wire):
        if "error" in chunk:
            raise InvalidStream(f"error: {chunk['error'].get('message')}")
        _read(chunk)
        for position, candidate in enumerate(chunk.get("candidates") or ()):
            merged = candidates.setdefault(
                candidate.get("index", position), {"content": {"role": "model", "parts": []}}
            )
            merged.update({key: value for key, value in candidate.items() if key != "content"})
            for part in (candidate.get("content") or {}).get("parts") or ():
                _join(merged["content"]["parts"], part)
        body.update({key: value for key, value in chunk.items() if key != "candidates"})
    if not tolerant and any("finishReason" not in one for one in candidates.values()):
        raise InvalidStream("no finishReason")
    if not (candidates or "promptFeedback" in body):
        raise InvalidStream("no candidate")
    body["candidates"] = [candidates[number] for number in sorted(candidates)]
    return body


def _chunks(wire: bytes) -> list[dict[str, Any]]:
    response = httpx.Response(200, content=wire, request=httpx.Request("POST", "https://api.invalid/"))
    if wire.lstrip()[:1] == b"[":
        listed: list[dict[str, Any]] = json.loads(wire)
        return listed
    return [json.loads(text) for text in HttpResponse({}, response)._iter_response_stream()]


def _join(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    partial = part.get("functionCall") or {}
    if "functionCall" in part and (_is_growing(parts) or "willContinue" in partial):
        _append_piece(parts, part)
    elif set(part) <= {"text", "thought"} and parts and set(parts[-1]) == set(part):
        parts[-1] = {**parts[-1], "text": parts[-1]["text"] + part["text"]}
    elif part != {"text": ""}:
        parts.append(part)


def _is_growing(parts: list[dict[str, Any]]) -> bool:
    return bool(parts) and "willContinue" in parts[-1].get("functionCall", {})


def _append_piece(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Apply argument fragments by their paths, as the vendor documents."""
    call = part["functionCall"]
    if "name" in call:
        if _is_growing(parts):
            del parts[-1]["functionCall"]["willContinue"]
        parts.append({**part, "functionCall": {"name": call["name"], "args": {}, "willContinue": True}})
    grown = parts[-1]["functionCall"]
    for fragment in call.get("partialArgs", ()):
        _set(grown["args"], fragment["jsonPath"], fragment)
    if not call.get("willContinue"):
        del grown["willContinue"]


def _set(tree: Any, path: str, fragment: dict[str, Any]) -> None:
    steps: list[Any] = []
    for name in path.removeprefix("$.").split("."):
        key, *indices = name.replace("]", "").split("[")
        steps += [key, *map(int, indices)]
    for step, following in pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(tree, list):
            while len(tree) <= step:
                tree.append(empty)
            tree = tree[step]
        else:
            tree = tree.setdefault(step, empty)
    last = steps[-1]
    if "stringValue" in fragment:
        tree[last] = tree.get(last, "") + fragment["stringValue"]
    else:
        tree[last] = fragment.get("numberValue", fragment.get("boolValue"))


def summary(body: dict[str, Any]) -> Summary:
    response = _read(body)
    usage = _usage(response.usage_metadata)
    summaries = [_candidate(candidate, usage) for candidate in response.candidates or ()]
    if not summaries:
        blocked = response.prompt_feedback is not None and response.prompt_feedback.block_reason is not None
        return _summarize("", "", [], "filtered" if blocked else None, usage)
    return {**summaries[0], "other_choices": summaries[1:]}


def _candidate(candidate: types.Candidate, usage: dict[str, int]) -> Summary:
    parts = (candidate.content.parts if candidate.content is not None else None) or []
    calls: list[Call] = [
        {"id": part.function_call.id, "name": part.function_call.name or "", "arguments": part.function_call.args or {}}
        for part in parts
        if part.function_call is not None
    ]
    word = None if candidate.finish_reason is None else candidate.finish_reason.value
    stop = None if word is None else STOPS.get(word, word.lower())
    if calls and stop == "end_turn":
        stop = "tool_use"
    text = "".join(part.text or "" for part in parts if not part.thought)
    return _summarize(text, "".join(part.text or "" for part in parts if part.thought), calls, stop, usage)


def _summarize(text: str, reasoning: str, calls: list[Call], stop: str | None, usage: dict[str, int]) -> Summary:
    return {
        "text": text,
        "refusal": "",
        "reasoning": reasoning,
        "calls": calls,
        "stop": stop,
        "usage": usage,
        "other_choices": [],
    }


def _usage(usage: types.GenerateContentResponseUsageMetadata | None) -> dict[str, int]:
    if usage is None:
        return {}
    thoughts = usage.thoughts_token_count or 0
    return {
        "input": usage.prompt_token_count or 0,
        "output": (usage.candidates_token_count or 0) + thoughts,
        "cache_read": usage.cached_content_token_count or 0,
        "cache_write": 0,
        "reasoning": thoughts,
    }
