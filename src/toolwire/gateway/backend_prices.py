"""Prices of the backends of a route, for runs with a limit on money."""

from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.events import Event, ResponseStart, UsageReport
from toolwire.canonical.response import Usage
from toolwire.codec.models.info import ModelInfo
from toolwire.gateway.exchange.exchange import ExchangeServices
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.providers.price_book import price_reported
from toolwire.upstream.models.price_data import price_hint


class BackendPrices:
    """The prices of the models of a route: configured, as the provider states them, or from packaged data."""

    def __init__(self) -> None:
        self._models: dict[str, ModelInfo] = {}

    async def load(self, services: ExchangeServices, backends: Sequence[Backend]) -> None:
        """Load the prices of all backends; raise `ToolwireError` if one is unknown."""
        for backend in backends:
            if backend.name in self._models:
                continue
            info = await services.prices.ask(backend.provider.name, backend.model or "")
            if info.prices is None:
                raise ToolwireError(
                    f"the price of {backend.name} is unknown, so RunLimits(cost=...) can't be enforced: "
                    f"{price_hint(backend.name)} of the configuration"
                )
            self._models[backend.name] = info

    def add_cost(self, event: Event, backend: Backend) -> Event:
        """Return an event of a backend's response with the cost of its usage, if prices are loaded."""
        if not isinstance(event, UsageReport | ResponseStart) or not self._models or event.usage is None:
            return event
        return replace(event, usage=replace(event.usage, cost=self._price(event.usage, self._models[backend.name])))

    def highest_price(self, usage: Usage) -> float:
        """Return the price of a usage at the most expensive backend, in US dollars."""
        return max(self._price(usage, info) for info in self._models.values())

    def _price(self, usage: Usage, info: ModelInfo) -> float:
        """Return the price of a usage at a model whose prices are known."""
        return float(price_reported(usage, info) or 0)
