"""The visibility of thinking that a request asks for, in each protocol."""

from typing import Any

import pytest

import toolwire as tw

NO_EQUIVALENT = "the target has no setting for visible thinking"
SUMMARY_FIELDS: dict[str, Any] = {
    "anthropic": ("thinking", {"type": "adaptive", "display": "summarized"}),
    "gemini": ("generationConfig", {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"}}),
    "gemini-interactions": ("generation_config", {"thinking_level": "high", "thinking_summaries": "auto"}),
}


def summary_request(summary: str) -> dict[str, Any]:
    return {"model": "m", "input": "Hi", "reasoning": {"effort": "high", "summary": summary}}


def losses_at(translation: tw.Translation, path: str = "/reasoning/summary") -> list[tuple[str, str]]:
    return [(loss.kind, loss.reason) for loss in translation.losses if loss.path == path]


@pytest.mark.parametrize("target", SUMMARY_FIELDS)
@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_a_summary_is_kept_but_not_its_length(target: str, summary: str) -> None:
    translated = tw.translate(summary_request(summary), "openai-responses", target, model="m")
    name, value = SUMMARY_FIELDS[target]
    assert translated.value[name] == value
    length = [("approximated", "the target decides the length of summaries")]
    assert losses_at(translated) == ([] if summary == "auto" else length)


@pytest.mark.parametrize("target", ["openai-chat", "ollama"])
@pytest.mark.parametrize("summary", ["auto", "detailed"])
def test_summary_settings_without_equivalent_are_reported(target: str, summary: str) -> None:
    translated = tw.translate(summary_request(summary), "openai-responses", target)
    assert losses_at(translated) == [("dropped", NO_EQUIVALENT)]


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_openrouter_has_the_same_summary_settings(summary: str) -> None:
    translated = tw.translate(summary_request(summary), "openai-responses", "openrouter")
    assert translated.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses_at(translated) == []
    restored = tw.translate(translated.value, "openrouter", "openai-responses")
    assert restored.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses_at(restored) == []
    assert tw.translate(translated.value, "openrouter", "openrouter").value == translated.value
    assert tw.translate(summary_request(summary), "openai-responses", "openai-responses").value == summary_request(
        summary
    )


@pytest.mark.parametrize("target", [*SUMMARY_FIELDS, "openai-responses"])
def test_showing_all_thinking_has_no_equivalent(target: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "reasoning": {"effort": "high", "exclude": False},
    }
    translated = tw.translate(body, "openrouter", target, model="m")
    assert losses_at(translated, "/reasoning/exclude") == [("approximated", "the target shows summaries only")]
