"""Whom the loop asks: anything that turns a canonical request into canonical events."""

from collections.abc import AsyncIterator
from typing import Protocol

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request


class ModelFailed(ToolwireError):
    """The model could not be asked, or its answer can't be used: the run stops."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class Model(Protocol):
    """`ask` gives the events of one answer, from its start to its end, and raises `ModelFailed` if there is none."""

    name: str

    def stream(self, request: Request) -> AsyncIterator[Event]: ...
    async def close(self) -> None: ...
