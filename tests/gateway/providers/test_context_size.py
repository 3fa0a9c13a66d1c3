"""The context size that is requested from Ollama."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.codec.hosts.compatible import COMPATIBLE
from toolwire.codec.models.info import ModelInfo
from toolwire.gateway.providers.context_size import ContextSizes
from toolwire.upstream.models.catalog import CatalogEntry
from toolwire.upstream.provider import ContextSize, Provider

PROVIDER = Provider(name="local", protocol="ollama", base_url="http://127.0.0.1:11434")


def choose(
    sizes: ContextSizes,
    prompt: int,
    *,
    greatest: int | None = 131_072,
    setting: ContextSize = "auto",
    limit: int | None = None,
    preset: int | None = None,
) -> int | None:
    entry = CatalogEntry(info=ModelInfo(context=greatest), host=COMPATIBLE, preset_context=preset)
    return sizes.choose(PROVIDER, "m", entry, setting, prompt_tokens=prompt, max_tokens=limit)


@pytest.mark.parametrize(
    ("prompt", "size"), [(10, None), (2048, None), (2049, 8192), (7000, 16_384), (30_000, 32_768), (200_000, 131_072)]
)
def test_context_holds_prompt_and_answer(prompt: int, size: int | None) -> None:
    assert choose(ContextSizes(), prompt) == size


def test_short_answer_needs_less_room() -> None:
    assert choose(ContextSizes(), 4000, limit=16) is None
    assert choose(ContextSizes(), 4000, limit=32_000) == 8192


def test_size_is_never_lowered() -> None:
    sizes = ContextSizes()
    assert [choose(sizes, prompt) for prompt in (100, 20_000, 100, 5000, 40_000)] == [
        None,
        *[32_768] * 3,
        65_536,
    ]


def test_size_of_the_model_itself_suffices() -> None:
    assert choose(ContextSizes(), 30_000, preset=65_536) is None
    assert choose(ContextSizes(), 64_000, preset=65_536) == 131_072


def test_unknown_model_is_left_to_the_server() -> None:
    assert choose(ContextSizes(), 50_000, greatest=None) is None


@pytest.mark.parametrize(("setting", "size"), [("off", None), (6000, 6000), (500_000, 131_072)])
def test_setting_overrides_the_choice(setting: ContextSize, size: int | None) -> None:
    assert choose(ContextSizes(), 50_000, setting=setting) == size


@given(prompts=st.lists(st.integers(0, 10**7), max_size=8), greatest=st.integers(1, 10**6))
def test_size_is_at_most_that_of_the_model(prompts: list[int], greatest: int) -> None:
    sizes = ContextSizes()
    chosen = [size for prompt in prompts if (size := choose(sizes, prompt, greatest=greatest)) is not None]
    assert all(0 < size <= greatest for size in chosen)
    assert chosen == sorted(chosen)
