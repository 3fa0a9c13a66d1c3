"""The model interface that a run uses."""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage


class ModelFailed(ToolwireError):
    """The model request failed or its response is unusable, so the run stops."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class ProviderAccess:
    """Whether models may send requests to providers. The pytest fixture `no_model_requests` turns it off."""

    allowed = True

    @classmethod
    def check(cls, model: str) -> None:
        """Raise `ToolwireError` if requests are not allowed."""
        if not cls.allowed:
            raise ToolwireError(
                f"a test sent a request to {model}: run the agent within agent.override(model=ScriptedModel(...)), "
                "or remove the fixture no_model_requests"
            )


class Model(Protocol):
    """A model that answers canonical requests with canonical events."""

    name: str

    def stream(self, request: Request) -> AsyncIterator[Event]:
        """Yield the events of one response, from its start to its end.

        Raises `ModelFailed` if the provider returned an error or an unusable response.
        """
        ...

    async def close(self) -> None:
        """Release the connections that the model holds."""
        ...


@runtime_checkable
class SupportsPrices(Protocol):
    """A model whose prices are known, so that runs can have a limit on money."""

    async def load_prices(self) -> None:
        """Load the prices, so that the usage of later responses has a `cost`; raise `ToolwireError` if unknown."""
        ...

    def price(self, usage: Usage) -> float:
        """Return the price of a usage that the provider did not report, in US dollars."""
        ...


async def require_prices(model: Model) -> None:
    """Load the prices of a model; raise `ToolwireError` if they are unknown."""
    if not isinstance(model, SupportsPrices):
        raise ToolwireError(f"the price of {model.name} is unknown, so RunLimits(cost=...) can't be enforced")
    await model.load_prices()
