"""Facts of several sources, merged field by field."""

import pytest

from toolwire.codec.models.gpt import gpt_info
from toolwire.codec.models.info import ModelInfo, known_facts, merge_info


def test_first_source_that_knows_a_fact_wins() -> None:
    merged = merge_info(ModelInfo(context=10), ModelInfo(context=20, output=5), ModelInfo(output=6, efforts=("low",)))
    assert merged == ModelInfo(context=10, output=5, efforts=("low",))


def test_false_and_empty_are_facts() -> None:
    assert merge_info(ModelInfo(tools=False, efforts=()), ModelInfo(tools=True, efforts=("low",))) == ModelInfo(
        tools=False, efforts=()
    )
    assert known_facts(ModelInfo(vision=False, budget=())) == {"vision": False, "budget": ()}


@pytest.mark.parametrize(
    ("model", "context"),
    [
        ("gpt-4", 8192),
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("gpt-4.1-nano", 1_000_000),
        ("o4-mini", 200_000),
        ("openai/gpt-5-mini", 400_000),
        ("gpt-5.1-codex-mini", 400_000),
        ("gpt-5.4-nano", 400_000),
        ("gpt-5.4", 1_050_000),
        ("gpt-5.5", 1_000_000),
        ("gpt-6-sol", 1_050_000),
        ("gpt-5-chat-latest", None),
        ("gpt-5.55", None),
        ("gpt-7", None),
    ],
)
def test_context_windows_of_openai_models_are_known_by_name(model: str, context: int | None) -> None:
    assert gpt_info(model).context == context
