"""The model interface that a run uses."""

from collections.abc import AsyncIterator
from typing import Protocol

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request


class ModelFailed(ToolwireError):
    """The model request failed or its response is unusable, so the run stops."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


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
