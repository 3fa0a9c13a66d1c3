"""Data of the package genai-prices."""

import subprocess
import sys

import pytest

from toolwire.codec.models.info import UNKNOWN_MODEL
from toolwire.upstream.models.price_data import packaged_model


@pytest.mark.parametrize(
    ("provider", "model"),
    [("anthropic", "claude-sonnet-4-5"), ("openai-responses", "gpt-5.5"), ("gemini", "gemini-2.5-pro")],
)
def test_prices_of_cached_input_are_lower(provider: str, model: str) -> None:
    prices = packaged_model(model, provider).prices
    assert prices is not None
    assert prices.cache_read is not None
    assert 0 < prices.cache_read < prices.input < prices.output
    assert all(tier.input and tier.input > prices.input for tier in prices.tiers)


def test_context_window_is_known() -> None:
    assert packaged_model("claude-sonnet-4-5").context == 200_000


def test_base_url_tells_the_provider() -> None:
    assert packaged_model("llama-3.3-70b-versatile", "mine", "https://api.groq.com/openai").prices is not None


def test_nothing_is_known_about_other_models() -> None:
    assert packaged_model("no-such-model", "nobody") is UNKNOWN_MODEL


def test_package_is_optional_and_imported_when_needed() -> None:
    program = (
        "import sys\nsys.modules['genai_prices.data_snapshot'] = None\nimport toolwire as tw\n"
        "assert tw.model_info('anthropic/claude-sonnet-4-5').prices is None\n"
        "assert tw.model_info('anthropic/claude-sonnet-4-5').output == 64_000\n"
        "del sys.modules['genai_prices.data_snapshot']\nimport toolwire.upstream.models.catalog\n"
        "assert 'genai_prices' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
