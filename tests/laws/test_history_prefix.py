"""The prefix law: the encoded history stays a prefix when the conversation continues."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.signed_responses import ENVELOPE_KEY, SIGNED_RESPONSES
from tests.support.bodies.tool_cycles import FIRST_REQUESTS, next_request
from tests.support.samples import recorded_bodies
from tests.support.samples.histories import earlier_requests

HISTORY = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
    "gemini-interactions": "input",
    "ollama": "messages",
    "openrouter": "messages",
}


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_the_encoded_history_stays_a_prefix(source: str, target: str) -> None:
    _check_prefixes(source, target)


@pytest.mark.parametrize("host", ["generic", "mistral", "dashscope", "moonshot"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_the_history_encoded_for_a_host_stays_a_prefix(source: str, host: str) -> None:
    _check_prefixes(source, "openai-chat", host=host)


def _check_prefixes(source: str, target: str, **options: Any) -> None:
    comparisons = 0
    bodies = recorded_bodies.sample_for_target(recorded_bodies.requests(source), target, one_in=1)
    for name, body in bodies.items():
        history = body.get(HISTORY[source])
        if not isinstance(history, list):
            continue
        complete_history = _encode_history(body, history, source, target, **options)
        for length in earlier_requests(history):
            if any(
                finding.level == "error" for finding in tw.check({**body, HISTORY[source]: history[:length]}, source)
            ):
                continue  # the provider would have rejected it
            prefix = _encode_history(body, history[:length], source, target, **options)
            if complete_history is None or prefix is None:
                continue
            comparisons += 1
            assert complete_history[: len(prefix)] == prefix, f"{name} at {length}"
    assert comparisons


@pytest.mark.parametrize("client", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("case", SIGNED_RESPONSES)
def test_the_encoded_history_with_envelopes_stays_a_prefix(case: str, client: str) -> None:
    """The same response several times, so that the first envelopes are sent repeatedly."""
    issuer, response = SIGNED_RESPONSES[case]
    body = FIRST_REQUESTS[client]
    previous: list[Any] = []
    for _ in range(4):
        encoded = tw.translate(body, client, issuer, envelope_key=ENVELOPE_KEY).value[HISTORY[issuer]]
        assert encoded[: len(previous)] == previous
        assert len(encoded) > len(previous)
        previous = encoded
        client_response = tw.translate(
            response, issuer, client, "response", request=body, envelope_key=ENVELOPE_KEY
        ).value
        body = next_request(body, client_response, client)


def _encode_history(
    body: dict[str, Any], history: list[Any], source: str, target: str, **options: Any
) -> list[Any] | None:
    try:
        options |= recorded_bodies.address_options(source, "request")
        value = tw.translate({**body, HISTORY[source]: history}, source, target, **options).value
    except tw.LossyTranslationError:
        return None
    encoded = value[HISTORY[target]]
    if options.get("host") == "mistral" and encoded:
        # Mistral accepts a final assistant message only with this member, which is not part of the prompt.
        encoded[-1].pop("prefix", None)
    return encoded if isinstance(encoded, list) else [encoded]
