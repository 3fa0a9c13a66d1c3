"""Suggestions for unknown names."""

import pytest

from toolwire.codec.suggestions import similar_names, suggest


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("modle", ["match", "model"], 'did you mean "model"?'),
        ("OPENAI-chat", ["ollama", "openai-chat"], 'did you mean "openai-chat"?'),
        ("sonnet", ["claude-sonnet-4-5", "gpt-5"], 'did you mean "claude-sonnet-4-5"?'),
        ("modl", ["mode", "model"], 'did you mean "model" or "mode"?'),
        ("zzz", ["model"], "see the list"),
    ],
)
def test_the_nearest_names_are_suggested(name: str, known: list[str], expected: str) -> None:
    assert suggest(name, known, "see the list") == expected


def test_long_names_and_long_lists_are_bounded() -> None:
    known = [f"model-{number}" for number in range(100_000)]
    assert len(similar_names("model-" * 100_000, known)) <= 3
