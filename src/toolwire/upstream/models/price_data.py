"""Context windows and prices from the data of the package genai-prices, without a network.

The package is optional (`toolwire[prices]`), and takes half a second to import, so it is imported when first needed.
"""

from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, Prices, PriceTier
from toolwire.installation import has_extra, missing_extra_message

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

# The package's names of providers, by those that toolwire discovers.
_PROVIDERS = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "openai": "openai",
    "gemini": "google",
    "gemini-interactions": "google",
    "openrouter": "openrouter",
}
_TOKEN_PRICES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def price_hint(model: str) -> str:
    """Return how to set the price of a model, and how to install the price list if it is missing."""
    setting = f'set `prices` in [models."{model}"]'
    return setting if has_extra("prices") else f"{missing_extra_message('prices', 'the price list')}; or {setting}"


@lru_cache(maxsize=512)
def packaged_model(name: str, provider: str | None = None, base_url: str | None = None) -> ModelInfo:
    """Return what the package knows about a model: of the provider's address, of its name, or else of the model's."""
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
    except ImportError:
        return UNKNOWN_MODEL
    for id, url in ((None, base_url), (_PROVIDERS.get(provider or "", provider), None), (None, None)):
        try:
            _, model = snapshot.find_provider_model(name, None, id, url)
        except LookupError:
            continue
        return ModelInfo(context=model.context_window, prices=_read_prices(model.get_prices(datetime.now(UTC))))
    return UNKNOWN_MODEL


def _read_prices(price: "ModelPrice") -> Prices | None:
    """Return the package's prices in toolwire's form; None unless it has prices of input and output."""
    entries: dict[str, Any] = {name: getattr(price, key) for name, key in _TOKEN_PRICES.items()}
    base = {name: _base_price(entry) for name, entry in entries.items()}
    if base["input"] is None or base["output"] is None:
        return None
    starts = sorted({tier.start for entry in entries.values() for tier in getattr(entry, "tiers", ())})
    tiers = tuple(
        PriceTier(above=start, **{name: _tier_price(entry, start) for name, entry in entries.items()})
        for start in starts
    )
    return Prices(**base, searches=_base_price(price.web_searches_kcount), tiers=tiers)  # type: ignore[arg-type]


def _base_price(entry: Any) -> float | None:
    """Return the price of a short prompt."""
    return None if entry is None else float(getattr(entry, "base", entry))


def _tier_price(entry: Any, start: int) -> float | None:
    """Return the price of a prompt with more than `start` tokens; None if the base price holds."""
    prices = [tier.price for tier in getattr(entry, "tiers", ()) if tier.start <= start]
    return float(prices[-1]) if prices else None
