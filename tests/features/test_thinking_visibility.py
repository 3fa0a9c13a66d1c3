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
def test_a_summary_is_one_everywhere_but_not_its_length(target: str, summary: str) -> None:
    made = tw.translate(asked(summary), "openai-responses", target, model="m")
    name, value = TOLD[target]
    assert made.value[name] == value
    length = [("approximated", "the target decides the length of summaries")]
    assert losses(made) == ([] if summary == "auto" else length)


@pytest.mark.parametrize("target", ["openai-chat", "ollama"])
@pytest.mark.parametrize("summary", ["auto", "detailed"])
def test_some_can_not_say_it(target: str, summary: str) -> None:
    made = tw.translate(asked(summary), "openai-responses", target)
    assert losses(made) == [("dropped", NEVER_SAID)]


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_openrouter_has_the_same_words(summary: str) -> None:
    made = tw.translate(asked(summary), "openai-responses", "openrouter")
    assert made.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses(made) == []
    back = tw.translate(made.value, "openrouter", "openai-responses")
    assert back.value["reasoning"] == {"effort": "high", "summary": summary}
    assert losses(back) == []
    assert tw.translate(made.value, "openrouter", "openrouter").value == made.value
    assert tw.translate(asked(summary), "openai-responses", "openai-responses").value == asked(summary)


@pytest.mark.parametrize("target", [*TOLD, "openai-responses"])
def test_all_of_it_is_shown_by_none_of_these(target: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "reasoning": {"effort": "high", "exclude": False},
    }
    made = tw.translate(body, "openrouter", target, model="m")
    assert losses(made, "/reasoning/exclude") == [("approximated", "the target shows summaries only")]
