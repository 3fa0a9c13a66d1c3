"""A conversation that ends with the model's own words, to models that continue them and to those that do not."""

from typing import Any

import pytest

import toolwire as tw

ASKED = {"role": "user", "content": "A haiku."}
BEGUN = {"role": "assistant", "content": "An old silent pond"}
INVENTED = ("added", "", "/messages/2")


def made(model: str, *messages: dict[str, Any], source: str = "openai-chat", **fields: Any) -> tw.Translation:
    return tw.translate({"model": "m", "messages": list(messages), **fields}, source, "anthropic", model=model)


def told(encoded: tw.Translation) -> list[tuple[str, str, str | None]]:
    return [(loss.kind, loss.path, loss.target) for loss in encoded.losses if loss.target != "/max_tokens"]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-5", "anthropic/claude-sonnet-4.6"])
def test_a_user_speaks_last_where_the_model_wants_it(model: str) -> None:
    encoded = made(model, ASKED, BEGUN)
    assert [message["role"] for message in encoded.value["messages"]] == ["user", "assistant", "user"]
    assert encoded.value["messages"][2]["content"] == "Continue from where you left off."
    assert told(encoded) == [INVENTED]
    assert tw.check(encoded.value, "anthropic") == []


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-3-5-haiku-latest", "some-model"])
def test_others_continue_it(model: str) -> None:
    encoded = made(model, ASKED, BEGUN)
    assert [message["role"] for message in encoded.value["messages"]] == ["user", "assistant"]
    assert told(encoded) == []


def test_that_it_is_not_continued_is_told_to_those_who_expect_it() -> None:
    encoded = made("claude-opus-4-6", ASKED, BEGUN, source="ollama")
    assert told(encoded) == [("approximated", "/messages/1/content", None), INVENTED]


def test_a_user_who_spoke_last_is_enough() -> None:
    encoded = made("claude-opus-4-6", ASKED, BEGUN, ASKED)
    assert len(encoded.value["messages"]) == 3
    assert told(encoded) == []


def test_at_home_a_translation_changes_nothing() -> None:
    body = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [ASKED, BEGUN]}
    assert tw.translate(body, "anthropic", "anthropic").value == body
