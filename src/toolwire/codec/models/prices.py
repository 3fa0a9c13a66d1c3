"""The price of a response, from its token counts."""

from decimal import Decimal
from functools import lru_cache

from toolwire.canonical.response import Usage
from toolwire.codec.models.info import ModelInfo, Prices, PriceTier

_MILLION, _THOUSAND = Decimal(1_000_000), Decimal(1000)


def price_usage(usage: Usage, model: ModelInfo) -> Decimal | None:
    """Return the price of a usage in US dollars; None if prices or token counts are unknown.

    `input_tokens` includes what was read from and written to a cache, in every protocol, so each token is priced once.
    """
    if model.prices is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    prices, tier = model.prices, None
    if prices.tiers:
        tier = next((tier for tier in reversed(prices.tiers) if usage.input_tokens > tier.above), None)
    input_price, output_price, read_price, write_price = _token_prices(prices, tier)
    read = min(usage.cache_read or 0, usage.input_tokens)
    written = min(usage.cache_write or 0, usage.input_tokens - read)
    tokens = (
        (usage.input_tokens - read - written) * input_price
        + read * read_price
        + written * write_price
        + usage.output_tokens * output_price
    )
    if not usage.searches:
        return tokens / _MILLION
    return tokens / _MILLION + usage.searches * _decimal(prices.searches) / _THOUSAND


@lru_cache(maxsize=1024)
def _token_prices(prices: Prices, tier: PriceTier | None) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """Return the prices of input, output, cache reads and cache writes, in a tier for long prompts if there is one."""
    values = [prices.input, prices.output, prices.cache_read, prices.cache_write]
    if tier is not None:
        longer = (tier.input, tier.output, tier.cache_read, tier.cache_write)
        values = [base if price is None else price for base, price in zip(values, longer, strict=True)]
    input_price, output_price, read_price, write_price = values
    return (
        _decimal(input_price),
        _decimal(output_price),
        _decimal(input_price if read_price is None else read_price),
        _decimal(input_price if write_price is None else write_price),
    )


def _decimal(price: float | None) -> Decimal:
    """Return a price as it is written, without the error of binary fractions."""
    return Decimal(repr(price or 0))
