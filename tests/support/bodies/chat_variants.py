"""Variants of Chat Completions bodies, for comparing fast paths with the full decoder."""

import copy
from collections.abc import Iterator
from typing import Any

PLAIN_COMPLETION: Any = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1790000000,
    "model": "gpt-x",
    "system_fingerprint": None,
    "service_tier": "default",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}},
                    {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
                "refusal": None,
                "annotations": [],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 1,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    },
}
REPLACEMENT_VALUES: tuple[Any, ...] = (None, "", "other", "stop", 7, 0.5, [], {}, True, {"type": "text", "text": "x"})


def body_variants(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one member is changed, removed or duplicated."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: variant for name, variant in value.items() if name != key}
            yield {**value, f"{key}_new": inner}
            yield from ({**value, key: variant} for variant in body_variants(inner))
    elif isinstance(value, list):
        yield [*value, *copy.deepcopy(value)]
        for index, inner in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], variant, *value[index + 1 :]] for variant in body_variants(inner))
    if value is not PLAIN_COMPLETION:
        yield from REPLACEMENT_VALUES
