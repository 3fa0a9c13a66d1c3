"""How much of its thinking a model is asked to show, in the words of each protocol."""

from typing import Any

import pytest

import toolwire as tw

NEVER_SAID = "the target has no setting for visible thinking"
TOLD: dict[str, Any] = {
    "anthropic": ("thinking", {"type": "adaptive", "display": "summarized"}),
    "gemini": ("generationConfig", {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"}}),
    "gemini-interactions": ("generation_config", {"thinking_level": "high", "thinking_summaries": "auto"}),
}


def asked(summary: str) -> dict[str, Any]:
    return {"model": "m", "input": "Hi", "reasoning": {"effort": "high", "summary": summary}}


def losses(made: tw.Translation, path: str = "/reasoning/summary") -> list[tuple[str, str]]:
    return [(loss.kind, loss.reason) for loss in made.losses if loss.path == path]


@pytest.mark.parametrize("target", TOLD)
@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_a_summary_is_kept_but_not_its_length(target: str, summary: str) -> None:
    translated = tw.translate(asked(summary), "openai-responses", target, model="m")
    name, value = TOLD[target]
    assert translated.value[name] == value
    length = [("approximated", "the target decides the length of summaries")]
    assert losses(translated) == ([] if summary == "auto" else length)


@pytest.mark.parametrize("target", ["openai-chat", "ollama"])
@pytest.mark.parametrize("summary", ["auto", "detailed"])
def test_summary_settings_without_equivalent_are_reported(target: str, summary: str) -> None:
    translated = tw.translate(asked(summary), "openai-responses", target)
    assert losses(translated) == [("dropped", NEVER_SAID)]


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_openrouter_has_the_same_summary_settings(summary: str) -> None:
    translated = tw.translate(asked(summary), "openai-responses", "openrouter")
    assert translated.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses(translated) == []
    restored = tw.translate(translated.value, "openrouter", "openai-responses")
    assert restored.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses(restored) == []
    assert tw.translate(translated.value, "openrouter", "openrouter").value == translated.value
    assert tw.translate(asked(summary), "openai-responses", "openai-responses").value == asked(summary)


@pytest.mark.parametrize("target", [*TOLD, "openai-responses"])
def test_showing_all_thinking_has_no_equivalent(target: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "reasoning": {"effort": "high", "exclude": False},
    }
    translated = tw.translate(body, "openrouter", target, model="m")
    assert losses(translated, "/reasoning/exclude") == [("approximated", "the target shows summaries only")]
