"""Prices of token counts."""

from decimal import Decimal

import pytest

from toolwire.canonical.response import Usage
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, Prices, PriceTier
from toolwire.codec.models.prices import price_usage

PRICES = Prices(
    input=3,
    output=15,
    cache_read=0.3,
    cache_write=3.75,
    searches=10,
    tiers=(PriceTier(above=200_000, input=6, output=22.5, cache_read=0.6, cache_write=7.5),),
)
MODEL = ModelInfo(prices=PRICES)


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (Usage(input_tokens=1_000_000 // 10, output_tokens=0), "0.3"),
        (Usage(input_tokens=1000, output_tokens=100), "0.0045"),
        (Usage(input_tokens=1000, cache_read=1000, output_tokens=0), "0.0003"),
        (Usage(input_tokens=1000, cache_read=400, cache_write=100, output_tokens=10), "0.002145"),
        (Usage(input_tokens=1000, output_tokens=0, searches=2), "0.023"),
        (Usage(input_tokens=200_000, output_tokens=0), "0.6"),
        (Usage(input_tokens=200_001, output_tokens=0), "1.200006"),
        (Usage(input_tokens=300_000, cache_read=100_000, output_tokens=1000), "1.2825"),
    ],
)
def test_each_token_is_priced_once(usage: Usage, price: str) -> None:
    assert price_usage(usage, MODEL) == Decimal(price)


def test_cached_tokens_cost_as_much_as_input_without_a_price() -> None:
    model = ModelInfo(prices=Prices(input=2, output=8))
    usage = Usage(input_tokens=1000, cache_read=600, cache_write=100, output_tokens=0)
    assert price_usage(usage, model) == Decimal("0.002")


def test_counts_of_a_cache_above_the_input_do_not_make_it_negative() -> None:
    usage = Usage(input_tokens=10, cache_read=100, cache_write=100, output_tokens=0)
    assert price_usage(usage, MODEL) == Decimal("0.000003")


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=1), Usage(output_tokens=1)])
def test_price_is_unknown_without_counts(usage: Usage) -> None:
    assert price_usage(usage, MODEL) is None


def test_price_is_unknown_without_prices() -> None:
    assert price_usage(Usage(input_tokens=1, output_tokens=1), UNKNOWN_MODEL) is None
