"""Prices of exchanges: from the configuration, the model catalog, or packaged data.

The packaged data takes half a second to load, so it is read in a thread, once per model.
"""

import asyncio

from toolwire.canonical.response import Usage
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.codec.models.info import ModelInfo, merge_info
from toolwire.codec.models.prices import price_usage
from toolwire.gateway.exchange.routing import Router
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.models.price_data import packaged_model
from toolwire.upstream.provider import Provider


class PriceList:
    """Facts about the models of exchanges, with their prices."""

    def __init__(self, router: Router, catalog: ModelCatalog) -> None:
        self._router = router
        self._catalog = catalog
        self._models: BoundedMemo[tuple[str, str], ModelInfo] = BoundedMemo()

    async def load(self, models: set[tuple[str, str]]) -> None:
        """Look up models, given as provider and name, that are not known yet."""
        for key in models:
            if key[0] and self._models.get(key) is None:
                provider = self._router.providers.get(key[0])
                packaged = await asyncio.to_thread(_packaged_model, provider, key[1])
                known = ModelInfo() if provider is None else self._catalog.look_up(provider, key[1]).info
                self._models.put(key, merge_info(known, packaged), estimate_entry_size(*key))

    def cost(self, provider: str, model: str, usage: Usage | None) -> float | None:
        """Return the price of an exchange in US dollars; None if it is unknown."""
        if usage is None or (info := self._models.get((provider, model))) is None:
            return None
        price = price_usage(usage, info)
        return None if price is None else float(price)


def _packaged_model(provider: Provider | None, model: str) -> ModelInfo:
    """Return what the packaged data knows about a model."""
    if provider is None:
        return packaged_model(model)
    return packaged_model(model, provider.name, provider.base_url)
