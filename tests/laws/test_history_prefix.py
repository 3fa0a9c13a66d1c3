"""The prefix law: what is sent for a history stays a prefix of what is sent for its continuation."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.signed_responses import ENVELOPE_KEY, SIGNED_RESPONSES
from tests.support.bodies.tool_cycles import FIRST_REQUESTS, next_request
from tests.support.samples import recorded_bodies

HISTORY = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
    "gemini-interactions": "input",
    "ollama": "messages",
    "openrouter": "messages",
}

# Items and steps that come from the client, beside those that are named after what they answer.
THE_CLIENTS = ("mcp_approval_response", "item_reference", "additional_tools", "user_input", "function_result")
CONTENTS = ("text", "image", "audio", "video", "document")


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_what_was_sent_stays_a_prefix(source: str, target: str) -> None:
    _check_prefixes(source, target)


@pytest.mark.parametrize("host", ["generic", "mistral"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_what_was_sent_to_a_host_stays_a_prefix(source: str, host: str) -> None:
    _check_prefixes(source, "openai-chat", host=host)


def _check_prefixes(source: str, target: str, **options: Any) -> None:
    tried = 0
    for name, body in recorded_bodies.requests(source).items():
        history = body.get(HISTORY[source])
        if not isinstance(history, list):
            continue
        whole = _sent(body, history, source, target, **options)
        for cut in _requests_on_the_way(history):
            if any(finding.level == "error" for finding in tw.check({**body, HISTORY[source]: history[:cut]}, source)):
                continue  # no client sent this: the provider would have refused it
            part = _sent(body, history[:cut], source, target, **options)
            if whole is None or part is None:
                continue
            tried += 1
            assert whole[: len(part)] == part, f"{name} at {cut}"
    assert tried


@pytest.mark.parametrize("client", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("case", SIGNED_RESPONSES)
def test_what_was_sent_stays_a_prefix_also_with_carries(case: str, client: str) -> None:
    """The same answer three times, so that what proves the first ones is sent again and again."""
    issuer, response = SIGNED_RESPONSES[case]
    body = FIRST_REQUESTS[client]
    before: list[Any] = []
    for _ in range(4):
        translated = tw.translate(body, client, issuer, envelope_key=ENVELOPE_KEY).value[HISTORY[issuer]]
        assert translated[: len(before)] == before
        assert len(translated) > len(before)
        before = translated
        told = tw.translate(response, issuer, client, "response", request=body, envelope_key=ENVELOPE_KEY).value
        body = next_request(body, told, client)


def _sent(body: dict[str, Any], history: list[Any], source: str, target: str, **options: Any) -> list[Any] | None:
    try:
        options |= recorded_bodies.address_options(source, "request")
        value = tw.translate({**body, HISTORY[source]: history}, source, target, **options).value
    except tw.LossyTranslationError:
        return None
    sent = value[HISTORY[target]]
    return sent if isinstance(sent, list) else [sent]


def _requests_on_the_way(history: list[Any]) -> list[int]:
    """Where a client asked before: the history so far ends on the user's side, and the model spoke next."""
    return [cut for cut in range(1, len(history)) if not _by_model(history[cut - 1]) and _by_model(history[cut])]


def _by_model(message: Any) -> bool:
    if message.get("role") is not None:
        return message["role"] in ("assistant", "model")
    kind = str(message.get("type"))
    return kind == "model_output" or (not kind.endswith("_output") and kind not in THE_CLIENTS + CONTENTS)
