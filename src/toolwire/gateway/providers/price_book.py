"""The prices of models: configured, as the provider states them, or from packaged data.

The packaged data takes half a second to load, so it is read in a thread, once per model. An Ollama on this machine has
no packaged prices, whatever its models are called.
"""

import asyncio
from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec.structs import replace

from toolwire.canonical.response import Usage
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, merge_info
from toolwire.codec.models.prices import price_usage
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.models.price_data import packaged_model
from toolwire.upstream.provider import Provider

ModelName = tuple[str, str]
"""The name of a provider, and that of a model there."""


class PriceBook:
    """The facts about models that their prices are part of, by provider and model."""

    def __init__(self, catalog: ModelCatalog, providers: Mapping[str, Provider]) -> None:
        self._catalog = catalog
        self._providers = providers
        self._models: BoundedMemo[ModelName, ModelInfo] = BoundedMemo()

    def find(self, provider: str, model: str) -> ModelInfo:
        """Return the facts about a model. The first call may take a second, so it belongs in a thread."""
        key = (provider, model)
        if (known := self._models.get(key)) is not None:
            return known
        info = self._look_up(self._providers.get(provider), model)
        self._models.put(key, info, estimate_entry_size(*key))
        return info

    async def load(self, models: Iterable[ModelName]) -> None:
        """Find the facts about models that are not known yet, in a thread."""
        for name in models:
            if self._models.get(name) is None:
                await asyncio.to_thread(self.find, *name)

    async def ask(self, provider: str, model: str) -> ModelInfo:
        """Return the facts about a model; if no other source knows its price, the provider is asked."""
        await self.load([(provider, model)])
        info = self.find(provider, model)
        if info.prices is None and (configured := self._providers.get(provider)) is not None:
            info = merge_info(info, (await self._catalog.ask(configured, model)).info)
            self._models.put((provider, model), info, estimate_entry_size(provider, model))
        return info

    def price(self, provider: str, model: str, usage: Usage) -> Decimal | None:
        """Return the price of a usage in US dollars; None if it is unknown."""
        return price_reported(usage, self.find(provider, model))

    def known_price(self, provider: str, model: str, usage: Usage | None) -> float | None:
        """Return the price of a usage, if the facts about its model are loaded."""
        info = self._models.get((provider, model))
        price = None if usage is None or info is None else price_reported(usage, info)
        return None if price is None else float(price)

    def _look_up(self, provider: Provider | None, model: str) -> ModelInfo:
        """Return what the catalog and the packaged data know about a model."""
        if provider is None:
            return UNKNOWN_MODEL
        info = self._catalog.look_up(provider, model).info
        is_own = provider.protocol == "ollama" and provider.is_local
        if info.prices is None and not is_own:
            info = merge_info(info, packaged_model(model, provider.name, provider.base_url))
        return info


def price_reported(usage: Usage, info: ModelInfo) -> Decimal | None:
    """Return the price of a usage; a count that the provider did not report is taken as zero."""
    if usage.input_tokens is None or usage.output_tokens is None:
        usage = replace(usage, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0)
    return price_usage(usage, info)
