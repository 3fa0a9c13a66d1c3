"""Every official SDK in front of every upstream, through the gateway: a tool cycle of two turns, streamed and not.

The upstream is strict: it refuses calls and results that don't pair, and a history without the proofs of its thinking.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.scenarios.watching import Place, model_of, proofs_in
from tests.upstream.clients import CLIENTS, WEATHER, Called, Client, Heard, Tool
from toolwire.protocols import PROTOCOLS

NOTE = Tool(
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
# How thinking is asked for so that every upstream that can think does, if that is more than the SDK's usual way.
THINKING: dict[str, dict[str, Any]] = {
    "anthropic": {"output_config": {"effort": "high"}},
    "gemini": {"thinking_config": {"include_thoughts": True, "thinking_level": "high"}},
    "openrouter": {"reasoning": {"effort": "high", "summary": "auto"}},
}
PROVING = ("anthropic", "openai-responses", "gemini", "gemini-interactions", "openrouter")

# Ollama's `true` says not how much.
NOT_THINKING = {("ollama", "openai-responses")}

EVERY = [(client, upstream) for client in CLIENTS for upstream in CLIENTS]
every_pair = pytest.mark.parametrize(("client", "upstream"), EVERY)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def opened(place: Place, client: str, upstream: str, *, stream: bool, thinking: bool) -> Client:
    return CLIENTS[client][0](
        place.base_url,
        model_of(upstream),
        stream=stream,
        thinking=thinking,
        tools=(WEATHER, NOTE),
        options=THINKING.get(client, {}) if thinking else {},
    )


def check_calls(heard: Heard) -> None:
    assert [(call.name, call.arguments) for call in heard.calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("save_note", AWKWARD),
    ]


def check_answer(heard: Heard) -> None:
    assert heard.calls == ()
    for result in RESULTS:
        assert result in heard.text


def check_pairs(place: Place, upstream: str, calls: Sequence[Called]) -> None:
    """The calls that the upstream got back are its own, and each result has found its call."""
    first, second = place.upstream.seen
    made, results = second.calls(upstream), second.results(upstream)
    assert [json.loads(call.arguments) for call in made] == [call.arguments for call in calls]
    assert [call.id for call in made] == [result.call_id for result in results]
    if calls[0].id is not None:
        assert all(call.id is None or call.id.encode() in first.answered for call in made)


@every_pair
@streamed_or_not
def test_a_tool_cycle_of_two_turns(place: Place, client: str, upstream: str, stream: bool) -> None:
    talk = opened(place, client, upstream, stream=stream, thinking=True)
    # In words of its own: the gateway would know the same conversation again.
    first = talk.say(f"Step by step: {WISH}" if stream else WISH)
    check_calls(first)
    issued = proofs_in(place.upstream.seen[0].answered)
    assert bool(issued) == (upstream in PROVING and (client, upstream) not in NOT_THINKING)
    second = talk.answer(first.calls, RESULTS)
    check_answer(second)
    assert [seen.status for seen in place.upstream.seen] == [200, 200]
    check_pairs(place, upstream, first.calls)
    assert proofs_in(place.upstream.seen[1].asked) == issued


@every_pair
def test_without_thinking(place: Place, client: str, upstream: str) -> None:
    talk = opened(place, client, upstream, stream=False, thinking=False)
    first = talk.say(WISH)
    check_calls(first)
    check_answer(talk.answer(first.calls, RESULTS))
    check_pairs(place, upstream, first.calls)


@pytest.mark.parametrize("client", ["openai-chat", "ollama"])
@pytest.mark.parametrize("upstream", PROVING)
@streamed_or_not
def test_a_proof_that_is_kept_for_the_client_is_not_lost(
    place: Place, client: str, upstream: str, stream: bool
) -> None:
    opened(place, client, upstream, stream=stream, thinking=True).say(WISH)
    assert [loss for loss in place.losses() if loss["path"].endswith(("ignature", "/encrypted_content", "/data"))] == []


def test_nothing_is_left_out() -> None:
    assert len(EVERY) == len(PROTOCOLS) ** 2
