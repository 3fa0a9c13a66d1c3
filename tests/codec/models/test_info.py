"""Facts of several sources, merged field by field."""

from toolwire.codec.models.info import ModelInfo, known_facts, merge_info


def test_first_source_that_knows_a_fact_wins() -> None:
    merged = merge_info(ModelInfo(context=10), ModelInfo(context=20, output=5), ModelInfo(output=6, efforts=("low",)))
    assert merged == ModelInfo(context=10, output=5, efforts=("low",))


def test_false_and_empty_are_facts() -> None:
    assert merge_info(ModelInfo(tools=False, efforts=()), ModelInfo(tools=True, efforts=("low",))) == ModelInfo(
        tools=False, efforts=()
    )
    assert known_facts(ModelInfo(vision=False, budget=())) == {"vision": False, "budget": ()}
