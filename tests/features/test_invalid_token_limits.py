"""A bound on the answer that can't be read is an error, never an answer without one."""

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
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def request(protocol: str, value: object) -> dict[str, Any]:
    body: dict[str, Any] = copy.deepcopy(tw.translate(ASKED, "openai-chat", protocol, model="m").value)
    *above, name = FIELDS[protocol]
    place = body
    for step in above:
        place = place.setdefault(step, {})
    place[name] = value
    return body


@pytest.mark.parametrize("value", ["100", [100], {"tokens": 100}, 1.5, True], ids=str)
@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_a_limit_of_a_wrong_type_is_refused_by_name(protocol: str, value: object) -> None:
    """Issue 17, part S: `max_tokens` of a wrong type was dropped, and the answer unlimited."""
    target = "anthropic" if protocol != "anthropic" else "openai-chat"
    with pytest.raises(tw.DecodeError, match="/".join(FIELDS[protocol])):
        tw.translate(request(protocol, value), protocol, target, model="m")


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_a_limit_of_the_right_type_is_taken_beside_what_is_unknown(protocol: str) -> None:
    body = request(protocol, 100) | {"of_tomorrow": 1}
    translated = tw.translate(body, protocol, "ollama", model="m").value
    assert translated["options"]["num_predict"] == 100


def test_the_gateway_says_400() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            body = b'{"model": "m", "max_tokens": "100", "messages": [{"role": "user", "content": "Hi"}]}'
            answer = await gateway.post("/v1/chat/completions", body)
            assert answer.status == 400
            assert b"/max_tokens: expected an integer" in await answer.read(10_000)

    run_async(work())


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "openrouter", "gemini-interactions"])
def test_a_tool_without_a_type_is_a_loss_that_can_be_read(protocol: str) -> None:
    """Issue 17, part S: it was dropped since «the target has no  tool»."""
    body = request(protocol, 100) | {"tools": [{}]}
    lost = {loss.path: loss.reason for loss in tw.translate(body, protocol, "anthropic", model="m").losses}
    assert lost["/tools/0"] == "the tool has no type"
