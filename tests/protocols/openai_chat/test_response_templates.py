"""An answer is read the same whether or not one like it was read before."""

import json

import pytest

import toolwire
from tests.support.assertions import non_empty
from tests.support.bodies.chat_variants import PLAIN_COMPLETION, body_variants
from tests.support.samples.fixture_files import PROTOCOLS, fixtures
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.errors import DecodeError, ToolwireError
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.codec.wire.reader import Reader, WireObject
from toolwire.protocols.openai_chat import CODEC, fast_path
from toolwire.protocols.openai_chat import response as answers
from toolwire.protocols.openai_chat.fast_path import ResponseTemplateCache
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    CompletionDetailsShape,
    MessageShape,
    PromptDetailsShape,
    ResponseChoiceShape,
    ResponseShape,
    UsageShape,
)


def afresh(data: bytes) -> Response | str:
    try:
        return answers._decode_response(Reader[ResponseShape](ResponseShape, FAMILY).read(data), data)
    except DecodeError as error:
        return str(error)


def after_others(data: bytes) -> Response | str:
    try:
        return CODEC.decode_response(data, ResponseContext())
    except DecodeError as error:
        return str(error)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_templates", ResponseTemplateCache())


def test_one_thing_another_than_in_the_answer_before() -> None:
    first = json.dumps(PLAIN_COMPLETION).encode()
    for variant in non_empty(body_variants(PLAIN_COMPLETION)):
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
    known = answers._templates
    for variant in [PLAIN_COMPLETION, *body_variants(PLAIN_COMPLETION)] * 2:
        told = []
        for one in (known, ResponseTemplateCache()):
            answers._templates = one
            try:
                made = toolwire.translate(variant, FAMILY, target, "response")
                told.append((made.to_bytes(), made.losses))
            except ToolwireError as error:
                told.append((str(error).encode(), []))
        assert told[0] == told[1], json.dumps(variant)


def test_every_field_of_an_answer_is_looked_at() -> None:
    """A field that a shape gets, and nobody here compares, would be taken for the one before it."""
    of_answer = {
        name for get in (fast_path._varying_fields, fast_path._response_fields) for name in get.__reduce__()[1]
    }
    of_choice = set(fast_path._choice_fields.__reduce__()[1])
    elsewhere = {"choices", "model", "message", "finish_reason", "message.content", "message.tool_calls"}
    assert of_answer | elsewhere >= _fields(ResponseShape, {"usage": UsageShape})
    assert of_choice | elsewhere >= _fields(ResponseChoiceShape, {"message": MessageShape})


def _fields(shape: type[WireObject], inner: dict[str, type[WireObject]]) -> set[str]:
    found: set[str] = set()
    details: dict[str, type[WireObject]] = {
        "prompt_tokens_details": PromptDetailsShape,
        "completion_tokens_details": CompletionDetailsShape,
    }
    for name in set(shape.__struct_fields__) - {"unknown", "nulls"}:
        below = inner.get(name) or details.get(name)
        found |= {f"{name}.{one}" for one in _fields(below, {})} if below else {name}
    return found


def test_what_is_remembered_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of this would say nothing."""
    CODEC.decode_response(json.dumps(PLAIN_COMPLETION).encode(), ResponseContext())
    monkeypatch.setattr(answers, "_decode_response", None)
    changed = (
        json.dumps(PLAIN_COMPLETION).replace("I look.", "I read.").replace("call_2", "call_3").replace("1790", "1791")
    )
    response = CODEC.decode_response(changed.encode(), ResponseContext())
    assert response.created == 1791000000
    text, _, call = response.candidates[0].messages[0].parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (text.text, call.id) == ("I read.", "call_3")


def test_it_is_bounded() -> None:
    for number in range(2000):
        data = json.dumps({**PLAIN_COMPLETION, "model": f"m{number}", "service_tier": "x" * number}).encode()
        assert after_others(data) == afresh(data)
    assert 0 < len(answers._templates._templates) <= 256
    assert all(len(like.fixed_fields[0][2]) <= 1024 for like in answers._templates._templates.values())
