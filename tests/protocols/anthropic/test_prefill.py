"""Conversations that end with assistant text, for models with and without prefill support."""

from typing import Any

import pytest

import toolwire as tw

USER = {"role": "user", "content": "A haiku."}
PREFILL = {"role": "assistant", "content": "An old silent pond"}
ADDED_MESSAGE = ("added", "", "/messages/2")


def translate(model: str, *messages: dict[str, Any], source: str = "openai-chat", **fields: Any) -> tw.Translation:
    """Translate a conversation to Anthropic."""
    return tw.translate({"model": "m", "messages": list(messages), **fields}, source, "anthropic", model=model)


def losses_of(translation: tw.Translation) -> list[tuple[str, str, str | None]]:
    """Return the losses except the added limit."""
    return [(loss.kind, loss.path, loss.target) for loss in translation.losses if loss.target != "/max_tokens"]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-5", "anthropic/claude-sonnet-4.6"])
def test_user_message_is_appended_without_prefill_support(model: str) -> None:
    translation = translate(model, USER, PREFILL)
    assert [message["role"] for message in translation.value["messages"]] == ["user", "assistant", "user"]
    assert translation.value["messages"][2]["content"] == "Continue from where you left off."
    assert losses_of(translation) == [ADDED_MESSAGE]
    assert tw.check(translation.value, "anthropic") == []


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-3-5-haiku-latest", "some-model"])
def test_prefill_is_kept_for_models_that_support_it(model: str) -> None:
    translation = translate(model, USER, PREFILL)
    assert [message["role"] for message in translation.value["messages"]] == ["user", "assistant"]
    assert losses_of(translation) == []


def test_lost_continuation_is_reported_to_protocols_that_continue() -> None:
    translation = translate("claude-opus-4-6", USER, PREFILL, source="ollama")
    assert losses_of(translation) == [("approximated", "/messages/1/content", None), ADDED_MESSAGE]


def test_nothing_is_appended_after_a_user_message() -> None:
    translation = translate("claude-opus-4-6", USER, PREFILL, USER)
    assert len(translation.value["messages"]) == 3
    assert losses_of(translation) == []


def test_same_protocol_request_is_unchanged() -> None:
    body = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [USER, PREFILL]}
    assert tw.translate(body, "anthropic", "anthropic").value == body
