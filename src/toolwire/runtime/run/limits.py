"""Limits of a run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")


class RunLimits(Struct, frozen=True, kw_only=True):
    """Limits of one run; None means unlimited."""

    turns: int = 50
    """Model turns."""
    seconds: float | None = 1800.0
    """Total time."""
    tokens: int | None = None
    """Input and output tokens, including those of sub-agents; estimated if the provider reports none."""
    repeats: int = 3
    """Repetitions of the same calls, or of a cycle of turns, before the run stops."""
    parallel: int = 8
    """Concurrent tool calls."""
    history: int | None = None
    """Approximate tokens of conversation sent to the model; the oldest turns beyond it are omitted."""


class RunTimeout(Exception):
    """The run's time limit expired while waiting."""


async def with_deadline(remaining: Callable[[], float | None], items: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the items until the remaining time is over.

    The timeout covers one item at a time, because the consumer may continue in another task.

    Raises `RunTimeout` if the time expired while waiting for an item.
    """
    try:
        while True:
            try:
                async with asyncio.timeout(remaining()) as timeout:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if timeout.expired():
                    raise RunTimeout from None
                raise
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
