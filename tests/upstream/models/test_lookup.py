"""`toolwire.model_info`."""

import pytest

import toolwire as tw


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"])
def test_facts_of_all_sources_are_merged(name: str) -> None:
    info = tw.model_info(name)
    assert (info.context, info.output, info.thinking) == (200_000, 64_000, "optional")
    assert info.prices is not None
    assert info.prices.input == 3


def test_unknown_model_has_no_facts() -> None:
    assert tw.model_info("nobody/no-such-model").context is None
