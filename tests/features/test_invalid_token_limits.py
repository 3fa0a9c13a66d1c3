"""A token limit that cannot be decoded is an error, never a response without a limit."""

import copy
from typing import Any

import pytest

import toolwire as tw
from tests.support.gateway.in_process import run_async, run_gateway_with
from tests.support.protocols import ALL_PROTOCOLS
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream

FIELDS = {
    "anthropic": ["max_tokens"],
    "openai-chat": ["max_tokens"],
    "openrouter": ["max_tokens"],
    "openai-responses": ["max_output_tokens"],
    "gemini": ["generationConfig", "maxOutputTokens"],
    "gemini-interactions": ["generation_config", "max_output_tokens"],
    "ollama": ["options", "num_predict"],
}
CHAT_REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def request_with_limit(protocol: str, value: object) -> dict[str, Any]:
    body: dict[str, Any] = copy.deepcopy(tw.translate(CHAT_REQUEST, "openai-chat", protocol, model="m").value)
    *parents, name = FIELDS[protocol]
    parent = body
    for step in parents:
        parent = parent.setdefault(step, {})
    parent[name] = value
    return body


@pytest.mark.parametrize("value", ["100", [100], {"tokens": 100}, 1.5, True], ids=str)
@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_a_token_limit_of_the_wrong_type_is_refused_by_name(protocol: str, value: object) -> None:
    """`max_tokens` of the wrong type was dropped, and the response was unlimited."""
    target = "anthropic" if protocol != "anthropic" else "openai-chat"
    with pytest.raises(tw.DecodeError, match="/".join(FIELDS[protocol])):
        tw.translate(request_with_limit(protocol, value), protocol, target, model="m")


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_a_valid_token_limit_is_accepted_beside_unknown_fields(protocol: str) -> None:
    body = request_with_limit(protocol, 100) | {"unknown_field": 1}
    translated = tw.translate(body, protocol, "ollama", model="m").value
    assert translated["options"]["num_predict"] == 100


def test_the_gateway_responds_with_400_to_an_invalid_limit() -> None:
    async def scenario() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            body = b'{"model": "m", "max_tokens": "100", "messages": [{"role": "user", "content": "Hi"}]}'
            response = await gateway.post("/v1/chat/completions", body)
            assert response.status == 400
            assert b"/max_tokens: expected an integer" in await response.read(10_000)

    run_async(scenario())


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "openrouter", "gemini-interactions"])
def test_a_tool_without_a_type_has_a_readable_loss_reason(protocol: str) -> None:
    """The reason had an empty type name."""
    body = request_with_limit(protocol, 100) | {"tools": [{}]}
    lost = {loss.path: loss.reason for loss in tw.translate(body, protocol, "anthropic", model="m").losses}
    assert lost["/tools/0"] == "the tool has no type"
