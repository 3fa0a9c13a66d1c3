"""A response is decoded the same with and without a template of an earlier one."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.assertions import non_empty
from tests.support.bodies.chat_variants import PLAIN_COMPLETION, body_variants
from tests.support.samples.fixture_files import PROTOCOLS, fixtures
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.errors import DecodeError, ToolwireError
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.openai_chat import CODEC
from toolwire.protocols.openai_chat import response as responses
from toolwire.protocols.openai_chat.fast_path import ResponseTemplateCache
from toolwire.protocols.openai_chat.wire import FAMILY, ResponseShape


def decode_without_template(data: bytes) -> Response | str:
    try:
        return responses._decode_response(Reader[ResponseShape](ResponseShape, FAMILY).read(data), data)
    except DecodeError as error:
        return str(error)


def decode_with_templates(data: bytes) -> Response | str:
    try:
        return CODEC.decode_response(data, ResponseContext())
    except DecodeError as error:
        return str(error)


@pytest.fixture(autouse=True)
def _empty_template_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_templates", ResponseTemplateCache(responses.decode_usage))


def test_variants_after_a_plain_response_are_decoded_alike() -> None:
    first = json.dumps(PLAIN_COMPLETION).encode()
    for variant in non_empty(body_variants(PLAIN_COMPLETION)):
        data = json.dumps(variant).encode()
        for body in (first, data, first, data):
            assert decode_with_templates(body) == decode_without_template(body), body


def test_consecutive_fixtures_are_decoded_alike() -> None:
    bodies = [
        json.dumps(body).encode() for name in ("openai-chat", "openrouter") for _, body in fixtures(name, "responses")
    ]
    assert len(bodies) > 40
    for data in bodies * 3:
        assert decode_with_templates(data) == decode_without_template(data), data


@pytest.mark.parametrize("target", [name for name in PROTOCOLS if name != "anthropic"])
def test_losses_are_the_same(target: str) -> None:
    """Anthropic as a target is covered by its own tests."""
    cache = responses._templates
    for variant in [PLAIN_COMPLETION, *body_variants(PLAIN_COMPLETION)] * 2:
        results = []
        for templates in (cache, ResponseTemplateCache(responses.decode_usage)):
            responses._templates = templates
            try:
                translation = toolwire.translate(variant, FAMILY, target, "response")
                results.append((translation.to_bytes(), translation.losses))
            except ToolwireError as error:
                results.append((str(error).encode(), []))
        assert results[0] == results[1], json.dumps(variant)


SERVERS: dict[str, Any] = {
    "no details": {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
    "no usage": {"usage": None},
    "null members, as vLLM": {"prompt_logprobs": None, "kv_transfer_params": None},
    "varying members, as llama.cpp": {"timings": {"prompt_n": 1, "prompt_ms": 2.5}},
    "reasoning, as DeepSeek": {
        "choices": [
            {
                **PLAIN_COMPLETION["choices"][0],
                "message": {**PLAIN_COMPLETION["choices"][0]["message"], "reasoning_content": "I look. Hm."},
            }
        ]
    },
    "own counts, as DeepSeek": {
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_cache_hit_tokens": 2}
    },
}


@pytest.mark.parametrize("server", SERVERS)
def test_responses_of_every_server_use_a_template(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {**PLAIN_COMPLETION, **SERVERS[server]}
    changed = json.dumps(body).replace("I look.", "I read.").replace("2.5", "3.5").replace('tokens": 2', 'tokens": 9')
    expected = decode_without_template(changed.encode())
    assert decode_with_templates(json.dumps(body).encode()) == decode_without_template(json.dumps(body).encode())
    monkeypatch.setattr(responses, "_decode_response", None)
    assert decode_with_templates(changed.encode()) == expected


@pytest.mark.parametrize("name", ["timing", "a/b", "a~b", "class", "id "])
def test_unknown_members_keep_their_own_values(name: str) -> None:
    for value in ("one", "two"):
        data = json.dumps({**PLAIN_COMPLETION, name: value}).encode()
        assert decode_with_templates(data) == decode_without_template(data)


def test_template_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the other tests would compare the slow path with itself."""
    CODEC.decode_response(json.dumps(PLAIN_COMPLETION).encode(), ResponseContext())
    monkeypatch.setattr(responses, "_decode_response", None)
    monkeypatch.setattr(responses._templates, "_decode_usage", None)
    changed = (
        json.dumps(PLAIN_COMPLETION).replace("I look.", "I read.").replace("call_2", "call_3").replace("1790", "1791")
    ).replace('"prompt_tokens": 10', '"prompt_tokens": 11')
    response = CODEC.decode_response(changed.encode(), ResponseContext())
    assert response.created == 1791000000
    assert response.usage is not None
    assert response.usage.input_tokens == 11
    text, _, call = response.candidates[0].messages[0].parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (text.text, call.id) == ("I read.", "call_3")


def test_cache_is_bounded() -> None:
    for number in range(2000):
        data = json.dumps({**PLAIN_COMPLETION, "model": f"m{number}", "service_tier": "x" * number}).encode()
        assert decode_with_templates(data) == decode_without_template(data)
    templates = responses._templates._layout.templates
    assert 0 < len(templates) <= 256
    assert all(len(fixed) <= 2048 for fixed, *_ in templates)
