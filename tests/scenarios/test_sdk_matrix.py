"""Every official SDK on every upstream through the gateway: a tool cycle of two turns, streamed and not.

The upstream is strict: it rejects unpaired calls and results, and a history without signatures of its thinking.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.gateway.setup import (
    CLIENT_UPSTREAM_PAIRS,
    SIGNING_PROTOCOLS,
    GatewaySetup,
    buffered_and_streamed,
    for_every_pair,
    routed_model,
    signatures_in,
)
from tests.support.sdk.clients import SDK_CLIENTS, WEATHER_TOOL, ClientTool, ReceivedCall, ReceivedResponse, SdkClient
from toolwire.protocols import PROTOCOLS

NOTE = ClientTool(
    "save_note",
    "Saves a note.",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "number": {"type": "integer"}},
        "required": ["text", "number"],
    },
)
AWKWARD = {"text": 'Grüße, "Welt"\n\t𝄞 \\ </script> \u2028 日本', "number": 9007199254740993}
WISH = f'get_weather {{"city": "Zürich"}} and save_note {json.dumps(AWKWARD, ensure_ascii=False)}'
RESULTS = ["snow, 4711 mm", 'kept as "0815"\n→ ✓']
# Options that request thinking from every upstream that supports it, if the SDK's default does not.
THINKING: dict[str, dict[str, Any]] = {
    "anthropic": {"output_config": {"effort": "high"}},
    "gemini": {"thinking_config": {"include_thoughts": True, "thinking_level": "high"}},
    "openrouter": {"reasoning": {"effort": "high", "summary": "auto"}},
}

# Ollama's `true` states no effort.
NOT_THINKING = {("ollama", "openai-responses")}


def open_client(gateway_setup: GatewaySetup, client: str, upstream: str, *, stream: bool, thinking: bool) -> SdkClient:
    return SDK_CLIENTS[client][0](
        gateway_setup.base_url,
        routed_model(upstream),
        stream=stream,
        thinking=thinking,
        tools=(WEATHER_TOOL, NOTE),
        options=THINKING.get(client, {}) if thinking else {},
    )


def check_calls(response: ReceivedResponse) -> None:
    assert [(call.name, call.arguments) for call in response.calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("save_note", AWKWARD),
    ]


def check_answer(response: ReceivedResponse) -> None:
    assert response.calls == ()
    for result in RESULTS:
        assert result in response.text


def check_pairs(gateway_setup: GatewaySetup, upstream: str, calls: Sequence[ReceivedCall]) -> None:
    """Check that the upstream got its calls back, each with the matching result."""
    first, second = gateway_setup.upstream.exchanges
    calls_returned, results = second.calls(upstream), second.results(upstream)
    assert [json.loads(call.arguments) for call in calls_returned] == [call.arguments for call in calls]
    assert [call.id for call in calls_returned] == [result.call_id for result in results]
    if calls[0].id is not None:
        assert all(call.id is None or call.id.encode() in first.response_body for call in calls_returned)


@for_every_pair
@buffered_and_streamed
def test_tool_cycle_of_two_turns(gateway_setup: GatewaySetup, client: str, upstream: str, stream: bool) -> None:
    talk = open_client(gateway_setup, client, upstream, stream=stream, thinking=True)
    # Different words, or the gateway would recognize the conversation.
    first = talk.send_text(f"Step by step: {WISH}" if stream else WISH)
    check_calls(first)
    issued = signatures_in(gateway_setup.upstream.exchanges[0].response_body)
    assert bool(issued) == (upstream in SIGNING_PROTOCOLS and (client, upstream) not in NOT_THINKING)
    second = talk.send_results(first.calls, RESULTS)
    check_answer(second)
    assert [exchange.status for exchange in gateway_setup.upstream.exchanges] == [200, 200]
    check_pairs(gateway_setup, upstream, first.calls)
    assert signatures_in(gateway_setup.upstream.exchanges[1].request_body) == issued


@for_every_pair
def test_tool_cycle_without_thinking(gateway_setup: GatewaySetup, client: str, upstream: str) -> None:
    talk = open_client(gateway_setup, client, upstream, stream=False, thinking=False)
    first = talk.send_text(WISH)
    check_calls(first)
    check_answer(talk.send_results(first.calls, RESULTS))
    check_pairs(gateway_setup, upstream, first.calls)


@pytest.mark.parametrize("client", ["openai-chat", "ollama"])
@pytest.mark.parametrize("upstream", SIGNING_PROTOCOLS)
@buffered_and_streamed
def test_signature_kept_for_the_client_is_not_reported_as_a_loss(
    gateway_setup: GatewaySetup, client: str, upstream: str, stream: bool
) -> None:
    open_client(gateway_setup, client, upstream, stream=stream, thinking=True).send_text(WISH)
    assert [
        loss for loss in gateway_setup.losses() if loss["path"].endswith(("ignature", "/encrypted_content", "/data"))
    ] == []


def test_matrix_covers_all_protocols() -> None:
    assert len(CLIENT_UPSTREAM_PAIRS) == len(PROTOCOLS) ** 2
