"""An answer is read the same whether or not one like it was read before."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import toolwire
from tests.fixture_files import PROTOCOLS, fixtures
from tests.loops import some
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.errors import DecodeError, ToolwireError
from toolwire.canonical.response import Response
from toolwire.codec.fields import Reader, Wire
from toolwire.codec.interface import Context
from toolwire.protocols.openai_chat import CODEC
from toolwire.protocols.openai_chat.response import alike
from toolwire.protocols.openai_chat.response import body as answers
from toolwire.protocols.openai_chat.response.alike import Alike
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    AnswerShape,
    CompletionDetailsShape,
    MessageShape,
    PromptDetailsShape,
    ResponseShape,
    UsageShape,
)

ORDINARY: Any = {
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
OTHERS: tuple[Any, ...] = (None, "", "other", "stop", 7, 0.5, [], {}, True, {"type": "text", "text": "x"})


def afresh(data: bytes) -> Response | str:
    try:
        return answers._decode_response(Reader[ResponseShape](ResponseShape, FAMILY).read(data), data)
    except DecodeError as error:
        return str(error)


def after_others(data: bytes) -> Response | str:
    try:
        return CODEC.decode_response(data, Context())
    except DecodeError as error:
        return str(error)


def variants(value: Any) -> Iterator[Any]:
    """The same with one thing in it another, or gone, or said twice."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield {**value, f"{key}_new": inner}
            yield from ({**value, key: one} for one in variants(inner))
    elif isinstance(value, list):
        yield [*value, *copy.deepcopy(value)]
        for index, inner in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], one, *value[index + 1 :]] for one in variants(inner))
    if value is not ORDINARY:
        yield from OTHERS


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_alike", Alike())


def test_one_thing_another_than_in_the_answer_before() -> None:
    first = json.dumps(ORDINARY).encode()
    for variant in some(variants(ORDINARY)):
        data = json.dumps(variant).encode()
        for one in (first, data, first, data):
            assert after_others(one) == afresh(one), one


def test_all_fixtures_one_after_the_other() -> None:
    bodies = [
        json.dumps(body).encode() for name in ("openai-chat", "openrouter") for _, body in fixtures(name, "responses")
    ]
    assert len(bodies) > 40
    for data in bodies * 3:
        assert after_others(data) == afresh(data), data


@pytest.mark.parametrize("target", [name for name in PROTOCOLS if name != "anthropic"])
def test_the_same_is_lost(target: str) -> None:
    """To Anthropic: in its own tests."""
    known = answers._alike
    for variant in [ORDINARY, *variants(ORDINARY)] * 2:
        told = []
        for one in (known, Alike()):
            answers._alike = one
            try:
                made = toolwire.translate(variant, FAMILY, target, "response")
                told.append((made.to_bytes(), made.losses))
            except ToolwireError as error:
                told.append((str(error).encode(), []))
        assert told[0] == told[1], json.dumps(variant)


def test_every_field_of_an_answer_is_looked_at() -> None:
    """A field that a shape gets, and nobody here compares, would be taken for the one before it."""
    of_answer = {name for get in (alike._of_its_own, alike._of_answer) for name in get.__reduce__()[1]}
    of_choice = set(alike._of_choice.__reduce__()[1])
    elsewhere = {"choices", "model", "message", "finish_reason", "message.content", "message.tool_calls"}
    assert of_answer | elsewhere >= _fields(ResponseShape, {"usage": UsageShape})
    assert of_choice | elsewhere >= _fields(AnswerShape, {"message": MessageShape})


def _fields(shape: type[Wire], inner: dict[str, type[Wire]]) -> set[str]:
    found: set[str] = set()
    details: dict[str, type[Wire]] = {
        "prompt_tokens_details": PromptDetailsShape,
        "completion_tokens_details": CompletionDetailsShape,
    }
    for name in set(shape.__struct_fields__) - {"unknown", "nulls"}:
        below = inner.get(name) or details.get(name)
        found |= {f"{name}.{one}" for one in _fields(below, {})} if below else {name}
    return found


def test_what_is_remembered_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of this would say nothing."""
    CODEC.decode_response(json.dumps(ORDINARY).encode(), Context())
    monkeypatch.setattr(answers, "_decode_response", None)
    changed = json.dumps(ORDINARY).replace("I look.", "I read.").replace("call_2", "call_3").replace("1790", "1791")
    response = CODEC.decode_response(changed.encode(), Context())
    assert response.created == 1791000000
    text, _, call = response.candidates[0].messages[0].parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (text.text, call.id) == ("I read.", "call_3")


def test_it_is_bounded() -> None:
    for number in range(2000):
        data = json.dumps({**ORDINARY, "model": f"m{number}", "service_tier": "x" * number}).encode()
        assert after_others(data) == afresh(data)
    assert 0 < len(answers._alike._known) <= 256
    assert all(len(like.written[0][2]) <= 1024 for like in answers._alike._known.values())
