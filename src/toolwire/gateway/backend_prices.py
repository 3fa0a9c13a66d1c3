"""Prices of the backends of a route, for runs with a limit on money."""

from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.events import Event, ResponseStart, UsageReport
from toolwire.canonical.response import Usage
from toolwire.codec.models.info import ModelInfo, merge_info
from toolwire.codec.models.prices import price_usage
from toolwire.gateway.exchange.exchange import ExchangeServices
from toolwire.gateway.exchange.routing import Backend
from toolwire.upstream.models.price_data import packaged_model


class BackendPrices:
    """The prices of the models of a route: configured, as the provider states them, or from packaged data."""

    def __init__(self) -> None:
        self._models: dict[str, ModelInfo] = {}

    async def load(self, services: ExchangeServices, backends: Sequence[Backend]) -> None:
        """Load the prices of all backends; raise `ToolwireError` if one is unknown."""
        for backend in backends:
            if backend.name in self._models:
                continue
            info = await find_priced_model(services, backend)
            if info.prices is None:
                raise ToolwireError(
                    f"the price of {backend.name} is unknown, so RunLimits(cost=...) can't be enforced: "
                    f'set `prices` in [models."{backend.name}"] of the configuration, or install toolwire[prices]'
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
        """Return the price of a usage; a count that the provider did not report is taken as zero."""
        counted = replace(usage, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0)
        return float(price_usage(counted, info) or 0)


async def find_priced_model(services: ExchangeServices, backend: Backend) -> ModelInfo:
    """Return what is known about a backend's model; the provider is asked if no other source knows the price."""
    provider, model = backend.provider, backend.model or ""
    info = services.catalog.look_up(provider, model).info
    if info.prices is None:
        packaged = await services.body_executor.run_in_thread(packaged_model, model, provider.name, provider.base_url)
        info = merge_info(info, packaged)
    if info.prices is None:
        info = (await services.catalog.ask(provider, model)).info
    return info
